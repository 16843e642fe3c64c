//! What a Service wants of each port of its load balancer.

use super::Planner;
use super::annotations::{self as a, Annotation};
use super::certificates::{self, Managed};
use super::default_source;
use super::health_check;
use super::listener::{Http, Listener, ListenerProtocol, PortField};
use super::observe::Observed;
use super::parser::{AnnotationParser, SetAnnotation, hash};
use super::values::{self as v, CertificateType};
use crate::hetzner::certificates::{Certificate, Certificates};
use crate::provider::{
    Cluster, Field, Finding, Protocol, Reason, Service, ServicePort, Source, Sourced,
};
use crate::text::{self, nearest::did_you_mean};
use std::collections::BTreeMap;

/// What the API takes when nothing is said.
const COOKIE_NAME: &str = "HCLBSTICKY";
const COOKIE_LIFETIME_S: u32 = 300;

/// A redirect answers here itself.
const HTTP_PORT: u16 = 80;

/// How many ports and certificates a Service may have at all: what the largest type of load balancer takes. Checked
/// before anything is computed for each port. The type of the Service may take less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    services: usize,
    pub(super) certificates: usize,
}

/// Of an `lb31`, the largest type of 2026. The types are not read for a Service whose load balancer is to keep its own.
const LARGEST: Limits = Limits {
    services: 30,
    certificates: 50,
};

impl Limits {
    /// No less than those of any type that was read.
    pub(super) fn of(observed: &Observed) -> Limits {
        let types = observed.types.iter().flat_map(|types| types.iter());
        let own = observed.balancers.iter().map(|one| &one.load_balancer_type);
        types.chain(own).fold(LARGEST, |largest, kind| Limits {
            services: largest.services.max(kind.max_services),
            certificates: largest.certificates.max(kind.max_assigned_certificates),
        })
    }

    /// Why no load balancer can serve this Service.
    pub(super) fn exceeded_by(self, service: &Service) -> Option<String> {
        let ports = service.ports.iter();
        let ports = ports.filter(|port| port.protocol == Protocol::Tcp).count();
        (ports > self.services).then(|| {
            format!(
                "the Service has {ports} TCP ports, and the largest type of load balancer takes {}: remove ports, or give \
                 them to several Services",
                self.services
            )
        })
    }
}

/// One port as it should be.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// With the API's defaults in unset fields.
    pub(super) listener: Listener,
    /// Of every field that is set; the others are left unchanged.
    pub(super) sources: BTreeMap<PortField, Source>,
    /// A certificate of it is still to be issued.
    pub(super) waits: bool,
}

/// What the ports rest on besides their annotations.
pub(super) struct PortContext<'a> {
    pub(super) service: &'a Service,
    pub(super) planner: &'a Planner<'a>,
    pub(super) certificates: &'a Certificates<'a>,
    pub(super) limits: Limits,
    pub(super) cluster: &'a Cluster,
}

impl Port {
    /// The port as it will be: unset fields keep the values of the existing one.
    pub(super) fn merged(&self, found: Option<&Listener>) -> Listener {
        let mut merged = self.listener.clone();
        if let Some(found) = found {
            for field in PortField::ALL {
                if !self.sources.contains_key(&field) {
                    field.copy(found, &mut merged);
                }
            }
            if self.waits && found.protocol == ListenerProtocol::Https {
                keep_certificates(found, &mut merged);
            }
        }
        merged
    }

    /// Can't it be as it should before its certificate is there? One that shows another one meanwhile can.
    pub(super) fn is_put_off(&self, found: Option<&Listener>) -> bool {
        self.waits
            && self.listener.certificates().is_empty()
            && found.is_none_or(|found| found.protocol != ListenerProtocol::Https)
    }

    /// Of one that is put off, for people.
    pub(super) fn put_off_field(&self, found: Option<&Listener>) -> Field {
        Field {
            field: format!("port {}", self.listener.listen_port),
            have: found.map(|found| found.protocol.name().to_owned()),
            want: None,
            source: Source::Rule("it waits for its certificate"),
        }
    }

    /// The value of an annotation for a field. Unset: none, and the API's default where that is enforced.
    pub(super) fn read<T>(
        &mut self,
        parser: &mut AnnotationParser,
        context: &PortContext,
        port: &ServicePort,
        field: PortField,
        annotation: &'static Annotation,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let set = parser.read(annotation, Some(port), parse);
        self.want(field, set, context.planner.enforced(annotation))
    }

