//! The requests of kubelets for serving certificates, as with `serverTLSBootstrap: true`, and the signer that signs
//! approved requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::string::{Ia5String, PrintableString};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, PKCS_ED25519, SanType,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};

use crate::kubernetes::Cluster;

/// A kubelet's request for a serving certificate. A test can change every field, to make a request that a real kubelet
/// never makes.
#[derive(Clone, Debug)]
pub struct CertificateAsk {
    /// The name of the node whose kubelet requests the certificate. The request is sent by the user `system:node:NODE`.
    pub node: String,
    /// The DNS names and IP addresses that the certificate shall have.
    pub names: Vec<String>,
    pub signer: String,
    pub usages: Vec<String>,
    /// The common name in the request. A real kubelet writes its user name, `system:node:NODE`, while a test can set
    /// any other text.
    pub common_name: String,
    pub organisation: String,
}

/// The bytes of an Ed25519 key in PKCS#8 (RFC 8410). All simulated kubelets have this key, because nobody looks at it.
const KEY: [u8; 48] = {
    let mut key = [7; 48];
    let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let mut place = 0;
    while place < head.len() {
        key[place] = head[place];
        place += 1;
    }
    key
};

impl CertificateAsk {
    /// Returns the request that a kubelet makes for its own serving certificate. `node` is the name of its Node, and
    /// `names` are the DNS names and IP addresses of the Node.
    pub fn of(node: &str, names: &[&str]) -> CertificateAsk {
        CertificateAsk {
            node: node.into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            signer: "kubernetes.io/kubelet-serving".into(),
            usages: vec!["digital signature".into(), "server auth".into()],
            common_name: format!("system:node:{node}"),
            organisation: "system:nodes".into(),
        }
    }

    /// Returns the request as PEM, in the form of Go's `x509.CreateCertificateRequest`.
    ///
    /// # Panics
    /// Panics when a name has characters that certificates can't have.
    pub fn pem(&self) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let parts = [
            (DnType::OrganizationName, &self.organisation),
            (DnType::CommonName, &self.common_name),
        ];
        for (kind, text) in parts {
            let text = PrintableString::try_from(text.as_str()).expect("a printable name");
            params.distinguished_name.push(kind, DnValue::PrintableString(text));
        }
        let name = |name: &String| match name.parse() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName(Ia5String::try_from(name.as_str()).expect("ASCII")),
        };
        params.subject_alt_names = self.names.iter().map(name).collect();
        let der = PrivatePkcs8KeyDer::from(&KEY[..]);
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).expect("a key");
        let request = params.serialize_request(&key).expect("a request");
        request.pem().expect("PEM").replace("\r\n", "\n")
    }

    /// Returns the CertificateSigningRequest that contains this request. Its `username` and `groups` are those of the
    /// node's kubelet. A real API server does not read these two fields from a client, but fills them in itself.
    pub fn object(&self) -> Value {
        let user = format!("system:node:{}", self.node);
        json!({
            "metadata": { "generateName": "csr-" },
            "spec": {
                "request": STANDARD.encode(self.pem()),
                "signerName": self.signer,
                "usages": self.usages,
                "username": user,
                "groups": ["system:nodes", "system:authenticated"],
            },
        })
    }

    /// Creates the CertificateSigningRequest in the cluster, and returns its name.
    pub fn create(&self, cluster: &Cluster) -> String {
        let created = cluster.create("certificatesigningrequests", None, self.object());
        created["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }
}

/// Signs all approved certificate requests, as the signer of kube-controller-manager does. Instead of a real
/// certificate, `status.certificate` only gets the text `a certificate`.
pub fn sign_approved(cluster: &Cluster) {
    for request in cluster.list("certificatesigningrequests", None) {
        let conditions = request["status"]["conditions"].as_array();
        let is =
            |kind: &str| conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind));
        let name = request["metadata"]["name"].as_str().unwrap_or_default();
        if is("Approved") && !is("Denied") && request["status"]["certificate"].is_null() {
            cluster.edit("certificatesigningrequests", None, name, |request| {
                request["status"]["certificate"] = STANDARD.encode("a certificate").into();
            });
        }
    }
}
