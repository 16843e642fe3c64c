//! Computes the desired state of a Service's load balancer from the Service, the nodes and the settings, without
//! calling the API.

use super::certificates::{CertificatePlan, certificates};
use super::ports::{Port, ports};
use super::uploads::upload;
use crate::hetzner::load_balancers::annotations::parser::{
    AnnotationParser, first_to_decide, value_of,
};
use crate::hetzner::load_balancers::annotations::values as v;
use crate::hetzner::load_balancers::annotations::{self as a, Annotation};
use crate::hetzner::load_balancers::model::balancer::{
    Algorithm, BalancerPrivateNet, LoadBalancer,
};
use crate::hetzner::load_balancers::ownership::context::{PlanContext, default_source};
use crate::hetzner::load_balancers::ownership::defaults::{STAYS, ServiceDefaults, allowed_labels};
use crate::hetzner::load_balancers::ownership::find::default_name;
use crate::hetzner::load_balancers::ownership::judge::Replacing;
use crate::hetzner::load_balancers::ownership::judge::owned;
use crate::hetzner::load_balancers::ownership::labels::Labelled;
use crate::provider::order;
use crate::provider::variables::HCLOUD_NETWORK;
use crate::provider::{
    AddressKind, InstanceId, LoadBalancerDefaults, NamespaceAnnotations, NetworkDefaults,
    OfferedNode, ProviderId, Reason, Service, ServiceName, Source, Sourced, TrafficPolicy,
};
use crate::text::{self, selector::Selector};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const ASKED_BY_FIELD: Source = Source::Field("spec.loadBalancerIP");

/// The load balancer that a Service asks for.
pub(crate) struct Desired {
    /// The desired settings of the load balancer that do not belong to a port. `None` for an external load balancer
    /// (one that somebody else made), because Services can't change its settings.
    pub(crate) whole: Option<Whole>,
    pub(crate) use_private_ip: Sourced<bool>,
    pub(crate) certificates: CertificatePlan,
    pub(crate) ports: Vec<Port>,
    pub(crate) targets: Targets,
    pub(crate) in_status: InStatus,
}

/// The desired settings of a load balancer that do not belong to a port. A setting that is `None` is left unchanged.
#[derive(Default)]
pub(crate) struct Whole {
    /// The name from the annotation `name`. `None` without this annotation: a new load balancer then gets a default
    /// name, and an existing one is not renamed.
    pub(crate) name: Option<Sourced<String>>,
    pub(crate) kind: AskedType,
    pub(crate) place: CreationPlace,
    pub(crate) algorithm: Option<Sourced<Algorithm>>,
    /// Whether the public interface of the load balancer should be on. `None` leaves it unchanged.
    pub(crate) public: Option<Sourced<bool>>,
    /// Whether the load balancer should be protected against deletion. `None` leaves the protection unchanged.
    pub(crate) protection: Option<Sourced<bool>>,
    /// The labels from the annotation `labels` and from the settings, by key. The labels by which this program marks
    /// the owner are not among them.
    pub(crate) labels: BTreeMap<String, Sourced<String>>,
    pub(crate) ipv4_rdns: Option<Sourced<String>>,
    pub(crate) ipv6_rdns: Option<Sourced<String>>,
    /// The attachment to the private Network. `None` when `HCLOUD_NETWORK` is not set.
    pub(crate) attach: Option<Attach>,
    pub(crate) primary_ips: AskedIps,
    /// Whether the load balancer stays in the project when its Service is deleted.
    pub(crate) is_kept: bool,
}

/// The type that annotations or defaults set for the load balancer, and the largest types that they allow.
#[derive(Default)]
pub(crate) struct AskedType {
    /// The name of a type, or the word `auto`. `None` when nothing names a type.
    pub(crate) name: Option<Sourced<String>>,
    /// The names of the largest types that are allowed, as the annotation `type-max` of the Service or its Namespace
    /// and the settings give them. The smallest of these types is the limit.
    pub(crate) limits: Vec<Sourced<String>>,
}

/// The location or network zone in which a new load balancer is created.
#[derive(Clone, Default)]
pub(crate) struct CreationPlace {
    pub(crate) location: Option<Sourced<String>>,
    pub(crate) zone: Option<Sourced<String>>,
}

/// The private Network to which the load balancer should be attached, with the desired IP and subnet.
pub(crate) struct Attach {
    pub(crate) network: u64,
    pub(crate) ip: Option<Sourced<Ipv4Addr>>,
    pub(crate) range: Option<Sourced<Ipv4Net>>,
}

