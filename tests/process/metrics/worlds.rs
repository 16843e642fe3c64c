//! Worlds in which what an alert is for has happened, and which alerts fire there.

use crate::common::{Cluster, SCALE, builder, networked, socket_cluster, wait_until, with};
use crate::metrics::Watched;
use crate::metrics::causes::{fails, node, shows_certificate};
use crate::metrics::recording::Recording;
use sandbox::credentials::Validity;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::{Health, Machine};
use sandbox::kubelet::NodeSpec;
use sandbox::{Half, Sandbox};
use serde_json::json;
use std::time::Duration;

/// The panels by row and title, and the labels whose values change after the cause.
pub type Moves = &'static [(&'static str, &'static [(&'static str, &'static str)])];

pub struct World {
    pub name: &'static str,
    pub recording: fn() -> Recording,
    /// The alerts that must fire.
    pub fires: &'static [&'static str],
    /// The alerts that may fire, because they have the same cause. No other alert may fire.
    pub may: &'static [&'static str],
    pub moves: Moves,
}

/// A few frames of peace, then the cause, then what comes of it.
const BEFORE: usize = 4;
/// A number of scrapes of which ten minutes are repeated. That is twice the longest backoff after a failure.
const LONG: usize = 30;
/// The number of scrapes where a call is made with every tick.
const SOME: usize = 15;
const SHORT: usize = 4;

const RESYNC: &str = "--load-balancer-resync-period=20s";

fn is(recording: &Recording, series: &str, wanted: f64) {
    wait_until(series, || recording.watched[0].1.scrape().get(series) == Some(&wanted));
}

fn with_robot() -> Sandbox {
    let builder = builder().nodes(1).robot(1).heartbeats(false);
    builder.scale(SCALE.parse().unwrap()).start()
}

/// A film up to its cause.
fn until_cause(sandbox: sandbox::Sandbox, flags: &[&str]) -> Recording {
    let mut recording = Recording::of(sandbox, flags);
    recording.record(BEFORE);
    recording.cause();
    recording
}

