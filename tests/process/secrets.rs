//! No secret is printed, however much is requested and whatever fails. No text of an API controls a terminal or looks
//! like a line of ours.

use crate::common::cluster::{service, with_spec};
use crate::common::random::Random;
use crate::common::secrets::Secrets;
use crate::common::{self, Cluster, Daemon, Env, answer, ccm, contains, env, variable, with};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

/// A password with a character that is escaped in JSON.
const PASSWORD: &str = "hunter2-and-\"then-some-more-of-it";

const COMMANDS: &[&[&str]] = &[
    &["node", "list", "-o", "wide"],
    &["node", "inspect", "worker-1"],
    &["node", "sync", "--dry-run", "-o", "yaml"],
    &["run", "--dry-run"],
    &["run", "--once", "--log-format=json"],
    &["node", "sync"],
    &["config", "-o", "wide"],
    &["config", "-o", "json"],
    &["doctor", "-o", "wide"],
];

/// A command that prints what Robot tells about a node, and a pass with its log.
const OF_NODES: &[&[&str]] =
    &[&["node", "inspect", "metal-1"], &["run", "--once", "--log-format=json"]];

/// A sandbox whose kubeconfig has every kind of secret.
struct World {
    sandbox: Sandbox,
    env: Env,
    secrets: Secrets,
}

impl World {
    fn sandbox() -> Sandbox {
        Sandbox::builder()
            .nodes(2)
            .robot(1)
            .scale(0.02)
            .network("10.0.0.0/8")
            .heartbeats(false)
            .start()
    }

    fn new() -> World {
        let sandbox = World::sandbox();
        let account = sandbox.account("ccm").unwrap();
        let user = json!({
            "token": account.token,
            "client-certificate-data": STANDARD.encode(account.identity.certificate_pem),
            "client-key-data": STANDARD.encode(&account.identity.key_pem),
        });
        World::as_user(sandbox, user)
    }

    /// Returns the world with another user in the kubeconfig.
    fn as_user(sandbox: Sandbox, user: Value) -> World {
        let account = sandbox.account("ccm").unwrap();
        let text = std::fs::read_to_string(variable(&env(&sandbox), "KUBECONFIG")).unwrap();
        let mut config: Value = serde_yaml::from_str(&text).unwrap();
        config["users"][0]["user"] = user;
        let path = sandbox.folder().join("everything");
        std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
        // Everything is requested, and RUST_LOG must have no effect.
        let env = with(
            env(&sandbox),
            &[
                ("KUBECONFIG", &path.display().to_string()),
                ("HCLOUD_DEBUG", "true"),
                ("RUST_LOG", "trace"),
            ],
        );
        let projects = sandbox.projects();
        let (user, password) = sandbox.robot().login();
        let secrets = Secrets::new(&[
            &password,
            &STANDARD.encode(format!("{user}:{password}")),
            &projects.token,
            &projects.foreign_token,
            &account.token,
            &account.identity.key_pem,
            PASSWORD,
            &STANDARD.encode(format!("ccm:{PASSWORD}")),
        ]);
        World { sandbox, env, secrets }
    }

    /// Runs every command with these changes of the environment. Returns everything that was printed.
    fn run(&self, changes: &[(&str, &str)], flags: &[&str]) -> String {
        self.run_each(COMMANDS, changes, flags)
    }

    fn run_each(&self, commands: &[&[&str]], changes: &[(&str, &str)], flags: &[&str]) -> String {
        let env = with(self.env.clone(), changes);
        let mut printed = String::new();
        for words in commands {
            let ran = ccm(&env, &[*words, &["-v=10"], flags].concat());
            assert!(!ran.stderr.contains("panicked"), "{words:?}: {ran:?}");
            printed += &(ran.stdout + &ran.stderr);
        }
        let case = format!("{changes:?} {flags:?}:\n{printed}");
        assert_eq!(self.secrets.leak(&printed), None, "{case}");
        // Shorter than what is searched for.
        let (user, _) = self.sandbox.robot().login();
        assert!(!printed.contains(&user), "{case}");
        printed
    }

    fn fails(&self, half: Half, effect: Effect) {
        self.fails_in(COMMANDS, half, effect);
    }

    fn fails_in(&self, commands: &[&[&str]], half: Half, effect: Effect) {
        let rule = self.sandbox.fault(Rule::new(effect).half(half));
        self.run_each(commands, &[], &[]);
        self.sandbox.faults().remove(rule);
    }
}

impl Cluster for World {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }
}