/// The Primary IPs that the Service asks for. The Service gives their IDs, names or addresses.
#[derive(Default)]
pub(crate) struct AskedIps {
    pub(crate) families: Vec<AskedIp>,
    /// The value of `spec.loadBalancerIP`. When several Services share the load balancer, the value comes from the
    /// oldest Service that has this field and is allowed to decide about the load balancer's settings. The text is
    /// empty when no such Service has the field.
    pub(crate) address: String,
}

pub(crate) struct AskedIp {
    pub(crate) annotation: &'static Annotation,
    /// The address family in the API's words, `ipv4` or `ipv6`.
    pub(crate) kind: &'static str,
    pub(crate) asked: Option<Sourced<String>>,
}

pub(crate) struct Targets {
    /// The machines that become targets, each with the name of its node. The list is sorted by the names.
    pub(crate) nodes: Vec<(NodeMachine, String)>,
    pub(crate) source: Source,
    /// How long a node that will stop soon stays a target. `None` when it stays a target like any other node.
    pub(crate) departing_delay: Option<Duration>,
    /// The Services whose pods decide which nodes become targets, when the load balancer can't have all nodes as
    /// targets. Nodes with pods are then preferred. The list is empty when no Service asks for that.
    pub(crate) pods_of: Vec<ServiceName>,
}

impl Targets {
    /// Whether the machine of the node with this name becomes a target.
    pub(crate) fn has(&self, node: &str) -> bool {
        self.nodes.binary_search_by(|(_, name)| name.as_str().cmp(node)).is_ok()
    }
}

/// The machine that a node runs on: a cloud server or a dedicated server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeMachine {
    Server(u64),
    /// A dedicated server, with the addresses by which a load balancer can reach it as a target.
    Dedicated {
        number: u64,
        public: Option<Ipv4Addr>,
        /// The node's InternalIP that is in the vSwitch subnet of the private Network. When the subnets were not read,
        /// it is the first InternalIP. `None` when the node has no such address.
        private: Option<Ipv4Addr>,
    },
}

/// The settings that decide what the Service's status contains: a host name instead of IPs, the field `ipMode`, and
/// which addresses of the load balancer are left out.
pub(crate) struct InStatus {
    pub(crate) hostname: Option<String>,
    /// Whether the entries in the Service's status have `ipMode: Proxy`, because somebody else also has ports on the
    /// load balancer. Traffic from inside the cluster to the load balancer's address then goes through the load
    /// balancer. Without this mode, kube-proxy would send all such traffic directly to this Service, even on the ports
    /// of others.
    pub(crate) is_by_proxy: bool,
    pub(crate) without_ipv6: Sourced<bool>,
    pub(crate) without_private: Sourced<bool>,
}

impl Attach {
    /// Whether the load balancer must be detached from one of the Networks that it is attached to now. Hetzner then
    /// also removes the targets that are reached through this Network.
    pub(crate) fn detaches(&self, balancer: &LoadBalancer) -> bool {
        !balancer.private_net.iter().all(|net| self.keeps(net))
    }

    /// Whether the load balancer's attachment `net` to a Network stays as it is. This is so when `net` is the
    /// attachment to the desired Network, and has the desired IP if the Service asks for one.
    pub(crate) fn keeps(&self, net: &BalancerPrivateNet) -> bool {
        let ip = self.ip.as_ref();
        net.network == self.network && ip.is_none_or(|ip| Some(ip.value) == net.ip)
    }

    /// Whether a new load balancer must be attached to the private Network by an API call of its own. This is necessary
    /// for a desired IP or subnet, because the call that creates a load balancer can't set them.
    pub(crate) fn needs_own_call(&self) -> bool {
        self.ip.is_some() || self.range.is_some()
    }
}

impl Desired {
    pub(crate) fn name(&self) -> Option<&Sourced<String>> {
        self.whole.as_ref()?.name.as_ref()
    }

    pub(crate) fn kind(&self) -> Option<&Sourced<String>> {
        self.whole.as_ref()?.kind.name.as_ref()
    }

    pub(crate) fn public(&self) -> Option<&Sourced<bool>> {
        self.whole.as_ref()?.public.as_ref()
    }

    /// Whether the annotation `location` or its default is `auto`. A new load balancer is then created at the location
    /// of most servers that become targets.
    pub(crate) fn is_place_auto(&self) -> bool {
        let location = self.whole.as_ref().and_then(|whole| whole.place.location.as_ref());
        location.is_some_and(|location| location.value == v::AUTO)
    }

