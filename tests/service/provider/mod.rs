//! Load balancers over real HTTP: every kind of change, what is read for it, and what is refused.

mod world;

use crate::common::cluster::{CLUSTER_UID, Cluster as _, id, len, targets, text};
use crate::common::{self, on};
use ccm::hetzner::load_balancers::{Defaults, SERVICE_UID, annotations::PREFIX};
use ccm::provider::{
    ActionId, Actions, Applied, ErrorKind, InstanceId, OfferedNode, OpenGate, PlanOutcome,
    Provider, ProviderId, Urgency,
};
use sandbox::calls::Call;
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use world::{Closed, UID, World, apply_first, hetzner, hetzner_at, port};

fn on_create(effect: Effect) -> Rule {
    on("POST /v1/load_balancers", effect).times(1)
}

#[test]
fn a_new_load_balancer_is_created_with_one_write_and_then_is_right() {
    let mut world = World::with_nodes(12);
    world.service.ports = vec![port(80), port(81), port(82)];
    assert_eq!(world.converge().len(), 1);
    assert_eq!(world.writes(), ["POST load_balancers"]);
    let balancer = world.only_balancer();
    assert_eq!(len(&balancer["targets"]), 12);
    assert_eq!(len(&balancer["services"]), 3);
    let plan = world.plan();
    assert!(plan.outcome.changes().is_empty());
    // The status has both public addresses and the private one.
    assert_eq!(plan.status.unwrap().len(), 3);
    world.check_document();
}

#[test]
fn the_answer_to_a_creation_replaces_a_read_when_it_has_the_addresses() {
    let world = World::without_network();
    let plan = world.plan();
    let applied = apply_first(&plan);
    let Ok(Applied::Shown(Some(action), shown)) = applied else {
        panic!("{applied:?}");
    };
    let left = shown.plan(world.input());
    assert!(left.outcome.changes().is_empty(), "{left:?}");
    world.wait(action).unwrap();
    let looked = world.plan();
    assert!(looked.outcome.changes().is_empty(), "{looked:?}");
    assert_eq!(left.status, looked.status);
    assert_eq!(left.status.unwrap().len(), 2);

    // The private address is known only after the end of the action.
    let world = World::new();
    let plan = world.plan();
    let applied = apply_first(&plan);
    let is_running = matches!(applied, Ok(Applied::LookAgain(Some(_))));
    assert!(is_running, "{applied:?}");
}

#[test]
fn every_kind_of_change_is_made_and_fits_the_document() {
    let mut world = World::new();
    let pem = json!({"name": "one", "type": "managed", "domain_names": ["a.example"]});
    world.create_certificate(pem);
    world.service.ports = vec![port(80), port(81), port(443)];
    world.converge();
    world.service.ports = vec![port(80), port(82), port(443)];
    world.nodes.pop();
    world.set(&[
        ("name", "front"),
        ("type", "lb21"),
        ("algorithm-type", "least_connections"),
        ("ipv4-rdns", "a.example"),
        ("ipv6-rdns", "b.example"),
        ("use-private-ip", "true"),
        ("private-ipv4", "10.0.0.77"),
        ("disable-public-network", "true"),
        ("uses-proxyprotocol", "true"),
        ("protocol.443", "https"),
        ("http-certificates", "one"),
        ("http-sticky-sessions", "true"),
        ("http-cookie-name", "A"),
        ("http-cookie-lifetime", "1m"),
        ("http-timeout-idle", "30s"),
        ("protocol.82", "http"),
        ("health-check-protocol.80", "https"),
        ("health-check-http-domain.80", "a.example"),
        ("health-check-http-path.80", "/up"),
        ("http-status-codes.80", "200,3??"),
        ("health-check-port", "8080"),
        ("health-check-interval", "6s"),
        ("health-check-timeout", "5s"),
        ("health-check-retries", "4"),
    ]);
    let made = world.converge();
    assert!(made.iter().all(|line| !line.contains(" ! ")), "{made:#?}");
    let balancer = world.only_balancer();
    assert_eq!(balancer["name"], "front");
    assert_eq!(balancer["public_net"]["enabled"], false);
    assert_eq!(balancer["private_net"][0]["ip"], "10.0.0.77");
    assert_eq!(balancer["targets"][0]["use_private_ip"], true);
    assert_eq!(len(&balancer["targets"]), 1);
    // Back again, to a smaller type.
    world.service.annotations.clear();
    world.set(&[("type", "lb11"), ("disable-public-network", "false")]);
    let made = world.converge();
    assert!(made.iter().all(|line| !line.contains(" ! ")), "{made:#?}");
    assert_eq!(world.only_balancer()["load_balancer_type"]["name"], "lb11");
    let writes = world.writes();
    for command in [
        "load_balancers",
        "change_type",
        "change_algorithm",
        "change_dns_ptr",
        "detach_from_network",
        "attach_to_network",
        "enable_public_interface",
        "disable_public_interface",
        "delete_service",
        "update_service",
        "add_service",
        "add_target",
        "remove_target",
    ] {
        let command = format!("POST {command}");
        assert!(writes.contains(&command), "{command} in {writes:?}");
    }
    assert!(writes.iter().any(|write| write.starts_with("PUT ")));

    let removal = world.removal();
    let deleted = apply_first(&removal);
    if let Applied::Running(action) = deleted.unwrap() {
        world.wait(action).unwrap();
    }
    assert!(world.balancers().is_empty());
    // The load balancer does not exist any more, which is the wanted result.
    let again = apply_first(&removal);
    assert!(matches!(again, Ok(Applied::Done)), "{again:?}");
    world.check_document();
}

