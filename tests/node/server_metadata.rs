//! The labels, private addresses and states that a node gets from its server and from a person. The binary runs
//! against the sandbox.

use crate::common::{
    self, Cluster, Daemon, Env, Simulate, addresses, ccm, env, events, is_initialised, on,
    simulated_cluster, wait_until, with, writes,
};
use sandbox::Sandbox;
use sandbox::faults::Effect;
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use serde_json::{Value, json};

const POOL: &str = "node.example.com/pool";
const OWNED: &str = "instance.hetzner.cloud/server-labels";
const ONCE: &[&str] = &["run", "--once"];
/// A refresh every 200 ms.
const OFTEN: &[&str] = &["--node-status-update-frequency=10s"];

fn prefixes(sandbox: &Sandbox, prefixes: &str) -> Env {
    with(env(sandbox), &[("HCLOUD_INSTANCES_LABEL_PREFIXES", prefixes)])
}

fn edit_server(sandbox: &Sandbox, name: &str, edit: impl FnOnce(&mut Value)) {
    let servers = sandbox.servers();
    let server = servers.iter().find(|server| server["name"] == name).unwrap();
    sandbox.cloud().edit_server(server["id"].as_u64().unwrap(), edit);
}

fn edit_node(sandbox: &Sandbox, name: &str, edit: impl FnMut(&mut Value)) {
    sandbox.edit_node(name, edit);
}

/// Returns a label of the node, or null.
fn label(sandbox: &Sandbox, key: &str) -> Value {
    sandbox.node("worker-1")["metadata"]["labels"][key].clone()
}

#[test]
fn labels_and_taints_of_the_server_are_set_with_the_patch_that_removes_the_taint() {
    let sandbox = simulated_cluster(1);
    edit_server(&sandbox, "worker-1", |server| {
        server["labels"] = json!({
            POOL: "gpu", "node.example.com/taint.gpu": "true_NoSchedule", "plain": "x", "example.org/other": "x",
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "",
        });
    });
    let env = prefixes(&sandbox, "node.example.com/, node-role.kubernetes.io/worker");
    ccm(&env, ONCE).with_code(0);
    let expected = [
        "PATCH /api/v1/nodes/worker-1/status",
        "PATCH /api/v1/nodes/worker-1",
        "POST /api/v1/namespaces/default/events",
    ];
    assert_eq!(writes(&sandbox), expected, "no write more than without labels");
    let worker = sandbox.node("worker-1");
    let labels = worker["metadata"]["labels"].as_object().unwrap();
    let from_server = labels.keys().filter(|key| key.contains("example") || key.contains("role"));
    let from_server: Vec<&String> = from_server.collect();
    assert_eq!(from_server, ["node-role.kubernetes.io/worker", POOL]);
    let wanted = format!("node-role.kubernetes.io/worker=,{POOL}=gpu");
    assert_eq!(worker["metadata"]["annotations"][OWNED], wanted);
    let taint = json!({ "key": "node.example.com/gpu", "value": "true", "effect": "NoSchedule" });
    assert_eq!(worker["spec"]["taints"], json!([taint]));
    sandbox.calls().clear();
    ccm(&env, ONCE).with_code(0);
    assert_eq!(writes(&sandbox), Vec::<String>::new());
    // The prefix of the one is not listed any more, and no prefix at all is the default.
    let ran = ccm(&prefixes(&sandbox, "node-role.kubernetes.io/worker"), ONCE);
    ran.warns(&format!("label {POOL}: removed (gpu)"));
    assert_eq!(writes(&sandbox).len(), 1);
    assert_eq!(label(&sandbox, POOL), Value::Null);
    assert_eq!(label(&sandbox, "node-role.kubernetes.io/worker"), "");
}

#[test]
fn labels_of_servers_are_not_read_by_default_or_in_the_other_profile() {
    for flags in [&["run", "--once"][..], &["run", "--once", "--cloud-provider=hcloud"]] {
        let sandbox = simulated_cluster(1);
        edit_server(&sandbox, "worker-1", |server| server["labels"] = json!({ POOL: "gpu" }));
        sandbox.ccm(flags).with_code(0);
        assert_eq!(label(&sandbox, POOL), Value::Null);
        assert_eq!(sandbox.node("worker-1")["metadata"]["annotations"][OWNED], Value::Null);
    }
}

