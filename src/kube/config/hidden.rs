//! What a message must not repeat: a field of a kubeconfig may hold a secret that belongs into the field next to it.

/// As many letters and digits in a row are no name that people give.
const SECRET_CHARACTERS: usize = 32;

/// So many are enough when they are mixed as nobody writes them.
const MIXED_CHARACTERS: usize = 16;

/// Of a file's extension, at most.
const EXTENSION_CHARACTERS: usize = 6;

/// May this be base64, a JWT or another token instead of a path or a URL? A path that is taken
/// for one is only not shown, so doubts count as yes.
pub(super) fn is_perhaps_secret(text: &str) -> bool {
    let is_short = text.len() < MIXED_CHARACTERS;
    // `{"` in base64, with which every JWT begins.
    let is_jwt = text.starts_with("eyJ");
    let is_base64 = text.contains(['+', '=']);
    let is_one_word = !text.contains(['/', '\\']) && !has_extension(text);
    !is_short && (is_jwt || is_base64 || is_one_word || has_long_run(text) || text.contains('\n'))
}

/// A text that should have been a URL, in quotes; without its query, and not at all when it may be a secret.
pub(super) fn url(text: &str) -> String {
    let (shown, query) = match text.find(['?', '#']) {
        Some(at) => (&text[..at], "?…"),
        None => (text, ""),
    };
    let is_address = shown.contains("://") || shown.contains([':', '.', ' ']);
    if has_long_run(shown) || (!is_address && is_perhaps_secret(shown)) {
        return "[not shown: looks like a secret]".into();
    }
    format!("{:?}", format!("{shown}{query}"))
}

/// What another program says, without what may be secret in it: words that look like tokens, what stands behind a name
/// such as `password`, and the login of a URL.
pub(super) fn without_secrets(text: &str) -> String {
    // Whatever its lines look like, and however they were cut.
    if text.contains("PRIVATE KEY") || text.contains("-----BEGIN") {
        return "[not shown: holds a private key]".into();
    }
    without_secret_words(&without_named_secrets(text))
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
        let is_secret = is_base64 || word.starts_with("eyJ") || has_long_run(word);
        shown += if is_secret { NOT_SHOWN } else { word };
        let end = after.find(is_part).unwrap_or(after.len());
        shown += &after[..end];
        rest = &after[end..];
    }
    shown
}

const NOT_SHOWN: &str = "[not shown]";

/// What stands behind a name that has one of these in it is secret.
const SECRET_NAMES: [&str; 9] = [
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

/// `password=…`, `"token": "…"`, `--secret …`, `Authorization: …`, `Bearer …`, `https://…@`.
fn without_named_secrets(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        shown += name;
        let (kept, secret) = behind(&name.to_ascii_lowercase(), after);
        shown += &after[..kept];
        let is_redacted = after[kept..].starts_with("[redacted]");
        if secret > 0 && !is_redacted {
            shown += NOT_SHOWN;
            rest = &after[kept + secret..];
        } else {
            let end = after[kept..].find(is_name).unwrap_or(after.len() - kept);
            // At least a character: a name alone is not read twice.
            shown += &after[kept..kept + end];
            rest = &after[kept + end..];
        }
    }
    shown
}

/// Behind a name: how many bytes are shown, and how many after them are secret.
fn behind(name: &str, after: &str) -> (usize, usize) {
    let until = |from: usize, is_end: fn(char) -> bool| {
        let text = &after[from..];
        text.find(is_end).unwrap_or(text.len())
    };
    let spaces = after.len() - after.trim_start_matches([' ', '\t']).len();
    if name.ends_with("authorization") {
        let begin = after.len()
            - after
                .trim_start_matches([' ', '\t', ':', '=', '"', '\''])
                .len();
        return (begin, until(begin, |c| matches!(c, '\n' | '\r')));
    }
    let is_word_end =
        |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '&' | '"' | '\'' | '}');
    if name == "bearer" && spaces > 0 {
        return (spaces, until(spaces, is_word_end));
    }
    if let Some(login) = after.strip_prefix("://") {
        let authority = login
            .split(|c: char| c.is_whitespace() || matches!(c, '/' | '"'))
            .next()
            .unwrap_or_default();
        return match authority.rfind('@') {
            Some(end) => (3, end),
            None => (0, 0),
        };
    }
    if !SECRET_NAMES.iter().any(|secret| name.contains(secret)) {
        return (0, 0);
    }
    // The quote that ends the name, and what stands between it and the value.
    let unquoted = after.trim_start_matches(['"', '\'']);
    let assigned = unquoted.trim_start_matches([' ', '\t']);
    let value = match assigned.strip_prefix(['=', ':']) {
        Some(value) => value.trim_start_matches([' ', '\t']),
        None if name.starts_with('-') && spaces > 0 => after.trim_start_matches([' ', '\t']),
        None => return (0, 0),
    };
    let begin = after.len() - value.len();
    match value.chars().next() {
        Some('"') => (begin + 1, until(begin + 1, |c| c == '"')),
        Some('\'') => (begin + 1, until(begin + 1, |c| c == '\'')),
        _ => (begin, until(begin, is_word_end)),
    }
}

