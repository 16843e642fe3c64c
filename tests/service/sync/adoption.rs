//! Ownership of load balancers: two clusters in one project, and Services that were recreated.

use crate::common::{self, Daemon, on, wait_until};
use crate::sync::world::{
    CLUSTER_UID, Cluster, NO_RESYNC, OFTEN, PROFILES, SERVICE_UID, World, id, len, targets, text,
};
use sandbox::Sandbox;
use sandbox::exchange::Response;
use sandbox::faults::Effect;
use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

/// Says why a test that calls [`neighbour`] is skipped on a real API server.
pub const TWO_CLUSTERS: &str = "a second cluster";

/// Another cluster whose nodes and Services use the first one's project.
pub fn neighbour(world: &World) -> World {
    let mut other = World::new(0);
    for (name, value) in &world.env {
        if ["HCLOUD_TOKEN", "HCLOUD_ENDPOINT"].contains(&name.as_str()) {
            other.set(&[(name, value)]);
        }
    }
    other
}

#[test]
fn two_clusters_of_the_same_name_share_a_project() {
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
    wait_until("an address", || other.has_address("web"));
    let (first, second) = (world.of_uid(&ours).unwrap(), world.of_uid(&theirs).unwrap());
    assert_eq!(first["name"], "kubernetes-default-web");
    assert!(text(&second["name"]).starts_with("kubernetes-default-web-"));
    assert_ne!(first["labels"][CLUSTER_UID], second["labels"][CLUSTER_UID]);
    assert_ne!(world.addresses("web"), other.addresses("web"));

    // The other cluster does not get the load balancer by its name either.
    other.annotate("web", "name", Some("kubernetes-default-web"));
    other.wait_for_event("web", "LoadBalancerNameTaken", &["kubernetes-default-web"]);
    other.create("thief", &[("name", "kubernetes-default-web")], &[80]);
    let says = ["names another cluster", "choose another name"];
    other.wait_for_event("thief", "LoadBalancerNotAdopted", &says);
    assert_eq!(other.addresses("thief"), Vec::<String>::new());
    assert_eq!(world.balancers().len(), 2);

    // A deletion in one cluster changes nothing of the other one.
    other.delete_and_wait("web");
    assert_eq!(world.of_uid(&theirs), None);
    let again = world.of_uid(&ours).unwrap();
    let expected = (&first["name"], targets(&first));
    assert_eq!((&again["name"], targets(&again)), expected);
    // With another name the Service gets a load balancer of its own.
    other.annotate("thief", "name", Some("honest"));
    wait_until("an address", || other.has_address("thief"));
    assert_eq!(world.balancers().len(), 2);
}

#[test]
fn one_of_two_services_that_ask_for_a_free_load_balancer_gets_it_and_the_other_a_finding() {
    let world = World::new(1);
    world.converge(&[]);
    world.create_balancer("front", &json!({}));
    let first = world.create("first", &[("name", "front")], &[80]);
    world.create("second", &[("name", "front")], &[80]);
    let dry = world.ccm(&["lb", "sync", "--dry-run"]).with_code(1);
    let adoptions = dry.stdout.matches("label hcloud-ccm/service-uid").count();
    assert_eq!(adoptions, 1, "{dry:?}");
    let says = "goes to Service default/first, which asks for it, too";
    dry.prints(says);
    world.ccm(&["lb", "sync"]).with_code(1);
    assert!(world.of_uid(&first).is_some());
    world.wait_for_event(
        "second",
        "SyncLoadBalancerFailed",
        &["belongs to another Service", &first],
    );
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
        let id = id(&first);
        world.protect(id);
        world.delete_and_wait("web");
        let second = world.create("web", &annotations, &[80]);
        world.up("web");
        assert_eq!(world.addresses("web"), addresses, "{name:?}");
        let balancers = world.balancers();
        assert_eq!(balancers.len(), 1, "{name:?}");
        assert_eq!(balancers[0]["labels"][SERVICE_UID], json!(second));
    }
}

