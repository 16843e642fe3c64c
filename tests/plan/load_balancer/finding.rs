//! Which load balancer is a Service's when two clusters share a project, and which load balancer is deleted.

use crate::load_balancer::project::fresh;
use crate::load_balancer::support::{
    PROFILES, UID, World, changes, ip_target, lines, node, port, selector_target, server_target,
    words,
};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{
    ADOPT, ADOPTED, ApiTarget, CLUSTER, CLUSTER_UID, CREATED, KEEP, Listener, LoadBalancer,
    SERVICE, SERVICE_UID,
};
use ccm::provider::{Cluster, InstanceId, Reason};
use std::net::IpAddr;

const NAME: &str = "kubernetes-default-web";
const OTHER: &str = "6a000000-0000-4000-8000-00000000000f";

fn labelled(id: u64, name: &str, labels: &[(&str, &str)]) -> LoadBalancer {
    let mut balancer = fresh(id, name, "lb11");
    let labels = labels.iter();
    balancer.labels = labels.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    balancer
}

fn server(id: u64) -> ApiTarget {
    server_target(id, false)
}

fn selector(servers: Option<&[u64]>) -> ApiTarget {
    selector_target("cluster=k3s", servers)
}

fn address(ip: &str) -> ApiTarget {
    ip_target(ip.parse::<IpAddr>().unwrap())
}

/// The address of worker-01.
const NODE_IP: &str = "192.0.2.1";
const OTHER_IP: &str = "192.0.2.99";

type Labels = &'static [(&'static str, &'static str)];
type Targets = fn() -> Vec<ApiTarget>;

const OURS: (&str, &str) = (CLUSTER_UID, "cluster-1");
const FORMER: (&str, &str) = (CLUSTER_UID, "cluster-0");
const THEIRS: (&str, &str) = (CLUSTER_UID, "cluster-2");
const LIVING: (&str, &str) = (SERVICE_UID, "living");
const OWN: (&str, &str) = (SERVICE_UID, UID);
const GONE: (&str, &str) = (SERVICE_UID, OTHER);
const TEAM: (&str, &str) = ("team", "a");
const MADE: (&str, &str) = (CREATED, "true");
const OF_WEB: (&str, &str) = (SERVICE, "default.web");
const ASKS: (&str, &str) = (ADOPT, "default.web");
const ASKS_OTHER: (&str, &str) = (ADOPT, "default.other");

/// What happens to a load balancer that a Service asks for by its annotation, its default name or the label `adopt`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Adopted,
    /// Why, and it can be solved by the label.
    Not(&'static str),
    /// Another Service owns the load balancer.
    Owned,
}
use Fate::{Adopted, Not, Owned};

/// Another one, with these labels, ports and targets, in the way of a Service.
fn in_the_way(name: &str, labels: Labels, ports: &[u16], targets: Vec<ApiTarget>) -> World {
    let mut world = World::new(Profile::CcmFromScratch);
    world.cluster.former_uids = vec!["cluster-0".into()];
    world.cluster.service_uids.insert("living".into());
    world.cluster.addresses = [NODE_IP.parse().unwrap()].into();
    let mut there = labelled(1, name, labels);
    there.services = ports.iter().map(|port| listener(*port)).collect();
    there.targets = targets;
    world.state.balancers = vec![there];
    world
}

fn listener(listen_port: u16) -> Listener {
    let mut world = World::new(Profile::CcmFromScratch);
    world.service.ports = vec![port("x", listen_port)];
    world.converge();
    world.listener().clone()
}

