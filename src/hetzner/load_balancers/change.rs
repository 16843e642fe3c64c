//! One write to one load balancer, as data.

use super::balancer::{AlgorithmOf, LoadBalancer, Target};
use super::listener::Listener;
use super::names::{ADOPT, ADOPTED, CLUSTER_UID, CREATED, SERVICE_UID};
use crate::http::Method;
use crate::provider::{ChangeKind, Finding, LoadBalancerPlan, Source};
use ipnet::Ipv4Net;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// ID of the load balancer; none while there is none.
    pub balancer: Option<u64>,
    pub write: Write,
    /// For people, e.g. `target worker-1: added`.
    pub line: String,
    pub sources: Vec<Source>,
    /// Reported on the Service once it is made.
    pub event: Option<Finding>,
    /// It is a part of a release.
    pub is_release: bool,
}

/// Its form as JSON is the body of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Write {
    Create(Box<Create>),
    /// The API replaces the whole map of labels, so it is read again just before.
    Edit {
        name: Option<String>,
        labels: Option<LabelEdit>,
    },
    ChangeType {
        #[serde(rename = "load_balancer_type")]
        kind: String,
    },
    ChangeAlgorithm(AlgorithmOf),
    ChangeDnsPtr {
        ip: IpAddr,
        dns_ptr: String,
    },
    Detach {
        network: u64,
    },
    Attach {
        network: u64,
        ip: Option<Ipv4Addr>,
        ip_range: Option<Ipv4Net>,
    },
    EnablePublicInterface,
    DisablePublicInterface,
    DeleteService {
        listen_port: u16,
    },
    UpdateService(Listener),
    #[serde(serialize_with = "Listener::serialize_new")]
    AddService(Listener),
    AddTarget(ServerTarget),
    #[serde(serialize_with = "server_target")]
    RemoveTarget {
        server: u64,
        /// Of those that are there now none stays.
        is_one_of_all: bool,
    },
    /// Only while it is not protected, has these labels, and no port or target besides: it is read again before.
    Delete {
        #[serde(skip)]
        seen: Box<Seen>,
        /// No Service plans it again: what changed is an error.
        #[serde(skip)]
        is_orphan: bool,
    },
    CreateCertificate(Box<NewCertificate>),
    /// As with `Edit`, the other labels are kept as they are when it is made.
    #[serde(serialize_with = "certificate_labels")]
    EditCertificate {
        certificate: u64,
        set: BTreeMap<String, String>,
        /// Its labels when the write was planned.
        seen: BTreeMap<String, String>,
    },
}

/// Some labels of a load balancer; the others are kept as they are when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelEdit {
    pub set: BTreeMap<String, String>,
    pub remove: BTreeSet<String>,
    pub seen: Box<Seen>,
    /// It must have no port and no target besides those that were seen.
    pub adopts: bool,
}

/// What the one POST carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Create {
    pub name: String,
    #[serde(rename = "load_balancer_type")]
    pub kind: String,
    /// One of these two.
    pub location: Option<String>,
    pub network_zone: Option<String>,
    /// Who says where.
    #[serde(skip)]
    pub place: Source,
    pub algorithm: Option<AlgorithmOf>,
    pub labels: BTreeMap<String, String>,
    pub network: Option<u64>,
    pub public_interface: Option<bool>,
    #[serde(skip_serializing_if = "PublicIds::is_empty")]
    pub public_net: PublicIds,
    #[serde(serialize_with = "new_services")]
    pub services: Vec<Listener>,
    pub targets: Vec<ServerTarget>,
}

/// IDs of Primary IPs; none: the API makes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PublicIds {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<u64>,
}

/// A managed certificate to be ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewCertificate {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub domain_names: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTarget {
    pub server: u64,
    pub use_private_ip: bool,
}

impl PublicIds {
    pub fn is_empty(&self) -> bool {
        self.ipv4.or(self.ipv6).is_none()
    }
}

impl Serialize for ServerTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ServerTarget {
            server,
            use_private_ip,
        } = self;
        let body = json!({ "type": "server", "server": { "id": server }, "use_private_ip": use_private_ip });
        body.serialize(serializer)
    }
}

