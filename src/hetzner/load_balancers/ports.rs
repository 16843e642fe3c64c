//! What a Service wants of each port of its load balancer.

use super::annotations::{self as a, Annotation};
use super::certificates::{Managed, certificate_type, issued};
use super::context::{Context, default_source};
use super::listener::{Listener, PortField, PortField as F};
use super::parser::{AnnotationParser, hash};
use super::values::{self as v, CertificateType};
use crate::hetzner::certificates::{Certificate, Certificates};
use crate::provider::{Finding, Protocol, Reason, ServicePort, Source, Sourced};
use crate::text::{self, did_you_mean};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the API takes when nothing is said.
const COOKIE_NAME: &str = "HCLBSTICKY";
const COOKIE_LIFETIME_S: u32 = 300;

/// A redirect answers here itself.
const HTTP_PORT: u16 = 80;

/// One port as it should be.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// With the API's defaults in unset fields.
    pub(super) listener: Listener,
    /// Of every field that is enforced; the others are left unchanged.
    pub(super) sources: BTreeMap<PortField, Source>,
    /// A certificate of it is still to be issued.
    pub(super) waits: bool,
}

impl Port {
    /// The port as it will be: fields of the existing one stay where nothing enforces a value, or what does `is_held`
    /// back.
    pub(super) fn merged(
        &self,
        found: Option<&Listener>,
        is_held: impl Fn(&Source) -> bool,
    ) -> Listener {
        let mut merged = self.listener.clone();
        let Some(found) = found else {
            return merged;
        };
        for field in F::ALL.iter().copied() {
            let stays = self.sources.get(&field).is_none_or(&is_held);
            if let Some(value) = found.get(field).filter(|_| stays) {
                merged.set(field, value.clone());
            }
        }
        if self.waits && found.is_https() {
            // What it shows stays beside what is to be added, until all of that is issued.
            let mut ids = found.certificates();
            let wanted = merged.certificates().into_iter();
            ids.extend(wanted.filter(|id| !found.certificates().contains(id)));
            merged.set(F::Certificates, ids);
        }
        merged
    }

    /// Can't it be as it should before its certificate is there? One that shows another one meanwhile can.
    pub(super) fn is_put_off(&self, found: Option<&Listener>) -> bool {
        self.waits
            && self.listener.certificates().is_empty()
            && !found.is_some_and(Listener::is_https)
    }
}

/// Reads one port's annotations into its fields.
pub(super) struct PortReader<'a, 'b> {
    pub(super) parser: &'a mut AnnotationParser<'b>,
    pub(super) context: &'a Context<'a>,
    pub(super) port: &'a ServicePort,
    pub(super) wanted: Port,
}

impl PortReader<'_, '_> {
    /// The field's value: of the annotation, of the setting, or what the API takes when nothing is said. True: it is set.
    pub(super) fn read<T: Into<Value> + Clone>(
        &mut self,
        field: PortField,
        annotation: &'static Annotation,
        parse: impl Fn(&str) -> Result<T, String>,
        setting: &Option<Sourced<T>>,
        usual: impl Into<Value>,
    ) -> bool {
        let set = self.annotation(annotation, parse);
        let set = set.or_else(|| setting.clone());
        let is_set = set.is_some();
        self.set(field, set, usual, self.context.planner.enforced(annotation));
        is_set
    }

    pub(super) fn annotation<T>(
        &mut self,
        annotation: &'static Annotation,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        self.parser.read(annotation, Some(self.port), parse)
    }

    /// `enforced`: the source of the usual value; none: it is only that of a new port.
    pub(super) fn set<T: Into<Value>>(
        &mut self,
        field: PortField,
        set: Option<Sourced<T>>,
        usual: impl Into<Value>,
        enforced: Option<Source>,
    ) {
        let (value, source) = match set {
            Some(set) => (set.value.into(), Some(set.source)),
            None => (usual.into(), enforced),
        };
        if !value.is_null() {
            self.wanted.listener.set(field, value);
        }
        self.wanted
            .sources
            .extend(source.map(|source| (field, source)));
    }
}

