//! What a terminal shows of every screen: at 80 and 120 columns, without colour and with it.

use crate::common::{self, Env, env, needs_simulation, snapshot, with};
use crate::doctor::world::{CIDR, World};
use crate::people::masked;
use crate::{doctor, lb, node, route};
use sandbox::{Half, Sandbox};
use std::path::Path;

/// Where commands run. A sandbox ends when it is dropped.
pub struct Place {
    pub env: Env,
    pub sandbox: Sandbox,
}

/// `terminal-NAME-COLUMNS[-color].txt`, where its commands run, and those.
type Screens = (
    &'static str,
    fn() -> Place,
    &'static [&'static [&'static str]],
);

#[rustfmt::skip] // A command is a line.
const SCREENS: &[Screens] = &[
    ("status", || of(World::healthy()), &[&["status", CIDR, ALONE]]),
    ("trouble", || of(doctor::worlds::broken("all servers are off")), &[
        &["status", CIDR, ALONE],
        &["doctor", CIDR, ALONE],
        &["lb", "list"],
        &["lb", "inspect", "default/web"],
        &["node", "list"],
    ]),
    ("outage", || of(doctor::worlds::broken("the token is refused")), &[
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

/// Without the folder of its kubeconfig.
pub fn of(world: World) -> Place {
    let World { sandbox, env, .. } = world;
    let (_, path) = env.iter().find(|(name, _)| name == "KUBECONFIG").unwrap();
    let file = Path::new(path).file_name().unwrap().to_str().unwrap();
    let env = with(env.clone(), &[("KUBECONFIG", file)]);
    Place { env, sandbox }
}

fn in_it(sandbox: Sandbox) -> Place {
    let env = env(&sandbox);
    Place { env, sandbox }
}

fn nowhere() -> Place {
    let sandbox = common::quiet(0);
    Place {
        env: Vec::new(),
        sandbox,
    }
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

/// What a terminal still shows at the end; without what differs from run to run, in its length.
pub fn shown(place: &Place, columns: usize, words: &[&str]) -> Option<String> {
    let Place { env, sandbox } = place;
    let folder = Some(sandbox.folder());
    let shown = common::at_terminal_of(Some(columns), folder, env, words)?;
    let left = |line: &str| line.split("\u{1b}[K").last().unwrap().to_owned();
    // Of a busy machine.
    let is_wait = |line: &String| line.starts_with("ccm: waiting for ");
    let lines = shown.lines().map(left).filter(|line| !is_wait(line));
    let lines: Vec<String> = lines.collect();
    let mut shown = format!("$ ccm {}\n{}\n\n", words.join(" "), lines.join("\n"));
    for end in [" of 3600 calls", " s ago"] {
        let ends: Vec<usize> = shown.match_indices(end).map(|(at, _)| at).collect();
        for at in ends {
            let begin = shown[..at].rfind(' ').unwrap() + 1;
            shown.replace_range(begin..at, &"N".repeat(at - begin));
        }
    }
    // Of an error of the Cloud API.
    let words: Vec<String> = shown
        .split(|c: char| !c.is_ascii_hexdigit())
        .map(str::to_owned)
        .collect();
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
    Some(masked(sandbox, shown))
}

#[test]
fn every_screen_fits_its_terminal_and_reads_like_this() {
    let mut cases = Vec::new();
    for screens in SCREENS {
        for columns in [80, 120] {
            cases.push((screens, columns));
        }
    }
    if needs_simulation(&common::quiet(0), "numbers that are the same in each run") {
        return;
    }
    common::side_by_side(cases, |((name, place, commands), columns)| {
        let all = |term: &str| {
            // A place for each: some commands change it.
            let mut place = place();
            place.env = with(place.env, &[("TERM", term)]);
            let screens = commands.iter().map(|words| shown(&place, columns, words));
            screens.collect::<Option<String>>()
        };
        let (Some(plain), Some(colored)) = (all("dumb"), all("xterm")) else {
            return;
        };
        for line in plain.lines() {
            let fits = line.starts_with("$ ") || line.chars().count() <= columns;
            assert!(fits, "{columns}: {line}");
        }
        let codes = ["0", "1", "31", "32", "33"].map(|code| format!("\u{1b}[{code}m"));
        let bare = |text: String, code: &String| text.replace(code, "");
        let bare = codes.iter().fold(colored.clone(), bare);
        let name = format!("terminal-{name}-{columns}");
        snapshot(&format!("{name}.txt"), &plain);
        snapshot(
            &format!("{name}-color.txt"),
            &colored.replace('\u{1b}', "␛"),
        );
        assert_eq!(bare, plain, "{name}: colour changes nothing else");
    });
}
