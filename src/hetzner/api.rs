//! Calls to the Cloud API. Each call is sent only when the rate limit allows it. Each answer reports the remaining
//! calls in its headers, and the program remembers them. Lists are read page by page, and every call is counted in
//! metrics.

use super::budget::CloudBudget;
pub(super) use super::error::CloudFailure;
use super::pages::{self, PER_PAGE, Pagination};
use crate::http::{HttpClient, HttpError, HttpWrite, Method, Reply, Secret, TryStage};
use crate::metrics::{HCLOUD_DURATION, HCLOUD_IN_FLIGHT, HCLOUD_REQUESTS, UNANSWERED};
use crate::provider::clock::Moment;
use crate::provider::variables::HCLOUD_ENDPOINT;
use crate::provider::{
    ErrorKind, Gate, Interned, Permission, ProviderError, Urgency, calls, clock, lock,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) struct Api {
    pub(super) http: HttpClient,
    pub(super) budget: CloudBudget,
    /// The urgency with which this client sends writes to the Cloud API. An urgent call is sent even when few calls are
    /// left under the rate limit.
    urgency: Urgency,
}

/// A reference to another resource, by its ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Reference {
    pub id: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Location {
    pub name: Interned,
    pub network_zone: Interned,
}

/// A kind of resource that the API lists, and that can be read by its ID.
pub(super) trait Resource: DeserializeOwned {
    /// The name of the list in the API's paths and JSON, e.g. `servers`.
    const LIST: &'static str;
    /// Whether the API accepts the parameter `sort` for this list. Some short lists are always sorted by ID, and the
    /// API refuses the parameter for them.
    const TAKES_SORT: bool = true;
    fn id(&self) -> u64;
}

/// An answer with one resource, or with one page of a list. The name of the JSON field with this data depends on the
/// kind of resource.
#[derive(Deserialize)]
struct ApiAnswer<T> {
    #[serde(
        alias = "certificate",
        alias = "load_balancer",
        alias = "load_balancer_type",
        alias = "network",
        alias = "primary_ip",
        alias = "server"
    )]
    one: Option<T>,
    #[serde(
        alias = "actions",
        alias = "certificates",
        alias = "load_balancers",
        alias = "load_balancer_types",
        alias = "networks",
        alias = "primary_ips",
        alias = "servers"
    )]
    list: Option<Vec<T>>,
    meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    pagination: Pagination,
}

/// A cached list whose content hardly ever changes.
#[derive(Default)]
pub(super) struct CachedList<T> {
    read: Mutex<Option<(Moment, Arc<Vec<T>>)>>,
}

/// Returns the time since a list was read. When the machine was suspended since then, this time is not known, and the
/// result is the longest possible time, so that the list counts as old.
fn age_of(read: Moment) -> Duration {
    Moment::now().since(read).unwrap_or(Duration::MAX)
}

impl<T> CachedList<T> {
    /// Whether the cached list is older than `age`, or no list is cached.
    pub(super) fn is_older(&self, age: Duration) -> bool {
        lock(&self.read).as_ref().is_none_or(|(at, _)| age_of(*at) >= age)
    }

    /// Returns the cached list if `is_good` accepts it. `is_good` gets the time since the list was read, and the list.
    /// When it refuses the list, or when no list is cached, `read` reads a new list, which is then cached. When no list
    /// is cached, `first` is called before that. It can return a list that was read earlier for another purpose, with
    /// the time of that read, and this list is then cached.
    pub(super) fn get(
        &self,
        first: impl FnOnce() -> Option<(Moment, Vec<T>)>,
        is_good: impl FnOnce(Duration, &[T]) -> bool,
        read: impl FnOnce() -> Result<Vec<T>, ProviderError>,
    ) -> Result<Arc<Vec<T>>, ProviderError> {
        let mut kept = lock(&self.read);
        if kept.is_none() {
            *kept = first().map(|(at, list)| (at, Arc::new(list)));
        }
        if let Some((at, list)) = kept.as_ref()
            && is_good(age_of(*at), list)
        {
            return Ok(Arc::clone(list));
        }
        let list = Arc::new(read()?);
        *kept = Some((Moment::now(), Arc::clone(&list)));
        Ok(list)
    }
}

impl Api {
    pub(super) fn new(http: HttpClient, urgency: Urgency) -> Api {
        Api { http, urgency, budget: CloudBudget::default() }
    }

