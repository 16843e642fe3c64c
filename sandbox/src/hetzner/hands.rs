//! A test's hands on load balancers, certificates, Primary IPs, routes and what is around them. Like all methods of [`Cloud`]
//! they take effect at once and panic when asked for what cannot be.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::actions::Resource;
use super::error::ApiError;
use super::load_balancers::{self, Health, Machine};
use super::networks::Route;
use super::owned::Owned;
use super::{Cloud, certificates, primary_ips};
use crate::robot::Robot;

impl Cloud {
    /// The routes of a network, each as destination and gateway, by destination.
    pub fn routes(&self, network: u64) -> Vec<(String, String)> {
        let world = self.lock();
        let routes = world.networks.get(&network).map(|one| one.routes.as_slice());
        let mut routes = routes.unwrap_or_default().to_vec();
        routes.sort_by_key(|route| route.destination);
        let shown = routes.iter();
        shown.map(|route| (route.destination.to_string(), route.gateway.to_string())).collect()
    }

    /// Somebody adds a route in the console; one that is there already is replaced.
    pub fn set_route(&self, network: u64, destination: &str, gateway: &str) {
        let route = Route {
            destination: destination
                .parse()
                .unwrap_or_else(|_| panic!("{destination:?} is no IPv4 range")),
            gateway: gateway.parse().unwrap_or_else(|_| panic!("{gateway:?} is no IPv4 address")),
        };
        self.delete_route(network, destination);
        if let Some(network) = self.lock().networks.get_mut(&network) {
            network.routes.push(route);
        }
    }

    /// Somebody deletes the route to a destination. Nothing happens when there is none.
    pub fn delete_route(&self, network: u64, destination: &str) {
        if let Some(network) = self.lock().networks.get_mut(&network) {
            let routes = &mut network.routes;
            routes.retain(|route| route.destination.to_string() != destination);
        }
    }

    /// A load balancer, complete, as `POST /load_balancers` with this body would make it. Returns its ID.
    pub fn create_load_balancer(&self, project: u64, body: Value) -> u64 {
        made(&body, load_balancers::place(&mut self.lock(), project, &body))
    }

    /// The load balancers of a project, as the API shows them, by ID.
    pub fn load_balancers(&self, project: u64) -> Vec<Value> {
        let world = self.lock();
        let all = world.load_balancers_of(project);
        all.map(|one| self.document(one.id, one.json(&world))).collect()
    }

    /// A load balancer as the API shows it; null when there is none.
    pub fn load_balancer(&self, id: u64) -> Value {
        let world = self.lock();
        let found = world.load_balancers.get(&id);
        found.map_or(Value::Null, |one| self.document(id, one.json(&world)))
    }

    /// Changes a load balancer, seen as the API shows it: from then on it shows what `edit` left behind, until the
    /// API changes that field. `edit` must not call this cloud again. Nothing happens when it is gone.
    pub fn edit_load_balancer(&self, id: u64, edit: impl FnOnce(&mut Value)) {
        load_balancers::edit(&mut self.lock(), id, edit);
    }

    /// Removes a load balancer without an action, protected or not.
    pub fn delete_load_balancer(&self, id: u64) {
        load_balancers::remove(&mut self.lock(), id);
    }

    /// While true, no action on this load balancer ends; afterwards those end whose time is over.
    pub fn hold_load_balancer(&self, id: u64, held: bool) {
        let kind = <load_balancers::LoadBalancer as Owned>::KIND;
        let resource = Resource { kind, id };
        self.lock().actions.hold_resource(resource, held);
    }

    /// What a series of a load balancer's metrics says from now on, e.g. `open_connections`, `bandwidth.in`.
    /// Panics where the API has no such series.
    pub fn set_metric(&self, load_balancer: u64, series: &str, value: f64) {
        assert!(load_balancers::is_a_series(series), "there is no series {series}");
        if let Some(one) = self.lock().load_balancers.get_mut(&load_balancer) {
            one.metrics.insert(series.to_owned(), value);
        }
    }

    /// What the health checks of a load balancer say about a target from now on, for one listen port or for all.
    /// With None for `health` the target follows its server's state again. Nothing happens when it is gone.
    /// Panics where the API has no such word.
    pub fn set_health(
        &self,
        load_balancer: u64,
        target: Machine,
        listen_port: Option<u16>,
        health: Option<Health>,
    ) {
        let is_real = health.as_ref().is_none_or(Health::is_a_word_of_the_api);
        assert!(is_real, "the API does not say {health:?}");
        if let Some(one) = self.lock().load_balancers.get_mut(&load_balancer) {
            match health {
                Some(health) => drop(one.health.insert((target, listen_port), health)),
                None => drop(one.health.remove(&(target, listen_port))),
            }
        }
    }

