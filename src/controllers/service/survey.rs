//! What there is beside the Services: for `doctor`, which plans nothing.

use super::observe;
use crate::cloud::{Orphan, Urgency};
use crate::kube::Node;
use crate::world::{Error, World};
use std::sync::Arc;
use std::time::Duration;

/// Load balancers of this cluster whose Service does not exist. What a pass has read already is
/// used; what looks like one is only believed when all Services were read after it was seen.
pub fn orphans(world: &World, nodes: &[Arc<Node>]) -> Result<Vec<Orphan>, Error> {
    let Some(provider) = world.provider.load_balancers() else {
        return Ok(Vec::new());
    };
    let landscape = world.load_balancers(&[], Duration::MAX, Urgency::Needed)?;
    let mut all = world.any_services(Duration::MAX)?;
    loop {
        let cluster = observe::cluster(world, "", &all.value, nodes)?;
        let orphans = provider.orphans(&landscape.value, &cluster);
        if orphans.is_empty() || all.asked >= landscape.answered {
            return Ok(orphans);
        }
        all = world.any_services(Duration::ZERO)?;
    }
}
