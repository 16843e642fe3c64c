//! A daemon has settings that a person's shell may not have. While one of them is unknown, a command shows its plan
//! and writes nothing.

use crate::common::cluster::{Cluster, id, service};
use crate::common::{self, Env, Ran, ccm, on, with};
use sandbox::Sandbox;
use sandbox::calls::Call;
use sandbox::faults::Effect;
use serde_json::{Value, json};
use std::ops::Deref;
use std::time::{Duration, Instant};

const OURS: &str = "--cloud-provider=ccm-from-scratch";
const HCLOUD: &str = "--cloud-provider=hcloud";
/// Name of the daemon's Deployment, and how people read it.
const DAEMON: &str = "ccm-from-scratch";
const DAEMON_NAME: &str = "deployment kube-system/ccm-from-scratch";
const FROM: &str = "--settings-from=kube-system/deployment/ccm-from-scratch";

/// The settings of the daemon.
const SETTINGS: &[(&str, &str)] = &[
    ("HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", "least_connections"),
    ("HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", "true"),
    ("HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", "true"),
    ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", "30s"),
    ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT", "false"),
    ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", "5"),
    ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", "7s"),
    ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
    ("HCLOUD_LOAD_BALANCERS_TYPE", "lb21"),
    ("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", "true"),
    ("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "true"),
];

/// How the message of a command begins that writes nothing because of unknown settings.
const REFUSED: &str = "ccm: nothing was written: this command does not know ";

struct World {
    sandbox: Sandbox,
    daemon: Env,
    /// The environment of a person, which only says how both APIs are reached.
    shell: Env,
}

/// Creates `web`, a Service with HTTP, and one that only some nodes serve. All are as the daemon wants them.
fn world(profile: &str) -> World {
    let builder = Sandbox::builder().nodes(2).network("10.0.0.0/16");
    let sandbox = builder.scale(0.01).heartbeats(false).start();
    let mut admin = sandbox.env().into_iter();
    let admin = admin.find(|(name, _)| name == "KUBECONFIG").unwrap().1;
    let mut shell = with(common::env(&sandbox), &[("KUBECONFIG", &admin)]);
    shell.retain(|(name, _)| name != "HCLOUD_NETWORK");
    sandbox.create("web", &[], &[80, 443]);
    sandbox.create("http", &[("protocol", "http")], &[80]);
    let mut local = service("local", &[], &[80]);
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    sandbox.create_as(local);
    let world = World { daemon: with(common::env(&sandbox), SETTINGS), shell, sandbox };
    for _ in 0..2 {
        let words = ["run", "--once", "--cluster-name=prod", profile];
        ccm(&world.daemon, &words).with_code(0);
    }
    let args = json!(["run", "--cluster-name=$(CLUSTER)", profile]);
    world.deploy(args, json!([]));
    world
}

impl Deref for World {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

impl World {
    /// Creates the daemon's Deployment. Its Network is in a Secret, as in `manifests/`.
    fn deploy(&self, args: Value, more: Value) {
        let from = |key: &str| json!({ "secretKeyRef": { "name": "hcloud", "key": key } });
        let mut env = vec![
            json!({ "name": "HCLOUD_TOKEN", "valueFrom": from("token") }),
            json!({ "name": "HCLOUD_NETWORK", "valueFrom": from("network") }),
            json!({ "name": "HCLOUD_ENDPOINT", "value": "http://127.0.0.1:1/v1" }),
            json!({ "name": "HCLOUD_METRICS_ADDRESS", "value": "nonsense" }),
            json!({ "name": "KUBECONFIG", "value": "/nowhere" }),
            json!({ "name": "CLUSTER", "value": "prod" }),
        ];
        let plain = SETTINGS.iter();
        env.extend(plain.map(|(name, value)| json!({ "name": name, "value": value })));
        env.extend(more.as_array().unwrap().iter().cloned());
        let container = json!({ "name": "ccm", "image": "ccm:1", "args": args, "env": env });
        self.deploy_as(DAEMON, json!([container]));
    }

    fn deploy_as(&self, name: &str, containers: Value) {
        let labels = json!({ "app": name });
        let workload = json!({
            "metadata": { "name": name },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } },
            },
        });
        for resource in ["deployments", "daemonsets"] {
            self.cluster().delete(resource, SYSTEM, name);
            self.cluster().create(resource, SYSTEM, workload.clone());
        }
    }

    fn edit_daemon(&self, edit: impl FnMut(&mut Value)) {
        assert!(self.cluster().edit("deployments", SYSTEM, DAEMON, edit));
    }

    /// The Deployment alone.
    fn with_one_daemon(self) -> World {
        self.cluster().delete("daemonsets", SYSTEM, DAEMON);
        self
    }

    /// Runs a command in the person's shell.
    fn ccm(&self, words: &[&str]) -> Ran {
        ccm(&self.shell, words)
    }

    fn sync(&self, flags: &[&str]) -> Ran {
        self.ccm(&[&["lb", "sync"], flags].concat())
    }

    /// Everything that traffic and clients depend on.
    fn shape(&self) -> Value {
        let mut all = self.balancers();
        for one in &mut all {
            for target in one["targets"].as_array_mut().unwrap() {
                target["health_status"] = Value::Null;
            }
        }
        let services = ["web", "http", "local"].map(|name| {
            let service = self.service(name).unwrap();
            (service["metadata"].clone(), service["status"].clone())
        });
        json!([all, services])
    }

    fn with_network(mut self) -> World {
        self.shell = with(self.shell, &[("HCLOUD_NETWORK", "sandbox")]);
        self
    }
}

