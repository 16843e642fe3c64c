//! A small cloud provider for tests, which exists in addition to the provider for Hetzner Cloud. It shows that a new
//! provider only has to implement the traits of `ccm::provider`.

use ccm::provider::{
    AddressKind, Dedicated, ErrorKind, Finding, Instance, InstanceId, Instances, LabelPrefixes,
    Metadata, Node, NodeAddress, Provider, ProviderError, ProviderId, Source, Sourced,
    TopologyLabel, Urgency, ZoneLabel, ZoneValues,
};
use ipnet::IpNet;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A cloud in memory. It consists of a list of cloud servers and, if there are dedicated servers, a list of dedicated
/// servers.
#[derive(Clone, Debug, Default)]
pub struct FakeProvider {
    pub instances: Vec<Instance>,
    /// The dedicated servers. `None` means that there are no dedicated servers, or no credentials for them.
    pub dedicated: Option<Vec<Instance>>,
    /// Prefixes of label keys. A node is allowed to get a label of its server when the label's key begins with one of
    /// these prefixes.
    pub label_prefixes: LabelPrefixes,
    /// Whether nodes of other providers can be targets of load balancers.
    pub matches_foreign_nodes: bool,
    /// Whether nodes get no zone label.
    pub without_zone: bool,
    /// The kind of zone label that a setting has chosen. `None` means that no setting has chosen one, and the zone
    /// label is then the server's location.
    pub zone_label: Option<ZoneLabel>,
}

impl FakeProvider {
    /// Returns a cloud in memory that has these cloud servers.
    pub fn of(instances: impl Into<Vec<Instance>>) -> FakeProvider {
        FakeProvider { instances: instances.into(), ..FakeProvider::default() }
    }
}

impl Provider for FakeProvider {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn matches_foreign_nodes(&self) -> bool {
        self.matches_foreign_nodes
    }

    fn parse_provider_id(&self, text: &str) -> ProviderId {
        match text.split_once("://") {
            Some(("memory", id)) => match id.parse() {
                Ok(id) => ProviderId::Ours(InstanceId::Cloud(id)),
                Err(_) => ProviderId::Unknown(format!("{id:?} is no number")),
            },
            Some(("metal", id)) => ProviderId::Ours(InstanceId::Dedicated(id.parse().unwrap_or(0))),
            _ => ProviderId::Foreign,
        }
    }

    fn dedicated(&self) -> Option<&dyn Dedicated> {
        self.dedicated.as_ref().map(|_| self as &dyn Dedicated)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
}

impl Dedicated for FakeProvider {
    fn list(&self, _urgency: Urgency) -> Result<Vec<Instance>, ProviderError> {
        Ok(self.dedicated.clone().unwrap_or_default())
    }

    fn get(&self, number: u64) -> Result<(), ProviderError> {
        let id = InstanceId::Dedicated(number);
        let mut all = self.dedicated.iter().flatten();
        let found = all.any(|instance| instance.id == id);
        let missing = || ProviderError::new(ErrorKind::NotFound, format!("no server {id}"));
        found.then_some(()).ok_or_else(missing)
    }

    fn is_off(&self, _number: u64) -> Result<Option<bool>, ProviderError> {
        Ok(None)
    }

    fn login_refused(&self) -> Option<Timestamp> {
        None
    }

    fn wait_since(&self, _refused: Timestamp) {}

    fn blocked_until(&self) -> Option<Timestamp> {
        None
    }
}

impl Instances for FakeProvider {
    fn list(&self, _urgency: Urgency) -> Result<Vec<Instance>, ProviderError> {
        Ok(self.instances.clone())
    }

    fn get(&self, number: u64) -> Result<Instance, ProviderError> {
        let id = InstanceId::Cloud(number);
        let found = self.instances.iter().find(|instance| instance.id == id);
        found
            .cloned()
            .ok_or_else(|| ProviderError::new(ErrorKind::NotFound, format!("no server {id}")))
    }

    fn named(&self, name: &str) -> Result<Vec<Instance>, ProviderError> {
        let mut named = self.instances.clone();
        named.retain(|instance| instance.name == name);
        Ok(named)
    }

    fn around(
        &self,
        _numbers: &BTreeSet<u64>,
        _place: &dyn Fn(u64) -> usize,
        _urgency: Urgency,
    ) -> Result<Vec<Instance>, ProviderError> {
        Ok(self.instances.clone())
    }

    fn check_is_idle(&self, _number: u64) -> Result<(), ProviderError> {
        Ok(())
    }

    fn metadata(&self, instance: &Instance, _node: &Node) -> Result<Metadata, Box<Finding>> {
        let address = |kind, text: String| {
            Sourced::new(NodeAddress::new(kind, text), Source::server("address"))
        };
        let public =
            instance.public_ipv4.map(|ip| address(AddressKind::ExternalIP, ip.to_string()));
        let private =
            instance.private.first().map(|p| address(AddressKind::InternalIP, p.ip.to_string()));
        let label = |value: &str| Sourced::new(value.to_owned(), Source::server("place"));
        Ok(Metadata {
            provider_id: Sourced::new(
                match instance.id {
                    InstanceId::Cloud(number) => format!("memory://{number}"),
                    InstanceId::Dedicated(number) => format!("metal://{number}"),
                },
                Source::server("id"),
            ),
            addresses: public.into_iter().chain(private).collect(),
            topology: vec![
                (TopologyLabel::InstanceType, label(&instance.instance_type)),
                (TopologyLabel::Zone, label(&instance.location)),
                (TopologyLabel::Region, label(&instance.network_zone)),
            ],
            extra_labels: BTreeMap::new(),
            findings: Vec::new(),
        })
    }

    fn zone(&self, instance: &Instance) -> ZoneValues {
        let location = instance.location.to_string();
        let datacenter = match &*location {
            "" => String::new(),
            location => format!("{location}-dc1"),
        };
        let value = match self.zone_label {
            Some(ZoneLabel::Datacenter) => datacenter.clone(),
            _ => location.clone(),
        };
        ZoneValues {
            wanted: Sourced::new((!self.without_zone).then_some(value), Source::server("place")),
            possible: [datacenter, location],
            is_chosen: self.zone_label.is_some(),
        }
    }

    fn allows_label(&self, key: &str) -> bool {
        self.label_prefixes.allow(key)
    }

    fn stated_addresses(&self, instance: &Instance) -> Vec<IpNet> {
        let private = instance.private.iter().map(|private| IpNet::from(private.ip));
        let ipv6 = instance.public_ipv6.map(IpNet::V6);
        self.recognised_by(instance).into_iter().chain(private).chain(ipv6).collect()
    }

    fn recognised_by(&self, instance: &Instance) -> Vec<IpNet> {
        instance.public_ipv4.iter().map(|ip| IpNet::from(std::net::IpAddr::V4(*ip))).collect()
    }
}
