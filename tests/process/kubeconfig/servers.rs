//! Servers with wrong TLS: what is reported, and that nothing is sent to them.

use super::bad::says;
use super::{World, yaml};
use crate::common::proxy::{Answers, Proxy, Speaks};
use crate::common::{ccm, with};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox::Half;
use sandbox::calls::CallLog;
use sandbox::credentials::{Authority, Identity, ServerTls, Validity};
use sandbox::server::{Config, Limits, Server};
use std::io::{Read, Write};
use std::sync::Arc;

#[test]
fn an_untrusted_server_is_reported_and_gets_no_call() {
    let world = World::new();
    let authority = Authority::new("another").unwrap();
    let here = &["127.0.0.1"][..];
    let elsewhere = &["api.example.com", "10.0.0.1"][..];
    #[rustfmt::skip]
    let cases = [
        (here, Validity::Expired, "the server's certificate expired at TIME;"),
        (here, Validity::NotYet, "the server's certificate is not valid yet (is this machine's clock right?);"),
        (elsewhere, Validity::Now, "the server's certificate is for api.example.com, 10.0.0.1, not for 127.0.0.1;"),
    ];
    let calls = Arc::new(CallLog::default());
    for (names, validity, why) in cases {
        let identity = authority.server(names, validity).unwrap();
        let server = serve(&world, &calls, &identity, &authority);
        let url = format!("https://{}", server.address());
        let mut config = world.config();
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["server"] = url.as_str().into();
        cluster["certificate-authority-data"] = STANDARD.encode(authority.certificate_pem()).into();
        let message = format!("GET {url}/api/v1/nodes: TLS: {why} {COMPARE}");
        says(&world, &config, &message);
    }
    assert_eq!(calls.calls().len(), 0);
}

/// A name is asked for in SNI, and none where the certificate is for an address.
#[test]
fn a_server_with_another_name_is_reached_under_it() {
    let world = World::new();
    let authority = Authority::new("another").unwrap();
    for (certificate, name, is_reached) in [
        ("api.internal", "api.internal", true),
        ("*.k8s.internal", "api.k8s.internal", true),
        ("10.0.0.1", "10.0.0.1", true),
        ("api.internal", "api.external", false),
        ("10.0.0.1", "10.0.0.2", false),
    ] {
        let calls = Arc::new(CallLog::default());
        let identity = authority.server(&[certificate], Validity::Now).unwrap();
        let server = serve(&world, &calls, &identity, &authority);
        let mut config = world.config();
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["server"] = format!("https://{}", server.address()).into();
        cluster["certificate-authority-data"] = STANDARD.encode(authority.certificate_pem()).into();
        cluster["tls-server-name"] = name.into();
        let ran = world.list(&world.write("named", yaml(&config)), &[]);
        assert_eq!(ran.code == 0, is_reached, "{certificate} {name}: {ran:?}");
        assert_eq!(calls.calls().is_empty(), !is_reached, "{certificate} {name}");
        let why = format!("the server's certificate is for {certificate}, not for {name};");
        assert!(is_reached || ran.stderr.contains(&why), "{ran:?}");
    }
}

/// Only the proxy can resolve the name, and TLS goes through it to the API server. The name in the
/// certificate is checked.
#[test]
fn a_server_behind_a_proxy_is_reached_through_it() {
    const LOGIN: (&str, &str) = ("somebody", "s3cret-of-the-proxy");
    let world = World::new();
    let here = world.sandbox.address(Half::Kubernetes);
    let names = [("api.internal", here)];
    for (scheme, speaks) in [("http", Speaks::Connect), ("socks5", Speaks::Socks5)] {
        let proxy = Proxy::start(speaks, Answers::ByConnecting, Some(LOGIN), &names);
        #[rustfmt::skip] // A case is a line.
        let cases = [
            (Some("localhost"), None),
            (None, Some("is for localhost, 127.0.0.1, 0::1, kubernetes.test, not for api.internal")),
            (Some("other"), Some("is for localhost, 127.0.0.1, 0::1, kubernetes.test, not for other")),
        ];
        for (name, why) in cases {
            let mut config = world.config();
            let cluster = &mut config["clusters"][0]["cluster"];
            cluster["server"] = format!("https://api.internal:{}", here.port()).into();
            cluster["proxy-url"] =
                format!("{scheme}://{}:{}@{}", LOGIN.0, LOGIN.1, proxy.address()).into();
            if let Some(name) = name {
                cluster["tls-server-name"] = name.into();
            }
            let ran = world.list(&world.write("proxied", yaml(&config)), &["-v=10"]);
            assert_eq!(ran.code == 0, why.is_none(), "{scheme} {name:?}: {ran:?}");
            assert!(why.is_none_or(|why| ran.stderr.contains(why)), "{ran:?}");
            let secrets = super::Secrets::new(&[&world.token, LOGIN.1]);
            assert_eq!(secrets.leak(&ran.stderr), None, "{ran:?}");
        }
        let target = format!("api.internal:{}", here.port());
        let targets = proxy.targets();
        assert!(targets.len() >= 3 && targets.iter().all(|to| *to == target), "{targets:?}");
    }
}

