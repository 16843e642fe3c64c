//! The changes of load balancers and certificates. Each change is one write to the Cloud API. This file lists the kinds
//! of changes, sends the requests, and decides from the answer whether a change was made.

use super::annotations::{self as a, Annotation};
use super::model::balancer::{LoadBalancer, TargetInRequest};
use super::ownership::context::{BalancerSnapshot, ObservedBalancers, Project};
use super::ownership::guard::{Guard, SeenState};
use super::ownership::replacement::Successor;
use crate::hetzner::actions;
use crate::hetzner::api::CloudFailure;
use crate::hetzner::certificates::Certificate;
use crate::http::{Method, Secret};
use crate::provider::variables::VariableName;
use crate::provider::{
    self, Applied, ChangeKind, Description, ErrorKind, Finding, ProviderError, SoftRemoval,
    Sourced, TlsPair, Urgency, WriteVerb,
};
use crate::text::shell_command;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A property of a [`BalancerAction`], for example that it deletes something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ActionTrait {
    FollowsAtOnce,
    FailsAlone,
    Deletes,
    OfCertificate,
    /// A change of this kind can alter the addresses and the targets of the load balancer. So the caller reads the load
    /// balancer again before it makes the next change.
    ReadAgain,
}
use ActionTrait::{Deletes, FailsAlone, FollowsAtOnce, OfCertificate, ReadAgain};

macro_rules! actions {
    ($($action:ident: $name:literal $($of:ident)*;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum BalancerAction {
            $($action,)*
        }

        impl BalancerAction {
            /// Returns the API's name for the action.
            fn name(self) -> &'static str {
                match self {
                    $(BalancerAction::$action => $name,)*
                }
            }

            fn is(self, one: ActionTrait) -> bool {
                let traits: &[ActionTrait] = match self {
                    $(BalancerAction::$action => &[$($of),*],)*
                };
                traits.contains(&one)
            }
        }
    };
}

// A change with the property `FollowsAtOnce` can be sent while the API action of the previous change still runs.
// `RemoveTarget` does not have the property. The previous change can add the target that replaces the removed one, and
// the old target must stay until this addition has ended.
actions! {
    Create: "create";
    Edit: "edit";
    ChangeType: "change_type";
    ChangeAlgorithm: "change_algorithm" FollowsAtOnce;
    ChangeDnsPtr: "change_dns_ptr" FollowsAtOnce FailsAlone;
    ChangeProtection: "change_protection" FollowsAtOnce FailsAlone;
    Detach: "detach_from_network" ReadAgain;
    Attach: "attach_to_network" ReadAgain;
    EnablePublicInterface: "enable_public_interface" ReadAgain;
    DisablePublicInterface: "disable_public_interface" ReadAgain;
    DeleteService: "delete_service";
    UpdateService: "update_service" FollowsAtOnce FailsAlone;
    AddService: "add_service" FollowsAtOnce FailsAlone;
    AddTarget: "add_target" FollowsAtOnce FailsAlone;
    RemoveTarget: "remove_target";
    Delete: "delete" Deletes;
    CreateCertificate: "create_certificate" OfCertificate FailsAlone;
    EditCertificate: "edit_certificate" OfCertificate FailsAlone;
    DeleteCertificate: "delete_certificate" OfCertificate Deletes FailsAlone;
}

