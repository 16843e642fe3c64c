//! Every example in `manifests/examples/` is applied as it stands, and asks only for what exists.

use crate::common::{self, Cluster, ccm, env};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// An example: what its Service needs beside the cluster, and what must hold for its load balancer.
struct Example {
    file: &'static str,
    before: fn(&Sandbox),
    /// Fields of the load balancer, by pointer.
    is: &'static [(&'static str, &'static str)],
    /// Addresses or host name in the status, with their mode.
    status: &'static str,
}

const ADDRESSES: &str = "VIP VIP VIP";

#[rustfmt::skip] // A case is a paragraph.
const EXAMPLES: &[Example] = &[
    Example { file: "tcp.yaml", before: |_| {}, status: ADDRESSES, is: &[
        ("/services/0/protocol", "tcp"), ("/location/name", "fsn1"),
    ] },
    Example { file: "type-auto.yaml", before: |_| {}, status: ADDRESSES, is: &[("/load_balancer_type/name", "lb11")] },
    Example { file: "https-managed.yaml", before: |_| {}, status: ADDRESSES, is: &[
        ("/services/0/protocol", "https"), ("/services/0/http/redirect_http", "true"), ("/services/0/http/certificates/1", "null"),
    ] },
    Example { file: "mixed-protocols.yaml", before: certificate, status: ADDRESSES, is: &[
        ("/services/0/protocol", "http"), ("/services/0/http/sticky_sessions", "true"), ("/services/0/health_check/http/path", "/ready"),
        ("/services/1/protocol", "https"), ("/services/1/http/sticky_sessions", "false"), ("/services/1/health_check/interval", "10"),
        ("/services/2/protocol", "tcp"), ("/services/2/listen_port", "1883"),
    ] },
    Example { file: "private-network.yaml", before: |_| {}, status: "Proxy Proxy Proxy", is: &[
        ("/services/0/proxyprotocol", "true"), ("/targets/0/use_private_ip", "true"), ("/targets/2/use_private_ip", "true"),
    ] },
    Example { file: "ingress-controller.yaml", before: namespace, status: "ingress.example.com", is: &[
        ("/name", "ingress"), ("/services/1/listen_port", "443"), ("/services/1/proxyprotocol", "true"),
        ("/services/0/health_check/http/path", "/healthz"),
    ] },
    Example { file: "kept-address.yaml", before: primary_ip, status: ADDRESSES, is: &[
        ("/public_net/ipv4/ip", "203.0.113.4"), ("/location/name", "fsn1"),
    ] },
    Example { file: "shared.yaml", before: shop, status: "Proxy Proxy Proxy", is: &[
        ("/services/0/listen_port", "443"), ("/services/1/listen_port", "8883"), ("/labels/ccm-from-scratch~1group", "default.edge"),
    ] },
    Example { file: "departing-nodes.yaml", before: |_| {}, status: ADDRESSES, is: &[
        ("/services/0/health_check/port", "10256"), ("/targets/2/type", "server"),
    ] },
    Example { file: "nodes-with-pods.yaml", before: |_| {}, status: ADDRESSES, is: &[
        ("/services/0/listen_port", "80"), ("/targets/2/type", "server"),
    ] },
    Example { file: "namespace-defaults.yaml", before: |_| {}, status: ADDRESSES, is: &[
        ("/location/name", "fsn1"), ("/labels/team", "web"), ("/labels/cost", "42"),
    ] },
    Example { file: "external.yaml", before: of_terraform, status: "Proxy Proxy", is: &[
        ("/name", "edge-lb"), ("/services/0/listen_port", "1883"), ("/labels/ccm-from-scratch~1external", "default"),
    ] },
];

/// Creates a certificate with the name that the example uses. Any certificate is enough.
fn certificate(sandbox: &Sandbox) {
    let body = json!({"name": "example-com", "type": "managed", "domain_names": ["example.com"]});
    sandbox.create_certificate(body);
}

fn namespace(sandbox: &Sandbox) {
    sandbox.create_namespace("ingress-nginx");
}

/// Gives ccm the right of `components/namespace-defaults`, and returns the environment with its variable.
fn allow_defaults(sandbox: &Sandbox, env: common::Env) -> common::Env {
    let role = include_str!("../../manifests/components/namespace-defaults/role.yaml");
    let role = common::documents(role).remove(0);
    sandbox.cluster().grant("ccm", serde_json::from_value(role["rules"].clone()).unwrap());
    common::with(env, &[("HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS", "true")])
}

