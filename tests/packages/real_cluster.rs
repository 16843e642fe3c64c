//! ccm straight on a real API server, when `CCM_TEST_KUBECONFIG` names one: with the account, the role and a token as
//! `manifests/` make them, and only the cloud simulated.
//!
//! Most other tests run there too, each in a corner of its own behind the sandbox's front. Here nothing is in between:
//! TLS, login, discovery of what is allowed, and lists are the server's. Nodes that are not the test's stay untouched:
//! commands name the node they work on, and the daemon is started only where there are no others.

use crate::common::{self, Cluster, Daemon, Env, ccm, is_initialised, wait_until, with};
use sandbox::kubernetes::RealServer;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const IN_KUBE_SYSTEM: &str = "namespaces/kube-system";

/// The objects of the test in the cluster, which are deleted when the test ends in any way.
struct Deployed {
    server: RealServer,
    /// The name of everything in the cluster, the Lease included.
    name: String,
    made: Vec<String>,
}

impl Deployed {
    fn create(&mut self, collection: &str, object: &Value) -> bool {
        let (status, answer) = self.server.json("POST", collection, Some(object));
        if status == 404 {
            return false;
        }
        assert_eq!(status, 201, "{collection}: {answer}");
        let name = object["metadata"]["name"].as_str().unwrap();
        self.made.push(format!("{collection}/{name}"));
        true
    }

    fn get(&self, path: &str) -> Option<Value> {
        let (status, object) = self.server.json("GET", path, None);
        (status == 200).then_some(object)
    }

    fn node(&self, name: &str) -> Option<Value> {
        self.get(&format!("/api/v1/nodes/{name}"))
    }

    fn lease(&self) -> String {
        let name = &self.name;
        format!("/apis/coordination.k8s.io/v1/{IN_KUBE_SYSTEM}/leases/{name}")
    }

    /// Registers a node as a kubelet with an external cloud provider does.
    fn register(&mut self, name: &str) {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string() });
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name },
            "spec": { "taints": [{ "key": common::UNINITIALIZED, "value": "true", "effect": "NoSchedule" }] },
            "status": { "addresses": [{ "type": "Hostname", "address": name }], "conditions": [ready] },
        });
        assert!(self.create("/api/v1/nodes", &node));
    }

    fn falls_silent(&self, name: &str) {
        let unknown = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown",
            "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status." }] } });
        let path = format!("/api/v1/nodes/{name}/status");
        let (status, answer) = self.server.json("PATCH", &path, Some(&unknown));
        assert_eq!(status, 200, "{answer}");
    }

    /// Creates the account of `manifests/` under another name. Returns its token, or `None` when there are no accounts.
    fn token(&mut self) -> Option<String> {
        let name = self.name.clone();
        let accounts = format!("/api/v1/{IN_KUBE_SYSTEM}/serviceaccounts");
        for mut object in manifests() {
            let kind = object["kind"].as_str().unwrap().to_owned();
            let collection = match kind.as_str() {
                "ServiceAccount" => accounts.clone(),
                "ClusterRole" | "ClusterRoleBinding" => format!("{RBAC}/{}s", kind.to_lowercase()),
                "Role" | "RoleBinding" => {
                    format!("{RBAC}/{IN_KUBE_SYSTEM}/{}s", kind.to_lowercase())
                }
                _ => continue,
            };
            rename(&mut object, &name);
            if !self.create(&collection, &object) {
                return None;
            }
        }
        let request =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let (status, answer) =
            self.server.json("POST", &format!("{accounts}/{name}/token"), Some(&request));
        assert_eq!(status, 201, "{answer}");
        self.await_roles();
        Some(answer["status"]["token"].as_str().unwrap().to_owned())
    }

    /// The authorizer goes by a cache.
    fn await_roles(&self) {
        let name = &self.name;
        let lease = json!({ "verb": "update", "group": "coordination.k8s.io", "resource": "leases",
            "namespace": "kube-system", "name": name });
        for attributes in [json!({ "verb": "patch", "resource": "nodes" }), lease] {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": format!("system:serviceaccount:kube-system:{name}"),
                    "resourceAttributes": attributes,
                },
            });
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            wait_until("the role to be in force", || {
                let (_, answer) = self.server.json("POST", path, Some(&review));
                answer["status"]["allowed"] == true
            });
        }
    }
}

impl Drop for Deployed {
    fn drop(&mut self) {
        let events = "/api/v1/namespaces/default/events";
        let list = self.get(events).unwrap_or_default();
        let about_us = list["items"].as_array().into_iter().flatten().filter(|event| {
            let about = event["involvedObject"]["name"].as_str();
            about.is_some_and(|about| about.starts_with(&self.name))
        });
        let named = |event: &Value| event["metadata"]["name"].as_str().map(str::to_owned);
        for name in about_us.filter_map(named) {
            self.server.json("DELETE", &format!("{events}/{name}"), None);
        }
        self.server.json("DELETE", &self.lease(), None);
        for path in self.made.drain(..).rev() {
            self.server.json("DELETE", &path, None);
        }
    }
}

fn manifests() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base");
    let files = ["account.yaml", "role.yaml", "lease.yaml"];
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    files.into_iter().flat_map(|file| common::documents(&read(file))).collect()
}

/// Everything in it that bears a name of ours, the Lease's included.
fn rename(object: &mut Value, name: &str) {
    match object {
        Value::String(text) if text == "ccm-from-scratch" || text == "cloud-controller-manager" => {
            name.clone_into(text);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, name)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, name)),
        _ => {}
    }
}