/// The reason for a write to a load balancer. Each reason except `Usual` has a special rule, which its comment
/// describes. Such a rule can say, for example, when the write must not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Usual,
    /// The Service adopts the load balancer. The write is not made when the load balancer has got a new port or target
    /// since it was read for the plan.
    Adoption,
    /// The Service gives up its load balancer, which stays in the project. The write is not made when the load balancer
    /// has got a new port or target since it was read for the plan.
    Release,
    /// The write deletes a load balancer that belongs to no Service. When a check just before the write shows that the
    /// load balancer must not be deleted any more, the write ends with an error. For a write of another purpose, there
    /// would be no error, and the Service would be planned again.
    Orphan,
    /// The write removes one of the present targets, and the plan removes all other present targets, too. If the API
    /// has refused all new targets of the plan, this write is not made. So the load balancer always has a target.
    LastTarget,
    /// The write gives the load balancer the larger type that `type: auto` has chosen. When it fails, the later changes
    /// of the plan are still made, except those that need the larger type.
    Growth,
    /// The write adds a port or a target for which the present type of the load balancer has no room. It is made only
    /// when all changes before it were made.
    NeedsGrowth,
    /// The write is a step in the replacement of one load balancer by another (`ccm lb replace`). It changes which of
    /// the two load balancers serves the Service, or until when both serve. After this write, everything is read and
    /// planned again.
    Replacement,
    /// The write uploads the last certificate of a plan. After this write all certificates are read again, because
    /// changes of ports need the IDs of the uploaded certificates.
    LastUpload,
}

#[derive(Clone)]
pub struct BalancerChange {
    project: Project,
    pub(super) action: BalancerAction,
    /// The ID of the load balancer or certificate. `None` when the write creates it.
    id: Option<u64>,
    pub(super) request: Request,
    pub(super) description: Description,
    pub(super) purpose: Purpose,
    pub(super) event: Option<Finding>,
    guard: Option<Box<Guard>>,
    /// Set when the write removes a target although its Services want it, for example because its node will stop soon.
    /// The first value is the name of the node. The second value is `true` when a node with pods takes the place of the
    /// target, i.e. the target is exchanged. Only a limited number of exchanges is allowed in a minute, and this write
    /// counts as one of them.
    pub(super) soft_removal: Option<(String, bool)>,
    /// The certificate that the write uploads, with its private key. Both become part of the request only when it is
    /// sent, so that logs and other outputs of the plan can't show the key. `None` when the write uploads no
    /// certificate.
    pub(super) pair: Option<Arc<TlsPair>>,
    /// The name of the load balancer, when the write creates one. `None` for every other write.
    new_name: Option<Sourced<String>>,
    /// The text that announces the write in an event, when this program has chosen the type of the load balancer.
    announcement: Option<String>,
    /// The load balancer that stays, when the write is part of the end of a replacement. Such a write deletes or
    /// releases the other load balancer. It is not made when the load balancer that stays can't take over the traffic.
    /// `None` for every other write.
    pub(super) successor: Option<Box<Successor>>,
}

/// A line of a private key with at least this number of characters is hidden in error texts. A shorter line reveals
/// nothing about the key, and hiding it could hide other text by chance.
const SHORTEST_KEY_LINE: usize = 16;

#[derive(Clone, Default, Serialize)]
pub(super) struct Request {
    #[serde(flatten)]
    pub(super) body: Map<String, Value>,
    /// The target, when the request adds or removes one. `None` for every other request.
    #[serde(flatten)]
    pub(super) target: Option<TargetInRequest>,
    /// All targets of the load balancer, when the request creates one. `None` for every other request.
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<Vec<TargetInRequest>>,
}

impl BalancerChange {
    pub(super) fn new(
        project: &Project,
        action: BalancerAction,
        id: Option<u64>,
        body: Value,
        description: Description,
    ) -> BalancerChange {
        let mut body = match body {
            Value::Object(body) => body,
            _ => Map::new(),
        };
        // A field that is `null` is removed from the request, so that the API chooses the value.
        body.retain(|_, value| !value.is_null());
        BalancerChange {
            project: project.clone(),
            action,
            id,
            request: Request { body, ..Request::default() },
            description,
            purpose: Purpose::Usual,
            event: None,
            guard: None,
            soft_removal: None,
            pair: None,
            new_name: None,
            announcement: None,
            successor: None,
        }
    }

