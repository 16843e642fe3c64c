//! Certificates from Secrets: what each port shows depends on the Secrets and on earlier uploads.

use crate::load_balancer::support::{PROFILES, UID, World, port, words};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{CLUSTER_UID, Certificate, Reference, SECRET};
use ccm::provider::{Reason, Secret, TlsPair};
use std::sync::Arc;

const KEY: &str = "the private key";

/// The annotation by which port 443 shows what is in one Secret.
const WEB_TLS: &str = "http-tls-secret.https=web-tls";

/// The writes when a Secret contains another pair.
const UPLOADED: &str = "create_certificate update_service";

fn world(profile: Profile, annotations: &str) -> World {
    let mut world = World::new(profile);
    world.service.ports = vec![port("http", 80), port("https", 443), port("more", 8443)];
    world.set("protocol.https=https");
    world.set(annotations);
    world
}

/// Gives the Secret a valid pair, which is made of this digit.
fn holds(world: &mut World, secret: &str, digit: &str) {
    let pair = TlsPair {
        chain: "the chain".into(),
        certificates: 1,
        digest: digit.repeat(64),
        key: Secret::exactly(KEY.into()),
    };
    put(world, secret, pair);
}

fn put(world: &mut World, secret: &str, pair: TlsPair) {
    let key = ("default".to_owned(), secret.to_owned());
    world.cluster.tls_secrets.insert(key, Ok(Arc::new(pair)));
}

fn fails(world: &mut World, secret: &str) {
    let key = ("default".to_owned(), secret.to_owned());
    let broken = Err("it is broken".into());
    world.cluster.tls_secrets.insert(key, broken);
}

/// Returns what port 443 shows, as the digit of each certificate or its ID, or `None` when there is no such port.
fn shows(world: &World) -> Option<Vec<String>> {
    let shown = world.shows(443)?.into_iter().map(|id| {
        let mut all = world.state.certificates.iter().flatten();
        let one = all.find(|one| one.id == id).unwrap();
        match one.labels.contains_key(SECRET) {
            true => one.name.chars().last().unwrap().to_string(),
            false => id.to_string(),
        }
    });
    Some(shown.collect())
}

fn shown(digits: &[&str]) -> Option<Vec<String>> {
    Some(digits.iter().map(|digit| (*digit).to_owned()).collect())
}

#[test]
fn each_port_shows_the_present_certificates_of_its_secrets() {
    for profile in PROFILES {
        let mut world = world(profile, "");
        world.set_one("http-tls-secret.https", "web-tls, api-tls");
        holds(&mut world, "web-tls", "a");
        holds(&mut world, "api-tls", "b");
        let made = words(&world.converge());
        let uploads = "create_certificate create_certificate ";
        assert!(made.starts_with(uploads), "{made}");
        assert_eq!(shows(&world), shown(&["a", "b"]));
        let mut all = world.state.certificates.iter().flatten();
        let is_first = |one: &&Certificate| one.name.starts_with("ccm-default-web-tls-");
        let one = all.find(is_first).unwrap();
        assert!(one.name.len() <= 63, "{}", one.name);
        assert_eq!(one.labels[SECRET], "default.web-tls");
        assert_eq!(one.labels[CLUSTER_UID], "cluster-1");
        let mut labels = one.labels.keys();
        assert!(labels.all(|label| !label.starts_with("hcloud-ccm/")));
        // One Secret is renewed.
        holds(&mut world, "web-tls", "c");
        assert_eq!(words(&world.converge()), UPLOADED);
        assert_eq!(shows(&world), shown(&["c", "b"]));
        // One Secret can't be used while the other is renewed. The certificate that was uploaded from it stays.
        fails(&mut world, "api-tls");
        holds(&mut world, "web-tls", "d");
        assert_eq!(words(&world.converge()), UPLOADED);
        assert_eq!(shows(&world), shown(&["d", "b"]));
        assert_eq!(world.findings(), [Reason::CertificateFailed]);
    }
}

