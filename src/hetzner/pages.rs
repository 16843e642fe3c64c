//! Reads a list page by page while resources are created and deleted. No resource is missed, because the pages are read
//! from the last to the first.
//!
//! The list is sorted by ID, so a new resource is always added at the end. When a resource is deleted, all resources
//! behind it move one place forward. Suppose that the pages were read from the first to the last. After page 2 was
//! read, a resource could move from page 3 to page 2, and would be missed. The number of resources would not show this
//! if a new resource was created at the same time. But when the pages are read from the last to the first, a resource
//! only moves to pages that are still to be read. It may be read twice, but it is never missed.

use crate::provider::order;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// How many items this program requests on each page of a list. This is the highest number that the API allows.
pub(super) const PER_PAGE: u32 = 50;

/// The highest number of pages that are read. They hold 20,000 resources, far more than a project can have.
const PAGES_AT_MOST: u32 = 400;

/// The object `pagination` in the API's answer. A missing field is an error, even if the field is allowed to be null.
/// Otherwise an answer that is not from the API could look like an empty list.
#[derive(Debug, Deserialize)]
pub(super) struct Pagination {
    page: u32,
    per_page: u64,
    #[serde(deserialize_with = "Option::deserialize")]
    next_page: Option<u32>,
    /// The number of the last page. The API can return null in this field when `page` is the last page.
    #[serde(deserialize_with = "Option::deserialize")]
    last_page: Option<u32>,
    /// The number of items in the whole list, or `None` when the API does not count them.
    #[serde(deserialize_with = "Option::deserialize")]
    total_entries: Option<u64>,
}

/// The items of one page, and the number of the last page of the list. The first page has the number 1.
pub(super) type Part<T> = (Vec<T>, u32);

/// Reads a list, and returns all resources that existed from the first read to the last one. They are sorted by ID. A
/// resource that was read twice is returned once, as it was read last. A list of one page needs one read. A list of n
/// pages needs n + 1 reads, because page 1 is read twice.
pub(super) fn whole<T, E>(
    id: impl Fn(&T) -> u64,
    mut read: impl FnMut(u32) -> Result<Part<T>, E>,
) -> Result<Vec<T>, E> {
    let (first, last) = read(1)?;
    let mut items = BTreeMap::new();
    let mut keep = |part: Vec<T>| items.extend(part.into_iter().map(|item| (id(&item), item)));
    if last == 1 {
        keep(first);
    } else {
        // Page 1 was already read, to find out the number of pages. It is read again at the end. If resources of page 1
        // were deleted in the meantime, resources of page 2 have moved to page 1.
        for number in (1..=last).rev() {
            keep(read(number)?.0);
        }
    }
    Ok(items.into_values().collect())
}

/// Returns the number of API calls that are needed to read a list with this many resources.
pub(super) fn calls(count: usize) -> u32 {
    let pages = u32::try_from(count.div_ceil(PER_PAGE as usize)).unwrap_or(u32::MAX);
    if pages <= 1 { 1 } else { pages.saturating_add(1) }
}

