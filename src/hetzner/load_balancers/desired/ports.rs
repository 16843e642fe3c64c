//! The desired state of each port of a Service's load balancer, and of the port's health check.

use super::certificates::{CertificatePlan, is_managed, issued};
use super::permitted::{PORTS_STAY, may_use};
use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::annotations::parser::AnnotationParser;
use crate::hetzner::load_balancers::annotations::values as v;
use crate::hetzner::load_balancers::annotations::{self as a, Annotation};
use crate::hetzner::load_balancers::model::listener::{
    KUBE_PROXY_PORT, Listener, PortField, PortField as F, PortPart,
};
use crate::hetzner::load_balancers::ownership::context::{
    BY_API, Defaults, PlanContext, default_source,
};
use crate::hetzner::load_balancers::ownership::facts::is_in_status;
use crate::hetzner::load_balancers::ownership::group::HTTP_PORT;
use crate::hetzner::load_balancers::ownership::judge::owned;
use crate::hetzner::load_balancers::ownership::labels::Labelled;
use crate::provider::{Finding, Protocol, Reason, ServicePort, Source, Sourced, TrafficPolicy};
use crate::text::{self, did_you_mean};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The path on which kube-proxy answers health checks, on its own port and on the health check node port of a Service.
/// The answer on the health check node port says whether the node runs a pod of the Service.
const HEALTHZ: &str = "/healthz";

const LOCAL: Source = Source::Rule("externalTrafficPolicy: Local");

/// Returns the value that the settings give this field on all ports, if they give one.
fn setting(defaults: &Defaults, field: PortField) -> Option<Sourced<Value>> {
    fn value<T: Into<Value> + Clone>(set: &Option<Sourced<T>>) -> Option<Sourced<Value>> {
        let set = set.clone()?;
        Some(Sourced::new(set.value.into(), set.source))
    }
    match field {
        F::ProxyProtocol => value(&defaults.uses_proxyprotocol),
        F::CheckInterval => value(&defaults.health_check.interval_s),
        F::CheckTimeout => value(&defaults.health_check.timeout_s),
        F::CheckRetries => value(&defaults.health_check.retries),
        _ => None,
    }
}

/// The annotations that say where a health check is sent. When none of them is
/// set, `externalTrafficPolicy: Local` decides.
const PLACE: [&Annotation; 3] =
    [&a::HEALTH_CHECK_PROTOCOL, &a::HEALTH_CHECK_PORT, &a::HEALTH_CHECK_HTTP_PATH];

const INTERVALS: [PortField; 3] = [F::CheckInterval, F::CheckTimeout, F::CheckRetries];

/// A port in its desired state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port {
    /// The desired values of the fields. A field that nobody sets has the default of the API.
    pub(crate) listener: Listener,
    /// The fields that are set on the load balancer, each with the source of its value. Other fields are
    /// left unchanged.
    pub(crate) sources: BTreeMap<PortField, Source>,
    /// Whether a certificate of the port is not issued or not uploaded yet.
    pub(crate) waits: bool,
    /// The certificates that the port may not use. If the port uses one of them at present, the port keeps it.
    pub(crate) refused: Vec<u64>,
}

impl Port {
    /// Returns the port as it will be after the changes. A field that is not enforced keeps the value that it has on
    /// the existing port.
    pub(crate) fn merged(&self, found: Option<&Listener>) -> Listener {
        let mut merged = self.listener.clone();
        let Some(found) = found else {
            return merged;
        };
        for field in F::ALL.iter().copied() {
            let stays = !self.sources.contains_key(&field);
            if let Some(value) = found.get(field).filter(|_| stays) {
                merged.set(field, value.clone());
            }
        }
        if self.waits && found.is_https() {
            // The certificates in use stay beside the new ones until all new certificates are issued.
            let mut ids = found.certificates();
            let wanted = merged.certificates().into_iter();
            ids.extend(wanted.filter(|id| !found.certificates().contains(id)));
            merged.set(F::Certificates, ids);
        } else if found.is_https() && !self.refused.is_empty() {
            let mut ids = merged.certificates();
            let shown = found.certificates().into_iter();
            let stays = |id: &u64| self.refused.contains(id) && !merged.certificates().contains(id);
            ids.extend(shown.filter(stays));
            merged.set(F::Certificates, ids);
        }
        merged
    }

