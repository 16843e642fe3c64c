//! Nodes as a table, which is what `kubectl get` shows. A table has a sixtieth of the bytes of a list of nodes. A table
//! is enough to see which nodes are new, deleted, ready or not ready. When the table also contains the metadata of the
//! nodes, it shows which labels have changed. A write is never based on a table. Tables of other objects are read in
//! the same way.

use super::labels::Labels;
use super::types::{ListMeta, PageForm};
use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;

/// Which data about a node the API server puts into each row of a table of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A row has only its cells (the texts of the columns), which are about 200 bytes for each node.
    Cells,
    /// A row has its cells (the texts of the columns) and the metadata of the node, together about 1,100 bytes for each
    /// node.
    Metadata,
}

/// A row of the table of nodes. Each row is one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub name: String,
    pub is_ready: bool,
    pub is_cordoned: bool,
    /// The metadata of the node. `None` when the table was requested with [`Detail::Cells`], i.e. without metadata.
    pub meta: Option<RowMeta>,
}

/// The metadata of the node in a row. Fields that are not used are not read.
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

/// One page of a table with rows `R`, as the API server sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TablePage<R> {
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    column_definitions: Vec<Column>,
    /// The rows of the page. They are `None` when the API server, a Go program, has written an empty slice as `null`.
    rows: Option<Vec<R>>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

/// A row of a table, as the API server sends it.
pub(super) trait RowForm: DeserializeOwned {
    type Item;
    /// The names of the first columns of the table. Further columns are not read.
    const COLUMNS: &'static [&'static str];
    /// A limit for a table that is read page by page. When more rows than this number were read, no further page is
    /// requested. By default there is no limit.
    const ROWS_AT_MOST: usize = usize::MAX;

    /// Returns the data of the row, or the reason why the row cannot be used.
    fn read(self) -> Result<Self::Item, String>;
}

/// A row of the table of nodes, or the reason why the row cannot be used.
#[derive(Deserialize)]
#[serde(from = "SentRow")]
pub(super) struct NodeTableRow(Result<NodeRow, String>);

impl RowForm for NodeTableRow {
    type Item = NodeRow;
    /// The columns that are read. The other columns make up most of a table of nodes and are skipped.
    const COLUMNS: &'static [&'static str] = &["Name", "Status"];

    fn read(self) -> Result<NodeRow, String> {
        self.0
    }
}

#[derive(Deserialize)]
struct SentRow {
    cells: FirstCells,
    object: Option<RowObject>,
}

/// The texts of the first two cells of a row. `None` when one of them is missing or is not a text. The other cells are
/// skipped without being stored, because most rows of most tables have not changed.
struct FirstCells(Option<(String, String)>);

impl<'de> Deserialize<'de> for FirstCells {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<FirstCells, D::Error> {
        d.deserialize_seq(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = FirstCells;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cells of a row")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut cells: A) -> Result<FirstCells, A::Error> {
        let first = [cells.next_element::<Value>()?, cells.next_element::<Value>()?];
        while cells.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FirstCells(match first {
            [Some(Value::String(name)), Some(Value::String(status))] => Some((name, status)),
            _ => None,
        }))
    }
}

#[derive(Deserialize)]
struct RowObject {
    metadata: RowMeta,
}

impl<R: RowForm> PageForm for TablePage<R> {
    type Item = R::Item;

    fn add_to(self, items: &mut Vec<R::Item>, _kind: &str) -> Result<String, String> {
        if self.kind != "Table" {
            return Err(format!("the answer is a {:?} instead of a Table", self.kind));
        }
        let columns = self.column_definitions.iter().map(|column| &column.name);
        if !columns.take(R::COLUMNS.len()).eq(R::COLUMNS) {
            return Err(format!(
                "the first columns of the table are not {}",
                R::COLUMNS.join(", ")
            ));
        }
        for row in self.rows.unwrap_or_default() {
            items.push(row.read()?);
        }
        let is_enough = items.len() > R::ROWS_AT_MOST;
        Ok(if is_enough { String::new() } else { self.metadata.continue_token })
    }
}

impl From<SentRow> for NodeTableRow {
    fn from(row: SentRow) -> NodeTableRow {
        let FirstCells(Some((name, status))) = row.cells else {
            return NodeTableRow(Err(
                "a row of the table has no text in one of the first columns".to_owned()
            ));
        };
        // The status of a cordoned node is `Ready,SchedulingDisabled`. Only the part before the comma says whether the
        // node is ready.
        let mut states = status.split(',');
        let is_ready = match states.next().unwrap_or_default() {
            "Ready" => true,
            "NotReady" | "Unknown" => false,
            other => {
                return NodeTableRow(Err(format!(
                    "node {name:?} has the unknown status {other:?}"
                )));
            }
        };
        let is_cordoned = states.any(|state| state == "SchedulingDisabled");
        let meta = row.object.map(|object| object.metadata);
        NodeTableRow(Ok(NodeRow { name, is_ready, is_cordoned, meta }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table(columns: &[&str], rows: Value) -> Value {
        let columns: Vec<Value> = columns.iter().map(|name| json!({ "name": name })).collect();
        json!({ "kind": "Table", "metadata": {}, "columnDefinitions": columns, "rows": rows })
    }

    fn read(table: &Value) -> Result<Vec<NodeRow>, String> {
        nodes(&table.to_string())
    }

    fn nodes(page: &str) -> Result<Vec<NodeRow>, String> {
        let page: TablePage<NodeTableRow> = serde_json::from_str(page).unwrap();
        let mut rows = Vec::new();
        page.add_to(&mut rows, "Table").map(|_| rows)
    }

    const COLUMNS: &[&str] = NodeTableRow::COLUMNS;

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
            ("a", true, true, None),
            ("b", false, false, Some(meta("u", labels, true))),
            ("c", false, false, Some(meta("w", Labels::default(), false))),
        ];
        let expected = expected.map(|(name, is_ready, is_cordoned, meta)| NodeRow {
            name: name.into(),
            is_ready,
            is_cordoned,
            meta,
        });
        assert_eq!(rows, expected);
        for none in [json!([]), json!(null)] {
            let none = read(&table(COLUMNS, none));
            assert_eq!(none, Ok(Vec::new()));
        }
    }

    #[test]
    fn what_can_t_be_read_is_reported_with_its_reason() {
        let row = |cells: Value| json!([{ "cells": cells }, { "cells": ["b", "Ready", "", "1s"] }]);
        let mut list = table(COLUMNS, json!([]));
        list["kind"] = json!("NodeList");
        let cases = [
            (table(&["Name", "Age", "Status"], json!([])), "not Name, Status"),
            (table(&[], json!([])), "not Name, Status"),
            (table(COLUMNS, row(json!(["a", true, "", "1s"]))), "no text in one"),
            (table(COLUMNS, row(json!(["a"]))), "no text in one"),
            (
                table(COLUMNS, row(json!(["a", "Bereit", "", "1s"]))),
                "the unknown status \"Bereit\"",
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
