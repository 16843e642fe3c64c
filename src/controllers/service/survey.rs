//! What there is beside the Services: for `doctor`, which plans nothing.

use super::observe;
use crate::cache::{Apis, Error};
use crate::kube::Node;
use crate::provider::{Orphan, Urgency};
use std::sync::Arc;
use std::time::Duration;

/// Load balancers of this cluster whose Service does not exist. What a pass has read already is
/// used; what looks like one is only believed when all Services were read after it was seen.
pub fn orphans(apis: &Apis, nodes: &[Arc<Node>]) -> Result<Vec<Orphan>, Error> {
    let Some(provider) = apis.provider.load_balancers() else {
        return Ok(Vec::new());
    };
    let snapshot = apis.load_balancers(&[], Duration::MAX, Urgency::Needed)?;
    let mut all = apis.any_services(Duration::MAX)?;
    loop {
        let cluster = observe::cluster(apis, "", &all.value, nodes)?;
        let orphans = provider.orphans(&snapshot.value, &cluster);
        if orphans.is_empty() || all.asked >= snapshot.answered {
            return Ok(orphans);
        }
        all = apis.any_services(Duration::ZERO)?;
    }
}
