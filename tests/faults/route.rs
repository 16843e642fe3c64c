//! Routes under random faults: worlds, weather and deaths, each chosen by a seed: whatever happens, nobody's route is touched but ours, and in the
//! end the routes are those of the nodes.

use crate::common::library::{Mortal, Place, SCALE, scaled};
use crate::common::random::Random;
use crate::common::routes::{NOBODY, World};
use crate::{Tally, run_stories};
use ccm::controllers::route::{RouteController, Settings};
use ccm::controllers::{Controller, Selection};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const STORIES: u64 = 120;
const NODES: u64 = 6;
/// In which everything must have come to rest.
const ROUNDS_AT_MOST: usize = 30;

const THEIRS: [&str; 3] = [
    "0.0.0.0/0 10.0.0.250",
    "10.245.0.0/16 10.0.0.250",
    "192.168.0.0/24 10.0.0.250",
];

#[test]
fn whatever_happens_the_routes_end_as_those_of_the_nodes() {
    run_stories(
        "faults route",
        STORIES,
        |seed, tally: &Mutex<RouteTally>| {
            let mut random = Random::new(seed);
            let world = World::of(sandbox::Sandbox::builder().nodes(0));
            let place = Place::new(&world.sandbox);
            // Something to hold on to: with no node in the Network nothing may be deleted.
            world.join("anchor", "10.244.250.0/24");
            for route in THEIRS {
                let (to, via) = route.split_once(' ').unwrap();
                world.sandbox.cloud().set_route(world.network(), to, via);
            }
            for n in 0..NODES {
                if random.percent(70) {
                    world.join(&format!("n-{n}"), &pods(&mut random, n));
                }
            }
            let mut deaths = 0;
            for _ in 0..1 + random.below(4) {
                happens(&world, &mut random);
                weather(&world, &mut random);
                let gate = Mortal::after(random.percent(60).then(|| random.below(15)));
                let mut ccm = Ccm::new(&place, &gate);
                for _ in 0..1 + random.below(4) {
                    if gate.is_closed() {
                        break;
                    }
                    let all = random.percent(30);
                    let selection = if all { Selection::All } else { Selection::Due };
                    ccm.controller.tick(&ccm.world, &selection);
                    if random.percent(50) {
                        happens(&world, &mut random);
                    }
                }
                deaths += usize::from(gate.is_closed());
                world.sandbox.faults().clear();
                world.sandbox.cluster().freeze_cache(false);
                theirs_are_there(&world)?;
            }
            let rounds = Ccm::new(&place, &Mortal::after(None)).settle(&world)?;
            theirs_are_there(&world)?;
            if rounds > ROUNDS_AT_MOST / 2 {
                return Err(format!("{rounds} rounds to settle"));
            }
            tally.lock().unwrap().add(&world, deaths);
            at_rest(&world, &place)
        },
    );
}

/// What the stories were made of, over all of them.
#[derive(Debug, Default)]
struct RouteTally {
    calls: usize,
    faults: usize,
    deaths: usize,
    added: usize,
    deleted: usize,
    busy: usize,
}

impl RouteTally {
    fn add(&mut self, world: &World, deaths: usize) {
        self.deaths += deaths;
        for call in world.sandbox.calls().calls() {
            self.calls += 1;
            self.faults += usize::from(call.fault.is_some());
            let is = |end: &str| usize::from(call.status == Some(201) && call.path.ends_with(end));
            self.added += is("/add_route");
            self.deleted += is("/delete_route");
            self.busy += usize::from(call.status == Some(409) && call.path.ends_with("_route"));
        }
    }
}

impl Tally for RouteTally {
    fn assert_storm(&self) {
        let stories = STORIES as usize;
        assert!(self.faults > self.calls / 40, "{self:?}");
        assert!(self.deaths > stories / 4, "{self:?}");
        assert!(self.added > stories * 4, "{self:?}");
        assert!(self.deleted > stories, "{self:?}");
        assert!(self.busy > stories, "{self:?}");
    }
}

struct Ccm {
    world: ccm::cache::Apis,
    controller: RouteController,
}

impl Ccm {
    fn new(place: &Place, gate: &Arc<Mortal>) -> Ccm {
        Ccm {
            world: place.world_of(Arc::clone(gate), &place.token, None),
            controller: RouteController::new(Settings {
                cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
                reconciliation_period: scaled(1),
                server_cache_max_age: scaled(10),
                time_scale: SCALE,
            }),
        }
    }

    fn settle(&mut self, world: &World) -> Result<usize, String> {
        for round in 1..=ROUNDS_AT_MOST {
            let report = self.controller.tick(&self.world, &Selection::All);
            if report.outage.is_none() && is_right(world) {
                return Ok(round);
            }
            std::thread::sleep(scaled(5));
        }
        let proposals = self.controller.propose(&self.world, &Selection::All);
        Err(format!(
            "{:#?}\nwanted {:#?}\nproposed {proposals:#?}",
            world.routes(),
            world.wanted()
        ))
    }
}

/// A new one plans nothing, and writes nothing.
fn at_rest(world: &World, place: &Place) -> Result<(), String> {
    let mark = world.mark();
    let mut ccm = Ccm::new(place, &Mortal::after(None));
    ccm.controller.tick(&ccm.world, &Selection::All);
    let changes = (world.changes(mark), world.patches(mark));
    match changes.0.is_empty() && changes.1.is_empty() {
        true => Ok(()),
        false => Err(format!("written when nothing differs: {changes:#?}")),
    }
}

