//! "Did you mean": the known name that is a slip or two away from what was written.

/// The candidate nearest to `word`, when it is near enough to have been meant: one slip for short
/// words, up to three for long ones. The first of several equally near ones.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    all_nearest(word, candidates).first().copied()
}

/// All candidates that are equally near to `word` and nearer than the others, in their order.
pub fn all_nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word: Vec<char> = word.chars().collect();
    let limit = (word.len() / 4).clamp(1, 3);
    let slips = |name: &str| distance(&word, &name.chars().collect::<Vec<_>>());
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (slips(candidate), candidate))
        .filter(|(slips, _)| *slips <= limit)
        .collect();
    let least = near.iter().map(|(slips, _)| *slips).min();
    near.retain(|(slips, _)| Some(*slips) == least);
    near.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Letters to insert, remove or replace, and neighbours to swap, to make `right` of `left`
/// (optimal string alignment).
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, letter) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != other);
            let mut best = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *letter == right[column - 1] && left[row - 1] == *other {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
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

    #[test]
    fn equally_near_names_are_all_there() {
        let nodes = ["worker-1", "worker-2", "master-1"];
        assert_eq!(all_nearest("worker-", nodes), ["worker-1", "worker-2"]);
        assert_eq!(all_nearest("worker-2x", nodes), ["worker-2"]);
        assert_eq!(all_nearest("elsewhere", nodes), [""; 0]);
    }
}
