//! Each way in which a proxy does not let us through, and what is said of it.

use super::{ESCAPED, PASSWORD, USER, client};
use crate::common::proxy::{Answers, Proxy, Speaks};
use crate::common::secrets::Secrets;
use ccm::http::{HttpErrorKind, Proxies, ProxyEnvironment, SecretSource, Tls};
use serde_json::Value;

/// Each case has the proxy's name in the message, its protocol and behaviour, its login, the login in the variable,
/// whether the request was sent, and what is said about the proxy.
#[test]
fn an_error_names_the_proxy_as_its_cause() {
    use Answers::*;
    let login = Some((USER, PASSWORD));
    let (right, wrong) = (format!("{USER}:{ESCAPED}@"), format!("{USER}:wrong-{ESCAPED}@"));
    let (http, socks) = (Speaks::Connect, Speaks::Socks5);
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("http", http, ByConnecting, login, "", false, "it requires a login (HTTP status 407); write the login before the host in HTTP_PROXY: http://user:password@host:port"),
        ("http", http, ByConnecting, login, &wrong, false, "it does not accept the login in HTTP_PROXY (HTTP status 407); is the login right?"),
        ("http", http, With(403), login, &right, false, "it refuses connections to api.test:80 (HTTP status 403); the proxy's rules must allow these connections, or NO_PROXY must name this host"),
        ("http", http, With(503), None, "", true, "it could not connect to api.test:80 (HTTP status 503); can the proxy reach this host?"),
        ("http", http, ByConnecting, None, "", true, "it could not connect to api.test:80 (HTTP status 502); can the proxy reach this host?"),
        ("http", http, NotAtAll, None, &right, true, ""),
        ("http", http, Never, None, &right, true, "no answer in time; are the scheme and the address of this proxy right?"),
        ("http", http, Nonsense, None, "", false, "the server at this address does not speak HTTP; is it a SOCKS proxy (socks5://)?"),
        ("https", http, Nonsense, None, &right, true, "TLS: the server does not speak TLS (is http:// right instead of https://?)"),
        ("http", socks, ByConnecting, None, &right, true, ""),
        ("socks5", socks, ByConnecting, login, "", false, "it requires a login; write the login before the host in HTTP_PROXY: socks5://user:password@host:port"),
        ("socks5h", socks, ByConnecting, login, &wrong, false, "it does not accept the login in HTTP_PROXY; is the login right?"),
        ("socks5", socks, With(2), None, "", false, "it refuses connections to api.test port 80; the proxy's rules must allow these connections, or NO_PROXY must name this host"),
        ("socks5", socks, With(5), None, "", true, "it could not connect to api.test port 80 (connection refused); can the proxy reach this host?"),
        ("socks5", socks, ByConnecting, login, &right, true, "it could not connect to api.test port 80 (host unreachable); can the proxy reach this host?"),
        ("socks5", socks, Never, None, "", true, "no answer in time; are the scheme and the address of this proxy right?"),
        ("socks5", socks, Nonsense, None, "", false, "the server at this address does not speak SOCKS 5; is it an HTTP proxy (http://)?"),
    ];
    for (scheme, speaks, answers, login, shown, is_sent, why) in cases {
        let proxy = Proxy::start(speaks, answers, login, &[]);
        let url = format!("{scheme}://{shown}{}", proxy.address());
        let not_sent = if is_sent { ": " } else { " was not sent: " };
        let scheme = scheme.replace("5h", "5");
        let proxy = format!("the proxy {scheme}://{} (HTTP_PROXY): ", proxy.address());
        check(&url, &format!("{not_sent}{proxy}{why}"), answers);
    }
    check(
        "http://u:hunter2hunter2hunter2@127.0.0.1:1",
        ": the proxy http://127.0.0.1:1 (HTTP_PROXY): connection refused; does a server run at this address?",
        NotAtAll,
    );
}

/// The environment's exceptions do not count for a proxy of the kubeconfig.
#[test]
fn the_way_out_that_an_error_names_works() {
    let other = "the proxy's rules must allow these connections, or the kubeconfig's proxy-url must name another proxy or none";
    for (scheme, speaks, answer, to) in [
        ("http", Speaks::Connect, 403, "api.test:80 (HTTP status 403)"),
        ("socks5", Speaks::Socks5, 2, "api.test port 80"),
    ] {
        let proxy = Proxy::start(speaks, Answers::With(answer), None, &[]);
        let url = format!("{scheme}://{}", proxy.address());
        let proxies = Proxies::Only(ccm::http::Proxy::parse(&url).unwrap());
        let base = "http://api.test".into();
        let error = client(base, Tls::default(), proxies, SecretSource::none()).get::<Value>("/x");
        let text = error.unwrap_err().to_string();
        let expected = format!("{url} (proxy-url): it refuses connections to {to}; {other}");
        assert!(text.ends_with(&expected), "{text}");
    }
}

fn check(url: &str, expected: &str, answers: Answers) {
    let variable = |name: &str| (name == "HTTP_PROXY").then(|| url.to_owned());
    let proxies = Proxies::ByEnvironment(ProxyEnvironment::read(variable).unwrap());
    let client = client("http://api.test".into(), Tls::default(), proxies, SecretSource::none());
    let error = client.get::<Value>("/x").unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("GET http://api.test/x{expected}")),
        "{answers:?}: {text}\nnot\n{expected}"
    );
    let lasting = matches!(error.kind, HttpErrorKind::Request(_));
    // A refusal that a person must correct is not retried, because an account may be locked for that.
    assert_eq!(client.calls(), if lasting { 1 } else { 3 }, "{text}");
    let secrets = Secrets::new(&[PASSWORD, ESCAPED, "hunter2hunter2hunter2"]);
    assert_eq!(secrets.leak(&text), None, "{text}");
}
