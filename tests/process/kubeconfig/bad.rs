//! Fields of a kubeconfig that are missing, of the wrong type, or wrong, each with the exact line that a person reads.

use super::{World, yaml};
use crate::common::{Ran, ccm, with};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox::credentials::{Authority, Subject, Validity};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// No bad kubeconfig takes longer.
const LIMIT: Duration = Duration::from_secs(10);

/// The field, its value, where null means that it is missing, and the message after the field's name. A message about a
/// call is whole.
type Case = (&'static str, Value, &'static str);

/// Runs a table with each case's value in place of the field's at `place` in a good kubeconfig.
fn check(world: &World, good: &Value, place: &str, cases: Vec<Case>) {
    let kind = place.split('/').nth(3);
    let mut wrong = Vec::new();
    for (field, value, why) in cases {
        let mut config = good.clone();
        let fields = config.pointer_mut(place).unwrap().as_object_mut().unwrap();
        match value.clone() {
            Value::Null => drop(fields.remove(field)),
            value => drop(fields.insert(field.to_owned(), value)),
        }
        let name = match kind {
            Some("cluster") => ", cluster \"there\"",
            Some("context") => ", context \"here\"",
            Some("user") => ", user \"me\"",
            _ => "",
        };
        let message = match why {
            call if call.starts_with("GET ") => {
                format!("{call} (kubeconfig \"DIR/bad\", context \"here\")")
            }
            why => format!("kubeconfig \"DIR/bad\"{name}: {field}: {why}"),
        };
        wrong.extend(
            mismatch(world, &yaml(&config), &[], &message)
                .map(|text| (field, value.to_string(), text)),
        );
    }
    for (field, value, text) in &wrong {
        println!("{field} {value:.60}\n{text}");
    }
    assert!(wrong.is_empty());
}

/// Runs `ccm node list` with a kubeconfig. Returns how the result differs from a failure with this message.
pub(super) fn mismatch(world: &World, text: &str, flags: &[&str], message: &str) -> Option<String> {
    let begun = Instant::now();
    let ran = world.list(&world.write("bad", text), flags);
    assert_eq!(world.secrets().leak(&ran.stderr), None, "{ran:?}");
    assert!(begun.elapsed() < LIMIT, "{ran:?}");
    let answered = masked(world, &ran);
    let expected = format!("ccm: {message}\n");
    // When there is a cluster to call, the cloud's half is shown.
    let shows_right = ran.stdout.is_empty() || message.starts_with("GET ");
    let as_expected = ran.code == 1 && shows_right && answered == expected;
    (!as_expected)
        .then(|| format!("  expected {expected}  answered {answered}  exit code {}", ran.code))
}

/// `ccm node list` with this kubeconfig fails with this message.
#[track_caller]
pub(super) fn says(world: &World, config: &Value, message: &str) {
    assert_eq!(mismatch(world, &yaml(config), &[], message), None);
}

