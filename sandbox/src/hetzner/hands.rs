//! Methods of [`Cloud`] for tests. Some change load balancers, certificates, Primary IPs and routes. Others set facts
//! that no request to the API can change, e.g. which types are sold out. All changes take effect at once, and the
//! methods panic when they get impossible values.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;

use super::actions::Resource;
use super::error::ApiError;
use super::load_balancers::{self, Health, Machine, PortChecks};
use super::networks::Route;
use super::owned::Owned;
use super::{Cloud, certificates, primary_ips};
use crate::robot::Robot;

impl Cloud {
    /// Returns the routes of a network, each as destination and gateway. They are sorted by destination.
    pub fn routes(&self, network: u64) -> Vec<(String, String)> {
        let world = self.lock();
        let routes = world.networks.get(&network).map(|one| one.routes.as_slice());
        let mut routes = routes.unwrap_or_default().to_vec();
        routes.sort_by_key(|route| route.destination);
        let shown = routes.iter();
        shown.map(|route| (route.destination.to_string(), route.gateway.to_string())).collect()
    }

    /// Adds a route to a network, as a person can in the Hetzner console. Replaces a route to the same destination.
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

    /// Deletes the route to a destination, as a person can in the Hetzner console. Nothing happens when there is no
    /// such route.
    pub fn delete_route(&self, network: u64, destination: &str) {
        if let Some(network) = self.lock().networks.get_mut(&network) {
            let routes = &mut network.routes;
            routes.retain(|route| route.destination.to_string() != destination);
        }
    }

    /// Creates a load balancer as `POST /load_balancers` with this body would, but without an action: the load balancer
    /// is complete at once. Returns its ID.
    pub fn create_load_balancer(&self, project: u64, body: Value) -> u64 {
        made(&body, load_balancers::place(&mut self.lock(), project, &body))
    }

    /// Returns the load balancers of a project as the API shows them, sorted by ID.
    pub fn load_balancers(&self, project: u64) -> Vec<Value> {
        let world = self.lock();
        let all = world.load_balancers_of(project);
        all.map(|one| self.document(one.id, one.json(&world))).collect()
    }

    /// Returns a load balancer as the API shows it, or null when there is no such load balancer.
    pub fn load_balancer(&self, id: u64) -> Value {
        let world = self.lock();
        let found = world.load_balancers.get(&id);
        found.map_or(Value::Null, |one| self.document(id, one.json(&world)))
    }

    /// Lets a test change the JSON that the API shows of a load balancer: `edit` gets the JSON and changes it. A
    /// changed field keeps the test's value until a later request changes the field. `edit` must not call methods of
    /// this cloud, because the cloud's lock is held. Nothing happens when there is no such load balancer.
    pub fn edit_load_balancer(&self, id: u64, edit: impl FnOnce(&mut Value)) {
        load_balancers::edit(&mut self.lock(), id, edit);
    }

    /// Deletes a load balancer at once and without an action, even when it is protected.
    pub fn delete_load_balancer(&self, id: u64) {
        load_balancers::remove(&mut self.lock(), id);
    }

    /// While `held` is true, the actions on this load balancer do not end and stay in the status `running`. After
    /// `held` has become false, each action ends as soon as its duration is over.
    pub fn hold_load_balancer(&self, id: u64, held: bool) {
        let kind = <load_balancers::LoadBalancer as Owned>::KIND;
        let resource = Resource { kind, id };
        self.lock().actions.hold_resource(resource, held);
    }

    /// Sets the value that the API shows for a metric of a load balancer from now on. `series` is the name of the
    /// metric's time series, e.g. `open_connections` or `bandwidth.in`. Panics when the API has no such series.
    pub fn set_metric(&self, load_balancer: u64, series: &str, value: f64) {
        assert!(load_balancers::is_a_series(series), "there is no series {series}");
        if let Some(one) = self.lock().load_balancers.get_mut(&load_balancer) {
            one.metrics.insert(series.to_owned(), value);
        }
    }

    /// Sets the result of a load balancer's health checks of one target. The result applies to one listen port, or to
    /// all of them when `listen_port` is `None`. When `health` is `None`, the API shows again the result that the
    /// simulation computes from the state of the target's server. Nothing happens when there is no such load balancer.
    /// Panics when the result is one that the API cannot show.
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

    /// Creates a certificate as `POST /certificates` with this body would, and returns its ID. A managed certificate is
    /// issued at once.
    pub fn create_certificate(&self, project: u64, body: Value) -> u64 {
        made(&body, certificates::place(&mut self.lock(), project, &body))
    }

    /// Returns the certificates of a project as the API shows them, sorted by ID.
    pub fn certificates(&self, project: u64) -> Vec<Value> {
        let world = self.lock();
        let all = world.certificates_of(project);
        all.map(|certificate| certificate.json(&world).value()).collect()
    }

    /// Starts the issuance of a managed certificate again, as a person can in the Hetzner console. Nothing happens when
    /// there is no such certificate.
    pub fn retry_certificate(&self, id: u64) {
        certificates::retry_by_hand(&mut self.lock(), id);
    }

