//! What a role must allow: every verb that the daemon uses. A test compares it with `manifests/`.

use crate::kube::{LeaseKey, Verb};

/// A verb of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) verb: &'static str,
    group: &'static str,
    /// With its subresource behind a slash.
    pub(super) resource: &'static str,
    scope: Scope,
    /// Without it the work is done all the same.
    pub(super) is_comfort: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Cluster,
    /// In the namespace of the Lease.
    Namespace,
    /// The Lease itself.
    Lease,
}

const COORDINATION: &str = "coordination.k8s.io";

pub(super) const NEEDS: &[Need] = &[
    core("list", "nodes"),
    core("get", "nodes"),
    core("patch", "nodes"),
    core("delete", "nodes"),
    core("patch", "nodes/status"),
    core("list", "services"),
    core("patch", "services/status"),
    core("create", "events"),
    core("patch", "events"),
    Need {
        // Counts a repeated event; hcloud-cloud-controller-manager's role does not have it.
        is_comfort: true,
        ..core("get", "events")
    },
    lease("create", Scope::Namespace),
    lease("get", Scope::Lease),
    lease("update", Scope::Lease),
];

const fn core(verb: &'static str, resource: &'static str) -> Need {
    Need {
        verb,
        group: "",
        resource,
        scope: Scope::Cluster,
        is_comfort: false,
    }
}

const fn lease(verb: &'static str, scope: Scope) -> Need {
    Need {
        group: COORDINATION,
        scope,
        ..core(verb, "leases")
    }
}

impl Need {
    /// Is it for leader election alone?
    pub(super) fn is_of_lease(&self) -> bool {
        self.scope != Scope::Cluster
    }

    pub(super) fn question<'a>(&self, lease: &'a LeaseKey) -> Verb<'a> {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        Verb {
            verb: self.verb,
            group: self.group,
            resource,
            subresource,
            namespace: match self.scope {
                Scope::Cluster => "",
                Scope::Namespace | Scope::Lease => &lease.namespace,
            },
            name: match self.scope {
                Scope::Cluster | Scope::Namespace => "",
                Scope::Lease => &lease.name,
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;
    use std::collections::BTreeSet;

    const ROLES: [&str; 2] = [
        include_str!("../../../manifests/role.yaml"),
        include_str!("../../../manifests/lease.yaml"),
    ];

    fn texts(value: &Value) -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// Group, resource, verb, name of every rule.
    fn allowed() -> BTreeSet<[String; 4]> {
        let mut all = BTreeSet::new();
        for document in ROLES
            .iter()
            .flat_map(|text| serde_yaml::Deserializer::from_str(text))
        {
            let role = Value::deserialize(document).unwrap();
            for rule in role["rules"].as_array().into_iter().flatten() {
                let names = match texts(&rule["resourceNames"]) {
                    none if none.is_empty() => vec![String::new()],
                    some => some,
                };
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        for verb in texts(&rule["verbs"]) {
                            all.extend(names.iter().map(|name| {
                                [group.clone(), resource.clone(), verb.clone(), name.clone()]
                            }));
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn the_table_says_what_the_manifests_allow() {
        let key = LeaseKey {
            namespace: "kube-system".into(),
            name: "cloud-controller-manager".into(),
        };
        let asked = NEEDS.iter().map(|need| {
            let name = need.question(&key).name;
            [need.group, need.resource, need.verb, name].map(str::to_owned)
        });
        assert_eq!(asked.collect::<BTreeSet<_>>(), allowed());
    }
}
