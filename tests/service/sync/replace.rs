//! `ccm lb replace`: a new load balancer replaces the one of a Service, and both serve for a while.

use crate::common::{self, Daemon, on, pass, wait_until};
use crate::sync::adoption::ADOPT;
use crate::sync::killed::{Scenario, killed_at_each_write};
use crate::sync::shared::{EDGE, ports};
use crate::sync::world::{Cluster, OFTEN, PROFILES, SERVICE_UID, World, id, len, targets, text};
use sandbox::Sandbox;
use sandbox::faults::Effect;
use sandbox::hetzner::{Health, Machine};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const REPLACE: &str = "ccm-from-scratch/replace";
const REPLACES: &str = "ccm-from-scratch/replaces";
const OVERLAP: &str = "ccm-from-scratch/overlap";
const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// Returns the addresses that the status shows of this load balancer.
fn addresses_of(balancer: &Value) -> Vec<String> {
    ["ipv4", "ipv6"].iter().map(|family| text(&balancer["public_net"][family]["ip"])).collect()
}

/// Lets the health checks of all targets of this load balancer fail, or not any more.
fn set_unhealthy(sandbox: &Sandbox, balancer: u64, fails: bool) {
    for server in sandbox.servers() {
        let health = fails.then(|| Health::unhealthy("layer4_timeout"));
        sandbox.cloud().set_health(balancer, Machine::Server(id(&server)), None, health);
    }
}

impl World {
    fn lb_replace(&self, words: &[&str]) -> String {
        let ran = self.ccm(&[&["lb", "replace", "default/web"], words].concat()).with_code(0);
        ran.stdout + &ran.stderr
    }

    /// Returns the old load balancer, whose ID is given, and the new one.
    fn both(&self, old: u64) -> (Option<Value>, Option<Value>) {
        let (olds, news): (Vec<_>, Vec<_>) =
            self.balancers().into_iter().partition(|balancer| id(balancer) == old);
        assert!(news.len() < 2, "{news:#?}");
        (olds.into_iter().next(), news.into_iter().next())
    }

    /// Whether the status names exactly this load balancer.
    fn names(&self, balancer: &Value) -> bool {
        let shown = self.addresses("web");
        assert!(!shown.is_empty(), "an empty status");
        shown == addresses_of(balancer)
    }

    fn overlap(&self, old: u64) -> String {
        self.both(old).1.map(|new| text(&new["labels"][OVERLAP])).unwrap_or_default()
    }

    /// Makes a Service with a healthy target, and begins the replacement of its load balancer by one in another place.
    fn begun(&self, profile: &str, overlap: &str) -> (Daemon, u64) {
        let daemon = self.daemon(&[OFTEN, profile]);
        self.create("web", &[], &[80, 443]);
        let old = id(&self.up("web"));
        pass(&self.sandbox, MINUTE);
        self.annotate("web", "location", Some("nbg1"));
        self.lb_replace(&[overlap, "--yes", profile]);
        (daemon, old)
    }

    /// Like `begun`, but the targets of the new load balancer stay unhealthy. Returns both IDs.
    fn waiting(&self, overlap: &str) -> (Daemon, u64, u64) {
        let (daemon, old) = self.begun(OURS, overlap);
        self.let_new_be_unhealthy();
        let new = self.until_new_waits(old);
        (daemon, old, new)
    }

    fn until(&self, what: &str, old: u64, holds: impl Fn(Option<&Value>, Option<&Value>) -> bool) {
        let is_so = || {
            let (old, new) = self.both(old);
            let is_named =
                |balancer: &Option<Value>| balancer.as_ref().is_some_and(|one| self.names(one));
            assert!(
                is_named(&old) || is_named(&new),
                "{:?} {old:#?} {new:#?}",
                self.addresses("web")
            );
            holds(old.as_ref(), new.as_ref())
        };
        wait_until(what, is_so);
    }

    /// Waits until the status names the new load balancer, and the overlap has an end.
    fn until_new_serves(&self, old: u64) {
        self.until("the new one serves", old, |_, new| new.is_some_and(|new| self.names(new)));
        wait_until("the end of the overlap", || self.overlap(old).starts_with("serves."));
    }