#[test]
fn the_daemon_syncs_labels_of_servers_and_keeps_those_of_persons() {
    let sandbox = simulated_cluster(1);
    let daemon = Daemon::start(&prefixes(&sandbox, "node.example.com/"), OFTEN);
    sandbox.wait_for_nodes();
    let set = |value: Option<&str>| {
        edit_server(&sandbox, "worker-1", |server| match value {
            Some(value) => server["labels"][POOL] = json!(value),
            None => server["labels"] = json!({}),
        });
    };
    let gets = |value: Value| wait_until("the label", || label(&sandbox, POOL) == value);
    for value in ["gpu", "cpu"] {
        set(Some(value));
        gets(json!(value));
    }
    set(None);
    gets(Value::Null);
    set(Some("gpu"));
    gets(json!("gpu"));
    edit_node(&sandbox, "worker-1", |node| node["metadata"]["labels"][POOL] = json!("mine"));
    wait_until("it is the person's", || {
        sandbox.node("worker-1")["metadata"]["annotations"][OWNED].is_null()
    });
    set(None);
    let lists = || sandbox.calls().count(|call| call.path == "/v1/servers");
    let enough = lists() + 3;
    wait_until("three refreshes", || lists() >= enough);
    assert_eq!(label(&sandbox, POOL), "mine", "{}", daemon.log());
    let single = sandbox.calls().count(|call| call.path.starts_with("/v1/servers/"));
    assert_eq!(single, 0, "a list serves all");
}

/// The answer or the token may be wrong in any way. Unknown labels remove nothing.
#[test]
fn a_wrong_answer_removes_no_label() {
    let sandbox = simulated_cluster(2);
    edit_server(&sandbox, "worker-1", |server| server["labels"] = json!({ POOL: "gpu" }));
    let env = prefixes(&sandbox, "node.example.com/");
    ccm(&env, ONCE).with_code(0);
    let before = sandbox.nodes();
    type Change = fn(&mut Value);
    let wrong: [(&str, Change); 4] = [
        ("missing", |server| drop(server.as_object_mut().unwrap().remove("labels"))),
        ("null", |server| server["labels"] = Value::Null),
        ("a list", |server| server["labels"] = json!([])),
        ("a number for a value", |server| server["labels"] = json!({ POOL: 1 })),
    ];
    for (what, change) in wrong {
        let effect = Effect::changed(move |mut answer| {
            let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
            body["servers"].as_array_mut().unwrap().iter_mut().for_each(change);
            answer.body = body.to_string().into_bytes();
            answer
        });
        sandbox.fault(on("/v1/servers", effect));
        let ran = ccm(&env, ONCE);
        assert_eq!(ran.code, 1, "{what}: {ran:?}");
        assert_eq!(sandbox.nodes(), before, "{what}");
        sandbox.faults().clear();
    }
    let foreign = with(env, &[("HCLOUD_TOKEN", &sandbox.projects().foreign_token)]);
    ccm(&foreign, ONCE);
    assert_eq!(sandbox.nodes(), before, "another project's token");
}

#[test]
fn each_special_state_of_a_server_is_one_event() {
    let sandbox = simulated_cluster(1);
    let daemon = sandbox.daemon(OFTEN);
    sandbox.wait_for_nodes();
    let log = || daemon.log();
    let reported = || log().matches("(ServerImpaired)").count();
    let ended = || log().matches("all reported failures have ended").count();
    let change = |field: &'static str, value: Value| {
        edit_server(&sandbox, "worker-1", |server| server[field] = value);
    };
    let refreshes = || {
        let lists = || sandbox.calls().count(|call| call.path == "/v1/servers");
        let enough = lists() + 3;
        wait_until("three refreshes", || lists() >= enough);
    };
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("status", json!("migrating"), json!("running"), "migrating", "is being migrated"),
        ("status", json!("rebuilding"), json!("running"), "rebuilding", "is being rebuilt"),
        ("rescue_enabled", json!(true), json!(false), "running,rescue", "has its rescue system enabled"),
        ("locked", json!(true), json!(false), "running,locked", "is locked"),
        ("status", json!("migrating"), json!("running"), "migrating", "is being migrated"),
    ];
    for (number, (field, value, before, state, message)) in (1..).zip(cases) {
        change(field, value);
        wait_until("its report", || reported() == number);
        refreshes();
        assert_eq!(reported(), number, "once: {}", log());
        daemon.logs(message);
        let list = sandbox.ccm(&["node", "list"]).stdout;
        assert!(list.contains(&format!(" {state} ")), "{list}");
        for words in [&["node", "inspect", "worker-1"][..], &["status"]] {
            let shown = common::one_line(&sandbox.ccm(words).stdout);
            assert!(shown.contains(message), "{words:?}: {shown}");
        }
        change(field, before);
        wait_until("its end", || ended() == number);
    }
    let events = events(&sandbox, "worker-1").into_iter();
    let events = events.filter(|(reason, _)| reason == "ServerImpaired");
    assert_eq!(events.count(), 4, "one for each message");
    assert_eq!(sandbox.node("worker-1")["spec"]["taints"], Value::Null, "no taint");
}

