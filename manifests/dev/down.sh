#!/bin/sh
# What `make dev-down` does: deletes what carries the cluster's label, and nothing else.
set -eu
. "$(dirname "$0")/common.sh"

# Servers first: while ccm runs, it creates load balancers again. Then what is free without them.
kinds="server load-balancer firewall network ssh-key"

list() {
    for kind in $kinds; do
        lines=$(ours "$kind") || return
        [ -z "$lines" ] || echo "$lines" | awk -v kind="$kind" '{ print "  " kind, $1, $2 }'
    done
}
# Load balancers in our Network that are not the cluster's: those of hcloud-cloud-controller-manager have no label.
list_foreign() {
    networks=$(ours network) || return
    own=$(ours load-balancer) || return
    all=$(hcloud load-balancer list --output noheader --output columns=id) || return
    for id in $all; do
        if echo "$own" | grep -q "^$id "; then continue; fi
        in=$(show load-balancer "$id" '{{range .PrivateNet}}{{.Network.ID}} {{end}}') || return
        for network in $in; do
            if echo "$networks" | grep -q "^$network "; then echo "  load-balancer $id"; fi
        done
    done
}

found=$(list)
if [ -z "$found" ]; then
    echo "Nothing in this project has the label $label. $folder is not deleted, because it may belong to another project."
    exit 0
fi
echo "These have the label $label, and will be deleted:"
echo "$found"
foreign=$(list_foreign)
[ -z "$foreign" ] || printf "These stay, because they do not belong to the cluster, and so does the Network:\n%s\n" "$foreign"
ask "Delete?"

# One of them. What is protected stays; what is locked or in use is so for a moment.
delete() {
    attempts=20
    until output=$(hcloud "$1" delete "$2" 2>&1); do
        attempts=$((attempts - 1))
        case $output in
            # Newer versions of hcloud add a correlation ID to the code: (locked, 42375cb399a4fc72).
            *'(locked'[,\)]* | *'(conflict'[,\)]* | *'(resource_in_use'[,\)]*) [ "$attempts" -gt 0 ] || break ;;
            *) break ;;
        esac
        sleep 3
    done
    echo "$1 $2: $output"
}
delete_all() {
    lines=$(ours "$1") || return
    for id in $(echo "$lines" | awk '{ print $1 }'); do delete "$1" "$id"; done
}

delete_all server
delete_all load-balancer
# A server that stays keeps its firewall and its login. Deleting a Network would take it from all that are in it.
servers=$(ours server)
if [ -z "$servers" ]; then
    delete_all firewall
    delete_all ssh-key
fi
balancers=$(ours load-balancer)
foreign=$(list_foreign)
for network in $(ours network | awk '{ print $1 }'); do
    others=$(show network "$network" '{{range .Servers}}{{.ID}} {{end}}')
    if [ -z "$servers$balancers$foreign$others" ]; then
        delete network "$network"
    else
        echo "network $network: stays, because servers or load balancers are in it"
    fi
done
left=$(list)
if [ -n "$left" ]; then
    printf 'Not deleted:\n%s\n' "$left"
    stop "not everything was deleted; correct the cause, then run it again"
fi
rm -rf "$folder"
echo "Cluster $NAME is deleted."
