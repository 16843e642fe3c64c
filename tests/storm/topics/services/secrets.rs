//! Certificates that Services show from Secrets. The Secrets are renewed, broken and deleted, and the
//! uploaded certificates follow.

use super::end_state::annotation;
use super::events::{NAMESPACE, cluster_uid};
use super::foreign::is_copy;
use super::invariants::wants_balancer;
use crate::random::Random;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ccm::hetzner::load_balancers::{CLUSTER_UID, SECRET};
use sandbox::Sandbox;
use sandbox::credentials::{Authority, Identity, Validity};
use sandbox::kubernetes::PolicyRule;
use sandbox::time;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

/// The names of the Secrets.
pub const SECRET_NAMES: [&str; 2] = ["tls-a", "tls-b"];

/// The annotations of Services whose ports show the certificate of a Secret.
pub const WITH_SECRET: [[(&str, &str); 2]; 2] = [
    [("protocol", "https"), ("http-tls-secret", SECRET_NAMES[0])],
    [("protocol", "https"), ("http-tls-secret", SECRET_NAMES[1])],
];

/// The annotations of Services that name a certificate that no Service of their namespace may
/// use, see [`make_foreign`].
pub const WITH_FOREIGN_CERTIFICATE: [[(&str, &str); 2]; 2] = [
    [("protocol", "https"), ("http-certificates", "theirs-1")],
    [("protocol", "https"), ("http-certificates", "theirs-3")],
];

const CERTIFICATES: usize = 4;

static IDENTITIES: LazyLock<Vec<Identity>> = LazyLock::new(|| {
    // The certificates are made on any day, but must be valid on the simulated day of the stories.
    let _time = time::simulate(Arc::default());
    let authority = Authority::seeded("of the stories", 1).unwrap();
    let one = |_| authority.server(&["www.example.com"], Validity::Now).unwrap();
    (0..CERTIFICATES).map(one).collect()
});

/// What a Secret contains after an event.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    Certificate(usize),
    /// The Secret has the certificate of one pair and the key of the next pair.
    Swapped(usize),
    Garbage,
    Deleted,
}

impl Content {
    pub fn generate(random: &mut Random) -> Content {
        let one = random.below(CERTIFICATES as u64) as usize;
        match random.below(10) {
            0 => Content::Swapped(one),
            1 => Content::Garbage,
            2 => Content::Deleted,
            _ => Content::Certificate(one),
        }
    }

    pub fn put(self, sandbox: &Sandbox, name: &str) {
        let cluster = sandbox.cluster();
        let pem = |certificate: usize, key: usize| {
            let identity = |one: usize| &IDENTITIES[one % CERTIFICATES];
            let (certificate, key) = (identity(certificate), identity(key));
            (certificate.certificate_pem.clone(), key.key_pem.clone())
        };
        let (certificate, key) = match self {
            Content::Certificate(one) => pem(one, one),
            Content::Swapped(one) => pem(one, one + 1),
            Content::Garbage => ("no certificate".to_owned(), "no key".to_owned()),
            Content::Deleted => {
                cluster.delete("secrets", NAMESPACE, name);
                return;
            }
        };
        let data =
            json!({ "tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key) });
        let edit = |secret: &mut Value| secret["data"] = data.clone();
        if !cluster.edit("secrets", NAMESPACE, name, edit) {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data,
                "metadata": { "name": name, "namespace": "default" },
            });
            cluster.create("secrets", NAMESPACE, secret);
        }
    }
}

/// Gives each Secret without a usable certificate a usable one.
pub fn repair(sandbox: &Sandbox) {
    for (n, name) in SECRET_NAMES.iter().enumerate() {
        if certificate_in(sandbox, name).is_none() {
            Content::Certificate(n).put(sandbox, name);
        }
    }
}

/// Returns the certificate in this Secret, if it can be used.
fn certificate_in(sandbox: &Sandbox, name: &str) -> Option<&'static Identity> {
    let secret = sandbox.cluster().get("secrets", NAMESPACE, name)?;
    let is_it = |one: &&Identity| {
        let encoded = |pem: &str| secret["data"][pem].as_str().map(str::to_owned);
        encoded("tls.crt") == Some(STANDARD.encode(&one.certificate_pem))
            && encoded("tls.key") == Some(STANDARD.encode(&one.key_pem))
    };
    IDENTITIES.iter().find(is_it)
}

fn is_certificate(shown: &Value, identity: &Identity) -> bool {
    let bare = |pem: &str| pem.split_whitespace().collect::<String>();
    shown["certificate"].as_str().map(bare) == Some(bare(&identity.certificate_pem))
}

/// Returns the Secret whose certificate the ports of this Service show.
pub fn secret_of(service: &Value) -> Option<&str> {
    annotation(service, "http-tls-secret")
        .filter(|_| annotation(service, "protocol") == Some("https"))
}

/// Whether a port shows the certificate of its Service's Secret and no other.
pub fn is_shown(sandbox: &Sandbox, service: &Value, certificates: &[Value]) -> bool {
    let certificate_in = secret_of(service).and_then(|name| certificate_in(sandbox, name));
    certificate_in.is_some_and(
        |certificate_in| matches!(certificates, [one] if is_certificate(one, certificate_in)),
    )
}

