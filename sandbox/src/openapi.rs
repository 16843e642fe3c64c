//! Checks requests and answers against an OpenAPI 3 document. Only the part of JSON Schema that the OpenAPI document of
//! the Hetzner Cloud API uses is supported.
//!
//! The check is stricter than the standard in one point: a property that is not in the document is an error. A client
//! that relies on such a property would not find it in the real API. Regular expressions (`pattern`) are not checked.

mod schema;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use self::schema::Schemas;

/// An OpenAPI document.
pub struct Spec {
    document: Value,
}

/// Properties that the API has, although its OpenAPI document does not contain them yet. Each entry is the name of a
/// schema, the name of a property of this schema, and the type of the property. The properties are added to the
/// document, because official clients need them.
const GROWN: [(&str, &str, &str); 2] = [
    ("server_type_location", "available", "boolean"),
    ("server_type_location", "recommended", "boolean"),
];

/// The phrases with which the API's OpenAPI document describes a field that contains an ID or a name. The document says
/// that such a field is a string, so it does not allow a number. The real API also accepts an ID as a number, and
/// official clients send numbers.
const ID_OR_NAME: [&str; 2] = ["ID or name", "IDs (`integer`) or names"];

/// The errors that a check found. An error about a JSON value begins with the path of the wrong part, e.g.
/// `.server.status`.
pub type Problems = Vec<String>;

impl Spec {
    /// Reads an OpenAPI document in JSON. The error contains the name of the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Spec, String> {
        let path = path.as_ref();
        let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let document = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Spec { document })
    }

    /// Reads the OpenAPI document of the Hetzner Cloud API, and corrects it in two ways. It adds the properties that
    /// the API got after the document was written ([`GROWN`]). A field that contains an ID or a name also accepts a
    /// number, because clients send IDs as numbers.
    pub fn hetzner(path: impl AsRef<Path>) -> Result<Spec, String> {
        let mut spec = Spec::load(path)?;
        for (schema, property, definition) in GROWN {
            let properties = format!("/components/schemas/{schema}/properties");
            let properties = spec.document.pointer_mut(&properties).and_then(Value::as_object_mut);
            let properties =
                properties.ok_or_else(|| format!("the document has no schema {schema}"))?;
            properties.entry(property).or_insert_with(|| json!({"type": definition}));
        }
        let schemas = spec.document.pointer_mut("/components/schemas");
        for schema in children(schemas) {
            children(schema.get_mut("properties")).for_each(take_ids_and_names);
        }
        Ok(spec)
    }

    /// Whether the OpenAPI document describes this method of this path. A prefix `/v1` of the path is ignored.
    pub fn knows(&self, method: &str, path: &str) -> bool {
        self.operation(method, path).is_some()
    }

    /// Checks the path, query parameters and body of a request. An empty body is treated like a missing body.
    pub fn check_request(
        &self,
        method: &str,
        path: &str,
        query: &[(String, String)],
        body: &[u8],
    ) -> Result<(), Problems> {
        let Some(operation) = self.operation(method, path) else {
            return Err(vec![format!("{method} {path} is not in the document")]);
        };
        let mut problems = self.check_query(operation, query);
        problems.extend(self.check_body(operation, body));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Checks the status and body of an answer. An empty body is treated like a missing body.
    pub fn check_response(
        &self,
        method: &str,
        path: &str,
        status: u16,
        body: &[u8],
    ) -> Result<(), Problems> {
        let Some(operation) = self.operation(method, path) else {
            return Err(vec![format!("{method} {path} is not in the document")]);
        };
        let exact = status.to_string();
        let class = format!("{}xx", status / 100);
        let responses = &operation["responses"];
        let response = [&exact, &class, "default"].iter().find_map(|key| responses.get(*key));
        let Some(response) = response else {
            return Err(vec![format!("{method} {path} does not answer {status}")]);
        };
        let problems = match (json_schema(response), body.is_empty()) {
            (None, true) => Vec::new(),
            (None, false) => vec!["a body where the document has none".into()],
            (Some(_), true) => vec!["no body where the document has one".into()],
            (Some(schema), false) => self.check_json(schema, body),
        };
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Returns the operation for a path. When several path templates fit, the one with the fewest parameters is taken.
    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        let paths = self.document.get("paths")?.as_object()?;
        let fitting = paths.iter().filter(|(template, _)| fits(template, path));
        let (_, item) = fitting.min_by_key(|(template, _)| template.matches('{').count())?;
        item.get(method.to_ascii_lowercase())
    }

    fn check_query(&self, operation: &Value, query: &[(String, String)]) -> Problems {
        let none = Vec::new();
        let parameters = operation["parameters"].as_array().unwrap_or(&none);
        let in_query = || parameters.iter().filter(|parameter| parameter["in"] == "query");
        let mut problems = Vec::new();
        for parameter in in_query().filter(|parameter| parameter["required"] == true) {
            if !query.iter().any(|(name, _)| parameter["name"] == name.as_str()) {
                problems.push(format!("query parameter {} is missing", parameter["name"]));
            }
        }
        for (name, text) in query {
            match in_query().find(|parameter| parameter["name"] == name.as_str()) {
                None => problems.push(format!("query parameter {name} is unknown")),
                Some(parameter) => {
                    let schema = self.schemas().element(&parameter["schema"]);
                    let value = typed(schema, text);
                    problems.extend(self.schemas().check(schema, &value, &format!("?{name}")));
                }
            }
        }
        problems
    }

    fn check_body(&self, operation: &Value, body: &[u8]) -> Problems {
        let request = operation.get("requestBody");
        match (request.and_then(json_schema), body.is_empty()) {
            (None, true) => Vec::new(),
            (None, false) if body == b"{}" => Vec::new(),
            (None, false) => vec!["a body where the document has none".into()],
            (Some(schema), false) => self.check_json(schema, body),
            (Some(_), true) if request.is_some_and(|request| request["required"] == true) => {
                vec!["no body where the document requires one".into()]
            }
            (Some(_), true) => Vec::new(),
        }
    }

    fn check_json(&self, schema: &Value, body: &[u8]) -> Problems {
        match serde_json::from_slice(body) {
            Ok(value) => self.schemas().check(schema, &value, ""),
            Err(error) => vec![format!("the body is not JSON: {error}")],
        }
    }

    fn schemas(&self) -> Schemas<'_> {
        Schemas::new(&self.document)
    }
}

