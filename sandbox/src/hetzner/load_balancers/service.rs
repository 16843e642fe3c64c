//! The services of a load balancer, each with one listen port. A field that a request leaves out gets the API's
//! default.

use std::time::Instant;

use super::{LoadBalancer, refused};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::text::{Text, text};
use crate::hetzner::world::World;
use crate::time;

const PROTOCOLS: [&str; 3] = ["tcp", "http", "https"];
const TIMEOUT_IDLE_S: std::ops::RangeInclusive<u64> = 30..=300;
const DEFAULT_TIMEOUT_IDLE_S: u64 = 60;
/// The port on which a service with `redirect_http` listens in addition to its own port.
const HTTP_PORT: u16 = 80;

#[derive(Clone, Debug)]
pub struct Service {
    pub protocol: &'static str,
    pub listen_port: u16,
    pub destination_port: u16,
    proxyprotocol: bool,
    /// The settings for HTTP and HTTPS. The API does not show them when the protocol of the service is tcp.
    http: Http,
    health_check: HealthCheck,
    /// The time of the request that adds the service. The health checks of the service begin at this time.
    pub since: Instant,
}

#[derive(Clone, Debug, PartialEq)]
struct Http {
    cookie_name: String,
    cookie_lifetime_s: u64,
    certificates: Vec<u64>,
    redirect_http: bool,
    sticky_sessions: bool,
    timeout_idle_s: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct HealthCheck {
    protocol: &'static str,
    port: u16,
    interval_s: u64,
    timeout_s: u64,
    retries: u64,
    /// The settings of an HTTP health check. The API shows them when the protocol of the health check is http.
    http: HealthCheckHttp,
}

#[derive(Clone, Debug, PartialEq)]
struct HealthCheckHttp {
    domain: Option<String>,
    path: String,
    response: String,
    status_codes: Vec<String>,
    tls: bool,
}

impl Default for Http {
    fn default() -> Http {
        Http {
            cookie_name: "HCLBSTICKY".into(),
            cookie_lifetime_s: 300,
            certificates: Vec::new(),
            redirect_http: false,
            sticky_sessions: false,
            timeout_idle_s: DEFAULT_TIMEOUT_IDLE_S,
        }
    }
}

impl Default for HealthCheckHttp {
    fn default() -> HealthCheckHttp {
        HealthCheckHttp {
            domain: None,
            path: "/".into(),
            response: String::new(),
            status_codes: vec!["2??".into(), "3??".into()],
            tls: false,
        }
    }
}

impl Service {
    /// Reads a service of a load balancer from a request.
    pub fn read(mut fields: Fields) -> Result<Service, ApiError> {
        let protocol = fields.word("protocol", &PROTOCOLS)?;
        let protocol = fields.required("protocol", protocol)?;
        // Ports that the request leaves out get the default of the protocol.
        let (listen, destination) = match protocol {
            "http" => (Some(80), Some(80)),
            "https" => (Some(443), Some(80)),
            _ => (None, None),
        };
        let listen_port = fields.port("listen_port")?.or(listen);
        let listen_port = fields.required("listen_port", listen_port)?;
        let destination_port = fields.port("destination_port")?.or(destination);
        let destination_port = fields.required("destination_port", destination_port)?;
        let mut service = Service {
            protocol,
            listen_port,
            destination_port,
            proxyprotocol: false,
            http: Http::default(),
            health_check: HealthCheck {
                protocol: if protocol == "tcp" { "tcp" } else { "http" },
                port: destination_port,
                interval_s: 15,
                timeout_s: 10,
                retries: 3,
                http: HealthCheckHttp::default(),
            },
            since: time::now(),
        };
        service.change(&mut fields)?;
        fields.finish()?;
        Ok(service)
    }

