//! The zone label by choice, and `ccm node relabel`, which changes it on initialised nodes. The binary runs against the
//! sandbox.

use crate::common::{
    self, Cluster, Daemon, Env, Simulate, ccm, contains, env, env_as, simulated_cluster, with,
    writes,
};
use sandbox::faults::{Effect, Rule};
use sandbox::kubelet::NodeSpec;
use sandbox::kubernetes::PolicyRule;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;

const BETA: &str = "failure-domain.beta.kubernetes.io/zone";
const STABLE: &str = "topology.kubernetes.io/zone";
const RELABEL: &[&str] = &["node", "relabel", "--yes"];

/// The environment of a person with all rights and the profile `hcloud`, for this zone label.
fn person(sandbox: &Sandbox, zone: &str) -> Env {
    let env = if sandbox.is_in_memory() { env(sandbox) } else { env_as(sandbox, "admin") };
    let read = |group: &str, resource: &str| PolicyRule {
        api_groups: vec![group.into()],
        resources: vec![resource.into()],
        verbs: vec!["list".into()],
        ..PolicyRule::default()
    };
    let rules = vec![read("", "persistentvolumes"), read("", "pods"), read("apps", "daemonsets")];
    if sandbox.is_in_memory() {
        sandbox.cluster().grant("ccm", rules);
    }
    with_zone(&env, zone)
}

fn with_zone(env: &Env, zone: &str) -> Env {
    with(env.clone(), &[("HCLOUD_INSTANCES_ZONE_LABEL", zone)])
}

/// Runs a command with profile `hcloud`.
fn hcloud(env: &Env, words: &[&str]) -> common::Ran {
    ccm(env, &[words, &["--cloud-provider=hcloud"]].concat())
}

/// Creates a cluster whose nodes hcloud-cloud-controller-manager has initialised.
fn taken_over(nodes: usize) -> Arc<Sandbox> {
    let sandbox = common::builder().nodes(nodes).simulated();
    hcloud(&env(&sandbox), &["node", "sync"]).with_code(0);
    sandbox.calls().clear();
    sandbox
}

fn zones(sandbox: &Sandbox, name: &str) -> [String; 2] {
    let labels = &sandbox.node(name)["metadata"]["labels"];
    [BETA, STABLE].map(|key| labels[key].as_str().unwrap_or("-").to_owned())
}

fn volume(name: &str, key: &str, zone: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "10Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "csi.hetzner.cloud", "volumeHandle": "1" },
            "claimRef": { "namespace": "shop", "name": format!("data-{name}") },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": key, "operator": "In", "values": [zone] }] },
            ] } },
        },
    })
}

/// Deletes a volume. A real API server keeps it until some controller has removed its finalizer.
fn delete_volume(sandbox: &Sandbox, name: &str) {
    sandbox.cluster().edit("persistentvolumes", None, name, |volume| {
        volume["metadata"].as_object_mut().unwrap().remove("finalizers");
    });
    sandbox.cluster().delete("persistentvolumes", None, name);
}

/// Creates the template of a pod that requires this zone.
fn bound_to(zone: &str) -> Value {
    json!({
        "nodeSelector": { STABLE: zone },
        "containers": [{ "name": "main", "image": "registry.example.com/main" }],
    })
}

/// Creates a pod that requires this zone. The pod has further fields.
fn create_pod(sandbox: &Sandbox, name: &str, zone: &str, more: Value) {
    let mut pod = json!({ "metadata": { "name": name }, "spec": bound_to(zone) });
    if sandbox.cluster().is_real() {
        // A real API server lets no other pod in without a service account, which some controller would create.
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
        pod["spec"]["nodeName"] = json!("elsewhere");
    }
    common::objects::merge(&mut pod, more);
    sandbox.cluster().create("pods", Some("default"), pod);
}