    /// A value for a field. Unset: the source of the default, if that is to be enforced.
    pub(super) fn want<T>(
        &mut self,
        field: PortField,
        set: Option<Sourced<T>>,
        fallback: Option<Source>,
    ) -> Option<T> {
        match (set, fallback) {
            (Some(set), _) => {
                self.sources.insert(field, set.source);
                Some(set.value)
            }
            (None, Some(source)) => {
                self.sources.insert(field, source);
                None
            }
            (None, None) => None,
        }
    }
}

/// What it shows stays beside what is to be added, until all of that is issued.
fn keep_certificates(found: &Listener, merged: &mut Listener) {
    let mut ids = found.certificates().to_vec();
    let wanted = merged.certificates().iter();
    ids.extend(wanted.filter(|id| !found.certificates().contains(id)));
    if let Some(http) = &mut merged.http {
        http.certificates = Some(ids);
    }
}

/// All TCP ports; the others are reported.
pub(super) fn ports(
    parser: &mut AnnotationParser,
    context: &PortContext,
    managed: &Managed,
) -> Vec<Port> {
    let mut ports = Vec::new();
    for port in &context.service.ports {
        if port.protocol != Protocol::Tcp {
            parser.port_finding(Reason::UnsupportedProtocolConfigured, port, || {
                unsupported(port)
            });
        } else if let Some(node_port) = port.node_port {
            ports.push(wanted(parser, context, managed, port, node_port));
        } else {
            parser.problem(format!(
                "port {} has no node port, and traffic reaches the nodes by no other way: leave \
                 spec.allocateLoadBalancerNodePorts unset or true",
                port.port
            ));
        }
    }
    let mut all = context.service.ports.iter();
    if !all.any(|port| port.protocol == Protocol::Tcp) {
        parser.finding(Finding::warning(
            Reason::UnsupportedProtocolConfigured,
            "no port of the Service is TCP, so its load balancer serves nothing, and costs money all the same: give it a \
             TCP port, or another type than LoadBalancer",
        ));
    }
    check_redirects(parser, &ports);
    report_unused(parser, &ports);
    ports
}

/// A redirect takes port 80 for itself, so there can be one, and no port 80 of the Service's own.
fn check_redirects(parser: &mut AnnotationParser, ports: &[Port]) {
    let redirects = |port: &&Port| {
        let http = port.listener.http.as_ref();
        port.listener.protocol == ListenerProtocol::Https
            && http.is_some_and(|http| http.redirect_http == Some(true))
    };
    let number = |port: &Port| port.listener.listen_port;
    let redirecting: Vec<String> = ports
        .iter()
        .filter(redirects)
        .map(|port| number(port).to_string())
        .collect();
    let key = a::HTTP_REDIRECT_HTTP.key();
    match redirecting.as_slice() {
        [] => {}
        [one] if ports.iter().any(|port| number(port) == HTTP_PORT) => parser.problem(format!(
            "{key}: port {one} would answer on port 80 by itself, which the Service has too: remove port 80 from the \
             Service, or the annotation"
        )),
        [_] => {}
        several => parser.problem(format!(
            "{key}: ports {} can't all answer on port 80: write {key}.PORT for one of them",
            text::some_of(several)
        )),
    }
}

/// An annotation, and whether plain `http` has it too.
const HTTP_ONLY: [(&Annotation, bool); 10] = [
    (&a::HTTP_COOKIE_NAME, true),
    (&a::HTTP_COOKIE_LIFETIME, true),
    (&a::HTTP_STICKY_SESSIONS, true),
    (&a::HTTP_TIMEOUT_IDLE, true),
    (&a::HTTP_REDIRECT_HTTP, false),
    (&a::CERTIFICATE_TYPE, false),
    (&a::HTTP_CERTIFICATES, false),
    (&a::HTTP_MANAGED_CERTIFICATE_NAME, false),
    (&a::HTTP_MANAGED_CERTIFICATE_DOMAINS, false),
    (&a::HTTP_MANAGED_CERTIFICATE_ACME_STAGING, false),
];

