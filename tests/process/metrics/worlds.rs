//! Worlds in which what an alert is for has happened, and which alerts fire there.

use crate::common::{Cluster, SCALE, builder, networked, socket_cluster, wait_until, with};
use crate::metrics::Watched;
use crate::metrics::film::Film;
use crate::metrics::story::{fails, node, shows_certificate};
use sandbox::credentials::Validity;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::{Health, Machine};
use sandbox::kubelet::NodeSpec;
use sandbox::{Half, Sandbox};
use std::time::Duration;

/// Panels by row and title, and which labels; what they show of these changes after the cause.
pub type Moves = &'static [(&'static str, &'static [(&'static str, &'static str)])];

pub struct World {
    pub name: &'static str,
    pub film: fn() -> Film,
    /// These fire,
    pub fires: &'static [&'static str],
    /// these may, because they are about the same, and no other does.
    pub may: &'static [&'static str],
    pub moves: Moves,
}

/// A few frames of peace, then the cause, then what comes of it.
const BEFORE: usize = 4;
/// Ten minutes are repeated of it: two of the longest waits after a failure.
const LONG: usize = 30;
/// Where something is asked with every tick.
const SOME: usize = 15;
const SHORT: usize = 4;

const RESYNC: &str = "--load-balancer-resync-period=20s";

fn is(film: &Film, series: &str, wanted: f64) {
    wait_until(series, || film.watched[0].1.scrape().get(series) == Some(&wanted));
}

fn with_robot() -> Sandbox {
    let builder = builder().nodes(1).robot(1).heartbeats(false);
    builder.scale(SCALE.parse().unwrap()).start()
}

/// A film up to its cause.
fn until_cause(sandbox: sandbox::Sandbox, flags: &[&str]) -> Film {
    let mut film = Film::of(sandbox, flags);
    film.roll(BEFORE);
    film.cause();
    film
}

