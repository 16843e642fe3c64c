//! Which load balancer is a Service's, with two clusters in one project; and which is removed.

use crate::model::fresh;
use crate::support::{PROFILES, UID, World, lines, node, words};
use ccm::cloud::{Cluster, InstanceId, Reason};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{
    CLUSTER_UID, IpRef, LoadBalancer, Rules, SERVICE_UID, SelectorRef, ServerRef, Target, Write,
};

const NAME: &str = "kubernetes-default-web";
const OTHER: &str = "6a000000-0000-4000-8000-00000000000f";

fn labelled(id: u64, name: &str, labels: &[(&str, &str)]) -> LoadBalancer {
    let mut balancer = fresh(id, name, "lb11");
    let labels = labels.iter();
    balancer.labels = labels
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    balancer
}

fn server(id: u64) -> Target {
    Target::Server {
        server: ServerRef { id },
        use_private_ip: false,
        health_status: Vec::new(),
    }
}

/// Labels and targets of the load balancer that has the name, and whether it is taken over; and
/// then, whether that rests on the whole cluster.
type Case = (
    &'static [(&'static str, &'static str)],
    fn() -> Vec<Target>,
    Option<bool>,
);

const OURS: (&str, &str) = (CLUSTER_UID, "cluster-1");
const THEIRS: (&str, &str) = (CLUSTER_UID, "cluster-2");
const LIVING: (&str, &str) = (SERVICE_UID, "living");
const GONE: (&str, &str) = (SERVICE_UID, OTHER);

#[rustfmt::skip] // A case is a line.
const CASES: &[Case] = &[
    (&[], Vec::new, Some(false)),
    (&[], || vec![server(99)], Some(false)),
    (&[("team", "a")], Vec::new, Some(false)),
    (&[OURS], || vec![server(99)], Some(false)),
    (&[THEIRS], Vec::new, None),
    (&[THEIRS, GONE], Vec::new, None),
    (&[OURS, LIVING], Vec::new, None),
    (&[LIVING], Vec::new, None),
    (&[OURS, GONE], || vec![server(99)], Some(true)),
    (&[GONE], Vec::new, Some(true)),
    (&[GONE], || vec![server(1), server(3)], Some(true)),
    (&[GONE], || vec![server(1), server(99)], None),
    (&[GONE], || vec![Target::LabelSelector { label_selector: SelectorRef { selector: "a=b".into() }, targets: vec![] }], Some(true)),
    (&[GONE], || vec![Target::Ip { ip: IpRef { ip: "192.0.2.1".parse().unwrap() }, health_status: vec![] }], None),
];

#[test]
fn by_name_only_where_nobody_else_lives() {
    for (labels, targets, expected) in CASES {
        for named in [true, false] {
            let about = format!("{labels:?} {:?}, by annotation: {named}", targets());
            let mut world = World::new(Profile::CcmFromScratch);
            world.cluster.service_uids.insert("living".into());
            let name = if named { "front" } else { NAME };
            if named {
                world.set(&[("name", name)]);
            }
            let mut there = labelled(1, name, labels);
            there.targets = targets();
            world.state.balancers = vec![there.clone()];
            match (expected, named) {
                (Some(rests), _) => {
                    let plan = world.plan();
                    assert_eq!(plan.rests_on_whole_cluster, *rests, "{about}");
                    world.settle();
                    assert_eq!(world.state.balancers.len(), 1, "{about}");
                    assert_eq!(world.balancer().id, 1, "{about}");
                    let kept = labels.iter().filter(|(key, _)| *key == "team");
                    for (key, value) in kept {
                        assert_eq!(world.balancer().labels[*key], *value);
                    }
                }
                (None, true) => {
                    // Who is said to live there may have gone; another cluster has not.
                    let rests = !labels.contains(&THEIRS);
                    assert_eq!(world.plan().rests_on_whole_cluster, rests, "{about}");
                    let message = world.obstacle();
                    for part in ["front (1)", "is taken", "choose another name"] {
                        assert!(message.contains(part), "{about}: {message}");
                    }
                    let remedy = "hcloud load-balancer remove-label front ccm-from-scratch/cluster-uid, and hcloud-ccm/service-uid";
                    assert_eq!(message.contains(remedy), !rests, "{about}: {message}");
                    if !rests {
                        world.state.balancers[0].labels.clear();
                        world.settle();
                        assert_eq!(world.balancer().id, 1, "{about}");
                    }
                }
                (None, false) => {
                    world.settle();
                    let name = world.balancer().name.clone();
                    assert!(name.starts_with(&format!("{NAME}-")), "{about}: {name}");
                    assert_eq!(world.state.balancers[0], there, "{about}: left alone");
                }
            }
        }
    }
}