#[test]
fn a_new_node_gets_the_zone_label_of_the_setting_in_both_profiles() {
    for profile in ["hcloud", "ccm-from-scratch"] {
        for (variable, value, zone) in [
            ("HCLOUD_INSTANCES_ZONE_LABEL", "location", "fsn1"),
            ("HCLOUD_INSTANCES_ZONE_LABEL", "datacenter", "fsn1-dc14"),
            (
                "HCLOUD_INSTANCES_ZONE_LABEL",
                "",
                if profile == "hcloud" { "fsn1-dc14" } else { "fsn1" },
            ),
            ("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", "false", "-"),
        ] {
            let sandbox = simulated_cluster(1);
            let env = with(env(&sandbox), &[(variable, value)]);
            ccm(&env, &["node", "sync", &format!("--cloud-provider={profile}")]).with_code(0);
            assert_eq!(zones(&sandbox, "worker-1"), [zone; 2], "{profile} {variable}={value}");
        }
    }
    let sandbox = simulated_cluster(1);
    let ran = ccm(&with_zone(&env(&sandbox), "zone"), &["node", "list"]).with_code(1);
    ran.warns("HCLOUD_INSTANCES_ZONE_LABEL: \"zone\" can't be used: use datacenter or location");
}

/// A take-over writes nothing with any value, and the daemon changes no zone label.
#[test]
fn initialised_nodes_keep_their_zone_label_with_each_value_of_the_setting() {
    for zone in ["", "location", "datacenter"] {
        for enabled in ["true", "false"] {
            let sandbox = taken_over(2);
            let env = with_zone(&env(&sandbox), zone);
            let env = with(env, &[("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", enabled)]);
            let ran = hcloud(&env, &["run", "--dry-run"]).with_code(0);
            ran.prints("Plan: 0 to change");
            hcloud(&env, &["run", "--once", "--leader-elect=false"]).with_code(0);
            hcloud(&env, &["node", "sync"]).with_code(0);
            let flags = [
                "--cloud-provider=hcloud",
                "--node-status-update-frequency=10s",
                "--leader-elect=false",
            ];
            let daemon = Daemon::start(&env, &flags);
            common::pass(&sandbox, std::time::Duration::from_secs(60));
            assert_eq!(writes(&sandbox), Vec::<String>::new(), "{zone} {enabled}");
            assert_eq!(zones(&sandbox, "worker-1"), ["fsn1-dc14"; 2]);
            // The log names the nodes whose label differs, but only when a setting has chosen the label.
            let log = daemon.log();
            let is_named = !zone.is_empty() && (zone == "location" || enabled == "false");
            assert_eq!(log.contains("other zone labels"), is_named, "{zone} {enabled}: {log}");
        }
    }
}

#[test]
fn relabel_sets_both_keys_with_one_patch_and_restores_them() {
    let sandbox = taken_over(3);
    let env = person(&sandbox, "location");
    let worker = || {
        let mut worker = sandbox.node("worker-1");
        // A real API server notes there who has written which field.
        worker["metadata"].as_object_mut().unwrap().remove("managedFields");
        worker
    };
    let before = worker();
    hcloud(&env, &["node", "relabel", "--dry-run", "--detailed-exitcode"]).with_code(3);
    assert_eq!(writes(&sandbox), Vec::<String>::new());
    let ran = hcloud(&env, RELABEL).with_code(0);
    ran.prints("3 changed, 0 unchanged, 0 failed");
    let calls = sandbox.calls().calls();
    let patches: Vec<_> = calls.iter().filter(|call| call.is_write()).collect();
    assert_eq!(patches.len(), 3);
    let own = patches.iter().find(|call| call.path == "/api/v1/nodes/worker-1").unwrap();
    let own: Value = serde_json::from_slice(&own.body).unwrap();
    let version = &before["metadata"]["resourceVersion"];
    assert_eq!(
        own,
        json!({
            "metadata": { "resourceVersion": version, "labels": { BETA: "fsn1", STABLE: "fsn1" } }, "spec": {},
        })
    );
    let mut after = worker();
    for key in [BETA, STABLE] {
        assert_eq!(after["metadata"]["labels"][key], "fsn1");
        after["metadata"]["labels"][key] = json!("fsn1-dc14");
    }
    after["metadata"]["resourceVersion"] = version.clone();
    assert_eq!(after, before, "nothing else has changed");
    // The command can be repeated, and the other value restores the labels.
    hcloud(&env, RELABEL).with_code(0).prints("Plan: 0 to change, 3 unchanged, 0 blocked");
    hcloud(&with_zone(&env, "datacenter"), &["node", "relabel", "--yes", "worker-2"]).with_code(0);
    assert_eq!(zones(&sandbox, "worker-1"), ["fsn1"; 2]);
    assert_eq!(zones(&sandbox, "worker-2"), ["fsn1-dc14"; 2]);
    // Without zone labels, both are removed.
    let off = with(env, &[("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", "false")]);
    hcloud(&off, RELABEL).with_code(0);
    for name in ["worker-1", "worker-2", "worker-3"] {
        assert_eq!(zones(&sandbox, name), ["-"; 2]);
        assert_eq!(
            sandbox.node(name)["metadata"]["labels"]["topology.kubernetes.io/region"],
            "fsn1"
        );
    }
}

