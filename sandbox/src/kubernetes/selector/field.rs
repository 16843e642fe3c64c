//! Field selectors, e.g. `spec.type=LoadBalancer,metadata.name!=a`.

use serde_json::Value;

use crate::kubernetes::resource::Resource;

#[derive(Debug, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Parses a field selector. The error is the message for an answer with status 400.
    pub fn parse(text: &str, resource: &Resource) -> Result<FieldSelector, String> {
        let mut terms = Vec::new();
        for term in split_terms(text).filter(|term| !term.is_empty()) {
            let parsed = Term::parse(term)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            check_field(&parsed.field, resource)?;
            terms.push(parsed);
        }
        Ok(FieldSelector { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (shown(object, &term.field) == term.value) == term.equal)
    }
}

impl Term {
    fn parse(term: &str) -> Option<Term> {
        let operator = term.find(['=', '!'])?;
        let (field, rest) = term.split_at(operator);
        let (equal, value) = match rest {
            rest if rest.starts_with("!=") => (false, &rest[2..]),
            rest if rest.starts_with("==") => (true, &rest[2..]),
            rest if rest.starts_with('=') => (true, &rest[1..]),
            _ => return None,
        };
        Some(Term { field: field.into(), equal, value: unescape(value)? })
    }
}

/// Splits the text at commas that do not follow a backslash.
fn split_terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |character| {
        let splits = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        splits
    })
}

/// Replaces the escapes `\\`, `\,` and `\=` in a selector's value by their second character. Returns `None` for any
/// other escape, and for a `=` without a backslash.
fn unescape(value: &str) -> Option<String> {
    let mut plain = String::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.push(characters.next().filter(|next| matches!(next, '\\' | ',' | '='))?),
            '=' => return None,
            other => plain.push(other),
        }
    }
    Some(plain)
}

fn check_field(field: &str, resource: &Resource) -> Result<(), String> {
    if matches!(field, "metadata.name" | "metadata.namespace")
        && (resource.namespaced || field != "metadata.namespace")
        || resource.selectable_fields.contains(&field)
    {
        return Ok(());
    }
    // When a resource allows only the name and the namespace in field selectors, kube-apiserver has another error
    // message than for other resources.
    if resource.selectable_fields.is_empty() {
        return Err(format!(
            r#""{field}" is not a known field selector: only "metadata.name", "metadata.namespace""#
        ));
    }
    Err(format!("field label not supported: {field}"))
}

/// Returns a field as the text with which a selector is compared. An absent field is an empty text, or `false` for
/// `spec.unschedulable`.
fn shown(object: &Value, field: &str) -> String {
    // The field selector `source` of an Event means the field `source.component`.
    let path = if field == "source" { "source.component" } else { field };
    let value = path.split('.').fold(object, |value, name| &value[name]);
    match value {
        Value::String(text) => text.clone(),
        Value::Null if field == "spec.unschedulable" => "false".into(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::resource;

    #[test]
    fn fields_are_compared_as_text() {
        let object = json!({"metadata": {"name": "a,b"}, "spec": {"type": "LoadBalancer", "unschedulable": true},
            "source": {"component": "c"}, "involvedObject": {"kind": "Node"}});
        let cases = [
            ("services", "spec.type=LoadBalancer", true),
            ("services", "spec.type==LoadBalancer,metadata.name!=x", true),
            ("services", "spec.type!=LoadBalancer", false),
            ("services", r"metadata.name=a\,b", true),
            ("nodes", "spec.unschedulable=true", true),
            ("nodes", "", true),
            ("events", "source=c,involvedObject.namespace=,involvedObject.kind=Node", true),
        ];
        for (plural, selector, expected) in cases {
            let resource = resource::named(plural).expect("served");
            let parsed = FieldSelector::parse(selector, resource).expect(selector);
            assert_eq!(parsed.matches(&object), expected, "{selector}");
        }
    }

    #[test]
    fn a_bad_selector_is_named() {
        let cases = [
            ("nodes", "spec.nothing=x", "field label not supported: spec.nothing"),
            (
                "nodes",
                "metadata.name",
                "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
            ),
            (
                "leases",
                "spec.x=1",
                r#""spec.x" is not a known field selector: only "metadata.name", "metadata.namespace""#,
            ),
        ];
        for (plural, selector, expected) in cases {
            let resource = resource::named(plural).expect("served");
            assert_eq!(FieldSelector::parse(selector, resource).expect_err(selector), expected);
        }
    }
}