    /// Whether the port is not added yet, because it has no certificate that it may use now. An existing `https` port
    /// is not put off, because it keeps its present certificates.
    pub(crate) fn is_put_off(&self, found: Option<&Listener>) -> bool {
        (self.waits || !self.refused.is_empty())
            && self.listener.certificates().is_empty()
            && !found.is_some_and(Listener::is_https)
    }
}

/// Reads the annotations for one port into the fields of this port.
struct PortReader<'a, 'b> {
    parser: &'a mut AnnotationParser<'b>,
    context: &'a PlanContext<'a>,
    port: &'a ServicePort,
    /// Whether the health check of the existing port asks kube-proxy.
    asks_now: bool,
    wanted: Port,
}

/// Returns the desired state of all TCP ports, and reports the other ports.
pub(crate) fn ports(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    certificates: &CertificatePlan,
) -> Vec<Port> {
    let mut ports = Vec::new();
    let there = owned(context.balancers, context.service, context.cluster)
        .flat_map(|labelled| &labelled.balancer.services);
    let asked: Vec<&Listener> = there.filter(|listener| listener.asks_kube_proxy()).collect();
    for port in &context.service.ports {
        if port.protocol != Protocol::Tcp {
            let why = format!(
                "port {} is {}: Hetzner's load balancers take TCP only, so it is left out",
                port.port,
                port.protocol.name()
            );
            parser.warning(Reason::UnsupportedProtocolConfigured, why);
        } else if let Some(node_port) = port.node_port {
            let asks_now = asked.iter().any(|listener| listener.listen_port == port.port);
            let listener = Listener::new(port.port);
            let wanted = Port { listener, ..Port::default() };
            let mut reader = PortReader { parser: &mut *parser, context, port, asks_now, wanted };
            reader.read_all(node_port, certificates);
            ports.push(reader.wanted);
        } else {
            parser.problem(format!(
                "port {} has no node port, and traffic can reach the nodes in no other way: leave \
                 spec.allocateLoadBalancerNodePorts unset or true",
                port.port
            ));
        }
    }
    if !context.service.ports.iter().any(|port| port.protocol == Protocol::Tcp) {
        let why = "no port of the Service is TCP, so its load balancer serves nothing, but still costs money: give the \
                   Service a TCP port, or another type than LoadBalancer";
        parser.warning(Reason::UnsupportedProtocolConfigured, why);
    }
    check_redirects(parser, &ports);
    report_unused(parser, &ports);
    ports
}

/// Checks that only one port redirects from port 80, and that the Service has no port 80 then,
/// because a redirect takes port 80 for itself.
fn check_redirects(parser: &mut AnnotationParser, ports: &[Port]) {
    let number = |port: &Port| port.listener.listen_port;
    let redirecting = ports.iter().filter(|port| port.listener.redirects_http());
    let redirecting: Vec<String> = redirecting.map(|port| number(port).to_string()).collect();
    let key = a::HTTP_REDIRECT_HTTP.key();
    match redirecting.as_slice() {
        [one] if ports.iter().any(|port| number(port) == HTTP_PORT) => parser.problem(format!(
            "{key}: the redirect to port {one} needs port 80 of the load balancer, which the Service uses itself: \
             remove port 80 from the Service, or the annotation"
        )),
        [] | [_] => {}
        several => parser.problem(format!(
            "{key}: port 80 can redirect to only one of the ports {}: write {key}.PORT for one of them",
            text::some_of(several)
        )),
    }
}

