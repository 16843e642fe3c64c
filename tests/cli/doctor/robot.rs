//! Clusters with dedicated servers: the checks of Robot's login, of its servers and of their nodes.

use crate::common::{Cluster, ccm, command, contains, variable};
use crate::doctor::world::{Broken, CHECKS, KUBE_SYSTEM, World, checks, each_in, find, unchanged};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use sandbox::robot::{Limit, Logins, Sees};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

/// Beside all others.
const OF_ROBOT: usize = 2;

fn mixed() -> World {
    World::with_dedicated(2)
}

fn metal(world: &World, name: &str) -> u64 {
    world.sandbox.robot().number_of(name).unwrap()
}

/// Asserts that one more login failed, and that none was blocked.
fn one_failed(world: &World, before: &Logins) {
    let after = world.sandbox.robot().logins();
    assert_eq!((after.failed, after.blocked), (before.failed + 1, 0));
}

/// Three failed logins of another program on this machine.
fn block(world: &World) {
    for _ in 0..3 {
        let url = format!("{}/server", world.sandbox.robot_url());
        let header = "Basic d3Jvbmc6d3Jvbmc=";
        let refused = ureq::get(url).header("Authorization", header).call();
        assert!(refused.is_err());
    }
    assert!(world.sandbox.robot().blocked_for().is_some());
}

#[rustfmt::skip] // A case is a paragraph.
const BROKEN: &[Broken] = &[
    ("the password is wrong", |world| world.sandbox.robot().set_password("another"),
        "robot: fail", &["/server", "Unauthorized"], "set ROBOT_USER and ROBOT_PASSWORD"),
    ("the address of this machine is blocked", |world| block(world),
        "robot: fail", &["/server", "three failed logins"], "three refused logins block the IP"),
    ("the rate limit is used up", |world| world.sandbox.robot().set_limit(Limit::Server, 0, Duration::from_secs(120)),
        "robot: fail", &["RATE_LIMIT_EXCEEDED"], "find out who else makes calls"),
    ("maintenance", |world| {
        world.fault(Rule::new(Effect::robot_maintenance()).half(Half::Robot));
    },
        "robot: fail", &["503"], "leaves nodes on dedicated servers unchanged"),
    ("nothing listens", |world| world.sandbox.stop(Half::Robot),
        "robot: fail", &["connection refused", "ROBOT_ENDPOINT"], "check ROBOT_ENDPOINT"),
    ("an account without servers", |world| {
        for server in world.sandbox.robot().servers() {
            world.sandbox.robot().remove(server.number);
        }
    }, "robot: warn", &["access to 0 dedicated servers, but not to the servers of 2 nodes"], "the Admin login of one server"),
    ("the Admin login of one server", |world| {
        let number = metal(world, "metal-2");
        world.sandbox.robot().set_login("admin", "p", Sees::Server(number));
        world.set("ROBOT_USER", "admin");
        world.set("ROBOT_PASSWORD", "p");
    }, "robot: warn", &["access to 1 dedicated server, but not to the server of 1 node"], "the Admin login of one server"),
    ("a name that differs", |world| {
        let number = metal(world, "metal-1");
        world.sandbox.robot().edit(number, |server| server.name = "other".into());
    }, "nodes: warn", &["node/metal-1: ", "is named \"other\""], ""),
    ("a server that is cancelled", |world| {
        let number = metal(world, "metal-1");
        world.sandbox.robot().edit(number, |server| server.cancelled = true);
    }, "dedicated: warn", &["node/metal-1: ", "is cancelled, and paid until 2027-01-31"], "revoke the cancellation in Robot"),
    ("a Network that keeps its routes from the vSwitch", |world| {
        world.sandbox.cloud().set_expose_routes_to_vswitch(world.network(), false);
    }, "network: warn", &["Network sandbox (", ") does not expose its routes to its vSwitch"], "hcloud network expose-routes-to-vswitch"),
];

#[test]
fn each_problem_of_robot_is_named_and_leaves_the_other_checks() {
    each_in(mixed, CHECKS + OF_ROBOT, BROKEN);
}

/// Whatever is read, Robot sees one login.
#[test]
fn a_healthy_cluster_costs_one_login_of_robot() {
    let world = mixed();
    let before = world.everything();
    let logins = world.sandbox.robot().logins();
    let ran = world.doctor(&["-o", "json"]).with_code(0);
    unchanged(&before, &world.everything());
    let after = world.sandbox.robot().logins();
    assert_eq!(after.good, logins.good + 1, "{ran:?}");
    let said = checks(&ran);
    for (check, part) in [
        ("robot", "accepts the login, which has access to 2 dedicated servers"),
        ("dedicated", "2 dedicated servers, each with its node"),
        ("nodes", "4 nodes, each with its server"),
        ("project", "2 of 2 nodes have a server in the token's project"),
    ] {
        find(&said, check).says("ok", &[part]);
    }
    let bad = |(_, check): &&(String, crate::doctor::world::Check)| check.status == "warn";
    assert!(!said.iter().any(|one| bad(&one)), "{said:?}");
}

#[test]
fn a_refused_login_is_tried_once() {
    for command in ["doctor", "status"] {
        let world = mixed();
        world.sandbox.robot().set_password("another");
        let before = world.sandbox.robot().logins();
        world.runs(&[&[command], &world.flags[..]].concat()).with_code(1).prints("FAIL    robot ");
        one_failed(&world, &before);
    }
}

