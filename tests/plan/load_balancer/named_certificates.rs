//! Certificates that are not the Service's own: which of them its annotations may name, and what happens to its ports
//! when one is refused.

use crate::load_balancer::support::{PROFILES, World, certificate, environment, port, words};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{CLUSTER_UID, SECRET, SERVICE, SERVICE_UID, Selector};
use ccm::provider::{CertificateDomains, Reason};

type Labels<'a> = &'a [(&'a str, &'a str)];

const HERE: (&str, &str) = (CLUSTER_UID, "cluster-1");
const ELSEWHERE: (&str, &str) = (CLUSTER_UID, "cluster-2");

/// The certificate that the Service names.
const ID: u64 = 90;

/// Returns a world with ports 80 and 443. The second port names the certificate.
fn world(profile: Profile, labels: Labels) -> World {
    let mut world = World::new(profile);
    world.service.ports = vec![port("http", 80), port("https", 443)];
    world.set("protocol.https=https http-certificates=bought");
    let all = world.state.certificates.as_mut().unwrap();
    all.push(certificate(ID, "bought"));
    label(&mut world, labels);
    world
}

fn label(world: &mut World, labels: Labels) {
    let mut all = world.state.certificates.iter_mut().flatten();
    let named = all.find(|one| one.id == ID).unwrap();
    let labels = labels.iter();
    named.labels = labels.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
}

#[rustfmt::skip] // A case is a line.
#[test]
fn a_certificate_of_a_secret_belongs_to_its_namespace_and_one_of_another_cluster_to_nobody() {
    let long = "n".repeat(60);
    let same_beginning = format!("{}x", "n".repeat(59));
    // The label is cut like this, after 54 letters and with a hash.
    let cut = format!("default.{}-0123abcd", "s".repeat(46));
    let cut_in_namespace = format!("{}-0123abcd", "n".repeat(54));
    // Namespace of the Service, labels of the certificate, may it be named?
    let cases: &[(&str, Labels, bool)] = &[
        ("default", &[], true),
        ("default", &[("team", "a")], true),
        ("default", &[HERE, (SECRET, "default.web-tls")], true),
        ("default", &[(SECRET, "default.web-tls")], true),
        ("default", &[HERE, (SECRET, "default.web.tls")], true),
        ("default", &[HERE, (SECRET, &cut)], true),
        ("default", &[HERE, (SECRET, "shop.web-tls")], false),
        ("default", &[(SECRET, "shop.web-tls")], false),
        ("default", &[HERE, (SECRET, "shop.default")], false),
        ("default", &[HERE, (SECRET, "default-shop.web-tls")], false),
        ("default-shop", &[HERE, (SECRET, "default.web-tls")], false),
        // Nothing shows the owner.
        ("default", &[HERE, (SECRET, "default")], false),
        ("default", &[HERE, (SECRET, "")], false),
        (&long, &[HERE, (SECRET, &cut_in_namespace)], false),
        (&same_beginning, &[HERE, (SECRET, &cut_in_namespace)], false),
        // A managed one is shared by its name.
        ("default", &[HERE, (SERVICE, "shop.web"), (SERVICE_UID, "lives")], true),
        ("default", &[ELSEWHERE], false),
        ("default", &[ELSEWHERE, (SECRET, "default.web-tls")], false),
        ("default", &[ELSEWHERE, (SERVICE, "default.web")], false),
    ];
    for ((namespace, labels, is_allowed), named) in cases.iter().flat_map(|case| ["90", "bought"].map(|named| (case, named))) {
        let about = format!("{namespace} {labels:?} {named}");
        let mut world = world(Profile::CcmFromScratch, labels);
        world.service.namespace = (*namespace).to_owned();
        world.set_one("http-certificates", named);
        world.converge();
        assert_eq!(world.shows(80), Some(vec![]), "{about}");
        assert_eq!(world.shows(443), is_allowed.then(|| vec![ID]), "{about}");
        let told = world.finding_messages(Reason::CertificateFailed);
        assert_eq!(told.len(), usize::from(!is_allowed), "{about}: {told:?}");
        for why in told {
            assert!(why.contains("port 443") && why.contains(&format!("{named:?}")), "{why}");
            // The message contains no more about the certificate than the user typed.
            assert!(!why.contains("shop.") && !why.contains("cluster-2"), "{why}");
            assert_eq!(why.contains("bought"), named == "bought", "{why}");
        }
    }
}

