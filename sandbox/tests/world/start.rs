//! The start and the end of a sandbox: what it contains at first, and what it leaves behind.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sandbox::kubeconfig::Login;
use sandbox::{Builder, Half, Sandbox};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

fn variable(sandbox: &Sandbox, name: &str) -> Option<String> {
    sandbox.env().into_iter().find(|(other, _)| other == name).map(|(_, value)| value)
}

fn read_yaml(path: &Path) -> Value {
    serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_server_has_a_node_that_waits_for_the_ccm() {
    let sandbox = Sandbox::builder().nodes(3).heartbeats(false).start();
    let servers = sandbox.cloud().servers(sandbox.project());
    let nodes = sandbox.cluster().list("nodes", None);
    assert_eq!((servers.len(), nodes.len()), (3, 3));
    for (number, node) in nodes.iter().enumerate() {
        let name = format!("worker-{}", number + 1);
        let server = servers.iter().find(|server| server["name"] == name.as_str()).unwrap();
        assert_eq!(node["metadata"]["name"], name.as_str());
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], name.as_str());
        assert_eq!(node["spec"]["podCIDR"], format!("10.244.{}.0/24", number + 1));
        assert!(node["spec"].get("providerID").is_none());
        let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        assert_eq!(
            node["spec"]["taints"],
            json!([taint]),
            "not-ready is gone: the kubelet reports"
        );
        let addresses = json!([
            {"type": "InternalIP", "address": server["public_net"]["ipv4"]["ip"]},
            {"type": "Hostname", "address": name},
        ]);
        assert_eq!(node["status"]["addresses"], addresses);
    }
}

#[test]
fn a_kubelet_in_a_network_reports_its_private_address() {
    let sandbox = Sandbox::builder().nodes(2).network("10.0.0.0/8").heartbeats(false).start();
    for server in sandbox.cloud().servers(sandbox.project()) {
        let private = &server["private_net"][0];
        assert_eq!(private["network"], json!(sandbox.network()));
        let node = sandbox.cluster().get("nodes", None, server["name"].as_str().unwrap()).unwrap();
        assert_eq!(node["status"]["addresses"][0]["address"], private["ip"]);
    }
    assert_eq!(variable(&sandbox, "HCLOUD_NETWORK").as_deref(), Some("sandbox"));
}

#[test]
fn large_clusters_start_with_distinct_pod_ranges_and_padded_nodes() {
    let sandbox = Sandbox::builder()
        .nodes(300)
        .network("10.0.0.0/8")
        .node_bytes(12_000)
        .heartbeats(false)
        .start();
    let nodes = sandbox.cluster().list("nodes", None);
    let mut ranges: Vec<_> = nodes.iter().map(|node| node["spec"]["podCIDR"].to_string()).collect();
    ranges.sort();
    ranges.dedup();
    assert_eq!(ranges.len(), 300);
    assert!(nodes.iter().all(|node| node.to_string().len() >= 12_000));
}

#[test]
fn services_are_there_from_the_start() {
    let sandbox = Sandbox::builder().services(2).heartbeats(false).start();
    for name in ["web-1", "web-2"] {
        let service = sandbox.cluster().get("services", Some("default"), name).unwrap();
        assert_eq!(service["spec"]["type"], "LoadBalancer");
    }
}

#[test]
fn the_environment_names_what_is_served() {
    let all = ["KUBECONFIG", "HCLOUD_TOKEN", "HCLOUD_ENDPOINT", "HCLOUD_METADATA_ENDPOINT"];
    let cases =
        [(None, &all[..]), (Some(Half::Kubernetes), &all[..1]), (Some(Half::Hetzner), &all[1..])];
    for (only, expected) in cases {
        let builder = Sandbox::builder().heartbeats(false);
        let sandbox = only.into_iter().fold(builder, Builder::only).start();
        let names: Vec<String> = sandbox.env().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected, "{only:?}");
    }
}

#[test]
fn tokens_are_like_the_cloud_s_and_each_another() {
    let sandboxes = [Sandbox::builder().start(), Sandbox::builder().start()];
    let mut tokens: Vec<String> = sandboxes
        .iter()
        .flat_map(|sandbox| {
            let projects = sandbox.projects().clone();
            [projects.token, projects.read_only_token, projects.foreign_token]
        })
        .collect();
    assert!(
        tokens.iter().all(
            |token| token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_alphanumeric())
        )
    );
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 6);
}

