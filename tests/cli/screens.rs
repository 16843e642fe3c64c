//! What a terminal shows of every screen at 80 and 120 columns, and which words have which colour.

use crate::common::{self, Env, env, needs_simulation, snapshot, with};
use crate::doctor::world::{CIDR, World};
use crate::help::masked;
use crate::{doctor, lb, node, route};
use sandbox::{Half, Sandbox};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

/// An environment for commands. The sandbox ends when this value is dropped.
pub struct Place {
    pub env: Env,
    pub sandbox: Sandbox,
}

/// The name in `terminal-NAME-COLUMNS.txt`, where the commands run, and the commands.
type Screens = (&'static str, fn() -> Place, &'static [&'static [&'static str]]);

#[rustfmt::skip] // A command is a line.
const SCREENS: &[Screens] = &[
    ("status", || of(World::healthy()), &[&["status", CIDR, ALONE]]),
    ("trouble", || of(doctor::broken_clusters::broken("all servers are off")), &[
        &["status", CIDR, ALONE],
        &["doctor", CIDR, ALONE],
        &["lb", "list"],
        &["lb", "inspect", "default/web"],
        &["node", "list"],
    ]),
    ("outage", || of(doctor::broken_clusters::broken("the token is refused")), &[
        &["status", CIDR, ALONE],
        &["lb", "inspect", "default/web", ALONE],
        &["node", "inspect", "worker-1", ALONE],
        &["route", "list", CIDR, ALONE],
    ]),
    ("lb", || in_it(lb::cluster()), &[
        &["lb", "list"],
        &["lb", "inspect", "default/edited"],
        &["lb", "inspect", "default/sick"],
        &["lb", "inspect", "default/bad-value"],
        &["lb", "sync", "--dry-run"],
        &["lb", "sync", "default/edited", "default/bad-value"],
        &["lb", "sync", "default/new"],
    ]),
    ("node", || in_it(node::cluster()), &[
        &["node", "list"],
        &["node", "inspect", "worker-1"],
        &["node", "sync", "--dry-run"],
    ]),
    ("route", || in_it(route::cluster()), &[
        &["route", "list", route::CIDR],
        &["route", "sync", route::CIDR, "--dry-run"],
    ]),
    ("lint", with_manifest, &[&["lint", "-f", "service.yaml"]]),
    ("explain", nowhere, &[
        &["explain", "protocol"],
        &["explain", "HCLOUD_NETWORK"],
        &["explain", "SyncLoadBalancerFailed"],
        &["explain", "rate-limit"],
    ]),
    ("help", nowhere, &[
        &["help"],
        &["help", "lb"],
        &["explain", "--help"],
        &["help", "shell"],
    ]),
];

const ALONE: &str = "--settings-from=none";

/// Returns the environment of a world, without the folder of its kubeconfig.
pub fn of(world: World) -> Place {
    let World { sandbox, env, .. } = world;
    let path = common::variable(&env, "KUBECONFIG");
    let file = Path::new(path).file_name().unwrap().to_str().unwrap();
    let env = with(env.clone(), &[("KUBECONFIG", file)]);
    Place { env, sandbox }
}

fn in_it(sandbox: Sandbox) -> Place {
    let env = env(&sandbox);
    Place { env, sandbox }
}

fn nowhere() -> Place {
    let sandbox = common::socket_cluster(0);
    Place { env: Vec::new(), sandbox }
}

fn with_manifest() -> Place {
    let place = nowhere();
    let text = "\
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations:
    load-balancer.hetzner.cloud/protcol: http
    load-balancer.hetzner.cloud/algorithm-type: random
    load-balancer.hetzner.cloud/disable-public-network: 'true'
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [192.0.2.0/24]
  ports:
  - { name: http, port: 80, nodePort: 30080 }
  - { name: dns, port: 53, protocol: UDP, nodePort: 30053 }
";
    std::fs::write(place.sandbox.folder().join("service.yaml"), text).unwrap();
    place
}

/// Returns what a terminal shows at the end. What differs from run to run is replaced in its length.
pub fn shown(place: &Place, columns: usize, words: &[&str]) -> Option<String> {
    let folder = Some(place.sandbox.folder());
    let shown = common::at_terminal_of(Some(columns), folder, &place.env, words)?;
    let left = |line: &str| line.split("\u{1b}[K").last().unwrap().to_owned();
    // Lines about a wait appear on a busy machine.
    let is_wait = |line: &String| line.starts_with("ccm: waiting for ");
    let lines = shown.lines().map(left).filter(|line| !is_wait(line));
    let lines: Vec<String> = lines.collect();
    Some(screen(&place.sandbox, words, &lines.join("\n")))
}

