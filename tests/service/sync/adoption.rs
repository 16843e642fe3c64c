//! Whose load balancer it is: two clusters in one project, Services that were re-created.

use crate::common::{self, Daemon, wait_until};
use crate::sync::world::{
    CLUSTER_UID, Cluster, NO_RESYNC, OFTEN, PROFILES, SERVICE_UID, World, len, targets, text,
};
use sandbox::Half;
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a test has that calls [`neighbour`].
pub const TWO_CLUSTERS: &str = "a second cluster";

/// Another cluster whose nodes and Services use the first one's project.
pub fn neighbour(world: &World) -> World {
    let mut other = World::new(0);
    let of_project = |name: &str| name == "HCLOUD_TOKEN" || name == "HCLOUD_ENDPOINT";
    let project = world.env.iter().filter(|(name, _)| of_project(name));
    let project: Vec<(&str, &str)> = project
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    other.env = common::with(other.env, &project);
    other
}

#[test]
fn two_clusters_of_one_name_in_one_project_live_side_by_side() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, TWO_CLUSTERS) {
        return;
    }
    let other = neighbour(&world);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let ours = world.create("web", &[], &[80]);
    world.up("web");
    let _neighbour = Daemon::start(&other.env, &[NO_RESYNC]);
    let theirs = other.create("web", &[], &[80]);
    wait_until("an address", || !other.addresses("web").is_empty());
    let (first, second) = (world.of_uid(&ours).unwrap(), world.of_uid(&theirs).unwrap());
    assert_eq!(first["name"], "kubernetes-default-web");
    let name = text(&second["name"]);
    assert!(name.starts_with("kubernetes-default-web-"), "{name}");
    assert_ne!(first["labels"][CLUSTER_UID], second["labels"][CLUSTER_UID]);
    assert_ne!(world.addresses("web"), other.addresses("web"));

    // By its name they do not get it either.
    other.annotate("web", "name", Some("kubernetes-default-web"));
    other.tells("web", "LoadBalancerNameTaken", &["kubernetes-default-web"]);
    other.create("thief", &[("name", "kubernetes-default-web")], &[80]);
    other.tells(
        "thief",
        "LoadBalancerNotAdopted",
        &["names another cluster", "choose another name"],
    );
    assert_eq!(other.addresses("thief"), Vec::<String>::new());
    assert_eq!(world.balancers().len(), 2);

    // What goes in one cluster stays in the other.
    other.delete("web");
    wait_until("its end", || other.service("web").is_none());
    assert_eq!(world.of_uid(&theirs), None);
    let again = world.of_uid(&ours).unwrap();
    assert_eq!(
        (&again["name"], targets(&again)),
        (&first["name"], targets(&first))
    );
    // With another name the thief gets one of its own.
    other.annotate("thief", "name", Some("honest"));
    wait_until("an address", || !other.addresses("thief").is_empty());
    assert_eq!(world.balancers().len(), 2);
}

#[test]
fn a_living_service_keeps_its_load_balancer() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let first = world.create("first", &[("name", "front")], &[80]);
    world.up("first");
    world.create("second", &[("name", "front")], &[80]);
    world.tells(
        "second",
        "SyncLoadBalancerFailed",
        &["front", &first, "choose another name"],
    );
    assert_eq!(world.balancers().len(), 1);
    // When that one goes, the name is free.
    world.delete("first");
    let balancer = world.up("second");
    assert_eq!(balancer["name"], "front");
    assert_eq!(world.balancers().len(), 1);
}

