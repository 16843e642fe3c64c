#!/bin/sh
# The part of pod.sh that runs in the namespaces, as their first process: the cluster, then what is to be seen in it.
set -eu
. tests/programs.sh
trap 'exit 130' INT TERM
node=worker-1
namespace=kube-system
log=$place/log
mkdir -p "$log"
begun=$(date +%s)

# Nothing is written to this machine's own folders; only this mount namespace sees it.
mount --make-rprivate /
for folder in /run /var/run /var/lib/containerd /var/lib/kubelet /var/lib/cni /var/log /etc/cni /etc/kubernetes; do
    [ -L "$folder" ] && continue
    mkdir -p "$folder"
    mount -t tmpfs none "$folder"
done
# The hierarchies as they are seen from this group.
hierarchies=$(cd /sys/fs/cgroup && for one in */; do echo "${one%/}"; done)
umount -R /sys/fs/cgroup
mount -t tmpfs none /sys/fs/cgroup
for one in $hierarchies; do
    case $one in
        unified) continue ;;
        systemd) options=none,name=systemd ;;
        *) options=$one ;;
    esac
    mkdir "/sys/fs/cgroup/$one"
    mount -t cgroup -o "$options" none "/sys/fs/cgroup/$one"
done

# The node's addresses are those of the simulated server. The API server and the simulated Hetzner API have addresses
# that Pods reach, whatever network they are in.
ip link set lo up
ip address add 10.96.0.1/32 dev lo
ip address add 10.96.0.2/32 dev lo
ip link add node0 type veth peer name node1
ip address add 10.0.0.2/8 dev node0
ip address add 203.0.113.1/32 dev node0
ip link set node0 up
ip link set node1 up
ip route add default dev node0

