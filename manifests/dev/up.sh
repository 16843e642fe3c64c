#!/bin/sh
# What `make dev-up` does: a Network, a firewall and servers with Kubernetes, and this checkout's ccm on them.
# Each step looks first for what exists: a run that was cut short is finished by the next one.
set -eu
. "$(dirname "$0")/common.sh"
needs kubectl ssh ssh-keygen
NODES=${NODES:-3}
KIND=${KIND:-k3s}
KUBERNETES=${KUBERNETES:-v1.36}
FLANNEL=${FLANNEL:-v0.28.0}
SERVER_IMAGE=${SERVER_IMAGE:-ubuntu-24.04}
PROFILE=${PROFILE:-ccm-from-scratch}
ROUTES=${ROUTES:-false}
HCCM=${HCCM:-false}
HCCM_VERSION=${HCCM_VERSION:-v1.30.0}

one_of() {
    name=$1 value=$2
    shift 2
    for allowed; do
        if [ "$value" = "$allowed" ]; then return; fi
    done
    stop "$name=$value: it must be one of $*"
}
one_of KIND "$KIND" k3s kubeadm
one_of PROFILE "$PROFILE" ccm-from-scratch hcloud
one_of ROUTES "$ROUTES" true false
one_of HCCM "$HCCM" true false
case $NODES in '' | 0* | *[!0-9]*) stop "NODES=$NODES: it must be a number, at least 1" ;; esac
# They become part of a script on the servers.
for value in "$TYPE" "$LOCATION" "$KUBERNETES" "$FLANNEL" "$SERVER_IMAGE" "$HCCM_VERSION"; do
    case $value in '' | *[!A-Za-z0-9.-]*) stop "$value: use only letters, digits, dots and dashes" ;; esac
done

# Net price of an hour in LOCATION.
price() {
    prices=$(show "$1" "$2" '{{range .Pricings}}{{.Location.Name}} {{.Hourly.Net}}{{"\n"}}{{end}}') || return
    echo "$prices" | awk -v location="$LOCATION" '$1 == location { print $2 }'
}
server_price=$(price server-type "$TYPE")
[ -n "$server_price" ] || stop "TYPE=$TYPE is not sold in LOCATION=$LOCATION: hcloud server-type describe $TYPE"
balancer_price=$(price load-balancer-type lb11)
per_hour() { echo "$1 $2" | awk '{ printf "EUR %.4f an hour", $1 * $2 }'; }
echo "$NODES × $TYPE in $LOCATION: $(per_hour "$server_price" "$NODES"), without VAT and IPv4 addresses."
echo "Each load balancer of a Service (lb11): $(per_hour "$balancer_price" 1). make dev-down ends both costs."
ask "Create or complete cluster $NAME?"

case $TYPE in cax*) arch=aarch64 ;; *) arch=x86_64 ;; esac
[ "$HCCM" = true ] || build "$arch"

# Login and join token. Without them a cluster that exists can't be reached.
mkdir -p "$folder"
key=$(id_of ssh-key "$NAME")
if [ ! -e "$folder/id_ed25519" ]; then
    servers=$(ours server)
    [ -z "$key$servers" ] ||
        stop "cluster $NAME was created on another machine: its login is not in $folder; make dev-down deletes it"
    rm -f "$folder/new" "$folder/new.pub"
    ssh-keygen -q -t ed25519 -N '' -C "$NAME" -f "$folder/new"
    mv "$folder/new.pub" "$folder/id_ed25519.pub"
    mv "$folder/new" "$folder/id_ed25519"
fi
if [ ! -e "$folder/token" ]; then
    od -A n -t x1 -N 32 /dev/urandom | tr -d ' \n' >"$folder/token.new"
    mv "$folder/token.new" "$folder/token"
fi
[ -n "$key" ] || hcloud ssh-key create --name "$NAME" --label "$label" --public-key-from-file "$folder/id_ed25519.pub"

# The routes of Pods must be in the Network's range and outside its subnet.
network=$(id_of network "$NAME")
if [ -z "$network" ]; then
    hcloud network create --name "$NAME" --label "$label" --ip-range 10.0.0.0/8
    network=$(id_of network "$NAME")
fi
subnets=$(show network "$network" '{{range .Subnets}}{{.IPRange}} {{end}}')
if [ -z "$subnets" ]; then
    zone=$(show location "$LOCATION" '{{.NetworkZone}}')
    hcloud network add-subnet "$network" --type cloud --network-zone "$zone" --ip-range 10.0.0.0/24
fi

# From the internet SSH and the Kubernetes API. Inside the Network no firewall applies.
firewall=$(id_of firewall "$NAME")
if [ -z "$firewall" ]; then
    hcloud firewall create --name "$NAME" --label "$label" --rules-file - <<'END'
