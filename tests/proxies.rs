//! Through real proxies, around them, and past their refusals.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/proxy.rs"]
mod proxy;
#[path = "common/secrets.rs"]
mod secrets;

use ccm::http::{self, Environment, Kind, Proxies, Timing, Tls, Token};
use common::{Daemon, Env, all_initialised, ccm, env, is_lease, wait_until, with};
use proxy::{Answers, Proxy, Speaks};
use sandbox::{Half, Sandbox};
use secrets::Secrets;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const USER: &str = "somebody";
const PASSWORD: &str = "correct-horse:battery@staple/9";
/// The same as it is written in a URL.
const ESCAPED: &str = "correct-horse%3Abattery%40staple%2F9";

/// A world whose APIs have names that only a proxy can resolve.
struct World {
    sandbox: Sandbox,
    env: Env,
}

impl World {
    fn new() -> World {
        let sandbox = Sandbox::builder()
            .nodes(2)
            .scale(0.02)
            .network("10.0.0.0/8")
            .heartbeats(false)
            .start();
        let plain = env(&sandbox);
        let path = &plain
            .iter()
            .find(|(name, _)| name == "KUBECONFIG")
            .unwrap()
            .1;
        let mut config: Value =
            serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let port = sandbox.address(Half::Kubernetes).port();
        config["clusters"][0]["cluster"]["server"] =
            format!("https://kubernetes.test:{port}").into();
        let path = sandbox.folder().join("named");
        std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
        let port = sandbox.address(Half::Hetzner).port();
        let env = with(
            plain,
            &[
                ("KUBECONFIG", &path.display().to_string()),
                ("HCLOUD_ENDPOINT", &format!("http://hetzner.test:{port}/v1")),
            ],
        );
        World { sandbox, env }
    }

    fn names(&self) -> [(&'static str, SocketAddr); 2] {
        [
            ("hetzner.test", self.sandbox.address(Half::Hetzner)),
            ("kubernetes.test", self.sandbox.address(Half::Kubernetes)),
        ]
    }

    fn target(&self, half: Half) -> String {
        let name = match half {
            Half::Hetzner => "hetzner.test",
            Half::Kubernetes => "kubernetes.test",
        };
        format!("{name}:{}", self.sandbox.address(half).port())
    }
}

fn scheme(speaks: Speaks) -> &'static str {
    match speaks {
        Speaks::Connect => "http",
        Speaks::Socks5 => "socks5",
    }
}

/// Both APIs, each through its own proxy, with a login; then the same proxies the other way round.
#[test]
fn a_whole_pass_goes_through_them() {
    use Speaks::{Connect, Socks5};
    for (of_hetzner, of_kubernetes) in [(Connect, Socks5), (Socks5, Connect)] {
        let world = World::new();
        let start = |speaks| {
            let login = Some((USER, PASSWORD));
            Proxy::start(speaks, Answers::ByConnecting, login, &world.names())
        };
        let (http, https) = (start(of_hetzner), start(of_kubernetes));
        let url = |speaks, proxy: &Proxy| {
            format!("{}://{USER}:{ESCAPED}@{}", scheme(speaks), proxy.address())
        };
        let env = with(
            world.env.clone(),
            &[
                ("HTTP_PROXY", &url(of_hetzner, &http)),
                ("https_proxy", &url(of_kubernetes, &https)),
                ("HCLOUD_DEBUG", "true"),
                // Never through a proxy: nobody can resolve it, and nobody is asked to.
                ("HCLOUD_METADATA_ENDPOINT", "http://metadata.test/v1"),
            ],
        );
        let daemon = Daemon::start(&env, &["-v=10"]);
        wait_until("initialised nodes", || all_initialised(&world.sandbox));
        daemon.logs("the metadata service at http://metadata.test/v1 can't be asked");
        daemon.signal("-TERM");
        assert!(daemon.ended().success(), "{}", daemon.log());

        for (proxy, half) in [(&http, Half::Hetzner), (&https, Half::Kubernetes)] {
            let (targets, expected) = (proxy.targets(), world.target(half));
            assert!(!targets.is_empty(), "{half:?}");
            assert!(
                targets.iter().all(|target| *target == expected),
                "{targets:?}"
            );
            // Connections are kept: far fewer than calls.
            let calls = world.sandbox.calls();
            let calls = calls.count(|call| call.half == half && !is_lease(&call.path));
            assert!(
                targets.len() < calls.max(4),
                "{} for {calls}",
                targets.len()
            );
        }
        let secrets = Secrets::new(&[PASSWORD, ESCAPED, &format!("{USER}:{PASSWORD}")]);
        assert_eq!(secrets.leak(&daemon.log()), None, "{}", daemon.log());
    }
}

