//! What Prometheus is told: every metric moves when its cause happens, and everything that the
//! alerts, the dashboard and the README name is there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use ccm::metrics::{Kind, TABLE};
use common::services::{self, LoadBalancerService};
use common::{Daemon, all_initialised, ccm, env, quiet, wait_until, with};
use sandbox::faults::{Effect, Rule};
use sandbox::kubelet::NodeSpec;
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Set by others: the route controller, and whoever looks for orphans.
const HOOKS: &[&str] = &["ccm_routes"];

/// A daemon and where it answers.
struct Watched {
    daemon: Daemon,
    address: SocketAddr,
}

/// Samples by name and labels, as they are written.
type Scrape = BTreeMap<String, f64>;

impl Watched {
    fn start(env: &common::Env, flags: &[&str]) -> Watched {
        let daemon = Daemon::start(env, flags);
        daemon.logs("listening on ");
        let log = daemon.log();
        let (_, rest) = log.split_once("listening on ").unwrap();
        let address = rest.split_whitespace().next().unwrap().parse().unwrap();
        Watched { daemon, address }
    }

    /// Head and body.
    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect_timeout(&self.address, common::LIMIT).unwrap();
        stream.set_read_timeout(Some(common::LIMIT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn scrape(&self) -> Scrape {
        samples(&self.get("/metrics").1)
    }
}

fn samples(text: &str) -> Scrape {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    });
    let scrape: Vec<(String, f64)> = samples.collect();
    let count = scrape.len();
    let scrape = Scrape::from_iter(scrape);
    assert_eq!(scrape.len(), count, "a series is there twice:\n{text}");
    scrape
}

/// What a series does.
enum Move {
    Grows,
    Is(f64),
    /// Less than before.
    Falls,
    /// Is seen above zero.
    Rises,
}
use Move::{Falls, Grows, Is, Rises};

type Cause = fn(&Sandbox);

fn server(sandbox: &Sandbox, name: &str) -> u64 {
    let servers = sandbox.cloud().servers(sandbox.project());
    let server = servers.iter().find(|server| server["name"] == name);
    server.unwrap()["id"].as_u64().unwrap()
}

fn node(sandbox: &Sandbox, name: &str, provider_id: Option<&str>) {
    sandbox.register_node(NodeSpec {
        name: name.into(),
        provider_id: provider_id.map(str::to_owned),
        ..NodeSpec::default()
    });
}

fn fails(sandbox: &Sandbox, half: Half, method: &str, path: &str, effect: Effect) {
    let rule = Rule::new(effect).half(half).method(method).path(path);
    sandbox.faults().add(rule);
}