#[test]
fn an_annotated_internal_ip_is_used_unless_another_node_has_it() {
    let sandbox = common::networked(3).simulated();
    let annotate = |name: &str, ip: &'static str| {
        edit_node(&sandbox, name, |node| {
            node["metadata"]["annotations"]["instance.hetzner.cloud/internal-ip"] = json!(ip);
        });
    };
    annotate("worker-1", "100.64.0.7,fd00::7");
    annotate("worker-2", "10.0.0.4");
    annotate("worker-3", "10.0.0.4");
    sandbox.ccm(ONCE).with_code(1);
    assert_eq!(
        addresses(&sandbox.node("worker-1")),
        [
            "Hostname worker-1",
            "ExternalIP 203.0.113.1",
            "InternalIP 100.64.0.7",
            "InternalIP fd00::7"
        ]
    );
    for name in ["worker-2", "worker-3"] {
        assert!(!is_initialised(&sandbox.node(name)), "both claim it");
        let expected = [("InvalidInternalIP".to_owned(), 1)];
        assert_eq!(events(&sandbox, name), expected);
    }
    // The address of its own server in the Network, which no other node claims any more.
    annotate("worker-2", "100.64.0.8");
    sandbox.converge();
    let inspected = sandbox.ccm(&["node", "inspect", "worker-2"]).stdout;
    let source =
        "address InternalIP: 100.64.0.8\n      annotation instance.hetzner.cloud/internal-ip";
    assert!(inspected.contains(source), "{inspected}");
    for (ip, why) in [
        ("10.0.0.4", "node \"worker-3\" has"),
        ("203.0.113.2", "is already an ExternalIP of the node"),
        ("127.0.0.1", "is neither the unicast IP address of a machine"),
        ("10.0.0.8,10.0.0.9", "is neither the unicast IP address of a machine"),
        ("vpn", "is neither the unicast IP address of a machine"),
    ] {
        let before = addresses(&sandbox.node("worker-2"));
        annotate("worker-2", ip);
        let ran = sandbox.ccm(&["node", "sync"]);
        assert_eq!(ran.code, 1, "{ip}: {ran:?}");
        assert!(ran.stdout.contains(why), "{ip}: {ran:?}");
        assert_eq!(addresses(&sandbox.node("worker-2")), before, "{ip}");
    }
}

#[test]
fn a_private_node_has_no_external_ip_and_keeps_its_kubelet_s_internal_ip() {
    let sandbox = common::networked(0).simulated();
    let join = |name: &str, node_ip: Option<&str>| {
        let spec = ServerSpec { name: name.into(), ..ServerSpec::default() };
        let server = sandbox.cloud().create_server(sandbox.project(), spec);
        sandbox.register_node(NodeSpec {
            name: name.into(),
            server: Some(server),
            node_ip: node_ip.map(str::to_owned),
            ..NodeSpec::default()
        });
    };
    join("vpn", Some("100.64.0.7"));
    join("pair", Some("fd7a::1,100.64.0.8"));
    let none = with(env(&sandbox), &[("HCLOUD_INSTANCES_ADDRESS_FAMILY", "none")]);
    let ran = ccm(&none, ONCE);
    assert!(
        ran.code == 1 && ran.stderr.contains("100.64.0.7 is not an address of server"),
        "{ran:?}"
    );
    let kubelet = with(none, &[("HCLOUD_INSTANCES_INTERNAL_IP_FROM", "kubelet")]);
    let ran = ccm(&kubelet, ONCE).with_code(0);
    assert!(!ran.stderr.contains("NoAddress"), "{ran:?}");
    let expected = ["InternalIP 100.64.0.7", "Hostname vpn"];
    assert_eq!(addresses(&sandbox.node("vpn")), expected);
    let expected = ["InternalIP fd7a::1", "InternalIP 100.64.0.8", "Hostname pair"];
    assert_eq!(addresses(&sandbox.node("pair")), expected);
}
