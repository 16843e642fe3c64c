//! Strategic merge patch. Unlike a JSON merge patch, it can merge the items of lists.
//!
//! The schema says how a list is merged: by a key field of its items, or as a set. All other lists are replaced by the
//! list in the patch. The patch can contain these directives: `$patch` (`replace`, `delete`, `merge`),
//! `$deleteFromPrimitiveList/FIELD`, `$setElementOrder/FIELD` and `$retainKeys`. In a merged list, the items that the
//! patch contains come in the order that they have in the patch. All other items keep their place.

use serde_json::{Map, Value};

use crate::kubernetes::schema::{Merge, Object, Type};
use crate::kubernetes::status::Refusal;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

pub fn apply(schema: &Object, current: Value, patch: &Value) -> Result<Value, Refusal> {
    object(Some(schema), current, patch)
}

/// Patches an object. `schema` is `None` when the object is a value in a map or in a field whose type the schema does
/// not describe. Such an object is patched as by a JSON merge patch, except that directives such as `$patch` still have
/// their effect.
fn object(schema: Option<&Object>, current: Value, patch: &Value) -> Result<Value, Refusal> {
    let Some(changes) = patch.as_object() else {
        return Ok(patch.clone());
    };
    match directive(changes)? {
        Some(Directive::Replace) => return Ok(Value::Object(without_directives(changes))),
        Some(Directive::Delete) => return Ok(Value::Object(Map::new())),
        Some(Directive::Merge) | None => {}
    }
    let mut merged = match current {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    if let Some(kept) = changes.get(RETAIN_KEYS) {
        let kept = kept.as_array().ok_or_else(bad_directive)?;
        merged.retain(|name, _| kept.iter().any(|one| one == name));
    }
    for name in mentioned_fields(changes) {
        let before = merged.remove(name).unwrap_or_default();
        let kind = schema.and_then(|schema| schema.field(name)).map(|field| field.kind);
        if let Some(after) = field(kind, before, name, changes)? {
            merged.insert(name.to_string(), after);
        }
    }
    Ok(Value::Object(merged))
}

/// Applies the patch `changes` to the field `name`, whose value before the patch is `before`. Returns the new value, or
/// `None` when the patch removes the field.
fn field(
    kind: Option<Type>,
    before: Value,
    name: &str,
    changes: &Map<String, Value>,
) -> Result<Option<Value>, Refusal> {
    let change = changes.get(name);
    if change.is_some_and(Value::is_null) {
        return Ok(None);
    }
    match (kind, change) {
        (Some(Type::List(item, merge @ (Merge::ByKey(_) | Merge::Set))), change) => {
            let directives = ListDirectives {
                order: list_directive(changes, SET_ELEMENT_ORDER, name)?,
                deleted: list_directive(changes, DELETE_FROM_PRIMITIVE_LIST, name)?,
            };
            list(*item, merge, &before, change, &directives).map(Some)
        }
        (Some(Type::Object(schema)), Some(change)) => {
            object(Some(schema), before, change).map(Some)
        }
        (_, Some(change)) if change.is_object() => object(None, before, change).map(Some),
        (_, Some(change)) => Ok(Some(change.clone())),
        (_, None) => Ok((!before.is_null()).then_some(before)),
    }
}

enum Directive {
    Replace,
    Delete,
    Merge,
}

fn directive(changes: &Map<String, Value>) -> Result<Option<Directive>, Refusal> {
    match changes.get(PATCH) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some("replace") => Ok(Some(Directive::Replace)),
            Some("delete") => Ok(Some(Directive::Delete)),
            Some("merge") => Ok(Some(Directive::Merge)),
            _ => Err(Refusal::bad_request(format!("unknown patch type found: {value}"))),
        },
    }
}

fn bad_directive() -> Refusal {
    Refusal::bad_request("invalid patch format of a directive list")
}

