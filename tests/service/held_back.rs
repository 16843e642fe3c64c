//! A daemon has settings that a person's shell has not: what is merely missing there changes no load balancer.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common;

use common::cluster::{Cluster, id, service};
use common::{Env, Ran, ccm, on, with};
use sandbox::Sandbox;
use sandbox::calls::Call;
use sandbox::faults::Effect;
use serde_json::{Value, json};
use std::ops::Deref;
use std::time::{Duration, Instant};

const OURS: &str = "--cloud-provider=ccm-from-scratch";
const HCLOUD: &str = "--cloud-provider=hcloud";
/// Name of the daemon's Deployment.
const DAEMON: &str = "ccm-from-scratch";
const FROM: &str = "--settings-from=kube-system/deployment/ccm-from-scratch";

/// What the daemon is told.
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

/// What a shell without them would change, named in what is held back: all but those of creation.
const HELD_BACK: &[&str] = &[
    "ALGORITHM_TYPE",
    "DISABLE_IPV6",
    "DISABLE_PRIVATE_INGRESS",
    "HEALTH_CHECK_INTERVAL",
    "HEALTH_CHECK_NODE_PORT",
    "HEALTH_CHECK_RETRIES",
    "HEALTH_CHECK_TIMEOUT",
    "USES_PROXYPROTOCOL",
    "USE_PRIVATE_IP",
    "--cluster-name",
];

struct World {
    sandbox: Sandbox,
    daemon: Env,
    /// A person's: nothing but how to reach both APIs.
    shell: Env,
}

/// `web`, one with HTTP, and one that is answered by some nodes only: all as the daemon wants them.
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
    let world = World {
        daemon: with(common::env(&sandbox), SETTINGS),
        shell,
        sandbox,
    };
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
    /// The daemon's Deployment; its Network stands in a Secret, as in `manifests/`.
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

#[test]
fn without_the_daemon_s_settings_nothing_changes_and_all_of_it_is_named() {
    let world = world(OURS);
    let before = world.shape();
    let dry = world.sync(&["--dry-run", "--detailed-exitcode"]);
    let ran = world.sync(&[]);
    assert_eq!(world.shape(), before, "{ran:?}");
    for ran in [&dry, &ran] {
        assert_eq!(ran.code, 1, "{ran:?}");
        for setting in HELD_BACK {
            assert!(ran.stdout.contains(setting), "{setting}: {ran:?}");
        }
        let line = "service/default/web  held back: port 80 proxy protocol: true → false \
                    (not set here: HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL)\n";
        ran.prints(line);
        assert!(ran.stdout.ends_with(", 3 held back\n"), "{ran:?}");
        ran.warns("--settings-from");
    }
    let inspect = world.ccm(&["lb", "inspect", "default/web"]);
    inspect.prints("hold back target worker-1");
    world.ccm(&["lb", "list"]).prints("(algorithm,label");
    let list = world.ccm(&["lb", "list", "-o", "json"]).json();
    let web = &list["items"][2];
    assert_eq!(web["changes"], json!([]));
    assert_eq!(web["heldBack"][0]["source"], "default of --cluster-name");
    // With its own eyes the daemon sees nothing to do.
    let words = ["run", "--dry-run", "--cluster-name=prod"];
    ccm(&world.daemon, &words).prints("Plan: 0 to change, 5 unchanged");
}