#[test]
fn values_of_persons_foreign_nodes_and_new_nodes_stay_and_the_plan_says_so() {
    let sandbox = taken_over(5);
    let set = |name: &str, key: &str, value: Value| {
        sandbox.edit_node(name, |node| node["metadata"]["labels"][key] = value.clone());
    };
    let remove = |name: &str, key: &str| {
        sandbox.edit_node(name, |node| {
            node["metadata"]["labels"].as_object_mut().unwrap().remove(key);
        });
    };
    set("worker-1", BETA, json!("rack-7"));
    set("worker-1", STABLE, json!("rack-7"));
    remove("worker-2", BETA);
    let id = Some("k3s://worker-3".to_owned());
    sandbox.register_node(NodeSpec {
        name: "foreign".into(),
        provider_id: id,
        ..NodeSpec::default()
    });
    set("foreign", BETA, json!("fsn1-dc14"));
    set("foreign", STABLE, json!("fsn1-dc14"));
    sandbox.delete_server("worker-3");
    let taint = json!([{ "key": common::UNINITIALIZED, "value": "true", "effect": "NoSchedule" }]);
    sandbox.edit_node("worker-4", |node| node["spec"]["taints"] = taint.clone());
    let those = ["worker-1", "worker-2", "worker-3", "worker-4", "foreign"];
    let before = those.map(|name| zones(&sandbox, name));
    let ran = hcloud(&person(&sandbox, "location"), RELABEL).with_code(0);
    ran.prints("1 changed, 5 unchanged, 0 failed");
    for part in [
        "! node/worker-1  warning: label failure-domain.beta.kubernetes.io/zone has the value \"rack-7\", which a person or another program has set",
        "so ccm leaves the label unchanged",
        "! node/worker-2  warning: ccm changes the zone labels only on a node that has label failure-domain.beta.kubernetes.io/zone",
        "! node/foreign  warning: another cloud-controller-manager has set provider ID \"k3s://worker-3\"",
        "! node/worker-3  warning: the node's provider ID",
    ] {
        ran.prints(part);
    }
    assert_eq!(those.map(|name| zones(&sandbox, name)), before);
    assert_eq!(zones(&sandbox, "worker-5"), ["fsn1"; 2]);
}

