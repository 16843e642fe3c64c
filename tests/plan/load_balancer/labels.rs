//! Labels that users ask for, and protection against deletion: which load balancers get them, and within which limits.

use crate::load_balancer::support::{PROFILES, World, creation, lines, words};
use ccm::hetzner::Profile;
use ccm::provider::Reason;

#[test]
fn an_invalid_label_or_one_that_ccm_uses_is_refused() {
    let many: String = (0..33).map(|n| format!("l{n}=1,")).collect();
    let long = format!("{}=1", "k".repeat(64));
    for (value, why) in [
        ("team", "is not of the form KEY=VALUE"),
        ("team:web", "is not of the form KEY=VALUE"),
        ("=web", "is not a label"),
        ("-team=web", "is not a label"),
        ("team=we b", "is not a label"),
        ("team=web=x", "is not a label"),
        ("Ex.com/a=1", "is not a label"),
        (&long, "is not a label"),
        ("team=web,team=shop", "occurs twice"),
        ("ccm-from-scratch/created=true", "are reserved"),
        ("hetzner.cloud/a=1", "are reserved"),
        (&many, "33 labels, but at most 32"),
    ] {
        let mut world = World::new(Profile::CcmFromScratch);
        world.set_one("labels", value);
        let message = world.obstacle();
        assert!(message.contains(why), "{value}: {message}");
    }
}

/// The labels are in the request that creates the load balancer. The protection follows, because the API accepts
/// it only then.
#[test]
fn a_new_load_balancer_has_its_labels_and_protection() {
    for profile in PROFILES {
        let mut world = World::new(profile);
        world.set("labels=example.com/team=web deletion-protection=true");
        let made = world.converge();
        assert_eq!(words(&made), "create change_protection");
        assert_eq!(creation(&made)["labels"]["example.com/team"], "web");
        assert_eq!(lines(&made)[1], "deletion protection: changed, off → on");
    }
}

/// Keys that are removed from the annotation stay. Without a limit a tenant could add some with each change.
#[test]
fn a_load_balancer_gets_a_limited_number_of_labels() {
    let mut world = World::new(Profile::CcmFromScratch);
    for round in 0..10 {
        let labels: String = (0..30).map(|n| format!("l{round}-{n}=1,")).collect();
        world.set_one("labels", &labels);
        world.converge();
    }
    assert_eq!(world.balancer().labels.len(), 100);
    assert!(world.findings().contains(&Reason::AnnotationWithoutEffect));
    // Existing labels can still be changed.
    world.set("labels=l0-0=2,new=1");
    world.converge();
    assert_eq!(world.balancer().labels["l0-0"], "2");
    assert!(!world.balancer().labels.contains_key("new"));
}

/// An operator or the annotation has set the protection. The deletion of the Service removes neither.
#[test]
fn a_protected_load_balancer_stays_when_its_service_is_deleted() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.set("deletion-protection=true");
    world.converge();
    for annotation in [Some("true"), Some("false"), None] {
        match annotation {
            Some(value) => world.set_one("deletion-protection", value),
            None => world.unset("deletion-protection"),
        }
        let removal = world.removal();
        assert!(removal.outcome.changes().is_empty(), "{removal:?}");
        assert_eq!(removal.findings[0].reason, Reason::LoadBalancerProtected);
    }
    // An annotation that is not set leaves the protection unchanged.
    assert_eq!(words(&world.converge()), "");
}
