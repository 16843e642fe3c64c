//! Tests of the tables in `judge.rs`, by the number of the row. In each test, no row above the tested row is true for
//! the load balancer, unless a comment says otherwise.
#![allow(clippy::unwrap_used)]

use super::super::index::BalancerIndex;
use super::super::labels::{
    ADOPTED, CREATED, EXTERNAL, GROUP, KEEP, OVERLAP, PORT, RELEASED, REPLACE, SERVICE,
    TARGETS_BEFORE,
};
use super::*;
use crate::hetzner::api::Reference;
use crate::hetzner::load_balancers::annotations::PREFIX;
use crate::hetzner::load_balancers::model::balancer::{LoadBalancer, SelectorRef};
use crate::provider::{InstanceId, ServicePort};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;

const UID: &str = "uid-web";
/// `LIVES` is the UID of a Service that exists. `GONE` is the UID of a Service that was deleted.
const LIVES: &str = "uid-lives";
const GONE: &str = "uid-gone";
const NODE: u64 = 1;
const FOREIGN: u64 = 99;

fn service() -> Service {
    Service {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        uid: UID.to_owned(),
        created: Some(Timestamp::from_second(1_000_000).unwrap()),
        ports: vec![ServicePort { port: 80, node_port: Some(30_080), ..ServicePort::default() }],
        ..Service::default()
    }
}

/// Returns the cluster `cluster-1`. It has one node, the Service `web`, and another Service, which shares a load
/// balancer under the group name `edge`.
fn cluster() -> Cluster {
    let uids = [UID, LIVES].map(str::to_owned);
    let mut sharing = service();
    (sharing.name, sharing.uid) = ("lives".to_owned(), LIVES.to_owned());
    let share = (format!("{PREFIX}share"), "edge".to_owned());
    sharing.annotations.extend([share]);
    let groups = HashMap::from([("default.edge".to_owned(), vec![sharing])]);
    Cluster {
        groups: groups.into(),
        uid: "cluster-1".to_owned(),
        service_uids: uids.into(),
        servers: [(InstanceId::Cloud(NODE), "node-1".to_owned())].into(),
        ..Cluster::default()
    }
}

/// Returns a load balancer with these labels, and with these servers as targets.
fn balancer(labels: &[(&str, &str)], targets: &[u64]) -> LoadBalancer {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let target = |id: &u64| ApiTarget::Server {
        server: Reference { id: *id },
        use_private_ip: false,
        health_status: Arc::default(),
    };
    LoadBalancer {
        id: 7,
        labels: labels.collect(),
        targets: targets.iter().map(target).collect(),
        ..LoadBalancer::default()
    }
}

fn with_port(mut balancer: LoadBalancer) -> LoadBalancer {
    let port = json!({
        "listen_port": 80,
        "destination_port": 30_080,
        "protocol": "tcp",
        "proxyprotocol": false,
        "health_check": {
            "protocol": "tcp", "port": 30_080, "interval": 15, "timeout": 10, "retries": 3,
        },
    });
    balancer.services.push(serde_json::from_value(port).unwrap());
    balancer
}

fn judged<T>(balancer: &LoadBalancer, question: impl Fn(Labelled) -> T) -> T {
    let all = std::slice::from_ref(balancer);
    let index = BalancerIndex::new(all);
    let one = index.of(all).all().next().unwrap();
    question(one)
}

fn port_80() -> String {
    format!("{PORT}80")
}

