//! The manifests that a cluster applies, and that `ccm` needs exactly the rights that they give.

use crate::built::rendered::{kustomized, one, read};
use crate::common::{self, Cluster, Daemon, Env, ccm, events, on, wait_until};
use ccm::settings::{Environment, TABLE};
use sandbox::Sandbox;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::Effect;
use sandbox::kubelet::NodeSpec;
use sandbox::kubernetes::PolicyRule;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const ACCOUNT: &str = "system:serviceaccount:kube-system:ccm-from-scratch";

/// API group, resource (with its subresource), verb.
type Verb = (String, String, String);

/// Everything that the base is made of.
fn objects() -> Vec<Value> {
    let base = read("base/kustomization.yaml").remove(0);
    let files = base["resources"].as_array().unwrap();
    files.iter().flat_map(|file| read(&format!("base/{}", file.as_str().unwrap()))).collect()
}

fn object(kind: &str) -> Value {
    one(&objects(), kind).clone()
}

fn rules(kind: &str) -> Vec<PolicyRule> {
    serde_json::from_value(object(kind)["rules"].clone()).unwrap()
}

fn verbs(rules: &[PolicyRule]) -> BTreeSet<Verb> {
    let mut verbs = BTreeSet::new();
    for rule in rules {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for verb in &rule.verbs {
                    verbs.insert((group.clone(), resource.clone(), verb.clone()));
                }
            }
        }
    }
    verbs
}

/// Returns the right that a call needs. `PATCH /api/v1/nodes/a/status` needs `patch` of `nodes/status`.
fn verb(call: &Call) -> Verb {
    let mut parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
    let group = match parts.remove(0) {
        "api" => "",
        _ => parts.remove(0),
    };
    parts.remove(0);
    if parts.first() == Some(&"namespaces") {
        parts.drain(..2);
    }
    let (resource, name) = (parts[0], parts.get(1));
    let resource = match parts.get(2) {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    };
    let verb = match (call.method.as_str(), name) {
        ("GET", None) => "list",
        ("GET", Some(_)) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", _) => "delete",
        (other, _) => panic!("{other}"),
    };
    (group.to_owned(), resource, verb.to_owned())
}

/// The account of the manifests, with what is bound to it and nothing else.
fn deployed(sandbox: &Sandbox) -> Env {
    let cluster_role = rules("ClusterRole");
    sandbox.add_user(ACCOUNT, &[], cluster_role).unwrap();
    sandbox.cluster().grant_in_namespace(ACCOUNT, "kube-system", rules("Role"));
    common::env_as(sandbox, ACCOUNT)
}

#[test]
fn the_role_allows_what_ccm_does_and_nothing_else() {
    let sandbox = common::networked(2).start();
    let stray = NodeSpec { name: "stray".into(), ..NodeSpec::default() };
    sandbox.register_node(stray);
    let env = deployed(&sandbox);
    // One node changes after it was read.
    let cluster = Arc::clone(sandbox.cluster());
    let change = move |_: &Request| {
        cluster.edit("nodes", None, "worker-1", |node| {
            node["metadata"]["labels"]["mine"] = json!("kept");
        });
    };
    let first_write = on("/api/v1/nodes/worker-1/status", Effect::before(change));
    sandbox.fault(first_write.times(1));
    let routed = "--cluster-cidr=10.244.0.0/16";
    let daemon = Daemon::start(&env, &[routed]);
    wait_until("both nodes", || {
        ["worker-1", "worker-2"].iter().all(|name| common::is_initialised(&sandbox.node(name)))
    });
    wait_until("the event about the third", || !events(&sandbox, "stray").is_empty());
    wait_until("their routes", || sandbox.cloud().routes(sandbox.network_id()).len() == 2);
    // A Service comes, and goes.
    sandbox.create("web", &[], &[80]);
    wait_until("its address", || sandbox.has_address("web"));
    sandbox.delete_and_wait("web");
    assert!(sandbox.balancers().is_empty());
    daemon.stop();
    // Another process sees the same trouble again.
    ccm(&env, &["run", "--once"]).with_code(1);
    let expected = [("ServerNotFound".to_owned(), 2)];
    assert_eq!(events(&sandbox, "stray"), expected);

    // A server is deleted, too.
    sandbox.delete_server("worker-2");
    sandbox.kubelets().expire();
    ccm(&env, &["run", "--once"]).with_code(1);
    assert!(!sandbox.has_node("worker-2"));

    let mut calls = sandbox.calls().calls();
    calls.retain(|call| call.caller == ACCOUNT);
    for call in &calls {
        assert_ne!(call.status, Some(403), "{call}");
    }
    let used: BTreeSet<Verb> = calls.iter().map(verb).collect();
    let allowed = verbs(&[rules("ClusterRole"), rules("Role")].concat());
    let unused: Vec<&Verb> = allowed.difference(&used).collect();
    assert!(unused.is_empty(), "nobody needs {unused:?}");
}

#[test]
fn rules_name_what_they_allow_and_bindings_bind_them() {
    for kind in ["ClusterRole", "Role"] {
        for (group, resource, verb) in verbs(&rules(kind)) {
            let words = [group.as_str(), &resource, &verb];
            assert!(words.iter().all(|word| !word.contains('*')), "{words:?}");
        }
        let binding = object(&format!("{kind}Binding"));
        let role = object(kind);
        assert_eq!(binding["roleRef"]["kind"], kind);
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        let expected = &role["metadata"]["namespace"];
        assert_eq!(binding["metadata"]["namespace"], *expected);
        let account = object("ServiceAccount");
        let subject = json!([{
            "kind": "ServiceAccount",
            "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"],
        }]);
        assert_eq!(binding["subjects"], subject);
    }
}

