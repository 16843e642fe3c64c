//! Calls to the Cloud API: the budget before, its headers after, and lists page by page.

use super::budget::Budget;
use super::error::{Code, Error};
use super::pages::{self, PER_PAGE, Pagination, Part};
use crate::http::{self, Method};
use crate::provider::{self, ErrorKind, Urgency};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::time::Instant;

pub(super) struct Api {
    http: http::Client,
    budget: Budget,
}

/// A write that failed.
pub(super) struct Failed {
    pub(super) error: provider::Error,
    /// None: the API did not answer with an error of its own.
    pub(super) code: Option<Code>,
}

/// One page of a list; each resource has its own name for the items.
pub(super) trait Page: DeserializeOwned {
    type Item;
    /// Lists that hardly ever change take no `sort`; the API gives them by ID.
    const TAKES_SORT: bool = true;
    fn into_parts(self) -> (Meta, Vec<Self::Item>);
    fn id(item: &Self::Item) -> u64;
}

#[derive(Debug, Deserialize)]
pub(super) struct Meta {
    pagination: Pagination,
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

    /// See [`Budget::seen`].
    pub(super) fn seen(&self) -> (Option<(u64, u64)>, Option<i64>) {
        self.budget.seen()
    }

    pub(super) fn is_reached(&self) -> bool {
        self.http.is_reached()
    }

    pub(super) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        urgency: Urgency,
    ) -> Result<T, provider::Error> {
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

    pub(super) fn may_wait(&self) -> bool {
        self.http.may_wait()
    }

    /// Writes once, when the gate lets it pass and the budget is not used up. A DELETE has no body.
    pub(super) fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failed> {
        let what = format!("{} {}{path}", method.name(), self.http.base());
        let admitted = self.budget.admit(&what, Urgency::Needed, Instant::now());
        admitted.map_err(|error| Failed { error, code: None })?;
        match self.http.write(method, path, "application/json", body) {
            Ok(reply) => {
                self.budget.note(&reply.head, Instant::now());
                Ok(reply.value)
            }
            Err(error) => {
                let error = Error::from(error);
                Err(Failed {
                    code: error.said(),
                    error: self.failed(error),
                })
            }
        }
    }

    /// Every page of a list: complete, or an error. `path` may carry a query.
    pub(super) fn list<P: Page>(
        &self,
        path: &str,
        urgency: Urgency,
    ) -> Result<Vec<P::Item>, provider::Error> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let read = |number: u32| {
            // By ID, or the order of reads would not help: see `pages`.
            let sort = if P::TAKES_SORT { "sort=id:asc&" } else { "" };
            let path = format!("{path}{separator}{sort}page={number}&per_page={PER_PAGE}");
            let page: P = self.get(&path, urgency).map_err(always_there)?;
            let (Meta { pagination }, items) = page.into_parts();
            // Twice the same is one.
            let different: HashSet<u64> = items.iter().map(P::id).collect();
            match pagination.last(number, different.len()) {
                Ok(last) => Ok(Part { items, last }),
                Err(why) => Err(provider::Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "GET {}{path}: {why}; nothing is done on an incomplete list",
                        self.http.base()
                    ),
                )),
            }
        };
        pages::whole(P::id, read)
    }

    fn failed(&self, error: Error) -> provider::Error {
        let now = Instant::now();
        if let Some(head) = error.head() {
            self.budget.note(head, now);
        }
        let rate_limited = error.is_rate_limit();
        let error = provider::Error::from(error);
        match self.budget.admit("", Urgency::Needed, now) {
            Err(provider::Error {
                kind: kind @ ErrorKind::RateLimited { .. },
                ..
            }) if rate_limited => provider::Error {
                kind,
                message: error.message,
            },
            _ => error,
        }
    }
}

impl Failed {
    pub(super) fn code(&self) -> Option<&str> {
        self.code.as_ref().map(|code| code.code.as_str())
    }
}

/// A list may be empty, but it is always there.
fn always_there(error: provider::Error) -> provider::Error {
    match error.kind {
        ErrorKind::NotFound => provider::Error::new(
            ErrorKind::Misconfigured,
            format!("{error}; is HCLOUD_ENDPOINT complete, with /v1 at its end?"),
        ),
        _ => error,
    }
}