#[test]
fn two_that_ask_for_a_free_one_are_told_apart_before_and_after() {
    let world = World::new(1);
    world.settle(&[]);
    let (cloud, project) = (world.cloud(), world.project());
    let front = json!({"name": "front", "load_balancer_type": "lb11", "location": "fsn1"});
    cloud.create_load_balancer(project, front);
    let first = world.create("first", &[("name", "front")], &[80]);
    world.create("second", &[("name", "front")], &[80]);
    let dry = common::ccm(&world.env, &["lb", "sync", "--dry-run"]);
    assert_eq!(dry.code, 1, "{dry:?}");
    let adoptions = dry.stdout.matches("label hcloud-ccm/service-uid").count();
    assert_eq!(adoptions, 1, "{dry:?}");
    let says = "becomes that of Service default/first, which asks for it too";
    assert!(dry.stdout.contains(says), "{dry:?}");
    let sync = common::ccm(&world.env, &["lb", "sync"]);
    assert_eq!(sync.code, 1, "{sync:?}");
    assert!(world.of_uid(&first).is_some());
    world.tells("second", "SyncLoadBalancerFailed", &["is owned by", &first]);
}

#[test]
fn a_recreated_service_keeps_its_address() {
    for name in [None, Some(("name", "front"))] {
        let world = World::new(1);
        let daemon = world.daemon(&[NO_RESYNC]);
        let annotations: Vec<_> = name.into_iter().collect();
        world.create("web", &annotations, &[80]);
        let first = world.up("web");
        let addresses = world.addresses("web");
        // The controller has read which Services there are while this was one of them.
        drop(daemon);
        let _daemon = world.daemon(&[NO_RESYNC]);
        world.ticks(1);
        let id = first["id"].as_u64().unwrap();
        let protect = |one: &mut Value| one["protection"]["delete"] = json!(true);
        world.cloud().edit_load_balancer(id, protect);
        world.delete("web");
        wait_until("its end", || world.service("web").is_none());
        let second = world.create("web", &annotations, &[80]);
        world.up("web");
        assert_eq!(world.addresses("web"), addresses, "{name:?}");
        let balancers = world.balancers();
        assert_eq!(balancers.len(), 1, "{name:?}");
        assert_eq!(balancers[0]["labels"][SERVICE_UID], json!(second));
    }
}

