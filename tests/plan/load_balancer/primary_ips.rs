//! Primary IPs: which ones a new load balancer gets, and every reason against it.

use crate::load_balancer::support::{
    self, PROFILES, World, creation, environment, pairs, primary_ip, words,
};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{PrimaryIp, Selector};
use ccm::provider::{Field, Reason};

/// The IDs of an IPv4 and of an IPv6 address.
type Ids = (Option<u64>, Option<u64>);

/// 41 `kept` and 61 `kept6` in fsn1, 42 `far` in nbg1.
fn world(profile: Profile) -> World {
    let mut world = World::new(profile);
    world.state.primary_ips = Some(vec![
        primary_ip(41, "kept", "198.51.100.41", "fsn1"),
        primary_ip(42, "far", "198.51.100.42", "nbg1"),
        primary_ip(61, "kept6", "2001:db8:61::/64", "fsn1"),
    ]);
    world
}

fn edit(world: &mut World, name: &str, edit: impl FnOnce(&mut PrimaryIp)) {
    let mut all = world.state.primary_ips.iter_mut().flatten();
    edit(all.find(|one| one.name == name).unwrap());
}

/// Returns both IDs that the request for the creation contains.
fn asked(world: &World) -> Ids {
    let addresses = &creation(world.plan().outcome.changes())["public_net"];
    (addresses["ipv4"].as_u64(), addresses["ipv6"].as_u64())
}

#[rustfmt::skip] // A case is a line.
#[test]
fn a_primary_ip_is_named_by_id_name_or_address() {
    let cases = [
        ("public-net-ipv4=41", "", (Some(41), None)),
        ("public-net-ipv4=kept", "", (Some(41), None)),
        ("public-net-ipv4=198.51.100.41", "", (Some(41), None)),
        ("public-net-ipv6=61", "", (None, Some(61))),
        ("public-net-ipv6=2001:db8:61::1", "", (None, Some(61))),
        ("public-net-ipv6=2001:db8:61::/64", "", (None, Some(61))),
        ("public-net-ipv4=kept public-net-ipv6=kept6", "", (Some(41), Some(61))),
        ("", "198.51.100.41", (Some(41), None)),
        ("", "2001:db8:61::1", (None, Some(61))),
        ("public-net-ipv4=kept", "2001:db8:61::1", (Some(41), Some(61))),
        ("public-net-ipv4=kept", "198.51.100.42", (Some(41), None)),
        ("", "203.0.113.99", (None, None)),
        ("", "nonsense", (None, None)),
        ("", "", (None, None)),
    ];
    for (annotations, address, expected) in cases {
        let mut world = world(Profile::CcmFromScratch);
        world.set(annotations);
        world.service.load_balancer_ip = address.into();
        assert_eq!(asked(&world), expected, "{annotations} {address}");
        world.converge();
        let told = world.findings().contains(&Reason::FieldIgnored);
        let has = world.balancer().public_net.clone();
        let got = [has.ipv4.ip.unwrap().to_string(), has.ipv6.ip.unwrap().to_string()];
        let ignored = !address.is_empty() && !got.contains(&address.to_owned());
        assert_eq!(told, ignored, "{annotations} {address}");
        let all = world.finding_messages(Reason::FieldIgnored);
        let is_no_ip = all.iter().any(|told| told.contains("is no IP address"));
        assert_eq!(is_no_ip, address == "nonsense", "{annotations} {address}: {all:?}");
    }
}

#[test]
fn a_primary_ip_is_named_by_its_id_only_in_the_other_profile() {
    for (value, is_id) in [("41", true), ("kept", false), ("198.51.100.41", false)] {
        let mut world = world(Profile::Hcloud);
        world.set_one("public-net-ipv4", value);
        match is_id {
            true => assert_eq!(asked(&world), (Some(41), None)),
            false => assert!(world.obstacle().contains("use the ID of a Primary IP")),
        }
    }
}