/// Returns the values of all fields of a JSON object.
fn children(object: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    let object = object.and_then(Value::as_object_mut);
    object.into_iter().flat_map(|object| object.values_mut())
}

/// Makes the OpenAPI type of a field accept numbers as well as texts, when the field's description says that it
/// contains an ID or a name. The real API accepts IDs as numbers in such fields, although its OpenAPI document allows
/// only texts. [`ID_OR_NAME`] lists the phrases by which such a description is recognised.
fn take_ids_and_names(field: &mut Value) {
    let description = field["description"].as_str().unwrap_or_default();
    if ID_OR_NAME.iter().any(|words| description.contains(words)) {
        let value = match field["type"] == "array" {
            true => &mut field["items"],
            false => field,
        };
        value["type"] = json!(["string", "integer"]);
    }
}

fn json_schema(content: &Value) -> Option<&Value> {
    content.pointer("/content/application~1json/schema")
}

/// Whether a path fits a template such as `/servers/{id}`. A parameter in braces fits any text that is not empty, and
/// every other segment of the path must be the same as in the template.
fn fits(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template.zip(path).all(|(part, segment)| {
            part == segment || (part.starts_with('{') && !segment.is_empty())
        })
}

/// Converts the text of a query parameter to the type in its schema. Text that cannot be converted stays a string.
fn typed(schema: &Value, text: &str) -> Value {
    match schema["type"].as_str() {
        Some("integer") => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        Some("number") => text.parse::<f64>().map_or_else(|_| text.into(), Value::from),
        Some("boolean") => text.parse::<bool>().map_or_else(|_| text.into(), Value::from),
        _ => text.into(),
    }
}
