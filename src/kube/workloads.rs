//! Deployments and DaemonSets: those beside us, for `doctor`; and what the container of one is started with, for a
//! person's commands may work with the daemon's settings.

use super::client::{Client, folder, percent_encoded};
use super::error::Error;
use crate::text;
use serde_json::Value;

/// A Deployment or DaemonSet that runs pods.
#[derive(Clone, Debug)]
pub struct Workload {
    /// `deployment/NAME`, `daemonset/NAME`.
    pub name: String,
    pub images: Vec<String>,
    /// Ports that its probes ask at, by number.
    pub probed_ports: Vec<u64>,
    /// How many pods are ready, and how many should be; none: its controller has not said it.
    pub pods: Option<(u64, u64)>,
}

/// What a container is started with, as far as the object itself says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// What comes after the program.
    pub words: Vec<String>,
    /// Names and values.
    pub variables: Vec<(String, String)>,
    /// Variables and flags whose value stands somewhere else, and where, e.g. `a Secret`.
    pub elsewhere: Vec<(String, &'static str)>,
    /// It takes whole ConfigMaps or Secrets for variables, whatever their names are.
    pub imports: bool,
}

const APPS: &str = "apis/apps/v1";

/// How a cloud-controller-manager's container is called.
const NAMES: [&str; 2] = ["ccm", "hcloud-cloud-controller-manager"];

/// Part of the names of a daemon's workload, container or image.
const DAEMONS: [&str; 2] = ["ccm-from-scratch", NAMES[1]];

/// Where a value may come from, and what that is called.
const PLACES: [(&str, &str); 4] = [
    ("secretKeyRef", "a Secret"),
    ("configMapKeyRef", "a ConfigMap"),
    ("fieldRef", "the pod"),
    ("resourceFieldRef", "the pod"),
];

impl Client {
    /// Deployments and DaemonSets of a namespace, those scaled to nothing left out.
    pub fn workloads(&self, namespace: &str) -> Result<Vec<Workload>, Error> {
        let running = self.running(namespace)?;
        Ok(running.iter().map(workload).collect())
    }

    /// The same, whole, with their resource.
    fn running(&self, namespace: &str) -> Result<Vec<(&'static str, Value)>, Error> {
        let mut all = Vec::new();
        for resource in ["deployments", "daemonsets"] {
            // Without a limit everything comes in one answer; of these there are few.
            let mut list = self.document(&folder(APPS, namespace, resource), "items")?;
            if let Value::Array(items) = list["items"].take() {
                let running = items.into_iter().filter(|one| one["spec"]["replicas"] != 0);
                all.extend(running.map(|one| (resource, one)));
            }
        }
        Ok(all)
    }

    /// The cloud-controller-managers of a namespace, ours or upstream's: `deployment` or `daemonset`, and the object. An API
    /// server without these resources has none.
    pub fn daemons(&self, namespace: &str) -> Result<Vec<(&'static str, Value)>, Error> {
        let all = match self.running(namespace) {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            all => all?.into_iter(),
        };
        let daemons = all.filter(|(_, one)| is_daemon(one));
        Ok(daemons.map(|(resource, one)| (resource.trim_end_matches('s'), one)).collect())
    }

    /// An object of `apps/v1`, whole; none when the API server itself says that it is not there.
    pub fn workload(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Error> {
        let (all, name) = (folder(APPS, namespace, plural), percent_encoded(name));
        self.get_if_there(&format!("{all}/{name}"))
    }
}

/// By its own name, or that of a container or its image.
fn is_daemon(workload: &Value) -> bool {
    let names = containers(workload).iter();
    let names = names.flat_map(|one| [text(&one["name"]), text(&one["image"])]);
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
    // Zero is left out.
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

/// A probe may name one of the container's ports.
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

/// The one that runs a cloud-controller-manager; the error says why none is taken.
pub fn container(workload: &Value) -> Result<Container, String> {
    let all = containers(workload);
    let name = |one: &Value| text(&one["name"]).to_owned();
    let is_named = |one: &&Value| NAMES.iter().any(|start| name(one).starts_with(start));
    let named: Vec<&Value> = all.iter().filter(is_named).collect();
    let container = match (named.as_slice(), all) {
        ([one], _) => one,
        ([], [one]) => one,
        (_, []) => return Err("it has no container".to_owned()),
        (_, several) => {
            let names: Vec<String> = several.iter().map(name).collect();
            return Err(format!(
                "which of its containers is meant is not clear: {}; exactly one should be called ccm… or {}",
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
        // The last of a name counts.
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

    /// With the values of variables for `$(NAME)`, as the kubelet does it; the error, where it names what stands in
    /// another place, or has a `$$`.
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