fn without_directives(changes: &Map<String, Value>) -> Map<String, Value> {
    changes
        .iter()
        .filter(|(name, _)| !name.starts_with('$'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the names of the fields that a patch changes. A patch can change a field by its name, or by a directive such
/// as `$setElementOrder/FIELD`.
fn mentioned_fields(changes: &Map<String, Value>) -> Vec<&str> {
    let mut fields: Vec<&str> = Vec::new();
    for name in changes.keys() {
        let field = name
            .strip_prefix(SET_ELEMENT_ORDER)
            .or_else(|| name.strip_prefix(DELETE_FROM_PRIMITIVE_LIST))
            .unwrap_or(name);
        if !field.starts_with('$') && !fields.contains(&field) {
            fields.push(field);
        }
    }
    fields
}

struct ListDirectives<'a> {
    order: Option<&'a [Value]>,
    deleted: Option<&'a [Value]>,
}

fn list_directive<'a>(
    changes: &'a Map<String, Value>,
    prefix: &str,
    name: &str,
) -> Result<Option<&'a [Value]>, Refusal> {
    match changes.get(&format!("{prefix}{name}")) {
        None => Ok(None),
        Some(list) => list.as_array().map(|items| Some(items.as_slice())).ok_or_else(bad_directive),
    }
}

fn list(
    item: Type,
    merge: Merge,
    before: &Value,
    change: Option<&Value>,
    directives: &ListDirectives,
) -> Result<Value, Refusal> {
    let none = Vec::new();
    let live = before.as_array().unwrap_or(&none);
    let change = match change {
        Some(change) => change.as_array().ok_or_else(Refusal::unprocessable)?,
        None => &none,
    };
    // An item `$patch: replace` in the patch means that the other items of the patch replace the whole list.
    let replaces = |item: &Value| item[PATCH] == "replace";
    if change.iter().any(replaces) {
        return Ok(change.iter().filter(|item| !replaces(item)).cloned().collect());
    }
    let mut merged: Vec<Value> = live.to_vec();
    merged.retain(|item| !directives.deleted.is_some_and(|deleted| deleted.contains(item)));
    for patched in change {
        merge_item(&mut merged, item, merge, patched)?;
    }
    let order = directives.order.unwrap_or(change);
    Ok(Value::Array(in_order(merged, order, live, merge)))
}

fn merge_item(
    merged: &mut Vec<Value>,
    item: Type,
    merge: Merge,
    patched: &Value,
) -> Result<(), Refusal> {
    if let Merge::ByKey(key) = merge
        && patched.get(key).is_none()
    {
        return Err(Refusal::unprocessable());
    }
    let place = position(merged, patched, merge);
    if patched[PATCH] == "delete" {
        merged.retain(|known| !same(known, patched, merge));
        return Ok(());
    }
    let schema = match item {
        Type::Object(schema) => Some(schema),
        _ => None,
    };
    match place {
        Some(index) => merged[index] = object(schema, merged[index].take(), patched)?,
        None => merged.push(object(schema, Value::Null, patched)?),
    }
    Ok(())
}

fn same(left: &Value, right: &Value, merge: Merge) -> bool {
    match merge {
        Merge::ByKey(key) => left[key] == right[key],
        Merge::Set | Merge::Atomic => left == right,
    }
}

fn position(items: &[Value], wanted: &Value, merge: Merge) -> Option<usize> {
    items.iter().position(|item| same(item, wanted, merge))
}