/// Looks for resources with these IDs, and reads only the pages on which they should be. Returns all resources on these
/// pages. When one of the IDs is not in the result, no such resource existed when its page was read. For an ID, `place`
/// estimates how many resources have a lower ID. When an estimate is wrong, more pages are read. After as many reads as
/// the list has pages, the whole list is read instead.
///
/// A page shows which IDs exist between its first and its last ID. An ID can also be between the last ID of one page
/// and the first ID of the next page. To be sure that it does not exist, the later of the two pages must be read first,
/// because resources only move to earlier pages.
pub(super) fn around<T, E>(
    ids: &BTreeSet<u64>,
    per_page: usize,
    place: impl Fn(u64) -> usize,
    id: impl Fn(&T) -> u64,
    mut read: impl FnMut(u32) -> Result<Part<T>, E>,
) -> Result<Vec<T>, E> {
    let mut items: BTreeMap<u64, T> = BTreeMap::new();
    let mut open = ids.clone();
    let (mut reads, mut last) = (0, PAGES_AT_MOST);
    // The function `place` estimates the position of an ID in the list. When resources with lower IDs were deleted, the
    // real position is closer to the front. `moved` is the difference between the estimated and the real position, for
    // the resources on the page that was read last.
    let mut moved = 0;
    while let Some(wanted) = open.first().copied() {
        let expected = |moved: usize| {
            let page = place(wanted).saturating_sub(moved) / per_page + 1;
            u32::try_from(page).unwrap_or(PAGES_AT_MOST)
        };
        let mut number = expected(moved).min(last);
        // The lowest ID on the page that was read last, if the page directly before it is read next. Otherwise the
        // value is `None`. A wanted ID does not exist when it is lower than this ID, and higher than all IDs on the
        // page that is read next.
        let mut next_low = None;
        let mut steps = 0;
        while open.contains(&wanted) {
            if reads >= last {
                return whole(id, read);
            }
            reads += 1;
            let (part, now_last) = read(number)?;
            last = now_last;
            let part = order::map(part.into_iter().map(|item| (id(&item), item)));
            let bounds = part.first_key_value().zip(part.last_key_value());
            let Some((low, high)) = bounds.map(|((low, _), (high, _))| (*low, *high)) else {
                // The page is empty. Either the whole list is empty, or the list has fewer pages now because resources
                // were deleted.
                if number == 1 {
                    return Ok(Vec::new());
                }
                (next_low, number) = (None, last);
                continue;
            };
            items.extend(part);
            let is_before = |id: u64| id < low && number > 1;
            let is_behind = |id: u64| id > high && number < last && next_low <= Some(id);
            open.retain(|id| is_before(*id) || is_behind(*id));
            let moved_here = place(low).saturating_sub((number as usize - 1) * per_page);
            if wanted >= low {
                moved = moved_here;
                (next_low, number) = (None, number.saturating_add(1).min(last));
            } else {
                let previous = number.saturating_sub(1).max(1);
                // The resource `wanted` is on an earlier page than the page just read. Usually the page directly before
                // it is read next. Only after the second read of this search, the page is estimated anew, and several
                // pages can be skipped. The estimate assumes that `wanted` has moved towards the front of the list by
                // as many places as the first resource of the page just read. Such a move happens when resources with
                // lower IDs are deleted.
                let jump = if steps == 1 { expected(moved_here) } else { previous };
                next_low = (jump >= previous).then_some(low);
                number = jump.min(previous);
            }
            steps += 1;
        }
    }
    Ok(items.into_values().collect())
}

impl Pagination {
    /// Returns the number of the last page of the list. The error says that the API sent another page than page
    /// `number`, that the page does not have as many items as it should, or that the numbers in the answer contradict
    /// each other.
    ///
    /// Only the numbers within one answer are compared with each other. Between two answers, resources may be created
    /// or deleted.
    pub(super) fn last(&self, number: u32, items: usize) -> Result<u32, String> {
        if self.page != number {
            return Err(format!("the answer is page {} instead of page {number}", self.page));
        }
        if self.per_page != u64::from(PER_PAGE) {
            return Err(format!(
                "the answer has pages of {} items instead of {PER_PAGE}",
                self.per_page
            ));
        }
        let items = items as u64;
        let before = u64::from(number - 1).saturating_mul(self.per_page);
        let expected = match (self.next_page, self.total_entries) {
            (Some(_), _) => self.per_page,
            // `total` is the number of items in the whole list. When items were deleted, it can be smaller than the
            // number of items on the pages before this one, and no items are expected on this page.
            (None, Some(total)) => total.saturating_sub(before),
            (None, None) => items.min(self.per_page),
        };
        if items != expected {
            return Err(format!(
                "the number of items in the answer is {items}, but must be {expected} according to meta.pagination"
            ));
        }
        let last = match (self.next_page, self.last_page) {
            (None, None) => return Ok(number),
            (None, Some(last)) if last == number => last,
            // The page that was read is behind the last page and empty, because resources were deleted and the list has
            // become shorter. This is no error, and the result is the last page that the API names.
            (None, Some(last)) if last < number && items == 0 => last.max(1),
            (Some(next), Some(last)) if next == number + 1 && next <= last => last,
            (next, last) => {
                return Err(format!(
                    "the answer contradicts itself (next page {}, last page {})",
                    or_none(next),
                    or_none(last)
                ));
            }
        };
        match self.total_entries {
            // For an empty list, the API answers that page 1 is the last page. The number of pages that is computed
            // from the number of items would be 0 then, so 1 is used.
            Some(total) if total.div_ceil(self.per_page).max(1) != u64::from(last) => Err(format!(
                "the answer contradicts itself (last page {last}, but {total} items, {PER_PAGE} a page)"
            )),
            _ if last > PAGES_AT_MOST => {
                Err(format!("the list has {last} pages, and ccm reads at most {PAGES_AT_MOST}"))
            }
            _ => Ok(last),
        }
    }
}