/// One after the other, on one daemon: what happens, and what moves.
#[rustfmt::skip] // A series is a line.
const STORY: &[(&str, Cause, &[(&str, Move)])] = &[
    ("the daemon starts with two new nodes", |_| {}, &[
        ("ccm_build_info{version=\"0.1.0\",profile=\"ccm-from-scratch\"}", Is(1.0)),
        ("ccm_leader", Is(1.0)),
        ("process_start_time_seconds", Rises),
        ("process_resident_memory_bytes", Rises),
        ("process_cpu_seconds_total", Rises),
        ("ccm_nodes{state=\"ready\"}", Is(2.0)),
        ("ccm_ticks_total{controller=\"cloud-node-controller\",result=\"ok\"}", Grows),
        ("ccm_tick_duration_seconds_count{controller=\"cloud-node-lifecycle-controller\"}", Grows),
        ("ccm_tick_duration_seconds_bucket{controller=\"service-lb-controller\",le=\"+Inf\"}", Grows),
        ("ccm_changes_total{controller=\"cloud-node-controller\",kind=\"initialise\",result=\"ok\"}", Is(2.0)),
        ("ccm_changes_total{controller=\"cloud-node-controller\",kind=\"set_addresses\",result=\"ok\"}", Is(2.0)),
        ("ccm_findings_total{controller=\"cloud-node-controller\",reason=\"Synced\"}", Is(2.0)),
        ("ccm_kubernetes_requests_total{method=\"get\",resource=\"nodes\",code=\"200\"}", Grows),
        ("ccm_kubernetes_requests_total{method=\"patch\",resource=\"nodes/status\",code=\"200\"}", Is(2.0)),
        ("ccm_kubernetes_requests_total{method=\"put\",resource=\"leases\",code=\"200\"}", Grows),
        ("hcloud_api_requests_total{method=\"get\",api_endpoint=\"/servers\",code=\"200\"}", Rises),
        ("hcloud_api_request_duration_seconds_count{method=\"get\"}", Rises),
        ("hcloud_api_request_duration_seconds_bucket{method=\"get\",le=\"10\"}", Rises),
        ("hcloud_api_in_flight_requests", Is(0.0)),
        ("ccm_hcloud_rate_limit", Is(3600.0)),
        ("ccm_hcloud_rate_limit_remaining", Rises),
    ]),
    ("a Service gets its load balancer", |sandbox| {
        services::create(sandbox, LoadBalancerService::new("web", &[80]).with(&[("location", "fsn1")]));
    }, &[
        ("ccm_load_balancers{state=\"managed\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"add_finalizer\",result=\"ok\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"create\",result=\"ok\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"set_status\",result=\"ok\"}", Is(1.0)),
        ("hcloud_api_requests_total{method=\"post\",api_endpoint=\"/load_balancers\",code=\"201\"}", Is(1.0)),
        ("hcloud_api_request_duration_seconds_count{method=\"post\"}", Rises),
        ("ccm_hcloud_rate_limit_remaining", Falls),
    ]),
    ("a server is turned off", |sandbox| {
        sandbox.cloud().set_power(server(sandbox, "worker-1"), false);
        sandbox.kubelets().expire();
    }, &[
        ("ccm_nodes{state=\"shutdown\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"cloud-node-lifecycle-controller\",kind=\"add_shutdown_taint\",result=\"ok\"}", Is(1.0)),
        ("ccm_ticks_total{controller=\"cloud-node-lifecycle-controller\",result=\"ok\"}", Grows),
    ]),
    ("a server is deleted", |sandbox| {
        sandbox.cloud().delete_server(server(sandbox, "worker-2"));
        sandbox.kubelets().expire();
    }, &[
        ("ccm_changes_total{controller=\"cloud-node-lifecycle-controller\",kind=\"delete_node\",result=\"ok\"}", Is(1.0)),
        ("ccm_kubernetes_requests_total{method=\"delete\",resource=\"nodes\",code=\"200\"}", Is(1.0)),
        ("ccm_findings_total{controller=\"cloud-node-lifecycle-controller\",reason=\"DeletingNode\"}", Is(1.0)),
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
    ("a load balancer is refused", |sandbox| {
        fails(sandbox, Half::Hetzner, "POST", "/v1/load_balancers", Effect::hetzner_error(403, "forbidden", "no"));
        services::create(sandbox, LoadBalancerService::new("api", &[80]).with(&[("location", "fsn1")]));
    }, &[
        ("ccm_load_balancers{state=\"pending\"}", Is(1.0)),
        ("ccm_changes_total{controller=\"service-lb-controller\",kind=\"create\",result=\"failed\"}", Rises),
        ("ccm_planned_changes{controller=\"service-lb-controller\"}", Rises),
        ("ccm_findings_total{controller=\"service-lb-controller\",reason=\"SyncLoadBalancerFailed\"}", Rises),
        ("hcloud_api_requests_total{method=\"post\",api_endpoint=\"/load_balancers\",code=\"403\"}", Rises),
    ]),
    ("it is not wanted any more, and can't go", |sandbox| {
        fails(sandbox, Half::Hetzner, "DELETE", "/v1/load_balancers/*", Effect::hetzner_error(423, "locked", "busy"));
        sandbox.cluster().delete("services", Some("default"), "web");
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
        ("ccm_ticks_total{controller=\"service-lb-controller\",result=\"outage\"}", Grows),
    ]),
];

#[test]
fn every_metric_moves_when_its_cause_happens() {
    let sandbox = quiet(2);
    let resync = "--load-balancer-resync-period=20s";
    let watched = Watched::start(&env(&sandbox), &[resync]);
    wait_until("initialised nodes", || all_initialised(&sandbox));
    for (story, cause, moves) in STORY {
        let before = watched.scrape();
        cause(&sandbox);
        for (series, how) in *moves {
            let was = before.get(*series).copied();
            let mut now = None;
            wait_until(&format!("{series}, when {story} (was {was:?})"), || {
                now = watched.scrape().get(*series).copied();
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
    let told: BTreeSet<&str> = STORY
        .iter()
        .flat_map(|(_, _, moves)| moves.iter().map(|(series, _)| family(series)))
        .chain(HOOKS.iter().copied())
        .collect();
    let all: BTreeSet<&str> = TABLE.iter().map(|metric| metric.name).collect();
    assert_eq!(told, all, "the story has to tell of every metric");
    no_name_of_an_object(&watched.scrape());
    drop(watched.daemon);
}

/// The metric that a series belongs to.
fn family(series: &str) -> &str {
    let name = series.split('{').next().unwrap();
    let parts = ["_bucket", "_sum", "_count"];
    let stem = parts.iter().find_map(|part| name.strip_suffix(part));
    let is_histogram = |name: &&str| {
        let mut all = TABLE.iter();
        all.any(|metric| metric.name == *name && metric.kind == Kind::Histogram)
    };
    stem.filter(is_histogram).unwrap_or(name)
}

/// Labels hold our own words and templates: a cluster of thousands has as many series as this one.
fn no_name_of_an_object(scrape: &Scrape) {
    for series in scrape.keys() {
        for name in ["worker", "stray", "cuckoo", "web", "default"] {
            assert!(!series.contains(name), "{series}");
        }
        let labels = series.split('{').nth(1).unwrap_or_default();
        let is_id = |part: &str| part.len() > 3 && part.bytes().all(|b| b.is_ascii_digit());
        assert!(
            !labels.split(['"', '/']).any(is_id),
            "a number of an object in {series}"
        );
    }
    assert!(scrape.len() < 400, "{} series", scrape.len());
}

#[test]
fn the_exposition_is_one_that_prometheus_reads() {
    let sandbox = quiet(1);
    let watched = Watched::start(&env(&sandbox), &[]);
    wait_until("initialised nodes", || all_initialised(&sandbox));
    let (head, body) = watched.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let content_type = "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(head.contains(content_type), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    let mut described = Vec::new();
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            described.push(help.split(' ').next().unwrap());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let metric = TABLE
                .iter()
                .find(|metric| metric.name == described[described.len() - 1]);
            let metric = metric.unwrap();
            assert_eq!(kind, format!("{} {}", metric.name, metric.kind.name()));
        } else {
            assert_eq!(
                Some(&family(line.split(' ').next().unwrap())),
                described.last()
            );
        }
    }
    let names: Vec<&str> = TABLE.iter().map(|metric| metric.name).collect();
    assert_eq!(described, names);
    // An answer longer than a slow reader takes at once arrives whole all the same.
    let mut slow = TcpStream::connect(watched.address).unwrap();
    slow.set_read_timeout(Some(common::LIMIT)).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 512];
    while let Ok(count @ 1..) = slow.read(&mut piece) {
        answer.extend_from_slice(&piece[..count]);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.contains("\nprocess_resident_memory_bytes "),
        "{answer}"
    );
}

#[test]
fn turned_off_it_is_not_there_and_the_probes_are() {
    let sandbox = quiet(0);
    for (value, status) in [("false", "404"), ("", "200"), ("true", "200")] {
        let env = with(env(&sandbox), &[("HCLOUD_METRICS_ENABLED", value)]);
        let watched = Watched::start(&env, &["--leader-elect=false"]);
        let (head, _) = watched.get("/metrics");
        assert_eq!(head.split(' ').nth(1), Some(status), "{value:?}");
        assert_eq!(watched.get("/livez").1, "ok\n");
        assert!(!watched.daemon.log().contains("HCLOUD_METRICS_ENABLED"));
    }
}

#[test]
fn a_standby_is_measured_too() {
    let sandbox = quiet(1);
    let leader = Watched::start(&env(&sandbox), &[]);
    wait_until("a leader", || {
        leader.scrape().get("ccm_leader") == Some(&1.0)
    });
    let standby = Watched::start(&env(&sandbox), &[]);
    wait_until("a standby", || standby.get("/readyz").1 == "ok: standby\n");
    let scrape = standby.scrape();
    assert_eq!(scrape.get("ccm_leader"), Some(&0.0));
    assert!(scrape.contains_key("process_resident_memory_bytes"));
    assert!(
        !scrape
            .keys()
            .any(|series| series.starts_with("ccm_ticks_total"))
    );
    leader.daemon.killer()();
    wait_until("it to lead", || {
        standby.scrape().get("ccm_leader") == Some(&1.0)
    });
    // Without leader election everybody works.
    let alone = Watched::start(&env(&sandbox), &["--leader-elect=false"]);
    wait_until("work", || alone.scrape().get("ccm_leader") == Some(&1.0));
}

#[test]
fn one_pass_serves_nothing() {
    let sandbox = quiet(1);
    let ran = ccm(&env(&sandbox), &["run", "--once"]);
    assert!(!ran.stderr.contains("listening"), "{ran:?}");
}

fn monitoring(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/monitoring");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// What an expression names that could be a metric of ours.
fn named(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| {
            ["hcloud_", "ccm_", "process_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
        })
        .collect()
}

/// Every `expr` of a document, however deep.
fn expressions(document: &Value, found: &mut Vec<String>) {
    match document {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == "expr" => found.push(text.to_owned()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// Names, labels and their values: an alert on a word that nobody says never fires.
#[test]
fn every_alert_and_panel_asks_for_what_there_is() {
    let alerts: Value = serde_yaml::from_str(&monitoring("alerts.yaml")).unwrap();
    let dashboard: Value = serde_json::from_str(&monitoring("dashboard.json")).unwrap();
    let mut used = BTreeSet::new();
    for (name, document) in [("alerts", &alerts), ("dashboard", &dashboard)] {
        let mut found = Vec::new();
        expressions(document, &mut found);
        assert!(found.len() > 5, "{name} asks for {}", found.len());
        for expression in &found {
            let metrics = named(expression);
            assert!(!metrics.is_empty(), "{name}: {expression}");
            for metric in metrics {
                let there = TABLE.iter().find(|one| one.name == family(metric));
                let there =
                    there.unwrap_or_else(|| panic!("{name}: no metric {metric}: {expression}"));
                let is_part = metric != there.name;
                assert_eq!(
                    is_part,
                    there.kind == Kind::Histogram,
                    "{name}: {expression}"
                );
                used.insert(there.name);
            }
            for label in labels(expression) {
                let known = TABLE.iter().any(|one| one.labels.contains(&label));
                let is_prometheus = ["le", "job", "instance", "namespace", "pod"].contains(&label);
                assert!(
                    known || is_prometheus,
                    "{name}: no label {label}: {expression}"
                );
            }
            for value in values(expression) {
                assert!(is_said(value), "{name}: nobody says {value}: {expression}");
            }
        }
    }
    let all: BTreeSet<&str> = TABLE.iter().map(|metric| metric.name).collect();
    assert_eq!(used, all, "what nobody looks at need not be measured");
    for rule in alerts["spec"]["groups"][0]["rules"].as_array().unwrap() {
        for field in ["alert", "expr"] {
            assert!(rule[field].is_string(), "{rule}");
        }
        for field in ["summary", "description"] {
            assert!(rule["annotations"][field].is_string(), "{rule}");
        }
        assert!(rule["labels"]["severity"].is_string(), "{rule}");
    }
}

/// Does a label have this value: in the story, in a metric's help, as a status or a reason?
fn is_said(value: &str) -> bool {
    let quoted = format!("{value:?}");
    let mut moves = STORY.iter().flat_map(|(_, _, moves)| *moves);
    let mut helps = TABLE.iter().map(|metric| metric.help);
    let is_in = |help: &str| {
        let mut words = help.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word == value)
    };
    moves.any(|(series, _)| series.contains(&quoted))
        || helps.any(is_in)
        || value.parse::<u16>().is_ok_and(|status| status < 600)
        || include_str!("../src/cloud/finding.rs").contains(&format!("=> {quoted}"))
}

/// Labels in selectors and after `by`.
fn labels(expression: &str) -> BTreeSet<&str> {
    let mut labels = BTreeSet::new();
    for (_, selector) in parts(expression, '{', '}') {
        labels.extend(selector.split(',').map(|pair| {
            let end = pair.find(['=', '!']).unwrap();
            pair[..end].trim()
        }));
    }
    for (before, list) in parts(expression, '(', ')') {
        if before.trim_end().ends_with(" by") {
            labels.extend(list.split(',').map(str::trim));
        }
    }
    labels
}

/// The values that selectors compare with; alternatives of a regular expression one by one.
fn values(expression: &str) -> Vec<&str> {
    let selectors = parts(expression, '{', '}').into_iter();
    let quoted = selectors.flat_map(|(_, selector)| selector.split('"').skip(1).step_by(2));
    let words = quoted.flat_map(|value| value.split('|'));
    words
        .filter(|word| !word.contains(['.', '$', '[']))
        .collect()
}

/// What stands between these, with what stands before.
fn parts(text: &str, open: char, close: char) -> Vec<(&str, &str)> {
    let begun = text.match_indices(open);
    begun
        .filter_map(|(at, _)| {
            let rest = &text[at + 1..];
            Some((&text[..at], &rest[..rest.find(close)?]))
        })
        .collect()
}

/// The Pod that is to be scraped is the Deployment's.
#[test]
fn the_pod_monitor_finds_the_pod() {
    let monitor: Value = serde_yaml::from_str(&monitoring("podmonitor.yaml")).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/deployment.yaml");
    let deployment: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let template = &deployment["spec"]["template"];
    let wanted = &monitor["spec"]["selector"]["matchLabels"];
    for (label, value) in wanted.as_object().unwrap() {
        assert_eq!(&template["metadata"]["labels"][label], value);
    }
    let namespace = &monitor["spec"]["namespaceSelector"]["matchNames"][0];
    assert_eq!(&deployment["metadata"]["namespace"], namespace);
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    let ports = template["spec"]["containers"][0]["ports"]
        .as_array()
        .unwrap();
    assert!(
        ports.iter().any(|port| port["name"] == endpoint["port"]),
        "{endpoint}"
    );
    assert_eq!(endpoint["path"], "/metrics");
}

/// `CCM_UPDATE_README=1 cargo test --test metrics` writes the table.
#[test]
fn the_readme_has_the_table_as_it_is() {
    let mut table = String::from("| metric | labels | meaning |\n|---|---|---|\n");
    for metric in TABLE {
        let labels: Vec<String> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (name, labels) = (metric.name, labels.join(", "));
        table += &format!("| `{name}` | {labels} | {} |\n", metric.help);
    }
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- metrics:begin -->", "<!-- metrics:end -->");
    let wanted = ccm::text::replaced_between(&readme, begin, end, &table).expect("both markers");
    if std::env::var_os("CCM_UPDATE_README").is_some_and(|value| !value.is_empty()) {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(
            readme == wanted,
            "the README's table of metrics is old: CCM_UPDATE_README=1"
        );
    }
}
