//! Checks whether a text contains a secret or a part of one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashSet;

/// The number of characters in a row that are enough for a leak: a text with this many consecutive characters of a
/// secret leaks the secret. Half of a long secret, or a secret with a mistake in it, is therefore found too.
const PIECE: usize = 16;

/// The secrets that no output is allowed to contain, in every form in which they can be written.
pub struct Secrets {
    pieces: HashSet<Vec<u8>>,
}

impl Secrets {
    pub fn new(secrets: &[&str]) -> Secrets {
        let forms: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
        let pieces = forms
            .iter()
            .flat_map(|form| form.as_bytes().windows(PIECE))
            .map(<[u8]>::to_vec)
            .collect();
        Secrets { pieces }
    }

    /// Returns the first 16 characters in a row that the text has in common with a secret, or `None` when there are
    /// none. Escaped characters in the text, e.g. `\u006b`, are found too.
    pub fn leak(&self, text: &str) -> Option<String> {
        self.piece(text).or_else(|| self.piece(&unescaped(text)))
    }

    fn piece(&self, text: &str) -> Option<String> {
        text.as_bytes()
            .windows(PIECE)
            .find(|window| self.pieces.contains(*window))
            .map(|window| String::from_utf8_lossy(window).into_owned())
    }
}

/// Replaces escaped characters: `%6b`, `\u006b` and `\\u006b` become `k`.
fn unescaped(text: &str) -> String {
    let hex = |digits: Option<&str>| u8::from_str_radix(digits?, 16).ok().map(char::from);
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (found, length) = match first {
            '%' => (hex(rest.get(1..3)), 3),
            '\\' if rest[1..].starts_with("u00") => (hex(rest.get(4..6)), 6),
            _ => (None, 0),
        };
        match found {
            Some(c) => {
                // A character that was escaped twice has more than one backslash before it, as in `\\u006b`. All of
                // these backslashes are removed.
                while plain.ends_with('\\') {
                    plain.pop();
                }
                plain.push(c);
                rest = &rest[length..];
            }
            None => {
                plain.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    plain
}

/// Returns the forms in which a secret can be written: each line of the secret, and the base64 of the whole secret.
/// Lines that begin with `-----`, as in PEM files, are left out because they are not secret.
fn forms(secret: &str) -> Vec<String> {
    let lines = secret.lines().filter(|line| !line.starts_with("-----"));
    let mut forms: Vec<String> = lines.map(str::to_owned).collect();
    // A secret can be a part of a longer text that is encoded in Base64. Base64 encodes groups of three bytes, and the
    // secret can begin at any of the three bytes of a group. The three encodings here begin at the first, second and
    // third byte of the secret. In each case, the encoded text contains one of them, perhaps without its end.
    forms.extend((0..3).map(|skipped| STANDARD.encode(secret.get(skipped..).unwrap_or_default())));
    forms
}