#[test]
fn a_deletion_with_an_empty_answer_is_a_success() {
    let world = World::new();
    world.converge();
    world.cloud().set_silent_deletes(true);
    let removal = world.removal();
    let deleted = apply_first(&removal);
    assert!(matches!(deleted, Ok(Applied::Done)), "{deleted:?}");
    common::wait_until("its end", || world.balancers().is_empty());
}

/// A target of another owner is the reason for a release. When that target is gone before the last write, the owner would
/// go on paying for a load balancer that nobody needs.
#[test]
fn a_load_balancer_is_deleted_when_the_target_for_which_it_would_stay_is_gone() {
    let world = World::new();
    world.converge();
    let id = id(&world.only_balancer());
    let foreign = world.create_server("foreign");
    world.add_target(id, foreign);
    let mut release = world.removal();
    let mut all = release.outcome.take_changes();
    let last = all.pop().expect("a change of labels");
    release.outcome = PlanOutcome::of(all);
    world.make(&release, &mut Vec::new());
    let target = json!({ "type": "server", "server": { "id": foreign } });
    world.post(&format!("/load_balancers/{id}/actions/remove_target"), &target);
    common::wait_until("the end of the target", || targets(&world.only_balancer()).is_empty());
    let applied = last.apply();
    assert!(matches!(applied, Ok(Applied::Overtaken)), "{applied:?}");
    let deleted = apply_first(&world.removal());
    assert!(deleted.is_ok(), "{deleted:?}");
    common::wait_until("its end", || world.balancers().is_empty());
}

/// Types are read once a day. A type that is not among them may be newer.
#[test]
fn a_type_that_is_newer_than_the_cached_types_is_found() {
    let mut world = World::new();
    world.set(&[("type", "lb21")]);
    let cloud = world.cloud();
    let announced = "2020-01-01T00:00:00Z";
    cloud.deprecate_load_balancer_type("lb21", announced, "2020-06-01T00:00:00Z");
    let plan = world.plan();
    assert!(plan.outcome.obstacle().unwrap().message.contains("lb21"));
    cloud.deprecate_load_balancer_type("lb21", announced, "2999-06-01T00:00:00Z");
    // Ten minutes are 6 s, and a day more than the test waits.
    common::wait_at_most(Duration::from_secs(60), "the new type", || {
        world.plan().outcome.obstacle().is_none()
    });
    let reads = |call: &Call| call.path == "/v1/load_balancer_types";
    assert_eq!(world.calls().count(reads), 2);
}

/// A proxy has answered with 200, and the load balancer may still exist.
#[test]
fn an_answer_that_is_not_the_api_s_is_no_success() {
    let world = World::new();
    world.converge();
    let removal = world.removal();
    let other = on("DELETE /v1/load_balancers/*", Effect::other_json());
    world.faults().add(other.times(1));
    let deleted = apply_first(&removal);
    assert_eq!(deleted.unwrap_err().kind, ErrorKind::Unavailable);
}