/// Labels of a load balancer called `front` with one target, whether that is a node of ours, and whether it is adopted.
type Case = (&'static [(&'static str, &'static str)], bool, bool);

#[rustfmt::skip] // A case is a line.
const CASES: &[Case] = &[
    (&[], true, true),
    (&[], false, false),
    (&[("team", "a")], true, true),
    (&[(SERVICE_UID, "gone")], true, true),
    (&[(SERVICE_UID, "gone")], false, false),
    (&[(CLUSTER_UID, "another")], true, false),
    (&[(CLUSTER_UID, "another"), (ADOPT, "default.web")], false, true),
];

#[test]
fn one_of_the_name_is_adopted_where_no_other_service_or_cluster_uses_it() {
    common::side_by_side(CASES.to_vec(), |(labels, ours, adopted)| {
        let world = World::new(1);
        world.settle(&[]);
        let cloud = world.cloud();
        let stranger = server(&world, "stranger", &[]);
        let node = world.server_id("worker-1");
        let target = if ours { node } else { stranger };
        let map: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let targets_of = json!([{"type": "server", "server": {"id": target}}]);
        let id = put(
            &world,
            "front",
            json!({"labels": map, "targets": targets_of}),
        );
        let before = cloud.load_balancer(id);
        let uid = world.create("web", &[("name", "front")], &[80]);
        let ran = world.once(&[]);
        assert_eq!(world.balancers().len(), 1, "{labels:?}");
        if adopted {
            assert_eq!(ran.code, 0, "{labels:?} {ran:?}");
            let after = world.of_uid(&uid).unwrap();
            assert_eq!(
                (after["id"].as_u64(), targets(&after)),
                (Some(id), vec![node]),
                "{labels:?}"
            );
            assert_eq!(after["labels"]["team"], before["labels"]["team"]);
            assert_eq!(world.told("web", "LoadBalancerAdopted").len(), 1);
        } else {
            assert_eq!(ran.code, 1, "{labels:?} {ran:?}");
            assert_eq!(cloud.load_balancer(id), before, "{labels:?}");
            world.tells(
                "web",
                "LoadBalancerNotAdopted",
                &[
                    &format!(
                        "hcloud load-balancer add-label {id} ccm-from-scratch/adopt=default.web"
                    ),
                    "choose another name",
                ],
            );
            assert_eq!(world.addresses("web"), Vec::<String>::new());
        }
    });
}

pub const ADOPT: &str = "ccm-from-scratch/adopt";

/// As an operator or Terraform would have made it: without ports and targets, but for what is said here.
fn put(world: &World, name: &str, more: Value) -> u64 {
    let mut spec = json!({"name": name, "load_balancer_type": "lb11", "location": "fsn1"});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let cloud = world.cloud();
    cloud.create_load_balancer(world.project(), spec)
}

pub fn server(world: &World, name: &str, labels: &[(&str, &str)]) -> u64 {
    let spec = server_spec(name, labels);
    let project = world.project();
    world.cloud().create_server(project, spec)
}

fn server_spec(name: &str, labels: &[(&str, &str)]) -> sandbox::hetzner::ServerSpec {
    let labels = labels.iter();
    sandbox::hetzner::ServerSpec {
        name: name.into(),
        labels: labels
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..Default::default()
    }
}

fn port(listen_port: u16) -> Value {
    json!({"protocol": "tcp", "listen_port": listen_port, "destination_port": 30_000 + listen_port})
}

/// An operator's `hcloud load-balancer add-label`.
fn add_label(world: &World, id: u64, label: &str, value: &str) {
    let cloud = world.cloud();
    cloud.edit_load_balancer(id, |one| one["labels"][label] = json!(value));
}

/// What Terraform does at its next run, with `ignore_changes` for the Service's UID alone.
fn terraform_applies(world: &World, id: u64, its_own: &Value) {
    world.cloud().edit_load_balancer(id, |one| {
        let uid = one["labels"][SERVICE_UID].clone();
        one["labels"] = its_own.clone();
        if !uid.is_null() {
            one["labels"][SERVICE_UID] = uid;
        }
    });
}

/// kube-hetzner: Terraform makes it before the nodes, attached, without ports, with one label-selector target, waits for
/// the Service's address, and removes every label of ours but the Service's UID at each of its runs.
#[test]
fn one_that_terraform_made_before_the_nodes_is_adopted_once_they_are_there_and_released() {
    let cases = PROFILES
        .iter()
        .flat_map(|profile| [true, false].map(|has_labels| (*profile, has_labels)));
    common::side_by_side(cases.collect(), |(profile, has_labels)| {
        let about = format!("{profile}, its own labels: {has_labels}");
        let world = World::with_network(0);
        let network = world.network().unwrap();
        let labels = match has_labels {
            true => json!({"provisioner": "terraform", "cluster": "k3s"}),
            false => json!({}),
        };
        let selector = json!({
            "type": "label_selector", "label_selector": {"selector": "cluster=k3s"}, "use_private_ip": true,
        });
        let id = put(
            &world,
            "edge",
            json!({"labels": labels, "network": network, "targets": [selector]}),
        );
        let _daemon = world.daemon(&[profile, OFTEN]);
        let annotations = [("name", "edge"), ("use-private-ip", "true")];
        let uid = world.create("web", &annotations, &[80, 443]);
        world.tells("web", "LoadBalancerNotAdopted", &["selects no server"]);
        let spec = |name: &str| sandbox::hetzner::ServerSpec {
            networks: vec![(network, None)],
            ..server_spec(name, &[("cluster", "k3s")])
        };
        // Servers come before their nodes.
        let cloud = world.cloud();
        let project = world.project();
        let all = ["one", "two"].map(|name| cloud.create_server(project, spec(name)));
        world.tells(
            "web",
            "LoadBalancerNotAdopted",
            &["is no node of this cluster"],
        );
        assert_eq!(len(&cloud.load_balancer(id)["services"]), 0, "{about}");
        world.register_nodes_of(&all);
        let balancer = world.up("web");
        assert_eq!(balancer["id"], json!(id), "{about}");
        world.tells("web", "EnsuredLoadBalancer", &[]);
        assert_eq!(len(&balancer["services"]), 2, "{about}");
        terraform_applies(&world, id, &labels);
        world.ticks(8);
        assert_eq!(world.told("web", "LoadBalancerAdopted").len(), 1, "{about}");
        assert_eq!(world.balancers().len(), 1, "{about}");
        assert!(world.of_uid(&uid).is_some(), "{about}");
        terraform_applies(&world, id, &labels);

        world.delete("web");
        wait_until("its end", || world.service("web").is_none());
        let left = cloud.load_balancer(id);
        assert_eq!(left["labels"], labels, "{about}");
        assert_eq!(len(&left["services"]), 0, "{about}");
        assert_eq!(len(&left["targets"]), 1, "{about}");
        assert_eq!(left["targets"][0]["type"], "label_selector", "{about}");
        world.tells("web", "LoadBalancerReleased", &["edge", "was not deleted"]);
        assert_eq!(world.told("web", "DeletedLoadBalancer").len(), 0, "{about}");
        // And it is adopted again.
        let again = world.create("web", &annotations, &[80]);
        world.up("web");
        assert_eq!(world.of_uid(&again).unwrap()["id"], json!(id), "{about}");
        world.nothing_refused();
    });
}

/// A program that makes its load balancer before ports and targets: a Service that types its name must not resize it.
#[test]
fn an_empty_one_of_another_program_is_not_adopted_by_its_name_until_an_operator_says_so() {
    let owners = [
        ("caph-cluster-prod", "owned"),
        ("caph-cluster-prod", "shared"),
        ("some-program", "owned"),
    ];
    let cases = owners.iter().flat_map(|owner| {
        let ways = [true, false];
        ways.map(|by_command| (*owner, by_command))
    });
    common::side_by_side(cases.collect(), |((label, value), by_command)| {
        let about = format!("{label}={value}");
        let world = World::new(1);
        world.settle(&[]);
        let id = put(&world, "prod-api", json!({"labels": {label: value}}));
        let cloud = world.cloud();
        let before = cloud.load_balancer(id);
        let annotations = [("name", "prod-api"), ("type", "lb31")];
        let uid = world.create("web", &annotations, &[80]);
        let ran = world.once(&[]);
        assert_eq!(ran.code, 1, "{about}: {ran:?}");
        assert_eq!(cloud.load_balancer(id), before, "{about}");
        assert_eq!(world.balancers().len(), 1, "{about}");
        let command =
            format!("hcloud load-balancer add-label {id} ccm-from-scratch/adopt=default.web");
        let says = [about.as_str(), "choose another name", &command];
        world.tells("web", "LoadBalancerNotAdopted", &says);

        match by_command {
            true => {
                let words = ["lb", "adopt", "--yes", &id.to_string(), "default/web"];
                let ran = common::ccm(&world.env, &words);
                assert_eq!(ran.code, 0, "{about}: {ran:?}");
            }
            false => {
                add_label(&world, id, ADOPT, "default.web");
                world.settle(&[]);
            }
        }
        let adopted = world.of_uid(&uid).unwrap();
        assert_eq!(adopted["id"], json!(id), "{about}");
        assert_eq!(adopted["load_balancer_type"]["name"], "lb31", "{about}");
        assert_eq!(adopted["labels"][label], json!(value), "{about}");
        // What a Service has already is not refused, also where the operator's label is gone.
        cloud.edit_load_balancer(id, |one| {
            one["labels"].as_object_mut().unwrap().remove(ADOPT);
        });
        world.annotate("web", "type", Some("lb21"));
        world.settle(&[]);
        let synced = world.of_uid(&uid).unwrap();
        assert_eq!(synced["load_balancer_type"]["name"], "lb21", "{about}");
    });
}

#[test]
fn what_another_program_made_is_left_unchanged_until_an_operator_says_so() {
    for profile in PROFILES {
        let world = World::new(1);
        world.settle(&[profile]);
        let labels = json!({"provisioner": "terraform"});
        let id = put(
            &world,
            "k8s-api",
            json!({"labels": labels, "services": [port(6443)]}),
        );
        let cloud = world.cloud();
        let before = cloud.load_balancer(id);
        let daemon = world.daemon(&[profile, OFTEN]);
        let uid = world.create("web", &[("name", "k8s-api")], &[80]);
        let command =
            format!("hcloud load-balancer add-label {id} ccm-from-scratch/adopt=default.web");
        world.tells("web", "LoadBalancerNotAdopted", &["6443", &command]);
        world.ticks(4);
        assert_eq!(cloud.load_balancer(id), before, "{profile}");
        assert_eq!(world.told("web", "LoadBalancerNotAdopted").len(), 1);
        // Nor is it deleted with the Service.
        world.delete("web");
        wait_until("its end", || world.service("web").is_none());
        assert_eq!(
            cloud.load_balancer(id),
            before,
            "{profile}\n{}",
            daemon.log()
        );

        // By the label alone, too.
        add_label(&world, id, ADOPT, "default.web");
        let again = world.create("web", &[], &[80]);
        world.up("web");
        assert_ne!(uid, again);
        let adopted = world.of_uid(&again).unwrap();
        assert_eq!(adopted["id"], json!(id), "{profile}");
        world.tells("web", "LoadBalancerAdopted", &["k8s-api", "only released"]);
        assert_eq!(adopted["services"][0]["listen_port"], 80);
        world.delete("web");
        wait_until("its end", || world.service("web").is_none());
        let left = cloud.load_balancer(id);
        assert_eq!((&left["labels"], len(&left["services"])), (&labels, 0));
    }
}

#[test]
fn nothing_is_adopted_by_a_default_name() {
    let world = World::new(1);
    world.settle(&[]);
    let id = put(&world, "kubernetes-default-web", json!({}));
    let cloud = world.cloud();
    let before = cloud.load_balancer(id);
    let uid = world.create("web", &[], &[80]);
    world.settle(&[]);
    assert_eq!(cloud.load_balancer(id), before);
    let own = world.of_uid(&uid).unwrap();
    assert!(
        text(&own["name"]).starts_with("kubernetes-default-web-"),
        "{own}"
    );
    assert_eq!(own["labels"]["ccm-from-scratch/created"], "true");
    assert_eq!(
        world.told("web", "LoadBalancerAdopted"),
        Vec::<String>::new()
    );
}

/// A copy of a cluster has Services of the same UIDs, and another UID itself.
#[test]
fn one_of_another_cluster_that_carries_our_services_uid_is_left_to_it() {
    let world = World::new(1);
    let daemon = world.daemon(&[OFTEN]);
    world.create("web", &[], &[80]);
    let balancer = world.up("web");
    let id = balancer["id"].as_u64().unwrap();
    let stranger = server(&world, "stranger", &[]);
    drop(daemon);
    let cloud = world.cloud();
    cloud.edit_load_balancer(id, |one| {
        one["labels"][CLUSTER_UID] = json!("another");
        one["targets"][0]["server"]["id"] = json!(stranger);
    });
    let before = cloud.load_balancer(id);
    let _daemon = world.daemon(&[OFTEN]);
    world.tells(
        "web",
        "LoadBalancerNotAdopted",
        &[
            "names another cluster, another",
            "hcloud load-balancer add-label",
        ],
    );
    world.delete("web");
    wait_until("its end", || world.service("web").is_none());
    assert_eq!(cloud.load_balancer(id), before);
}

/// What happens between the list and the write: it is seen, and nothing of it is lost.
#[test]
fn what_changes_just_before_a_write_is_seen() {
    type Hand = fn(&World, u64);
    #[rustfmt::skip] // A case is a line or two.
    let cases: [(&str, Hand, bool); 4] = [
        ("another's target", |world, id| {
            let stranger = server(world, "stranger", &[]);
            world.act(&format!("/load_balancers/{id}/actions/add_target"), &json!({"type": "server", "server": {"id": stranger}}));
            wait_until("the end of that action", || targets(&world.cloud().load_balancer(id)).contains(&stranger));
        }, true),
        ("a label of another", |world, id| add_label(world, id, "team", "a"), false),
        ("protected", |world, id| world.cloud().edit_load_balancer(id, |one| one["protection"]["delete"] = json!(true)), true),
        ("another Service's", |world, id| add_label(world, id, SERVICE_UID, "another"), true),
    ];
    common::side_by_side(cases.to_vec(), |(what, hand, stays)| {
        let world = Arc::new(World::new(1));
        let uid = world.create("web", &[], &[80]);
        world.settle(&[]);
        let id = world.of_uid(&uid).unwrap()["id"].as_u64().unwrap();
        let _daemon = world.daemon(&[NO_RESYNC]);
        let into = Arc::downgrade(&world);
        let hook = Effect::before(move |_| {
            if let Some(world) = into.upgrade() {
                hand(&world, id);
            }
        });
        let rule = Rule::new(hook).method("GET").path("/v1/load_balancers/*");
        let rule = world.faults().add(rule.times(1));
        world.delete("web");
        // A namespace does not wait for it.
        wait_until("its end", || world.service("web").is_none());
        assert_eq!(world.faults().hits(rule), 1, "{what}");
        let left = world.balancers();
        assert_eq!(left.len(), usize::from(stays), "{what}: {left:#?}");
        if what == "another's target" {
            world.tells(
                "web",
                "LoadBalancerReleased",
                &["is no node of this cluster"],
            );
            assert_eq!(
                (len(&left[0]["services"]), len(&left[0]["targets"])),
                (0, 1)
            );
            assert_eq!(left[0]["labels"], json!({}));
        }
        let deletes = world.calls().calls();
        let mut deletes = deletes
            .iter()
            .filter(|call| call.method == "DELETE" && call.half == Half::Hetzner);
        assert!(deletes.all(|call| call.body.is_empty()), "{what}");
    });
}

#[test]
fn a_label_that_is_added_just_before_ours_are_written_is_kept() {
    // The label that is added; and, where it says whose it is, a part of why the load balancer is not adopted.
    let cases = vec![
        ("team", "a", None),
        (CLUSTER_UID, "another", Some("names another cluster")),
        ("caph-cluster-prod", "owned", Some("another program")),
    ];
    common::side_by_side(cases, |(label, value, refused)| {
        let world = Arc::new(World::new(1));
        world.settle(&[]);
        let id = put(&world, "edge", json!({}));
        let into = Arc::downgrade(&world);
        let hook = Effect::before(move |_| {
            if let Some(world) = into.upgrade() {
                add_label(&world, id, label, value);
            }
        });
        let rule = Rule::new(hook).method("GET").path("/v1/load_balancers/*");
        world.faults().add(rule.times(1));
        let uid = world.create("web", &[("name", "edge")], &[80]);
        let ran = world.once(&[]);
        let one = world.cloud().load_balancer(id);
        if let Some(why) = refused {
            assert_eq!(ran.code, 1, "{ran:?}");
            assert_eq!(one["labels"], json!({ label: value }));
            world.tells("web", "LoadBalancerNotAdopted", &[why]);
        } else {
            assert_eq!(ran.code, 0, "{ran:?}");
            assert_eq!(
                (&one["labels"][label], &one["labels"][SERVICE_UID]),
                (&json!(value), &json!(uid))
            );
        }
    });
}

/// What has no labels would seem to be free, and what has no targets to be unused.
#[test]
fn a_list_without_what_decisions_rest_on_is_an_error_that_names_it() {
    for field in ["labels", "protection", "services", "targets"] {
        let world = World::new(1);
        world.settle(&[]);
        let id = put(&world, "edge", json!({}));
        let cloud = world.cloud();
        let mut one = cloud.load_balancer(id);
        one.as_object_mut().unwrap().remove(field);
        let page = json!({
            "load_balancers": [one],
            "meta": {"pagination": {
                "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1, "total_entries": 1,
            }},
        });
        let instead = Rule::new(Effect::Instead(Response::json(200, &page)));
        let list = instead.half(Half::Hetzner).method("GET");
        world.faults().add(list.path("/v1/load_balancers"));
        world.create("web", &[("name", "edge")], &[80]);
        let mark = world.mark();
        let ran = world.once(&[]);
        assert_eq!(ran.code, 1, "{field}: {ran:?}");
        assert!(
            ran.stderr.contains(&format!("missing field `{field}`")),
            "{ran:?}"
        );
        assert_eq!(world.cloud_writes(mark), Vec::<String>::new(), "{field}");
    }
}

/// A cluster that was built anew makes new load balancers at once, and only then an operator labels the old one.
#[test]
fn a_label_that_asks_too_late_is_reported_and_counts_when_the_new_one_is_deleted() {
    let world = World::new(1);
    let daemon = world.daemon(&[OFTEN]);
    world.create("web", &[], &[80]);
    let new = world.up("web");
    let old = put(&world, "old", json!({"labels": {ADOPT: "default.web"}}));
    let (new_id, old_shown) = (new["id"].as_u64().unwrap(), format!("old ({old})"));
    let parts = [old_shown.as_str(), ADOPT, "kubernetes-default-web"];
    world.tells("web", "LoadBalancerNotAdopted", &parts);
    // It is no failure: nothing recovers from it.
    let mark = world.mark();
    world.ticks(20);
    let log = daemon.log();
    assert!(!log.contains("is as it should be again"), "{log}");
    assert_eq!(log.matches("(LoadBalancerNotAdopted)").count(), 1, "{log}");
    assert_eq!(world.writes(mark), Vec::<String>::new());
    world.cloud().delete_load_balancer(new_id);
    let uid = text(&world.service("web").unwrap()["metadata"]["uid"]);
    wait_until("the old one", || {
        world.of_uid(&uid).is_some_and(|one| one["id"] == old)
    });
    world.tells("web", "LoadBalancerAdopted", &[&old_shown]);
}

/// It stayed, with its address, when its Service was deleted: another tenant must not get it by typing its name.
#[test]
fn one_that_a_deleted_service_left_is_adopted_by_its_name_in_the_same_namespace_alone() {
    let cases = vec![
        ("team-a.web", false),
        ("default.old", true),
        ("default.web", true),
    ];
    common::side_by_side(cases, |(of, is_adopted)| {
        let world = World::new(1);
        world.settle(&[]);
        let cluster = text(&world.service("kubernetes").unwrap()["metadata"]["uid"]);
        let labels =
            json!({SERVICE_UID: "gone", CLUSTER_UID: cluster, "ccm-from-scratch/service": of});
        let id = put(&world, "front", json!({ "labels": labels }));
        let before = world.cloud().load_balancer(id);
        let uid = world.create("web", &[("name", "front")], &[80]);
        let ran = world.once(&[]);
        let adopted = world.of_uid(&uid).map(|one| one["id"].as_u64().unwrap());
        assert_eq!(adopted, is_adopted.then_some(id), "{of}: {ran:?}");
        if !is_adopted {
            assert_eq!(world.cloud().load_balancer(id), before, "{of}");
            let command =
                format!("hcloud load-balancer add-label {id} ccm-from-scratch/adopt=default.web");
            world.tells("web", "LoadBalancerNotAdopted", &["team-a.web", &command]);
        }
    });
}