    pub(super) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        urgency: Urgency,
    ) -> Result<T, ProviderError> {
        let what = format!("GET {}{path}", self.http.base());
        self.budget.admit(&what, urgency, clock::now())?;
        self.noted(self.http.get(path)).map_err(|failed| failed.error)
    }

    /// Checks that the rate limit allows this number of reads and then a write. The caller asks this before the first
    /// read, so that the reads do not use up the last calls and leave none for the write.
    pub(super) fn admit_write(&self, reads: u64, what: &str) -> Result<(), ProviderError> {
        self.budget.admit_after(reads, what, self.urgency, clock::now())
    }

    /// Whether a call of this urgency would be put off now, because few calls of the project's rate limit remain.
    pub(super) fn is_put_off(&self, urgency: Urgency) -> bool {
        let admitted = self.budget.admit("", urgency, clock::now());
        admitted.is_err_and(|error| error.is_put_off())
    }

    /// Sends a write to the API once, without retries. The write is refused when the rate limit does not allow it, or
    /// when the gate does not allow it. The gate stops writes, for example in a dry run. A DELETE has no body.
    /// `secrets` are the secrets in the body, which are kept out of logs.
    pub(super) fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        secrets: &[Secret],
    ) -> Result<T, CloudFailure> {
        let what = format!("{} {}{path}", method.name(), self.http.base());
        let admitted = self.budget.admit(&what, self.urgency, clock::now());
        admitted.map_err(|error| CloudFailure {
            error,
            code: String::new(),
            fields: Vec::new(),
        })?;
        let write = HttpWrite {
            pass: <dyn Gate>::pass,
            method,
            path,
            content_type: "application/json",
            secrets,
        };
        self.noted(self.http.write(write, body))
    }

    /// Reads one resource from the API, and not from a cache.
    pub(super) fn one<T: Resource>(&self, id: u64, urgency: Urgency) -> Result<T, ProviderError> {
        let path = format!("/{}/{id}", T::LIST);
        let answer: ApiAnswer<T> = self.get(&path, urgency)?;
        // The API's name for one resource is the name of the list without its last letter `s`.
        let kind = T::LIST.trim_end_matches('s');
        let why = match answer.one {
            Some(one) if one.id() == id => return Ok(one),
            Some(other) => format!("the answer is about {kind} {}", other.id()),
            None => format!(
                "the answer does not have the form of this API (the field {kind:?} is missing)"
            ),
        };
        Err(unavailable(format!("GET {path}: {why}")))
    }

    /// Reads all pages of a list. The result is the complete list or an error. [`Api::page`] describes the parameter
    /// `query`.
    pub(super) fn list<T: Resource>(
        &self,
        query: &str,
        urgency: Urgency,
    ) -> Result<Vec<T>, ProviderError> {
        pages::whole(T::id, |number| self.page(query, number, urgency))
    }

    /// Reads one page of a list. The first page is number 1. `query` contains further parameters, each with `&` at its
    /// end, or is empty.
    pub(super) fn page<T: Resource>(
        &self,
        query: &str,
        number: u32,
        urgency: Urgency,
    ) -> Result<pages::Part<T>, ProviderError> {
        // The pages must be sorted by ID, so that a new resource is always on the last page. In any other order, a
        // resource that is created or deleted between two reads could move another resource to a page that was already
        // read. That other resource would be missed.
        let sort = if T::TAKES_SORT { "sort=id:asc&" } else { "" };
        let list = T::LIST;
        let path = format!("/{list}?{query}{sort}page={number}&per_page={PER_PAGE}");
        let answer: ApiAnswer<T> = self.get(&path, urgency).map_err(always_there)?;
        let ids = answer.list.as_ref().map(|items| items.iter().map(T::id).collect());
        let last = last_page(list, number, ids, answer.meta).map_err(|why| {
            let base = self.http.base();
            unavailable(format!("GET {base}{path}: {why}, so ccm does not use the answer"))
        })?;
        Ok((answer.list.unwrap_or_default(), last))
    }

    /// Remembers the rate limit from the headers of the answer. Returns the answer or the error. An error with status
    /// 429 then also says when the call can be tried again.
    fn noted<T>(&self, answer: Result<Reply<T>, HttpError>) -> Result<T, CloudFailure> {
        let reply = answer.map_err(|error| self.failure(error))?;
        self.budget.note(&reply.head, clock::now());
        Ok(reply.value)
    }

    fn failure(&self, error: HttpError) -> CloudFailure {
        let now = clock::now();
        if let Some(head) = &error.head {
            self.budget.note(head, now);
        }
        let is_rate_limit = error.status() == Some(429);
        let mut failed = CloudFailure::from(error);
        if is_rate_limit && let Err(limited) = self.budget.admit("", Urgency::Needed, now) {
            failed.error.kind = limited.kind;
        }
        failed
    }
}