    /// From now on, the targets of a new load balancer are unhealthy.
    fn let_new_be_unhealthy(&self) {
        let sandbox = Arc::downgrade(&self.sandbox);
        let set = Effect::after(move |_| {
            let sandbox = sandbox.upgrade().unwrap();
            let newest = sandbox.balancers().iter().map(id).max();
            set_unhealthy(&sandbox, newest.unwrap(), true);
        });
        self.fault(on("POST /v1/load_balancers", set).times(1000));
    }

    /// Waits for the new load balancer, whose targets are unhealthy. Returns its ID.
    fn until_new_waits(&self, old: u64) -> u64 {
        self.until("the new one", old, |_, new| new.is_some());
        id(&self.both(old).1.unwrap())
    }

    fn until_only(&self, only: u64) {
        wait_until("only one load balancer", || {
            let all = self.balancers();
            all.len() == 1 && id(&all[0]) == only && all[0]["labels"][REPLACES].is_null()
        });
    }

    fn has_ended_well(&self, name: &str, location: &str) {
        let only = self.only_balancer();
        assert_eq!((&only["name"], &only["location"]["name"]), (&json!(name), &json!(location)));
        let labels = only["labels"].as_object().unwrap();
        assert!(
            [REPLACE, REPLACES, OVERLAP].iter().all(|key| !labels.contains_key(*key)),
            "{labels:?}"
        );
        assert!(self.names(&only));
        self.assert_nothing_refused();
    }
}

#[test]
fn a_service_moves_to_another_location_while_both_load_balancers_serve() {
    for profile in PROFILES {
        let world = World::new(2);
        if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
            return;
        }
        let (_daemon, old) = world.begun(profile, "--overlap=1h");
        let name = text(&world.both(old).0.unwrap()["name"]);
        assert_eq!(world.both(old).0.unwrap()["labels"][REPLACE], "1h");
        world.until("the new one", old, |_, new| new.is_some());
        let new = world.both(old).1.unwrap();
        assert_eq!(new["location"]["name"], "nbg1");
        assert_eq!(new["labels"][REPLACES], json!(old.to_string()));
        assert!(text(&new["name"]).starts_with(&name[..20]) && text(&new["name"]) != name);
        world.until_new_serves(old);
        let (first, second) = world.both(old);
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!((targets(&first), len(&first["services"])), (targets(&second), 2));
        // A change during the overlap reaches both.
        world.edit("web", |one| one["spec"]["ports"][0]["port"] = json!(8080));
        wait_until("the port on both", || {
            world.balancers().iter().all(|one| {
                one["services"].as_array().unwrap().iter().any(|port| port["listen_port"] == 8080)
            })
        });
        pass(&world.sandbox, HOUR - 5 * MINUTE);
        assert_eq!(world.balancers().len(), 2);
        assert!(world.names(&world.both(old).1.unwrap()));
        pass(&world.sandbox, 10 * MINUTE);
        wait_until("the end", || {
            world.balancers().len() == 1 && world.only_balancer()["labels"][REPLACES].is_null()
        });
        world.has_ended_well(&name, "nbg1");
        world.wait_for_event("web", "LoadBalancerChanges", &["instead of"]);
        world.wait_for_event("web", "DeletedLoadBalancer", &[]);
        assert!(!world.has_event("web", "LoadBalancerReplacementWaits"));
    }
}

const OURS: &str = PROFILES[0];