    /// Changes the desired state for a load balancer that takes part in a replacement, in which a new load balancer
    /// replaces an old one. `there` is the load balancer, or `None` when it is the new one and does not exist yet. The
    /// old one gets only ports, certificates and targets, and no more ports than its type allows. The new one gets its
    /// name and its deletion protection only when the old one is gone.
    pub(crate) fn limit_to_replacement(&mut self, context: &PlanContext, there: Option<Labelled>) {
        let Some(whole) = self.whole.as_mut() else {
            return;
        };
        match (context.replacing, there) {
            (Replacing::Both(pair), Some(old)) if pair.old.id == old.id => {
                *whole = Whole { is_kept: whole.is_kept, ..Whole::default() };
                let mut room = old.load_balancer_type.max_services;
                room = room.saturating_sub(old.services.len());
                self.ports.retain(|port| {
                    let is_there = old.listener(port.listener.listen_port).is_some();
                    let fits = is_there || room > 0;
                    room = room.saturating_sub(usize::from(fits && !is_there));
                    fits
                });
            }
            (Replacing::Both(_), Some(_)) => (whole.name, whole.protection) = (None, None),
            (Replacing::Asked(_), None) => whole.protection = None,
            // The old load balancer can't be moved to another location. Only the new one is created in the location or
            // network zone that the Service asks for.
            (Replacing::Asked(_), Some(_)) => whole.place = CreationPlace::default(),
            (Replacing::Last, Some(new)) if whole.name.is_none() => {
                let name = default_name(context);
                let is_free = context.balancers.named(&name).all(|named| named.id == new.id);
                let rule = Source::Rule("the load balancer has replaced the old one");
                whole.name = is_free.then(|| Sourced::new(name, rule));
            }
            _ => {}
        }
    }

    pub(crate) fn attach(&self) -> Option<&Attach> {
        self.whole.as_ref()?.attach.as_ref()
    }
}

/// Returns the value of a boolean setting for a Service that does not set it: the default, or `false` without a
/// default. While it is unknown whether the Namespace has a default, the value is derived from the present load
/// balancer and the Service's status, so that nothing changes.
fn default_switch(
    context: &PlanContext,
    defaults: &ServiceDefaults,
    annotation: &Annotation,
    field: fn(&NetworkDefaults) -> &Option<Sourced<bool>>,
) -> Sourced<bool> {
    if !defaults.is_unknown(annotation) {
        let off = || Sourced::new(false, default_source(annotation));
        return field(&defaults.values.network).clone().unwrap_or_else(off);
    }
    let mut own = owned(context.balancers, context.service, context.cluster);
    let there = context.group.balancer().or_else(|| own.next());
    let balancer = there.map(|labelled| labelled.balancer);
    let private = balancer.into_iter().flat_map(|balancer| &balancer.private_net);
    let private: Vec<IpAddr> = private.filter_map(|net| net.ip.map(IpAddr::V4)).collect();
    let mut shown = context.service.addresses.iter().filter_map(|text| text.parse().ok());
    let present = match annotation.name {
        name if name == a::USE_PRIVATE_IP.name => balancer.is_some_and(|balancer| {
            let is_private = balancer.single_targets().any(|(_, by_private)| by_private);
            is_private || !balancer.public_net.enabled
        }),
        name if name == a::IPV6_DISABLED.name => !shown.any(|ip: IpAddr| ip.is_ipv6()),
        _ => !shown.any(|ip| private.contains(&ip)),
    };
    Sourced::new(present, STAYS)
}

/// Computes the desired state of the load balancer of a Service. `parser` collects the mistakes in the annotations.
pub(crate) fn desired(parser: &mut AnnotationParser, context: &PlanContext) -> Desired {
    let group = &context.group;
    report_ignored_fields(parser, context.service);
    let whole = (!group.is_external()).then(|| whole(parser, context));
    let (own, of_whole) = (&context.own_defaults, &context.defaults);
    let mut switch = |annotation, defaults, field| {
        let set = parser.read(annotation, None, v::boolean);
        set.unwrap_or_else(|| default_switch(context, defaults, annotation, field))
    };
    let own_way = switch(&a::USE_PRIVATE_IP, of_whole, |network| &network.use_private_ip);
    let without_ipv6 = switch(&a::IPV6_DISABLED, own, |network| &network.disable_ipv6);
    let without_private =
        switch(&a::DISABLE_PRIVATE_INGRESS, own, |network| &network.disable_private_ingress);
    let hostname = parser.read(&a::HOSTNAME, None, v::hostname);
    let mut certificates = certificates(parser, context);
    upload(parser, context, &mut certificates);
    let desired = Desired {
        use_private_ip: way_to_targets(parser, context, own_way),
        ports: ports(parser, context, &certificates),
        certificates,
        targets: Targets {
            departing_delay: departing_delay(parser, context),
            pods_of: pods_of(parser, context),
            ..targets(parser, context)
        },
        in_status: InStatus {
            hostname: hostname.map(|hostname| hostname.value),
            is_by_proxy: group.is_external() || group.is_of_several_namespaces,
            without_ipv6,
            without_private,
        },
        whole,
    };
    check_ways_in(parser, context, &desired);
    desired
}

