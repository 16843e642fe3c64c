//! Label selectors, e.g. `a=b,c!=d,e in (f,g),h notin (i),j,!k,n>1`.

use serde_json::{Map, Value};

use crate::kubernetes::rules::names;

#[derive(Debug, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    In,
    NotIn,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    /// Parses a label selector. The error is the message for an answer with status 400.
    pub fn parse(text: &str) -> Result<LabelSelector, String> {
        let mut parser = Parser { tokens: tokens(text), next: 0 };
        let mut requirements = parser.requirements()?;
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(LabelSelector { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        let none = Map::new();
        let labels = object["metadata"]["labels"].as_object().unwrap_or(&none);
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: &Map<String, Value>) -> bool {
        let value = labels.get(&self.key).and_then(Value::as_str);
        let listed = value.is_some_and(|value| self.values.iter().any(|one| one == value));
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In => listed,
            // `notin` also matches objects that do not have the label.
            Operator::NotIn => !listed,
            Operator::GreaterThan => {
                compare(value, &self.values).is_some_and(|(label, limit)| label > limit)
            }
            Operator::LessThan => {
                compare(value, &self.values).is_some_and(|(label, limit)| label < limit)
            }
        }
    }
}

fn compare(label: Option<&str>, values: &[String]) -> Option<(i64, i64)> {
    Some((label?.parse().ok()?, values.first()?.parse().ok()?))
}

/// Splits a selector into operators, brackets, commas, and the names and values between them.
fn tokens(text: &str) -> Vec<String> {
    const SPECIAL: &str = "=!(),><";
    const DOUBLE: [&str; 2] = ["==", "!="];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if DOUBLE.iter().any(|operator| rest.starts_with(operator)) {
            2
        } else if SPECIAL.contains(first) {
            1
        } else {
            rest.find(|character: char| SPECIAL.contains(character) || character.is_whitespace())
                .unwrap_or(rest.len())
        };
        tokens.push(rest[..length].to_string());
        rest = rest[length..].trim_start();
    }
    tokens
}

struct Parser {
    tokens: Vec<String>,
    next: usize,
}

/// Whether the token can be a key or a value. Empty tokens, operators, brackets and commas cannot.
fn is_identifier(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(['=', '!', '(', ')', ',', '>', '<'])
}

impl Parser {
    fn requirements(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            let token = self.peek().to_string();
            if token.is_empty() {
                return Ok(requirements);
            }
            if token != "!" && !is_identifier(&token) {
                return Err(format!(
                    "found '{token}', expected: !, identifier, or 'end of string'"
                ));
            }
            let requirement =
                self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match self.take().as_str() {
                "" => return Ok(requirements),
                "," if self.peek() == "!" || is_identifier(self.peek()) => {}
                "," => {
                    return Err(format!("found '{}', expected: identifier after ','", self.peek()));
                }
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == "!";
        if absent {
            self.take();
        }
        let key = self.take();
        if !is_identifier(&key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(why) = names::qualified(&key).first() {
            return Err(format!("key: Invalid value: {key:?}: {why}"));
        }
        if absent {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        if matches!(self.peek(), "" | ",") {
            return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
        }
        let operator = self.operator()?;
        let values = match operator {
            (_, true) => self.set()?,
            (_, false) => vec![self.exact_value()],
        };
        check_values(&key, operator.0, &values)?;
        Ok(Requirement { key, operator: operator.0, values })
    }

    /// Reads the operator that follows a label's key in a selector, e.g. `!=`. The `bool` says whether a list of values
    /// in brackets must follow, as after `in`.
    fn operator(&mut self) -> Result<(Operator, bool), String> {
        match self.take().as_str() {
            "in" => Ok((Operator::In, true)),
            "notin" => Ok((Operator::NotIn, true)),
            "=" | "==" => Ok((Operator::In, false)),
            "!=" => Ok((Operator::NotIn, false)),
            ">" => Ok((Operator::GreaterThan, false)),
            "<" => Ok((Operator::LessThan, false)),
            other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// Returns the value after `=` or another operator with one value. The value can be empty, as in `a=`.
    fn exact_value(&mut self) -> String {
        if is_identifier(self.peek()) { self.take() } else { String::new() }
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        let open = self.take();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let mut values = vec![self.exact_value()];
        loop {
            match self.take().as_str() {
                ")" => return Ok(values),
                "," => values.push(self.exact_value()),
                other => return Err(format!("found '{other}', expected: ',' or ')'")),
            }
        }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.next).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        let token = self.peek().to_string();
        self.next += 1;
        token
    }
}

fn check_values(key: &str, operator: Operator, values: &[String]) -> Result<(), String> {
    for (index, value) in values.iter().enumerate() {
        if matches!(operator, Operator::GreaterThan | Operator::LessThan)
            && value.parse::<i64>().is_err()
        {
            return Err(format!(
                "values[{index}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ));
        }
        if let Some(why) = names::label_value(value).first() {
            return Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {why}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_are_joined_by_and() {
        let object = json!({"metadata": {"labels": {"pool": "b", "x/y": "", "n": "5"}}});
        let cases = [
            ("", true),
            ("pool=b", true),
            ("pool==b, n = 5", true),
            ("pool!=b", false),
            ("none!=b", true),
            ("pool in (a, b)", true),
            ("pool in (a)", false),
            ("pool notin (a,c),x/y", true),
            ("none notin (a)", true),
            ("x/y=", true),
            ("!none", true),
            ("!pool", false),
            ("none", false),
            ("n>4,n<6", true),
            ("n>5", false),
        ];
        for (selector, expected) in cases {
            let parsed = LabelSelector::parse(selector).expect(selector);
            assert_eq!(parsed.matches(&object), expected, "{selector}");
        }
    }

    #[test]
    fn a_bad_selector_is_named() {
        let cases = [
            ("===", "found '==', expected: !, identifier, or 'end of string'"),
            ("a=b,", "found '', expected: identifier after ','"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ];
        for (selector, expected) in cases {
            assert_eq!(LabelSelector::parse(selector).expect_err(selector), expected);
        }
    }
}
