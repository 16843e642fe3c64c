//! "Did you mean": the known name that is a slip or two away from what was written.

/// The candidate nearest to `word`, when it is near enough to have been meant: one slip for short
/// words, up to three for long ones. The first of several equally near ones.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    all_nearest(word, candidates).first().copied()
}

/// Of several that are equally near, so many are named.
const NAMED_AT_MOST: usize = 3;

/// `; did you mean a or b?`, to follow an error about `word`; empty where nothing is near. Names nothing else of what
/// there is: who may read the error need not be allowed to know that.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let mut near = all_nearest(word, candidates);
    near.truncate(NAMED_AT_MOST);
    match near.as_slice() {
        [] => String::new(),
        near => format!("; did you mean {}?", super::one_of(near)),
    }
}

/// All candidates that are equally near to `word` and nearer than the others, in their order.
///
/// Costs little for a long word and for many candidates: those of quite another length are not compared, and a
/// comparison ends with the first slip too many.
pub fn all_nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word: Vec<char> = word.chars().collect();
    let limit = (word.len() / 4).clamp(1, 3);
    let slips = |name: &str| {
        let length = name.chars().count();
        let is_comparable = length.abs_diff(word.len()) <= limit;
        let name = is_comparable.then(|| name.chars().collect::<Vec<char>>())?;
        distance(&word, &name, limit)
    };
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| Some((slips(candidate)?, candidate)))
        .collect();
    let least = near.iter().map(|(slips, _)| *slips).min();
    near.retain(|(slips, _)| Some(*slips) == least);
    near.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Letters to insert, remove or replace, and neighbours to swap, to make `right` of `left`
/// (optimal string alignment). None: more than `limit`.
fn distance(left: &[char], right: &[char], limit: usize) -> Option<usize> {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, letter) in left.iter().enumerate() {
        // What is further from the diagonal takes more slips.
        let far = limit + 1;
        let mut current = vec![far; right.len() + 1];
        if row < limit {
            current[0] = row + 1;
        }
        let end = right.len().min(row + 1 + limit);
        for column in row.saturating_sub(limit)..end {
            let other = right[column];
            let replaced = last[column] + usize::from(*letter != other);
            let mut best = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *letter == right[column - 1] && left[row - 1] == other {
                best = best.min(before_last[column - 1] + 1);
            }
            current[column + 1] = best;
        }
        let is_near = |slips: &usize| *slips <= limit;
        if !current.iter().any(is_near) && !last.iter().any(is_near) {
            return None;
        }
        before_last = std::mem::replace(&mut last, current);
    }
    Some(last[right.len()]).filter(|slips| *slips <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_a_different_word_is_not() {
        let flags = ["node-sync-interval", "once", "output", "context"];
        for (word, meant) in [
            ("nod-sync-interval", Some("node-sync-interval")),
            ("node-snyc-intervall", Some("node-sync-interval")),
            ("onec", Some("once")),
            ("one", Some("once")),
            ("outptu", Some("output")),
            ("ouptu", None),
            ("", None),
            ("route-reconciliation-period", None),
        ] {
            assert_eq!(nearest(word, flags), meant, "{word}");
        }
    }

    /// Beside the textbook's way of counting all slips.
    #[test]
    fn slips_are_counted_as_far_as_they_matter() {
        fn all_slips(left: &[char], right: &[char]) -> usize {
            let mut table = vec![vec![0; right.len() + 1]; left.len() + 1];
            for row in 0..=left.len() {
                for column in 0..=right.len() {
                    if row == 0 || column == 0 {
                        table[row][column] = row + column;
                        continue;
                    }
                    let (a, b) = (left[row - 1], right[column - 1]);
                    let mut best = (table[row - 1][column - 1] + usize::from(a != b))
                        .min(table[row - 1][column] + 1)
                        .min(table[row][column - 1] + 1);
                    let swapped = row > 1 && column > 1;
                    if swapped && a == right[column - 2] && left[row - 2] == b {
                        best = best.min(table[row - 2][column - 2] + 1);
                    }
                    table[row][column] = best;
                }
            }
            table[left.len()][right.len()]
        }
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..5000 {
            let mut word = || -> Vec<char> {
                let length = next(9);
                (0..length)
                    .map(|_| if next(2) == 0 { 'a' } else { 'b' })
                    .collect()
            };
            let (left, right) = (word(), word());
            for limit in 1..=3 {
                let all = all_slips(&left, &right);
                let expected = (all <= limit).then_some(all);
                assert_eq!(
                    distance(&left, &right, limit),
                    expected,
                    "{left:?} {right:?}"
                );
            }
        }
    }

    #[test]
    fn equally_near_names_are_all_there() {
        let nodes = ["worker-1", "worker-2", "master-1"];
        assert_eq!(all_nearest("worker-", nodes), ["worker-1", "worker-2"]);
        assert_eq!(all_nearest("worker-2x", nodes), ["worker-2"]);
        assert_eq!(all_nearest("elsewhere", nodes), [""; 0]);
    }
}
