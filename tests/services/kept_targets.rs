//! A target that works is not taken away for one that can't come.

use crate::common;
use crate::world::{OFTEN, World, targets};

const PRIVATE: &str = "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP";
const CLOSED: &str = "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK";

/// The interface stays off when nobody asks for it any more, and then no public address is a way in.
#[test]
fn what_only_the_private_way_reaches_stays_when_nobody_asks_for_it_any_more() {
    let mut world = World::with_network(1);
    world.settle(&[]);
    let by_annotation = world.create(
        "annotated",
        &[("use-private-ip", "true"), ("disable-public-network", "true")],
        &[80],
    );
    let plain = world.env.clone();
    world.env = common::with(plain.clone(), &[(PRIVATE, "true"), (CLOSED, "true")]);
    let by_variable = world.create("plain", &[], &[80]);
    world.settle(&[]);
    world.env = plain;
    world.annotate("annotated", "use-private-ip", None);
    world.annotate("annotated", "disable-public-network", None);
    let mark = world.mark();
    let ran = world.once(&[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for name in ["annotated", "plain"] {
        let says = ["public interface", "is off", "disable-public-network"];
        world.tells(name, "SyncLoadBalancerFailed", &says);
    }
    let daemon = world.daemon(&[OFTEN]);
    world.ticks(4);
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new(), "{}", daemon.log());
    for uid in [by_annotation, by_variable] {
        assert_eq!(targets(&world.of_uid(&uid).unwrap()).len(), 1);
    }
    // As it is told.
    world.annotate("annotated", "disable-public-network", Some("false"));
    world.annotate("plain", "use-private-ip", Some("true"));
    let ran = common::ccm(&world.env, &["lb", "sync", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}
