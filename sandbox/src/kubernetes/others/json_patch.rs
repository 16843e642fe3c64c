//! JSON patch (RFC 6902), which is a list of operations. Either all operations are applied or none.

use serde::Deserialize;
use serde_json::Value;

use crate::kubernetes::status::Refusal;

/// The largest number of operations in one patch. kube-apiserver has the same limit.
const MOST_OPERATIONS: usize = 10_000;

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Operation {
    Add { path: String, value: Value },
    Remove { path: String },
    Replace { path: String, value: Value },
    Move { from: String, path: String },
    Copy { from: String, path: String },
    Test { path: String, value: Value },
}

pub fn apply(current: &Value, patch: &Value) -> Result<Value, Refusal> {
    let operations: Vec<Operation> = Deserialize::deserialize(patch)
        .map_err(|why| Refusal::bad_request(format!("error decoding patch: {why}")))?;
    if operations.len() > MOST_OPERATIONS {
        let why = format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(Refusal::bad_request(why));
    }
    let mut patched = current.clone();
    for operation in operations {
        step(&mut patched, operation).ok_or_else(Refusal::unprocessable)?;
    }
    Ok(patched)
}

/// Applies one operation of a JSON patch. Returns `None` when the operation is impossible, e.g. because the object has
/// no value at the operation's path.
fn step(object: &mut Value, operation: Operation) -> Option<()> {
    match operation {
        Operation::Add { path, value } => add(object, &path, value),
        Operation::Remove { path } => remove(object, &path).map(drop),
        Operation::Replace { path, value } => {
            *object.pointer_mut(&path)? = value;
            Some(())
        }
        Operation::Move { from, path } => {
            let value = remove(object, &from)?;
            add(object, &path, value)
        }
        Operation::Copy { from, path } => {
            let value = object.pointer(&from)?.clone();
            add(object, &path, value)
        }
        Operation::Test { path, value } => {
            (object.pointer(&path).unwrap_or(&Value::Null) == &value).then_some(())
        }
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    let (parent, last) = split(path)?;
    match object.pointer_mut(parent)? {
        Value::Object(map) => {
            map.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(&last).filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = split(path)?;
    match object.pointer_mut(parent)? {
        Value::Object(map) => map.remove(&last),
        Value::Array(items) => {
            let index = index(&last).filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

/// Splits a JSON pointer. Returns the pointer of the parent, and the last part without escapes.
fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn index(part: &str) -> Option<usize> {
    let leading_zero = part.len() > 1 && part.starts_with('0');
    if leading_zero || part.starts_with('+') { None } else { part.parse().ok() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_operation_of_a_json_patch_has_its_result() {
        let object = json!({"a": {"b/c": 1}, "l": [1, 2]});
        let cases = [
            (
                json!([{"op": "add", "path": "/a/d", "value": 2}]),
                Some(json!({"a": {"b/c": 1, "d": 2}, "l": [1, 2]})),
            ),
            (
                json!([{"op": "replace", "path": "/a/b~1c", "value": 2}]),
                Some(json!({"a": {"b/c": 2}, "l": [1, 2]})),
            ),
            (json!([{"op": "remove", "path": "/a"}]), Some(json!({"l": [1, 2]}))),
            (
                json!([{"op": "add", "path": "/l/-", "value": 3}]),
                Some(json!({"a": {"b/c": 1}, "l": [1, 2, 3]})),
            ),
            (
                json!([{"op": "add", "path": "/l/0", "value": 0}]),
                Some(json!({"a": {"b/c": 1}, "l": [0, 1, 2]})),
            ),
            (
                json!([{"op": "move", "from": "/l/0", "path": "/x"}]),
                Some(json!({"a": {"b/c": 1}, "l": [2], "x": 1})),
            ),
            (
                json!([{"op": "copy", "from": "/l/0", "path": "/x"}]),
                Some(json!({"a": {"b/c": 1}, "l": [1, 2], "x": 1})),
            ),
            (json!([{"op": "test", "path": "/l/0", "value": 1}]), Some(object.clone())),
            (json!([{"op": "test", "path": "/l/0", "value": 2}]), None),
            (json!([{"op": "remove", "path": "/none/x"}]), None),
            (json!([{"op": "replace", "path": "/none", "value": 1}]), None),
            (json!([{"op": "add", "path": "/none/x", "value": 1}]), None),
            (json!([{"op": "add", "path": "/l/9", "value": 1}]), None),
            (json!([{"op": "nonsense", "path": "/l"}]), None),
            (json!({}), None),
        ];
        for (patch, expected) in cases {
            assert_eq!(apply(&object, &patch).ok(), expected, "{patch}");
        }
    }
}