in_background() {
    name=$1
    shift
    "$@" >"$log/$name" 2>&1 &
}
failed() {
    echo "not seen: $1" >&2
    for file in "$log"/*; do echo "--- $file" && tail -n 15 "$file"; done >&2
    kubectl get pods,nodes,events --all-namespaces >&2 || :
    for one in $(kubectl get pods --namespace $namespace -o name); do
        kubectl logs --namespace $namespace "$one" --tail 20 >&2 || :
    done
    [ -z "${KEEP-}" ] || sh </dev/tty >/dev/tty 2>&1 || :
    exit 1
}
# eventually SECONDS WHAT COMMAND...: the command succeeds before.
eventually() {
    until=$(($(date +%s) + $1))
    what=$2
    shift 2
    until "$@" >"$log/eventually" 2>&1; do
        [ "$(date +%s)" -lt "$until" ] || { cat "$log/eventually" >&2; failed "$what"; }
        sleep 0.2
    done
}
seen() { echo "  $(($(date +%s) - begun)) s  $1"; }
has() { case $1 in *"$2"*) ;; *) failed "$3: $1" ;; esac; }

# --- the control plane ---
secret() { head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
admin=$(secret) of_kubelet=$(secret)
cat >"$place/tokens" <<END
$admin,admin,admin,system:masters
$of_kubelet,system:node:$node,kubelet,system:nodes
END
openssl genrsa -out "$place/account.key" 2048 2>/dev/null
in_background etcd "$tools/etcd" --data-dir "$place/etcd" --unsafe-no-fsync
in_background apiserver "$kubernetes/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --secure-port 443 \
    --advertise-address 10.0.0.2 --cert-dir "$place" --token-auth-file "$place/tokens" --authorization-mode Node,RBAC \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$place/account.key" \
    --service-account-signing-key-file "$place/account.key" --service-cluster-ip-range 10.96.0.0/16 \
    --allow-privileged --kubelet-preferred-address-types InternalIP --endpoint-reconciler-type none
kubeconfig "$place/admin.kubeconfig" https://10.96.0.1 "$admin"
kubeconfig "$place/kubelet.kubeconfig" https://10.96.0.1 "$of_kubelet"
export KUBECONFIG="$place/admin.kubeconfig" PATH="$kubernetes:$tools:$PWD/target/tools:$PWD/target/debug:$PATH"
eventually 60 "an API server" kubectl get service kubernetes
# The authority that signs the serving certificates of kubelets.
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$place/ca.key" -out "$place/ca.crt" -days 2 -subj /CN=kubelets 2>/dev/null
in_background manager kube-controller-manager --kubeconfig "$KUBECONFIG" --leader-elect=false \
    --service-account-private-key-file "$place/account.key" --root-ca-file "$place/apiserver.crt" \
    --cluster-signing-cert-file "$place/ca.crt" --cluster-signing-key-file "$place/ca.key"
in_background scheduler kube-scheduler --kubeconfig "$KUBECONFIG" --leader-elect=false

# --- the node ---
cat >"$place/containerd.toml" <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "pause:test"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
END
# Without a configuration in it, as on a new node: Pods have no network yet.
mkdir -p /etc/cni/net.d
in_background containerd containerd --config "$place/containerd.toml"
cat >"$place/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
evictionHard: {memory.available: 1Mi}
# How soon a Pod's files follow its Secret.
syncFrequency: 2s
imageGCHighThresholdPercent: 100
END
# The program that holds a Pod's namespaces, and the image of it.
mkdir -p "$place/pause/root"
cat >"$place/pause/main.go" <<END
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
END
CGO_ENABLED=0 GOFLAGS= GO111MODULE=off go build -o "$place/pause/root/pause" "$place/pause/main.go"
mkdir "$place/pause/root/bin"
ln -s /pause "$place/pause/root/bin/hcloud-cloud-controller-manager"
image() (
    cd "$place/pause"
    tar --create --file layer.tar --directory root .
    sum=$(sha256sum layer.tar | cut -d ' ' -f 1)
    echo "{\"architecture\":\"$(go env GOARCH)\",\"os\":\"linux\",\"config\":{\"Entrypoint\":[\"/pause\"]},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$sum\"]}}" >config.json
    echo "[{\"Config\":\"config.json\",\"RepoTags\":[\"docker.io/library/pause:test\"],\"Layers\":[\"layer.tar\"]}]" >manifest.json
    tar --create --file image.tar config.json layer.tar manifest.json
)
image
eventually 30 "containerd" ctr version
version=$(sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' Cargo.toml)
for archive in "$place/pause/image.tar" target/image/ccm-from-scratch-"$version"-"$(go env GOARCH)".tar; do
    ctr -n k8s.io images import "$archive" >"$log/import" 2>&1 || { cat "$log/import"; failed "the image $archive"; }
done
ours=$(ctr -n k8s.io images list --quiet | grep /ccm-from-scratch:)
ctr -n k8s.io images tag docker.io/library/pause:test docker.io/library/hcloud-cloud-controller-manager:other >/dev/null
start_kubelet() {
    in_background kubelet kubelet --config "$place/kubelet.yaml" --kubeconfig "$place/kubelet.kubeconfig" \
        --hostname-override $node --node-ip 10.0.0.2 --cloud-provider external
    kubelet=$!
    eventually 60 "a node" kubectl get node $node
}
start_kubelet

# --- Hetzner ---
in_background sandbox sandbox --only hcloud --nodes 1 --network=10.0.0.0/8 --scale 0.1 --address 10.96.0.2 \
    --port-hetzner 8080 --env-file "$place/hetzner"
sandbox=$!
eventually 30 "Hetzner's API" test -f "$place/hetzner"
. "$place/hetzner"
export HCLOUD_ALLOW_INSECURE_ENDPOINT=true
seen "Kubernetes $KUBERNETES with containerd $(containerd --version | cut -d ' ' -f 3) and its node"

# --- what is to be seen ---
label=app.kubernetes.io/name=ccm-from-scratch
control_plane=node-role.kubernetes.io/control-plane
k() { kubectl --namespace $namespace "$@"; }

# Each way of installing finds a node that is new. new_node [=VALUE]: it is a control plane.
new_node() {
    kill $kubelet
    wait $kubelet || :
    kubectl delete node $node >/dev/null
    start_kubelet
    [ $# = 0 ] || kubectl label node $node "$control_plane$1" >/dev/null
}
is_initialised() {
    case $(kubectl get node $node -o jsonpath='{.spec.providerID} {.spec.taints[*].key}') in
        *uninitialized*) return 1 ;;
        "$1://"*) return 0 ;;
    esac
    return 1
}
# installed WAY PROVIDER: from now on it initialises the node.
installed() {
    since=$(date +%s)
    eventually 60 "$1 initialises the node" is_initialised "$2"
    seen "$1: the node was initialised after $(($(date +%s) - since)) s"
}
is_ready() { k rollout status deployment/ccm-from-scratch --timeout 1s; }
is_gone() { [ -z "$(k get pods --selector "$1" --field-selector status.phase!=Succeeded -o name)" ]; }
# kustomized FOLDER [COMPONENT...]: with the simulated Hetzner API.
kustomized() {
    # A kustomization takes no folder by its absolute name.
    up=$(echo "$place" | sed 's:/[^/]*:../:g; s:/$::')$PWD
    resource=$1
    shift
    {
        echo "resources: ['$up/$resource']"
        echo "components:"
        for component; do echo "  - '$up/manifests/components/$component'"; done
        cat <<END
patches:
  - target: {kind: Deployment}
    patch: |
      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: HCLOUD_ENDPOINT, value: '$HCLOUD_ENDPOINT'}}
      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: HCLOUD_ALLOW_INSECURE_ENDPOINT, value: 'true'}}
  - target: {kind: CronJob}
    patch: |
      - {op: add, path: /spec/jobTemplate/spec/template/spec/containers/0/env/-, value: {name: HCLOUD_ENDPOINT, value: '$HCLOUD_ENDPOINT'}}
      - {op: add, path: /spec/jobTemplate/spec/template/spec/containers/0/env/-, value: {name: HCLOUD_ALLOW_INSECURE_ENDPOINT, value: 'true'}}
END
    } >"$place/kustomization.yaml"
    kubectl kustomize "$place" >"$place/installed.yaml" 2>"$log/kustomize" || failed "kubectl kustomize $resource $*"
    kubectl apply --filename "$place/installed.yaml" >"$log/apply"
}
simulated="--set env.HCLOUD_ENDPOINT.value=$HCLOUD_ENDPOINT --set-string env.HCLOUD_ALLOW_INSECURE_ENDPOINT.value=true"
removed() {
    # First, so that it gives its Lease away while its role is there.
    k delete deployment ccm-from-scratch --ignore-not-found >"$log/delete"
    eventually 60 "the end of its Pods" is_gone $label
    kubectl delete --filename "$place/installed.yaml" --ignore-not-found >"$log/delete"
}
process() { pgrep -x ccm; }
of_process() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$pid/status"; }
holder() { k get lease cloud-controller-manager -o jsonpath='{.spec.holderIdentity}'; }
of_pod() { k get pods --selector $label -o jsonpath="{.items[0].$1}"; }

# How the base's Pod runs.
checks_of_its_pod() {
    eventually 60 "a Pod that is ready" is_ready
    eventually 10 "its process" process
    pid=$(process)
    curl -sf "http://127.0.0.1:8233/livez" >/dev/null || failed "an answer of /livez"
    seen "its probes succeed"

    [ "$(of_process Uid | cut -f 1)" = 65532 ] || failed "user 65532: $(of_process Uid)"
    [ "$(of_process CapEff)" = 0000000000000000 ] || failed "no capabilities: $(of_process CapEff)"
    [ "$(of_process NoNewPrivs) $(of_process Seccomp)" = "1 2" ] || failed "no new privileges, and seccomp"
    awk '$5 == "/"' "/proc/$pid/mountinfo" | grep -q ' ro,' || failed "a root that can't be written"
    seen "user, capabilities, seccomp and read-only root are as the manifests say"

    # Its directory is seen by root alone, and so are the kubelet's.
    token=/proc/$pid/root/etc/hcloud/token
    [ "$(stat -L -c '%u:%g %a' "$token")" = "0:65532 440" ] || failed "a token for its user alone: $(stat -L "$token")"
    grep -q "$HCLOUD_TOKEN" "/proc/$pid/environ" && failed "no token in its environment"
    seen "the mounted token can be read by root and user 65532, and is in no variable"

    kubectl create service loadbalancer web --tcp=80 >/dev/null
    kubectl annotate service web load-balancer.hetzner.cloud/location=fsn1 >/dev/null
    address() { kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}' | grep -q .; }
    eventually 60 "the address of a Service" address
    seen "a Service has an address"

    has "$(k exec deployment/ccm-from-scratch -- /ccm node list)" $node "kubectl exec"
    seen "kubectl exec … /ccm node list"

    memory=/sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' "/proc/$pid/cgroup")
    limit=$(cat "$memory/memory.limit_in_bytes") used=$(cat "$memory/memory.max_usage_in_bytes")
    [ "$limit" = 67108864 ] || failed "its limit of memory: $limit"
    [ "$used" -lt $((limit / 2)) ] || failed "less than half of it in use: $used"
    seen "$((used / 1024)) kB of memory at most, of $((limit / 1024)) kB"

    # As manifests/README.md says: another token, then the Secret, then the old one is deleted.
    old=$HCLOUD_TOKEN
    kill -HUP $sandbox
    is_another() { . "$place/hetzner" && [ "$HCLOUD_TOKEN" != "$old" ]; }
    eventually 10 "another token" is_another
    k patch secret hcloud --patch "{\"stringData\":{\"token\":\"$HCLOUD_TOKEN\"}}" >/dev/null
    since=$(date +%s)
    eventually 120 "the new token in the Pod" grep -q "$HCLOUD_TOKEN" "$token"
    took=$(($(date +%s) - since))
    status() { curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $1" "$HCLOUD_ENDPOINT/servers"; }
    kill -HUP $sandbox
    is_refused() { [ "$(status "$old")" = 401 ]; }
    eventually 10 "that the old token is refused" is_refused
    # algorithm VALUE: the daemon sets it.
    algorithm() {
        kubectl annotate --overwrite service web load-balancer.hetzner.cloud/algorithm-type="$1" >/dev/null
        eventually 60 "the algorithm $1" is_set "$1"
    }
    is_set() { curl -sf -H "Authorization: Bearer $HCLOUD_TOKEN" "$HCLOUD_ENDPOINT/load_balancers" | grep -q "\"$1\""; }
    algorithm least_connections
    [ "$(of_pod 'status.containerStatuses[0].restartCount') $(process)" = "0 $pid" ] || failed "the same process"
    case $(k logs deployment/ccm-from-scratch) in *unauthorized*) failed "no refused call" ;; esac
    seen "another token in the Secret is used without a restart; it was in the Pod after $took s"

    k logs --follow deployment/ccm-from-scratch >"$log/old" 2>&1 &
    old=$(holder)
    since=$(date +%s)
    k rollout restart deployment/ccm-from-scratch >/dev/null
    other_leads() { now=$(holder) && [ -n "$now" ] && [ "$now" != "$old" ]; }
    eventually 60 "another leader" other_leads
    took=$(($(date +%s) - since))
    eventually 60 "a new Pod that is ready" is_ready
    has "$(cat "$log/old")" "cloud-controller-manager: released" "the Lease is released"
    [ $took -lt 15 ] || failed "a new leader before the Lease ends: after $took s"
    seen "a rolling update: the Lease is released at SIGTERM, and the new Pod leads after $took s"

    eventually 10 "its process" process
    kill -KILL "$(process)"
    is_restarted() { [ "$(of_pod 'status.containerStatuses[0].restartCount')" = 1 ]; }
    eventually 60 "a restart" is_restarted
    algorithm round_robin
    seen "killed, it is started again and goes on"
    kubectl delete service web >/dev/null
}

# With 25 more nodes, whose names come first, an lb11 has no room for the node that runs the Pods. Those nodes have no kubelet.
more_nodes_than_targets() {
    . "$place/hetzner"
    hetzner() { curl -sf -H "Authorization: Bearer $HCLOUD_TOKEN" -H 'Content-Type: application/json' "$@"; }
    for i in $(seq 10 34); do
        id=$(hetzner "$HCLOUD_ENDPOINT/servers" --data '{"name": "a-'$i'", "server_type": "cx23", "image": "ubuntu-24.04",
            "location": "fsn1"}' | sed -n 's/^{"server":{"id":\([0-9]*\),.*/\1/p')
        echo "{apiVersion: v1, kind: Node, metadata: {name: a-$i}, spec: {providerID: 'ccm-from-scratch://$id'}}"
        echo ---
    done >"$place/nodes.yaml"
    kubectl create --filename "$place/nodes.yaml" >/dev/null
    kubectl create --filename - >/dev/null <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: local}