#[test]
fn what_the_service_has_on_it() {
    let (port, copied) = (port_80(), format!("{TARGETS_BEFORE}cluster-9"));
    let own = (SERVICE_UID, UID);
    for (row, balancer, has) in [
        (1, balancer(&[], &[]), "Nothing"),
        (1, balancer(&[(SERVICE_UID, LIVES)], &[NODE]), "Nothing"),
        // The external load balancer (one that somebody else made) has a port with the port number and node port of the
        // Service. But the Service's status does not have an address of the load balancer, so the port does not count
        // as the Service's port.
        (1, with_port(balancer(&[(EXTERNAL, "")], &[NODE])), "Nothing"),
        (2, balancer(&[own, (CLUSTER_UID, "cluster-9")], &[]), "Copy(\"cluster-9\")"),
        (2, balancer(&[own, (CLUSTER_UID, "cluster-9")], &[NODE, FOREIGN]), "Copy(\"cluster-9\")"),
        (
            2,
            balancer(&[(EXTERNAL, ""), (&port, UID), (&copied, "all")], &[]),
            "Copy(\"cluster-9\")",
        ),
        (3, balancer(&[own], &[]), "Whole"),
        (3, balancer(&[own, (CLUSTER_UID, "cluster-1")], &[]), "Whole"),
        // The cluster was restored from a backup and has a new UID, so the label names the old UID. The only target is
        // a node of this cluster, which proves that the load balancer still belongs to it.
        (3, balancer(&[own, (CLUSTER_UID, "cluster-9")], &[NODE]), "Whole"),
        (3, balancer(&[own, (&format!("{PORT}443"), GONE)], &[]), "Whole"),
        (4, balancer(&[own, (&format!("{PORT}443"), LIVES)], &[]), "Part"),
        (4, balancer(&[(GROUP, "default.edge"), (&port, UID)], &[]), "Part"),
        (4, balancer(&[(EXTERNAL, ""), (&port, UID)], &[]), "Part"),
    ] {
        let stake = judged(&balancer, |one| format!("{:?}", stake(one, &service(), &cluster())));
        assert_eq!(stake, has, "row {row}: {:?}", balancer.labels);
    }
    // All labels of this cluster were removed from the external load balancer (one that somebody else made). The
    // Service's status has an address of the load balancer, so the port still counts as the Service's port.
    let mut lost = with_port(balancer(&[(EXTERNAL, "")], &[NODE]));
    lost.public_net.ipv4.ip = Some("203.0.113.7".parse().unwrap());
    let served = Service { addresses: vec!["203.0.113.7".to_owned()], ..service() };
    let has = judged(&lost, |one| format!("{:?}", stake(one, &served, &cluster())));
    assert_eq!(has, "Part", "row 4");
}

#[test]
fn whether_the_service_may_adopt_it() {
    let (of_web, of_other, of_stranger) = ("default.web", "default.other", "shop.web");
    let ours = (CLUSTER_UID, "cluster-1");
    let port = port_80();
    // Each case has the number of the row in the table of `adoption` that decides, a load balancer, and three letters.
    // The letters say whether the Service may adopt the load balancer in three cases: the label `adopt` asks for it,
    // the annotation `name` asks for it, or the load balancer only has the default name for the Service. `y` means yes,
    // `n` no, and `-` that this is not tested. Row 8 is also true for most load balancers of rows 1 to 5, but the first
    // row that is true decides.
    let left = [ours, (SERVICE_UID, GONE), (SERVICE, of_web)];
    let left_with = |more: &[(&str, &str)]| balancer(&[&left, more].concat(), &[]);
    for (row, balancer, may) in [
        (1, left_with(&[(EXTERNAL, "")]), "nnn"),
        (2, left_with(&[(GROUP, "default.edge")]), "-nn"),
        (3, balancer(&[ours, (SERVICE_UID, LIVES), (SERVICE, of_web)], &[]), "nnn"),
        (3, left_with(&[(&port, LIVES)]), "nnn"),
        (4, left_with(&[(ADOPT, of_other)]), "-nn"),
        (5, balancer(&[(CLUSTER_UID, "cluster-9"), left[1], left[2]], &[]), "ynn"),
        (6, balancer(&[ours, (SERVICE_UID, GONE), (SERVICE, of_stranger)], &[]), "ynn"),
        (6, balancer(&[(KEEP, of_stranger)], &[]), "ynn"),
        (7, balancer(&[("caph-cluster-prod", "owned")], &[]), "ynn"),
        (7, balancer(&[("kubernetes.io/cluster/prod", "shared")], &[]), "ynn"),
        (7, balancer(&[("team", "owned")], &[]), "ynn"),
        (7, left_with(&[("team", "owned")]), "yny"),
        (8, balancer(&left, &[FOREIGN]), "yyy"),
        (8, with_port(balancer(&left, &[])), "yyy"),
        (9, balancer(&[ours, (SERVICE_UID, GONE), (SERVICE, of_other)], &[]), "yyn"),
        (10, with_port(balancer(&[(SERVICE_UID, GONE)], &[NODE])), "yyn"),
        (11, balancer(&[(SERVICE_UID, GONE)], &[]), "ynn"),
        (11, balancer(&[(SERVICE_UID, GONE)], &[FOREIGN]), "ynn"),
        (12, with_port(balancer(&[], &[NODE])), "ynn"),
        (13, balancer(&[], &[FOREIGN]), "ynn"),
        (14, balancer(&[], &[NODE]), "yyn"),
        (14, balancer(&[("provisioner", "terraform")], &[]), "yyn"),
        // These two load balancers get the verdict of row 14, the last row of the table of `adoption`, because no other
        // row is true for them. The first was made for a Service of another namespace, but row 6 also requires the
        // label `cluster-uid` or `keep`, which it does not have. The second has a label of another program, but row 7
        // also requires that this program did not create it.
        (14, balancer(&[(SERVICE, of_stranger)], &[]), "yyn"),
        (14, balancer(&[("team", "owned"), (CREATED, "true")], &[]), "yyn"),
    ] {
        let asked = [AskedBy::Label, AskedBy::Name, AskedBy::Default];
        for (by, may) in asked.into_iter().zip(may.chars()) {
            let given = judged(&balancer, |one| adoption(one, &service(), &cluster(), by).is_ok());
            let labels = &balancer.labels;
            assert!(may == '-' || given == (may == 'y'), "row {row}, {by:?}: {labels:?}");
        }
    }
}

