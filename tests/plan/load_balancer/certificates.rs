//! Managed certificates are ordered once, found, taken over, waited for, and never deleted.

use crate::load_balancer::project::fresh;
use crate::load_balancer::support::{
    PROFILES, UID, World, assert_says, certificate, lines, port, words,
};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{
    CLUSTER, CLUSTER_UID, Certificate, CertificateError, CertificateStatus, Reference, SERVICE,
    SERVICE_UID,
};
use ccm::provider::{Protocol, Reason};

const DEFAULT: &str = "ccm-managed-certificate-5f2c0e5e-0000-4000-8000-000000000001";

/// Ports 80 and 443, the second one with a managed certificate.
fn world(profile: Profile) -> World {
    let mut world = World::new(profile);
    world.service.ports = vec![port("http", 80), port("https", 443)];
    world.set("protocol.https=https certificate-type=managed");
    let domains = "Example.com, *.example.com";
    world.set_one("http-managed-certificate-domains", domains);
    world
}

/// A managed one that is issued, for the domains that are wanted.
fn there(id: u64, name: &str, labels: &[(&str, &str)]) -> Certificate {
    let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    Certificate {
        labels: labels.collect(),
        domain_names: vec!["*.example.com".into(), "example.com".into()],
        status: Some(status("completed")),
        ..certificate(id, name)
    }
}

fn status(issuance: &str) -> CertificateStatus {
    CertificateStatus { issuance: issuance.into(), ..CertificateStatus::default() }
}

fn add(world: &mut World, certificate: Certificate) {
    world.state.certificates.as_mut().unwrap().push(certificate);
}

#[test]
fn a_certificate_is_ordered_before_its_port_and_the_port_is_added_when_it_is_issued() {
    for profile in PROFILES {
        let mut world = world(profile);
        let made = world.converge();
        assert_eq!(words(&made), "create_certificate create");
        let certificate = world.certificate(DEFAULT).clone();
        assert_eq!(certificate.domain_names, ["*.example.com", "example.com"]);
        let labels = [SERVICE_UID, CLUSTER_UID, CLUSTER, SERVICE].map(|key| {
            let value = certificate.labels.get(key);
            value.map(String::as_str).unwrap()
        });
        assert_eq!(labels, [UID, "cluster-1", "kubernetes", "default.web"]);
        assert!(!certificate.labels.contains_key("HC-Use-Staging-CA"));
        // The port waits, but the other port and the status do not.
        assert_eq!(world.shows(443), None);
        let plan = world.plan();
        assert!(plan.outcome.is_unfinished() && !plan.status.unwrap().is_empty());
        let told = world.finding_messages(Reason::CertificatePending).remove(0);
        assert_says(&told, &["port 443 waits for certificate \"ccm-"]);
        world.issue();
        let made = lines(&world.converge());
        assert_eq!(made, ["port 443: added, https to node port 30443"]);
        assert_eq!(world.shows(443), Some(vec![certificate.id]));
        assert!(!world.plan().outcome.is_unfinished());
    }
}

#[test]
fn a_failed_issuance_is_reported_with_its_reason_and_the_rest_is_synced() {
    let mut world = world(Profile::CcmFromScratch);
    world.converge();
    let all = world.state.certificates.as_mut().unwrap();
    let ordered = all.last_mut().unwrap();
    let id = ordered.id;
    ordered.status = Some(CertificateStatus {
        error: Some(CertificateError {
            code: "dns_zone_not_found".into(),
            message: "DNS zone not found".into(),
        }),
        ..status("failed")
    });
    world.set("algorithm-type=least_connections");
    assert_eq!(words(&world.converge()), "change_algorithm");
    let plan = world.plan();
    assert!(plan.outcome.is_unfinished());
    let told = plan.findings.iter();
    let mut told = told.filter(|one| one.reason == Reason::CertificateFailed);
    let message = told.next().expect("told").text();
    let retry = format!("hcloud certificate retry {id}");
    let why = "DNS zone not found (dns_zone_not_found)";
    let parts = ["port 443 waits", why, "DNS zones of this project", &retry];
    assert_says(&message, &parts);
}

