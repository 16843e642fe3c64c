//! The stable form of what the commands show: `-o json` and `-o yaml`.

use crate::controllers::Report;
use crate::provider::Kept;
use serde::Serialize;

/// What every command prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<I> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<I>,
    /// Of `lb list`, where it is looked for: what no Service wants any more, load balancers aside;
    /// null: it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<Option<Vec<Kept>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary>,
}

/// Counts of a `sync`.
#[derive(Serialize)]
struct Summary {
    changed: usize,
    unchanged: usize,
    failed: usize,
}

impl<I> Document<I> {
    pub(super) fn new(kind: &'static str, items: Vec<I>) -> Document<I> {
        Document {
            api_version: "ccm/v1",
            kind,
            items,
            kept: None,
            summary: None,
        }
    }

    pub(super) fn with_kept(self, kept: Option<Vec<Kept>>) -> Document<I> {
        Document {
            kept: Some(kept),
            ..self
        }
    }

    pub(super) fn with_summary(self, report: &Report) -> Document<I> {
        Document {
            summary: Some(Summary {
                changed: report.changed,
                unchanged: report.unchanged,
                failed: report.failed(),
            }),
            ..self
        }
    }
}