/// Asserts what the plan says of the load balancer that is there, in both profiles.
fn check_fate(world: &mut World, fate: Fate, about: &str) {
    let before = world.state.balancers[0].clone();
    for profile in PROFILES {
        world.profile = profile;
        world.state.balancers = vec![before.clone()];
        let (needs, plan) = (world.needs(), world.plan());
        match fate {
            Adopted => {
                let event = plan.outcome.changes()[0].event().unwrap();
                assert_eq!(event.reason, Reason::LoadBalancerAdopted);
                let converged = world.converge();
                let events = converged.iter().filter(|change| change.event().is_some());
                assert_eq!(events.count(), 1, "{about}");
                let labels = &world.balancer().labels;
                assert_eq!(world.balancer().id, 1, "{about}");
                assert_eq!(labels[CLUSTER_UID], "cluster-1", "{about}");
                let was_made = before.labels.contains_key(CREATED);
                assert_eq!(labels.contains_key(CREATED), was_made, "{about}");
                assert_eq!(labels.contains_key(ADOPTED), !was_made, "{about}");
                assert_eq!(labels.get("team"), before.labels.get("team"), "{about}");
                // A target that selects servers is the operator's.
                let is_selector =
                    |target: &&ApiTarget| matches!(target, ApiTarget::LabelSelector { .. });
                let selectors = |one: &LoadBalancer| one.targets.iter().filter(is_selector).count();
                assert_eq!(selectors(world.balancer()), selectors(&before), "{about}");
            }
            Not(_) | Owned => {
                let is_idle = plan.outcome.changes().is_empty() && plan.status.is_none();
                assert!(is_idle, "{about}");
                let obstacle = plan.outcome.obstacle().unwrap();
                let message = &obstacle.message;
                let command = message.contains("hcloud load-balancer add-label ");
                let (reason, part) = match fate {
                    Not(part) => (Reason::LoadBalancerNotAdopted, part),
                    _ => (Reason::SyncLoadBalancerFailed, "belongs to another Service"),
                };
                assert_eq!(obstacle.reason, reason, "{about}: {message}");
                assert_eq!(command, fate != Owned, "{about}: {message}");
                assert!(message.contains(part), "{about}: {message}");
                assert!(needs.services || fate != Owned, "{about}");
            }
        }
    }
}

