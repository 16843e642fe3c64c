//! Problems on the cloud's side: token, project, budget, clock, Network.

use crate::common::Cluster;
use crate::doctor::world::{World, checks, each, find};
use sandbox::Half;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};

#[test]
fn a_wrong_token_is_reported_with_the_fix() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("no token", |world| world.set("HCLOUD_TOKEN", ""), "token: fail", &["HCLOUD_TOKEN: not set"], "Read & Write"),
        ("not a token", |world| world.set("HCLOUD_TOKEN", "a b"), "token: fail", &["e.g. white space; copy it again"],
            "HCLOUD_TOKEN_FILE"),
        ("refused", |world| world.set("HCLOUD_TOKEN", &"x".repeat(64)), "api: fail", &["/servers", "unauthorized"],
            "copy the token again"),
        ("read-only", |world| {
            let token = world.sandbox.projects().read_only_token.clone();
            world.set("HCLOUD_TOKEN", &token);
        }, "permission: fail", &["may only read"], "Read & Write"),
        ("another project's", |world| {
            let token = world.sandbox.projects().foreign_token.clone();
            world.set("HCLOUD_TOKEN", &token);
            world.set("HCLOUD_NETWORK", "");
        }, "project: fail", &["the token's project has no server of this cluster (2 nodes checked)", "the token belongs to another project"], "right --context"),
    ]);
}

/// This is the code that the API used before October 2026.
#[test]
fn a_read_only_token_is_recognised_by_its_older_code_and_an_unclear_answer_is_no_verdict() {
    for (status, code, expected) in [
        (403, "token_readonly", "fail"),
        (403, "forbidden", "fail"),
        (404, "not_found", "ok"),
        (422, "invalid_input", "ok"),
        (503, "maintenance", "skipped"),
        (409, "conflict", "skipped"),
    ] {
        let world = World::healthy();
        let effect = Effect::hetzner_error(status, code, "why not");
        world.fault(Rule::new(effect).half(Half::Hetzner).writes());
        let check = world.check("permission");
        assert_eq!(check.status, expected, "{status} {code}: {check:?}");
        let cannot_be_told = check.message.contains("is unknown");
        assert_eq!(cannot_be_told, expected == "skipped", "{check:?}");
    }
}

/// A token of another length may be one.
#[test]
fn a_token_of_another_length_is_reported() {
    each(&[(
        "short",
        |world| {
            let cloud = world.sandbox.cloud();
            cloud.add_token(world.sandbox.project(), "short", false);
            world.set("HCLOUD_TOKEN", "short");
        },
        "token: warn",
        &["5 characters", "has 64", "HCLOUD_TOKEN"],
        "copy the complete token again",
    )]);
}

#[test]
fn a_failing_api_is_reported_with_the_fix() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("nobody there", |world| world.sandbox.stop(Half::Hetzner), "api: fail", &["connection refused"],
            "HCLOUD_ENDPOINT"),
        ("another page", |world| {
            let endpoint = world.sandbox.metadata_url();
            world.set("HCLOUD_ENDPOINT", &endpoint);
        }, "api: fail", &["/servers"], "HCLOUD_ENDPOINT"),
        ("budget nearly spent", |world| {
            // The number is set before each call, because it grows fast in scaled time.
            let (cloud, project) = (world.sandbox.cloud().clone(), world.sandbox.project());
            let spend = move |_: &Request| cloud.set_rate_limit(project, 3600, 200);
            let rule = Rule::new(Effect::before(spend)).half(Half::Hetzner);
            world.fault(rule);
        }, "rate-limit: warn", &["of 3600 calls an hour are left, so the daemon postpones periodic reads"], "autoscaler"),
        ("clock off", |world| world.sandbox.cloud().set_clock_ahead(40), "clock: warn", &["s behind the clock of the Cloud API"],
            "timedatectl"),
        ("clock far off", |world| world.sandbox.cloud().set_clock_ahead(-3600), "clock: fail",
            &["36", "s ahead of the clock of the Cloud API"], "timedatectl"),
    ]);
}

#[test]
fn a_used_up_budget_is_reported_with_the_checks_that_it_prevented() {
    let world = World::healthy();
    let rule = Rule::new(Effect::hetzner_rate_limit()).half(Half::Hetzner);
    world.fault(rule);
    let before = world.mark();
    let ran = world.doctor(&["-o", "json"]);
    let checks = checks(&ran);
    find(&checks, "rate-limit").says("fail", &["none of 3600"]);
    find(&checks, "api").says("fail", &["rate_limit_exceeded"]);
    // After a refusal no more calls are made.
    assert_eq!(asked_since(&world, before), 1);
}

