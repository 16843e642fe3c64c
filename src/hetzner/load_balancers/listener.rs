//! One port of a load balancer, which the API calls a service; and its fields, one by one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One port: where traffic comes in, where it is sent, and how targets are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Listener {
    pub protocol: ListenerProtocol,
    pub listen_port: u16,
    pub destination_port: u16,
    pub proxyprotocol: bool,
    #[serde(default)]
    pub http: Option<Http>,
    pub health_check: HealthCheck,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ListenerProtocol {
    #[default]
    Tcp,
    Http,
    Https,
    /// A value that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What only `http` and `https` have. None: the API's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Http {
    #[serde(default)]
    pub cookie_name: Option<String>,
    /// Seconds.
    #[serde(default)]
    pub cookie_lifetime: Option<u32>,
    /// IDs. Only `https`.
    #[serde(default)]
    pub certificates: Option<Vec<u64>>,
    /// Only `https`.
    #[serde(default)]
    pub redirect_http: Option<bool>,
    #[serde(default)]
    pub sticky_sessions: Option<bool>,
    /// Seconds.
    #[serde(default)]
    pub timeout_idle: Option<u32>,
}

/// How targets are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HealthCheck {
    /// `tcp` or `http`: a check over TLS is `http` with `tls`.
    pub protocol: ListenerProtocol,
    pub port: u16,
    /// Seconds.
    pub interval: u32,
    /// Seconds.
    pub timeout: u32,
    pub retries: u32,
    #[serde(default)]
    pub http: Option<HttpCheck>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HttpCheck {
    #[serde(default)]
    pub domain: Option<String>,
    #[serde(default)]
    pub path: Option<String>,
    #[serde(default)]
    pub response: Option<String>,
    #[serde(default)]
    pub status_codes: Option<Vec<String>>,
    #[serde(default)]
    pub tls: Option<bool>,
}

/// One field of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortField {
    Protocol,
    DestinationPort,
    ProxyProtocol,
    CookieName,
    CookieLifetime,
    Certificates,
    RedirectHttp,
    StickySessions,
    TimeoutIdle,
    CheckProtocol,
    CheckPort,
    CheckInterval,
    CheckTimeout,
    CheckRetries,
    CheckDomain,
    CheckPath,
    CheckResponse,
    CheckStatusCodes,
    CheckTls,
}

/// Shown for a text that is set to nothing; none of these texts can be this.
const NOTHING: &str = "(none)";

impl ListenerProtocol {
    pub fn name(self) -> &'static str {
        match self {
            ListenerProtocol::Tcp => "tcp",
            ListenerProtocol::Http => "http",
            ListenerProtocol::Https => "https",
            ListenerProtocol::Unknown => "unknown",
        }
    }

    fn has_http(self) -> bool {
        matches!(self, ListenerProtocol::Http | ListenerProtocol::Https)
    }
}

impl PortField {
    pub const ALL: [PortField; 19] = [
        PortField::Protocol,
        PortField::DestinationPort,
        PortField::ProxyProtocol,
        PortField::CookieName,
        PortField::CookieLifetime,
        PortField::Certificates,
        PortField::RedirectHttp,
        PortField::StickySessions,
        PortField::TimeoutIdle,
        PortField::CheckProtocol,
        PortField::CheckPort,
        PortField::CheckInterval,
        PortField::CheckTimeout,
        PortField::CheckRetries,
        PortField::CheckDomain,
        PortField::CheckPath,
        PortField::CheckResponse,
        PortField::CheckStatusCodes,
        PortField::CheckTls,
    ];