#[test]
fn a_volume_with_a_zone_prevents_every_write() {
    let sandbox = taken_over(2);
    let env = person(&sandbox, "location");
    let cluster = sandbox.cluster();
    cluster.create("persistentvolumes", None, volume("new", STABLE, "fsn1"));
    cluster.create("persistentvolumes", None, volume("csi", "csi.hetzner.cloud/location", "fsn1"));
    hcloud(&env, &["node", "relabel", "--dry-run"]).with_code(0);
    for key in [STABLE, BETA] {
        let name = format!("pv-{}", &key[..4]);
        cluster.create("persistentvolumes", None, volume(&name, key, "fsn1-dc14"));
        for words in [RELABEL, &["node", "relabel", "--dry-run"]] {
            let ran = hcloud(&env, words).with_code(1);
            ran.prints(&format!("! persistentvolume/{name} (claim shop/data-{name})  blocked: "));
            assert!(!ran.stdout.contains("pv-new") && !ran.stdout.contains("csi"), "{ran:?}");
        }
        delete_volume(&sandbox, &name);
    }
    // Twenty are listed, and all are counted.
    for n in 10..35 {
        cluster.create("persistentvolumes", None, volume(&format!("pv-{n}"), STABLE, "fsn1-dc14"));
    }
    let ran = hcloud(&env, RELABEL).with_code(1);
    assert_eq!(ran.stdout.matches("! persistentvolume/pv-").count(), 20);
    ran.prints("! persistentvolumes  blocked: 25 objects of this kind depend on the present zone labels, and 20 of them are listed");
    let ran = hcloud(&env, &["node", "relabel", "--yes", "-o", "json"]).with_code(1).json();
    assert_eq!(ran["items"][2]["object"]["kind"], "Dependent");
    assert!(ran["items"][2]["error"].is_string(), "{ran}");
    assert_eq!(writes(&sandbox), Vec::<String>::new());
}