/// Calls of the Cloud API.
fn asked_since(world: &World, mark: u64) -> usize {
    let calls = world.sandbox.calls().calls_since(mark);
    let calls = calls.iter();
    let asked = calls.filter(|call| call.half == Half::Hetzner && !call.path.contains("metadata"));
    asked.count()
}

/// A token that is not accepted is sent once. Neither a read nor the write of the check `permission` follows.
#[test]
fn after_a_refused_token_nothing_is_sent() {
    for command in ["doctor", "status"] {
        let mut world = World::healthy();
        world.set("HCLOUD_TOKEN", &"x".repeat(64));
        let before = world.mark();
        let ran = world.runs(&[command]).with_code(1);
        assert_eq!(asked_since(&world, before), 1, "{ran:?}");
    }
}

/// Credentials that one read shows to be refused are not sent by any later one, whichever read that is.
#[test]
fn refused_credentials_are_not_sent_again() {
    let refused = |half| match half {
        Half::Hetzner => Effect::hetzner_error(401, "unauthorized", "unable to authenticate"),
        _ => Effect::kubernetes_status(401, "Unauthorized", "Unauthorized"),
    };
    for (half, method, path, check) in [
        (Half::Hetzner, "GET", "/v1/servers", "api"),
        (Half::Hetzner, "GET", "/v1/networks", "network"),
        (Half::Hetzner, "PUT", "/v1/load_balancers/", "permission"),
        (Half::Hetzner, "GET", "/v1/load_balancers", "services"),
        (Half::Kubernetes, "GET", "/version", "cluster"),
        (Half::Kubernetes, "POST", "/selfsubjectaccessreviews", "cluster"),
        (Half::Kubernetes, "GET", "/leases/", "lease"),
        (Half::Kubernetes, "GET", "/deployments", "other-ccm"),
        (Half::Kubernetes, "GET", "/api/v1/nodes", "nodes"),
        (Half::Kubernetes, "GET", "/api/v1/services", "services"),
        (Half::Kubernetes, "GET", "/events", "services"),
    ] {
        let world = World::healthy();
        let rule = Rule::new(refused(half)).half(half);
        world.fault(rule.method(method).when(move |request: &Request| request.path.contains(path)));
        let before = world.mark();
        let ran = world.doctor(&["-o", "json"]);
        let calls = world.sandbox.calls().calls_since(before);
        let sent = calls.iter().filter(|call| call.half == half);
        let sent = sent.filter(|call| !call.path.contains("metadata"));
        let mut after = sent.skip_while(|call| call.status != Some(401));
        assert!(after.next().is_some(), "{method} {path} was not refused");
        let after: Vec<String> =
            after.map(|call| format!("{} {}", call.method, call.path)).collect();
        assert!(after.is_empty(), "after {method} {path}: {after:?}");
        let said = checks(&ran);
        let found = said.iter().filter(|(name, _)| name == check);
        let is_said = |(_, found): &(String, crate::doctor::world::Check)| {
            format!("{found:?}").to_lowercase().contains("unauthorized")
        };
        assert!(found.clone().any(is_said), "{method} {path}: {said:?}");
    }
}

#[test]
fn a_wrong_network_is_reported_with_the_fix() {
    fn detach(world: &mut World) {
        let alone = world.create_server("alone");
        world.sandbox.cloud().set_metadata_server(Some(alone));
    }
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("no such Network", |world| world.set("HCLOUD_NETWORK", "4711"), "network: fail",
            &["there is no Network 4711; this project has sandbox"], "ID or the name"),
        ("a shell on a machine outside", detach, "attached: warn", &["this machine is attached to no Network, but HCLOUD_NETWORK names sandbox"],
            "attach the machine"),
        ("a pod on a machine outside", |world| {
            detach(world);
            world.set("KUBERNETES_SERVICE_HOST", "10.96.0.1");
        }, "attached: fail", &["ccm run would fail on this machine"], "HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK"),
        ("no cloud server", |world| world.sandbox.cloud().set_metadata_server(None), "attached: skipped",
            &["outside of Hetzner Cloud"], ""),
        ("nobody asks", |world| world.set("HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK", "true"), "attached: skipped",
            &["turns this check off"], ""),
    ]);
}
