#!/bin/sh
# What `make test-release` does: `make release` here, and again in a new clone in another folder, with another umask and
# time zone. Every file must be equal, and what users do first with them must work.
set -eu
cd "$(dirname "$0")/.."
source=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM

make --silent release
(
    umask 077
    git clone --quiet "$source" "$place/another/folder"
    cd "$place/another/folder"
    # Tools are built once: they are no part of a release.
    mkdir target
    ln -s "$source/target/tools" target/tools
    TZ=Asia/Tokyo make --silent release
)
diff --brief --recursive target/dist "$place/another/folder/target/dist"

cd target/dist
sha256sum --quiet --check SHA256SUMS
if grep --recursive --text --files-with-matches -F -e "$source" -e "$place" -e "${CARGO_HOME:-$HOME/.cargo}" .; then
    echo "these files name a folder of this machine" >&2
    exit 1
fi
case $(uname -m) in
    x86_64) kind=amd64 ;;
    *) kind=arm64 ;;
esac
./ccm-*-linux-$kind version -o json | grep -qF "\"commit\": \"$(git rev-parse HEAD)\""
echo "two releases of one commit are equal: $(ls | wc -l) files"
