//! The help of every command as snapshots, and the functions with which the other files compare outputs with snapshots.

use crate::common::{Cluster, Ran, ccm, snapshot, with};
use sandbox::Sandbox;

/// The flag with which numbers and addresses are the same in each run.
pub const ONE_BY_ONE: &str = "--concurrent-service-syncs=1";

/// Returns the output of a command as a person sees it. What differs from run to run is replaced.
pub fn seen(sandbox: &Sandbox, words: &[&str]) -> String {
    let Ran { code, stdout, stderr } = match words.starts_with(&["lb", "sync"]) {
        true => sandbox.ccm(&[words, &[ONE_BY_ONE]].concat()),
        false => sandbox.ccm(words),
    };
    let mut text = format!("$ ccm {}\n{stdout}", words.join(" "));
    if !stderr.is_empty() {
        text += &format!("(stderr)\n{stderr}");
    }
    text += &format!("(exit {code})\n");
    masked(sandbox, text)
}

/// Returns the outputs of several commands. The words of each command are one line.
pub fn seen_all(sandbox: &Sandbox, lines: &[&str]) -> String {
    let see = |line: &&str| seen(sandbox, &line.split(' ').collect::<Vec<_>>()) + "\n";
    lines.iter().map(see).collect()
}

/// Replaces what differs from run to run.
pub fn masked(sandbox: &Sandbox, mut text: String) -> String {
    let mut all = sandbox.cluster().list("services", None);
    // The Service of a real API server is in no list of the test.
    all.extend(sandbox.service("kubernetes"));
    let nodes = sandbox.nodes();
    // UIDs are replaced before ports, because some UID contains the digits of a port.
    for object in all.iter().chain(&nodes) {
        text = text.replace(object["metadata"]["uid"].as_str().unwrap(), "UID");
    }
    for service in &all {
        for port in service["spec"]["ports"].as_array().unwrap() {
            if let Some(port) = port["nodePort"].as_u64() {
                text = without_number(&text, &port.to_string(), "NPORT");
            }
        }
    }
    text.replace(&sandbox.kubernetes_url(), "KUBERNETES").replace(&sandbox.hetzner_url(), "HETZNER")
}

/// Replaces a number in a text. A number that is part of a longer one is another number.
fn without_number(text: &str, number: &str, mask: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(number) {
        let (before, after) = (&rest[..at], &rest[at + number.len()..]);
        let is_part = before.ends_with(|c: char| c.is_ascii_digit())
            || after.starts_with(|c: char| c.is_ascii_digit());
        masked += before;
        masked += if is_part { number } else { mask };
        rest = after;
    }
    masked + rest
}

/// Asserts that tables and texts fit a terminal of 80 columns. A line about a change or a failure may be longer, so
/// that it can be searched for. So may mistakes, and lists in a pipe.
pub fn fits(text: &str) {
    let free = [
        "node/",
        "service/",
        "load-balancer/",
        "route/",
        "network/",
        "ccm: ",
        "DESTINATION",
        "0.0.0.0/0 ",
        "10.",
    ];
    let is_free = |line: &&str| {
        let about = line.trim_start_matches(['+', '~', '-', '!', '·']).trim_start();
        free.iter().any(|start| about.starts_with(start))
    };
    for line in text.lines().filter(|line| !is_free(line)) {
        let count = line.chars().count();
        assert!(count <= 80, "{count} characters: {line}");
    }
}

/// The snapshots: what is run, and what of its output is kept. Pages that `screens` has at a terminal of 80 columns are
/// not here, because it compares them with a pipe's.
#[rustfmt::skip] // A case is a paragraph.
const HELP: [(&str, &[&str]); 3] = [
    ("help.txt", &[
        "help run", "help node", "node list --help", "node inspect -h", "help node sync", "help node relabel", "help config", "completions -h",
        "help completions", "help doctor", "explain protocol.https", "explain --cloud-provider=hcloud",
        "help HCLOUD_NETWORK", "help version", "version", "--version", "hepl",
    ]),
    ("lb-help.txt", &["lb list --help", "lb inspect -h", "help lb sync"]),
    ("route-help.txt", &["help route", "route list --help", "help route sync", "route", "route lst"]),
];

#[test]
fn the_help_of_every_command_is_the_snapshot() {
    let nobody = with(Vec::new(), &[]);
    for (file, all) in HELP {
        let mut text = String::new();
        for words in all {
            let Ran { code, stdout, stderr } = ccm(&nobody, &words.split(' ').collect::<Vec<_>>());
            text += &format!("$ ccm {words}\n{stdout}{stderr}(exit {code})\n\n");
        }
        fits(&text);
        snapshot(file, &text);
    }
    // A topic is plain text in a pipe, too.
    let topic = ccm(&nobody, &["help", "scripting"]);
    assert_eq!((topic.code, topic.stderr.as_str()), (0, ""));
    fits(&topic.stdout);
    for line in ["SCRIPTS, CRON AND CI", "0: done"] {
        assert!(topic.stdout.lines().any(|one| one == line), "{topic:?}");
    }
    let nothing = ccm(&nobody, &[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (2, ""));
    let overview = "ccm – a cloud-controller-manager";
    assert!(nothing.stderr.starts_with(overview), "{nothing:?}");
}
