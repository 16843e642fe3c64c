//! Is there anything of a secret in a text?

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashSet;

/// As many characters in a row are enough: half a secret, and one with a slip in it, are found as well.
const PIECE: usize = 16;

/// What may be in no output, in every form in which it may be written down.
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

    /// The first piece of one in a text, as it is or escaped in it.
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

/// `%6b`, `\u006b` and `\\u006b` as `k`.
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
                // Escaped twice.
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

/// The lines of a secret, and base64 of it.
fn forms(secret: &str) -> Vec<String> {
    let lines = secret.lines().filter(|line| !line.starts_with("-----"));
    let mut forms: Vec<String> = lines.map(str::to_owned).collect();
    // Three forms, because base64 takes three bytes at a time and something may stand before it.
    forms.extend((0..3).map(|skipped| STANDARD.encode(secret.get(skipped..).unwrap_or_default())));
    forms
}