pub const ADOPT: &str = "ccm-from-scratch/adopt";

/// An operator's `hcloud load-balancer add-label`.
fn add_label(world: &Sandbox, id: u64, label: &str, value: &str) {
    world.edit_balancer(id, |one| one["labels"][label] = json!(value));
}

/// The command that lets the Service default/web adopt this load balancer.
fn command(id: u64) -> String {
    format!("hcloud load-balancer add-label {id} {ADOPT}=default.web")
}

/// Does what Terraform does at its next run, with `ignore_changes` only for the Service's UID.
fn terraform_applies(world: &World, id: u64, its_own: &Value) {
    world.edit_balancer(id, |one| {
        let uid = one["labels"][SERVICE_UID].clone();
        one["labels"] = its_own.clone();
        if !uid.is_null() {
            one["labels"][SERVICE_UID] = uid;
        }
    });
}

/// This is the case of kube-hetzner. Terraform creates the load balancer before the nodes, attached, without ports and
/// with one label-selector target. It waits for the Service's address, and removes every label of ours except the
/// Service's UID at each of its runs.
#[test]
fn a_load_balancer_that_terraform_made_before_the_nodes_is_adopted_later_and_released() {
    let cases =
        PROFILES.iter().flat_map(|profile| [true, false].map(|has_labels| (*profile, has_labels)));
    common::run_in_parallel(cases.collect(), |(profile, has_labels)| {
        let about = format!("{profile}, its own labels: {has_labels}");
        let world = World::with_network(0);
        let network = world.network_id();
        let labels = match has_labels {
            true => json!({"provisioner": "terraform", "cluster": "k3s"}),
            false => json!({}),
        };
        let selector = json!({
            "type": "label_selector", "label_selector": {"selector": "cluster=k3s"}, "use_private_ip": true,
        });
        let its_own = json!({"labels": labels, "network": network, "targets": [selector]});
        let id = world.create_balancer("edge", &its_own);
        let _daemon = world.daemon(&[profile, OFTEN]);
        let annotations = [("name", "edge"), ("use-private-ip", "true")];
        let uid = world.create("web", &annotations, &[80, 443]);
        world.wait_for_event("web", "LoadBalancerNotAdopted", &["selects no server"]);
        // Servers come before their nodes.
        let cloud = world.cloud();
        let all = ["one", "two"].map(|name| {
            let spec = ServerSpec {
                networks: vec![(network, None)],
                labels: [("cluster".to_owned(), "k3s".to_owned())].into(),
                ..ServerSpec::default()
            };
            world.create_server_with(name, spec)
        });
        let says = ["is no node of this cluster"];
        world.wait_for_event("web", "LoadBalancerNotAdopted", &says);
        assert_eq!(len(&cloud.load_balancer(id)["services"]), 0, "{about}");
        world.register_nodes_of(&all);
        let balancer = world.up("web");
        assert_eq!(balancer["id"], json!(id), "{about}");
        world.wait_for_event("web", "EnsuredLoadBalancer", &[]);
        assert_eq!(len(&balancer["services"]), 2, "{about}");
        terraform_applies(&world, id, &labels);
        world.ticks(8);
        assert_eq!(world.event_messages("web", "LoadBalancerAdopted").len(), 1, "{about}");
        assert_eq!(world.balancers().len(), 1, "{about}");
        assert!(world.of_uid(&uid).is_some(), "{about}");
        terraform_applies(&world, id, &labels);

        world.delete_and_wait("web");
        let left = cloud.load_balancer(id);
        assert_eq!(left["labels"], labels, "{about}");
        assert_eq!(len(&left["services"]), 0, "{about}");
        assert_eq!(len(&left["targets"]), 1, "{about}");
        assert_eq!(left["targets"][0]["type"], "label_selector", "{about}");
        world.wait_for_event("web", "LoadBalancerReleased", &["edge", "did not delete"]);
        assert_eq!(world.event_messages("web", "DeletedLoadBalancer").len(), 0, "{about}");
        // The load balancer is adopted again.
        let again = world.create("web", &annotations, &[80]);
        world.up("web");
        assert_eq!(world.of_uid(&again).unwrap()["id"], json!(id), "{about}");
        world.assert_nothing_refused();
    });
}