/// Labels, ports, targets → what becomes of the one that the annotation names.
type Case = (Labels, &'static [u16], Targets, Fate);

#[rustfmt::skip] // A case is a line.
const NAMED: &[Case] = &[
    // No label of a Service.
    (&[], &[], Vec::new, Adopted),
    (&[TEAM], &[], Vec::new, Adopted),
    (&[TEAM], &[], || vec![server(1), server(3)], Adopted),
    (&[TEAM], &[], || vec![selector(Some(&[1, 2]))], Adopted),
    (&[], &[], || vec![address(NODE_IP)], Adopted),
    (&[], &[443], Vec::new, Not("it already has ports, e.g. port 443")),
    (&[], &[443], || vec![server(1)], Not("it already has ports, e.g. port 443")),
    (&[], &[], || vec![server(1), server(99)], Not("server 99 is no node")),
    (&[], &[], || vec![selector(Some(&[]))], Not("selects no server")),
    (&[], &[], || vec![selector(None)], Not("is not known")),
    (&[], &[], || vec![selector(Some(&[1, 99]))], Not("server 99, which is no node")),
    (&[], &[], || vec![address(OTHER_IP)], Not("192.0.2.99 is no address of a node")),
    (&[], &[], || vec![ApiTarget::Unknown], Not("a target of an unknown type")),
    (&[OURS], &[443], Vec::new, Not("it already has ports, e.g. port 443")),
    (&[MADE], &[], || vec![server(99)], Not("server 99 is no node")),
    (&[ASKS_OTHER], &[], Vec::new, Not("names another Service (default.other)")),
    // An operator's program makes these before the nodes: kube-hetzner, hcloud-k8s, or any other.
    (&[("provisioner", "terraform"), ("cluster", "k3s")], &[], || vec![selector(Some(&[1, 2]))], Adopted),
    (&[("cluster", "k8s"), ("role", "ingress")], &[], Vec::new, Adopted),
    (&[("x7f3", "a9")], &[], Vec::new, Adopted),
    (&[("kubernetes.io/name", "edge"), ("owner", "me")], &[], Vec::new, Adopted),
    // A program's that makes it what it wants, also while it is empty.
    (&[("caph-cluster-prod", "owned")], &[], Vec::new, Not("label caph-cluster-prod=owned says that another program owns it")),
    (&[("caph-cluster-prod", "")], &[], || vec![server(1)], Not("label caph-cluster-prod= says")),
    (&[("kubernetes.io/cluster/prod", "shared")], &[], Vec::new, Not("label kubernetes.io/cluster/prod=shared says")),
    (&[TEAM, ("kops", "owned")], &[], || vec![selector(Some(&[1]))], Not("label kops=owned says")),
    (&[GONE, ("kops", "owned")], &[], || vec![server(1)], Not("label kops=owned says")),
    (&[OURS, GONE, ("kops", "owned")], &[443], || vec![server(1)], Not("label kops=owned says")),
    // A label that a Service had set on a load balancer of this cluster belongs to no program.
    (&[OURS, GONE, MADE, ("kops", "owned")], &[443], || vec![server(1)], Adopted),
    // Another cluster's.
    (&[THEIRS], &[], Vec::new, Not("names another cluster (cluster-2)")),
    (&[THEIRS, GONE], &[], || vec![server(1)], Not("names another cluster (cluster-2)")),
    // A Service's.
    (&[LIVING], &[], Vec::new, Owned),
    (&[OURS, LIVING], &[], Vec::new, Owned),
    (&[LIVING, ASKS], &[], Vec::new, Owned),
    (&[THEIRS, LIVING], &[], Vec::new, Owned),
    (&[OURS, GONE], &[443], || vec![server(99)], Adopted),
    (&[FORMER, GONE], &[443], || vec![server(99)], Adopted),
    (&[FORMER, LIVING], &[], Vec::new, Owned),
    (&[OURS, GONE, MADE], &[443], || vec![server(1)], Adopted),
    (&[GONE], &[443], || vec![server(1), server(3)], Adopted),
    (&[GONE], &[443], || vec![selector(Some(&[1]))], Adopted),
    // These prove nothing, because another cluster may wait for its nodes.
    (&[GONE], &[443], Vec::new, Not("names a Service that this cluster does not have")),
    (&[GONE], &[443], || vec![server(1), server(99)], Not("names a Service that this cluster does not have")),
    (&[GONE], &[], || vec![selector(Some(&[]))], Not("names a Service that this cluster does not have")),
    (&[GONE], &[], || vec![address(OTHER_IP)], Not("names a Service that this cluster does not have")),
];

#[test]
fn a_load_balancer_of_the_annotation_s_name_is_adopted_only_while_it_is_unused() {
    for (labels, ports, targets, fate) in NAMED {
        let about = format!("{labels:?} {ports:?} {:?}", targets());
        let mut world = in_the_way("front", labels, ports, targets());
        world.set("name=front");
        check_fate(&mut world, *fate, &about);
    }
}

#[rustfmt::skip] // A case is a line.
const ASKED_FOR: &[Case] = &[
    (&[ASKS], &[], Vec::new, Adopted),
    (&[ASKS, TEAM], &[443, 8443], || vec![server(99), selector(Some(&[98])), address(OTHER_IP)], Adopted),
    (&[ASKS, GONE], &[443], || vec![server(99)], Adopted),
    (&[ASKS, THEIRS], &[443], || vec![server(99)], Adopted),
    (&[ASKS, THEIRS, GONE, MADE], &[443], || vec![server(99)], Adopted),
    (&[ASKS, THEIRS, OWN], &[443], || vec![server(99)], Adopted),
    (&[ASKS, ("caph-cluster-prod", "owned")], &[], Vec::new, Adopted),
    (&[ASKS, LIVING], &[], Vec::new, Owned),
    (&[ASKS, LIVING, THEIRS], &[], Vec::new, Owned),
];

#[test]
fn the_label_adopt_is_an_operators_word_except_against_an_existing_service() {
    for (labels, ports, targets, fate) in ASKED_FOR {
        for named in [None, Some("edge"), Some("another")] {
            let about = format!("{labels:?} {ports:?} {:?} {named:?}", targets());
            let mut world = in_the_way("edge", labels, ports, targets());
            if let Some(name) = named {
                world.set_one("name", name);
            }
            check_fate(&mut world, *fate, &about);
        }
    }
    // When two ask for it, neither gets it.
    let mut world = in_the_way("edge", &[ASKS], &[], vec![]);
    world.state.balancers.push(labelled(2, "core", &[ASKS]));
    let message = world.obstacle();
    assert!(message.contains("\"edge\" (1), \"core\" (2)"), "{message}");
    // A load balancer that asks for another Service is not this one's.
    let mut world = in_the_way("edge", &[ASKS_OTHER], &[], vec![]);
    world.converge();
    assert_eq!(world.state.balancers.len(), 2);
}

/// Labels and ports of the one that has the default name, and whether it is used.
#[rustfmt::skip] // A case is a line.
const DEFAULT_NAMED: &[(Labels, &[u16], bool)] = &[
    (&[], &[], false),
    (&[TEAM], &[], false),
    (&[], &[443], false),
    (&[OURS], &[], false),
    (&[GONE], &[], false),
    (&[THEIRS, GONE], &[], false),
    (&[OURS, GONE], &[], false),
    (&[OURS, GONE, (SERVICE, "default.other")], &[], false),
    (&[OURS, LIVING, OF_WEB], &[], false),
    (&[THEIRS, GONE, OF_WEB], &[], false),
    // This cluster made it for the Service before the Service was deleted and created again.
    (&[OURS, GONE, OF_WEB], &[443], true),
    (&[OURS, GONE, OF_WEB, MADE], &[443], true),
    (&[FORMER, GONE, OF_WEB], &[443], true),
];

#[test]
fn nothing_is_adopted_by_a_default_name() {
    for (labels, ports, is_used) in DEFAULT_NAMED {
        let about = format!("{labels:?} {ports:?}");
        let mut world = in_the_way(NAME, labels, ports, vec![server(1)]);
        let there = world.state.balancers[0].clone();
        if *is_used {
            assert!(world.needs().services, "{about}");
            world.converge();
            assert_eq!(world.balancer().id, 1, "{about}");
            continue;
        }
        world.converge();
        let name = world.balancer().name.clone();
        assert!(name.starts_with(&format!("{NAME}-")), "{about}: {name}");
        assert_eq!(world.state.balancers[0], there, "{about}: left unchanged");
        // The second name can be used by another, too.
        world.state.balancers[1].labels.clear();
        let plan = world.plan();
        let obstacle = plan.outcome.obstacle().unwrap();
        assert_eq!(obstacle.reason, Reason::LoadBalancerNotAdopted, "{about}");
    }
}

#[test]
fn our_uid_on_another_clusters_is_a_conflict_unless_its_targets_are_our_nodes() {
    #[rustfmt::skip] // A case is a line.
    let cases: &[(Targets, bool)] = &[
        (|| vec![server(1), address(NODE_IP)], true),
        (|| vec![selector(Some(&[1, 2]))], true),
        // The other cluster's nodes may not be up yet.
        (Vec::new, false),
        (|| vec![selector(Some(&[]))], false),
        (|| vec![server(1), server(99)], false),
        (|| vec![server(1), address(OTHER_IP)], false),
    ];
    for (targets, is_ours) in cases {
        for profile in PROFILES {
            let about = format!("{:?} {profile:?}", targets());
            let mut world = in_the_way("front", &[OWN, THEIRS], &[], targets());
            world.profile = profile;
            let removal = world.removal();
            if *is_ours {
                assert!(world.needs().services, "{about}");
                world.converge();
                assert_eq!(world.balancer().id, 1, "{about}");
                assert_ne!(removal.outcome.changes().len(), 0, "{about}");
                continue;
            }
            let plan = world.plan();
            let obstacle = plan.outcome.obstacle().unwrap();
            assert_eq!(obstacle.reason, Reason::LoadBalancerNotAdopted, "{about}");
            let command = "hcloud load-balancer add-label 1 ccm-from-scratch/adopt=default.web";
            assert!(obstacle.message.contains(command), "{}", obstacle.message);
            // Deleted with the Service it is not, and the Service does not wait for it.
            assert!(removal.outcome.changes().is_empty(), "{about}");
            assert_eq!(removal.outcome.obstacle(), None, "{about}");
            assert_eq!(removal.findings[0].reason, Reason::LoadBalancerNotAdopted);
        }
    }
}

/// Whatever its targets are, as with the cluster's present identity.
#[test]
fn our_uid_under_a_former_identity_is_ours() {
    for profile in PROFILES {
        let mut world = in_the_way("front", &[OWN, FORMER, MADE], &[], vec![server(99)]);
        world.profile = profile;
        let removal = world.removal();
        assert!(!removal.outcome.changes().is_empty(), "it is released");
        assert!(removal.findings.is_empty(), "{:?}", removal.findings);
        world.converge();
        assert_eq!(world.balancer().id, 1);
        let mut world = in_the_way("front", &[GONE, FORMER, MADE], &[], vec![server(1)]);
        world.cluster.service_uids.clear();
        let orphans = world.orphans();
        assert_eq!(orphans.len(), 1);
        assert!(orphans[0].removal.is_ok(), "{:?}", orphans[0].removal);
    }
}

/// One of this cluster's nodes among the targets is enough. A copy of the cluster has none of them.
#[test]
fn the_service_s_uid_is_enough_while_the_identity_is_unknown() {
    let cases: &[(Labels, Targets, bool)] = &[
        (&[OWN, THEIRS], || vec![server(1)], true),
        (&[OWN, THEIRS], || vec![server(1), server(99)], true),
        (&[OWN, THEIRS], Vec::new, true),
        (&[OWN, THEIRS], || vec![server(99)], false),
        (&[OWN], || vec![server(99)], true),
    ];
    for (labels, targets, is_synced) in cases {
        for profile in PROFILES {
            let about = format!("{labels:?} {:?} {profile:?}", targets());
            let mut world = in_the_way("front", labels, &[], targets());
            world.profile = profile;
            world.cluster.uid.clear();
            world.cluster.former_uids.clear();
            let plan = world.plan();
            assert_eq!(plan.outcome.obstacle().is_none(), *is_synced, "{about}");
            let before = world.state.balancers[0].labels.get(CLUSTER_UID).cloned();
            if *is_synced {
                assert!(plan.carries_uid, "{about}");
                world.converge();
                assert_eq!(world.balancer().id, 1, "{about}");
                let after = world.balancer().labels.get(CLUSTER_UID).cloned();
                assert_eq!(after, before, "{about}");
            }
            assert_eq!(world.orphans().len(), 0, "{about}");
        }
    }
}

#[test]
fn the_command_names_the_load_balancer_by_its_id() {
    for (labels, expected) in [
        (&[][..], "add-label 1 ccm-from-scratch/adopt=default.web"),
        (&[ASKS_OTHER], "add-label --overwrite 1 "),
    ] {
        let mut world = in_the_way("a;rm -rf $HOME", labels, &[443], vec![]);
        world.set_one("name", "a;rm -rf $HOME");
        let message = world.plan().outcome.obstacle().unwrap().message.clone();
        assert!(message.contains(expected), "{message}");
    }
}

/// The labels, the targets, the seconds from the load balancer's creation to the Service's, and a part of the reason
/// why the load balancer is released. An empty text means that it is deleted.
type Ending = (Labels, Targets, i64, &'static str);

#[rustfmt::skip] // A case is a line.
const ENDINGS: &[Ending] = &[
    (&[OWN, MADE], Vec::new, -1, ""),
    (&[OWN, MADE, TEAM, ASKS], || vec![server(1)], 90_000, ""),
    (&[OWN, MADE], || vec![selector(Some(&[1]))], -1, ""),
    (&[OWN, MADE], || vec![server(1), server(99)], -1, "server 99 is no node"),
    (&[OWN, MADE], || vec![address(OTHER_IP)], -1, "192.0.2.99"),
    (&[OWN, MADE], || vec![selector(Some(&[1, 99]))], -1, "server 99, which is no node"),
    // Hetzner's controller leaves these.
    (&[OWN], Vec::new, -1, ""),
    (&[OWN], || vec![server(1), address(NODE_IP)], -1, ""),
    (&[OWN], || vec![server(1)], 60, ""),
    (&[OWN, OURS, OF_WEB, (CLUSTER, "k")], || vec![server(1)], -1, ""),
    // Adopted, and what is left of that once Terraform has removed our labels.
    (&[OWN, OURS, (ADOPTED, "true")], || vec![server(1)], -1, "it was adopted"),
    (&[OWN, ASKS], || vec![server(1)], -1, "it was adopted"),
    (&[OWN, TEAM], || vec![server(1)], -1, "label team"),
    (&[OWN, ("hcloud-ccm.example/x", "")], || vec![server(1)], -1, "label hcloud-ccm.example/x"),
    (&[OWN], || vec![server(1), selector(Some(&[2]))], -1, "label-selector"),
    (&[OWN], || vec![server(1)], 61, "older than the Service"),
    (&[OWN, OURS], Vec::new, 90_000, "older than the Service"),
    // The label alone is enough, as for a Service that is deleted without its annotation.
    (&[OWN, OURS, MADE, (KEEP, "default.web")], || vec![server(1)], -1, "annotation load-balancer.hetzner.cloud/keep asks ccm to keep it"),
];

#[test]
fn only_a_load_balancer_that_was_made_for_the_service_is_deleted_with_it() {
    for (labels, targets, older_s, why) in ENDINGS {
        for profile in PROFILES {
            let about = format!("{labels:?} {:?} {older_s} s", targets());
            let mut world = in_the_way("front", labels, &[80], targets());
            world.profile = profile;
            let created: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
            world.state.balancers[0].created = Some(created);
            world.service.created = Some(created + jiff::SignedDuration::from_secs(*older_s));
            let made = changes(world.removal());
            let last = made.last().unwrap();
            if why.is_empty() {
                assert_eq!(words(&made), "delete", "{about}");
                continue;
            }
            let line = last.description().done().join(", ");
            let says_why = line.contains("released") && line.contains(why);
            assert!(says_why, "{about}: {line}");
            let event = last.event().unwrap();
            assert_eq!(event.reason, Reason::LoadBalancerReleased);
            let words = words(&made);
            assert!(words.split(' ').all(|word| word != "delete"), "{about}");
            // The load balancer stays whether it is protected or not.
            world.state.balancers[0].protection.delete = true;
            let again = changes(world.removal());
            let requests = |all: &[Box<dyn ccm::provider::Change>]| {
                all.iter().map(|one| one.json()).collect::<Vec<_>>()
            };
            assert_eq!(requests(&again), requests(&made), "{about}");
        }
    }
    // Times that are not known prove nothing.
    let mut world = in_the_way("front", &[OWN], &[], vec![]);
    world.service.created = Some("2026-01-02T03:04:05Z".parse().unwrap());
    assert_eq!(words(&changes(world.removal())), "delete");
}

#[test]
fn a_release_removes_what_is_the_service_s_and_the_labels_last() {
    const LABELS: Labels = &[OWN, OURS, TEAM, ASKS, ("hcloud-ccm/other", "x")];
    let [one, two, other] = [1, 2, 99].map(server);
    let targets = vec![one, other, selector(Some(&[2])), address(NODE_IP), two];
    let mut world = in_the_way("edge", LABELS, &[80, 443], targets);
    let expected = [
        "port 80: removed",
        "target worker-01: removed",
        "target worker-02: removed",
        "load balancer \"edge\" (1): released; ccm does not delete the load balancer, because its target server 99 is \
         no node of this cluster",
    ];
    // Stopped after any write and begun again, the end is the same.
    for stops_after in 0..=expected.len() {
        let before = world.state.clone();
        let all = changes(world.removal());
        assert_eq!(lines(&all), expected);
        for change in &all[..stops_after] {
            world.apply(&**change);
        }
        for change in changes(world.removal()) {
            world.apply(&*change);
        }
        let one = &world.state.balancers[0];
        let labels: Vec<&str> = one.labels.keys().map(String::as_str).collect();
        assert_eq!(labels, ["hcloud-ccm/other", "team"], "{stops_after}");
        let ports: Vec<u16> = one.services.iter().map(|port| port.listen_port).collect();
        assert_eq!((ports, one.targets.len()), (vec![443], 3), "{stops_after}");
        let removal = world.removal();
        assert!(removal.found.is_none() && removal.outcome.changes().is_empty());
        assert_eq!(removal.outcome.obstacle(), None);
        world.state = before;
    }
}

/// The labels change with the last write, so that a restart finds it.
#[test]
fn a_kept_load_balancer_has_a_label_with_its_service() {
    for stops_after in 0..=5 {
        const LABELS: Labels = &[OWN, OURS, MADE, TEAM];
        // The Service had one of these ports before.
        let mut world = in_the_way("edge", LABELS, &[80, 443], vec![server(1), server(2)]);
        world.set("keep=true");
        let all = changes(world.removal());
        assert_eq!(all.len(), 5, "{:?}", lines(&all));
        for change in &all[..stops_after] {
            world.apply(&**change);
        }
        for change in changes(world.removal()) {
            world.apply(&*change);
        }
        let one = &world.state.balancers[0];
        let kept = [OURS, (KEEP, "default.web"), TEAM];
        let kept = kept.map(|(label, value)| (label.to_owned(), value.to_owned()));
        assert_eq!(one.labels, kept.into(), "{stops_after}");
        assert!(one.services.is_empty() && one.targets.is_empty());
        assert!(world.removal().outcome.changes().is_empty() && world.orphans().is_empty());
    }
}

/// Each case has the labels, the namespace of the Service that names the load balancer, and whether it is adopted.
#[test]
fn a_kept_load_balancer_is_adopted_again_in_its_namespace() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        (&[OURS, (KEEP, "default.web")][..], "default", true),
        (&[OURS, (KEEP, "default.web")], "other", false),
        (&[(KEEP, "default.web")], "other", false),
        (&[(KEEP, "true")], "default", false),
        (&[THEIRS, (KEEP, "default.web")], "default", false),
        (&[OURS, (KEEP, "other.web"), (ADOPT, "default.web")], "default", true),
    ];
    for (labels, namespace, is_adopted) in cases {
        let mut world = in_the_way("front", labels, &[], vec![]);
        world.service.namespace = namespace.to_owned();
        world.set("name=front");
        let found = world.plan().found;
        assert_eq!(found.is_some(), is_adopted, "{labels:?} {namespace}");
    }
}

