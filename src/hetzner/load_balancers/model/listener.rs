//! A port of a load balancer, which the API calls a service. One table describes the fields of a port. The code that
//! reads, compares, displays and writes ports uses this table.

use crate::provider::order;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The port on which kube-proxy or its replacement says whether the node takes traffic. The answer has the status code
/// 200 when it does, and 503 when it does not. A node that is about to be deleted also answers 503 (KEP-3836).
pub(crate) const KUBE_PROXY_PORT: u16 = 10256;

/// A port of a load balancer: its number, where its traffic is sent, and the health check of the targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    pub listen_port: u16,
    /// The values of the fields, in the form of the API's JSON. When a field has no value here, the API chooses its
    /// value.
    fields: BTreeMap<PortField, Value>,
}

/// The part of a port's JSON in which a field is. Some parts exist only for certain protocols.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortPart {
    Port,
    /// The field is in the object `http` of the port's JSON. A port has this object only when its protocol is `http` or
    /// `https`.
    Http,
    /// The field is in the object `http` of the port's JSON, and exists only when the protocol of the port is `https`.
    Https,
    Check,
    /// The field is in the object `health_check.http` of the port's JSON. A port has this object only when the protocol
    /// of its health check is `http`. A health check over TLS also has the protocol `http`, together with the field
    /// `tls`.
    HttpCheck,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PortValueKind {
    Text,
    Number,
    Seconds,
    Switch,
    /// A list of numbers, e.g. the IDs of certificates. The API can return the numbers in any order.
    Numbers,
    Texts,
}

struct Row {
    /// The name by which messages to users call this field of a port.
    name: &'static str,
    part: PortPart,
    key: &'static str,
    kind: PortValueKind,
}

/// The text that messages show for an empty text or an empty list. No field of a port can have this text as its real
/// value.
const NOTHING: &str = "(none)";

impl PortPart {
    fn path(self) -> &'static [&'static str] {
        match self {
            PortPart::Port => &[],
            PortPart::Http | PortPart::Https => &["http"],
            PortPart::Check => &["health_check"],
            PortPart::HttpCheck => &["health_check", "http"],
        }
    }
}

impl PortValueKind {
    fn fits(self, value: &Value) -> bool {
        let list = value.as_array();
        match self {
            PortValueKind::Text => value.is_string(),
            PortValueKind::Number | PortValueKind::Seconds => value.is_u64(),
            PortValueKind::Switch => value.is_boolean(),
            PortValueKind::Numbers => list.is_some_and(|list| list.iter().all(Value::is_u64)),
            PortValueKind::Texts => list.is_some_and(|list| list.iter().all(Value::is_string)),
        }
    }
}

macro_rules! port_fields {
    ($($field:ident: $name:literal, $part:ident, $key:literal, $kind:ident;)*) => {
        /// A field of a port of a load balancer, for example the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PortField {
            $($field,)*
        }
        use PortField as F;

        impl PortField {
            pub const ALL: &[PortField] = &[$(F::$field,)*];

            fn row(self) -> Row {
                match self {
                    $(F::$field => Row { name: $name, part: PortPart::$part, key: $key, kind: PortValueKind::$kind },)*
                }
            }
        }
    };
}

// Each row describes a field of a port: its name in messages, the part of the port's JSON in which the field is, its
// key in this part, and the type of its value.
port_fields! {
    Protocol: "protocol", Port, "protocol", Text;
    DestinationPort: "destination port", Port, "destination_port", Number;
    ProxyProtocol: "proxy protocol", Port, "proxyprotocol", Switch;
    CookieName: "cookie name", Http, "cookie_name", Text;
    CookieLifetime: "cookie lifetime", Http, "cookie_lifetime", Seconds;
    Certificates: "certificates", Https, "certificates", Numbers;
    RedirectHttp: "redirect from http", Https, "redirect_http", Switch;
    StickySessions: "sticky sessions", Http, "sticky_sessions", Switch;
    TimeoutIdle: "idle timeout", Http, "timeout_idle", Seconds;
    CheckProtocol: "health check protocol", Check, "protocol", Text;
    CheckPort: "health check port", Check, "port", Number;
    CheckInterval: "health check interval", Check, "interval", Seconds;
    CheckTimeout: "health check timeout", Check, "timeout", Seconds;
    CheckRetries: "health check retries", Check, "retries", Number;
    CheckDomain: "health check domain", HttpCheck, "domain", Text;
    CheckPath: "health check path", HttpCheck, "path", Text;
    CheckResponse: "health check response", HttpCheck, "response", Text;
    CheckStatusCodes: "health check status codes", HttpCheck, "status_codes", Texts;
    CheckTls: "health check over TLS", HttpCheck, "tls", Switch;
}