/// Leaves out the ports that other Services have on the same load balancer. When a port is left out and the Service's
/// status has the address of another load balancer, the Service stays on that other load balancer with all ports of the
/// Service. In this case the function returns the other load balancer and the reasons.
pub(crate) fn leave_out_taken<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    ports: &mut Vec<Port>,
    there: Option<Labelled>,
) -> Option<(Labelled<'a>, Vec<Finding>)> {
    let group = &context.group;
    if group.is_own() {
        return None;
    }
    let by = if group.is_external() { a::EXTERNAL.key() } else { a::SHARE.key() };
    let inspect = text::shell_command("ccm lb inspect", &[&context.service.full_name()]);
    let mut others = owned(context.balancers, context.service, context.cluster);
    let other = others.find(|balancer| {
        Some(balancer.id) != there.map(|there| there.id) && is_in_status(context.service, *balancer)
    });
    let mut all = Vec::new();
    let mut is_taken = |number: u16| {
        let Some(why) = group.taken(number, there) else {
            return false;
        };
        let mut why = format!("port {number} can't be used: {why}");
        let mut fix = format!("give the Service another port, or remove its annotation {by}");
        if let Some(other) = other {
            why += &format!("; the Service stays on {}", other.shown());
            fix += &format!("; {inspect} shows both load balancers");
        } else if there.is_some() {
            fix += &format!("; {inspect} shows the owner of each port of the load balancer");
        }
        let finding = Finding::warning(Reason::PortConflict, why).with_fix(fix);
        match other {
            Some(_) => all.push(finding),
            None => parser.finding(finding),
        }
        true
    };
    ports.retain_mut(|port| {
        let listener = &mut port.listener;
        if listener.redirects_http() && is_taken(HTTP_PORT) {
            listener.set(F::RedirectHttp, false);
        }
        !is_taken(listener.listen_port)
    });
    other.filter(|_| !all.is_empty()).map(|other| (other, all))
}

/// Annotations that have an effect only on ports with a certain protocol, or with a health check by HTTP.
const ONLY_WITH: [(PortPart, &Annotation); 15] = [
    (PortPart::Http, &a::HTTP_COOKIE_NAME),
    (PortPart::Http, &a::HTTP_COOKIE_LIFETIME),
    (PortPart::Http, &a::HTTP_STICKY_SESSIONS),
    (PortPart::Http, &a::HTTP_TIMEOUT_IDLE),
    (PortPart::Https, &a::HTTP_REDIRECT_HTTP),
    (PortPart::Https, &a::CERTIFICATE_TYPE),
    (PortPart::Https, &a::HTTP_CERTIFICATES),
    (PortPart::Https, &a::HTTP_TLS_SECRET),
    (PortPart::Https, &a::HTTP_MANAGED_CERTIFICATE_NAME),
    (PortPart::Https, &a::HTTP_MANAGED_CERTIFICATE_DOMAINS),
    (PortPart::Https, &a::HTTP_MANAGED_CERTIFICATE_ACME_STAGING),
    (PortPart::HttpCheck, &a::HEALTH_CHECK_HTTP_DOMAIN),
    (PortPart::HttpCheck, &a::HEALTH_CHECK_HTTP_PATH),
    (PortPart::HttpCheck, &a::HTTP_STATUS_CODES),
    (PortPart::HttpCheck, &a::HEALTH_CHECK_HTTP_VALIDATE_CERTIFICATE),
];

/// Returns the annotations that have an effect only on a health check by HTTP.
fn of_http_checks() -> impl Iterator<Item = &'static Annotation> {
    ONLY_WITH.into_iter().filter_map(|(part, one)| (part == PortPart::HttpCheck).then_some(one))
}

/// Reports the annotations that have no effect, because no port has the protocol or the health check that they need.
fn report_unused(parser: &mut AnnotationParser, ports: &[Port]) {
    if ports.is_empty() {
        return;
    }
    for (part, annotation) in ONLY_WITH {
        if ports.iter().any(|port| port.listener.has(part)) || !parser.asks(annotation) {
            continue;
        }
        let (what, by, words) = match part {
            PortPart::Https => ("protocol https", &a::PROTOCOL, "https"),
            PortPart::HttpCheck => {
                ("health check protocol http", &a::HEALTH_CHECK_PROTOCOL, "http")
            }
            _ => ("protocol http or https", &a::PROTOCOL, "http or https"),
        };
        if [annotation, by, &a::PROTOCOL].iter().any(|annotation| parser.is_bad(annotation)) {
            continue;
        }
        let why = format!(
            "annotation {} has no effect, because no port of the Service has {what}: set {} to {words}",
            annotation.key(),
            by.key()
        );
        parser.warning(Reason::AnnotationWithoutEffect, why);
    }
}