#[test]
fn the_kubeconfig_has_a_context_for_the_admin_and_one_for_the_ccm() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    let path = PathBuf::from(variable(&sandbox, "KUBECONFIG").unwrap());
    let kubeconfig = read_yaml(&path);
    assert_eq!(kubeconfig["current-context"], "sandbox");
    let contexts: Vec<&Value> =
        kubeconfig["contexts"].as_array().unwrap().iter().map(|context| &context["name"]).collect();
    assert_eq!(contexts, ["sandbox", "ccm"]);
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"], sandbox.kubernetes_url());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(sandbox.folder())), (0o600, 0o700));

    let env = sandbox.env_of("ccm");
    let own = read_yaml(Path::new(&env[0].1));
    assert_eq!(own["users"][0]["user"]["token"], sandbox.account("ccm").unwrap().token);
    assert_eq!(own["contexts"].as_array().unwrap().len(), 1);
    assert_eq!(env[1..], sandbox.env()[1..]);

    let folder = sandbox.folder().to_owned();
    drop(sandbox);
    assert!(!folder.exists(), "the folder goes with the sandbox");
}

#[test]
fn a_user_that_is_added_has_a_kubeconfig_too() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    let name = "system:serviceaccount:kube-system:ccm";
    let account = sandbox.add_user(name, &[], Vec::new()).unwrap();
    let env = sandbox.env_of(name);
    let own = read_yaml(Path::new(&env[0].1));
    assert_eq!(own["users"][0], json!({"name": name, "user": {"token": account.token}}));
    let text = sandbox.kubeconfig(name, Login::TokenFile("token".into())).text();
    assert!(text.contains("tokenFile: token"), "{text}");
}

#[test]
fn a_half_that_was_stopped_starts_again_at_its_address() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    for half in [Half::Hetzner, Half::Kubernetes] {
        stop_and_resume(&sandbox, half);
        sandbox.resume(half).unwrap();
    }
}

/// While an API is stopped, no other program can get its port. Otherwise, such a program could answer in the place of
/// the API.
#[test]
fn a_half_that_was_stopped_keeps_its_port() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    for half in [Half::Hetzner, Half::Kubernetes] {
        let address = sandbox.address(half);
        sandbox.stop(half);
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let taken = other.bind(&address.into()).map_err(|error| error.kind());
        assert_eq!(taken, Err(ErrorKind::AddrInUse), "{half}");
        sandbox.resume(half).unwrap();
        assert!(TcpStream::connect(address).is_ok());
    }
}

/// A child process has copies of all sockets until it starts its own program. When an API is stopped, the copy of its
/// socket must not accept connections either.
#[test]
fn a_half_that_was_stopped_is_closed_for_processes_that_start_meanwhile_too() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let children = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                Command::new("true").status().unwrap();
            }
        });
        let stops = scope.spawn(|| {
            for _ in 0..100 {
                stop_and_resume(&sandbox, Half::Hetzner);
            }
        });
        let stops = stops.join();
        done.store(true, Ordering::Relaxed);
        children.join().unwrap();
        stops.unwrap();
    });
}

fn stop_and_resume(sandbox: &Sandbox, half: Half) {
    let address = sandbox.address(half);
    assert!(TcpStream::connect(address).is_ok());
    sandbox.stop(half);
    assert!(TcpStream::connect(address).is_err());
    sandbox.resume(half).unwrap();
    assert_eq!(sandbox.address(half), address);
    assert!(TcpStream::connect(address).is_ok());
}

#[test]
fn the_sandbox_can_listen_on_ipv6() {
    let sandbox = Sandbox::builder().address(Ipv6Addr::LOCALHOST.into()).heartbeats(false).start();
    assert!(sandbox.kubernetes_url().starts_with("https://[::1]:"), "{}", sandbox.kubernetes_url());
    assert!(TcpStream::connect(sandbox.address(Half::Hetzner)).is_ok());
}

#[test]
fn a_sandbox_with_invalid_settings_does_not_start() {
    let taken = Sandbox::builder().start();
    let port = taken.address(Half::Hetzner).port();
    let cases = [
        (Sandbox::builder().scale(0.0), "scale 0"),
        (Sandbox::builder().scale(f64::NAN), "scale NaN"),
        (Sandbox::builder().network("ten"), "network \"ten\""),
        (Sandbox::builder().network("fd00::/64"), "network \"fd00::/64\""),
        (Sandbox::builder().port_hetzner(port), "in use"),
    ];
    for (builder, expected) in cases {
        let error = builder.try_start().err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
