//! A process that was paused just before a write does not make the write. It continues without the rest of its plan.

use super::world::{Cluster, World};
use crate::LIBRARY_SCALE;
use crate::common::library::{Credentials, LONG, SandboxAccess};
use ccm::controllers::service::{ServiceController, ServiceSettings};
use ccm::controllers::{Controller, Selection};
use ccm::hetzner::load_balancers::Defaults;
use ccm::provider::{Gate, Refused, Source, Sourced};
use sandbox::Half;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Refuses the first deletion.
#[derive(Default)]
struct Pause(AtomicBool);

impl Gate for Pause {
    fn pass(&self, what: &str) -> Result<(), Refused> {
        match what.starts_with("DELETE") && !self.0.swap(true, Ordering::Relaxed) {
            true => Err(Refused(
                "this process was paused, and the time limit of this write has passed".into(),
            )),
            false => Ok(()),
        }
    }

    fn may_wait(&self) -> bool {
        true
    }
}

/// Two Services are deleted. While the load balancer of one is read for its deletion, the list of Services fails. So
/// the plan of the other one is dropped, and its finalizer must stay.
#[test]
fn a_service_whose_load_balancer_was_not_deleted_keeps_its_finalizer() {
    let world = World::new(1);
    world.converge(&[]);
    for name in ["one", "other"] {
        world.create(name, &[], &[80]);
    }
    world.converge(&[]);
    assert_eq!(world.balancers().len(), 2);
    for name in ["one", "other"] {
        world.delete(name);
    }
    let sandbox = &world.sandbox;
    let is_read = Arc::new(AtomicBool::new(false));
    let read = Arc::clone(&is_read);
    let of_one = |request: &Request| {
        let id = request.path.strip_prefix("/v1/load_balancers/");
        id.is_some_and(|id| id.parse::<u64>().is_ok())
    };
    let reads = Effect::before(move |_| read.store(true, Ordering::Relaxed));
    let faults = sandbox.faults();
    faults.add(Rule::new(reads).half(Half::Hetzner).method("GET").when(of_one));
    let slow = |time_s| Effect::Slow(Duration::from_secs(time_s));
    // The read takes longer than a tick, and the list takes longer than the read.
    faults.add(Rule::new(slow(6)).half(Half::Hetzner).method("GET").when(of_one));
    for effect in [slow(9), Effect::gateway_timeout()] {
        let seen = Arc::clone(&is_read);
        let is_now = move |_: &Request| seen.load(Ordering::Relaxed);
        let lists = Rule::new(effect).half(Half::Kubernetes).method("GET");
        faults.add(lists.path("/api/v1/services").when(is_now));
    }

    let place = SandboxAccess::at(sandbox, LIBRARY_SCALE);
    let location = Sourced::new("fsn1".to_owned(), Source::Rule("test"));
    let defaults = Defaults { location: Some(location), ..Defaults::default() };
    let apis =
        place.apis(Arc::new(Pause::default()), &place.token(), Credentials::Off, Some(defaults));
    let mut controller = ServiceController::new(ServiceSettings {
        sync_interval: Duration::from_secs(5),
        resync_period: LONG,
        concurrency: 1,
        cluster_name: "kubernetes".into(),
        departing_cordoned: false,
        delete_orphans: false,
    });
    let report = controller.tick(&apis, &Selection::Due);
    assert!(is_read.load(Ordering::Relaxed), "{report:?}");
    assert_eq!(world.balancers().len(), 2, "{report:?}");
    for name in ["one", "other"] {
        assert!(world.service(name).is_some(), "{name}: {report:?}");
    }

    faults.clear();
    world.converge(&[]);
    assert!(world.balancers().is_empty());
    assert!(world.service("one").is_none() && world.service("other").is_none());
}
