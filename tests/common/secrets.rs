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

    /// The first piece of one in a text.
    pub fn leak(&self, text: &str) -> Option<String> {
        text.as_bytes()
            .windows(PIECE)
            .find(|window| self.pieces.contains(*window))
            .map(|window| String::from_utf8_lossy(window).into_owned())
    }
}

/// The lines of a secret, and base64 of it.
fn forms(secret: &str) -> Vec<String> {
    let lines = secret.lines().filter(|line| !line.starts_with("-----"));
    let mut forms: Vec<String> = lines.map(str::to_owned).collect();
    // Three forms, because base64 takes three bytes at a time and something may stand before it.
    forms.extend((0..3).map(|skipped| STANDARD.encode(secret.get(skipped..).unwrap_or_default())));
    forms
}
