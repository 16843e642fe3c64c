//! The cost of one Service's plan does not depend on the number of groups and load balancers.

use crate::load_balancer::project::fresh;
use crate::load_balancer::support::{World, port};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{CLUSTER_UID, GROUP, LoadBalancer, SERVICE_UID};
use ccm::provider::Service;
use std::collections::HashMap;
use std::time::Duration;

const FEW: usize = 250;
const MANY: usize = 4000;
/// The number of Services that are planned.
const PLANNED: usize = 40;
/// The largest allowed ratio of the times. With an index both times are equal. Without one they differ by a
/// factor of sixteen.
const AT_MOST: u32 = 5;
/// A time that is too short to be compared.
const NOISE: Duration = Duration::from_millis(20);

/// A cluster of Services that each name a group of its own, beside shared load balancers of other Services.
fn world(groups: usize, balancers: usize) -> (World, Vec<Service>) {
    let mut world = World::new(Profile::CcmFromScratch);
    let service = |name: String, share: String| Service {
        uid: format!("uid-{name}"),
        annotations: [(format!("{PREFIX}share"), share)].into(),
        ports: vec![port("http", 80)],
        namespace: "default".into(),
        name,
        ..Service::default()
    };
    let single = |n| service(format!("web-{n}"), format!("g{n}"));
    let joined = |n| service(format!("shared-{n}"), format!("edge-{n}"));
    let services: Vec<Service> = (0..groups).map(single).collect();
    let shared: Vec<Service> = (0..balancers).map(joined).collect();
    let all = || services.iter().chain(&shared);
    world.cluster.service_uids = all().map(|one| one.uid.clone()).collect();
    let key = |one: &Service| {
        let share = &one.annotations[&format!("{PREFIX}share")];
        format!("default.{share}")
    };
    let groups: HashMap<String, Vec<Service>> =
        all().map(|one| (key(one), vec![one.clone()])).collect();
    world.cluster.groups = groups.into();
    for (n, one) in (1..).zip(&shared) {
        let mut balancer: LoadBalancer = fresh(n, &one.name, "lb11");
        let labels =
            [(GROUP.to_owned(), key(one)), (CLUSTER_UID.to_owned(), world.cluster.uid.clone())];
        balancer.labels.extend(labels);
        balancer.labels.remove(SERVICE_UID);
        world.state.balancers.push(balancer);
    }
    (world, services)
}

/// The shortest of three, for what else the machine does.
fn time(world: &World, services: &[Service]) -> Duration {
    let planned = &services[..PLANNED.min(services.len())];
    let once = |_| {
        let (plans, time) = world.plans(planned);
        assert!(plans.iter().all(|plan| plan.outcome.obstacle().is_none()));
        time
    };
    (0..3).map(once).min().unwrap()
}

fn compare(what: &str, few: (usize, usize), many: (usize, usize)) {
    let [few, many] = [few, many].map(|(groups, balancers)| {
        let (world, services) = world(groups, balancers);
        time(&world, &services)
    });
    assert!(
        many < (few * AT_MOST).max(NOISE),
        "{PLANNED} plans take {few:?}, and {many:?} beside sixteen times as many {what}"
    );
}

/// A change of one that names it by its ID is news for one that names it by its name.
#[test]
fn services_that_name_an_external_one_by_id_and_by_name_are_one_group() {
    let (world, _) = world(0, 2);
    for (key, group) in [
        ("external:1", "external:1"),
        ("external:shared-0", "external:1"),
        ("external:shared-1", "external:2"),
        ("external:01", "external:01"),
        ("external:none", "external:none"),
        ("default.edge-0", "default.edge-0"),
    ] {
        assert_eq!(world.known_group(key), group, "{key}");
    }
}

#[test]
fn groups_of_others_cost_a_plan_nothing() {
    compare("groups", (FEW, 10), (MANY, 10));
}

#[test]
fn load_balancers_of_others_cost_a_plan_nothing() {
    compare("load balancers", (PLANNED, FEW), (PLANNED, MANY));
}
