//! The chart, as helm renders it.

use crate::built::rendered::{base, documents, folder, one, pod, read, understood};
use crate::common::{self, ccm};
use sandbox::kubernetes::PolicyRule;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const ACCOUNT: &str = "system:serviceaccount:kube-system:ccm-from-scratch";

/// Runs helm from the path, or from where `make helm` puts it. Returns `None` when there is no helm.
pub fn helm(words: &[&str]) -> Option<Output> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/helm");
    let run = |program: &Path| Command::new(program).args(words).output();
    let ran = run(Path::new("helm")).or_else(|_| run(&made));
    if ran.is_err() {
        let why = "there is no helm on this machine; make helm builds one";
        sandbox::skipped::skip("the chart, rendered", "helm", why);
    }
    ran.ok()
}

/// `--set` words of a table's case.
pub fn settings(set: &str) -> Vec<&str> {
    set.split_whitespace().flat_map(|one| ["--set", one]).collect()
}

/// Renders the chart with these further words of `helm template`. Returns `None` when there is no helm.
pub fn rendered(words: &[&str]) -> Option<Vec<Value>> {
    let chart = folder().join("chart");
    let template = [
        "template",
        "ccm",
        chart.to_str().unwrap(),
        "-n",
        "kube-system",
        // A helm that was built by `go install` takes itself for an old cluster.
        "--kube-version=1.30.0",
        "--api-versions=monitoring.coreos.com/v1/PodMonitor",
        "--set=image.repository=ccm-from-scratch",
    ];
    let ran = helm(&[&template, words].concat())?;
    let complaint = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{words:?}: {complaint}");
    assert_eq!(complaint, "", "{words:?}");
    Some(documents(&String::from_utf8(ran.stdout).unwrap()))
}

/// This test needs no helm. The chart renders the rules from the base's own text, and the versions are the program's.
#[test]
fn the_chart_has_the_same_rules_and_version_as_the_manifests() {
    for file in ["role.yaml", "lease.yaml"] {
        let of = |folder_name| std::fs::read(folder().join(folder_name).join(file)).unwrap();
        assert_eq!(of("chart/files"), of("base"), "{file}");
    }
    let of = |file: &str| std::fs::read_to_string(folder().join(file)).unwrap();
    for (copy, original) in [
        ("tls-secrets.yaml", "tls-secrets/role.yaml"),
        ("endpointslices.yaml", "components/endpointslices/role.yaml"),
        ("kubelet-certificates.yaml", "components/kubelet-certificates/role.yaml"),
        ("namespace-defaults.yaml", "components/namespace-defaults/role.yaml"),
        ("network-policy.yaml", "components/pod-network/network-policy.yaml"),
    ] {
        assert_eq!(of(&format!("chart/files/{copy}")), of(original));
    }
    let chart = read("chart/Chart.yaml").remove(0);
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
}

/// Rules, bindings and the Pod are the base's but for what a chart adds.
#[test]
fn the_chart_without_values_equals_the_base() {
    let Some(built) = rendered(&[]) else {
        return;
    };
    let base = base();
    assert_eq!(built.len(), base.len());
    for expected in &base {
        let kind = expected["kind"].as_str().unwrap();
        let object = one(&built, kind);
        for field in ["name", "namespace"] {
            let value = &object["metadata"][field];
            assert_eq!(value, &expected["metadata"][field], "{kind} {field}");
        }
        for field in ["rules", "roleRef", "subjects"] {
            assert_eq!(object[field], expected[field], "{kind} {field}");
        }
    }
    let (ours, theirs) = (one(&built, "Deployment"), one(&base, "Deployment"));
    let mut expected = pod(theirs).clone();
    let container = &mut expected["containers"][0];
    container["imagePullPolicy"] = json!("IfNotPresent");
    container["args"] = json!(["run", "--cloud-provider=ccm-from-scratch"]);
    // The Network only with networking.enabled.
    let variables = container["env"].as_array_mut().unwrap();
    variables.retain(|one| one["name"] != "HCLOUD_NETWORK");
    variables.sort_by_key(|one| one["name"].to_string());
    assert_eq!(pod(ours), &expected);
    for field in ["replicas", "strategy", "revisionHistoryLimit"] {
        assert_eq!(ours["spec"][field], theirs["spec"][field], "{field}");
    }
    let parsed = understood(&pod(ours)["containers"][0]);
    assert!(parsed.notices.is_empty(), "{:?}", parsed.notices);
}

#[test]
fn secrets_may_be_read_in_the_namespaces_that_are_named_and_nowhere_else() {
    let set = settings("tlsSecretNamespaces={web,shop} nameOverride=mine");
    let (Some(plain), Some(built)) = (rendered(&settings("nameOverride=mine")), rendered(&set))
    else {
        return;
    };
    let more: Vec<&Value> = built.iter().filter(|one| !plain.contains(one)).collect();
    let names: Vec<(&str, &str)> = more
        .iter()
        .map(|one| (&one["kind"], &one["metadata"]["namespace"]))
        .map(|(kind, namespace)| (kind.as_str().unwrap(), namespace.as_str().unwrap()))
        .collect();
    // The order is that of helm's output.
    let expected = ["Role", "RoleBinding"].map(|kind| [(kind, "web"), (kind, "shop")]);
    assert_eq!(names, expected.concat());
    let manifests = read("tls-secrets/role.yaml");
    for pair in [[more[0], more[2]], [more[1], more[3]]] {
        assert_eq!(pair[0]["rules"], manifests[0]["rules"]);
        assert_eq!(pair[1]["roleRef"]["name"], pair[0]["metadata"]["name"]);
        let account = &one(&built, "ServiceAccount")["metadata"];
        let subject = &pair[1]["subjects"][0];
        assert_eq!(subject["name"], account["name"]);
        assert_eq!(subject["namespace"], "kube-system");
    }
    let verbs = &manifests[0]["rules"][0];
    assert_eq!(verbs["resources"], json!(["secrets"]));
    assert_eq!(verbs["verbs"], json!(["get"]));
}

