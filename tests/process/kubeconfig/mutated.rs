//! Good kubeconfigs with a few random changes. Whatever the result is, it comes soon, and is never a panic or a secret.

use super::plugins::exec;
use super::{World, yaml};
use crate::common::random::Random;
use crate::common::seeds::chosen;
use ccm::kube::config;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The number of kubeconfigs that are only read.
const READ: u64 = 2000;
/// The number of kubeconfigs with which the binary is run.
const RUN: u64 = 300;
/// The limit of one run, its calls included.
const LIMIT: Duration = Duration::from_secs(10);

fn basic(world: &World) -> Value {
    let mut config = world.config();
    config["users"][0]["user"] = json!({"username": "ccm", "password": world.token});
    config["clusters"][0]["cluster"]["tls-server-name"] = "localhost".into();
    config
}

/// Returns a kubeconfig with a plugin that is harmless, whatever its name becomes by the changes.
fn plugged(world: &World) -> Value {
    let mut exec = exec("./plugin");
    exec["args"] = json!(["one", "two"]);
    exec["env"] = json!([{"name": "SECRET", "value": world.token}]);
    exec["installHint"] = "line\nline".into();
    exec["provideClusterInfo"] = true.into();
    world.with_exec(exec)
}

fn mutated(world: &World, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let config = match random.below(4) {
        0 => world.config(),
        1 => world.certified(&world.identity),
        2 => basic(world),
        _ => plugged(world),
    };
    with_random_changes(yaml(&config).into_bytes(), &mut random)
}

/// Returns the text with one to three random changes.
fn with_random_changes(mut text: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..=random.below(3) {
        let at = random.below(text.len().max(1) as u64) as usize;
        let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let line = random.below(lines.len().max(1) as u64) as usize;
        if line >= lines.len() {
            break;
        }
        match random.below(6) {
            0 => text[at] ^= 1 << random.below(8),
            1 => text[at] = *random.pick(b"\n \t:-[]{}&*!|>'\"%@`#,?\0"),
            2 => text.truncate(at),
            3 => drop(text.remove(at)),
            4 => {
                lines.remove(line);
                text = lines.concat();
            }
            _ => {
                let twice = lines[line];
                lines.insert(random.below(lines.len() as u64) as usize, twice);
                text = lines.concat();
            }
        }
    }
    text
}

#[test]
fn a_mutated_kubeconfig_is_read_without_a_panic() {
    let world = World::new();
    let secrets = world.secrets();
    for seed in chosen(0..READ) {
        let path = world.write("slips", mutated(&world, seed));
        let options =
            config::Options { kubeconfig: vec![path.into()], ..config::Options::default() };
        if let Err(error) = config::load(&options) {
            let leak = secrets.leak(&error.to_string());
            assert_eq!(leak, None, "CCM_TEST_SEED={seed}: {error}");
        }
    }
}

#[test]
fn a_mutated_kubeconfig_is_run_without_a_panic() {
    let world = World::new();
    world.plugin("plugin", "client.authentication.k8s.io/v1", json!({"token": world.token}));
    let secrets = world.secrets();
    let server = world.sandbox.kubernetes_url();
    for seed in chosen(0..RUN) {
        let text = mutated(&world, seed);
        // Any other address would be somebody else's, and take its time.
        if !String::from_utf8_lossy(&text).contains(&format!("{server}\n")) {
            continue;
        }
        let begun = Instant::now();
        let ran = world.list(&world.write("slips", text), &["-v=10"]);
        let output = ran.stdout.clone() + &ran.stderr;
        assert_eq!(secrets.leak(&output), None, "CCM_TEST_SEED={seed}: {ran:?}");
        let is_panic = output.contains("internal error") || output.contains("panicked");
        assert!(matches!(ran.code, 0 | 1) && !is_panic, "CCM_TEST_SEED={seed}: {ran:?}");
        assert!(begun.elapsed() < LIMIT, "CCM_TEST_SEED={seed}: {ran:?}");
    }
}

/// The output of a credential plugin has random changes.
#[test]
fn a_mutated_answer_of_a_plugin_causes_no_panic() {
    let world = World::new();
    let secrets = world.secrets();
    let good = json!({
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1",
        "status": {
            "token": world.token,
            "clientCertificateData": world.identity.certificate_pem,
            "clientKeyData": world.identity.key_pem,
            "expirationTimestamp": "2999-01-01T00:00:00Z",
        },
    });
    world.script(
        "plugin",
        "cat \"$(dirname \"$0\")/answer\"; cat \"$(dirname \"$0\")/answer\" >&2; [ $# = 0 ]",
    );
    let mut failing = exec("./plugin");
    failing["args"] = json!(["fail"]);
    let config = world.write("config", yaml(&world.with_exec(exec("./plugin"))));
    let failing = world.write("failing", yaml(&world.with_exec(failing)));
    let mut outcomes = String::new();
    for seed in chosen(0..RUN) {
        world.write(
            "answer",
            with_random_changes(good.to_string().into_bytes(), &mut Random::new(seed)),
        );
        let config = if seed % 3 == 0 { &failing } else { &config };
        let ran = world.list(config, &["-v=10"]);
        let output = ran.stdout.clone() + &ran.stderr;
        assert_eq!(secrets.leak(&output), None, "CCM_TEST_SEED={seed}: {ran:?}");
        assert!(
            matches!(ran.code, 0 | 1) && !output.contains("panicked"),
            "CCM_TEST_SEED={seed}: {ran:?}"
        );
        write!(outcomes, "{}", ran.code).unwrap();
    }
    assert!(outcomes.len() == 1 || outcomes.contains('0') && outcomes.contains('1'));
}