impl PortReader<'_, '_> {
    fn read_all(&mut self, node_port: u16, certificates: &CertificatePlan) {
        let node_port = Sourced::new(node_port, Source::Rule("the Service's node port"));
        self.set(F::DestinationPort, Some(node_port), Value::Null, None);
        let protocol = self.annotation(&a::PROTOCOL, v::protocol);
        self.set(F::Protocol, protocol, "tcp", Some(default_source(&a::PROTOCOL)));
        // Fields of `http` are read for `tcp` too, so that a value that does not parse is reported.
        for field in F::ALL.iter().filter(|field| !INTERVALS.contains(field)) {
            self.read(*field);
        }
        self.certificates(certificates);
        self.health_check();
    }

    /// Sets the field from its annotation, or from the settings, or to the default of the API. When the default is
    /// null, a field that nobody sets is left unchanged. Returns whether the annotation or a setting has a value.
    fn read(&mut self, field: PortField) -> bool {
        let nothing = Value::Null;
        match field {
            F::ProxyProtocol => self.field(field, &a::USES_PROXYPROTOCOL, v::boolean, false),
            F::CookieName => self.field(field, &a::HTTP_COOKIE_NAME, v::any, "HCLBSTICKY"),
            F::CookieLifetime => self.field(field, &a::HTTP_COOKIE_LIFETIME, v::seconds, 300),
            F::StickySessions => self.field(field, &a::HTTP_STICKY_SESSIONS, v::boolean, false),
            F::RedirectHttp => self.field(field, &a::HTTP_REDIRECT_HTTP, v::boolean, false),
            F::TimeoutIdle => self.field(field, &a::HTTP_TIMEOUT_IDLE, v::idle_seconds, nothing),
            F::CheckInterval => self.field(field, &a::HEALTH_CHECK_INTERVAL, v::seconds, 15),
            F::CheckTimeout => self.field(field, &a::HEALTH_CHECK_TIMEOUT, v::seconds, 10),
            F::CheckRetries => self.field(field, &a::HEALTH_CHECK_RETRIES, v::count, 3),
            F::CheckDomain => self.field(field, &a::HEALTH_CHECK_HTTP_DOMAIN, v::host, ""),
            F::CheckPath => self.field(field, &a::HEALTH_CHECK_HTTP_PATH, v::path, "/"),
            F::CheckStatusCodes => {
                self.field(field, &a::HTTP_STATUS_CODES, v::status_codes, json!(["2??", "3??"]))
            }
            _ => false,
        }
    }

    /// Sets the field from the annotation, else from the setting, else to the API's default.
    fn field<T: Into<Value>>(
        &mut self,
        field: PortField,
        annotation: &'static Annotation,
        parse: impl Fn(&str) -> Result<T, String>,
        usual: impl Into<Value>,
    ) -> bool {
        let (project, usual) = (self.context.project, usual.into());
        let set = self.annotation(annotation, |text| parse(text).map(Into::into));
        let set = set.or_else(|| setting(&project.defaults, field));
        let is_set = set.is_some();
        let enforced = project.enforced(annotation).filter(|_| !usual.is_null());
        self.set(field, set, usual, enforced);
        is_set
    }

    fn annotation<T>(
        &mut self,
        annotation: &'static Annotation,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        self.parser.read(annotation, Some(self.port), parse)
    }

    /// Sets the field to the value `set`. Without such a value, a new port gets the value `usual`. An existing port
    /// gets it only when `enforced` is given, which is the source of the value.
    fn set<T: Into<Value>>(
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
        self.wanted.sources.extend(source.map(|source| (field, source)));
    }

    fn certificates(&mut self, all: &CertificatePlan) {
        let certificates = match all.ports.get(&self.port.port) {
            Some(shows) => {
                self.wanted.waits = shows.waits;
                self.wanted.refused.extend(shows.refused);
                Some(shows.ids.clone())
            }
            None => self.uploaded(),
        };
        // While a certificate is missing or refused, the port keeps the certificates that it uses at present.
        let is_as_found = self.wanted.waits || !self.wanted.refused.is_empty();
        let certificates = certificates.filter(|ids| !is_as_found || !ids.value.is_empty());
        let enforced = self.context.project.enforced(&a::HTTP_CERTIFICATES);
        let enforced = enforced.filter(|_| !is_as_found);
        self.set(F::Certificates, certificates, Vec::<u64>::new(), enforced);
    }

