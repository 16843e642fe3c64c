//! Is there anything of a secret in a text?

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashSet;

/// As many characters in a row are enough: half a secret, and one with a slip in it, are found as well.
const PIECE: usize = 16;

/// The first piece of a secret in a text.
pub fn leak(text: &str, secrets: &[String]) -> Option<String> {
    let pieces: HashSet<&[u8]> = secrets
        .iter()
        .flat_map(|secret| secret.as_bytes().windows(PIECE))
        .collect();
    text.as_bytes()
        .windows(PIECE)
        .find(|window| pieces.contains(window))
        .map(|window| String::from_utf8_lossy(window).into_owned())
}

/// A secret in all the forms in which it may be written down: its lines, and base64 of it.
pub fn forms(secret: &str) -> Vec<String> {
    let lines = secret.lines().filter(|line| !line.starts_with("-----"));
    let mut forms: Vec<String> = lines.map(str::to_owned).collect();
    // Three forms, because base64 takes three bytes at a time and something may stand before it.
    forms.extend((0..3).map(|skipped| STANDARD.encode(secret.get(skipped..).unwrap_or_default())));
    forms
}