#[test]
fn the_deployment_runs_before_there_is_a_network_and_as_nobody() {
    let deployment = object("Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("/hostNetwork", json!(true)),
        ("/dnsPolicy", json!("Default")),
        ("/priorityClassName", json!("system-cluster-critical")),
        ("/securityContext/runAsNonRoot", json!(true)),
        ("/securityContext/seccompProfile/type", json!("RuntimeDefault")),
        ("/containers/0/securityContext/allowPrivilegeEscalation", json!(false)),
        ("/containers/0/securityContext/readOnlyRootFilesystem", json!(true)),
        ("/containers/0/securityContext/capabilities/drop", json!(["ALL"])),
        ("/containers/0/livenessProbe/httpGet/path", json!("/livez")),
        ("/containers/0/readinessProbe/httpGet/path", json!("/readyz")),
        ("/containers/0/image", json!(concat!("ccm-from-scratch:", env!("CARGO_PKG_VERSION")))),
    ];
    for (pointer, expected) in cases {
        assert_eq!(pod.pointer(pointer), Some(&expected), "{pointer}");
    }
    let context = &pod["securityContext"];
    assert!(context["runAsUser"].as_u64().unwrap() > 0);
    // The token's file is read by root and by this user.
    assert_eq!(context["fsGroup"], context["runAsUser"]);
    let secret = json!({"secretName": "hcloud", "defaultMode": 0o440});
    let mount = json!({"name": "hcloud", "mountPath": "/etc/hcloud", "readOnly": true});
    let wanted = json!([{"name": "hcloud", "secret": secret}]);
    assert_eq!(pod["volumes"], wanted);
    assert_eq!(pod["containers"][0]["volumeMounts"], json!([mount]));
    // Whatever the label's value is.
    let control_planes = json!([{"matchExpressions": [
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    ]}]);
    let affinity = &pod["affinity"]["nodeAffinity"];
    assert_eq!(
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
        control_planes
    );
    let wanted = &object("ServiceAccount")["metadata"]["name"];
    assert_eq!(pod["serviceAccountName"], *wanted);
    let wanted = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], *wanted);
    let tolerated: Vec<&str> = pod["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|toleration| toleration["key"].as_str().unwrap())
        .collect();
    for taint in [
        common::UNINITIALIZED,
        "node-role.kubernetes.io/control-plane",
        "node.kubernetes.io/not-ready",
    ] {
        assert!(tolerated.contains(&taint), "{taint}");
    }
}

#[test]
fn ccm_accepts_the_arguments_and_variables_of_the_deployment() {
    struct Given(BTreeMap<String, String>);
    impl Environment for Given {
        fn get(&self, name: &str) -> Option<std::ffi::OsString> {
            self.0.get(name).map(Into::into)
        }
        fn names(&self) -> Vec<String> {
            self.0.keys().cloned().collect()
        }
        /// The Secret's key that is not optional.
        fn read_file(&self, path: &Path) -> std::io::Result<String> {
            let is_there = path == Path::new("/etc/hcloud/token");
            let text = is_there.then(|| "x".to_owned());
            text.ok_or_else(|| std::io::ErrorKind::NotFound.into())
        }
    }
    let container = object("Deployment")["spec"]["template"]["spec"]["containers"][0].clone();
    let mut variables = BTreeMap::new();
    for variable in container["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        let is_ours = |row: &&&ccm::settings::Setting| {
            row.variables.iter().any(|variable| variable.name() == name)
        };
        let setting = TABLE.iter().find(is_ours).expect(name);
        let value = match variable["value"].as_str() {
            Some(file) => {
                assert_eq!(file, format!("/etc/hcloud/{}", setting.name()));
                file
            }
            None => {
                assert_eq!(variable["valueFrom"]["secretKeyRef"]["name"], "hcloud");
                assert_eq!(variable["valueFrom"]["secretKeyRef"]["key"], setting.name());
                "x"
            }
        };
        variables.insert(name.to_owned(), value.to_owned());
    }
    let mut words = container["args"].as_array().unwrap().iter();
    assert_eq!(words.next().unwrap(), "run");
    let words = words.map(|word| word.as_str().unwrap().into()).collect();
    let parsed = ccm::settings::parse(ccm::settings::Command::Run, words, &Given(variables), None);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    assert!(parsed.notices.is_empty(), "{:?}", parsed.notices);
    let port = &container["ports"][0];
    let listens = parsed.settings.metrics_address.value.unwrap();
    assert_eq!(port["containerPort"], listens.port());
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], port["name"]);
    }
}

#[test]
fn kubectl_builds_the_base_as_it_is() {
    let Some(built) = kustomized("..") else {
        return;
    };
    for object in objects() {
        assert!(built.contains(&object), "changed or missing: {object}");
        let is_cluster_wide = object["kind"].as_str().unwrap().starts_with("Cluster");
        let namespace = (!is_cluster_wide).then_some("kube-system");
        assert_eq!(object["metadata"]["namespace"].as_str(), namespace);
        assert_ne!(object["kind"], "Secret", "a token is not applied from here");
    }
    assert_eq!(built.len(), objects().len());
}