/// What `NO_PROXY` covers is gone to straight; its name resolves nowhere, which is how that is seen.
#[test]
fn no_proxy_goes_around_them() {
    let world = World::new();
    let proxy = Proxy::start(Speaks::Connect, Answers::ByConnecting, None, &world.names());
    let url = format!("http://{}", proxy.address());
    let proxied = with(
        world.env.clone(),
        &[("HTTP_PROXY", &url), ("HTTPS_PROXY", &url)],
    );
    let straight = env(&world.sandbox);
    let around = |no_proxy: &str| {
        ccm(
            &with(proxied.clone(), &[("NO_PROXY", no_proxy)]),
            &["node", "list"],
        )
    };

    assert_eq!(around("").code, 0);
    let used = proxy.connections();
    assert!(used >= 2, "{used}");
    for no_proxy in [
        ".test",
        "other, *.test",
        "kubernetes.test,hetzner.test",
        "*",
    ] {
        let ran = around(no_proxy);
        assert_eq!(ran.code, 1, "{no_proxy}: {ran:?}");
        assert!(
            ran.stderr.contains("failed to lookup address"),
            "{no_proxy}: {ran:?}"
        );
    }
    // 127.0.0.1 is never proxied, whatever the variables say.
    let local = with(straight, &[("HTTP_PROXY", &url), ("HTTPS_PROXY", &url)]);
    assert_eq!(ccm(&local, &["node", "list"]).code, 0);
    assert_eq!(proxy.connections(), used);
}