fn or_none(page: Option<u32>) -> String {
    page.map_or_else(|| "none".to_owned(), |page| page.to_string())
}

#[cfg(test)]
#[path = "../../tests/common/random.rs"]
mod random;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::random::Random;
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    /// The pages in these tests are small, so that a few resources fill several pages.
    const PER_PAGE: usize = 3;
    const RUNS: u64 = 20_000;

    /// A list of resources that an API returns in pages, while resources are created and deleted. In the answers, each
    /// item has the ID of the resource and a number that says in which read it was returned.
    struct Model {
        ids: Vec<u64>,
        next_id: u64,
        reads: usize,
    }

    impl Model {
        fn change(&mut self, random: &mut Random) {
            for _ in 0..random.below(6) {
                if random.percent(60) && !self.ids.is_empty() {
                    let at = random.below(self.ids.len() as u64) as usize;
                    self.ids.remove(at);
                } else {
                    self.ids.push(self.next_id);
                    self.next_id += 1;
                }
            }
        }

        fn page(&mut self, number: u32) -> Part<(u64, usize)> {
            self.reads += 1;
            let behind = self.ids.iter().skip((number as usize - 1) * PER_PAGE);
            (
                behind.take(PER_PAGE).map(|id| (*id, self.reads)).collect(),
                self.ids.len().div_ceil(PER_PAGE).max(1) as u32,
            )
        }
    }

    /// In this test, resources are created and deleted at random between any two reads. The list must contain every
    /// resource that exists all the time.
    #[test]
    fn what_is_there_all_the_time_is_never_missed() {
        for seed in 0..RUNS {
            let mut random = Random::new(seed);
            let there = random.below(15);
            let mut model = Model { ids: (0..there).collect(), next_id: there, reads: 0 };
            let pages = model.ids.len().div_ceil(PER_PAGE).max(1);
            let mut always: BTreeSet<u64> = model.ids.iter().copied().collect();
            let mut shown: BTreeMap<u64, usize> = BTreeMap::new();
            let read = |number| {
                if model.reads > 0 {
                    model.change(&mut random);
                }
                always.retain(|id| model.ids.contains(id));
                let part = model.page(number);
                shown.extend(part.0.iter().copied());
                Ok::<_, Infallible>(part)
            };
            let items = whole(|(id, _)| *id, read).unwrap();
            let ids: Vec<u64> = items.iter().map(|(id, _)| *id).collect();
            assert!(ids.is_sorted_by(|left, right| left < right), "seed {seed}: {ids:?}");
            assert!(
                always.iter().all(|id| ids.contains(id)),
                "seed {seed}: of {always:?} only {ids:?}"
            );
            assert!(
                items.iter().all(|(id, read)| shown[id] == *read),
                "seed {seed}: an older read was kept"
            );
            let reads = if pages == 1 { 1 } else { pages + 1 };
            assert_eq!(model.reads, reads, "seed {seed}");
        }
    }

    /// In half of the runs of this test, resources are created and deleted at random between any two reads. The
    /// function `place` estimates where an ID is in the list. Its estimates can be wrong, because it uses the list as
    /// it was at the beginning or, in some runs, a random list.
    #[test]
    fn what_the_pages_around_an_id_do_not_show_does_not_exist() {
        let (mut few, mut all) = (0, 0);
        for seed in 0..RUNS {
            let mut random = Random::new(seed);
            let count = random.below(40);
            let mut model = Model {
                ids: (0..count).filter(|_| random.percent(80)).collect(),
                next_id: count,
                reads: 0,
            };
            let known = if random.percent(80) {
                model.ids.clone()
            } else {
                (0..random.below(60)).collect()
            };
            let asked: BTreeSet<u64> =
                (0..1 + random.below(4)).map(|_| random.below(count + 3)).collect();
            let is_quiet = random.percent(50);
            let mut always: BTreeSet<u64> = model.ids.iter().copied().collect();
            let pages = model.ids.len().div_ceil(PER_PAGE).max(1);
            let read = |number| {
                if model.reads > 0 && !is_quiet {
                    model.change(&mut random);
                }
                always.retain(|id| model.ids.contains(id));
                Ok::<_, Infallible>(model.page(number))
            };
            let place = |id| known.partition_point(|one: &u64| *one < id);
            let items = around(&asked, PER_PAGE, place, |(id, _)| *id, read).unwrap();
            let ids: BTreeSet<u64> = items.iter().map(|(id, _)| *id).collect();
            let missed: Vec<&u64> =
                always.intersection(&asked).filter(|id| !ids.contains(id)).collect();
            assert!(missed.is_empty(), "seed {seed}: {missed:?} of {asked:?} exist");
            if is_quiet {
                let there: BTreeSet<u64> = model.ids.iter().copied().collect();
                assert!(ids.is_subset(&there), "seed {seed}: {ids:?}");
                assert!(model.reads <= 2 * pages + 1, "seed {seed}: {} reads", model.reads);
                if known == model.ids {
                    few += model.reads;
                    all += pages + 1;
                }
            }
        }
        assert!(few * 2 < all, "{few} reads instead of {all}");
    }

    /// In this test, the page of each ID is estimated from an old list of 1,200 resources. After this list was read,
    /// 300 neighbouring resources, or every tenth resource, were deleted. The search must find the right pages in a few
    /// reads all the same.
    #[test]
    fn deleted_neighbours_are_a_few_reads() {
        let known: Vec<u64> = (0..1200).collect();
        let row = |id: &u64| (300..600).contains(id);
        let tenth = |id: &u64| id.is_multiple_of(10);
        type Case<'a> = (fn(&u64) -> bool, &'a [u64], usize);
        let cases: [Case; 6] = [
            (|_| false, &[], 1),
            (row, &[300, 301, 450, 599], 2),
            (row, &[800], 3),
            (row, &[800, 801, 1000, 1001], 5),
            (tenth, &[10], 2),
            (tenth, &[1190], 6),
        ];
        for (is_gone, asked, at_most) in cases {
            let mut ids = known.clone();
            ids.retain(|id| !is_gone(id));
            let mut model = Model { ids, next_id: 1200, reads: 0 };
            let asked = match asked {
                [] => BTreeSet::from([7]),
                some => some.iter().copied().collect(),
            };
            let read = |number| Ok::<_, Infallible>(model.page(number));
            let place = |id| known.partition_point(|one| *one < id);
            let items = around(&asked, PER_PAGE, place, |(id, _)| *id, read).unwrap();
            let shown: BTreeSet<u64> = items.iter().map(|(id, _)| *id).collect();
            assert!(asked.iter().all(|id| shown.contains(id) != is_gone(id)), "{asked:?}");
            assert!(model.reads <= at_most, "{asked:?}: {} reads", model.reads);
        }
    }

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn a_page_says_which_it_is_and_how_many_there_are() {
        let page = |page, next, last, total| json!({
            "page": page, "per_page": 50, "next_page": next, "last_page": last, "total_entries": total,
        });
        let null = || json!(null);
        let cases = [
            (1, 0, page(1, null(), json!(1), json!(0)), Ok(1)),
            (1, 0, page(1, null(), json!(0), json!(0)), Ok(1)),
            (1, 7, page(1, null(), null(), null()), Ok(1)),
            (1, 50, page(1, json!(2), json!(3), json!(120)), Ok(3)),
            (3, 20, page(3, null(), json!(3), json!(120)), Ok(3)),
            (3, 20, page(3, null(), null(), json!(120)), Ok(3)),
            (3, 0, page(3, null(), json!(2), json!(90)), Ok(2)),
            (2, 50, page(1, json!(2), json!(3), json!(120)), Err("the answer is page 1 instead of page 2")),
            (1, 0, page(1, null(), json!(1), json!(7)), Err("the number of items in the answer is 0, but must be 7 according to meta.pagination")),
            (2, 49, page(2, json!(3), json!(3), json!(120)), Err("the number of items in the answer is 49, but must be 50 according to meta.pagination")),
            (1, 50, page(1, null(), json!(3), null()), Err("the answer contradicts itself (next page none, last page 3)")),
            (1, 50, page(1, json!(3), json!(3), null()), Err("the answer contradicts itself (next page 3, last page 3)")),
            (1, 50, page(1, json!(2), null(), null()), Err("the answer contradicts itself (next page 2, last page none)")),
            (1, 50, page(1, null(), json!(1), json!(50)), Ok(1)),
            (1, 50, page(1, null(), null(), json!(50)), Ok(1)),
            (1, 50, page(1, null(), null(), json!(120)), Err("the number of items in the answer is 50, but must be 120 according to meta.pagination")),
            (1, 50, page(1, null(), json!(1), json!(120)), Err("the number of items in the answer is 50, but must be 120 according to meta.pagination")),
            (2, 50, page(2, null(), null(), json!(120)), Err("the number of items in the answer is 50, but must be 70 according to meta.pagination")),
            (1, 0, page(1, null(), json!(1), json!(100)), Err("the number of items in the answer is 0, but must be 100 according to meta.pagination")),
            (1, 60, page(1, null(), json!(1), null()), Err("the number of items in the answer is 60, but must be 50 according to meta.pagination")),
            (1, 49, page(1, json!(2), json!(2), null()), Err("the number of items in the answer is 49, but must be 50 according to meta.pagination")),
            (1, 50, page(1, json!(2), json!(2), json!(120)), Err("the answer contradicts itself (last page 2, but 120 items, 50 a page)")),
            (1, 50, page(1, json!(2), json!(2), json!(50)), Err("the answer contradicts itself (last page 2, but 50 items, 50 a page)")),
            (3, 0, page(3, null(), json!(1), json!(90)), Err("the answer contradicts itself (last page 1, but 90 items, 50 a page)")),
            (3, 7, page(3, null(), json!(2), null()), Err("the answer contradicts itself (next page none, last page 2)")),
            (1, 50, page(1, json!(2), json!(401), null()), Err("the list has 401 pages, and ccm reads at most 400")),
        ];
        for (number, items, page, expected) in cases {
            let pagination: Pagination = serde_json::from_value(page.clone()).unwrap();
            assert_eq!(pagination.last(number, items), expected.map_err(str::to_owned), "{page}");
        }
        for (per_page, items, total) in [(0, 0, 100), (0, 0, 0), (2, 2, 100), (2, 2, 2), (51, 51, 51)] {
            let page = json!({
                "page": 1, "per_page": per_page, "next_page": null, "last_page": 1, "total_entries": total,
            });
            let pagination: Pagination = serde_json::from_value(page).unwrap();
            let expected = format!("the answer has pages of {per_page} items instead of 50");
            assert_eq!(pagination.last(1, items), Err(expected));
        }
        for missing in ["page", "per_page", "next_page", "last_page", "total_entries"] {
            let mut page = page(1, null(), json!(1), json!(0));
            page.as_object_mut().unwrap().remove(missing);
            assert!(serde_json::from_value::<Pagination>(page).is_err(), "{missing}");
        }
    }
}