/// The namespace of the daemon.
const SYSTEM: Option<&str> = Some("kube-system");

const USED: &str = "ccm: the settings of deployment kube-system/ccm-from-scratch are used, except those that you set for this command";

const SEVERAL: &str = "the daemon's settings, because there are several daemons (deployment kube-system/ccm-from-scratch, \
                       daemonset kube-system/ccm-from-scratch); choose one with --settings-from; --own-settings uses \
                       only this shell's settings";

impl World {
    /// Runs `sync` of this kind, which must write nothing because of this.
    #[track_caller]
    fn refuses(&self, words: &[&str], why: &str) -> Ran {
        let before = (self.shape(), self.nodes());
        let ran = self.ccm(words).with_code(2);
        ran.warns(&format!("{REFUSED}{why}"));
        assert_eq!((self.shape(), self.nodes()), before, "{ran:?}");
        ran
    }
}

#[test]
fn a_plan_is_shown_and_not_written_while_the_daemon_s_settings_are_unknown() {
    let world = world(OURS);
    let ran = world.refuses(&["lb", "sync"], SEVERAL);
    ran.prints("port 80 proxy protocol: true → false\n");
    ran.prints("Plan: 3 to change, 0 unchanged, 0 blocked\n");
    // A dry run and a list work as ever, and say the same in one line.
    let line = format!("ccm: this command does not know {SEVERAL}");
    let dry = world.sync(&["--dry-run", "--detailed-exitcode"]).with_code(3);
    assert_eq!(dry.stdout, ran.stdout);
    for words in [&["lb", "list"][..], &["lb", "inspect", "default/web"], &["node", "list"]] {
        let ran = world.ccm(words).with_code(0);
        assert_eq!(ran.stderr.matches(&line).count(), 1, "{ran:?}");
    }
    let list = world.ccm(&["lb", "list", "-o", "json"]).json();
    assert_eq!(list["items"][2]["heldBack"], json!([]));
    // With its own settings the daemon has nothing to do.
    let words = ["run", "--dry-run", "--cluster-name=prod"];
    ccm(&world.daemon, &words).prints("Plan: 0 to change, 5 unchanged");
}

