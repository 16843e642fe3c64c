//! Nodes as a table, what `kubectl get` shows: a sixtieth of their bytes, and enough to see
//! that something happened. Never the ground for a write.

use super::labels::Labels;
use super::types::{ListMeta, Page};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::time::Duration;

/// What a table's rows carry beside their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing: about 200 bytes a node.
    Cells,
    /// The metadata: about 1,100 bytes a node.
    Metadata,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub name: String,
    pub is_ready: bool,
    /// None: the server does not know, or says it in a way that we do not.
    pub age: Option<Age>,
    /// With [`Detail::Metadata`].
    pub meta: Option<RowMeta>,
}

/// What is read of a row's metadata.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RowMeta {
    pub uid: String,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default, rename = "deletionTimestamp", deserialize_with = "is_set")]
    pub is_being_deleted: bool,
}

fn is_set<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(d)?.is_some())
}

/// How long an object has been there, as exactly as a table says it: `5d3h` is at least that,
/// and an hour later something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    pub at_least: Duration,
    pub less_than: Duration,
}

impl Age {
    /// As `apimachinery`'s `HumanDuration` writes it: `90s`, `5m3s`, `3h`, `5d3h`, `2y40d`.
    pub fn parse(text: &str) -> Option<Age> {
        let (mut seconds, mut unit_s) = (0_u64, u64::MAX);
        for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
            let (count, unit) = part.split_at(part.rfind(|c: char| !c.is_ascii_digit())?);
            let smaller_s = match unit {
                "y" => 365 * 86_400,
                "d" => 86_400,
                "h" => 3_600,
                "m" => 60,
                "s" => 1,
                _ => return None,
            };
            if smaller_s >= unit_s {
                return None;
            }
            unit_s = smaller_s;
            let count: u64 = count.parse().ok()?;
            seconds = seconds.checked_add(count.checked_mul(unit_s)?)?;
        }
        // What is left out is a zero or too small to be said: `2d` may be 2 days and 59 minutes
        // or 2 days and 23 hours.
        let less_than = (unit_s != u64::MAX).then(|| seconds.checked_add(unit_s))??;
        Some(Age {
            at_least: Duration::from_secs(seconds),
            less_than: Duration::from_secs(less_than),
        })
    }
}

/// One page of a table, as it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TablePage {
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    column_definitions: Vec<Column>,
    /// Go writes a nil slice as `null`.
    rows: Option<Vec<Row>>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

/// With these every table of nodes begins. The columns behind them are most of a table and are not kept.
const COLUMNS: [&str; 4] = ["Name", "Status", "Roles", "Age"];

/// The error: why it can't be read.
#[derive(Deserialize)]
#[serde(from = "SentRow")]
struct Row(Result<NodeRow, String>);

#[derive(Deserialize)]
struct SentRow {
    cells: Vec<Value>,
    object: Option<RowObject>,
}

#[derive(Deserialize)]
struct RowObject {
    metadata: RowMeta,
}

impl Page for TablePage {
    type Item = NodeRow;

    fn add_to(self, items: &mut Vec<NodeRow>, _kind: &str) -> Result<String, String> {
        if self.kind != "Table" {
            return Err(format!("it is a {:?}", self.kind));
        }
        let columns = self.column_definitions.iter().map(|column| &column.name);
        if !columns.take(COLUMNS.len()).eq(COLUMNS) {
            return Err(format!("its first columns are not {}", COLUMNS.join(", ")));
        }
        for row in self.rows.unwrap_or_default() {
            items.push(row.0?);
        }
        Ok(self.metadata.continue_token)
    }
}