#[test]
fn a_service_moves_to_a_primary_ip_that_nothing_else_has() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    let _daemon = world.daemon(&[OFTEN]);
    world.create("web", &[], &[80]);
    let old = id(&world.up("web"));
    pass(&world.sandbox, MINUTE);
    let (cloud, project) = (world.cloud(), world.project());
    let body = |name: &str| json!({"name": name, "type": "ipv4", "location": "fsn1", "assignee_type": "load_balancer"});
    cloud.create_primary_ip(project, body("fixed"));
    let taken = cloud.create_primary_ip(project, body("taken"));
    world.create("other", &[("public-net-ipv4", "taken")], &[80]);
    world.up("other");

    world.annotate("web", "public-net-ipv4", Some(&taken.to_string()));
    let refused =
        world.ccm(&["lb", "replace", "--overlap=1h", "--yes", "default/web"]).with_code(1);
    refused.prints("already assigned to load balancer");
    // The label has no effect either.
    world.edit_balancer(old, |one| one["labels"][REPLACE] = json!("1h"));
    pass(&world.sandbox, 3 * MINUTE);
    assert_eq!(world.balancers().len(), 2);
    let list = world.ccm(&["lb", "list"]);
    assert!(list.stdout.contains("LoadBalancerReplacementWaits"), "{list:?}");

    world.annotate("web", "public-net-ipv4", Some("fixed"));
    wait_until("the new one", || world.balancers().len() == 3);
    let all = cloud.primary_ips(project);
    let ip = text(&all.iter().find(|one| one["name"] == "fixed").unwrap()["ip"]);
    wait_until("the Primary IP", || world.addresses("web")[0] == ip);
    pass(&world.sandbox, HOUR + 5 * MINUTE);
    wait_until("the end", || world.balancers().len() == 2);
    assert_eq!(world.addresses("web")[0], ip);
    world.assert_nothing_refused();
}

#[test]
fn what_the_command_refuses_is_explained_and_nothing_is_written() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.converge(&[]);
    let id = id(&world.only_balancer());
    let mark = world.mark();
    let run = |words: &[&str], code: i32, says: &str| {
        let ran = world.ccm(&[&["lb", "replace"], words].concat()).with_code(code);
        let all = format!("{}{}", ran.stdout, ran.stderr)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(all.contains(says), "{words:?}: {all}");
    };
    run(&["default/web"], 2, "one of --overlap, --abort and --now");
    run(&["--abort", "--now", "default/web"], 2, "one of --overlap, --abort and --now");
    run(&["--overlap=24h"], 2, "takes one Service");
    run(&["--overlap=31d", "default/web"], 2, "0s to 720h");
    run(&["--overlap=721h", "default/web"], 2, "0s to 720h");
    run(&["--overlap=24h", "default/web"], 2, "add --yes");
    run(&["--abort", "--yes", "default/web"], 1, "is not being replaced");
    run(&["--now", "--yes", "default/web"], 1, "is not being replaced");
    run(&["--overlap=24h", "--dry-run", "default/web"], 0, "still work for 24h");
    run(&["--overlap=24h", "--dry-run", "default/web"], 0, "a month without VAT");
    run(&["--overlap=24h", "--dry-run", "default/web"], 0, "ccm lb replace --abort default/web");
    run(&["--overlap=5m", "--dry-run", "default/web"], 0, "less than ten minutes");
    world.protect(id);
    run(&["--overlap=24h", "--yes", "default/web"], 1, "delete protection");
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
}

#[test]
fn while_the_new_one_is_not_healthy_nothing_moves_and_an_event_says_why() {
    let world = World::new(2);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    let (_daemon, old, new) = world.waiting("--overlap=10m");
    let mark = world.mark();
    pass(&world.sandbox, 9 * MINUTE);
    assert!(!world.has_event("web", "LoadBalancerReplacementWaits"));
    assert!(world.names(&world.both(old).0.unwrap()));
    let refused = world.ccm(&["lb", "replace", "--now", "--yes", "default/web"]).with_code(1);
    refused.prints("does not serve the Service yet");
    for words in [
        ["lb", "release", "--yes", "default/web"],
        ["lb", "inspect", "default/web", "--own-settings"],
    ] {
        let ran = world.ccm(&words);
        assert!(format!("{ran:?}").contains("replace"), "{ran:?}");
    }
    pass(&world.sandbox, 5 * MINUTE);
    world.wait_for_event("web", "LoadBalancerReplacementWaits", &["port 80", "--abort"]);
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    // One of two targets is not enough.
    world.cloud().set_health(new, Machine::Server(world.server_id("worker-1")), None, None);
    pass(&world.sandbox, 3 * MINUTE);
    assert!(world.names(&world.both(old).0.unwrap()));
    set_unhealthy(&world.sandbox, new, false);
    world.until_new_serves(old);
    // After its time, the old one stays while the new one can't take over.
    set_unhealthy(&world.sandbox, new, true);
    pass(&world.sandbox, 30 * MINUTE);
    assert!(world.names(&world.both(old).1.unwrap()));
    assert_eq!(world.balancers().len(), 2);
    set_unhealthy(&world.sandbox, new, false);
    world.until_only(new);
    world.has_ended_well("kubernetes-default-web", "nbg1");
}

