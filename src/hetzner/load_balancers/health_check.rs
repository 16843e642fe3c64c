//! What a Service wants of the health check of one port.

use super::annotations::{self as a, Annotation};
use super::context::{NODE_PORT, default_source};
use super::listener::PortField as F;
use super::ports::PortReader;
use super::values as v;
use crate::provider::{Finding, Reason, Source, Sourced, TrafficPolicy};
use serde_json::json;

/// What the API takes when nothing is said.
const INTERVAL_S: u32 = 15;
const TIMEOUT_S: u32 = 10;
const RETRIES: u32 = 3;
const STATUS_CODES: [&str; 2] = ["2??", "3??"];

/// Where kube-proxy says whether the node runs a pod of the Service.
const NODE_PORT_PATH: &str = "/healthz";

const LOCAL: Source = Source::Rule("externalTrafficPolicy: Local");

/// What says where a check goes; with none of them `externalTrafficPolicy: Local` does.
const PLACE: [&Annotation; 3] = [
    &a::HEALTH_CHECK_PROTOCOL,
    &a::HEALTH_CHECK_PORT,
    &a::HEALTH_CHECK_HTTP_PATH,
];

const INTERVALS: [&Annotation; 3] = [
    &a::HEALTH_CHECK_INTERVAL,
    &a::HEALTH_CHECK_TIMEOUT,
    &a::HEALTH_CHECK_RETRIES,
];

const HTTP_ONLY: [&Annotation; 4] = [
    &a::HEALTH_CHECK_HTTP_DOMAIN,
    &a::HEALTH_CHECK_HTTP_PATH,
    &a::HTTP_STATUS_CODES,
    &a::HEALTH_CHECK_HTTP_VALIDATE_CERTIFICATE,
];

impl PortReader<'_, '_> {
    pub(super) fn health_check(&mut self) {
        let defaults = &self.context.planner.defaults;
        let (annotation, setting) = (&a::HEALTH_CHECK_INTERVAL, &defaults.health_check_interval_s);
        let interval = self.read(
            F::CheckInterval,
            annotation,
            v::seconds,
            setting,
            INTERVAL_S,
        );
        let (annotation, setting) = (&a::HEALTH_CHECK_TIMEOUT, &defaults.health_check_timeout_s);
        let timeout = self.read(F::CheckTimeout, annotation, v::seconds, setting, TIMEOUT_S);
        let (annotation, setting) = (&a::HEALTH_CHECK_RETRIES, &defaults.health_check_retries);
        let retries = self.read(F::CheckRetries, annotation, v::count, setting, RETRIES);
        let number = self.annotation(&a::HEALTH_CHECK_PORT, v::port);
        let is_set = interval || timeout || retries || number.is_some();

        let local = self.node_port();
        let over_tls = self.check_protocol(is_set, local.is_some());
        let path = self.annotation(&a::HEALTH_CHECK_HTTP_PATH, v::path);
        let local_path = local
            .as_ref()
            .map(|_| Sourced::new(NODE_PORT_PATH.to_owned(), LOCAL));
        let enforced = self.context.planner.enforced(&a::HEALTH_CHECK_HTTP_PATH);
        self.set(F::CheckPath, path.or(local_path), "/", enforced);
        let usual = self.wanted.listener.get(F::DestinationPort).cloned();
        let own_port = Source::Rule("the port that gets the traffic");
        self.set(
            F::CheckPort,
            number.or(local),
            usual.unwrap_or_default(),
            Some(own_port),
        );
        self.read(
            F::CheckDomain,
            &a::HEALTH_CHECK_HTTP_DOMAIN,
            v::domain,
            &None,
            "",
        );
        let annotation = &a::HTTP_STATUS_CODES;
        self.read(
            F::CheckStatusCodes,
            annotation,
            v::status_codes,
            &None,
            json!(STATUS_CODES),
        );
        // No annotation sets it.
        let usual = Source::Rule("the default of the API");
        let usual = Some(usual).filter(|_| !self.context.planner.preserves_unset());
        self.set(F::CheckResponse, None::<Sourced<String>>, "", usual);
        self.check_tls(over_tls);
        if !self.is_by_http() {
            self.report_unused();
        }
        self.name_unknown_settings(is_set);
    }

    fn is_by_http(&self) -> bool {
        let protocol = self.wanted.listener.get(F::CheckProtocol);
        protocol.is_some_and(|protocol| protocol == "http")
    }