/// The label is in the request that creates the load balancer. A missing label is the safe case.
#[test]
fn the_label_created_is_never_added_later() {
    for profile in PROFILES {
        let mut world = World::new(profile);
        world.converge();
        assert_eq!(world.balancer().labels[CREATED], "true");
        assert!(!world.balancer().labels.contains_key(ADOPTED));
        world.balancer_mut().labels = [(SERVICE_UID.to_owned(), UID.to_owned())].into();
        world.set("name=front");
        world.converge();
        let labels = &world.balancer().labels;
        let has_one = [CREATED, ADOPTED].map(|label| labels.contains_key(label));
        assert_eq!(has_one, [false, false], "{labels:?}");
    }
}

#[test]
fn a_load_balancer_is_found_by_its_label_before_any_name() {
    for profile in PROFILES {
        let mut world = World::new(profile);
        world.set("name=front");
        let own = labelled(1, "old", &[(SERVICE_UID, UID), ("team", "a")]);
        world.state.balancers = vec![own, labelled(2, "front", &[])];
        let plan = world.plan();
        assert_eq!(plan.found.as_ref().unwrap().id, 1);
        // The taken name is reported, and all other changes are made.
        assert!(world.findings().contains(&Reason::LoadBalancerNameTaken));
        world.converge();
        assert_eq!(world.balancer().name, "old");
        assert_eq!(world.balancer().labels["team"], "a");
        world.state.balancers.remove(1);
        let made = world.converge();
        assert_eq!(lines(&made), ["name: changed, old → front"]);
    }
}

