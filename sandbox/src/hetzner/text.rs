//! Builds JSON as text. For a server with its prices, building a [`Value`] and converting it to text would take twenty
//! times as long.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde_json::Value;

/// A JSON document as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text(String);

impl Text {
    /// Returns an empty text. It stands for an answer without a JSON document.
    pub const fn none() -> Text {
        Text(String::new())
    }

    /// Wraps a text that is already a JSON document.
    pub fn of(json: String) -> Text {
        Text(json)
    }

    pub fn part(part: &impl Part) -> Text {
        let mut out = String::new();
        part.write(&mut out);
        Text(out)
    }

    /// Adds a field to the end of a JSON object that has at least one field. Nothing happens when `value` is `None`.
    pub fn and(mut self, name: &str, value: Option<Text>) -> Text {
        if let Some(value) = value {
            self.0.pop();
            let _ = write!(self.0, r#","{name}":{value}}}"#);
        }
        self
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    /// Parses the JSON text.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl From<Value> for Text {
    fn from(value: Value) -> Text {
        Text(value.to_string())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value that can be written as a part of a JSON document.
pub trait Part {
    fn write(&self, out: &mut String);
}

/// Builds a JSON document from JSON syntax with Rust expressions as values: `text!({"id": 1, "nested": {"none": null,
/// "empty": []}, "name": some_part})`.
macro_rules! text {
    ({ $($fields:tt)* }) => {{
        let mut out = String::with_capacity(256);
        $crate::hetzner::text::text!(@object out $($fields)*);
        $crate::hetzner::text::Text::of(out)
    }};
    (@object $out:ident $($fields:tt)*) => {
        $out.push('{');
        $crate::hetzner::text::text!(@fields $out $($fields)*);
        $out.push('}');
    };
    (@fields $out:ident) => {};
    (@fields $out:ident $key:literal : $($rest:tt)+) => {
        $out.push_str(concat!("\"", $key, "\":"));
        $crate::hetzner::text::text!(@value $out $($rest)+);
    };
    (@value $out:ident null $(, $($rest:tt)*)?) => {
        $out.push_str("null");
        $crate::hetzner::text::text!(@next $out $($($rest)*)?);
    };
    (@value $out:ident [] $(, $($rest:tt)*)?) => {
        $out.push_str("[]");
        $crate::hetzner::text::text!(@next $out $($($rest)*)?);
    };
    (@value $out:ident { $($fields:tt)* } $(, $($rest:tt)*)?) => {
        $crate::hetzner::text::text!(@object $out $($fields)*);
        $crate::hetzner::text::text!(@next $out $($($rest)*)?);
    };
    (@value $out:ident $value:expr $(, $($rest:tt)*)?) => {
        $crate::hetzner::text::Part::write(&$value, &mut $out);
        $crate::hetzner::text::text!(@next $out $($($rest)*)?);
    };
    (@next $out:ident) => {};
    (@next $out:ident $($rest:tt)+) => {
        $out.push(',');
        $crate::hetzner::text::text!(@fields $out $($rest)+);
    };
}
pub(in crate::hetzner) use text;

impl Part for Text {
    fn write(&self, out: &mut String) {
        out.push_str(&self.0);
    }
}

impl Part for str {
    fn write(&self, out: &mut String) {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if self.bytes().all(is_plain) {
            out.push('"');
            out.push_str(self);
            out.push('"');
        } else {
            Value::from(self).write(out);
        }
    }
}

impl Part for String {
    fn write(&self, out: &mut String) {
        self.as_str().write(out);
    }
}

/// Implements the trait `Part` (a value in a JSON document) for types whose `Display` output is already valid JSON.
macro_rules! displayed {
    ($($kind:ty)*) => {
        $(impl Part for $kind {
            fn write(&self, out: &mut String) {
                // Writing to a `String` never fails.
                let _ = write!(out, "{self}");
            }
        })*
    };
}
displayed!(bool i32 u16 u32 u64 usize Value);

impl<T: Part + ?Sized> Part for &T {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl<T: Part> Part for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Part> Part for [T] {
    fn write(&self, out: &mut String) {
        list(self, out);
    }
}

impl<T: Part, const N: usize> Part for [T; N] {
    fn write(&self, out: &mut String) {
        list(self, out);
    }
}

impl<T: Part> Part for Vec<T> {
    fn write(&self, out: &mut String) {
        list(self, out);
    }
}

impl<T: Part> Part for BTreeSet<T> {
    fn write(&self, out: &mut String) {
        list(self, out);
    }
}

impl Part for BTreeMap<String, String> {
    fn write(&self, out: &mut String) {
        out.push('{');
        for (index, (key, value)) in self.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            key.write(out);
            out.push(':');
            value.write(out);
        }
        out.push('}');
    }
}

fn list(items: impl IntoIterator<Item = impl Part>, out: &mut String) {
    out.push('[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        item.write(out);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_parsed_into_the_tree_that_its_indentation_shows() {
        let labels = BTreeMap::from([("a\"\\".to_owned(), "\n\u{1}ä".to_owned())]);
        let none: Option<u64> = None;
        let inner = text!({"x": 1.5_f64.to_string(), "y": [true, false]});
        let shown = text!({
            "id": 7, "none": none, "null": null, "empty": [], "nested": {"list": vec![Some(1_u64), None], "object": {}},
            "labels": labels, "inner": inner, "tree": json!({"a": [1.5]}), "set": BTreeSet::from([2_u64, 1]),
        });
        let expected = json!({
            "id": 7, "none": null, "null": null, "empty": [], "nested": {"list": [1, null], "object": {}},
            "labels": {"a\"\\": "\n\u{1}ä"}, "inner": {"x": "1.5", "y": [true, false]}, "tree": {"a": [1.5]},
            "set": [1, 2],
        });
        assert_eq!(shown.value(), expected);
        assert_eq!(text!({}).to_string(), "{}");
    }
}