#[test]
fn an_abort_leads_back_from_each_state() {
    // The new one was not used yet, so it is deleted at once.
    let world = World::new(1);
    let (_daemon, old, _) = world.waiting("--overlap=1h");
    world.lb_replace(&["--abort", "--yes"]);
    world.until_only(old);
    world.has_ended_well("kubernetes-default-web", "fsn1");
    world.sandbox.faults().clear();

    // The new one serves. The old one takes over only when it is healthy.
    world.lb_replace(&["--overlap=1h", "--yes"]);
    world.until_new_serves(old);
    let new = id(&world.both(old).1.unwrap());
    set_unhealthy(&world.sandbox, old, true);
    world.lb_replace(&["--abort", "--yes"]);
    pass(&world.sandbox, 3 * MINUTE);
    assert!(world.names(&world.both(old).1.unwrap()));
    set_unhealthy(&world.sandbox, old, false);
    world.until("the old one serves", old, |old, _| old.is_some_and(|old| world.names(old)));
    wait_until("the end", || world.overlap(old).starts_with("leaves."));
    pass(&world.sandbox, HOUR - 5 * MINUTE);
    assert_eq!(world.balancers().len(), 2);
    // The person changes their mind once more, and then again.
    world.lb_replace(&["--overlap=1h", "--yes"]);
    world.until_new_serves(old);
    assert_eq!(id(&world.both(old).1.unwrap()), new);
    world.edit_balancer(old, |one| drop(one["labels"].as_object_mut().unwrap().remove(REPLACE)));
    wait_until("the end", || world.overlap(old).starts_with("leaves."));
    world.lb_replace(&["--now", "--yes"]);
    world.until_only(old);
    world.has_ended_well("kubernetes-default-web", "fsn1");
}

#[test]
fn the_overlap_can_be_ended_before_its_time() {
    let world = World::new(1);
    let (_daemon, old) = world.begun(OURS, "--overlap=720h");
    world.until_new_serves(old);
    let new = id(&world.both(old).1.unwrap());
    world.lb_replace(&["--now", "--yes"]);
    world.until_only(new);
    world.has_ended_well("kubernetes-default-web", "nbg1");
    world.ccm(&["lb", "replace", "--abort", "--yes", "default/web"]).with_code(1);
}

#[test]
fn a_failed_creation_never_stops_the_old_one() {
    let world = World::new(1);
    let limit =
        Effect::hetzner_error(403, "resource_limit_exceeded", "load balancer limit exceeded");
    let daemon = world.daemon(&[OFTEN]);
    world.create("web", &[], &[80]);
    let old = id(&world.up("web"));
    pass(&world.sandbox, MINUTE);
    world.fault(on("POST /v1/load_balancers", limit).times(1000));
    world.lb_replace(&["--overlap=1h", "--yes"]);
    world.wait_for_event("web", "SyncLoadBalancerFailed", &["limit exceeded"]);
    world.annotate("web", "algorithm-type", Some("least_connections"));
    wait_until("the algorithm", || {
        world.only_balancer()["algorithm"]["type"] == "least_connections"
    });
    pass(&world.sandbox, 15 * MINUTE);
    world.wait_for_event("web", "LoadBalancerReplacementWaits", &["does not exist yet"]);
    assert_eq!(id(&world.only_balancer()), old);
    world.sandbox.faults().clear();
    pass(&world.sandbox, 6 * MINUTE);
    world.until_new_serves(old);
    drop(daemon);
}

