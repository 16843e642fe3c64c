//! The whole report: of a healthy cluster, of one where everything is broken, and in each format.

use crate::common::{Cluster, Ran, contains, openapi, run_in_parallel, snapshot, variable};
use crate::doctor::world::{CHECKS, World, checks, find, unchanged};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use serde_json::json;
use std::time::{Duration, Instant};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const PROBE: &str = "/v1/load_balancers/9007199254740991";

/// Returns the output, in which everything that differs from run to run is replaced by something of the same length.
fn seen(world: &World, words: &[&str]) -> String {
    let Ran { code, stdout, stderr } = world.doctor(words);
    assert_eq!(stderr, "");
    let mut text = format!("$ ccm doctor {}\n{stdout}(exit {code})\n", words.join(" "));
    for end in [" of 3600 calls", " s, so there is no leader"] {
        if let Some(at) = text.find(end) {
            let begin = text[..at].rfind(|c: char| !c.is_ascii_digit()).unwrap() + 1;
            assert_eq!(at - begin, 4, "{text}");
            text.replace_range(begin..at, "NNNN");
        }
    }
    for half in [Half::Hetzner, Half::Kubernetes] {
        let address = world.sandbox.address(half).to_string();
        text = text.replace(&address, &"X".repeat(address.len()));
    }
    if let Some(id) = world.sandbox.network() {
        text = text.replace(&format!("({id})"), "(ID)");
    }
    text
}

fn fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

fn in_its_folder(mut world: World) -> World {
    let path = variable(&world.env, "KUBECONFIG");
    let file = std::path::Path::new(path).file_name().unwrap();
    let file = file.to_str().unwrap().to_owned();
    world.set("KUBECONFIG", &file);
    world
}