/// One server was deleted. The load balancer still gets its address, and the other servers become targets.
#[test]
fn a_refused_target_does_not_prevent_the_other_changes() {
    let mut world = World::new();
    let gone = OfferedNode {
        name: "gone".into(),
        provider_id: ProviderId::Ours(InstanceId::Cloud(999_999)),
        ..world.nodes[0].clone()
    };
    let servers = &mut world.cluster.servers;
    servers.insert(InstanceId::Cloud(999_999), gone.name.clone());
    world.nodes.push(gone);
    let made = world.converge();
    let failed: Vec<&String> = made.iter().filter(|line| line.contains(" ! ")).collect();
    assert!(!failed.is_empty());
    let is_gone = |line: &&String| line.starts_with("target gone");
    assert!(failed.iter().all(is_gone), "{made:#?}");
    let balancer = world.only_balancer();
    assert_eq!(len(&balancer["targets"]), 2);
    assert_eq!(len(&balancer["services"]), 1);
    let creates = world.writes().into_iter();
    let creates = creates.filter(|write| write == "POST load_balancers");
    assert_eq!(creates.count(), 2);
    world.check_document();
}

/// The load balancer gets its address although a port is refused, whatever field the API names. A refusal that is not
/// about a port or a target refuses the whole creation.
#[test]
fn a_refused_field_of_a_port_does_not_prevent_the_other_changes() {
    let cases = [
        ("http.certificates", 2),
        ("services[0].http.certificates", 2),
        ("services.0.health_check.http.path", 2),
        ("health_check.timeout", 2),
        ("targets", 2),
        ("targets[1].server.id", 2),
        ("load_balancer_certificates", 2),
        ("load_balancer_targets", 2),
        ("location", 1),
        ("load_balancer_type", 1),
        ("public_net.ipv4", 1),
        ("httpd", 1),
    ];
    for (field, posts) in cases {
        let world = World::without_network();
        let fields = json!([{"name": field, "messages": ["is wrong"]}]);
        let body = json!({"error": {"code": "invalid_input", "message": "invalid input", "details": {"fields": fields}}});
        let refused = Effect::Instead(Response::json(422, &body));
        world.faults().add(on_create(refused));
        let plan = world.plan();
        let change = plan.outcome.changes()[0].as_ref();
        let error = change.apply().unwrap_err();
        let is_in_part = error.kind == ErrorKind::InPart;
        assert_eq!(is_in_part, posts == 2, "{field}: {error:?}");
        if is_in_part {
            let rest = change.without_parts().unwrap();
            rest.apply().unwrap();
        }
        assert_eq!(world.writes().len(), posts, "{field}");
        assert_eq!(world.balancers().len(), posts - 1, "{field}");
    }
}

/// The API may refuse the location by its name or as not found. The locations are read once, and only then.
#[test]
fn a_place_that_does_not_exist_is_refused_with_its_annotation() {
    type Case<'a> = ((&'a str, &'a str), Option<(u16, &'a str)>, &'a [&'a str]);
    let not_found = Some((404, "not_found"));
    let sold_out = Some((412, "resource_unavailable"));
    let (nowhere, place) = (("network-zone", "mars"), ("location", "fsn1"));
    let refused = "network zone \"mars\" may not exist (hcloud location list";
    #[rustfmt::skip] // A case is a line.
    let cases: [Case; 5] = [
        (nowhere, not_found, &[refused]),
        (nowhere, None, &[refused]),
        (place, not_found, &["says the API (not_found"]),
        (place, sold_out, &["type \"lb11\" is not available in this location or network zone", "/type", "/location", "(resource_unavailable"]),
        (place, Some((422, "protected")), &["(protected"]),
    ];
    for (annotation, answer, says) in cases {
        let mut world = World::without_network();
        world.set(&[annotation]);
        if let Some((status, code)) = answer {
            let effect = Effect::hetzner_error(status, code, "says the API");
            world.faults().add(on_create(effect).times(2));
        }
        let plan = world.plan();
        let outcome = world.apply(plan.outcome.changes()[0].as_ref());
        let said = outcome.unwrap_err().to_string();
        for part in says {
            assert!(said.contains(part), "{said}");
        }
        assert!(said.contains("POST http"), "{said}");
        assert!(world.balancers().is_empty());
        world.check_document();
    }
    // A location is looked up where types are sold, before anything is tried.
    let mut world = World::without_network();
    world.set(&[("location", "nowhere")]);
    let said = world.plan().outcome.obstacle().unwrap().message.clone();
    let says = "annotation load-balancer.hetzner.cloud/location: there is no location \"nowhere\" for load balancers of \
                type lb11; use ash, fsn1, ";
    assert!(said.starts_with(says), "{said}");
    assert!(world.writes().is_empty());
}

