# Sourced by real.sh, pod.sh and pod-inside.sh: programs of Kubernetes, and etcd, which Go builds from their published
# modules into target/tools, or the folder that CCM_TOOLS names, once. KUBERNETES names a version, v1.35.4, or the newest
# of a minor, v1.35.
set -eu
ETCD=v3.6.12
KUBERNETES=${KUBERNETES:-v1.36.3}
case $KUBERNETES in
    v*.*.*) ;;
    *) KUBERNETES=$(go list -m -f '{{.Version}}' "k8s.io/kubernetes@$KUBERNETES") ;;
esac
tools=${CCM_TOOLS:-$PWD/target/tools}
kubernetes=$tools/kubernetes-$KUBERNETES

# A published module names its neighbours by folders that are not published with it: name their versions instead.
# built FOLDER MODULE VERSION NEIGHBOURS VERSION-OF-NEIGHBOURS FLAGS NAME=PACKAGE...
built() (
    folder=$1 module=$2 version=$3 neighbours=$4 neighbour=$5 flags=$6
    shift 6
    source=""
    for program; do
        name=${program%%=*}
        if [ -x "$folder/$name" ]; then
            continue
        fi
        command -v go >/dev/null || { echo "$name: Go is needed to build it: https://go.dev/dl"; exit 1; }
        if [ -z "$source" ]; then
            source=$(mktemp -d)
            trap 'rm -rf "$source"' EXIT
            mkdir -p "$folder"
            published=$(go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
            cp -r "$published/." "$source"
            chmod -R u+w "$source"
            cd "$source"
            rm -rf vendor go.work
            for one in $(sed -n "s@^\t*\($neighbours[^ ]*\) .*@\1@p" go.mod | sort -u); do
                if grep -q "$one => \.\.*/" go.mod; then
                    go mod edit -dropreplace="$one" -require="$one@$neighbour"
                fi
            done
        fi
        echo "building $name $version"
        GOWORK=off GOFLAGS=-mod=mod go build -trimpath -ldflags "$flags" -o "$folder/$name" "${program#*=}"
    done
)

# kubernetes NAME...
kubernetes() {
    minor=${KUBERNETES#v1.}
    version=k8s.io/component-base/version
    for program; do set -- "$@" "$program=./cmd/$program" && shift; done
    built "$kubernetes" k8s.io/kubernetes "$KUBERNETES" k8s.io "v0.$minor" \
        "-X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=${minor%.*}" "$@"
}

etcd() {
    built "$tools" go.etcd.io/etcd/server/v3 "$ETCD" go.etcd.io/etcd "$ETCD" "" etcd=.
}

# kubeconfig FILE SERVER TOKEN: of the API server whose certificate is in $place.
kubeconfig() {
    cat >"$1" <<END
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "$2", certificate-authority: "$place/apiserver.crt"}}]
users: [{name: test, user: {token: "$3"}}]
END
}
