//! Kubeconfigs that work, in every form in which people have them.

use super::{World, yaml};
use crate::common::{ccm, with};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn every_form_of_a_good_kubeconfig_works() {
    let world = World::new();
    let authority_in_file = |name: &str| {
        let mut config = world.config();
        config["clusters"][0]["cluster"] =
            json!({"server": world.sandbox.kubernetes_url(), "certificate-authority": name});
        config
    };
    let user = |user: Value| {
        let mut config = world.config();
        config["users"][0]["user"] = user;
        config
    };
    let absolute = |name: &str| world.folder().join(name).display().to_string();
    world.write("ca.crt", world.sandbox.authority().certificate_pem());
    world.write("token", world.token.clone() + "\n");
    world.write("client.crt", &world.identity.certificate_pem);
    world.write("client.key", &world.identity.key_pem);
    let both = [&world.identity.certificate_pem[..], &world.identity.key_pem].concat();
    world.write("both.pem", both);
    let password = " päss: word\" ";
    world.sandbox.cluster().add_password("ccm", password);
    world.write("sec1.key", sec1(&world.identity.key_pem));
    #[rustfmt::skip] // A case is a line.
    let mut cases = vec![
        ("token", world.config()),
        ("certificate", world.certified(&world.identity)),
        ("authority in a file", authority_in_file("ca.crt")),
        ("authority, absolute", authority_in_file(&absolute("ca.crt"))),
        ("token in a file", user(json!({"tokenFile": "token"}))),
        ("the token's file wins", user(json!({"tokenFile": absolute("token"), "token": "old"}))),
        ("certificate in files", user(json!({"client-certificate": "client.crt", "client-key": "client.key"}))),
        ("both in one file", user(json!({"client-certificate": "both.pem", "client-key": "both.pem"}))),
        ("key as SEC1", user(json!({"client-certificate": "client.crt", "client-key": "sec1.key"}))),
        ("a name with a password", user(json!({"username": "ccm", "password": password}))),
        ("empty fields", user(json!({"token": world.token, "client-key": "", "exec": null}))),
    ];
    match pkcs1(world.folder()) {
        true => cases.push((
            "key as PKCS#1",
            user(json!({
            "client-certificate": "rsa.crt", "client-key": "rsa.key", "token": world.token})),
        )),
        false => eprintln!("skipped without openssl: key as PKCS#1"),
    }
    let edits = [
        ("no authority, insecure", {
            let mut config = world.config();
            let url = world.sandbox.kubernetes_url() + "/";
            config["clusters"][0]["cluster"] =
                json!({"server": url, "insecure-skip-tls-verify": true});
            config
        }),
        ("another name in the certificate", {
            let mut config = world.config();
            config["clusters"][0]["cluster"]["tls-server-name"] = "localhost".into();
            config
        }),
        ("another address in the certificate", {
            let mut config = world.config();
            config["clusters"][0]["cluster"]["tls-server-name"] = "::1".into();
            config
        }),
        ("other programs' notes", {
            let mut config = world.config();
            config["preferences"] = json!({"colors": true});
            for place in ["/clusters/0/cluster", "/contexts/0/context", "/users/0/user"] {
                config.pointer_mut(place).unwrap()["extensions"] =
                    json!([{"name": "x", "extension": {}}]);
            }
            config
        }),
    ];
    cases.extend(edits);
    let mut texts: Vec<(&str, String)> =
        cases.iter().map(|(name, config)| (*name, yaml(config))).collect();
    texts.push(("JSON", world.config().to_string()));
    texts.push((
        "byte order mark, CRLF",
        format!("\u{feff}{}", yaml(&world.config()).replace('\n', "\r\n")),
    ));
    for (name, text) in texts {
        let ran = world.list(&world.write("good", text), &[]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{name}");
        ran.prints("worker-1");
    }
}

#[test]
fn several_files_are_merged_and_the_first_wins() {
    let world = World::new();
    let part = |name: &str, fields: &[&str]| {
        let mut config = world.config();
        let object = config.as_object_mut().unwrap();
        object.retain(|key, _| fields.contains(&key.as_str()));
        world.write(name, yaml(&config))
    };
    let mut wrong = world.config();
    wrong["current-context"] = "elsewhere".into();
    wrong["users"][0]["user"]["token"] = "wrong".into();
    let wrong = world.write("wrong", yaml(&wrong));
    let right = world.write("right", yaml(&world.config()));
    let clusters = part("clusters", &["clusters", "contexts"]);
    let users = part("users", &["users", "current-context"]);
    let other =
        world.write("other", "contexts: [{name: other, context: {cluster: there, user: me}}]");
    std::fs::create_dir_all(world.folder().join(".kube")).unwrap();
    world.write(".kube/config", yaml(&world.config()));
    let home = world.folder().display().to_string();
    let empty = world.write("empty", "");
    let comment = world.write("comment", "# nothing yet\n");
    #[rustfmt::skip] // A case is a line.
    let cases: [(&str, String, &[&str], i32); 10] = [
        ("parts", format!("{clusters}:{users}"), &[], 0),
        ("some are empty", format!("{empty}:{right}:{comment}"), &[], 0),
        ("all are empty", format!("{empty}:{comment}"), &[], 1),
        ("parts, in the other order", format!("{users}:{clusters}"), &[], 0),
        ("one is missing", format!("/nowhere:{clusters}::{users}"), &[], 0),
        ("the first wins", format!("{right}:{wrong}"), &[], 0),
        ("the first wins, also when it is wrong", format!("{wrong}:{right}"), &["--context", "here"], 1),
        ("another context", format!("{right}:{other}"), &["--context=other"], 0),
        ("the flag wins", wrong, &["--kubeconfig", &right], 0),
        ("where kubectl looks", String::new(), &[], 0),
    ];
    for (name, files, flags, code) in cases {
        let env = with(world.env(&files), &[("HOME", &home)]);
        let ran = ccm(&env, &[&["node", "list"], flags].concat());
        assert_eq!(ran.code, code, "{name}: {ran:?}");
    }
}

/// Returns the key inside of PKCS#8. It is the octet string at the end, before optional attributes.
fn sec1(pkcs8: &str) -> String {
    let body: String = pkcs8.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = STANDARD.decode(body).unwrap();
    // SEQUENCE { version, SEQUENCE { two OIDs }, OCTET STRING { SEQUENCE … } }, all of them short.
    let start = der.windows(2).position(|pair| pair[0] == 0x04 && pair[1] > 0x60).unwrap();
    let length = usize::from(der[start + 1]);
    let key = &der[start + 2..start + 2 + length];
    format!(
        "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n",
        STANDARD.encode(key)
    )
}

/// Creates `rsa.key` in the oldest form, with `rsa.crt`. Returns false without openssl.
fn pkcs1(folder: &Path) -> bool {
    let openssl = |words: &[&str]| {
        let mut command = std::process::Command::new("openssl");
        command.args(words).current_dir(folder).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    openssl(&["genrsa", "-traditional", "-out", "rsa.key", "2048"])
        && openssl(&[
            "req", "-x509", "-key", "rsa.key", "-subj", "/CN=ccm", "-days", "2", "-out", "rsa.crt",
        ])
}
