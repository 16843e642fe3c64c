//! Checks JSON values against the schemas of an OpenAPI document.

use std::collections::BTreeMap;

use serde_json::Value;

/// The largest number of `$ref`s that are followed one after the other. The limit ends the search when the references
/// form a cycle.
const MAX_REFERENCES: usize = 32;

/// An OpenAPI document, which contains schemas. A `$ref` in a schema names a place in this document.
#[derive(Clone, Copy)]
pub struct Schemas<'d> {
    document: &'d Value,
}

/// The rules for an object. They are merged from its schema and all parts of `allOf`.
#[derive(Default)]
struct ObjectRules<'d> {
    properties: BTreeMap<&'d str, &'d Value>,
    required: Vec<&'d str>,
    /// The schema of each property that `properties` does not list. When it is `None`, a property that is not listed is
    /// an error. There is one exception: when `properties` is empty, every property is accepted.
    additional: Option<&'d Value>,
}

impl<'d> Schemas<'d> {
    pub fn new(document: &'d Value) -> Schemas<'d> {
        Schemas { document }
    }

    /// Returns the schema of the elements when `schema` describes an array, or else `schema` itself. A `$ref` is
    /// replaced by the schema to which it refers.
    pub fn element(&self, schema: &'d Value) -> &'d Value {
        let schema = self.resolve(schema);
        if schema["type"] == "array" { self.resolve(&schema["items"]) } else { schema }
    }

    /// Returns the problems of a value. Each begins with the path of the wrong part, which is `at` and then the path
    /// inside the value.
    pub fn check(&self, schema: &'d Value, value: &Value, at: &str) -> Vec<String> {
        let nullable = schema["nullable"] == true;
        let schema = self.resolve(schema);
        if value.is_null() && (nullable || schema["nullable"] == true || has_type(schema, "null")) {
            return Vec::new();
        }
        let mut problems = self.check_alternatives(schema, value, at);
        problems.extend(check_type(schema, value, at));
        if !problems.is_empty() {
            return problems;
        }
        problems.extend(check_limits(schema, value, at));
        match value {
            Value::Object(fields) if is_object_schema(schema) => {
                for (name, problem) in self.check_fields(schema, fields, at) {
                    problems.push(format!("{at}.{name}: {problem}"));
                }
                problems.extend(self.check_children(schema, fields, at));
            }
            Value::Array(elements) => {
                let items = &schema["items"];
                let each = elements.iter().enumerate().filter(|_| !items.is_null());
                problems.extend(each.flat_map(|(index, element)| {
                    self.check(items, element, &format!("{at}[{index}]"))
                }));
            }
            // Objects and arrays are checked by the two match arms before this one. Any other value is checked here,
            // against each schema in `allOf`.
            _ => {
                let parts = schema["allOf"].as_array().into_iter().flatten();
                problems.extend(parts.flat_map(|part| self.check(part, value, at)));
            }
        }
        problems
    }

    /// Checks the keywords `oneOf` and `anyOf` in the same way: the value must fit at least one of the schemas that the
    /// keyword lists.
    fn check_alternatives(&self, schema: &'d Value, value: &Value, at: &str) -> Vec<String> {
        for keyword in ["oneOf", "anyOf"] {
            let Some(alternatives) = schema[keyword].as_array() else {
                continue;
            };
            let found: Vec<Vec<String>> =
                alternatives.iter().map(|schema| self.check(schema, value, at)).collect();
            if !found.iter().any(Vec::is_empty) {
                let shortest = found.into_iter().min_by_key(Vec::len).unwrap_or_default();
                return [vec![format!("{at}: fits none of {keyword}")], shortest].concat();
            }
        }
        Vec::new()
    }

    /// Returns the fields that the schema requires and that are missing, and the fields that the schema does not have.
    /// Each is returned with a text that says what is wrong.
    fn check_fields(
        &self,
        schema: &'d Value,
        fields: &serde_json::Map<String, Value>,
        _at: &str,
    ) -> Vec<(String, &'static str)> {
        let rules = self.object_rules(schema);
        let missing = rules.required.iter().filter(|name| !fields.contains_key(**name));
        let mut found: Vec<_> = missing.map(|name| (name.to_string(), "is required")).collect();
        // An object schema that lists no properties accepts every property.
        if rules.additional.is_none() && !rules.properties.is_empty() {
            let unknown =
                fields.keys().filter(|name| !rules.properties.contains_key(name.as_str()));
            found.extend(unknown.map(|name| (name.clone(), "is not in the document")));
        }
        found
    }

    fn check_children(
        &self,
        schema: &'d Value,
        fields: &serde_json::Map<String, Value>,
        at: &str,
    ) -> Vec<String> {
        let rules = self.object_rules(schema);
        let mut problems = Vec::new();
        for (name, value) in fields {
            let schema = rules.properties.get(name.as_str()).copied().or(rules.additional);
            if let Some(schema) = schema.filter(|schema| schema.is_object()) {
                problems.extend(self.check(schema, value, &format!("{at}.{name}")));
            }
        }
        problems
    }

    fn object_rules(&self, schema: &'d Value) -> ObjectRules<'d> {
        let schema = self.resolve(schema);
        let mut rules = ObjectRules::default();
        for part in schema["allOf"].as_array().into_iter().flatten() {
            let part = self.object_rules(part);
            rules.properties.extend(part.properties);
            rules.required.extend(part.required);
            rules.additional = rules.additional.or(part.additional);
        }
        if let Some(properties) = schema["properties"].as_object() {
            rules
                .properties
                .extend(properties.iter().map(|(name, schema)| (name.as_str(), schema)));
        }
        rules
            .required
            .extend(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
        let additional = schema
            .get("additionalProperties")
            .filter(|additional| **additional != Value::Bool(false));
        rules.additional = rules.additional.or(additional);
        rules
    }

    fn resolve(&self, schema: &'d Value) -> &'d Value {
        let mut schema = schema;
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = schema["$ref"].as_str() else {
                break;
            };
            let target =
                reference.strip_prefix('#').and_then(|pointer| self.document.pointer(pointer));
            let Some(target) = target else { break };
            schema = target;
        }
        schema
    }
}

fn is_object_schema(schema: &Value) -> bool {
    has_type(schema, "object")
        || schema.get("properties").is_some()
        || schema.get("allOf").is_some()
}

/// Whether the `type` of a schema contains `name`. A `type` is one name or a list of names.
fn has_type(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == name,
        Value::Array(names) => names.iter().any(|one| one == name),
        _ => false,
    }
}

fn check_type(schema: &Value, value: &Value, at: &str) -> Option<String> {
    if schema["type"].is_null() {
        return None;
    }
    let fits = match value {
        Value::Null => false,
        Value::Bool(_) => has_type(schema, "boolean"),
        Value::Number(number) => {
            has_type(schema, "number")
                || (has_type(schema, "integer") && (number.is_i64() || number.is_u64()))
        }
        Value::String(_) => has_type(schema, "string"),
        Value::Array(_) => has_type(schema, "array"),
        Value::Object(_) => has_type(schema, "object"),
    };
    (!fits).then(|| format!("{at}: {value} is not of type {}", schema["type"]))
}

fn check_limits(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        problems.push(format!("{at}: {value} is none of {}", Value::from(allowed.clone())));
    }
    let bound = |name: &str| schema[name].as_f64();
    if let Some(number) = value.as_f64() {
        if bound("minimum").is_some_and(|minimum| number < minimum) {
            problems.push(format!("{at}: {value} is less than {}", schema["minimum"]));
        }
        if bound("maximum").is_some_and(|maximum| number > maximum) {
            problems.push(format!("{at}: {value} is more than {}", schema["maximum"]));
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as f64;
        let too_short = bound("minLength").is_some_and(|minimum| length < minimum);
        if too_short || bound("maxLength").is_some_and(|maximum| length > maximum) {
            problems.push(format!("{at}: {value} has a wrong length"));
        }
        if !has_format(schema["format"].as_str(), text) {
            problems.push(format!("{at}: {value} is no {}", schema["format"]));
        }
    }
    if let Some(elements) = value.as_array() {
        let length = elements.len() as f64;
        let too_few = bound("minItems").is_some_and(|minimum| length < minimum);
        if too_few || bound("maxItems").is_some_and(|maximum| length > maximum) {
            problems.push(format!("{at}: {} elements are too few or too many", elements.len()));
        }
    }
    problems
}

/// Whether a string has the `format` that its schema demands. Only the formats `date-time` (a timestamp) and `decimal`
/// (a number) are checked. For any other format, every string is accepted.
fn has_format(format: Option<&str>, text: &str) -> bool {
    match format {
        Some("date-time") => text.parse::<jiff::Timestamp>().is_ok(),
        Some("decimal") => text.parse::<f64>().is_ok(),
        _ => true,
    }
}