#[test]
fn a_right_that_the_base_lacks_is_given_when_the_value_asks_for_it() {
    for (value, name) in [
        ("preferNodesWithPods", "endpointslices"),
        ("kubeletCertificates.enabled", "kubelet-certificates"),
    ] {
        adds_a_right(value, name);
    }
}

/// The value also sets the variable, without which ccm would not use the right.
#[test]
fn the_value_for_defaults_of_namespaces_gives_a_right_and_sets_the_variable() {
    let Some(built) = rendered(&settings("namespaceDefaults=true")) else { return };
    let all = json!(built).to_string();
    let variable = json!({"name": "HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS", "value": "true"});
    assert!(all.contains(&variable.to_string()), "{all}");
    let rules = json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}]);
    assert!(built.iter().any(|object| object["rules"] == rules), "{all}");
}

fn adds_a_right(value: &str, name: &str) {
    let words = |is_on: &str| format!("{value}={is_on} nameOverride=mine");
    let (Some(plain), Some(built)) =
        (rendered(&settings(&words("false"))), rendered(&settings(&words("true"))))
    else {
        return;
    };
    assert!(plain.iter().all(|object| built.contains(object)), "the value only adds objects");
    let more: Vec<&Value> = built.iter().filter(|object| !plain.contains(object)).collect();
    let kinds: Vec<&str> = more.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ClusterRole", "ClusterRoleBinding"]);
    let [role, binding] = more[..] else { unreachable!() };
    assert_eq!(role["metadata"]["name"], format!("mine-{name}"));
    assert_eq!(role["rules"], read(&format!("components/{name}/role.yaml"))[0]["rules"]);
    let reference = json!({
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": role["metadata"]["name"],
    });
    assert_eq!(binding["roleRef"], reference);
    let account = &one(&built, "ServiceAccount")["metadata"];
    let subject = json!([{
        "kind": "ServiceAccount",
        "name": account["name"],
        "namespace": "kube-system",
    }]);
    assert_eq!(binding["subjects"], subject);
    let namespaces = more.iter().map(|object| &object["metadata"]["namespace"]);
    assert!(namespaces.into_iter().all(Value::is_null), "the right holds in all namespaces");
}

#[test]
fn the_network_policy_is_that_of_the_manifests_for_the_pods_of_the_release() {
    let set = settings("hostNetwork=false networkPolicy.enabled=true nameOverride=mine");
    let Some(built) = rendered(&set) else {
        return;
    };
    let mut expected = read("components/pod-network/network-policy.yaml").remove(0);
    let labels = &one(&built, "Deployment")["spec"]["selector"];
    expected["spec"]["podSelector"] = labels.clone();
    let policy = one(&built, "NetworkPolicy");
    assert_eq!(policy["spec"], expected["spec"]);
    assert_eq!(policy["metadata"]["name"], "mine");
    assert_eq!(policy["metadata"]["namespace"], "kube-system");
}

/// Strictly, and with everything in it.
#[test]
fn helm_lint_finds_no_fault() {
    let chart = folder().join("chart");
    let all = "kind=DaemonSet networking.enabled=true tlsSecretNamespaces={web} preferNodesWithPods=true hostNetwork=false networkPolicy.enabled=true";
    for set in ["", all] {
        let lint = ["lint", "--strict", chart.to_str().unwrap(), "--set=image.repository=a"];
        let Some(ran) = helm(&[&lint[..], &settings(set)].concat()) else {
            return;
        };
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{said}");
    }
}

/// The daemon is started as the chart would run it, with its arguments, its account, and a Lease of another name.
#[test]
fn the_rendered_account_may_do_what_the_rendered_daemon_does() {
    let set = "args.leader-elect-resource-name=mine args.leader-elect-resource-namespace=default";
    let Some(built) = rendered(&settings(set)) else {
        return;
    };
    let sandbox = common::socket_cluster(2);
    let rules = |kind| -> Vec<PolicyRule> {
        serde_json::from_value(one(&built, kind)["rules"].clone()).unwrap()
    };
    sandbox.add_user(ACCOUNT, &[], rules("ClusterRole")).unwrap();
    let namespace = one(&built, "Role")["metadata"]["namespace"].as_str();
    assert_eq!(one(&built, "RoleBinding")["metadata"]["namespace"].as_str(), namespace);
    let cluster = sandbox.cluster();
    cluster.grant_in_namespace(ACCOUNT, namespace.unwrap(), rules("Role"));
    let container = &pod(one(&built, "Deployment"))["containers"][0];
    let words = container["args"].as_array().unwrap().iter();
    let mut words: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
    words.push("--once");
    let ran = ccm(&common::env_as(&sandbox, ACCOUNT), &words).with_code(0);
    assert!(common::all_initialised(&sandbox), "{}", ran.stderr);
    assert!(cluster.get("leases", Some("default"), "mine").is_some(), "{}", ran.stderr);
    let refused = sandbox.calls().count(|call| call.status == Some(403));
    assert_eq!(refused, 0, "{}", ran.stderr);
}
