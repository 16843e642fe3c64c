//! Replays recorded requests against the simulated Kubernetes API, and compares the answers with those of a real API
//! server. The requests have the order of the recording.
//!
//! The recordings are data outside the repository: the folder in `CCM_TEST_KUBERNETES_DATA`, or else
//! `../shared/data/kubernetes` beside the repository. Without them the test is skipped and reports this.

mod compare;
mod order;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox::exchange::{Handler, Request, Response};
use sandbox::kubernetes::{Cluster, User};
use serde_json::Value;

use compare::Names;
use order::{Exemption, ORDER, Who};

const ADMIN_TOKEN: &str = "admin";
const LIMITED_TOKEN: &str = "limited";

#[test]
fn answers_equal_the_recorded_ones_of_a_real_server() {
    let Some(folder) = data_folder() else {
        sandbox::skipped::skip(
            "answers_equal_the_recorded_ones_of_a_real_server",
            "recordings",
            "CCM_TEST_KUBERNETES_DATA names no folder",
        );
        return;
    };
    let cluster = cluster();
    let mut names = Names::default();
    let mut failures = Vec::new();
    let mut replayed = 0;
    let mut done = BTreeSet::new();
    for case in ORDER {
        let Some(recorded) = load(&folder, case.name) else {
            failures.push(format!("{}: not recorded", case.name));
            continue;
        };
        done.insert(case.name.to_string());
        if let Some(before) = case.before {
            before(&cluster);
        }
        let answer = send(&cluster, &names.apply(&recorded["request"]), case.who);
        let differences = compare::differences(case, &recorded["response"], &answer, &mut names);
        match (case.exempt, differences.is_empty()) {
            (Some(Exemption::Whole(reason)), false) => {
                sandbox::skipped::skip(&format!("replay of {}", case.name), "", reason)
            }
            (Some(Exemption::Whole(_)), true) => {
                failures.push(format!("{}: listed as skipped and passes", case.name));
            }
            (_, true) => {
                replayed += 1;
                eprintln!("replayed {}", case.name);
            }
            (_, false) => {
                failures.push(format!("{}:\n    {}", case.name, differences.join("\n    ")))
            }
        }
    }
    failures.extend(
        recordings(&folder)
            .difference(&done)
            .map(|name| format!("{name}: not listed in the order")),
    );
    eprintln!("replayed {replayed} of {} cases", ORDER.len());
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

fn data_folder() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/kubernetes");
    let folder = std::env::var_os("CCM_TEST_KUBERNETES_DATA").map_or_else(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

/// Creates the cluster as it was before the first recorded request. It has an administrator, and a service account
/// without any rights.
fn cluster() -> Arc<Cluster> {
    let cluster = Cluster::new();
    cluster.add_user(User {
        name: "admin".into(),
        groups: vec!["system:masters".into()],
        tokens: vec![ADMIN_TOKEN.into()],
        ..User::default()
    });
    cluster.add_user(User {
        name: "system:serviceaccount:kube-system:limited".into(),
        groups: vec!["system:serviceaccounts".into()],
        tokens: vec![LIMITED_TOKEN.into()],
        ..User::default()
    });
    cluster
}

fn load(folder: &Path, name: &str) -> Option<Value> {
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).ok()?;
    serde_json::from_str(&text).ok()
}

/// Returns the names of all recordings as `FOLDER/CASE`.
fn recordings(folder: &Path) -> BTreeSet<String> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder)
            .map_or_else(|_| Vec::new(), |found| found.flatten().map(|one| one.path()).collect())
    };
    let files =
        entries(folder).into_iter().filter(|path| path.is_dir()).flat_map(|path| entries(&path));
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter_map(|path| {
            let relative = path.strip_prefix(folder).ok()?.with_extension("");
            Some(relative.to_string_lossy().replace('\\', "/"))
        })
        .collect()
}

fn send(cluster: &Cluster, recorded: &Value, who: Who) -> Response {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let target = text(&recorded["path"]);
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut headers: Vec<(String, String)> = recorded["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.to_lowercase(), text(value)))
        .collect();
    let token = match who {
        Who::Admin => Some(ADMIN_TOKEN),
        Who::Limited => Some(LIMITED_TOKEN),
        Who::WrongToken => Some("wrong"),
        Who::Nobody => None,
    };
    headers.extend(token.map(|token| ("authorization".to_string(), format!("Bearer {token}"))));
    let body = match &recorded["body"] {
        Value::Null => Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    };
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    cluster.handle(&Request {
        method: text(&recorded["method"]),
        path: decode(path),
        query: query.map(|(name, value)| (decode(name), decode(value))).collect(),
        headers,
        body,
        client_certificate: None,
    })
}

/// Decodes a percent-encoded text.
fn decode(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(part.len().min(2));
        bytes.push(u8::from_str_radix(code, 16).expect("a recorded path is well-formed"));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).expect("a recorded path is UTF-8")
}
