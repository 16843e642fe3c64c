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

/// What another program says, without the words in it that may be secrets.
pub(super) fn without_secrets(text: &str) -> String {
    // Whatever its lines look like, and however they were cut.
    if text.contains("PRIVATE KEY") {
        return "[not shown: holds a private key]".into();
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+/=_-.".contains(c);
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_base64 =
            word.len() >= MIXED_CHARACTERS && (word.contains('+') || word.ends_with('='));
        let is_secret = is_base64 || word.starts_with("eyJ") || has_long_run(word);
        shown += if is_secret { "[not shown]" } else { word };
        let end = after.find(is_part).unwrap_or(after.len());
        shown += &after[..end];
        rest = &after[end..];
    }
    shown
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
