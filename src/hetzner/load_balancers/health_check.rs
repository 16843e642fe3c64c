//! What a Service wants of the health check of one port.

use super::annotations::{self as a, Annotation};
use super::default_source;
use super::listener::{HealthCheck, HttpCheck, ListenerProtocol, PortField};
use super::parser::AnnotationParser;
use super::ports::{Port, PortContext};
use super::values as v;
use crate::provider::{Finding, Reason, ServicePort, Source, Sourced, TrafficPolicy};

/// What the API takes when nothing is said.
const INTERVAL_S: u32 = 15;
const TIMEOUT_S: u32 = 10;
const RETRIES: u32 = 3;
const STATUS_CODES: [&str; 2] = ["2??", "3??"];

/// Where kube-proxy says whether the node runs a pod of the Service.
const NODE_PORT_PATH: &str = "/healthz";

const HTTP_ONLY: [&Annotation; 4] = [
    &a::HEALTH_CHECK_HTTP_DOMAIN,
    &a::HEALTH_CHECK_HTTP_PATH,
    &a::HTTP_STATUS_CODES,
    &a::HEALTH_CHECK_HTTP_VALIDATE_CERTIFICATE,
];

/// Adds it to the port.
pub(super) fn add(
    wanted: &mut Port,
    parser: &mut AnnotationParser,
    context: &PortContext,
    port: &ServicePort,
) {
    let defaults = context.planner.defaults;
    let at = Some(port);
    let interval = parser.read(&a::HEALTH_CHECK_INTERVAL, at, v::seconds);
    let interval = interval.or_else(|| defaults.health_check_interval_s.clone());
    let timeout = parser.read(&a::HEALTH_CHECK_TIMEOUT, at, v::seconds);
    let timeout = timeout.or_else(|| defaults.health_check_timeout_s.clone());
    let retries = parser.read(&a::HEALTH_CHECK_RETRIES, at, v::count);
    let retries = retries.or_else(|| defaults.health_check_retries.clone());
    let number = parser.read(&a::HEALTH_CHECK_PORT, at, v::port);
    let is_set = interval.is_some() || timeout.is_some() || retries.is_some() || number.is_some();

    let local = node_port(parser, context, port);
    let (protocol, over_tls) = protocol(wanted, parser, context, port, is_set, local.as_ref());
    let number = number.or(local.clone());
    let mut check = HealthCheck {
        port: number
            .as_ref()
            .map_or(wanted.listener.destination_port, |n| n.value),
        ..HealthCheck::default()
    };
    let own_port = Source::Rule("the port that gets the traffic");
    wanted.want(PortField::CheckPort, number, Some(own_port));
    check.protocol = protocol.value;
    wanted
        .sources
        .insert(PortField::CheckProtocol, protocol.source);
    let enforced = |annotation| context.planner.enforced(annotation);
    let mut set = |field, value, annotation| wanted.want(field, value, enforced(annotation));
    let interval = set(
        PortField::CheckInterval,
        interval,
        &a::HEALTH_CHECK_INTERVAL,
    );
    check.interval = interval.unwrap_or(INTERVAL_S);
    let timeout = set(PortField::CheckTimeout, timeout, &a::HEALTH_CHECK_TIMEOUT);
    check.timeout = timeout.unwrap_or(TIMEOUT_S);
    let retries = set(PortField::CheckRetries, retries, &a::HEALTH_CHECK_RETRIES);
    check.retries = retries.unwrap_or(RETRIES);
    check.http = Some(http(
        wanted,
        parser,
        context,
        port,
        over_tls,
        local.is_some(),
    ));
    if check.protocol == ListenerProtocol::Tcp {
        report_unused(parser, port);
    }
    wanted.listener.health_check = check;
    leave_unknown_defaults(wanted, parser, context, port, is_set);
}

/// How and where targets are checked may rest on settings of the daemon that are not known here.
fn leave_unknown_defaults(
    wanted: &mut Port,
    parser: &mut AnnotationParser,
    context: &PortContext,
    port: &ServicePort,
    is_set: bool,
) {
    let planner = context.planner;
    let has = |annotation| parser.has(annotation, Some(port));
    let is_said = has(&a::HEALTH_CHECK_PROTOCOL);
    let is_placed = is_said || has(&a::HEALTH_CHECK_PORT) || has(&a::HEALTH_CHECK_HTTP_PATH);
    let [interval, timeout, retries] = [
        &a::HEALTH_CHECK_INTERVAL,
        &a::HEALTH_CHECK_TIMEOUT,
        &a::HEALTH_CHECK_RETRIES,
    ]
    .map(|one| planner.holds_back_default_of(one));
    let may_follow_port = !(is_said || is_set)
        && (interval || timeout || retries)
        && wanted.listener.protocol != ListenerProtocol::Tcp
        && wanted.listener.health_check.protocol == ListenerProtocol::Tcp;
    let fields: &[PortField] = match (
        !is_placed && planner.holds_back_node_port(context.service),
        may_follow_port,
    ) {
        (true, _) => &[
            PortField::CheckPort,
            PortField::CheckProtocol,
            PortField::CheckPath,
            PortField::CheckTls,
        ],
        (false, true) => &[PortField::CheckProtocol, PortField::CheckTls],
        (false, false) => &[],
    };
    for field in fields {
        wanted.sources.remove(field);
    }
}

