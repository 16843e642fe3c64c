//! Decodes an object as Go's `encoding/json` does when it fills a struct, and shows the object as Go writes that
//! struct.
//!
//! Unknown fields are dropped and reported. Null becomes the zero value. The field's `Presence` decides whether an
//! answer shows a zero value. A value of a wrong type is an error in the words of `encoding/json`.

use serde_json::{Map, Number, Value};

use super::{Field, Object, Presence, Type};

/// A decoded object in the form in which the API shows it, and the paths of the fields that its schema does not
/// contain.
#[derive(Debug)]
pub struct Decoded {
    pub value: Value,
    pub unknown: Vec<String>,
}

/// The error for a value that does not fit its type, in the words of Go's JSON decoder.
#[derive(Debug, PartialEq, Eq)]
pub struct DecodeError(pub String);

pub fn decode(object: &Object, value: &Value) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder { unknown: Vec::new() };
    let place = Place { owner: object.name, above: None, step: Step::Root };
    let value = decoder.object(object, value, &place)?;
    Ok(Decoded { value, unknown: decoder.unknown })
}

struct Decoder {
    unknown: Vec<String>,
}

/// The place of a value in its object: the chain of fields and list indexes that leads to the value. The chain is
/// converted to a text only for an error or a warning.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The name of the Go struct that contains the field. Go's error messages show it.
    owner: &'static str,
    above: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl Place<'_> {
    fn field<'b>(&'b self, owner: &'static str, name: &'b str) -> Place<'b> {
        self.below(owner, Step::Field(name))
    }

    fn item(&self, index: usize) -> Place<'_> {
        self.below(self.owner, Step::Item(index))
    }

    fn below<'b>(&'b self, owner: &'static str, step: Step<'b>) -> Place<'b> {
        Place { owner, above: Some(self), step }
    }

    /// Returns the path of a field without the indexes of list items, e.g. `spec.ports.port`. Go's errors contain paths
    /// in this form.
    fn go_path(&self) -> String {
        let above = self.above.map_or_else(String::new, Place::go_path);
        match self.step {
            Step::Field(name) => join(&above, name),
            Step::Root | Step::Item(_) => above,
        }
    }

    /// Returns the path of a field with the indexes of list items, e.g. `spec.ports[0].port`. Warnings contain paths in
    /// this form.
    fn path(&self) -> String {
        let above = self.above.map_or_else(String::new, Place::path);
        match self.step {
            Step::Root => above,
            Step::Field(name) => join(&above, name),
            Step::Item(index) => format!("{above}[{index}]"),
        }
    }

    fn mismatch(&self, value: &Value, wanted: Type) -> DecodeError {
        let found = match value {
            Value::Null => "null".to_string(),
            Value::Bool(_) => "bool".into(),
            Value::Number(number) if matches!(wanted, Type::Int32 | Type::Int64) => {
                format!("number {number}")
            }
            Value::Number(_) => "number".into(),
            Value::String(_) => "string".into(),
            Value::Array(_) => "array".into(),
            Value::Object(_) => "object".into(),
        };
        let go_path = self.go_path();
        let of = if go_path.is_empty() {
            format!("Go value of type {}", go_type(wanted))
        } else {
            format!("Go struct field {}.{go_path} of type {}", self.owner, go_type(wanted))
        };
        DecodeError(format!("json: cannot unmarshal {found} into {of}"))
    }
}

impl Decoder {
    fn object(
        &mut self,
        object: &Object,
        value: &Value,
        place: &Place,
    ) -> Result<Value, DecodeError> {
        let empty = Map::new();
        let given = match value {
            Value::Object(given) => given,
            Value::Null => &empty,
            other => return Err(place.mismatch(other, Type::String).of_struct(object)),
        };
        for name in given.keys().filter(|name| object.field(name).is_none()) {
            self.unknown.push(join(&place.path(), name));
        }
        let mut shown = Map::new();
        for field in object.fields {
            let value = given.get(field.name).unwrap_or(&Value::Null);
            let place = place.field(object.name, field.name);
            if let Some(value) = self.field(field, value, &place)? {
                shown.insert(field.name.into(), value);
            }
        }
        Ok(Value::Object(shown))
    }

