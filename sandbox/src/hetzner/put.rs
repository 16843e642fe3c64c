//! Adds resources to a project. Each resource is given as the JSON in which the API shows it, and keeps the ID in this
//! JSON. This module also returns the JSON of a project's resources.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::error::ApiError;
use super::input::Fields;
use super::networks::{Network, Subnet, SubnetType};
use super::world::World;
use super::{Cloud, ServerSpec, certificates, load_balancers, primary_ips, servers};

impl Cloud {
    /// Adds one resource to a project. `document` is an object with one field, which contains the resource as the API
    /// shows it: `{"load_balancer": {"id": 7, …}}`. The field is `server`, `network`, `certificate`, `primary_ip` or
    /// `load_balancer`.
    ///
    /// Fields that the simulation computes itself, such as the health of targets, are ignored. Of a server only four
    /// facts are used: its name, its labels, its private addresses, and whether it has public addresses. A network must
    /// be added before the servers and load balancers in it, and a Primary IP before its load balancer. A load balancer
    /// whose Primary IPs do not exist gets new ones.
    ///
    /// # Panics
    /// Panics when the document contains another kind of resource, no ID, or a value that the simulation cannot store.
    pub fn put(&self, project: u64, document: &Value) {
        let mut kinds = document.as_object().into_iter().flatten();
        let (Some((kind, shown)), None) = (kinds.next(), kinds.next()) else {
            panic!("not one resource: {document}");
        };
        let id = shown["id"].as_u64();
        let id = id.unwrap_or_else(|| panic!("no ID: {document}"));
        let put = match kind.as_str() {
            "server" => put_server,
            "network" => put_network,
            "certificate" => certificates::put,
            "primary_ip" => primary_ips::put,
            "load_balancer" => load_balancers::put,
            _ => panic!("no kind of resource: {kind}"),
        };
        let done = self.lock().with_id(id, |world| put(world, project, shown));
        done.unwrap_or_else(|error| panic!("cannot put {document}: {}", error.message));
    }

    /// Returns the JSON of all load balancers, certificates and Primary IPs of a project. The key contains the kind and
    /// the ID.
    pub fn shown(&self, project: u64) -> BTreeMap<(&'static str, u64), String> {
        let world = &*self.lock();
        let balancers = world.load_balancers_of(project);
        let balancers = balancers.map(|one| (("load_balancer", one.id), one.json(world)));
        let certificates = world.certificates_of(project);
        let certificates = certificates.map(|one| (("certificate", one.id), one.json(world)));
        let addresses = world.primary_ips_of(project);
        let addresses = addresses.map(|one| (("primary_ip", one.id), one.json()));
        let all = balancers.chain(certificates).chain(addresses);
        all.map(|(key, text)| (key, text.to_string())).collect()
    }
}

fn put_server(world: &mut World, project: u64, shown: &Value) -> Result<(), ApiError> {
    let has = |kind: &str| !shown["public_net"][kind].is_null();
    let mut fields = Fields::of(shown);
    let mut networks = Vec::new();
    for mut net in fields.objects("private_net")? {
        let network = net.number("network")?;
        networks.push((net.required("network", network)?, net.address("ip")?.map(IpAddr::V4)));
    }
    let spec = ServerSpec {
        name: fields.string("name")?.unwrap_or_default(),
        labels: fields.labels()?.unwrap_or_default(),
        ipv4: has("ipv4"),
        ipv6: has("ipv6"),
        networks,
        ..ServerSpec::default()
    };
    servers::place(world, project, spec).map(drop)
}

fn put_network(world: &mut World, project: u64, shown: &Value) -> Result<(), ApiError> {
    let mut fields = Fields::of(shown);
    let (name, range) = (fields.string("name")?, fields.range("ip_range")?);
    let range = fields.required("ip_range", range)?;
    let id = world.new_id();
    let mut network = Network::new(id, project, &name.unwrap_or_default(), range);
    for mut subnet in fields.objects("subnets")? {
        let range = subnet.range("ip_range")?;
        let range = subnet.required("ip_range", range)?;
        let is_vswitch = subnet.string("type")?.as_deref() == Some("vswitch");
        let cloud = Subnet::cloud(range, Subnet::read_zone(&mut subnet)?);
        network.subnets.push(match is_vswitch {
            true => Subnet { kind: SubnetType::Vswitch, vswitch_id: Some(id), ..cloud },
            false => cloud,
        });
    }
    world.networks.insert(id, network);
    Ok(())
}