[{"direction": "in", "protocol": "tcp", "port": "22", "source_ips": ["0.0.0.0/0", "::/0"]},
 {"direction": "in", "protocol": "tcp", "port": "6443", "source_ips": ["0.0.0.0/0", "::/0"]},
 {"direction": "in", "protocol": "icmp", "source_ips": ["0.0.0.0/0", "::/0"]}]
END
fi

# The first boot of a server: node.sh with its settings. ROLE, then the control plane's address.
user_data() {
    cat <<END
#cloud-config
write_files:
  - path: /etc/ccm-dev/settings
    permissions: "0600"
    content: |
      KIND=$KIND
      ROLE=$1
      CONTROL=$2
      TOKEN=$(cat "$folder/token")
      KUBERNETES=$KUBERNETES
      FLANNEL=$FLANNEL
      ROUTES=$ROUTES
  - path: /usr/local/sbin/ccm-dev-node
    permissions: "0700"
    content: |
$(sed 's/^./      &/' "$source/manifests/dev/node.sh")
runcmd:
  - [/usr/local/sbin/ccm-dev-node]
END
}
has_private_address() {
    control=$(show server "$NAME-1" '{{range .PrivateNet}}{{.IP}}{{end}}')
    [ -n "$control" ]
}
control= role=server
for number in $(seq "$NODES"); do
    name=$NAME-$number
    server=$(id_of server "$name")
    if [ -z "$server" ]; then
        user_data "$role" "$control" | hcloud server create --name "$name" --label "$label" \
            --type "$TYPE" --location "$LOCATION" --image "$SERVER_IMAGE" \
            --ssh-key "$NAME" --network "$network" --firewall "$NAME" --user-data-from-file -
        # Its address may be that of a deleted one.
        rm -f "$folder/known_hosts"
    fi
    [ "$number" != 1 ] || await "the private address of $name" has_private_address
    role=agent
done

fetch_kubeconfig() {
    remote "$public" 'cat /etc/rancher/k3s/k3s.yaml 2>/dev/null || cat /etc/kubernetes/admin.conf' \
        </dev/null >"$folder/kubeconfig.new"
}
public=$(address_of "$NAME-1")
echo "Waiting for Kubernetes on $NAME-1 ($public) …"
await "Kubernetes on $NAME-1" fetch_kubeconfig
sed "s|server: https://.*|server: https://$public:6443|" "$folder/kubeconfig.new" >"$folder/kubeconfig"
rm "$folder/kubeconfig.new"

# On standard input: arguments of a process are readable by others.
secret() {
    cat <<END
apiVersion: v1
kind: Secret
metadata: {name: hcloud, namespace: kube-system}
stringData: {token: "$HCLOUD_TOKEN", network: "$network"}
END
}
# From the server's side, so that no annotation repeats the token.
apply_secret() { secret | cluster apply --server-side --force-conflicts --filename - >/dev/null; }
await "the Kubernetes API" apply_secret

if [ "$HCCM" = true ]; then
    [ ! -f "$folder/kustomization.yaml" ] || stop "HCCM=true: this cluster already has ccm; run make dev-down first"
    deployment=hcloud-cloud-controller-manager
    releases=https://github.com/hetznercloud/hcloud-cloud-controller-manager/releases/download
    cluster apply --filename "$releases/$HCCM_VERSION/ccm-networks.yaml"
    cluster --namespace kube-system set env deployment/$deployment \
        "HCLOUD_NETWORK_ROUTES_ENABLED=$ROUTES" \
        "HCLOUD_LOAD_BALANCERS_LOCATION=$LOCATION" HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP=true
else
    deployment=ccm-from-scratch
    for number in $(seq "$NODES"); do
        address=$(address_of "$NAME-$number")
        echo "Importing the image on $NAME-$number ($address) …"
        await "containerd on $NAME-$number" import "$address"
    done
    cat >"$folder/kustomization.yaml" <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../../manifests/overlays/private-network]
patches:
  - target: {kind: Deployment, name: ccm-from-scratch}
    patch: |-
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--cloud-provider=$PROFILE"}
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: {name: HCLOUD_NETWORK_ROUTES_ENABLED, value: "$ROUTES"}
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: {name: HCLOUD_LOAD_BALANCERS_LOCATION, value: "$LOCATION"}
      # By it dev-down finds them.
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: {name: HCLOUD_LOAD_BALANCERS_LABELS, value: "$label"}
END
    cluster apply --kustomize "$folder"
fi

cluster --namespace kube-system rollout status deployment/$deployment --timeout=10m
are_ready() {
    nodes=$(cluster get nodes --no-headers)
    [ "$(echo "$nodes" | grep -c ' Ready ')" -ge "$NODES" ]
}
await "$NODES nodes that are ready" are_ready
cluster get nodes --output wide
echo "Cluster $NAME is ready:  export KUBECONFIG=$folder/kubeconfig"
echo "To run this checkout's image in it: make dev-push. The cluster costs money until make dev-down."
