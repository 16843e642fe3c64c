#!/bin/sh
# What `make demo` shows: three new nodes, ccm, three nodes that work and their routes, a Service that gets its
# load balancer, a route that is added again, and a node that is deleted with its server and route. Ends by itself.
# CCM_DEMO_BINARIES: the folder of ccm and sandbox; else target/debug.
set -eu
cd "$(dirname "$0")/.."
PATH=${CCM_DEMO_BINARIES:-$PWD/target/debug}:$PATH
folder=$(mktemp -d)
sandbox_id=
ccm_id=

finish() {
    for id in $ccm_id $sandbox_id; do kill "$id" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n%s\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

# Waits at most 60 seconds for a command to succeed.
await() {
    what=$1; shift
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "demo: waited 60 s without success for $what; the log of ccm:" >&2
    cat "$folder/log" >&2 || true
    exit 1
}

# Lines of the log with this text; the first is waited for.
logs() {
    await "the line $1" grep -q "$1" "$folder/log"
    grep "$1" "$folder/log"
}

say "A Hetzner Cloud project and a Kubernetes cluster, simulated on this machine:"
env -u HCLOUD_TOKEN -u KUBECONFIG sandbox --nodes 3 --network=10.0.0.0/8 --scale 0.1 --env-file "$folder/env" >/dev/null &
sandbox_id=$!
await "the sandbox" test -f "$folder/env"
. "$folder/env"
export HCLOUD_METRICS_ADDRESS=127.0.0.1:0 # a demonstration opens no port to the world
if command -v kubectl >/dev/null; then show kubectl get nodes -o wide; fi

say "Before: the servers exist, but no pod may run on the nodes yet."
show ccm node list

say "For one node: why no pod may run, and what ccm would do:"
show ccm node inspect worker-1

say "The daemon at work:"
routed=--cluster-cidr=10.244.0.0/16
# Nodes that are initialised after the first comparison of routes wait for the next one: not for the usual 30 seconds here.
run="ccm run $routed --route-reconciliation-period=3s"
echo "\$ $run"
$run 2>"$folder/log" &
ccm_id=$!
initialised() { ! ccm node list 2>/dev/null | grep -q initialise; }
await "initialised nodes" initialised
routes() { ccm route sync $routed --dry-run --detailed-exitcode; }
await "their routes" routes
cat "$folder/log"

say "After: the nodes have addresses, labels and provider IDs, and nothing is left to do."
show ccm node list
if command -v kubectl >/dev/null; then
    show kubectl get nodes -o wide
    await "the events" sh -c 'kubectl get events | grep -q worker-3'
    show kubectl get events
fi

say "Pods can reach each other: the private Network routes each node's pod CIDR to that node."
show ccm route list $routed

if command -v kubectl >/dev/null; then
    say "A Service of type LoadBalancer:"
    show kubectl apply -f manifests/examples/tcp.yaml
    address() { kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}' | grep -q .; }
    await "the address" address
    logs service/default/web
    show kubectl get service web
    show ccm lb list

    say "Only an annotation changes. First ccm shows what it would do, then it does this:"
    kill -INT "$ccm_id"; wait "$ccm_id" || true; ccm_id=
    show kubectl annotate service web load-balancer.hetzner.cloud/algorithm-type=least_connections
    show ccm lb sync default/web --dry-run
    echo "\$ $run"
    $run 2>>"$folder/log" &
    ccm_id=$!
    right() { ccm lb sync default/web --dry-run --detailed-exitcode; }
    await "the change" right
    # A change is logged when its action has ended.
    logs "service/default/web: algorithm"

    say "The Service is deleted, and its load balancer, too:"
    show kubectl delete service web --wait=false
    gone() { ! kubectl get service web; }
    await "the Service's end" gone
    logs "service/default/web: .*deleted"
    show ccm lb list
fi

if command -v curl >/dev/null; then
    say "A route is deleted by hand. ccm shows this and what it would do, then it does this:"
    gateway=$(ccm route list $routed 2>/dev/null | awk '$1 == "10.244.2.0/24" { print $2 }')
    network=$(curl --silent --show-error --header "Authorization: Bearer $HCLOUD_TOKEN" "$HCLOUD_ENDPOINT/networks" |
        sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    echo "\$ curl -X POST \$HCLOUD_ENDPOINT/networks/$network/actions/delete_route -d '{…}'"
    curl --silent --show-error --output /dev/null --request POST \
        --header "Authorization: Bearer $HCLOUD_TOKEN" --header "Content-Type: application/json" \
        --data "{\"destination\":\"10.244.2.0/24\",\"gateway\":\"$gateway\"}" \
        "$HCLOUD_ENDPOINT/networks/$network/actions/delete_route"
    missing() { ccm route list $routed | grep -q missing; }
    await "the route's end" missing
    show ccm route list $routed
    show ccm route sync $routed

    say "A server is deleted. Its kubelet stops reporting, and ccm deletes the node:"
    id=$(ccm node list 2>/dev/null | awk '$1 == "worker-3" { print $3 }')
    echo "\$ curl -X DELETE \$HCLOUD_ENDPOINT/servers/$id"
    curl --silent --show-error --output /dev/null --request DELETE \
        --header "Authorization: Bearer $HCLOUD_TOKEN" "$HCLOUD_ENDPOINT/servers/$id"
    gone() { ! ccm node list 2>/dev/null | grep -q worker-3; }
    await "the node's end" gone
    await "the end of its route" grep -q '10.244.3.0/24.*deleted' "$folder/log"
    tail -n 3 "$folder/log"
    show ccm node list
    show ccm route list $routed
fi

say "Ctrl-C ends the daemon cleanly:"
kill -INT "$ccm_id"
code=0; wait "$ccm_id" || code=$?
ccm_id=
tail -n 2 "$folder/log"
echo "(exit $code)"
exit "$code"
