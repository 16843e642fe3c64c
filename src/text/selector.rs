//! Label selectors in the syntax of `kubectl -l`. Every `label_selector` of the Cloud API is also valid in this syntax.

use super::shown::quoted;
use super::values::{is_label_key, is_label_value};
use std::collections::BTreeSet;

/// A label selector. It has requirements, and an object matches when its labels fulfil all of them. An empty selector
/// matches every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    text: String,
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    wanted: WantedValue,
    /// Whether the requirement has the operator `!=`, `notin` or `!`. An object without the label fulfils such a
    /// requirement, as in Kubernetes.
    is_negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WantedValue {
    Any,
    OneOf(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

/// The greatest number of requirements in a selector. It is limited, because anybody who can write a Service can write
/// a selector, and the selector is applied to each node of the cluster.
const MOST_REQUIREMENTS: usize = 32;

impl Selector {
    /// Parses a selector such as `a=b,c!=d,e in (f,g),h notin (i),j,!k,n>1`. The error says what is wrong with the
    /// text.
    pub fn parse(text: &str) -> Result<Selector, String> {
        let parts = split(text)?;
        if parts.len() > MOST_REQUIREMENTS {
            return Err(format!(
                "it has {} requirements, but at most {MOST_REQUIREMENTS} are allowed",
                parts.len()
            ));
        }
        let requirements = parts.into_iter().map(requirement).collect::<Result<_, _>>()?;
        Ok(Selector { text: text.to_owned(), requirements })
    }

    /// Returns the selector as its author wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the labels of an object match the selector. `value_of` returns the value of the label with a given key.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| r.matches(&value_of))
    }
}

impl Requirement {
    fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        let value = value_of(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let is_met = match &self.wanted {
            WantedValue::Any => value.is_some(),
            WantedValue::OneOf(values) => value.is_some_and(|value| values.contains(value)),
            WantedValue::Above(least) => number().is_some_and(|number| number > *least),
            WantedValue::Below(most) => number().is_some_and(|number| number < *most),
        };
        is_met != self.is_negated
    }
}

/// Splits the text of a selector at the commas between its requirements. Commas in parentheses separate the values of
/// one requirement, so the text is not split there.
fn split(text: &str) -> Result<Vec<&str>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    let (mut begin, mut open) = (0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' if open => return Err("it has nested parentheses".to_owned()),
            '(' => open = true,
            ')' if !open => return Err("a \")\" has no \"(\" before it".to_owned()),
            ')' => open = false,
            ',' if !open => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err("a \"(\" has no \")\" after it".to_owned());
    }
    parts.push(text[begin..].trim());
    if parts.iter().any(|part| part.is_empty()) {
        Err("a comma has no requirement before or after it".to_owned())
    } else {
        Ok(parts)
    }
}

fn requirement(text: &str) -> Result<Requirement, String> {
    if let Some(key) = text.strip_prefix('!') {
        return made(key, WantedValue::Any, true);
    }
    if let Some(rest) = text.strip_suffix(')') {
        let parts = rest.split_once('(').and_then(|(left, values)| {
            let (key, word) = left.trim().rsplit_once(char::is_whitespace)?;
            Some((key, word, values))
        });
        let Some((key, word @ ("in" | "notin"), values)) = parts else {
            return Err(format!(
                "{} is no valid requirement; write e.g. zone in (a,b)",
                quoted(text)
            ));
        };
        let values = values.split(',').map(|text| value(text.trim()));
        let values = values.collect::<Result<_, String>>()?;
        return made(key, WantedValue::OneOf(values), word == "notin");
    }
    // `!=` and `==` are looked for before `=`, because they contain `=`.
    for sign in ["!=", "==", "=", ">", "<"] {
        let Some((key, right)) = text.split_once(sign) else {
            continue;
        };
        let right = right.trim();
        let number = || {
            let number = right.parse::<i64>();
            number.map_err(|_| format!("{} after {sign} is not a whole number", quoted(right)))
        };
        let wanted = match sign {
            ">" => WantedValue::Above(number()?),
            "<" => WantedValue::Below(number()?),
            _ => WantedValue::OneOf([value(right)?].into()),
        };
        return made(key, wanted, sign == "!=");
    }
    made(text, WantedValue::Any, false)
}

fn made(key: &str, wanted: WantedValue, is_negated: bool) -> Result<Requirement, String> {
    let key = key.trim();
    if is_label_key(key) {
        Ok(Requirement { key: key.to_owned(), wanted, is_negated })
    } else {
        Err(format!("{} is not a valid label name", quoted(key)))
    }
}

fn value(text: &str) -> Result<String, String> {
    if is_label_value(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{} is not a valid label value", quoted(text)))
    }
}
