#!/bin/sh
# What `make release` does: all that a release consists of, in target/dist. Two runs on one commit are equal to the last
# byte, wherever they are made: times are the commit's, and no path of this machine is in a file.
#
# REGISTRY names where the image is pushed to, e.g. registry.example.com/team: the chart's package then has it.
# BUILDER is buildah, or podman with its own flags.
set -eu
umask 022
export LC_ALL=C TZ=UTC
cd "$(dirname "$0")/.."
DENY=0.20.2
CYCLONEDX=0.5.9

fail() {
    echo "release: $1" >&2
    exit 1
}

# needs PROGRAM WHAT-TO-DO
needs() {
    command -v "$1" >/dev/null || fail "there is no $1 here: $2"
}
needs git "apt-get install git"
needs cargo "install rustup: https://rustup.rs"
needs rustup "a release is built with the toolchain of rust-toolchain.toml: https://rustup.rs"
needs buildah "apt-get install buildah"
needs jq "apt-get install jq"
case $(uname -m) in
    x86_64) other=aarch64 package=gcc-aarch64-linux-gnu ;;
    aarch64) other=x86_64 package=gcc-x86-64-linux-gnu ;;
    *) fail "$(uname -m) is neither x86_64 nor aarch64" ;;
esac
needs $other-linux-gnu-gcc "apt-get install $package"

[ "$(git rev-parse --show-prefix 2>/dev/null || echo none)" = "" ] || fail "this is no git checkout, but the commit and the notes come from git"
[ "$(git rev-parse --is-shallow-repository)" = false ] || fail "the checkout is shallow: git fetch --unshallow --tags"
[ -z "$(git status --porcelain)" ] || fail "there are changes without a commit: git status"
channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
toolchain=$(rustc --version)
case $toolchain in
    "rustc $channel "*) ;;
    *) fail "$toolchain is not the $channel of rust-toolchain.toml: rustup toolchain install $channel" ;;
esac

# tool NAME VERSION: cargo's, built once into target/tools.
tool() {
    cargo install --list --root target/tools | grep -qx "$1 v$2:" ||
        cargo install --debug --locked --root target/tools "$1@$2" ||
        fail "$1 $2 can't be built: the first build needs access to crates.io"
}
tool cargo-deny $DENY
tool cargo-cyclonedx $CYCLONEDX
PATH=$PWD/target/tools/bin:$PWD/target/tools:$PATH
command -v helm >/dev/null || command -v go >/dev/null || fail "there is neither helm nor Go, which could build helm: https://go.dev/dl"
make --silent helm

version=$(sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=ccm-from-scratch-$version
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
image=${REGISTRY:+${REGISTRY%/}/}ccm-from-scratch
mkdir -p target
work=$(mktemp -d "$PWD/target/release.XXXXXX")
# In the image builder's store are files of other users, where it runs without root.
trap 'rm -rf "$work" 2>/dev/null || buildah unshare rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
dist=$work/dist
mkdir -p "$dist" "$work/image"

# archive FOLDER: as a tar on stdout.
archive() {
    tar --create --directory "$1" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX -- $(ls "$1")
}

echo "licences, double and banned crates, sources"
deny="cargo deny --locked --log-level error --config manifests/deny.toml"
$deny check --hide-inclusion-graph bans licenses sources
advisories="advisories: the database of known errors can't be fetched here"
if timeout 120 $deny fetch db >"$work/fetch.log" 2>&1; then
    $deny check --disable-fetch advisories
    advisories=""
fi

# One archive with an index: of each kind of machine the same name and digest.
manifests=""
for arch in x86_64 aarch64; do
    case $arch in
        x86_64) kind=amd64 ;;
        aarch64) kind=arm64 ;;
    esac
    make --silent build ARCH=$arch
    binary=target/$arch-unknown-linux-musl/release/ccm
    cp "$binary" "$dist/ccm-$version-linux-$kind"
    store="--storage-driver=vfs --root=$work/store --runroot=$work/run"
    IMAGE=ccm-from-scratch:$version BUILDER=${BUILDER:-buildah $store} manifests/image.sh "$binary" $arch "$work/image" \
        >"$work/image.log" 2>&1 || { cat "$work/image.log" >&2; exit 1; }
    mkdir -p "$work/oci"
    tar --extract --directory "$work/oci" --file "$work/image/$name-$kind.tar"
    digest=$(cat "$work/image/$kind.digest")
    size=$(stat --format=%s "$work/oci/blobs/sha256/${digest#sha256:}")
    of_kind='{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"'$digest'","size":'$size',"platform":{"architecture":"'$kind'","os":"linux"}}'
    manifests=$manifests${manifests:+,}$of_kind