/// This happens after an upgrade, or with a new setting.
#[test]
fn a_port_keeps_the_refused_certificate_that_it_shows_and_everything_else_is_synced() {
    for profile in PROFILES {
        let mut world = world(profile, &[]);
        world.set("http-certificates=bought,one");
        world.converge();
        assert_eq!(world.shows(443), Some(vec![ID, 7]));
        label(&mut world, &[HERE, (SECRET, "shop.web-tls")]);
        assert_eq!(words(&world.converge()), "");
        assert_eq!(world.finding_messages(Reason::CertificateFailed).len(), 1);
        assert!(!world.plan().outcome.is_unfinished(), "it is as it can be");
        // Allowed certificates follow the annotation.
        world.set("http-certificates=bought,two");
        world.set("algorithm-type=least_connections");
        assert_eq!(words(&world.converge()), "change_algorithm update_service");
        assert_eq!(world.shows(443), Some(vec![8, ID]));
        world.set("http-certificates=bought");
        world.set("http-sticky-sessions=true");
        assert_eq!(words(&world.converge()), "update_service");
        // A new port does not get it, alone or beside another.
        world.service.ports.push(port("more", 8443));
        world.service.ports.push(port("beside", 9443));
        world.service.ports.push(port("tcp", 9000));
        world.set("protocol.more=https protocol.beside=https");
        world.set("http-certificates.beside=bought,one");
        assert_eq!(words(&world.converge()), "add_service add_service");
        assert_eq!(world.shows(8443), None);
        assert_eq!(world.shows(9443), Some(vec![7]));
        assert_eq!(world.shows(9000), Some(vec![]));
        assert_eq!(world.shows(443), Some(vec![8, ID]));
        // A certificate that is not named any more is not shown any more.
        world.set("http-certificates=one");
        world.converge();
        assert_eq!(world.shows(443), Some(vec![7]));
        // The finding is about the port that names both.
        assert_eq!(world.finding_messages(Reason::CertificateFailed).len(), 1);
    }
}

#[test]
fn a_near_miss_names_no_certificate_of_others() {
    for (labels, is_named) in
        [(&[][..], true), (&[HERE, (SECRET, "shop.web-tls")], false), (&[ELSEWHERE], false)]
    {
        let mut world = world(Profile::CcmFromScratch, labels);
        world.set("http-certificates=bougth");
        let message = world.obstacle();
        assert_eq!(message.contains("bought"), is_named, "{message}");
    }
}

/// A managed certificate with the UID of the Service and the label of another cluster, as in a copy of a cluster.
#[test]
fn a_managed_certificate_of_another_cluster_is_not_the_services() {
    let mut world = managed("example.com");
    world.converge();
    world.issue();
    world.converge();
    let shown = world.shows(443).unwrap();
    let mut all = world.state.certificates.iter_mut().flatten();
    let own = all.find(|one| shown == [one.id]).unwrap();
    own.labels.insert(CLUSTER_UID.to_owned(), "cluster-2".to_owned());
    world.service.ports.push(port("more", 8443));
    world.service.ports.push(port("tcp", 9000));
    world.set("protocol.more=https");
    assert_eq!(words(&world.converge()), "add_service");
    assert_eq!(world.shows(443), Some(shown), "it stays");
    assert_eq!(world.shows(8443), None);
    assert_eq!(world.finding_messages(Reason::CertificateFailed).len(), 1);
}

const SELECTOR: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR";
const DOMAINS: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS";

fn select(world: &mut World, selector: &str) {
    let selector = Selector::parse(selector).unwrap();
    world.defaults.permitted.certificate_selector = Some(environment(SELECTOR, selector));
}