#[test]
fn two_load_balancers_with_the_label_are_both_left_alone() {
    let mut world = World::new(Profile::CcmFromScratch);
    let label = [(SERVICE_UID, UID)];
    world.state.balancers = vec![labelled(1, "one", &label), labelled(2, "two", &label)];
    let message = world.obstacle();
    assert!(message.contains("\"one\" (1), \"two\" (2)"), "{message}");
    let removal = world.removal();
    assert!(removal.outcome.changes().is_empty());
    let obstacle = removal.outcome.obstacle().unwrap();
    assert_eq!(obstacle.reason, Reason::DeleteLoadBalancerFailed);
    assert!(obstacle.message.contains("\"one\" (1), \"two\" (2)"));
}

#[test]
fn removal_goes_by_the_label_alone_and_keeps_what_is_protected() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.state.balancers = vec![labelled(1, NAME, &[])];
    let plan = world.removal();
    assert!(plan.found.is_none() && plan.outcome.changes().is_empty());
    assert_eq!(plan.outcome.obstacle(), None);
    world.state.balancers = vec![labelled(1, "x", &[(SERVICE_UID, UID), MADE])];
    let made = lines(&changes(world.removal()));
    assert_eq!(made, ["load balancer \"x\" (1): deleted"]);
    world.state.balancers[0].protection.delete = true;
    let plan = world.removal();
    assert!(plan.outcome.changes().is_empty() && plan.outcome.obstacle().is_none());
    assert_eq!(plan.findings[0].reason, Reason::LoadBalancerProtected);
}