/// `client.crt` has one, the bootstrap token `abcdef.0123456789abcdef` has none.
fn has_extension(text: &str) -> bool {
    text.rsplit_once('.').is_some_and(|(_, extension)| {
        (1..=EXTENSION_CHARACTERS).contains(&extension.len())
            && extension.starts_with(|c: char| c.is_ascii_alphabetic())
    })
}

fn has_long_run(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
        let has = |is: fn(&char) -> bool| run.chars().any(|c| is(&c));
        let is_mixed = has(char::is_ascii_uppercase)
            && has(char::is_ascii_lowercase)
            && has(char::is_ascii_digit);
        run.len() >= SECRET_CHARACTERS || (is_mixed && run.len() >= MIXED_CHARACTERS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn what_looks_like_a_secret_is_told_from_a_path() {
        for (text, expected) in [
            ("", false),
            ("client.key", false),
            ("../pki/kubelet-client-current.pem", false),
            ("/var/lib/kubelet/pki/kubelet-client-2026-11-20-10-00-00.pem", false),
            ("/home/somebody/.kube/production-cluster/token", false),
            ("kubelet-client-current.pem", false),
            ("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t", true),
            ("TUlJ/Q0FTL+x/a2V5/b25l==", true),
            ("eyJhbGciOiJSUzI1NiJ9.e30.c2ln", true),
            ("abcdef.0123456789abcdef", true),
            ("hunter2-hunter2-hunter2", true),
            ("/tmp/0123456789abcdef0123456789abcdef", true),
            ("/tmp/jEheVytlAoFl7F8M", true),
        ] {
            assert_eq!(is_perhaps_secret(text), expected, "{text}");
        }
    }

    #[test]
    fn words_that_may_be_secrets_are_taken_out_of_a_text() {
        for (text, shown) in [
            ("", ""),
            ("no such profile: prod", "no such profile: prod"),
            (
                "see https://docs.example.com/get-token.html, please",
                "see https://docs.example.com/get-token.html, please",
            ),
            (
                "token=\"eyJhbGciOiJSUzI1NiJ9.e30.c2ln\" is old",
                "token=\"[not shown]\" is old",
            ),
            (
                "k8s: 0123456789abcdef0123456789abcdef!",
                "k8s: [not shown]!",
            ),
            ("ä LS0tLS1CRUdJTiBQUklWQVRF ö", "ä [not shown] ö"),
            ("a BAQQgzQa1hWl+lTcpqu0f b", "a [not shown] b"),
            ("Authorization: Bearer abc123", "Authorization: [not shown]"),
            (
                "proxy-authorization: Basic YWJj\nnext",
                "proxy-authorization: [not shown]\nnext",
            ),
            (
                "used bearer abc123, which",
                "used bearer [not shown], which",
            ),
            ("password=hunter2 user=me", "password=[not shown] user=me"),
            (
                "DB_PASSWORD: \"two words\", x",
                "DB_PASSWORD: \"[not shown]\", x",
            ),
            (
                "{\"id_token\": \"abc\", \"a\": 1}",
                "{\"id_token\": \"[not shown]\", \"a\": 1}",
            ),
            ("client_secret = 'a b'", "client_secret = '[not shown]'"),
            ("--token abc123 --x", "--token [not shown] --x"),
            ("--password=[redacted]", "--password=[redacted]"),
            ("?access_token=abc&b=1", "?access_token=[not shown]&b=1"),
            (
                "api-key=abc apikey:abc",
                "api-key=[not shown] apikey:[not shown]",
            ),
            (
                "the token is too old; no secret",
                "the token is too old; no secret",
            ),
            (
                "https://me:hunter2@h/ x@y.z",
                "https://[not shown]@h/ x@y.z",
            ),
            ("https://me@h/", "https://[not shown]@h/"),
            ("password=", "password="),
            ("password=\"open", "password=\"[not shown]"),
            ("ä password=ö ü", "ä password=[not shown] ü"),
            (
                "-----BEGIN RSA KEY-----\nabc",
                "[not shown: holds a private key]",
            ),
            (
                "log: -----BEGIN PRIVATE KEY-----\nAAAA",
                "[not shown: holds a private key]",
            ),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }

    #[test]
    fn a_url_is_shown_without_what_may_be_secret_in_it() {
        for (text, shown) in [
            ("10.0.0.1", "\"10.0.0.1\""),
            ("https://h/?token=hunter2", "\"https://h/?…\""),
            ("https://h/#hunter2", "\"https://h/?…\""),
            ("not a URL\n", "\"not a URL\\n\""),
            (
                "ftp://my-cluster.example.com",
                "\"ftp://my-cluster.example.com\"",
            ),
            (
                "hunter2-hunter2-hunter2",
                "[not shown: looks like a secret]",
            ),
            (
                "https://h/LS0tLS1CRUdJTiBQUklWQVRF",
                "[not shown: looks like a secret]",
            ),
        ] {
            assert_eq!(url(text), shown, "{text}");
        }
    }
}