/// All TCP ports; the others are reported.
pub(super) fn ports(
    parser: &mut AnnotationParser,
    context: &Context,
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
    let redirects = |port: &&Port| port.listener.is_https() && port.listener.is_on(F::RedirectHttp);
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
        let speaks = |port: &Port| match port.listener.protocol() {
            "https" => true,
            protocol => in_http && protocol == "http",
        };
        if ports.is_empty() || ports.iter().any(speaks) || !parser.asks(annotation) {
            continue;
        }
        let words = if in_http { "http or https" } else { "https" };
        parser.finding(Finding::warning(
            Reason::AnnotationWithoutEffect,
            format!(
                "annotation {} has no effect, because no port of the Service has protocol {words}: set {} to {words}",
                annotation.key(),
                a::PROTOCOL.key()
            ),
        ));
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
    context: &Context,
    managed: &Managed,
    port: &ServicePort,
    node_port: u16,
) -> Port {
    let mut reader = PortReader {
        parser,
        context,
        port,
        wanted: Port {
            listener: Listener::new(port.port),
            sources: BTreeMap::new(),
            waits: false,
        },
    };
    let node_port = Sourced::new(node_port, Source::Rule("the Service's node port"));
    reader.set(F::DestinationPort, Some(node_port), Value::Null, None);
    let protocol = reader.annotation(&a::PROTOCOL, v::protocol);
    let usual = Some(default_source(&a::PROTOCOL));
    reader.set(F::Protocol, protocol, "tcp", usual);
    let (annotation, setting) = (
        &a::USES_PROXYPROTOCOL,
        &context.planner.defaults.uses_proxyprotocol,
    );
    reader.read(F::ProxyProtocol, annotation, v::boolean, setting, false);
    reader.http(managed);
    reader.health_check();
    reader.wanted
}

impl PortReader<'_, '_> {
    /// What only `http` and `https` have. Read for `tcp` too: a value that does not parse is reported.
    fn http(&mut self, managed: &Managed) {
        self.read(
            F::CookieName,
            &a::HTTP_COOKIE_NAME,
            v::any,
            &None,
            COOKIE_NAME,
        );
        let annotation = &a::HTTP_COOKIE_LIFETIME;
        self.read(
            F::CookieLifetime,
            annotation,
            v::seconds,
            &None,
            COOKIE_LIFETIME_S,
        );
        self.read(
            F::StickySessions,
            &a::HTTP_STICKY_SESSIONS,
            v::boolean,
            &None,
            false,
        );
        self.read(
            F::RedirectHttp,
            &a::HTTP_REDIRECT_HTTP,
            v::boolean,
            &None,
            false,
        );
        // Unset, it is left unchanged in both profiles.
        let idle = self.annotation(&a::HTTP_TIMEOUT_IDLE, v::idle_seconds);
        self.set(F::TimeoutIdle, idle, Value::Null, None);
        let own = managed.of(self.port.port);
        self.wanted.waits = own.as_ref().is_some_and(|own| own.value.is_none());
        let certificates = match own {
            // What it shows meanwhile stays.
            Some(own) => own.value.map(|id| Sourced::new(vec![id], own.source)),
            None => self.certificates(),
        };
        let enforced = self.context.planner.enforced(&a::HTTP_CERTIFICATES);
        let enforced = enforced.filter(|_| !self.wanted.waits);
        self.set(F::Certificates, certificates, Vec::<u64>::new(), enforced);
    }

    /// IDs of the certificates that the annotations name. One that is not there is a problem, and so
    /// is an `https` port without any, unless it may have one already.
    fn certificates(&mut self) -> Option<Sourced<Vec<u64>>> {
        let context = self.context;
        let kind = certificate_type(self.parser, context, Some(self.port));
        if kind.is_some_and(|kind| kind.value == CertificateType::Managed) {
            return None;
        }
        let at_most = context.limits.certificates;
        let named = self.annotation(&a::HTTP_CERTIFICATES, |text| v::list(text, at_most));
        if !self.wanted.listener.is_https() {
            return None;
        }
        let number = self.port.port;
        let Some(named) = named else {
            if context.planner.enforced(&a::HTTP_CERTIFICATES).is_some() {
                self.parser.problem(format!(
                    "port {number}: protocol https needs a certificate: name one in annotation {}",
                    a::HTTP_CERTIFICATES.key()
                ));
            }
            return None;
        };
        let mut ids = Vec::new();
        for name in &named.value {
            let found = certificate(self.parser, &context.certificates, name, &named.source);
            let Some(one) = found else { continue };
            // The API takes none that is still to be issued, and refuses the whole port.
            match issued(self.parser, &number.to_string(), one) {
                Some(id) => ids.push(id),
                None => self.wanted.waits = true,
            }
        }
        Some(Sourced::new(ids, named.source))
    }
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
