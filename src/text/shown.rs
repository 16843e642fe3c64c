//! Prepares texts for people: escapes characters that a line of output must not contain, limits how many names are
//! listed, and finds the suggestions for "did you mean".

use std::borrow::Cow;
use strsim::osa_distance;

/// Returns a text from outside in a form that is safe within one line of output. Control characters, line ends and
/// invisible characters are written as escapes such as `\u001b`, which are also valid in JSON and YAML strings.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// Returns a text of several lines that this program wrote, in a form that is safe to print. Control characters and
/// invisible characters are escaped, as [`one_line`] does it. Line ends stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_obeyed(c))
}

fn escaped(text: &str, is_to_escape: fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(is_to_escape) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' if is_to_escape(c) => clean.push_str("\\n"),
            c if is_to_escape(c) => clean.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// Whether a character must not be printed, because a terminal would obey it or not show it. Such characters are
/// control characters (C0, C1 and DEL), line ends, invisible characters, and characters that change the direction of
/// reading.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// Joins words to a text such as `a, b or c`.
pub fn one_of<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// How many characters of a quoted value are shown. A host name is never longer than this.
const QUOTED_AT_MOST: usize = 300;

/// Returns the text in quotes, with control characters escaped. A text that is too long is cut, and its length in bytes
/// is added.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_AT_MOST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

/// The greatest number of names in one message.
const NAMED_AT_MOST: usize = 5;

/// Joins names to a text such as `a, b`. When there are more than five names, the first five are listed and the others
/// are counted, e.g. `a, b, c, d, e and 52 more`.
pub fn some_of<T: AsRef<str>>(names: &[T]) -> String {
    first_of(names, NAMED_AT_MOST)
}

/// Joins names to a text such as `a, b`. When there are more than `at_most` names, the first names are listed and the
/// others are counted, e.g. `a, b and 52 more`.
pub fn first_of<T: AsRef<str>>(names: &[T], at_most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(at_most).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(at_most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Cuts the text to at most this many characters. A text that was cut ends with `…`.
pub fn cut(text: &str, characters: usize) -> Cow<'_, str> {
    // The length in bytes is compared first, because it is known at once. A text has at least as many bytes as
    // characters.
    if text.len() <= characters || text.chars().nth(characters).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().take(characters.saturating_sub(1)).chain(['…']).collect())
}

/// Returns the value `namespace.name` of a label as `namespace/name`, for messages.
pub fn slashed(label: &str) -> String {
    label.replacen('.', "/", 1)
}

/// Joins messages to one text. Of messages about the same problem, only the first is shown, with the number of the
/// others. Two messages are about the same problem when they differ only in numbers, or in parts that `stable` removes.
/// When there are many different problems, only the first few are shown, and the rest is counted.
pub fn reported_once(messages: &[String], stable: impl Fn(&str) -> String) -> String {
    let mut kinds: Vec<(String, &String, usize)> = Vec::new();
    for message in messages {
        let shape = without_numbers(&stable(message));
        match kinds.iter_mut().find(|(kind, _, _)| *kind == shape) {
            Some((_, _, count)) => *count += 1,
            None => kinds.push((shape, message, 1)),
        }
    }
    let line = |(_, message, count): &(String, &String, usize)| match count {
        1 => (*message).clone(),
        count => format!("{message} (and {} more like this)", count - 1),
    };
    let more = kinds.len().saturating_sub(NAMED_AT_MOST);
    let mut lines: Vec<String> = kinds.iter().take(NAMED_AT_MOST).map(line).collect();
    lines.extend((more > 0).then(|| format!("and {more} more")));
    lines.join("; ")
}

fn without_numbers(text: &str) -> String {
    let zeros = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
    let mut shape = Vec::from_iter(zeros);
    shape.dedup_by(|next, last| *next == '0' && *last == '0');
    shape.into_iter().collect()
}

/// Returns the 64-bit FNV-1a hash of the parts. It is the same in all versions of this program and on all machines,
/// which the hashers of Rust's standard library do not guarantee.
pub fn fnv1a<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    parts.into_iter().flat_map(str::bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the candidate that is most similar to `word`. Returns `None` when no candidate is similar enough: in a short
/// word one typing mistake is allowed, in a long word up to three. When several candidates are equally similar, the
/// first of them is returned.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    all_nearest(word, candidates).first().copied()
}

/// When several candidates are equally similar to a word, an error suggests at most this many of them.
const NEAR_AT_MOST: usize = 3;

/// Returns a suggestion for the end of an error about `word`, e.g. `; did you mean a or b?`. The text is empty when no
/// candidate is similar. Other candidates are never listed, because the reader of the error may have no right to know
/// them.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let mut near = all_nearest(word, candidates);
    near.truncate(NEAR_AT_MOST);
    match near.as_slice() {
        [] => String::new(),
        near => format!("; did you mean {}?", one_of(near)),
    }
}