#[test]
fn no_secret_is_printed_in_success() {
    let world = World::new();
    let printed = world.run(&[], &[]);
    // Everything was really requested: bodies of Hetzner's answers, and calls to both APIs.
    for part in [
        "answered 200 {",
        "/api/v1/nodes",
        "taint uninitialized: removed",
        "/server: answered 200 [{",
    ] {
        assert!(printed.contains(part), "{part:?} is missing in\n{printed}");
    }
    assert!(!printed.contains("ureq") && !printed.contains("rustls"), "{printed}");
}

#[test]
fn no_secret_is_printed_in_failure() {
    let world = World::new();
    let projects = world.sandbox.projects();
    let kubernetes_token = world.sandbox.account("ccm").unwrap().token;
    let token_file = world.sandbox.folder().join("token");
    std::fs::write(&token_file, format!("{0} {0}", projects.token)).unwrap();
    let token_file = token_file.display().to_string();
    let twice = format!("{0} {0}", projects.token);
    let with_password = format!("https://me:{}@api.example.com/v1", projects.token);
    let (user, robot) = world.sandbox.robot().login();
    let both = format!("{user}:{robot}");
    let long = format!("{robot}{robot}");
    let with_robot = format!("https://{both}@robot.example.com");
    let cases: &[&[(&str, &str)]] = &[
        &[("HCLOUD_TOKEN", &projects.foreign_token)],
        &[("HCLOUD_TOKEN", &twice)],
        &[("HCLOUD_TOKEN", &kubernetes_token)],
        &[("HCLOUD_TOKEN", ""), ("HCLOUD_TOKEN_FILE", &projects.token)],
        &[("HCLOUD_TOKEN", ""), ("HCLOUD_TOKEN_FILE", &token_file)],
        &[("HCLOUD_ENDPOINT", &with_password)],
        &[("HCLOUD_ENDPOINT", "http://127.0.0.1:1")],
        &[("HCLOUD_NETWORK", "nowhere")],
        &[("ROBOT_USER", "")],
        &[("ROBOT_PASSWORD", "")],
        &[("ROBOT_PASSWORD", ""), ("ROBOT_PASSWORD_FILE", &robot)],
        &[("ROBOT_PASSWORD", &long)],
        &[("ROBOT_USER", &both)],
        &[("ROBOT_ENDPOINT", &with_robot)],
        &[("ROBOT_ENDPOINT", "http://127.0.0.1:1")],
        &[("HCLOUD_DEBUG", "maybe")],
    ];
    for changes in cases {
        world.run(changes, &[]);
    }
    world.run(&[], &["--master", &with_password]);
    world.run(&[], &["--token", &projects.token]);
    world.run(&[], &["--context", "elsewhere"]);
    world.sandbox.robot().end_block();
    for half in [Half::Hetzner, Half::Kubernetes, Half::Robot] {
        world.sandbox.stop(half);
        world.run(&[], &[]);
        world.sandbox.resume(half).unwrap();
        for effect in [
            Effect::html(),
            Effect::Reset,
            Effect::Malformed,
            Effect::cut_off(),
            Effect::other_json(),
        ] {
            world.fails(half, effect);
        }
    }
}

/// Debugging proxies do, and some servers.
#[test]
fn no_secret_is_printed_when_an_api_repeats_the_request() {
    let world = World::new();
    let hetzner = &world.sandbox.projects().token;
    let kubernetes = &world.sandbox.account("ccm").unwrap().token;
    // Longer than what a log shows of a body, with the token where it is cut.
    let padding = "x".repeat(2 * 1024 - 50);
    let (user, password) = &world.sandbox.robot().login();
    let both = STANDARD.encode(format!("{user}:{password}"));
    for text in [user, password, &both] {
        let told = format!("Authorization: Basic {text} is not accepted");
        let error =
            |status: u16| json!({"error": {"status": status, "code": text, "message": told}});
        let server = json!([{"server": {"server_number": 1, "server_ip": told}}]);
        let padded = json!({"padding": padding, "password": text, "more": padding});
        #[rustfmt::skip] // A case is a line.
        let cases = [
            (200, server),
            (200, json!([{ told.clone(): told }])),
            (200, padded),
            (500, error(500)),
            (404, error(404)),
            // These come last, because no login is tried after them.
            (403, error(403)),
            (401, error(401)),
        ];
        for (status, body) in cases {
            let effect = answer(status, &body);
            world.fails_in(OF_NODES, Half::Robot, effect);
            world.delete_lease();
        }
    }
    for (half, token) in [(Half::Hetzner, hetzner), (Half::Kubernetes, kubernetes)] {
        let told = format!("Authorization: Bearer {token} is not accepted");
        for status in [401, 403, 500] {
            world.fails(half, Effect::hetzner_error(status, "unauthorized", &told));
            world.fails(half, Effect::kubernetes_status(status, "Unauthorized", &told));
        }
        for body in [
            json!({"networks": token, "kind": token}),
            json!({token: 1, "items": {token: 2}, "kind": "NodeList"}),
            json!({"kind": "NodeList", "metadata": token}),
            json!({"padding": padding, "token": token, "more": padding}),
        ] {
            world.fails(half, answer(200, &body));
        }
    }
}