#[test]
fn doctor_finds_a_healthy_cluster_ok_and_writes_nothing() {
    let world = in_its_folder(World::healthy());
    let before = world.everything();
    let mark = world.mark();
    let ran = world.doctor(&["-o", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    for (name, check) in checks(&ran) {
        assert_eq!(check.status, "ok", "{name}: {check:?}");
    }
    unchanged(&before, &world.everything());
    let calls = world.sandbox.calls().calls_since(mark);
    let writes = calls.iter().filter(|call| call.is_write() && call.caller != "admin");
    let (reviews, others): (Vec<_>, Vec<_>) = writes.partition(|call| call.path == REVIEWS);
    assert_eq!(reviews.len(), 13);
    let others: Vec<_> = others.iter().map(|call| (call.path.as_str(), call.status)).collect();
    assert_eq!(others, [(PROBE, Some(404))]);
    let to = |half| calls.iter().filter(|call| call.half == half && !call.is_write()).count();
    assert!(to(Half::Hetzner) <= 6, "{calls:?}");
    let lists = calls.iter().filter(|call| call.path == "/v1/servers");
    assert_eq!(lists.count(), 1, "{calls:?}");
    // One of them asks for certificate requests of kubelets, which this user may not list.
    assert!(to(Half::Kubernetes) <= 9, "{calls:?}");
    let table = seen(&world, &[]);
    fits(&table);
    snapshot("doctor.txt", &table);
    let wide = seen(&world, &["-o", "wide"]);
    fits(&wide);
    snapshot("doctor-wide.txt", &wide);
    let yaml = seen(&world, &["-o", "yaml"]);
    contains(&yaml, "apiVersion: ccm/v2\nkind: Doctor\nitems:\n- check: settings\n");
}

#[test]
fn every_request_fits_the_api_s_own_document() {
    let Some(spec) = openapi() else { return };
    let world = World::healthy();
    let mark = world.mark();
    assert_eq!(world.doctor(&[]).code, 0);
    let mut calls = world.sandbox.calls().calls_since(mark);
    calls.retain(|call| call.half == Half::Hetzner && call.path.starts_with("/v1/"));
    assert!(calls.iter().any(|call| call.path == PROBE), "{calls:?}");
    for call in calls {
        spec.check_request(&call.method, &call.path, &call.query, &call.body)
            .unwrap_or_else(|e| panic!("{call}: {e:?}"));
    }
}

/// The account of the manifests may not look at Deployments, and needs not.
#[test]
fn the_daemon_s_own_account_may_run_doctor() {
    let world = World::deployed();
    let ran = world.doctor(&["-o", "json"]).with_code(0);
    let mut skipped = Vec::new();
    for (name, check) in checks(&ran) {
        match check.status.as_str() {
            "ok" => {}
            _ => skipped.push((name, check.status, check.message)),
        }
    }
    let names: Vec<_> = skipped.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["other-ccm", "probes", "daemon"], "{skipped:?}");
    assert!(skipped.iter().all(|(_, status, why)| status == "skipped"
        && why.contains("may not list Deployments")));
}

#[test]
fn a_report_is_complete_where_everything_is_broken() {
    let mut world = World::healthy();
    world.set("HCLOUD_TOKEN", "");
    world.set("KUBECONFIG", "missing");
    world.set("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv5");
    let ran = world.doctor(&["-o", "json"]).with_code(1);
    let all = checks(&ran);
    assert_eq!(all.len(), CHECKS);
    let failed = all.iter().filter(|(_, check)| check.status == "fail");
    let failed: Vec<_> = failed.map(|(name, _)| name.as_str()).collect();
    assert_eq!(failed, ["settings", "token", "cluster"]);
    let first: Vec<_> = all.iter().take(3).map(|(name, _)| name.as_str()).collect();
    assert_eq!(first, failed, "they come first");
    assert!(all.iter().skip(3).all(|(_, check)| check.status == "skipped"), "{ran:?}");
    let text = seen(&world, &[]);
    fits(&text);
    snapshot("doctor-all-broken.txt", &text);
}

/// Several troubles at once, each with its remedy.
#[test]
fn a_check_that_needs_a_person_comes_first() {
    let mut world = in_its_folder(World::healthy());
    let token = world.sandbox.projects().read_only_token.clone();
    world.set("HCLOUD_TOKEN", &token);
    world.leads("worker-1_4711", 4000);
    world.edit_node("worker-2", |node| node["spec"]["providerID"] = "aws:///a/i-0".into());
    // On a busy machine a second or more may pass before the Lease is read.
    let mut text = seen(&world, &[]);
    for late in 4001..4010 {
        text = text.replace(&format!("{late} s"), "4000 s");
    }
    fits(&text);
    snapshot("doctor-trouble.txt", &text);
}

/// An API that does not answer costs one time-out, not one for each check.
#[test]
fn a_silent_api_is_waited_for_once() {
    run_in_parallel(vec![Half::Hetzner, Half::Kubernetes], |half| {
        let world = World::healthy();
        let hangs = Effect::Slow(Duration::from_secs(60));
        world.fault(Rule::new(hangs).half(half));
        let begun = Instant::now();
        let ran = world.doctor(&["-o", "json"]);
        // The time-out is two seconds in tests.
        assert!(begun.elapsed() < Duration::from_secs(20), "{half:?}: {:?}", begun.elapsed());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert_eq!(checks(&ran).len(), CHECKS);
        ran.prints("no complete answer within");
    });
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let world = World::healthy();
    for (words, told) in [
        (&["web"][..], "\"web\" can't be used: unexpected word; this command takes only flags"),
        (&["--nonsense"], "--nonsense"),
        (&["-o", "xml"], "xml"),
    ] {
        let ran = world.doctor(words).with_code(2);
        assert!(ran.stderr.contains(told) && ran.stdout.is_empty(), "{ran:?}");
    }
}

/// As a Job doctor has the arguments of the daemon, and those of hcloud-cloud-controller-manager.
#[test]
fn doctor_accepts_the_daemon_s_arguments() {
    let world = World::healthy();
    let ran = world
        .doctor(&[
            "--cloud-provider=ccm-from-scratch",
            "--cluster-cidr=10.244.0.0/16",
            "--route-reconciliation-period=30s",
            "--webhook-secure-port=0",
            "--allow-untagged-cloud",
            "--allocate-node-cidrs=true",
            "--metrics-address=:8233",
            "-v=4",
            "-o=json",
        ])
        .with_code(0);
    assert_eq!(checks(&ran).len(), CHECKS);
}

/// The variables are found in the environment of `doctor`, and in the Deployment of the fork after its image was
/// changed, also when their values are in a Secret.
#[test]
fn doctor_shows_the_variables_of_a_fork() {
    let mut world = World::healthy();
    world.set("HROBOT_PERIOD", "180");
    let from_secret = |name: &str| {
        let secret = json!({ "secretKeyRef": { "name": "hetzner", "key": "user" } });
        json!({ "name": name, "valueFrom": secret })
    };
    let debug = json!({ "name": "ROBOT_DEBUG", "value": "true" });
    let container = json!({
        "name": "ccm", "image": "ccm-from-scratch:0.1.0", "args": ["run"],
        "env": [debug, from_secret("ROBOT_USER_NAME"), from_secret("HCLOUD_TOKEN")],
    });
    world.deployment("fork", container);
    let ran = world.doctor(&["-o=json", "--settings-from=kube-system/deployment/fork"]);
    assert!(!ran.stderr.contains("HROBOT_PERIOD"), "doctor logged it, too: {ran:?}");
    let checks = checks(&ran.with_code(0));
    let settings = find(&checks, "settings");
    let why = "this setting has no effect in ccm, so ccm ignores it";
    let there = "of deployment kube-system/fork";
    let told = [
        format!("HROBOT_PERIOD: {why}; set ROBOT_CACHE_TIMEOUT instead"),
        format!("ROBOT_DEBUG {there}: {why}; set -v 4 instead"),
        format!("ROBOT_USER_NAME {there}: {why}; set ROBOT_USER or ROBOT_USER_FILE instead"),
    ];
    assert_eq!((&*settings.status, &*settings.message), ("warn", &*told.join("; ")));
}

#[test]
fn doctor_reads_the_daemon_s_settings_from_the_cluster() {
    let world = World::healthy();
    let args = json!(["run", "--cloud-provider=hcloud"]);
    let container = json!({ "name": "ccm", "image": "ccm-from-scratch:0.1.0", "args": args });
    world.deployment("elsewhere", container);
    let from = "--settings-from=kube-system/deployment";
    let ran = world.doctor(&["-o=json", &format!("{from}/elsewhere")]);
    let checks = checks(&ran);
    let ids = find(&checks, "provider-ids");
    assert_eq!(ids.status, "fail", "{ran:?}");
    let ran = world.doctor(&[&format!("{from}/nowhere")]).with_code(1);
    assert!(
        ran.stderr.contains("there is no deployment kube-system/nowhere") && ran.stdout.is_empty(),
        "{ran:?}"
    );
}
