//! Reads Deployments and DaemonSets. The command `doctor` checks the workloads in the namespace of our daemon. Commands
//! that a user runs read the flags and variables of the daemon's container, and then use the same settings as the
//! daemon.

use super::client::{KubeClient, folder, percent_encoded};
use super::error::KubeError;
use crate::text;
use serde_json::Value;

/// A Deployment or DaemonSet that runs pods.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The kind and the name, written as `deployment/NAME` or `daemonset/NAME`.
    pub name: String,
    pub images: Vec<String>,
    /// The port numbers that the probes of the workload's containers use.
    pub probed_ports: Vec<u64>,
    /// How many pods are ready, and how many pods the workload should have. `None` means that Kubernetes has not
    /// counted the pods yet.
    pub pods: Option<(u64, u64)>,
}

/// The flags and environment variables with which a container is started. Values that are not in the workload object,
/// e.g. those in a Secret, are not known here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// The arguments of the container's command line, without the program at its beginning.
    pub words: Vec<String>,
    /// The names and values of the environment variables.
    pub variables: Vec<(String, String)>,
    /// The variables and flags whose values are not in the workload object. Each has a text that says where the value
    /// is, e.g. `a Secret`.
    pub elsewhere: Vec<(String, &'static str)>,
    /// Whether the container has an `envFrom`, which imports all variables of a ConfigMap or Secret without a list of
    /// their names.
    pub imports: bool,
}

const APPS: &str = "apis/apps/v1";

/// A container whose name begins with one of these texts is taken for a cloud-controller-manager.
const NAMES: [&str; 2] = ["ccm", "hcloud-cloud-controller-manager"];

/// A workload is taken for a cloud-controller-manager when its name, or the name or image of one of its containers,
/// contains one of these texts.
const DAEMONS: [&str; 2] = ["ccm-from-scratch", NAMES[1]];

/// The fields that `valueFrom` can have, each with the text that says in messages where the value is.
const PLACES: [(&str, &str); 4] = [
    ("secretKeyRef", "a Secret"),
    ("configMapKeyRef", "a ConfigMap"),
    ("fieldRef", "the pod"),
    ("resourceFieldRef", "the pod"),
];

impl KubeClient {
    /// Returns the Deployments and DaemonSets of a namespace, without those that are scaled to zero.
    pub fn workloads(&self, namespace: &str) -> Result<Vec<Workload>, KubeError> {
        Ok(self.running(namespace)?.iter().map(workload).collect())
    }

    /// Returns the objects of the Deployments and DaemonSets of a namespace that are not scaled to zero. The text in
    /// each pair is the resource of the object, `deployments` or `daemonsets`.
    fn running(&self, namespace: &str) -> Result<Vec<(&'static str, Value)>, KubeError> {
        let mut all = Vec::new();
        for resource in ["deployments", "daemonsets"] {
            // The request sets no limit of items, so the whole list comes in one answer. This is no problem, because
            // there are few Deployments and DaemonSets.
            let mut list = self.document(&folder(APPS, namespace, resource), "items")?;
            if let Value::Array(items) = list["items"].take() {
                let running =
                    items.into_iter().filter(|workload| workload["spec"]["replicas"] != 0);
                all.extend(running.map(|workload| (resource, workload)));
            }
        }
        Ok(all)
    }

    /// Returns the Deployments and DaemonSets of a namespace that run a cloud-controller-manager, which is this program
    /// or hcloud-cloud-controller-manager. The text in each pair is `deployment` or `daemonset`. The list is empty when
    /// the API server does not serve Deployments and DaemonSets.
    pub fn daemons(&self, namespace: &str) -> Result<Vec<(&'static str, Value)>, KubeError> {
        let all = match self.running(namespace) {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            all => all?.into_iter(),
        };
        let daemons = all.filter(|(_, one)| is_daemon(one));
        Ok(daemons.map(|(resource, one)| (resource.trim_end_matches('s'), one)).collect())
    }