#[test]
fn what_the_shell_is_asked_for_is_done_and_nothing_besides() {
    let world = world(OURS);
    let mut expected = world.balancer("web");
    world.annotate("web", "name", Some("front"));
    world.annotate("web", "health-check-timeout", Some("9s"));
    world.edit_balancer(id(&expected), |one| {
        one["targets"].as_array_mut().unwrap().pop();
    });
    let ran = world.sync(&["default/web"]).with_code(1);
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
fn with_a_yes_it_is_done() {
    let world = world(OURS);
    let ran = world.sync(&["--yes"]).with_code(0);
    assert!(!ran.stdout.contains("held back"), "{ran:?}");
    let web = world.balancer("web");
    assert_eq!(web["algorithm"]["type"], "round_robin");
    assert_eq!(web["services"][0]["proxyprotocol"], false);
    assert_eq!(web["services"][0]["health_check"]["interval"], 15);
    assert_eq!(web["targets"][0]["use_private_ip"], false);
    // Without HCLOUD_NETWORK nothing is ever detached.
    assert_eq!(web["private_net"].as_array().unwrap().len(), 1);
    world.sync(&["--dry-run"]).with_code(0);
}

#[test]
fn with_the_daemon_s_settings_nothing_differs() {
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

/// The namespace of the daemon.
const SYSTEM: Option<&str> = Some("kube-system");

const USED: &str =
    "ccm: settings are those of deployment kube-system/ccm-from-scratch, unless set here";

#[test]
fn the_only_daemon_s_settings_are_used_and_nothing_is_held_back() {
    for profile in [OURS, HCLOUD] {
        let world = world(profile).with_one_daemon().with_network();
        let before = world.shape();
        world.calls().clear();
        let ran = world.sync(&[]).with_code(0);
        assert_eq!(ran.stdout, "0 changed, 3 unchanged, 0 failed\n");
        assert_eq!(ran.stderr, format!("{USED}\n"));
        let of_workload = |call: &Call| call.path.starts_with("/apis/apps/v1/");
        assert_eq!(world.calls().count(of_workload), 2);
        // Its endpoint answers nothing, its kubeconfig and its address for metrics are nonsense: none is used.
        for words in [
            &["node", "sync"][..],
            &["lb", "list"],
            &["route", "list"],
            &["doctor"],
        ] {
            let ran = world.ccm(words);
            ran.warns(USED);
            assert!(!ran.stdout.contains("held back"), "{ran:?}");
        }
        assert_eq!(world.shape(), before);
        let none = world.sync(&["--dry-run", "--settings-from=none"]);
        assert!(!none.stderr.contains(USED), "{none:?}");
        assert_eq!(none.code, 1, "{none:?}");
    }
    let world = world(HCLOUD).with_one_daemon();
    let unread = world.sync(&["--dry-run"]);
    let line = format!("{USED}; not read, so set it here: HCLOUD_NETWORK in a Secret\n");
    assert!(unread.stderr.starts_with(&line), "{unread:?}");
}

/// As if there were none: several, none, none in that namespace, one that may not be listed, that is late, or not understood.
#[test]
fn without_one_clear_daemon_the_shell_has_its_own_settings() {
    const WORKLOADS: &str = "/apis/apps/v1/**";
    type Change = fn(&World);
    let changes: [(&str, Change); 5] = [
        ("several", |world| {
            let containers = json!([{ "name": "x", "image": "y" }]);
            world.deploy_as("hcloud-cloud-controller-manager", containers);
        }),
        ("a tenant's", |world| {
            let cluster = world.cluster();
            let mut one = cluster.get("deployments", SYSTEM, DAEMON).unwrap();
            cluster.delete("deployments", SYSTEM, DAEMON);
            one["metadata"] = json!({ "name": DAEMON });
            cluster.create("deployments", Some("default"), one);
        }),
        ("forbidden", |world| {
            let why = "deployments.apps is forbidden";
            let forbidden = Effect::kubernetes_status(403, "Forbidden", why);
            world.faults().add(on(WORKLOADS, forbidden));
        }),
        ("late", |world| {
            let late = Effect::Slow(Duration::from_secs(5));
            world.faults().add(on(WORKLOADS, late));
        }),
        ("scaled to nothing", |world| {
            world.edit_daemon(|one| one["spec"]["replicas"] = json!(0));
        }),
    ];
    for (name, change) in changes {
        let world = world(OURS).with_one_daemon();
        change(&world);
        let before = world.shape();
        let begun = Instant::now();
        let ran = world.sync(&[]);
        assert!(begun.elapsed().as_secs() < 15, "{name}");
        assert!(!ran.stderr.contains(USED), "{name}: {ran:?}");
        assert!(ran.stdout.ends_with(", 3 held back\n"), "{name}: {ran:?}");
        assert_eq!(world.shape(), before, "{name}");
    }
    let world = world(OURS).with_one_daemon();
    for (flag, value, why) in [
        ("--of-tomorrow", "1", "unknown flag"),
        ("--cluster-name", "_", "\"_\""),
    ] {
        world.edit_daemon(|one| {
            let args = &mut one["spec"]["template"]["spec"]["containers"][0]["args"];
            *args = json!(["run", format!("{flag}={value}")]);
        });
        let ran = world.sync(&[]);
        let why = format!("{flag} of deployment kube-system/ccm-from-scratch: {why}");
        let line = format!("ccm: the daemon's settings are not used: {why}");
        assert!(ran.stderr.starts_with(&line), "{ran:?}");
        assert!(ran.stdout.ends_with(", 3 held back\n"), "{ran:?}");
    }
}

#[test]
fn what_stands_elsewhere_is_told_and_still_held_back() {
    let world = world(OURS);
    let place = |name: &str, kind: &str| json!({ "name": name, "valueFrom": { kind: { "name": "x", "key": "y" } } });
    let proxy = "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL";
    let private = "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP";
    let more = json!([place(proxy, "configMapKeyRef"), { "name": private, "value": "" }]);
    world.deploy(json!(["run", "--cluster-name=prod"]), more);
    let before = world.shape();
    let ran = world.sync(&[FROM, "--dry-run"]);
    let unread = format!("HCLOUD_NETWORK in a Secret, {proxy} in a ConfigMap");
    let line = format!("{USED}; not read, so set it here: {unread}\n");
    assert!(ran.stderr.starts_with(&line), "{ran:?}");
    assert!(!ran.stderr.contains("HCLOUD_TOKEN"), "{ran:?}");
    ran.prints("held back: port 80 proxy protocol");
    // Known to be unset: that is what the daemon would do, too.
    ran.prints("remove target worker-1");
    assert!(!ran.stdout.contains("ALGORITHM_TYPE"), "{ran:?}");
    assert_eq!(world.shape(), before);
    // What is taken whole from a ConfigMap may hold anything.
    let container = json!({
        "name": "ccm", "args": ["--cluster-name=prod"], "envFrom": [{ "configMapRef": { "name": "x" } }],
    });
    world.deploy_as("imports", json!([container, { "name": "proxy" }]));
    let ran = world.sync(&["--settings-from=kube-system/deployment/imports"]);
    ran.warns("not read, so set it here: variables of whole other objects");
    ran.prints("(not set here: HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE)");
    assert!(!ran.stdout.contains("--cluster-name"), "{ran:?}");
    assert_eq!(world.shape(), before);
}

#[test]
fn mistakes_are_named() {
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
    // It is the person who must be allowed to read it.
    let ran = ccm(&world.daemon, &["lb", "list", FROM]).with_code(1);
    ran.warns("--settings-from");
    ran.warns("forbidden");
    ccm(&world.daemon, &["run", "--once", FROM]).with_code(2);
    assert_eq!(world.shape(), before);
}

/// Where it stands, and who could reach it, nobody sets right afterwards.
#[test]
fn a_lost_load_balancer_is_made_again_as_the_daemon_would_or_not_at_all() {
    let world = world(OURS);
    let web = id(&world.balancer("web"));
    world.cloud().delete_load_balancer(web);
    let before = world.shape();
    for flags in [&["--dry-run", "default/web"][..], &["default/web"]] {
        let ran = world.sync(flags).with_code(1);
        let line = "service/default/web  held back: load balancer: - → kubernetes-default-web (not set here: \
                    HCLOUD_NETWORK, HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK, \
                    HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP and 5 more)\n";
        ran.prints(line);
        assert!(ran.stdout.ends_with(", 1 held back\n"), "{ran:?}");
        assert_eq!(world.shape(), before);
    }
    world.ccm(&["lb", "list"]).prints("(create)");
    // A Service that never had one: nobody loses anything.
    world.create("new", &[], &[80]);
    let ran = world.sync(&["default/new"]);
    ran.prints("created");
    let world = world.with_network();
    world.sync(&[FROM, "default/web"]).with_code(0);
    assert_eq!(world.balancer("web")["name"], "prod-default-web");
}

/// With the other profile's eyes no node is ours, and every target would go.
#[test]
fn the_other_profile_s_cluster_is_seen_as_such() {
    let world = world(HCLOUD);
    let before = world.shape();
    for words in [
        &["lb", "sync"][..],
        &["lb", "sync", "--dry-run"],
        &["lb", "list"],
    ] {
        let ran = world.ccm(words).with_code((words[1] == "sync").into());
        ran.warns("--cloud-provider is not set here");
    }
    assert_eq!(world.shape(), before);
    let ran = world.sync(&[HCLOUD]);
    assert_eq!(world.shape(), before, "{ran:?}");
    ran.prints("not set here: HCLOUD_LOAD_BALANCERS_DISABLE_IPV6");
}

/// A node's own addresses, and the profile of a new one's provider ID, are not taken from a default either.
#[test]
fn nodes_keep_what_the_daemon_gave_them() {
    let world = world(HCLOUD);
    let addresses = || common::addresses(&world.node("worker-1"));
    let before = addresses();
    assert_eq!(before[2], "InternalIP 10.0.0.2", "{before:?}");
    world.join_node("late");
    let sync = |variables: &[(&str, &str)], more: &[&str]| {
        let env = with(world.shell.clone(), variables);
        ccm(&env, &[&["node", "sync"], more].concat())
    };
    let ran = sync(&[], &[]).with_code(1);
    ran.warns("--cloud-provider is not set here");
    let late = || world.node("late")["spec"]["providerID"].clone();
    assert!(late().is_null());
    for flags in [&[HCLOUD][..], &[HCLOUD, FROM]] {
        let ran = sync(&[], flags).with_code(1);
        ran.prints("HCLOUD_NETWORK is not set here");
        assert_eq!(addresses(), before);
    }
    // It is in no Network, so nothing of it is in doubt.
    assert!(late().as_str().unwrap().starts_with("hcloud:"));
    world.ccm(&["node", "list", HCLOUD]).prints("!HeldBack");
    let network = ("HCLOUD_NETWORK", "sandbox");
    let family = ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "dualstack");
    sync(&[network, family], &[HCLOUD]).with_code(0);
    assert_eq!(addresses().len(), 4);
    let ran = sync(&[network], &[HCLOUD]);
    ran.prints("HCLOUD_INSTANCES_ADDRESS_FAMILY is not set here");
    assert_eq!(addresses().len(), 4);
    sync(&[], &[HCLOUD, "--yes"]).with_code(0);
    assert_eq!(addresses().len(), 2);
}

/// Labels of servers and nodes without an ExternalIP, by settings that only the daemon has.
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
    let sync = |settings: &[(&str, &str)], more: &[&str]| {
        let words = [&["node", "sync", "--settings-from=none", OURS], more].concat();
        ccm(&with(world.shell.clone(), settings), &words)
    };
    sync(&daemon, &["--yes"]).with_code(0);
    let label = || world.node("worker-1")["metadata"]["labels"][pool].clone();
    let is_kept = || {
        let addresses = common::addresses(&world.node("worker-1"));
        assert_eq!(addresses, ["Hostname worker-1", "InternalIP 10.0.0.2"]);
        assert_eq!(label(), "gpu");
    };
    is_kept();
    for (left_out, why) in [
        "would lose it only because",
        "has no ExternalIP, and would get 203.0.113.1 only because",
        "would lose them only because",
    ]
    .iter()
    .enumerate()
    {
        let mut settings = daemon.to_vec();
        let (name, _) = settings.remove(left_out);
        let ran = sync(&settings, &[]).with_code(1);
        ran.prints(&format!("{why} {name} is not set here"));
        is_kept();
    }
    sync(&daemon[..2], &["--yes"]).with_code(0);
    assert!(label().is_null());
}
