//! A Hetzner Cloud API in memory. It has one lock, and neither threads nor sockets.
//!
//! | file | what it decides |
//! |---|---|
//! | `mod` | authentication, authorization, which module answers a request; functions for tests |
//! | `world` | the state of the cloud |
//! | `servers`, `networks`, `load_balancers`, `certificates`, `primary_ips` | the paths, rules and JSON of a resource |
//! | `others` | the paths, rules and JSON of resources that only clients other than ccm use: SSH keys, firewalls |
//! | `catalog` | the offers of the provider: locations, types of servers and load balancers, images; as data in `catalog.json` |
//! | `actions` | work that takes time: locks, progress, failure |
//! | `hands` | further functions for tests, which change resources and the facts in `circumstances` |
//! | `circumstances` | facts that tests set because no request can change them, e.g. which types are sold out |
//! | `overlay` | the JSON fields to which a test has given other values than the simulation |
//! | `put` | filling a project with resources from the JSON in which the API shows them |
//! | `owned`, `input`, `listing`, `labels`, `text`, `error` | the common parts of all resources: requests, pages, selectors, answers, refusals |
//! | `metadata` | the service that tells a server about itself |
//!
//! To add a kind of resource, write a module with a `route` function, and add a map in `world` and a line in
//! `dispatch`. No module here depends on the Kubernetes API or on sockets.

mod actions;
mod addresses;
mod catalog;
mod certificates;
mod circumstances;
mod clock;
mod error;
mod hands;
mod input;
mod labels;
mod listing;
mod load_balancers;
mod metadata;
mod networks;
mod others;
mod overlay;
mod owned;
mod primary_ips;
mod put;
mod rate_limit;
mod servers;
mod text;
mod world;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::Ipv4Net;
use serde_json::Value;

use self::actions::{Outcome, Resource, Start};
use self::catalog::images::Image;
use self::catalog::load_balancer_types::LoadBalancerType;
use self::catalog::locations::Location;
use self::catalog::server_types::ServerType;
use self::clock::Clock;
use self::error::ApiError;
use self::input::Query;
pub use self::load_balancers::{Health, Machine, PortChecks};
use self::networks::{Network, Subnet};
use self::others::{firewalls, ssh_keys};
use self::rate_limit::Budget;
pub use self::servers::ServerSpec;
use self::servers::{Server, Status};
use self::text::Text;
use self::world::{Token, World};
use crate::exchange::{Handler, Request, Response};

/// The network zone of the subnets that tests create. Only in this zone can a vSwitch be connected to a network. The
/// locations `fsn1`, `nbg1` and `hel1` are in this zone.
const ZONE: &str = "eu-central";

/// The largest number of resources whose parsed JSON is kept in memory. A test with more resources rarely reads the
/// same resource twice, so a kept value would not be used again.
const MOST_SHOWN: usize = 100;

/// A simulated Hetzner Cloud with all its projects, and its metadata service.
///
/// As a [`Handler`], it answers requests to `/v1/…` and `/hetzner/v1/metadata…`. Its other methods are for tests. These
/// methods take effect at once, need no token and do not count for the rate limit. They panic when they get impossible
/// values.
pub struct Cloud {
    world: Mutex<World>,
    /// The JSON of resources that tests have read, by the resource's ID: the text, and the value that was parsed from
    /// it. Tests often read the same resource again, and an unchanged text is then not parsed a second time.
    shown: Mutex<HashMap<u64, (Text, Value)>>,
}

/// The most important facts about a server. Getting them is faster than getting the server's JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSummary {
    pub id: u64,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub is_running: bool,
}

/// The facts about a server that the simulated kubelet on this server needs for its Node.
pub(crate) struct SeenServer {
    pub name: String,
    /// The server's private address, or its public IPv4 address when it has no private address. `None` when it has
    /// neither.
    pub ip: Option<Ipv4Addr>,
    pub architecture: &'static str,
}

/// A request whose API token was accepted.
struct Call<'a> {
    world: &'a mut World,
    project: u64,
    method: &'a str,
    query: &'a [(String, String)],
    body: &'a [u8],
}