/// Every character of a text, written by `write`.
fn written(text: &str, write: impl Fn(u8) -> String) -> String {
    text.bytes().map(write).collect()
}

#[test]
fn no_secret_is_printed_however_an_api_encodes_it() {
    // One command reads, and one writes.
    const COMMANDS: &[&[&str]] =
        &[&["node", "inspect", "worker-1"], &["run", "--once", "--log-format=json"]];
    let world = World::new();
    let hetzner = &world.sandbox.projects().token;
    let kubernetes = &world.sandbox.account("ccm").unwrap().token;
    for (half, token) in [(Half::Hetzner, hetzner), (Half::Kubernetes, kubernetes)] {
        // The token is also searched as it is escaped inside a string of JSON.
        let forms = [
            token.clone(),
            written(token, |byte| format!("\\u00{byte:02x}")),
            written(token, |byte| format!("\\u00{byte:02X}")),
            written(token, |byte| format!("\\\\u00{byte:02x}")),
            written(token, |byte| format!("%{byte:02x}")),
            written(token, |byte| format!("\\u0025{byte:02X}")),
            format!("\\u00{:02x}{}", token.as_bytes()[0], &token[1..]),
            STANDARD.encode(token),
            STANDARD.encode(format!("Bearer {token}")),
            URL_SAFE_NO_PAD.encode(format!(":{token}")),
        ];
        for form in forms {
            let hetzner_error = format!(
                r#"{{"error": {{"code": "{form}", "message": "no {form}", "details":
                {{"fields": [{{"name": "a {form}", "messages": ["b {form}"]}}]}}}}}}"#
            );
            let status = format!(
                r#"{{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no {form}",
                "reason": "{form}", "code": 403, "details": {{"causes": [{{"reason": "{form}"}}]}}}}"#
            );
            let kind = format!(r#"{{"kind": "{form}", "metadata": {{}}, "items": []}}"#);
            for (status, body) in [(422, hetzner_error), (403, status), (200, kind)] {
                let mut response = Response::json(status, &json!(null));
                response.body = body.into_bytes();
                world.fails_in(COMMANDS, half, Effect::Instead(response));
            }
        }
        for status in [200, 403, 500] {
            let error = json!({"error": {"code": "forbidden", "message": "no"}});
            let response = Response::json(status, &error)
                .with_header("X-Correlation-Id", token.as_str())
                .with_header("Content-Type", format!("text/{token}"));
            world.fails_in(COMMANDS, half, Effect::Instead(response.clone()));
            let typed = Response {
                headers: vec![("Content-Type".into(), format!("text/{token}"))],
                ..response
            };
            world.fails_in(COMMANDS, half, Effect::Instead(typed));
        }
    }
}

#[test]
fn no_secret_of_passwords_and_plugins_is_printed() {
    let sandbox = World::sandbox();
    sandbox.cluster().add_password("ccm", PASSWORD);
    let user = json!({"username": "ccm", "password": PASSWORD});
    let both = STANDARD.encode(format!("ccm:{PASSWORD}"));
    let told = format!("Authorization: Basic {both} of {PASSWORD} is not accepted");
    refused_and_repeated(&World::as_user(sandbox, user), &told);

    let sandbox = World::sandbox();
    let account = sandbox.account("ccm").unwrap();
    let answer = json!({
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1",
        "status": {
            "token": account.token,
            "clientCertificateData": account.identity.certificate_pem,
            "clientKeyData": account.identity.key_pem,
        },
    });
    let script = sandbox.folder().join("plugin");
    let write = |text: &str| {
        std::fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o700)).unwrap();
    };
    // The plugin gets everything, and prints everything that it knows.
    let tells = format!("env >&2; echo {PASSWORD:?} {} >&2", account.token);
    write(&format!("{tells}\ncat <<'END'\n{answer}\nEND"));
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": script.display().to_string(),
        "interactiveMode": "Never",
        "provideClusterInfo": true,
        "env": [{"name": "PASSWORD", "value": PASSWORD}],
    }});
    let world = World::as_user(sandbox, user);
    refused_and_repeated(&world, &format!("Bearer {} is not accepted", account.token));
    let without_token = tells.replace(&account.token, "");
    for text in [
        format!("{tells}\nexit 1"),
        format!("{tells}\ncat <<'END'\n{answer}\nEND\nexit 1"),
        format!("{tells}\ncat <<'END'\n{}\nEND", answer.to_string().replace("Exec", "Other")),
        format!("{tells}\necho {}", account.token),
        format!(
            "{without_token}\necho {} >&2; kill -9 $$",
            account.identity.key_pem.replace('\n', " ")
        ),
    ] {
        write(&text);
        let printed = world.run(&[], &[]);
        assert!(printed.contains("user \"ccm\": credential plugin "), "{printed}");
    }
}