/// Reads the desired settings of the load balancer that do not belong to a single port. When Services share a load
/// balancer under the name `NAMESPACE/NAME`, only the annotations of Services in `NAMESPACE` decide, and `parser` reads
/// only these annotations. When no Service is allowed to decide, all settings stay as they are.
fn whole(parser: &mut AnnotationParser, context: &PlanContext) -> Whole {
    if context.group.has_no_decider() {
        return Whole::default();
    }
    let defaults = &context.defaults.values;
    let usual = |source| Sourced::new(Algorithm::RoundRobin, source);
    let usual = || context.enforced(&a::ALGORITHM_TYPE).map(usual);
    let algorithm = || defaults.algorithm.clone().or_else(usual);
    let disabled = parser.read(&a::DISABLE_PUBLIC_NETWORK, None, v::boolean);
    let disabled = disabled.or_else(|| defaults.network.disable_public_network.clone());
    let set = parser.read(&a::ALGORITHM_TYPE, None, v::algorithm);
    let kind = parser.read(&a::TYPE, None, v::any);
    let limits = [
        parser.read(&a::TYPE_MAX, None, v::any),
        context.defaults.largest_type.clone(),
        defaults.permitted.largest_type.clone(),
    ];
    let keep = parser.read(&a::KEEP, None, v::boolean);
    Whole {
        name: parser.read(&a::NAME, None, v::any),
        kind: AskedType {
            name: kind.or_else(|| defaults.kind.clone()),
            limits: limits.into_iter().flatten().collect(),
        },
        place: place(parser, context),
        algorithm: set.or_else(algorithm),
        public: disabled.map(|disabled| Sourced::new(!disabled.value, disabled.source)),
        protection: parser.read(&a::DELETION_PROTECTION, None, v::boolean),
        labels: labels(parser, context),
        ipv4_rdns: parser.read(&a::IPV4_RDNS, None, v::host),
        ipv6_rdns: parser.read(&a::IPV6_RDNS, None, v::host),
        attach: attach(parser, context),
        primary_ips: asked_ips(parser, context),
        is_kept: keep.is_some_and(|keep| keep.value),
    }
}

fn place(parser: &mut AnnotationParser, context: &PlanContext) -> CreationPlace {
    let defaults = &context.defaults.values;
    let mut one = |annotation: &'static Annotation, default: &Option<Sourced<String>>| {
        // When the Service has the annotation, even with an empty value, the default from the Namespace or the settings
        // is not used.
        if parser.has(annotation, None) {
            parser.read(annotation, None, v::any)
        } else {
            default.clone()
        }
    };
    CreationPlace {
        location: one(&a::LOCATION, &defaults.location),
        zone: one(&a::NETWORK_ZONE, &defaults.network_zone),
    }
}

/// Returns the desired labels of the load balancer. They come from the settings, from the annotation `labels` of the
/// Namespace, and from that annotation of the Service. When the same key is in several of these three, the Service's
/// value is preferred, and then the value of the Namespace. A label by which another program finds its load balancers
/// is left out. So when the load balancer already has such a label, it stays unchanged.
fn labels(
    parser: &mut AnnotationParser,
    context: &PlanContext,
) -> BTreeMap<String, Sourced<String>> {
    let set = parser.read(&a::LABELS, None, allowed_labels);
    let set = [context.defaults.labels.clone(), set].into_iter().flatten();
    let set = set.map(|Sourced { value, source }| {
        let (labels, left_out) = value;
        if !left_out.is_empty() {
            let keys: Vec<String> = left_out.iter().map(|key| text::quoted(key)).collect();
            let why = format!(
                "{source}: ccm does not set labels with the keys {}, because other programs recognize their load \
                 balancers by these labels. Remove these keys from the annotation. Labels that exist already stay \
                 unchanged",
                text::some_of(&keys)
            );
            parser.warning(Reason::AnnotationWithoutEffect, why);
        }
        Sourced::new(labels, source)
    });
    let is_known = !context.defaults.is_unknown(&a::LABELS);
    let of_settings = context.project.defaults.labels.clone().filter(|_| is_known);
    let labels = of_settings.into_iter().chain(set).flat_map(|Sourced { value, source }| {
        value.0.into_iter().map(move |(key, value)| (key, Sourced::new(value, source.clone())))
    });
    labels.collect()
}

