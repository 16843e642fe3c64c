//! Decodes request bodies in protobuf. A few commands of kubectl send no JSON: `auth can-i`, `create namespace` and
//! `create service`. They accept answers in JSON.
//!
//! Tables in this module list the fields of each kind, but only for the kinds that these commands send. A field that is
//! missing in the tables is reported as an error.

use serde_json::{Map, Value};

/// The fields of a protobuf message, each with its number, its name and its type as in `generated.proto` of the
/// Kubernetes package.
type Message = &'static [(u64, &'static str, Wire)];

#[derive(Clone, Copy)]
enum Wire {
    Text,
    Number,
    Bool,
    Message(Message),
    Texts,
    Messages(Message),
    /// A map from strings to strings. In each entry, field 1 is the key and field 2 is the value.
    Map,
    /// A message with a type, an integer and a text. The type says which of the two values is meant.
    IntOrString,
    /// A field that is skipped, because clients cannot set it: the server writes its value.
    Ignored,
}

/// The beginning of every protobuf body of Kubernetes: `k8s` and a zero byte.
const MAGIC: &[u8] = b"k8s\0";

/// The numbers of the two fields of the protobuf message `runtime.Unknown` that are read. The first field contains the
/// object's type, and the second the object itself as bytes.
const UNKNOWN: [u64; 2] = [1, 2];
const TYPE_META: Message = &[(1, "apiVersion", Wire::Text), (2, "kind", Wire::Text)];

const META: Message = &[
    (1, "name", Wire::Text),
    (2, "generateName", Wire::Text),
    (3, "namespace", Wire::Text),
    (4, "selfLink", Wire::Ignored),
    (5, "uid", Wire::Text),
    (6, "resourceVersion", Wire::Text),
    (7, "generation", Wire::Ignored),
    (8, "creationTimestamp", Wire::Ignored),
    (11, "labels", Wire::Map),
    (12, "annotations", Wire::Map),
    (14, "finalizers", Wire::Texts),
];

const NAMESPACE: Message = &[
    (1, "metadata", Wire::Message(META)),
    (2, "spec", Wire::Message(&[(1, "finalizers", Wire::Texts)])),
    (3, "status", Wire::Ignored),
];

const SERVICE: Message = &[
    (1, "metadata", Wire::Message(META)),
    (2, "spec", Wire::Message(SERVICE_SPEC)),
    (3, "status", Wire::Ignored),
];

const SERVICE_SPEC: Message = &[
    (1, "ports", Wire::Messages(SERVICE_PORT)),
    (2, "selector", Wire::Map),
    (3, "clusterIP", Wire::Text),
    (4, "type", Wire::Text),
    (5, "externalIPs", Wire::Texts),
    (7, "sessionAffinity", Wire::Text),
    (8, "loadBalancerIP", Wire::Text),
    (9, "loadBalancerSourceRanges", Wire::Texts),
    (10, "externalName", Wire::Text),
    (11, "externalTrafficPolicy", Wire::Text),
    (12, "healthCheckNodePort", Wire::Number),
    (13, "publishNotReadyAddresses", Wire::Bool),
    (17, "ipFamilyPolicy", Wire::Text),
    (18, "clusterIPs", Wire::Texts),
    (19, "ipFamilies", Wire::Texts),
    (20, "allocateLoadBalancerNodePorts", Wire::Bool),
    (21, "loadBalancerClass", Wire::Text),
    (22, "internalTrafficPolicy", Wire::Text),
];

const SERVICE_PORT: Message = &[
    (1, "name", Wire::Text),
    (2, "protocol", Wire::Text),
    (3, "port", Wire::Number),
    (4, "targetPort", Wire::IntOrString),
    (5, "nodePort", Wire::Number),
    (6, "appProtocol", Wire::Text),
];

const ACCESS_REVIEW: Message = &[
    (1, "metadata", Wire::Ignored),
    (
        2,
        "spec",
        Wire::Message(&[
            (
                1,
                "resourceAttributes",
                Wire::Message(&[
                    (1, "namespace", Wire::Text),
                    (2, "verb", Wire::Text),
                    (3, "group", Wire::Text),
                    (4, "version", Wire::Text),
                    (5, "resource", Wire::Text),
                    (6, "subresource", Wire::Text),
                    (7, "name", Wire::Text),
                ]),
            ),
            (
                2,
                "nonResourceAttributes",
                Wire::Message(&[(1, "path", Wire::Text), (2, "verb", Wire::Text)]),
            ),
        ]),
    ),
    (3, "status", Wire::Ignored),
];

/// Decodes the object in a protobuf body to JSON. Returns `None` for a kind that this module has no table for.
///
/// # Errors
/// The error says what is wrong with the bytes.
pub fn read(kind: &str, body: &[u8]) -> Option<Result<Value, String>> {
    let message = match kind {
        "Namespace" => NAMESPACE,
        "SelfSubjectAccessReview" => ACCESS_REVIEW,
        "Service" => SERVICE,
        _ => return None,
    };
    Some(object(message, body))
}

