//! Checks secrets before they are sent, and redacts them in everything that is printed.

pub use crate::provider::Secret;
use crate::provider::lock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use std::sync::Mutex;

impl Secret {
    /// Returns the secret as it is written in a JSON string, without the quotes.
    pub(super) fn in_json(&self) -> Secret {
        let quoted = serde_json::Value::from(self.expose()).to_string();
        let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        Secret::exactly(inner.unwrap_or(&quoted).to_owned())
    }

    /// Checks whether the secret can be sent in a header, which means that all its characters are visible ASCII.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.expose().chars().all(|c| c.is_ascii_graphic()) {
            Ok(())
        } else {
            Err("holds characters that no token has, e.g. white space; copy it again")
        }
    }

    /// Checks whether the secret can be used as a user name or password for HTTP basic authentication. It is encoded in
    /// base64 before it is sent, so every character is allowed except control characters, e.g. a line end.
    pub fn check_line(&self) -> Result<(), &'static str> {
        if self.expose().contains(char::is_control) {
            return Err(
                "holds more than one line, or characters that can't be typed; copy it again",
            );
        }
        Ok(())
    }

    /// Returns the texts that must be searched for to find the secret in output: the secret itself, and three parts of
    /// base64 texts. When a longer text that contains the secret is encoded in base64, the result contains one of these
    /// three parts. Which part this is depends on the number of bytes before the secret, modulo three.
    fn forms(&self) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut forms = vec![self.expose().to_owned()];
        for before in 0..3 {
            let bytes = [&[0; 2][..before.min(2)], self.expose().as_bytes()].concat();
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

/// Returns the text with these secrets redacted. A secret is also found when characters of it are escaped.
pub fn redact(text: &str, secrets: &[Secret]) -> String {
    redacted(text, secrets).into_owned()
}

/// The text that replaces a secret in output.
const REDACTED: &str = "[redacted]";

/// The shortest base64 text of a secret that is searched for. A shorter text could occur in other texts by chance.
const BASE64_CHARACTERS: usize = 16;

/// How many backslashes before a character are taken for the escape of that character, at most. This is enough for an
/// escape in a JSON text that is nested in two other JSON texts.
const BACKSLASHES_AT_MOST: usize = 8;

/// The shortest secret, in bytes, that is remembered and then redacted in all output. A shorter text could occur in
/// other texts by chance.
const SHORTEST_KNOWN: usize = 8;

/// How many secrets are remembered at most. This is enough for all secrets in use and for some secrets that were
/// replaced.
const KNOWN_AT_MOST: usize = 16;

/// The secrets that this process has sent to an API, the newest last.
static KNOWN: Mutex<Vec<Secret>> = Mutex::new(Vec::new());

/// Remembers these secrets, so that [`without_known_secrets`] redacts them.
pub(super) fn remember(secrets: &[Secret]) {
    let mut known = lock(&KNOWN);
    for secret in secrets {
        if secret.len() < SHORTEST_KNOWN || known.contains(secret) {
            continue;
        }
        if known.len() >= KNOWN_AT_MOST {
            known.remove(0);
        }
        known.push(secret.clone());
    }
}

/// Returns the text without the secrets that this process has sent to an API. All text that is printed, logged or
/// written into an event goes through this function. The text can contain the answer of an API, and an answer can
/// repeat what was sent to the API, in any field of any object.
pub fn without_known_secrets(text: &str) -> Cow<'_, str> {
    redacted(text, &lock(&KNOWN))
}

fn redacted<'a>(text: &'a str, secrets: &[Secret]) -> Cow<'a, str> {
    let forms: Vec<String> = secrets.iter().flat_map(Secret::forms).collect();
    let mut is_first = [false; 256];
    for byte in forms.iter().filter_map(|form| form.bytes().next()) {
        is_first[usize::from(byte)] = true;
    }
    let begins = |c: char| is_first[usize::from(c.encode_utf8(&mut [0; 4]).as_bytes()[0])];
    let mut shown = String::new();
    // Everything before the position `copied` was already copied to `shown` or was redacted.
    let mut copied = 0;
    let mut at = 0;
    while let Some(plain) = text[at..].chars().next() {
        let rest = &text[at..];
        let found = if begins(plain) || begins(unit(rest, plain).0) {
            forms.iter().filter_map(|form| written(rest, form)).max()
        } else {
            None
        };
        if let Some(length) = found {
            shown.push_str(&text[copied..at]);
            shown.push_str(REDACTED);
            copied = at + length;
        }
        at += found.unwrap_or(plain.len_utf8());
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(shown + &text[copied..]),
    }
}

/// When `text` begins with the secret, returns the number of bytes that the secret takes there. Each character of the
/// secret can be escaped in the text. Returns `None` when the text does not begin with the secret.
fn written(text: &str, secret: &str) -> Option<usize> {
    let mut rest = text;
    for c in secret.chars() {
        let plain = rest.chars().next()?;
        let length = match unit(rest, plain) {
            (escaped, length) if escaped == c => length,
            _ if plain == c => c.len_utf8(),
            _ => return None,
        };
        rest = &rest[length..];
    }
    Some(text.len() - rest.len())
}