fn refused_and_repeated(world: &World, told: &str) {
    let printed = world.run(&[], &[]);
    contains(&printed, "taint uninitialized: removed");
    for status in [401, 403, 500] {
        world.fails(Half::Kubernetes, Effect::kubernetes_status(status, "Unauthorized", told));
    }
    let body = json!({"kind": "NodeList", "metadata": told, told: {"items": told}});
    world.fails(Half::Kubernetes, answer(200, &body));
}

#[test]
fn no_secret_is_printed_by_the_daemon() {
    let world = World::new();
    let daemon = Daemon::start(&world.env, &["-v=10", "--node-status-update-frequency=1s"]);
    world.wait_for_nodes();
    for half in [Half::Hetzner, Half::Kubernetes] {
        world.sandbox.stop(half);
        let failed = daemon.log().matches("connection refused").count();
        common::wait_until("failed calls", || {
            daemon.log().matches("connection refused").count() > failed + 3
        });
        world.sandbox.resume(half).unwrap();
    }
    world.sandbox.cloud().remove_token(&world.sandbox.projects().token);
    daemon.logs("is not accepted");
    daemon.signal("-TERM");
    assert_eq!(daemon.ended().code(), Some(0));
    assert_eq!(world.secrets.leak(&daemon.log()), None, "{}", daemon.log());
}

/// Clears the screen, turns the direction of reading, and tells something of its own.
const TERMINAL_CONTROLS: &str = "\u{1b}[2J\u{9b}31m\u{202e}\r\nccm: everything is fine\n";

