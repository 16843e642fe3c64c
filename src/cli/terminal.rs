//! The abilities of a person's terminal: how wide it is, whether it shows colour, and what can be redrawn on it.

use crate::provider::process::{self, is_terminal};
use crate::provider::{clock, lock};
use crate::settings::Color;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// The width of texts when the terminal's width is unknown.
const USUAL: usize = 80;

/// The smallest width of texts. A narrower line could not hold an indent and a word.
const LEAST: usize = 40;

/// The value of the flag `--color`. It is empty until the flags are read.
pub(super) static COLOR: OnceLock<Color> = OnceLock::new();

/// Whether the stream is a terminal that can show colours and move its cursor.
pub(super) fn obeys_codes(is_stderr: bool) -> bool {
    let can = |term: std::ffi::OsString| !term.is_empty() && term != "dumb";
    process::variable("TERM").is_some_and(can) && is_terminal(is_stderr)
}

/// Returns the width of texts, in characters: `COLUMNS`, else the terminal's width, else 80. Tables have this width
/// only at a terminal.
pub(super) fn columns() -> usize {
    let variable = process::variable("COLUMNS").and_then(|text| text.into_string().ok());
    let variable = variable.and_then(|text| text.trim().parse().ok());
    let known = [variable.unwrap_or(0), window(libc::STDOUT_FILENO).0];
    known.into_iter().find(|columns| *columns > 0).unwrap_or(USUAL).max(LEAST)
}

/// The greatest width of help, because longer lines of prose are hard to read.
const HELP_AT_MOST: usize = 120;

pub(super) fn help_columns() -> usize {
    columns().min(HELP_AT_MOST)
}

/// Returns the width of the line about a wait. The line has to fit, because a longer line could not be erased.
pub(super) fn wait_columns() -> usize {
    match window(libc::STDERR_FILENO).0 {
        0 => USUAL,
        columns => columns,
    }
}

/// Returns the columns and rows of the terminal behind a stream. They are 0 when the stream is not a terminal, or when
/// the terminal does not know them.
#[allow(unsafe_code)]
fn window(stream: i32) -> (usize, usize) {
    // SAFETY: zeros are numbers, and TIOCGWINSZ writes one winsize, which outlives the call.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(stream, libc::TIOCGWINSZ, &raw mut size);
        size
    };
    (size.ws_col.into(), size.ws_row.into())
}

/// Whether the text on stdout or stderr may be coloured. A non-empty `NO_COLOR` forbids colours, see
/// <https://no-color.org>. `--color=always` and `--color=never` override `NO_COLOR`.
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

/// Returns a finished text with colours. A colour adds no information, because it repeats the mark or the state that
/// the line has as text.
pub(super) fn colored(text: &str) -> String {
    text.split_inclusive('\n').map(colored_line).collect()
}

fn colored_line(line: &str) -> String {
    let text = line.trim_end_matches('\n');
    let end = &line[text.len()..];
    let rest = text.trim_start_matches(' ');
    let indent = text.len() - rest.len();
    // A line that is indented further continues the line above it, so its first characters are not a mark.
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
    // At least two spaces separate the cells of a table, and a message from the words before it.
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

/// Whether a line is a heading, e.g. `FIELDS (…)`, `NAME  STATUS` or `service-lb-controller:`.
fn is_heading(text: &str) -> bool {
    let title = text.split(" (").next().unwrap_or_default().trim_start();
    let is_title = title.len() > 2 && title.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    is_title || text.strip_suffix(':').is_some_and(|name| !name.contains(' '))
}

/// Returns the colour of a word that describes a state, or an empty text for any other word.
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

/// Returns the two numbers of a share, e.g. 1 and 2 for `1 of 2 ready`, or 1 and 2 for the targets `1/2`.
fn share(word: &str) -> Option<(u32, u32)> {
    let words: Vec<&str> = word.split([' ', '/']).collect();
    let ([part, whole] | [part, "of", whole, "ready" | "serving" | "right"]) = words[..] else {
        return None;
    };
    let share = (part.parse().ok()?, whole.parse().ok()?);
    (share.1 > 0).then_some(share)
}

/// Whether the terminal shows a line about a wait. A text that is written during the wait replaces this line.
static WAIT: Mutex<bool> = Mutex::new(false);

pub(super) const ERASE_LINE: &str = "\r\x1b[K";

/// The codes that begin a screen. They clear the terminal, and move the cursor to the first place.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Replaces the last line of the terminal with a line about a wait. `None` erases the last line. A caller first makes
/// sure that stderr is a terminal that obeys control codes.
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

/// Erases the line about a wait from the terminal, and then calls `write`.
pub(super) fn over_wait<T>(write: impl FnOnce() -> T) -> T {
    let mut wait = lock(&WAIT);
    erase(&mut wait);
    write()
}

/// Returns the codes and the text that replace the last screen. When the text does not fit on the terminal, its last
/// lines are left out, and the screen says how many.
pub(super) fn screen(text: &str) -> String {
    let (_, rows) = window(libc::STDOUT_FILENO);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // The last line of the terminal stays free for the cursor.
    if rows == 0 || lines.len() < rows {
        return format!("{CLEAR}{text}");
    }
    let (shown, more) = lines.split_at(rows.saturating_sub(2));
    format!("{CLEAR}{}… {} more lines\n", shown.concat(), more.len())
}

/// Leaves the terminal as it was found, except for what was printed.
pub(super) fn end() {
    // The lock may be held by a thread that writes to a terminal which accepts no output. Such a thread must not keep
    // the process from ending, so the lock is tried only for a short time.
    let pause = || clock::sleep(clock::from_machine(Duration::from_millis(1)));
    let mut tries = (0..100).map(|_| WAIT.try_lock().inspect_err(|_| pause()));
    if let Some(mut wait) = tries.find_map(Result::ok) {
        erase(&mut wait);
    }
}

fn write(text: &str) {
    // The error of this write is ignored, because there is no other place to report it.
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

    /// The texts are those of `tests/snapshots`, which people see in a pipe or at a terminal.
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
