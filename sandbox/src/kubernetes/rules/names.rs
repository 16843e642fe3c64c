//! Validation of names, labels and qualified names. The errors have the same texts as those of `apimachinery`.
//!
//! Every function returns what is wrong with its argument. An empty list means that the argument is valid.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Checks a DNS label of at most 63 bytes.
pub fn label(name: &str) -> Vec<String> {
    let shape = is_label(name);
    findings(name, 63, shape, LABEL)
}

/// Checks a DNS name of at most 253 bytes.
pub fn subdomain(name: &str) -> Vec<String> {
    let shape = name.split('.').all(is_label);
    findings(name, 253, shape, SUBDOMAIN)
}

/// Checks that a name can be one part of the path of a URL: it is not `.` or `..`, and has neither `/` nor `%`.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => ['/', '%']
            .iter()
            .filter(|character| name.contains(**character))
            .map(|character| format!("may not contain '{character}'"))
            .collect(),
    }
}

pub fn label_value(value: &str) -> Vec<String> {
    findings(value, 63, value.is_empty() || is_word(value), LABEL_VALUE)
}

/// Checks a qualified name, e.g. the key of a label. It has the form `name` or `prefix/name`.
pub fn qualified(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![format!(
                "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut found = Vec::new();
    match prefix {
        Some("") => found.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            found.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")))
        }
        None => {}
    }
    if name.is_empty() {
        found.push("name part must be non-empty".into());
    }
    found.extend(
        findings(name, 63, is_word(name), QUALIFIED)
            .into_iter()
            .map(|why| format!("name part {why}")),
    );
    found
}

fn findings(text: &str, most_bytes: usize, shape: bool, rule: &str) -> Vec<String> {
    let mut found = Vec::new();
    if text.len() > most_bytes {
        found.push(format!("must be no more than {most_bytes} bytes"));
    }
    if !shape {
        found.push(rule.into());
    }
    found
}

fn is_label(text: &str) -> bool {
    let lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_shape(text, lower, |byte| lower(byte) || *byte == b'-')
}

/// Whether the text has letters and digits at both ends, and only `-`, `_`, `.`, letters and digits between.
fn is_word(text: &str) -> bool {
    has_shape(text, u8::is_ascii_alphanumeric, |byte| {
        byte.is_ascii_alphanumeric() || b"-_.".contains(byte)
    })
}

fn has_shape(text: &str, end: impl Fn(&u8) -> bool, inside: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&end) && bytes.last().is_some_and(&end) && bytes.iter().all(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_a_name_decides_whether_it_is_valid() {
        let long = "a".repeat(64);
        type Check = fn(&str) -> Vec<String>;
        let cases: [(Check, &str, bool); 14] = [
            (label, "9bad", true),
            (label, "a.b", false),
            (label, "-a", false),
            (label, &long, false),
            (subdomain, "a.b-c.d", true),
            (subdomain, "Worker_1", false),
            (subdomain, "a..b", false),
            (label_value, "", true),
            (label_value, "A_b.c-1", true),
            (label_value, "not valid!", false),
            (qualified, "example.com/MyName", true),
            (qualified, "a/b/c", false),
            (qualified, "/a", false),
            (path_segment, "a%b", false),
        ];
        for (check, text, valid) in cases {
            assert_eq!(check(text).is_empty(), valid, "{text}");
        }
    }
}
