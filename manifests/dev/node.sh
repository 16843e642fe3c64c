#!/bin/sh
# Runs once on each new server, by cloud-init: Kubernetes, whose nodes are in the private Network and wait for a
# cloud-controller-manager. Its settings hold the join token; root alone reads them.
set -eu
. /etc/ccm-dev/settings
pods=10.244.0.0/16

metadata() { curl -fsS --retry 10 --retry-connrefused "http://169.254.169.254/hetzner/v1/metadata/$1"; }
fetch() { curl -fsSL --retry 10 --retry-connrefused --output "$2" "$1"; }

# The private interface appears some time after the first boot began.
interface=
while [ -z "$interface" ]; do
    sleep 2
    private=$(metadata private-networks | sed -n 's/^- ip: //p')
    [ -z "$private" ] || interface=$(ip -o -4 address | awk -v start="$private/" 'index($4, start) == 1 { print $2 }')
done
public=$(metadata public-ipv4)

with_k3s() {
    mkdir -p /etc/rancher/k3s
    # In a file: arguments of a process are readable by others.
    umask 077
    cat >/etc/rancher/k3s/config.yaml <<END
token: $TOKEN
node-ip: $private
flannel-iface: $interface
kubelet-arg: [cloud-provider=external]
END
    if [ "$ROUTES" = true ]; then
        # Addresses only: the Network routes to Pods.
        cat >/etc/rancher/k3s/flannel.json <<END
{"Network": "$pods", "EnableIPv4": true, "Backend": {"Type": "extension"}}
END
        echo "flannel-conf: /etc/rancher/k3s/flannel.json" >>/etc/rancher/k3s/config.yaml
    fi
    if [ "$ROLE" = server ]; then
        cat >>/etc/rancher/k3s/config.yaml <<END
disable-cloud-controller: true
disable: [servicelb, traefik]
cluster-cidr: $pods
advertise-address: $private
tls-san: ["$public"]
END
    else
        echo "server: https://$CONTROL:6443" >>/etc/rancher/k3s/config.yaml
    fi
    fetch https://get.k3s.io /root/install-k3s
    INSTALL_K3S_CHANNEL=$KUBERNETES sh /root/install-k3s "$ROLE"
}

with_kubeadm() {
    printf 'overlay\nbr_netfilter\n' >/etc/modules-load.d/kubernetes.conf
    modprobe -a overlay br_netfilter
    echo net.ipv4.ip_forward=1 >/etc/sysctl.d/kubernetes.conf
    sysctl --system >/dev/null
    fetch "https://pkgs.k8s.io/core:/stable:/$KUBERNETES/deb/Release.key" /etc/apt/keyrings/kubernetes.asc
    echo "deb [signed-by=/etc/apt/keyrings/kubernetes.asc] https://pkgs.k8s.io/core:/stable:/$KUBERNETES/deb/ /" \
        >/etc/apt/sources.list.d/kubernetes.list
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install --yes containerd kubeadm kubelet kubectl
    mkdir -p /etc/containerd
    containerd config default | sed 's/SystemdCgroup = false/SystemdCgroup = true/' >/etc/containerd/config.toml
    systemctl restart containerd

    umask 077
    # A bootstrap token is six and sixteen letters or digits.
    bootstrap=$(echo "$TOKEN" | sed 's/^\(.\{6\}\)\(.\{16\}\).*/\1.\2/')
    registration="nodeRegistration:
  kubeletExtraArgs:
    - {name: cloud-provider, value: external}
    - {name: node-ip, value: $private}"
    if [ "$ROLE" = agent ]; then
        # Nothing but the token is known here of a control plane that may not exist yet; the Network is private.
        cat >/root/kubeadm.yaml <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {token: "$bootstrap", apiServerEndpoint: "$CONTROL:6443", unsafeSkipCAVerification: true}
$registration
END
        until kubeadm join --config /root/kubeadm.yaml; do
            kubeadm reset --force
            sleep 10
        done
        return
    fi
    # Nodes may join at any time: the token does not expire.
    cat >/root/kubeadm.yaml <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: "$bootstrap", ttl: "0s"}]
localAPIEndpoint: {advertiseAddress: "$private"}
$registration
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $(kubeadm version --output short)
networking: {podSubnet: $pods}
apiServer: {certSANs: ["$public", "$private"]}
END
    kubeadm init --skip-token-print --config /root/kubeadm.yaml
    backend=vxlan
    [ "$ROUTES" = false ] || backend=alloc
    fetch "https://github.com/flannel-io/flannel/releases/download/$FLANNEL/kube-flannel.yml" /root/kube-flannel.yml
    sed -i -e "s/\"Type\": \"vxlan\"/\"Type\": \"$backend\"/" \
        -e 's/^\( *\)- --kube-subnet-mgr/&\n\1- --iface-can-reach=10.0.0.1/' /root/kube-flannel.yml
    kubectl --kubeconfig /etc/kubernetes/admin.conf apply --filename /root/kube-flannel.yml
}

"with_$KIND"