spec:
  selector: {matchLabels: {app: local}}
  template:
    metadata: {labels: {app: local}}
    spec:
      nodeName: $node
      containers: [{name: pause, image: "docker.io/library/pause:test", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Service
metadata:
  name: local
  annotations:
    load-balancer.hetzner.cloud/location: fsn1
    load-balancer.hetzner.cloud/prefer-nodes-with-pods: "true"
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {app: local}
  ports: [{port: 80}]
END
    server=$(kubectl get node $node -o jsonpath='{.spec.providerID}' | sed 's:.*/::')
    is_target() { hetzner "$HCLOUD_ENDPOINT/load_balancers" | grep -q "\"server\":{\"id\":$server}"; }
    eventually 120 "the node with the Pods as a target" is_target
    seen "endpointslices: the node with the Pods is a target, and one of 25 other nodes is none"
    kubectl rollout restart deployment/local >/dev/null
    rolled() {
        is_target || failed "the node as a target during a rollout"
        kubectl rollout status deployment/local --timeout 1s
    }
    eventually 60 "the end of a rollout" rolled
    for _ in $(seq 20); do is_target || failed "the node as a target after a rollout"; sleep 1; done
    seen "endpointslices: during a rollout and 20 s later it is still a target"
    kubectl delete service/local deployment/local >/dev/null
    kubectl delete --filename "$place/nodes.yaml" >/dev/null
}

# What README.md says under "Token, image, installation", in its words.
lines() { sed -n "/^$1/,/^\`\`\`$/p" README.md | sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' | sed -n 's/ *#.*//; /^[a-z]* .* /p'; }
secret=$(lines "Create an API token" | sed "s/=ID-or-name/=$HCLOUD_NETWORK/; s/=…/=$HCLOUD_TOKEN/; s/ --from-literal=robot[^ ]*//g" | grep '^kubectl .* create secret ')
$secret >/dev/null || failed "the Secret as README.md makes it"
seen "README: kubectl -n kube-system create secret generic hcloud …"
lines "Set the image to yours" | grep -E '^(kubectl|helm) ' >"$place/ways"
while read -r way <&3; do
    echo "README: $way"
    case $way in
        "kubectl apply -k manifests/")
            # Its node becomes a control plane later.
            kustomized manifests
            waits() { [ "$(of_pod 'status.conditions[?(@.type=="PodScheduled")].reason')" = Unschedulable ]; }
            eventually 60 "a Pod that waits for a control plane" waits
            kubectl label node $node $control_plane= >/dev/null
            seen "its Pod waits for a control plane"
            installed "on a control plane" ccm-from-scratch
            checks_of_its_pod
            # As a network plugin does, now that the node is initialised.
            cat >/etc/cni/net.d/pods.conf <<END
{"cniVersion": "0.4.0", "name": "pods", "type": "bridge", "bridge": "pods0", "isGateway": true, "ipam": {"type": "host-local",
 "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}
END
            kubectl wait --for=condition=Ready node/$node --timeout 60s >/dev/null || failed "a node that is ready"
            ccm doctor >"$log/doctor" 2>&1 || { cat "$log/doctor"; failed "ccm doctor finds nothing wrong"; }
            seen "README: ccm doctor"
            removed
            ;;
        "kubectl apply -k manifests/overlays/cron")
            new_node =true
            kustomized manifests/overlays/cron
            k create job --from=cronjob/ccm-from-scratch once >/dev/null
            installed "a job of it" ccm-from-scratch
            k wait --for=condition=complete job/once --timeout 60s >/dev/null || failed "a job that succeeds"
            removed
            k delete job once --ignore-not-found >/dev/null
            ;;
        "kubectl apply -k manifests/overlays/"*)
            new_node =true
            kustomized "${way##* }"
            case $way in
                */hcloud) installed "profile hcloud" hcloud ;;
                *) installed "profile ccm-from-scratch" ccm-from-scratch ;;
            esac
            eventually 60 "a Pod that is ready" is_ready
            removed
            ;;
        "helm install "*)
            new_node =true
            $(echo "$way" | sed "s:REGISTRY/ccm-from-scratch:${ours%:*}:") $simulated >"$log/helm" || failed "helm install"
            installed "profile hcloud" hcloud
            eventually 60 "a Pod that is ready" is_ready
            helm uninstall ccm --namespace $namespace --wait >"$log/helm" || failed "helm uninstall"
            eventually 60 "the end of its Pods" is_gone app.kubernetes.io/instance=ccm
            ;;
        *) failed "a way of README.md that this script knows: $way" ;;
    esac