    pub fn name(self) -> &'static str {
        match self {
            PortField::Protocol => "protocol",
            PortField::DestinationPort => "destination port",
            PortField::ProxyProtocol => "proxy protocol",
            PortField::CookieName => "cookie name",
            PortField::CookieLifetime => "cookie lifetime",
            PortField::Certificates => "certificates",
            PortField::RedirectHttp => "redirect from http",
            PortField::StickySessions => "sticky sessions",
            PortField::TimeoutIdle => "idle timeout",
            PortField::CheckProtocol => "health check protocol",
            PortField::CheckPort => "health check port",
            PortField::CheckInterval => "health check interval",
            PortField::CheckTimeout => "health check timeout",
            PortField::CheckRetries => "health check retries",
            PortField::CheckDomain => "health check domain",
            PortField::CheckPath => "health check path",
            PortField::CheckResponse => "health check response",
            PortField::CheckStatusCodes => "health check status codes",
            PortField::CheckTls => "health check over TLS",
        }
    }

    /// The value as people read it; equal texts are equal values. None where the protocol has no
    /// such field, or it is the API's to choose.
    pub fn of(self, listener: &Listener) -> Option<String> {
        let http = listener.http.as_ref();
        let http = http.filter(|_| listener.protocol.has_http());
        let https = http.filter(|_| listener.protocol == ListenerProtocol::Https);
        let check = &listener.health_check;
        let http_check = check.http.as_ref();
        let http_check = http_check.filter(|_| check.protocol == ListenerProtocol::Http);
        let text = |text: &Option<String>| match text.as_deref() {
            None | Some("") => NOTHING.to_owned(),
            Some(text) => text.to_owned(),
        };
        match self {
            PortField::Protocol => Some(listener.protocol.name().to_owned()),
            PortField::DestinationPort => Some(listener.destination_port.to_string()),
            PortField::ProxyProtocol => Some(listener.proxyprotocol.to_string()),
            PortField::CookieName => http?.cookie_name.clone(),
            PortField::CookieLifetime => http?.cookie_lifetime.map(seconds),
            PortField::Certificates => https?.certificates.as_deref().map(numbers),
            PortField::RedirectHttp => https?.redirect_http.map(|on| on.to_string()),
            PortField::StickySessions => http?.sticky_sessions.map(|on| on.to_string()),
            PortField::TimeoutIdle => http?.timeout_idle.map(seconds),
            PortField::CheckProtocol => Some(check.protocol.name().to_owned()),
            PortField::CheckPort => Some(check.port.to_string()),
            PortField::CheckInterval => Some(seconds(check.interval)),
            PortField::CheckTimeout => Some(seconds(check.timeout)),
            PortField::CheckRetries => Some(check.retries.to_string()),
            PortField::CheckDomain => Some(text(&http_check?.domain)),
            PortField::CheckPath => http_check?.path.clone(),
            PortField::CheckResponse => Some(text(&http_check?.response)),
            PortField::CheckStatusCodes => http_check?.status_codes.as_deref().map(sorted),
            PortField::CheckTls => Some(http_check?.tls.unwrap_or(false).to_string()),
        }
    }

    /// Takes this one field over.
    pub fn copy(self, from: &Listener, into: &mut Listener) {
        let mut http = into.http.take().unwrap_or_default();
        let mut check = into.health_check.http.take().unwrap_or_default();
        let from_http = from.http.clone().unwrap_or_default();
        let from_check = from.health_check.http.clone().unwrap_or_default();
        match self {
            PortField::Protocol => into.protocol = from.protocol,
            PortField::DestinationPort => into.destination_port = from.destination_port,
            PortField::ProxyProtocol => into.proxyprotocol = from.proxyprotocol,
            PortField::CookieName => http.cookie_name = from_http.cookie_name,
            PortField::CookieLifetime => http.cookie_lifetime = from_http.cookie_lifetime,
            PortField::Certificates => http.certificates = from_http.certificates,
            PortField::RedirectHttp => http.redirect_http = from_http.redirect_http,
            PortField::StickySessions => http.sticky_sessions = from_http.sticky_sessions,
            PortField::TimeoutIdle => http.timeout_idle = from_http.timeout_idle,
            PortField::CheckProtocol => into.health_check.protocol = from.health_check.protocol,
            PortField::CheckPort => into.health_check.port = from.health_check.port,
            PortField::CheckInterval => into.health_check.interval = from.health_check.interval,
            PortField::CheckTimeout => into.health_check.timeout = from.health_check.timeout,
            PortField::CheckRetries => into.health_check.retries = from.health_check.retries,
            PortField::CheckDomain => check.domain = from_check.domain,
            PortField::CheckPath => check.path = from_check.path,
            PortField::CheckResponse => check.response = from_check.response,
            PortField::CheckStatusCodes => check.status_codes = from_check.status_codes,
            PortField::CheckTls => check.tls = from_check.tls,
        }
        into.http = Some(http);
        into.health_check.http = Some(check);
    }
}

impl Listener {
    /// IDs of those it shows.
    pub(super) fn certificates(&self) -> &[u64] {
        let http = self.http.as_ref();
        http.and_then(|http| http.certificates.as_deref())
            .unwrap_or_default()
    }

    /// As the API takes it, when it is added (`is_new`) or updated. Only what its protocol has.
    pub fn body(&self, is_new: bool) -> Value {
        let mut body = json!({
            "protocol": self.protocol.name(),
            "listen_port": self.listen_port,
            "destination_port": self.destination_port,
            "proxyprotocol": self.proxyprotocol,
            "health_check": self.health_check.body(is_new),
        });
        if let Some(http) = self.http.as_ref().filter(|_| self.protocol.has_http()) {
            body["http"] = http.body(self.protocol == ListenerProtocol::Https);
        }
        body
    }
}

impl Http {
    fn body(&self, over_tls: bool) -> Value {
        let mut body = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            body.extend(value.map(|value| (name.to_owned(), value)));
        };
        put("cookie_name", self.cookie_name.clone().map(Value::from));
        put("cookie_lifetime", self.cookie_lifetime.map(Value::from));
        put("sticky_sessions", self.sticky_sessions.map(Value::from));
        put("timeout_idle", self.timeout_idle.map(Value::from));
        if over_tls {
            put("certificates", self.certificates.clone().map(Value::from));
            put("redirect_http", self.redirect_http.map(Value::from));
        }
        Value::Object(body)
    }
}

impl HealthCheck {
    fn body(&self, is_new: bool) -> Value {
        let mut body = json!({
            "protocol": self.protocol.name(),
            "port": self.port,
            "interval": self.interval,
            "timeout": self.timeout,
            "retries": self.retries,
        });
        let http = self.http.as_ref();
        if let Some(http) = http.filter(|_| self.protocol == ListenerProtocol::Http) {
            body["http"] = json!({
                "domain": http.domain,
                "path": http.path.as_deref().unwrap_or("/"),
                "tls": http.tls.unwrap_or(false),
            });
            if let Some(codes) = &http.status_codes {
                body["http"]["status_codes"] = json!(codes);
            }
            // A response that was set by hand is removed only by an empty one.
            if !is_new || http.response.is_some() {
                body["http"]["response"] = json!(http.response.as_deref().unwrap_or_default());
            }
        }
        body
    }
}

fn seconds(seconds: u32) -> String {
    format!("{seconds}s")
}

fn numbers(numbers: &[u64]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    match numbers.as_slice() {
        [] => NOTHING.to_owned(),
        some => some
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The API does not promise an order.
fn sorted(texts: &[String]) -> String {
    let mut texts = texts.to_vec();
    texts.sort_unstable();
    texts.join(", ")
}
