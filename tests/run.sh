#!/bin/sh
# What `make test` does: format, clippy, all tests, and at the end what was skipped and why.
set -eu
cd "$(dirname "$0")/.."
CCM_TEST_SKIPPED=$(mktemp)
export CCM_TEST_SKIPPED
trap 'rm -f "$CCM_TEST_SKIPPED"' EXIT

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
cargo test --workspace --locked

echo
if [ -s "$CCM_TEST_SKIPPED" ]; then
    echo "Skipped:"
    sort -u "$CCM_TEST_SKIPPED" | sed 's/^skipped /  /'
else
    echo "Nothing was skipped."
fi