    /// Creates a Primary IP that is assigned to nothing, as `POST /primary_ips` with this body would. Returns its ID.
    pub fn create_primary_ip(&self, project: u64, body: Value) -> u64 {
        made(&body, primary_ips::place(&mut self.lock(), project, &body))
    }

    /// Returns the Primary IPs of a project as the API shows them, sorted by ID.
    pub fn primary_ips(&self, project: u64) -> Vec<Value> {
        let world = self.lock();
        let all = world.primary_ips_of(project);
        all.map(|primary| primary.json().value()).collect()
    }

    /// Blocks or unblocks a Primary IP. A blocked Primary IP cannot be assigned to a new resource. Nothing happens when
    /// there is no such Primary IP.
    pub fn block_primary_ip(&self, id: u64, blocked: bool) {
        if let Some(primary) = self.lock().primary_ips.get_mut(&id) {
            primary.blocked = blocked;
        }
    }

    /// Makes the simulated cloud treat `ip` as the public address of a dedicated server, which belongs to the owner of
    /// this Cloud project. The server itself is not simulated.
    pub fn add_dedicated_ip(&self, project: u64, ip: IpAddr) {
        self.lock().circumstances.dedicated.insert(ip, project);
    }

    /// Makes all dedicated servers of the simulated Robot `robot` belong to the customer who owns the Cloud project
    /// `project`. The project's load balancers can then have the servers' addresses as targets, and such a target is
    /// healthy while its server runs.
    pub fn set_robot(&self, project: u64, robot: Arc<Robot>) {
        self.lock().circumstances.robot = Some((project, robot));
    }

    /// Sets the object that answers the health checks of load balancers. The simulated cloud calls the object while it
    /// holds its own lock, so the object must not call the cloud. The cloud keeps only a weak reference to the object.
    pub(crate) fn set_port_checks(&self, checks: Weak<dyn PortChecks>) {
        self.lock().circumstances.port_checks = Some(checks);
    }

    /// Sets whether Hetzner Cloud cannot reach Robot. While `unavailable` is true, new load balancer targets of type
    /// `ip` are refused with the error `robot_unavailable`.
    pub fn set_robot_unavailable(&self, unavailable: bool) {
        self.lock().circumstances.robot_unavailable = unavailable;
    }

    /// Sets the field `expose_routes_to_vswitch` of a network. Nothing happens when there is no such network.
    pub fn set_expose_routes_to_vswitch(&self, network: u64, exposed: bool) {
        if let Some(network) = self.lock().networks.get_mut(&network) {
            network.expose_routes_to_vswitch = exposed;
        }
    }

    /// Sets the largest number of load balancers in a project.
    pub fn set_load_balancer_limit(&self, project: u64, limit: usize) {
        let limits = &mut self.lock().circumstances.load_balancer_limits;
        limits.insert(project, limit);
    }

    /// Sets whether a load balancer type is sold out in a location, e.g. `lb11` in `fsn1`.
    pub fn set_sold_out(&self, load_balancer_type: &str, location: &str, sold_out: bool) {
        let place = (load_balancer_type.to_owned(), location.to_owned());
        let mut world = self.lock();
        if sold_out {
            world.circumstances.sold_out.insert(place);
        } else {
            world.circumstances.sold_out.remove(&place);
        }
    }

    /// Retires a load balancer type. The end of its sale was announced at the time `announced`, and the type is sold
    /// until `unavailable_after`. Both are RFC 3339 timestamps.
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

    /// Sets how many targets a load balancer of this type can have. With a small limit, a test needs only a few servers
    /// to reach it.
    pub fn set_target_limit(&self, load_balancer_type: &str, limit: usize) {
        let limits = &mut self.lock().circumstances.target_limits;
        limits.insert(load_balancer_type.to_owned(), limit);
    }

    /// Sets the DNS zones of a project. Until they are set, every domain counts as being in a zone of the project.
    pub fn set_dns_zones(&self, project: u64, zones: &[&str]) {
        let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
        self.lock().circumstances.zones.insert(project, zones);
    }

    /// Sets whether the API answers the deletion of a load balancer with status 204 and no body, as it did before
    /// 2026-10-05. Otherwise the answer contains the action `delete_load_balancer`.
    pub fn set_silent_deletes(&self, silent: bool) {
        self.lock().circumstances.silent_deletes = silent;
    }

    /// Returns by how many seconds the header `Date` of the API is ahead of the real clock.
    pub fn clock_ahead(&self) -> i64 {
        self.lock().circumstances.clock_ahead_s
    }

    /// Sets by how many seconds the header `Date` of the API is ahead of the real clock. A negative number means that
    /// `Date` is behind.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.lock().circumstances.clock_ahead_s = seconds;
    }

    /// Sets the duration of later actions with this command. The duration is multiplied by the time scale of the
    /// simulated cloud. `None` restores the usual duration.
    pub fn set_action_duration(&self, command: &str, takes: Option<Duration>) {
        self.lock().actions.set_duration(command, takes);
    }
}

fn made(body: &Value, made: Result<u64, ApiError>) -> u64 {
    made.unwrap_or_else(|error| panic!("cannot create {body}: {}", error.message))
}