done
index='{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":['$manifests']}'
hash=$(printf %s "$index" | sha256sum | cut -d' ' -f1)
printf %s "$index" >"$work/oci/blobs/sha256/$hash"
# Without a registry in it, a node's runtime looks for the name under this one.
full=$image:$version
case $image in
    */*) ;;
    *) full=docker.io/library/$full ;;
esac
cat >"$work/oci/index.json" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:$hash","size":${#index},"annotations":{"org.opencontainers.image.ref.name":"$full","io.containerd.image.name":"$full"}}]}
END
archive "$work/oci" >"$dist/$name-image.tar"

# The digest is part of the tag: it decides, whatever the tag in the registry means later. Not by `helm package`, which
# writes the time of day; helm reads the result.
mkdir "$work/chart"
git archive HEAD manifests/chart | tar --extract --directory "$work"
mv "$work/manifests/chart" "$work/chart/ccm-from-scratch"
sed -i "/^image:/,/^[a-z]/{
    s|^  repository: .*|  repository: '${REGISTRY:+$image}'|
    s|^  tag: .*|  tag: '$version@sha256:$hash'|
}" "$work/chart/ccm-from-scratch/values.yaml"
archive "$work/chart" | gzip --no-name --best >"$dist/$name.tgz"
helm show chart "$dist/$name.tgz" | grep -qx "appVersion: $version" || fail "manifests/chart/Chart.yaml does not have version $version"
[ -n "${REGISTRY-}" ] || set -- --set "image.repository=$image"
helm template "$@" --kube-version 1.36.0 ccm "$dist/$name.tgz" | grep -qF "image: $image:$version@sha256:$hash" ||
    fail "the package of the chart does not name the image"

# Of each crate below the program its name, version and licence.
crates() {
    cargo tree --locked --edges normal --prefix none --format '{p} |{l}' --target "$1-unknown-linux-musl" |
        sed 's/^\([^ ]*\) v\([^ ]*\) [^|]*|\(.*\)$/\1 \2 \3/; s/ (\*)$//' | sort -u
}
crates x86_64 >"$work/crates"
crates aarch64 | cmp -s - "$work/crates" || fail "the binaries have different crates, but SBOM and licences describe only one binary"

# In a copy: the tool writes beside Cargo.toml, and names this folder in its identifiers. Without the crates that only the
# build and tests use, and those that `cargo metadata` lists for a feature that is off.
mkdir "$work/sbom"
git archive HEAD | tar --extract --directory "$work/sbom"
cargo cyclonedx --quiet --manifest-path "$work/sbom/Cargo.toml" --format json --spec-version 1.5 \
    --target x86_64-unknown-linux-musl --override-filename sbom
sed "s|$work/sbom|/ccm|g" "$work/sbom/sbom.json" | jq --rawfile crates "$work/crates" '
    ($crates | split("\n") | map(split(" ")[:2] | join(" "))) as $built
    | [.components[] | select("\(.name) \(.version)" | IN($built[]) | not)."bom-ref"] as $others
    | .components |= map(select(."bom-ref" | IN($others[]) | not))
    | .dependencies |= map(select(.ref | IN($others[]) | not) | if .dependsOn then .dependsOn -= $others else . end)' \
    >"$dist/$name.cdx.json"
# All but the program itself.
[ "$(jq '.components | length' "$dist/$name.cdx.json")" = "$(($(wc -l <"$work/crates") - 1))" ] ||
    fail "the SBOM has other crates than the binaries"

# Each text of a licence once, with the crates that have it.
cargo metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-musl | tr ',' '\n' |
    sed -n 's/.*"manifest_path":"\(.*\)\/Cargo.toml".*/\1/p' >"$work/folders"
mkdir "$work/texts"
while read -r crate of _; do
    folder=$(grep -m1 "/$crate-$of\$" "$work/folders" || :)
    [ "$crate-$of" != "$name" ] || folder=$PWD
    found=""
    for text in "$folder"/LICEN[CS]E* "$folder"/COPYING* "$folder"/UNLICENSE*; do
        [ -f "$text" ] || continue
        found=yes
        sum=$(sha256sum <"$text" | cut -c1-64)
        cp "$text" "$work/texts/$sum"
        echo "$crate $of" >>"$work/texts/$sum.crates"
    done
    [ -n "$found" ] || fail "$crate $of has no licence text in its package"
done <"$work/crates"
{
    echo "What the program contains, with its licences: crates, then the text of each licence with the crates that have it."
    echo "Beside these the Rust standard library (MIT OR Apache-2.0, https://www.rust-lang.org/policies/licenses)"
    echo "and musl libc (MIT, https://musl.libc.org)."
    echo
    cat "$work/crates"
    grep -l . "$work"/texts/*.crates | while read -r crates; do
        echo "$(head -1 "$crates") $crates"
    done | sort | while read -r _ _ crates; do
        printf '\n%s\n%s\n\n' ================ "$(cat "$crates")"
        tr -d '\r' <"${crates%.crates}"
    done
} >"$dist/$name-licenses.txt"

# Since the tag before this commit's own.
before=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || :)
count=$(git rev-list --count --no-merges ${before:+"$before.."}HEAD)
{
    echo "# ccm-from-scratch $version"
    echo
    echo "- Commit $commit, built with $toolchain."
    echo "- Image \`$image:$version@sha256:$hash\` for linux/amd64 and linux/arm64."
    echo
    echo "## Changes since ${before:-the beginning}"
    echo
    git log --no-merges --max-count=50 --format='- %s' ${before:+"$before.."}HEAD
    [ "$count" -le 50 ] || echo "- … and $((count - 50)) more"
} >"$dist/$name-notes.md"

chmod 644 "$dist"/*
chmod 755 "$dist/ccm-$version-linux-"*
(cd "$dist" && sha256sum -- * >../sums && mv ../sums SHA256SUMS)
rm -rf target/dist
mv "$dist" target/dist
ls -l target/dist
[ -z "$advisories" ] || echo "skipped $advisories"