#[rustfmt::skip] // An alert or a panel is a line.
pub const WORLDS: &[World] = &[
    // The duration of a call is not scaled, and must be longer than the buckets below. So the time-outs
    // are longer, too.
    World { name: "both are slow", recording: || {
        let sandbox = socket_cluster(2);
        let env = crate::common::at_scale(&sandbox, 0.5);
        let mut recording = Recording::with(sandbox, env, &[]);
        recording.pace = Duration::from_secs(3);
        recording.record(1);
        recording.cause();
        fails(&recording.sandbox, Half::Hetzner, "GET", "/v1/**", Effect::Slow(Duration::from_millis(5_500)));
        fails(&recording.sandbox, Half::Kubernetes, "GET", "/api/v1/**", Effect::Slow(Duration::from_millis(10_500)));
        recording.sandbox.kubelets().expire();
        node(&recording.sandbox, "stray", None);
        recording.record(18);
        recording
    }, fires: &["CcmCloudSlow", "CcmTicksSlow"], may: &["CcmTicksFail", "CcmTicksStopped", "CcmNodeUnmatched"], moves: &[
        ("Hetzner Cloud API: In flight", &[]),
        ("Hetzner Cloud API: Duration", &[("method", "get")]),
        ("Controllers: Tick duration", &[("controller", "service-lb-controller")]),
    ] },
    World { name: "all is well", recording: || {
        let sandbox = networked(3).start();
        let mut recording = Recording::of(sandbox, &["--cluster-cidr=10.244.0.0/16"]);
        recording.sandbox.create("web", &[("location", "fsn1")], &[80]);
        recording.record(LONG);
        recording
    }, fires: &[], may: &[], moves: &[
        ("State: Up for", &[]),
        ("State: Health read", &[]),
        ("Kubernetes API and process: Processor", &[]),
        ("Kubernetes API and process: Memory", &[]),
        ("Hetzner Cloud API: Requests", &[("method", "get"), ("api_endpoint", "/servers")]),
        ("Kubernetes API and process: Requests", &[("method", "put"), ("resource", "leases")]),
        ("Controllers: Ticks", &[("controller", "cloud-node-controller"), ("result", "ok")]),
        ("State: Load balancers", &[("state", "managed")]),
    ] },
    World { name: "it is gone", recording: || {
        let mut recording = until_cause(socket_cluster(1), &[]);
        recording.watched.clear();
        recording.record(SHORT);
        recording
    }, fires: &["CcmNobodyLeads"], may: &[], moves: &[] },
    World { name: "two work at once", recording: || {
        let mut recording = until_cause(socket_cluster(1), &["--leader-elect=false"]);
        recording.watched.push(("10.0.0.3:8233", Watched::start(&recording.env, &["--leader-elect=false"])));
        recording.record(SHORT);
        recording
    }, fires: &["CcmSeveralLead"], may: &[], moves: &[("State: Leads", &[])] },
    World { name: "it keeps ending", recording: || {
        let mut recording = Recording::of(socket_cluster(1), &["--leader-elect=false"]);
        recording.cause();
        for _ in 0..5 {
            recording.watched.clear();
            recording.record(4); // Not there, while its next start is waited for.
            recording.watched.push(("10.0.0.2:8233", Watched::start(&recording.env, &["--leader-elect=false"])));
            recording.record(2);
        }
        recording.watched.clear();
        recording.record(2);
        recording
    }, fires: &["CcmRestarts"], may: &["CcmNobodyLeads"], moves: &[("State: Up for", &[])] },
    World { name: "the token is refused", recording: || {
        let mut recording = until_cause(socket_cluster(2), &[]);
        recording.sandbox.cloud().remove_token(&recording.sandbox.projects().token);
        recording.sandbox.kubelets().expire();
        recording.record(SOME);
        recording
    }, fires: &["CcmCloudRefuses", "CcmTicksFail"], may: &[], moves: &[("Hetzner Cloud API: Errors", &[("code", "401")])] },
    World { name: "the cloud is away", recording: || {
        let mut recording = until_cause(socket_cluster(2), &[]);
        recording.sandbox.stop(Half::Hetzner);
        recording.sandbox.kubelets().expire();
        recording.record(SOME);
        recording
    }, fires: &["CcmCloudErrors", "CcmTicksFail"], may: &[], moves: &[
        ("Hetzner Cloud API: Errors", &[("reason", "unreachable")]),
        ("Controllers: Ticks", &[("result", "outage")]),
    ] },
    World { name: "others use the calls up", recording: || {
        let mut recording = until_cause(socket_cluster(2), &[]);
        recording.sandbox.kubelets().expire();
        wait_until("a call that is told so", || {
            recording.sandbox.cloud().set_rate_limit(recording.sandbox.project(), 7_200, 100);
            recording.watched[0].1.scrape().get("ccm_hcloud_rate_limit_remaining") < Some(&720.0)
        });
        recording.record_with(SOME, |sandbox| sandbox.cloud().set_rate_limit(sandbox.project(), 7_200, 100));
        recording
    }, fires: &["CcmRateLimitShort"], may: &["CcmTicksFail"], moves: &[("State: Calls left", &[]), ("Hetzner Cloud API: Calls left", &[])] },
    World { name: "no call is left", recording: || {
        let mut recording = until_cause(socket_cluster(2), &[]);
        recording.sandbox.fault(Rule::new(Effect::hetzner_rate_limit()).half(Half::Hetzner));
        recording.sandbox.kubelets().expire();
        recording.record(LONG);
        recording
    }, fires: &["CcmRateLimitShort", "CcmRateLimitUsedUp"], may: &["CcmTicksFail"], moves: &[("Hetzner Cloud API: Errors", &[("code", "429")])] },
    World { name: "Robot takes no more calls", recording: || {
        let mut recording = until_cause(with_robot(), &[]);
        let metal = recording.sandbox.robot().number_of("metal-1").unwrap();
        recording.sandbox.robot().set_power(metal, false);
        recording.sandbox.kubelets().expire();
        recording.record(SHORT);
        recording.sandbox.fault(Rule::new(Effect::robot_rate_limit(200, 3_600)).half(Half::Robot));
        recording.record(LONG);
        recording
    }, fires: &["CcmRobotRateLimited"], may: &["CcmTicksFail"], moves: &[
        ("Robot: Requests", &[("method", "get"), ("api_endpoint", "/server")]),
        ("Robot: Errors", &[("code", "403")]),
        ("Robot: Duration", &[("method", "get")]),
        ("Robot: Calls left", &[("endpoint", "reset")]),
        ("Robot: Calls left", &[("reason", "rate_limit")]),
    ] },
    World { name: "Robot refuses the password", recording: || {
        let mut recording = until_cause(with_robot(), &[]);
        recording.sandbox.robot().set_password("of-another-day");
        recording.record(LONG);
        recording
    }, fires: &["CcmRobotLoginRefused"], may: &["CcmTicksFail"], moves: &[("Robot: Errors", &[("code", "401")])] },
    World { name: "Robot is away", recording: || {
        let mut recording = until_cause(with_robot(), &[]);
        recording.sandbox.stop(Half::Robot);
        recording.record(LONG);
        recording
    }, fires: &[], may: &["CcmTicksFail"], moves: &[("Robot: Errors", &[("reason", "unreachable")])] },
    World { name: "the cluster refuses", recording: || {
        let mut recording = until_cause(socket_cluster(2), &[]);
        fails(&recording.sandbox, Half::Kubernetes, "GET", "/api/v1/nodes", Effect::kubernetes_status(403, "Forbidden", "no"));
        recording.record(SOME);
        recording
    }, fires: &["CcmClusterRefuses", "CcmTicksFail"], may: &["CcmCloudRefuses"], moves: &[
        ("Kubernetes API and process: Errors", &[("resource", "nodes"), ("code", "403")]),
    ] },
    World { name: "the cluster is away", recording: || {
        let mut recording = until_cause(socket_cluster(2), &[]);
        recording.sandbox.stop(Half::Kubernetes);
        recording.watched[0].1.daemon.ended();
        recording.watched = vec![("10.0.0.2:8233", Watched::start(&recording.env, &[]))];
        recording.record(SOME);
        recording
    }, fires: &["CcmClusterAway", "CcmNobodyLeads"], may: &["CcmTicksFail"], moves: &[("Kubernetes API and process: Errors", &[("reason", "unreachable")])] },
    World { name: "a thread is stuck", recording: || {
        let mut recording = until_cause(socket_cluster(1), &[]);
        recording.record(1); // Nothing moves any more.
        recording
    }, fires: &["CcmTicksStopped"], may: &[], moves: &[] },
    World { name: "many servers are deleted", recording: || {
        let sandbox = networked(8).start();
        let mut recording = Recording::of(sandbox, &["--cluster-cidr=10.244.0.0/16"]);
        is(&recording, "ccm_routes{state=\"ok\"}", 8.0);
        recording.record(BEFORE);
        recording.cause();
        for number in 1..=6 {
            recording.sandbox.delete_server(&format!("worker-{number}"));
        }
        recording.sandbox.kubelets().expire();
        is(&recording, "ccm_routes{state=\"ok\"}", 2.0);
        recording.record(SOME);
        recording
    // What still changes in the repeated part of the recording changes again and again.
    }, fires: &["CcmNodesDeleted"], may: &["CcmPlanStuck"], moves: &[
        ("What it does: Changes", &[("kind", "delete_node")]),
        ("State: Routes", &[("state", "ok")]),
        ("State: Nodes", &[("state", "ready")]),
    ] },
    World { name: "objects are in trouble", recording: || {
        let mut recording = Recording::of(socket_cluster(2), &[RESYNC]);
        for name in ["web", "lost"] {
            recording.sandbox.create(name, &[("location", "fsn1")], &[80]);
            wait_until("an address", || recording.sandbox.has_address(name));
        }
        recording.record(BEFORE);
        recording.cause();
        node(&recording.sandbox, "stray", None);
        node(&recording.sandbox, "cuckoo", Some("aws:///i-7"));
        recording.sandbox.edit_node("worker-2", |node| {
            let taint = json!({ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" });
            node["spec"]["taints"] = json!([taint]);
        });
        recording.sandbox.set_ready("worker-2", "Unknown");
        recording.sandbox.remove_finalizers("lost");
        recording.sandbox.delete("lost");
        fails(&recording.sandbox, Half::Hetzner, "POST", "/v1/load_balancers", Effect::hetzner_error(403, "forbidden", "no"));
        recording.sandbox.create("api", &[("location", "fsn1")], &[80]);
        fails(&recording.sandbox, Half::Hetzner, "DELETE", "/v1/load_balancers/*", Effect::hetzner_error(423, "locked", "busy"));
        recording.sandbox.delete("web");
        is(&recording, "ccm_load_balancers{state=\"orphaned\"}", 1.0);
        recording.record(LONG);
        recording
    }, fires: &[
        "CcmChangesFail", "CcmLoadBalancerOrphaned", "CcmLoadBalancerPending", "CcmLoadBalancerStays",
        "CcmNodeForeign", "CcmNodeOutOfService", "CcmNodeUnmatched", "CcmPlanStuck", "CcmTicksFail",
    ], may: &["CcmCloudRefuses", "CcmCloudErrors"], moves: &[
        ("State: Nodes with problems", &[]),
        ("State: Load balancers with problems", &[]),
        ("State: Nodes", &[("state", "unmatched")]),
        ("State: Nodes", &[("state", "out_of_service")]),
        ("State: Load balancers", &[("state", "leaving")]),
        ("What it does: Failed changes", &[("kind", "create"), ("result", "failed")]),
        ("What it does: Findings", &[("reason", "SyncLoadBalancerFailed")]),
        ("What it does: Findings", &[("result", "written")]),
        ("Controllers: Ticks", &[("controller", "cloud-node-controller"), ("result", "failed")]),
        ("Hetzner Cloud API: Errors", &[("code", "403")]),
    ] },
    World { name: "a certificate expires", recording: || {
        let mut recording = until_cause(socket_cluster(2), &[RESYNC]);
        shows_certificate(&recording.sandbox, Validity::Soon);
        recording.record(SOME);
        recording
    }, fires: &["CcmCertificateExpires"], may: &[], moves: &[("State: Certificate ends in", &[])] },
    World { name: "no target is reached, and a route can't be made", recording: || {
        let sandbox = networked(2).start();
        let mut recording = Recording::of(sandbox, &["--cluster-cidr=10.244.0.0/16", RESYNC]);
        recording.sandbox.create("web", &[("location", "fsn1")], &[80]);
        is(&recording, "ccm_load_balancers_health{state=\"all\"}", 1.0);
        recording.record(BEFORE);
        recording.cause();
        let cloud = recording.sandbox.cloud();
        let alone = recording.sandbox.create_server("alone");
        let balancer = recording.sandbox.balancer_id("web");
        let unhealthy = Some(Health::unhealthy("layer4_timeout"));
        for id in [recording.sandbox.server_id("worker-1"), recording.sandbox.server_id("worker-2"), alone] {
            cloud.set_health(balancer, Machine::Server(id), None, unhealthy.clone());
        }
        recording.sandbox.register_node(NodeSpec {
            name: "alone".into(), server: Some(alone), pod_cidrs: vec!["10.244.77.0/24".into()], ..NodeSpec::default()
        });
        recording.sandbox.create("edge", &[("location", "fsn1"), ("share", "edge")], &[443]);
        is(&recording, "ccm_load_balancers_health{state=\"none\"}", 1.0);
        is(&recording, "ccm_load_balancers_use{use=\"shared\"}", 1.0);
        is(&recording, "ccm_routes{state=\"missing\"}", 1.0);
        recording.record(SOME);
        recording
    }, fires: &["CcmLoadBalancerUnhealthy", "CcmRoutesWrong"], may: &["CcmTicksFail", "CcmPlanStuck", "CcmChangesFail"], moves: &[
        ("State: Healthy targets", &[("state", "none")]),
        ("State: Use", &[("use", "shared")]),
        ("State: Routes", &[("state", "missing")]),
    ] },
    World { name: "the token is another project's", recording: || {
        let mut recording = until_cause(socket_cluster(3), &[]);
        for name in ["worker-1", "worker-2", "worker-3"] {
            recording.sandbox.set_power(name, false);
        }
        recording.sandbox.kubelets().expire();
        let env = with(recording.env.clone(), &[("HCLOUD_TOKEN", &recording.sandbox.projects().foreign_token)]);
        recording.watched.clear();
        recording.watched.push(("10.0.0.2:8233", Watched::start(&env, &[])));
        wait_until("a finding", || {
            recording.watched[0].1.scrape().keys().any(|series| series.contains("PossibleNodeDeletion"))
        });
        recording.record(SHORT);
        recording
    }, fires: &["CcmDoubtfulFinding"], may: &["CcmTicksFail"], moves: &[
        ("What it does: Findings", &[("reason", "PossibleNodeDeletion")]),
    ] },
];