/// Where `externalTrafficPolicy: Local` has the nodes asked, unless annotations say otherwise.
fn node_port(
    parser: &mut AnnotationParser,
    context: &PortContext,
    port: &ServicePort,
) -> Option<Sourced<u16>> {
    let otherwise = [
        &a::HEALTH_CHECK_PROTOCOL,
        &a::HEALTH_CHECK_PORT,
        &a::HEALTH_CHECK_HTTP_PATH,
    ];
    let is_on = match &context.planner.defaults.health_check_node_port {
        Some(set) => set.value,
        // Upstream has it off.
        None => !context.planner.preserves_unset(),
    };
    let is_local = context.service.traffic_policy == TrafficPolicy::Local;
    if !is_on || !is_local || otherwise.iter().any(|one| parser.has(one, Some(port))) {
        return None;
    }
    let number = context.service.health_check_node_port?;
    let source = Source::Rule("externalTrafficPolicy: Local");
    Some(Sourced::new(number, source))
}

/// `tcp` or `http`, and whether that is over TLS.
fn protocol(
    wanted: &Port,
    parser: &mut AnnotationParser,
    context: &PortContext,
    port: &ServicePort,
    is_set: bool,
    local: Option<&Sourced<u16>>,
) -> (Sourced<ListenerProtocol>, bool) {
    let set = parser.read(&a::HEALTH_CHECK_PROTOCOL, Some(port), v::protocol);
    let http_is_set = HTTP_ONLY.iter().any(|one| parser.has(one, Some(port)));
    // Upstream reads those only when the check is HTTP.
    let follows_port = is_set || (http_is_set && !context.planner.preserves_unset());
    let set = match (set, local) {
        (Some(set), _) => set,
        (None, Some(local)) => Sourced::new(ListenerProtocol::Http, local.source.clone()),
        (None, None) if follows_port => Sourced::new(
            wanted.listener.protocol,
            Source::Rule("the port's protocol"),
        ),
        (None, None) => Sourced::new(
            ListenerProtocol::Tcp,
            default_source(&a::HEALTH_CHECK_PROTOCOL),
        ),
    };
    match set.value {
        ListenerProtocol::Https => (Sourced::new(ListenerProtocol::Http, set.source), true),
        _ => (set, false),
    }
}

/// What only an HTTP check has.
fn http(
    wanted: &mut Port,
    parser: &mut AnnotationParser,
    context: &PortContext,
    port: &ServicePort,
    over_tls: bool,
    is_local: bool,
) -> HttpCheck {
    let enforced = |annotation| context.planner.enforced(annotation);
    let (field, annotation) = (PortField::CheckDomain, &a::HEALTH_CHECK_HTTP_DOMAIN);
    let domain = wanted.read(parser, context, port, field, annotation, v::domain);
    let path = parser.read(&a::HEALTH_CHECK_HTTP_PATH, Some(port), v::path);
    let local = Source::Rule("externalTrafficPolicy: Local");
    let path = path.or(is_local.then(|| Sourced::new(NODE_PORT_PATH.to_owned(), local)));
    let path = wanted.want(
        PortField::CheckPath,
        path,
        enforced(&a::HEALTH_CHECK_HTTP_PATH),
    );
    let (field, annotation) = (PortField::CheckStatusCodes, &a::HTTP_STATUS_CODES);
    let codes = wanted.read(parser, context, port, field, annotation, v::status_codes);
    // No annotation sets it.
    if !context.planner.preserves_unset() {
        let source = Source::Rule("the default of the API");
        wanted.sources.insert(PortField::CheckResponse, source);
    }
    HttpCheck {
        domain,
        path: Some(path.unwrap_or_else(|| "/".to_owned())),
        response: None,
        status_codes: Some(codes.unwrap_or_else(|| STATUS_CODES.map(str::to_owned).to_vec())),
        tls: Some(tls(wanted, parser, port, over_tls)),
    }
}

fn tls(
    wanted: &mut Port,
    parser: &mut AnnotationParser,
    port: &ServicePort,
    over_tls: bool,
) -> bool {
    let annotation = &a::HEALTH_CHECK_HTTP_VALIDATE_CERTIFICATE;
    let set = parser.read(annotation, Some(port), v::boolean);
    if over_tls && let Some(set) = set.as_ref().filter(|set| !set.value) {
        parser.problem(format!(
            "{}: \"false\" contradicts a health check by https: remove it, or set {} to http",
            set.source,
            a::HEALTH_CHECK_PROTOCOL.key()
        ));
    }
    let by_protocol = Source::Rule("the protocol of the health check");
    let set = wanted.want(PortField::CheckTls, set, Some(by_protocol));
    set.unwrap_or(over_tls)
}

fn report_unused(parser: &mut AnnotationParser, port: &ServicePort) {
    for annotation in HTTP_ONLY {
        if parser.has(annotation, Some(port)) {
            parser.finding(Finding::warning(
                Reason::AnnotationWithoutEffect,
                format!(
                    "annotation {} has no effect on port {}, whose health check is tcp: set {} to http",
                    annotation.key(),
                    port.port,
                    a::HEALTH_CHECK_PROTOCOL.key()
                ),
            ));
        }
    }
}