impl Serialize for LabelEdit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.whole().serialize(serializer)
    }
}

fn server_target<S: Serializer>(server: &u64, _: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    json!({ "type": "server", "server": { "id": server } }).serialize(serializer)
}

fn certificate_labels<S: Serializer>(
    _: &u64,
    set: &BTreeMap<String, String>,
    seen: &BTreeMap<String, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut labels = seen.clone();
    labels.extend(set.clone());
    json!({ "labels": labels }).serialize(serializer)
}

fn new_services<S: Serializer>(services: &[Listener], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(services.iter().map(|service| service.body(true)))
}

/// A call to the API: method, path, body.
pub(super) type Call = (Method, String, Option<Value>);

impl LabelEdit {
    /// All labels as they will be, of those that were seen.
    pub fn whole(&self) -> BTreeMap<String, String> {
        let mut labels = self.seen.labels.clone();
        labels.retain(|label, _| !self.remove.contains(label));
        labels.extend(self.set.clone());
        labels
    }
}

impl Change {
    pub(super) fn new(
        balancer: Option<u64>,
        write: Write,
        line: String,
        sources: Vec<Source>,
    ) -> Change {
        Change {
            balancer,
            write,
            line,
            sources,
            event: None,
            is_release: false,
        }
    }

    /// The call that makes it.
    pub(super) fn call(&self) -> Call {
        let path = match self.balancer {
            Some(id) => format!("/load_balancers/{id}"),
            None => "/load_balancers".to_owned(),
        };
        let body = Some(self.write.body());
        match self.write {
            Write::Create(_) => (Method::Post, path, body),
            Write::Edit { .. } => (Method::Put, path, body),
            Write::Delete { .. } => (Method::Delete, path, None),
            Write::CreateCertificate(_) => (Method::Post, "/certificates".to_owned(), body),
            Write::EditCertificate { certificate, .. } => {
                let path = format!("/certificates/{certificate}");
                (Method::Put, path, body)
            }
            _ => {
                let path = format!("{path}/actions/{}", self.write.action());
                (Method::Post, path, body)
            }
        }
    }
}

impl Write {
    /// The API's word for it.
    pub fn action(&self) -> &'static str {
        match self {
            Write::Create(_) => "create",
            Write::Edit { .. } => "edit",
            Write::ChangeType { .. } => "change_type",
            Write::ChangeAlgorithm(_) => "change_algorithm",
            Write::ChangeDnsPtr { .. } => "change_dns_ptr",
            Write::Detach { .. } => "detach_from_network",
            Write::Attach { .. } => "attach_to_network",
            Write::EnablePublicInterface => "enable_public_interface",
            Write::DisablePublicInterface => "disable_public_interface",
            Write::DeleteService { .. } => "delete_service",
            Write::UpdateService(_) => "update_service",
            Write::AddService(_) => "add_service",
            Write::AddTarget(_) => "add_target",
            Write::RemoveTarget { .. } => "remove_target",
            Write::Delete { .. } => "delete",
            Write::CreateCertificate(_) => "create_certificate",
            Write::EditCertificate { .. } => "edit_certificate",
        }
    }

    fn body(&self) -> Value {
        let mut body = match serde_json::to_value(self) {
            Ok(Value::Object(body)) => body,
            _ => Map::new(),
        };
        // What is not asked for is the API's to choose.
        body.retain(|_, value| !value.is_null());
        Value::Object(body)
    }
}

impl Create {
    /// For people.
    pub(super) fn line(&self) -> String {
        let place = self.location.as_ref().or(self.network_zone.as_ref());
        let parts = match (self.services.len(), self.targets.len()) {
            (0, 0) => "without ports and targets as yet".to_owned(),
            (ports, targets) => {
                format!("{}, {}", counted(ports, "port"), counted(targets, "target"))
            }
        };
        format!(
            "load balancer {}: created, {} in {}, {parts}",
            self.name,
            self.kind,
            place.map_or("", |place| place),
        )
    }
}

impl Change {
    /// `{"change": "add_target", "loadBalancer": 7, "request": {…}}`: the API's words.
    pub fn json(&self) -> Value {
        json!({
            "change": self.write.action(),
            "loadBalancer": self.balancer,
            "request": self.write.body(),
        })
    }

