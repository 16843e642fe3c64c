//! Certificates and keys of servers, as they are read from a Secret: the time for which they are valid, and that no
//! bytes cause a panic.

use crate::common::random::Random;
use crate::common::secrets::Secrets;
use crate::common::seeds::chosen;
use ccm::http::{Chain, Pem};
use jiff::Timestamp;
use sandbox::credentials::{Authority, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, Subject, Validity};
use std::path::Path;
use std::process::{Command, Stdio};

const MUTATED: u64 = 4000;

fn read(certificate: &[u8], key: &[u8]) -> Result<Chain, String> {
    let pem = |bytes: &[u8], origin: &str| Pem { bytes: bytes.to_vec(), origin: origin.to_owned() };
    Chain::from_pem(&pem(certificate, "tls.crt"), &pem(key, "tls.key"))
}

#[test]
fn the_validity_of_each_kind_of_certificate_is_read() {
    let authority = Authority::new("test").unwrap();
    let subject = Subject::default();
    let now = Timestamp::now();
    let all = [
        authority.server(&["a.example"], Validity::Now),
        authority.client_with(&subject, Validity::Now, &PKCS_ECDSA_P384_SHA384),
        authority.client_with(&subject, Validity::Now, &PKCS_ED25519),
        authority.server(&["a.example"], Validity::Expired),
        authority.server(&["a.example"], Validity::NotYet),
    ];
    let mut valid = Vec::new();
    for identity in all {
        let identity = identity.unwrap();
        let chain = identity.certificate_pem.clone() + authority.certificate_pem();
        let chain = read(chain.as_bytes(), identity.key_pem.as_bytes()).unwrap();
        assert_eq!((chain.certificates, chain.digest.len()), (2, 64));
        valid.push((chain.not_before <= now, now <= chain.not_after));
    }
    let good = (true, true);
    assert_eq!(valid, [good, good, good, (true, false), (false, true)]);
}

/// The certificates are made by openssl: with `CA:true`, without an extension for names, and with RSA keys
/// in both forms.
#[test]
fn the_validity_of_real_certificates_is_read() {
    let folder = std::env::temp_dir().join(format!("ccm-tls-chain-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let openssl = |words: &str| {
        let mut command = Command::new("openssl");
        command.args(words.split(' ')).current_dir(&folder);
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = silent.stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !openssl("version") {
        let what = "certificates that people make";
        return sandbox::skipped::skip(what, "openssl", "it is not installed");
    }
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("genrsa -traditional -out key 2048", 90),
        ("genpkey -algorithm rsa -pkeyopt rsa_keygen_bits:3072 -out key", 36_500),
        ("ecparam -name prime256v1 -genkey -out key", 1),
        ("ecparam -name secp384r1 -genkey -out key", 900_000),
    ];
    for (key, days) in cases {
        assert!(openssl(key), "{key}");
        let sign = format!("req -x509 -new -key key -subj /CN=web -days {days} -out cert");
        assert!(openssl(&sign), "{sign}");
        let bytes = |name: &str| std::fs::read(Path::new(&folder).join(name)).unwrap();
        let chain = read(&bytes("cert"), &bytes("key")).unwrap();
        let valid = chain.not_after.duration_since(chain.not_before);
        assert_eq!(valid.as_hours() / 24, days, "{key}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The key may be in the same file.
#[test]
fn the_key_is_no_part_of_the_chain() {
    let authority = Authority::new("test").unwrap();
    let one = authority.server(&["a.example"], Validity::Now).unwrap();
    let both = format!("some text\n{}{}", one.key_pem, one.certificate_pem);
    let chain = read(both.as_bytes(), one.key_pem.as_bytes()).unwrap();
    let plain = read(one.certificate_pem.as_bytes(), one.key_pem.as_bytes()).unwrap();
    assert_eq!((&chain.pem, &chain.digest), (&plain.pem, &plain.digest));
    let headers: Vec<&str> = chain.pem.lines().filter(|line| line.starts_with('-')).collect();
    assert_eq!(headers, ["-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"]);
    let secrets = Secrets::new(&[&one.key_pem]);
    assert_eq!(secrets.leak(&chain.pem.replace("-----", "")), None);
}

#[test]
fn no_bytes_cause_a_panic_or_are_repeated_in_an_error() {
    let authority = Authority::new("test").unwrap();
    let one = authority.server(&["a.example"], Validity::Now).unwrap();
    let header = "-----BEGIN PRIVATE KEY-----";
    let body = one.key_pem.replace(header, "").replace("-----END PRIVATE KEY-----", "");
    let secrets = Secrets::new(&[&body]);
    for seed in chosen(0..MUTATED) {
        let mut random = Random::new(seed);
        let mut parts = [&one.certificate_pem, &one.key_pem].map(|pem| pem.clone().into_bytes());
        // The bytes of the text are changed, or those of its decoded form.
        let which = random.below(2) as usize;
        if random.percent(50) {
            let der = with_random_changes(one.certificate_der.clone(), &mut random);
            parts[0] = pem("CERTIFICATE", der);
        } else {
            parts[which] = with_random_changes(std::mem::take(&mut parts[which]), &mut random);
        }
        match read(&parts[0], &parts[1]) {
            Ok(chain) => assert!(chain.certificates > 0 && chain.digest.len() == 64),
            Err(why) => assert_eq!(secrets.leak(&why), None, "CCM_TEST_SEED={seed}: {why}"),
        }
    }
}

fn pem(what: &str, der: Vec<u8>) -> Vec<u8> {
    use base64::Engine;
    let base64 = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {what}-----\n{base64}\n-----END {what}-----\n").into_bytes()
}

/// Returns the bytes with one to three random changes.
fn with_random_changes(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len().max(1) as u64) as usize;
        if at >= bytes.len() {
            break;
        }
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = *random.pick(&[0, 0x30, 0x7f, 0x80, 0x84, 0xff, b'-', b'\n']),
            2 => bytes.truncate(at),
            3 => drop(bytes.remove(at)),
            _ => bytes.insert(at, *random.pick(&[0, 0x30, 0x82, 0xff, b'A'])),
        }
    }
    bytes
}