fn limit(world: &mut World, domains: &str) {
    let domains = CertificateDomains::parse(domains).unwrap();
    world.defaults.permitted.certificate_domains = Some(environment(DOMAINS, domains));
}

#[rustfmt::skip] // A case is a line.
#[test]
fn the_selector_is_about_certificates_that_no_service_of_the_namespace_made() {
    let own_uid = World::new(Profile::CcmFromScratch).service.uid;
    let cases: &[(Labels, &str, bool)] = &[
        (&[], "", true),
        (&[], "use=services", false),
        (&[("use", "services")], "use=services", true),
        (&[("use", "gateway")], "use=services", false),
        (&[], "!reserved", true),
        (&[HERE, (SECRET, "default.web-tls")], "use=services", true),
        (&[(SECRET, "shop.web-tls"), ("use", "services")], "use=services", false),
        (&[HERE, (SERVICE, "default.other")], "use=services", true),
        (&[HERE, (SERVICE, "shop.other")], "use=services", false),
        (&[(SERVICE, "default.other")], "use=services", false),
        (&[(SERVICE_UID, &own_uid)], "use=services", true),
        (&[ELSEWHERE, ("use", "services")], "use=services", false),
    ];
    for (labels, selector, is_allowed) in cases {
        let mut world = world(Profile::CcmFromScratch, labels);
        select(&mut world, selector);
        world.converge();
        assert_eq!(world.shows(443), is_allowed.then(|| vec![ID]), "{labels:?} {selector}");
        assert_eq!(world.finding_messages(Reason::CertificateFailed).len(), usize::from(!is_allowed), "{labels:?} {selector}");
    }
    // A managed certificate is not taken over by its name either, and nothing else waits for it.
    let mut world = managed("example.com");
    world.set("http-managed-certificate-name=bought");
    let mut all = world.state.certificates.iter_mut().flatten();
    let named = all.find(|one| one.id == ID).unwrap();
    (named.status, named.domain_names) = (Some(Default::default()), vec!["example.com".into()]);
    select(&mut world, "use=services");
    assert_eq!(words(&world.converge()), "create");
    assert_eq!((world.shows(443), world.finding_messages(Reason::CertificateFailed).len()), (None, 1));
    select(&mut world, "");
    assert_eq!(words(&world.converge()), "edit_certificate");
}

/// A Service with a managed certificate for these domains on port 443.
fn managed(domains: &str) -> World {
    let mut world = world(Profile::CcmFromScratch, &[]);
    world.unset("http-certificates");
    world.set("certificate-type=managed");
    world.set_one("http-managed-certificate-domains", domains);
    world
}

#[rustfmt::skip] // A case is a line.
#[test]
fn managed_certificates_are_for_the_allowed_domains_and_their_subdomains() {
    let cases = [
        ("example.com", "example.com", true),
        ("Example.COM", "EXAMPLE.com,*.example.com,a.b.example.com", true),
        ("example.com,example.org", "example.com,www.example.org", true),
        ("example.com", "example.com,example.org", false),
        ("example.com", "badexample.com", false),
        ("www.example.com", "example.com", false),
        ("www.example.com", "*.example.com", false),
        ("none", "example.com", false),
    ];
    for (allowed, domains, is_ordered) in cases {
        let mut world = managed(domains);
        limit(&mut world, allowed);
        let made = words(&world.converge());
        assert_eq!(made.contains("create_certificate"), is_ordered, "{allowed} {domains}");
        assert_eq!(world.shows(80), Some(vec![]), "{allowed} {domains}");
        assert_eq!(world.finding_messages(Reason::CertificateFailed).len(), usize::from(!is_ordered), "{allowed} {domains}");
    }
    // A certificate that is shown stays when the limit comes later.
    let mut world = managed("example.com");
    world.converge();
    world.issue();
    world.converge();
    let shown = world.shows(443);
    limit(&mut world, "none");
    world.service.ports.push(port("more", 8443));
    world.service.ports.push(port("tcp", 9000));
    world.set("protocol.more=https");
    assert_eq!(words(&world.converge()), "add_service");
    assert_eq!((world.shows(443), world.shows(8443)), (shown, None));
}