/// Sorts the items of a list after a patch was merged into it. `live` is the list before the patch. `order` contains
/// items in the order that the patch demands, and the result has them in this order.
///
/// All items that are not in `order` keep their order among themselves. Such an item comes before the first item of
/// `order` that it preceded in `live`. When it preceded none of them, or was not in `live`, it comes at the end.
fn in_order(merged: Vec<Value>, order: &[Value], live: &[Value], merge: Merge) -> Vec<Value> {
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(order, item, merge).is_some());
    named.sort_by_key(|item| position(order, item, merge));
    let mut sorted = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let limit = position(live, &item, merge);
        while let Some(other) = others.next_if(|other| {
            let stood = position(live, other, merge);
            stood.zip(limit).is_some_and(|(stood, limit)| stood < limit)
        }) {
            sorted.push(other);
        }
        sorted.push(item);
    }
    sorted.extend(others);
    sorted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::schema::{NODE, SERVICE};

    #[test]
    fn a_strategic_patch_merges_fields_and_lists_of_a_node() {
        let node = json!({
            "metadata": {"labels": {"a": "b"}, "finalizers": ["x/1", "x/2"]},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]},
        });
        let cases = [
            (
                "maps are merged, null removes",
                json!({"metadata": {"labels": {"a": null, "c": "d"}}}),
                "/metadata/labels",
                json!({"c": "d"}),
            ),
            (
                "a list without a key is replaced",
                json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
                "/spec/taints",
                json!([{"key": "b", "effect": "NoExecute"}]),
            ),
            (
                "a condition is merged by its type, in its place",
                json!({"status": {"conditions": [{"type": "Disk", "reason": "X"}]}}),
                "/status/conditions",
                json!([{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False", "reason": "X"}]),
            ),
            (
                "a new condition comes first",
                json!({"status": {"conditions": [{"type": "New", "status": "True"}]}}),
                "/status/conditions",
                json!([{"type": "New", "status": "True"}, {"type": "Ready", "status": "True"},
                    {"type": "Disk", "status": "False"}]),
            ),
            (
                "$patch: delete removes an item",
                json!({"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}),
                "/status/conditions",
                json!([{"type": "Disk", "status": "False"}]),
            ),
            (
                "$patch: replace replaces a list",
                json!({"status": {"conditions": [{"$patch": "replace"}, {"type": "Only", "status": "True"}]}}),
                "/status/conditions",
                json!([{"type": "Only", "status": "True"}]),
            ),
            (
                "$patch: replace replaces a map",
                json!({"metadata": {"labels": {"$patch": "replace", "z": "1"}}}),
                "/metadata/labels",
                json!({"z": "1"}),
            ),
            (
                "$setElementOrder sorts",
                json!({"status": {"$setElementOrder/conditions":
                    [{"type": "Disk"}, {"type": "New"}, {"type": "Ready"}],
                    "conditions": [{"type": "New", "status": "True"}]}}),
                "/status/conditions",
                json!([{"type": "Disk", "status": "False"}, {"type": "New", "status": "True"},
                    {"type": "Ready", "status": "True"}]),
            ),
            (
                "a set gains",
                json!({"metadata": {"finalizers": ["x/3", "x/1"]}}),
                "/metadata/finalizers",
                json!(["x/3", "x/1", "x/2"]),
            ),
            (
                "a set loses",
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/1"]}}),
                "/metadata/finalizers",
                json!(["x/2"]),
            ),
            (
                "$retainKeys keeps",
                json!({"metadata": {"$retainKeys": ["labels"], "labels": {"c": "d"}}}),
                "/metadata",
                json!({"labels": {"a": "b", "c": "d"}}),
            ),
        ];
        for (rule, patch, pointer, expected) in cases {
            let patched =
                apply(&NODE, node.clone(), &patch).unwrap_or_else(|why| panic!("{rule}: {why:?}"));
            assert_eq!(patched.pointer(pointer), Some(&expected), "{rule}");
        }
    }

    #[test]
    fn a_patch_that_cannot_be_merged_is_refused() {
        let service = json!({"spec": {"ports": [{"port": 80}]}});
        let cases = [
            (json!({"spec": {"ports": [{"name": "without the key"}]}}), 422),
            (json!({"spec": {"ports": "x"}}), 422),
            (json!({"spec": {"$patch": "nonsense"}}), 400),
            (json!({"spec": {"$setElementOrder/ports": "x"}}), 400),
        ];
        for (patch, code) in cases {
            let refusal = apply(&SERVICE, service.clone(), &patch).expect_err("refused");
            assert_eq!(refusal.code, code, "{patch}");
        }
    }
}