/// Returns the output without what differs from run to run.
fn masked(world: &World, ran: &Ran) -> String {
    let text = ran
        .stderr
        .replace(&world.folder().display().to_string(), "DIR")
        .replace(&world.sandbox.kubernetes_url(), "URL")
        .replace("?limit=500&resourceVersion=0: ", ": ")
        .replace("?limit=500: ", ": ")
        .replace("?limit=500&resourceVersion=0 was ", " was ")
        .replace("?limit=500 was ", " was ");
    let words = text.split(' ').map(|word| {
        let time = word.trim_end_matches([';', ',']);
        match time.parse::<jiff::Timestamp>() {
            Ok(_) => word.replace(time, "TIME"),
            Err(_) => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn base64(pem: &str) -> Value {
    STANDARD.encode(pem).into()
}

#[test]
fn unreadable_kubeconfig_files_are_explained() {
    let world = World::new();
    let bomb = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        text + &format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1)
    });
    let bomb = bomb + "users: [{name: me, user: {x: *a29}}]\n";
    let token = &world.token;
    #[rustfmt::skip]
    let cases = [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("# a comment\n", "the file is empty"),
        ("just words", "must be a kubeconfig with clusters, contexts and users"),
        ("[1, 2]", "must be a kubeconfig with clusters, contexts and users"),
        ("users: [\n", "can't be read as YAML at line 2 column 1"),
        (&format!("users: @{token}"), "can't be read as YAML at line 1 column 8"),
        ("users: []\nusers: []\n", "can't be read as YAML at line 1 column 1"),
        ("users:\n- {name: a, user: {12345678: a, 12345678: b}}\n", "can't be read as YAML at line 2 column 19"),
        (&bomb, "can't be read as YAML"),
        (&"[".repeat(40_000), "must be a kubeconfig with clusters, contexts and users"),
        (&"{a: ".repeat(4_000), "can't be read as YAML at line 2 column 1"),
        ("\0", "can't be read as YAML at line 1 column 1"),
    ];
    for (text, why) in cases {
        assert_eq!(mismatch(&world, text, &[], &format!("kubeconfig \"DIR/bad\": {why}")), None);
    }
    let good = yaml(&world.config());
    std::fs::write(world.folder().join("latin1"), b"users: \xe4").unwrap();
    let latin1 = world.folder().join("latin1").display().to_string();
    let folder = world.folder().display().to_string();
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 5] = [
        (&["--context", "elsewhere"], "--context: there is no context \"elsewhere\"; the kubeconfig has \"here\""),
        (&["--kubeconfig", "/nowhere"], "kubeconfig \"/nowhere\": the file does not exist; correct the path"),
        (&["--kubeconfig", &folder], "kubeconfig \"DIR\": this is a folder, not a file"),
        (&["--kubeconfig", "/dev/zero"], "kubeconfig \"/dev/zero\": the file is longer than 16 MiB"),
        (&["--kubeconfig", &latin1], "kubeconfig \"DIR/latin1\": the file is not text (UTF-8)"),
    ];
    for (flags, message) in cases {
        assert_eq!(mismatch(&world, &good, flags, message), None);
    }
    let ran = world.list("/nowhere/1:/nowhere/2", &[]);
    let message = "ccm: kubeconfig: none of these files exists: \"/nowhere/1\", \"/nowhere/2\"; correct KUBECONFIG\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, message));
    let ran = world.list("", &[]);
    let message = "ccm: no cluster is configured: give --kubeconfig or set KUBECONFIG (this is no pod, because \
                   KUBERNETES_SERVICE_HOST is not set, and ~/.kube/config does not exist)\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, message));
}

#[test]
fn a_context_without_a_kubeconfig_is_an_error() {
    let world = World::new();
    let pod: &[_] = &[("KUBERNETES_SERVICE_HOST", "127.0.0.1")];
    let context: &[_] = &["--context", "prod"];
    let with_master: &[_] = &["--context", "prod", "--master", "https://127.0.0.1:1"];
    let cases = [
        (pod, context, "in a pod, ccm uses the pod's service account"),
        (pod, with_master, "in a pod, ccm uses the pod's service account"),
        (&[], with_master, "~/.kube/config does not exist"),
    ];
    for (variables, flags, why) in cases {
        let env = with(world.env(""), variables);
        let ran = ccm(&env, &[&["node", "list"], flags].concat());
        let message = format!(
            "ccm: --context: ccm reads no kubeconfig, so it can't find context \"prod\" ({why}); give --kubeconfig, \
             set KUBECONFIG, or leave --context out\n"
        );
        let expected = (1, message.as_str());
        assert_eq!((ran.code, ran.stderr.as_str()), expected, "{flags:?}");
    }
}