impl<'a> Call<'a> {
    /// Returns a `Call`, as if an HTTP client had sent a `POST` request with this body for this project. Tests change
    /// the project by such calls, without a request.
    fn by_hand(world: &'a mut World, project: u64, body: &'a [u8]) -> Call<'a> {
        Call { world, project, method: "POST", query: &[], body }
    }

    /// Returns an error when the request has query parameters. Only requests for lists are allowed to have them.
    fn refuse_query(&self) -> Result<(), ApiError> {
        Query::new(self.query, &[]).map(drop)
    }

    /// Starts an action in the project of the request's API token, and returns the action's ID. The action begins at
    /// once.
    fn run(
        &mut self,
        command: &'static str,
        takes: Duration,
        resources: &[Resource],
        effect: impl FnOnce(&mut World, Outcome) + Send + 'static,
    ) -> u64 {
        let start = Start { project: self.project, command, resources, takes, after: None };
        self.world.start_action(start, effect)
    }
}

/// A successful answer.
struct Reply {
    status: u16,
    /// The body of the answer. `None` when the answer has no body, as with status 204.
    body: Option<Text>,
    /// The `Link` header, which only answers with a list have.
    link: Option<String>,
}

impl Cloud {
    /// Creates a simulated cloud. `scale` multiplies the duration of everything that takes time, such as actions and
    /// the refill of the rate limit. With 0.01 the cloud is a hundred times faster.
    pub fn new(scale: f64) -> Arc<Cloud> {
        Arc::new(Cloud {
            world: Mutex::new(World::new(Clock::new(scale))),
            shown: Mutex::default(),
        })
    }

    /// Adds an empty project and returns its ID.
    pub fn add_project(&self) -> u64 {
        let mut world = self.lock();
        let id = world.budgets.last_key_value().map_or(1, |(last, _)| last + 1);
        let budget = Budget::new(world.clock.now());
        world.budgets.insert(id, budget);
        id
    }

    /// Adds an API token to a project. With a read-only token, only `GET` requests are allowed.
    pub fn add_token(&self, project: u64, token: &str, read_only: bool) {
        self.lock().tokens.insert(token.into(), Token { project, read_only });
    }

    pub fn remove_token(&self, token: &str) {
        self.lock().tokens.remove(token);
    }

    /// Creates a running server and returns its ID.
    pub fn create_server(&self, project: u64, server: ServerSpec) -> u64 {
        let name = server.name.clone();
        servers::place(&mut self.lock(), project, server)
            .unwrap_or_else(|error| panic!("cannot create server {name}: {}", error.message))
    }

    /// Creates a network with one subnet, which is the first /24 of the range. Returns the network's ID.
    pub fn create_network(&self, project: u64, name: &str, ip_range: &str) -> u64 {
        let range = parse_range(ip_range);
        let subnet = Ipv4Net::new(range.network(), range.prefix_len().max(24)).unwrap_or(range);
        self.create_network_with(project, name, ip_range, &[&subnet.to_string()])
    }

    /// Creates a network with these subnets, which all have the type `cloud` and the network zone `eu-central`. Returns
    /// the network's ID.
    pub fn create_network_with(
        &self,
        project: u64,
        name: &str,
        ip_range: &str,
        subnets: &[&str],
    ) -> u64 {
        let mut world = self.lock();
        let id = world.new_id();
        let mut network = Network::new(id, project, name, parse_range(ip_range));
        network.subnets =
            subnets.iter().map(|range| Subnet::cloud(parse_range(range), ZONE)).collect();
        world.networks.insert(id, network);
        id
    }

