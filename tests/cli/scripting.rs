//! Documents for scripts, whose schema is `ccm help scripting`.

use crate::common::cluster::service;
use crate::common::{self, Cluster, Env, ccm, env, with};
use crate::lb::cluster;
use sandbox::Sandbox;
use sandbox::credentials::Validity;
use sandbox::faults::Effect;
use sandbox::kubernetes::Pod;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const SUBJECTS: [&str; 4] = ["Node", "LoadBalancer", "Route", "Manifest"];

/// Collects every path to a value that is no list and no object. Below a change only its name counts.
fn paths(value: &Value, at: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let is_change = at == "items[].changes[]";
            for (name, value) in fields.iter().filter(|(name, _)| !is_change || *name == "change") {
                let dot = if at.is_empty() { "" } else { "." };
                paths(value, &format!("{at}{dot}{name}"), all);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().for_each(|one| paths(one, &format!("{at}[]"), all))
        }
        _ => drop(all.insert(at.to_owned())),
    }
}

/// Returns the paths in the tables of the help page, by the kind that the first heading of a table names.
fn listed() -> BTreeMap<&'static str, BTreeSet<String>> {
    let page = include_str!("../../src/help/scripting.md");
    let mut all: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut below = None;
    for row in page.lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        match cells[..] {
            [_, heading, "of", ..] => below = heading.strip_prefix("field"),
            [_, fields, of, ..] => {
                let Some(below) = below else { continue };
                let below = below
                    .strip_prefix(" of ")
                    .map_or_else(String::new, |place| format!("{place}."));
                for subject in SUBJECTS.iter().filter(|name| of == "all" || of.contains(*name)) {
                    let fields = fields.split('`').skip(1).step_by(2);
                    let fields = fields.map(|field| format!("{below}{field}"));
                    all.entry(subject).or_default().extend(fields);
                }
            }
            _ => below = None,
        }
    }
    all
}

/// Returns the environment of a person who may do everything and has no settings of the daemon.
fn admin(sandbox: &Sandbox) -> Env {
    let admin = sandbox.env();
    with(env(sandbox), &[("KUBECONFIG", common::variable(&admin, "KUBECONFIG"))])
}

/// Starts a cluster in which one load balancer can't have all nodes as targets, and another one is larger than it needs
/// to be.
fn crowded() -> Sandbox {
    let sandbox = common::builder().nodes(27).scale(0.01).start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    let full = [
        ("location", "fsn1"),
        ("type", "auto"),
        ("type-max", "lb11"),
        ("prefer-nodes-with-pods", "true"),
    ];
    let mut local = service("full", &full, &[80]);
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    sandbox.create_as(local);
    let pods = [("worker-1", Pod::Ready), ("worker-9", Pod::Terminating)];
    sandbox.cluster().set_endpoints("default", "full", &pods);
    let few = ("node-selector", "kubernetes.io/hostname=worker-1");
    sandbox.create("grown", &[("location", "fsn1"), ("type", "lb21"), few], &[81]);
    ccm(&admin(&sandbox), &["lb", "sync"]).with_code(0);
    sandbox.annotate("grown", "type", Some("auto"));
    sandbox
}