fn asked_ips(parser: &mut AnnotationParser, context: &PlanContext) -> AskedIps {
    let is_upstream = context.project.preserves_unset();
    let parse = |text: &str| {
        if is_upstream && text.parse::<u64>().is_err() {
            Err("use the ID of a Primary IP".to_owned())
        } else {
            v::any(text)
        }
    };
    let first = context.group.deciders.iter().find(|service| !service.load_balancer_ip.is_empty());
    let address = first.map(|service| service.load_balancer_ip.clone()).unwrap_or_default();
    let ip = address.parse::<IpAddr>().ok();
    let mut family = |annotation, kind, is_it: fn(&IpAddr) -> bool| {
        let by_field = || Sourced::new(address.clone(), ASKED_BY_FIELD);
        let by_field = ip.filter(is_it).map(|_| by_field());
        AskedIp { annotation, kind, asked: parser.read(annotation, None, parse).or(by_field) }
    };
    AskedIps {
        families: vec![
            family(&a::PUBLIC_NET_IPV4, "ipv4", IpAddr::is_ipv4),
            family(&a::PUBLIC_NET_IPV6, "ipv6", IpAddr::is_ipv6),
        ],
        address,
    }
}

fn attach(parser: &mut AnnotationParser, context: &PlanContext) -> Option<Attach> {
    let ip = parser.read(&a::PRIVATE_IPV4, None, v::ipv4);
    let range = parser.read(&a::PRIVATE_SUBNET_IP_RANGE, None, v::ip_range);
    let Some(network) = context.project.network else {
        let sources = [ip.map(|ip| ip.source), range.map(|range| range.source)];
        for source in sources.into_iter().flatten() {
            parser.whole_problem(format!(
                "{source} needs a private Network, but {HCLOUD_NETWORK} is not set for ccm. Set {HCLOUD_NETWORK}, or \
                 remove the annotation"
            ));
        }
        return None;
    };
    let range = range.or_else(|| context.defaults.values.network.private_subnet.clone());
    Some(Attach { network, ip, range })
}

/// Reports a problem when the annotations and the program's settings leave the load balancer no address by which it can
/// reach its targets. The API would refuse this.
fn check_ways_in(parser: &mut AnnotationParser, context: &PlanContext, desired: &Desired) {
    let private = &desired.use_private_ip;
    if private.value && context.project.network.is_none() {
        parser.whole_problem(format!(
            "{}: the load balancer can reach the private addresses of the nodes only through a private Network, but \
             {HCLOUD_NETWORK} is not set for ccm. Set {HCLOUD_NETWORK}",
            private.source
        ));
    }
    let off = desired.public().filter(|public| !public.value);
    if let Some(off) = off.filter(|_| !private.value) {
        parser.whole_problem(format!(
            "{}: with its public interface off, the load balancer can reach the nodes only by their private addresses, \
             but annotation {} is not \"true\". Set this annotation of the Service to \"true\", and set \
             {HCLOUD_NETWORK} for ccm",
            off.source,
            a::USE_PRIVATE_IP.key()
        ));
    }
}

/// Returns whether new targets are reached by their private IPs. On an external load balancer (one that somebody else
/// made), the oldest Service that has a port there decides for all Services. If it asks for a kind of address (public
/// or private) by which this load balancer can't reach targets, the next Service decides, so that the other Services
/// still get targets. On all other load balancers, the result is `own`, the value of the Service for which the plan is
/// made.
fn way_to_targets(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    own: Sourced<bool>,
) -> Sourced<bool> {
    let Some(balancer) = context.group.balancer() else {
        return own;
    };
    let key = a::USE_PRIVATE_IP.key();
    let asked = |service: &Service| {
        let set = value_of(service, &a::USE_PRIVATE_IP).and_then(|text| v::boolean(text).ok());
        let source = || Source::Annotation(format!("{key} of Service {}", service.full_name()));
        let defaults = context.defaults_for(service);
        let default = || {
            default_switch(context, &defaults, &a::USE_PRIVATE_IP, |network| {
                &network.use_private_ip
            })
        };
        set.map_or_else(default, |value| Sourced::new(value, source()))
    };
    let is_possible = |by_private: bool| {
        let network = context.project.network;
        let is_attached = network.is_some_and(|network| balancer.attached(network).is_some());
        if by_private { is_attached } else { balancer.public_net.enabled }
    };
    let this = context.service;
    let mut deciders = context.group.served_on(balancer);
    deciders.retain(|service| is_possible(asked(service).value));
    let Some(first) = deciders.first().filter(|first| first.uid != this.uid) else {
        return own;
    };
    let decided = asked(first);
    if own.value != decided.value && parser.has(&a::USE_PRIVATE_IP, None) {
        let why = if is_possible(own.value) {
            format!(
                "{} decides how the load balancer reaches new targets. Set the same value on that Service, or remove \
                 the annotation from this Service",
                first_to_decide(first)
            )
        } else if own.value {
            format!(
                "load balancer {} is not attached to the private Network. Remove the annotation",
                balancer.shown()
            )
        } else {
            format!(
                "load balancer {} has its public interface off, and can reach targets only by private addresses. \
                 Remove the annotation",
                balancer.shown()
            )
        };
        parser.warning(
            Reason::AnnotationWithoutEffect,
            format!("annotation {key} has no effect, because {why}"),
        );
    }
    decided
}