    /// Adds a subnet of type `vswitch` to a network, and returns the subnet's range. This is the first /24 of the
    /// network that is free.
    ///
    /// # Errors
    /// Returns an error when the network has no free /24, or does not exist.
    pub fn add_vswitch(&self, network: u64) -> io::Result<Ipv4Net> {
        let mut world = self.lock();
        let id = world.new_id();
        let network = world.networks.get_mut(&network);
        let subnet = network.and_then(|network| network.add_vswitch(id));
        subnet.ok_or_else(|| {
            let text = "the network has no room for a /24 of dedicated servers";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }

    /// Returns the servers of a project as the API shows them, sorted by ID.
    pub fn servers(&self, project: u64) -> Vec<Value> {
        let world = self.lock();
        world
            .servers_of(project)
            .map(|server| self.document(server.id, server.json(&world)))
            .collect()
    }

    /// Returns the ID, the name and the labels of all servers of a project, and whether each server runs. This is about
    /// 50 times faster than [`servers`](Cloud::servers), which returns all fields.
    pub fn server_summaries(&self, project: u64) -> Vec<ServerSummary> {
        let world = self.lock();
        let summary = |server: &Server| ServerSummary {
            id: server.id,
            name: server.name.clone(),
            labels: server.labels.clone(),
            is_running: server.is_running(),
        };
        world.servers_of(project).map(summary).collect()
    }

    /// Parses the JSON text of the resource with this ID. The parsed value is kept for the next call with this ID, and
    /// is returned again when the text has not changed since then.
    fn document(&self, id: u64, text: Text) -> Value {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match shown.get(&id) {
            Some((known, value)) if *known == text => value.clone(),
            _ => {
                let value = text.value();
                if shown.len() >= MOST_SHOWN {
                    shown.clear();
                }
                shown.insert(id, (text, value.clone()));
                value
            }
        }
    }

    /// Returns the facts that the simulated kubelet on a server needs about its server. Returns `None` when the project
    /// has no server with this ID.
    pub(crate) fn seen_by_its_kubelet(&self, project: u64, id: u64) -> Option<SeenServer> {
        let world = self.lock();
        let server = world.servers.get(&id);
        let server = server.filter(|server| server.project == project)?;
        let private = server.private_net.first().map(|net| net.ip);
        Some(SeenServer {
            name: server.name.clone(),
            ip: private.or(server.ipv4.map(|ipv4| ipv4.ip)),
            architecture: server.server_type.architecture,
        })
    }

    /// Returns the IDs of the servers of a project that have the status `running`. Simulated kubelets call this
    /// function often, so the function makes no JSON.
    pub fn running_servers(&self, project: u64) -> HashSet<u64> {
        let world = self.lock();
        let running = world.servers_of(project).filter(|server| server.is_running());
        running.map(|server| server.id).collect()
    }

    /// Returns the networks of a project as the API shows them, sorted by ID.
    pub fn networks(&self, project: u64) -> Vec<Value> {
        self.lock().networks_of(project).map(|network| network.json().value()).collect()
    }

    /// Lets a test change the JSON that the API shows of a server: `edit` gets the JSON and changes it. The API then
    /// shows the changed JSON, even if the real API could never show it. `edit` must not call methods of this cloud,
    /// because the cloud's lock is held. Nothing happens when there is no such server.
    pub fn edit_server(&self, id: u64, edit: impl FnOnce(&mut Value)) {
        servers::edit(&mut self.lock(), id, edit);
    }

    /// Deletes a server at once and without an action. The server also disappears from load balancers and networks.
    pub fn delete_server(&self, id: u64) {
        servers::remove(&mut self.lock(), id);
    }

    /// Deletes a server at once and without an action, but load balancers keep the server as a target. An operator has
    /// reported this behaviour of the real API:
    /// <https://github.com/hetznercloud/hcloud-cloud-controller-manager/issues/505>
    pub fn delete_server_but_not_targets(&self, id: u64) {
        servers::remove_without_targets(&mut self.lock(), id);
    }

    /// Switches a server on or off at once and without an action.
    pub fn set_power(&self, id: u64, on: bool) {
        if let Some(server) = self.lock().servers.get_mut(&id) {
            server.set_status(if on { Status::Running } else { Status::Off });
        }
    }

    /// Sets the rate limit of a project: how many requests it can make in an hour, and how many of them are left now.
    pub fn set_rate_limit(&self, project: u64, limit: u32, remaining: u32) {
        let mut world = self.lock();
        let now = world.clock.now();
        world.budgets.entry(project).or_insert_with(|| Budget::new(now)).set(limit, remaining, now);
    }

    /// Makes the next action with this command (`add_route`, `create_server`, …) fail with this error. The action then
    /// changes nothing.
    pub fn fail_next_action(&self, command: &str, code: &str, message: &str) {
        self.lock().actions.fail_next(command, code, message);
    }

    /// Whether an action runs on any resource.
    pub fn has_running_actions(&self) -> bool {
        !self.lock().actions.is_idle()
    }

    /// While `held` is true, no action ends: all actions stay in the status `running`. After `held` has become false,
    /// each action ends as soon as its duration is over.
    pub fn hold_actions(&self, held: bool) {
        self.lock().actions.hold(held);
    }

    /// Sets the server that the metadata service describes. With `None` the service answers every request with 404.
    pub fn set_metadata_server(&self, server: Option<u64>) {
        self.lock().metadata_server = server;
    }

    /// Locks the state of the cloud, and ends the actions whose time has come.
    fn lock(&self) -> MutexGuard<'_, World> {
        // When a test panics while it holds the lock, Rust marks the lock as poisoned. This mark is ignored, so that
        // other tests can still use this cloud.
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let now = world.clock.now();
        world.advance(now);
        world
    }
}

impl Handler for Cloud {
    fn handle(&self, request: &Request) -> Response {
        let mut world = self.lock();
        let is_metadata = |rest: &str| rest.is_empty() || rest.starts_with('/');
        if request.path.strip_prefix(metadata::PATH).is_some_and(is_metadata) {
            return metadata::answer(&world, request);
        }
        let (project, answer) = answer(&mut world, request);
        let clock = world.clock;
        let correlation = world.new_correlation_id();
        let budget = world.budgets.get(&project).cloned();
        let ahead_s = world.circumstances.clock_ahead_s;
        // The lock is released before the answer is converted to bytes, so that the cloud can serve other requests
        // during the conversion.
        drop(world);
        let response = match answer {
            Ok(reply) => reply.response(),
            Err(error) => error.response(),
        };
        let mut response = response.with_header("X-Correlation-Id", correlation);
        if ahead_s != 0 {
            response = response.with_header("Date", clock::date_ahead(ahead_s));
        }
        match budget {
            Some(budget) => budget.annotate(response, clock),
            None => response,
        }
    }
}

impl Reply {
    fn new(status: u16, body: impl Into<Text>) -> Reply {
        Reply { status, body: Some(body.into()), link: None }
    }

