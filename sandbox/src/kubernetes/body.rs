//! Reads the object in the body of a request, which is in JSON, YAML or protobuf. Checks that the object has the kind
//! of the request's path, and that its fields have the right types.

use serde_json::Value;

use super::others::protobuf;
use super::resource::{RESOURCES, Resource, VERSION};
use super::schema;
use super::status::{FieldError, Refusal};
use crate::exchange::{Request, Response};

/// An object that was read from a request body. Missing fields have their default values, and the fields `kind` and
/// `apiVersion` are removed.
#[derive(Debug)]
pub struct Read {
    pub value: Value,
    /// Warnings about unknown fields. The answer contains each of them in a header `Warning`.
    pub warnings: Vec<String>,
}

/// What happens to unknown fields of an object: nothing, a warning or an error. A client chooses by the query parameter
/// `fieldValidation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Reads the object of a POST or PUT.
pub fn read(resource: &Resource, request: &Request) -> Result<Read, Refusal> {
    let given = parse(resource, request)?;
    decode(resource, &given, FieldValidation::of(request))
}

/// Reads an object that the simulation or a test creates. Unknown fields cause only warnings.
pub fn read_value(resource: &Resource, given: &Value) -> Result<Read, Refusal> {
    decode(resource, given, FieldValidation::Warn)
}

/// Reads the object that results from a patch. When one of its fields has a wrong type, the answer has the status 422
/// and says that the field `patch` is invalid, as in kube-apiserver.
pub fn read_patched(
    resource: &Resource,
    patched: &Value,
    request: &Request,
) -> Result<Read, Refusal> {
    let refuse = |why: &str| {
        let error = FieldError::invalid("patch", &patched.to_string().into(), why);
        Refusal::invalid_as("", "", "", &[error])
    };
    check_kind(resource, patched)?;
    let decoded = fields(resource, patched).map_err(|why| refuse(&why))?;
    match (FieldValidation::of(request), strict_error(&decoded.unknown)) {
        (FieldValidation::Strict, Some(why)) => Err(refuse(&why)),
        (validation, _) => Ok(finish(resource, decoded, validation)),
    }
}

pub fn with_warnings(response: Response, warnings: &[String]) -> Response {
    warnings.iter().fold(response, |response, warning| {
        response.with_header("Warning", format!("299 - {warning:?}"))
    })
}

pub fn is_dry_run(request: &Request) -> Result<bool, Refusal> {
    match request.query("dryRun") {
        None | Some("") => Ok(false),
        Some("All") => Ok(true),
        Some(other) => {
            let error = FieldError::unsupported("dryRun", &other.into(), &["All"]);
            Err(Refusal::invalid_as("meta.k8s.io", "options", "", &[error]))
        }
    }
}

impl FieldValidation {
    fn of(request: &Request) -> FieldValidation {
        match request.query("fieldValidation") {
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }
}

fn parse(resource: &Resource, request: &Request) -> Result<Value, Refusal> {
    let content_type = request.header("content-type").unwrap_or("application/json");
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/json" | "*/*" | "" => serde_json::from_slice(&request.body).map_err(|why| {
            let body = String::from_utf8_lossy(&request.body);
            let why =
                if why.is_eof() { "unexpected end of JSON input".into() } else { why.to_string() };
            unrecognized(resource, &format!("json parse error: {why} ({body})"))
        }),
        "application/yaml" => serde_yaml::from_slice(&request.body)
            .map_err(|why| unrecognized(resource, &format!("yaml parse error: {why}"))),
        "application/vnd.kubernetes.protobuf" => match protobuf::read(resource.kind, &request.body)
        {
            Some(read) => read.map_err(|why| unrecognized(resource, &why)),
            None => Err(Refusal::unsupported_media_type()),
        },
        _ => Err(Refusal::unsupported_media_type()),
    }
}

fn unrecognized(resource: &Resource, why: &str) -> Refusal {
    Refusal::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; {why}",
        resource.kind
    ))
}

fn decode(
    resource: &Resource,
    given: &Value,
    validation: FieldValidation,
) -> Result<Read, Refusal> {
    check_kind(resource, given)?;
    let refuse = |why: &str| {
        let kind = resource.kind;
        Refusal::bad_request(format!(
            "{kind} in version {VERSION:?} cannot be handled as a {kind}: {why}"
        ))
    };
    let decoded = fields(resource, given).map_err(|why| refuse(&why))?;
    match strict_error(&decoded.unknown) {
        Some(why) if validation == FieldValidation::Strict => Err(refuse(&why)),
        _ => Ok(finish(resource, decoded, validation)),
    }
}

fn fields(resource: &Resource, given: &Value) -> Result<schema::Decoded, String> {
    match resource.schema {
        Some(schema) => schema::decode(schema, given).map_err(|why| why.0),
        None => Err("it cannot be written here".into()),
    }
}

fn strict_error(unknown: &[String]) -> Option<String> {
    (!unknown.is_empty())
        .then(|| format!("strict decoding error: {}", unknown_fields(unknown).join(", ")))
}

fn unknown_fields(unknown: &[String]) -> Vec<String> {
    unknown.iter().map(|path| format!("unknown field {path:?}")).collect()
}

fn finish(resource: &Resource, decoded: schema::Decoded, validation: FieldValidation) -> Read {
    let mut value = decoded.value;
    if let Some(map) = value.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    resource.rules.defaults(&mut value);
    let warnings = match validation {
        FieldValidation::Warn => unknown_fields(&decoded.unknown),
        FieldValidation::Ignore | FieldValidation::Strict => Vec::new(),
    };
    Read { value, warnings }
}

/// Checks that `kind` and `apiVersion` are absent, or are those of the resource in the path.
fn check_kind(resource: &Resource, given: &Value) -> Result<(), Refusal> {
    let text = |field: &str| given[field].as_str().unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    let expected = resource.api_version();
    if !version.is_empty() && version != expected {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if kind.is_empty() || kind == resource.kind {
        return Ok(());
    }
    let known = RESOURCES.iter().any(|other| other.kind == kind && other.api_version() == expected);
    let internal =
        resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    let why = if known {
        format!(
            "converting ({VERSION}.{kind}) to ({internal}.{}): unknown conversion",
            resource.kind
        )
    } else {
        format!("no kind {kind:?} is registered for version {expected:?}")
    };
    Err(Refusal::bad_request(format!(
        "{kind} in version {VERSION:?} cannot be handled as a {}: {why}",
        resource.kind
    )))
}
