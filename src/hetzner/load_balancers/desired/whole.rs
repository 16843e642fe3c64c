//! Computes the desired state of a Service's load balancer from the Service, the nodes and the settings, without
//! calling the API.

use super::certificates::{CertificatePlan, certificates};
use super::ports::{Port, ports};
use super::uploads::upload;
use crate::hetzner::load_balancers::annotations::parser::{
    AnnotationParser, first_to_decide, value_of,
};
use crate::hetzner::load_balancers::annotations::values as v;
use crate::hetzner::load_balancers::annotations::{self as a, Annotation, PREFIX};
use crate::hetzner::load_balancers::model::balancer::{
    Algorithm, BalancerPrivateNet, LoadBalancer,
};
use crate::hetzner::load_balancers::ownership::context::{PlanContext, default_source};
use crate::hetzner::load_balancers::ownership::find::default_name;
use crate::hetzner::load_balancers::ownership::judge::Replacing;
use crate::hetzner::load_balancers::ownership::labels::{Labelled, is_of_program};
use crate::provider::variables::HCLOUD_NETWORK;
use crate::provider::{
    AddressKind, InstanceId, Labels, OfferedNode, ProviderId, Reason, Service, ServiceName, Source,
    Sourced, TrafficPolicy,
};
use crate::text::{self, selector::Selector};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub(crate) const ASKED_BY_FIELD: Source = Source::Rule("spec.loadBalancerIP");

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

/// The type that is asked for, and its limits.
#[derive(Default)]
pub(crate) struct AskedType {
    /// The name of a type, or the word `auto`. `None` when nothing names a type.
    pub(crate) name: Option<Sourced<String>>,
    /// The names of the largest types that are allowed, from the annotation `type-max` and its setting. The smallest of
    /// these types counts.
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

/// The machine that a node runs on.
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
    /// Whether the entries in the status have `ipMode: Proxy`, because somebody else has ports on the load balancer,
    /// too. Traffic from inside the cluster to its address then goes through the load balancer. Otherwise kube-proxy
    /// would send traffic for the ports of others directly to this Service.
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

    /// Whether the load balancer's attachment `net` to a Network stays as it is, because it is to the desired Network
    /// and has the desired IP, if one is desired.
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

    /// Changes the desired state for a load balancer that takes part in a replacement. `there` is `None` for the new one
    /// that does not exist yet. The old one gets only ports, certificates and targets, as far as its type takes them.
    /// The new one gets its name and its deletion protection when the old one is gone.
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
            // The new one will be in the place that the Service asks for.
            (Replacing::Asked(_), Some(_)) => whole.place = CreationPlace::default(),
            (Replacing::Last, Some(new)) if whole.name.is_none() => {
                let name = default_name(context);
                let is_free = context.balancers.named(&name).all(|named| named.id == new.id);
                let rule = Source::Rule("the replacement has ended");
                whole.name = is_free.then(|| Sourced::new(name, rule));
            }
            _ => {}
        }
    }

    pub(crate) fn attach(&self) -> Option<&Attach> {
        self.whole.as_ref()?.attach.as_ref()
    }
}