#[rustfmt::skip] // A case is a line.
#[test]
fn a_primary_ip_that_cannot_be_claimed_is_an_error_that_says_what_to_do() {
    type Make = fn(&mut World);
    let cases: &[(&str, Make, &[&str])] = &[
        ("public-net-ipv4=nobody", |_| {}, &["the project has no Primary IP with the ID, name or address \"nobody\";"]),
        ("public-net-ipv6=nobody", |w| w.state.primary_ips = Some(vec![]), &["the project has no Primary IP with the ID, name or address \"nobody\";"]),
        ("public-net-ipv4=kept", |w| edit(w, "kept", |one| one.auto_delete = true),
            &["\"kept\" (41, 198.51.100.41)", "it would be deleted together with the load balancer", "hcloud primary-ip update --auto-delete=false 41"]),
        ("", |w| {
            w.service.load_balancer_ip = "198.51.100.41".into();
            edit(w, "kept", |one| one.auto_delete = true);
        }, &["spec.loadBalancerIP", "hcloud primary-ip update --auto-delete=false 41"]),
        ("public-net-ipv4=kept", |w| edit(w, "kept", |one| (one.assignee_id, one.assignee_type) = (Some(9), "server".into())),
            &["\"kept\" (41, 198.51.100.41)", "is already assigned to server 9", "Unassign it there, or name another Primary IP"]),
        ("public-net-ipv4=kept", |w| {
            w.state.balancers = vec![crate::load_balancer::project::fresh(9, "other", "lb11")];
            edit(w, "kept", |one| (one.assignee_id, one.assignee_type) = (Some(9), "load_balancer".into()));
        }, &["is already assigned to load balancer \"other\" (9)"]),
        ("public-net-ipv4=kept", |w| edit(w, "kept", |one| one.blocked = true), &["is blocked by Hetzner"]),
        ("public-net-ipv4=kept6", |_| {}, &["is of type ipv6", "in annotation load-balancer.hetzner.cloud/public-net-ipv6"]),
        ("public-net-ipv6=kept", |_| {}, &["is of type ipv4", "in annotation load-balancer.hetzner.cloud/public-net-ipv4"]),
        ("public-net-ipv4=far", |_| {}, &["is in nbg1", "in fsn1 (environment HCLOUD_LOAD_BALANCERS_LOCATION)", "/location to \"nbg1\""]),
        ("public-net-ipv4=kept location=hel1", |_| {}, &["is in fsn1", "in hel1 (annotation", "/location to \"fsn1\""]),
        ("public-net-ipv4=kept location= network-zone=us-east", |_| {}, &["is in eu-central", "in us-east"]),
        ("public-net-ipv4=far public-net-ipv6=kept6 location=", |_| {}, &["Primary IP \"kept6\"", "is in fsn1", "in nbg1"]),
        ("public-net-ipv4=kept disable-public-network=true use-private-ip=true", |_| {},
            &["would have no effect", "disable-public-network", "Remove one of the two"]),
        // The field of the Service means a Primary IP of the project, once there is one.
        ("", |w| {
            w.service.load_balancer_ip = "198.51.100.41".into();
            edit(w, "kept", |one| (one.assignee_id, one.assignee_type) = (Some(9), "server".into()));
        }, &["spec.loadBalancerIP", "is already assigned to server 9"]),
    ];
    for ((annotations, make, expected), profile) in cases.iter().flat_map(|case| PROFILES.map(|profile| (case, profile))) {
        let mut world = world(profile).with_network();
        let ids = [("nobody", "99"), ("kept", "41"), ("kept6", "61"), ("far", "42")];
        for (name, value) in pairs(annotations) {
            let id = ids.iter().find(|id| id.0 == value).filter(|_| profile == Profile::Hcloud);
            world.set_one(name, id.map_or(value, |id| id.1));
        }
        make(&mut world);
        let message = world.obstacle() + ";";
        for part in *expected {
            let part = if profile == Profile::Hcloud { part.replace("nobody", "99") } else { (*part).to_owned() };
            assert!(message.contains(&part), "{annotations}: {message}");
        }
    }
}