/// The nodes that one Service asks for as targets.
enum AskedNodes {
    All,
    Selected(Selector),
    /// The nodes that are targets now. This value is used when it is not known which nodes the Service asks for, for
    /// example because its selector is invalid. So no present target is removed.
    Present,
}

/// Returns which nodes should be targets of the load balancer. The result has one entry for each Service whose
/// annotations decide about the targets. On an external load balancer (one that somebody else made), these are all
/// Services with a port there, except those whose annotation `external-targets` is `false`. On any other load balancer,
/// it is only the Service for which the plan is made. When a Service that decides was not read, or is not managed by
/// this program, an entry `Present` makes all present targets stay.
fn asked_targets(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    own: Option<&Sourced<Selector>>,
) -> Vec<AskedNodes> {
    let own = own.map_or(AskedNodes::All, |own| AskedNodes::Selected(own.value.clone()));
    parser.read(&a::EXTERNAL_TARGETS, None, v::boolean);
    let group = &context.group;
    if group.undecided.is_some() {
        return vec![AskedNodes::Present];
    }
    if !group.is_external() {
        return vec![own];
    }
    let needs = |service: &Service| {
        let value = value_of(service, &a::EXTERNAL_TARGETS);
        value.is_none_or(|value| v::boolean(value) != Ok(false))
    };
    let others = group.balancer().into_iter().flat_map(|balancer| group.served_on(balancer));
    let others = others.filter(|other| other.uid != context.service.uid && needs(other));
    let asked = |service: &Service| match value_of(service, &a::NODE_SELECTOR).map(Selector::parse)
    {
        None => AskedNodes::All,
        Some(Ok(selector)) => AskedNodes::Selected(selector),
        Some(Err(_)) => AskedNodes::Present,
    };
    let others = others.map(asked);
    let own = needs(context.service).then_some(own);
    let mut owners =
        group.balancer().into_iter().flat_map(|balancer| balancer.ownership.ports.values());
    let is_any_left = owners.any(|uid| context.cluster.untouched.contains_key(uid));
    let left = is_any_left.then_some(AskedNodes::Present);
    own.into_iter().chain(others).chain(left).collect()
}

/// Returns how long a node stays a target after this program has noticed that it will stop soon. `annotations` are the
/// keys and values of all annotations of a Service, of which `departing-delay` is read. When this annotation is missing
/// or invalid, the default of the Namespace or of the settings is used. The result is `None` when there is no default.
/// When the default can't be read, the result is zero, so that the caller still notices nodes that will stop soon.
pub(crate) fn asked_delay(
    annotations: &mut dyn Iterator<Item = (&str, &str)>,
    settings: &Arc<LoadBalancerDefaults>,
    of_namespace: &NamespaceAnnotations,
) -> Option<Duration> {
    let mut set = annotations.filter(|(key, _)| a::DEPARTING_DELAY.has_key(key));
    let set = set.next().and_then(|(_, value)| v::departing_delay(value.trim()).ok());
    set.or_else(|| {
        let defaults = ServiceDefaults::in_namespace(settings, "", of_namespace);
        let unknown = defaults.is_unknown(&a::DEPARTING_DELAY).then_some(Duration::ZERO);
        defaults.values.departing_delay.as_ref().map(|default| default.value).or(unknown)
    })
}

