#!/bin/sh
# What `make test-node` does: our image as a Pod on a real node. etcd, API server, controller manager, scheduler, kubelet,
# containerd and runc run in namespaces of their own; Hetzner is simulated. Ends by itself and leaves nothing behind.
#
#   tests/pod.sh             all; ends with one line for each thing that was seen
#   tests/pod.sh --no-build  only where Kubernetes' programs are built already
#   KEEP=1 tests/pod.sh      on a failure a shell in the namespaces, before all is ended
set -eu
cd "$(dirname "$0")/.."

# Where it can't run this is no failure.
skip() {
    echo "skipped test-node: $1"
    [ -z "${CCM_TEST_SKIPPED-}" ] || echo "skipped test-node: $1" >>"$CCM_TEST_SKIPPED"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "it needs root"
for program in containerd containerd-shim-runc-v2 ctr runc unshare setpriv ip openssl curl pgrep go buildah; do
    command -v $program >/dev/null || skip "there is no $program here"
done
[ -x /usr/lib/cni/bridge ] || skip "there is no /usr/lib/cni/bridge here: apt-get install containernetworking-plugins"
[ -d /sys/fs/cgroup/memory ] || skip "this machine has cgroup v2; it is made for v1"
unshare --net --mount --pid --cgroup --fork true 2>/dev/null || skip "no namespaces can be made here"

. tests/programs.sh
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl"
if [ "${1-}" = --no-build ]; then
    for program in "$tools/etcd" $(printf "$kubernetes/%s " $programs); do
        [ -x "$program" ] || skip "there is no $program; make test-node builds it in target/tools, or where CCM_TOOLS says"
    done
fi
etcd
kubernetes $programs
[ -x "$tools/helm" ] || make --silent helm
cargo build --quiet --locked --workspace
echo "building the image"
builder="buildah --storage-driver=vfs --root=$PWD/target/buildah --runroot=$PWD/target/buildah-run"
make --silent image BUILDER="$builder" >target/image.log 2>&1 || { cat target/image.log; exit 1; }

# All of it is under this group of each hierarchy, and goes with it.
group=ccm-test-node-$$
place=$(mktemp -d)
mkfifo "$place/alive"
# Waits for the last process that has the pipe, however it ends, and then cleans up.
setsid sh -c '
    read -r _ || :
    tries=0
    while [ $tries -lt 100 ] && ls -d /sys/fs/cgroup/*/"$1" >/dev/null 2>&1; do
        find /sys/fs/cgroup/*/"$1" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.2
        tries=$((tries + 1))
    done
    rm -rf "$2"
' - "$group" "$place" <"$place/alive" >/dev/null 2>&1 &
cleaning=$!
exec 9>"$place/alive"

inside() {
    for hierarchy in /sys/fs/cgroup/*/; do
        mkdir -p "$hierarchy$group"
        if [ -f "$hierarchy$group/cpuset.cpus" ]; then
            for of in cpuset.cpus cpuset.mems; do cat "$hierarchy$of" >"$hierarchy$group/$of"; done
        fi
        echo 0 >"$hierarchy$group/cgroup.procs"
    done
    export place KUBERNETES
    exec setpriv --pdeathsig KILL unshare --net --mount --pid --cgroup --fork --mount-proc --kill-child \
        sh tests/pod-inside.sh
}
inside &
inner=$!
end() {
    kill -KILL $inner 2>/dev/null || :
    exec 9>&-
    wait $cleaning || :
}
trap end EXIT
trap 'exit 130' INT TERM
wait $inner