/// The kubeconfig of the test run, with another login.
fn kubeconfig(of: &Path, token: &str, folder: &Path) -> PathBuf {
    let mut file: Value = serde_yaml::from_str(&std::fs::read_to_string(of).unwrap()).unwrap();
    let context = file["current-context"].clone();
    let beside = of.parent().unwrap().canonicalize().unwrap();
    for cluster in file["clusters"].as_array_mut().unwrap() {
        let authority = &mut cluster["cluster"]["certificate-authority"];
        if let Some(path) = authority.as_str() {
            *authority = json!(beside.join(path));
        } else {
            cluster["cluster"].as_object_mut().unwrap().remove("certificate-authority");
        }
    }
    let contexts = file["contexts"].as_array_mut().unwrap();
    let current = contexts.iter_mut().find(|entry| entry["name"] == context);
    current.unwrap()["context"]["user"] = json!("ccm");
    file["users"] = json!([{ "name": "ccm", "user": { "token": token } }]);
    let path = folder.join("kubeconfig-direct");
    std::fs::write(&path, file.to_string()).unwrap();
    path
}

#[test]
fn ccm_works_with_the_account_of_the_manifests() {
    let Some(path) = std::env::var_os(common::REAL_CLUSTER).map(PathBuf::from) else {
        let why = "CCM_TEST_KUBECONFIG names no kubeconfig";
        sandbox::skipped::skip("a real API server", "cluster", why);
        return;
    };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut deployed = Deployed {
        server: RealServer::of(&path).unwrap(),
        name: format!("ccmtest-{}-{seconds}", std::process::id()),
        made: Vec::new(),
    };
    let sandbox = Sandbox::builder().only(Half::Hetzner).nodes(0).start();
    let config = match deployed.token() {
        Some(token) => kubeconfig(&path, &token, sandbox.folder()),
        None => {
            let why = "the server has no ServiceAccounts or no Roles";
            sandbox::skipped::skip("the role of manifests/ on a real API server", "", why);
            path
        }
    };
    let config = config.display().to_string();
    let settings = [
        ("KUBECONFIG", config.as_str()),
        ("CCM_TEST_TIME_SCALE", common::SCALE),
        ("HCLOUD_METRICS_ADDRESS", "127.0.0.1:0"),
    ];
    let env = with(sandbox.env(), &settings);
    one_node_by_name(&mut deployed, &sandbox, &env);
    let list = deployed.get("/api/v1/nodes").unwrap();
    let nodes = list["items"].as_array().unwrap();
    let is_ours =
        |node: &Value| node["metadata"]["name"].as_str().unwrap().starts_with(&deployed.name);
    if nodes.iter().all(is_ours) {
        a_whole_life(&mut deployed, &sandbox, &env);
    } else {
        let why = "the cluster has nodes of its own, which must not be touched";
        sandbox::skipped::skip("the daemon straight on a real API server", "", why);
    }
}

fn one_node_by_name(deployed: &mut Deployed, sandbox: &Sandbox, env: &Env) {
    let name = format!("{}-a", deployed.name);
    let id = sandbox.create_server(&name);
    deployed.register(&name);
    // The account's token is known a moment after it was made.
    let mut listed = ccm(env, &["node", "list", "-o", "json"]);
    let begun = Instant::now();
    while listed.code != 0 && begun.elapsed() < common::LIMIT {
        listed = ccm(env, &["node", "list", "-o", "json"]);
    }
    listed.prints(&name);
    ccm(env, &["node", "sync", &name, "--dry-run", "--detailed-exitcode"]).with_code(3);
    // The account may not list Deployments, so a command outside a pod does not know the daemon's settings.
    ccm(env, &["node", "sync", &name]).with_code(2).warns("--own-settings");
    ccm(env, &["node", "sync", &name, "--own-settings"]).with_code(0);
    let node = deployed.node(&name).unwrap();
    assert!(is_initialised(&node));
    let expected = format!("ccm-from-scratch://{id}");
    assert_eq!(node["spec"]["providerID"], expected);
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "fsn1");
    let external = "ExternalIP 203.0.113.1".to_owned();
    assert!(common::addresses(&node).contains(&external), "{node}");
    let again = ccm(env, &["node", "sync", &name, "--own-settings"]);
    again.prints("0 changed, 1 unchanged, 0 failed\n");
}

/// Leads, initialises, deletes the node of a server that is gone, hands over.
fn a_whole_life(deployed: &mut Deployed, sandbox: &Sandbox, env: &Env) {
    let lease = format!("--leader-elect-resource-name={}", deployed.name);
    let daemon = Daemon::start(env, &[&lease]);
    daemon.logs("leading as");
    let name = format!("{}-b", deployed.name);
    let id = sandbox.create_server(&name);
    deployed.register(&name);
    wait_until("the initialised node", || is_initialised(&deployed.node(&name).unwrap()));
    sandbox.cloud().delete_server(id);
    deployed.falls_silent(&name);
    wait_until("the node to go", || deployed.node(&name).is_none());
    let holder = || deployed.get(&deployed.lease()).unwrap()["spec"]["holderIdentity"].clone();
    assert_ne!(holder(), "");
    daemon.stop();
    assert_eq!(holder().as_str().unwrap_or_default(), "");
    let log = daemon.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}
