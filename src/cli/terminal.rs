//! What a user's terminal can do: its width, whether it shows colours, and whether text on it can be erased and
//! replaced.

use crate::provider::process::{self, is_terminal};
use crate::provider::{clock, lock};
use crate::settings::Color;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// The width of texts in characters when the terminal's width is not known.
const USUAL: usize = 80;

/// The smallest width of texts in characters. A narrower line would have no space for an indented word.
const LEAST: usize = 40;

/// The value of the flag `--color`. It is set after the flags were read.
pub(super) static COLOR: OnceLock<Color> = OnceLock::new();

/// Whether stdout or stderr is a terminal that understands control codes for colours and for the cursor.
pub(super) fn obeys_codes(is_stderr: bool) -> bool {
    let can = |term: std::ffi::OsString| !term.is_empty() && term != "dumb";
    process::variable("TERM").is_some_and(can) && is_terminal(is_stderr)
}

/// Returns the width of texts in characters. This is the value of `COLUMNS`, or else the width of the terminal, or else
/// 80. Tables are limited to this width only on a terminal.
pub(super) fn columns() -> usize {
    let variable = process::variable("COLUMNS").and_then(|text| text.into_string().ok());
    let variable = variable.and_then(|text| text.trim().parse().ok());
    let known = [variable.unwrap_or(0), window(libc::STDOUT_FILENO).0];
    known.into_iter().find(|columns| *columns > 0).unwrap_or(USUAL).max(LEAST)
}

/// The greatest width of help texts. Longer lines of prose are hard to read.
const HELP_AT_MOST: usize = 120;

pub(super) fn help_columns() -> usize {
    columns().min(HELP_AT_MOST)
}

/// Returns the width of the line that says what a command waits for. The line must not be wrapped by the terminal,
/// because only a single line can be erased.
pub(super) fn wait_columns() -> usize {
    match window(libc::STDERR_FILENO).0 {
        0 => USUAL,
        columns => columns,
    }
}

/// Returns the number of columns and rows of the terminal that a stream writes to. Both are 0 when the stream is not a
/// terminal, or when its size is not known.
#[allow(unsafe_code)]
fn window(stream: i32) -> (usize, usize) {
    // SAFETY: a `winsize` has only number fields, so zeros are valid. The ioctl TIOCGWINSZ writes one `winsize` to a
    // variable that exists longer than the call.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(stream, libc::TIOCGWINSZ, &raw mut size);
        size
    };
    (size.ws_col.into(), size.ws_row.into())
}

/// Whether a text on stdout or stderr gets colours. With `--color=auto`, it gets them on a terminal that can show them,
/// unless `NO_COLOR` is set and not empty, see <https://no-color.org>.
pub(super) fn has_color(is_stderr: bool) -> bool {
    let is_set = |name: &str| process::variable(name).is_some_and(|value| !value.is_empty());
    match COLOR.get().copied().unwrap_or_default() {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => !is_set("NO_COLOR") && obeys_codes(is_stderr),
    }
}

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// Adds colours to a text just before it is printed. A colour adds no information. It only repeats a mark or a state
/// that the line contains as text.
pub(super) fn colored(text: &str) -> String {
    text.split_inclusive('\n').map(colored_line).collect()
}

fn colored_line(line: &str) -> String {
    let text = line.trim_end_matches('\n');
    let end = &line[text.len()..];
    let rest = text.trim_start_matches(' ');
    let indent = text.len() - rest.len();
    // A line with at most two spaces before its text can begin with a mark such as `+` or `!`. A line with more spaces
    // continues the previous line.
    let mark = match rest.get(..2).filter(|_| indent <= 2) {
        Some("+ ") => GREEN,
        Some("~ ") => YELLOW,
        Some("- ") => RED,
        Some("! ") if text.contains("  failed: ") => RED,
        Some("! ") => YELLOW,
        _ if is_heading(text) => BOLD,
        _ => "",
    };
    if !mark.is_empty() {
        return format!("\x1b[{mark}m{text}\x1b[0m{end}");
    }
    // The line is split at double spaces. In a table, double spaces separate the cells. In a message, they separate the
    // object from the text about it.
    let mut colored = String::new();
    for cell in text.split_inclusive("  ") {
        let word = cell.trim();
        let ends = [word.find(": "), word.find(" → ")];
        let code = state(&word[..ends.into_iter().flatten().min().unwrap_or(word.len())]);
        if code.is_empty() {
            colored += cell;
        } else {
            colored += &cell.replacen(word, &format!("\x1b[{code}m{word}\x1b[0m"), 1);
        }
    }
    colored + end
}