/// What the annotation names: 90 is issued, `pending` (91) and `failed` (92) are not, and none of them is the Service's
/// own. What a new port shows; what one shows that has 7 already; what is told of the port; and the same after the end
/// of issuance.
#[rustfmt::skip] // A case is a line.
type Named = (&'static str, Option<&'static [u64]>, &'static [u64], Option<Reason>, &'static [u64]);

#[rustfmt::skip] // A case is a line.
const NAMED: &[Named] = &[
    ("90", Some(&[90]), &[90], None, &[90]),
    ("pending", None, &[7], Some(Reason::CertificatePending), &[91]),
    ("91", None, &[7], Some(Reason::CertificatePending), &[91]),
    ("failed", None, &[7], Some(Reason::CertificateFailed), &[92]),
    ("90,pending", Some(&[90]), &[7, 90], Some(Reason::CertificatePending), &[90, 91]),
    ("pending,7", Some(&[7]), &[7], Some(Reason::CertificatePending), &[91, 7]),
];

/// The API refuses the port, and in a POST all of the load balancer.
#[test]
fn a_named_certificate_that_is_not_issued_yet_is_waited_for() {
    for (names, new, beside, told, after) in NAMED {
        let both = [(false, *new), (true, Some(*beside))];
        for (profile, (is_there, shown)) in
            PROFILES.into_iter().flat_map(|profile| both.map(|one| (profile, one)))
        {
            let mut world = World::new(profile);
            world.service.ports = vec![port("http", 80), port("https", 443)];
            world.set("protocol.443=https http-certificates=7");
            if is_there {
                world.converge();
            }
            for (id, name, issuance) in
                [(90, "ours", "completed"), (91, "pending", "pending"), (92, "failed", "failed")]
            {
                let mut one = there(id, name, &[]);
                one.status = Some(status(issuance));
                add(&mut world, one);
            }
            world.set_one("http-certificates", names);
            world.converge();
            assert_eq!(world.shows(443).as_deref(), shown, "{names} {is_there}");
            assert_ne!(world.shows(80), None);
            let plan = world.plan();
            let findings = plan.findings.iter().map(|one| one.reason);
            let about = [Reason::CertificatePending, Reason::CertificateFailed];
            let findings: Vec<Reason> = findings.filter(|one| about.contains(one)).collect();
            assert_eq!(findings, Vec::from_iter(*told), "{names}");
            assert_eq!(plan.outcome.is_unfinished(), told.is_some(), "{names}");
            assert!(!plan.status.unwrap().is_empty(), "{names}");
            world.issue();
            world.converge();
            let shown = world.shows(443);
            assert_eq!(shown.as_deref(), Some(*after), "{names} {is_there}");
            assert!(!world.plan().outcome.is_unfinished());
        }
    }
}

#[test]
fn a_failed_renewal_is_reported_and_the_port_stays() {
    let mut world = world(Profile::CcmFromScratch);
    world.converge();
    world.issue();
    world.converge();
    let all = world.state.certificates.as_mut().unwrap();
    all.last_mut().unwrap().status.as_mut().unwrap().renewal = "failed".into();
    assert!(world.converge().is_empty());
    assert!(world.findings().contains(&Reason::CertificateFailed));
    assert!(!world.plan().outcome.is_unfinished());
}

