#!/bin/sh
# What `make test` does: format, clippy, all tests. At its end it prints how long each part took, which tests took long,
# what was skipped and why, and what failed. A test that fails once is a failure: nothing is tried again.
set -eu
cd "$(dirname "$0")/.."
# Tests that take more than these seconds are listed.
LONG=5
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
trap 'exit 130' INT TERM
export CCM_TEST_SKIPPED="$kept/skipped"
touch "$CCM_TEST_SKIPPED" "$kept/failed" "$kept/tests"
# The simulated API server lets ccm do what manifests/base allows; some tests name the role of the other project.
export CCM_TEST_ROLE="${CCM_TEST_ROLE-manifests}"
# They mostly wait, and for seconds: with two threads for each core the processors had nothing to do most of the time.
export RUST_TEST_THREADS="${RUST_TEST_THREADS-$(($(nproc) * 8))}"

# timed PART COMMAND…: runs the command, and notes how many seconds it took.
timed() {
    part="$1"
    shift
    begun=$(date +%s)
    status=0
    "$@" || status=$?
    echo "$(($(date +%s) - begun)) $part" >>"$kept/parts"
    return $status
}

# The test harness of Rust tells how long each test took when RUSTC_BOOTSTRAP allows its unstable options. Only the test
# programs get that variable, from `env`: cargo would build everything again.
test_programs() {
    cargo test --workspace --all-targets --locked --no-fail-fast \
        --config 'target."cfg(all())".runner = ["env", "RUSTC_BOOTSTRAP=1"]' -- -Z unstable-options --report-time
}

# Reads the output of the test programs: how long each program took, and of each test the seconds, the result, the program
# and the name.
read_times() {
    LC_ALL=C awk -v parts="$kept/parts" -v tests="$kept/tests" '
        / Running .*\/deps\// { program = $NF; gsub(/.*\/|-[0-9a-f]*\)$/, "", program) }
        /^test result: .* finished in [0-9.]*s$/ { printf "%.0f %s\n", $NF, program >>parts }
        / \.\.\. (ok|FAILED) <[0-9.]*s>$/ { print substr($NF, 2) + 0, $(NF - 1), program, $(NF - 3) >tests }
    ' "$kept/log"
}

started=$(date +%s)
timed format cargo fmt --all --check
timed clippy cargo clippy --workspace --all-targets --locked -- -D warnings
timed building cargo test --workspace --all-targets --locked --no-run
{ test_programs || echo "the test programs" >>"$kept/failed"; } 2>&1 | tee "$kept/log"
read_times
timed "doc tests" cargo test --workspace --doc --locked --no-fail-fast || echo "the doc tests" >>"$kept/failed"
# Where Kubernetes' programs are built already, for that takes longer than all the rest.
if [ -z "${CCM_TOOLS-}" ]; then
    echo "skipped test-node: CCM_TOOLS names no folder with Kubernetes' programs" >>"$CCM_TEST_SKIPPED"
elif [ ! -s "$kept/failed" ]; then
    timed test-node tests/pod.sh --no-build || echo "test-node" >>"$kept/failed"
fi

echo
echo "Seconds of each part, $(($(date +%s) - started)) together:"
# A library and a program of one name are one part.
awk '{ seconds = $1; sub(/^[0-9]* /, ""); if (!($0 in all)) order[++count] = $0; all[$0] += seconds }
    END { for (n = 1; n <= count; n++) printf "%6d  %s\n", all[order[n]], order[n] }' "$kept/parts"
echo "Tests that took more than $LONG seconds:"
LC_ALL=C sort -rn "$kept/tests" | LC_ALL=C awk -v long=$LONG '$1 > long { printf "%6.1f  %s  %s\n", $1, $3, $4 }'
if [ -s "$CCM_TEST_SKIPPED" ]; then
    echo "Skipped:"
    sort -u "$CCM_TEST_SKIPPED" | sed 's/^skipped /  /'
else
    echo "Nothing was skipped."
fi
if [ -s "$kept/failed" ]; then
    echo "Failed, with the output above:"
    sed 's/^/  /' "$kept/failed"
    awk '$2 == "FAILED" { print "  " $3 "  " $4 }' "$kept/tests"
    exit 1
fi