/// Whether a line of text is a heading, e.g. `FIELDS (…)`, `NAME  STATUS` or `service-lb-controller:`.
fn is_heading(text: &str) -> bool {
    let title = text.split(" (").next().unwrap_or_default().trim_start();
    let is_title = title.len() > 2 && title.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    is_title || text.strip_suffix(':').is_some_and(|name| !name.contains(' '))
}

/// Returns the colour code for a word that describes a state, e.g. `Ready`. Returns an empty text for any other word.
fn state(word: &str) -> &'static str {
    match word {
        "ok" | "Ready" | "healthy" | "running" => GREEN,
        "warn" | "warning" | "blocked" | "skipped" => YELLOW,
        "FAIL" | "failed" | "NotReady" | "unhealthy" | "missing" | "off" => RED,
        "wrong gateway" | "blackhole" | "unwanted" | "stale" => YELLOW,
        _ => match share(word) {
            Some((part, whole)) if part == whole => GREEN,
            Some((0, _)) => RED,
            Some(_) => YELLOW,
            None => "",
        },
    }
}

/// Returns the two numbers of a text such as `1 of 2 ready` or `1/2`. Returns `None` when the text has another form.
fn share(word: &str) -> Option<(u32, u32)> {
    let words: Vec<&str> = word.split([' ', '/']).collect();
    let ([part, whole] | [part, "of", whole, "ready" | "serving" | "right"]) = words[..] else {
        return None;
    };
    let share = (part.parse().ok()?, whole.parse().ok()?);
    (share.1 > 0).then_some(share)
}

/// Whether the terminal now shows the line that says what a command waits for. That line must be erased before anything
/// else is written.
static WAIT: Mutex<bool> = Mutex::new(false);

pub(super) const ERASE_LINE: &str = "\r\x1b[K";

/// The control codes that clear the terminal and move its cursor to the first character of the first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows the line that says what a command waits for, in place of the terminal's current line. `None` erases the line.
/// The caller must know that stderr is a terminal that understands control codes.
pub(super) fn show_wait(line: Option<&str>) {
    let mut wait = lock(&WAIT);
    match line {
        Some(line) => write(&format!("{ERASE_LINE}{line}")),
        None => erase(&mut wait),
    }
    *wait = line.is_some();
}

fn erase(wait: &mut bool) {
    if std::mem::take(wait) {
        write(ERASE_LINE);
    }
}

/// Erases the line that says what a command waits for, and then calls `write`, which prints something else.
pub(super) fn over_wait<T>(write: impl FnOnce() -> T) -> T {
    let mut wait = lock(&WAIT);
    erase(&mut wait);
    write()
}

/// Returns a text that clears the terminal and shows `text` there. When `text` has more lines than the terminal, its
/// last lines are left out, and their number is shown.
pub(super) fn screen(text: &str) -> String {
    let (_, rows) = window(libc::STDOUT_FILENO);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // The last line of the terminal must stay empty, because the cursor stands there.
    if rows == 0 || lines.len() < rows {
        return format!("{CLEAR}{text}");
    }
    let (shown, more) = lines.split_at(rows.saturating_sub(2));
    format!("{CLEAR}{}… {} more lines\n", shown.concat(), more.len())
}

/// Erases the line that says what a command waits for, so that it does not stay on the terminal after the process has
/// ended.
pub(super) fn end() {
    // Another thread can hold the lock of the terminal for a long time, because it writes to a terminal that accepts no
    // output at present. The process must end nevertheless. So it tries to take the lock for a short time only, and
    // then leaves the line on the terminal.
    let pause = || clock::sleep(clock::from_machine(Duration::from_millis(1)));
    let mut tries = (0..100).map(|_| WAIT.try_lock().inspect_err(|_| pause()));
    if let Some(mut wait) = tries.find_map(Result::ok) {
        erase(&mut wait);
    }
}