#[test]
fn a_secret_that_was_never_uploaded_leaves_the_port_as_it_is() {
    let mut world = world(Profile::CcmFromScratch, WEB_TLS);
    fails(&mut world, "web-tls");
    world.converge();
    assert_eq!(shows(&world), None, "and the others are there");
    assert_eq!(world.balancer().services.len(), 2);
    // A port that shows another certificate keeps it.
    world.unset("http-tls-secret.https");
    world.set("http-certificates.https=one");
    world.converge();
    world.unset("http-certificates.https");
    world.set(WEB_TLS);
    assert_eq!(words(&world.converge()), "");
    assert_eq!(shows(&world), shown(&["7"]));
    // The Secrets were not read, which has the same effect.
    world.cluster.tls_secrets.clear();
    assert_eq!(words(&world.converge()), "");
    assert_eq!(world.findings(), []);
    holds(&mut world, "web-tls", "a");
    assert_eq!(words(&world.converge()), UPLOADED);
    assert_eq!(shows(&world), shown(&["a"]));
}

/// A certificate that a load balancer uses is chosen first, and then the newest. One of another cluster or a managed
/// one is never chosen.
#[test]
fn one_of_several_uploaded_certificates_is_chosen_for_certain() {
    let mut world = world(Profile::CcmFromScratch, WEB_TLS);
    for digit in ["a", "b", "c"] {
        holds(&mut world, "web-tls", digit);
        world.plan();
        world.converge();
    }
    let id = |world: &World, digit: &str| {
        let mut all = world.state.certificates.iter().flatten();
        all.find(|one| one.name.ends_with(digit)).unwrap().id
    };
    fails(&mut world, "web-tls");
    for (used, expected) in [("b", "b"), ("", "c")] {
        let used = (!used.is_empty()).then(|| id(&world, used));
        for one in world.state.certificates.iter_mut().flatten() {
            let is_used = Some(one.id) == used;
            one.used_by = Vec::from_iter(is_used.then_some(Reference { id: 1000 }));
        }
        world.converge();
        assert_eq!(shows(&world), shown(&[expected]));
    }
    for one in world.state.certificates.iter_mut().flatten() {
        one.labels.insert(CLUSTER_UID.to_owned(), "another".into());
    }
    assert_eq!(words(&world.converge()), "", "what it shows stays");
}

/// The name of such a certificate has a hash of the identity under which it was uploaded.
#[test]
fn a_certificate_that_was_uploaded_under_a_former_identity_is_shown_and_not_uploaded_again() {
    for profile in PROFILES {
        let mut world = world(profile, WEB_TLS);
        world.cluster.uid = "cluster-0".into();
        holds(&mut world, "web-tls", "a");
        world.converge();
        world.cluster.uid = "cluster-1".into();
        world.cluster.former_uids = vec!["cluster-x".into(), "cluster-0".into()];
        let made = words(&world.converge());
        assert!(!made.contains("create_certificate"), "{made}");
        assert_eq!(shows(&world), shown(&["a"]));
        // The Secret can't be used, and the certificate that was uploaded from it stays.
        fails(&mut world, "web-tls");
        assert_eq!(words(&world.converge()), "");
        assert_eq!(world.findings(), [Reason::CertificateFailed]);
        // Another cluster's is no former one.
        holds(&mut world, "web-tls", "a");
        world.cluster.former_uids = vec!["cluster-x".into()];
        assert_eq!(words(&world.converge()), UPLOADED);
    }
}

#[test]
fn a_certificate_that_hetzner_does_not_accept_is_reported_and_not_sent() {
    let good = TlsPair { digest: "a".repeat(64), ..TlsPair::default() };
    let key = |bytes: usize| Secret::exactly("x".repeat(bytes));
    #[rustfmt::skip] // A case is a line.
    let cases = [
        (TlsPair { key: key(5000), ..good.clone() }, true),
        (TlsPair { key: key(5001), ..good.clone() }, false),
        (TlsPair { certificates: 5, ..good.clone() }, true),
        (TlsPair { certificates: 6, ..good.clone() }, false),
        (TlsPair { chain: "x".repeat(30_000), ..good.clone() }, true),
        (TlsPair { chain: "x".repeat(30_001), ..good.clone() }, false),
    ];
    for (pair, is_taken) in cases {
        let mut world = world(Profile::CcmFromScratch, WEB_TLS);
        put(&mut world, "web-tls", pair.clone());
        let plan = world.plan();
        assert_eq!(plan.claims.len(), usize::from(is_taken), "{pair:?}");
        let failed = world.finding_messages(Reason::CertificateFailed);
        assert_eq!(failed.len(), usize::from(!is_taken), "{pair:?}");
    }
}

