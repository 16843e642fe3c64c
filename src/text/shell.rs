//! Quotes words in commands that a user can copy into bash, zsh or fish.

use super::shown::one_line;
use std::fmt::Display;

/// Whether the word needs no quotes on the command line of any shell.
pub fn is_plain(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@:._/-".contains(&byte);
    !word.is_empty() && word.bytes().all(is_plain)
}

/// Returns a command that a user can copy. `begin` is fixed text of this program, and is not quoted. Each argument is
/// quoted when necessary, so that it is exactly one word in every shell.
pub fn shell_command(begin: &str, arguments: &[&dyn Display]) -> String {
    let add = |command, argument: &&dyn Display| {
        format!("{command} {}", shell_word(&argument.to_string()))
    };
    arguments.iter().fold(begin.to_owned(), add)
}

fn shell_word(text: &str) -> String {
    // A text such as `LABEL=VALUE` needs no quotes. A text that begins with `=` needs quotes, because zsh replaces
    // `=ls` by the path of the program `ls`.
    if text.split('=').all(is_plain) {
        return text.to_owned();
    }
    let mut word = String::from("'");
    for letter in one_line(text).chars() {
        match letter {
            // Within single quotes, a single quote ends the quoted text in every shell, and a backslash has a special
            // meaning in fish. Therefore the quotes are closed, the character is written with a backslash before it,
            // and the quotes are opened again.
            '\'' | '\\' => word.extend(['\'', '\\', letter, '\'']),
            letter => word.push(letter),
        }
    }
    word + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_quotes_where_a_word_needs_them() {
        for (word, quoted) in [
            ("4711", "4711"),
            ("default/web", "default/web"),
            ("ccm-from-scratch/adopt=default.web", "ccm-from-scratch/adopt=default.web"),
            ("--auto-delete=false", "--auto-delete=false"),
            ("", "''"),
            ("=ls", "'=ls'"),
            ("a b", "'a b'"),
            ("web; curl evil", "'web; curl evil'"),
            ("$(touch x)", "'$(touch x)'"),
            ("it's", r"'it'\''s'"),
            (r"a\", r"'a'\\''"),
            ("a\n\u{1b}", r"'a'\\'n'\\'u001b'"),
            ("ä", "'ä'"),
        ] {
            let expected = format!("hcloud server describe {quoted}");
            assert_eq!(shell_command("hcloud server describe", &[&word]), expected);
        }
        assert_eq!(shell_command("kubectl -n", &[&"a", &"logs", &7]), "kubectl -n a logs 7");
    }

    #[test]
    fn a_plain_word_has_nothing_that_a_shell_knows() {
        for c in (0..=0x2ff).filter_map(char::from_u32) {
            let expected = c.is_ascii_alphanumeric() || "@:._/-".contains(c);
            assert_eq!(is_plain(&c.to_string()), expected, "{c:?}");
        }
        assert!(!is_plain(""));
    }
}