done 3<"$place/ways"

echo "manifests/README.md: components"
new_node
kustomized manifests any-node loopback-metrics endpointslices
installed "any-node: on a node that is no control plane" ccm-from-scratch
eventually 60 "a Pod that is ready" is_ready
curl -sf http://127.0.0.1:8233/livez >/dev/null || failed "an answer on 127.0.0.1"
curl -s http://10.0.0.2:8233/livez >/dev/null && failed "no answer on another address of the node"
seen "loopback-metrics: its probes succeed, and other addresses of the node do not answer"
kubectl auth can-i list endpointslices.discovery.k8s.io --all-namespaces --quiet \
    --as "system:serviceaccount:$namespace:ccm-from-scratch" || failed "the right to list EndpointSlices"
seen "endpointslices: its account may list EndpointSlices"
more_nodes_than_targets
removed

new_node =true
kustomized manifests pod-network
installed "pod-network: not on the host's network" ccm-from-scratch
eventually 60 "a Pod that is ready" is_ready
has "$(of_pod status.podIP)" 10.244.0. "an address of the network of Pods"
k get networkpolicy ccm-from-scratch >/dev/null || failed "a NetworkPolicy"
seen "its probes succeed on $(of_pod status.podIP)"
removed

echo "manifests/chart/README.md: switches"
new_node
helm install ccm manifests/chart --namespace $namespace --set image.repository="${ours%:*}" --set networking.enabled=true \
    --set controlPlaneOnly=false --set hostNetwork=false --set networkPolicy.enabled=true \
    $simulated >"$log/helm" || failed "helm install"