/// Computes the desired state of the load balancer of a Service. `parser` collects the mistakes in the annotations.
pub(crate) fn desired(parser: &mut AnnotationParser, context: &PlanContext) -> Desired {
    let (defaults, group) = (&context.project.defaults, &context.group);
    report_ignored_fields(parser, context.service);
    let whole = (!group.is_external()).then(|| whole(parser, context));
    let mut switch = |annotation, default: &Option<Sourced<bool>>| {
        let off = || Sourced::new(false, default_source(annotation));
        let set = parser.read(annotation, None, v::boolean);
        set.or_else(|| default.clone()).unwrap_or_else(off)
    };
    let own_way = switch(&a::USE_PRIVATE_IP, &defaults.network.use_private_ip);
    let without_ipv6 = switch(&a::IPV6_DISABLED, &defaults.network.disable_ipv6);
    let private = &defaults.network.disable_private_ingress;
    let without_private = switch(&a::DISABLE_PRIVATE_INGRESS, private);
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

/// Reads the desired settings of the whole load balancer, i.e. not those of single ports. The Services that share a
/// load balancer under the name `NAMESPACE/NAME` are not equal: only the annotations of Services in `NAMESPACE` decide,
/// and `parser` already contains only these. When no Service in `NAMESPACE` shares the load balancer, all settings stay
/// as they are.
fn whole(parser: &mut AnnotationParser, context: &PlanContext) -> Whole {
    if context.group.has_no_decider() {
        return Whole::default();
    }
    let defaults = &context.project.defaults;
    let usual = |source| Sourced::new(Algorithm::RoundRobin, source);
    let usual = || context.project.enforced(&a::ALGORITHM_TYPE).map(usual);
    let algorithm = || defaults.algorithm.clone().or_else(usual);
    let disabled = parser.read(&a::DISABLE_PUBLIC_NETWORK, None, v::boolean);
    let disabled = disabled.or_else(|| defaults.network.disable_public_network.clone());
    let set = parser.read(&a::ALGORITHM_TYPE, None, v::algorithm);
    let kind = parser.read(&a::TYPE, None, v::any);
    let limits = [parser.read(&a::TYPE_MAX, None, v::any), defaults.permitted.largest_type.clone()];
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
    let defaults = &context.project.defaults;
    let mut one = |annotation: &'static Annotation, default: &Option<Sourced<String>>| {
        // When the Service has the annotation, even with an empty value, the default from the environment variable is
        // not used.
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

/// Parses a list of labels. A label by which another program finds its load balancers is left out, because a Service is
/// not allowed to set it. Returns the other labels, and the keys of those that were left out.
fn allowed_labels(text: &str) -> Result<(Labels, Vec<String>), String> {
    let key_of = |item: &str| item.split_once('=').map_or(item, |(key, _)| key).trim().to_owned();
    let is_left_out = |item: &&str| is_of_program(&key_of(item));
    let (left_out, own): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_left_out);
    let labels = Labels::parse(&own.join(","))?;
    Ok((labels, left_out.into_iter().map(key_of).collect()))
}

/// Returns the desired labels from the default in the settings and from the annotation. When both have a key, the
/// annotation's value is used. A label by which another program finds its load balancers is left out. So when the load
/// balancer already has such a label, it stays unchanged.
fn labels(
    parser: &mut AnnotationParser,
    context: &PlanContext,
) -> BTreeMap<String, Sourced<String>> {
    let set = parser.read(&a::LABELS, None, allowed_labels);
    let set = set.map(|Sourced { value, source }| {
        let (labels, left_out) = value;
        if !left_out.is_empty() {
            let keys: Vec<String> = left_out.iter().map(|key| text::quoted(key)).collect();
            let why = format!(
                "{source}: labels with these keys are not set, because other programs recognize their load balancers \
                 by them: {}. Remove these keys from the annotation. Labels that exist already stay unchanged",
                text::some_of(&keys)
            );
            parser.warning(Reason::AnnotationWithoutEffect, why);
        }
        Sourced::new(labels, source)
    });
    let all = [context.project.defaults.labels.clone(), set];
    let labels = all.into_iter().flatten().flat_map(|Sourced { value, source }| {
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
                "{source}: there is no private Network: set {HCLOUD_NETWORK}, or remove the annotation"
            ));
        }
        return None;
    };
    let range = range.or_else(|| context.project.defaults.network.private_subnet.clone());
    Some(Attach { network, ip, range })
}

/// Reports a problem when the annotations and the program's settings leave the load balancer no address by which it can
/// reach its targets. The API would refuse this.
fn check_ways_in(parser: &mut AnnotationParser, context: &PlanContext, desired: &Desired) {
    let private = &desired.use_private_ip;
    if private.value && context.project.network.is_none() {
        parser.whole_problem(format!(
            "{}: there is no private Network in which the nodes can be reached: set {HCLOUD_NETWORK}",
            private.source
        ));
    }
    let off = desired.public().filter(|public| !public.value);
    if let Some(off) = off.filter(|_| !private.value) {
        parser.whole_problem(format!(
            "{}: with the public interface off, the nodes can be reached only by their private addresses: set \
             {HCLOUD_NETWORK}, and annotation {} to \"true\"",
            off.source,
            a::USE_PRIVATE_IP.key()
        ));
    }
}

