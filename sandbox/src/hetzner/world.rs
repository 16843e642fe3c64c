//! The whole state of the simulated cloud. One lock in [`super::Cloud`] protects it.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::actions::Actions;
use super::addresses::Pool;
use super::certificates::Certificate;
use super::circumstances::Circumstances;
use super::clock::Clock;
use super::load_balancers::LoadBalancer;
use super::networks::Network;
use super::others::firewalls::Firewall;
use super::others::ssh_keys::SshKey;
use super::owned;
use super::primary_ips::PrimaryIp;
use super::rate_limit::Budget;
use super::servers::Server;

/// The ID of the first resource that is created in any project. Projects have small IDs that begin at 1, so a resource
/// never has the ID of a project.
const FIRST_ID: u64 = 1_000_001;

pub struct World {
    pub clock: Clock,
    pub tokens: HashMap<String, Token>,
    /// The rate limit of each project, by the project's ID. All requests with an unknown token share one rate limit,
    /// which has the ID 0.
    pub budgets: BTreeMap<u64, Budget>,
    pub servers: BTreeMap<u64, Server>,
    pub networks: BTreeMap<u64, Network>,
    pub load_balancers: BTreeMap<u64, LoadBalancer>,
    pub certificates: BTreeMap<u64, Certificate>,
    pub primary_ips: BTreeMap<u64, PrimaryIp>,
    pub ssh_keys: BTreeMap<u64, SshKey>,
    pub firewalls: BTreeMap<u64, Firewall>,
    pub actions: Actions,
    pub pool: Pool,
    pub circumstances: Circumstances,
    /// The ID of the server that the metadata service describes. With `None`, the metadata service answers every
    /// request with 404.
    pub metadata_server: Option<u64>,
    next_id: u64,
    chosen_id: Option<u64>,
    next_correlation: u64,
}

/// The project and the rights of an API token.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub project: u64,
    pub read_only: bool,
}

impl World {
    pub fn new(clock: Clock) -> World {
        World {
            clock,
            tokens: HashMap::new(),
            budgets: BTreeMap::from([(0, Budget::new(clock.now()))]),
            servers: BTreeMap::new(),
            networks: BTreeMap::new(),
            load_balancers: BTreeMap::new(),
            certificates: BTreeMap::new(),
            primary_ips: BTreeMap::new(),
            ssh_keys: BTreeMap::new(),
            firewalls: BTreeMap::new(),
            actions: Actions::default(),
            pool: Pool::default(),
            circumstances: Circumstances::default(),
            metadata_server: None,
            next_id: FIRST_ID,
            chosen_id: None,
            next_correlation: 0,
        }
    }

    /// Returns the ID for a new resource, which is larger than all earlier IDs. There is one exception: the first
    /// resource that is created inside of [`with_id`](World::with_id) gets the ID that was passed to that function.
    pub fn new_id(&mut self) -> u64 {
        self.chosen_id.take().unwrap_or_else(|| {
            self.next_id += 1;
            self.next_id - 1
        })
    }

    /// Calls `make`, and gives the ID `id` to the first resource that `make` creates. Resources that are created later
    /// get larger IDs.
    pub fn with_id<T>(&mut self, id: u64, make: impl FnOnce(&mut World) -> T) -> T {
        self.next_id = self.next_id.max(id.saturating_add(1));
        self.chosen_id = Some(id);
        let made = make(self);
        self.chosen_id = None;
        made
    }

    /// Returns 32 hexadecimal digits. Each call returns different digits.
    pub fn new_correlation_id(&mut self) -> String {
        self.next_correlation += 1;
        format!(
            "{:016x}{:016x}",
            scramble(self.next_correlation),
            scramble(self.next_correlation ^ 1 << 63)
        )
    }

    pub fn servers_of(&self, project: u64) -> impl Iterator<Item = &Server> {
        owned::of_project(self, project)
    }

    pub fn networks_of(&self, project: u64) -> impl Iterator<Item = &Network> {
        owned::of_project(self, project)
    }

    pub fn load_balancers_of(&self, project: u64) -> impl Iterator<Item = &LoadBalancer> {
        owned::of_project(self, project)
    }

    pub fn certificates_of(&self, project: u64) -> impl Iterator<Item = &Certificate> {
        owned::of_project(self, project)
    }

    pub fn primary_ips_of(&self, project: u64) -> impl Iterator<Item = &PrimaryIp> {
        owned::of_project(self, project)
    }

    /// Does all work whose time has come at `now`, e.g. ends actions. The work with the earliest time is done first.
    pub fn advance(&mut self, now: Instant) {
        while let Some(due) = self.actions.take_due(now) {
            due.run(self);
        }
    }
}

/// Mixes the bits of a number as the splitmix64 generator does. Different numbers always have different results.
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