/// Reports annotations for `http` or `https` that are set for no such port.
fn report_unused(parser: &mut AnnotationParser, ports: &[Port]) {
    // With a problem nothing is changed: only that is reported. It may be in a value of these annotations.
    if !parser.problems.is_empty() {
        return;
    }
    for (annotation, in_http) in HTTP_ONLY {
        let speaks = |number: &u16| {
            let mut ports = ports.iter().map(|port| &port.listener);
            let port = ports.find(|port| port.listen_port == *number);
            port.is_some_and(|port| match port.protocol {
                ListenerProtocol::Tcp | ListenerProtocol::Unknown => false,
                ListenerProtocol::Http => in_http,
                ListenerProtocol::Https => true,
            })
        };
        for SetAnnotation { key, value, ports } in parser.set_for(annotation) {
            // Turned off explicitly, it has the effect that was asked for.
            let is_off = annotation.is_switch() && text::boolean(value) == Ok(false);
            if value.is_empty() || is_off || ports.is_empty() || ports.iter().any(speaks) {
                continue;
            }
            let numbers: Vec<String> = ports.iter().map(ToString::to_string).collect();
            let (which, whose) = match numbers.len() {
                1 => ("port", "whose protocol is"),
                _ => ("ports", "whose protocols are"),
            };
            let words = if in_http { "http or https" } else { "https" };
            parser.finding(Finding::warning(
                Reason::AnnotationWithoutEffect,
                format!(
                    "annotation {key} has no effect on {which} {}, {whose} not {words}: set {} to {words}",
                    numbers.join(" and "),
                    a::PROTOCOL.key()
                ),
            ));
        }
    }
}

fn unsupported(port: &ServicePort) -> String {
    format!(
        "port {} is {}: Hetzner's load balancers take TCP only, so it is left out",
        port.port,
        port.protocol.name()
    )
}

fn wanted(
    parser: &mut AnnotationParser,
    context: &PortContext,
    managed: &Managed,
    port: &ServicePort,
    node_port: u16,
) -> Port {
    let protocol = parser.read(&a::PROTOCOL, Some(port), v::protocol);
    let listener = Listener {
        listen_port: port.port,
        destination_port: node_port,
        protocol: protocol.as_ref().map_or_else(Default::default, |p| p.value),
        ..Listener::default()
    };
    let source = protocol.map_or_else(|| default_source(&a::PROTOCOL), |p| p.source);
    let node_port = Source::Rule("the Service's node port");
    let sources = BTreeMap::from([
        (PortField::Protocol, source),
        (PortField::DestinationPort, node_port),
    ]);
    let mut wanted = Port {
        listener,
        sources,
        waits: false,
    };
    let proxy = parser.read(&a::USES_PROXYPROTOCOL, Some(port), v::boolean);
    let proxy = proxy.or_else(|| context.planner.defaults.uses_proxyprotocol.clone());
    let fallback = context.planner.enforced(&a::USES_PROXYPROTOCOL);
    let proxy = wanted.want(PortField::ProxyProtocol, proxy, fallback);
    wanted.listener.proxyprotocol = proxy.unwrap_or_default();
    http(&mut wanted, parser, context, managed, port);
    health_check::add(&mut wanted, parser, context, port);
    wanted
}

/// What only `http` and `https` have. Read for `tcp` too: a value that does not parse is reported.
fn http(
    wanted: &mut Port,
    parser: &mut AnnotationParser,
    context: &PortContext,
    managed: &Managed,
    port: &ServicePort,
) {
    let own = managed.of(port.port);
    let (field, annotation) = (PortField::CookieName, &a::HTTP_COOKIE_NAME);
    let name = wanted.read(parser, context, port, field, annotation, v::any);
    let (field, annotation) = (PortField::CookieLifetime, &a::HTTP_COOKIE_LIFETIME);
    let lifetime = wanted.read(parser, context, port, field, annotation, v::seconds);
    let mut read_switch = |wanted: &mut Port, field, annotation| {
        wanted.read(parser, context, port, field, annotation, v::boolean)
    };
    let sticky = read_switch(wanted, PortField::StickySessions, &a::HTTP_STICKY_SESSIONS);
    let redirect = read_switch(wanted, PortField::RedirectHttp, &a::HTTP_REDIRECT_HTTP);
    let port = Some(port);
    let idle = parser.read(&a::HTTP_TIMEOUT_IDLE, port, v::idle_seconds);
    let idle = wanted.want(PortField::TimeoutIdle, idle, None);
    wanted.waits = own.as_ref().is_some_and(|own| own.value.is_none());
    let certificates = match own {
        // What it shows meanwhile stays.
        Some(own) => own.value.map(|id| Sourced::new(vec![id], own.source)),
        None => certificates(wanted, parser, context, port),
    };
    let fallback = context.planner.enforced(&a::HTTP_CERTIFICATES);
    let fallback = fallback.filter(|_| !wanted.waits);
    let certificates = wanted.want(PortField::Certificates, certificates, fallback);
    wanted.listener.http = Some(Http {
        cookie_name: Some(name.unwrap_or_else(|| COOKIE_NAME.to_owned())),
        cookie_lifetime: Some(lifetime.unwrap_or(COOKIE_LIFETIME_S)),
        certificates: Some(certificates.unwrap_or_default()),
        redirect_http: Some(redirect.unwrap_or_default()),
        sticky_sessions: Some(sticky.unwrap_or_default()),
        timeout_idle: idle,
    });
}