#[test]
fn a_primary_ip_decides_the_location_when_nothing_else_does() {
    for profile in PROFILES {
        for (place, expected) in [
            ("location=", "nbg1"),
            ("location=nbg1", "nbg1"),
            ("location= network-zone=eu-central", "nbg1"),
        ] {
            let mut world = world(profile);
            world.set("public-net-ipv4=42");
            world.set(place);
            world.converge();
            assert_eq!(world.balancer().location.name, expected);
            assert_eq!(world.balancer().public_net.ipv4.id, Some(42));
        }
        // The zone of the environment has the same effect.
        let mut world = world(profile);
        world.defaults.location = None;
        let zone = environment("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", "eu-central".into());
        world.defaults.network_zone = Some(zone);
        world.set("public-net-ipv4=42");
        let field = |field: &&Field| field.field == "location";
        let plan = world.plan();
        let location = plan.fields.iter().find(field).unwrap();
        assert_eq!(location.want.as_deref(), Some("nbg1"));
        assert!(location.source.to_string().contains("public-net-ipv4"));
    }
}

#[test]
fn a_load_balancer_that_is_there_keeps_its_address() {
    let none = &[][..];
    let warns = &[Reason::AnnotationWithoutEffect][..];
    // Each case has what is asked for later, whether the list was read, and what is reported.
    for (asked, is_read, expected) in [
        ("kept", true, none),
        ("41", true, none),
        ("41", false, none),
        ("198.51.100.41", false, none),
        ("kept", false, none),
        ("far", true, warns),
        ("nobody", true, warns),
        ("42", false, warns),
        ("198.51.100.42", false, warns),
        // Without the list the name may be the right one.
        ("far", false, none),
    ] {
        let mut world = world(Profile::CcmFromScratch);
        world.set("public-net-ipv4=kept type=lb11");
        world.converge();
        world.set_one("public-net-ipv4", asked);
        if !is_read {
            world.state.primary_ips = None;
        }
        assert_eq!(words(&world.converge()), "", "{asked}");
        assert_eq!(world.findings(), expected, "{asked}, read: {is_read}");
        for finding in world.plan().findings {
            for part in
                ["keeps the address 198.51.100.41", "delete the Service and create it again"]
            {
                assert!(finding.message.contains(part), "{}", finding.message);
            }
        }
    }
    let mut world = world(Profile::CcmFromScratch);
    world.set("public-net-ipv6=kept6 type=lb11");
    world.converge();
    for (asked, expected) in [
        ("2001:db8:61::1", none),
        ("2001:db8:61::/64", none),
        ("61", none),
        ("2001:db8:61:0:1::", none),
        ("2001:db8:62::1", warns),
    ] {
        world.set_one("public-net-ipv6", asked);
        for is_read in [true, false] {
            let all = world.state.primary_ips.take();
            world.state.primary_ips = all.clone().filter(|_| is_read);
            assert_eq!(world.findings(), expected, "{asked}, read: {is_read}");
            world.state.primary_ips = all;
        }
    }
}

/// The load balancer exists, and its address is not taken away.
#[test]
fn a_primary_ip_that_is_deleted_with_its_load_balancer_is_reported() {
    let mut world = world(Profile::CcmFromScratch);
    world.set("public-net-ipv4=kept type=lb11");
    world.converge();
    edit(&mut world, "kept", |one| one.auto_delete = true);
    assert_eq!(world.findings(), [Reason::AddressNotKept]);
    let message = world.plan().findings[0].message.clone();
    let command = "hcloud primary-ip update --auto-delete=false 41";
    assert!(message.contains(command), "{message}");
    assert!(world.converge().is_empty());
}

/// Tenants read the messages. They must not learn a name that they did not write.
#[test]
fn only_a_primary_ip_with_a_similar_name_is_suggested() {
    const NOT_NEAR: &str = "; hcloud primary-ip list shows those that exist";
    for (typed, near) in [
        ("kepd", "; did you mean kept?"),
        ("fat", "; did you mean far?"),
        ("kept66", NOT_NEAR),
        ("nobody", NOT_NEAR),
        ("99", NOT_NEAR),
        ("198.51.100.4", NOT_NEAR),
    ] {
        let mut world = world(Profile::CcmFromScratch);
        world.set_one("public-net-ipv4", typed);
        let expected = format!(
            "annotation load-balancer.hetzner.cloud/public-net-ipv4: the project has no Primary IP with the ID, name or address {typed:?}{near}"
        );
        assert_eq!(world.obstacle(), expected);
    }
}