#[test]
fn certificates_of_a_port_are_named_once() {
    for (name, value) in [("http-certificates", "one"), ("certificate-type", "managed")] {
        let mut world = world(Profile::CcmFromScratch, WEB_TLS);
        world.set("http-managed-certificate-domains=a.example");
        world.set_one(name, value);
        holds(&mut world, "web-tls", "a");
        let why = world.obstacle();
        let says_it =
            why.contains("port 443") && why.contains("both ask for certificates of this port");
        assert!(says_it, "{why}");
        // The annotation does not apply to this port.
        world.set_one(&format!("{name}.https"), "");
        world.converge();
        assert_eq!(shows(&world), shown(&["a"]));
    }
}

#[test]
fn no_part_of_the_key_is_in_a_plan() {
    let mut world = world(Profile::CcmFromScratch, WEB_TLS);
    holds(&mut world, "web-tls", "a");
    let plan = world.plan();
    let changes = plan.outcome.changes().iter();
    let json: Vec<String> = changes.map(|one| one.json().to_string()).collect();
    let all = format!("{plan:?} {json:?} {:?}", world.cluster);
    assert!(json[0].contains("create_certificate") && all.contains(UID));
    let says_it = all.contains(KEY) || json.concat().contains("the chain");
    assert!(!says_it, "{all}");
}

/// The cases are a managed certificate with the name of the upload, and one without our labels.
#[test]
fn a_certificate_with_the_name_of_an_upload_is_none_without_its_labels_and_type() {
    type Spoil = fn(&mut Certificate);
    #[rustfmt::skip] // A case is a line.
    let spoils: [Spoil; 4] = [
        |one| one.status = Some(Default::default()),
        |one| one.labels.clear(),
        |one| { drop(one.labels.insert(SECRET.to_owned(), "shop.web-tls".to_owned())) },
        |one| { drop(one.labels.insert(CLUSTER_UID.to_owned(), "another".to_owned())) },
    ];
    for spoil in spoils {
        let mut world = world(Profile::CcmFromScratch, WEB_TLS);
        holds(&mut world, "web-tls", "a");
        world.converge();
        let first = world.shows(443).unwrap();
        // Somebody else had the name before.
        let all = world.state.certificates.as_mut().unwrap();
        let taker = all.iter_mut().find(|one| first == [one.id]).unwrap();
        spoil(taker);
        let name = taker.name.clone();
        assert_eq!(words(&world.converge()), UPLOADED);
        let second = world.shows(443).unwrap();
        assert_ne!(first, second);
        let all = world.state.certificates.iter().flatten();
        let new = all.clone().find(|one| second == [one.id]).unwrap();
        assert!(new.name != name && new.name.len() <= 63, "{}", new.name);
        assert!(new.name.starts_with("ccm-default-web-tls-"), "{}", new.name);
        // The certificate is recognised from then on, also when no certificate has the usual name any more.
        assert_eq!(words(&world.converge()), "");
        let all = world.state.certificates.as_mut().unwrap();
        all.retain(|one| first != [one.id]);
        assert_eq!(words(&world.converge()), "");
        fails(&mut world, "web-tls");
        assert_eq!(words(&world.converge()), "", "it was uploaded before");
        assert_eq!(world.shows(443).unwrap(), second);
    }
}

/// Older versions used the same names, so an upgrade uploads nothing.
#[rustfmt::skip] // A case is a line.
#[test]
fn the_names_of_uploads_are_stable() {
    let digest = "a".repeat(20);
    for (secret, name) in [
        ("web-tls", format!("ccm-default-web-tls-7db06e22{digest}")),
        ("a-secret-with-a-name-that-is-far-too-long-for-a-certificate", format!("ccm-default-a-secret-with-a-name-t-7fbc1d66{digest}")),
    ] {
        let mut world = world(Profile::CcmFromScratch, &format!("http-tls-secret.https={secret}"));
        holds(&mut world, secret, "a");
        world.converge();
        let id = world.shows(443).unwrap();
        let mut all = world.state.certificates.iter().flatten();
        assert_eq!(all.find(|one| id == [one.id]).unwrap().name, name);
    }
}