    /// Returns the IDs of the certificates that the annotations name. A certificate that does not
    /// exist is a problem. An `https` port without any certificate is a problem too, unless the
    /// existing port may have a certificate already.
    fn uploaded(&mut self) -> Option<Sourced<Vec<u64>>> {
        let context = self.context;
        if is_managed(self.parser, context, self.port).is_some_and(|managed| managed.value) {
            return None;
        }
        let named = self.annotation(&a::HTTP_CERTIFICATES, v::certificates);
        if !self.wanted.listener.is_https() {
            return None;
        }
        let Some(named) = named else {
            let number = self.port.port;
            if context.project.enforced(&a::HTTP_CERTIFICATES).is_some() {
                self.parser.problem(format!(
                    "port {number}: protocol https needs a certificate: name one in annotation {}, or a Secret in {}",
                    a::HTTP_CERTIFICATES.key(),
                    a::HTTP_TLS_SECRET.key()
                ));
            }
            return None;
        };
        // The certificates are not read when only a manifest is checked.
        let are_read = context.observed.certificates.is_some();
        let names = named.value.iter().filter(|_| are_read);
        let ids = names.filter_map(|name| self.usable(name, &named.source)).collect();
        Some(Sourced::new(ids, named.source))
    }

    /// Reports that a certificate does not exist. Tenants read the message, so it suggests only certificates that the
    /// Service may use, and does not disclose the project's other certificates.
    fn report_missing(&mut self, name: &str, source: &Source) {
        let context = self.context;
        let may_use = |certificate: &&Certificate| may_use(context, certificate).is_ok();
        let usable = context.certificates.iter().filter(may_use);
        let names = usable.map(|certificate| certificate.name.as_str());
        let near = self.parser.has_room().then(|| did_you_mean(name, names));
        self.parser.problem(format!(
            "{source}: there is no certificate {} in the project{}",
            text::quoted(name),
            near.unwrap_or_default()
        ));
    }

    /// Returns the ID of a certificate that an annotation names, when the port can use the certificate now.
    fn usable(&mut self, name: &str, source: &Source) -> Option<u64> {
        let (number, context) = (self.port.port, self.context);
        let Some(certificate) = Certificate::named(context.certificates, name) else {
            self.report_missing(name, source);
            return None;
        };
        if let Err(why) = may_use(context, certificate) {
            let why = format!(
                "{source}: port {number}: certificate {} can't be used by Services of namespace {}: {why}; {PORTS_STAY}",
                text::quoted(name),
                context.service.namespace
            );
            self.parser.warning(Reason::CertificateFailed, why);
            self.wanted.refused.push(certificate.id);
            return None;
        }
        // The API refuses the whole port when one of its certificates is not issued yet.
        let id = issued(self.parser, &number.to_string(), certificate);
        self.wanted.waits |= id.is_none();
        id
    }

    fn health_check(&mut self) {
        let number = self.annotation(&a::HEALTH_CHECK_PORT, v::port);
        let mut is_set = number.is_some();
        for field in INTERVALS {
            is_set |= self.read(field);
        }
        let (service, project) = (self.context.service, self.context.project);
        let kube_proxy = self.kube_proxy();
        // A Service with `externalTrafficPolicy: Local` is checked on its health check node port, unless
        // annotations say where the check is sent.
        let is_placed = PLACE.iter().any(|annotation| self.has(annotation));
        let is_local = service.traffic_policy == TrafficPolicy::Local && !is_placed;
        let node_port = service.health_check_node_port.filter(|_| is_local);
        let on = project.defaults.health_check.node_port.as_ref();
        // This check is off by default in hcloud-cloud-controller-manager.
        let is_on = on.map_or(!project.preserves_unset(), |on| on.value);
        let local = node_port.filter(|_| is_on).map(|number| Sourced::new(number, LOCAL));
        if let Some(asked) = &kube_proxy {
            let codes = Some(Sourced::new(vec!["200"], asked.source.clone()));
            self.set(F::CheckStatusCodes, codes, Value::Null, None);
        }
        let asked = local.or(kube_proxy);
        self.check_protocol(is_set, asked.as_ref().map(|asked| &asked.source));
        if let Some(asked) = &asked {
            let path = Some(Sourced::new(HEALTHZ, asked.source.clone()));
            self.set(F::CheckPath, path, "", None);
        }
        let usual = self.wanted.listener.get(F::DestinationPort).cloned();
        let own_port = Some(Source::Rule("the port that gets the traffic"));
        self.set(F::CheckPort, number.or(asked), usual.unwrap_or_default(), own_port);
        if self.asks_now && !self.wanted.listener.asks_kube_proxy() {
            // A check that asks kube-proxy has its own path and status codes, which must not stay on any other check.
            for field in [F::CheckPath, F::CheckStatusCodes] {
                self.wanted.sources.entry(field).or_insert(BY_API);
            }
        }
        // No annotation sets the expected response of a health check.
        let usual = (!project.preserves_unset()).then_some(BY_API);
        self.set(F::CheckResponse, None::<Sourced<String>>, "", usual);
    }

