//! Which load balancer is a Service's: by its label, else by its name where nobody else lives in
//! it. Never a take-over.

use super::super::Profile;
use super::balancer::LoadBalancer;
use super::names::{self, CLUSTER_UID, SERVICE_UID};
use crate::cloud::{Cluster, Service, Source, Sourced};

/// What was found.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// It carries the Service's UID.
    Labelled(&'a LoadBalancer),
    /// It has the name, and nobody else lives in it.
    Named {
        balancer: &'a LoadBalancer,
        /// A Service that is not known lived in it: that must be certain.
        rests_on_whole_cluster: bool,
    },
    /// There is none.
    Nothing {
        /// That a new one gets.
        name: Sourced<String>,
        /// Another one has the default name, and a Service that lives in it: that must be certain.
        rests_on_whole_cluster: bool,
    },
}

/// Why none is taken and none is made.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) why: String,
    /// A Service lives in it, says what was read of the cluster: it may have gone since.
    pub(super) rests_on_whole_cluster: bool,
    /// What else can be done than to choose another name.
    pub(super) or: String,
}

/// The error says who lives where.
pub(super) fn find<'a>(
    balancers: &'a [LoadBalancer],
    service: &Service,
    cluster: &Cluster,
    profile: Profile,
    named: Option<&Sourced<String>>,
) -> Result<Found<'a>, Refused> {
    let certain = |why| Refused {
        why,
        rests_on_whole_cluster: false,
        or: String::new(),
    };
    if let Some(balancer) = by_label(balancers, service).map_err(certain)? {
        return Ok(Found::Labelled(balancer));
    }
    let nothing = |name, rests_on_whole_cluster| Found::Nothing {
        name,
        rests_on_whole_cluster,
    };
    if let Some(named) = named {
        return match by_name(balancers, &named.value, cluster) {
            Ok(found) => Ok(found.unwrap_or_else(|| nothing(named.clone(), false))),
            Err(refused) => Err(Refused {
                why: format!(
                    "{}: {}; choose another name{}",
                    named.source, refused.why, refused.or
                ),
                ..refused
            }),
        };
    }
    let default = names::default_name(profile, service, cluster);
    let source = Source::Rule("the default name");
    match by_name(balancers, &default, cluster) {
        Ok(found) => Ok(found.unwrap_or(nothing(Sourced::new(default, source), false))),
        // Somebody else has it: the same, with a hash of the Service's UID.
        Err(first) => {
            let second = names::second_name(&default, service);
            let source = Source::Rule("the default name is somebody else's");
            let rests = first.rests_on_whole_cluster;
            let found = by_name(balancers, &second, cluster)?;
            Ok(match found {
                None => nothing(Sourced::new(second, source), rests),
                Some(Found::Named {
                    balancer,
                    rests_on_whole_cluster,
                }) => Found::Named {
                    balancer,
                    rests_on_whole_cluster: rests_on_whole_cluster || rests,
                },
                Some(other) => other,
            })
        }
    }
}

/// The one that carries the Service's UID; the error names several.
pub(super) fn by_label<'a>(
    balancers: &'a [LoadBalancer],
    service: &Service,
) -> Result<Option<&'a LoadBalancer>, String> {
    let carries = |one: &&LoadBalancer| {
        !service.uid.is_empty() && one.labels.get(SERVICE_UID) == Some(&service.uid)
    };
    let all: Vec<&LoadBalancer> = balancers.iter().filter(carries).collect();
    match all.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => {
            let names: Vec<String> = several.iter().map(|one| one.shown()).collect();
            Err(format!(
                "load balancers {} carry the same label, {SERVICE_UID}={}: nothing is done to any; remove it from the \
                 wrong one",
                names.join(" and "),
                service.uid
            ))
        }
    }
}

fn by_name<'a>(
    balancers: &'a [LoadBalancer],
    name: &str,
    cluster: &Cluster,
) -> Result<Option<Found<'a>>, Refused> {
    let Some(balancer) = balancers.iter().find(|one| one.name == name) else {
        return Ok(None);
    };
    let rests_on_whole_cluster = is_free(balancer, cluster)?;
    Ok(Some(Found::Named {
        balancer,
        rests_on_whole_cluster,
    }))
}

/// Does nobody live in it? True: that rests on what the cluster says of all Services and nodes.
fn is_free(balancer: &LoadBalancer, cluster: &Cluster) -> Result<bool, Refused> {
    let inhabited = |by: String, rests_on_whole_cluster| {
        let shown = balancer.shown();
        Err(Refused {
            why: format!("load balancer {shown} is taken: {by}"),
            rests_on_whole_cluster,
            or: String::new(),
        })
    };
    let of_cluster = balancer.labels.get(CLUSTER_UID);
    if let Some(uid) = of_cluster.filter(|uid| **uid != cluster.uid) {
        let by = format!("label {CLUSTER_UID} says cluster {uid}");
        let mut refused = inhabited(by, false);
        if let Err(refused) = &mut refused {
            refused.or = format!(
                ", or, if that cluster is gone and this is to be kept, take both labels off: hcloud load-balancer \
                 remove-label {name} {CLUSTER_UID}, and {SERVICE_UID}",
                name = balancer.name
            );
        }
        return refused;
    }
    let Some(uid) = balancer.labels.get(SERVICE_UID) else {
        return Ok(false);
    };
    if cluster.service_uids.contains(uid) {
        let by = format!("label {SERVICE_UID} says another Service, {uid}");
        return inhabited(by, true);
    }
    if of_cluster.is_some() || has_only_our_targets(balancer, cluster) {
        return Ok(true);
    }
    let by = format!(
        "label {SERVICE_UID} says a Service that this cluster does not have, {uid}, and it has targets of others"
    );
    inhabited(by, true)
}

/// No servers, or all of them nodes of this cluster. An address may be anybody's.
pub(super) fn has_only_our_targets(balancer: &LoadBalancer, cluster: &Cluster) -> bool {
    use super::balancer::Target;
    balancer.targets.iter().all(|target| match target {
        Target::Server { server, .. } => cluster
            .servers
            .contains_key(&crate::cloud::InstanceId(server.id)),
        Target::LabelSelector { .. } => true,
        Target::Ip { .. } | Target::Unknown => false,
    })
}