/// The command and its text, without what differs from run to run, in its length.
fn screen(sandbox: &Sandbox, words: &[&str], text: &str) -> String {
    let mut shown = format!("$ ccm {}\n{text}\n\n", words.join(" "));
    for end in [" of 3600 calls", " s ago"] {
        let ends: Vec<usize> = shown.match_indices(end).map(|(at, _)| at).collect();
        for at in ends {
            let begin = shown[..at].rfind(' ').unwrap() + 1;
            shown.replace_range(begin..at, &"N".repeat(at - begin));
        }
    }
    // The word is part of an error of the Cloud API.
    let words: Vec<String> =
        shown.split(|c: char| !c.is_ascii_hexdigit()).map(str::to_owned).collect();
    for word in words.iter().filter(|word| word.len() == 32) {
        shown = shown.replace(word, &"X".repeat(32));
    }
    for half in [Half::Hetzner, Half::Kubernetes] {
        let address = sandbox.address(half).to_string();
        shown = shown.replace(&address, &"X".repeat(address.len()));
    }
    for kind in ["services", "nodes"] {
        for object in sandbox.cluster().list(kind, None) {
            let uid = object["metadata"]["uid"].as_str().unwrap();
            shown = shown.replace(uid, &format!("{:u<width$}", "uid", width = uid.len()));
        }
    }
    masked(sandbox, shown)
}

/// Whether a command prints a page of text, which in a pipe is as wide as a terminal of 80 columns. A pipe's tables are
/// not cut, and its lines about objects are not wrapped.
fn is_page(words: &[&str]) -> bool {
    let is_text = matches!(words, ["help" | "explain", ..]);
    is_text || matches!(words, ["lb" | "node", "inspect", _])
}

/// Colours by the number in their escape sequence.
const COLORS: [(&str, &str); 4] = [("1", "bold"), ("31", "red"), ("32", "green"), ("33", "yellow")];

/// Returns the text without colours, and each coloured piece with the name of its colour.
fn without_color(colored: &str) -> (String, Vec<(&'static str, String)>) {
    let mut parts = colored.split("\u{1b}[");
    let mut plain = parts.next().unwrap().to_owned();
    let mut pieces = Vec::new();
    for part in parts {
        let (code, text) = part.split_once('m').unwrap();
        plain += text;
        if let Some((_, color)) = COLORS.iter().find(|(number, _)| *number == code) {
            assert!(!text.contains('\n'), "a colour ends with its line: {text}");
            pieces.push((*color, text.to_owned()));
        } else {
            assert_eq!(code, "0", "{text}");
        }
    }
    (plain, pieces)
}

/// At 80 columns the terminal shows no colour, and at 120 it does. `terminal-colors.txt` has each coloured piece, and
/// how often the screens have it. A unit test of `cli/terminal.rs` shows that colour changes nothing else in any text.
#[test]
fn every_screen_fits_its_terminal_and_is_the_snapshot() {
    let mut cases = Vec::new();
    for screens in SCREENS {
        for columns in [80, 120] {
            cases.push((screens, columns));
        }
    }
    if needs_simulation(&common::socket_cluster(0), "numbers that are the same in each run") {
        return;
    }
    let colors = Mutex::new(BTreeMap::new());
    common::run_in_parallel(cases, |((name, place, commands), columns)| {
        // Each screen has an environment of its own, because some commands change it.
        let mut place = place();
        let term = if columns == 80 { "dumb" } else { "xterm" };
        place.env = with(place.env, &[("TERM", term)]);
        let mut screens = String::new();
        for words in *commands {
            let Some(shown) = shown(&place, columns, words) else {
                return;
            };
            if columns == 80 && is_page(words) {
                is_the_same_in_a_pipe(&place, words, &shown);
            }
            screens += &shown;
        }
        if columns == 120 {
            let (plain, pieces) = without_color(&screens);
            screens = plain;
            for piece in pieces {
                *colors.lock().unwrap().entry(piece).or_insert(0) += 1;
            }
        }
        for line in screens.lines() {
            let fits = line.starts_with("$ ") || line.chars().count() <= columns;
            assert!(fits, "{columns}: {line}");
        }
        snapshot(&format!("terminal-{name}-{columns}.txt"), &screens);
    });
    let colors = colors.into_inner().unwrap().into_iter();
    let line = |((color, text), count)| format!("{color:<6} {count:>2}  {text}\n");
    let lines: String = colors.map(line).collect();
    // Without `script` there was no terminal.
    if !lines.is_empty() {
        snapshot("terminal-colors.txt", &lines);
    }
}

/// Asserts that the terminal ends with the page of a pipe, and shows before it what a pipe's reader has on stderr.
fn is_the_same_in_a_pipe(place: &Place, words: &[&str], shown: &str) {
    let piped =
        common::command(&place.env, words).current_dir(place.sandbox.folder()).output().unwrap();
    assert_eq!(piped.status.code(), Some(0), "{piped:?}");
    let page = String::from_utf8(piped.stdout).unwrap();
    let piped_screen = screen(&place.sandbox, words, page.trim_end_matches('\n'));
    if piped.stderr.is_empty() {
        assert_eq!(piped_screen, shown, "in a pipe");
    } else {
        let (_, page) = piped_screen.split_once('\n').unwrap();
        assert!(shown.ends_with(page), "in a pipe: {page}\n{shown}");
    }
}
