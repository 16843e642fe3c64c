//! `ccm` as the image in the Deployment of hcloud-cloud-controller-manager.

use crate::common::{self, Cluster, Daemon, addresses, env, events, wait_until};
use ccm::settings::{IGNORED_FLAGS, TABLE};
use sandbox::Sandbox;
use std::os::unix::process::CommandExt;

/// The arguments of its chart.
const WORDS: [&str; 8] = [
    "--allow-untagged-cloud",
    "--cloud-provider=hcloud",
    "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false",
    "--route-reconciliation-period=30s",
    "--webhook-secure-port=0",
    "--leader-elect=false",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/16",
];

/// The test has the variables of the chart, those for networks included, and the role of the chart.
#[test]
fn ccm_replaces_hcloud_cloud_controller_manager_in_its_deployment() {
    let sandbox = common::networked(2).start();
    common::under_its_role(&sandbox);
    let variables = [
        ("HCLOUD_LOAD_BALANCERS_ENABLED", "false"),
        ("HCLOUD_METRICS_ENABLED", "true"),
        ("HCLOUD_NETWORK_ROUTES_ENABLED", "false"),
        ("ROBOT_USER", "nobody"),
        ("ROBOT_PASSWORD", "hunter2"),
        // Optional keys of its Secret that are empty, and what its container has besides.
        ("HCLOUD_INSTANCES_ADDRESS_FAMILY", ""),
        ("ROBOT_ENABLED", "false"),
        ("KUBERNETES_SERVICE_HOST", "192.0.2.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
    ];
    let env = common::with(env(&sandbox), &variables);
    let daemon = Daemon::start_with(&env, &WORDS);
    sandbox.wait_for_nodes();
    wait_until("their events", || {
        ["worker-1", "worker-2"]
            .iter()
            .all(|name| events(&sandbox, name) == [("Synced".to_owned(), 1)])
    });
    daemon.stop();

    let server = &sandbox.servers()[0];
    let worker = sandbox.node("worker-1");
    let expected = format!("hcloud://{}", server["id"]);
    assert_eq!(worker["spec"]["providerID"], expected);
    let expected = ["Hostname worker-1", "ExternalIP 203.0.113.1", "InternalIP 10.0.0.2"];
    assert_eq!(addresses(&worker), expected);
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "cx22"),
        ("topology.kubernetes.io/region", "fsn1"),
        ("topology.kubernetes.io/zone", "fsn1-dc14"),
        ("instance.hetzner.cloud/provided-by", "cloud"),
    ] {
        assert_eq!(worker["metadata"]["labels"][key], value, "{key}");
    }
    assert_nothing_refused(&sandbox);

    let log = daemon.log();
    for word in WORDS {
        let name = word.trim_start_matches('-').split('=').next().unwrap();
        let is_ignored = IGNORED_FLAGS.iter().any(|(flag, _)| *flag == name);
        let notices = log.matches(&format!("--{name}: this setting has no effect in ccm")).count();
        assert_eq!(notices, usize::from(is_ignored), "{name}:\n{log}");
    }
    for (name, value) in variables {
        let is_ours =
            TABLE.iter().any(|row| row.variables.iter().any(|variable| variable.name() == name));
        let is_known = name.starts_with("HCLOUD_") || name.starts_with("ROBOT_");
        let expected = usize::from(is_known && !is_ours && !value.is_empty());
        let notices = log.matches(&format!("{name}: this setting has no effect in ccm")).count();
        assert_eq!(notices, expected, "{name}:\n{log}");
    }
    assert!(!log.contains("WARN") && !log.contains("hunter2"), "{log}");
}

/// A Service as its documentation for networks has it.
#[test]
fn a_service_gets_what_hcloud_cloud_controller_manager_would_have_made() {
    let sandbox = common::networked(2).scale(0.01).start();
    common::under_its_role(&sandbox);
    let variables = [
        ("HCLOUD_LOAD_BALANCERS_ENABLED", "true"),
        ("HCLOUD_LOAD_BALANCERS_LOCATION", "nbg1"),
        ("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "true"),
        ("HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", "true"),
        ("HCLOUD_NETWORK_ROUTES_ENABLED", "false"),
    ];
    let env = common::with(env(&sandbox), &variables);
    let daemon = Daemon::start_with(&env, &WORDS);
    // Without a node there would be a warning.
    sandbox.wait_for_nodes();
    sandbox.create("web", &[("type", "lb11")], &[80]);
    wait_until("an address, and both targets", || {
        let all = sandbox.balancers();
        let targets = all.first().and_then(|one| one["targets"].as_array());
        sandbox.has_address("web") && targets.is_some_and(|list| list.len() == 2)
    });
    wait_until("its event", || {
        let told = events(&sandbox, "web");
        told.iter().any(|(reason, _)| reason == "EnsuredLoadBalancer")
    });
    let made = sandbox.service("web").unwrap();
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let balancer = sandbox.cloud().load_balancer(sandbox.balancer_id("web"));
    // The other controller gives this name.
    let name: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
    assert_eq!(balancer["name"], name);
    assert_eq!(balancer["location"]["name"], "nbg1");
    let targets = balancer["targets"].as_array().unwrap();
    assert!(targets.iter().all(|one| one["use_private_ip"] == true), "{targets:#?}");
    let public = &balancer["public_net"];
    let ingress = made["status"]["loadBalancer"]["ingress"].as_array().unwrap();
    let addresses: Vec<&serde_json::Value> = ingress.iter().map(|one| &one["ip"]).collect();
    assert_eq!(addresses, [&public["ipv4"]["ip"], &public["ipv6"]["ip"]]);
    let finalizers = &made["metadata"]["finalizers"];
    assert_eq!(finalizers[0], "service.kubernetes.io/load-balancer-cleanup");
    let events = sandbox.cluster().list("events", None);
    let mut of_service = events.iter().filter(|event| event["involvedObject"]["name"] == "web");
    assert!(of_service.all(|event| event["source"]["component"] == "service-controller"));
    daemon.stop();
    assert_nothing_refused(&sandbox);
    assert!(!daemon.log().contains("WARN"), "{}", daemon.log());
}

fn assert_nothing_refused(sandbox: &Sandbox) {
    let calls = sandbox.calls().calls();
    let refused = calls.iter().filter(|call| call.status == Some(403));
    let refused: Vec<String> = refused.map(ToString::to_string).collect();
    assert_eq!(refused, Vec::<String>::new());
}

/// The `command:` of the Deployment names the other binary, for which the image has a link.
#[test]
fn ccm_called_by_the_name_of_the_other_binary_uses_its_profile() {
    for (words, prefix) in [
        (&["--allow-untagged-cloud", "--once"][..], "hcloud://"),
        (&["run", "--once"], "hcloud://"),
        (&["--once", "--cloud-provider=hcloud"], "hcloud://"),
        // An explicit profile wins.
        (&["--once", "--cloud-provider=ccm-from-scratch"], "ccm-from-scratch://"),
    ] {
        let sandbox = common::socket_cluster(1);
        common::under_its_role(&sandbox);
        let mut command = common::command(&env(&sandbox), words);
        let ran = command.arg0("/bin/hcloud-cloud-controller-manager");
        let ran = ran.output().unwrap();
        let log = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{words:?}: {log}");
        let id = sandbox.node("worker-1")["spec"]["providerID"].clone();
        assert!(id.as_str().unwrap().starts_with(prefix), "{words:?}: {id}");
    }
}
