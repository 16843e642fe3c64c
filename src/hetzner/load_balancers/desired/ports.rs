//! Plans the desired state of each port of a Service's load balancer, and of the port's health check.

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
use crate::hetzner::load_balancers::ownership::defaults::STAYS;
use crate::hetzner::load_balancers::ownership::facts::is_in_status;
use crate::hetzner::load_balancers::ownership::group::{HTTP_PORT, is_same_or_partner};
use crate::hetzner::load_balancers::ownership::judge::owned;
use crate::hetzner::load_balancers::ownership::labels::Labelled;
use crate::provider::{Finding, Protocol, Reason, ServicePort, Source, Sourced, TrafficPolicy};
use crate::text::{self, did_you_mean};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The path of health checks that kube-proxy answers. On port 10256, the answer says whether the node takes traffic. On
/// the health check node port of a Service, the answer says whether a pod of the Service runs on the node.
const HEALTHZ: &str = "/healthz";

const LOCAL: Source = Source::Rule("externalTrafficPolicy: Local");

/// Returns the default that `defaults` has for this field of a port, or `None` when there is no default. `defaults`
/// contains the settings of the program, alone or with the annotations of a Namespace, which take precedence.
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

/// The annotations that set the protocol, the port or the path of a health check. When a Service with
/// `externalTrafficPolicy: Local` has none of them, its health check asks the health check node port.
const PLACE: [&Annotation; 3] =
    [&a::HEALTH_CHECK_PROTOCOL, &a::HEALTH_CHECK_PORT, &a::HEALTH_CHECK_HTTP_PATH];

const INTERVALS: [PortField; 3] = [F::CheckInterval, F::CheckTimeout, F::CheckRetries];

/// A port as the Service asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port {
    /// The desired values of the fields. A field that neither an annotation nor a setting sets has the default value
    /// of the API.
    pub(crate) listener: Listener,
    /// The source of each desired value, e.g. an annotation, by field. On an existing port, only these fields are
    /// changed. A field that is not in the map keeps its present value.
    pub(crate) sources: BTreeMap<PortField, Source>,
    /// Whether the port needs a certificate that is not issued or not uploaded yet.
    pub(crate) waits: bool,
    /// The IDs of the certificates that the port asks for although the Service is not allowed to use them. A port that
    /// already uses one of these certificates keeps it.
    pub(crate) refused: Vec<u64>,
}

impl Port {
    /// Returns the port of the load balancer as it will be after the changes. `found` is the existing port. The map
    /// `sources` contains the fields for which an annotation or a setting asks for a value. All other fields keep their
    /// existing values.
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
            // Until all new certificates are issued, the port keeps its present certificates in addition to
            // the new ones.
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

    /// Whether the port is not added or changed yet, because none of its certificates can be used. An existing `https`
    /// port is never put off: it keeps its present certificates.
    pub(crate) fn is_put_off(&self, found: Option<&Listener>) -> bool {
        (self.waits || !self.refused.is_empty())
            && self.listener.certificates().is_empty()
            && !found.is_some_and(Listener::is_https)
    }
}

/// Computes the desired state of one port from the annotations.
struct PortReader<'a, 'b> {
    parser: &'a mut AnnotationParser<'b>,
    context: &'a PlanContext<'a>,
    port: &'a ServicePort,
    /// Whether the port exists and its present health check asks kube-proxy on port 10256.
    asks_now: bool,
    wanted: Port,
}

/// Returns the desired state of all TCP ports of the Service. A warning is reported for each port with another
/// protocol.
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
                "port {} is {}, but Hetzner's load balancers take only TCP, so the load balancer does not get this \
                 port. To make the port reachable, use hostPort in the pods, or a Service of type NodePort",
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
                "port {} has no node port, but load balancers send traffic only to node ports. Set \
                 spec.allocateLoadBalancerNodePorts of the Service to true, or remove this field",
                port.port
            ));
        }
    }
    if !context.service.ports.iter().any(|port| port.protocol == Protocol::Tcp) {
        let why = "no port of the Service is TCP, so its load balancer serves nothing, but still costs money. Give the \
                   Service a TCP port, or change its type from LoadBalancer to another one";
        parser.warning(Reason::UnsupportedProtocolConfigured, why);
    }
    check_redirects(parser, &ports);
    report_unused(parser, &ports);
    ports
}