#[test]
fn by_label_before_any_name() {
    for profile in PROFILES {
        let mut world = World::new(profile);
        world.set(&[("name", "front")]);
        let own = labelled(1, "old", &[(SERVICE_UID, UID), ("team", "a")]);
        world.state.balancers = vec![own, labelled(2, "front", &[])];
        let plan = world.plan();
        assert_eq!(plan.found.as_ref().unwrap().id, 1);
        // The name is taken: told, and the rest goes on.
        assert!(world.findings().contains(&Reason::LoadBalancerNameTaken));
        world.settle();
        assert_eq!(world.balancer().name, "old");
        assert_eq!(world.balancer().labels["team"], "a");
        world.state.balancers.remove(1);
        let made = world.settle();
        assert_eq!(lines(&made), ["name: old → front"]);
    }
}

#[test]
fn two_with_the_label_are_both_left_alone() {
    let mut world = World::new(Profile::CcmFromScratch);
    let label = [(SERVICE_UID, UID)];
    world.state.balancers = vec![labelled(1, "one", &label), labelled(2, "two", &label)];
    let message = world.obstacle();
    assert!(message.contains("one (1) and two (2)"), "{message}");
    let removal = world.removal();
    assert!(removal.changes.is_empty());
    let obstacle = removal.obstacle.unwrap();
    assert_eq!(obstacle.reason, Reason::DeleteLoadBalancerFailed);
    assert!(obstacle.message.contains("one (1) and two (2)"));
}

#[test]
fn removal_goes_by_the_label_alone_and_keeps_what_is_protected() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.state.balancers = vec![labelled(1, NAME, &[])];
    let plan = world.removal();
    assert!(plan.found.is_none() && plan.changes.is_empty() && plan.obstacle.is_none());
    world.state.balancers = vec![labelled(1, "x", &[(SERVICE_UID, UID), THEIRS])];
    let changes = crate::support::changes(&world.removal());
    assert_eq!(lines(&changes), ["load balancer x (1): deleted"]);
    assert_eq!(changes[0].write, Write::Delete);
    world.state.balancers[0].protection.delete = true;
    let plan = world.removal();
    assert!(plan.changes.is_empty() && plan.obstacle.is_none());
    assert_eq!(plan.findings[0].reason, Reason::LoadBalancerProtected);
}

/// Both called `kubernetes`, both with a Service `default/web`.
#[test]
fn two_clusters_with_one_name_get_one_each() {
    let mut first = World::new(Profile::CcmFromScratch);
    first.settle();
    let mut second = World::new(Profile::CcmFromScratch);
    second.service.uid = OTHER.into();
    second.cluster = Cluster {
        uid: "cluster-2".into(),
        service_uids: [OTHER.to_owned()].into(),
        servers: [(InstanceId(50), "worker-50".to_owned())].into(),
        ..second.cluster
    };
    second.nodes = vec![node(50)];
    second.state = first.state.clone();
    second.settle();
    let names: Vec<&str> = second
        .state
        .balancers
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names[0], NAME);
    assert!(names[1].starts_with(NAME) && names[1] != NAME, "{names:?}");
    assert_eq!(second.balancer().name, names[1]);
    // Each is content with its own, whatever the other does.
    first.state = second.state.clone();
    assert!(first.settle().is_empty() && second.settle().is_empty());
    assert_eq!(
        words(&crate::support::changes(&first.removal())),
        ["delete"]
    );
    assert_eq!(first.removal().found.unwrap().name, NAME);
}

/// A Service that was deleted and made again keeps the address.
#[test]
fn a_service_made_again_gets_its_load_balancer_back() {
    for profile in PROFILES {
        let mut world = World::new(profile);
        world.set(&[("name", "front")]);
        world.settle();
        world.service.uid = OTHER.into();
        world.cluster.service_uids = [OTHER.to_owned()].into();
        assert!(world.plan().rests_on_whole_cluster);
        let made = world.settle();
        assert_eq!(words(&made), ["edit"], "{profile:?}");
        assert_eq!(world.state.balancers.len(), 1);
        assert_eq!(world.balancer().labels[CLUSTER_UID], "cluster-1");
    }
}

#[test]
fn orphans_are_ours_and_their_service_is_gone() {
    let world = World::new(Profile::CcmFromScratch);
    let mut state = world.state.clone();
    state.balancers = vec![
        labelled(1, "living", &[OURS, (SERVICE_UID, UID)]),
        labelled(
            2,
            "orphan",
            &[OURS, GONE, (ccm::hetzner::load_balancers::SERVICE, "a.b")],
        ),
        labelled(3, "theirs", &[THEIRS, GONE]),
        labelled(4, "upstream", &[GONE]),
        labelled(5, "by-hand", &[OURS]),
        labelled(6, "protected", &[OURS, GONE]),
    ];
    state.balancers[5].protection.delete = true;
    let rules = Rules {
        profile: world.profile,
        defaults: &world.defaults,
        network: None,
    };
    let orphans = rules.orphans(&state, &world.cluster);
    let shown: Vec<(&str, &str, bool)> = orphans
        .iter()
        .map(|one| {
            let name = one.balancer.name.as_str();
            (name, one.service.as_str(), one.removal.is_some())
        })
        .collect();
    assert_eq!(
        shown,
        [("orphan", "a.b", true), ("protected", "unknown", false)]
    );
}
