//! Values that must never be printed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A token or password. `Debug` and `Display` say nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Trimmed: files end in a newline.
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    /// As it is: a password may begin or end in white space.
    pub fn exactly(text: String) -> Secret {
        Secret(text)
    }

    /// As it stands inside a JSON text.
    pub(super) fn in_json(&self) -> Secret {
        let quoted = serde_json::Value::from(self.0.as_str()).to_string();
        let inner = quoted
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        Secret(inner.unwrap_or(&quoted).to_owned())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// How long it is, the only thing about it that may be said.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Can it be sent? A header takes visible ASCII, and no token has anything else.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.0.chars().all(|c| c.is_ascii_graphic()) {
            true => Ok(()),
            false => {
                Err("holds characters that no token has, e.g. white space inside; copy it anew")
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Takes known secrets out of a text that is about to be logged, in whatever way the text writes their characters.
pub struct Redactor<'a> {
    secrets: Vec<&'a Secret>,
}

impl<'a> Redactor<'a> {
    pub fn new(secrets: impl IntoIterator<Item = &'a Secret>) -> Redactor<'a> {
        Redactor {
            secrets: secrets
                .into_iter()
                .filter(|secret| !secret.is_empty())
                .collect(),
        }
    }

    pub fn redact(&self, text: &str) -> String {
        let forms: Vec<String> = self.secrets.iter().flat_map(|it| it.forms()).collect();
        redacted(text, &forms).into_owned()
    }
}

/// In place of a secret.
const REDACTED: &str = "[redacted]";

/// Of base64, less than this is not looked for: it would be found in other texts.
const BASE64_CHARACTERS: usize = 16;

/// A JSON text in a JSON text in a JSON text has as many.
const BACKSLASHES_AT_MOST: usize = 8;

/// A shorter one is not looked for in everything that is printed.
const SHORTEST_KNOWN: usize = 8;

/// So many are remembered: those in use, and some that were replaced a while ago.
const KNOWN_AT_MOST: usize = 8;

/// What this process has shown to an API, the newest last, each in its forms.
static KNOWN: Mutex<Vec<Arc<Known>>> = Mutex::new(Vec::new());

struct Known {
    secret: Secret,
    forms: Vec<String>,
}

/// From now on no output holds them: see [`without_known_secrets`].
pub(super) fn remember(secrets: &[Secret]) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    for secret in secrets {
        if secret.len() < SHORTEST_KNOWN || known.iter().any(|other| other.secret == *secret) {
            continue;
        }
        if known.len() >= KNOWN_AT_MOST {
            known.remove(0);
        }
        known.push(Arc::new(Known {
            secret: secret.clone(),
            forms: secret.forms(),
        }));
    }
}

/// A text that is about to leave this process for people, without what it has shown to an API.
///
/// Whatever an API answers may repeat what it was sent, in any field of any object.
pub fn without_known_secrets(text: &str) -> Cow<'_, str> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let forms: Vec<&String> = known.iter().flat_map(|one| &one.forms).collect();
    redacted(text, &forms)
}

impl Secret {
    /// As it is, and base64 of it: what stands in it does not depend on its neighbours, but on how many bytes stand
    /// before it.
    fn forms(&self) -> Vec<String> {
        let mut forms = vec![self.0.clone()];
        for before in 0..3 {
            let bytes = [&[0; 2][..before.min(2)], self.0.as_bytes()].concat();
            let text = STANDARD.encode(&bytes);
            let begin = (before * 8).div_ceil(6);
            let end = bytes.len() * 8 / 6;
            let inner = text.get(begin..end).unwrap_or_default();
            if inner.len() >= BASE64_CHARACTERS {
                forms.push(inner.to_owned());
                forms.push(inner.replace('+', "-").replace('/', "_"));
            }
        }
        forms.dedup();
        forms
    }
}