#[test]
fn with_the_service_both_are_removed_in_each_state() {
    for (state, deletes) in
        ["asked", "waits", "serves", "leaves"].iter().flat_map(|one| [(*one, true), (*one, false)])
    {
        let world = World::new(1);
        let (_daemon, old) = world.begun(OURS, "--overlap=1h");
        match state {
            "asked" => {}
            "waits" => {
                world.let_new_be_unhealthy();
                world.until_new_waits(old);
            }
            _ => world.until_new_serves(old),
        }
        if state == "leaves" {
            world.lb_replace(&["--abort", "--yes"]);
            wait_until("the end", || world.overlap(old).starts_with("leaves."));
        }
        if deletes {
            world.delete_and_wait("web");
        } else {
            world.set_type("web", "ClusterIP");
            wait_until("the finalizer", || !world.has_finalizer("web"));
        }
        assert_eq!(world.balancers(), Vec::<Value>::new(), "{state}");
        world.assert_nothing_refused();
    }
}

#[test]
fn a_person_who_deletes_one_of_the_two_decides() {
    let world = World::new(1);
    let (_daemon, old, new) = world.waiting("--overlap=1h");
    let cloud = world.cloud();
    cloud.delete_load_balancer(new);
    wait_until("another new one", || world.both(old).1.is_some());
    assert!(world.names(&world.both(old).0.unwrap()));
    let new = world.until_new_waits(old);
    cloud.delete_load_balancer(old);
    world.until_only(new);
    wait_until("its address", || world.names(&world.only_balancer()));
    world.has_ended_well("kubernetes-default-web", "nbg1");
}

#[test]
fn an_adopted_load_balancer_is_released_at_the_end() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    let adopted =
        world.create_balancer("terraform", &json!({ "labels": { ADOPT: "default.web" } }));
    let _daemon = world.daemon(&[OFTEN]);
    world.create("web", &[], &[80]);
    world.up("web");
    pass(&world.sandbox, MINUTE);
    let plan = world.lb_replace(&["--overlap=10m", "--dry-run"]);
    let plan = plan.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plan.contains("costs money until you delete it"), "{plan}");
    world.lb_replace(&["--overlap=10m", "--yes"]);
    world.until_new_serves(adopted);
    pass(&world.sandbox, 15 * MINUTE);
    wait_until("the release", || world.both(adopted).0.unwrap()["labels"] == json!({}));
    let (released, new) = world.both(adopted);
    let (released, new) = (released.unwrap(), new.unwrap());
    assert_eq!((len(&released["services"]), targets(&released).len()), (0, 0));
    wait_until("its name", || world.balancer("web")["name"] == "kubernetes-default-web");
    assert!(world.names(&new));
    world.assert_nothing_refused();
}

#[test]
fn a_group_moves_together() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    let _daemon = world.daemon(&[OFTEN]);
    for (name, port) in [("web", 80), ("b", 443)] {
        world.create(name, &[EDGE], &[port]);
        wait_until("an address", || world.has_address(name));
    }
    let old = id(&world.only_balancer());
    pass(&world.sandbox, MINUTE);
    for name in ["web", "b"] {
        world.annotate(name, "location", Some("nbg1"));
    }
    world.lb_replace(&["--overlap=1h", "--yes"]);
    world.let_new_be_unhealthy();
    let new = world.until_new_waits(old);
    wait_until("both ports", || len(&world.both(old).1.unwrap()["services"]) == 2);
    let (first, second) = world.both(old);
    assert_eq!(ports(&first.unwrap()), ports(&second.unwrap()));
    // One Service of the group has no healthy target, so none moves.
    set_unhealthy(&world.sandbox, new, false);
    let server = Machine::Server(world.server_id("worker-1"));
    world.cloud().set_health(new, server, Some(443), Some(Health::unhealthy("layer4_timeout")));
    pass(&world.sandbox, 15 * MINUTE);
    world.wait_for_event("web", "LoadBalancerReplacementWaits", &["port 443 of Service default/b"]);
    assert!(world.names(&world.both(old).0.unwrap()));
    world.cloud().set_health(new, server, Some(443), None);
    world.until_new_serves(old);
    assert_eq!(world.addresses("b"), world.addresses("web"));
    // One leaves the group, and another one joins it.
    world.delete_and_wait("b");
    world.create("c", &[EDGE], &[8080]);
    wait_until("an address", || world.has_address("c"));
    wait_until("its port on both", || {
        world.balancers().iter().all(|one| len(&one["services"]) == 2)
    });
    pass(&world.sandbox, HOUR + 5 * MINUTE);
    world.until_only(new);
    assert_eq!(world.addresses("c"), addresses_of(&world.only_balancer()));
    world.assert_nothing_refused();
}

