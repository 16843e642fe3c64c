//! Sorts lists and collects maps with little machine code.
//!
//! For each type of item, the compiler makes another copy of the standard library's sort, which has about 4 kB. A
//! `BTreeMap` that is collected sorts, too, so it causes such a copy as well. The functions here share one copy of the
//! sort for all types, and only the comparison is compiled for each type. With about fifty types this makes the binary
//! about 200 kB smaller.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Sorts the items. Equal items keep their order.
pub fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut places = sorted_places(items.len(), &|one, other| compare(&items[one], &items[other]));
    for place in 0..places.len() {
        while places[place] != place {
            let other = places[place];
            items.swap(place, other);
            places.swap(place, other);
        }
    }
}

/// Sorts the items by their keys. Items with equal keys keep their order.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |one, other| key(one).cmp(&key(other)));
}

/// Collects a map. Of several entries with the same key, the last value is kept.
pub fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    for (key, value) in entries {
        map.insert(key, value);
    }
    map
}

/// Returns for each item the place that it has in the sorted list.
fn sorted_places(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|one, other| compare(*one, *other));
    let mut places = vec![0; count];
    for (place, item) in order.into_iter().enumerate() {
        places[item] = place;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_sorted_as_the_standard_library_sorts_them() {
        let mut seed = 1_u64;
        for count in (0..40).chain([1000]) {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed >> 33
            };
            let all: Vec<(u64, usize)> = (0..count).map(|item| (next() % 20, item)).collect();
            let (mut ours, mut theirs) = (all.clone(), all);
            sort_by_key(&mut ours, |(key, _)| *key);
            theirs.sort_by_key(|(key, _)| *key);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn of_several_entries_with_one_key_the_last_value_is_kept() {
        assert_eq!(map([(2, 'a'), (1, 'b'), (2, 'c')]), [(1, 'b'), (2, 'c')].into());
    }
}
