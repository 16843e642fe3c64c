//! Label selectors, as `kubectl -l` takes them. The syntax of the Cloud API's `label_selector` is a part of it.

use super::quoted;
use std::collections::BTreeMap;

/// Requirements that the labels of a node, or of anything else, must all fulfil. Empty: everything does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    /// Sorted, as are those of `NotIn`.
    In(Vec<String>),
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

/// A selector is compared with each of some thousand nodes, and a tenant writes it.
const MOST_REQUIREMENTS: usize = 32;

/// A label's value, and the part of a key behind the slash, are no longer.
const LONGEST_NAME: usize = 63;
const LONGEST_PREFIX: usize = 253;

impl Selector {
    /// `a=b,c!=d,e in (f,g),h notin (i),j,!k,n>1`. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Selector, String> {
        let parts = split(text)?;
        if parts.len() > MOST_REQUIREMENTS {
            return Err(format!(
                "it has {} requirements, and {MOST_REQUIREMENTS} at most are taken",
                parts.len()
            ));
        }
        let requirements = parts.into_iter().map(requirement);
        Ok(Selector {
            requirements: requirements.collect::<Result<_, _>>()?,
        })
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|r| r.matches(labels))
    }
}

impl Requirement {
    /// As Kubernetes does: what is not there is not in any set.
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In(values) => value.is_some_and(|value| has(values, value)),
            Operator::NotIn(values) => value.is_none_or(|value| !has(values, value)),
            Operator::GreaterThan(least) => number.is_some_and(|number| number > *least),
            Operator::LessThan(most) => number.is_some_and(|number| number < *most),
        }
    }
}

fn has(sorted: &[String], value: &String) -> bool {
    sorted.binary_search(value).is_ok()
}

/// The requirements: commas inside parentheses part values.
fn split(text: &str) -> Result<Vec<&str>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    let (mut begin, mut open) = (0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' if open => return Err("a parenthesis inside of another".to_owned()),
            '(' => open = true,
            ')' if !open => return Err("a ) without its (".to_owned()),
            ')' => open = false,
            ',' if !open => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err("a ( without its )".to_owned());
    }
    parts.push(text[begin..].trim());
    match parts.iter().any(|part| part.is_empty()) {
        true => Err("nothing between two commas".to_owned()),
        false => Ok(parts),
    }
}

fn requirement(text: &str) -> Result<Requirement, String> {
    if let Some(key) = text.strip_prefix('!') {
        return made(key, Operator::DoesNotExist);
    }
    if let Some(rest) = text.strip_suffix(')') {
        let set = || format!("{} is no set; write e.g. zone in (a,b)", quoted(text));
        let (left, values) = rest.split_once('(').ok_or_else(set)?;
        let (key, word) = left
            .trim()
            .rsplit_once(char::is_whitespace)
            .ok_or_else(set)?;
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        let values = values.into_iter().map(value);
        let mut values = values.collect::<Result<Vec<String>, String>>()?;
        values.sort_unstable();
        return match word {
            "in" => made(key, Operator::In(values)),
            "notin" => made(key, Operator::NotIn(values)),
            _ => Err(set()),
        };
    }
    // The longer ones first: != holds a =.
    for sign in ["!=", "==", "=", ">", "<"] {
        let Some((key, right)) = text.split_once(sign) else {
            continue;
        };
        let right = right.trim();
        let number = || {
            let number = right.parse::<i64>();
            number.map_err(|_| format!("{} behind {sign} is no whole number", quoted(right)))
        };
        return match sign {
            "!=" => made(key, Operator::NotIn(vec![value(right)?])),
            ">" => made(key, Operator::GreaterThan(number()?)),
            "<" => made(key, Operator::LessThan(number()?)),
            _ => made(key, Operator::In(vec![value(right)?])),
        };
    }
    made(text, Operator::Exists)
}

fn made(key: &str, operator: Operator) -> Result<Requirement, String> {
    let key = key.trim();
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_fits = prefix.is_none_or(|prefix| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !prefix.is_empty()
            && prefix.len() <= LONGEST_PREFIX
            && prefix
                .bytes()
                .all(|byte| fits(byte) || b"-.".contains(&byte))
    });
    match prefix_fits && !name.is_empty() && is_name(name) {
        true => Ok(Requirement {
            key: key.to_owned(),
            operator,
        }),
        false => Err(format!("{} is no name of a label", quoted(key))),
    }
}

fn value(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{} is no value of a label", quoted(text))),
    }
}

/// As Kubernetes takes a label's value; an empty one is one too.
fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= LONGEST_NAME
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(inner)
}