#[test]
fn wrong_lists_and_contexts_are_explained() {
    let world = World::new();
    let good = world.config();
    let token = json!(world.token);
    #[rustfmt::skip]
    let cases = vec![
        ("current-context", Value::Null, "not set; set it or give --context (the kubeconfig has \"here\")"),
        ("current-context", json!(""), "not set; set it or give --context (the kubeconfig has \"here\")"),
        ("current-context", json!(7), "there is no context \"7\"; the kubeconfig has \"here\""),
        ("current-context", json!("elsewhere"), "there is no context \"elsewhere\"; the kubeconfig has \"here\""),
        ("current-context", token.clone(), "there is no context [not shown: looks like a secret]; the kubeconfig has \"here\""),
        ("contexts", json!("here"), "must be a list"),
        ("clusters", json!({"there": {}}), "must be a list"),
        ("clusters", json!([{"name": "a"}, {"name": "b"}, {"name": "a"}]), "\"a\" is listed twice; remove or rename one"),
    ];
    check(&world, &good, "", cases);
    #[rustfmt::skip]
    let cases = vec![
        ("cluster", Value::Null, "there is no cluster \"\"; the kubeconfig has \"there\""),
        ("cluster", json!("nowhere"), "there is no cluster \"nowhere\"; the kubeconfig has \"there\""),
        ("cluster", json!(["there"]), "must be text; put it in quotes"),
        ("user", json!("nobody"), "there is no user \"nobody\"; the kubeconfig has \"me\""),
        ("user", token, "there is no user [not shown: looks like a secret]; the kubeconfig has \"me\""),
        ("usr", json!("me"), "unknown field; use one of cluster, user, namespace, extensions"),
    ];
    check(&world, &good, "/contexts/0/context", cases);
    // Messages about another place than the one that was changed.
    #[rustfmt::skip]
    let cases = [
        ("contexts", Value::Null, ": current-context: there is no context \"here\"; the kubeconfig has no contexts"),
        ("contexts", json!(["here"]), ": contexts[0]: must be a YAML mapping with the fields name and cluster (in contexts: name and context; in users: name and user)"),
        ("contexts", json!([{"context": {}}]), ": contexts[0]: name: not set"),
        ("contexts", json!([{"name": 1}]), ": current-context: there is no context \"here\"; the kubeconfig has \"1\""),
        ("contexts", json!([{"name": "here"}]), ", context \"here\": cluster: there is no cluster \"\"; the kubeconfig has \"there\""),
        ("clusters", Value::Null, ", context \"here\": cluster: there is no cluster \"there\"; the kubeconfig has no clusters"),
        ("clusters", json!([]), ", context \"here\": cluster: there is no cluster \"there\"; the kubeconfig has no clusters"),
        ("users", Value::Null, ", context \"here\": user: there is no user \"me\"; the kubeconfig has no users"),
        ("users", json!([{"name": "you", "user": {}}, {"name": world.token}]), ", context \"here\": user: there is no user \"me\"; the kubeconfig has \"you\", [not shown: looks like a secret]"),
        ("users", json!([{"name": "me", "user": world.token}]), ": users[0].user: must be a YAML mapping"),
    ];
    for (field, value, why) in cases {
        let mut config = good.clone();
        config[field] = value;
        says(&world, &config, &format!("kubeconfig \"DIR/bad\"{why}"));
    }
}