fn redacted<'a>(text: &'a str, forms: &[impl AsRef<str>]) -> Cow<'a, str> {
    let mut is_first = [false; 256];
    for byte in forms.iter().filter_map(|form| form.as_ref().bytes().next()) {
        is_first[usize::from(byte)] = true;
    }
    let next = |at: usize| {
        let may_begin = |byte: &u8| is_first[usize::from(*byte)] || matches!(byte, b'%' | b'\\');
        text.as_bytes()[at..].iter().position(may_begin)
    };
    let mut shown = String::new();
    // What was copied to `shown` ends here.
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = next(at) {
        at += found;
        // Of a long row only the end can begin an escape: the cost of a text is linear in its length.
        at += backslashes(&text[at..]).saturating_sub(BACKSLASHES_AT_MOST);
        let rest = &text[at..];
        let mut bytes = [0; 4];
        let decoded = unit(rest).0.encode_utf8(&mut bytes).as_bytes()[0];
        let literal = rest.as_bytes()[0];
        let longest = match is_first[usize::from(decoded)] || is_first[usize::from(literal)] {
            true => {
                let lengths = forms.iter();
                lengths
                    .filter_map(|form| written(rest, form.as_ref()))
                    .max()
            }
            false => None,
        };
        match longest {
            Some(length) => {
                shown.push_str(&text[copied..at]);
                shown.push_str(REDACTED);
                at += length;
                copied = at;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(shown + &text[copied..]),
    }
}

/// How many bytes `secret` takes at the beginning of a text, if it stands there, each character written plainly or
/// escaped.
fn written(text: &str, secret: &str) -> Option<usize> {
    let mut rest = text;
    for c in secret.chars() {
        let length = match unit(rest) {
            (decoded, length) if decoded == c && length > 0 => length,
            _ if rest.starts_with(c) => c.len_utf8(),
            _ => return None,
        };
        rest = &rest[length..];
    }
    Some(text.len() - rest.len())
}

/// The first character that a text means, and how many bytes say it: `k`, `%6b`, `\u006b`, `\x6b`, and the same escaped
/// once more; `\"` for `"`. What is no escape means itself.
fn unit(text: &str) -> (char, usize) {
    let Some(first) = text.chars().next() else {
        return ('\0', 0);
    };
    let decoded = match first {
        '%' => percent_unit(text),
        '\\' => percent_unit(text).or_else(|| backslash_unit(text)),
        _ => None,
    };
    decoded.unwrap_or((first, first.len_utf8()))
}

/// The bytes of one character, each as `%6b` or, in JSON, as `\u00256b`.
fn percent_unit(text: &str) -> Option<(char, usize)> {
    let mut bytes = Vec::with_capacity(4);
    let mut rest = text;
    loop {
        rest = rest
            .strip_prefix('%')
            .or_else(|| rest.strip_prefix("\\u0025"))?;
        bytes.push(u8::try_from(hex(rest, 2)?).ok()?);
        rest = &rest[2..];
        match std::str::from_utf8(&bytes) {
            Ok(decoded) => return Some((decoded.chars().next()?, text.len() - rest.len())),
            Err(_) if bytes.len() < 4 => {}
            Err(_) => return None,
        }
    }
}

fn backslash_unit(text: &str) -> Option<(char, usize)> {
    let row = backslashes(text);
    if row > BACKSLASHES_AT_MOST {
        return None;
    }
    let after = &text[row..];
    let (decoded, length) = match after.chars().next()? {
        'u' => {
            let high = hex(&after[1..], 4)?;
            match char::from_u32(high) {
                Some(decoded) => (decoded, 5),
                None => {
                    let row = backslashes(&after[5..]).min(BACKSLASHES_AT_MOST);
                    let low = after[5 + row..].strip_prefix('u')?;
                    let units = [high, hex(low, 4)?].map(|unit| unit as u16);
                    let decoded = char::decode_utf16(units).next()?.ok()?;
                    (decoded, 5 + row + 5)
                }
            }
        }
        'x' => (char::from_u32(hex(&after[1..], 2)?)?, 3),
        plain @ ('"' | '/') => (plain, 1),
        _ => return None,
    };
    Some((decoded, row + length))
}

/// So many digits at the beginning of a text.
fn hex(text: &str, digits: usize) -> Option<u32> {
    let text = text.get(..digits)?;
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

/// How many stand at the beginning of a text.
fn backslashes(text: &str) -> usize {
    text.bytes().take_while(|byte| *byte == b'\\').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_secret_is_printed() {
        let secret = Secret::new(" s3cr3t\n");
        assert_eq!(secret.expose(), "s3cr3t");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(
            Redactor::new([&secret]).redact("{\"a\":\"s3cr3t\"}"),
            "{\"a\":\"[redacted]\"}"
        );
    }

    /// What is written, and what is shown of it.
    #[test]
    #[rustfmt::skip] // A case is a line.
    fn a_secret_is_found_however_it_is_written() {
        let secret = Secret::new("k1/s3cr3t-\"x");
        let redactor = Redactor::new([&secret]);
        for (text, shown) in [
            ("", ""),
            ("k1/s3cr3t-\"", "k1/s3cr3t-\""),
            ("a k1/s3cr3t-\"x b k1/s3cr3t-\"x", "a [redacted] b [redacted]"),
            ("\\u006b1/s3cr3t-\"x", "[redacted]"),
            ("k1\\/s3cr3t-\\\"x", "[redacted]"),
            ("k1\\\\\\/s3cr3t-\\\\\\\"x", "[redacted]"),
            ("k\\\\u0031\\u002Fs3cr3t-\\u0022x", "[redacted]"),
            ("%6b1%2Fs3cr3t%2d%22x", "[redacted]"),
            ("\\u00256b1\\u00252Fs3cr3t-\\x22x", "[redacted]"),
            ("kk1/s3cr3t-\"xx", "k[redacted]x"),
            ("ä%\\u00%6", "ä%\\u00%6"),
            ("\\u006", "\\u006"),
            ("\\uD83D\\uDE00", "\\uD83D\\uDE00"),
        ] {
            assert_eq!(redactor.redact(text), shown, "{text}");
        }
        let password = Secret::exactly("pä😀ß\\n".into());
        let redactor = Redactor::new([&password]);
        for text in ["pä😀ß\\n", "p\\u00e4\\ud83d\\uDE00ß\\n", "p%c3%a4%F0%9F%98%80%C3%9F\\n"] {
            assert_eq!(redactor.redact(text), "[redacted]", "{text}");
        }
    }

    /// Whatever the pieces are, nothing is lost but what was taken out.
    #[test]
    fn texts_of_broken_escapes_are_no_panic() {
        let pieces = [
            "\\", "\\\\", "u", "00", "6b", "%", "%6", "ä", "k", "\"", "x", "😀", "d83d", "25", "k1",
        ];
        let secrets = ["k1", "\\u", "%6b", "ä😀", "\u{10ffff}"].map(Secret::new);
        let redactor = Redactor::new(&secrets);
        let mut state = 1_u64;
        for _ in 0..2_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            let shown = redactor.redact(&text);
            if !shown.contains(REDACTED) {
                assert_eq!(shown, text);
            }
            assert!(
                !shown.replace(REDACTED, "|").contains("ä😀"),
                "{text}: {shown}"
            );
        }
    }

    #[test]
    fn a_long_text_costs_its_length() {
        let secrets: Vec<Secret> = (0..8)
            .map(|number| Secret::new(&format!("of-this-test-{number}-and-long-enough")))
            .collect();
        let redactor = Redactor::new(&secrets);
        for part in [
            "\\",
            "%",
            "\\u006f",
            "%6f",
            "of-this-test-",
            "b2Yt",
            "\\\\\\\\\\\\\\\\u",
        ] {
            let text = part.repeat((64 << 10) / part.len());
            let begun = std::time::Instant::now();
            assert_eq!(redactor.redact(&text), text);
            let took = begun.elapsed();
            assert!(took.as_secs() < 5, "{part}: {took:?}");
        }
    }

    /// Wherever it begins in what was encoded.
    #[test]
    fn a_secret_is_found_in_base64() {
        let secret = Secret::new("s3cr3t-s3cr3t?s3cr3t~~~");
        let redactor = Redactor::new([&secret]);
        let alphabet = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        for before in ["", "a", "ab", "abc", "Bearer "] {
            for after in ["", "z", "zy", "zyx"] {
                let text = format!("{before}{}{after}", secret.expose());
                for encoded in [STANDARD.encode(&text), alphabet.encode(&text)] {
                    let shown = redactor.redact(&encoded);
                    let left = shown.replace(REDACTED, "");
                    assert!(
                        shown.contains(REDACTED) && left.len() <= 20,
                        "{text}: {shown}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_was_shown_to_an_api_is_in_no_output() {
        let secrets: Vec<Secret> = (0..20)
            .map(|number| Secret::new(&format!("of-this-test-{number}-only")))
            .collect();
        remember(&secrets);
        remember(&[Secret::new("short")]);
        let shown = without_known_secrets("of-this-test-19-only, of-this-test-0-only, short");
        assert_eq!(shown, "[redacted], of-this-test-0-only, short");
    }
}