fn write(text: &str) {
    // When this write to stderr fails, the error is ignored. It could only be reported on stderr.
    let _ = process::print(true, text.as_bytes());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_color_of_its_mark_or_state() {
        let color = |code: &str, text: &str| format!("\x1b[{code}m{text}\x1b[0m");
        for (line, expected) in [
            ("+ node/a  add it", color(GREEN, "+ node/a  add it")),
            ("  - remove it", color(RED, "  - remove it")),
            ("~ a: b → c", color(YELLOW, "~ a: b → c")),
            ("! a  blocked: b", color(YELLOW, "! a  blocked: b")),
            ("! a  failed: b", color(RED, "! a  failed: b")),
            ("      - → b", "      - → b".to_owned()),
            ("      HCLOUD_TOKEN)", "      HCLOUD_TOKEN)".to_owned()),
            ("NAME  STATUS", color(BOLD, "NAME  STATUS")),
            ("FIELDS (= as wanted)", color(BOLD, "FIELDS (= as wanted)")),
            ("node-controller:", color(BOLD, "node-controller:")),
            ("worker-1  Ready  10.0.0.2", format!("worker-1  {}  10.0.0.2", color(GREEN, "Ready"))),
            (
                "service/default/web  failed: no",
                format!("service/default/web  {}", color(RED, "failed: no")),
            ),
            ("FAIL    cloud", format!("{}    cloud", color(RED, "FAIL"))),
            ("it failed", "it failed".to_owned()),
            ("NODES  1 of 2 ready", format!("NODES  {}", color(YELLOW, "1 of 2 ready"))),
            ("web  0/2  -", format!("web  {}  -", color(RED, "0/2"))),
            ("web  2/2  -", format!("web  {}  -", color(GREEN, "2/2"))),
            ("orphan  0/0", "orphan  0/0".to_owned()),
            ("CLOUD API  9 of 10 calls left", "CLOUD API  9 of 10 calls left".to_owned()),
            (
                "10.0.0.0/8  stale → delete",
                format!("10.0.0.0/8  {}", color(YELLOW, "stale → delete")),
            ),
            ("Plan: 1 to change", "Plan: 1 to change".to_owned()),
            ("10.0.0.0/8", "10.0.0.0/8".to_owned()),
        ] {
            assert_eq!(colored(&format!("{line}\n")), expected + "\n", "{line}");
        }
    }

    #[test]
    fn a_state_has_this_color() {
        #[rustfmt::skip] // Each line has states of one colour.
        let colors: [(&str, &[&str]); 4] = [
            (GREEN, &["ok", "Ready", "healthy", "running", "3/3", "2 of 2 ready", "1 of 1 serving", "2 of 2 right"]),
            (YELLOW, &["warn", "warning", "blocked", "skipped", "1/3", "1 of 2 serving"]),
            (YELLOW, &["wrong gateway", "blackhole", "unwanted", "stale"]),
            (RED, &["FAIL", "failed", "NotReady", "unhealthy", "missing", "off", "0/2", "0 of 3 ready", "0 of 2 serving"]),
        ];
        for (code, words) in colors {
            for word in words {
                let expected = format!("name  \x1b[{code}m{word}\x1b[0m  more");
                assert_eq!(colored(&format!("name  {word}  more")), expected);
            }
        }
        for word in [
            "?",
            "-",
            "none",
            "unknown",
            "0/0",
            "0 of 0 ready",
            "1 of 3600 calls",
            "oks",
            "not ready",
        ] {
            let line = format!("name  {word}  more");
            assert_eq!(colored(&line), line);
        }
    }

    /// The test uses the texts in `tests/snapshots`, which are printed by many commands.
    #[test]
    fn color_changes_nothing_else_of_any_text() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
        let (mut lines, mut colors) = (0, 0);
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert!(!text.contains('\x1b'), "{text}");
            let colored = colored(&text);
            let codes = [BOLD, RED, GREEN, YELLOW].map(|code| format!("\x1b[{code}m"));
            let begun = codes.iter().map(|code| colored.matches(code).count()).sum::<usize>();
            let ended = colored.matches("\x1b[0m").count();
            assert_eq!(begun, ended, "each colour ends: {colored}");
            let bare = |text: String, code: &String| text.replace(code, "");
            let bare = codes.iter().fold(colored.replace("\x1b[0m", ""), bare);
            assert_eq!(bare, text);
            lines += text.lines().count();
            colors += begun;
        }
        assert!(lines > 1000 && colors > 200, "{lines} lines, {colors} colours");
    }
}