/// Both clusters are called `kubernetes`, and both have a Service `default/web`.
#[test]
fn two_clusters_of_the_same_name_get_a_load_balancer_each() {
    let mut first = World::new(Profile::CcmFromScratch);
    first.converge();
    let mut second = World::new(Profile::CcmFromScratch);
    second.service.uid = OTHER.into();
    second.cluster = Cluster {
        uid: "cluster-2".into(),
        service_uids: [OTHER.to_owned()].into(),
        servers: [(InstanceId::Cloud(50), "worker-50".to_owned())].into(),
        ..second.cluster
    };
    second.nodes = vec![node(50)];
    second.state = first.state.clone();
    second.converge();
    let all = second.state.balancers.iter();
    let names: Vec<&str> = all.map(|one| one.name.as_str()).collect();
    assert_eq!(names[0], NAME);
    assert!(names[1].starts_with(NAME) && names[1] != NAME, "{names:?}");
    assert_eq!(second.balancer().name, names[1]);
    // Each is content with its own, whatever the other does.
    first.state = second.state.clone();
    assert!(first.converge().is_empty() && second.converge().is_empty());
    assert_eq!(words(&changes(first.removal())), "delete");
    assert_eq!(first.removal().found.unwrap().name, NAME);
}

/// A Service that was deleted and made again keeps the address.
#[test]
fn a_recreated_service_gets_its_load_balancer_back() {
    for profile in PROFILES {
        let mut world = World::new(profile);
        world.set("name=front");
        world.converge();
        world.service.uid = OTHER.into();
        world.cluster.service_uids = [OTHER.to_owned()].into();
        assert!(world.needs().services);
        let made = world.converge();
        assert_eq!(words(&made), "edit", "{profile:?}");
        assert_eq!(world.state.balancers.len(), 1);
        assert_eq!(world.balancer().labels[CLUSTER_UID], "cluster-1");
    }
}