    /// Returns this service with the changes in a request. Fields that the request leaves out keep their values.
    pub fn updated(&self, mut fields: Fields) -> Result<Service, ApiError> {
        let mut service = self.clone();
        if let Some(protocol) = fields.word("protocol", &PROTOCOLS)? {
            service.protocol = protocol;
        }
        if let Some(port) = fields.port("destination_port")? {
            service.destination_port = port;
        }
        service.change(&mut fields)?;
        fields.finish()?;
        Ok(service)
    }

    pub fn certificates(&self) -> &[u64] {
        &self.http.certificates
    }

    /// Returns the port to which the health checks go, and their protocol, which is `tcp` or `http`.
    pub fn checked_port(&self) -> (u16, &'static str) {
        (self.health_check.port, self.health_check.protocol)
    }

    /// Checks that the load balancer can have this service beside its other services. Every port must be used only
    /// once, and the certificates must exist. The limits of the load balancer type on services and certificates must be
    /// kept.
    pub fn check(&self, world: &World, one: &LoadBalancer) -> Result<(), ApiError> {
        let others = one.services.iter().filter(|other| other.listen_port != self.listen_port);
        let taken: Vec<u16> = others.clone().flat_map(Service::ports).collect();
        if let Some(port) = self.ports().find(|port| taken.contains(port)) {
            return Err(port_used(port));
        }
        for id in self.certificates() {
            let known = world.certificates.get(id);
            let certificate = known.filter(|certificate| certificate.project == one.project);
            let certificate = certificate.ok_or_else(|| ApiError::not_found("certificate", id))?;
            if !certificate.is_usable() {
                let problem = format!("certificate {id} has not been issued");
                return Err(ApiError::invalid("http.certificates", problem));
            }
        }
        let mut planned = LoadBalancer { services: others.cloned().collect(), ..one.clone() };
        planned.services.push(self.clone());
        if planned.services.len() > one.size.max_services {
            return Err(ApiError::limit_exceeded("load_balancer_services"));
        }
        if planned.certificates().len() > one.size.max_assigned_certificates {
            return Err(ApiError::limit_exceeded("load_balancer_certificates"));
        }
        Ok(())
    }

    pub fn json(&self) -> Text {
        let http = (self.protocol != "tcp").then(|| self.http.json());
        let shown = text!({
            "protocol": self.protocol, "listen_port": self.listen_port,
            "destination_port": self.destination_port, "proxyprotocol": self.proxyprotocol,
            "health_check": self.health_check.json(),
        });
        shown.and("http", http)
    }

    /// Returns all ports on which the service listens.
    fn ports(&self) -> impl Iterator<Item = u16> {
        let redirected = self.http.redirect_http.then_some(HTTP_PORT);
        [self.listen_port].into_iter().chain(redirected)
    }

    fn change(&mut self, fields: &mut Fields) -> Result<(), ApiError> {
        if let Some(enabled) = fields.flag("proxyprotocol")? {
            self.proxyprotocol = enabled;
        }
        if let Some(http) = fields.object("http")? {
            self.http.change(http, self.protocol)?;
        }
        if self.protocol == "tcp" {
            self.http = Http::default();
        }
        if self.http.redirect_http && self.listen_port == HTTP_PORT {
            return Err(port_used(HTTP_PORT));
        }
        match fields.object("health_check")? {
            Some(check) => self.health_check.change(check),
            None => Ok(()),
        }
    }
}

impl Http {
    fn change(&mut self, mut fields: Fields, protocol: &str) -> Result<(), ApiError> {
        if let Some(name) = fields.string("cookie_name")? {
            self.cookie_name = name;
        }
        if let Some(seconds) = fields.number("cookie_lifetime")? {
            self.cookie_lifetime_s = seconds;
        }
        if fields.has("certificates") {
            self.certificates = fields.numbers("certificates")?;
        }
        if let Some(redirect) = fields.flag("redirect_http")? {
            self.redirect_http = redirect;
        }
        if let Some(sticky) = fields.flag("sticky_sessions")? {
            self.sticky_sessions = sticky;
        }
        if let Some(seconds) = fields.number("timeout_idle")? {
            if !TIMEOUT_IDLE_S.contains(&seconds) {
                return Err(fields.invalid("timeout_idle", "must be between 30 and 300"));
            }
            self.timeout_idle_s = seconds;
        }
        if self.redirect_http && protocol != "https" {
            return Err(fields.invalid("redirect_http", "is only for protocol https"));
        }
        if self.sticky_sessions && protocol == "tcp" {
            return Err(fields.invalid("sticky_sessions", "is only for protocols http and https"));
        }
        fields.finish()
    }