/// Returns how long a node that will stop soon stays a target. `None` when it stays a target like any other node.
///
/// On an external load balancer (one that somebody else made), each Service with a port there must have a delay, from
/// its annotation `departing-delay`, from its Namespace or from the settings. The longest of these delays is then used.
/// When a group of Services shares a load balancer under the name `NAMESPACE/NAME`, only the Services in this namespace
/// decide.
fn departing_delay(parser: &mut AnnotationParser, context: &PlanContext) -> Option<Duration> {
    let group = &context.group;
    // While the default delay is unknown, the longest possible delay is used. So a target whose node will stop soon
    // stays a target, and a node that will stop soon does not become a target.
    let default = |defaults: &ServiceDefaults| {
        let unknown = || defaults.is_unknown(&a::DEPARTING_DELAY).then_some(Duration::MAX);
        let default = defaults.values.departing_delay.as_ref();
        default.map(|default| default.value).or_else(unknown)
    };
    let set = parser.read(&a::DEPARTING_DELAY, None, v::departing_delay);
    let is_set = set.is_some();
    let own = set.map(|set| set.value).or_else(|| default(&context.defaults))?;
    if group.has_no_decider() {
        return None;
    }
    let others = group.balancer().into_iter().flat_map(|balancer| group.served_on(balancer));
    let others = others.filter(|other| other.uid != context.service.uid);
    let mut longest = own;
    for other in others {
        let asked = value_of(other, &a::DEPARTING_DELAY).map(v::departing_delay);
        let asked = asked.and_then(Result::ok).or_else(|| default(&context.defaults_for(other)));
        let Some(asked) = asked else {
            if is_set {
                let why = format!(
                    "annotation {} has no effect, because Service {} has a port on the same load balancer, but does \
                     not have the annotation. Set the annotation on that Service, too, or remove it from this Service",
                    a::DEPARTING_DELAY.key(),
                    other.full_name()
                );
                parser.warning(Reason::AnnotationWithoutEffect, why);
            }
            return None;
        };
        longest = longest.max(asked);
    }
    Some(longest)
}

/// Returns the Services whose pods decide which nodes become targets, when the load balancer can't have all nodes as
/// targets. These are all its Services with `externalTrafficPolicy: Local`, because for such a Service only a node that
/// runs one of its pods takes traffic.
///
/// The list is empty unless the annotation or setting `prefer-nodes-with-pods` is true. On an external load balancer
/// (one that somebody else made), each Service with a port there must have the value true. When several Services share
/// a load balancer under the name `NAMESPACE/NAME`, at least one Service in `NAMESPACE` with `externalTrafficPolicy:
/// Local` must have the value true.
fn pods_of(parser: &mut AnnotationParser, context: &PlanContext) -> Vec<ServiceName> {
    let group = &context.group;
    let set = parser.read(&a::PREFER_NODES_WITH_PODS, None, v::boolean);
    let is_set = set.is_some_and(|set| set.value);
    let is_local = |service: &&Service| service.traffic_policy == TrafficPolicy::Local;
    let asks = |service: &&Service| {
        let value = value_of(service, &a::PREFER_NODES_WITH_PODS).map(v::boolean);
        value.and_then(Result::ok).unwrap_or_else(|| {
            let defaults = context.defaults_for(service).values;
            defaults.prefer_nodes_with_pods.as_ref().is_some_and(|default| default.value)
        })
    };
    let mut all = group.members.clone();
    let is_on = if group.is_external() {
        let served = group.balancer().into_iter().flat_map(|balancer| group.served_on(balancer));
        let others = served.filter(|other| other.uid != context.service.uid);
        all = others.chain([context.service]).collect();
        all.iter().all(asks)
    } else {
        group.deciders.iter().filter(|service| is_local(service)).any(asks)
    };
    let names = |services: Vec<&Service>| {
        let local = services.into_iter().filter(is_local);
        local.map(|service| (service.namespace.clone(), service.name.clone())).collect()
    };
    let names: Vec<ServiceName> = if is_on { names(all) } else { Vec::new() };
    let is_without_effect = if group.is_external() {
        names.is_empty()
    } else {
        names.is_empty() || !is_local(&context.service)
    };
    if is_set && is_without_effect {
        let why = if group.is_external() && !is_on {
            "another Service with a port on the load balancer does not set it to \"true\". Set the annotation on all \
             Services of the load balancer, or remove it from this Service"
                .to_owned()
        } else if is_local(&context.service) {
            group.why_it_does_not_decide()
        } else {
            "it is only for Services with spec.externalTrafficPolicy: Local. This Service has Cluster, with which each \
             node sends connections to any pod. Remove the annotation, or set spec.externalTrafficPolicy to Local"
                .to_owned()
        };
        let key = a::PREFER_NODES_WITH_PODS.key();
        parser.warning(
            Reason::AnnotationWithoutEffect,
            format!("annotation {key} has no effect, because {why}"),
        );
    }
    names
}

