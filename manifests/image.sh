#!/bin/sh
# What `make image` does with a static binary: an OCI archive, and the same image in the builder's own store.
#
#   manifests/image.sh BINARY x86_64|aarch64 [FOLDER]
#
# IMAGE names it, BUILDER is the program (buildah, else podman, else docker) with its own flags.
# Equal binaries of one commit make equal images: the time in them is the commit's, or SOURCE_DATE_EPOCH.
set -eu
binary=$1
case $2 in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *)
        echo "image.sh: $2: there is no image for this kind of machine; x86_64 and aarch64 have one" >&2
        exit 2
        ;;
esac
source=$(cd "$(dirname "$0")/.." && pwd)
folder=${3:-$source/target/image}
version=$(sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' "$source/Cargo.toml")
image=${IMAGE:-ccm-from-scratch:$version}
# Of a commit; outside of git of none.
revision=$(git -C "$source" describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown)
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct 2>/dev/null || echo 0)}

builder=${BUILDER:-}
for program in buildah podman docker; do
    if [ -z "$builder" ] && command -v "$program" >/dev/null; then builder=$program; fi
done
if [ -z "$builder" ]; then
    echo "image.sh: there is no buildah, podman or docker here: apt-get install buildah" >&2
    exit 1
fi

# What the image holds. Modes are set: they must not depend on who builds.
root=$folder/$arch
rm -rf "$root"
mkdir -p "$root/bin"
cp "$binary" "$root/ccm"
chmod 0755 "$root" "$root/bin" "$root/ccm"
ln -s ../ccm "$root/bin/hcloud-cloud-controller-manager"

set -- --file "$source/manifests/Containerfile" --platform "linux/$arch" --tag "$image" \
    --build-arg "VERSION=$version" --build-arg "REVISION=$revision"
case $builder in
    docker*)
        # Its layers keep the files' times unless buildx rewrites them, so only the content is equal.
        SOURCE_DATE_EPOCH=$epoch $builder build "$@" "$root"
        ;;
    *)
        archive=$folder/ccm-from-scratch-$version-$arch.tar
        rm -f "$archive"
        # A node's runtime looks for a name without a registry under this one.
        case $image in
            */*) full=$image ;;
            *) full=docker.io/library/$image ;;
        esac
        $builder build "$@" --format oci --layers=false --timestamp "$epoch" --identity-label=false "$root"
        $builder push --quiet --digestfile "$folder/$arch.digest" "$image" "oci-archive:$archive:$full"
        echo "$archive: $image, linux/$arch, $(cat "$folder/$arch.digest")"
        ;;
esac