/// A certificate that is named while it is being issued costs no refused call.
#[test]
fn a_named_certificate_that_is_not_issued_yet_keeps_its_port_alone_waiting() {
    let mut world = World::new();
    let pem = json!({"name": "one", "type": "managed", "domain_names": ["a.example"]});
    world.service.ports = vec![port(80), port(443)];
    world.set(&[("protocol.443", "https"), ("http-certificates", "one")]);
    let (cloud, project) = (world.cloud(), world.project());
    let id = cloud.create_certificate(project, pem);
    let issue = |takes| {
        cloud.set_action_duration("issue_certificate", Some(takes));
        cloud.retry_certificate(id);
    };
    issue(Duration::from_secs(1_000_000));
    world.converge();
    assert_eq!(world.writes(), ["POST load_balancers"]);
    assert_eq!(len(&world.only_balancer()["services"]), 1);
    assert!(world.plan().outcome.is_unfinished());
    issue(Duration::ZERO);
    let made = world.converge();
    assert_eq!(made, ["port 443: added, https to node port 30443"]);
    world.check_document();
}

#[test]
fn a_lost_answer_is_an_error_and_the_next_read_finds_what_was_created() {
    let world = World::new();
    world.faults().add(on_create(Effect::AnswerLost));
    let plan = world.plan();
    let error = apply_first(&plan).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(world.writes().len(), 1, "never repeated");
    // The load balancer is locked and not attached until its creation has ended.
    common::wait_until("its end", || {
        let balancer = world.only_balancer();
        !balancer["private_net"].as_array().unwrap().is_empty()
    });
    assert!(world.converge().is_empty());
    assert_eq!(world.only_balancer()["labels"][SERVICE_UID], UID);
}

#[test]
fn a_load_balancer_that_was_attached_meanwhile_is_read_again() {
    let world = World::new();
    world.converge();
    let right = world.only_balancer();
    let id = id(&right);
    world.edit_balancer(id, |one| one["private_net"] = json!([]));
    let plan = world.plan();
    // The program that created the load balancer finishes only now.
    world.edit_balancer(id, |one| *one = right);
    let description = plan.outcome.changes()[0].description();
    let line = description.done().join(", ");
    assert!(line.ends_with(": attached"), "{line}");
    let outcome = apply_first(&plan);
    assert!(matches!(outcome, Ok(Applied::Overtaken)), "{outcome:?}");
    assert!(world.converge().is_empty());
}

#[test]
fn a_name_that_was_taken_meanwhile_is_read_again() {
    let world = World::new();
    let plan = world.plan();
    let theirs = json!({"labels": {CLUSTER_UID: "cluster-2"}});
    world.create_balancer("kubernetes-default-web", &theirs);
    let outcome = apply_first(&plan);
    assert!(matches!(outcome, Ok(Applied::Overtaken)), "{outcome:?}");
    world.converge();
    let all = world.balancers();
    assert_eq!(all.len(), 2);
    assert!(text(&all[1]["name"]).starts_with("kubernetes-default-web-"));
}

#[test]
fn refusals_have_the_right_kind_of_error() {
    let error = |status, code| Effect::hetzner_error(status, code, "no");
    let cases = [
        (error(423, "locked"), ErrorKind::Busy),
        (error(409, "conflict"), ErrorKind::Busy),
        (error(403, "forbidden"), ErrorKind::Forbidden),
        (error(422, "invalid_input"), ErrorKind::Other),
        (Effect::gateway_timeout(), ErrorKind::Unavailable),
        (Effect::Reset, ErrorKind::Unavailable),
    ];
    for (effect, kind) in cases {
        let world = World::new();
        let plan = world.plan();
        world.faults().add(on_create(effect));
        let outcome = apply_first(&plan);
        assert_eq!(outcome.unwrap_err().kind, kind);
        assert_eq!(world.writes().len(), 1);
    }
}