fn targets(parser: &mut AnnotationParser, context: &PlanContext) -> Targets {
    let selector = parser.read(&a::NODE_SELECTOR, None, Selector::parse);
    let asked = asked_targets(parser, context, selector.as_ref());
    let is_present = |node: &OfferedNode| {
        let there = context.group.balancer().or(context.group.undecided);
        let targets = there.into_iter().flat_map(|labelled| labelled.balancer.single_targets());
        let mut names = targets.filter_map(|(target, _)| target.node(context.cluster));
        names.any(|name| *name == node.name)
    };
    let is_selected = |node: &&OfferedNode| {
        asked.iter().any(|asked| match asked {
            AskedNodes::All => true,
            AskedNodes::Selected(selector) => selector.matches(|key| node.labels.get(key)),
            AskedNodes::Present => is_present(node),
        })
    };
    let mut machines = BTreeMap::new();
    for node in context.nodes.iter().filter(is_selected) {
        match &node.provider_id {
            ProviderId::Ours(id) => {
                let machine = machine(*id, node, context);
                let name = machines.entry(machine).or_insert_with(|| node.name.clone());
                // When two nodes have the same server in their provider IDs, the server is one target, and it gets the
                // node name that comes first in the alphabet. So the result does not depend on the order of the nodes.
                *name = std::mem::take(name).min(node.name.clone());
            }
            ProviderId::Foreign => {
                let why = format!(
                    "node {} is no target, because its provider ID belongs to another cloud",
                    node.name
                );
                parser.warning(Reason::UnknownProviderIDPrefix, why);
            }
            ProviderId::Unknown(why) | ProviderId::Disabled(why) => {
                let why =
                    format!("node {} is no target, because of its provider ID: {why}", node.name);
                parser.warning(Reason::TargetIgnored, why);
            }
        }
    }
    let mut nodes: Vec<(NodeMachine, String)> = machines.into_iter().collect();
    order::sort_by(&mut nodes, |left, right| left.1.cmp(&right.1));
    Targets {
        nodes,
        departing_delay: None,
        pods_of: Vec::new(),
        source: match selector {
            _ if asked.len() > 1 => Source::Rule("a Service of the load balancer selects the node"),
            Some(selector) => selector.source,
            None => Source::Rule("a node of the cluster"),
        },
    }
}

fn machine(id: InstanceId, node: &OfferedNode, context: &PlanContext) -> NodeMachine {
    let InstanceId::Dedicated(number) = id else {
        return NodeMachine::Server(id.number());
    };
    let is_reached = |ip: &Ipv4Addr| match &context.observed.subnets {
        // When a private Network is set, but its subnets were not read, this program assumes that the load balancer can
        // reach each InternalIP of the dedicated server. If this is wrong, the API refuses the target.
        None => context.project.network.is_some(),
        Some(subnets) => {
            subnets.iter().any(|subnet| subnet.is_of_vswitch() && subnet.ip_range.contains(ip))
        }
    };
    let internal = node.addresses.iter().filter(|address| address.kind == AddressKind::InternalIP);
    let mut internal = internal.filter_map(|address| match address.ip() {
        Some(IpAddr::V4(ip)) => Some(ip),
        _ => None,
    });
    NodeMachine::Dedicated {
        number,
        public: node.dedicated_ipv4,
        private: internal.find(is_reached),
    }
}

/// Reports fields in the Service's spec that have no effect on a Hetzner Load Balancer.
fn report_ignored_fields(parser: &mut AnnotationParser, service: &Service) {
    if !service.source_ranges.is_empty() {
        let why = format!(
            "spec.loadBalancerSourceRanges ({}) restricts nothing, because a Hetzner Load Balancer accepts traffic \
             from every address. Restrict the traffic in the ingress controller or in the application instead; with \
             annotation {}, they see the clients' addresses. Or turn the public interface of the load balancer off \
             with annotation {}",
            text::some_of(&service.source_ranges),
            a::USES_PROXYPROTOCOL.key(),
            a::DISABLE_PUBLIC_NETWORK.key()
        );
        parser.warning(Reason::LoadBalancerSourceRangesIgnored, why);
    }
    if service.is_ipv6_alone {
        let why = "spec.ipFamilies has only IPv6, so the node ports of the Service answer only on IPv6. But a Hetzner \
                   Load Balancer reaches its targets by IPv4, so no traffic arrives. Add IPv4 to spec.ipFamilies, and \
                   set spec.ipFamilyPolicy to PreferDualStack";
        parser.warning(Reason::FieldIgnored, why);
    }
    if service.has_session_affinity {
        let why = format!(
            "spec.sessionAffinity: ClientIP has no effect, because a Hetzner Load Balancer recognizes clients only by \
             a cookie. To use a cookie, set annotation {} to \"true\" (with protocol http or https). Otherwise remove \
             the field",
            a::HTTP_STICKY_SESSIONS.key()
        );
        parser.warning(Reason::FieldIgnored, why);
    }
}
