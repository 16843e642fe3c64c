//! The trusted authorities: the built-in ones, those of `SSL_CERT_FILE`, and the cluster's own.

use super::{ESCAPED, PASSWORD, USER, client, kubeconfig};
use crate::common::proxy::{self, Answers, Proxy, Speaks};
use crate::common::{ccm, env, with};
use ccm::http::{self, Authorities, Proxies, Roots, SecretSource, Tls};
use sandbox::{Half, Sandbox};
use serde_json::Value;

/// The connection to the proxy uses TLS, and so does the connection through it. The proxy of a kubeconfig
/// gets all calls.
#[test]
fn a_proxy_may_want_tls_itself() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    let (authority, login) = (sandbox.authority(), Some((USER, PASSWORD)));
    let proxy = Proxy::start(Speaks::Connect, Answers::ByConnecting, login, &[]);
    let front = proxy::behind_tls(authority, proxy.address());
    let url = format!("https://{USER}:{ESCAPED}@{front}");
    let ask = |tls: Tls| {
        let token = sandbox.account("ccm").unwrap().token;
        let proxies = Proxies::Only(http::Proxy::parse(&url).unwrap());
        let token = SecretSource::fixed(http::Secret::new(&token));
        let client = client(sandbox.kubernetes_url(), tls, proxies, token);
        client.get::<Value>("/version").map(|reply| reply.value)
    };
    let authorities =
        Authorities::parse(authority.certificate_pem().as_bytes()).unwrap().certificates;
    let version = ask(Tls { more_authorities: authorities.clone().into(), ..Tls::default() });
    assert!(version.unwrap()["gitVersion"].is_string());
    let wanted = [sandbox.address(Half::Kubernetes).to_string()];
    assert_eq!(proxy.targets(), wanted);

    // The cluster's own authority has no word on who a proxy is.
    let error = ask(Tls { roots: Roots::Only(authorities), ..Tls::default() });
    let expected = format!(
        "the proxy https://{front} (proxy-url): TLS: the server's certificate is signed by an authority that ccm does \
         not trust"
    );
    let text = error.unwrap_err().to_string();
    assert!(text.contains(&expected), "{text}");
    assert_eq!(proxy.targets().len(), 1);
}

/// A kubeconfig without an authority of its own trusts the public's, and those of `SSL_CERT_FILE`.
#[test]
fn ssl_cert_file_adds_to_the_built_in_roots() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    let plain = env(&sandbox);
    let mut config = kubeconfig(&plain);
    let cluster = config["clusters"][0]["cluster"].as_object_mut().unwrap();
    cluster.retain(|field, _| !field.starts_with("certificate-authority"));
    let path = sandbox.folder().join("public");
    std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
    let env = with(plain.clone(), &[("KUBECONFIG", &path.display().to_string())]);
    let ran = ccm(&env, &["node", "list"]);
    ran.warns("signed by an authority that ccm does not trust");

    let bundle = sandbox.folder().join("bundle.pem");
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&bundle, format!("# ours\n{damaged}{}", sandbox.authority().certificate_pem()))
        .unwrap();
    let bundle = bundle.display().to_string();
    ccm(&with(env, &[("SSL_CERT_FILE", &bundle)]), &["node", "list"])
        .with_code(0)
        .warns("SSL_CERT_FILE: number of certificates in this file that ccm ignores");

    // When a kubeconfig names its authority, no other is trusted.
    let other = sandbox::credentials::Authority::new("somebody-else").unwrap();
    config["clusters"][0]["cluster"]["certificate-authority-data"] =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, other.certificate_pem())
            .into();
    std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
    let env =
        with(plain, &[("KUBECONFIG", &path.display().to_string()), ("SSL_CERT_FILE", &bundle)]);
    let ran = ccm(&env, &["node", "list"]);
    ran.warns("signed by an authority that ccm does not trust");
}