    fn has(&self, annotation: &'static Annotation) -> bool {
        self.parser.has(annotation, Some(self.port))
    }

    /// How and where targets are checked may rest on settings of the daemon that are not known here: then these are the
    /// sources, so that the change is held back.
    fn name_unknown_settings(&mut self, is_set: bool) {
        let planner = self.context.planner;
        let service = self.context.service;
        let is_said = self.has(&a::HEALTH_CHECK_PROTOCOL);
        let is_placed = PLACE.iter().any(|one| self.has(one));
        let by_node_port = !is_placed
            && planner.defaults.health_check_node_port.is_none()
            && service.traffic_policy == TrafficPolicy::Local
            && service.health_check_node_port.is_some();
        // With an interval the check would speak the port's own protocol.
        let may_follow_port =
            !is_said && !is_set && self.wanted.listener.protocol() != "tcp" && !self.is_by_http();
        let mut intervals = INTERVALS.into_iter().map(default_source);
        let interval = intervals.find(|unset| may_follow_port && planner.holds_back(unset));
        let node_port = Source::Default(NODE_PORT.to_owned());
        let (fields, source): (&[F], Source) = if by_node_port && planner.holds_back(&node_port) {
            let fields = &[F::CheckPort, F::CheckProtocol, F::CheckPath, F::CheckTls];
            (fields, node_port)
        } else if let Some(interval) = interval {
            (&[F::CheckProtocol, F::CheckTls], interval)
        } else {
            return;
        };
        let fields = fields.iter().map(|field| (*field, source.clone()));
        self.wanted.sources.extend(fields);
    }

    /// Where `externalTrafficPolicy: Local` has the nodes asked, unless annotations say otherwise.
    fn node_port(&self) -> Option<Sourced<u16>> {
        let is_on = match &self.context.planner.defaults.health_check_node_port {
            Some(set) => set.value,
            // Upstream has it off.
            None => !self.context.planner.preserves_unset(),
        };
        let is_local = self.context.service.traffic_policy == TrafficPolicy::Local;
        if !is_on || !is_local || PLACE.iter().any(|one| self.has(one)) {
            return None;
        }
        let number = self.context.service.health_check_node_port?;
        Some(Sourced::new(number, LOCAL))
    }

    /// `tcp` or `http`. True: over TLS.
    fn check_protocol(&mut self, is_set: bool, is_local: bool) -> bool {
        let set = self.annotation(&a::HEALTH_CHECK_PROTOCOL, v::protocol);
        let http_is_set = HTTP_ONLY.iter().any(|one| self.has(one));
        // Upstream reads those only when the check is HTTP.
        let follows_port = is_set || (http_is_set && !self.context.planner.preserves_unset());
        let own = self.wanted.listener.protocol().to_owned();
        let by_default = default_source(&a::HEALTH_CHECK_PROTOCOL);
        let (name, source) = match set {
            Some(set) => (set.value.to_owned(), set.source),
            None if is_local => ("http".to_owned(), LOCAL),
            None if follows_port => (own, Source::Rule("the port's protocol")),
            None => ("tcp".to_owned(), by_default),
        };
        let over_tls = name == "https";
        let name = if over_tls { "http".to_owned() } else { name };
        self.set(F::CheckProtocol, Some(Sourced::new(name, source)), "", None);
        over_tls
    }

    fn check_tls(&mut self, over_tls: bool) {
        let set = self.annotation(&a::HEALTH_CHECK_HTTP_VALIDATE_CERTIFICATE, v::boolean);
        if over_tls && let Some(set) = set.as_ref().filter(|set| !set.value) {
            self.parser.problem(format!(
                "{}: \"false\" contradicts a health check by https: remove it, or set {} to http",
                set.source,
                a::HEALTH_CHECK_PROTOCOL.key()
            ));
        }
        let by_protocol = Source::Rule("the protocol of the health check");
        self.set(F::CheckTls, set, over_tls, Some(by_protocol));
    }

    fn report_unused(&mut self) {
        for annotation in HTTP_ONLY {
            if self.has(annotation) {
                self.parser.finding(Finding::warning(
                    Reason::AnnotationWithoutEffect,
                    format!(
                        "annotation {} has no effect on port {}, whose health check is tcp: set {} to http",
                        annotation.key(),
                        self.port.port,
                        a::HEALTH_CHECK_PROTOCOL.key()
                    ),
                ));
            }
        }
    }
}
