//! How an answer shows objects: as whole objects, as rows of a table, or with their metadata only. The client chooses
//! by the `Accept` header.

use serde_json::{Value, json};

use super::others::table;
use super::resource::Resource;
use super::status::Refusal;
use super::store::Object;
use crate::exchange::{Request, Response};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Whole,
    Table(MetaVersion),
    Metadata(MetaVersion),
}

/// The version of the API group `meta.k8s.io` in which the client wants a table or metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

/// What each row of a table contains in addition to its cells: nothing, the metadata or the whole object. The query
/// parameter `includeObject` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IncludeObject {
    None,
    Metadata,
    Object,
}

#[derive(Clone, Debug, Default)]
pub struct ListMeta {
    pub revision: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

impl View {
    /// Returns the form in which the client wants an answer with one object: the whole object, a table, or only
    /// metadata.
    pub fn of_object(request: &Request) -> Result<View, Refusal> {
        View::accepted(request, "PartialObjectMetadata")
    }

    pub fn of_list(request: &Request) -> Result<View, Refusal> {
        View::accepted(request, "PartialObjectMetadataList")
    }

    /// Returns the form that the `Accept` header asks for: whole objects, a table, or only metadata. The first media
    /// type in the header that this server supports decides. `partial` is the kind, e.g. `PartialObjectMetadata`, that
    /// a client writes in the header when it wants only metadata.
    fn accepted(request: &Request, partial: &str) -> Result<View, Refusal> {
        let accept = request.header("accept").unwrap_or("*/*");
        accept
            .split(',')
            .find_map(|range| View::of_range(range, partial))
            .ok_or_else(Refusal::not_acceptable)
    }

    fn of_range(range: &str, partial: &str) -> Option<View> {
        let mut parts = range.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter =
            |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let Some(kind) = parameter("as") else {
            return Some(View::Whole);
        };
        let version = match parameter("v") {
            Some("v1") => MetaVersion::V1,
            Some("v1beta1") => MetaVersion::V1Beta1,
            _ => return None,
        };
        match kind {
            _ if parameter("g") != Some("meta.k8s.io") => None,
            "Table" => Some(View::Table(version)),
            kind if kind == partial => Some(View::Metadata(version)),
            _ => None,
        }
    }

    /// Returns the answer to a request that has written or removed one object. The answer contains this object, which
    /// is `value`. `value` does not contain `kind` and `apiVersion`.
    pub fn object(self, resource: &Resource, value: &Value, request: &Request) -> Response {
        let revision =
            value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let meta = ListMeta { revision: revision.unwrap_or_default(), ..ListMeta::default() };
        match self {
            View::Whole => Response::json(200, &super::with_kind(resource, value.clone())),
            View::Metadata(version) => {
                text_response(partial(&value["metadata"].to_string(), version))
            }
            View::Table(version) => {
                let object = Object::new("", value.clone());
                let row = row(resource, &object, version, IncludeObject::of(request));
                text_response(table_text(resource, &[row], &meta, version))
            }
        }
    }

    /// Returns the answer with one object of the store. `self` says in which form the client wants the object: as a
    /// whole, as a row of a table, or with its metadata only.
    pub fn stored(self, resource: &Resource, object: &Object, request: &Request) -> Response {
        match self {
            View::Whole => text_response(object.text_with_kind(resource)),
            View::Metadata(version) => text_response(partial(object.metadata_text(), version)),
            View::Table(_) => self.object(resource, &object.value, request),
        }
    }