#[test]
fn what_happens_to_it_when_the_service_leaves_it() {
    let own = (SERVICE_UID, UID);
    let created = (CREATED, "true");
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let of_age = |second, balancer| LoadBalancer { created: at(second), ..balancer };
    let mut selecting = balancer(&[own], &[]);
    selecting.targets.push(ApiTarget::LabelSelector {
        label_selector: SelectorRef { selector: "role=web".to_owned() },
        targets: Some(vec![serde_json::from_value(json!({ "server": { "id": NODE } })).unwrap()]),
    });
    let mut keeping = service();
    keeping.annotations.insert(format!("{PREFIX}keep"), "true".to_owned());
    let port = port_80();
    for (row, service, balancer, stays) in [
        (1, service(), balancer(&[own, created, (&port, LIVES)], &[]), "other Services use it"),
        (2, service(), balancer(&[(EXTERNAL, ""), (&port, UID)], &[]), "ccm does not own it"),
        (
            3,
            service(),
            balancer(&[own, created, (RELEASED, GONE)], &[]),
            "it still has ports of another Service",
        ),
        (4, keeping.clone(), balancer(&[own, created], &[]), "keep asks ccm"),
        (4, service(), balancer(&[own, created, (KEEP, "default.web")], &[]), "keep asks ccm"),
        (5, service(), balancer(&[own, created], &[NODE, FOREIGN]), "server 99 is no node"),
        (6, service(), balancer(&[own, created, (ADOPTED, "true")], &[NODE]), ""),
        // The table of [`why_it_stays`] has the rules that say whether a load balancer is deleted, one in each row, and
        // the first row that is true decides. For this load balancer, rows 8, 9 and 11 are true and would keep it. But
        // row 6 comes before them and says that it is deleted: it has the label `created`.
        (6, service(), of_age(0, balancer(&[created, ("team", "web")], &[])), ""),
        (7, service(), balancer(&[own, (ADOPTED, "true")], &[]), "it was adopted"),
        (7, service(), balancer(&[own, (ADOPT, "default.web")], &[]), "it was adopted"),
        (8, service(), balancer(&[(&port, UID)], &[]), "no label says"),
        (9, service(), balancer(&[own, ("team", "web")], &[]), "has label team"),
        (10, service(), selecting, "label-selector target"),
        (11, service(), of_age(999_000, balancer(&[own], &[])), "older than the Service"),
        (12, service(), of_age(999_950, balancer(&[own], &[NODE])), ""),
        (12, service(), balancer(&[own], &[]), ""),
    ] {
        let why = judged(&balancer, |one| why_it_stays(one, &service, &cluster()));
        let labels = &balancer.labels;
        match why {
            Some(why) => assert!(!stays.is_empty() && why.contains(stays), "row {row}: {why}"),
            None => assert_eq!(stays, "", "row {row}: {labels:?}"),
        }
    }
}

