//! Calls to the Cloud API: the budget before, its headers after, and lists page by page.

use super::budget::Budget;
use super::error::Error;
use crate::cloud::{self, ErrorKind, Urgency};
use crate::http;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::time::Instant;

/// The API allows no more.
const PER_PAGE: u32 = 50;

/// 20,000 resources: far above what a project may have.
const PAGES_AT_MOST: u32 = 400;

/// How often a list is begun anew because it changed while it was read.
const LIST_TRIES: u32 = 3;

pub(super) struct Api {
    http: http::Client,
    budget: Budget,
}

/// One page of a list; each resource has its own name for the items.
pub(super) trait Page: DeserializeOwned {
    type Item;
    fn meta(&self) -> &Meta;
    fn into_items(self) -> Vec<Self::Item>;
    fn id(item: &Self::Item) -> u64;
}

#[derive(Debug, Deserialize)]
pub(super) struct Meta {
    pagination: Pagination,
}

#[derive(Debug, Deserialize)]
struct Pagination {
    page: u32,
    next_page: Option<u32>,
    total_entries: Option<u64>,
}

impl Api {
    pub(super) fn new(http: http::Client, scale: f64) -> Api {
        Api {
            http,
            budget: Budget::new(scale),
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.http.calls()
    }

    pub(super) fn is_reached(&self) -> bool {
        self.http.is_reached()
    }

    pub(super) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        urgency: Urgency,
    ) -> Result<T, cloud::Error> {
        let what = || format!("GET {}{path}", self.http.base());
        self.budget.admit(&what(), urgency, Instant::now())?;
        match self.http.get(path) {
            Ok(reply) => {
                self.budget.note(&reply.head, Instant::now());
                Ok(reply.value)
            }
            Err(error) => Err(self.failed(Error::from(error))),
        }
    }

    /// Every page of a list: complete, or an error. `path` may carry a query.
    pub(super) fn list<P: Page>(
        &self,
        path: &str,
        urgency: Urgency,
    ) -> Result<Vec<P::Item>, cloud::Error> {
        for _ in 0..LIST_TRIES {
            if let Some(items) = self.list_once::<P>(path, urgency)? {
                return Ok(items);
            }
        }
        Err(cloud::Error::new(
            ErrorKind::Unavailable,
            format!(
                "GET {}{path}: the list changed while its pages were read, {LIST_TRIES} times in a row; \
                 nothing is done on an incomplete list",
                self.http.base()
            ),
        ))
    }

    /// None: something was made or deleted between two pages, so an item may have slipped
    /// from one to the other unseen.
    fn list_once<P: Page>(
        &self,
        path: &str,
        urgency: Urgency,
    ) -> Result<Option<Vec<P::Item>>, cloud::Error> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut items = Vec::new();
        let mut total = None;
        let mut number = 1;
        loop {
            // Sorted by ID, so that a new resource comes last and moves no other.
            let page_path =
                format!("{path}{separator}sort=id:asc&page={number}&per_page={PER_PAGE}");
            let page: P = self
                .get(&page_path, urgency)
                .map_err(|error| match error.kind {
                    // A list may be empty, but it is always there.
                    ErrorKind::NotFound => cloud::Error::new(
                        ErrorKind::Misconfigured,
                        format!("{error}; is HCLOUD_ENDPOINT complete, with /v1 at its end?"),
                    ),
                    _ => error,
                })?;
            let pagination = &page.meta().pagination;
            let (answered, next, entries) = (
                pagination.page,
                pagination.next_page,
                pagination.total_entries,
            );
            if answered != number || (number > 1 && entries != total) {
                return Ok(None);
            }
            total = entries;
            items.extend(page.into_items());
            match next {
                None => break,
                Some(next) if next == number + 1 && number < PAGES_AT_MOST => number = next,
                Some(next) => {
                    let what = format!(
                        "GET {}{page_path}: page {next} is said to follow",
                        self.http.base()
                    );
                    return Err(cloud::Error::new(ErrorKind::Unavailable, what));
                }
            }
        }
        let distinct: HashSet<u64> = items.iter().map(P::id).collect();
        let complete =
            distinct.len() == items.len() && total.is_none_or(|total| total == items.len() as u64);
        Ok(complete.then_some(items))
    }

    fn failed(&self, error: Error) -> cloud::Error {
        let now = Instant::now();
        if let Some(head) = error.head() {
            self.budget.note(head, now);
        }
        let rate_limited = error.is_rate_limit();
        let error = cloud::Error::from(error);
        match self.budget.admit("", Urgency::Needed, now) {
            Err(cloud::Error {
                kind: kind @ ErrorKind::RateLimited { .. },
                ..
            }) if rate_limited => cloud::Error {
                kind,
                message: error.message,
            },
            _ => error,
        }
    }
}
