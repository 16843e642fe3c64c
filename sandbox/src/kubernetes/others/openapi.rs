//! OpenAPI v3 documents, made from the schema tables by which the sandbox also decodes requests.
//!
//! The documents contain only what kubectl reads: for each path, the kind of the objects and the parameter
//! `fieldValidation`, and for each type, the fields and their merge keys.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::discovery;
use crate::exchange::Response;
use crate::kubernetes::resource::{RESOURCES, Resource, VERSION};
use crate::kubernetes::schema::{Field, Merge, Object, Type};

/// Answers `/openapi/v3` with a list of the paths of all OpenAPI documents, and answers each of these paths with its
/// document. Returns `None` for other paths.
pub fn document(path: &str) -> Option<Response> {
    let group = match path.strip_prefix("/openapi/v3")? {
        "" => return Some(Response::json(200, &index())),
        "/api/v1" => "",
        group => group.strip_prefix("/apis/")?.strip_suffix("/v1")?,
    };
    let rows: Vec<&Resource> = RESOURCES.iter().filter(|row| row.group == group).collect();
    (!rows.is_empty()).then(|| Response::json(200, &group_document(&rows)))
}

fn index() -> Value {
    let mut paths = BTreeMap::new();
    let named = discovery::groups().into_iter().map(|group| format!("apis/{group}/{VERSION}"));
    for path in named.chain([format!("api/{VERSION}")]) {
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn group_document(rows: &[&Resource]) -> Value {
    let mut paths = BTreeMap::new();
    let mut schemas = BTreeMap::new();
    for row in rows {
        paths.extend(row_paths(row));
        if let Some(schema) = row.schema {
            define(schema, &mut schemas);
            if let Some(definition) = schemas.get_mut(&schema.definition()) {
                definition["x-kubernetes-group-version-kind"] = json!([kind(row)]);
            }
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn kind(row: &Resource) -> Value {
    json!({"group": row.group, "version": VERSION, "kind": row.kind})
}

fn row_paths(row: &Resource) -> BTreeMap<String, Value> {
    let start = if row.group.is_empty() {
        format!("/api/{VERSION}")
    } else {
        format!("/apis/{}/{VERSION}", row.group)
    };
    let scope = if row.namespaced { "/namespaces/{namespace}" } else { "" };
    let all = format!("{start}{scope}/{}", row.plural);
    let one = format!("{all}/{{name}}");
    let mut paths = BTreeMap::new();
    paths.insert(all, operations(row, &[("list", "get"), ("create", "post")]));
    let item = [("get", "get"), ("update", "put"), ("patch", "patch"), ("delete", "delete")];
    paths.insert(one.clone(), operations(row, &item));
    if row.status {
        let status = [("get", "get"), ("update", "put"), ("patch", "patch")];
        paths.insert(format!("{one}/status"), operations(row, &status));
    }
    paths
}

fn operations(row: &Resource, verbs: &[(&str, &str)]) -> Value {
    let mut operations = json!({});
    for (verb, method) in verbs.iter().filter(|(verb, _)| row.verbs.contains(verb)) {
        let mut operation = json!({
            "x-kubernetes-action": verb,
            "x-kubernetes-group-version-kind": kind(row),
            "responses": {"200": {"description": "OK"}},
        });
        if matches!(*verb, "create" | "update" | "patch") {
            operation["parameters"] = ["dryRun", "fieldValidation"].map(query_parameter).into();
            operation["requestBody"] = request_body(row, verb);
        }
        operations[*method] = operation;
    }
    operations
}

fn query_parameter(name: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}})
}

fn request_body(row: &Resource, verb: &str) -> Value {
    let mut content = json!({});
    if verb == "patch" {
        for format in ["json-patch", "merge-patch", "strategic-merge-patch"] {
            content[format!("application/{format}+json")] = json!({"schema": {"type": "object"}});
        }
    } else if let Some(schema) = row.schema {
        content["application/json"] = json!({"schema": reference(schema)});
    }
    json!({"content": content, "required": true})
}

fn reference(object: &Object) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", object.definition())})
}

/// Adds the definitions of a type, and of all types of its fields, to `schemas`.
fn define(object: &Object, schemas: &mut BTreeMap<String, Value>) {
    let name = object.definition();
    if schemas.contains_key(&name) {
        return;
    }
    schemas.insert(name.clone(), Value::Null);
    let properties: BTreeMap<&str, Value> =
        object.fields.iter().map(|field| (field.name, property(field, schemas))).collect();
    schemas.insert(name, json!({"type": "object", "properties": properties}));
}

fn property(field: &Field, schemas: &mut BTreeMap<String, Value>) -> Value {
    let mut property = type_schema(field.kind, schemas);
    if let Type::List(_, merge) = field.kind {
        if merge != Merge::Atomic {
            property["x-kubernetes-patch-strategy"] = "merge".into();
        }
        if let Merge::ByKey(key) = merge {
            property["x-kubernetes-patch-merge-key"] = key.into();
        }
    }
    property
}

fn type_schema(kind: Type, schemas: &mut BTreeMap<String, Value>) -> Value {
    match kind {
        Type::String => json!({"type": "string"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Type::Time | Type::MicroTime => json!({"type": "string", "format": "date-time"}),
        Type::Strings => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        Type::Quantities => {
            let quantity = json!({"oneOf": [{"type": "string"}, {"type": "number"}]});
            json!({"type": "object", "additionalProperties": quantity})
        }
        Type::List(item, _) => json!({"type": "array", "items": type_schema(*item, schemas)}),
        Type::Object(object) => {
            define(object, schemas);
            // An object with `$ref` is not allowed to have other fields. `allOf` contains the reference, so that
            // `default` can stand beside it.
            json!({"allOf": [reference(object)], "default": {}})
        }
        Type::Opaque => json!({"type": "object"}),
    }
}