    pub fn kind(&self) -> ChangeKind {
        match self.write {
            _ if self.is_release => ChangeKind::Release,
            Write::AddTarget(_) | Write::RemoveTarget { .. } => ChangeKind::Targets,
            Write::Delete { .. } => ChangeKind::Removal,
            _ => ChangeKind::Settings,
        }
    }

    /// Not a target's removal: the one that comes instead must be there first.
    pub fn may_follow_at_once(&self) -> bool {
        matches!(
            self.write,
            Write::AddTarget(_)
                | Write::AddService(_)
                | Write::UpdateService(_)
                | Write::ChangeAlgorithm(_)
                | Write::ChangeDnsPtr { .. }
        )
    }

    pub fn may_fail_alone(&self) -> bool {
        matches!(
            self.write,
            Write::AddTarget(_)
                | Write::AddService(_)
                | Write::UpdateService(_)
                | Write::ChangeDnsPtr { .. }
                | Write::CreateCertificate(_)
                | Write::EditCertificate { .. }
        )
    }

    /// A load balancer without ports and targets, which are then tried one by one.
    pub fn without_parts(&self) -> Option<Change> {
        let Write::Create(create) = &self.write else {
            return None;
        };
        let bare = Create {
            services: Vec::new(),
            targets: Vec::new(),
            ..Create::clone(create)
        };
        Some(Change {
            line: bare.line(),
            write: Write::Create(Box::new(bare)),
            ..self.clone()
        })
    }

    pub fn needs_another_first(&self) -> bool {
        matches!(
            self.write,
            Write::RemoveTarget {
                is_one_of_all: true,
                ..
            }
        )
    }
}

/// A plan whose changes are data.
#[derive(Debug, Default)]
pub struct Plan {
    pub changes: Vec<Change>,
    /// All but the changes.
    pub rest: LoadBalancerPlan,
}

impl Deref for Plan {
    type Target = LoadBalancerPlan;

    fn deref(&self) -> &LoadBalancerPlan {
        &self.rest
    }
}

impl DerefMut for Plan {
    fn deref_mut(&mut self) -> &mut LoadBalancerPlan {
        &mut self.rest
    }
}

impl From<LoadBalancerPlan> for Plan {
    fn from(rest: LoadBalancerPlan) -> Plan {
        Plan {
            changes: Vec::new(),
            rest,
        }
    }
}

/// `1 port`, `2 ports`.
fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// A load balancer's labels, ports and targets when the write was planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub labels: BTreeMap<String, String>,
    ports: BTreeSet<u16>,
    targets: BTreeSet<String>,
}

impl Seen {
    pub fn of(balancer: &LoadBalancer) -> Seen {
        let ports = balancer.services.iter().map(|port| port.listen_port);
        Seen {
            labels: balancer.labels.clone(),
            ports: ports.collect(),
            targets: balancer.targets.iter().flat_map(keys).collect(),
        }
    }

    /// The labels that say whose it is are the same.
    pub(super) fn has_same_owner(&self, now: &Seen) -> bool {
        [SERVICE_UID, CLUSTER_UID, CREATED, ADOPTED, ADOPT]
            .iter()
            .all(|label| self.labels.get(*label) == now.labels.get(*label))
    }

    /// Since then it has got no port and no target.
    pub(super) fn has_all_of(&self, now: &Seen) -> bool {
        now.ports.is_subset(&self.ports) && now.targets.is_subset(&self.targets)
    }
}

/// What one target stands for.
fn keys(target: &Target) -> Vec<String> {
    match target {
        Target::Server { server, .. } => vec![format!("server {}", server.id)],
        Target::Ip { ip, .. } => vec![format!("address {}", ip.ip)],
        Target::LabelSelector {
            label_selector,
            targets,
        } => {
            let selected = targets.iter().flatten();
            let selected = selected.map(|one| format!("server {}", one.server.id));
            let own = format!("selector {}", label_selector.selector);
            selected.chain([own]).collect()
        }
        Target::Unknown => vec!["unknown".to_owned()],
    }
}
