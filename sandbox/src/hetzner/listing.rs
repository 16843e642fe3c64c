//! The parts that all lists of the API have in common: sorting, pages, the `meta` object and the `Link` header.

use std::cmp::Ordering;

use super::Reply;
use super::error::ApiError;
use super::input::Query;
use super::text::{Part, Text, text};

const DEFAULT_PER_PAGE: u64 = 25;
/// The largest number of entries on a page, according to the API's documentation. The default is 25.
const MAX_PER_PAGE: u64 = 50;

/// One page of a list, as a request asks for it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The number of the page, counted from 1.
    page: u64,
    per_page: u64,
    /// The query parameters of the request except `page` and `per_page`, percent-encoded and each with `&` before it.
    /// The links to other pages contain these parameters.
    filters: String,
}

impl Page {
    pub fn of(query: &Query) -> Result<Page, ApiError> {
        let page = query.number("page")?.unwrap_or(1);
        let per_page = query.number("per_page")?.unwrap_or(DEFAULT_PER_PAGE);
        if page == 0 {
            return Err(ApiError::invalid("page", "must be at least 1"));
        }
        if !(1..=MAX_PER_PAGE).contains(&per_page) {
            return Err(ApiError::invalid(
                "per_page",
                format!("must be between 1 and {MAX_PER_PAGE}"),
            ));
        }
        Ok(Page { page, per_page, filters: query.encode_except(&["page", "per_page"]) })
    }

    /// Returns the answer with this page of `items`. `key` is the name of the list in the answer. Only the items of
    /// this page are converted to JSON.
    pub fn reply<T, P: Part>(
        &self,
        path: &str,
        key: &str,
        items: &[T],
        show: impl Fn(&T) -> P,
    ) -> Reply {
        let shown: Vec<P> = self.slice(items).iter().map(show).collect();
        let total = items.len() as u64;
        let last = total.div_ceil(self.per_page).max(1);
        let previous = (self.page > 1).then(|| self.page - 1);
        let next = (self.page < last).then(|| self.page + 1);
        let meta = text!({"pagination": {
            "page": self.page, "per_page": self.per_page, "previous_page": previous, "next_page": next,
            "last_page": last, "total_entries": total,
        }});
        // The link contains no host name, so that a client finds the next page on the server that it has just called.
        let link = |page: u64, rel: &str| {
            let (per_page, filters) = (self.per_page, &self.filters);
            format!("</v1{path}?page={page}&per_page={per_page}{filters}>; rel=\"{rel}\"")
        };
        let links = [
            previous.map(|page| link(page, "prev")),
            next.map(|page| link(page, "next")),
            Some(link(last, "last")),
        ];
        Reply {
            link: Some(links.into_iter().flatten().collect::<Vec<_>>().join(", ")),
            ..Reply::ok(Text::of(format!(r#"{{"{key}":{},"meta":{meta}}}"#, Text::part(&shown))))
        }
    }

    fn slice<'t, T>(&self, items: &'t [T]) -> &'t [T] {
        let start = (self.page - 1).saturating_mul(self.per_page).min(items.len() as u64) as usize;
        let end = (start + self.per_page as usize).min(items.len());
        &items[start..end]
    }
}

/// A field by which a list can be sorted, and the function that compares two items by the field.
pub type SortKey<T> = (&'static str, fn(&T, &T) -> Ordering);

/// Sorts the items by all `sort=field[:asc|desc]` parameters of a request. The first parameter matters most.
pub fn sort<T>(query: &Query, items: &mut [&T], keys: &[SortKey<T>]) -> Result<(), ApiError> {
    let mut orders = Vec::new();
    for text in query.all("sort") {
        let (field, direction) = text.split_once(':').unwrap_or((text, "asc"));
        let key = keys.iter().find(|(name, _)| *name == field);
        match (key, direction) {
            (Some((_, compare)), "asc") => orders.push((compare, false)),
            (Some((_, compare)), "desc") => orders.push((compare, true)),
            _ => {
                return Err(ApiError::invalid("sort", format!("cannot sort by '{text}'")));
            }
        }
    }
    items.sort_by(|a, b| {
        let compared = orders.iter().map(
            |(compare, reverse)| {
                if *reverse { compare(b, a) } else { compare(a, b) }
            },
        );
        compared.fold(Ordering::Equal, Ordering::then)
    });
    Ok(())
}