/// What the proxy does, and what is said of it; `<>` stands for its address.
#[test]
fn it_is_said_that_it_was_the_proxy() {
    use Answers::*;
    let login = Some((USER, PASSWORD));
    let (right, wrong) = (
        format!("{USER}:{ESCAPED}@"),
        format!("{USER}:wrong-{ESCAPED}@"),
    );
    let (http, socks) = (Speaks::Connect, Speaks::Socks5);
    let cases = [
        (
            "http",
            http,
            ByConnecting,
            login,
            "",
            "not sent: the proxy http://<> (HTTP_PROXY): it wants a login (HTTP status 407); write it before the host in HTTP_PROXY: http://user:password@host:port",
        ),
        (
            "http",
            http,
            ByConnecting,
            login,
            &wrong,
            "not sent: the proxy http://<> (HTTP_PROXY): it does not accept the login in HTTP_PROXY (HTTP status 407); is it right?",
        ),
        (
            "http",
            http,
            With(403),
            login,
            &right,
            "not sent: the proxy http://<> (HTTP_PROXY): it does not let us through to api.test:80 (HTTP status 403); its rules have to allow it, or NO_PROXY to name the host",
        ),
        (
            "http",
            http,
            With(503),
            None,
            "",
            "the proxy http://<> (HTTP_PROXY): it could not connect to api.test:80 (HTTP status 503); does it reach that host?",
        ),
        (
            "http",
            http,
            ByConnecting,
            None,
            "",
            "the proxy http://<> (HTTP_PROXY): it could not connect to api.test:80 (HTTP status 502); does it reach that host?",
        ),
        (
            "http",
            http,
            NotAtAll,
            None,
            &right,
            "the proxy http://<> (HTTP_PROXY): ",
        ),
        (
            "http",
            http,
            Never,
            None,
            &right,
            "the proxy http://<> (HTTP_PROXY): no answer in time; is it a proxy, and is it of this kind?",
        ),
        (
            "http",
            http,
            Nonsense,
            None,
            "",
            "not sent: the proxy http://<> (HTTP_PROXY): what answers there does not speak HTTP; is it a SOCKS proxy (socks5://)?",
        ),
        (
            "https",
            http,
            Nonsense,
            None,
            &right,
            "the proxy https://<> (HTTP_PROXY): TLS: the server does not speak TLS (is it http:// instead of https://?)",
        ),
        (
            "http",
            socks,
            ByConnecting,
            None,
            &right,
            "the proxy http://<> (HTTP_PROXY): ",
        ),
        (
            "socks5",
            socks,
            ByConnecting,
            login,
            "",
            "not sent: the proxy socks5://<> (HTTP_PROXY): it wants a login; write it before the host in HTTP_PROXY: socks5://user:password@host:port",
        ),
        (
            "socks5h",
            socks,
            ByConnecting,
            login,
            &wrong,
            "not sent: the proxy socks5://<> (HTTP_PROXY): it does not accept the login in HTTP_PROXY; is it right?",
        ),
        (
            "socks5",
            socks,
            With(2),
            None,
            "",
            "not sent: the proxy socks5://<> (HTTP_PROXY): it does not let us through to api.test port 80; its rules have to allow it, or NO_PROXY to name the host",
        ),
        (
            "socks5",
            socks,
            With(5),
            None,
            "",
            "the proxy socks5://<> (HTTP_PROXY): it could not connect to api.test port 80 (connection refused); does it reach that host?",
        ),
        (
            "socks5",
            socks,
            ByConnecting,
            login,
            &right,
            "the proxy socks5://<> (HTTP_PROXY): it could not connect to api.test port 80 (host unreachable); does it reach that host?",
        ),
        (
            "socks5",
            socks,
            Never,
            None,
            "",
            "the proxy socks5://<> (HTTP_PROXY): no answer in time; is it a proxy, and is it of this kind?",
        ),
        (
            "socks5",
            socks,
            Nonsense,
            None,
            "",
            "not sent: the proxy socks5://<> (HTTP_PROXY): what answers there does not speak SOCKS 5; is it an HTTP proxy (http://)?",
        ),
    ];
    for (scheme, speaks, answers, login, shown, expected) in cases {
        let proxy = Proxy::start(speaks, answers, login, &[]);
        let url = format!("{scheme}://{shown}{}", proxy.address());
        let expected = expected.replace("<>", &proxy.address().to_string());
        check(&url, &expected, answers);
    }
    check(
        "http://u:hunter2hunter2hunter2@127.0.0.1:1",
        "the proxy http://127.0.0.1:1 (HTTP_PROXY): connection refused; is it running, and is this its address?",
        NotAtAll,
    );
}

fn check(url: &str, expected: &str, answers: Answers) {
    let variable = |name: &str| (name == "HTTP_PROXY").then(|| url.to_owned());
    let client = http::Client::new(http::Settings {
        base: "http://api.test".into(),
        tls: Tls::default(),
        proxies: Proxies::ByEnvironment(Environment::read(variable).unwrap()),
        token: Token::none(),
        connect_timeout: Duration::from_millis(300),
        timing: Timing {
            read_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            retry_wait: Duration::from_millis(1),
        },
        retry_rate_limited: false,
        body_limit_bytes: 1 << 20,
        log_bodies: false,
    });
    let error = client.get::<Value>("/x").unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("GET http://api.test/x: {expected}")),
        "{answers:?}: {text}\nnot\n{expected}"
    );
    let lasting = matches!(error.kind, Kind::Request(_));
    // What somebody has to mend is not tried again: an account may be locked for that.
    assert_eq!(client.calls(), if lasting { 1 } else { 3 }, "{text}");
    let secrets = Secrets::new(&[PASSWORD, ESCAPED, "hunter2hunter2hunter2"]);
    assert_eq!(secrets.leak(&text), None, "{text}");
}