installed "helm install with controlPlaneOnly=false, hostNetwork=false, networkPolicy.enabled=true" ccm-from-scratch
k get networkpolicy ccm-from-scratch >/dev/null || failed "a NetworkPolicy"
helm uninstall ccm --namespace $namespace --wait >"$log/helm" || failed "helm uninstall"
eventually 60 "the end of its Pods" is_gone app.kubernetes.io/instance=ccm

# The kubelet has no serving certificate until somebody approves its request.
echo "manifests/README.md: kubelet-certificates"
echo "serverTLSBootstrap: true" >>"$place/kubelet.yaml"
rm -f /var/lib/kubelet/pki/kubelet-server* /var/lib/kubelet/pki/kubelet.crt /var/lib/kubelet/pki/kubelet.key
requests() { kubectl get certificatesigningrequests -o jsonpath="{.items[*].$1}"; }
new_node
kustomized manifests any-node
installed "without kubelet-certificates" ccm-from-scratch
is_asked() { [ -n "$(requests metadata.name)" ]; }
eventually 60 "a request for a serving certificate" is_asked
sleep 20
[ -z "$(requests 'status.conditions[*].type')" ] || failed "a request that nobody approves"
k exec deployment/ccm-from-scratch -- /ccm version >/dev/null 2>&1 && failed "a kubelet without a serving certificate"
is_explained() { ccm doctor 2>&1 | tr -s '\n ' ' ' | grep -q "certificate requests of kubelets stay pending, because no controller approves them: "; }
eventually 120 "the doctor's line about requests that no controller approves" is_explained
seen "its request stays pending, kubectl exec does not work, and doctor says why"
removed
kustomized manifests any-node kubelet-certificates
k patch deployment ccm-from-scratch --type json --patch \
    '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--controllers=*,node-csr-approval"}]' >/dev/null