/// Returns the first unit of a text, which is one character, or an escape that stands for one character. Returns this
/// character, and the number of bytes of the unit. `plain` is the first character of `text` as
/// it is written there, e.g. `%` or `\` when an escape begins. A `k` can be written as `k`, `%6b`, `\u006b` or `\x6b`,
/// and a quote as `\"`. In a JSON text inside another JSON text, escapes have more backslashes.
fn unit(text: &str, plain: char) -> (char, usize) {
    let row = text.bytes().take(BACKSLASHES_AT_MOST).take_while(|byte| *byte == b'\\').count();
    let after = &text[row..];
    let hex = |begin: usize, end: usize| {
        let code = u32::from_str_radix(after.get(begin..end)?, 16).ok()?;
        Some((char::from_u32(code)?, row + end))
    };
    let escaped = match after.as_bytes() {
        [b'%', ..] if row == 0 => hex(1, 3),
        _ if row == 0 => None,
        [b'u', b'0', b'0', b'2', b'5', ..] => hex(5, 7).or_else(|| hex(1, 5)),
        [b'u', ..] => hex(1, 5),
        [b'x', ..] => hex(1, 3),
        [quoted @ (b'"' | b'/'), ..] => Some((char::from(*quoted), row + 1)),
        _ => None,
    };
    escaped.unwrap_or((plain, plain.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_secret_is_printed() {
        let secret = Secret::new(" s3cr3t\n");
        assert_eq!(secret.expose(), "s3cr3t");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(redact("{\"a\":\"s3cr3t\"}", &[secret]), "{\"a\":\"[redacted]\"}");
    }

    /// Each case has a text and the same text after its secrets were redacted. Most texts contain the secret, with its
    /// characters escaped in different ways.
    #[test]
    #[rustfmt::skip] // A case is a line.
    fn a_secret_is_found_however_it_is_written() {
        let secret = Secret::new("k1/s3cr3t-\"x");
        let secrets = [secret];
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
            assert_eq!(redact(text, &secrets), shown, "{text}");
        }
        let password = Secret::exactly("pä😀ß\\n".into());
        let secrets = [password];
        for text in ["pä😀ß\\n", "p\\u00e4😀\\u00DF\\n"] {
            assert_eq!(redact(text, &secrets), "[redacted]", "{text}");
        }
    }

    /// Each text is put together from random pieces of escaped characters, such as `\u` or `%6`. The search for secrets
    /// must not panic, and must not change a text that contains no secret.
    #[test]
    fn texts_of_broken_escapes_are_no_panic() {
        let pieces = [
            "\\", "\\\\", "u", "00", "6b", "%", "%6", "ä", "k", "\"", "x", "😀", "d83d", "25", "k1",
        ];
        let secrets = ["k1", "\\u", "%6b", "ä😀", "\u{10ffff}"].map(Secret::new);
        let mut state = 1_u64;
        for _ in 0..2_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            let shown = redact(&text, &secrets);
            if !shown.contains(REDACTED) {
                assert_eq!(shown, text);
            }
            assert!(!shown.replace(REDACTED, "|").contains("ä😀"), "{text}: {shown}");
        }
    }

    #[test]
    fn a_long_text_costs_its_length() {
        let secrets: Vec<Secret> = (0..8)
            .map(|number| Secret::new(&format!("of-this-test-{number}-and-long-enough")))
            .collect();
        for part in ["\\", "%", "\\u006f", "%6f", "of-this-test-", "b2Yt", "\\\\\\\\\\\\\\\\u"] {
            let text = part.repeat((64 << 10) / part.len());
            let begun = std::time::Instant::now();
            assert_eq!(redact(&text, &secrets), text);
            let took = begun.elapsed();
            assert!(took.as_secs() < 5, "{part}: {took:?}");
        }
    }

    /// Each case encodes a text in base64. The text has other characters before and after the secret. The secret must
    /// be found in each encoded text.
    #[test]
    fn a_secret_is_found_in_base64() {
        let secret = Secret::new("s3cr3t-s3cr3t?s3cr3t~~~");
        let secrets = [secret.clone()];
        let alphabet = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        for before in ["", "a", "ab", "abc", "Bearer "] {
            for after in ["", "z", "zy", "zyx"] {
                let text = format!("{before}{}{after}", secret.expose());
                for encoded in [STANDARD.encode(&text), alphabet.encode(&text)] {
                    let shown = redact(&encoded, &secrets);
                    let left = shown.replace(REDACTED, "");
                    assert!(shown.contains(REDACTED) && left.len() <= 20, "{text}: {shown}");
                }
            }
        }
    }

    #[test]
    fn what_was_shown_to_an_api_is_in_no_output() {
        let secrets: Vec<Secret> =
            (0..20).map(|number| Secret::new(&format!("of-this-test-{number}-only"))).collect();
        remember(&secrets);
        remember(&[Secret::new("short")]);
        let shown = without_known_secrets("of-this-test-19-only, of-this-test-0-only, short");
        assert_eq!(shown, "[redacted], of-this-test-0-only, short");
    }
}
