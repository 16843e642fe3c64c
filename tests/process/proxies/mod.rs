//! Through real proxies, around them, and past their refusals.

mod refusals;
mod roots;
use crate::common::library::http_settings;
use crate::common::proxy::{Answers, Proxy, Speaks};
use crate::common::secrets::Secrets;
use crate::common::{self, Cluster, Daemon, Env, ccm, env, is_lease, with};
use ccm::http::{self, Proxies, SecretSource, Tls};
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const USER: &str = "somebody";
const PASSWORD: &str = "correct-horse:battery@staple/9";
/// The same password as it is written in a URL.
const ESCAPED: &str = "correct-horse%3Abattery%40staple%2F9";

/// A world whose APIs have names that only a proxy can resolve.
struct World {
    sandbox: Sandbox,
    env: Env,
}

impl World {
    fn new() -> World {
        let builder = Sandbox::builder().nodes(2).scale(0.02);
        let sandbox = builder.network("10.0.0.0/8").heartbeats(false).start();
        let plain = env(&sandbox);
        let mut config = kubeconfig(&plain);
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
                ("HCLOUD_ALLOW_INSECURE_ENDPOINT", "true"),
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
            Half::Robot => "robot.test",
        };
        format!("{name}:{}", self.sandbox.address(half).port())
    }
}

/// The one that an environment names.
fn kubeconfig(env: &Env) -> Value {
    let path = common::variable(env, "KUBECONFIG");
    serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn scheme(speaks: Speaks) -> &'static str {
    match speaks {
        Speaks::Connect => "http",
        Speaks::Socks5 => "socks5",
    }
}

/// Each API is reached through its own proxy, with a login. Then the proxies are exchanged.
#[test]
fn a_whole_pass_goes_through_the_proxies() {
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
                // The metadata service is never reached through a proxy. Nobody can resolve its name.
                ("HCLOUD_METADATA_ENDPOINT", "http://metadata.test/v1"),
            ],
        );
        let daemon = Daemon::start(&env, &["-v=10"]);
        world.sandbox.wait_for_nodes();
        daemon.logs("the metadata service at http://metadata.test/v1 gave no usable answer");
        daemon.stop();

        for (proxy, half) in [(&http, Half::Hetzner), (&https, Half::Kubernetes)] {
            let (targets, expected) = (proxy.targets(), world.target(half));
            assert!(!targets.is_empty(), "{half:?}");
            for target in &targets {
                assert_eq!(*target, expected);
            }
            // Connections are kept, so there are far fewer than calls.
            let calls = world.sandbox.calls();
            let calls = calls.count(|call| call.half == half && !is_lease(&call.path));
            let connections = targets.len();
            assert!(connections < calls.max(4), "{connections} for {calls}");
        }
        let secrets = Secrets::new(&[PASSWORD, ESCAPED, &format!("{USER}:{PASSWORD}")]);
        assert_eq!(secrets.leak(&daemon.log()), None, "{}", daemon.log());
    }
}

/// An address that `NO_PROXY` covers is reached directly. The test sees that because its name cannot be resolved.
#[test]
fn addresses_in_no_proxy_bypass_the_proxies() {
    let world = World::new();
    let proxy = Proxy::start(Speaks::Connect, Answers::ByConnecting, None, &world.names());
    let url = format!("http://{}", proxy.address());
    let proxied = with(world.env.clone(), &[("HTTP_PROXY", &url), ("HTTPS_PROXY", &url)]);
    let straight = env(&world.sandbox);
    let around = |no_proxy: &str| {
        let env = with(proxied.clone(), &[("NO_PROXY", no_proxy)]);
        ccm(&env, &["node", "list"])
    };

    assert_eq!(around("").code, 0);
    let used = proxy.connections();
    assert!(used >= 2, "{used}");
    for no_proxy in [".test", "other, *.test", "kubernetes.test,hetzner.test", "*"] {
        let ran = around(no_proxy).with_code(1);
        ran.warns("failed to lookup address");
    }
    // 127.0.0.1 is never proxied, whatever the variables say.
    let local = with(straight, &[("HTTP_PROXY", &url), ("HTTPS_PROXY", &url)]);
    ccm(&local, &["node", "list"]).with_code(0);
    assert_eq!(proxy.connections(), used);
}

fn client(base: String, tls: Tls, proxies: Proxies, token: SecretSource) -> http::HttpClient {
    http::HttpClient::new(http::HttpSettings {
        tls: tls.into(),
        proxies,
        connect_timeout: Duration::from_millis(500),
        ..http_settings(base, token, Duration::from_secs(5))
    })
}

#[test]
fn an_invalid_proxy_variable_ends_ccm_at_once() {
    let world = World::new();
    let scheme = "its scheme is not http, https, socks5 or socks5h; write the proxy's URL like";
    let port = "the port must be a number from 1 to 65535; write the proxy's URL like";
    let missing = "/proc/no-such-file: the file does not exist; correct the path";
    let endless = "/dev/zero: the file is longer than 4 MiB";
    for (variable, value, why) in [
        ("HTTPS_PROXY", "ftp://u:correct-horse@p", scheme),
        ("http_proxy", "http://u:correct-horse@p:0", port),
        ("SSL_CERT_FILE", "/proc/no-such-file", missing),
        ("SSL_CERT_FILE", "/dev/null", "/dev/null: holds no PEM certificate"),
        ("SSL_CERT_FILE", "/dev/zero", endless),
    ] {
        let expected = format!("{variable}: {why}");
        for words in [&["run"][..], &["node", "list"], &["run", "--once"]] {
            let begun = Instant::now();
            let ran = ccm(&with(world.env.clone(), &[(variable, value)]), words).with_code(1);
            ran.warns(&expected);
            assert!(!ran.stderr.contains("correct-horse"), "{ran:?}");
            assert!(begun.elapsed() < Duration::from_secs(5), "no call was made");
        }
    }
    assert_eq!(world.sandbox.calls().count(|_| true), 0);
}
