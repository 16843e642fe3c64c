//! Lets a test change the JSON that the API shows of a load balancer, or add a load balancer from such JSON.

use serde_json::{Value, json};

use super::create::connect;
use super::{ALGORITHMS, LoadBalancer, PrivateNet, Service, Target, resource};
use crate::hetzner::catalog::Entry;
use crate::hetzner::catalog::load_balancer_types::LoadBalancerType;
use crate::hetzner::catalog::locations::Location;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::labels::Labels;
use crate::hetzner::overlay::Overlay;
use crate::hetzner::primary_ips::{self, Version};
use crate::hetzner::world::World;

/// Calls `change` with the JSON that the API shows of a load balancer. From then on, the API shows exactly the changed
/// JSON. A changed field keeps the test's value until a later request changes the field.
///
/// Some changed fields also change the simulated load balancer: for example, a new target gets health checks. Other
/// changed fields are only shown. Nothing happens when there is no such load balancer.
pub fn edit(world: &mut World, id: u64, change: impl FnOnce(&mut Value)) {
    let Some(one) = world.load_balancers.get(&id) else {
        return;
    };
    let mut wanted = one.json(world).value();
    change(&mut wanted);

    let mut one = one.clone();
    one.understand(&wanted);
    one.edited = Overlay::between(&wanted, &one.plain_json(world).value());
    world.load_balancers.insert(id, one);
}

/// Adds a load balancer to the simulated cloud. `shown` is the JSON in which the API shows it.
pub fn put(world: &mut World, project: u64, shown: &Value) -> Result<(), ApiError> {
    let location = shown["location"]["name"].as_str().and_then(Location::find);
    let size = shown["load_balancer_type"]["name"].as_str();
    let (Some(location), Some(size)) = (location, size.and_then(LoadBalancerType::find)) else {
        return Err(ApiError::invalid("location, type", "are not known"));
    };
    let id = world.new_id();
    let holder = resource(id);
    let mut primary = |name: &str, version| match shown["public_net"][name]["id"].as_u64() {
        Some(known) if world.primary_ips.contains_key(&known) => {
            primary_ips::assign(world, known, holder);
            Ok(known)
        }
        _ => primary_ips::allocate(world, project, version, location, holder),
    };
    let (ipv4, ipv6) = (primary("ipv4", Version::V4)?, primary("ipv6", Version::V6)?);
    let mut one = LoadBalancer::new(project, location, size);
    (one.id, one.ipv4, one.ipv6) = (id, ipv4, ipv6);
    let created = shown["created"].as_str().and_then(|text| text.parse().ok());
    one.created = created.unwrap_or(one.created);
    one.understand(shown);
    let count = |name: &str| shown[name].as_array().map_or(0, Vec::len);
    if (one.services.len(), one.targets.len()) != (count("services"), count("targets")) {
        return Err(ApiError::invalid("services", "or targets are not understood"));
    }
    world.load_balancers.insert(id, one);
    for net in shown["private_net"].as_array().into_iter().flatten() {
        let ip = net["ip"].as_str().and_then(|ip| ip.parse().ok());
        let (Some(network), Some(ip)) = (net["network"].as_u64(), ip) else {
            return Err(ApiError::invalid("private_net", "is not understood"));
        };
        if let Some(network) = world.networks.get_mut(&network) {
            network.addresses.insert(ip, holder);
        }
        connect(world, id, PrivateNet { network, ip });
    }
    Ok(())
}

impl LoadBalancer {
    /// Sets fields of this load balancer, e.g. the name and the services, from the JSON that a test wants the API to
    /// show. Other fields of the JSON, e.g. `private_net`, change nothing here.
    fn understand(&mut self, wanted: &Value) {
        let text = |pointer: &str| wanted.pointer(pointer).and_then(Value::as_str);
        let flag = |pointer: &str| wanted.pointer(pointer).and_then(Value::as_bool);
        if let Some(name) = text("/name") {
            self.name = name.into();
        }
        if let Some(found) = text("/load_balancer_type/name").and_then(LoadBalancerType::find) {
            self.size = found;
        }
        if let Some(found) =
            ALGORITHMS.iter().find(|known| text("/algorithm/type") == Some(**known))
        {
            self.algorithm = found;
        }
        if let Some(enabled) = flag("/public_net/enabled") {
            self.public_enabled = enabled;
        }
        if let Some(protected) = flag("/protection/delete") {
            self.protected = protected;
        }
        if let Some(labels) = wanted["labels"].as_object() {
            let label =
                |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            self.labels = labels.iter().filter_map(label).collect::<Labels>();
        }
        self.understand_services(&wanted["services"]);
        self.understand_targets(&wanted["targets"]);
    }

    /// Replaces the services of the load balancer by the services in the JSON that a test wants the API to show. When a
    /// service with the same listen port existed before, the new service keeps the start time of its health checks.
    fn understand_services(&mut self, wanted: &Value) {
        let before = std::mem::take(&mut self.services);
        let services = wanted.as_array().into_iter().flatten();
        for mut service in services.filter_map(|one| Service::read(Fields::of(one)).ok()) {
            let mut known = before.iter();
            if let Some(known) = known.find(|known| known.listen_port == service.listen_port) {
                service.since = known.since;
            }
            self.services.push(service);
        }
    }

    fn understand_targets(&mut self, wanted: &Value) {
        let before = std::mem::take(&mut self.targets);
        for entry in wanted.as_array().into_iter().flatten() {
            // A request can contain these fields of a target. The edited JSON can contain more, e.g. the health. Only
            // these fields are copied, because the function that reads targets from requests accepts no others.
            let names = ["type", "server", "ip", "label_selector", "use_private_ip"];
            let asked: Value = names.iter().fold(json!({}), |mut asked, name| {
                if let Some(value) = entry.get(*name) {
                    asked[*name] = value.clone();
                }
                asked
            });
            let Ok(mut target) = Target::read(Fields::of(&asked)) else {
                continue;
            };
            if let Some(known) = before.iter().find(|known| known.kind == target.kind) {
                target.since = known.since;
            }
            self.targets.push(target);
        }
    }
}
