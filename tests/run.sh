#!/bin/sh
# What `make test` does: format, clippy, all tests, and at the end what was skipped and why.
set -eu
cd "$(dirname "$0")/.."
CCM_TEST_SKIPPED=$(mktemp)
export CCM_TEST_SKIPPED
# The simulated API server lets ccm do what manifests/base allows; some tests name the role of the other project.
export CCM_TEST_ROLE="${CCM_TEST_ROLE-manifests}"
trap 'rm -f "$CCM_TEST_SKIPPED"' EXIT

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
# They wait more than they compute.
export RUST_TEST_THREADS="${RUST_TEST_THREADS-$(($(nproc) * 2))}"
output=$(mktemp)
again=""
{ cargo test --workspace --locked --no-fail-fast 2>&1 && : >"$output.passed"; } | tee "$output"
if ! [ -e "$output.passed" ]; then
    # On a machine that is busy otherwise a limit may be missed: what failed runs again, alone, and is told below.
    again=$(awk '
        /^test .* \.\.\. FAILED$/ { names = names " " $2 }
        /^error: test failed, to rerun pass/ { split($0, part, "`"); print part[2] " -- --exact --test-threads=1" names; names = "" }
    ' "$output")
    [ -n "$again" ] || exit 1
    echo "$again" | while read -r words; do
        # shellcheck disable=SC2086 # Words of a command line.
        cargo test --locked $words </dev/null || cargo test --locked $words </dev/null
    done
fi
rm -f "$output" "$output.passed"

if [ -n "$again" ]; then
    printf '\nFailed at first, and passed alone:\n%s\n' "$again"
fi
echo
if [ -s "$CCM_TEST_SKIPPED" ]; then
    echo "Skipped:"
    sort -u "$CCM_TEST_SKIPPED" | sed 's/^skipped /  /'
else
    echo "Nothing was skipped."
fi