    fn field(
        &mut self,
        field: &Field,
        value: &Value,
        place: &Place,
    ) -> Result<Option<Value>, DecodeError> {
        if value.is_null() && field.presence != Presence::Always {
            return Ok(None);
        }
        let value = self.value(field.kind, value, place)?;
        Ok((field.presence != Presence::NonZero || !is_zero(&value)).then_some(value))
    }

    fn value(&mut self, kind: Type, value: &Value, place: &Place) -> Result<Value, DecodeError> {
        if let Type::Object(object) = kind {
            return self.object(object, value, place);
        }
        if value.is_null() {
            return Ok(zero(kind));
        }
        match (kind, value) {
            (Type::Opaque, _)
            | (Type::String, Value::String(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::IntOrString, Value::String(_)) => Ok(value.clone()),
            (Type::Int32 | Type::Int64 | Type::IntOrString, Value::Number(number)) => {
                integer(kind, number).ok_or_else(|| place.mismatch(value, kind))
            }
            (Type::Time, Value::String(text)) => time(text, false),
            (Type::MicroTime, Value::String(text)) => time(text, true),
            (Type::Strings | Type::Quantities, Value::Object(map)) => strings(kind, map, place),
            (Type::List(item, _), Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, value)| self.value(*item, value, &place.item(index)))
                .collect(),
            _ => Err(place.mismatch(value, kind)),
        }
    }
}