/// A port that shows an uploaded certificate goes on with it until the managed one is there.
#[test]
fn a_port_shows_its_old_certificate_while_another_is_issued() {
    let mut world = world(Profile::CcmFromScratch);
    world.set("certificate-type=uploaded http-certificates=one");
    world.converge();
    assert_eq!(world.shows(443), Some(vec![7]));
    world.set("certificate-type=managed http-sticky-sessions=true");
    assert_eq!(words(&world.converge()), "create_certificate update_service");
    assert_eq!(world.shows(443), Some(vec![7]));
    world.issue();
    assert_eq!(words(&world.converge()), "update_service");
    let ordered = world.state.certificates.iter().flatten().next_back();
    assert_eq!(world.shows(443), Some(vec![ordered.unwrap().id]));
    // A port that spoke tcp still does.
    let mut world = self::world(Profile::CcmFromScratch);
    world.set("protocol.https=tcp");
    world.converge();
    world.set("protocol.https=https");
    assert_eq!(words(&world.converge()), "create_certificate");
    assert_eq!(world.balancer().services.len(), 2);
    world.issue();
    assert_eq!(words(&world.converge()), "update_service");
}

/// Name, labels, whether the domains are the wanted ones, whether a load balancer shows it.
#[rustfmt::skip]
type There = (&'static str, &'static [(&'static str, &'static str)], bool, bool);

