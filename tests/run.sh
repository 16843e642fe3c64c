#!/bin/sh
# What `make test` does: format, clippy, all tests, and at the end what was skipped and why.
# A test that fails once is a failure: nothing is tried again.
set -eu
cd "$(dirname "$0")/.."
CCM_TEST_SKIPPED=$(mktemp)
export CCM_TEST_SKIPPED
# The simulated API server lets ccm do what manifests/base allows; some tests name the role of the other project.
export CCM_TEST_ROLE="${CCM_TEST_ROLE-manifests}"
trap 'rm -f "$CCM_TEST_SKIPPED"' EXIT

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
# They mostly wait, and for seconds: with two threads for each core the processors had nothing to do most of the time.
export RUST_TEST_THREADS="${RUST_TEST_THREADS-$(($(nproc) * 8))}"
cargo test --workspace --locked --no-fail-fast
# Where Kubernetes' programs are built already, for that takes longer than all the rest.
if [ -n "${CCM_TOOLS-}" ]; then
    tests/pod.sh --no-build
else
    echo "skipped test-node: CCM_TOOLS names no folder with Kubernetes' programs" >>"$CCM_TEST_SKIPPED"
fi

echo
if [ -s "$CCM_TEST_SKIPPED" ]; then
    echo "Skipped:"
    sort -u "$CCM_TEST_SKIPPED" | sed 's/^skipped /  /'
else
    echo "Nothing was skipped."
fi
