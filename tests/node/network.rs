//! The private Network at the start of the daemon: which Network it is, and whether this machine is attached to it.

use crate::common::{Cluster, Daemon, Simulate, ccm, contains, env, with, writes};
use sandbox::hetzner::ServerSpec;
use sandbox::{Builder, Sandbox};
use std::sync::Arc;

fn builder() -> Builder {
    let builder = Sandbox::builder().nodes(2).heartbeats(false);
    builder.network("10.0.0.0/8")
}

fn world() -> Arc<Sandbox> {
    builder().simulated()
}

/// Runs until the Network is known and all nodes are initialised, and ends it.
fn works(sandbox: &Sandbox, changes: &[(&str, &str)]) -> String {
    let daemon = Daemon::start(&with(env(sandbox), changes), &[]);
    daemon.logs("private Network: sandbox");
    sandbox.wait_for_nodes();
    daemon.stop();
    daemon.log()
}

/// Digits are an ID, even when another Network has them as its name.
#[test]
fn a_network_is_found_by_id_or_by_name() {
    let sandbox = world();
    let id = sandbox.network_id().to_string();
    let other = sandbox.cloud().create_network(sandbox.project(), &id, "10.9.0.0/16");
    for named in [id.as_str(), "sandbox"] {
        let log = works(&sandbox, &[("HCLOUD_NETWORK", named)]);
        contains(&log, &format!("private Network: sandbox ({id})"));
        assert!(!log.contains("metadata"), "{log}");
    }
    let ran = ccm(&with(env(&sandbox), &[("HCLOUD_NETWORK", "4711")]), &["run"]).with_code(1);
    let expected = format!(
        "HCLOUD_NETWORK: there is no Network 4711; this project has sandbox ({id}), {id} ({other})"
    );
    ran.warns(&expected);
}

/// This machine is not attached to the Network, which is reported before anything is written.
#[test]
fn a_daemon_outside_of_the_network_ends_and_says_what_to_do() {
    let sandbox = world();
    let other = sandbox.cloud().create_network(sandbox.project(), "other", "10.9.0.0/16");
    let alone = sandbox.create_server("alone");
    let elsewhere = sandbox.cloud().create_server(
        sandbox.project(),
        ServerSpec {
            name: "elsewhere".into(),
            networks: vec![(other, None)],
            ..ServerSpec::default()
        },
    );
    let id = sandbox.network_id();
    for (server, there) in
        [(alone, "no Network".to_owned()), (elsewhere, format!("other ({other})"))]
    {
        sandbox.cloud().set_metadata_server(Some(server));
        for words in [&["run"][..], &["run", "--once"]] {
            let ran = sandbox.ccm(words).with_code(1);
            let expected = format!(
                "HCLOUD_NETWORK: this machine is attached to {there}, but should be attached to the Network sandbox ({id}); \
                 attach the machine, correct HCLOUD_NETWORK, or set HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true if the machine \
                 need not be attached"
            );
            ran.warns(&expected);
        }
        assert_eq!(writes(&sandbox), Vec::<String>::new());
        // A person may ask and try from anywhere.
        for words in [&["node", "list"][..], &["run", "--dry-run"]] {
            let ran = sandbox.ccm(words);
            assert!(ran.code == 0 && !ran.stderr.contains("attached"), "{ran:?}");
        }
    }
    let log = works(&sandbox, &[("HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK", "true")]);
    assert!(!log.contains("attached"), "{log}");
}

/// The metadata service does not exist, or is another one. So the daemon cannot know the machine, and
/// reports that once.
#[test]
fn a_daemon_outside_of_hetzner_continues_with_a_warning() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        (None, "HTTP status 404"),
        (Some("http://127.0.0.1:1/hetzner/v1/metadata"), "(connection refused"),
        (Some("http://metadata.test"), "failed to lookup address information"),
    ];
    for (endpoint, why) in cases {
        let sandbox = builder().scale(0.02).start();
        sandbox.cloud().set_metadata_server(None);
        let changes: Vec<_> =
            endpoint.map(|url| ("HCLOUD_METADATA_ENDPOINT", url)).into_iter().collect();
        let log = works(&sandbox, &changes);
        let told: Vec<&str> = log
            .lines()
            .filter(|line| {
                line.contains(
                    "ccm could not check whether this machine is attached to the Network sandbox",
                )
            })
            .collect();
        assert_eq!(told.len(), 1, "{log}");
        assert!(told[0].contains("WARN") && told[0].contains(why), "{told:?}");
        assert!(
            told[0].ends_with("HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true switches the check off"),
            "{told:?}"
        );
    }
}