#[test]
fn pods_and_daemon_sets_that_require_the_label_are_listed_and_prevent_nothing() {
    let sandbox = taken_over(1);
    let env = person(&sandbox, "location");
    let cluster = sandbox.cluster();
    let of_set = json!([
        { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": true },
    ]);
    create_pod(&sandbox, "db-0", "fsn1-dc14", json!({}));
    create_pod(&sandbox, "waits", "fsn1-dc14", json!({ "status": { "phase": "Pending" } }));
    create_pod(&sandbox, "new", "fsn1", json!({}));
    create_pod(
        &sandbox,
        "agent-x",
        "fsn1-dc14",
        json!({ "metadata": { "ownerReferences": of_set } }),
    );
    if !cluster.is_real() {
        create_pod(&sandbox, "ended", "fsn1-dc14", json!({ "status": { "phase": "Succeeded" } }));
    }
    let labels = json!({ "app": "agent" });
    let agent = json!({ "metadata": { "name": "agent" }, "spec": {
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": bound_to("fsn1-dc14") },
    } });
    cluster.create("daemonsets", Some("kube-system"), agent);
    let ran = hcloud(&env, &["node", "relabel", "--dry-run"]).with_code(0);
    let listed = ran.stdout.lines().filter(|line| line.starts_with("! "));
    let listed: Vec<&str> = listed.map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(
        listed,
        ["! daemonset/kube-system/agent", "! pod/default/db-0", "! pod/default/waits"]
    );
    ran.prints("its pods on relabelled nodes are deleted at once");
    hcloud(&env, RELABEL).with_code(0);
    assert_eq!(zones(&sandbox, "worker-1"), ["fsn1"; 2]);
    // All of the lists are read in pages.
    let lists = sandbox.calls().calls().into_iter().filter(|call| {
        ["/api/v1/persistentvolumes", "/api/v1/pods", "/apis/apps/v1/daemonsets"]
            .contains(&call.path.as_str())
    });
    let lists: Vec<bool> = lists
        .map(|call| call.query.iter().any(|(key, limit)| key == "limit" && limit == "500"))
        .collect();
    assert_eq!(lists, [true; 6]);
}

#[test]
fn many_pods_are_read_in_pages_of_500() {
    let sandbox = taken_over(1);
    if sandbox.cluster().is_real() {
        return;
    }
    let env = person(&sandbox, "location");
    for n in 0..1201 {
        let zone = if n % 40 == 0 { "fsn1-dc14" } else { "fsn1" };
        let pod = json!({ "metadata": { "name": format!("p-{n:04}") }, "spec": bound_to(zone) });
        sandbox.cluster().create("pods", Some("default"), pod);
    }
    sandbox.calls().clear();
    let ran = hcloud(&env, &["node", "relabel", "--dry-run"]).with_code(0);
    ran.prints("! pods  warning: 31 objects of this kind depend on the present zone labels, and 20 of them are listed");
    assert_eq!(sandbox.calls().count(|call| call.path == "/api/v1/pods"), 3);
}

#[test]
fn what_the_command_prints_is_the_snapshot() {
    let sandbox = taken_over(3);
    if sandbox.cluster().is_real() {
        return;
    }
    let env = person(&sandbox, "location");
    let (cluster, mut text) = (sandbox.cluster(), String::new());
    let mut show = |words: &[&str]| {
        let ran = hcloud(&env, words);
        let words = words.join(" ");
        text += &format!("$ ccm {words}\n{}{}(exit {})\n\n", ran.stdout, ran.stderr, ran.code);
    };
    sandbox.edit_node("worker-3", |node| node["metadata"]["labels"][BETA] = json!("rack-7"));
    create_pod(&sandbox, "db-0", "fsn1-dc14", json!({}));
    let agent = json!({ "metadata": { "name": "agent" }, "spec": { "template": { "spec": bound_to("fsn1-dc14") } } });
    cluster.create("daemonsets", Some("kube-system"), agent);
    cluster.create("persistentvolumes", None, volume("pv-1", STABLE, "fsn1-dc14"));
    show(RELABEL);
    show(&["node", "relabel", "worker-1", "--dry-run", "-o", "yaml"]);
    cluster.delete("persistentvolumes", None, "pv-1");
    show(&["node", "relabel", "--dry-run"]);
    show(&["node", "relabel", "--yes", "worker-1"]);
    show(RELABEL);
    show(RELABEL);
    common::snapshot("node-relabel.txt", &text);
}

/// Without the right to list one of the kinds, or when a list fails, nothing is written.
#[test]
fn without_a_complete_list_nothing_is_written() {
    for missing in ["persistentvolumes", "daemonsets", "pods"] {
        let sandbox = taken_over(1);
        let env = person(&sandbox, "location");
        let forbidden = Effect::kubernetes_status(403, "Forbidden", "not for you");
        let path = ["/api/v1/", "/apis/apps/v1/"][usize::from(missing == "daemonsets")];
        let rule = Rule::new(forbidden).half(Half::Kubernetes).path(&format!("{path}{missing}"));
        sandbox.fault(rule);
        let ran = hcloud(&env, RELABEL).with_code(1);
        ran.prints(&format!("! {missing}  blocked: "));
        ran.prints("Use an account that may list all persistentvolumes, daemonsets and pods");
        assert_eq!(writes(&sandbox), Vec::<String>::new(), "{missing}");
    }
    // The user of the daemon has none of these rights.
    let sandbox = taken_over(1);
    let ran = hcloud(&with_zone(&env(&sandbox), "location"), RELABEL).with_code(1);
    for kind in ["persistentvolumes", "daemonsets", "pods"] {
        ran.prints(&format!("! {kind}  blocked: "));
    }
    // The list of servers is refused, fails, or lacks servers that it counts.
    for effect in [
        Effect::hetzner_error(503, "unavailable", "maintenance"),
        Effect::hetzner_error(401, "unauthorized", "no"),
    ] {
        let env = person(&sandbox, "location");
        let rule = sandbox.fault(Rule::new(effect).half(Half::Hetzner).path("/v1/servers"));
        hcloud(&env, RELABEL).with_code(1);
        sandbox.faults().remove(rule);
    }
    assert_eq!(writes(&sandbox), Vec::<String>::new());
    if sandbox.cluster().is_real() {
        return;
    }
    // A page of a list has an operator that this program does not know.
    let mut unknown = volume("pv", "disk", "ssd");
    unknown["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["operator"] =
        json!("Near");
    sandbox.cluster().create("persistentvolumes", None, unknown);
    let ran = hcloud(&person(&sandbox, "location"), RELABEL).with_code(1);
    ran.prints("! persistentvolumes  blocked: ");
    assert_eq!(writes(&sandbox), Vec::<String>::new());
}

/// Robot does not answer, so the nodes on dedicated servers are not known, and no node is changed.
#[test]
fn an_outage_of_robot_prevents_every_write() {
    let sandbox = common::builder().nodes(1).robot(1).simulated();
    let env = with(person(&sandbox, ""), &[("ROBOT_ENABLED", "true")]);
    hcloud(&env, &["node", "sync"]).with_code(0);
    assert_eq!(zones(&sandbox, "metal-1"), ["fsn1-dc16"; 2]);
    sandbox.calls().clear();
    let env = with_zone(&env, "location");
    let rule = sandbox.fault(Rule::new(Effect::robot_maintenance()).half(Half::Robot));
    hcloud(&env, RELABEL).with_code(1);
    assert_eq!(writes(&sandbox), Vec::<String>::new());
    sandbox.faults().remove(rule);
    hcloud(&env, RELABEL).with_code(0);
    for name in ["worker-1", "metal-1"] {
        assert_eq!(zones(&sandbox, name), ["fsn1"; 2], "{name}");
    }
}

#[test]
fn a_person_who_changes_a_label_between_plan_and_write_is_not_overwritten() {
    let sandbox = taken_over(3);
    let env = with(person(&sandbox, "location"), &[]);
    let cluster = Arc::clone(sandbox.cluster());
    let change = Effect::before(move |_| {
        cluster.edit("nodes", None, "worker-2", |node| {
            node["metadata"]["labels"][BETA] = json!("rack-7");
        });
    });
    let rule =
        Rule::new(change).half(Half::Kubernetes).method("PATCH").path("/api/v1/nodes/worker-2");
    sandbox.fault(rule.times(1));
    let ran = hcloud(&env, &["node", "relabel", "--yes", "--concurrent-node-syncs=1"]).with_code(1);
    ran.prints(
        "! node/worker-2  failed: the node was changed after the plan was made; repeat the command",
    );
    assert!(ran.stdout.ends_with("1 changed, 0 unchanged, 1 failed, 1 not reached\n"), "{ran:?}");
    assert_eq!(zones(&sandbox, "worker-2"), ["rack-7", "fsn1-dc14"]);
    assert_eq!(zones(&sandbox, "worker-3"), ["fsn1-dc14"; 2]);
    let ran = hcloud(&env, RELABEL).with_code(0);
    ran.prints("1 changed, 2 unchanged, 0 failed");
    assert_eq!(zones(&sandbox, "worker-2"), ["rack-7", "fsn1-dc14"]);
    // A kubelet that reports its status meanwhile prevents nothing.
    let cluster = Arc::clone(sandbox.cluster());
    let report = Effect::before(move |_| {
        cluster.edit("nodes", None, "worker-1", |node| node["status"]["phase"] = json!("Running"));
    });
    let rule =
        Rule::new(report).half(Half::Kubernetes).method("PATCH").path("/api/v1/nodes/worker-1");
    sandbox.fault(rule.times(1));
    hcloud(&with_zone(&env, "datacenter"), RELABEL).with_code(0);
    assert_eq!(zones(&sandbox, "worker-1"), ["fsn1-dc14"; 2]);
}

#[test]
fn without_a_terminal_the_command_needs_yes_and_unknown_names_are_errors() {
    let sandbox = taken_over(1);
    let env = person(&sandbox, "location");
    let ran = hcloud(&env, &["node", "relabel"]).with_code(2);
    ran.warns("node relabel asks for confirmation, but there is no terminal: add --yes, or --dry-run to see the plan");
    let ran = hcloud(&env, &["node", "relabel", "--yes", "worker-9"]).with_code(1);
    contains(&ran.stderr, "there is no node \"worker-9\"");
    hcloud(&env, &["node", "relabel", "--yes", "--detailed-exitcode"]).with_code(2);
    assert_eq!(writes(&sandbox), Vec::<String>::new());
}

/// Runs a command with util-linux's `script`, so that it sees a terminal. When it asks, `answer` returns the answer.
fn at_terminal(env: &Env, answer: impl FnOnce() -> &'static str) -> Option<String> {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    let words = format!("{} node relabel --cloud-provider=hcloud", common::binary().display());
    let child = Command::new("script")
        .args(["--quiet", "--return", "--command", &words, "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(env.iter().cloned())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        sandbox::skipped::skip("asking at a terminal", "script", "there is no `script` here");
        return None;
    };
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut byte) = (Vec::new(), [0]);
    while !shown.ends_with(b"[y/N] ") && stdout.read(&mut byte).unwrap() == 1 {
        shown.push(byte[0]);
    }
    writeln!(stdin, "{}", answer()).unwrap();
    stdout.read_to_end(&mut shown).unwrap();
    child.wait().unwrap();
    Some(String::from_utf8(shown).unwrap())
}

/// A person who answers late gets no write that rests on old lists.
#[test]
fn the_command_asks_at_a_terminal_and_reads_everything_again_after_the_answer() {
    let sandbox = common::builder().nodes(1).start();
    hcloud(&env(&sandbox), &["node", "sync"]).with_code(0);
    let env = person(&sandbox, "location");
    let volume_appears = || {
        let volume = volume("late", STABLE, "fsn1-dc14");
        sandbox.cluster().create("persistentvolumes", None, volume);
        "y"
    };
    let Some(shown) = at_terminal(&env, || "n") else {
        return;
    };
    contains(&shown, "Change the zone labels of these nodes? [y/N]");
    contains(&shown, "ccm: nothing was changed");
    let shown = at_terminal(&env, volume_appears).unwrap();
    contains(&shown, "persistentvolume/late");
    assert_eq!(zones(&sandbox, "worker-1"), ["fsn1-dc14"; 2]);
    delete_volume(&sandbox, "late");
    let shown = at_terminal(&env, || "y").unwrap();
    contains(&shown, "1 changed, 0 unchanged, 0 failed");
    assert_eq!(zones(&sandbox, "worker-1"), ["fsn1"; 2]);
}

#[test]
fn inspect_and_doctor_show_what_relabel_would_change() {
    let sandbox = taken_over(3);
    let env = person(&sandbox, "location");
    sandbox.edit_node("worker-3", |node| node["metadata"]["labels"][BETA] = json!("rack-7"));
    let ran = hcloud(&env, &["node", "inspect", "worker-1"]).with_code(0);
    ran.prints("· zone label of a new node: fsn1\n      server location.name; HCLOUD_INSTANCES_ZONE_LABEL\n");
    ran.prints("ZoneLabelDiffers");
    ran.prints("Fix: ccm node relabel worker-1.");
    let checks = |env: &Env| hcloud(env, &["doctor", "-o", "json"]).json()["items"].clone();
    let zone_labels = |env: &Env| {
        let all = checks(env);
        let found = all.as_array().unwrap().iter().find(|item| item["check"] == "zone-labels");
        let found = found.unwrap();
        [found["status"].clone(), found["message"].clone(), found["remedy"].clone()]
            .map(|it| it.as_str().unwrap().to_owned())
    };
    let [status, message, remedy] = zone_labels(&env);
    assert_eq!(status, "warn");
    contains(
        &message,
        "the zone label of 2 nodes is not the label that a new node on the same server would get. The zone label of 1 \
         node is right, or was set by a person",
    );
    contains(&remedy, "ccm node relabel");
    hcloud(&env, RELABEL).with_code(0);
    let [status, message, _] = zone_labels(&env);
    assert_eq!(
        (status.as_str(), message.as_str()),
        ("ok", "none of 3 nodes has a zone label that ccm node relabel would change")
    );
}