/// The program creates its load balancer before ports and targets. A Service with its name must not resize it.
#[test]
fn an_empty_load_balancer_of_another_program_is_adopted_only_when_an_operator_says_so() {
    let owners = [
        ("caph-cluster-prod", "owned"),
        ("caph-cluster-prod", "shared"),
        ("some-program", "owned"),
    ];
    let cases = owners.iter().flat_map(|owner| {
        let ways = [true, false];
        ways.map(|by_command| (*owner, by_command))
    });
    common::run_in_parallel(cases.collect(), |((label, value), by_command)| {
        let about = format!("{label}={value}");
        let world = World::new(1);
        world.converge(&[]);
        let labels = json!({"labels": {label: value}});
        let id = world.create_balancer("prod-api", &labels);
        let cloud = world.cloud();
        let before = cloud.load_balancer(id);
        let annotations = [("name", "prod-api"), ("type", "lb31")];
        let uid = world.create("web", &annotations, &[80]);
        let ran = world.once(&[]);
        assert_eq!(ran.code, 1, "{about}: {ran:?}");
        assert_eq!(cloud.load_balancer(id), before, "{about}");
        assert_eq!(world.balancers().len(), 1, "{about}");
        let says = [about.as_str(), "choose another name", &command(id)];
        world.wait_for_event("web", "LoadBalancerNotAdopted", &says);

        match by_command {
            true => {
                let words = ["lb", "adopt", "--yes", &id.to_string(), "default/web"];
                world.ccm(&words).with_code(0);
            }
            false => {
                add_label(&world, id, ADOPT, "default.web");
                world.converge(&[]);
            }
        }
        let adopted = world.of_uid(&uid).unwrap();
        assert_eq!(adopted["id"], json!(id), "{about}");
        assert_eq!(adopted["load_balancer_type"]["name"], "lb31", "{about}");
        assert_eq!(adopted["labels"][label], json!(value), "{about}");
        // A load balancer that the Service has already is not refused, even when the operator's label was removed.
        world.edit_balancer(id, |one| {
            one["labels"].as_object_mut().unwrap().remove(ADOPT);
        });
        world.annotate("web", "type", Some("lb21"));
        world.converge(&[]);
        let synced = world.of_uid(&uid).unwrap();
        assert_eq!(synced["load_balancer_type"]["name"], "lb21", "{about}");
    });
}

#[test]
fn a_load_balancer_of_another_program_is_unchanged_until_an_operator_says_so() {
    for profile in PROFILES {
        let world = World::new(1);
        world.converge(&[profile]);
        let labels = json!({"provisioner": "terraform"});
        let port = json!({"protocol": "tcp", "listen_port": 6443, "destination_port": 6443});
        let its_own = json!({"labels": labels, "services": [port]});
        let id = world.create_balancer("k8s-api", &its_own);
        let cloud = world.cloud();
        let before = cloud.load_balancer(id);
        let daemon = world.daemon(&[profile, OFTEN]);
        let uid = world.create("web", &[("name", "k8s-api")], &[80]);
        let says = ["6443", &command(id)];
        world.wait_for_event("web", "LoadBalancerNotAdopted", &says);
        world.ticks(4);
        assert_eq!(cloud.load_balancer(id), before, "{profile}");
        assert_eq!(world.event_messages("web", "LoadBalancerNotAdopted").len(), 1);
        // Nor is it deleted with the Service.
        world.delete_and_wait("web");
        assert_eq!(cloud.load_balancer(id), before, "{}", daemon.log());

        // The label alone is enough, too.
        add_label(&world, id, ADOPT, "default.web");
        let again = world.create("web", &[], &[80]);
        world.up("web");
        assert_ne!(uid, again);
        let adopted = world.of_uid(&again).unwrap();
        assert_eq!(adopted["id"], json!(id), "{profile}");
        world.wait_for_event(
            "web",
            "LoadBalancerAdopted",
            &["k8s-api", "stays when the Service is deleted"],
        );
        assert_eq!(adopted["services"][0]["listen_port"], 80);
        world.delete_and_wait("web");
        let left = cloud.load_balancer(id);
        assert_eq!((&left["labels"], len(&left["services"])), (&labels, 0));
    }
}