#[test]
fn an_orphan_is_a_load_balancer_of_ours_without_its_service() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.state.balancers = vec![
        labelled(1, "living", &[OURS, OWN]),
        labelled(2, "orphan", &[OURS, GONE, (SERVICE, "a.b")]),
        labelled(3, "theirs", &[THEIRS, GONE]),
        labelled(4, "upstream", &[GONE]),
        labelled(5, "by-hand", &[OURS]),
        labelled(6, "protected", &[OURS, GONE, MADE]),
        labelled(7, "adopted", &[OURS, GONE, (ADOPTED, "true")]),
        labelled(8, "kept-for-another", &[OURS, GONE, MADE, ASKS]),
        labelled(9, "terraforms", &[OURS, GONE, TEAM]),
        labelled(10, "used", &[OURS, GONE, MADE]),
        labelled(11, "made", &[OURS, GONE, MADE, TEAM]),
        labelled(12, "kept", &[OURS, GONE, MADE, (KEEP, "a.b")]),
    ];
    world.state.balancers[5].protection.delete = true;
    world.state.balancers[9].targets = vec![server(99)];
    // The name, the Service, and whether it is removed.
    let shown = world.orphans().into_iter().map(|one| {
        let is_removed = one.removal.is_ok();
        format!("{} {} {is_removed}", one.balancer.name, one.service)
    });
    let expected = [
        "orphan a.b true",
        "protected unknown false",
        "adopted unknown false",
        "kept-for-another unknown false",
        "terraforms unknown false",
        "used unknown false",
        "made unknown true",
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}
