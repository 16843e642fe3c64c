//! A world in which all is well, and how it is broken.

pub use crate::common::cluster::KUBE_SYSTEM;
use crate::common::cluster::{held, lease_time};
use crate::common::{Cluster, Env, Ran, ccm, command, documents, env, variable, with};
use sandbox::Sandbox;
use sandbox::kubernetes::PolicyRule;
use serde_json::{Value, json};
use std::path::Path;

pub const CIDR: &str = "--cluster-cidr=10.244.0.0/16";

/// The daemon's account, and somebody who may list Deployments and events as well.
const ACCOUNT: &str = "system:serviceaccount:kube-system:ccm-from-scratch";
const PERSON: &str = "person";

/// A cluster with two nodes, a Network with their routes, a Service, a daemon that leads, and its Deployment.
pub struct World {
    pub sandbox: Sandbox,
    pub env: Env,
    /// The flags of every run.
    pub flags: Vec<&'static str>,
}

/// One check of a report.
#[derive(Clone, Debug)]
pub struct Check {
    pub status: String,
    pub message: String,
    pub remedy: String,
}

impl Check {
    /// # Panics
    /// Its status is another one, or its message has not all of these parts.
    #[track_caller]
    pub fn says(&self, status: &str, parts: &[&str]) {
        assert_eq!(self.status, status, "{self:?}");
        for part in parts {
            assert!(self.message.contains(part), "{part:?} in {self:?}");
        }
    }
}

pub fn manifests(file: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base");
    documents(&std::fs::read_to_string(folder.join(file)).unwrap())
}

pub fn rules(file: &str) -> Vec<PolicyRule> {
    serde_json::from_value(manifests(file)[0]["rules"].clone()).unwrap()
}

impl World {
    pub fn healthy() -> World {
        World::with_dedicated(0)
    }

    /// Returns such a cluster with this number of dedicated servers, each with its node.
    pub fn with_dedicated(servers: usize) -> World {
        World::with_machines(2, servers)
    }

    /// Returns such a cluster with these numbers of nodes on cloud servers and of dedicated servers with a node each.
    pub fn with_machines(nodes: usize, dedicated: usize) -> World {
        let sandbox = Sandbox::builder()
            .nodes(nodes)
            .robot(dedicated)
            .network("10.0.0.0/8")
            .scale(0.01)
            .heartbeats(false)
            .start();
        let network = sandbox.network_id();
        sandbox.cloud().set_expose_routes_to_vswitch(network, true);
        let first = ("location", "fsn1");
        sandbox.create("web", &[first], &[80]);
        let mut world = World { env: env(&sandbox), sandbox, flags: vec![CIDR] };
        let syncs = [&["node", "sync"][..], &["lb", "sync"], &["route", "sync", CIDR]];
        for words in syncs {
            ccm(&world.env, words).with_code(0);
        }
        // The clock is ahead, so that the renewal is recent however long a test takes.
        world.leads("worker-1_4711", -600);
        let mut deployment = manifests("deployment.yaml").remove(0);
        let replicas = deployment["spec"]["replicas"].clone();
        deployment["status"] = json!({ "observedGeneration": 1, "readyReplicas": replicas });
        world.sandbox.cluster().create("deployments", KUBE_SYSTEM, deployment);
        let workloads = PolicyRule {
            api_groups: vec!["apps".into()],
            resources: vec!["deployments".into(), "daemonsets".into()],
            verbs: vec!["get".into(), "list".into()],
            ..PolicyRule::default()
        };
        let events = PolicyRule {
            api_groups: vec![String::new()],
            resources: vec!["events".into()],
            verbs: vec!["list".into()],
            ..PolicyRule::default()
        };
        world.user(
            PERSON,
            [rules("role.yaml"), vec![workloads, events]].concat(),
            rules("lease.yaml"),
        );
        world
    }

    /// The daemon's own account.
    pub fn deployed() -> World {
        let mut world = World::healthy();
        world.user(ACCOUNT, rules("role.yaml"), rules("lease.yaml"));
        world
    }

    /// Runs commands as this user with these roles from now on.
    pub fn user(&mut self, name: &str, role: Vec<PolicyRule>, in_namespace: Vec<PolicyRule>) {
        self.sandbox.add_user(name, &[], role).unwrap();
        let cluster = self.sandbox.cluster();
        cluster.grant_in_namespace(name, "kube-system", in_namespace);
        let account = self.sandbox.env_of(name);
        self.set("KUBECONFIG", variable(&account, "KUBECONFIG"));
    }

    /// Gives the same person another cluster-wide role.
    pub fn role(&mut self, role: Vec<PolicyRule>) {
        self.user("somebody", role, rules("lease.yaml"));
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.env = with(self.env.clone(), &[(name, value)]);
    }

    /// Replaces the Lease by one that was renewed this number of seconds ago.
    pub fn leads(&self, holder: &str, ago_s: i64) {
        let now = jiff::Timestamp::now().as_second();
        let renewed = jiff::Timestamp::from_second(now - ago_s).unwrap();
        if !self.lease().is_null() {
            self.delete_lease();
        }
        self.create_lease(held(holder, 3600, &lease_time(renewed), 0));
    }