    /// Returns a Deployment or DaemonSet with all its fields. Returns `None` when the API server answers that the
    /// object does not exist. A 404 that a proxy has sent is an error.
    pub fn workload(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, KubeError> {
        let (all, name) = (folder(APPS, namespace, plural), percent_encoded(name));
        self.get_if_there(&format!("{all}/{name}"))
    }
}

/// Whether the workload runs a cloud-controller-manager, judged by its own name and by
/// the names and images of its containers.
fn is_daemon(workload: &Value) -> bool {
    let names = containers(workload).iter();
    let names = names.flat_map(|container| [text(&container["name"]), text(&container["image"])]);
    let mut names = names.chain([text(&workload["metadata"]["name"])]);
    names.any(|name| DAEMONS.iter().any(|daemon| name.contains(daemon)))
}

fn workload((resource, item): &(&str, Value)) -> Workload {
    let kind = resource.trim_end_matches('s');
    let (spec, status) = (&item["spec"], &item["status"]);
    let wanted = match *resource {
        "daemonsets" => status["desiredNumberScheduled"].as_u64(),
        _ => status["observedGeneration"].as_u64().and(spec["replicas"].as_u64()),
    };
    // Kubernetes leaves out `readyReplicas` when no pod is ready, so a missing number counts as zero.
    let ready = ["readyReplicas", "numberReady"].iter().find_map(|name| status[name].as_u64());
    let mut workload = Workload {
        name: format!("{kind}/{}", text(&item["metadata"]["name"])),
        images: Vec::new(),
        probed_ports: Vec::new(),
        pods: wanted.map(|wanted| (ready.unwrap_or(0), wanted)),
    };
    for container in containers(item) {
        workload.images.push(text(&container["image"]).to_owned());
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            for how in ["httpGet", "tcpSocket"] {
                let port = &container[probe][how]["port"];
                workload.probed_ports.extend(number(container, port));
            }
        }
    }
    workload
}

/// Returns the port number that a probe uses. A probe can give the number itself, or the name of one of the container's
/// ports. Returns `None` when the container has no port of this name.
fn number(container: &Value, port: &Value) -> Option<u64> {
    let name = match port {
        Value::Number(number) => return number.as_u64(),
        Value::String(name) => name,
        _ => return None,
    };
    let named = container["ports"].as_array()?.iter().find(|port| port["name"] == name.as_str())?;
    named["containerPort"].as_u64()
}

fn containers(workload: &Value) -> &[Value] {
    items(&workload["spec"]["template"]["spec"]["containers"])
}

/// Returns the container that runs a cloud-controller-manager. The error says why it is not clear which
/// container that is. The name of the workload is the subject of this sentence.
pub fn container(workload: &Value) -> Result<Container, String> {
    let all = containers(workload);
    let name = |container: &Value| text(&container["name"]).to_owned();
    let is_named =
        |container: &&Value| NAMES.iter().any(|start| name(container).starts_with(start));
    let named: Vec<&Value> = all.iter().filter(is_named).collect();
    let container = match (named.as_slice(), all) {
        ([one], _) => one,
        ([], [one]) => one,
        (_, []) => return Err("has no container".to_owned()),
        (_, several) => {
            let names: Vec<String> = several.iter().map(name).collect();
            return Err(format!(
                "has several containers ({}), and it is not clear which of them is the cloud-controller-manager; the name \
                 of exactly one container should begin with ccm or {}",
                text::some_of(&names),
                NAMES[1]
            ));
        }
    };
    let mut read =
        Container { imports: !items(&container["envFrom"]).is_empty(), ..Container::default() };
    for variable in items(&container["env"]) {
        read.variable(variable);
    }
    let program = items(&container["command"]).iter().skip(1);
    for word in program.chain(items(&container["args"])) {
        read.word(text(word));
    }
    Ok(read)
}