fn select(world: &mut World, selector: &str) {
    let selector = Selector::parse(selector).unwrap();
    world.defaults.permitted.primary_ip_selector = Some(environment(SELECTOR, selector));
}

const SELECTOR: &str = "HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR";

#[rustfmt::skip] // A case is a line.
#[test]
fn services_claim_only_what_the_selector_selects() {
    // Labels of `kept`, the selector, is it claimed?
    let cases = [
        ("", "", true),
        ("", "use=services", false),
        ("use=services", "use=services", true),
        ("use=gateway", "use=services", false),
        ("use=gateway", "use in (services,gateway)", true),
        ("reserved=", "!reserved", false),
        ("", "!reserved", true),
    ];
    let ways = [
        ("public-net-ipv4=41", ""),
        ("public-net-ipv4=kept", ""),
        ("public-net-ipv4=198.51.100.41", ""),
        ("", "198.51.100.41"),
    ];
    for ((labels, selector, is_claimed), (annotations, address)) in cases.into_iter().flat_map(|case| ways.map(|way| (case, way))) {
        let about = format!("{labels} {selector} {annotations} {address}");
        let mut world = world(Profile::CcmFromScratch);
        select(&mut world, selector);
        edit(&mut world, "kept", |one| one.labels = support::labels(labels));
        world.set(annotations);
        world.service.load_balancer_ip = address.into();
        match (is_claimed, pairs(annotations).next()) {
            (true, _) => assert_eq!(asked(&world), (Some(41), None), "{about}"),
            (false, None) => {
                assert_eq!(asked(&world), (None, None), "{about}");
                let told = world.finding_messages(Reason::FieldIgnored).remove(0);
                assert!(told.contains(&format!("that Services may claim (environment {SELECTOR})")), "{told}");
            }
            // The message is the same as for a Primary IP that does not exist.
            (false, Some((_, typed))) => assert_eq!(
                world.obstacle(),
                format!("annotation load-balancer.hetzner.cloud/public-net-ipv4: the project has no Primary IP with \
                         the ID, name or address {typed:?} that Services may claim (environment {SELECTOR}); hcloud \
                         primary-ip list shows those that exist"),
                "{about}"
            ),
        }
    }
}

/// A load balancer keeps its address, and a suggestion names only what may be claimed.
#[test]
fn the_selector_is_about_claims_alone() {
    let mut world = world(Profile::CcmFromScratch);
    world.set("public-net-ipv4=kept type=lb11");
    world.converge();
    select(&mut world, "use=services");
    assert_eq!(world.findings(), []);
    assert!(world.converge().is_empty());
    let mut world = self::world(Profile::CcmFromScratch);
    select(&mut world, "use=services");
    world.set("public-net-ipv4=kepd");
    assert!(!world.obstacle().contains("did you mean"));
}

/// Without the list it is unknown which addresses are free.
#[test]
fn no_load_balancer_is_created_before_primary_ips_were_read() {
    let mut world = world(Profile::CcmFromScratch);
    world.set("public-net-ipv4=kept");
    world.state.primary_ips = None;
    assert!(world.obstacle().contains("ccm reads again"));
    world.unset("public-net-ipv4");
    assert_eq!(words(&world.converge()), "create");
}

/// One wish leads to one warning, before the creation and afterwards.
#[test]
fn an_address_that_is_not_honoured_is_reported_in_the_same_words_before_and_after() {
    let mut world = world(Profile::CcmFromScratch);
    world.service.load_balancer_ip = "192.0.2.1".into();
    let before = world.finding_messages(Reason::FieldIgnored);
    assert_eq!(before.len(), 1);
    let says = "192.0.2.1 has no effect";
    assert!(before[0].contains(says), "{before:?}");
    world.converge();
    assert_eq!(world.finding_messages(Reason::FieldIgnored), before);
    // The daemon reads no Primary IPs then.
    world.state.primary_ips = None;
    assert_eq!(world.finding_messages(Reason::FieldIgnored), before);
}