#[test]
fn what_it_is_when_no_service_has_it() {
    let ours = (CLUSTER_UID, "cluster-1");
    let gone = (SERVICE_UID, GONE);
    let created = (CREATED, "true");
    let mut protected = balancer(&[ours, gone, created], &[]);
    protected.protection.delete = true;
    let port = port_80();
    for (row, balancer, is) in [
        (1, balancer(&[gone, created], &[]), "None"),
        (1, balancer(&[(CLUSTER_UID, "cluster-9"), gone, created], &[]), "None"),
        (2, balancer(&[ours, (SERVICE_UID, LIVES), created], &[]), "None"),
        (2, balancer(&[ours, gone, created, (&port, LIVES)], &[]), "None"),
        (3, balancer(&[ours, gone, created, (KEEP, "default.web")], &[]), "Some(Kept)"),
        (4, protected, "has delete protection"),
        (
            5,
            balancer(&[ours, gone, created, (ADOPT, "default.web")], &[]),
            "reserves it for Service",
        ),
        (6, balancer(&[ours, gone, created], &[FOREIGN]), "server 99 is no node"),
        (6, balancer(&[ours, gone, (ADOPTED, "true")], &[]), "it was adopted"),
        (7, balancer(&[ours, gone, created], &[NODE]), "Orphan { stays: None }"),
    ] {
        let found = judged(&balancer, |one| format!("{:?}", leftover(one, &cluster())));
        let fits = match is {
            "None" | "Some(Kept)" => found == is,
            part => found.contains(part),
        };
        assert!(fits, "row {row}: {found}: {:?}", balancer.labels);
    }
}

/// Each case has the number of the row in the table of `replacement`, the labels of two load balancers with the IDs 7
/// and 8, and what `replacement` returns for the first and for the second load balancer.
#[test]
fn two_load_balancers_of_one_owner_are_a_replacement() {
    type Labels<'a> = &'a [(&'a str, &'a str)];
    let (own, ours) = ((SERVICE_UID, UID), (CLUSTER_UID, "cluster-1"));
    let (group, created, new) = ((GROUP, "default.edge"), (CREATED, "true"), (REPLACES, "7"));
    let answer = |old: Labels, other: Labels| {
        let mut all = [balancer(old, &[NODE]), balancer(other, &[NODE])];
        all[1].id = 8;
        let index = BalancerIndex::new(&all);
        let of = |place: usize| {
            let one = index.of(&all).all().nth(place).unwrap();
            match replacement(one, index.of(&all), &cluster()) {
                Replacing::No => "no",
                Replacing::Asked(_) => "asked",
                Replacing::Both(pair) => {
                    assert_eq!((pair.old.id, pair.new.id), (7, 8));
                    "both"
                }
                Replacing::Last => "last",
            }
        };
        format!("{} {}", of(0), of(1))
    };
    #[rustfmt::skip] // A case is a line.
    let cases: [(u8, Labels, Labels, &str); 14] = [
        (1, &[own, (REPLACE, "1h")], &[own, ours, created, new], "both both"),
        (1, &[own, ours], &[own, ours, created, new, (OVERLAP, "leaves.1")], "both both"),
        (1, &[group, ours], &[group, ours, created, new], "both both"),
        // The old load balancer, with the ID 7, has lost all its labels. Its only target is a node of this cluster,
        // which proves that it still has the same owner.
        (1, &[], &[own, ours, created, new], "both both"),
        (2, &[own], &[own, ours, created, (REPLACES, "9")], "no last"),
        (2, &[(EXTERNAL, ""), own], &[own, ours, created, new], "no last"),
        (2, &[(RELEASED, UID), own], &[own, ours, created, new], "no last"),
        (2, &[(SERVICE_UID, LIVES)], &[own, ours, created, new], "no last"),
        (2, &[own], &[own, created, new], "no last"),
        (2, &[own], &[own, ours, new], "no last"),
        (3, &[own, (REPLACE, "1h")], &[], "asked no"),
        (3, &[own, (REPLACE, "1h")], &[own, ours, created, (REPLACES, "9")], "asked last"),
        (4, &[own], &[], "no no"),
        (4, &[own, (REPLACE, "1h")], &[own, ours, created, new, (OVERLAP, "soon")], "no no"),
    ];
    for (row, old, other, expected) in cases {
        assert_eq!(answer(old, other), expected, "row {row}: {old:?} {other:?}");
    }
}