#[test]
fn labels_that_somebody_removes_make_nothing_worse() {
    let world = World::new(1);
    let (_daemon, old) = world.begun(OURS, "--overlap=1h");
    world.until_new_serves(old);
    let new = id(&world.both(old).1.unwrap());
    // Without the label `overlap`, the status keeps its addresses, and the label comes back.
    world.edit_balancer(new, |one| drop(one["labels"].as_object_mut().unwrap().remove(OVERLAP)));
    for _ in 0..20 {
        pass(&world.sandbox, Duration::from_secs(15));
        assert!(world.names(&world.both(old).1.unwrap()));
    }
    assert!(world.overlap(old).starts_with("serves."));
    // All labels of the old one are gone: it gets those of its owner again, and the replacement is aborted.
    world.edit_balancer(old, |one| one["labels"] = json!({}));
    wait_until("the labels", || !world.both(old).0.unwrap()["labels"][SERVICE_UID].is_null());
    wait_until("the end", || world.overlap(old).starts_with("leaves."));
    assert!(world.names(&world.both(old).0.unwrap()));
    // With an unknown value, nothing is done.
    world.edit_balancer(new, |one| one["labels"][OVERLAP] = json!("soon"));
    pass(&world.sandbox, 3 * MINUTE);
    let mark = world.mark();
    pass(&world.sandbox, 2 * HOUR);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    assert!(world.names(&world.both(old).0.unwrap()));
}

fn is_replaced(world: &World) -> bool {
    let all = world.balancers();
    all.len() == 1
        && all[0]["location"]["name"] == "nbg1"
        && all[0]["name"] == "kubernetes-default-web"
        && [REPLACE, REPLACES, OVERLAP].iter().all(|key| all[0]["labels"][key].is_null())
        && world.addresses("web") == addresses_of(&all[0])
}

#[test]
fn a_kill_at_any_write_leads_to_the_same_end() {
    killed_at_each_write(Scenario {
        before: |world| drop(world.create("web", &[], &[80])),
        change: |world| {
            world.annotate("web", "location", Some("nbg1"));
            world.lb_replace(&["--overlap=0s", "--yes"]);
        },
        is_done: is_replaced,
    });
}

#[test]
fn a_service_that_shares_a_load_balancer_meanwhile_leaves_both() {
    for serves in [false, true] {
        let world = World::new(1);
        let (_daemon, old) = world.begun(OURS, "--overlap=1h");
        if serves {
            world.until_new_serves(old);
        } else {
            world.let_new_be_unhealthy();
            world.until_new_waits(old);
        }
        world.sandbox.faults().clear();
        world.annotate("web", "share", Some("edge"));
        wait_until("only the shared one", || {
            let all = world.balancers();
            all.len() == 1 && all[0]["labels"]["ccm-from-scratch/group"] == "default.edge"
        });
        assert!(world.names(&world.only_balancer()));
        assert!(world.only_balancer()["labels"][REPLACES].is_null());
        world.assert_nothing_refused();
    }
}

#[test]
fn the_private_address_of_the_old_one_is_no_address_for_the_new_one() {
    let mut world = World::with_network(1);
    let network = world.network_id().to_string();
    world.set(&[("HCLOUD_NETWORK", &network), ("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "true")]);
    world.create("web", &[("private-ipv4", "10.0.0.77")], &[80]);
    world.converge(&[]);
    let words = ["lb", "replace", "--overlap=1h", "--yes", "default/web"];
    world.ccm(&words).with_code(1).prints("10.0.0.77 is the private IP");
    world.annotate("web", "private-ipv4", None);
    world.ccm(&words).with_code(0);
    let old = id(&world.only_balancer());
    let _daemon = world.daemon(&[OFTEN]);
    wait_until("the new one", || world.both(old).1.is_some());
    wait_until("the new one serves", || world.overlap(old).starts_with("serves."));
    let shown = world.addresses("web");
    let new = world.both(old).1.unwrap();
    assert_eq!(shown.last(), Some(&text(&new["private_net"][0]["ip"])));
}
