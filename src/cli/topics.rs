//! `ccm help TOPIC`: the pages of `src/help`, embedded, and printed as plain text.
//!
//! A new page: a file in `src/help`, and a row of `TOPICS`. Settings, annotations and metrics have tables that are
//! generated; `CCM_UPDATE_HELP=1` writes them, see `tests/README.md`.

use super::markdown;
use std::io::IsTerminal;

/// A page, by the word behind `ccm help`.
pub(super) struct Topic {
    pub(super) name: &'static str,
    /// For the list in `ccm help`.
    pub(super) about: &'static str,
    /// Markdown.
    page: &'static str,
}

macro_rules! topics {
    ($($name:literal: $about:literal,)*) => {
        /// In the order of the list.
        pub(super) const TOPICS: &[Topic] = &[$(Topic {
            name: $name,
            about: $about,
            page: include_str!(concat!("../help/", $name, ".md")),
        },)*];
    };
}

topics! {
    "troubleshooting": "symptom → command; ccm doctor; every event and its fix",
    "services": "load balancers: creation, adoption, deletion, recipes",
    "annotations": "every annotation of a Service",
    "settings": "every flag and environment variable",
    "nodes": "matching to servers, addresses, labels, deletion",
    "routes": "routes of the private Network to pods, and CNIs",
    "network": "reaching both APIs: kubeconfig, proxies, TLS, Network",
    "shell": "commands beside the daemon: --settings-from, held back",
    "migrate": "from hcloud-cloud-controller-manager, and back",
    "scripting": "exit codes, JSON and YAML, cron",
    "metrics": "health, metrics, alerts, logs",
    "safety": "what ccm never does; Lease, shutdown, secrets",
}

/// Text of more columns than this is hard to read.
const TEXT_COLUMNS: usize = 100;
/// In a pipe or a file, and at a terminal that does not say.
const DEFAULT_COLUMNS: usize = 80;

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|topic| topic.name)
}

/// The page as plain text for this terminal.
pub(super) fn page(name: &str) -> Option<String> {
    let topic = TOPICS.iter().find(|topic| topic.name == name)?;
    let columns = columns().unwrap_or(DEFAULT_COLUMNS);
    Some(markdown::plain(
        topic.page,
        columns.min(TEXT_COLUMNS),
        columns,
    ))
}

/// A line each: the topics as `ccm help` lists them.
pub(super) fn list() -> String {
    let line = |topic: &Topic| format!("  {:<17}{}\n", topic.name, topic.about);
    TOPICS.iter().map(line).collect()
}

/// How wide the terminal on stdout is; none without one.
fn columns() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the request fills a winsize, and a pointer to one is passed that lives longer than the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let is_known = result == 0 && size.ws_col >= 40;
    is_known.then(|| usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::path::Path;

    const README: &str = include_str!("../../README.md");

    fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
        let topics = TOPICS.iter().map(|topic| (topic.name, topic.page));
        topics.chain([("README", README)])
    }

    #[test]
    fn a_page_fits_its_columns() {
        for topic in TOPICS {
            for columns in [80, 120] {
                let text = markdown::plain(topic.page, columns.min(TEXT_COLUMNS), columns);
                for line in text.lines() {
                    let is_narrow = line.chars().count() <= columns;
                    assert!(is_narrow, "{} at {columns}: {line}", topic.name);
                }
                assert!(!text.contains("|---") && !text.contains("```") && !text.contains("<!--"));
            }
        }
    }

    /// STYLE.md: plain technical English.
    #[test]
    fn pages_have_plain_words() {
        let riddles = [
            "told", "tells", "nobody", "somebody", "mend", "mended", "goes",
        ];
        for (name, page) in pages() {
            let words = page.split(|c: char| !c.is_alphanumeric());
            for word in words.map(str::to_lowercase) {
                assert!(!riddles.contains(&word.as_str()), "{name}: {word}");
            }
        }
        assert!(README.lines().count() <= 300);
    }

    /// Every `ccm help X` that a page names is there, and every file that the README links to.
    #[test]
    fn pages_name_what_exists() {
        let is_letter = |c: char| c.is_ascii_lowercase();
        for (name, page) in pages() {
            for (at, begin) in page.match_indices("ccm help ") {
                let rest = &page[at + begin.len()..];
                let word: String = rest.chars().take_while(|c| is_letter(*c)).collect();
                let is_command = super::super::commands::find(&word).is_some();
                let is_there = word.is_empty() || is_command || names().any(|one| one == word);
                assert!(is_there, "{name}: ccm help {word}");
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (at, _) in README.match_indices("](") {
            let link = README[at + 2..].split([')', '#']).next().unwrap();
            let is_there = link.is_empty() || link.contains("://") || root.join(link).exists();
            assert!(is_there, "README.md links to {link}");
        }
    }

    /// Whoever finds a reason in an event or a metric finds it here.
    #[test]
    fn every_reason_is_explained() {
        let (_, troubleshooting) = pages()
            .find(|(name, _)| *name == "troubleshooting")
            .unwrap();
        for name in crate::provider::Reason::ALL
            .iter()
            .map(|reason| reason.name())
        {
            let row = format!("| `{name}` |");
            assert!(troubleshooting.contains(&row), "{name}");
        }
    }
}