    /// Returns the change that creates a load balancer together with its ports and targets.
    pub(super) fn creation(
        project: &Project,
        name: Sourced<String>,
        body: Value,
        targets: Vec<TargetInRequest>,
    ) -> BalancerChange {
        let (create, undescribed) = (BalancerAction::Create, Description::default());
        let mut change = BalancerChange::new(project, create, None, body, undescribed);
        change.request.targets = Some(targets);
        let parts = match change.parts() {
            (0, 0) => "without ports and targets".to_owned(),
            (ports, targets) => {
                format!("{}, {}", counted(ports, "port"), counted(targets, "target"))
            }
        };
        let (kind, place) = (change.text("load_balancer_type"), change.place().0);
        let noun = format!("load balancer {:?}", change.text("name"));
        let details = format!(", {kind} in {place}, {parts}");
        change.description = Description::new(WriteVerb::CREATE, noun, details);
        change.new_name = Some(name);
        change
    }

    /// Adds the reason why this program has chosen the type of the load balancer to the description of the change. When
    /// the change gives an existing load balancer a larger type and fails, later changes that do not need the larger
    /// type are still made. If `reason` is `None`, the change stays as it is.
    pub(super) fn announced(mut self, reason: Option<String>) -> BalancerChange {
        if let Some(reason) = &reason {
            self.description = self.description.because(&format!(" ({reason})"));
            if self.id.is_some() {
                self.purpose = Purpose::Growth;
            }
        }
        self.announcement = reason;
        self
    }

    pub(super) fn guarded(mut self, guard: Guard) -> BalancerChange {
        self.set_labels(guard.labels());
        self.guard = Some(Box::new(guard));
        self
    }

    fn set_labels(&mut self, labels: BTreeMap<String, String>) {
        if !self.action.is(Deletes) {
            self.request.body.insert("labels".to_owned(), json!(labels));
        }
    }