impl Container {
    fn variable(&mut self, variable: &Value) {
        let name = text(&variable["name"]).to_owned();
        // When several variables have the same name, Kubernetes uses the last one. The earlier ones are removed here.
        self.variables.retain(|(other, _)| *other != name);
        self.elsewhere.retain(|(other, _)| *other != name);
        let from = &variable["valueFrom"];
        if from.is_null() {
            match self.expanded(text(&variable["value"])) {
                Ok(value) => self.variables.push((name, value)),
                Err(place) => self.elsewhere.push((name, place)),
            }
            return;
        }
        let place = PLACES.iter().find(|(field, _)| !from[*field].is_null());
        let place = place.map_or("another place", |(_, place)| *place);
        self.elsewhere.push((name, place));
    }

    fn word(&mut self, word: &str) {
        match self.expanded(word) {
            Ok(word) => self.words.push(word),
            Err(place) => {
                self.elsewhere.push((word.split('=').next().unwrap_or(word).to_owned(), place));
            }
        }
    }

    /// Replaces `$(NAME)` by the value of the variable `NAME`, as the kubelet does. Returns an error when the text
    /// contains `$$`, or a variable whose value is not known here. The error is a text for messages that says where the
    /// value is, e.g. `another place`.
    fn expanded(&self, text: &str) -> Result<String, &'static str> {
        let expand = |text: String, (name, value): &(String, String)| {
            text.replace(&format!("$({name})"), value)
        };
        let expanded = self.variables.iter().fold(text.to_owned(), expand);
        if text.contains("$$") || expanded.contains("$(") {
            Err("another place")
        } else {
            Ok(expanded)
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(containers: Value) -> Result<Container, String> {
        container(&json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
    }

    #[test]
    fn the_container_that_is_meant() {
        let one = |name: &str| json!({ "name": name, "args": [name] });
        for (names, meant) in [
            (&["web"][..], Ok("web")),
            (&["proxy", "ccm"], Ok("ccm")),
            (&["ccm-daemon", "proxy"], Ok("ccm-daemon")),
            (&["hcloud-cloud-controller-manager", "proxy"], Ok("hcloud-cloud-controller-manager")),
            (&["ccm", "ccm-2"], Err("ccm, ccm-2")),
            (&["a", "b"], Err("a, b")),
            (&[], Err("no container")),
        ] {
            let read = of(names.iter().map(|name| one(name)).collect());
            match meant {
                Ok(meant) => assert_eq!(read.unwrap().words, [meant], "{names:?}"),
                Err(part) => assert!(read.unwrap_err().contains(part), "{names:?}"),
            }
        }
    }

    #[test]
    fn what_it_is_started_with() {
        let from = |place: &str| json!({ place: { "name": "x", "key": "y" } });
        let read = of(json!([{
            "name": "ccm",
            "command": ["/ccm", "run"],
            "args": ["--a=$(PLAIN)", "--b=$(SECRET)", "--d=$$(PLAIN)", "5$", "--c"],
            "env": [
                { "name": "PLAIN", "value": "first" },
                { "name": "PLAIN", "value": "v" },
                { "name": "TWO", "value": "$(PLAIN)$(PLAIN)" },
                { "name": "SECRET", "valueFrom": from("secretKeyRef") },
                { "name": "MAP", "valueFrom": from("configMapKeyRef") },
                { "name": "OF_SECRET", "value": "x$(SECRET)" },
                { "name": "EMPTY" },
            ],
        }]))
        .unwrap();
        assert_eq!(read.words, ["run", "--a=v", "5$", "--c"]);
        let variables = [("PLAIN", "v"), ("TWO", "vv"), ("EMPTY", "")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read.variables, variables);
        let elsewhere = [
            ("SECRET", "a Secret"),
            ("MAP", "a ConfigMap"),
            ("OF_SECRET", "another place"),
            ("--b", "another place"),
            ("--d", "another place"),
        ];
        assert_eq!(read.elsewhere, elsewhere.map(|(name, place)| (name.to_owned(), place)));
        assert!(!read.imports);
        let imports = of(json!([{
            "name": "ccm", "envFrom": [{ "configMapRef": { "name": "x" } }], "args": ["--a=$(UNKNOWN)"],
        }]));
        let imports = imports.unwrap();
        assert!(imports.imports && imports.words.is_empty(), "{imports:?}");
    }
}