impl DecodeError {
    /// Returns this error with another Go type at its end: the struct of `object`. Go reports an error with this type
    /// when a value should be an object but is, for example, a number.
    fn of_struct(self, object: &Object) -> DecodeError {
        match self.0.rsplit_once(" of type ") {
            Some((start, _)) => DecodeError(format!("{start} of type {}", object.go())),
            None => self,
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

fn go_type(kind: Type) -> String {
    match kind {
        Type::String | Type::IntOrString => "string".into(),
        Type::Bool => "bool".into(),
        Type::Int32 => "int32".into(),
        Type::Int64 => "int64".into(),
        Type::Time => "v1.Time".into(),
        Type::MicroTime => "v1.MicroTime".into(),
        Type::Strings => "map[string]string".into(),
        Type::Quantities => "v1.ResourceList".into(),
        Type::List(item, _) => format!("[]{}", go_type(*item)),
        Type::Object(object) => object.go(),
        Type::Opaque => "v1.RawExtension".into(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn zero(kind: Type) -> Value {
    match kind {
        Type::String => "".into(),
        Type::Bool => false.into(),
        Type::Int32 | Type::Int64 | Type::IntOrString => 0.into(),
        Type::Strings | Type::Quantities => Value::Object(Map::new()),
        Type::Object(_) | Type::List(..) | Type::Time | Type::MicroTime | Type::Opaque => {
            Value::Null
        }
    }
}

fn integer(kind: Type, number: &Number) -> Option<Value> {
    let value = number.as_i64()?;
    let fits = kind == Type::Int64 || i32::try_from(value).is_ok();
    fits.then(|| value.into())
}

fn strings(kind: Type, map: &Map<String, Value>, place: &Place) -> Result<Value, DecodeError> {
    let mut shown = Map::new();
    for (key, value) in map {
        let value = match value {
            Value::Null => Value::String(String::new()),
            Value::String(_) => value.clone(),
            // Quantities such as `cpu: 2` can be sent as numbers, and answers show them as strings.
            Value::Number(number) if kind == Type::Quantities => number.to_string().into(),
            other => return Err(place.mismatch(other, Type::String)),
        };
        shown.insert(key.clone(), value);
    }
    Ok(Value::Object(shown))
}

/// Reads a time as Go's `time.Parse` does. The result is in UTC, and has six decimals for a `MicroTime`.
fn time(text: &str, micro: bool) -> Result<Value, DecodeError> {
    check_layout(text, micro)?;
    let parsed: jiff::Timestamp = text
        .parse()
        .map_err(|_| DecodeError(format!("parsing time {text:?}: day out of range")))?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(parsed.strftime(format).to_string().into())
}

/// Checks part by part whether a text has the layout that Go demands of a time: `2006-01-02T15:04:05Z07:00`, or six
/// decimals after the seconds when `micro` is true. The error names the first part that does not fit, in Go's words.
fn check_layout(text: &str, micro: bool) -> Result<(), DecodeError> {
    const DATE_TIME: [&str; 11] = ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"];
    let layout =
        if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let fail = |rest: &str, piece: &str| {
        Err(DecodeError(format!(
            "parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {piece:?}"
        )))
    };
    let mut rest = text;
    for piece in DATE_TIME {
        match after(rest, piece) {
            Some(tail) => rest = tail,
            None => return fail(rest, piece),
        }
    }
    let digits = rest
        .strip_prefix('.')
        .map_or(0, |tail| tail.bytes().take_while(u8::is_ascii_digit).count());
    if micro && digits != 6 {
        return fail(rest, ".000000");
    }
    if digits > 0 {
        rest = &rest[1 + digits..];
    }
    let zone = ["+00:00", "-00:00"].iter().any(|shape| after(rest, shape) == Some(""));
    if rest == "Z" || zone { Ok(()) } else { fail(rest, "Z07:00") }
}

/// Returns the rest of `text` when its beginning matches `piece`, or else `None`. A digit in `piece` stands for any
/// digit.
fn after<'a>(text: &'a str, piece: &str) -> Option<&'a str> {
    let fits = text.len() >= piece.len()
        && piece.bytes().zip(text.bytes()).all(|(wanted, found)| match wanted {
            b'0'..=b'9' => found.is_ascii_digit(),
            _ => wanted == found,
        });
    if fits { text.get(piece.len()..) } else { None }
}

impl PartialEq for Type {
    /// Whether two types are the same variant of this enum. Types inside lists and structs are not compared.
    fn eq(&self, other: &Type) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{LEASE, NODE, SERVICE};
    use super::*;

    #[test]
    fn a_value_of_the_wrong_type_is_reported_in_go_s_words() {
        let cases = [
            (
                &NODE,
                json!({"spec": {"taints": "x"}}),
                "json: cannot unmarshal string into Go struct field NodeSpec.spec.taints of type []v1.Taint",
            ),
            (
                &NODE,
                json!({"metadata": {"labels": {"a": 1}}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                &SERVICE,
                json!({"spec": {"ports": [{"port": "80"}]}}),
                "json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32",
            ),
            (
                &SERVICE,
                json!({"spec": []}),
                "json: cannot unmarshal array into Go struct field Service.spec of type v1.ServiceSpec",
            ),
            (
                &LEASE,
                json!({"spec": {"renewTime": "2026-11-20T10:00:02Z"}}),
                r#"parsing time "2026-11-20T10:00:02Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
        ];
        for (object, value, expected) in cases {
            let error = decode(object, &value).expect_err(expected);
            assert_eq!(error.0, expected);
        }
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let given = json!({"spec": {"nothing": 1, "ports": [{"port": 80, "prot": "TCP"}]}, "x": 1});
        let decoded = decode(&SERVICE, &given).expect("fits");
        assert_eq!(decoded.unknown, ["x", "spec.nothing", "spec.ports[0].prot"]);
        assert_eq!(decoded.value["spec"], json!({"ports": [{"port": 80, "targetPort": 0}]}));
    }

    #[test]
    fn zero_values_are_shown_where_go_shows_them() {
        let given = json!({"spec": {"leaseDurationSeconds": 0, "holderIdentity": "", "renewTime": null,
            "acquireTime": "2026-11-20T11:00:00.100000+01:00"}});
        let decoded = decode(&LEASE, &given).expect("fits");
        let expected = json!({"leaseDurationSeconds": 0, "holderIdentity": "",
            "acquireTime": "2026-11-20T10:00:00.100000Z"});
        assert_eq!(decoded.value["spec"], expected);
    }
}
