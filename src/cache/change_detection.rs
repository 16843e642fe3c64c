//! Which rows of a table of nodes differ from what is known of the nodes.
//!
//! A row is compared with the whole node that is known, not with the row of the last poll: a node that was not read, or
//! read too early, counts as changed until both agree, so no change can get lost. An old table from the API server's
//! cache costs a read, and nothing else.

use crate::kube::{Age, Node, NodeRow, RowMeta};
use std::time::{Duration, Instant};

/// An age that is younger than it can be by less than this is no new object: API servers round,
/// and the clocks of two of them differ.
const SLACK: Duration = Duration::from_secs(2);

/// An age, and when it was so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aged {
    age: Age,
    seen: Instant,
}

impl Aged {
    pub(super) fn new(age: Age, seen: Instant) -> Aged {
        Aged { age, seen }
    }

    /// Time passes, so an age grows: a lower one is another object's, with the same name.
    fn went_back(self, age: Age, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.seen);
        let at_least = self.age.at_least.saturating_add(passed);
        age.less_than.saturating_add(SLACK) <= at_least
    }
}

/// Does the row differ from this node, whose age was last seen as `aged`?
pub(super) fn has_changed(row: &NodeRow, node: &Node, aged: Option<Aged>, now: Instant) -> bool {
    let went_back = match (aged, row.age) {
        (Some(aged), Some(age)) => aged.went_back(age, now),
        (None, _) | (_, None) => false,
    };
    let differs = |meta: &RowMeta| {
        meta.uid != node.metadata.uid
            || meta.labels != node.metadata.labels
            || meta.is_being_deleted != node.metadata.deletion_timestamp.is_some()
    };
    went_back || row.is_ready != node.is_ready() || row.meta.as_ref().is_some_and(differs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const DAY_S: u64 = 86_400;

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn an_age_can_only_grow() {
        // Age, seconds later, age then → is it another node?
        let cases = [
            ("0s", 5, "5s", false),
            ("0s", 5, "4s", false),
            ("8s", 5, "0s", true),
            ("8s", 5, "9s", true),
            ("8s", 5, "10s", true),
            ("8s", 5, "11s", false),
            ("119s", 5, "2m4s", false),
            ("119s", 5, "2m", false),
            ("9m59s", 5, "10m", false),
            ("7h59m", 60, "8h", false),
            ("7h59m", 60, "7h58m", true),
            ("47h", 3_600, "2d", false),
            ("2d", 3_600, "2d1h", false),
            ("2d1h", 5, "2d", false),
            ("7d23h", 3_600, "8d", false),
            ("5d3h", 5, "5d3h", false),
            ("5d3h", 5, "5d2h", true),
            ("5d3h", 5, "3m", true),
            ("400d", 5, "0s", true),
            ("729d", DAY_S, "2y", false),
            ("8y", DAY_S, "7y364d", true),
            // Five days without a poll.
            ("3d", 5 * DAY_S, "6d", true),
            ("3d", 5 * DAY_S, "8d", false),
            ("18446744073709551614s", 5, "18446744073709551614s", true),
            ("18446744073709551614s", 5, "1s", true),
        ];
        for (before, later_s, after, expected) in cases {
            let now = Instant::now();
            let aged = Aged::new(Age::parse(before).unwrap(), now);
            let later = now + Duration::from_secs(later_s);
            let went_back = aged.went_back(Age::parse(after).unwrap(), later);
            assert_eq!(went_back, expected, "{before}, {later_s} s later {after}");
        }
    }

    fn node(extra: Value) -> Node {
        let mut node = json!({
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "1", "labels": { "k": "v" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        for (key, value) in extra.as_object().unwrap() {
            node["metadata"][key] = value.clone();
        }
        serde_json::from_value(node).unwrap()
    }

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn a_row_has_changed_when_it_differs_from_the_node() {
        let now = Instant::now();
        let age = |text| Age::parse(text);
        let row = |is_ready, age, meta| NodeRow { name: "a".into(), is_ready, age, meta };
        let meta = |uid: &str, labels: &[(&str, &str)], is_being_deleted| Some(RowMeta {
            uid: uid.into(), labels: labels.iter().copied().collect(), is_being_deleted,
        });
        let same = &[("k", "v")][..];
        let aged = age("5d").map(|age| Aged::new(age, now));
        let plain = node(json!({}));
        let going = node(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
        let cases = [
            ("the same", &plain, aged, row(true, age("5d"), None), false),
            ("not ready", &plain, aged, row(false, age("5d"), None), true),
            ("younger", &plain, aged, row(true, age("5s"), None), true),
            ("an age for the first time", &plain, None, row(true, age("5s"), None), false),
            ("no age any more", &plain, aged, row(true, None, None), false),
            ("the same metadata", &plain, aged, row(true, None, meta("u", same, false)), false),
            ("another UID", &plain, aged, row(true, None, meta("w", same, false)), true),
            ("a label more", &plain, aged, row(true, None, meta("u", &[("a", ""), ("k", "v")], false)), true),
            ("a label less", &plain, aged, row(true, None, meta("u", &[], false)), true),
            ("another value", &plain, aged, row(true, None, meta("u", &[("k", "w")], false)), true),
            ("being deleted", &plain, aged, row(true, None, meta("u", same, true)), true),
            ("known to be deleted", &going, aged, row(true, None, meta("u", same, true)), false),
        ];
        for (name, node, aged, row, expected) in cases {
            assert_eq!(has_changed(&row, node, aged, now), expected, "{name}");
        }
    }
}
