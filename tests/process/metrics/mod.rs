//! The metrics for Prometheus. Every metric moves when its cause happens, and everything exists that the alerts, the
//! dashboard and `ccm help metrics` name.

mod causes;
mod monitoring;
mod promtool;
mod recording;
mod worlds;

use crate::common::help::has_table;
use crate::common::{self, Cluster, Daemon, env, socket_cluster, wait_until, with};
use ccm::metrics::{MetricKind, TABLE};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

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

    /// Takes a scrape. Returns `None` when the daemon does not run any more.
    fn try_scrape(&self) -> Option<Scrape> {
        TcpStream::connect_timeout(&self.address, common::LIMIT).ok()?;
        Some(self.scrape())
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

/// The metric that a series belongs to.
fn family(series: &str) -> &str {
    let name = series.split('{').next().unwrap();
    let parts = ["_bucket", "_sum", "_count"];
    let stem = parts.iter().find_map(|part| name.strip_suffix(part));
    let is_histogram = |name: &&str| {
        let mut all = TABLE.iter();
        all.any(|metric| metric.name == *name && metric.kind == MetricKind::Histogram)
    };
    stem.filter(is_histogram).unwrap_or(name)
}

#[test]
fn the_exposition_is_one_that_prometheus_reads() {
    let sandbox = socket_cluster(1);
    let watched = Watched::start(&env(&sandbox), &[]);
    sandbox.wait_for_nodes();
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
            let metric = TABLE.iter().find(|metric| metric.name == described[described.len() - 1]);
            let metric = metric.unwrap();
            assert_eq!(kind, format!("{} {}", metric.name, metric.kind.name()));
        } else {
            let expected = described.last();
            assert_eq!(Some(&family(line.split(' ').next().unwrap())), expected);
        }
    }
    let names: Vec<&str> = TABLE.iter().map(|metric| metric.name).collect();
    assert_eq!(described, names);
}

#[test]
fn metrics_that_are_turned_off_leave_the_probes() {
    let sandbox = socket_cluster(0);
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
fn a_standby_has_metrics_too() {
    let sandbox = socket_cluster(1);
    let leader = Watched::start(&env(&sandbox), &[]);
    wait_until("a leader", || leader.scrape().get("ccm_leader") == Some(&1.0));
    let standby = Watched::start(&env(&sandbox), &[]);
    wait_until("a standby", || standby.get("/readyz").1 == "ok: standby\n");
    let scrape = standby.scrape();
    assert_eq!(scrape.get("ccm_leader"), Some(&0.0));
    let of_lease = "leader_election_master_status{name=\"cloud-controller-manager\"}";
    assert_eq!(scrape.get(of_lease), Some(&0.0));
    assert!(scrape.contains_key("process_resident_memory_bytes"));
    assert!(!scrape.keys().any(|series| series.starts_with("ccm_ticks_total")));
    leader.daemon.killer()();
    wait_until("it to lead", || standby.scrape().get("ccm_leader") == Some(&1.0));
    // Without leader election every daemon works.
    let alone = Watched::start(&env(&sandbox), &["--leader-elect=false"]);
    wait_until("work", || alone.scrape().get("ccm_leader") == Some(&1.0));
    assert!(!alone.scrape().contains_key(of_lease));
}

/// `CCM_UPDATE_HELP=1 cargo test --test process` writes the table.
#[test]
fn the_help_page_has_the_table_as_it_is() {
    let mut table = String::from("| metric | labels | meaning |\n|---|---|---|\n");
    for metric in TABLE {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, labels) = (metric.name, labels.join(", "));
        table += &format!("| `{name}` | {labels} | {} |\n", metric.help);
    }
    has_table("metrics", "metrics", &table);
}
