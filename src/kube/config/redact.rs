//! What a message must not repeat of a kubeconfig or of a plugin's output: what may be a secret.

const NOT_SHOWN: &str = "[not shown]";

/// As many letters and digits in a row are no name that people give.
const SECRET_CHARACTERS: usize = 32;

/// So many are enough when capitals, small letters and digits are mixed.
const MIXED_CHARACTERS: usize = 16;

/// What follows one of these and `=` or `:` on a line is secret.
const SECRET_NAMES: [&str; 10] = [
    "authorization",
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "apikey",
    "api-key",
    "api_key",
    "credential",
];

/// Is a row of letters and digits in it that people do not write? Then it may be a token, a password or base64.
pub(super) fn may_be_secret(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
        let has = |is: fn(&char) -> bool| run.chars().any(|c| is(&c));
        let is_mixed = has(char::is_ascii_uppercase)
            && has(char::is_ascii_lowercase)
            && has(char::is_ascii_digit);
        run.len() >= SECRET_CHARACTERS || (is_mixed && run.len() >= MIXED_CHARACTERS)
    })
}

/// The output of another program, without what may be secret in it: words that look like tokens, the rest of a line
/// after `password=` or another of [`SECRET_NAMES`], and the login of a URL.
pub(super) fn without_secrets(text: &str) -> String {
    // Whatever its lines look like, and however they were cut.
    if text.contains("PRIVATE KEY") || text.contains("-----BEGIN") {
        return "[not shown: holds a private key]".into();
    }
    let line = |line: &str| {
        let begin = secret_begin(line);
        let shown = &line[..begin.unwrap_or(line.len())];
        let words = shown.split_inclusive(char::is_whitespace);
        let words: String = words
            .map(|word| without_secret_words(&without_login(word)))
            .collect();
        words + if begin.is_some() { NOT_SHOWN } else { "" }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Where the value of the first secret name begins: after `password=`, `"token": "`, `Authorization: `, `Bearer `.
fn secret_begin(line: &str) -> Option<usize> {
    // Of the same length.
    let lower = line.to_ascii_lowercase();
    let ends = |name: &'static str| lower.match_indices(name).map(|(at, name)| at + name.len());
    let value = |end: usize| {
        let name_end =
            line[end..].trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_-".contains(c));
        let after = name_end.trim_start_matches(['"', '\'']).trim_start();
        let value = after
            .strip_prefix(['=', ':'])?
            .trim_start_matches([' ', '"', '\'']);
        (!value.is_empty() && !value.starts_with("[redacted]")).then(|| line.len() - value.len())
    };
    let named = SECRET_NAMES.into_iter().flat_map(ends).filter_map(value);
    named.chain(ends("bearer ")).min()
}

/// `https://me:hunter2@host` → `https://[not shown]@host`
fn without_login(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{NOT_SHOWN}@{host}"),
        None => word.to_owned(),
    }
}

fn without_secret_words(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+/=_-.".contains(c);
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_base64 =
            word.len() >= MIXED_CHARACTERS && (word.contains('+') || word.ends_with('='));
        let is_secret = is_base64 || word.starts_with("eyJ") || may_be_secret(word);
        shown += if is_secret { NOT_SHOWN } else { word };
        let end = after.find(is_part).unwrap_or(after.len());
        shown += &after[..end];
        rest = &after[end..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_letters_and_digits_may_be_a_secret() {
        for (text, expected) in [
            ("", false),
            ("production-cluster", false),
            ("kubelet-client-2026-11-20-10-00-00.pem", false),
            ("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t", true),
            ("eyJhbGciOiJSUzI1NiJ9.e30.c2ln", true),
            ("/tmp/0123456789abcdef0123456789abcdef", true),
            ("/tmp/jEheVytlAoFl7F8M", true),
        ] {
            assert_eq!(may_be_secret(text), expected, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn what_may_be_secret_is_taken_out_of_a_program_s_output() {
        for (text, shown) in [
            ("", ""),
            ("no such profile: prod", "no such profile: prod"),
            ("see https://docs.example.com/get-token.html, please", "see https://docs.example.com/get-token.html, please"),
            ("token=\"eyJhbGciOiJSUzI1NiJ9.e30.c2ln\" is old", "token=\"[not shown]"),
            ("k8s: 0123456789abcdef0123456789abcdef!", "k8s: [not shown]!"),
            ("ä LS0tLS1CRUdJTiBQUklWQVRF ö", "ä [not shown] ö"),
            ("a BAQQgzQa1hWl+lTcpqu0f b", "a [not shown] b"),
            ("Authorization: Bearer abc123", "Authorization: [not shown]"),
            ("proxy-authorization: Basic YWJj\nnext", "proxy-authorization: [not shown]\nnext"),
            ("used bearer abc123, which", "used bearer [not shown]"),
            ("password=hunter2 user=me", "password=[not shown]"),
            ("DB_PASSWORD: \"two words\", x", "DB_PASSWORD: \"[not shown]"),
            ("{\"id_token\": \"abc\", \"a\": 1}", "{\"id_token\": \"[not shown]"),
            ("client_secret = 'a b'", "client_secret = '[not shown]"),
            ("--password=[redacted]", "--password=[redacted]"),
            ("?access_token=abc&b=1", "?access_token=[not shown]"),
            ("api-key=abc apikey:abc", "api-key=[not shown]"),
            ("the token is too old; no secret", "the token is too old; no secret"),
            ("https://me:hunter2@h/ x@y.z", "https://[not shown]@h/ x@y.z"),
            ("https://me@h/", "https://[not shown]@h/"),
            ("password=", "password="),
            ("ä password=ö ü", "ä password=[not shown]"),
            ("-----BEGIN RSA KEY-----\nabc", "[not shown: holds a private key]"),
            ("log: -----BEGIN PRIVATE KEY-----\nAAAA", "[not shown: holds a private key]"),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }
}