    fn text(&self, key: &str) -> &str {
        self.request.body.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the number of ports and the number of targets in the request that creates a load balancer.
    fn parts(&self) -> (usize, usize) {
        let Request { body, targets, .. } = &self.request;
        let ports = body.get("services").and_then(Value::as_array);
        let targets = targets.as_ref();
        (ports.map_or(0, Vec::len), targets.map_or(0, Vec::len))
    }

    /// Returns the location or network zone where the load balancer is created, and the annotation
    /// that sets this place.
    fn place(&self) -> (&str, &Annotation) {
        match self.text("location") {
            "" => (self.text("network_zone"), &a::NETWORK_ZONE),
            location => (location, &a::LOCATION),
        }
    }

    fn call(&self) -> (Method, String) {
        let all = if self.action.is(OfCertificate) { "/certificates" } else { "/load_balancers" };
        let Some(id) = self.id else {
            return (Method::Post, all.to_owned());
        };
        match self.action {
            BalancerAction::Edit | BalancerAction::EditCertificate => {
                (Method::Put, format!("{all}/{id}"))
            }
            BalancerAction::Delete | BalancerAction::DeleteCertificate => {
                (Method::Delete, format!("{all}/{id}"))
            }
            action => (Method::Post, format!("{all}/{id}/actions/{}", action.name())),
        }
    }

    /// Reads the load balancer or certificate again just before the write, and checks whether the write is still
    /// allowed. If so, the labels in the request are computed anew from this read, and the result is `None`. Otherwise
    /// the write must not be sent, and the result says why: the object is already deleted, or everything must be
    /// planned again.
    fn rebase(&mut self) -> Result<Option<Applied>, ProviderError> {
        let Some((guard, id)) = self.guard.take().zip(self.id) else {
            return Ok(None);
        };
        let api = &self.project.api;
        // The load balancer or certificate is read again just before the write, but only when the rate limit has calls
        // left for this and for the write. Otherwise each attempt could use the last calls for its reads, and the write
        // would never be sent. A write with the purpose `Release` also asks whether an action is running, which is one
        // more read.
        let reads = 1 + u64::from(self.purpose == Purpose::Release);
        api.admit_write(reads, &self.description.to_string())?;
        if self.purpose == Purpose::Release {
            let path = format!("/load_balancers/{id}");
            actions::check_none_runs(api, &path)?;
        }
        let now = if self.action.is(OfCertificate) {
            api.one::<Certificate>(id, Urgency::Needed).map(|now| SeenState::from(&now))
        } else {
            api.one::<LoadBalancer>(id, Urgency::Needed).map(|now| SeenState::from(&now))
        };
        let is_deletion = self.action.is(Deletes);
        let now = match now {
            Err(error) if error.kind == ErrorKind::NotFound => {
                return Ok(Some(if is_deletion { Applied::Done } else { Applied::Overtaken }));
            }
            now => now?,
        };
        let takes_all = is_deletion || matches!(self.purpose, Purpose::Adoption | Purpose::Release);
        let Some(why) = guard.refused(&now, is_deletion, takes_all) else {
            self.set_labels(guard.labels_now(&now));
            return Ok(None);
        };
        let kind = if self.action.is(OfCertificate) { "certificate" } else { "load balancer" };
        let message =
            format!("{kind} {id}: ccm did not {}, because {why}", self.description.requested());
        if self.purpose == Purpose::Orphan {
            let message = format!(
                "{message}. If you repeat the command, ccm decides anew whether the {kind} can be deleted"
            );
            return Err(ProviderError::new(ErrorKind::Other, message));
        }
        log::info!("{message}. ccm reads the present state and plans again");
        Ok(Some(Applied::Overtaken))
    }

    /// Whether the replacement of one load balancer by another allows this write. At its end, a replacement deletes or
    /// releases one of the two load balancers. This is allowed only when the labels of the other one are unchanged. If
    /// the removed one has ever served the Service, the other one must also be able to take over all traffic. For this
    /// check, both are read again. A write that is not the end of a replacement is always allowed.
    fn is_succeeded(&self) -> Result<bool, ProviderError> {
        let Some((successor, id)) = self.successor.as_ref().zip(self.id) else {
            return Ok(true);
        };
        let read = |id| match self.project.api.one::<LoadBalancer>(id, Urgency::Needed) {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        };
        let both = read(successor.id)?.zip(read(id)?);
        Ok(both.is_some_and(|(stays, leaves)| successor.allows(&stays, &leaves)))
    }

    fn answered(&self, answer: Option<WriteAnswer>) -> Result<Applied, ProviderError> {
        let (action, balancer) = match answer {
            None => (None, None),
            // The answer of the API always has at least one of these fields. An answer without them comes from another
            // server, e.g. a proxy, so it is not known whether the write was made.
            Some(WriteAnswer { action: None, load_balancer: None, certificate: None }) => {
                let name = self.action.name();
                let why = format!(
                    "the answer to {name} has neither an action nor the changed object, so perhaps it comes from a \
                     proxy and not from the API"
                );
                return Err(ProviderError::new(ErrorKind::Unavailable, why));
            }
            Some(answer) => (answer.action, answer.load_balancer),
        };
        let running = action.map_or(Ok(None), |action| action.running())?;
        let whole = balancer.filter(|balancer| self.is_whole(balancer));
        Ok(match (self.action, whole, running) {
            // The answer contains the new load balancer with all its addresses. The next plan of the Service needs no
            // data about other load balancers. So it is made from this answer, and the load balancers are not read
            // again.
            (BalancerAction::Create, Some(balancer), running) => {
                let observed = ObservedBalancers {
                    balancers: vec![*balancer],
                    ..ObservedBalancers::default()
                };
                let project = self.project.clone();
                Applied::Shown(running, Arc::new(BalancerSnapshot::new(project, observed)))
            }
            (BalancerAction::Create, None, running) => Applied::LookAgain(running),
            (BalancerAction::CreateCertificate, ..) if self.purpose == Purpose::LastUpload => {
                Applied::LookAgain(None)
            }
            // The next change does not wait for the issuance of the certificate, which can take minutes. A later read
            // of the certificate shows whether it was issued.
            (BalancerAction::CreateCertificate, ..) => Applied::Done,
            (_, _, running) if self.purpose == Purpose::Replacement => Applied::LookAgain(running),
            (action, _, running) if action.is(ReadAgain) => Applied::LookAgain(running),
            (_, _, Some(running)) => Applied::Running(running),
            (_, _, None) => Applied::Done,
        })
    }

    /// Whether the API's answer shows all addresses of the new load balancer. These are both public addresses, unless
    /// its public interface is off, and the private IP, when the request attaches it to a Network.
    fn is_whole(&self, balancer: &LoadBalancer) -> bool {
        let public = &balancer.public_net;
        let has_public = public.ipv4.ip.is_some() && public.ipv6.ip.is_some();
        let network = self.request.body.get("network").and_then(Value::as_u64);
        let address = |network| balancer.attached(network)?.ip;
        let is_attached = |network| address(network).is_some();
        (has_public || !public.enabled) && network.is_none_or(is_attached)
    }

    fn failed(&self, failed: CloudFailure) -> Result<Applied, ProviderError> {
        match (self.action, failed.code.as_str()) {
            // Another load balancer or certificate already has the name. The caller reads the list again to see who
            // owns that object.
            (BalancerAction::Create | BalancerAction::Edit | BalancerAction::CreateCertificate, "uniqueness_error")
            // Somebody turned on the load balancer's delete protection after the last read, so the load balancer stays.
            | (BalancerAction::Delete, "protected")
            // A load balancer began to use the certificate after the last read, so the certificate stays.
            | (BalancerAction::DeleteCertificate, "resource_in_use")
            // The four errors from `target_already_defined` to `load_balancer_target_not_found` mean that somebody else
            // (another program or a person) made the same change after this program had last read the load balancer.
            | (BalancerAction::AddTarget, "target_already_defined")
            | (BalancerAction::AddService, "source_port_already_used")
            | (BalancerAction::Attach, "load_balancer_already_attached")
            | (BalancerAction::RemoveTarget, "load_balancer_target_not_found") => {
                log::info!("{}; ccm reads the present state again", failed.error);
                Ok(Applied::Overtaken)
            }
            (BalancerAction::Create, _) if self.is_refused_for_a_part(&failed) => {
                Err(ProviderError::new(ErrorKind::InPart, failed.error.message))
            }
            _ if self.action.is(Deletes) && failed.error.kind == ErrorKind::NotFound => Ok(Applied::Done),
            // After an error of the kind `Unavailable`, no further change of the plan is made. When the change to a
            // larger type fails, the other changes must still be made, so its error gets the kind `Other` instead.
            _ if self.purpose == Purpose::Growth && failed.error.kind == ErrorKind::Unavailable => {
                Err(ProviderError::new(ErrorKind::Other, failed.error.message))
            }
            _ => Err(match self.next_step(&failed) {
                Some(step) => {
                    let message = format!("{}; {step}", failed.error);
                    ProviderError::new(failed.error.kind, message)
                }
                None => failed.error,
            }),
        }
    }

    /// Whether the API refused to create the load balancer because of one of its ports, certificates or targets. The
    /// load balancer can then be created without ports and targets, and they are added one by one afterwards.
    fn is_refused_for_a_part(&self, failed: &CloudFailure) -> bool {
        const PARTS: [&str; 11] = [
            "server_not_attached_to_network",
            "resolve_cloud_private_targets_error",
            "missing_ipv4",
            "resolve_cloud_public_targets_error",
            "ip_not_owned",
            "cloud_resource_ip_not_allowed",
            "target_already_defined",
            "load_balancer_not_attached_to_network",
            "source_port_already_used",
            "robot_unavailable",
            // A server or certificate that the request names does not exist any more. It was deleted after this program
            // had last read it.
            "not_found",
        ];
        const FIELDS: [&str; 10] = [
            "services",
            "targets",
            "certificates",
            "http",
            "health_check",
            "listen_port",
            "destination_port",
            "proxyprotocol",
            "server",
            "use_private_ip",
        ];
        let has_parts = self.parts() != (0, 0);
        let CloudFailure { code, fields, .. } = failed;
        // Whether the API's error is about a port, a certificate or a target. `field` is a text from the error. It is
        // either the path of a field, such as `services[0].http.certificates`, or the name of a limit, such as
        // `load_balancer_targets`. The result is `true` when `FIELDS` contains one of the names in the path, or the
        // name of the limit without `load_balancer_`.
        let of_a_part = |field: &String| {
            let mut names = field.split(['.', '[', ']']);
            names.any(|name| FIELDS.contains(&name.strip_prefix("load_balancer_").unwrap_or(name)))
        };
        let invalid_part = matches!(code.as_str(), "invalid_input" | "resource_limit_exceeded")
            && fields.iter().any(of_a_part);
        has_parts && (PARTS.contains(&code.as_str()) || invalid_part)
    }

    /// Returns advice for the user about this error of the API.
    fn next_step(&self, failed: &CloudFailure) -> Option<String> {
        let CloudFailure { code, fields, .. } = failed;
        let names = |wanted: &str| fields.iter().any(|field| field == wanted);
        let mut parts = ["targets", "services", "certificates"].iter();
        let names_part = parts.any(|part| names(&format!("load_balancer_{part}")));
        let is_not_found = code == "not_found" && fields.is_empty();
        let names_place = names("location") || names("network_zone") || is_not_found;
        let is_created = self.action == BalancerAction::Create;
        let (location, kind) = (a::LOCATION.key(), a::TYPE.key());
        Some(match code.as_str() {
            code if code.starts_with("primary_ip_") => format!(
                "{}name another Primary IP in annotation {} or {}",
                match code {
                    "primary_ip_assigned" => "unassign the Primary IP where it is used, or ",
                    _ => "",
                },
                a::PUBLIC_NET_IPV4.key(),
                a::PUBLIC_NET_IPV6.key()
            ),
            "invalid_input" | "not_found" if is_created && names_place => {
                let (place, by) = self.place();
                format!(
                    "location or network zone {place:?} may not exist (hcloud location list shows all). Correct \
                     annotation {} or, if the Service has no such annotation, the setting {}",
                    by.key(),
                    by.variable.map_or("", VariableName::text)
                )
            }
            code @ ("resource_unavailable" | "invalid_input" | "not_found")
                if is_created && (code == "resource_unavailable" || names("load_balancer_type")) =>
            {
                format!(
                    "type {:?} is not available in this location or network zone: choose another type in annotation \
                     {kind}, or another location in annotation {location}",
                    self.text("load_balancer_type"),
                )
            }
            "resource_limit_exceeded" if names("network_attached_resources") => {
                "the Network has reached its limit of servers and load balancers: detach some that do not need the \
                 Network"
                    .to_owned()
            }
            // When the load balancer has too many ports, targets or certificates (`names_part`), the limit depends on
            // its type. Every other limit, except the limit of a Network, is a limit of the whole project.
            "resource_limit_exceeded" if !names_part => {
                "the project has reached this limit: delete what is not needed, or ask for a higher limit in the \
                 console under Limits"
                    .to_owned()
            }
            "load_balancer_not_attached_to_network" => {
                let (network, id) = (self.project.network?, self.id?);
                let command = "hcloud load-balancer attach-to-network --network";
                let attach = shell_command(command, &[&network, &id]);
                format!("attach the load balancer to the Network: {attach}")
            }
            "no_subnet_available" => {
                "the Network has no subnet with a free address in the load balancer's network zone: add one, e.g. with \
                 hcloud network add-subnet"
                    .to_owned()
            }
            "ip_not_available" => {
                format!("choose another address in annotation {}", a::PRIVATE_IPV4.key())
            }
            _ => return None,
        })
    }
}

/// The API's answer to a write, with only the fields that this program reads.
#[derive(Deserialize)]
struct WriteAnswer {
    #[serde(default)]
    action: Option<actions::ApiAction>,
    #[serde(default)]
    load_balancer: Option<Box<LoadBalancer>>,
    #[serde(default)]
    certificate: Option<IgnoredAny>,
}

impl provider::Write for BalancerChange {
    /// Returns what the change does as one word, e.g. `add_target`, which is the API's name for it.
    fn word(&self) -> &'static str {
        self.action.name()
    }