/// Asserts that a text contains nothing that a terminal obeys, and no line that is not ours.
fn check(printed: String) {
    let steers = |c: char| {
        c != '\n'
            && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    assert!(!printed.contains(steers), "{printed:?}");
    let forged = printed.lines().find(|line| line.starts_with("ccm: everything"));
    assert_eq!(forged, None, "{printed}");
}

#[test]
fn no_text_of_an_api_controls_a_terminal() {
    let world = World::new();
    let cloud = world.sandbox.cloud();
    for server in world.servers() {
        cloud.edit_server(server["id"].as_u64().unwrap(), |server| {
            let name = server["name"].as_str().unwrap_or_default().to_owned();
            server["name"] =
                if name == "worker-1" { name.into() } else { TERMINAL_CONTROLS.into() };
            server["server_type"]["name"] = TERMINAL_CONTROLS.into();
            server["status"] = TERMINAL_CONTROLS.into();
        });
    }
    for node in ["worker-1", "worker-2"] {
        let steer = |node: &mut Value| {
            let address = json!({"type": "ExternalDNS", "address": TERMINAL_CONTROLS});
            node["status"]["addresses"].as_array_mut().unwrap().push(address);
            node["metadata"]["labels"]["node.kubernetes.io/instance-type"] =
                TERMINAL_CONTROLS.into();
            node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"] =
                TERMINAL_CONTROLS.into();
        };
        world.edit_node(node, steer);
    }
    check(world.run(&[], &[]));
    let told = ccm(&world.env, &["node", "list", "-o", "json"]).json().to_string();
    assert!(told.contains("everything is fine"), "JSON holds what there is: {told}");
    #[rustfmt::skip] // A case is a line.
    let cases = [
        (Half::Hetzner, Effect::hetzner_error(503, "maintenance", TERMINAL_CONTROLS)),
        (Half::Hetzner, Effect::hetzner_error(401, TERMINAL_CONTROLS, "")),
        (Half::Kubernetes, Effect::kubernetes_status(500, "InternalError", TERMINAL_CONTROLS)),
        (Half::Kubernetes, Effect::kubernetes_status(403, TERMINAL_CONTROLS, "")),
        (Half::Kubernetes, answer(200, &json!({"kind": TERMINAL_CONTROLS, "items": []}))),
    ];
    for (half, effect) in cases {
        let rule = world.fault(Rule::new(effect).half(half));
        check(world.run(&[], &[]));
        world.sandbox.faults().remove(rule);
    }
}

/// The commands that print a world in which every text of every answer may control a terminal.
const EVERYWHERE: &[&[&str]] = &[
    &["node", "list", "-o", "wide"],
    &["node", "inspect", "worker-1"],
    &["node", "sync"],
    &["lb", "list", "-o", "wide"],
    &["lb", "list", "-o", "yaml"],
    &["lb", "inspect", "default/web"],
    &["lb", "inspect", "default/web", "-o", "json"],
    &["lb", "sync", "--dry-run"],
    &["lb", "sync"],
    &["lb", "sync", "--delete-orphans", "--dry-run"],
    &["route", "list", "-o", "wide"],
    &["route", "sync"],
    &["doctor", "-o", "wide"],
    &["run", "--dry-run"],
    &["run", "--once", "-v=10"],
    &["run", "--once", "-v=10", "--log-format=json"],
];

/// Worlds of [`no_text_of_an_api_forges_a_line`].
const SEEDS: u64 = 8;

/// Adds terminal controls to some texts of a document, and to some names of labels and annotations.
fn add_controls(value: &mut Value, random: &mut Random, share: u64) {
    let spoil = |text: &str, random: &mut Random| match random.below(3) {
        0 => TERMINAL_CONTROLS.to_owned(),
        1 => format!("{text}{TERMINAL_CONTROLS}"),
        _ => format!("{TERMINAL_CONTROLS}{text}"),
    };
    match value {
        Value::String(text) if random.percent(share) => *text = spoil(text, random),
        Value::Array(items) => {
            for item in items {
                add_controls(item, random, share);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                add_controls(field, random, share);
                let is_map = matches!(name.as_str(), "labels" | "annotations");
                if let (true, Value::Object(map)) = (is_map, field) {
                    let names: Vec<String> = map.keys().cloned().collect();
                    for name in names {
                        if random.percent(share) {
                            let value = map.remove(&name).unwrap_or_default();
                            map.insert(spoil(&name, random), value);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

fn with_controls(response: Response, random: &mut Random, share: u64) -> Response {
    let Ok(mut document) = serde_json::from_slice::<Value>(&response.body) else {
        return response;
    };
    add_controls(&mut document, random, share);
    Response { body: document.to_string().into_bytes(), ..response }
}

#[test]
fn no_text_of_an_api_forges_a_line() {
    for seed in 0..SEEDS {
        let world = World::new();
        let annotations = [
            ("location", "fsn1"),
            ("type", "lb11"),
            ("name", "web"),
            ("protocol", "tcp"),
            ("health-check-interval", "soon"),
            ("no-such-annotation", "x"),
            ("hostname", "web.example.com"),
        ];
        let own_ip = json!({"loadBalancerIP": "10.0.0.1"});
        world.create_as(with_spec(service("web", &annotations, &[80]), &own_ip));
        let annotations =
            [("protocol", "https"), ("http-certificates", "one"), ("location", "fsn1")];
        world.create("other", &annotations, &[443]);
        // The load balancers are there, and events were written.
        ccm(&world.env, &["run", "--once"]);
        for name in ["web", "other"] {
            world.edit(name, |service| {
                service["spec"]["loadBalancerIP"] = TERMINAL_CONTROLS.into();
            });
        }
        let share = [1, 3, 10, 40][seed as usize % 4];
        let random = Mutex::new(Random::new(seed));
        let change = move |response| with_controls(response, &mut random.lock().unwrap(), share);
        world.fault(Rule::new(Effect::changed(change)));
        for words in EVERYWHERE {
            let ran = ccm(&world.env, words);
            assert!(!ran.stderr.contains("panicked"), "seed {seed}: {words:?}: {ran:?}");
            for printed in [&ran.stdout, &ran.stderr] {
                println!("seed {seed}: {words:?}");
                check(printed.clone());
            }
            if words.contains(&"-v=10") {
                let is_json = words.len() > 3;
                let is_ours = |line: &str| match is_json {
                    true => serde_json::from_str::<Value>(line).is_ok(),
                    false => line.split(' ').nth(1).is_some_and(|level| {
                        ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level)
                    }),
                };
                let others =
                    ran.stderr.lines().find(|line| !is_ours(line) && !line.starts_with("ccm: "));
                assert_eq!(others, None, "seed {seed}: {words:?}");
            }
        }
        world.sandbox.faults().clear();
        for event in world.sandbox.cluster().list("events", None) {
            let message = event["message"].as_str().unwrap_or_default();
            assert!(!message.contains(char::is_control), "seed {seed}: {event}");
        }
    }
}
