//! What somebody changes in the cloud's console is shown and restored.

use crate::common::{self, on, wait_until};
use crate::sync::world::{Cluster, HCLOUD, OFTEN, PROFILES, World, id, len, targets};
use serde_json::{Value, json};

/// In which profile a field is wanted that nobody has set: in both, only in ours, or in none.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    Always,
    ByOurs,
    Never,
}
use Wanted::{Always, ByOurs, Never};

type Edit = fn(&mut Value);

#[rustfmt::skip] // A case is a line.
const CASES: &[(&str, Wanted, Edit)] = &[
    ("name", Always, |one| one["name"] = json!("by-hand")),
    ("type", Always, |one| one["load_balancer_type"] = lb21()),
    ("reverse DNS", Always, |one| one["public_net"]["ipv4"]["dns_ptr"] = json!("by.hand.example")),
    ("our labels", ByOurs, |one| { one["labels"].as_object_mut().unwrap().remove("ccm-from-scratch/cluster"); }),
    ("algorithm", ByOurs, |one| one["algorithm"]["type"] = json!("least_connections")),
    ("destination port", Always, |one| one["services"][0]["destination_port"] = json!(4444)),
    ("protocol", Always, |one| {
        one["services"][0]["protocol"] = json!("http");
        one["services"][0]["http"] = json!({"cookie_name": "HCLBSTICKY", "cookie_lifetime": 300, "sticky_sessions": false,
            "redirect_http": false, "certificates": []});
    }),
    ("proxy protocol", ByOurs, |one| one["services"][0]["proxyprotocol"] = json!(true)),
    ("health check port", Always, |one| one["services"][0]["health_check"]["port"] = json!(4444)),
    ("health check interval", ByOurs, |one| one["services"][0]["health_check"]["interval"] = json!(30)),
    ("health check timeout", ByOurs, |one| one["services"][0]["health_check"]["timeout"] = json!(3)),
    ("health check retries", ByOurs, |one| one["services"][0]["health_check"]["retries"] = json!(5)),
    ("a port less", Always, |one| { one["services"].as_array_mut().unwrap().pop(); }),
    ("a port more", Always, |one| {
        let mut more = one["services"][0].clone();
        more["listen_port"] = json!(9999);
        one["services"].as_array_mut().unwrap().push(more);
    }),
    ("a target less", Always, |one| { one["targets"].as_array_mut().unwrap().pop(); }),
    ("no target", Always, |one| one["targets"] = json!([])),
    ("public interface", Never, |one| one["public_net"]["enabled"] = json!(false)),
    ("deletion protection", Never, |one| one["protection"]["delete"] = json!(true)),
    ("a label of theirs", Never, |one| one["labels"]["team"] = json!("a")),
];

/// Changes of an https port with a certificate, in a private Network.
#[rustfmt::skip] // A case is a line.
const HTTPS_CASES: &[(&str, Wanted, ManualChange)] = &[
    ("cookie name", ByOurs, ManualChange::Field("http", "cookie_name", |_| json!("OTHER"))),
    ("cookie lifetime", ByOurs, ManualChange::Field("http", "cookie_lifetime", |_| json!(60))),
    ("sticky sessions", ByOurs, ManualChange::Field("http", "sticky_sessions", |_| json!(true))),
    ("redirect", ByOurs, ManualChange::Field("http", "redirect_http", |_| json!(true))),
    ("idle timeout", Never, ManualChange::Field("http", "timeout_idle", |_| json!(120))),
    ("certificates", Always, ManualChange::Field("http", "certificates", |ids| json!([ids.other]))),
    ("check over TLS", Always, ManualChange::Field("check", "tls", |_| json!(true))),
    ("check domain", ByOurs, ManualChange::Field("check", "domain", |_| json!("by.hand.example"))),
    ("check path", ByOurs, ManualChange::Field("check", "path", |_| json!("/by-hand"))),
    ("check response", ByOurs, ManualChange::Field("check", "response", |_| json!("by hand"))),
    ("check status codes", ByOurs, ManualChange::Field("check", "status_codes", |_| json!(["418"]))),
    ("no Network", Always, ManualChange::Actions(&[
        ("detach_from_network", |ids| json!({"network": ids.network})),
    ])),
    ("another private address", Always, ManualChange::Actions(&[
        ("detach_from_network", |ids| json!({"network": ids.network})),
        ("attach_to_network", |ids| json!({"network": ids.network, "ip": "10.0.0.99"})),
    ])),
    // The target is somebody's own, whatever servers have the label.
    ("a label selector", Never, ManualChange::Actions(&[
        ("add_target", |_| json!({"type": "label_selector", "label_selector": {"selector": "team=a"}})),
    ])),
];