    fn description(&self) -> Description {
        self.description.clone()
    }

    /// Returns the write as JSON for programs, such as `{"change": "add_target", "loadBalancer": 7, "request": {…}}`.
    fn json(&self) -> Value {
        json!({
            "change": self.word(),
            "loadBalancer": self.id.filter(|_| !self.action.is(OfCertificate)),
            "request": self.request,
        })
    }
}

impl provider::Change for BalancerChange {
    fn apply(&self) -> Result<Applied, ProviderError> {
        let mut change = self.clone();
        if !change.is_succeeded()? {
            return Ok(Applied::Overtaken);
        }
        if let Some(instead) = change.rebase()? {
            return Ok(instead);
        }
        let (method, path) = change.call();
        let mut secrets = Vec::new();
        if let Some(pair) = &change.pair {
            let (body, key) = (&mut change.request.body, pair.key.expose());
            body.insert("certificate".to_owned(), json!(pair.chain));
            body.insert("private_key".to_owned(), json!(key));
            // The private key must not appear in messages. An error text from the API can repeat only a part of the
            // key. So each line of the key is treated as a secret, except a short line, which reveals nothing about the
            // key.
            let is_long = |line: &&str| line.len() >= SHORTEST_KEY_LINE;
            secrets.extend(key.lines().filter(is_long).map(Secret::new));
        }
        let body = (method != Method::Delete).then_some(&change.request);
        let api = &change.project.api;
        match api.write(method, &path, body, &secrets) {
            Ok(answer) => change.answered(answer),
            Err(failed) => change.failed(failed),
        }
    }