#[test]
fn a_variable_that_names_no_proxy_ends_everything_at_once() {
    let world = World::new();
    for (variable, value, expected) in [
        (
            "HTTPS_PROXY",
            "ftp://u:correct-horse@p",
            "HTTPS_PROXY: its scheme is none of http, https, socks5 and socks5h; write it like",
        ),
        (
            "http_proxy",
            "http://u:correct-horse@p:0",
            "http_proxy: its port is no number from 1 to 65535; write it like",
        ),
        (
            "SSL_CERT_FILE",
            "/nonexistent",
            "SSL_CERT_FILE: /nonexistent: the file does not exist; correct or unset it",
        ),
        (
            "SSL_CERT_FILE",
            "/dev/null",
            "SSL_CERT_FILE: /dev/null: the file holds no PEM certificate",
        ),
        (
            "SSL_CERT_FILE",
            "/dev/zero",
            "SSL_CERT_FILE: /dev/zero: the file is longer than 4 MiB",
        ),
    ] {
        for words in [&["run"][..], &["node", "list"], &["run", "--once"]] {
            let begun = Instant::now();
            let ran = ccm(&with(world.env.clone(), &[(variable, value)]), words);
            assert_eq!(ran.code, 1, "{ran:?}");
            assert!(ran.stderr.contains(expected), "{variable}: {ran:?}");
            assert!(!ran.stderr.contains("correct-horse"), "{ran:?}");
            assert!(begun.elapsed() < Duration::from_secs(5), "no call was made");
        }
    }
    assert_eq!(world.sandbox.calls().count(|_| true), 0);
}

/// A kubeconfig without an authority of its own trusts the public's, and those of `SSL_CERT_FILE`.
#[test]
fn ssl_cert_file_adds_to_the_built_in_roots() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    let plain = env(&sandbox);
    let path = &plain
        .iter()
        .find(|(name, _)| name == "KUBECONFIG")
        .unwrap()
        .1;
    let mut config: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cluster = config["clusters"][0]["cluster"].as_object_mut().unwrap();
    cluster.retain(|field, _| !field.starts_with("certificate-authority"));
    let path = sandbox.folder().join("public");
    std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
    let env = with(
        plain.clone(),
        &[("KUBECONFIG", &path.display().to_string())],
    );
    let ran = ccm(&env, &["node", "list"]);
    assert!(
        ran.stderr
            .contains("signed by an authority that is not trusted here"),
        "{ran:?}"
    );

    let bundle = sandbox.folder().join("bundle.pem");
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(
        &bundle,
        format!("# ours\n{damaged}{}", sandbox.authority().certificate_pem()),
    )
    .unwrap();
    let bundle = bundle.display().to_string();
    let ran = ccm(&with(env, &[("SSL_CERT_FILE", &bundle)]), &["node", "list"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr
            .contains("SSL_CERT_FILE: 1 of its certificates are damaged"),
        "{ran:?}"
    );

    // Where a kubeconfig names its authority, no other is trusted.
    let other = sandbox::credentials::Authority::new("somebody-else").unwrap();
    config["clusters"][0]["cluster"]["certificate-authority-data"] = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        other.certificate_pem(),
    )
    .into();
    std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
    let env = with(
        plain,
        &[
            ("KUBECONFIG", &path.display().to_string()),
            ("SSL_CERT_FILE", &bundle),
        ],
    );
    let ran = ccm(&env, &["node", "list"]);
    assert!(
        ran.stderr
            .contains("signed by an authority that is not trusted here"),
        "{ran:?}"
    );
}
