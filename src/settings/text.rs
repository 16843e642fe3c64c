//! The plain forms of a value: booleans, numbers, names, paths.

use std::path::PathBuf;

use ipnet::IpNet;

use super::url::Url;
pub(super) use crate::text::boolean;

/// A Network as a person names it: digits are its ID, anything else its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkName {
    Id(u64),
    Name(String),
}

pub(super) fn verbosity(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "use a whole number from 0".to_owned())
}

/// How many things at a time.
pub(super) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("use a whole number from 1".to_owned()),
        Ok(count) => Ok(count),
    }
}

/// It begins names and stands in a label's value.
pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let fits = text.len() <= 63 && text.chars().all(plain);
    match fits && ends(text.chars().next()) && ends(text.chars().last()) {
        true => Ok(text.to_owned()),
        false => Err(
            "use at most 63 letters, digits, -, _ or ., the first and the last a letter or digit"
                .to_owned(),
        ),
    }
}

/// Where pods have their addresses: ranges of IPv4 and IPv6, given together.
pub(super) fn cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    let words = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    let read = |word: &str| match word.parse::<IpNet>() {
        Ok(net) if net.prefix_len() == 0 => {
            Err("use the range of the pods alone: this one holds every address".to_owned())
        }
        Ok(net) => Ok(net.trunc()),
        Err(_) => {
            Err("use IP ranges, e.g. 10.244.0.0/16 or 10.244.0.0/16,fd00:10:244::/56".to_owned())
        }
    };
    words.map(read).collect()
}

/// A factor on every wait: with a larger one some moments would lie beyond the end of the clock.
pub(super) fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1000.0 => Ok(factor),
        _ => Err("use a number greater than 0, 1000 at most".to_owned()),
    }
}

/// An empty flag is one that was not given.
pub(super) fn name(text: &str) -> Result<Option<String>, String> {
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

pub(super) fn url(text: &str) -> Result<Option<Url>, String> {
    if text.is_empty() {
        Ok(None)
    } else {
        Url::parse(text).map(Some)
    }
}

pub(super) fn network(text: &str) -> Result<Option<NetworkName>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Some(NetworkName::Name(text.to_owned())));
    }
    match text.parse() {
        Ok(id) => Ok(Some(NetworkName::Id(id))),
        Err(_) => Err("too large for the ID of a Network".to_owned()),
    }
}

/// One path, as a flag gives it.
pub(super) fn path(text: &str) -> Vec<PathBuf> {
    if text.is_empty() {
        Vec::new()
    } else {
        vec![PathBuf::from(text)]
    }
}

/// Several, as `$KUBECONFIG` gives them; empty ones count for nothing.
pub(super) fn paths(text: &str) -> Vec<PathBuf> {
    std::env::split_paths(text)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// Dedicated servers are refused by name, so that nobody waits for theirs to turn up.
pub(super) fn robot(text: &str) -> Result<bool, String> {
    if boolean(text)? {
        return Err("dedicated servers are not built yet; unset it or set it to false".to_owned());
    }
    Ok(false)
}
