//! The values of annotations: each text becomes a type once. An error says what is allowed.

use super::balancer::Algorithm;
use super::listener::ListenerProtocol;
use crate::text::{self, one_of};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Longer ones are a mistake, and would not fit into the API's numbers everywhere.
const LONGEST_S: u32 = 365 * 24 * 3600;

/// Whose certificates an `https` port shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateType {
    Uploaded,
    Managed,
}

pub(super) fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    text::boolean(text)
}

pub(super) fn protocol(text: &str) -> Result<ListenerProtocol, String> {
    let words = [
        ListenerProtocol::Tcp,
        ListenerProtocol::Http,
        ListenerProtocol::Https,
    ];
    word(text, &words.map(|word| (word.name(), word)))
}

pub(super) fn algorithm(text: &str) -> Result<Algorithm, String> {
    let words = [Algorithm::RoundRobin, Algorithm::LeastConnections];
    word(text, &words.map(|word| (word.name(), word)))
}

pub(super) fn certificate_type(text: &str) -> Result<CertificateType, String> {
    let words = [
        ("uploaded", CertificateType::Uploaded),
        ("managed", CertificateType::Managed),
    ];
    word(text, &words)
}

pub(super) fn ipv4(text: &str) -> Result<Ipv4Addr, String> {
    text.parse()
        .map_err(|_| "use an IPv4 address, e.g. 10.0.0.5".to_owned())
}

/// `10.0.1.7/24` is taken for the subnet it lies in.
pub(super) fn ip_range(text: &str) -> Result<Ipv4Net, String> {
    match text.parse::<Ipv4Net>() {
        Ok(range) => Ok(range.trunc()),
        Err(_) => Err("use an IP range, e.g. 10.0.1.0/24".to_owned()),
    }
}

/// Whole seconds, at least one.
pub(super) fn seconds(text: &str) -> Result<u32, String> {
    seconds_between(text, 1, LONGEST_S)
}

/// What the API takes for `timeout_idle`.
pub(super) fn idle_seconds(text: &str) -> Result<u32, String> {
    seconds_between(text, 30, 300)
}

pub(super) fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("use a whole number from 1".to_owned()),
    }
}

pub(super) fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err("use a port number from 1 to 65535".to_owned()),
    }
}

/// Items with commas between them; empty ones count for nothing.
pub(super) fn list(text: &str) -> Result<Vec<String>, String> {
    let items = text.split(',').map(str::trim);
    Ok(items
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect())
}

/// What the API takes in a check: digits, `?` for one and `*` for several.
pub(super) fn status_codes(text: &str) -> Result<Vec<String>, String> {
    let codes = list(text)?;
    let is_code = |code: &String| {
        let mut bytes = code.bytes();
        code.len() <= 3 && bytes.all(|byte| byte.is_ascii_digit() || b"?*".contains(&byte))
    };
    match codes.iter().find(|code| !is_code(code)) {
        Some(code) => Err(format!("{code:?} is no status code; use e.g. 2??,301")),
        None => Ok(codes),
    }
}

pub(super) fn path(text: &str) -> Result<String, String> {
    match text.starts_with('/') && !text.contains(char::is_whitespace) {
        true => Ok(text.to_owned()),
        false => Err("use a path that begins with / and has no spaces".to_owned()),
    }
}

pub(super) fn domain(text: &str) -> Result<String, String> {
    match text.contains([' ', '%', '\\']) {
        false => Ok(text.to_owned()),
        true => Err("use a host name, without spaces, % and \\".to_owned()),
    }
}

fn seconds_between(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let duration = text::duration::duration(text)?;
    let whole = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
    if duration.subsec_nanos() != 0 {
        return Err("use whole seconds, e.g. 15s".to_owned());
    }
    match (least..=most).contains(&whole) {
        true => Ok(whole),
        false => Err(format!("use {least}s to {most}s")),
    }
}

fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    match words
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(text))
    {
        Some((_, value)) => Ok(*value),
        None => {
            let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
            Err(format!("use {}", one_of(&names)))
        }
    }
}