fn object(message: Message, body: &[u8]) -> Result<Value, String> {
    let envelope =
        body.strip_prefix(MAGIC).ok_or("provided data does not appear to be a protobuf message")?;
    let (mut types, mut object) = (Map::new(), Map::new());
    for field in Fields(envelope) {
        match field? {
            (number, Raw::Bytes(bytes)) if number == UNKNOWN[0] => {
                types = decode(TYPE_META, bytes)?;
            }
            (number, Raw::Bytes(bytes)) if number == UNKNOWN[1] => {
                object = decode(message, bytes)?;
            }
            // The other fields of the protobuf envelope are ignored. They are the content type and the encoding, which
            // kubectl leaves empty.
            _ => {}
        }
    }
    object.append(&mut types);
    Ok(Value::Object(object))
}

/// Decodes a message. Empty texts and zeros are left out, because protobuf does not distinguish them from fields that
/// were not set.
fn decode(message: Message, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, raw) = field?;
        let Some((_, name, wire)) = message.iter().find(|(known, ..)| *known == number) else {
            return Err(format!("field {number} is not known to the sandbox"));
        };
        let value = match (wire, raw) {
            (Wire::Ignored, _) => continue,
            (Wire::Bool, Raw::Number(value)) => Value::Bool(value != 0),
            (Wire::Number, Raw::Number(0)) => continue,
            (Wire::Number, Raw::Number(value)) => value.into(),
            (Wire::Text, Raw::Bytes([])) => continue,
            (Wire::Text, Raw::Bytes(bytes)) => text(bytes)?.into(),
            (Wire::Message(inner), Raw::Bytes(bytes)) => decode(inner, bytes)?.into(),
            (Wire::IntOrString, Raw::Bytes(bytes)) => int_or_string(bytes)?,
            (Wire::Texts, Raw::Bytes(bytes)) => {
                push(&mut object, name, text(bytes)?.into());
                continue;
            }
            (Wire::Messages(inner), Raw::Bytes(bytes)) => {
                push(&mut object, name, decode(inner, bytes)?.into());
                continue;
            }
            (Wire::Map, Raw::Bytes(bytes)) => {
                let entry = decode(&[(1, "key", Wire::Text), (2, "value", Wire::Text)], bytes)?;
                let part = |part: &str| entry.get(part).and_then(Value::as_str).unwrap_or_default();
                let map = object.entry(*name).or_insert_with(|| Value::Object(Map::new()));
                map[part("key")] = part("value").into();
                continue;
            }
            _ => return Err(format!("wrong wire type of field {number} ({name})")),
        };
        object.insert((*name).into(), value);
    }
    Ok(object)
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) {
    let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = list {
        list.push(value);
    }
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    const STRING: i64 = 1;
    let mut parts = decode(
        &[(1, "type", Wire::Number), (2, "number", Wire::Number), (3, "text", Wire::Text)],
        bytes,
    )?;
    let is_text = parts.get("type").and_then(Value::as_i64) == Some(STRING);
    let (field, empty) = if is_text { ("text", "".into()) } else { ("number", 0.into()) };
    Ok(parts.remove(field).unwrap_or(empty))
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|why| why.to_string())
}

/// The value of a field as it is encoded in protobuf: a number, or bytes.
enum Raw<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

/// Iterates over the fields of a protobuf message, in their order. The iterator ends after the first error.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Raw<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| "unexpected EOF".to_owned()))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Raw<'a>)> {
        const VARINT: u64 = 0;
        const LENGTH_DELIMITED: u64 = 2;
        let key = self.varint()?;
        let raw = match key & 7 {
            // A negative number is encoded as the unsigned number that has the same bits.
            VARINT => Raw::Number(self.varint()?.cast_signed()),
            LENGTH_DELIMITED => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Raw::Bytes(bytes)
            }
            _ => return None,
        };
        Some((key >> 3, raw))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let head = [number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        [&head, bytes].concat()
    }

    fn body(object: &[u8]) -> Vec<u8> {
        let types = [field(1, b"v1"), field(2, b"Service")].concat();
        [MAGIC, &field(1, &types), &field(2, object)].concat()
    }

    #[test]
    fn an_object_reads_as_its_json() {
        let target = [&[0x08, 1][..], &[0x10, 0], &field(3, b"web")].concat();
        let port =
            [&field(1, b"")[..], &[0x18, 0x90, 0x3f], &field(4, &target), &[0x28, 0]].concat();
        let selector = field(2, &[field(1, b"app"), field(2, b"shop")].concat());
        let spec = [field(1, &port), selector, field(3, b"")].concat();
        let object = [field(1, &field(1, b"shop")), field(2, &spec)].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"},
            "spec": {"ports": [{"port": 8080, "targetPort": "web"}], "selector": {"app": "shop"}},
        });
        assert_eq!(read("Service", &body(&object)), Some(Ok(expected)));
    }

    #[test]
    fn a_body_that_is_no_known_object_is_refused() {
        let unknown = [&[0x78, 1][..]].concat();
        let cases = [
            (b"{}".to_vec(), "does not appear to be a protobuf message"),
            (body(&unknown), "field 15 is not known"),
            (body(&[0x0a, 200]), "unexpected EOF"),
            (body(&[0x80; 11]), "unexpected EOF"),
            (body(&[0x08, 1]), "wrong wire type of field 1 (metadata)"),
            (body(&[0x0d, 1, 2, 3, 4]), "unexpected EOF"),
        ];
        for (body, expected) in cases {
            let error = read("Service", &body).unwrap().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(read("Node", &body(b"")), None);
    }
}