/// One line names the mode, and no node is reported for it.
#[test]
fn a_missing_login_of_robot_is_one_line() {
    let mut world = mixed();
    world.set("ROBOT_USER", "");
    world.set("ROBOT_PASSWORD", "");
    let logins = world.sandbox.robot().logins();
    let ran = world.doctor(&["-o", "json"]).with_code(0);
    let said = checks(&ran);
    assert_eq!(said.len(), CHECKS + 1);
    // Targets are checked, because no public address is known.
    for (name, check) in said.iter().filter(|(name, _)| name != "services") {
        assert_ne!(check.status, "warn", "{name}: {check:?}");
    }
    let says = "ROBOT_USER and ROBOT_PASSWORD are not set, ";
    find(&said, "robot").says("skipped", &[says]);
    assert_eq!(world.sandbox.robot().logins().good, logins.good);
}

/// There is no line about dedicated servers, and their nodes count as another controller's, as in any
/// cluster without them.
#[test]
fn robot_is_not_checked_while_it_is_turned_off() {
    let mut world = mixed();
    world.set("ROBOT_ENABLED", "false");
    let said = checks(&world.doctor(&["-o", "json"]));
    assert_eq!(said.len(), CHECKS);
    find(&said, "nodes").says("warn", &["only if ROBOT_ENABLED is true"]);
}

/// A person must say which of the servers without a node is the missing one.
#[test]
fn a_node_that_waits_and_servers_without_a_node() {
    let world = mixed();
    let robot = world.sandbox.robot();
    robot.create("spare");
    let part = "2 dedicated servers with a node; without a node: spare (hrobot://";
    world.check("dedicated").says("ok", &[part]);
    world.register("metal-3", None, "");
    let ran = world.doctor(&["-o", "json"]).with_code(1);
    let items = ran.json();
    let of = |check: &str| {
        let items = items["items"].as_array().unwrap().iter();
        let items = items.filter(|one| one["check"] == check);
        items.map(|one| one["object"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("nodes"), [json!("node/metal-3")]);
    assert_eq!(of("dedicated"), [json!("server/spare")]);
    let dedicated = world.check("dedicated");
    dedicated.says("warn", &["no server for these new nodes: metal-3"]);
    let remedy = dedicated.remedy;
    contains(&remedy, "give the server the node's name in Robot");
}

/// The login and the servers of Robot are checked without the cluster and without the Cloud API.
#[test]
fn robot_is_checked_although_another_api_fails() {
    for half in [Half::Kubernetes, Half::Hetzner] {
        let world = mixed();
        world.sandbox.stop(half);
        let robot = world.check("robot");
        assert_eq!(robot.status, "ok", "{half:?}: {robot:?}");
    }
}

/// Nodes on dedicated servers say nothing of the token.
#[test]
fn the_token_of_another_project_is_seen_beside_dedicated_servers() {
    let mut world = mixed();
    let foreign = world.sandbox.projects().foreign_token.clone();
    world.set("HCLOUD_TOKEN", &foreign);
    world.set("HCLOUD_NETWORK", "");
    world.check("project").says("fail", &["has no server of this cluster (2 nodes checked)"]);
}

/// A login that the daemon was refused a minute ago is not repeated, because the Lease remembers it.
#[test]
fn a_login_that_was_refused_lately_is_not_tried_again() {
    let world = mixed();
    let refused = jiff::Timestamp::now().to_string();
    let key = "ccm-from-scratch/robot-login-refused";
    world.edit_lease(|lease| lease["metadata"]["annotations"][key] = json!(refused));
    let before = world.sandbox.robot().logins();
    let ran = world.doctor(&["-o", "json"]).with_code(1);
    let said = checks(&ran);
    find(&said, "robot").says("fail", &["ccm waits with the next login until"]);
    assert_eq!(world.sandbox.robot().logins(), before);
}

/// `ROBOT_ENABLED` is taken from the daemon, but never its login. A login in a Secret is named, so that the person
/// can set it.
#[test]
fn the_login_of_a_shell_is_its_own_and_not_the_daemon_s() {
    let mut world = mixed();
    let cluster = world.sandbox.cluster();
    assert!(cluster.edit("deployments", KUBE_SYSTEM, "ccm-from-scratch", |deployment| {
        let env = &mut deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        let on = json!({"name": "ROBOT_ENABLED", "value": "true"});
        env.as_array_mut().unwrap().push(on);
    }));
    let login = world.env.clone();
    for name in ["ROBOT_ENABLED", "ROBOT_USER", "ROBOT_PASSWORD"] {
        world.set(name, "");
    }
    let state = |world: &World| {
        let listed = ccm(&world.env, &["node", "list"]).with_code(0);
        let row = listed.stdout.lines().find(|row| row.starts_with("metal-1"));
        row.unwrap().split_whitespace().nth(3).unwrap().to_owned()
    };
    assert_eq!(state(&world), "unknown");
    for name in ["ROBOT_USER", "ROBOT_PASSWORD"] {
        world.set(name, variable(&login, name));
    }
    assert_eq!(state(&world), "ready");
}

/// However often the screen is drawn, a refused login is tried once.
#[test]
fn a_screen_that_is_watched_repeats_no_refused_login() {
    let mut world = mixed();
    world.set("ROBOT_PASSWORD", "another");
    // A screen takes a quarter of a second, the cloud is read every 3 s, and the ten minutes are 30 s.
    world.set("CCM_TEST_TIME_SCALE", "0.05");
    let before = world.sandbox.robot().logins();
    let mut command = command(&world.env, &["status", "--watch", "--settings-from=none"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_screen = |line: &std::io::Result<String>| line.as_ref().unwrap().starts_with("LEADER");
    let last = lines.filter(is_screen).nth(16);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(last.is_some());
    one_failed(&world, &before);
}