/// The value of a field, or what an action is asked for.
type Says = fn(&Ids) -> Value;

/// A change that somebody makes: a field of the port or of its health check, or actions of the API.
#[derive(Clone, Copy)]
enum ManualChange {
    Field(&'static str, &'static str, Says),
    Actions(&'static [(&'static str, Says)]),
}

/// The objects that a case may name.
struct Ids {
    network: u64,
    /// A certificate that the Service does not name.
    other: u64,
}

impl ManualChange {
    fn apply(self, world: &World, id: u64, ids: &Ids) {
        let cloud = world.cloud();
        match self {
            ManualChange::Field(part, field, value) => world.edit_balancer(id, |one| {
                let service = &mut one["services"][0];
                let part = match part {
                    "http" => &mut service["http"],
                    _ => &mut service["health_check"]["http"],
                };
                part[field] = value(ids);
            }),
            ManualChange::Actions(actions) => {
                for (action, body) in actions {
                    let before = shape(&cloud.load_balancer(id));
                    world.post(&format!("/load_balancers/{id}/actions/{action}"), &body(ids));
                    wait_until(action, || shape(&cloud.load_balancer(id)) != before);
                }
            }
        }
    }
}

/// Returns a load balancer type as the API shows it.
fn lb21() -> Value {
    json!({"id": 2, "name": "lb21", "description": "LB21", "max_connections": 20000, "max_services": 15,
        "max_targets": 75, "max_assigned_certificates": 25, "deprecated": null, "prices": []})
}

/// Returns what counts of a load balancer, in a fixed order. The health of targets and the traffic do not count.
fn shape(balancer: &Value) -> Value {
    let mut shape = balancer.clone();
    for traffic in ["included_traffic", "ingoing_traffic", "outgoing_traffic"] {
        shape[traffic].take();
    }
    let all = balancer["targets"].as_array().unwrap().iter();
    let selectors = all.map(|target| target["label_selector"].clone());
    shape["selectors"] = selectors.filter(Value::is_object).collect();
    shape["load_balancer_type"] = balancer["load_balancer_type"]["name"].clone();
    if let Some(services) = shape["services"].as_array_mut() {
        services.sort_by_key(|service| service["listen_port"].as_u64());
    }
    let mut targets = targets(balancer);
    targets.sort_unstable();
    shape["targets"] = json!(targets);
    shape
}

fn with_service(profile: &str) -> (World, u64) {
    let world = World::new(2);
    world.converge(&[profile]);
    let annotations = [("name", "front"), ("ipv4-rdns", "front.example")];
    world.create("web", &annotations, &[80, 443]);
    world.converge(&[profile]);
    let id = id(&world.only_balancer());
    (world, id)
}

fn comes_back(
    world: &World,
    id: u64,
    right: &Value,
    profile: &str,
    (field, wanted): (&str, Wanted),
    edit: impl FnOnce(),
) {
    let cloud = world.cloud();
    let about = format!("{field}, {profile}");
    edit();
    let edited = shape(&cloud.load_balancer(id));
    assert_ne!(edited, shape(right), "{about}");
    let comes_back = wanted == Always || (wanted == ByOurs && profile != HCLOUD);
    let inspection = world.inspect("web", &[profile]);
    let changes = inspection["changes"].as_array().unwrap().iter();
    let cloud_changes = changes.filter(|change| change.get("loadBalancer").is_some());
    let planned = cloud_changes.count() + len(&inspection["heldBack"]);
    for shown in [planned, len(&inspection["differences"])] {
        assert_eq!(shown > 0, comes_back, "{about}: {inspection:#}");
    }
    let sync = world.ccm(&["lb", "sync", "default/web", profile]);
    assert_eq!(sync.code, 0, "{about}: {sync:?}");
    let after = shape(&cloud.load_balancer(id));
    let expected = if comes_back { shape(right) } else { edited };
    assert_eq!(after, expected, "{about}");
    world.edit_balancer(id, |one| *one = right.clone());
}