impl From<SentRow> for Row {
    fn from(row: SentRow) -> Row {
        let mut cells = row.cells.into_iter();
        let [
            Some(Value::String(name)),
            Some(Value::String(status)),
            _,
            Some(Value::String(age)),
        ] = [(); COLUMNS.len()].map(|()| cells.next())
        else {
            return Row(Err(
                "a row has no text in one of its first columns".to_owned()
            ));
        };
        // A cordoned node reads `Ready,SchedulingDisabled`.
        let is_ready = match status.split(',').next().unwrap_or_default() {
            "Ready" => true,
            "NotReady" | "Unknown" => false,
            other => return Row(Err(format!("node {name:?} has the status {other:?}"))),
        };
        Row(Ok(NodeRow {
            name,
            is_ready,
            age: Age::parse(&age),
            meta: row.object.map(|object| object.metadata),
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn ages_as_go_writes_them() {
        let (minute, hour, day) = (60, 3_600, 86_400);
        let cases = [
            ("0s", Some((0, 1))),
            ("119s", Some((119, 120))),
            ("5m3s", Some((5 * minute + 3, 5 * minute + 4))),
            ("10m", Some((10 * minute, 11 * minute))),
            ("3h", Some((3 * hour, 4 * hour))),
            ("7h59m", Some((7 * hour + 59 * minute, 8 * hour))),
            ("5d3h", Some((5 * day + 3 * hour, 5 * day + 4 * hour))),
            ("200d", Some((200 * day, 201 * day))),
            ("2y40d", Some((770 * day, 771 * day))),
            ("", None), ("<unknown>", None), ("<invalid>", None), ("5", None), ("h", None), ("3h5d", None),
            ("5 d", None), ("1s1s", None), ("-1s", None), ("99999999999999999999y", None), ("18446744073709551615y", None),
            ("5ä", None),
        ];
        for (text, expected) in cases {
            let seconds = Age::parse(text).map(|age| (age.at_least.as_secs(), age.less_than.as_secs()));
            assert_eq!(seconds, expected, "{text}");
        }
    }

    fn table(columns: &[&str], rows: Value) -> Value {
        let columns: Vec<Value> = columns.iter().map(|name| json!({ "name": name })).collect();
        json!({ "kind": "Table", "metadata": {}, "columnDefinitions": columns, "rows": rows })
    }

    fn read(table: &Value) -> Result<Vec<NodeRow>, String> {
        nodes(&table.to_string())
    }

    fn nodes(page: &str) -> Result<Vec<NodeRow>, String> {
        let page: TablePage = serde_json::from_str(page).unwrap();
        let mut rows = Vec::new();
        page.add_to(&mut rows, "Table").map(|_| rows)
    }

    #[test]
    fn rows_are_read_by_their_first_columns() {
        let rows = json!([
            { "cells": ["a", "Ready,SchedulingDisabled", 7, "5d3h", "more"], "object": null },
            { "cells": ["b", "NotReady", null, "0s", {}], "object": { "metadata": {
                "uid": "u", "labels": { "k": "v" }, "deletionTimestamp": "2026-01-01T00:00:00Z",
            } } },
            { "cells": ["c", "Unknown", {}, "<unknown>"], "object": { "metadata": { "uid": "w" } } },
        ]);
        let rows = read(&table(&["Name", "Status", "Roles", "Age", "Pods"], rows)).unwrap();
        let meta = |uid: &str, labels: Labels, is_being_deleted| RowMeta {
            uid: uid.into(),
            labels,
            is_being_deleted,
        };
        let labels = Labels::from_iter([("k", "v")]);
        let expected = [
            ("a", true, Age::parse("5d3h"), None),
            ("b", false, Age::parse("0s"), Some(meta("u", labels, true))),
            ("c", false, None, Some(meta("w", Labels::default(), false))),
        ];
        let expected = expected.map(|(name, is_ready, age, meta)| NodeRow {
            name: name.into(),
            is_ready,
            age,
            meta,
        });
        assert_eq!(rows, expected);
        for none in [json!([]), json!(null)] {
            let none = read(&table(&COLUMNS, none));
            assert_eq!(none, Ok(Vec::new()));
        }
    }

    #[test]
    fn what_can_t_be_read_is_reported_with_its_reason() {
        let row = |cells: Value| json!([{ "cells": cells }, { "cells": ["b", "Ready", "", "1s"] }]);
        let mut list = table(&COLUMNS, json!([]));
        list["kind"] = json!("NodeList");
        let cases = [
            (
                table(&["Name", "Status", "Age", "Roles"], json!([])),
                "not Name, Status",
            ),
            (table(&[], json!([])), "not Name, Status"),
            (
                table(&COLUMNS, row(json!(["a", true, "", "1s"]))),
                "no text in one",
            ),
            (
                table(&COLUMNS, row(json!(["a", "Ready", ""]))),
                "no text in one",
            ),
            (
                table(&COLUMNS, row(json!(["a", "Bereit", "", "1s"]))),
                "the status \"Bereit\"",
            ),
            (list, "NodeList"),
        ];
        for (table, expected) in cases {
            let why = read(&table).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        for text in [r#"{"kind":"Table"}"#, r#"{"kind":"Table","rows":[]}"#] {
            assert!(nodes(text).is_err());
        }
    }
}
