//! How people write values, wherever they write them: on a command line, in a variable, in an annotation.
//!
//! Knows nothing of what a value is for, and imports nothing of ours.

pub mod duration;
pub mod nearest;

use ipnet::Ipv4Net;

/// What Go's `strconv.ParseBool` takes.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// How many of something: at least one.
pub fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("use a whole number from 1".to_owned()),
    }
}

/// `10.0.1.7/24` is taken for the subnet it lies in.
pub fn ip_range(text: &str) -> Result<Ipv4Net, String> {
    match text.parse::<Ipv4Net>() {
        Ok(range) => Ok(range.trunc()),
        Err(_) => Err("use an IP range, e.g. 10.0.1.0/24".to_owned()),
    }
}

/// A DNS subdomain as Kubernetes takes it, RFC 1123.
pub fn is_subdomain(text: &str) -> bool {
    // Its parts may be longer than a label: only the whole is measured.
    text.len() <= 253 && text.split('.').all(has_label_form)
}

/// A DNS label as Kubernetes takes it, RFC 1123.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && has_label_form(text)
}

fn has_label_form(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes
        .iter()
        .all(|byte| is_alphanumeric(byte) || *byte == b'-')
        && bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
}

/// `a, b or c`.
pub fn one_of<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// FNV-1a, 64 bit: stable over versions and machines, which std's hashers do not promise.
pub fn fnv1a<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    parts
        .into_iter()
        .flat_map(str::bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The document with these lines between the lines of two markers; none when the markers are not
/// there once each, in their order.
pub fn replaced_between(document: &str, begin: &str, end: &str, lines: &str) -> Option<String> {
    let (before, rest) = document.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    if after.contains(begin) || after.contains(end) {
        return None;
    }
    Some(format!("{before}{begin}\n{lines}{end}{after}"))
}
