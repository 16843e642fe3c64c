//! A daemon has settings that a person's shell has not: what is merely missing there changes no load balancer.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common;

use common::services::{LoadBalancerService, balancer_of, create, service};
use common::{Env, Ran, ccm, with};
use sandbox::Sandbox;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

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
    let sandbox = Sandbox::builder()
        .nodes(2)
        .network("10.0.0.0/16")
        .scale(0.01)
        .heartbeats(false)
        .start();
    let daemon = with(common::env(&sandbox), SETTINGS);
    let mut shell = with(common::env(&sandbox), &[]);
    let admin = sandbox
        .env()
        .into_iter()
        .find(|(name, _)| name == "KUBECONFIG");
    shell = with(shell, &[("KUBECONFIG", &admin.unwrap().1)]);
    shell.retain(|(name, _)| name != "HCLOUD_NETWORK");
    create(&sandbox, LoadBalancerService::new("web", &[80, 443]));
    let http = LoadBalancerService::new("http", &[80]).with(&[("protocol", "http")]);
    create(&sandbox, http);
    let local = json!({ "externalTrafficPolicy": "Local" });
    create(
        &sandbox,
        LoadBalancerService::new("local", &[80]).spec(local),
    );
    let world = World {
        sandbox,
        daemon,
        shell,
    };
    for _ in 0..2 {
        let ran = ccm(
            &world.daemon,
            &["run", "--once", "--cluster-name=prod", profile],
        );
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    world.deploy(
        json!(["run", "--cluster-name=$(CLUSTER)", profile]),
        json!([]),
    );
    world
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
        self.deploy_as("ccm-from-scratch", json!([container]));
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
            let cluster = self.sandbox.cluster();
            if cluster.get(resource, Some("kube-system"), name).is_some() {
                cluster.delete(resource, Some("kube-system"), name);
            }
            cluster.create(resource, Some("kube-system"), workload.clone());
        }
    }

    /// The Deployment alone.
    fn with_one_daemon(self) -> World {
        let cluster = self.sandbox.cluster();
        cluster.delete("daemonsets", Some("kube-system"), "ccm-from-scratch");
        self
    }

    fn sync(&self, flags: &[&str]) -> Ran {
        ccm(&self.shell, &[&["lb", "sync"], flags].concat())
    }

    /// Everything that traffic and clients depend on.
    fn shape(&self) -> Value {
        let mut all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        for one in &mut all {
            for target in one["targets"].as_array_mut().unwrap() {
                target["health_status"] = Value::Null;
            }
        }
        let services = ["web", "http", "local"].map(|name| {
            let service = service(&self.sandbox, name);
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
    let world = world("--cloud-provider=ccm-from-scratch");
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
        assert!(ran.stdout.contains(line), "{ran:?}");
        assert!(ran.stdout.ends_with(", 3 held back\n"), "{ran:?}");
        assert!(ran.stderr.contains("--settings-from"), "{ran:?}");
    }
    let inspect = ccm(&world.shell, &["lb", "inspect", "default/web"]);
    assert!(
        inspect.stdout.contains("hold back target worker-1"),
        "{inspect:?}"
    );
    let list = ccm(&world.shell, &["lb", "list"]);
    assert!(list.stdout.contains("(algorithm,label"), "{list:?}");
    let list = ccm(&world.shell, &["lb", "list", "-o", "json"]).json();
    let web = &list["items"][2];
    assert_eq!(web["changes"], json!([]));
    assert_eq!(web["heldBack"][0]["source"], "default of --cluster-name");
    // With its own eyes the daemon sees nothing to do.
    let daemon = ccm(&world.daemon, &["run", "--dry-run", "--cluster-name=prod"]);
    assert!(
        daemon.stdout.contains("Plan: 0 to change, 5 unchanged"),
        "{daemon:?}"
    );
}

#[test]
fn what_the_shell_is_asked_for_is_done_and_nothing_besides() {
    let world = world("--cloud-provider=ccm-from-scratch");
    let id = balancer_of(&world.sandbox, "web");
    let cloud = world.sandbox.cloud();
    let before = cloud.load_balancer(id);
    world
        .sandbox
        .cluster()
        .edit("services", Some("default"), "web", |service| {
            service["metadata"]["annotations"] = json!({
                "load-balancer.hetzner.cloud/name": "front",
                "load-balancer.hetzner.cloud/health-check-timeout": "9s",
            });
        });
    cloud.edit_load_balancer(id, |one| drop(one["targets"].as_array_mut().unwrap().pop()));
    let ran = world.sync(&["default/web"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let mut expected = before.clone();
    expected["name"] = json!("front");
    for port in [0, 1] {
        expected["services"][port]["health_check"]["timeout"] = json!(9);
    }
    let after = cloud.load_balancer(id);
    for field in [
        "name",
        "labels",
        "algorithm",
        "services",
        "private_net",
        "public_net",
    ] {
        assert_eq!(after[field], expected[field], "{field}: {ran:?}");
    }
    let targets = after["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 2);
    assert!(
        targets
            .iter()
            .all(|target| target["use_private_ip"] == true),
        "{targets:?}"
    );
}

#[test]
fn with_a_yes_it_is_done() {
    let world = world("--cloud-provider=ccm-from-scratch");
    let ran = world.sync(&["--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.stdout.contains("held back"), "{ran:?}");
    let web = world
        .sandbox
        .cloud()
        .load_balancer(balancer_of(&world.sandbox, "web"));
    assert_eq!(web["algorithm"]["type"], "round_robin");
    assert_eq!(web["services"][0]["proxyprotocol"], false);
    assert_eq!(web["services"][0]["health_check"]["interval"], 15);
    assert_eq!(web["targets"][0]["use_private_ip"], false);
    // Without HCLOUD_NETWORK nothing is ever detached.
    assert_eq!(web["private_net"].as_array().unwrap().len(), 1);
    assert_eq!(world.sync(&["--dry-run"]).code, 0);
}

#[test]
fn with_the_daemon_s_settings_nothing_differs() {
    for profile in ["ccm-from-scratch", "hcloud"] {
        let profile = format!("--cloud-provider={profile}");
        let world = world(&profile).with_network();
        let before = world.shape();
        for from in [FROM, &FROM.replace("deployment", "daemonset")] {
            let ran = world.sync(&[from]);
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
            assert_eq!(ran.stdout, "0 changed, 3 unchanged, 0 failed\n");
        }
        assert_eq!(world.shape(), before);
        let inspect = ccm(&world.shell, &["lb", "inspect", "default/web", FROM]).stdout;
        let source = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL of deployment kube-system/ccm-from-scratch";
        assert!(inspect.contains(source), "{inspect}");
        let list = ccm(&world.shell, &["lb", "list", FROM]).stdout;
        assert_eq!(list.matches("  -\n").count(), 3, "{list}");
        let nodes = ccm(&world.shell, &["node", "sync", FROM, "--dry-run"]);
        assert!(
            nodes.stdout.contains("Plan: 0 to change, 2 unchanged"),
            "{nodes:?}"
        );
        // A person's own word comes first.
        let own = [("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", "40s")];
        let own = ccm(
            &with(world.shell.clone(), &own),
            &["lb", "inspect", "default/web", FROM],
        );
        assert!(
            own.stdout.contains("health check interval: 30s → 40s"),
            "{own:?}"
        );
    }
}

const USED: &str =
    "ccm: settings are those of deployment kube-system/ccm-from-scratch, unless set here";

#[test]
fn the_only_daemon_s_settings_are_used_and_nothing_is_held_back() {
    for profile in ["ccm-from-scratch", "hcloud"] {
        let world = world(&format!("--cloud-provider={profile}"))
            .with_one_daemon()
            .with_network();
        let before = world.shape();
        world.sandbox.calls().clear();
        let ran = world.sync(&[]);
        let expected = (0, "0 changed, 3 unchanged, 0 failed\n", format!("{USED}\n"));
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.clone()),
            expected,
            "{ran:?}"
        );
        let calls = world
            .sandbox
            .calls()
            .count(|call| call.path.starts_with("/apis/apps/v1/"));
        assert_eq!(calls, 2);
        // Its endpoint answers nothing, its kubeconfig and its address for metrics are nonsense: none is used.
        for words in [
            &["node", "sync"][..],
            &["lb", "list"],
            &["route", "list"],
            &["doctor"],
        ] {
            let ran = ccm(&world.shell, words);
            assert!(ran.stderr.contains(USED), "{ran:?}");
            assert!(!ran.stdout.contains("held back"), "{ran:?}");
        }
        assert_eq!(world.shape(), before);
        let none = world.sync(&["--dry-run", "--settings-from=none"]);
        assert!(!none.stderr.contains(USED), "{none:?}");
        assert_eq!(none.code, 1, "{none:?}");
    }
    let world = world("--cloud-provider=hcloud").with_one_daemon();
    let unread = world.sync(&["--dry-run"]);
    let line = format!("{USED}; not read, so set it here: HCLOUD_NETWORK in a Secret\n");
    assert!(unread.stderr.starts_with(&line), "{unread:?}");
}

/// As if there were none: several, none, none in that namespace, one that may not be listed, that is late, or not understood.
#[test]
fn without_one_clear_daemon_the_shell_has_its_own_settings() {
    type Change = fn(&World);
    let changes: [(&str, Change); 5] = [
        ("several", |world| {
            world.deploy_as(
                "hcloud-cloud-controller-manager",
                json!([{ "name": "x", "image": "y" }]),
            )
        }),
        ("a tenant's", |world| {
            let cluster = world.sandbox.cluster();
            let mut one = cluster
                .get("deployments", Some("kube-system"), "ccm-from-scratch")
                .unwrap();
            cluster.delete("deployments", Some("kube-system"), "ccm-from-scratch");
            one["metadata"] = json!({ "name": "ccm-from-scratch" });
            cluster.create("deployments", Some("default"), one);
        }),
        ("forbidden", |world| {
            let forbidden =
                Effect::kubernetes_status(403, "Forbidden", "deployments.apps is forbidden");
            world
                .sandbox
                .faults()
                .add(Rule::new(forbidden).path("/apis/apps/v1/**"));
        }),
        ("late", |world| {
            world
                .sandbox
                .faults()
                .add(Rule::new(Effect::Slow(Duration::from_secs(5))).path("/apis/apps/v1/**"));
        }),
        ("scaled to nothing", |world| {
            let nothing = |one: &mut Value| one["spec"]["replicas"] = json!(0);
            world.sandbox.cluster().edit(
                "deployments",
                Some("kube-system"),
                "ccm-from-scratch",
                nothing,
            );
        }),
    ];
    for (name, change) in changes {
        let world = world("--cloud-provider=ccm-from-scratch").with_one_daemon();
        change(&world);
        let before = world.shape();
        let begun = Instant::now();
        let ran = world.sync(&[]);
        assert!(begun.elapsed().as_secs() < 15, "{name}");
        assert!(!ran.stderr.contains(USED), "{name}: {ran:?}");
        assert!(ran.stdout.ends_with(", 3 held back\n"), "{name}: {ran:?}");
        assert_eq!(world.shape(), before, "{name}");
    }
    let world = world("--cloud-provider=ccm-from-scratch").with_one_daemon();
    for (args, why) in [
        (
            json!(["run", "--of-tomorrow=1"]),
            "--of-tomorrow of deployment kube-system/ccm-from-scratch: unknown flag",
        ),
        (
            json!(["run", "--cluster-name=_"]),
            "--cluster-name of deployment kube-system/ccm-from-scratch: \"_\"",
        ),
    ] {
        world.sandbox.cluster().edit(
            "deployments",
            Some("kube-system"),
            "ccm-from-scratch",
            |one| {
                one["spec"]["template"]["spec"]["containers"][0]["args"] = args.clone();
            },
        );
        let ran = world.sync(&[]);
        let line = format!("ccm: the daemon's settings are not used: {why}");
        assert!(ran.stderr.starts_with(&line), "{ran:?}");
        assert!(ran.stdout.ends_with(", 3 held back\n"), "{ran:?}");
    }
}

#[test]
fn what_stands_elsewhere_is_told_and_still_held_back() {
    let world = world("--cloud-provider=ccm-from-scratch");
    let place = |name: &str, kind: &str| json!({ "name": name, "valueFrom": { kind: { "name": "x", "key": "y" } } });
    let proxy = "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL";
    let private = "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP";
    let more = json!([place(proxy, "configMapKeyRef"), { "name": private, "value": "" }]);
    world.deploy(json!(["run", "--cluster-name=prod"]), more);
    let before = world.shape();
    let ran = world.sync(&[FROM, "--dry-run"]);
    let line = format!(
        "{USED}; not read, so set it here: HCLOUD_NETWORK in a Secret, {proxy} in a ConfigMap\n"
    );
    assert!(ran.stderr.starts_with(&line), "{ran:?}");
    assert!(!ran.stderr.contains("HCLOUD_TOKEN"), "{ran:?}");
    assert!(
        ran.stdout.contains("held back: port 80 proxy protocol"),
        "{ran:?}"
    );
    // Known to be unset: that is what the daemon would do, too.
    assert!(ran.stdout.contains("remove target worker-1"), "{ran:?}");
    assert!(!ran.stdout.contains("ALGORITHM_TYPE"), "{ran:?}");
    assert_eq!(world.shape(), before);
    // What is taken whole from a ConfigMap may hold anything.
    let container = json!({
        "name": "ccm", "args": ["--cluster-name=prod"], "envFrom": [{ "configMapRef": { "name": "x" } }],
    });
    world.deploy_as("imports", json!([container, { "name": "proxy" }]));
    let ran = world.sync(&["--settings-from=kube-system/deployment/imports"]);
    assert!(
        ran.stderr
            .contains("not read, so set it here: variables of whole other objects"),
        "{ran:?}"
    );
    assert!(
        ran.stdout
            .contains("(not set here: HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE)"),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains("--cluster-name"), "{ran:?}");
    assert_eq!(world.shape(), before);
}

#[test]
fn mistakes_are_named() {
    let world = world("--cloud-provider=ccm-from-scratch");
    let named = |name: &str, args: &[&str]| json!({ "name": name, "args": args });
    world.deploy_as("two", json!([named("ccm", &[]), named("ccm-2", &[])]));
    world.deploy_as("newer", json!([named("ccm", &["run", "--of-tomorrow=1"])]));
    world.deploy_as("wrong", json!([named("ccm", &["--cluster-name=_"])]));
    let before = world.shape();
    for (from, code, parts) in [
        (
            "kube-system/ccm-from-scratch",
            2,
            &["NAMESPACE/deployment/NAME"][..],
        ),
        ("kube-system/pod/x", 2, &["deployment or daemonset"]),
        (
            "kube-system/deployment/nobody",
            1,
            &["there is no deployment kube-system/nobody", "kubeconfig"],
        ),
        (
            "kube-system/deployment/two",
            1,
            &["deployment kube-system/two", "ccm, ccm-2"],
        ),
        (
            "kube-system/deployment/newer",
            1,
            &[
                "--of-tomorrow of deployment kube-system/newer",
                "unknown flag",
            ],
        ),
        (
            "kube-system/daemonset/wrong",
            1,
            &["--cluster-name of daemonset kube-system/wrong", "\"_\""],
        ),
    ] {
        let ran = world.sync(&["--settings-from", from]);
        assert_eq!(ran.code, code, "{from}: {ran:?}");
        for part in parts {
            assert!(ran.stderr.contains(part), "{from}: {part}: {ran:?}");
        }
    }
    // It is the person who must be allowed to read it.
    let ran = ccm(&world.daemon, &["lb", "list", FROM]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr.contains("--settings-from") && ran.stderr.contains("forbidden"),
        "{ran:?}"
    );
    let ran = ccm(&world.daemon, &["run", "--once", FROM]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(world.shape(), before);
}

/// Where it stands, and who could reach it, nobody sets right afterwards.
#[test]
fn a_lost_load_balancer_is_made_again_as_the_daemon_would_or_not_at_all() {
    let world = world("--cloud-provider=ccm-from-scratch");
    let id = balancer_of(&world.sandbox, "web");
    world.sandbox.cloud().delete_load_balancer(id);
    let before = world.shape();
    for flags in [&["--dry-run", "default/web"][..], &["default/web"]] {
        let ran = world.sync(flags);
        assert_eq!(ran.code, 1, "{ran:?}");
        let line = "service/default/web  held back: load balancer: - → kubernetes-default-web (not set here: \
                    HCLOUD_NETWORK, HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK, \
                    HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP and 5 more)\n";
        assert!(ran.stdout.contains(line), "{ran:?}");
        assert!(ran.stdout.ends_with(", 1 held back\n"), "{ran:?}");
        assert_eq!(world.shape(), before);
    }
    let list = ccm(&world.shell, &["lb", "list"]);
    assert!(list.stdout.contains("(create)"), "{list:?}");
    // A Service that never had one: nobody loses anything.
    create(&world.sandbox, LoadBalancerService::new("new", &[80]));
    let ran = world.sync(&["default/new"]);
    assert!(ran.stdout.contains("created"), "{ran:?}");
    let world = world.with_network();
    let ran = world.sync(&[FROM, "default/web"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let web = world
        .sandbox
        .cloud()
        .load_balancer(balancer_of(&world.sandbox, "web"));
    assert_eq!(web["name"], "prod-default-web");
}

/// With the other profile's eyes no node is ours, and every target would go.
#[test]
fn the_other_profile_s_cluster_is_seen_as_such() {
    let world = world("--cloud-provider=hcloud");
    let before = world.shape();
    for words in [
        &["lb", "sync"][..],
        &["lb", "sync", "--dry-run"],
        &["lb", "list"],
    ] {
        let ran = ccm(&world.shell, words);
        assert_eq!(ran.code, i32::from(words[1] == "sync"), "{ran:?}");
        assert!(
            ran.stderr.contains("--cloud-provider is not set here"),
            "{ran:?}"
        );
    }
    assert_eq!(world.shape(), before);
    let ran = world.sync(&["--cloud-provider=hcloud"]);
    assert_eq!(world.shape(), before, "{ran:?}");
    assert!(
        ran.stdout
            .contains("not set here: HCLOUD_LOAD_BALANCERS_DISABLE_IPV6"),
        "{ran:?}"
    );
}

/// A node's own addresses, and the profile of a new one's provider ID, are not taken from a default either.
#[test]
fn nodes_keep_what_the_daemon_gave_them() {
    let world = world("--cloud-provider=hcloud");
    let node = |name: &str| common::node(&world.sandbox, name);
    let addresses = |name: &str| common::addresses(&node(name));
    let before = addresses("worker-1");
    assert_eq!(before[2], "InternalIP 10.0.0.2", "{before:?}");
    world.sandbox.join(sandbox::hetzner::ServerSpec {
        name: "late".into(),
        ..Default::default()
    });
    let ran = ccm(&world.shell, &["node", "sync"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr.contains("--cloud-provider is not set here"),
        "{ran:?}"
    );
    assert!(node("late")["spec"]["providerID"].is_null());
    let hcloud = "--cloud-provider=hcloud";
    for words in [
        &["node", "sync", hcloud][..],
        &["node", "sync", hcloud, FROM],
    ] {
        let ran = ccm(&world.shell, words);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.stdout.contains("HCLOUD_NETWORK is not set here"),
            "{ran:?}"
        );
        assert_eq!(addresses("worker-1"), before);
    }
    // It is in no Network, so nothing of it is in doubt.
    assert_eq!(
        node("late")["spec"]["providerID"]
            .as_str()
            .unwrap()
            .split(':')
            .next(),
        Some("hcloud")
    );
    let list = ccm(&world.shell, &["node", "list", hcloud]);
    assert!(list.stdout.contains("!HeldBack"), "{list:?}");
    let family = [
        ("HCLOUD_NETWORK", "sandbox"),
        ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "dualstack"),
    ];
    let ran = ccm(
        &with(world.shell.clone(), &family),
        &["node", "sync", hcloud],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(addresses("worker-1").len(), 4);
    let ran = ccm(
        &with(world.shell.clone(), &family[..1]),
        &["node", "sync", hcloud],
    );
    assert!(
        ran.stdout
            .contains("HCLOUD_INSTANCES_ADDRESS_FAMILY is not set here"),
        "{ran:?}"
    );
    assert_eq!(addresses("worker-1").len(), 4);
    let ran = ccm(&world.shell, &["node", "sync", hcloud, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(addresses("worker-1").len(), 2);
}

/// Labels of servers and nodes without an ExternalIP, by settings that only the daemon has.
#[test]
fn nodes_keep_labels_of_their_servers_and_stay_private() {
    let world = world("--cloud-provider=ccm-from-scratch");
    let (sandbox, own) = (&world.sandbox, "--cloud-provider=ccm-from-scratch");
    let id = sandbox.cloud().servers(sandbox.project())[0]["id"]
        .as_u64()
        .unwrap();
    let pool = "node.example.com/pool";
    sandbox
        .cloud()
        .edit_server(id, |server| server["labels"] = json!({ pool: "gpu" }));
    let daemon = [
        ("HCLOUD_NETWORK", "sandbox"),
        ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "none"),
        ("HCLOUD_INSTANCES_LABEL_PREFIXES", "node.example.com/"),
    ];
    let sync = |settings: &[(&str, &str)], more: &[&str]| {
        let words = [&["node", "sync", "--settings-from=none", own], more].concat();
        ccm(&with(world.shell.clone(), settings), &words)
    };
    let ran = sync(&daemon, &["--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let node = || common::node(sandbox, "worker-1");
    let before = (
        common::addresses(&node()),
        node()["metadata"]["labels"][pool].clone(),
    );
    assert_eq!(
        before,
        (
            vec!["Hostname worker-1".into(), "InternalIP 10.0.0.2".into()],
            json!("gpu")
        )
    );
    for (left_out, why) in [
        (
            0,
            "would lose it only because HCLOUD_NETWORK is not set here",
        ),
        (
            1,
            "has no ExternalIP, and would get 203.0.113.1 only because HCLOUD_INSTANCES_ADDRESS_FAMILY is not set here",
        ),
        (
            2,
            "would lose them only because HCLOUD_INSTANCES_LABEL_PREFIXES is not set here",
        ),
    ] {
        let mut settings = daemon.to_vec();
        settings.remove(left_out);
        let ran = sync(&settings, &[]);
        assert!(ran.code == 1 && ran.stdout.contains(why), "{why}: {ran:?}");
        assert_eq!(
            (
                common::addresses(&node()),
                node()["metadata"]["labels"][pool].clone()
            ),
            before,
            "{why}"
        );
    }
    let ran = sync(&daemon[..2], &["--yes"]);
    assert_eq!(
        (ran.code, node()["metadata"]["labels"][pool].is_null()),
        (0, true),
        "{ran:?}"
    );
}