/// Reports a problem when two ports redirect HTTP to HTTPS, or when one port does and the Service has its own port 80.
/// The load balancer needs port 80 for the redirect.
fn check_redirects(parser: &mut AnnotationParser, ports: &[Port]) {
    let number = |port: &Port| port.listener.listen_port;
    let redirecting = ports.iter().filter(|port| port.listener.redirects_http());
    let redirecting: Vec<String> = redirecting.map(|port| number(port).to_string()).collect();
    let key = a::HTTP_REDIRECT_HTTP.key();
    match redirecting.as_slice() {
        [one] if ports.iter().any(|port| number(port) == HTTP_PORT) => parser.problem(format!(
            "annotation {key}: the redirect to port {one} needs port 80 of the load balancer, but the Service has a \
             port 80 of its own. Remove that port from the Service, or remove the annotation"
        )),
        [] | [_] => {}
        several => parser.problem(format!(
            "annotation {key}: port 80 can redirect to only one of the ports {}. Remove the annotation, and set \
             annotation {key}.PORT for the one port to which port 80 shall redirect",
            text::some_of(several)
        )),
    }
}

/// Removes from `ports` the ports that the Service can't have on the load balancer `there`, because another Service or
/// the owner of the load balancer has them. Reports the reasons, and returns `None`.
///
/// The exception is a Service that another load balancer still serves: the Service's status has an address of this
/// other one. If the Service can't have all its ports on `there`, it stays on the other load balancer for now. The
/// function then reports nothing, and returns the other load balancer with the reasons.
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
        !there.is_some_and(|there| is_same_or_partner(there, *balancer))
            && is_in_status(context.service, *balancer)
    });
    let mut all = Vec::new();
    let mut is_taken = |number: u16| {
        let Some(why) = group.taken(number, there) else {
            return false;
        };
        let mut why = format!("port {number} can't be used, because {why}");
        let mut fix = match group.closed_by {
            None => format!("give the Service another port, or remove its annotation {by}"),
            Some(space) => format!(
                "add namespace {} to annotation {} of a Service of namespace {space} that shares the load balancer, or \
                 remove annotation {by} of this Service",
                context.service.namespace,
                a::SHARE_NAMESPACES.key()
            ),
        };
        if let Some(other) = other {
            why += &format!(
                ". For now, Service {} stays on its old load balancer {}",
                context.service.full_name(),
                other.shown()
            );
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

/// The annotations that have no effect on some ports. Each of them needs a port with the protocol `http` or `https`, a
/// port with the protocol `https`, or a health check by HTTP.
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

/// Returns the annotations that have an effect only on health checks by HTTP.
fn of_http_checks() -> impl Iterator<Item = &'static Annotation> {
    ONLY_WITH.into_iter().filter_map(|(part, one)| (part == PortPart::HttpCheck).then_some(one))
}

/// Reports each annotation that has no effect because no port of the Service has the protocol, or the kind of health
/// check, that the annotation needs.
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
            "annotation {} has no effect, because no port of the Service has {what}. Set annotation {} to {words}, or \
             remove the annotation that has no effect",
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
        // Every field that has an annotation is read here, even when a port with this protocol does not have the field.
        // So an invalid value is always reported. Only the fields in `INTERVALS` are read later, with the health check.
        for field in F::ALL.iter().filter(|field| !INTERVALS.contains(field)) {
            self.read(*field);
        }
        self.certificates(certificates);
        self.health_check();
    }

    /// Sets the field from its annotation, or else from a default of the Namespace or the settings, or else to a fixed
    /// value. Each call of `field` has the fixed value as its last argument, and `nothing` means that there is none.
    /// Returns whether the annotation, the Namespace or the settings have a value.
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

    /// Sets the field from the annotation, or else from a default of the Namespace or the settings, or else to the
    /// value `usual`. Returns whether the annotation, the Namespace or the settings have a value.
    fn field<T: Into<Value>>(
        &mut self,
        field: PortField,
        annotation: &'static Annotation,
        parse: impl Fn(&str) -> Result<T, String>,
        usual: impl Into<Value>,
    ) -> bool {
        let (context, mut usual) = (self.context, usual.into());
        let set = self.annotation(annotation, |text| parse(text).map(Into::into));
        let set = set.or_else(|| setting(&context.own_defaults.values, field));
        let is_set = set.is_some();
        if let Some(of_setting) = setting(&context.project.defaults, field)
            && context.is_unknown(annotation)
        {
            // The default of the Namespace is not known. A new port must have some value, so it gets the value from the
            // program's settings. An existing port keeps its present value.
            usual = of_setting.value;
        }
        let enforced = context.enforced(annotation).filter(|_| !usual.is_null());
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

    /// Sets the field to the value `set`. When `set` is `None`, a new port gets the default `usual`. An existing port
    /// then gets the default only when `enforced` is given, and otherwise keeps its present value. `enforced` names the
    /// source of the default, for display.
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
        // Whether some certificates of the port are not issued yet or are refused. If so, and no other certificate can
        // be used, the port keeps the certificates that it has now.
        let is_as_found = self.wanted.waits || !self.wanted.refused.is_empty();
        let certificates = certificates.filter(|ids| !is_as_found || !ids.value.is_empty());
        let enforced = self.context.project.enforced(&a::HTTP_CERTIFICATES);
        let enforced = enforced.filter(|_| !is_as_found);
        self.set(F::Certificates, certificates, Vec::<u64>::new(), enforced);
    }

    /// Returns the IDs of the certificates that the annotation `http-certificates` of the port names. `None` when the
    /// port does not use this annotation. Reports a problem when a certificate does not exist.
    ///
    /// Also reports a problem when an `https` port has no certificate. Profile `hcloud`, which behaves like
    /// hcloud-cloud-controller-manager, does not report this, because somebody may have set the certificate by hand.
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
                    "port {number} has protocol https, which needs a certificate. Name a certificate in annotation {}, \
                     or a Secret in annotation {}",
                    a::HTTP_CERTIFICATES.key(),
                    a::HTTP_TLS_SECRET.key()
                ));
            }
            return None;
        };
        // When annotations are checked without the API, for example by `ccm lint` without an API token, the
        // certificates of the Hetzner Cloud project are not read. So no certificate can be looked up by its name.
        let are_read = context.observed.certificates.is_some();
        let names = named.value.iter().filter(|_| are_read);
        let ids = names.filter_map(|name| self.usable(name, &named.source)).collect();
        Some(Sourced::new(ids, named.source))
    }

    /// Reports that the project has no certificate with this name. Users of the cluster read the message. So it
    /// suggests a similar name only from the certificates that the Service is allowed to use.
    fn report_missing(&mut self, name: &str, source: &Source) {
        let context = self.context;
        let may_use = |certificate: &&Certificate| may_use(context, certificate).is_ok();
        let usable = context.certificates.iter().filter(may_use);
        let names = usable.map(|certificate| certificate.name.as_str());
        let mut hint =
            if self.parser.has_room() { did_you_mean(name, names) } else { String::new() };
        if hint.is_empty() {
            hint = "; hcloud certificate list shows those that exist".to_owned();
        }
        self.parser.problem(format!(
            "{source}: the project has no certificate with the ID or name {}{hint}",
            text::quoted(name)
        ));
    }

    /// Returns the ID of the certificate that an annotation names. When the certificate is missing, not allowed or not
    /// issued yet, this is reported to the user, and the result is `None`.
    fn usable(&mut self, name: &str, source: &Source) -> Option<u64> {
        let (number, context) = (self.port.port, self.context);
        let Some(certificate) = Certificate::named(context.certificates, name) else {
            self.report_missing(name, source);
            return None;
        };
        if let Err(why) = may_use(context, certificate) {
            let why = format!(
                "{source}: certificate {} can't be used for port {number} by Services of namespace {}, because {why}. \
                 {PORTS_STAY}",
                text::quoted(name),
                context.service.namespace
            );
            self.parser.warning(Reason::CertificateFailed, why);
            self.wanted.refused.push(certificate.id);
            return None;
        }
        // A certificate that is not issued yet is not put on the port, because the API would refuse the whole request
        // for the port.
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
        // The health check of a Service with `externalTrafficPolicy: Local` asks the health check node port, unless an
        // annotation sets the protocol, port or path of the check.
        let is_placed = PLACE.iter().any(|annotation| self.has(annotation));
        let is_local = service.traffic_policy == TrafficPolicy::Local && !is_placed;
        let node_port = service.health_check_node_port.filter(|_| is_local);
        let on = project.defaults.health_check.node_port.as_ref();
        // A Service with the traffic policy `Local` has the field `healthCheckNodePort`. Health checks ask this port by
        // default. Profile `hcloud` behaves like hcloud-cloud-controller-manager, and asks it only when the settings
        // turn this on.
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
            // The existing health check asks kube-proxy, with a path and a status code for kube-proxy. The new check
            // asks something else. So these two fields get their defaults when no annotation sets them.
            for field in [F::CheckPath, F::CheckStatusCodes] {
                self.wanted.sources.entry(field).or_insert(BY_API);
            }
        }
        // A health check can expect a certain text in the response, but no annotation sets this text. So a text that
        // somebody set by hand is removed. Only profile `hcloud`, which behaves like hcloud-cloud-controller-manager,
        // keeps it.
        let usual = (!project.preserves_unset()).then_some(BY_API);
        self.set(F::CheckResponse, None::<Sourced<String>>, "", usual);
    }

    /// Returns port 10256 of kube-proxy when the health check should ask this port. The annotation `health-check` asks
    /// for this. Without the annotation, the default of the Namespace or the settings decides. While the default of the
    /// Namespace is unknown, an existing check of port 10256 stays. `None` when nothing asks for this check, or when
    /// the traffic policy or an annotation asks for another one.
    fn kube_proxy(&mut self) -> Option<Sourced<u16>> {
        let set = self.annotation(&a::HEALTH_CHECK, v::health_check);
        let Some(other) = self.other_check() else {
            let default = self.context.own_defaults.values.health_check.kind.as_ref();
            let source = set.map(|set| set.source).or_else(|| Some(default?.source.clone()));
            let is_unknown = self.context.is_unknown(&a::HEALTH_CHECK);
            let source = source.or_else(|| (is_unknown && self.asks_now).then_some(STAYS))?;
            return Some(Sourced::new(KUBE_PROXY_PORT, source));
        };
        if let Some(set) = set {
            let (number, source) = (self.port.port, set.source);
            let why = format!(
                "{source} has no effect on port {number}, because {other} sets another health check. Remove one of the \
                 two settings"
            );
            self.parser.warning(Reason::AnnotationWithoutEffect, why);
        }
        None
    }

    /// Returns the reason why the health check does not ask kube-proxy on port 10256: the traffic policy `Local`, or
    /// the key of an annotation that describes another check. `None` when there is no such reason.
    fn other_check(&self) -> Option<String> {
        if self.context.service.traffic_policy == TrafficPolicy::Local {
            return Some("spec.externalTrafficPolicy: Local".to_owned());
        }
        let mut others = PLACE.into_iter().chain(of_http_checks());
        let found = others.find(|annotation| self.has(annotation));
        found.map(|annotation| format!("annotation {}", annotation.key()))
    }

    fn has(&self, annotation: &'static Annotation) -> bool {
        self.parser.has(annotation, Some(self.port))
    }

    /// Sets the protocol of the health check, and whether the check uses TLS. `is_set` means that the Service or a
    /// default sets the port, interval, timeout or number of retries of the check. `asked` is the reason why the check
    /// asks kube-proxy, on port 10256 or on the health check node port: an annotation, a default or the traffic policy
    /// `Local`. `None` means that the check asks neither of these two ports.
    fn check_protocol(&mut self, is_set: bool, asked: Option<&Source>) {
        let set = self.annotation(&a::HEALTH_CHECK_PROTOCOL, v::protocol);
        // When no annotation sets the health check's protocol, the protocol depends on whether an interval, a timeout
        // or a number of retries is set. The Namespace can have defaults for these three. While one of these defaults
        // is not known, an existing port keeps its protocol.
        let of_interval =
            [&a::HEALTH_CHECK_INTERVAL, &a::HEALTH_CHECK_TIMEOUT, &a::HEALTH_CHECK_RETRIES];
        let is_kept = set.is_none()
            && asked.is_none()
            && of_interval.into_iter().any(|annotation| self.context.is_unknown(annotation));
        let http_is_set = of_http_checks().any(|annotation| self.has(annotation));
        // When an annotation for HTTP health checks is set, e.g. the path, the health check uses the port's protocol
        // instead of `tcp`. In profile `hcloud`, such an annotation does not change the protocol, as in
        // hcloud-cloud-controller-manager.
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
                "{}: \"false\" asks for a health check without TLS, but the protocol of the health check is https. Remove \
                 this annotation, or set annotation {} to http",
                set.source,
                a::HEALTH_CHECK_PROTOCOL.key()
            ));
        }
        let by_protocol = Source::Rule("only a health check with protocol https uses TLS");
        self.set(F::CheckTls, set, over_tls, Some(by_protocol));
        if is_kept {
            self.wanted.sources.remove(&F::CheckProtocol);
            self.wanted.sources.remove(&F::CheckTls);
        }
    }
}