/// The longest word, in characters, for which similar known words are searched. The limit exists because a user can
/// write a word of any length, and there can be thousands of known words (the candidates).
const LONGEST_WORD: usize = 64;

/// Returns all candidates with the fewest typing mistakes, when `word` is compared with them. A letter that was added,
/// left out or replaced is one mistake. Two neighbouring letters that were swapped are one mistake, too. Candidates
/// with too many mistakes are not returned.
pub fn all_nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let length = word.chars().count();
    let limit = (length / 4).clamp(1, 3);
    let is_comparable =
        |name: &str| length <= LONGEST_WORD && name.chars().count().abs_diff(length) <= limit;
    let slips = |name: &'a str| is_comparable(name).then(|| (osa_distance(word, name), name));
    let mut near: Vec<(usize, &str)> = candidates.into_iter().filter_map(slips).collect();
    let least = near.iter().map(|(slips, _)| *slips).min();
    near.retain(|(slips, _)| Some(*slips) == least && *slips <= limit);
    near.into_iter().map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_in_a_line() {
        for (text, line) in [
            ("worker-1 → ✓", "worker-1 → ✓"),
            ("\u{1b}[2Jgone", "\\u001b[2Jgone"),
            ("two\nlines\r", "two\\nlines\\u000d"),
            ("\u{9b}31m\u{7f}", "\\u009b31m\\u007f"),
            ("\u{202e}txt\u{2069}\u{61c}", "\\u202etxt\\u2069\\u061c"),
            ("a\u{200b}b\u{feff}\u{2028}", "a\\u200bb\\ufeff\\u2028"),
            ("\u{85}\t\0", "\\u0085\\u0009\\u0000"),
        ] {
            assert_eq!(one_line(text), line);
        }
        for c in (0..=0xffff).filter_map(char::from_u32) {
            let text = c.to_string();
            let shown = one_line(&text);
            assert!(!shown.contains(char::is_control), "{c:?}: {shown:?}");
        }
        assert_eq!(lines("a\nb\u{9b}\r\n"), "a\nb\\u009b\\u000d\n");
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        for (text, characters, expected) in [
            ("", 3, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("äöü", 3, "äöü"),
            ("äöüß", 3, "äö…"),
            ("abcd", 1, "…"),
        ] {
            assert_eq!(cut(text, characters), expected, "{text}");
        }
    }

    #[test]
    fn of_many_names_a_few_are_told() {
        let names: Vec<String> = (1..=57).map(|n| format!("n{n}")).collect();
        for (count, expected) in [
            (0, ""),
            (1, "n1"),
            (5, "n1, n2, n3, n4, n5"),
            (6, "n1, n2, n3, n4, n5 and 1 more"),
            (57, "n1, n2, n3, n4, n5 and 52 more"),
        ] {
            assert_eq!(some_of(&names[..count]), expected);
        }
    }

    #[test]
    fn a_quoted_text_is_cut_between_characters() {
        assert_eq!(quoted("a\n\"b"), r#""a\n\"b""#);
        let long = "ä".repeat(QUOTED_AT_MOST);
        assert_eq!(quoted(&long), format!("\"{long}\""));
        assert_eq!(quoted(&format!("{long}!")), format!("\"{long}\"… (601 bytes)"));
    }

    #[test]
    fn messages_that_differ_in_numbers_alone_are_reported_once() {
        for (messages, expected) in [
            (&[][..], ""),
            (&["no server 7"], "no server 7"),
            (
                &["no server 7", "locked", "no server 12", "no server 3"],
                "no server 7 (and 2 more like this); locked",
            ),
            (&["a", "b", "c", "d", "e", "f", "g"], "a; b; c; d; e; and 2 more"),
        ] {
            let messages: Vec<String> = messages.iter().map(|one| (*one).to_owned()).collect();
            assert_eq!(reported_once(&messages, str::to_owned), expected);
        }
    }

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