impl PortField {
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the value of the field as text for messages. Two values are equal exactly when their texts are equal.
    /// The order of a list makes no difference. `None` means that a port with this protocol does not have the field, or
    /// that the field has no value.
    pub fn of(self, listener: &Listener) -> Option<String> {
        let row = self.row();
        let value = listener.get(self).filter(|_| listener.has(row.part))?;
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                let mut items: Vec<&Value> = items.iter().collect();
                order::sort_by(&mut items, |one, other| {
                    (one.as_u64(), one.as_str()).cmp(&(other.as_u64(), other.as_str()))
                });
                let shown =
                    |item: &&Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                items.iter().map(shown).collect::<Vec<_>>().join(", ")
            }
            value if row.kind == PortValueKind::Seconds => format!("{value}s"),
            value => value.to_string(),
        };
        Some(text).filter(|text| !text.is_empty()).or_else(|| Some(NOTHING.to_owned()))
    }
}

impl Listener {
    pub fn new(listen_port: u16) -> Listener {
        Listener { listen_port, fields: BTreeMap::new() }
    }

    pub fn get(&self, field: PortField) -> Option<&Value> {
        self.fields.get(&field)
    }

    pub fn set(&mut self, field: PortField, value: impl Into<Value>) {
        self.fields.insert(field, value.into());
    }

    /// Returns the protocol of the port, as the API names it: `tcp`, `http` or `https`.
    pub fn protocol(&self) -> &str {
        self.get(F::Protocol).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn is_https(&self) -> bool {
        self.protocol() == "https"
    }

    /// Whether the load balancer redirects requests on port 80 to this port.
    pub(crate) fn redirects_http(&self) -> bool {
        self.is_https() && self.is_on(F::RedirectHttp)
    }

    pub(crate) fn is_on(&self, field: PortField) -> bool {
        self.get(field) == Some(&Value::Bool(true))
    }

    /// Whether the health check asks kube-proxy on port 10256.
    pub(crate) fn asks_kube_proxy(&self) -> bool {
        self.get(F::CheckPort).is_some_and(|port| *port == KUBE_PROXY_PORT)
    }

    /// Returns the IDs of the certificates that the port uses.
    pub fn certificates(&self) -> Vec<u64> {
        let ids = self.get(F::Certificates).and_then(Value::as_array);
        ids.into_iter().flatten().filter_map(Value::as_u64).collect()
    }

    pub(crate) fn has(&self, part: PortPart) -> bool {
        match part {
            PortPart::Port | PortPart::Check => true,
            PortPart::Http => matches!(self.protocol(), "http" | "https"),
            PortPart::Https => self.is_https(),
            PortPart::HttpCheck => self.get(F::CheckProtocol).is_some_and(|value| value == "http"),
        }
    }

    /// Returns the port in the form of an API request. `is_new` says that the request adds the port, and does not
    /// change an existing one. Fields that do not exist for the protocol of the port are left out.
    pub fn body(&self, is_new: bool) -> Value {
        let mut body = json!({ "listen_port": self.listen_port });
        for (field, value) in &self.fields {
            let Row { part, key, .. } = field.row();
            let is_empty = value == "";
            // The response text that a health check expects may have been set by hand. To remove this text, the request
            // must contain an empty text. For a new port, an empty text is not sent.
            if !self.has(part) || (*field == F::CheckResponse && is_new && is_empty) {
                continue;
            }
            let mut place = &mut body;
            for step in part.path() {
                place = &mut place[*step];
            }
            let is_none = *field == F::CheckDomain && is_empty;
            place[key] = if is_none { Value::Null } else { value.clone() };
        }
        body
    }
}

impl<'de> Deserialize<'de> for Listener {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listener, D::Error> {
        let mut body = Value::deserialize(deserializer)?;
        let number = body["listen_port"].as_u64();
        let number = number.and_then(|number| u16::try_from(number).ok());
        let number = number.ok_or_else(|| D::Error::missing_field("listen_port"))?;
        let mut listener = Listener::new(number);
        for field in F::ALL.iter().copied() {
            let (part, key, kind) = (field.row().part, field.row().key, field.row().kind);
            let place = part.path().iter().try_fold(&mut body, |at, step| at.get_mut(*step));
            let Some(place) = place.filter(|place| place.is_object()) else {
                continue;
            };
            let value = match place[key].take() {
                // The API can return `null` for the domain or the response of an HTTP check. This is treated like an
                // empty text.
                Value::Null if matches!(field, F::CheckDomain | F::CheckResponse) => json!(""),
                Value::Null if field == F::CheckTls => json!(false),
                value => value,
            };
            match value {
                Value::Null if matches!(part, PortPart::Port | PortPart::Check) => {
                    return Err(D::Error::missing_field(key));
                }
                Value::Null => {}
                value if kind.fits(&value) => listener.set(field, value),
                value => {
                    let why = format!("{key}: {value} is not a valid value");
                    return Err(D::Error::custom(why));
                }
            }
        }
        match listener.get(F::CheckProtocol) {
            Some(_) => Ok(listener),
            None => Err(D::Error::missing_field("health_check")),
        }
    }
}
