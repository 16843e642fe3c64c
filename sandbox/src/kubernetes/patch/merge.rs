//! JSON merge patch, RFC 7386: objects are merged, null removes a field, everything else replaces the value.

use serde_json::{Map, Value};

pub fn apply(current: Value, patch: &Value) -> Value {
    let Some(changes) = patch.as_object() else {
        return patch.clone();
    };
    let mut merged = match current {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    for (name, change) in changes {
        let before = merged.remove(name);
        if !change.is_null() {
            let after = apply(before.unwrap_or_default(), change);
            merged.insert(name.clone(), after);
        }
    }
    Value::Object(merged)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_gives_the_results_of_the_rfc() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (current, patch, expected) in cases {
            assert_eq!(apply(current, &patch), expected, "{patch}");
        }
    }
}
