//! Nodes as a table, what `kubectl get` shows: a sixtieth of their bytes, and enough to see
//! that something happened. Never the ground for a write.

use super::labels::{Labels, Text};
use super::types::ListMeta;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::time::Duration;

/// What a table's rows carry beside their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing: about 200 bytes a node.
    Cells,
    /// The metadata: about 1,100 bytes a node.
    Metadata,
}

/// An answer that should be a table of nodes.
#[derive(Debug, PartialEq, Eq)]
pub enum NodeTable {
    Rows(Vec<NodeRow>),
    /// No table that can be read here; why.
    Unreadable(String),
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

impl Detail {
    /// The value of `includeObject`.
    pub(super) fn parameter(self) -> &'static str {
        match self {
            Detail::Cells => "None",
            Detail::Metadata => "Metadata",
        }
    }
}

impl Age {
    /// As `apimachinery`'s `HumanDuration` writes it: `90s`, `5m3s`, `3h`, `5d3h`, `2y40d`.
    pub fn parse(text: &str) -> Option<Age> {
        let mut seconds: u64 = 0;
        let mut unit_s = u64::MAX;
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            let count: u64 = rest[..digits].parse().ok()?;
            let unit = rest[digits..].chars().next()?;
            let smaller_s = match unit {
                'y' => 365 * 86_400,
                'd' => 86_400,
                'h' => 3_600,
                'm' => 60,
                's' => 1,
                _ => return None,
            };
            if smaller_s >= unit_s {
                return None;
            }
            unit_s = smaller_s;
            seconds = seconds.checked_add(count.checked_mul(unit_s)?)?;
            rest = &rest[digits + unit.len_utf8()..];
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

/// One page of a table.
pub(super) struct TablePage {
    pub(super) table: NodeTable,
    pub(super) meta: ListMeta,
}

/// Where the cells are that we read.
#[derive(Clone, Copy)]
struct Columns {
    name: usize,
    status: usize,
    age: usize,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

impl Columns {
    fn find(columns: &[Column]) -> Result<Columns, String> {
        let place = |name: &str| {
            let place = columns.iter().position(|column| column.name == name);
            place.ok_or_else(|| format!("it has no column {name}"))
        };
        Ok(Columns {
            name: place("Name")?,
            status: place("Status")?,
            age: place("Age")?,
        })
    }
}

impl<'de> Deserialize<'de> for TablePage {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<TablePage, D::Error> {
        struct Document;

        impl<'de> Visitor<'de> for Document {
            type Value = TablePage;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TablePage, A::Error> {
                document(map)
            }
        }

        d.deserialize_map(Document)
    }
}

/// The columns come before the rows, so the rows are read as they stream in.
fn document<'de, A: MapAccess<'de>>(mut map: A) -> Result<TablePage, A::Error> {
    let mut kind = String::new();
    let mut meta = ListMeta::default();
    let mut columns = Err("it names its columns after its rows, or not at all".to_owned());
    let mut rows = None;
    while let Some(key) = map.next_key::<String>()? {
        match (key.as_str(), &columns) {
            ("kind", _) => kind = map.next_value()?,
            ("metadata", _) => meta = map.next_value()?,
            ("columnDefinitions", _) => columns = Columns::find(&map.next_value::<Vec<Column>>()?),
            ("rows", Ok(columns)) => rows = Some(map.next_value_seed(Rows(*columns))?),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    let table = match (columns, rows) {
        _ if kind != "Table" => NodeTable::Unreadable(format!("it is a {kind:?}")),
        (Err(why), _) | (Ok(_), Some(Err(why))) => NodeTable::Unreadable(why),
        (Ok(_), Some(Ok(rows))) => NodeTable::Rows(rows),
        (Ok(_), None) => return Err(A::Error::missing_field("rows")),
    };
    Ok(TablePage { table, meta })
}

/// All rows; the inner error: why they can't be read.
struct Rows(Columns);

impl<'de> DeserializeSeed<'de> for Rows {
    type Value = Result<Vec<NodeRow>, String>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        // Go writes a nil slice as `null`.
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Rows {
    type Value = Result<Vec<NodeRow>, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Ok(Vec::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut rows = Vec::new();
        let mut unreadable = None;
        while let Some(row) = seq.next_element_seed(Row(self.0))? {
            match row {
                Ok(row) if unreadable.is_none() => rows.push(row),
                Ok(_) => {}
                Err(why) => unreadable = Some(why),
            }
        }
        Ok(match unreadable {
            Some(why) => Err(why),
            None => Ok(rows),
        })
    }
}

/// One row; the inner error: why it can't be read.
struct Row(Columns);

#[derive(Deserialize)]
struct RowObject {
    metadata: RowMeta,
}

impl<'de> DeserializeSeed<'de> for Row {
    type Value = Result<NodeRow, String>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Row {
    type Value = Result<NodeRow, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut cells = [None, None, None];
        let mut object: Option<RowObject> = None;
        while let Some(is_cells) = map.next_key_seed(Text(|key: &str| match key {
            "cells" => Some(true),
            "object" => Some(false),
            _ => None,
        }))? {
            match is_cells {
                Some(true) => cells = map.next_value_seed(Cells(self.0))?,
                Some(false) => object = map.next_value()?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(row(cells, object.map(|object| object.metadata)))
    }
}

/// The texts in the columns that we read; the others are most of a table and are skipped.
struct Cells(Columns);

#[derive(Deserialize)]
#[serde(untagged)]
enum Cell {
    Text(String),
    Other(IgnoredAny),
}

impl<'de> DeserializeSeed<'de> for Cells {
    type Value = [Option<String>; 3];

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Cells {
    type Value = [Option<String>; 3];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of cells")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let Columns { name, status, age } = self.0;
        let columns = [name, status, age];
        let mut texts = [None, None, None];
        for place in 0.. {
            let wanted = columns.iter().position(|column| *column == place);
            let Some(wanted) = wanted else {
                match seq.next_element::<IgnoredAny>()? {
                    Some(_) => continue,
                    None => break,
                }
            };
            match seq.next_element::<Cell>()? {
                Some(Cell::Text(text)) => texts[wanted] = Some(text),
                Some(Cell::Other(_)) => {}
                None => break,
            }
        }
        Ok(texts)
    }
}

fn row(cells: [Option<String>; 3], meta: Option<RowMeta>) -> Result<NodeRow, String> {
    let lacks = |name: &str| format!("a row has no text in column {name}");
    let [name, status, age] = cells;
    let name = name.ok_or_else(|| lacks("Name"))?;
    let status = status.ok_or_else(|| lacks("Status"))?;
    let age = age.ok_or_else(|| lacks("Age"))?;
    // A cordoned node reads `Ready,SchedulingDisabled`.
    let is_ready = match status.split(',').next().unwrap_or_default() {
        "Ready" => true,
        "NotReady" | "Unknown" => false,
        other => return Err(format!("node {name:?} has the status {other:?}")),
    };
    Ok(NodeRow {
        name,
        is_ready,
        age: Age::parse(&age),
        meta,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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

    /// In the order in which API servers write: `Value` would sort the keys.
    fn read(table: &Value) -> NodeTable {
        let part = |name: &str| format!("{name:?}:{}", table[name]);
        let parts = ["kind", "metadata", "columnDefinitions", "rows"].map(part);
        let page: TablePage = serde_json::from_str(&format!("{{{}}}", parts.join(","))).unwrap();
        page.table
    }

    #[test]
    fn rows_are_read_wherever_their_columns_are() {
        let rows = json!([
            { "cells": [7, "5d3h", "Ready,SchedulingDisabled", "a"], "object": null },
            { "cells": [null, "0s", "NotReady", "b"], "object": { "metadata": {
                "uid": "u", "labels": { "k": "v" }, "deletionTimestamp": "2026-01-01T00:00:00Z",
            } } },
            { "cells": [{}, "<unknown>", "Unknown", "c"], "object": { "metadata": { "uid": "w" } } },
        ]);
        let NodeTable::Rows(rows) = read(&table(&["Pods", "Age", "Status", "Name"], rows)) else {
            panic!("unreadable");
        };
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
            let none = read(&table(&["Name", "Status", "Age"], none));
            assert_eq!(none, NodeTable::Rows(Vec::new()));
        }
    }

    #[test]
    fn what_can_t_be_read_is_reported_with_its_reason() {
        let usual = ["Name", "Status", "Age"];
        let row = |cells: Value| json!([{ "cells": cells }, { "cells": ["b", "Ready", "1s"] }]);
        let mut list = table(&usual, json!([]));
        list["kind"] = json!("NodeList");
        let cases = [
            (
                table(&["Name", "Ready", "Age"], json!([])),
                "no column Status",
            ),
            (table(&[], json!([])), "no column Name"),
            (
                table(&usual, row(json!(["a", true, "1s"]))),
                "no text in column Status",
            ),
            (
                table(&usual, row(json!(["a", "Ready"]))),
                "no text in column Age",
            ),
            (
                table(&usual, row(json!(["a", "Bereit", "1s"]))),
                "the status \"Bereit\"",
            ),
            (list, "NodeList"),
        ];
        for (table, expected) in cases {
            match read(&table) {
                NodeTable::Unreadable(why) => assert!(why.contains(expected), "{why}"),
                rows => panic!("{expected}: {rows:?}"),
            }
        }
        let rows_first = r#"{"kind":"Table","rows":[{"cells":[]}],"columnDefinitions":[
            {"name":"Name"},{"name":"Status"},{"name":"Age"}]}"#;
        for text in [rows_first, r#"{"kind":"Table","rows":[]}"#] {
            let outcome: Result<TablePage, _> = serde_json::from_str(text);
            assert!(!matches!(outcome, Ok(page) if matches!(page.table, NodeTable::Rows(_))));
        }
    }
}
