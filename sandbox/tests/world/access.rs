//! Checks over TLS which tokens and client certificates the APIs accept, and which requests their users are allowed to
//! send.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sandbox::credentials::Identity;
use sandbox::{Half, Sandbox};

/// Sends a GET to the simulated Kubernetes API, with the bearer token and the client certificate if they are given.
/// Returns the status of the answer.
fn status(sandbox: &Sandbox, path: &str, token: Option<&str>, identity: Option<&Identity>) -> u16 {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(sandbox.authority().certificate_pem())).unwrap();
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(vec![certificate(&identity.certificate_pem)], key)
                .unwrap()
        }
    };
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(sandbox.address(Half::Kubernetes)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let authorization =
        token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: a\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()["HTTP/1.1 ".len()..][..3].parse().unwrap()
}

#[test]
fn tokens_and_certificates_open_what_the_rules_allow() {
    let sandbox = Sandbox::builder().services(1).heartbeats(false).start();
    let (admin, ccm) = (sandbox.account("admin").unwrap(), sandbox.account("ccm").unwrap());
    let (nodes, services) = ("/api/v1/nodes", "/api/v1/services");
    let one_service = "/api/v1/namespaces/default/services/web-1";
    let cases = [
        (nodes, Some(&admin.token), None, 200),
        (nodes, None, Some(&admin.identity), 200),
        (nodes, Some(&ccm.token), None, 200),
        (nodes, None, Some(&ccm.identity), 200),
        (services, Some(&ccm.token), None, 200),
        (one_service, None, Some(&admin.identity), 200),
        // The user `ccm` has the rules of the official ClusterRole of hcloud-cloud-controller-manager. They allow
        // `list` for Services, but not `get`.
        (one_service, Some(&ccm.token), None, 403),
        (nodes, None, None, 403),
        (nodes, Some(&"wrong".to_owned()), None, 401),
    ];
    for (path, token, identity, expected) in cases {
        let status = status(&sandbox, path, token.map(String::as_str), identity);
        let how = (token.is_some(), identity.is_some());
        assert_eq!(status, expected, "{path} with (token, certificate) {how:?}");
    }
    let callers: Vec<String> =
        sandbox.calls().calls().into_iter().map(|call| call.caller).collect();
    assert_eq!(callers, ["admin", "admin", "ccm", "ccm", "ccm", "admin", "ccm", "none", "bearer"]);
}