#[test]
fn each_field_of_a_document_is_in_the_help_page_and_each_of_the_page_in_a_document() {
    let sandbox = cluster();
    let identity = sandbox.service("kubernetes").unwrap();
    let labels = json!({
        "ccm-from-scratch/cluster-uid": identity["metadata"]["uid"], "hcloud-ccm/service-uid": "gone",
    });
    let certificate = json!({
        "name": "left", "type": "managed", "domain_names": ["a.example"], "labels": labels,
    });
    sandbox.create_certificate(certificate);
    let labels = json!({
        "ccm-from-scratch/cluster-uid": identity["metadata"]["uid"], "ccm-from-scratch/keep": "default.gone",
    });
    let kept = json!({ "labels": labels });
    sandbox.create_balancer("stays", &kept);
    sandbox.join_node("late");
    sandbox.annotate("web", "hostname", Some("web.example"));
    let env = admin(&sandbox);
    let cidr = "--cluster-cidr=10.244.0.0/16";
    let manifest = std::env::temp_dir().join(format!("ccm-scripting-{}.yaml", std::process::id()));
    let wrong = service("x", &[("typ", "x")], &[80]);
    std::fs::write(&manifest, wrong.to_string()).unwrap();
    let manifest = manifest.display().to_string();
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for words in [
        &["node", "list"][..],
        &["node", "inspect", "late"],
        &["lb", "list"],
        &["lb", "inspect", "default/sick"],
        &["lb", "sync"],
        &["lb", "inspect", "default/web"],
        &["lb", "inspect", "default/edited"],
        &["route", "list", cidr],
        &["route", "sync", cidr],
        &["node", "sync"],
        &["route", "list", cidr, "--settings-from=none"],
        &["lint", &manifest],
    ] {
        let document = ccm(&env, &[words, &["-o", "json"]].concat()).json();
        assert_eq!(document["apiVersion"], "ccm/v2");
        let kind = document["kind"].as_str().unwrap();
        let subject = SUBJECTS.iter().find(|name| kind.starts_with(*name)).unwrap();
        paths(&document, "", found.entry(subject).or_default());
    }
    std::fs::remove_file(&manifest).unwrap();
    let groups = crate::groups::cluster();
    ccm(&admin(&groups), &["lb", "sync"]).with_code(0);
    let document = ccm(&admin(&groups), &["lb", "list", "-o", "json"]).json();
    paths(&document, "", found.entry("LoadBalancer").or_default());
    let tls = common::builder().nodes(1).scale(0.01).start();
    let one = tls.authority().server(&["a.example"], Validity::Now).unwrap();
    tls.create_certificate(json!({
        "name": "one", "certificate": one.certificate_pem, "private_key": one.key_pem,
        "labels": {"ccm-from-scratch/secret": "default.web-tls"},
    }));
    let shows = [("protocol", "https"), ("http-certificates", "one"), ("location", "fsn1")];
    tls.create("tls", &shows, &[443]);
    ccm(&admin(&tls), &["lb", "sync"]).with_code(0);
    let document = ccm(&admin(&tls), &["lb", "list", "-o", "json"]).json();
    paths(&document, "", found.entry("LoadBalancer").or_default());
    let crowded = crowded();
    for words in [&["lb", "list"][..], &["lb", "inspect", "default/grown"]] {
        let document = ccm(&admin(&crowded), &[words, &["-o", "json"]].concat()).json();
        paths(&document, "", found.entry("LoadBalancer").or_default());
    }
    let status = ccm(&admin(&crowded), &["status", "-o", "json"]).json();
    assert_eq!(status["loadBalancerTypes"], json!({ "lb11": 1, "lb21": 1 }));
    let metal = common::builder().nodes(0).robot(1).start();
    let document = ccm(&admin(&metal), &["node", "list", "-o", "json"]).json();
    paths(&document, "", found.entry("Node").or_default());
    let listed = listed();
    for subject in SUBJECTS {
        let (listed, found) = (&listed[subject], &found[subject]);
        // Without a value the whole object is null.
        let is_whole = |path: &String| {
            listed.iter().any(|one| {
                one.starts_with(&format!("{path}.")) || one.starts_with(&format!("{path}["))
            })
        };
        let unlisted: Vec<&String> =
            found.difference(listed).filter(|path| !is_whole(path)).collect();
        assert!(unlisted.is_empty(), "{subject}: not in ccm help scripting: {unlisted:?}");
    }
    // A path that is listed for all kinds is in one of the documents.
    let every: BTreeSet<&String> = found.values().flatten().collect();
    let missing: Vec<&String> =
        listed.values().flatten().filter(|path| !every.contains(path)).collect();
    assert!(missing.is_empty(), "in no document: {missing:?}");
}

/// Words for programs have no spaces.
#[test]
fn words_in_a_document_have_no_spaces() {
    let sandbox = cluster();
    let env = admin(&sandbox);
    let words =
        ["kind", "state", "wants", "matchedBy", "severity", "reason", "status", "type", "change"];
    fn each(value: &Value, check: &mut dyn FnMut(&str, &str)) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
                Value::String(text) => check(name, text),
                value => each(value, check),
            }),
            Value::Array(items) => items.iter().for_each(|one| each(one, check)),
            _ => {}
        }
    }
    for command in
        [&["node", "list"][..], &["lb", "list"], &["route", "list", "--cluster-cidr=10.244.0.0/16"]]
    {
        let document = ccm(&env, &[command, &["-o", "json"]].concat()).json();
        let mut count = 0;
        each(&document, &mut |name, text| {
            if words.contains(&name) {
                count += 1;
                assert!(!text.contains(' '), "{command:?}: {name}: {text}");
            }
        });
        assert!(count > 3, "{document}");
    }
}