#[test]
fn fields_of_an_https_port_and_the_network_that_were_changed_by_hand_are_restored() {
    common::run_in_parallel(PROFILES.to_vec(), |profile| {
        let world = World::with_network(2);
        world.converge(&[profile]);
        let certificate = |name: &str| {
            let body = json!({"name": name, "type": "managed", "domain_names": ["a.example"]});
            world.create_certificate(body)
        };
        certificate("site");
        let ids = Ids { network: world.network_id(), other: certificate("other") };
        let annotations = [
            ("protocol", "https"),
            ("http-certificates", "site"),
            ("health-check-protocol", "http"),
            ("private-ipv4", "10.0.0.77"),
        ];
        world.create("web", &annotations, &[443]);
        world.converge(&[profile]);
        let right = world.only_balancer();
        let id = id(&right);
        assert_eq!(right["private_net"][0]["ip"], "10.0.0.77");
        for (field, wanted, manual_change) in HTTPS_CASES {
            let edit = || manual_change.apply(&world, id, &ids);
            comes_back(&world, id, &right, profile, (field, *wanted), edit);
        }
    });
}

#[test]
fn every_field_that_was_changed_by_hand_is_shown_and_restored() {
    common::run_in_parallel(PROFILES.to_vec(), |profile| {
        let (world, id) = with_service(profile);
        let cloud = world.cloud();
        let right = cloud.load_balancer(id);
        for (field, wanted, edit) in CASES {
            let edit = || world.edit_balancer(id, edit);
            comes_back(&world, id, &right, profile, (field, *wanted), edit);
        }
    });
}

#[test]
fn all_changes_by_hand_are_restored_at_the_next_resync() {
    common::run_in_parallel(PROFILES.to_vec(), |profile| {
        let (world, id) = with_service(profile);
        let cloud = world.cloud();
        let right = cloud.load_balancer(id);
        let daemon = world.daemon(&[profile, OFTEN]);
        world.ticks(2);
        let mark = world.mark();
        let edits = || CASES.iter().filter(|(_, wanted, _)| *wanted == Always);
        world.edit_balancer(id, |one| edits().for_each(|(_, _, edit)| edit(one)));
        assert_ne!(shape(&cloud.load_balancer(id)), shape(&right));
        wait_until("all as it was", || shape(&cloud.load_balancer(id)) == shape(&right));
        let writes = world.cloud_writes(mark);
        world.ticks(6);
        // After that there are no more writes.
        assert_eq!(world.cloud_writes(mark), writes, "{}", daemon.log());
    });
}

/// This happens when `lb adopt` and the daemon change one load balancer at the same time.
#[test]
fn a_port_that_somebody_else_added_meanwhile_is_no_failure() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.converge(&[]);
    let id = id(&world.only_balancer());
    let added = common::before(&world.sandbox, move |world| {
        world.edit_balancer(id, |one| {
            let mut port = one["services"][0].clone();
            port["listen_port"] = json!(81);
            one["services"].as_array_mut().unwrap().push(port);
        });
    });
    let faster = on("POST /v1/load_balancers/*/actions/add_service", added);
    world.faults().add(faster.times(1));
    world.edit("web", |service| {
        let mut port = service["spec"]["ports"][0].clone();
        (port["name"], port["port"]) = (json!("p81"), json!(81));
        port["nodePort"] = json!(31_081);
        service["spec"]["ports"].as_array_mut().unwrap().push(port);
    });
    world.ccm(&["lb", "sync"]).with_code(0);
    let services = &world.only_balancer()["services"];
    assert_eq!(services[1]["destination_port"], 31_081, "{services}");
    assert_eq!(world.event_messages("web", "SyncLoadBalancerFailed"), [""; 0]);
}
