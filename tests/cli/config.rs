//! `ccm config` shows the settings in force, their sources and their problems, and never a secret. It makes no call.

use crate::common::{self, Env, Ran, ccm, snapshot, with};
use ccm::settings::{Command, TABLE};
use serde_json::Value;
use std::net::TcpListener;

const TOKEN: &str = "jEheVytlAoFl7F8MqUQ7jAo2hOXASztXjEheVytlAoFl7F8MqUQ7jAo2hOXASztX";

fn config(changes: &[(&str, &str)], words: &[&str]) -> Ran {
    let env: Env = with(vec![("HCLOUD_TOKEN".into(), TOKEN.into())], changes);
    let ran = ccm(&env, &[&["config"], words].concat());
    let printed = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!printed.contains(TOKEN) && !printed.contains("pass-word"), "{printed}");
    ran
}

fn item<'a>(document: &'a Value, name: &str) -> &'a Value {
    let items = document["items"].as_array().unwrap();
    let found = items.iter().find(|item| item["setting"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {document}"))
}

#[test]
fn config_is_a_table_for_people() {
    let flags = ["--node-sync-interval=10s", "--once", "--controllers=*,-service", "-v", "4"];
    let env = [
        ("HCLOUD_NETWORK", " private "),
        ("HCLOUD_ENDPOINT", "https://me:pass-word@example.com/v1?key=pass-word"),
        ("HCLOUD_METRICS_ENABLED", "F"),
        ("ROBOT_ENABLED", ""),
        ("HCLOUD_SERVER_CACHE_MODE", "all"),
    ];
    let ran = config(&env, &flags);
    let text = format!("{}{}(exit {})\n", ran.stdout, ran.stderr, ran.code);
    snapshot("config.txt", &text);
    let env = with(Vec::new(), &env);
    let words = [&["config"], &flags[..]].concat();
    let shown = common::at_terminal(&env, &words).unwrap_or_default();
    for line in shown.lines().filter(|line| !line.starts_with("ccm: ")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn config_shows_every_value_with_its_source() {
    let folder = std::env::temp_dir().join(format!("ccm-config-{}", std::process::id()));
    std::fs::write(&folder, TOKEN).unwrap();
    let file = folder.display().to_string();
    let env = [
        ("HCLOUD_TOKEN", ""),
        ("HCLOUD_TOKEN_FILE", file.as_str()),
        ("HCLOUD_SERVER_CACHE_TTL", "1m"),
        ("HCLOUD_DEBUG", "t"),
        ("CCM_TEST_TIME_SCALE", "0.5"),
    ];
    let flags = ["-o", "json", "--leader-elect=0", "--master", "https://[fd00::1]:6443"];
    let ran = config(&env, &flags);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let document = ran.json();
    let expected = (&"ccm/v2".into(), &"SettingList".into());
    assert_eq!((&document["apiVersion"], &document["kind"]), expected);
    let token_source = format!("HCLOUD_TOKEN_FILE ({file})");
    for (name, value, source) in [
        ("token", "<redacted>", token_source.as_str()),
        ("server-cache-max-age", "1m", "HCLOUD_SERVER_CACHE_TTL"),
        ("debug", "true", "HCLOUD_DEBUG"),
        ("leader-elect", "false", "--leader-elect"),
        ("master", "https://[fd00::1]:6443", "--master"),
        ("cloud-provider", "ccm-from-scratch", "default"),
        ("test-time-scale", "0.5", "CCM_TEST_TIME_SCALE"),
    ] {
        let item = item(&document, name);
        let expected = (&value.into(), &source.into());
        assert_eq!((&item["value"], &item["source"]), expected, "{name}");
        assert_eq!(item["problem"], Value::Null, "{name}");
    }
    assert_eq!(item(&document, "network")["value"], Value::Null);
    // Everything that the daemon takes, in the table's order, and nothing else.
    let items = document["items"].as_array().unwrap();
    let shown: Vec<String> =
        items.iter().map(|item| item["setting"].as_str().unwrap().to_owned()).collect();
    let daemon = TABLE.iter().filter(|setting| {
        setting.is_for(Command::Run) && (!setting.hidden || setting.name() == "test-time-scale")
    });
    let expected = daemon.map(|setting| setting.name()).collect::<Vec<_>>();
    assert_eq!(shown, expected);
    let yaml = config(&env, &["-oyaml", flags[2], flags[3], flags[4]]).stdout;
    let yaml: Value = serde_yaml::from_str(&yaml).unwrap();
    assert_eq!(yaml, document);
    std::fs::remove_file(&folder).unwrap();
}

#[test]
#[rustfmt::skip] // A case is a line.
fn config_shows_a_problem_with_its_setting() {
    for (env, flags, name, source, problem) in [
        (&[("HCLOUD_TOKEN", "")][..], &[][..], "token", "HCLOUD_TOKEN", "HCLOUD_TOKEN: not set; "),
        (&[], &["--node-sync-interval=5"], "node-sync-interval", "--node-sync-interval", "--node-sync-interval: \"5\" can't be used: a duration needs a unit"),
        (&[("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv5")], &[], "address-family", "HCLOUD_INSTANCES_ADDRESS_FAMILY", "HCLOUD_INSTANCES_ADDRESS_FAMILY: \"ipv5\" can't be used: use ipv4, "),
        (&[("ROBOT_ENABLED", "true"), ("ROBOT_USER", "x")], &[], "robot-password", "ROBOT_PASSWORD", "ROBOT_PASSWORD: not set, "),
        (&[("HCLOUD_INSTANCES_ZONE_LABEL", "zone")], &[], "zone-label", "HCLOUD_INSTANCES_ZONE_LABEL", "HCLOUD_INSTANCES_ZONE_LABEL: \"zone\" can't be used: use datacenter or location"),
        (&[("ROBOT_ENABLED", "maybe")], &[], "robot-enabled", "ROBOT_ENABLED", "ROBOT_ENABLED: "),
        (&[], &["--leader-elect-lease-duration=9s"], "leader-elect-lease-duration", "--leader-elect-lease-duration", "--leader-elect-lease-duration: \"9s\" can't be used: must be longer than "),
        (&[], &["-v", "high"], "verbosity", "-v", "-v: \"high\" can't be used: use a whole number"),
    ] {
        let ran = config(env, &[&["-o", "json"], flags].concat()).with_code(1);
        assert!(ran.stderr.starts_with(&format!("ccm: {problem}")), "{}", ran.stderr);
        let document = ran.json();
        let item = item(&document, name);
        assert_eq!((&item["value"], &item["source"]), (&Value::Null, &source.into()), "{name}");
        assert!(item["problem"].as_str().unwrap().starts_with(problem), "{item}");
        let table = config(env, flags);
        let line = table.stdout.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert!(table.code == 1 && line.contains(" !wrong "), "{line}");
    }
}

/// The daemon's flags are known here. A word that is no setting at all is wrong usage.
#[test]
fn a_wrong_command_line_is_wrong_usage() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("-o xml", "-o: \"xml\" can't be used: use table, wide, name, json or yaml\n"),
        ("--nod-sync-interval=1s", "--nod-sync-interval: unknown flag; did you mean --node-sync-interval?\n"),
        ("network", "ccm config: \"network\" can't be used: unexpected word; this command takes only flags, and a boolean flag"),
        ("--detailed-exitcode", "--detailed-exitcode: only for node sync, node relabel, lb sync or route sync\n"),
        ("--hcloud-token=pass-word", "--hcloud-token: unknown flag; a secret on the command line"),
    ];
    for (words, told) in cases {
        let ran = config(&[], &words.split(' ').collect::<Vec<_>>());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{words}");
        let told = format!("ccm: {told}");
        assert!(ran.stderr.starts_with(&told), "{}", ran.stderr);
    }
    // The flags of hcloud-cloud-controller-manager are known, too.
    let ran = config(&[], &["--allow-untagged-cloud", "--secure-port=1"]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (0, 2), "{ran:?}");
}

/// No call has shown how large the project is.
#[test]
fn config_explains_periods_that_are_longer_in_a_large_project() {
    let document = config(&[], &["-o", "json"]).json();
    let noted = document["items"].as_array().unwrap().iter();
    let noted = noted.filter(|item| item["note"].is_string());
    let names: Vec<&str> = noted.map(|item| item["setting"].as_str().unwrap()).collect();
    let expected = ["node-status-update-frequency", "load-balancer-resync-period"];
    assert_eq!(names, expected);
    let wide = config(&[], &["-o", "wide"]).stdout;
    let notes = wide.matches("200 calls an hour: see ccm status");
    assert_eq!(notes.count(), 2, "{wide}");
}

#[test]
fn config_makes_no_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    config(&[("HCLOUD_ENDPOINT", &url)], &["--master", &url]).with_code(0);
    assert!(listener.accept().is_err(), "it was asked");
}