/// Something changes between the list and the write. The change is seen and not lost.
#[test]
fn a_change_just_before_a_write_is_seen() {
    type ManualChange = fn(&Sandbox, u64);
    #[rustfmt::skip] // A case is a line or two.
    let cases: [(&str, ManualChange, bool); 4] = [
        ("another's target", |world, id| {
            let stranger = world.create_server("stranger");
            world.add_target(id, stranger);
        }, true),
        ("a label of another", |world, id| add_label(world, id, "team", "a"), false),
        ("protected", |world, id| world.protect(id), true),
        ("another Service's", |world, id| add_label(world, id, SERVICE_UID, "another"), true),
    ];
    common::run_in_parallel(cases.to_vec(), |(what, manual_change, stays)| {
        let world = World::new(1);
        world.create("web", &[], &[80]);
        world.converge(&[]);
        let id = id(&world.only_balancer());
        let _daemon = world.daemon(&[NO_RESYNC]);
        let hook = common::before(&world.sandbox, move |world| manual_change(world, id));
        let rule = on("GET /v1/load_balancers/*", hook);
        let rule = world.faults().add(rule.times(1));
        world.delete("web");
        // A namespace does not wait for it.
        wait_until("its end", || world.service("web").is_none());
        assert_eq!(world.faults().hits(rule), 1, "{what}");
        let left = world.balancers();
        assert_eq!(left.len(), usize::from(stays), "{what}: {left:#?}");
        if what == "another's target" {
            let says = ["is no node of this cluster"];
            world.wait_for_event("web", "LoadBalancerReleased", &says);
            let (ports, targets) = (len(&left[0]["services"]), len(&left[0]["targets"]));
            assert_eq!((ports, targets), (0, 1));
            assert_eq!(left[0]["labels"], json!({}));
        }
        let mut deletes = world.cloud_calls(0);
        deletes.retain(|call| call.method == "DELETE" && !call.body.is_empty());
        assert!(deletes.is_empty(), "{what}: {deletes:?}");
    });
}

#[test]
fn a_label_that_is_added_just_before_ours_are_written_is_kept() {
    // Each case is the label that is added. When the label names an owner, the case also contains a part of the reason
    // why the load balancer is not adopted.
    let cases = vec![
        ("team", "a", None),
        (CLUSTER_UID, "another", Some("names another cluster")),
        ("caph-cluster-prod", "owned", Some("another program")),
    ];
    common::run_in_parallel(cases, |(label, value, refused)| {
        let world = World::new(1);
        world.converge(&[]);
        let id = world.create_balancer("edge", &json!({}));
        let hook = common::before(&world.sandbox, move |world| {
            add_label(world, id, label, value);
        });
        let rule = on("GET /v1/load_balancers/*", hook);
        world.faults().add(rule.times(1));
        let uid = world.create("web", &[("name", "edge")], &[80]);
        let ran = world.once(&[]);
        let one = world.cloud().load_balancer(id);
        if let Some(why) = refused {
            assert_eq!(ran.code, 1, "{ran:?}");
            assert_eq!(one["labels"], json!({ label: value }));
            world.wait_for_event("web", "LoadBalancerNotAdopted", &[why]);
        } else {
            assert_eq!(ran.code, 0, "{ran:?}");
            assert_eq!(one["labels"][label], value);
            assert_eq!(one["labels"][SERVICE_UID], uid);
        }
    });
}

