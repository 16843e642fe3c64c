#!/bin/sh
# What `make dev-push` does: builds the image of this checkout, imports it on each server, restarts ccm with it.
set -eu
. "$(dirname "$0")/common.sh"
needs kubectl ssh ssh-keygen
[ -e "$folder/kustomization.yaml" ] || stop "there is no cluster $NAME with our ccm in $folder: make dev-up"
servers=$(ours server)
[ -n "$servers" ] || stop "cluster $NAME has no servers: make dev-up"
names=$(echo "$servers" | awk '{ print $2 }')

kind=$(remote "$(address_of "$NAME-1")" uname -m </dev/null)
build "$kind"
for name in $names; do
    echo "Importing the image on $name …"
    import "$(address_of "$name")"
done
cluster apply --kustomize "$folder"
# The image has the same name as before.
cluster --namespace kube-system rollout restart deployment/ccm-from-scratch
cluster --namespace kube-system rollout status deployment/ccm-from-scratch --timeout=5m