#[test]
fn wrong_clusters_are_explained() {
    let world = World::new();
    let stranger = Authority::new("stranger").unwrap();
    #[rustfmt::skip]
    let cases = vec![
        ("server", Value::Null, "not set; write the API server's URL, like https://10.0.0.1:6443"),
        ("server", json!(6443), "must be text; put it in quotes"),
        ("server", json!("10.0.0.1"), "write a complete URL, e.g. https://api.example.com"),
        ("server", json!("10.0.0.1:6443"), "write a complete URL, e.g. https://api.example.com"),
        ("server", json!("not a URL\n"), "a URL must have only ASCII characters and no white space"),
        ("server", json!("ftp://10.0.0.1"), "use http:// or https://"),
        ("server", json!("https://"), "the host is missing"),
        ("server", json!("https://10.0.0.1:644300"), "the port must be a number from 1 to 65535"),
        ("server", json!("https://10.0.0.1?x=1"), "a base URL must have no query (from ? on) and no fragment (from # on)"),
        ("server", json!(format!("https://10.0.0.1/?token={}", world.token)), "a base URL must have no query (from ? on) and no fragment (from # on)"),
        ("server", json!(world.token), "write a complete URL, e.g. https://api.example.com"),
        ("server", json!(format!("https://me:{}@10.0.0.1", world.token)), "leave out the user name and password"),
        ("certificate-authority-data", json!("not base64!"), "is not base64; copy all of it, or create it again with base64 -w0 FILE"),
        ("certificate-authority-data", json!(stranger.certificate_pem()), "is plain PEM, but must be base64-encoded (base64 -w0 FILE)"),
        ("certificate-authority-data", base64("not PEM"), "holds no PEM certificate (-----BEGIN CERTIFICATE-----)"),
        ("certificate-authority-data", base64(&world.identity.key_pem), "holds a private key instead of a certificate; did you swap the key and the certificate?"),
        ("certificate-authority-data", base64("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "holds only damaged certificates; copy them again"),
        ("certificate-authority-data", base64("-----BEGIN CERTIFICATE-----\nAAAA\n"), "holds only damaged certificates; copy them again"),
        ("certificate-authority-data", base64(stranger.certificate_pem()), "GET URL/api/v1/nodes: TLS: the server's certificate is signed by an authority that ccm does not trust; check the fields server and certificate-authority of the kubeconfig"),
        ("certificate-authority-data", Value::Null, "GET URL/api/v1/nodes: TLS: the server's certificate is signed by an authority that ccm does not trust; check the fields server and certificate-authority of the kubeconfig"),
        ("certificate-authority-data", json!({}), "must be text; put it in quotes"),
        ("insecure-skip-tls-verify", json!("true"), "must be a boolean"),
        ("tls-server-name", json!("https://kubernetes"), "is neither a host name nor an IP address; write a name that the server's certificate has"),
        ("tls-server-name", json!(world.token), "is neither a host name nor an IP address; write a name that the server's certificate has"),
        ("tls-server-name", json!(["kubernetes"]), "must be text; put it in quotes"),
        ("tls-server-name", json!("kubernetes"), "GET URL/api/v1/nodes: TLS: the server's certificate is for localhost, 127.0.0.1, 0::1, kubernetes.test, not for kubernetes; check the fields server and certificate-authority of the kubeconfig"),
        ("proxy-url", json!(3128), "must be text; put it in quotes"),
        ("proxy-url", json!(format!("ftp://me:{}@proxy:3128", world.token)), "its scheme is not http, https, socks5 or socks5h; write the proxy's URL like http://proxy.example.com:3128, https://… or socks5://…, with user:password@ before the host if needed"),
        ("certificate-autority", json!("ca.crt"), "unknown field; use one of server, certificate-authority, certificate-authority-data, insecure-skip-tls-verify, tls-server-name, proxy-url, disable-compression, extensions"),
    ];
    check(&world, &world.config(), "/clusters/0/cluster", cases);
    let mut config = world.config();
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = true.into();
    says(
        &world,
        &config,
        "kubeconfig \"DIR/bad\", cluster \"there\": certificate-authority-data: can't be given together with insecure-skip-tls-verify; remove one of them",
    );
}

#[test]
fn wrong_users_with_a_token_are_explained() {
    let world = World::new();
    world.write("empty", " \n");
    world.write("spaced", "two words");
    let twice = format!("{0} {0}", world.token);
    let key = &world.identity.key_pem;
    #[rustfmt::skip]
    let cases = vec![
        ("token", json!("wrong"), "GET URL/api/v1/nodes: Unauthorized (401 Unauthorized); the API server requires valid credentials: is the token or certificate missing, expired, or for another cluster?"),
        ("token", json!(12345), "must be text; put it in quotes"),
        ("token", json!([world.token]), "must be text; put it in quotes"),
        ("token", json!(twice), "holds characters that no token has, e.g. white space; copy it again"),
        ("tokenFile", json!("nowhere"), "must be the path of a file, but there is no such file; correct the path, which is relative to the kubeconfig, or write the content itself into token"),
        ("tokenFile", json!("empty"), "the token file DIR/empty is empty"),
        ("tokenFile", json!("spaced"), "the token file DIR/spaced holds characters that no token has, e.g. white space; copy it again"),
        ("tokenFile", json!(world.token), "must be the path of a file, but there is no such file; correct the path, which is relative to the kubeconfig, or write the content itself into token"),
        ("tokenFile", json!("."), "the token file DIR/. can't be read: Is a directory (os error 21)"),
        ("auth-provider", json!({"name": "oidc"}), "unknown field; use one of token, tokenFile, client-certificate, client-certificate-data, client-key, client-key-data, username, password, exec, extensions"),
        ("as", json!("root"), "unknown field; use one of token, tokenFile, client-certificate, client-certificate-data, client-key, client-key-data, username, password, exec, extensions"),
        ("username", json!("me"), "can't be given together with a token; remove one of them"),
        ("username", json!(7), "must be text; put it in quotes"),
        ("username", json!(format!("me:{}", world.token)), "has a colon, which HTTP basic authentication can't send; write the password into the field password"),
        ("password", json!([world.token]), "must be text; put it in quotes"),
        ("tokne", json!(world.token), "unknown field; use one of token, tokenFile, client-certificate, client-certificate-data, client-key, client-key-data, username, password, exec, extensions"),
        ("client-certificate", json!(key), "must be the path of a file; write the PEM itself base64-encoded into client-certificate-data"),
        ("client-certificate", json!("nowhere"), "must be the path of a file, but there is no such file; correct the path, which is relative to the kubeconfig, or write the content itself into client-certificate-data"),
        ("client-key", json!(key), "must be the path of a file; write the PEM itself base64-encoded into client-key-data"),
        ("client-key", base64(key), "must be the path of a file, but there is no such file; correct the path, which is relative to the kubeconfig, or write the content itself into client-key-data"),
        ("client-certificate", base64(&world.identity.certificate_pem), "must be the path of a file, but there is no such file; correct the path, which is relative to the kubeconfig, or write the content itself into client-certificate-data"),
        ("client-key", json!("nowhere.pem"), "must be the path of a file, but there is no such file; correct the path, which is relative to the kubeconfig, or write the content itself into client-key-data"),
    ];
    check(&world, &world.config(), "/users/0/user", cases);
    let mut config = world.config();
    let unauthorized = "GET URL/api/v1/nodes: Unauthorized (401 Unauthorized); the API server requires valid credentials: is the token or certificate missing, expired, or for another cluster? (kubeconfig \"DIR/bad\", context \"here\")";
    #[rustfmt::skip] // A case is a line or two.
    let basic = [
        (json!({"password": world.token}),
            "kubeconfig \"DIR/bad\", user \"me\": username: not set, but password is set; set both or none"),
        (json!({"username": "ccm", "password": world.token}), unauthorized),
        (json!({"username": "ccm"}), unauthorized),
    ];
    for (user, message) in basic {
        config["users"][0]["user"] = user;
        says(&world, &config, message);
    }
    config["users"][0]["user"] = json!({});
    // A person without the right to list workloads gets that message, too.
    let own = &["--own-settings"];
    let why = "GET URL/api/v1/nodes: nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the cluster scope (403 Forbidden); give this user a role that allows this call (kubeconfig \"DIR/bad\", context \"here\", which has no credentials)";
    assert_eq!(mismatch(&world, &yaml(&config), own, why), None);
}

#[test]
fn wrong_users_with_a_certificate_are_explained() {
    let world = World::new();
    let subject = Subject { user: "ccm".into(), group: None };
    let client = |validity| world.sandbox.authority().client(&subject, validity).unwrap();
    let damaged =
        |kind: &str| base64(&format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n"));
    let good = world.certified(&world.identity);
    let key = &world.identity.key_pem;
    #[rustfmt::skip]
    let cases = vec![
        ("client-key-data", json!(key), "is plain PEM, but must be base64-encoded (base64 -w0 FILE)"),
        ("client-key-data", json!(true), "must be text; put it in quotes"),
        ("client-key-data", json!("?"), "is not base64; copy all of it, or create it again with base64 -w0 FILE"),
        ("client-key-data", base64("not PEM"), "holds no PEM private key (PKCS#1, PKCS#8 or SEC1)"),
        ("client-key-data", base64(&world.identity.certificate_pem), "holds a certificate instead of a private key; did you swap the certificate and the key?"),
        ("client-key-data", base64(&client(Validity::Now).key_pem), "is the key of another certificate"),
        ("client-key-data", damaged("EC PRIVATE KEY"), "is damaged or of a kind that is not supported; use RSA with 2048 bits or more, ECDSA P-256 or P-384, or Ed25519"),
        ("client-key-data", damaged("ENCRYPTED PRIVATE KEY"), "is encrypted; decrypt the key (openssl pkey -in FILE)"),
        ("client-certificate-data", base64(key), "holds a private key instead of a certificate; did you swap the key and the certificate?"),
        ("client-certificate-data", damaged("CERTIFICATE"), "holds a damaged certificate; copy it again"),
    ];
    check(&world, &good, "/users/0/user", cases);
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("client-key", "not set, but the user has a client certificate; set client-key or client-key-data, or remove the certificate"),
        ("client-certificate", "not set, but the user has a client key; set client-certificate or client-certificate-data, or remove the key"),
    ];
    for (missing, why) in cases {
        let mut config = good.clone();
        config["users"][0]["user"].as_object_mut().unwrap().remove(&format!("{missing}-data"));
        let message = format!("kubeconfig \"DIR/bad\", user \"me\": {missing}: {why}");
        says(&world, &config, &message);
    }
    let stranger = Authority::new("stranger").unwrap().client(&subject, Validity::Now).unwrap();
    let unauthorized = "GET URL/api/v1/nodes: Unauthorized (401 Unauthorized); the API server requires valid credentials: is the token or certificate missing, expired, or for another cluster? (kubeconfig \"DIR/bad\", context \"here\")";
    let identities = [client(Validity::Expired), client(Validity::NotYet), stranger];
    for identity in identities {
        says(&world, &world.certified(&identity), unauthorized);
    }
}