/// Returns whether new targets are reached by their private IPs. On an external load balancer (one that somebody else
/// made), the oldest Service that has a port there decides for all Services. A Service that asks for addresses which the
/// load balancer can't reach is passed over. Otherwise it could prevent that nodes become targets for the other
/// Services. On all other load balancers, the result is `own`, the value of the Service for which the plan is made.
fn way_to_targets(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    own: Sourced<bool>,
) -> Sourced<bool> {
    let Some(balancer) = context.group.balancer() else {
        return own;
    };
    let key = a::USE_PRIVATE_IP.key();
    let default = context.project.defaults.network.use_private_ip.clone();
    let default =
        default.unwrap_or_else(|| Sourced::new(false, default_source(&a::USE_PRIVATE_IP)));
    let asked = |service: &Service| {
        let set = value_of(service, &a::USE_PRIVATE_IP).and_then(|text| v::boolean(text).ok());
        let source = || Source::Annotation(format!("{key} of Service {}", service.full_name()));
        set.map_or_else(|| default.clone(), |value| Sourced::new(value, source()))
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
                "{} decides how new targets are reached: set it there, too, or remove it here",
                first_to_decide(first)
            )
        } else {
            let lacks = if own.value {
                "is not attached to the private Network"
            } else {
                "has no public interface"
            };
            format!("load balancer {} {lacks}: remove the annotation", balancer.shown())
        };
        parser.warning(
            Reason::AnnotationWithoutEffect,
            format!("annotation {key} has no effect: {why}"),
        );
    }
    decided
}

/// The nodes that one Service asks for as targets.
enum AskedNodes {
    All,
    Selected(Selector),
    /// The nodes that are targets now. This stands for the nodes of a Service when it is not known which nodes it asks
    /// for, for example because its selector is invalid. So no present target is removed.
    Present,
}

/// Returns which nodes should be targets of the load balancer, with one entry for each Service that decides about this.
/// On an external load balancer (one that somebody else made), these are all Services with a port there, except those
/// whose annotation `external-targets` is `false`. On any other load balancer, only the Service for which the plan is
/// made decides.
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

/// Returns how long a node that will stop soon stays a target, as the annotation `departing-delay` says it.
/// `annotations` are the keys and values of all annotations of a Service. `None` when the annotation is missing or
/// invalid.
pub(crate) fn asked_delay(annotations: &mut dyn Iterator<Item = (&str, &str)>) -> Option<Duration> {
    let is_it = |key: &str| {
        let name = key.strip_prefix(PREFIX);
        name.is_some_and(|name| name.eq_ignore_ascii_case(a::DEPARTING_DELAY.name))
    };
    let mut set = annotations.filter(|(key, _)| is_it(key));
    let (_, value) = set.next()?;
    v::departing_delay(value.trim()).ok()
}