#[test]
fn a_requested_change_is_made_with_the_daemon_s_settings_and_no_other() {
    let world = world(OURS).with_network();
    let mut expected = world.balancer("web");
    world.annotate("web", "name", Some("front"));
    world.annotate("web", "health-check-timeout", Some("9s"));
    world.edit_balancer(id(&expected), |one| {
        one["targets"].as_array_mut().unwrap().pop();
    });
    world.refuses(&["lb", "sync", "default/web"], SEVERAL);
    let ran = world.sync(&["default/web", FROM]).with_code(0);
    expected["name"] = json!("front");
    for port in [0, 1] {
        expected["services"][port]["health_check"]["timeout"] = json!(9);
    }
    let after = world.balancer("web");
    let nets = ["private_net", "public_net"];
    let fields = ["name", "labels", "algorithm", "services"];
    for field in fields.into_iter().chain(nets) {
        assert_eq!(after[field], expected[field], "{field}: {ran:?}");
    }
    let targets = after["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 2);
    let is_private = |target: &Value| target["use_private_ip"] == true;
    assert!(targets.iter().all(is_private), "{targets:?}");
}

#[test]
fn a_shell_with_own_settings_syncs_by_them() {
    let world = world(OURS);
    world.refuses(&["lb", "sync", "--yes"], SEVERAL);
    let ran = world.sync(&["--own-settings"]).with_code(0);
    assert_eq!(ran.stderr, "");
    let web = world.balancer("web");
    assert_eq!(web["algorithm"]["type"], "round_robin");
    assert_eq!(web["services"][0]["proxyprotocol"], false);
    assert_eq!(web["services"][0]["health_check"]["interval"], 15);
    assert_eq!(web["targets"][0]["use_private_ip"], false);
    // Nothing is ever detached without HCLOUD_NETWORK.
    assert_eq!(web["private_net"].as_array().unwrap().len(), 1);
    // The older form means the same.
    let none = world.sync(&["--dry-run", "--settings-from=none"]).with_code(0);
    let expected = ("", "Plan: 0 to change, 3 unchanged, 0 blocked\n");
    assert_eq!((none.stderr.as_str(), none.stdout.as_str()), expected);
}

#[test]
fn a_sync_with_the_daemon_s_settings_changes_nothing() {
    for profile in [OURS, HCLOUD] {
        let world = world(profile).with_network();
        let before = world.shape();
        for from in [FROM, &FROM.replace("deployment", "daemonset")] {
            let ran = world.sync(&[from]);
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
            assert_eq!(ran.stdout, "0 changed, 3 unchanged, 0 failed\n");
        }
        assert_eq!(world.shape(), before);
        let words = ["lb", "inspect", "default/web", FROM];
        let interval = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL";
        let source = format!("{interval} of deployment kube-system/ccm-from-scratch");
        world.ccm(&words).prints(&source);
        let list = world.ccm(&["lb", "list", FROM]).stdout;
        assert_eq!(list.matches("  -\n").count(), 3, "{list}");
        let nodes = world.ccm(&["node", "sync", FROM, "--dry-run"]);
        nodes.prints("Plan: 0 to change, 2 unchanged");
        // A person's own word comes first.
        let own = with(world.shell.clone(), &[(interval, "40s")]);
        ccm(&own, &words).prints("health check interval: 30s → 40s");
    }
}

#[test]
fn the_only_daemon_s_settings_are_used() {
    for profile in [OURS, HCLOUD] {
        let world = world(profile).with_one_daemon().with_network();
        let before = world.shape();
        world.calls().clear();
        let ran = world.sync(&[]).with_code(0);
        assert_eq!(ran.stdout, "0 changed, 3 unchanged, 0 failed\n");
        assert_eq!(ran.stderr, format!("{USED}\n"));
        let of_workload = |call: &Call| call.path.starts_with("/apis/apps/v1/");
        assert_eq!(world.calls().count(of_workload), 2);
        // The daemon's endpoint does not answer, and its kubeconfig and its address for metrics are wrong. None of
        // them is used.
        for words in [&["node", "sync"][..], &["lb", "list"], &["route", "list"], &["doctor"]] {
            world.ccm(words).warns(USED);
        }
        assert_eq!(world.shape(), before);
    }
    // One setting is in a Secret. The token is in a Secret, too, and is not needed.
    let world = world(HCLOUD).with_one_daemon();
    let why = format!(
        "the value of HCLOUD_NETWORK (in a Secret) of {DAEMON_NAME}; set in this shell the values that the command \
         needs"
    );
    let ran = world.refuses(&["lb", "sync"], &why);
    assert!(ran.stderr.starts_with(&format!("{USED}\n")), "{ran:?}");
    let dry = world.sync(&["--dry-run"]);
    assert!(
        dry.stderr.starts_with(&format!("{USED}\nccm: this command does not know {why}")),
        "{dry:?}"
    );
}

/// Each case is what a cluster shows of a daemon, and what a shell concludes.
#[test]
fn a_shell_writes_nothing_beside_an_unclear_daemon_and_uses_its_own_settings_without_any() {
    type Change = fn(&World);
    fn fails(world: &World, effect: Effect) {
        world.faults().add(on("/apis/apps/v1/**", effect));
    }
    // An error contains what is unknown.
    #[rustfmt::skip] // A case is a paragraph.
    let changes: [(&str, Change, Result<(), &str>); 6] = [
        ("several", |world| {
            let containers = json!([{ "name": "x", "image": "y" }]);
            world.deploy_as("hcloud-cloud-controller-manager", containers);
        }, Err("the daemon's settings, because there are several daemons (")),
        ("forbidden", |world| {
            let why = "deployments.apps is forbidden";
            fails(world, Effect::kubernetes_status(403, "Forbidden", why));
        }, Err("the daemon's settings, because")),
        ("late", |world| { fails(world, Effect::Slow(Duration::from_secs(5))); }, Err("the daemon's settings, because")),
        ("without these resources",
            |world| { fails(world, Effect::kubernetes_status(404, "NotFound", "the server could not find it")); }, Ok(())),
        ("a tenant's", |world| {
            let cluster = world.cluster();
            let mut one = cluster.get("deployments", SYSTEM, DAEMON).unwrap();
            cluster.delete("deployments", SYSTEM, DAEMON);
            one["metadata"] = json!({ "name": DAEMON });
            cluster.create("deployments", Some("default"), one);
        }, Ok(())),
        ("scaled to nothing", |world| { world.edit_daemon(|one| one["spec"]["replicas"] = json!(0)); }, Ok(())),
    ];
    for (name, change, expected) in changes {
        let world = world(OURS).with_one_daemon();
        change(&world);
        let begun = Instant::now();
        match expected {
            Err(why) => drop(world.refuses(&["lb", "sync"], why)),
            Ok(()) => {
                let ran = world.sync(&[]).with_code(0);
                assert_eq!(ran.stderr, "", "{name}");
                let wanted = "round_robin";
                assert_eq!(world.balancer("web")["algorithm"]["type"], wanted, "{name}");
            }
        }
        assert!(begun.elapsed().as_secs() < 15, "{name}");
    }
    let world = world(OURS).with_one_daemon();
    for (flag, value, why) in
        [("--of-tomorrow", "1", "unknown flag"), ("--cluster-name", "_", "\"_\"")]
    {
        world.edit_daemon(|one| {
            let args = &mut one["spec"]["template"]["spec"]["containers"][0]["args"];
            *args = json!(["run", format!("{flag}={value}")]);
        });
        let why = format!("{flag} of {DAEMON_NAME}: {why}");
        world.refuses(&["lb", "sync"], &format!("the daemon's settings, because {why}"));
    }
}

#[test]
fn a_setting_from_a_secret_is_named_and_counts_once_the_shell_sets_it() {
    let world = world(OURS);
    let place = |name: &str, kind: &str| json!({ "name": name, "valueFrom": { kind: { "name": "x", "key": "y" } } });
    let proxy = "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL";
    let more = json!([place(proxy, "configMapKeyRef")]);
    world.deploy(json!(["run", "--cluster-name=prod"]), more);
    let why = format!(
        "the value of HCLOUD_NETWORK (in a Secret), {proxy} (in a ConfigMap) of {DAEMON_NAME}"
    );
    let ran = world.refuses(&["lb", "sync", FROM], &why);
    assert!(!ran.stderr.contains("HCLOUD_TOKEN"), "{ran:?}");
    let set = with(world.shell.clone(), &[("HCLOUD_NETWORK", "sandbox")]);
    let ran = ccm(&set, &["lb", "sync", FROM]).with_code(2);
    ran.warns(&format!("{REFUSED}the value of {proxy} (in a ConfigMap) of {DAEMON_NAME}"));
    // Nodes and routes do not depend on this setting.
    ccm(&set, &["node", "sync", FROM]).with_code(0);
    let ran = ccm(&with(set, &[(proxy, "true")]), &["lb", "sync", FROM]).with_code(0);
    assert_eq!(ran.stdout, "0 changed, 3 unchanged, 0 failed\n", "{ran:?}");
    // A ConfigMap that is imported as a whole may contain anything.
    let container = json!({
        "name": "ccm", "args": ["--cluster-name=prod"], "envFrom": [{ "configMapRef": { "name": "x" } }],
    });
    world.deploy_as("imports", json!([container, { "name": "proxy" }]));
    let imports = "--settings-from=kube-system/deployment/imports";
    let why = "the value of the variables from envFrom of deployment kube-system/imports";
    world.refuses(&["lb", "sync", imports], why);
    // Settings that can be read are used, and the others have their defaults.
    let words = ["lb", "sync", imports, "--own-settings", "default/web"];
    let ran = world.ccm(&words).with_code(0);
    assert_eq!(world.balancer("web")["algorithm"]["type"], "round_robin", "{ran:?}");
    assert_eq!(world.balancer("web")["labels"]["ccm-from-scratch/cluster"], "prod");
}

#[test]
fn mistakes_in_the_flag_for_the_daemon_are_named() {
    let world = world(OURS);
    let named = |name: &str, args: &[&str]| json!({ "name": name, "args": args });
    world.deploy_as("two", json!([named("ccm", &[]), named("ccm-2", &[])]));
    world.deploy_as("newer", json!([named("ccm", &["run", "--of-tomorrow=1"])]));
    world.deploy_as("wrong", json!([named("ccm", &["--cluster-name=_"])]));
    let before = world.shape();
    #[rustfmt::skip] // A case is a line.
    let cases: [(&str, i32, &[&str]); 6] = [
        ("kube-system/ccm-from-scratch", 2, &["NAMESPACE/deployment/NAME"]),
        ("kube-system/pod/x", 2, &["deployment or daemonset"]),
        ("kube-system/deployment/nobody", 1, &["there is no deployment kube-system/nobody", "kubeconfig"]),
        ("kube-system/deployment/two", 1, &["deployment kube-system/two", "ccm, ccm-2"]),
        ("kube-system/deployment/newer", 1, &["--of-tomorrow of deployment kube-system/newer", "unknown flag"]),
        ("kube-system/daemonset/wrong", 1, &["--cluster-name of daemonset kube-system/wrong", "\"_\""]),
    ];
    for (from, code, parts) in cases {
        let ran = world.sync(&["--settings-from", from]);
        assert_eq!(ran.code, code, "{from}: {ran:?}");
        for part in parts {
            ran.warns(part);
        }
    }
    // The person must have the right to read the workload.
    let ran = ccm(&world.daemon, &["lb", "list", FROM]).with_code(1);
    ran.warns("--settings-from");
    ran.warns("forbidden");
    ccm(&world.daemon, &["run", "--once", FROM]).with_code(2);
    assert_eq!(world.shape(), before);
}

/// Nobody corrects later where a load balancer is and who can reach it.
#[test]
fn a_lost_load_balancer_is_made_again_as_the_daemon_would_or_not_at_all() {
    let world = world(OURS).with_network();
    let web = id(&world.balancer("web"));
    world.cloud().delete_load_balancer(web);
    let ran = world.refuses(&["lb", "sync", "default/web"], SEVERAL);
    ran.prints("create load balancer \"kubernetes-default-web\"");
    world.ccm(&["lb", "list"]).prints("create");
    world.sync(&[FROM, "default/web"]).with_code(0);
    assert_eq!(world.balancer("web")["name"], "prod-default-web");
}

/// With the other profile no node is ours, and every target would be removed.
#[test]
fn the_other_profile_s_cluster_is_seen_as_such() {
    let world = world(HCLOUD);
    let before = world.shape();
    for flags in [&[][..], &["--own-settings"], &["--dry-run"]] {
        let ran = world.sync(flags).with_code(1);
        ran.warns("set --cloud-provider to the daemon's value");
    }
    assert_eq!(world.shape(), before);
    world.refuses(&["lb", "sync", HCLOUD], SEVERAL);
}

/// A node's own addresses, and the profile of a new one's provider ID, are not taken from a default either.
#[test]
fn nodes_keep_the_fields_that_the_daemon_set() {
    let world = world(HCLOUD);
    let addresses = || common::addresses(&world.node("worker-1"));
    assert_eq!(addresses()[2], "InternalIP 10.0.0.2");
    world.join_node("late");
    let sync = |variables: &[(&str, &str)], more: &[&str]| {
        let env = with(world.shell.clone(), variables);
        ccm(&env, &[&["node", "sync"], more].concat())
    };
    sync(&[], &["--own-settings"]).with_code(1).warns("set --cloud-provider to the daemon's value");
    world.refuses(&["node", "sync", HCLOUD], SEVERAL);
    let why = format!("the value of HCLOUD_NETWORK (in a Secret) of {DAEMON_NAME}");
    world.refuses(&["node", "sync", FROM], &why).prints("remove address InternalIP (10.0.0.2)");
    sync(&[("HCLOUD_NETWORK", "sandbox")], &[FROM]).with_code(0);
    assert_eq!(addresses()[2], "InternalIP 10.0.0.2");
    let late = world.node("late")["spec"]["providerID"].clone();
    assert!(late.as_str().unwrap().starts_with("hcloud:"));
    sync(&[], &[HCLOUD, "--own-settings"]).with_code(0);
    assert_eq!(addresses().len(), 2);
}

/// Labels of servers and nodes without an ExternalIP, by settings that the shell must have, too.
#[test]
fn nodes_keep_labels_of_their_servers_and_stay_private() {
    let world = world(OURS);
    let server = world.server_id("worker-1");
    let pool = "node.example.com/pool";
    let label = |server: &mut Value| server["labels"] = json!({ pool: "gpu" });
    world.cloud().edit_server(server, label);
    let daemon = [
        ("HCLOUD_NETWORK", "sandbox"),
        ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "none"),
        ("HCLOUD_INSTANCES_LABEL_PREFIXES", "node.example.com/"),
    ];
    let places = daemon.map(|(name, _)| json!({ "name": name, "valueFrom": { "configMapKeyRef": { "name": "x", "key": name } } }));
    world.deploy(json!(["run", OURS]), json!(places));
    let sync = |settings: &[(&str, &str)]| {
        ccm(&with(world.shell.clone(), settings), &["node", "sync", FROM])
    };
    let is_as_the_daemon_wants = || {
        let addresses = common::addresses(&world.node("worker-1"));
        assert_eq!(addresses, ["Hostname worker-1", "InternalIP 10.0.0.2"]);
        assert_eq!(world.node("worker-1")["metadata"]["labels"][pool], "gpu");
    };
    sync(&daemon).with_code(0);
    is_as_the_daemon_wants();
    for left_out in 0..daemon.len() {
        let mut settings = daemon.to_vec();
        let (name, _) = settings.remove(left_out);
        let ran = sync(&settings).with_code(2);
        ran.warns(&format!("{REFUSED}the value of {name} (in a ConfigMap) of {DAEMON_NAME}"));
        is_as_the_daemon_wants();
    }
}
