//! Labels and label selectors, with the rules of the API's documentation.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub type Labels = BTreeMap<String, String>;

/// One condition of a label selector. The selector matches a resource when all of its conditions are true.
#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    /// The label has none of these values, or the resource does not have the label.
    NotIn(String, Vec<String>),
}

/// A label selector. It consists of conditions that are joined by commas: `k=v`, `k==v`, `k!=v`, `k`, `!k`, `k in
/// (a,b)`, `k notin (a,b)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector(Vec<Requirement>);

impl Selector {
    /// Parses a label selector. An empty selector matches everything. The error describes the first part of the
    /// selector that is wrong.
    pub fn parse(text: &str) -> Result<Selector, String> {
        if text.trim().is_empty() {
            return Ok(Selector::default());
        }
        split_outside_parentheses(text)
            .into_iter()
            .map(requirement)
            .collect::<Result<_, _>>()
            .map(Selector)
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
            Requirement::In(key, values) => {
                labels.get(key).is_some_and(|value| values.contains(value))
            }
            Requirement::NotIn(key, values) => {
                labels.get(key).is_none_or(|value| !values.contains(value))
            }
        })
    }
}

/// Parses the labels in a request. The error describes the first label that is wrong.
pub fn parse(map: &Map<String, Value>) -> Result<Labels, String> {
    let label = |(key, value): (&String, &Value)| {
        check_key(key)?;
        if key.starts_with("hetzner.cloud/") {
            return Err(format!("label key '{key}' uses the reserved prefix hetzner.cloud/"));
        }
        let value =
            value.as_str().ok_or_else(|| format!("value of label '{key}' must be a string"))?;
        check_value(value)?;
        Ok((key.clone(), value.to_owned()))
    };
    map.iter().map(label).collect()
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0usize);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let text = text.trim();
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement::Absent(key_of(key)?));
    }
    if text.ends_with(')') {
        return set_requirement(text);
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(Requirement::NotIn(key_of(key)?, vec![value_of(value)?]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Requirement::In(key_of(key)?, vec![value_of(value)?]));
    }
    Ok(Requirement::Exists(key_of(text)?))
}

/// Parses a condition of the form `k in (a,b)` or `k notin (a,b)`.
fn set_requirement(text: &str) -> Result<Requirement, String> {
    let malformed = || format!("cannot parse '{text}'");
    let inside = text.strip_suffix(')').ok_or_else(malformed)?;
    let (head, values) = inside.split_once('(').ok_or_else(malformed)?;
    let values = values.split(',').map(value_of).collect::<Result<Vec<_>, _>>()?;
    match head.split_whitespace().collect::<Vec<_>>()[..] {
        [key, "in"] => Ok(Requirement::In(key_of(key)?, values)),
        [key, "notin"] => Ok(Requirement::NotIn(key_of(key)?, values)),
        _ => Err(malformed()),
    }
}

fn key_of(text: &str) -> Result<String, String> {
    check_key(text.trim()).map(|()| text.trim().to_owned())
}

fn value_of(text: &str) -> Result<String, String> {
    check_value(text.trim()).map(|()| text.trim().to_owned())
}

/// Checks a label key: a name, or `PREFIX/NAME`. The prefix is a DNS subdomain of at most 253 characters.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) =
        key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if name.is_empty() || !is_segment(name) {
        return Err(format!("label key '{key}' is invalid"));
    }
    match prefix {
        Some(prefix) if !is_dns_subdomain(prefix) => {
            Err(format!("prefix of label key '{key}' is invalid"))
        }
        _ => Ok(()),
    }
}

fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_segment(value) {
        Ok(())
    } else {
        Err(format!("label value '{value}' is invalid"))
    }
}

/// Whether the text has at most 63 characters, is alphanumeric at both ends, and has only dashes, underscores, dots and
/// alphanumeric characters between.
fn is_segment(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    text.len() <= 63
        && ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// Whether the text is one label of a host name by RFC 1123: at most 63 letters, digits and inner dashes.
pub fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=63).contains(&text.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}