    fn ok(body: impl Into<Text>) -> Reply {
        Reply::new(200, body)
    }

    fn no_content() -> Reply {
        Reply { status: 204, body: None, link: None }
    }

    fn response(self) -> Response {
        let response = match self.body {
            Some(body) => Response::json_text(self.status, body.into_bytes()),
            None => Response { status: self.status, ..Response::default() },
        };
        match self.link {
            Some(link) => response.with_header("Link", link),
            None => response,
        }
    }
}

/// Answers a request to the API. Also returns the ID of the project whose rate limit applies to the request, or 0 when
/// the token is unknown.
fn answer(world: &mut World, request: &Request) -> (u64, Result<Reply, ApiError>) {
    let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let token = token.and_then(|token| world.tokens.get(token)).copied();
    let project = token.map_or(0, |token| token.project);
    let (clock, now) = (world.clock, world.clock.now());
    if !world.budgets.get_mut(&project).is_none_or(|budget| budget.spend(clock, now)) {
        return (
            project,
            Err(ApiError::new(
                429,
                "rate_limit_exceeded",
                "limit of requests per hour is exceeded",
            )),
        );
    }
    let answer = match token {
        None => Err(ApiError::new(401, "unauthorized", "unable to authenticate")),
        Some(token) if token.read_only && request.method != "GET" => Err(ApiError::new(
            403,
            "forbidden",
            "the token is only allowed to perform GET requests",
        )),
        Some(_) => {
            let (method, query, body) =
                (request.method.as_str(), &request.query[..], &request.body[..]);
            dispatch(Call { world, project, method, query, body }, &request.path)
        }
    };
    (project, answer)
}

fn dispatch(mut call: Call, path: &str) -> Result<Reply, ApiError> {
    let path = path.strip_prefix("/v1/").ok_or_else(ApiError::no_such_path)?;
    if call.method != "GET" {
        call.refuse_query()?;
    }
    let segments: Vec<&str> = path.split('/').collect();
    match &segments[..] {
        ["servers", rest @ ..] => servers::route(&mut call, rest),
        ["networks", rest @ ..] => networks::route(&mut call, rest),
        ["load_balancers", rest @ ..] => load_balancers::route(&mut call, rest),
        ["certificates", rest @ ..] => certificates::route(&mut call, rest),
        ["primary_ips", rest @ ..] => primary_ips::route(&mut call, rest),
        ["ssh_keys", rest @ ..] => ssh_keys::route(&mut call, rest),
        ["firewalls", rest @ ..] => firewalls::route(&mut call, rest),
        ["actions", rest @ ..] => actions::route(&call, rest),
        ["locations", rest @ ..] => catalog::route::<Location>(&call, rest),
        ["server_types", rest @ ..] => catalog::route::<ServerType>(&call, rest),
        ["images", rest @ ..] => catalog::route::<Image>(&call, rest),
        ["load_balancer_types", rest @ ..] => catalog::route::<LoadBalancerType>(&call, rest),
        ["datacenters", ..] => Err(ApiError::removed("2026-06-02-datacenters-deprecated")),
        _ => Err(ApiError::no_such_path()),
    }
}

fn parse_range(text: &str) -> Ipv4Net {
    text.parse().unwrap_or_else(|error| panic!("{text} is no IPv4 range: {error}"))
}
