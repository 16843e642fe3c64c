//! Commands that are printed to be copied. Every shell takes each argument as one word, whatever it contains.

use crate::common::random::Random;
use ::ccm::text::shell_command;
use std::process::Command;

/// Characters that shells treat specially, and some letters.
const LETTERS: &[&str] = &[
    "a",
    "Z",
    "7",
    " ",
    "\t",
    "'",
    "''",
    "\"",
    "\\",
    "\\\\",
    "$",
    "$(touch ran)",
    "`",
    "`touch ran`",
    ";",
    "&",
    "|",
    "<",
    ">",
    "*",
    "?",
    "[",
    "]",
    "{",
    "}",
    ",",
    "~",
    "#",
    "!",
    "!!",
    "=",
    "%",
    "^",
    "(",
    ")",
    "-",
    "/",
    "\u{e4}",
    "\u{65e5}",
];

/// How each shell is started. zsh is also started with the option that reads two single quotes inside of a text as one.
const SHELLS: [(&str, &[&str]); 5] = [
    ("bash", &["-c"]),
    ("sh", &["-c"]),
    ("zsh", &["-fc"]),
    ("zsh", &["-f", "-o", "RC_QUOTES", "-c"]),
    ("fish", &["-c"]),
];

fn words(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let mut word = || {
        let length = random.below(8);
        (0..length).map(|_| *random.pick(LETTERS)).collect()
    };
    let mut words: Vec<String> = (0..400).map(|_| word()).collect();
    words.extend(LETTERS.iter().map(|letter| (*letter).to_owned()));
    // These words begin or end with a special character.
    words.extend(["a\\", "\\", "'", "a'", "=ls", "~", "-n", ""].map(str::to_owned));
    words
}

#[test]
fn every_shell_takes_an_argument_as_one_word() {
    let words = words(33);
    for (shell, flags) in SHELLS {
        let lines = words.iter().map(|word| {
            let command = shell_command("printf '<%s>\\n'", &[word, &"end"]);
            assert_eq!(command.lines().count(), 1, "{command}");
            command + "\n"
        });
        let lines: String = lines.collect();
        let ran = Command::new(shell).args(flags).arg(lines).output();
        let Ok(ran) = ran else {
            sandbox::skipped::skip("printed", shell, &format!("there is no {shell}"));
            continue;
        };
        let printed = String::from_utf8(ran.stdout).unwrap();
        let one_line = |word: &String| ::ccm::text::one_line(word).into_owned();
        let expected = words.iter().map(|word| format!("<{}>\n<end>\n", one_line(word)));
        let expected: String = expected.collect();
        for (printed, expected) in printed.lines().zip(expected.lines()) {
            assert_eq!(printed, expected, "{shell} {flags:?}");
        }
        assert_eq!(printed, expected, "{shell} {flags:?}");
    }
}