fn pods(random: &mut Random, n: u64) -> String {
    match random.below(6) {
        0 => format!("10.244.{n}.0/24,fd00:10:244:{n}::/64"),
        // Another cluster's, or a mistake.
        1 => format!("10.246.{n}.0/24"),
        _ => format!("10.244.{}.0/24", n + 10 * random.below(3)),
    }
}

fn theirs_are_there(world: &World) -> Result<(), String> {
    let routes = world.routes();
    match THEIRS.iter().find(|route| !routes.contains(**route)) {
        None => Ok(()),
        Some(route) => Err(format!("{route} is gone: {routes:#?}")),
    }
}

/// Those of the nodes, others', and those that lead to a server that is no node's.
fn is_right(world: &World) -> bool {
    let routes = world.routes();
    let wanted = world.wanted();
    let nodes = world.sandbox.cluster().list("nodes", None);
    let named = |id: &serde_json::Value| {
        let id = format!("ccm-from-scratch://{id}");
        nodes.iter().any(|node| node["spec"]["providerID"] == id)
    };
    let servers = world.sandbox.cloud().servers(world.sandbox.project());
    let free: BTreeSet<&str> = servers
        .iter()
        .filter(|server| !named(&server["id"]))
        .filter_map(|server| server["private_net"][0]["ip"].as_str())
        .collect();
    let is_stale = |route: &&String| {
        let (to, via) = route.split_once(' ').unwrap();
        let is_taken = wanted
            .iter()
            .any(|wanted| wanted.starts_with(&format!("{to} ")));
        free.contains(via) && !is_taken
    };
    let mut rest = routes.difference(&wanted);
    let rest_is_right = rest.all(|route| THEIRS.contains(&route.as_str()) || is_stale(&route));
    wanted.is_subset(&routes) && rest_is_right && conditions_are_right(world, &nodes)
}

fn conditions_are_right(world: &World, nodes: &[serde_json::Value]) -> bool {
    let routes = world.routes();
    nodes.iter().all(|node| {
        let name = node["metadata"]["name"].as_str().unwrap();
        let pods = node["spec"]["podCIDRs"][0].as_str().unwrap_or_default();
        let servers = world.sandbox.cloud().servers(world.sandbox.project());
        let server = servers.iter().find(|server| {
            node["spec"]["providerID"] == format!("ccm-from-scratch://{}", server["id"])
        });
        let status = world.status(name);
        match server {
            _ if !pods.starts_with("10.244.") => status.is_none(),
            // Somebody else decides whether the node goes.
            None => true,
            Some(server) => {
                let via = server["private_net"][0]["ip"].as_str().unwrap_or_default();
                let is_there = routes.contains(&format!("{pods} {via}"));
                status.as_deref() == Some(if is_there { "False" } else { "True" })
            }
        }
    })
}

/// Outside of ccm.
fn happens(world: &World, random: &mut Random) {
    let cloud = world.sandbox.cloud();
    let cluster = world.sandbox.cluster();
    let network = world.network();
    let n = random.below(NODES);
    let name = format!("n-{n}");
    let is_there = cluster.get("nodes", None, &name).is_some();
    match random.below(8) {
        0 => drop(cluster.delete("nodes", None, &name)),
        1 if is_there => {
            cloud.delete_server(world.server(&name));
            cluster.delete("nodes", None, &name);
        }
        2 if is_there => cloud.delete_server(world.server(&name)),
        3 if !is_there => {
            let servers = cloud.servers(world.sandbox.project());
            let old = servers.iter().find(|server| server["name"] == *name);
            match old.and_then(|server| server["id"].as_u64()) {
                Some(id) => world.register(&name, Some(id), &format!("10.244.{n}.0/24")),
                None => drop(world.join(&name, &format!("10.244.{n}.0/24"))),
            }
        }
        4 => cloud.set_route(network, &format!("10.244.{n}.0/24"), NOBODY),
        5 => cloud.set_route(network, &format!("10.244.{n}.0/24"), &world.ip("anchor")),
        6 => cloud.delete_route(network, &format!("10.244.{n}.0/24")),
        7 if is_there => {
            // Detached; for good.
            cloud.edit_server(world.server(&name), |server| {
                server["private_net"] = json!([])
            });
        }
        _ => cloud.set_route(network, &format!("10.244.10{n}.0/24"), NOBODY),
    }
}

/// Until it is cleared.
fn weather(world: &World, random: &mut Random) {
    let faults = world.sandbox.faults();
    let busy = Rule::new(Effect::hetzner_error(
        409,
        "conflict",
        "another change is being made",
    ));
    let busy = busy.half(Half::Hetzner).writes();
    faults.add(busy.probability(*random.pick(&[0.0, 0.2, 0.5]), random.next()));
    let lost = Rule::new(Effect::AnswerLost).writes();
    faults.add(lost.probability(*random.pick(&[0.0, 0.1]), random.next()));
    if random.percent(30) {
        let command = random.pick(&["add_route", "delete_route"]);
        world
            .sandbox
            .cloud()
            .fail_next_action(command, "action_failed", "it did not work out");
    }
    faults.random(random.next(), *random.pick(&[0.0, 0.03, 0.1]));
    world.sandbox.cluster().freeze_cache(random.percent(25));
}