fn shop(sandbox: &Sandbox) {
    sandbox.create_namespace("shop");
}

fn of_terraform(sandbox: &Sandbox) {
    let labels = json!({"labels": {"ccm-from-scratch/external": "default"}});
    sandbox.create_balancer("edge-lb", &labels);
}

fn primary_ip(sandbox: &Sandbox) {
    let body = json!({"name": "web", "type": "ipv4", "location": "fsn1"});
    let cloud = sandbox.cloud();
    cloud.create_primary_ip(sandbox.project(), body);
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("manifests/examples")
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn each_example_is_applied_without_an_error_or_a_warning_and_converges() {
    common::run_in_parallel(EXAMPLES.iter().collect(), |example: &Example| {
        let file = example.file;
        let builder = Sandbox::builder().nodes(3).network("10.0.0.0/16");
        let sandbox = builder.scale(0.005).heartbeats(false).start();
        let mut env = env(&sandbox);
        ccm(&env, &["node", "sync"]).with_code(0);
        (example.before)(&sandbox);
        let yaml = std::fs::read_to_string(folder().join(file)).unwrap();
        let (namespaces, services): (Vec<Value>, Vec<Value>) =
            common::documents(&yaml).into_iter().partition(|one| one["kind"] == "Namespace");
        if !namespaces.is_empty() {
            env = allow_defaults(&sandbox, env);
        }
        for namespace in namespaces {
            sandbox.cluster().create("namespaces", None, namespace);
        }
        let part = |service: &Value, name: &str| text(&service["metadata"][name]);
        for service in &services {
            sandbox.create_as(service.clone());
        }
        let names = services.iter();
        let names = names.map(|one| format!("{}/{}", part(one, "namespace"), part(one, "name")));
        let names: Vec<String> = names.collect();
        // The sync is repeated as a daemon would, until all actions in the cloud have ended.
        let limit = std::time::Duration::from_secs(20);
        common::wait_at_most(limit, file, || {
            let mut words = vec!["lb", "sync"];
            words.extend(names.iter().map(String::as_str));
            // The daemon's settings say which Primary IPs and certificates Services may use. A shell without these
            // settings asks for confirmation.
            let by_settings = ["kept-address.yaml", "https-managed.yaml", "mixed-protocols.yaml"];
            words.extend(by_settings.contains(&file).then_some("--yes"));
            let synced = ccm(&env, &words);
            assert_eq!(synced.code, 0, "{file}: {synced:?}");
            // A certificate takes its time, and so it is said.
            let said = [&synced.stdout, &synced.stderr].map(|text| {
                let lines = text.lines().filter(|line| !line.contains("is being issued"));
                lines.collect::<Vec<_>>().join("\n")
            });
            for mark in ["warning", "ERROR", "WARN"] {
                let warned = said.iter().any(|text| text.contains(mark));
                assert!(!warned, "{file}: {synced:?}");
            }
            // Both facts must be in one output, because a certificate may be issued between two of them.
            let is_done = format!("0 changed, {} unchanged", names.len());
            synced.stdout.contains(&is_done) && !synced.stdout.contains("waits for")
        });
        let balancers = sandbox.balancers();
        assert_eq!(balancers.len(), 1, "{file}");
        for (pointer, expected) in example.is {
            let found = balancers[0].pointer(pointer).map_or_else(|| "null".to_owned(), text);
            assert_eq!(found, *expected, "{file}: {pointer} of {:#}", balancers[0]);
        }
        for full in &names {
            let service = sandbox.service(full).unwrap();
            let ingress = service.pointer("/status/loadBalancer/ingress").unwrap();
            let ingress = ingress.as_array().unwrap().iter();
            let shown: Vec<String> = ingress
                .map(|one| one.get("hostname").or(one.get("ipMode")).map(text).unwrap())
                .collect();
            assert_eq!(shown.join(" "), example.status, "{file}: {full}");
        }
    });
}

#[test]
fn each_example_has_a_test_case() {
    let files = std::fs::read_dir(folder()).unwrap();
    // A folder installs ccm for a purpose. Its test is in `built/overlays.rs`.
    let files: BTreeSet<String> = files
        .map(|file| file.unwrap())
        .filter(|file| file.path().is_file())
        .map(|file| file.file_name().into_string().unwrap())
        // The policy is for the API server, and ccm has nothing to do with it.
        .filter(|name| name != "README.md" && name != "location-policy.yaml")
        .collect();
    let cases: BTreeSet<String> = EXAMPLES.iter().map(|one| one.file.to_owned()).collect();
    assert_eq!(files, cases);
}