#[test]
fn a_write_that_the_gate_refuses_is_never_sent() {
    let mut world = World::new();
    let (gate, urgency) = (Arc::new(Closed), Urgency::Asked);
    world.hetzner = hetzner_at(&world, Some(Defaults::default()), gate, urgency);
    let plan = world.plan();
    let outcome = apply_first(&plan);
    assert_eq!(outcome.unwrap_err().kind, ErrorKind::Refused);
    assert!(world.writes().is_empty());
}

/// A 429 answered to a write stops the next one before it is sent.
#[test]
fn writes_count_against_the_same_budget() {
    let world = World::new();
    let plan = world.plan();
    world.faults().add(on_create(Effect::hetzner_rate_limit()));
    for _ in 0..2 {
        let kind = apply_first(&plan).unwrap_err().kind;
        let is_limited = matches!(kind, ErrorKind::RateLimited { put_off: false, .. });
        assert!(is_limited, "{kind:?}");
    }
    assert_eq!(world.writes().len(), 1);
}

/// Otherwise the reads use up the calls that become available, and the load balancer is never created. Storm seed
/// 2593 found this.
#[test]
fn a_write_that_is_put_off_reads_nothing() {
    let mut world = World::new();
    world.converge();
    let (gate, urgency) = (Arc::new(OpenGate), Urgency::Changed);
    world.hetzner = hetzner_at(&world, Some(Defaults::default()), gate, urgency);
    let (cloud, project) = (world.cloud(), world.project());
    // Writes for Services wait while less than 5 % of the calls are left. This number of calls becomes available
    // in two seconds.
    cloud.set_rate_limit(project, 3600, 10);
    let plan = world.removal();
    let mark = world.calls().mark();
    let kind = apply_first(&plan).unwrap_err().kind;
    let is_put_off = matches!(kind, ErrorKind::RateLimited { put_off: true, .. });
    assert!(is_put_off, "{kind:?}");
    assert_eq!(world.calls().calls_since(mark).len(), 0);
    // There are enough calls for the reads and the write.
    cloud.set_rate_limit(project, 3600, 182);
    let plan = world.removal();
    assert!(apply_first(&plan).is_ok());
}

#[test]
fn actions_are_polled_together_and_a_failed_one_says_why() {
    let mut world = World::with_nodes(60);
    world.set(&[("type", "lb21"), ("node-selector", "none")]);
    world.converge();
    let cloud = world.cloud();
    cloud.fail_next_action("add_target", "action_failed", "the server is on fire");
    let selector = format!("{PREFIX}node-selector");
    world.service.annotations.remove(&selector);
    let plan = world.plan();
    assert_eq!(plan.outcome.changes().len(), 60);
    let failing = apply_first(&plan);
    let Ok(Applied::Running(action)) = failing else {
        panic!("{failing:?}");
    };
    let error = world.wait(action).unwrap_err();
    let said = error.to_string();
    for part in ["on fire (action_failed)", "add_target"] {
        assert!(said.contains(part), "{said}");
    }

    let begun = world.calls().mark();
    let many: Vec<ActionId> = (0..60).map(|n| ActionId(action.0 + n)).collect();
    world.hetzner.ended(&many).unwrap();
    // A call has 25 IDs.
    assert_eq!(world.calls().calls_since(begun).len(), 3);
    world.check_document();
}

#[test]
fn types_are_read_once_and_certificates_only_where_named() {
    let mut world = World::new();
    let reads = |world: &World, path: &str| {
        let path = format!("/v1/{path}");
        let is_read = |call: &Call| call.method == "GET" && call.path == path;
        world.calls().count(is_read)
    };
    world.converge();
    for _ in 0..3 {
        world.plan();
    }
    assert_eq!(reads(&world, "load_balancer_types"), 1);
    assert_eq!(reads(&world, "certificates"), 0);
    world.set(&[("http-certificates", "one")]);
    world.plan();
    assert_eq!(reads(&world, "certificates"), 1);
    // A read for one Service is not enough for another Service.
    let provider = world.hetzner.load_balancers().unwrap();
    let seen = provider.observe(&[], Urgency::Needed).unwrap();
    assert!(!seen.covers(&world.service));
}

#[test]
fn no_call_is_made_while_load_balancers_are_turned_off() {
    let sandbox = common::socket_cluster(1);
    assert!(hetzner(&sandbox, None).load_balancers().is_none());
}
