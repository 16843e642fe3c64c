//! The pages of `manifests/monitoring` use names, labels and values of existing metrics.

use crate::metrics::causes::sequences;
use crate::metrics::family;
use ccm::controllers::route::State;
use ccm::metrics::{MetricKind, TABLE};
use ccm::provider::Reason;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

pub fn monitoring(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/monitoring");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// Returns the words of an expression that could be metrics of ours.
fn named(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| {
            ["hcloud_", "robot_api_", "ccm_", "process_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
        })
        .collect()
}

/// The beginnings of metrics that Kubernetes' own components have, too. They are for dashboards and alerts that people
/// already have; our own dashboard shows the same by our own metrics.
const OF_KUBERNETES: [&str; 4] =
    ["leader_election_", "node_controller_", "route_controller_", "rest_client_"];

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

/// The runbook of each alert has a heading with the alert's name, and then three lines.
#[test]
fn every_alert_has_its_runbook() {
    let alerts: Value = serde_yaml::from_str(&monitoring("alerts.yaml")).unwrap();
    let readme = monitoring("README.md");
    let rules = alerts["spec"]["groups"][0]["rules"].as_array().unwrap();
    let names: Vec<&str> = rules.iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    let (_, books) = readme.split_once("# Runbooks\n").unwrap();
    let books: Vec<(&str, &str)> =
        books.split("\n## ").skip(1).map(|book| book.split_once('\n').unwrap()).collect();
    let headings: Vec<&str> = books.iter().map(|(heading, _)| *heading).collect();
    assert_eq!(headings, names);
    for (heading, book) in books {
        for part in ["- **Meaning**: ", "- **First**: ", "- **Fix**: "] {
            assert!(book.contains(part), "{heading}: {part}");
        }
    }
}

/// Names, labels and their values are checked. An alert on a value that never occurs never fires.
#[test]
fn every_alert_and_panel_uses_an_existing_metric() {
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
                let expected = there.kind == MetricKind::Histogram;
                assert_eq!(is_part, expected, "{name}: {expression}");
                used.insert(there.name);
            }
            for label in labels(expression) {
                let known = TABLE.iter().any(|one| one.labels.contains(&label));
                let is_prometheus =
                    ["le", "cluster", "job", "instance", "namespace", "pod"].contains(&label);
                assert!(known || is_prometheus, "{name}: no label {label}: {expression}");
            }
            for value in values(expression) {
                assert!(is_said(value), "{name}: nobody says {value}: {expression}");
            }
        }
    }
    let is_ours = |name: &&str| !OF_KUBERNETES.iter().any(|prefix| name.starts_with(prefix));
    let all: BTreeSet<&str> = TABLE.iter().map(|metric| metric.name).filter(is_ours).collect();
    assert_eq!(used, all, "what nobody looks at need not be measured");
    for rule in alerts["spec"]["groups"][0]["rules"].as_array().unwrap() {
        for field in ["alert", "expr"] {
            assert!(rule[field].is_string(), "{rule}");
        }
        for field in ["summary", "description"] {
            assert!(rule["annotations"][field].is_string(), "{rule}");
        }
        let runbook = rule["annotations"]["runbook_url"].as_str().unwrap();
        let heading = rule["alert"].as_str().unwrap().to_lowercase();
        assert!(runbook.ends_with(&format!("monitoring/README.md#{heading}")), "{rule}");
        let expression = rule["expr"].as_str().unwrap();
        assert!(expression.contains("(cluster, job"), "{rule}");
        assert!(rule["labels"]["severity"].is_string(), "{rule}");
    }
}

/// Whether a label may have this value, in a step, in a metric's help, as a status or as a reason.
fn is_said(value: &str) -> bool {
    let quoted = format!("{value:?}");
    let steps = sequences().into_iter().flatten();
    let mut moves = steps.flat_map(|(_, _, moves)| *moves);
    let mut helps = TABLE.iter().map(|metric| metric.help);
    let is_in = |help: &str| {
        let mut words = help.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word == value)
    };
    moves.any(|(series, _)| series.contains(&quoted))
        || helps.any(is_in)
        || value.parse::<u16>().is_ok_and(|status| status < 600)
        || Reason::ALL.iter().any(|reason| reason.name() == value)
}

#[test]
fn the_states_of_routes_are_words_without_spaces() {
    for state in State::ALL {
        let label = state.label();
        assert!(!label.contains(' ') && is_said(&label), "{label}");
    }
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

/// Returns the values that selectors compare with. The alternatives of a regular expression are separate values.
fn values(expression: &str) -> Vec<&str> {
    let selectors = parts(expression, '{', '}').into_iter();
    let quoted = selectors.flat_map(|(_, selector)| selector.split('"').skip(1).step_by(2));
    let words = quoted.flat_map(|value| value.split('|'));
    words.filter(|word| !word.contains(['.', '$', '['])).collect()
}

/// Returns each text between these characters, with the text before it.
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base/deployment.yaml");
    let deployment: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let template = &deployment["spec"]["template"];
    let wanted = &monitor["spec"]["selector"]["matchLabels"];
    for (label, value) in wanted.as_object().unwrap() {
        assert_eq!(&template["metadata"]["labels"][label], value);
    }
    let namespace = &monitor["spec"]["namespaceSelector"]["matchNames"][0];
    assert_eq!(&deployment["metadata"]["namespace"], namespace);
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["name"] == endpoint["port"]), "{endpoint}");
    assert_eq!(endpoint["path"], "/metrics");
}