/// IDs of the certificates that the annotations name. One that is not there is a problem, and so
/// is an `https` port without any, unless it may have one already.
fn certificates(
    wanted: &mut Port,
    parser: &mut AnnotationParser,
    context: &PortContext,
    port: Option<&ServicePort>,
) -> Option<Sourced<Vec<u64>>> {
    let is_https = wanted.listener.protocol == ListenerProtocol::Https;
    let number = wanted.listener.listen_port;
    let kind = certificate_type(parser, context, port);
    if kind.is_some_and(|kind| kind.value == CertificateType::Managed) {
        return None;
    }
    let at_most = context.limits.certificates;
    let named = parser.read(&a::HTTP_CERTIFICATES, port, |text| v::list(text, at_most));
    match named {
        Some(named) if is_https => {
            let mut ids = Vec::new();
            for name in &named.value {
                let Some(one) = certificate(parser, context.certificates, name, &named.source)
                else {
                    continue;
                };
                // The API takes none that is still to be issued, and refuses the whole port.
                match certificates::issued(parser, &number.to_string(), one) {
                    Some(id) => ids.push(id),
                    None => wanted.waits = true,
                }
            }
            Some(Sourced::new(ids, named.source))
        }
        Some(_) => None,
        None => {
            if is_https && context.planner.enforced(&a::HTTP_CERTIFICATES).is_some() {
                parser.problem(format!(
                    "port {}: protocol https needs a certificate: name one in annotation {}",
                    number,
                    a::HTTP_CERTIFICATES.key()
                ));
            }
            None
        }
    }
}

pub(super) fn is_https(parser: &mut AnnotationParser, port: &ServicePort) -> bool {
    let protocol = parser.read(&a::PROTOCOL, Some(port), v::protocol);
    protocol.is_some_and(|protocol| protocol.value == ListenerProtocol::Https)
}

/// Upstream takes any other word for `uploaded`.
pub(super) fn certificate_type(
    parser: &mut AnnotationParser,
    context: &PortContext,
    port: Option<&ServicePort>,
) -> Option<Sourced<CertificateType>> {
    if !context.planner.preserves_unset() {
        return parser.read(&a::CERTIFICATE_TYPE, port, v::certificate_type);
    }
    let text = parser.read(&a::CERTIFICATE_TYPE, port, v::any)?;
    let kind = v::certificate_type(&text.value).unwrap_or_else(|why| {
        let message = format!(
            "{}: {:?} is taken for uploaded; {why}",
            text.source, text.value
        );
        parser.finding(Finding::warning(Reason::AnnotationWithoutEffect, message));
        CertificateType::Uploaded
    });
    Some(Sourced::new(kind, text.source))
}

fn certificate<'a>(
    parser: &mut AnnotationParser,
    there: &Certificates<'a>,
    name: &str,
    source: &Source,
) -> Option<&'a Certificate> {
    let found = there.named(name);
    if found.is_none() {
        let about = hash(&(source.to_string(), name));
        parser.problem_about(about, || {
            // Which others there are is the project's business: tenants read this.
            let near = did_you_mean(name, there.names());
            format!(
                "{source}: there is no certificate {} in the project{near}",
                text::quoted(name)
            )
        });
    }
    found
}
