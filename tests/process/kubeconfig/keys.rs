//! Client certificates with keys of every kind. Some work, and for each of the others there is a line that explains it.
//! ureq panics on several of them.

use super::bad::mismatch;
use super::{World, yaml};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox::credentials::{PKCS_ECDSA_P384_SHA384, PKCS_ED25519, Subject, Validity};
use serde_json::json;
use std::process::{Command, Stdio};

/// Runs openssl in the world's folder. Returns false when it fails.
fn openssl(world: &World, words: &str) -> bool {
    let mut command = Command::new("openssl");
    command
        .args(words.split(' '))
        .current_dir(world.folder())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A kubeconfig with the key and certificate of these files, and a token for the API.
fn config(world: &World, certificate: &str, key: &str) -> String {
    let mut config = world.config();
    config["users"][0]["user"] =
        json!({"client-certificate": certificate, "client-key": key, "token": world.token});
    yaml(&config)
}

#[test]
fn keys_of_the_kinds_that_clusters_sign_are_read() {
    let world = World::new();
    let subject = Subject { user: "ccm".into(), group: None };
    for algorithm in [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let authority = world.sandbox.authority();
        let identity = authority.client_with(&subject, Validity::Now, algorithm).unwrap();
        world.sandbox.cluster().add_certificate("ccm", &identity.certificate_der);
        let ran = world.list(&world.write("good", yaml(&world.certified(&identity))), &[]);
        assert_eq!(ran.code, 0, "{algorithm:?}: {ran:?}");
    }
}

/// Each case has the command that makes the key, the command that converts it, and the message. An empty message means
/// that the key works.
#[test]
fn keys_of_the_kinds_that_people_make_are_read_or_explained() {
    const KIND: &str = "is damaged or of a kind that is not supported; use RSA with 2048 bits or more, \
                        ECDSA P-256 or P-384, or Ed25519";
    const ENCRYPTED: &str = "is encrypted; decrypt the key (openssl pkey -in FILE)";
    let world = World::new();
    if !openssl(&world, "version") {
        return eprintln!("skipped without openssl: keys of every kind");
    }
    #[rustfmt::skip]
    let cases = [
        ("genpkey -algorithm ed25519 -out key", "", ""),
        ("genpkey -algorithm ed448 -out key", "", KIND),
        ("ecparam -name prime256v1 -genkey -noout -out key", "", ""),
        ("ecparam -name prime256v1 -genkey -out key", "", ""), // With EC PARAMETERS before it.
        ("ecparam -name secp384r1 -genkey -noout -out key", "", ""),
        ("ecparam -name secp384r1 -genkey -noout -out key", "pkcs8 -topk8 -nocrypt -in key -out other", ""),
        ("ecparam -name secp521r1 -genkey -noout -out key", "", KIND),
        ("ecparam -name secp521r1 -genkey -noout -out key", "pkcs8 -topk8 -nocrypt -in key -out other", KIND),
        ("ecparam -name secp256k1 -genkey -noout -out key", "", KIND),
        ("ecparam -name secp224r1 -genkey -noout -out key", "", KIND),
        ("ecparam -name prime256v1 -param_enc explicit -genkey -noout -out key", "", "*"),
        ("genrsa -out key 1024", "", KIND),
        ("genrsa -out key 2048", "", ""),
        ("genrsa -traditional -out key 3072", "", ""),
        ("genrsa -out key 4096", "", ""),
        ("genrsa -out key 2048", "pkcs8 -topk8 -passout pass:secret -in key -out other", ENCRYPTED),
        ("genrsa -out key 2048", "rsa -traditional -aes128 -passout pass:secret -in key -out other", ENCRYPTED),
        ("genrsa -out key 2048", "rsa -outform DER -in key -out other", "holds no PEM private key (PKCS#1, PKCS#8 or SEC1)"),
        ("genrsa -out key 2048", "rsa -pubout -in key -out other", "holds no PEM private key (PKCS#1, PKCS#8 or SEC1)"),
        ("genrsa -out key 2048", "genrsa -out other 2048", "is the key of another certificate"),
        ("genrsa -out key 2048", "genpkey -algorithm ed25519 -out other", "is the key of another certificate"),
        ("genrsa -out key 2048", "genpkey -algorithm x25519 -out other", KIND),
        ("genpkey -genparam -algorithm DSA -pkeyopt dsa_paramgen_bits:2048 -out params", "genpkey -paramfile params -out other", KIND),
    ];
    for (make, change, why) in cases {
        assert!(openssl(&world, make), "{make}");
        // A key that can sign no certificate is tried with the certificate of the case before.
        let _ = openssl(&world, "req -x509 -key key -subj /CN=ccm -days 2 -out certificate");
        assert!(change.is_empty() || openssl(&world, change), "{change}");
        let key = if change.is_empty() { "key" } else { "other" };
        let text = config(&world, "certificate", key);
        let ran = world.list(&world.write("kind", &text), &[]);
        let message = format!("kubeconfig \"DIR/bad\", user \"me\": client-key DIR/{key}: {why}");
        match why {
            "" => assert_eq!(ran.code, 0, "{make} {change}: {ran:?}"),
            // Only OpenSSL understands this key, so any answer but a panic is right.
            "*" => assert!(ran.code == 1 && ran.stderr.contains("client-"), "{make}: {ran:?}"),
            _ => assert_eq!(mismatch(&world, &text, &[], &message), None, "{make} {change}"),
        }
    }
}

/// Each byte of a key is damaged in turn. Every damaged key is refused or works, and none is printed.
#[test]
fn damaged_keys_and_certificates_are_explained() {
    let world = World::new();
    let secrets = world.secrets();
    let damage = |pem: &str, at: usize| {
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let mut der = STANDARD.decode(body).unwrap();
        let byte = at % der.len();
        der[byte] ^= 1 << (at % 8);
        let kind = pem.lines().next().unwrap().trim_matches('-').replace("BEGIN ", "");
        let text = STANDARD.encode(der);
        format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
    };
    let (mut refused, mut loaded) = (0, 0);
    for at in 0..600 {
        let mut identity = world.identity.clone();
        match at % 2 {
            0 => identity.key_pem = damage(&identity.key_pem, at),
            _ => identity.certificate_pem = damage(&identity.certificate_pem, at),
        }
        let path = world.write("damaged", yaml(&world.certified(&identity)));
        let options =
            ccm::kube::config::Options { kubeconfig: vec![path.into()], ..Default::default() };
        match ccm::kube::config::load(&options) {
            Err(error) => {
                refused += 1;
                assert_eq!(secrets.leak(&error.to_string()), None, "{at}: {error}");
            }
            // ureq makes its agent when it connects. Only some keys are tried, because a run takes its time.
            Ok(_) if at % 7 == 0 => {
                let ran = world.list(&world.folder().join("damaged").display().to_string(), &[]);
                assert!(!ran.stderr.contains("panicked") && ran.code != 101, "{at}: {ran:?}");
                assert_eq!(secrets.leak(&ran.stderr), None, "{at}: {ran:?}");
                loaded += 1;
            }
            Ok(_) => {}
        }
    }
    assert!(refused > 100 && loaded > 1, "{refused} {loaded}");
}
