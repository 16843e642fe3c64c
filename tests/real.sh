#!/bin/sh
# What `make test-real` does: a Kubernetes API server of one's own, and the tests on it.
# API server and etcd are built by Go from their published modules into target/tools, once: some ten minutes, 6 GB of disk.
set -eu
cd "$(dirname "$0")/.."
. tests/programs.sh
place=$(mktemp -d)
started=""
# They are in no hurry to end, and nothing of theirs is kept.
trap 'kill -KILL $started 2>/dev/null || :; rm -rf "$place"' EXIT
trap 'exit 130' INT TERM

etcd
kubernetes kube-apiserver

# Three ports, one after the other, that nobody is likely to have.
port=$(shuf -i 21000-29000 -n 1)
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
echo "$token,admin,admin,system:masters" >"$place/tokens"
openssl genrsa -out "$place/account.key" 2048 2>/dev/null
"$tools/etcd" --data-dir "$place/etcd" --unsafe-no-fsync --listen-peer-urls "http://127.0.0.1:$((port + 1))" \
    --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" >"$place/etcd.log" 2>&1 &
started="$!"
"$kubernetes/kube-apiserver" --etcd-servers "http://127.0.0.1:$port" --bind-address 127.0.0.1 --secure-port $((port + 2)) \
    --cert-dir "$place" --token-auth-file "$place/tokens" --authorization-mode Node,RBAC \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$place/account.key" \
    --service-account-signing-key-file "$place/account.key" --service-cluster-ip-range 10.96.0.0/16,fd00:96::/112 \
    --endpoint-reconciler-type none >"$place/api.log" 2>&1 &
started="$started $!"
kubeconfig "$place/kubeconfig" "https://127.0.0.1:$((port + 2))" "$token"
tries=0
until curl -sfk -H "Authorization: Bearer $token" "https://127.0.0.1:$((port + 2))/api/v1/namespaces/default/services/kubernetes" >/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 120 ] || { tail -n 20 "$place/api.log"; exit 1; }
    sleep 1
done
echo "real.sh: Kubernetes $KUBERNETES at https://127.0.0.1:$((port + 2))"
export CCM_TEST_KUBECONFIG="$place/kubeconfig" CCM_TEST_ROLE=manifests RUST_TEST_THREADS="${RUST_TEST_THREADS-4}"
if [ $# -gt 0 ]; then
    "$@"
else
    # Services with megabytes of annotations are in every list of the server's Services, so they are alone there.
    result=0
    cargo test --workspace --locked --no-fail-fast -- --skip sync::budget:: || result=$?
    RUST_TEST_THREADS=1 cargo test --locked --test service -- sync::budget:: || result=$?
    exit $result
fi