/// A load balancer without labels would seem to be free, and one without targets to be unused.
#[test]
fn a_list_without_a_needed_field_is_an_error_that_names_the_field() {
    for field in ["labels", "protection", "services", "targets"] {
        let world = World::new(1);
        world.converge(&[]);
        world.create_balancer("edge", &json!({}));
        let mut one = world.only_balancer();
        one.as_object_mut().unwrap().remove(field);
        let page = json!({
            "load_balancers": [one],
            "meta": {"pagination": {
                "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1, "total_entries": 1,
            }},
        });
        let instead = Effect::Instead(Response::json(200, &page));
        world.faults().add(on("GET /v1/load_balancers", instead));
        world.create("web", &[("name", "edge")], &[80]);
        let mark = world.mark();
        let ran = world.once(&[]);
        assert_eq!(ran.code, 1, "{field}: {ran:?}");
        ran.warns(&format!("missing field `{field}`"));
        assert_eq!(world.cloud_writes(mark), Vec::<String>::new(), "{field}");
    }
}

/// A cluster that was built anew makes new load balancers at once, and only then an operator labels the old one.
#[test]
fn an_adopt_label_that_comes_too_late_is_reported_and_counts_when_the_new_load_balancer_is_deleted()
{
    let world = World::new(1);
    let daemon = world.daemon(&[OFTEN]);
    world.create("web", &[], &[80]);
    let new = world.up("web");
    let old = world.create_balancer("old", &json!({"labels": {ADOPT: "default.web"}}));
    let (new_id, old_shown) = (new["id"].as_u64().unwrap(), format!("\"old\" ({old})"));
    let parts = [old_shown.as_str(), ADOPT, "kubernetes-default-web"];
    world.wait_for_event("web", "LoadBalancerNotAdopted", &parts);
    // This is no failure, because no retry can help.
    let mark = world.mark();
    world.ticks(20);
    let log = daemon.log();
    assert!(!log.contains("all reported failures have ended"), "{log}");
    assert_eq!(log.matches("(LoadBalancerNotAdopted)").count(), 1, "{log}");
    assert_eq!(world.writes(mark), Vec::<String>::new());
    world.cloud().delete_load_balancer(new_id);
    world.wait_for_event("web", "LoadBalancerAdopted", &[&old_shown]);
    assert_eq!(world.up("web")["id"], old);
}

/// The load balancer stayed with its address when its Service was deleted. Another tenant must not get it by its name.
#[test]
fn a_load_balancer_that_a_deleted_service_left_is_adopted_only_in_the_same_namespace() {
    let cases = vec![("team-a.web", false), ("default.old", true), ("default.web", true)];
    common::run_in_parallel(cases, |(of, is_adopted)| {
        let world = World::new(1);
        world.converge(&[]);
        let cluster = world.uid("kubernetes");
        let labels =
            json!({SERVICE_UID: "gone", CLUSTER_UID: cluster, "ccm-from-scratch/service": of});
        let id = world.create_balancer("front", &json!({ "labels": labels }));
        let before = world.cloud().load_balancer(id);
        let uid = world.create("web", &[("name", "front")], &[80]);
        let ran = world.once(&[]);
        let adopted = world.of_uid(&uid).map(|one| one["id"].clone());
        assert_eq!(adopted, is_adopted.then(|| json!(id)), "{of}: {ran:?}");
        if !is_adopted {
            assert_eq!(world.cloud().load_balancer(id), before, "{of}");
            let says = ["team-a/web", &command(id)];
            world.wait_for_event("web", "LoadBalancerNotAdopted", &says);
        }
    });
}
