//! Alerts and dashboard, evaluated by Prometheus' own tool (`make promtool`) on what daemons said in the sandbox.

use crate::common::run_in_parallel;
use crate::metrics::monitoring::monitoring;
use crate::metrics::recording::{Recording, SHOWN_MINUTES, STEP_S};
use crate::metrics::worlds::{WORLDS, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// The value that Grafana inserts for a scrape every half minute, which is four of them.
const RATE_INTERVAL: &str = "2m";

/// Panels that show what does not change, or what lasts for one tick and is met by few scrapes.
const STEADY: [&str; 2] = ["State: Version", "What it does: Planned changes"];

/// Runs promtool from the path, or from where `make promtool` puts it. Returns `None` when there is no promtool.
fn promtool(words: &[&str]) -> Option<Output> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/promtool");
    let run = |program: &Path| Command::new(program).args(words).output();
    let ran = run(Path::new("promtool")).or_else(|_| run(&made));
    if ran.is_err() {
        let why = "there is no promtool on this machine; make promtool builds one";
        sandbox::skipped::skip("alerts and dashboard, evaluated", "promtool", why);
    }
    ran.ok()
}

fn said(ran: &Output) -> String {
    let both = [&ran.stdout[..], &ran.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// A folder with the rules, as Prometheus reads them without its operator.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("promtool");
    std::fs::create_dir_all(&folder).unwrap();
    let rules = serde_yaml::to_string(&alerts()["spec"]).unwrap();
    std::fs::write(folder.join("rules.yaml"), rules).unwrap();
    folder
}

fn alerts() -> Value {
    serde_yaml::from_str(&monitoring("alerts.yaml")).unwrap()
}

/// Row and title of the panel, and expression.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&monitoring("dashboard.json")).unwrap();
    let mut found = Vec::new();
    let mut row = "";
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        if panel["type"] == "row" {
            row = title;
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$__rate_interval", RATE_INTERVAL);
            let expression = expression.replace("$cluster", "one").replace("$job", ".+");
            assert!(!expression.contains('$'), "{expression}");
            found.push((format!("{row}: {title}"), expression));
        }
    }
    found
}

#[test]
fn every_alert_fires_and_every_panel_moves_when_its_cause_happens() {
    let folder = folder();
    let rules = folder.join("rules.yaml");
    let Some(ran) = promtool(&["check", "rules", rules.to_str().unwrap()]) else {
        return;
    };
    assert!(ran.status.success(), "{}", said(&ran));
    every_alert_has_a_world();
    let moved = Mutex::new(BTreeSet::new());
    let wrong = Mutex::new(Vec::new());
    run_in_parallel(WORLDS.iter().collect(), |world: &World| {
        let recording = (world.recording)();
        let mut tests = vec![which_fire(world)];
        for (title, labels) in world.moves {
            let asked = panels().into_iter().filter(|(other, expression)| {
                let has = |(label, _): &(&str, &str)| expression.contains(label);
                other == title && labels.iter().all(has)
            });
            let asked: Vec<(String, String)> = asked.collect();
            assert!(!asked.is_empty(), "{}: no panel {title}", world.name);
            tests.extend(asked.iter().map(|(_, one)| moves(&recording, one, labels)));
            moved.lock().unwrap().extend(asked);
        }
        if world.fires.is_empty() {
            let steady = panels().into_iter().filter(|(title, _)| STEADY.contains(&title.as_str()));
            let steady: Vec<(String, String)> = steady.collect();
            tests.extend(steady.iter().map(|(_, one)| is_one(&format!("count({one}) > bool 0"))));
            moved.lock().unwrap().extend(steady);
        }
        let test = json!({
            "rule_files": ["rules.yaml"],
            "evaluation_interval": format!("{STEP_S}s"),
            "tests": [{
                "name": world.name,
                "interval": format!("{STEP_S}s"),
                "input_series": recording.series(),
                "promql_expr_test": tests,
            }],
        });
        drop(recording);
        // JSON is YAML.
        let path = folder.join(format!("{}.json", world.name.replace(' ', "-")));
        std::fs::write(&path, test.to_string()).unwrap();
        let ran = promtool(&["test", "rules", path.to_str().unwrap()]).unwrap();
        if !ran.status.success() {
            wrong.lock().unwrap().push(format!("{}: {}", world.name, said(&ran)));
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all: BTreeSet<(String, String)> = panels().into_iter().collect();
    assert_eq!(moved.into_inner().unwrap(), all, "every panel has a world that moves it");
}

fn every_alert_has_a_world() {
    let rules = &alerts()["spec"]["groups"][0]["rules"];
    let named = rules.as_array().unwrap().iter();
    let named: BTreeSet<&str> = named.map(|rule| rule["alert"].as_str().unwrap()).collect();
    let fired = WORLDS.iter().flat_map(|world| world.fires).copied();
    assert_eq!(fired.collect::<BTreeSet<&str>>(), named);
}

/// Returns which alerts fired at any time: those that must, and of the others only those that may.
fn which_fire(world: &World) -> Value {
    let may = world.may.join("|");
    let fired = format!("ALERTS{{alertstate=\"firing\",alertname!~\"{may}\"}}[{SHOWN_MINUTES}m]");
    let samples = world
        .fires
        .iter()
        .map(|name| json!({"labels": format!("{{alertname={name:?}}}"), "value": 1}));
    expects(&format!("group by (alertname) (last_over_time({fired}))"), samples.collect())
}

/// Returns a test whether the value of an expression for these labels changes after the cause.
fn moves(recording: &Recording, expression: &str, labels: &[(&str, &str)]) -> Value {
    let mut chosen = format!("({expression})");
    for (label, value) in labels {
        chosen = format!(
            "({chosen} and on ({label}) label_replace(vector(1), {label:?}, {value:?}, \"\", \"\"))"
        );
    }
    // A range does not hold its own begin.
    let since_s = SHOWN_MINUTES * 60 - recording.cause * STEP_S + STEP_S;
    is_one(&format!("max(changes({chosen}[{since_s}s:{STEP_S}s])) > bool 0"))
}

fn is_one(expression: &str) -> Value {
    expects(expression, vec![json!({"labels": "{}", "value": 1})])
}

fn expects(expression: &str, samples: Vec<Value>) -> Value {
    let mut test = BTreeMap::new();
    test.insert("expr", json!(expression));
    test.insert("eval_time", json!(format!("{SHOWN_MINUTES}m")));
    test.insert("exp_samples", json!(samples));
    json!(test)
}