/// Returns the number of the last page of a list. `ids` are the different IDs of the resources on page `number`. The
/// error says why the page can't be used.
fn last_page(
    list: &str,
    number: u32,
    ids: Option<HashSet<u64>>,
    meta: Option<Meta>,
) -> Result<u32, String> {
    let Some((ids, meta)) = ids.zip(meta) else {
        return Err(format!(
            "the answer does not have the form of this API (the field {list:?} or \"meta.pagination\" is missing)"
        ));
    };
    // [`Pagination::last`] compares the number of IDs with the number of items that the page should have according to
    // the object `pagination`. A page on which the API lists a resource twice is thus refused as incomplete.
    meta.pagination.last(number, ids.len())
}

fn unavailable(why: String) -> ProviderError {
    ProviderError::new(ErrorKind::Unavailable, why)
}

/// Turns the error "not found" of a list into the error that the URL of the API is misconfigured. The API answers with
/// an empty list when there are no resources, so "not found" means that the URL is wrong.
fn always_there(error: ProviderError) -> ProviderError {
    if error.kind != ErrorKind::NotFound {
        return error;
    }
    let message = format!("{error}; is {HCLOUD_ENDPOINT} complete, with /v1 at its end?");
    ProviderError::new(ErrorKind::Misconfigured, message)
}

/// The method and path of a write that has no effect. It is sent to test whether the token allows writes. The ID in the
/// path is the highest that the API's documentation allows. The API gives out low IDs first, so no load balancer has
/// this ID.
pub const HARMLESS_WRITE: &str = "PUT /load_balancers/9007199254740991";

/// Finds out whether the token allows writes, by a write to a load balancer that does not exist. According to Hetzner's
/// documentation, every write with a read-only token is refused. So when the API answers that the load balancer does
/// not exist, the token probably allows writes. This is not certain, because the documentation does not say that the
/// API checks the permission first.
pub(super) fn permission(api: &Api) -> Permission {
    let path = HARMLESS_WRITE.trim_start_matches("PUT ");
    let answer = api.write::<IgnoredAny>(Method::Put, path, Some(&json!({})), &[]);
    match answer {
        Ok(_) => Permission::ReadWrite,
        Err(failed) => match (&failed.error.kind, failed.code.as_str()) {
            (ErrorKind::Forbidden, _) => Permission::ReadOnly,
            (ErrorKind::Unauthorized, _) => Permission::Refused(failed.error.message),
            (_, "not_found" | "invalid_input") => Permission::ReadWrite,
            _ => Permission::Unknown(failed.error.message),
        },
    }
}

/// Counts each try of a call in metrics that have the names and labels of hcloud-go's metrics. A try without an answer
/// has no status code. Such a try is counted in a metric of its own, because hcloud-go's metric leaves it out.
pub(super) fn watch(_: &str, method: Method, path: &str, stage: TryStage) {
    let method = &method.lower_name();
    match stage {
        TryStage::Begun => {
            calls::note_call();
            HCLOUD_IN_FLIGHT.add(&[], 1.0);
        }
        TryStage::Ended(outcome, took) => {
            HCLOUD_IN_FLIGHT.add(&[], -1.0);
            match outcome {
                Ok(code) => {
                    HCLOUD_REQUESTS.count(&[method, &endpoint(path), &code.to_string()]);
                    HCLOUD_DURATION.observe(&[method], took);
                }
                Err(kind) => UNANSWERED.count(&["hcloud", kind.word()]),
            }
        }
    }
}

/// Returns the path without its query, and with `-` in place of IDs and names. Example:
/// `/servers/42?page=1` becomes `/servers/-`.
pub(super) fn endpoint(path: &str) -> String {
    let segments = path.split('?').next().unwrap_or_default().split('/').map(|segment| {
        let is_word = segment.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if is_word { segment } else { "-" }
    });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_template() {
        for (path, expected) in [
            ("/servers?sort=id:asc&page=1&per_page=50", "/servers"),
            ("/servers/42", "/servers/-"),
            ("/load_balancers/7/actions/add_target", "/load_balancers/-/actions/add_target"),
            ("/actions?id=1&id=2", "/actions"),
            ("/networks/Some%20Name", "/networks/-"),
        ] {
            assert_eq!(endpoint(path), expected);
        }
    }

    /// The wall clock says that an hour has passed since the read, the monotonic clock says that no time has passed.
    #[test]
    fn a_list_that_was_read_before_the_machine_was_suspended_is_old() {
        let cached = CachedList::default();
        let hour = Duration::from_secs(3600);
        for (wall_ago, expected) in [(Duration::ZERO, 1), (hour, 2)] {
            let now = Moment::now();
            let earlier = Moment { wall: now.wall - wall_ago, ..now };
            *lock(&cached.read) = Some((earlier, Arc::new(vec![1])));
            assert_eq!(cached.is_older(hour / 6), expected == 2, "{wall_ago:?}");
            let list = cached.get(|| None, |age, _| age < hour / 6, || Ok(vec![2]));
            assert_eq!(*list.unwrap(), [expected], "{wall_ago:?}");
        }
    }
}