    /// A certificate as `POST /certificates` with this body would make it; a managed one is issued already.
    /// Returns its ID.
    pub fn create_certificate(&self, project: u64, body: Value) -> u64 {
        made(&body, certificates::place(&mut self.lock(), project, &body))
    }

    /// The certificates of a project, as the API shows them, by ID.
    pub fn certificates(&self, project: u64) -> Vec<Value> {
        let world = self.lock();
        let all = world.certificates_of(project);
        all.map(|certificate| certificate.json(&world).value()).collect()
    }

    /// Somebody has a failed issuance tried again in the console. Nothing happens when there is no such certificate.
    pub fn retry_certificate(&self, id: u64) {
        certificates::retry_by_hand(&mut self.lock(), id);
    }

    /// A free Primary IP as `POST /primary_ips` with this body would make it. Returns its ID.
    pub fn create_primary_ip(&self, project: u64, body: Value) -> u64 {
        made(&body, primary_ips::place(&mut self.lock(), project, &body))
    }

    /// The Primary IPs of a project, as the API shows them, by ID.
    pub fn primary_ips(&self, project: u64) -> Vec<Value> {
        let world = self.lock();
        let all = world.primary_ips_of(project);
        all.map(|primary| primary.json().value()).collect()
    }

    /// Blocked addresses cannot be given to anything new. Nothing happens when there is no such Primary IP.
    pub fn block_primary_ip(&self, id: u64, blocked: bool) {
        if let Some(primary) = self.lock().primary_ips.get_mut(&id) {
            primary.blocked = blocked;
        }
    }

    /// A dedicated server of the project's owner has this address.
    pub fn add_dedicated_ip(&self, project: u64, ip: IpAddr) {
        self.lock().circumstances.dedicated.insert(ip, project);
    }

    /// The owner of a project has the dedicated servers of this Robot: their addresses can be targets, and targets
    /// answer while their server runs.
    pub fn set_robot(&self, project: u64, robot: Arc<Robot>) {
        self.lock().circumstances.robot = Some((project, robot));
    }

    /// While true, the Cloud cannot ask Robot: a new target of type `ip` is refused with `robot_unavailable`.
    pub fn set_robot_unavailable(&self, unavailable: bool) {
        self.lock().circumstances.robot_unavailable = unavailable;
    }

    /// Whether routes of a network are exposed to its vSwitch. Nothing happens when there is no such network.
    pub fn set_expose_routes_to_vswitch(&self, network: u64, exposed: bool) {
        if let Some(network) = self.lock().networks.get_mut(&network) {
            network.expose_routes_to_vswitch = exposed;
        }
    }

    /// Load balancers that a project may have.
    pub fn set_load_balancer_limit(&self, project: u64, limit: usize) {
        let limits = &mut self.lock().circumstances.load_balancer_limits;
        limits.insert(project, limit);
    }

    /// Whether a location has no room for another load balancer of a type, e.g. `lb11` in `fsn1`.
    pub fn set_sold_out(&self, load_balancer_type: &str, location: &str, sold_out: bool) {
        let place = (load_balancer_type.to_owned(), location.to_owned());
        let mut world = self.lock();
        if sold_out {
            world.circumstances.sold_out.insert(place);
        } else {
            world.circumstances.sold_out.remove(&place);
        }
    }

    /// A load balancer type is retired: announced when, not sold after (RFC 3339).
    pub fn deprecate_load_balancer_type(
        &self,
        name: &str,
        announced: &str,
        unavailable_after: &str,
    ) {
        let dates = (announced.to_owned(), unavailable_after.to_owned());
        let deprecated = &mut self.lock().circumstances.deprecated;
        deprecated.insert(name.to_owned(), dates);
    }

    /// The DNS zones of a project. Until this is called every domain counts as managed.
    pub fn set_dns_zones(&self, project: u64, zones: &[&str]) {
        let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
        self.lock().circumstances.zones.insert(project, zones);
    }

    /// While true, deleting a load balancer answers 204 without a body, as before 2026-10-05.
    pub fn set_silent_deletes(&self, silent: bool) {
        self.lock().circumstances.silent_deletes = silent;
    }

    /// From now on `Date` is by so much ahead of this machine's clock, or behind it.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.lock().circumstances.clock_ahead_s = seconds;
    }

    /// How long actions with this command take that start from now on, at scale 1; None for the usual time.
    pub fn set_action_duration(&self, command: &str, takes: Option<Duration>) {
        self.lock().actions.set_duration(command, takes);
    }
}

fn made(body: &Value, made: Result<u64, ApiError>) -> u64 {
    made.unwrap_or_else(|error| panic!("cannot create {body}: {}", error.message))
}