    fn json(&self) -> Text {
        text!({
            "cookie_name": self.cookie_name, "cookie_lifetime": self.cookie_lifetime_s,
            "certificates": self.certificates, "redirect_http": self.redirect_http,
            "sticky_sessions": self.sticky_sessions, "timeout_idle": self.timeout_idle_s,
        })
    }
}

impl HealthCheck {
    fn change(&mut self, mut fields: Fields) -> Result<(), ApiError> {
        if let Some(protocol) = fields.word("protocol", &["tcp", "http"])? {
            self.protocol = protocol;
        }
        if let Some(port) = fields.port("port")? {
            self.port = port;
        }
        for (name, value) in [
            ("interval", &mut self.interval_s),
            ("timeout", &mut self.timeout_s),
            ("retries", &mut self.retries),
        ] {
            let Some(number) = fields.number(name)? else {
                continue;
            };
            if number == 0 {
                return Err(fields.invalid(name, "must be at least 1"));
            }
            *value = number;
        }
        if let Some(http) = fields.object("http")? {
            self.http.change(http)?;
        }
        if self.protocol == "tcp" {
            self.http = HealthCheckHttp::default();
        }
        fields.finish()
    }

    fn json(&self) -> Text {
        let shown = text!({
            "protocol": self.protocol, "port": self.port, "interval": self.interval_s,
            "timeout": self.timeout_s, "retries": self.retries,
        });
        let http = &self.http;
        let http = (self.protocol == "http").then(|| {
            text!({
                "domain": http.domain, "path": http.path, "response": http.response,
                "status_codes": http.status_codes, "tls": http.tls,
            })
        });
        shown.and("http", http)
    }
}

impl HealthCheckHttp {
    fn change(&mut self, mut fields: Fields) -> Result<(), ApiError> {
        // The value null of the field `domain` removes the domain of the health check.
        if fields.has("domain") {
            self.domain = fields.string("domain")?.filter(|domain| !domain.is_empty());
        }
        let is_odd = |character: char| character.is_whitespace() || "%\\".contains(character);
        if self.domain.as_ref().is_some_and(|domain| domain.contains(is_odd)) {
            let problem = "must not contain spaces, percent signs or backslashes";
            return Err(fields.invalid("domain", problem));
        }
        if let Some(path) = fields.string("path")? {
            if !path.starts_with('/') || path.contains(char::is_whitespace) {
                return Err(fields.invalid("path", "must begin with / and have no spaces"));
            }
            self.path = path;
        }
        if let Some(response) = fields.string("response")? {
            self.response = response;
        }
        if let Some(codes) = fields.strings("status_codes")? {
            let fits = |code: &String| {
                (1..=3).contains(&code.len())
                    && code.chars().all(|one| one.is_ascii_digit() || "?*".contains(one))
            };
            if !codes.iter().all(fits) {
                let problem = "must be status codes with ? and * as wildcards";
                return Err(fields.invalid("status_codes", problem));
            }
            self.status_codes = codes;
        }
        if let Some(tls) = fields.flag("tls")? {
            self.tls = tls;
        }
        fields.finish()
    }
}

/// Returns the error for a listen port that another service or its HTTP redirect already uses.
pub fn port_used(port: u16) -> ApiError {
    refused("source_port_already_used", format!("source port {port} is already in use"))
}