    /// Returns the port of kube-proxy when the health check asks kube-proxy. When the traffic policy or an annotation
    /// describes another check, that check is used instead.
    fn kube_proxy(&mut self) -> Option<Sourced<u16>> {
        let set = self.annotation(&a::HEALTH_CHECK, v::health_check);
        let Some(other) = self.other_check() else {
            let set = set.or_else(|| self.context.project.defaults.health_check.kind.clone())?;
            return Some(Sourced::new(KUBE_PROXY_PORT, set.source));
        };
        if let Some(set) = set {
            let (number, source) = (self.port.port, set.source);
            let why = format!(
                "{source} has no effect on port {number}: {other} sets another health check"
            );
            self.parser.warning(Reason::AnnotationWithoutEffect, why);
        }
        None
    }

    /// Returns what asks for another health check than the check on kube-proxy's own port: the traffic policy `Local`,
    /// or the key of an annotation. Returns `None` when nothing asks for another check.
    fn other_check(&self) -> Option<String> {
        if self.context.service.traffic_policy == TrafficPolicy::Local {
            return Some(LOCAL.to_string());
        }
        let mut others = PLACE.into_iter().chain(of_http_checks());
        others.find(|annotation| self.has(annotation)).map(Annotation::key)
    }

    fn has(&self, annotation: &'static Annotation) -> bool {
        self.parser.has(annotation, Some(self.port))
    }

    /// Sets the protocol of the health check: `tcp` or `http`, and whether `http` is sent over TLS. `asked` is the
    /// reason why the check asks kube-proxy, and `None` when the check does not ask kube-proxy.
    fn check_protocol(&mut self, is_set: bool, asked: Option<&Source>) {
        let set = self.annotation(&a::HEALTH_CHECK_PROTOCOL, v::protocol);
        let http_is_set = of_http_checks().any(|annotation| self.has(annotation));
        // These annotations have an effect in hcloud-cloud-controller-manager only when the check is by HTTP.
        let follows_port = is_set || (http_is_set && !self.context.project.preserves_unset());
        let (name, source) = match (set, asked) {
            (Some(set), _) => (set.value, set.source),
            (None, Some(asked)) => ("http", asked.clone()),
            (None, None) if follows_port => {
                (self.wanted.listener.protocol(), Source::Rule("the port's protocol"))
            }
            (None, None) => ("tcp", default_source(&a::HEALTH_CHECK_PROTOCOL)),
        };
        let over_tls = name == "https";
        let name = if over_tls { "http" } else { name }.to_owned();
        self.set(F::CheckProtocol, Some(Sourced::new(name, source)), "", None);
        let set = self.annotation(&a::HEALTH_CHECK_HTTP_VALIDATE_CERTIFICATE, v::boolean);
        if over_tls && let Some(set) = set.as_ref().filter(|set| !set.value) {
            self.parser.problem(format!(
                "{}: \"false\" contradicts a health check by https: remove this annotation, or set {} to http",
                set.source,
                a::HEALTH_CHECK_PROTOCOL.key()
            ));
        }
        let by_protocol = Source::Rule("the protocol of the health check");
        self.set(F::CheckTls, set, over_tls, Some(by_protocol));
    }
}