const COMPARE: &str = "check the fields server and certificate-authority of the kubeconfig (kubeconfig \"DIR/bad\", context \"here\")";

/// The simulated API server once more, with another certificate.
fn serve(
    world: &World,
    calls: &Arc<CallLog>,
    identity: &Identity,
    authority: &Authority,
) -> Server {
    Server::start(Config {
        half: Half::Kubernetes,
        address: world.sandbox.address(Half::Kubernetes).ip(),
        port: 0,
        tls: Some(ServerTls::new(identity, authority).unwrap()),
        handler: world.sandbox.cluster().clone(),
        calls: calls.clone(),
        faults: Default::default(),
        limits: Limits::default(),
    })
    .unwrap()
}

#[test]
fn a_server_without_tls_is_reported() {
    let world = World::new();
    let url = without_tls().replace("http", "https");
    let mut config = world.config();
    config["clusters"][0]["cluster"]["server"] = url.as_str().into();
    let why = "the server does not speak TLS (is http:// right instead of https://?)";
    let fix = "check the field server and the user's client certificate in the kubeconfig";
    let origin = "(kubeconfig \"DIR/bad\", context \"here\")";
    let message = format!("GET {url}/api/v1/nodes: TLS: {why}; {fix} {origin}");
    says(&world, &config, &message);
}

/// Each case has the addresses of a server and of a proxy, the other settings, whether the server is refused, and
/// whether there is a line about it.
#[test]
fn a_server_without_tls_is_asked_on_this_machine_alone() {
    const ALLOW: (&str, &str) = ("HCLOUD_ALLOW_INSECURE_ENDPOINT", "true");
    let world = World::new();
    let (here, there) = (without_tls(), "http://0.0.0.0:1");
    let why = "without TLS anybody on the network path can read the credentials; use https://, or set \
               HCLOUD_ALLOW_INSECURE_ENDPOINT=true if you trust the path";
    let place = "kubeconfig \"DIR/bad\", cluster \"there\": server: ";
    let hcloud = "--cloud-provider=hcloud";
    for (server, proxy, env, flags, is_refused, is_reported) in [
        (here.as_str(), None, None, &[][..], false, false),
        (there, None, None, &[], true, true),
        (there, None, Some(ALLOW), &[], false, false),
        (there, None, None, &[hcloud], false, true),
        // The loopback address of the proxy's machine is not this machine.
        (&here, Some("http://10.255.255.2:1"), None, &[], true, true),
        (&here, Some("socks5://localhost:1"), None, &[], false, false),
    ] {
        let mut config = world.config();
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["server"] = server.into();
        cluster.as_object_mut().unwrap().remove("certificate-authority-data");
        if let Some(proxy) = proxy {
            cluster["proxy-url"] = proxy.into();
        }
        let path = world.write("bad", yaml(&config));
        let env = with(world.env(&path), env.as_slice());
        // A pass with leader election makes several clients, and still warns once.
        for words in [&["node", "list"][..], &["run", "--once"]] {
            let ran = ccm(&env, &[words, flags].concat());
            let case = format!("{server} {proxy:?} {env:?} {flags:?}: {ran:?}");
            let printed = ran.stderr.replace(&world.folder().display().to_string(), "DIR");
            let line = format!("{place}{server:?}: {why}");
            let expected = usize::from(is_reported);
            assert_eq!(printed.matches(&line).count(), expected, "{line}\n{case}");
            assert_eq!(!printed.contains("GET http"), is_refused, "{case}");
        }
    }
}

/// A server that speaks no TLS, for as long as the test runs.
fn without_tls() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    url
}
