//! Removes parts of an answer that nobody reads, before the answer is compared and parsed. In a list of nodes, the arrays
//! `managedFields` and `images` are most of the text, and parsing takes much more time than finding their ends.

use memchr::{memchr, memchr2, memchr3};
use std::io::{self, Read};

/// A reader of a JSON text in which the arrays of some fields are empty. The rest of the text is unchanged.
pub(super) struct WithoutArrays<R> {
    text: R,
    /// The fields whose arrays become empty, each with its quotes and colon, e.g. `"images":`. JSON escapes a quote inside
    /// of a string, so in a valid JSON text this can only be a field, and never a part of a string.
    fields: &'static [&'static str],
    /// The last bytes of the text that was read before. The name of a field can be there, while its array begins in the
    /// bytes that are read next.
    before: Vec<u8>,
    /// Where in an array that is removed the reader is. `None` when the next byte is kept.
    removed: Option<InArray>,
}

/// A place in an array that is removed.
#[derive(Clone, Copy)]
struct InArray {
    /// How many arrays are open.
    depth: usize,
    /// Whether the place is inside of a string. Brackets there are text.
    is_in_string: bool,
    /// Whether the byte before was a backslash, so that the next byte does not end the string.
    is_escaped: bool,
}

impl<R> WithoutArrays<R> {
    pub(super) fn new(text: R, fields: &'static [&'static str]) -> WithoutArrays<R> {
        WithoutArrays { text, fields, before: Vec::new(), removed: None }
    }

    pub(super) fn inner(&self) -> &R {
        &self.text
    }

    /// Removes the arrays from `piece`, the next bytes of the text. The bytes that are kept are moved to the beginning of
    /// `piece`. Returns how many bytes are kept.
    fn remove(&mut self, piece: &mut [u8]) -> usize {
        let (mut from, mut kept) = (0, 0);
        while from < piece.len() {
            if let Some(place) = &mut self.removed {
                let end = place.end_of_array(&piece[from..]);
                // The bracket that ends the array is kept.
                from = end.map_or(piece.len(), |end| from + end);
                if end.is_none() {
                    break;
                }
                self.removed = None;
            }
            let array = memchr(b'[', &piece[from..]);
            let to = array.map_or(piece.len(), |array| from + array + 1);
            piece.copy_within(from..to, kept);
            kept += to - from;
            from = to;
            if array.is_some() && self.ends_with_field(&piece[..kept - 1]) {
                self.removed = Some(InArray { depth: 1, is_in_string: false, is_escaped: false });
            }
        }
        let longest = self.fields.iter().map(|field| field.len()).max().unwrap_or_default();
        let last = &piece[kept.saturating_sub(longest)..kept];
        let too_many = (self.before.len() + last.len()).saturating_sub(longest);
        self.before.drain(..too_many);
        self.before.extend_from_slice(last);
        kept
    }

    /// Whether the text ends with one of the fields. `end` is the last part of the text, which follows after `before`.
    fn ends_with_field(&self, end: &[u8]) -> bool {
        self.fields.iter().any(|field| {
            let field = field.as_bytes();
            match field.len().checked_sub(end.len()) {
                None | Some(0) => end.ends_with(field),
                Some(rest) => field.ends_with(end) && self.before.ends_with(&field[..rest]),
            }
        })
    }
}

impl InArray {
    /// Returns the index of the bracket that ends the array. Returns `None` when the array does not end in this text.
    fn end_of_array(&mut self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < text.len() {
            if std::mem::take(&mut self.is_escaped) {
                at += 1;
                continue;
            }
            let rest = &text[at..];
            at += if self.is_in_string {
                memchr2(b'"', b'\\', rest)?
            } else {
                memchr3(b'"', b'[', b']', rest)?
            };
            match text[at] {
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                b'[' => self.depth += 1,
                _ if self.depth == 1 => return Some(at),
                _ => self.depth -= 1,
            }
            at += 1;
        }
        None
    }
}

impl<R: Read> Read for WithoutArrays<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.text.read(into)?;
            if count == 0 || self.fields.is_empty() {
                return Ok(count);
            }
            // When all of these bytes are removed, more bytes are read, because a result of zero would mean the end.
            let kept = self.remove(&mut into[..count]);
            if kept > 0 {
                return Ok(kept);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A reader that returns at most `size` bytes at a time.
    struct Pieces<'a> {
        text: &'a [u8],
        size: usize,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let size = self.size.min(into.len());
            self.text.by_ref().take(size as u64).read(into)
        }
    }

    const FIELDS: &[&str] = &[r#""managedFields":"#, r#""images":"#];

    #[test]
    #[rustfmt::skip] // Each line is a case.
    fn the_arrays_of_the_fields_become_empty_in_pieces_of_any_size() {
        for (name, text, expected) in [
            ("no array", r#"{"a":1}"#, r#"{"a":1}"#),
            ("other arrays", r#"{"a":[1,[2]],"b":[]}"#, r#"{"a":[1,[2]],"b":[]}"#),
            ("two fields", r#"{"images":[1],"managedFields":[2],"c":[3]}"#, r#"{"images":[],"managedFields":[],"c":[3]}"#),
            ("again and again", r#"[{"images":[1]},{"images":[2]}]"#, r#"[{"images":[]},{"images":[]}]"#),
            ("empty", r#"{"images":[]}"#, r#"{"images":[]}"#),
            ("arrays in it", r#"{"images":[[],[[1],{"a":[2]}]],"a":1}"#, r#"{"images":[],"a":1}"#),
            ("brackets in strings", r#"{"images":["]","[[","\"]","\\"],"a":"]"}"#, r#"{"images":[],"a":"]"}"#),
            ("the field inside of itself", r#"{"images":[{"images":[1]}],"a":1}"#, r#"{"images":[],"a":1}"#),
            ("no array as the value", r#"{"images":"[1]","managedFields":{"a":[1]}}"#, r#"{"images":"[1]","managedFields":{"a":[1]}}"#),
            ("a longer name", r#"{"my-images":[1],"images2":[2]}"#, r#"{"my-images":[1],"images2":[2]}"#),
            ("text that looks like the field", r#"{"a":"\"images\":[1]","b":"images"}"#, r#"{"a":"\"images\":[1]","b":"images"}"#),
            ("a string in an array", r#"["images",["a"]]"#, r#"["images",["a"]]"#),
            ("cut off", r#"{"images":[1,[2],"#, r#"{"images":["#),
            ("other bytes", "{\"images\":[\"\u{e4}]\"],\"a\":\"\u{e4}\"}", "{\"images\":[],\"a\":\"\u{e4}\"}"),
        ] {
            for size in 1..=text.len() {
                let mut read = String::new();
                let pieces = Pieces { text: text.as_bytes(), size };
                WithoutArrays::new(pieces, FIELDS).read_to_string(&mut read).unwrap();
                assert_eq!(read, expected, "{name}, pieces of {size}");
            }
        }
    }

    #[test]
    fn without_fields_nothing_changes() {
        let mut read = String::new();
        let text = r#"{"images":[1]}"#;
        WithoutArrays::new(text.as_bytes(), &[]).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
    }
}
