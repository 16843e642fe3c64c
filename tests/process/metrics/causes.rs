//! Events in a daemon's life, each with the metrics that move because of it.

use crate::common::{Cluster, env, run_in_parallel, wait_until};
use crate::metrics::{Scrape, Watched, family};
use ccm::metrics::TABLE;
use sandbox::credentials::Validity;
use sandbox::faults::{Effect, Rule};
use sandbox::kubelet::{CertificateAsk, NodeSpec};
use sandbox::{Half, Sandbox};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// How a series changes.
pub enum Move {
    Grows,
    Is(f64),
    /// Less than before.
    Falls,
    /// The series is seen above zero.
    Rises,
}
use Move::{Falls, Grows, Is, Rises};

pub type Cause = fn(&Sandbox);
pub type Step = (&'static str, Cause, &'static [(&'static str, Move)]);

pub fn node(sandbox: &Sandbox, name: &str, provider_id: Option<&str>) {
    sandbox.register_node(NodeSpec {
        name: name.into(),
        provider_id: provider_id.map(str::to_owned),
        ..NodeSpec::default()
    });
}

pub fn fails(sandbox: &Sandbox, half: Half, method: &str, path: &str, effect: Effect) {
    let rule = Rule::new(effect).half(half).method(method).path(path);
    sandbox.fault(rule);
}

/// Creates a Service that shows a certificate on its port 443.
pub fn shows_certificate(sandbox: &Sandbox, validity: Validity) {
    let one = sandbox.authority().server(&["a.example"], validity).unwrap();
    sandbox.create_certificate(
        json!({"name": "one", "certificate": one.certificate_pem, "private_key": one.key_pem}),
    );
    let shows = [("protocol", "https"), ("http-certificates", "one"), ("location", "fsn1")];
    sandbox.create("tls", &shows, &[443]);
    wait_until("its address", || sandbox.has_address("tls"));
}

/// Returns the sequences of steps, each for a daemon of its own. Robot is called seldom, so each of its steps is a
/// sequence of its own, and all of them wait at the same time.
pub fn sequences() -> Vec<&'static [Step]> {
    let mut sequences = vec![STEPS];
    sequences.extend(ROBOT.chunks(1));
    sequences
}

/// The steps, each with an event and the series that move. `HOST` stands for the address of the API server.
#[rustfmt::skip] // A series is a line.
const STEPS: &[Step] = &[
    ("the daemon starts with three new nodes, one of them dedicated", |_| {}, &[
        ("ccm_build_info{version=\"0.1.0\",profile=\"ccm-from-scratch\"}", Is(1.0)),
        ("ccm_leader", Is(1.0)),
        ("leader_election_master_status{name=\"cloud-controller-manager\"}", Is(1.0)),
        ("process_start_time_seconds", Rises),
        ("process_resident_memory_bytes", Rises),
        ("process_cpu_seconds_total", Rises),
        ("ccm_nodes{state=\"ready\"}", Is(3.0)),
        ("ccm_ticks_total{controller=\"cloud-node-controller\",result=\"ok\"}", Grows),
        ("ccm_tick_duration_seconds_count{controller=\"cloud-node-lifecycle-controller\"}", Grows),
        ("ccm_tick_duration_seconds_bucket{controller=\"service-lb-controller\",le=\"+Inf\"}", Grows),
        ("ccm_changes_total{controller=\"cloud-node-controller\",kind=\"initialise\",result=\"ok\"}", Is(3.0)),
        ("ccm_changes_total{controller=\"cloud-node-controller\",kind=\"set_addresses\",result=\"ok\"}", Is(3.0)),
        ("ccm_findings_total{controller=\"cloud-node-controller\",reason=\"Synced\"}", Is(3.0)),
        ("ccm_events_total{result=\"written\"}", Rises),
        ("node_controller_initial_node_sync_delay_seconds_count", Is(3.0)),
        ("node_controller_initial_node_sync_delay_seconds_bucket{le=\"1024\"}", Is(3.0)),
        ("node_controller_cloud_provider_taint_removal_delay_seconds_count", Is(3.0)),
        ("ccm_kubernetes_requests_total{method=\"get\",resource=\"nodes\",code=\"200\"}", Grows),
        ("rest_client_requests_total{code=\"200\",method=\"GET\",host=\"HOST\"}", Grows),
        // Beside three addresses the conditions of two nodes are patched, sooner or later.
        ("ccm_kubernetes_requests_total{method=\"patch\",resource=\"nodes/status\",code=\"200\"}", Rises),
        ("ccm_kubernetes_requests_total{method=\"put\",resource=\"leases\",code=\"200\"}", Grows),
        ("hcloud_api_requests_total{method=\"get\",api_endpoint=\"/servers\",code=\"200\"}", Rises),
        ("hcloud_api_request_duration_seconds_count{method=\"get\"}", Rises),
        ("hcloud_api_request_duration_seconds_bucket{method=\"get\",le=\"10\"}", Rises),
        ("hcloud_api_in_flight_requests", Is(0.0)),
        ("ccm_hcloud_rate_limit", Is(3600.0)),
        ("ccm_hcloud_rate_limit_remaining", Rises),
        ("robot_api_requests_total{method=\"get\",api_endpoint=\"/server\",code=\"200\"}", Rises),
        ("robot_api_request_duration_seconds_count{method=\"get\"}", Rises),
        ("ccm_robot_budget_remaining{endpoint=\"server\"}", Rises),
        ("ccm_robot_blocked_until_timestamp_seconds{reason=\"login\"}", Is(0.0)),
        ("ccm_routes{state=\"ok\"}", Is(2.0)),
        ("route_controller_route_sync_total{outcome=\"changed\",trigger=\"node_change\"}", Rises),
        ("route_controller_route_sync_total{outcome=\"noop\",trigger=\"periodic\"}", Rises),
        ("ccm_changes_total{controller=\"node-route-controller\",kind=\"AddRoute\",result=\"ok\"}", Is(2.0)),
        ("ccm_changes_total{controller=\"node-route-controller\",kind=\"condition\",result=\"ok\"}", Is(2.0)),
    ]),
    ("two kubelets ask for certificates", |sandbox| {
        for (node, name) in [("worker-1", "worker-1"), ("worker-2", "kubernetes")] {
            CertificateAsk::of(node, &[name]).create(sandbox.cluster());
        }
    }, &[
        ("ccm_kubelet_certificate_requests{state=\"approved\"}", Is(1.0)),
        ("ccm_kubelet_certificate_requests{state=\"unproven\"}", Is(1.0)),
        ("ccm_kubelet_certificate_requests{state=\"pending\"}", Is(0.0)),
        ("ccm_changes_total{controller=\"node-csr-approval\",kind=\"approve_certificate\",result=\"ok\"}", Is(1.0)),
        ("ccm_findings_total{controller=\"node-csr-approval\",reason=\"KubeletCertificateNotProven\"}", Rises),
    ]),
    ("a Service gets its load balancer", |sandbox| {
        sandbox.create("web", &[("location", "fsn1")], &[80]);
    }, &[
        ("ccm_load_balancers{state=\"managed\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"add_finalizer\",result=\"ok\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"create\",result=\"ok\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"set_status\",result=\"ok\"}", Is(1.0)),
        ("hcloud_api_requests_total{method=\"post\",api_endpoint=\"/load_balancers\",code=\"201\"}", Is(1.0)),
        ("hcloud_api_request_duration_seconds_count{method=\"post\"}", Rises),
        ("ccm_hcloud_rate_limit_remaining", Falls),
    ]),
    ("a Service shows a certificate", |sandbox| shows_certificate(sandbox, Validity::Now), &[
        ("ccm_certificate_expiry_timestamp_seconds", Rises),
    ]),
    ("a load balancer has much traffic", |sandbox| {
        let id = sandbox.balancer_id("web");
        sandbox.edit_balancer(id, |one| {
            one["outgoing_traffic"] = json!(one["included_traffic"].as_u64().unwrap() / 10 * 9);
        });
    }, &[
        ("ccm_load_balancers_traffic_ratio", Rises),
    ]),
    ("a node is drained", |sandbox| {
        sandbox.annotate("web", "departing-delay", Some("0s"));
        sandbox.cluster().set_cordoned("worker-2", true);
        sandbox.cluster().set_condition("worker-2", "DrainInProgress", "True");
    }, &[
        ("ccm_targets_left_out{reason=\"departing\"}", Is(1.0)),
    ]),
    ("a server is turned off", |sandbox| {
        sandbox.set_power("worker-1", false);
        sandbox.kubelets().expire();
    }, &[
        ("ccm_nodes{state=\"shutdown\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"cloud-node-lifecycle-controller\",kind=\"add_shutdown_taint\",result=\"ok\"}", Is(1.0)),
        ("ccm_ticks_total{controller=\"cloud-node-lifecycle-controller\",result=\"ok\"}", Grows),
    ]),
    ("a person takes the node of this server out of service", |sandbox| {
        sandbox.edit_node("worker-1", |node| {
            let taint = json!({ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" });
            node["spec"]["taints"].as_array_mut().unwrap().push(taint);
        });
    }, &[
        ("ccm_nodes{state=\"out_of_service\"}", Is(1.0)),
        ("ccm_nodes{state=\"shutdown\"}", Is(0.0)),
    ]),
    ("a server is deleted", |sandbox| {
        sandbox.delete_server("worker-2");
        sandbox.kubelets().expire();
    }, &[
        ("ccm_changes_total{controller=\"cloud-node-lifecycle-controller\",kind=\"delete_node\",result=\"ok\"}", Is(1.0)),
        ("ccm_kubernetes_requests_total{method=\"delete\",resource=\"nodes\",code=\"200\"}", Is(1.0)),
        ("ccm_findings_total{controller=\"cloud-node-lifecycle-controller\",reason=\"DeletingNode\"}", Is(1.0)),
        ("ccm_routes{state=\"ok\"}", Is(1.0)),
    ]),
    ("a node joins that no server belongs to", |sandbox| node(sandbox, "stray", None), &[
        ("ccm_nodes{state=\"unmatched\"}", Is(1.0)),
        ("ccm_ticks_total{controller=\"cloud-node-controller\",result=\"failed\"}", Grows),
        ("ccm_findings_total{controller=\"cloud-node-controller\",reason=\"ServerNotFound\"}", Rises),
    ]),
    ("a node of another cloud joins", |sandbox| node(sandbox, "cuckoo", Some("aws:///i-7")), &[
        ("ccm_nodes{state=\"foreign\"}", Is(1.0)),
        ("ccm_findings_total{controller=\"cloud-node-controller\",reason=\"UnknownProviderIDPrefix\"}", Rises),
    ]),
    ("a Service goes without its load balancer", |sandbox| {
        sandbox.create("lost", &[("location", "fsn1")], &[80]);
        wait_until("an address", || sandbox.has_address("lost"));
        sandbox.remove_finalizers("lost");
        sandbox.delete("lost");
    }, &[
        ("ccm_load_balancers{state=\"orphaned\"}", Is(1.0)),
        ("ccm_load_balancers_health{state=\"none\"}", Rises),
        ("ccm_load_balancers_use{use=\"own\"}", Is(2.0)),
        ("ccm_load_balancers_health_timestamp_seconds", Rises),
        ("ccm_findings_total{controller=\"service-lb-controller\",reason=\"OrphanedLoadBalancer\"}", Rises),
    ]),
    ("a load balancer is refused", |sandbox| {
        fails(sandbox, Half::Hetzner, "POST", "/v1/load_balancers", Effect::hetzner_error(403, "forbidden", "no"));
        sandbox.create("api", &[("location", "fsn1")], &[80]);
    }, &[
        ("ccm_load_balancers{state=\"pending\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"create\",result=\"failed\"}", Rises),
        ("ccm_planned_changes{controller=\"service-lb-controller\"}", Rises),
        ("ccm_findings_total{controller=\"service-lb-controller\",reason=\"SyncLoadBalancerFailed\"}", Rises),
        ("hcloud_api_requests_total{method=\"post\",api_endpoint=\"/load_balancers\",code=\"403\"}", Rises),
    ]),
    ("it is not wanted any more, and can't go", |sandbox| {
        fails(sandbox, Half::Hetzner, "DELETE", "/v1/load_balancers/*", Effect::hetzner_error(423, "locked", "busy"));
        sandbox.delete("web");
    }, &[
        ("ccm_load_balancers{state=\"leaving\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"delete\",result=\"conflict\"}", Rises),
        ("hcloud_api_requests_total{method=\"delete\",api_endpoint=\"/load_balancers/-\",code=\"423\"}", Rises),
    ]),
    ("an answer is waited for", |sandbox| {
        fails(sandbox, Half::Hetzner, "GET", "/v1/**", Effect::Slow(Duration::from_millis(500)));
    }, &[
        ("hcloud_api_in_flight_requests", Rises),
    ]),
    ("the cloud is away", |sandbox| sandbox.stop(Half::Hetzner), &[
        ("ccm_unanswered_requests_total{api=\"hcloud\",reason=\"unreachable\"}", Grows),
        ("route_controller_route_sync_total{outcome=\"error\",trigger=\"periodic\"}", Rises),
        ("ccm_ticks_total{controller=\"service-lb-controller\",result=\"outage\"}", Grows),
    ]),
];

/// The chapters of Robot.
#[rustfmt::skip] // A series is a line.
const ROBOT: &[Step] = &[
    ("Robot takes no more calls", |sandbox| {
        sandbox.fault(Rule::new(Effect::robot_rate_limit(200, 60)).half(Half::Robot));
    }, &[
        ("robot_api_requests_total{method=\"get\",api_endpoint=\"/server\",code=\"403\"}", Rises),
        ("ccm_robot_blocked_until_timestamp_seconds{reason=\"rate_limit\"}", Rises),
    ]),
    ("Robot is away", |sandbox| sandbox.stop(Half::Robot), &[
        ("ccm_unanswered_requests_total{api=\"robot\",reason=\"unreachable\"}", Rises),
    ]),
    ("Robot's password is another one", |sandbox| sandbox.robot().set_password("of-another-day"), &[
        ("robot_api_requests_total{method=\"get\",api_endpoint=\"/server\",code=\"401\"}", Is(1.0)),
        ("ccm_robot_blocked_until_timestamp_seconds{reason=\"login\"}", Rises),
    ]),
];

#[test]
fn every_metric_moves_when_its_cause_happens() {
    run_in_parallel(sequences(), happens);
    let moves = sequences().into_iter().flatten();
    let told: BTreeSet<&str> =
        moves.flat_map(|(_, _, moves)| moves.iter().map(|(series, _)| family(series))).collect();
    let all: BTreeSet<&str> = TABLE.iter().map(|metric| metric.name).collect();
    assert_eq!(told, all, "the sequences have to tell of every metric");
}

fn happens(sequence: &[Step]) {
    let builder = crate::common::builder().nodes(2).robot(1).heartbeats(false);
    let sandbox = builder.network("10.0.0.0/8").scale(0.1).start();
    let role = include_str!("../../../manifests/components/kubelet-certificates/role.yaml");
    let role = crate::common::documents(role).remove(0);
    let rules = serde_json::from_value(role["rules"].clone()).unwrap();
    sandbox.cluster().grant("ccm", rules);
    // The address of the node would be a healthy target.
    sandbox.edit_node("metal-1", |node| {
        node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] =
            "".into();
    });
    let resync = "--load-balancer-resync-period=20s";
    let pods = "--cluster-cidr=10.244.0.0/16";
    let certificates = "--controllers=*,node-csr-approval";
    let watched = Watched::start(&env(&sandbox), &[resync, pods, certificates]);
    sandbox.wait_for_nodes();
    let host = sandbox.address(Half::Kubernetes).to_string();
    for (step, cause, moves) in sequence {
        let before = watched.scrape();
        cause(&sandbox);
        for (series, how) in *moves {
            let series = &series.replace("HOST", &host);
            let was = before.get(series).copied();
            let mut now = None;
            wait_until(&format!("{series}, when {step} (was {was:?})"), || {
                now = watched.scrape().get(series).copied();
                match (how, was, now) {
                    (Is(value), _, now) => now == Some(*value),
                    (Grows | Rises, _, None) | (Falls, None, _) | (Falls, _, None) => false,
                    (Grows, was, Some(now)) => now > was.unwrap_or(0.0),
                    (Falls, Some(was), Some(now)) => now < was,
                    (Rises, _, Some(now)) => now > 0.0,
                }
            });
        }
    }
    no_name_of_an_object(&watched.scrape());
    drop(watched.daemon);
}

/// Labels contain only our own words and templates, so that a cluster of thousands of nodes has as many series
/// as this one.
fn no_name_of_an_object(scrape: &Scrape) {
    for series in scrape.keys() {
        for name in ["worker", "stray", "cuckoo", "web", "default"] {
            assert!(!series.contains(name), "{series}");
        }
        let labels = series.split('{').nth(1).unwrap_or_default();
        // The last label of a bucket is its bound.
        let labels = labels.split("le=").next().unwrap_or_default();
        let is_id = |part: &str| part.len() > 3 && part.bytes().all(|b| b.is_ascii_digit());
        assert!(!labels.split(['"', '/']).any(is_id), "a number of an object in {series}");
    }
    assert!(scrape.len() < 400, "{} series", scrape.len());
}