    /// A Deployment beside ours with one container, like this one.
    pub fn deployment(&self, name: &str, container: Value) {
        let labels = json!({ "app": name });
        let mut container = container;
        container["name"] = json!("main");
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": name },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [container] },
                },
            },
        });
        self.sandbox.cluster().create("deployments", KUBE_SYSTEM, deployment);
    }

    /// Runs doctor in the folder of the kubeconfig, so that no path is shown. Only the settings of the environment are
    /// used, unless the words say otherwise.
    pub fn doctor(&self, words: &[&str]) -> Ran {
        self.runs(&[&["doctor"], &self.flags[..], words].concat())
    }

    /// Returns one check of the report.
    pub fn check(&self, name: &str) -> Check {
        let checks = checks(&self.doctor(&["-o", "json"]));
        find(&checks, name).clone()
    }

    /// Any command.
    pub fn runs(&self, words: &[&str]) -> Ran {
        let has_own = words.iter().any(|word| word.starts_with("--settings-from"));
        let alone = (!has_own).then_some("--settings-from=none");
        let output = command(&self.env, words)
            .args(alone)
            .current_dir(self.sandbox.folder())
            .output()
            .unwrap();
        Ran::from(output)
    }

    /// Returns the ID of the private Network.
    pub fn network(&self) -> u64 {
        self.sandbox.network_id()
    }

    /// Returns everything that a write could change. Health is left out, because it changes by itself.
    pub fn everything(&self) -> Vec<Value> {
        let (cloud, project) = (self.sandbox.cloud(), self.sandbox.project());
        let mut all = self.sandbox.balancers();
        for balancer in &mut all {
            for target in balancer["targets"].as_array_mut().into_iter().flatten() {
                target["health_status"] = Value::Null;
            }
        }
        all.extend(self.sandbox.servers());
        all.extend(cloud.networks(project));
        for resource in ["nodes", "services", "leases", "events", "deployments"] {
            all.extend(self.sandbox.cluster().list(resource, None));
        }
        all
    }
}

impl Cluster for World {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }
}

/// Returns for each check the worst status of its objects, and every message as `OBJECT: MESSAGE`.
pub fn checks(ran: &Ran) -> Vec<(String, Check)> {
    let report = ran.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut checks: Vec<(String, Check)> = Vec::new();
    for item in report["items"].as_array().unwrap() {
        let keys: Vec<&str> = item.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = ["check", "message", "object", "remedy", "status"];
        assert_eq!(keys, expected, "{item}");
        let message = match item["object"].as_str() {
            Some(object) => format!("{object}: {}", text(&item["message"])),
            None => text(&item["message"]),
        };
        let remedy = text(&item["remedy"]);
        let name = text(&item["check"]);
        match checks.iter_mut().find(|(other, _)| *other == name) {
            Some((_, check)) => {
                check.message += &format!("; {message}");
                if !check.remedy.contains(&remedy) {
                    check.remedy += &format!("; {remedy}");
                }
            }
            None => {
                let status = text(&item["status"]);
                let check = Check { status, message, remedy };
                checks.push((name, check));
            }
        }
    }
    checks
}

/// # Panics
/// There is no such check.
pub fn find<'a>(checks: &'a [(String, Check)], name: &str) -> &'a Check {
    let found = checks.iter().find(|(other, _)| other == name);
    &found.unwrap_or_else(|| panic!("no check {name}")).1
}

/// A problem, the change that causes it, the check that must report it with its status, parts of the cause, and a part
/// of the remedy.
pub type Broken =
    (&'static str, fn(&mut World), &'static str, &'static [&'static str], &'static str);

/// Breaks one world after the other. No other check may fail, and nothing may have changed.
pub fn each(broken: &[Broken]) {
    each_in(World::healthy, CHECKS, broken);
}

/// Does the same for other clusters, which have this number of checks.
pub fn each_in(healthy: fn() -> World, count: usize, broken: &[Broken]) {
    for (what, break_it, expected, causes, remedy) in broken {
        let (name, status) = expected.split_once(": ").unwrap();
        let mut world = healthy();
        break_it(&mut world);
        let before = world.everything();
        let ran = world.doctor(&["-o", "json"]);
        let told = format!("{what}: {ran:?}");
        unchanged(&before, &world.everything());
        let checks = checks(&ran);
        assert_eq!(checks.len(), count, "{told}");
        let check = find(&checks, name);
        assert_eq!(check.status, status, "{told}");
        for cause in *causes {
            assert!(check.message.contains(cause), "{cause}: {told}");
        }
        assert!(check.remedy.contains(remedy), "{remedy}: {told}");
        let failed = checks.iter().filter(|(_, check)| check.status == "fail");
        let failed: Vec<&str> = failed.map(|(name, _)| name.as_str()).collect();
        let expected: &[&str] = if status == "fail" { &[name] } else { &[] };
        assert_eq!(failed, expected, "{told}");
        assert_eq!(ran.code, i32::from(status == "fail"), "{told}");
        for (other, check) in &checks {
            let is_bad = ["fail", "warn"].contains(&check.status.as_str());
            assert!(is_bad || check.remedy.is_empty(), "{other}: {told}");
            assert!(!check.message.is_empty(), "{other}: {told}");
            assert_eq!(placeholder(&check.remedy), None, "{other}: {told}");
        }
    }
}

/// Returns a word of a fix that stands for a name. A fix must name the object itself.
pub fn placeholder(remedy: &str) -> Option<&str> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let words: Vec<&str> =
        remedy.split(|c| !is_letter(c)).filter(|word| !word.is_empty()).collect();
    let is_prose = |before: Option<&&str>| before.is_some_and(|word| ["the", "an"].contains(word));
    let mut places = (0..words.len()).filter(|&place| match words[place] {
        "NAME" | "NAMESPACE" | "NODE" | "NS" | "SERVICE" => true,
        "ID" => !is_prose(place.checked_sub(1).and_then(|before| words.get(before))),
        _ => false,
    });
    places.next().map(|place| words[place])
}

pub fn unchanged(before: &[Value], after: &[Value]) {
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(after) {
        assert_eq!(before, after);
    }
}

/// The number of checks. The report is complete however broken the cluster is.
pub const CHECKS: usize = 27;
