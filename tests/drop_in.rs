//! In the Deployment of hcloud-cloud-controller-manager, with `ccm` as its image.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use ccm::settings::{DROP_IN_FLAGS, TABLE};
use common::{Daemon, addresses, all_initialised, env, events, node, wait_until};
use std::os::unix::process::CommandExt;

/// The arguments and variables of its chart, its networks variant included, under its role.
#[test]
fn in_the_place_of_hcloud_cloud_controller_manager() {
    let sandbox = common::builder()
        .nodes(2)
        .network("10.0.0.0/8")
        .heartbeats(false)
        .start();
    common::under_its_role(&sandbox);
    let words = [
        "--allow-untagged-cloud",
        "--cloud-provider=hcloud",
        "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false",
        "--route-reconciliation-period=30s",
        "--webhook-secure-port=0",
        "--leader-elect=false",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.244.0.0/16",
    ];
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
    let daemon = Daemon::start_with(&env, &words);
    wait_until("initialised nodes", || all_initialised(&sandbox));
    wait_until("their events", || {
        ["worker-1", "worker-2"]
            .iter()
            .all(|name| events(&sandbox, name) == [("Synced".to_owned(), 1)])
    });
    daemon.signal("-TERM");
    assert!(daemon.ended().success(), "{}", daemon.log());

    let server = &sandbox.cloud().servers(sandbox.project())[0];
    let worker = node(&sandbox, "worker-1");
    assert_eq!(
        worker["spec"]["providerID"],
        format!("hcloud://{}", server["id"])
    );
    assert_eq!(
        addresses(&worker),
        [
            "Hostname worker-1",
            "ExternalIP 203.0.113.1",
            "InternalIP 10.0.0.2"
        ]
    );
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "cx22"),
        ("topology.kubernetes.io/region", "fsn1"),
        ("topology.kubernetes.io/zone", "fsn1-dc14"),
        ("instance.hetzner.cloud/provided-by", "cloud"),
    ] {
        assert_eq!(worker["metadata"]["labels"][key], value, "{key}");
    }
    let refused: Vec<String> = sandbox
        .calls()
        .calls()
        .iter()
        .filter(|call| call.status == Some(403))
        .map(ToString::to_string)
        .collect();
    assert_eq!(refused, Vec::<String>::new());

    let log = daemon.log();
    for word in words {
        let name = word.trim_start_matches('-').split('=').next().unwrap();
        let flag = DROP_IN_FLAGS.iter().find(|flag| flag.name == name).unwrap();
        let notices = log
            .matches(&format!("--{name}: accepted and ignored"))
            .count();
        assert_eq!(notices, usize::from(!flag.is_honoured()), "{name}:\n{log}");
    }
    for (name, value) in variables {
        let is_ours = TABLE
            .iter()
            .any(|row| row.variables.iter().any(|variable| variable.name() == name));
        let is_known = name.starts_with("HCLOUD_") || name.starts_with("ROBOT_");
        let expected = usize::from(is_known && !is_ours && !value.is_empty());
        let notices = log
            .matches(&format!("{name}: accepted and ignored"))
            .count();
        assert_eq!(notices, expected, "{name}:\n{log}");
    }
    assert!(!log.contains("WARN") && !log.contains("hunter2"), "{log}");
}

/// Its `command:` names its own binary, for which the image has a link.
#[test]
fn called_by_the_name_of_its_binary_it_is_that_one() {
    for (words, prefix) in [
        (&["--allow-untagged-cloud", "--once"][..], "hcloud://"),
        (&["run", "--once"], "hcloud://"),
        (&["--once", "--cloud-provider=hcloud"], "hcloud://"),
        // What is said wins.
        (
            &["--once", "--cloud-provider=ccm-from-scratch"],
            "ccm-from-scratch://",
        ),
    ] {
        let sandbox = common::quiet(1);
        common::under_its_role(&sandbox);
        let mut command = common::command(&env(&sandbox), words);
        let ran = command.arg0("/bin/hcloud-cloud-controller-manager");
        let ran = ran.output().unwrap();
        let log = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{words:?}: {log}");
        let id = node(&sandbox, "worker-1")["spec"]["providerID"].clone();
        assert!(id.as_str().unwrap().starts_with(prefix), "{words:?}: {id}");
    }
}
