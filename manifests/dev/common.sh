# What up.sh, push.sh and down.sh share; they read it. README.md explains the variables.
source=$(cd "$(dirname "$0")/../.." && pwd)
NAME=${NAME:-ccm-dev}
TYPE=${TYPE:-cx23}
LOCATION=${LOCATION:-fsn1}
# All that is created carries it, and nothing without it is changed or deleted. Not with the prefix of ccm's own labels.
label=ccm-dev-cluster=$NAME
# Login, join token, kubeconfig: for their owner alone.
folder=$source/target/dev/$NAME
umask 077

stop() {
    echo "dev: $*" >&2
    exit 1
}

needs() {
    for program; do
        command -v "$program" >/dev/null || stop "there is no $program here; see manifests/dev/README.md"
    done
}
needs hcloud
# A context of hcloud's own would win over the token, and be another project.
unset HCLOUD_CONTEXT HCLOUD_QUIET HCLOUD_DEBUG HCLOUD_DEBUG_FILE
export HCLOUD_CONFIG=/dev/null
[ -n "${HCLOUD_TOKEN:-}" ] || stop "set HCLOUD_TOKEN: a token of the Hetzner project, Read & Write"
case $HCLOUD_TOKEN in *[!A-Za-z0-9]*) stop "HCLOUD_TOKEN is no token of Hetzner Cloud: it must have only letters and digits" ;; esac
case $NAME in
    # With a digit first it could be taken for an ID.
    [!a-z]* | *- | *[!a-z0-9-]*) stop "NAME=$NAME: use only small letters, digits and dashes; begin with a letter, and do not end with a dash" ;;
esac
[ ${#NAME} -le 40 ] || stop "NAME=$NAME: use at most 40 characters"

# What exists with our label: `ours server` prints ID and name, one a line.
ours() {
    selector=$label
    # What ccm did not create, borrowed, released or is to keep is not the cluster's.
    created=ccm-from-scratch/created,!ccm-from-scratch/external,!ccm-from-scratch/released,!ccm-from-scratch/keep
    [ "$1" != load-balancer ] || selector="$label,$created"
    hcloud "$1" list --selector "$selector" --output noheader --output columns=id,name
}

# The ID of the one of ours with this name; nothing when there is none.
id_of() {
    lines=$(ours "$1") || return
    echo "$lines" | awk -v name="$2" '$2 == name { print $1 }'
}

# A public IPv4 address of a server.
address_of() { show server "$1" '{{.PublicNet.IPv4.IP}}'; }

# The only way to a server: runs a command on it as root. Its host key is trusted the first time.
remote() {
    address=$1
    shift
    ssh -i "$folder/id_ed25519" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=10 -o LogLevel=ERROR \
        -o "UserKnownHostsFile=$folder/known_hosts" -o StrictHostKeyChecking=accept-new "root@$address" "$@"
}

# A Go template over what the API shows of one thing: KIND, ID or name, template.
show() { hcloud "$1" describe "$2" --output "format=$3"; }

cluster() { kubectl --kubeconfig "$folder/kubeconfig" "$@"; }

# Tries a command until it succeeds, ten minutes at most.
await() {
    what=$1
    shift
    attempts=120
    until "$@" 2>"$folder/error"; do
        attempts=$((attempts - 1))
        if [ "$attempts" -eq 0 ]; then
            cat "$folder/error" >&2
            [ -z "${public:-}" ] || echo "dev: to see the log of the first boot: ssh -i $folder/id_ed25519 root@$public" \
                "tail /var/log/cloud-init-output.log" >&2
            stop "waited ten minutes without success for $what; run it again, or delete the cluster: make dev-down"
        fi
        sleep 5
    done
    rm -f "$folder/error"
}

# Asks, unless YES=1.
ask() {
    if [ "${YES:-}" = 1 ]; then return; fi
    [ -t 0 ] || stop "this is no terminal: set YES=1 to confirm: $*"
    printf '%s [y/N] ' "$*"
    read -r answer
    case $answer in y | Y | yes) ;; *) stop "nothing was changed" ;; esac
}

# Builds the image for servers of a kind, x86_64 or aarch64; ARCHIVE names one that is built already.
build() {
    if [ -n "${ARCHIVE:-}" ]; then return; fi
    # Programs of others build it: they need no token.
    (umask 022 && unset HCLOUD_TOKEN && IMAGE='' make -C "$source" image ARCH="$1")
    case $1 in x86_64) arch=amd64 ;; *) arch=arm64 ;; esac
    version=$(sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' "$source/Cargo.toml")
    ARCHIVE=$source/target/image/ccm-from-scratch-$version-$arch.tar
    [ -f "$ARCHIVE" ] || stop "there is no $ARCHIVE: buildah and podman create it, docker does not"
}

# Imports the image on a server.
import() {
    remote "$1" 'if command -v k3s >/dev/null; then k3s ctr images import -; else ctr -n k8s.io images import -; fi' \
        <"$ARCHIVE" >/dev/null
}