/// Returns how long a node that will stop soon stays a target. `None` when it stays a target like any other node.
///
/// On an external load balancer (one that somebody else made), each Service with a port there must ask for a delay, by
/// the annotation `departing-delay` or by the default in the settings. The longest of these delays is then used. When a
/// group of Services shares a load balancer under the name `NAMESPACE/NAME`, only the Services in this namespace
/// decide.
fn departing_delay(parser: &mut AnnotationParser, context: &PlanContext) -> Option<Duration> {
    let (group, default) = (&context.group, &context.project.defaults.departing_delay);
    let set = parser.read(&a::DEPARTING_DELAY, None, v::departing_delay);
    let is_set = set.is_some();
    let own = set.or_else(|| default.clone())?.value;
    if group.has_no_decider() {
        return None;
    }
    let others = group.balancer().into_iter().flat_map(|balancer| group.served_on(balancer));
    let others = others.filter(|other| other.uid != context.service.uid);
    let mut longest = own;
    for other in others {
        let asked = value_of(other, &a::DEPARTING_DELAY).map(v::departing_delay);
        let asked = asked.and_then(Result::ok).or(default.as_ref().map(|default| default.value));
        let Some(asked) = asked else {
            if is_set {
                let why = format!(
                    "annotation {} has no effect, because Service {} has a port on the same load balancer, and no such \
                     annotation: set it there, too, or remove it here",
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
/// targets. These are all its Services with `externalTrafficPolicy: Local`, because only a node with a pod of such a
/// Service answers.
///
/// The list is empty unless the annotation or setting `prefer-nodes-with-pods` is true. On an external load balancer
/// (one that somebody else made), it must be true for each Service with a port there. When a group of Services shares a
/// load balancer under the name `NAMESPACE/NAME`, it must be true for a Service in this namespace with this traffic
/// policy.
fn pods_of(parser: &mut AnnotationParser, context: &PlanContext) -> Vec<ServiceName> {
    let (group, default) = (&context.group, &context.project.defaults.prefer_nodes_with_pods);
    let set = parser.read(&a::PREFER_NODES_WITH_PODS, None, v::boolean);
    let is_set = set.is_some_and(|set| set.value);
    let default = default.as_ref().is_some_and(|default| default.value);
    let is_local = |service: &&Service| service.traffic_policy == TrafficPolicy::Local;
    let asks = |service: &&Service| {
        let value = value_of(service, &a::PREFER_NODES_WITH_PODS).map(v::boolean);
        value.and_then(Result::ok).unwrap_or(default)
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
            "another Service with a port on the load balancer does not set it: set it there, too, or remove it here"
                .to_owned()
        } else if is_local(&context.service) {
            group.why_it_does_not_decide()
        } else {
            "it is only for spec.externalTrafficPolicy: Local, and this Service has Cluster, with which each node \
             sends connections to any pod: remove the annotation, or set Local"
                .to_owned()
        };
        let key = a::PREFER_NODES_WITH_PODS.key();
        parser.warning(
            Reason::AnnotationWithoutEffect,
            format!("annotation {key} has no effect: {why}"),
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
                    "node {} is no target: its provider ID belongs to another cloud",
                    node.name
                );
                parser.warning(Reason::UnknownProviderIDPrefix, why);
            }
            ProviderId::Unknown(why) | ProviderId::Disabled(why) => {
                let why = format!("node {} is no target: {why}", node.name);
                parser.warning(Reason::TargetIgnored, why);
            }
        }
    }
    let mut nodes: Vec<(NodeMachine, String)> = machines.into_iter().collect();
    nodes.sort_by(|left, right| left.1.cmp(&right.1));
    Targets {
        nodes,
        departing_delay: None,
        pods_of: Vec::new(),
        source: match selector {
            _ if asked.len() > 1 => Source::Rule("a Service on the load balancer asks for it"),
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
            "spec.loadBalancerSourceRanges ({}) restricts nothing: a Hetzner Load Balancer accepts traffic from \
             everywhere; restrict traffic behind the load balancer, or turn its public interface off with annotation \
             {}",
            text::some_of(&service.source_ranges),
            a::DISABLE_PUBLIC_NETWORK.key()
        );
        parser.warning(Reason::LoadBalancerSourceRangesIgnored, why);
    }
    if service.is_ipv6_alone {
        let why = "spec.ipFamilies: the node ports of an IPv6-only Service answer only on IPv6, but a Hetzner Load \
                   Balancer reaches its targets by IPv4, so no traffic arrives: add IPv4 to spec.ipFamilies, with \
                   spec.ipFamilyPolicy: PreferDualStack";
        parser.warning(Reason::FieldIgnored, why);
    }
    if service.has_session_affinity {
        let why = format!(
            "spec.sessionAffinity: ClientIP has no effect, because a Hetzner Load Balancer recognizes clients only by \
             a cookie. To use one, set annotation {} to \"true\" (with protocol http or https), or remove the field",
            a::HTTP_STICKY_SESSIONS.key()
        );
        parser.warning(Reason::FieldIgnored, why);
    }
}