#[rustfmt::skip] // An alert or a panel is a line.
pub const WORLDS: &[World] = &[
    // How long a call takes is not scaled, and it must take longer than the buckets below; so the time-outs, too.
    World { name: "both are slow", film: || {
        let sandbox = socket_cluster(2);
        let env = crate::common::at_scale(&sandbox, 0.5);
        let mut film = Film::with(sandbox, env, &[]);
        film.pace = Duration::from_secs(3);
        film.roll(1);
        film.cause();
        fails(&film.sandbox, Half::Hetzner, "GET", "/v1/**", Effect::Slow(Duration::from_millis(5_500)));
        fails(&film.sandbox, Half::Kubernetes, "GET", "/api/v1/**", Effect::Slow(Duration::from_millis(10_500)));
        film.sandbox.kubelets().expire();
        node(&film.sandbox, "stray", None);
        film.roll(18);
        film
    }, fires: &["CcmCloudSlow", "CcmTicksSlow"], may: &["CcmTicksFail", "CcmTicksStopped", "CcmNodeUnmatched"], moves: &[
        ("Hetzner Cloud API: Under way", &[]),
        ("Hetzner Cloud API: Duration", &[("method", "get")]),
        ("Controllers: Tick duration", &[("controller", "service-lb-controller")]),
    ] },
    World { name: "all is well", film: || {
        let sandbox = networked(3).start();
        let mut film = Film::of(sandbox, &["--cluster-cidr=10.244.0.0/16"]);
        film.sandbox.create("web", &[("location", "fsn1")], &[80]);
        film.roll(LONG);
        film
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
    World { name: "it is gone", film: || {
        let mut film = until_cause(socket_cluster(1), &[]);
        film.watched.clear();
        film.roll(SHORT);
        film
    }, fires: &["CcmNobodyLeads"], may: &[], moves: &[] },
    World { name: "two work at once", film: || {
        let mut film = until_cause(socket_cluster(1), &["--leader-elect=false"]);
        film.watched.push(("10.0.0.3:8233", Watched::start(&film.env, &["--leader-elect=false"])));
        film.roll(SHORT);
        film
    }, fires: &["CcmSeveralLead"], may: &[], moves: &[("State: Leads", &[])] },
    World { name: "it keeps ending", film: || {
        let mut film = Film::of(socket_cluster(1), &["--leader-elect=false"]);
        film.cause();
        for _ in 0..5 {
            film.watched.clear();
            film.roll(4); // Not there, while its next start is waited for.
            film.watched.push(("10.0.0.2:8233", Watched::start(&film.env, &["--leader-elect=false"])));
            film.roll(2);
        }
        film.watched.clear();
        film.roll(2);
        film
    }, fires: &["CcmRestarts"], may: &["CcmNobodyLeads"], moves: &[("State: Up for", &[])] },
    World { name: "the token is refused", film: || {
        let mut film = until_cause(socket_cluster(2), &[]);
        film.sandbox.cloud().remove_token(&film.sandbox.projects().token);
        film.sandbox.kubelets().expire();
        film.roll(SOME);
        film
    }, fires: &["CcmCloudRefuses", "CcmTicksFail"], may: &[], moves: &[("Hetzner Cloud API: Errors", &[("code", "401")])] },
    World { name: "the cloud is away", film: || {
        let mut film = until_cause(socket_cluster(2), &[]);
        film.sandbox.stop(Half::Hetzner);
        film.sandbox.kubelets().expire();
        film.roll(SOME);
        film
    }, fires: &["CcmCloudErrors", "CcmTicksFail"], may: &[], moves: &[
        ("Hetzner Cloud API: Errors", &[("reason", "unreachable")]),
        ("Controllers: Ticks", &[("result", "outage")]),
    ] },
    World { name: "others use the calls up", film: || {
        let mut film = until_cause(socket_cluster(2), &[]);
        film.sandbox.kubelets().expire();
        wait_until("a call that is told so", || {
            film.sandbox.cloud().set_rate_limit(film.sandbox.project(), 7_200, 100);
            film.watched[0].1.scrape().get("ccm_hcloud_rate_limit_remaining") < Some(&720.0)
        });
        film.roll_with(SOME, |sandbox| sandbox.cloud().set_rate_limit(sandbox.project(), 7_200, 100));
        film
    }, fires: &["CcmRateLimitShort"], may: &["CcmTicksFail"], moves: &[("State: Calls left", &[]), ("Hetzner Cloud API: Calls left", &[])] },
    World { name: "no call is left", film: || {
        let mut film = until_cause(socket_cluster(2), &[]);
        film.sandbox.fault(Rule::new(Effect::hetzner_rate_limit()).half(Half::Hetzner));
        film.sandbox.kubelets().expire();
        film.roll(LONG);
        film
    }, fires: &["CcmRateLimitShort", "CcmRateLimitUsedUp"], may: &["CcmTicksFail"], moves: &[("Hetzner Cloud API: Errors", &[("code", "429")])] },
    World { name: "Robot takes no more calls", film: || {
        let mut film = until_cause(with_robot(), &[]);
        let metal = film.sandbox.robot().number_of("metal-1").unwrap();
        film.sandbox.robot().set_power(metal, false);
        film.sandbox.kubelets().expire();
        film.roll(SHORT);
        film.sandbox.fault(Rule::new(Effect::robot_rate_limit(200, 3_600)).half(Half::Robot));
        film.roll(LONG);
        film
    }, fires: &["CcmRobotRateLimited"], may: &["CcmTicksFail"], moves: &[
        ("Robot: Requests", &[("method", "get"), ("api_endpoint", "/server")]),
        ("Robot: Errors", &[("code", "403")]),
        ("Robot: Duration", &[("method", "get")]),
        ("Robot: Calls left", &[("endpoint", "reset")]),
        ("Robot: Calls left", &[("reason", "rate_limit")]),
    ] },
    World { name: "Robot refuses the password", film: || {
        let mut film = until_cause(with_robot(), &[]);
        film.sandbox.robot().set_password("of-another-day");
        film.roll(LONG);
        film
    }, fires: &["CcmRobotLoginRefused"], may: &["CcmTicksFail"], moves: &[("Robot: Errors", &[("code", "401")])] },
    World { name: "Robot is away", film: || {
        let mut film = until_cause(with_robot(), &[]);
        film.sandbox.stop(Half::Robot);
        film.roll(LONG);
        film
    }, fires: &[], may: &["CcmTicksFail"], moves: &[("Robot: Errors", &[("reason", "unreachable")])] },
    World { name: "the cluster refuses", film: || {
        let mut film = until_cause(socket_cluster(2), &[]);
        fails(&film.sandbox, Half::Kubernetes, "GET", "/api/v1/nodes", Effect::kubernetes_status(403, "Forbidden", "no"));
        film.roll(SOME);
        film
    }, fires: &["CcmClusterRefuses", "CcmTicksFail"], may: &["CcmCloudRefuses"], moves: &[
        ("Kubernetes API and process: Errors", &[("resource", "nodes"), ("code", "403")]),
    ] },
    World { name: "the cluster is away", film: || {
        let mut film = until_cause(socket_cluster(2), &[]);
        film.sandbox.stop(Half::Kubernetes);
        film.watched[0].1.daemon.ended();
        film.watched = vec![("10.0.0.2:8233", Watched::start(&film.env, &[]))];
        film.roll(SOME);
        film
    }, fires: &["CcmClusterAway", "CcmNobodyLeads"], may: &["CcmTicksFail"], moves: &[("Kubernetes API and process: Errors", &[("reason", "unreachable")])] },
    World { name: "a thread is stuck", film: || {
        let mut film = until_cause(socket_cluster(1), &[]);
        film.roll(1); // Nothing moves any more.
        film
    }, fires: &["CcmTicksStopped"], may: &[], moves: &[] },
    World { name: "many servers are deleted", film: || {
        let sandbox = networked(8).start();
        let mut film = Film::of(sandbox, &["--cluster-cidr=10.244.0.0/16"]);
        is(&film, "ccm_routes{state=\"ok\"}", 8.0);
        film.roll(BEFORE);
        film.cause();
        for number in 1..=6 {
            film.sandbox.delete_server(&format!("worker-{number}"));
        }
        film.sandbox.kubelets().expire();
        is(&film, "ccm_routes{state=\"ok\"}", 2.0);
        film.roll(SOME);
        film
    // What is still changed in the film's later part is changed again and again.
    }, fires: &["CcmNodesDeleted"], may: &["CcmPlanStuck"], moves: &[
        ("What it does: Changes", &[("kind", "delete_node")]),
        ("State: Routes", &[("state", "ok")]),
        ("State: Nodes", &[("state", "ready")]),
    ] },
    World { name: "objects are in trouble", film: || {
        let mut film = Film::of(socket_cluster(2), &[RESYNC]);
        for name in ["web", "lost"] {
            film.sandbox.create(name, &[("location", "fsn1")], &[80]);
            wait_until("an address", || film.sandbox.has_address(name));
        }
        film.roll(BEFORE);
        film.cause();
        node(&film.sandbox, "stray", None);
        node(&film.sandbox, "cuckoo", Some("aws:///i-7"));
        film.sandbox.remove_finalizers("lost");
        film.sandbox.delete("lost");
        fails(&film.sandbox, Half::Hetzner, "POST", "/v1/load_balancers", Effect::hetzner_error(403, "forbidden", "no"));
        film.sandbox.create("api", &[("location", "fsn1")], &[80]);
        fails(&film.sandbox, Half::Hetzner, "DELETE", "/v1/load_balancers/*", Effect::hetzner_error(423, "locked", "busy"));
        film.sandbox.delete("web");
        is(&film, "ccm_load_balancers{state=\"orphaned\"}", 1.0);
        film.roll(LONG);
        film
    }, fires: &[
        "CcmChangesFail", "CcmLoadBalancerOrphaned", "CcmLoadBalancerPending", "CcmLoadBalancerStays",
        "CcmNodeForeign", "CcmNodeUnmatched", "CcmPlanStuck", "CcmTicksFail",
    ], may: &["CcmCloudRefuses", "CcmCloudErrors"], moves: &[
        ("State: Nodes not in order", &[]),
        ("State: Load balancers not in order", &[]),
        ("State: Nodes", &[("state", "unmatched")]),
        ("State: Load balancers", &[("state", "leaving")]),
        ("What it does: Changes that did not work", &[("kind", "create"), ("result", "failed")]),
        ("What it does: Findings", &[("reason", "SyncLoadBalancerFailed")]),
        ("What it does: Findings", &[("result", "written")]),
        ("Controllers: Ticks", &[("controller", "cloud-node-controller"), ("result", "failed")]),
        ("Hetzner Cloud API: Errors", &[("code", "403")]),
    ] },
    World { name: "a certificate expires", film: || {
        let mut film = until_cause(socket_cluster(2), &[RESYNC]);
        shows_certificate(&film.sandbox, Validity::Soon);
        film.roll(SOME);
        film
    }, fires: &["CcmCertificateExpires"], may: &[], moves: &[("State: Certificate ends in", &[])] },
    World { name: "no target is reached, and a route can't be made", film: || {
        let sandbox = networked(2).start();
        let mut film = Film::of(sandbox, &["--cluster-cidr=10.244.0.0/16", RESYNC]);
        film.sandbox.create("web", &[("location", "fsn1")], &[80]);
        is(&film, "ccm_load_balancers_health{state=\"all\"}", 1.0);
        film.roll(BEFORE);
        film.cause();
        let cloud = film.sandbox.cloud();
        let alone = film.sandbox.create_server("alone");
        let balancer = film.sandbox.balancer_id("web");
        let unhealthy = Some(Health::unhealthy("layer4_timeout"));
        for id in [film.sandbox.server_id("worker-1"), film.sandbox.server_id("worker-2"), alone] {
            cloud.set_health(balancer, Machine::Server(id), None, unhealthy.clone());
        }
        film.sandbox.register_node(NodeSpec {
            name: "alone".into(), server: Some(alone), pod_cidrs: vec!["10.244.77.0/24".into()], ..NodeSpec::default()
        });
        film.sandbox.create("edge", &[("location", "fsn1"), ("share", "edge")], &[443]);
        is(&film, "ccm_load_balancers_health{state=\"none\"}", 1.0);
        is(&film, "ccm_load_balancers_use{use=\"shared\"}", 1.0);
        is(&film, "ccm_routes{state=\"missing\"}", 1.0);
        film.roll(SOME);
        film
    }, fires: &["CcmLoadBalancerUnhealthy", "CcmRoutesWrong"], may: &["CcmTicksFail", "CcmPlanStuck", "CcmChangesFail"], moves: &[
        ("State: Healthy targets", &[("state", "none")]),
        ("State: Use", &[("use", "shared")]),
        ("State: Routes", &[("state", "missing")]),
    ] },
    World { name: "the token is another project's", film: || {
        let mut film = until_cause(socket_cluster(3), &[]);
        for name in ["worker-1", "worker-2", "worker-3"] {
            film.sandbox.set_power(name, false);
        }
        film.sandbox.kubelets().expire();
        let env = with(film.env.clone(), &[("HCLOUD_TOKEN", &film.sandbox.projects().foreign_token)]);
        film.watched.clear();
        film.watched.push(("10.0.0.2:8233", Watched::start(&env, &[])));
        wait_until("a finding", || {
            film.watched[0].1.scrape().keys().any(|series| series.contains("PossibleNodeDeletion"))
        });
        film.roll(SHORT);
        film
    }, fires: &["CcmDoubtfulFinding"], may: &["CcmTicksFail"], moves: &[
        ("What it does: Findings", &[("reason", "PossibleNodeDeletion")]),
    ] },
];
