//! The data that a plan needs anew before it is applied.

use ccm::provider::Needs;

/// A plan that is made from new servers can need more, for example the list of types, because a load balancer with more
/// targets must grow. What was read is not enough then.
#[test]
fn the_data_that_only_the_second_plan_needs_are_read_too() {
    let nothing = Needs::default();
    let servers = Needs { servers: true, ..nothing };
    let types = Needs { types: true, ..nothing };
    let both = servers.and(types);
    for (was_read, needs, is_enough) in [
        (nothing, nothing, true),
        (nothing, servers, false),
        (servers, servers, true),
        (servers, nothing, true),
        (servers, types, false),
        (servers, both, false),
        (both, types, true),
    ] {
        assert_eq!(was_read.includes(needs), is_enough, "{was_read:?} {needs:?}");
    }
}