#[test]
fn an_inspection_shows_price_traffic_what_goes_on_and_events() {
    let sandbox = cluster();
    let id = sandbox.balancer_id("web");
    let cloud = sandbox.cloud();
    sandbox.edit_balancer(id, |one| {
        one["outgoing_traffic"] = json!(1_649_267_441_664_u64);
        one["ingoing_traffic"] = json!(3_221_225_472_u64);
    });
    cloud.set_metric(id, "open_connections", 12.0);
    cloud.set_metric(id, "connections_per_second", 3.5);
    cloud.set_metric(id, "requests_per_second", 40.25);
    let words = ["lb", "inspect", "default/web"];
    let ran = ccm(&admin(&sandbox), &words);
    for part in [
        "price    5.39 a month, without VAT\n",
        "traffic  this month 1.500 TiB out (of 20 included), 0.003 TiB in\n",
        "now      12.0 open connections, 3.5 new connections/s, 40.2 requests/s\n",
        "\nEVENTS\n  Normal EnsuredLoadBalancer, ",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    let json = ccm(&admin(&sandbox), &[&words[..], &["-o", "json"]].concat()).json();
    let found = &json["items"][0]["cloud"];
    assert_eq!(found["outgoingTraffic"], json!(1_649_267_441_664_u64));
    assert_eq!(found["includedTraffic"], json!(21_990_232_555_520_u64));
    assert_eq!(
        found["usage"],
        json!({ "openConnections": 12.0, "connectionsPerSecond": 3.5, "requestsPerSecond": 40.25 })
    );
    assert_eq!((&found["healthy"], &found["total"]), (&json!(3), &json!(3)));
    // Above 80 % of the traffic that the price includes, `doctor` warns.
    let of_traffic = |sandbox: &Sandbox| {
        let all = ccm(&admin(sandbox), &["doctor", "-o", "json"]).json();
        let messages = all["items"].as_array().unwrap().iter();
        let messages = messages.filter(|item| item["object"] == "load-balancer/web");
        messages.filter_map(|item| item["message"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(of_traffic(&sandbox), Vec::<String>::new());
    sandbox.edit_balancer(id, |one| one["outgoing_traffic"] = json!(19_791_209_299_968_u64));
    let said = "90 % of this month's included traffic is used; traffic above 100 % costs money";
    assert_eq!(of_traffic(&sandbox), [said]);
    // The rest is shown when it can't be read.
    let refused = Effect::hetzner_error(503, "unavailable", "later");
    sandbox.fault(common::on("/v1/load_balancers/*/metrics", refused));
    let ran = ccm(&admin(&sandbox), &words).with_code(0);
    ran.warns("the numbers of connections and requests can't be read: ");
    assert!(
        ran.stdout.contains("price    5.39 a month") && !ran.stdout.contains("\n  now "),
        "{ran:?}"
    );
}

/// The version tells what was built, by a plain `cargo` in tests, or by `make build`, which names commit and toolchain.
#[test]
fn the_version_is_a_document_too() {
    let shown = ccm(&Env::new(), &["version", "-o", "json"]).with_code(0);
    let document: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(document["apiVersion"], "ccm/v2");
    assert_eq!(document["kind"], "Version");
    let build = document["items"][0].as_object().unwrap();
    let names: Vec<&String> = build.keys().collect();
    assert_eq!(names, ["commit", "toolchain", "version"]);
    assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
    if let Some(commit) = build["commit"].as_str() {
        let digits = commit.strip_suffix("-dirty").unwrap_or(commit);
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        assert!(digits.len() == 40 && is_hexadecimal, "{commit}");
    }
    for words in [["version", "--output=yaml"].as_slice(), &["-oyml", "version"]] {
        let yaml = ccm(&Env::new(), words);
        let same: Value = serde_yaml::from_str(&yaml.stdout).unwrap();
        assert_eq!(same, document);
    }
    let text = ccm(&Env::new(), &["version"]).stdout;
    assert!(text.starts_with(concat!("ccm ", env!("CARGO_PKG_VERSION"), "\n")));
    ccm(&Env::new(), &["version", "-o", "xml"]).with_code(2);
}