/// The result, which is a word or what the error says.
#[derive(Clone, Copy)]
enum End {
    Shown,
    TakenOver,
    Ordered,
    Refused(&'static str),
}

#[rustfmt::skip] // A case is a line.
#[test]
fn an_existing_certificate_is_used_taken_over_or_refused() {
    const OWN: (&str, &str) = (SERVICE_UID, UID);
    const GONE: (&str, &str) = (SERVICE_UID, "gone");
    const LIVES: (&str, &str) = (SERVICE_UID, "lives");
    const HERE: (&str, &str) = (CLUSTER_UID, "cluster-1");
    const FORMER: (&str, &str) = (CLUSTER_UID, "cluster-0");
    const ELSEWHERE: (&str, &str) = (CLUSTER_UID, "cluster-2");
    const WEB: (&str, &str) = (SERVICE, "default.web");
    use End::{Ordered, Refused, Shown, TakenOver};
    // The annotation asks for a name, or not.
    let cases: &[(Option<&str>, There, End)] = &[
        (None, (DEFAULT, &[OWN], true, true), Shown),
        (None, ("other", &[OWN], true, true), Shown),
        (None, ("other", &[OWN], false, true), Shown),
        (None, ("other", &[OWN, ("HC-Use-Staging-CA", "true")], true, false), Shown),
        (None, ("other", &[GONE], true, false), Ordered),
        (None, ("other", &[GONE, HERE, WEB], true, true), TakenOver),
        (None, ("other", &[GONE, HERE, WEB], false, true), Ordered),
        (None, ("other", &[GONE, HERE, (SERVICE, "default.api")], true, true), Ordered),
        (None, ("other", &[GONE, FORMER, WEB], true, true), TakenOver),
        (None, ("other", &[GONE, ELSEWHERE, WEB], true, true), Ordered),
        (None, ("other", &[LIVES, HERE, WEB], true, true), Ordered),
        (Some("front"), ("front", &[OWN], true, true), Shown),
        (Some("front"), ("front", &[OWN], false, true), Shown),
        (Some("front"), ("other", &[OWN], true, true), Shown),
        (Some("front"), ("other", &[OWN], false, true), Ordered),
        (Some("front"), ("other", &[GONE, HERE, WEB], true, true), Ordered),
        (Some("front"), ("front", &[], true, true), TakenOver),
        (Some("front"), ("front", &[("team", "a")], true, false), TakenOver),
        (Some("front"), ("front", &[GONE, HERE], true, true), TakenOver),
        (Some("front"), ("front", &[GONE, FORMER], true, true), TakenOver),
        (Some("front"), ("front", &[GONE], true, false), TakenOver),
        (Some("front"), ("front", &[GONE], true, true), Refused("a load balancer uses the certificate")),
        (Some("front"), ("front", &[GONE, HERE], false, true), Refused("it is for other.example")),
        (Some("front"), ("front", &[LIVES, HERE], true, true), Refused("another Service (lives)")),
        (Some("front"), ("front", &[ELSEWHERE], true, false), Refused("names another cluster (cluster-2)")),
        (Some("front"), ("front", &[("HC-Use-Staging-CA", "true")], true, false), Refused("the test service of Let's \
                                                                                           Encrypt")),
    ];
    for (at, (name, (there_name, labels, same, used), end)) in cases.iter().enumerate() {
        let mut world = world(Profile::CcmFromScratch);
        world.cluster.service_uids.insert("lives".into());
        world.cluster.former_uids = vec!["cluster-0".into()];
        if let Some(name) = name {
            world.set_one("http-managed-certificate-name", name);
        }
        let mut one = there(90, there_name, labels);
        if !same {
            one.domain_names = vec!["other.example".into()];
        }
        if *used {
            one.used_by = vec![Reference { id: 3 }];
        }
        add(&mut world, one.clone());
        let about = format!("case {at}: {there_name} {labels:?}");
        if let Refused(why) = end {
            let message = world.obstacle();
            for part in [why, "\"front\" (90)", "http-managed-certificate-name", "http-certificates"] {
                assert!(message.contains(part), "{about}: {message}");
            }
            continue;
        }
        let certain = labels.iter().any(|one| *one == GONE || *one == LIVES);
        let rests = certain && (matches!(end, TakenOver) || *labels == [LIVES, HERE, WEB]);
        assert_eq!(world.needs().services, rests, "{about}");
        let made = world.converge();
        let shown = world.shows(443);
        match end {
            Shown => {
                assert_eq!(words(&made), "create", "{about}");
                assert_eq!(shown, Some(vec![90]), "{about}");
            }
            TakenOver => {
                assert_eq!(words(&made), "edit_certificate create", "{about}");
                assert_eq!(shown, Some(vec![90]), "{about}");
                let after = &world.certificate(there_name).labels;
                assert_eq!(after[SERVICE_UID], UID, "{about}");
                // Labels of others stay.
                assert!(!labels.contains(&("team", "a")) || after["team"] == "a", "{about}");
            }
            Ordered => {
                assert_eq!(words(&made), "create_certificate create", "{about}");
                assert_eq!(shown, None, "{about}");
            }
            Refused(_) => unreachable!(),
        }
        // A difference from the wanted certificate is reported, and nothing of the certificate is changed.
        let differs = !same || labels.contains(&("HC-Use-Staging-CA", "true"));
        let told = world.findings().contains(&Reason::AnnotationWithoutEffect);
        assert_eq!(told, differs && matches!(end, Shown), "{about}");
        let domains = &world.certificate(there_name).domain_names;
        assert_eq!(*domains, one.domain_names, "{about}");
    }
}

#[test]
fn a_port_shows_the_certificate_of_the_wanted_name_when_two_have_the_label() {
    let own = &[(SERVICE_UID, UID)];
    let mut world = world(Profile::CcmFromScratch);
    for (id, name) in [(90, "first"), (91, "second")] {
        let mut one = there(id, name, own);
        one.domain_names = vec!["other.example".into()];
        add(&mut world, one);
    }
    let message = world.obstacle();
    let says = "\"first\" (90), \"second\" (91) have the same label";
    assert!(message.contains(says), "{message}");
    world.set("http-managed-certificate-name=second");
    world.converge();
    assert_eq!(world.shows(443), Some(vec![91]));
}

#[test]
fn each_port_may_have_its_own_certificate() {
    let mut world = world(Profile::CcmFromScratch);
    world.service.ports.push(port("admin", 8443));
    world.service.ports.push(port("more", 9443));
    world.set("protocol.admin=https protocol.9443=https");
    // All of one name, and one for other domains.
    world.set("http-managed-certificate-domains.admin=admin.example.com");
    let message = world.obstacle();
    let parts = [
        "port 8443 asks for another managed certificate than port 443",
        "http-managed-certificate-name.8443",
    ];
    assert_says(&message, &parts);
    world.set("http-managed-certificate-name.8443=admin");
    world.set("http-managed-certificate-acme-staging.admin=true");
    let made = world.converge();
    assert_eq!(words(&made), "create_certificate create_certificate create");
    world.issue();
    let added = words(&world.converge());
    assert_eq!(added, "add_service add_service add_service");
    let [usual, admin] = [DEFAULT, "admin"].map(|name| Some(vec![world.certificate(name).id]));
    let shown = [443, 8443, 9443].map(|number| world.shows(number));
    assert_eq!(shown, [usual.clone(), admin, usual]);
    let admin = world.certificate("admin");
    assert_eq!(admin.labels["HC-Use-Staging-CA"], "true");
    // One of the certificates may be an uploaded one.
    world.set("certificate-type.more=uploaded");
    world.set("http-certificates.more=two");
    assert_eq!(words(&world.converge()), "update_service");
}

/// The one of another port is not this one's, even for the same domains.
#[test]
fn a_port_does_not_take_what_another_port_asks_for_by_name() {
    for domains in ["example.com,*.example.com", "admin.example.com"] {
        let mut world = world(Profile::CcmFromScratch);
        world.service.ports.push(port("admin", 8443));
        world.set("protocol.admin=https http-managed-certificate-name.admin=admin");
        world.set_one("http-managed-certificate-domains.admin", domains);
        add(&mut world, there(90, "admin", &[(SERVICE_UID, UID)]));
        let ordered = words(&world.converge());
        assert_eq!(ordered, "create_certificate create", "{domains}");
        assert_eq!(world.certificate(DEFAULT).labels[SERVICE_UID], UID);
    }
}

#[test]
fn an_uploaded_certificate_of_the_name_is_somebody_else_s() {
    let mut world = world(Profile::CcmFromScratch);
    let mut one = there(90, "front", &[]);
    one.status = None;
    add(&mut world, one);
    world.set("http-managed-certificate-name=front");
    let message = world.obstacle();
    assert!(message.contains("\"front\" (90)"), "{message}");
    assert!(message.contains("it was uploaded"), "{message}");
}

/// A port that the load balancer does not serve needs no certificate.
#[test]
fn a_udp_port_needs_no_certificate() {
    let mut world = world(Profile::CcmFromScratch);
    world.service.ports[1].protocol = Protocol::Udp;
    world.unset("http-managed-certificate-domains");
    assert_eq!(words(&world.converge()), "create");
}

#[test]
fn no_certificate_is_ordered_without_valid_domains() {
    for (domains, expected) in [
        ("", "no annotation names its domains"),
        ("example", "\"example\" is no domain"),
        ("a.example, b example.com", "\"b example.com\" is no domain"),
        ("*.*.example.com", "\"*.*.example.com\" is no domain"),
    ] {
        let mut world = world(Profile::CcmFromScratch);
        world.set_one("http-managed-certificate-domains", domains);
        let message = world.obstacle();
        assert_says(&message, &[expected, "http-managed-certificate-domains"]);
    }
    // A port that shows none needs none.
    let mut world = world(Profile::CcmFromScratch);
    world.set("protocol.https=tcp");
    world.unset("http-managed-certificate-domains");
    assert_eq!(words(&world.converge()), "create");
}

/// A change that fails keeps the others from nothing.
#[test]
fn a_load_balancer_does_not_depend_on_the_order_of_certificates() {
    let mut world = world(Profile::CcmFromScratch);
    world.state.balancers = vec![fresh(1, "kubernetes-default-web", "lb11")];
    let planned = world.plan().outcome.take_changes();
    assert!(words(&planned).starts_with("create_certificate "));
    assert!(planned[0].may_fail_alone());
    let requests = planned.iter().map(|one| one.json());
    let mut ports = requests.map(|json| json["request"]["listen_port"].clone());
    assert!(ports.all(|port| port != 443));
    world.converge();
    assert_eq!(world.balancer().services.len(), 1);
}