    fn creates_or_deletes(&self) -> bool {
        self.id.is_none() || self.action.is(Deletes)
    }

    fn soft_removal(&self) -> Option<SoftRemoval<'_>> {
        let ((node, is_exchange), balancer) = self.soft_removal.as_ref().zip(self.id)?;
        Some(SoftRemoval { balancer, node, is_exchange: *is_exchange })
    }

    fn new_name(&self) -> Option<&Sourced<String>> {
        self.new_name.as_ref()
    }

    fn kind(&self) -> ChangeKind {
        match self.action {
            _ if self.purpose == Purpose::Release => ChangeKind::Release,
            BalancerAction::Delete => ChangeKind::Removal,
            BalancerAction::AddTarget | BalancerAction::RemoveTarget => ChangeKind::Targets,
            _ => ChangeKind::Settings,
        }
    }

    fn may_follow_at_once(&self) -> bool {
        self.action.is(FollowsAtOnce) && !self.needs_all_before()
    }

    fn may_fail_alone(&self) -> bool {
        self.action.is(FailsAlone) || self.purpose == Purpose::Growth
    }

    fn needs_all_before(&self) -> bool {
        self.purpose == Purpose::NeedsGrowth
    }

    fn announcement(&self) -> Option<&str> {
        self.announcement.as_deref()
    }

    /// Returns a change that creates the load balancer without ports and targets, which are added
    /// one by one afterwards.
    fn without_parts(&self) -> Option<Box<dyn provider::Change>> {
        let name = self.new_name.clone()?;
        let mut body = self.request.body.clone();
        body.insert("services".to_owned(), json!([]));
        let bare = BalancerChange::creation(&self.project, name, Value::Object(body), Vec::new());
        let bare = bare.announced(self.announcement.clone());
        Some(Box::new(bare))
    }

    fn needs_another_first(&self) -> bool {
        self.purpose == Purpose::LastTarget
    }

    fn event(&self) -> Option<Finding> {
        self.event.clone()
    }
}

impl fmt::Debug for BalancerChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.description.fmt(f)
    }
}

/// Turns the changes into trait objects, because the controller that makes the changes does not know the type
/// [`BalancerChange`].
pub(super) fn boxed(changes: Vec<BalancerChange>) -> Vec<Box<dyn provider::Change>> {
    let mut boxed: Vec<_> = changes.into_iter().map(|change| Box::new(change) as Box<_>).collect();
    // `collect` reuses the allocation of `changes`, in which each element is about ten times as large as a `Box`. The
    // part that is not needed is given back.
    boxed.shrink_to_fit();
    boxed
}

/// Returns the count with its noun, e.g. `1 port` or `2 ports`.
fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
