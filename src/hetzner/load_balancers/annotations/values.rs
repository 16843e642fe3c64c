//! Parses the values of annotations. Each function returns the typed value, or an error that says which
//! values are allowed.

use crate::provider::{Algorithm, HealthCheck};
use crate::text::{self as t, one_of, quoted};
use std::net::Ipv4Addr;

pub(crate) use crate::text::duration::{departing_delay, whole_seconds as seconds};
pub(crate) use crate::text::{boolean, count, ip_range};

/// The value of the annotations `type` and `location` that leaves the choice to this program.
pub(crate) const AUTO: &str = "auto";

pub(crate) fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Parses the name of a protocol: `tcp`, `http` or `https`, in upper or lower case. Returns it in lower case, as the
/// API expects it.
pub(crate) fn protocol(text: &str) -> Result<&'static str, String> {
    word(text, &["tcp", "http", "https"].map(|word| (word, word)))
}

pub(crate) fn algorithm(text: &str) -> Result<Algorithm, String> {
    let words = [Algorithm::RoundRobin, Algorithm::LeastConnections];
    word(text, &words.map(|word| (word.name(), word)))
}

pub(crate) fn health_check(text: &str) -> Result<HealthCheck, String> {
    word(text, &[HealthCheck::KubeProxy].map(|word| (word.name(), word)))
}

/// Parses the type of a port's certificates. The result is `true` for `managed`, and `false` for `uploaded`.
pub(crate) fn is_managed(text: &str) -> Result<bool, String> {
    word(text, &[("uploaded", false), ("managed", true)])
}

pub(crate) fn ipv4(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| "use an IPv4 address, e.g. 10.0.0.5".to_owned())
}

/// Parses a duration from 30 to 300 seconds, the range that the API accepts for `timeout_idle`. Returns the duration in
/// seconds.
pub(crate) fn idle_seconds(text: &str) -> Result<u32, String> {
    t::duration::seconds_between(text, 30, 300)
}

pub(crate) fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err("use a port number from 1 to 65535".to_owned()),
    }
}

/// The highest number of items in a list. A useful list is never longer: Let's Encrypt allows at most 100 domains in a
/// certificate, a load balancer can have fewer than 100 certificates, and a few patterns cover all status codes.
const ITEMS_AT_MOST: usize = 100;

/// Parses a list whose items are separated by commas. Empty items are left out. `fits` decides whether an item is
/// valid. `form` says for the error message what an item must be.
fn list(text: &str, fits: impl Fn(&str) -> bool, form: &str) -> Result<Vec<String>, String> {
    let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.len() > ITEMS_AT_MOST {
        let count = items.len();
        return Err(format!("it has {count} items, but at most {ITEMS_AT_MOST} are allowed"));
    }
    match items.iter().find(|item| !fits(item)) {
        Some(item) => Err(format!("{} is no {form}", quoted(item))),
        None => Ok(items.into_iter().map(str::to_owned).collect()),
    }
}

/// Parses a list of IDs or names of certificates.
pub(crate) fn certificates(text: &str) -> Result<Vec<String>, String> {
    list(text, |_| true, "")
}

/// The highest number of characters that Kubernetes allows in the name of a Secret.
const SECRET_NAME: usize = 253;

pub(crate) fn secrets(text: &str) -> Result<Vec<String>, String> {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = |name: &str| {
        let bytes = name.as_bytes();
        name.len() <= SECRET_NAME
            && [bytes.first(), bytes.last()].into_iter().flatten().copied().all(is_end)
            && bytes.iter().all(|byte| is_end(*byte) || b"-.".contains(byte))
    };
    list(text, is_name, "name of a Secret")
}

/// Parses a list of domains for a certificate. A domain can begin with `*.`.
pub(crate) fn domains(text: &str) -> Result<Vec<String>, String> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_domain = |domain: &str| {
        let name = domain.strip_prefix("*.").unwrap_or(domain);
        name.contains('.') && name.split('.').all(is_part)
    };
    list(text, is_domain, "domain; use e.g. example.com,*.example.com")
}

/// Parses a list of status codes for a health check. In a status code, `?` stands for one digit and `*`
/// for several digits.
pub(crate) fn status_codes(text: &str) -> Result<Vec<String>, String> {
    let is_code = |code: &str| {
        code.len() <= 3 && code.bytes().all(|byte| byte.is_ascii_digit() || b"?*".contains(&byte))
    };
    list(text, is_code, "status code; use e.g. 2??,301")
}

/// Returns the text when `is_right` is true. Otherwise returns the error.
fn checked(text: &str, is_right: bool, error: &str) -> Result<String, String> {
    if is_right { Ok(text.to_owned()) } else { Err(error.to_owned()) }
}

pub(crate) fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && !text.contains(char::is_whitespace);
    checked(text, is_path, "use a path that begins with / and has no spaces")
}

pub(crate) fn host(text: &str) -> Result<String, String> {
    let is_host = !text.contains([' ', '%', '\\']);
    checked(text, is_host, "use a host name, without spaces, % and \\")
}

/// Parses a host name for the status of a Service. A text that looks like an IPv4 address is refused, even with leading
/// zeros, because Kubernetes would take it for an address.
pub(crate) fn hostname(text: &str) -> Result<String, String> {
    let mut parts = text.split('.');
    let is_ip = parts.clone().count() == 4 && parts.all(|part| part.parse::<u8>().is_ok());
    checked(
        text,
        t::is_subdomain(text) && !is_ip,
        "use a host name (no IP address) of lower case letters, digits, \"-\" and \".\". Each part between the dots must \
         begin and end with a letter or digit",
    )
}

fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    match words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
        Some((_, value)) => Ok(*value),
        None => {
            let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
            Err(format!("use {}", one_of(&names)))
        }
    }
}