is_signed() { [ -n "$(requests status.certificate)" ]; }
eventually 90 "a request that is approved and signed" is_signed
has "$(requests 'status.conditions[*].reason')" AddressesProven "the reason of the approval"
works() { k logs deployment/ccm-from-scratch --tail 1; }
eventually 60 "kubectl logs" works
curl -s --cacert "$place/ca.crt" https://10.0.0.2:10250/healthz >/dev/null || failed "a certificate for the address of the node"
seen "kubelet-certificates: its request is approved and signed, and kubectl logs works"
removed
sed -i '/serverTLSBootstrap/d' "$place/kubelet.yaml"

# The Deployment of hcloud-cloud-controller-manager, with a stand-in for its program.
echo "ccm help migrate: only the image"
new_node
k create serviceaccount hcloud-cloud-controller-manager >/dev/null
kubectl create clusterrolebinding system:hcloud-cloud-controller-manager --clusterrole cluster-admin \
    --serviceaccount $namespace:hcloud-cloud-controller-manager >/dev/null
kubectl apply --filename - >/dev/null <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: hcloud-cloud-controller-manager, namespace: $namespace}
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector: {matchLabels: {app: hcloud-cloud-controller-manager}}
  template:
    metadata: {labels: {app: hcloud-cloud-controller-manager}}
    spec:
      serviceAccountName: hcloud-cloud-controller-manager
      dnsPolicy: Default
      hostNetwork: true
      priorityClassName: system-cluster-critical
      tolerations: [{operator: Exists}]
      containers:
        - name: hcloud-cloud-controller-manager
          image: docker.io/library/hcloud-cloud-controller-manager:other
          command: ["/bin/hcloud-cloud-controller-manager", "--allow-untagged-cloud", "--cloud-provider=hcloud", "--route-reconciliation-period=30s", "--webhook-secure-port=0", "--leader-elect=false"]
          env:
            - {name: HCLOUD_TOKEN, valueFrom: {secretKeyRef: {key: token, name: hcloud}}}
            - {name: HCLOUD_NETWORK, valueFrom: {secretKeyRef: {key: network, name: hcloud}}}
            - {name: HCLOUD_ENDPOINT, value: "$HCLOUD_ENDPOINT"}
            - {name: HCLOUD_ALLOW_INSECURE_ENDPOINT, value: "true"}
          ports: [{name: metrics, containerPort: 8233}]
          resources: {requests: {cpu: 100m, memory: 50Mi}}
END
is_started() { k rollout status deployment/hcloud-cloud-controller-manager --timeout 1s; }
eventually 60 "its Deployment" is_started
k set image deployment/hcloud-cloud-controller-manager hcloud-cloud-controller-manager=$ours >/dev/null
installed "kubectl set image, in the Deployment of hcloud-cloud-controller-manager" hcloud
echo "all of it was seen after $(($(date +%s) - begun)) s"
