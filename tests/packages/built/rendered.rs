//! Manifests as a cluster would get them, and what `ccm` makes of its container's arguments and variables.

pub use crate::common::documents;
use ccm::settings::{Command as Settings, Environment, Parsed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

pub fn read(file: &str) -> Vec<Value> {
    documents(&std::fs::read_to_string(folder().join(file)).unwrap())
}

/// Returns the objects that every way of installing has in common.
pub fn base() -> Vec<Value> {
    let files = ["account", "role", "lease", "deployment"];
    let read = |file| read(&format!("base/{file}.yaml"));
    files.into_iter().flat_map(read).collect()
}

/// The only object of that kind.
pub fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let first = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    first
}

/// The Pod of a Deployment or DaemonSet.
pub fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

/// `resource`, a folder of the manifests, with a component, in an overlay of one's own.
pub fn with_component(resource: &str, component: &str) -> Option<Vec<Value>> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = place.join(format!("{component}-{}", resource.replace('/', "-")));
    std::fs::create_dir_all(&place).unwrap();
    let up = "../".repeat(place.components().count() - 1);
    let manifests = folder();
    let manifests = format!("{up}{}", manifests.strip_prefix("/").unwrap().display());
    let text = format!(
        "resources: [\"{manifests}/{resource}\"]\ncomponents: [\"{manifests}/components/{component}\"]\n"
    );
    std::fs::write(place.join("kustomization.yaml"), text).unwrap();
    kustomized_at(&place)
}

/// Returns an overlay as kubectl builds it, or `None` when there is no kubectl.
pub fn kustomized(overlay: &str) -> Option<Vec<Value>> {
    kustomized_at(&folder().join("overlays").join(overlay))
}

/// Returns a kustomization as kubectl builds it, or `None` when there is no kubectl.
pub fn kustomized_at(path: &Path) -> Option<Vec<Value>> {
    let built = Command::new("kubectl").arg("kustomize").arg(path).output();
    let Ok(built) = built else {
        let why = "there is no kubectl on this machine";
        sandbox::skipped::skip(&path.display().to_string(), "kubectl", why);
        return None;
    };
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{complaint}");
    assert!(complaint.is_empty(), "{complaint}");
    Some(documents(&String::from_utf8(built.stdout).unwrap()))
}

/// The container's words, without `run`.
pub fn flags(container: &Value) -> Vec<String> {
    let words = container["args"].as_array().unwrap().iter();
    let mut words: Vec<String> = words.map(|word| word.as_str().unwrap().to_owned()).collect();
    assert_eq!(words.remove(0), "run");
    words
}

/// Returns the variables. Those that come from elsewhere have the text `from`.
pub fn variables(container: &Value) -> BTreeMap<String, String> {
    let list = container["env"].as_array().unwrap().iter();
    let text = |one: &Value| match one["value"].as_str() {
        Some(value) => value.to_owned(),
        None => {
            assert!(one["valueFrom"].is_object(), "{one}");
            "from".to_owned()
        }
    };
    let named = |one: &Value| (one["name"].as_str().unwrap().to_owned(), text(one));
    list.map(named).collect()
}

/// Returns the settings that `ccm` reads from a container. Fails when `ccm` does not understand everything.
pub fn understood(container: &Value) -> Parsed {
    struct Given(BTreeMap<String, String>);
    impl Environment for Given {
        fn get(&self, name: &str) -> Option<std::ffi::OsString> {
            self.0.get(name).map(Into::into)
        }
        fn names(&self) -> Vec<String> {
            self.0.keys().cloned().collect()
        }
        fn read_file(&self, _: &Path) -> std::io::Result<String> {
            Ok("from-a-file".to_owned())
        }
    }
    let words = flags(container).into_iter().map(Into::into).collect();
    let parsed = ccm::settings::parse(Settings::Run, words, &Given(variables(container)), None);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    parsed
}