    pub fn list<'a>(
        self,
        resource: &Resource,
        objects: impl Iterator<Item = &'a Object>,
        meta: &ListMeta,
        request: &Request,
    ) -> Response {
        let text = match self {
            View::Whole => {
                let (kind, version) = (format!("{}List", resource.kind), resource.api_version());
                let items: Vec<&str> = objects.map(Object::text).collect();
                list_text(&kind, &version, meta, &items)
            }
            View::Metadata(version) => {
                let items: Vec<String> =
                    objects.map(|object| partial(object.metadata_text(), version)).collect();
                let kind = "PartialObjectMetadataList";
                let text = list_text(kind, version.api_version(), meta, &items);
                // kube-apiserver 1.36 writes an empty list of metadata as `"items":null`, but an empty list of whole
                // objects as `"items":[]`.
                match items.is_empty() {
                    true => text.replace(r#""items":[]"#, r#""items":null"#),
                    false => text,
                }
            }
            View::Table(version) => {
                let include = IncludeObject::of(request);
                let rows: Vec<String> =
                    objects.map(|object| row(resource, object, version, include)).collect();
                table_text(resource, &rows, meta, version)
            }
        };
        text_response(text)
    }
}

impl MetaVersion {
    fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl IncludeObject {
    fn of(request: &Request) -> IncludeObject {
        match request.query("includeObject") {
            Some("None") => IncludeObject::None,
            Some("Object") => IncludeObject::Object,
            _ => IncludeObject::Metadata,
        }
    }
}

impl ListMeta {
    fn json(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            meta["continue"] = token.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        meta
    }
}

fn text_response(text: String) -> Response {
    let content_type = ("Content-Type".to_string(), "application/json".to_string());
    Response { status: 200, headers: vec![content_type], body: text.into_bytes() }
}

/// Returns the JSON of a list as text, made from the texts of its items. This needs no JSON tree of thousands of
/// objects in memory.
fn list_text(kind: &str, version: &str, meta: &ListMeta, items: &[impl AsRef<str>]) -> String {
    let head = format!(
        r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{},"items":["#,
        meta.json()
    );
    joined(head, items)
}

/// Appends the items to `head`, with commas between them, and then closes the JSON list. Memory for the whole text is
/// allocated in one step, because a list of thousands of objects has tens of megabytes.
fn joined(head: String, items: &[impl AsRef<str>]) -> String {
    let bytes: usize = items.iter().map(|item| item.as_ref().len() + 1).sum();
    let mut text = head;
    text.reserve(bytes + 2);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(item.as_ref());
    }
    text.push_str("]}");
    text
}

fn table_text(
    resource: &Resource,
    rows: &[String],
    meta: &ListMeta,
    version: MetaVersion,
) -> String {
    let head = format!(
        r#"{{"kind":"Table","apiVersion":"{}","metadata":{},"columnDefinitions":{},"rows":["#,
        version.api_version(),
        meta.json(),
        table::columns(resource),
    );
    joined(head, rows)
}

fn row(
    resource: &Resource,
    object: &Object,
    version: MetaVersion,
    include: IncludeObject,
) -> String {
    let cells = table::cells(resource, &object.value);
    let object = match include {
        IncludeObject::None => "null".into(),
        IncludeObject::Metadata => partial(object.metadata_text(), version),
        IncludeObject::Object => object.text_with_kind(resource),
    };
    format!(r#"{{"cells":{cells},"object":{object}}}"#)
}

fn partial(metadata: &str, version: MetaVersion) -> String {
    let version = version.api_version();
    format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"{version}","metadata":{metadata}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_type_that_can_be_served_counts() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let cases = [
            ("", None),
            ("application/json", Some(View::Whole)),
            ("*/*", Some(View::Whole)),
            ("application/vnd.kubernetes.protobuf, application/json", Some(View::Whole)),
            ("application/vnd.kubernetes.protobuf", None),
            (table, Some(View::Table(MetaVersion::V1))),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Some(View::Whole)),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                Some(View::Metadata(MetaVersion::V1)),
            ),
            ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", None),
        ];
        for (accept, expected) in cases {
            let headers = vec![("accept".to_string(), accept.to_string())];
            let request = Request { headers, ..Request::default() };
            assert_eq!(View::of_list(&request).ok(), expected, "{accept}");
        }
    }
}