/// Returns the uploaded certificates of this cluster that no load balancer uses and no Service names.
pub fn left_over(sandbox: &Sandbox) -> Vec<Value> {
    let ours = cluster_uid(sandbox);
    let services = sandbox.cluster().list("services", NAMESPACE);
    let named: BTreeSet<&str> =
        services.iter().filter(|one| wants_balancer(one)).filter_map(secret_of).collect();
    let mut all = sandbox.cloud().certificates(sandbox.project());
    all.retain(|one| {
        let is_held = |name: &&&str| {
            certificate_in(sandbox, name)
                .is_some_and(|certificate_in| is_certificate(one, certificate_in))
        };
        is_uploaded_by(one, &ours)
            && one["used_by"].as_array().is_none_or(Vec::is_empty)
            && !named.iter().any(|name| is_held(&name))
    });
    all
}

fn is_uploaded_by(certificate: &Value, cluster: &str) -> bool {
    let labels = &certificate["labels"];
    certificate["type"] == "uploaded"
        && labels[CLUSTER_UID] == *cluster
        && !labels[SECRET].is_null()
}

/// Lets `ccm` read the Secrets, as `manifests/tls-secrets` does.
pub fn allow_reading(sandbox: &Sandbox) {
    let text = include_str!("../../../../manifests/tls-secrets/role.yaml");
    let role = serde_yaml::Deserializer::from_str(text).next().unwrap();
    let role = Value::deserialize(role).unwrap();
    let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).unwrap();
    sandbox.cluster().grant_in_namespace("ccm", "default", rules);
}

/// Creates certificates of somebody else, of another cluster and of another namespace. They must stay.
pub fn make_foreign(sandbox: &Sandbox) {
    for (n, labels) in [
        json!({ "team": "web" }),
        json!({ CLUSTER_UID: "another", SECRET: "default.tls-a" }),
        json!({ SECRET: "default.tls-a" }),
        json!({ SECRET: "shop.tls-a" }),
    ]
    .into_iter()
    .enumerate()
    {
        let identity = &IDENTITIES[n];
        sandbox.cloud().create_certificate(
            sandbox.project(),
            json!({
                "name": format!("theirs-{n}"), "type": "uploaded", "labels": labels,
                "certificate": identity.certificate_pem, "private_key": identity.key_pem,
            }),
        );
    }
}

/// Returns the foreign certificates. Which load balancers use them may change.
pub fn foreign_certificates(sandbox: &Sandbox) -> Vec<Value> {
    let mut all = sandbox.cloud().certificates(sandbox.project());
    all.retain(|one| one["name"].as_str().is_some_and(|name| name.starts_with("theirs-")));
    all
}

/// Checks an upload. It must have our labels, and the key must be the certificate's.
pub fn violation_by_upload(body: &Value, cluster: &str) -> Option<String> {
    let labels = &body["labels"];
    if labels[CLUSTER_UID] != *cluster || labels[SECRET].is_null() {
        return Some(format!("uploaded with labels {labels}"));
    }
    let is_whole = |one: &&Identity| {
        is_certificate(body, one)
            && body["private_key"].as_str().map(str::trim) == Some(one.key_pem.trim())
    };
    let whole = IDENTITIES.iter().find(is_whole);
    whole.is_none().then(|| "a certificate with another's key".to_owned())
}

/// Checks which certificates a request makes ports show. A port must not show a certificate of another cluster, or of a
/// Secret of another namespace. `body` is that of a request that creates or changes ports.
pub fn violation_by_showing(body: &Value, certificates: &[Value]) -> Option<String> {
    let of_new = body["services"].as_array().into_iter().flatten();
    let ports = of_new.chain([body]);
    let ids = ports.filter_map(|port| port["http"]["certificates"].as_array());
    let ids: Vec<&Value> = ids.flatten().collect();
    let forbidden = WITH_FOREIGN_CERTIFICATE.map(|[_, (_, name)]| name);
    let is_forbidden = |one: &&Value| forbidden.contains(&one["name"].as_str().unwrap());
    let mut shown = certificates.iter().filter(|one| ids.contains(&&one["id"]));
    let found = shown.find(is_forbidden)?;
    Some(format!("shows certificate {}, which is another's", found["name"]))
}

/// Checks the deletion of a certificate. No load balancer may show the certificate.
pub fn violation_by_deletion(
    certificate: &Value,
    cluster: &str,
    balancers: &[Value],
) -> Option<String> {
    if !is_uploaded_by(certificate, cluster) {
        return Some(format!("deletes certificate {}, which is not ours", certificate["name"]));
    }
    let id = &certificate["id"];
    let mut balancers = balancers.iter().filter(|one| !is_copy(one));
    let shows = |one: &Value| {
        let ports = one["services"].as_array().into_iter().flatten();
        let mut shown =
            ports.flat_map(|port| port["http"]["certificates"].as_array().into_iter().flatten());
        shown.any(|shown| shown == id)
    };
    let user = balancers.find(|one| shows(one));
    user.map(|user| format!("deletes a certificate that load balancer {} shows", user["name"]))
}
