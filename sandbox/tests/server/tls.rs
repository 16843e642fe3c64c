//! Tests of TLS: which clients accept the server's certificate, and which client certificate the server passes on to
//! the handler of a request.

use std::io::Write;
use std::sync::Arc;

use crate::raw::{Answer, Echo, connect, read_answer};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sandbox::Half;
use sandbox::credentials::{Authority, Identity, ServerTls, Subject, Validity};
use sandbox::server::{Config, Server};

struct World {
    authority: Authority,
    server: Server,
}

fn world(validity: Validity) -> World {
    let authority = Authority::new("ours").unwrap();
    let identity = authority.server(&["127.0.0.1", "::1", "localhost"], validity).unwrap();
    let tls = ServerTls::new(&identity, &authority).unwrap();
    let config = Config { tls: Some(tls), ..Config::new(Half::Kubernetes, Arc::new(Echo)) };
    World { authority, server: Server::start(config).unwrap() }
}

/// Sends `GET /` with this version of TLS.
fn get(
    world: &World,
    trusted: &Authority,
    client: Option<&Identity>,
    version: &'static rustls::SupportedProtocolVersion,
    name: &'static str,
) -> std::io::Result<Answer> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(trusted.certificate_pem().as_bytes()).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let chain =
                vec![CertificateDer::from_pem_slice(client.certificate_pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from(name).unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, connect(world.server.address()));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let answer = read_answer(&mut stream, false)?;
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    Ok(answer)
}

#[test]
fn a_request_carries_the_certificate_that_our_authority_signed() {
    let world = world(Validity::Now);
    let foreign = Authority::new("foreign").unwrap();
    let subject = Subject { user: "admin".into(), group: Some("system:masters".into()) };
    let ours = |validity| world.authority.client(&subject, validity).unwrap();
    let (good, expired, early) =
        (ours(Validity::Now), ours(Validity::Expired), ours(Validity::NotYet));
    let p384 = world
        .authority
        .client_with(&subject, Validity::Now, &rcgen::PKCS_ECDSA_P384_SHA384)
        .unwrap();
    let ed25519 =
        world.authority.client_with(&subject, Validity::Now, &rcgen::PKCS_ED25519).unwrap();
    let others = foreign.client(&subject, Validity::Now).unwrap();
    let cases = [
        ("none", None, None),
        ("ours", Some(&good), Some(good.certificate_der.len())),
        ("P-384", Some(&p384), Some(p384.certificate_der.len())),
        ("Ed25519", Some(&ed25519), Some(ed25519.certificate_der.len())),
        // The server does not trust the client certificates of this case and the next two. The handshake succeeds
        // nevertheless, but the handler gets a certificate of 0 bytes instead of the client's. An API server would then
        // answer 401.
        ("foreign", Some(&others), Some(0)),
        ("expired", Some(&expired), Some(0)),
        ("not yet valid", Some(&early), Some(0)),
    ];
    for (name, client, expected) in cases {
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let answer = get(&world, &world.authority, client, version, "127.0.0.1").unwrap();
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(
                body["certificate_bytes"],
                serde_json::json!(expected),
                "{name}, {version:?}"
            );
        }
    }
}

#[test]
fn a_client_can_tell_the_server_from_others() {
    let good = world(Validity::Now);
    let expired = world(Validity::Expired);
    let foreign = Authority::new("foreign").unwrap();
    let cases = [
        ("127.0.0.1", &good, &good.authority, true),
        ("::1", &good, &good.authority, true),
        ("localhost", &good, &good.authority, true),
        ("sandbox.example", &good, &good.authority, false),
        ("127.0.0.1", &good, &foreign, false),
        ("127.0.0.1", &expired, &expired.authority, false),
    ];
    for (name, world, trusted, expected) in cases {
        let answer = get(world, trusted, None, &rustls::version::TLS13, name);
        assert_eq!(answer.is_ok(), expected, "{name}: {answer:?}");
    }
}

#[test]
fn the_server_has_another_name_than_its_authority() {
    // OpenSSL refuses a certificate whose issuer is also its subject, because it takes this certificate for a
    // self-signed one. The subject of the server's certificate is therefore not the name of the authority that signs
    // it.
    let authority = Authority::new("sandbox-ca").unwrap();
    let identity = authority.server(&["localhost"], Validity::Now).unwrap();
    let names = |name: &str| {
        let windows = identity.certificate_der.windows(name.len());
        windows.filter(|window| *window == name.as_bytes()).count()
    };
    assert_eq!((names("sandbox-ca"), names("kube-apiserver")), (1, 1));
}

#[test]
fn plain_http_gets_no_answer_and_harms_nothing() {
    let world = world(Validity::Now);
    assert!(crate::raw::get(world.server.address(), "/").is_err());
    let answer = get(&world, &world.authority, None, &rustls::version::TLS13, "127.0.0.1").unwrap();
    assert_eq!(answer.status, 200);
}

#[test]
fn large_answers_pass_through_tls() {
    let world = world(Validity::Now);
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(world.authority.certificate_pem().as_bytes()).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap())
            .unwrap();
    let mut stream = StreamOwned::new(connection, connect(world.server.address()));
    for size in [25_000_000, 0, 16_384] {
        write!(stream, "GET /large/{size} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(read_answer(&mut stream, false).unwrap().body.len(), size);
    }
}
