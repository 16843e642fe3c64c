//! The settings from outside: values, sources and problems of command lines and environments.

use crate::common::help::{has_table, with_table};
use ccm::settings::{
    AddressFamily, Command, Controller, DaemonSettings, Environment, FlagUse, IGNORED_FLAGS,
    LogFormat, MEANINGS, NetworkSelector, Output, Parsed, Profile, Setting, Sourced, TABLE,
    ValueKind, Variable, WorkloadName, parse,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An environment of a test, with its files.
#[derive(Default)]
struct Given {
    variables: BTreeMap<String, OsString>,
    files: BTreeMap<PathBuf, String>,
}

impl Environment for Given {
    fn get(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.variables.keys().cloned().collect()
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        self.files.get(path).cloned().ok_or_else(|| io::Error::from_raw_os_error(2))
    }
}

/// Returns an environment from `NAME=value …`, one on a line. A name that is a path is a file.
fn environment(text: &str) -> Given {
    let mut given = Given::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.trim_start().split_once('=').unwrap();
        match name.starts_with('/') {
            true => drop(given.files.insert(name.into(), value.to_owned())),
            false => drop(given.variables.insert(name.to_owned(), value.into())),
        }
    }
    given
}

/// Words separated by spaces, as a shell would.
fn read(command: Command, line: &str, text: &str) -> Parsed {
    let words = line.split_whitespace().map(OsString::from).collect();
    parse(command, words, &environment(text), None)
}

/// Reads the same settings with a token, so that nothing else is wrong.
fn read_with_token(command: Command, line: &str, text: &str) -> Parsed {
    read(command, line, &format!("HCLOUD_TOKEN=token\n{text}"))
}

fn lines<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join("\n")
}

/// A setting's value, as Rust writes it, and who said so.
fn shown(parsed: &Parsed, name: &str) -> (String, String) {
    fn both<T: Debug>(setting: &Sourced<T>) -> (String, String) {
        (format!("{:?}", setting.value), setting.source.name().to_owned())
    }
    let settings = &parsed.settings;
    match name {
        "token" => both(&settings.token),
        "network" => both(&settings.network),
        "robot-enabled" => both(&settings.robot_enabled),
        "robot-cache-timeout" => both(&settings.robot_cache_timeout),
        "robot-rate-limit-wait-time" => both(&settings.robot_rate_limit_wait_time),
        "robot-endpoint" => both(&settings.robot_endpoint),
        "server-cache-max-age" => both(&settings.server_cache_max_age),
        "kubeconfig" => both(&settings.kubeconfig),
        "controllers" => both(&settings.controllers),
        "node-sync-interval" => both(&settings.node_sync_interval),
        "metrics-address" => both(&settings.metrics_address),
        "leader-elect" => both(&settings.leader_elect),
        "leader-elect-lease-duration" => both(&settings.lease_duration),
        "once" => both(&settings.once),
        "dry-run" => both(&settings.dry_run),
        "detailed-exitcode" => both(&settings.detailed_exitcode),
        "cluster-cidr" => both(&settings.cluster_cidrs),
        "zone-label" => both(&settings.zone_label),
        "network-routes-enabled" => both(&settings.network_routes_enabled),
        "output" => both(&settings.output),
        "log-format" => both(&settings.log_format),
        "verbosity" => both(&settings.verbosity),
        other => panic!("{other} is not shown yet"),
    }
}

#[test]
fn settings_that_are_not_set_have_the_documented_defaults() {
    let settings = read_with_token(Command::Run, "", "").settings;
    let expected = "https://api.hetzner.cloud/v1";
    assert_eq!(settings.endpoint.value.as_str(), expected);
    assert_eq!(settings.network.value, None);
    assert_eq!(settings.address_family.value, AddressFamily::Ipv4);
    assert!(settings.zone_label_enabled.value);
    assert_eq!(settings.zone_label.value, None);
    assert_eq!(settings.server_cache_max_age.value, Duration::from_secs(10));
    assert!(!settings.robot_enabled.value);
    assert!(settings.kubeconfig.value.is_empty());
    assert_eq!(settings.context.value, None);
    assert_eq!(settings.master.value, None);
    assert_eq!(settings.cloud_provider.value, Profile::CcmFromScratch);
    for controller in Controller::ALL {
        // The approval of certificates runs only when it is named.
        let is_named = *controller != Controller::NodeCsrApproval;
        assert_eq!(settings.controllers.value.contains(controller), is_named);
    }
    assert_eq!(settings.node_sync_interval.value, Duration::from_secs(5));
    let expected = Duration::from_secs(300);
    assert_eq!(settings.node_status_update_frequency.value, expected);
    assert!(settings.leader_elect.value);
    assert_eq!(settings.lease_duration.value, Duration::from_secs(15));
    assert_eq!(settings.renew_deadline.value, Duration::from_secs(10));
    assert_eq!(settings.retry_period.value, Duration::from_secs(2));
    assert_eq!(settings.lease_name.value, "cloud-controller-manager");
    assert_eq!(settings.lease_namespace.value, "kube-system");
    assert!(!settings.once.value && !settings.dry_run.value && !settings.debug.value);
    assert_eq!(settings.output.value, Output::Table);
    assert_eq!(settings.log_format.value, LogFormat::Text);
    assert_eq!(settings.verbosity.value, 0);
    let everywhere = "[::]:8233".parse().unwrap();
    assert_eq!(settings.metrics_address.value, Some(everywhere));
    assert_eq!(settings.test_time_scale.value, 1.0);
    assert!(settings.node_sync_interval.source.is_default());
}

#[test]
#[rustfmt::skip] // A case is a line.
fn each_setting_has_its_value_and_source() {
    use Command::{NodeList as List, NodeSync as Sync, Run};
    for (command, line, text, name, value, source) in [
        (Run, "", "HCLOUD_INSTANCES_ZONE_LABEL=Location", "zone-label", "Some(Location)", "HCLOUD_INSTANCES_ZONE_LABEL"),
        (Run, "", "HCLOUD_INSTANCES_ZONE_LABEL=", "zone-label", "None", "default"),
        (Run, "", "HCLOUD_NETWORK= net ", "network", "Some(Name(\"net\"))", "HCLOUD_NETWORK"),
        (Run, "", "HCLOUD_NETWORK=", "network", "None", "default"),
        (Run, "", "HCLOUD_NETWORK=  ", "network", "None", "default"),
        (Run, "", "ROBOT_ENABLED=", "robot-enabled", "false", "default"),
        (Run, "", "ROBOT_ENABLED=F", "robot-enabled", "false", "ROBOT_ENABLED"),
        (Run, "", "ROBOT_ENABLED=1", "robot-enabled", "true", "ROBOT_ENABLED"),
        (Run, "", "", "robot-cache-timeout", "300s", "default"),
        (Run, "", "ROBOT_CACHE_TIMEOUT=0", "robot-cache-timeout", "300s", "ROBOT_CACHE_TIMEOUT"),
        (Run, "", "ROBOT_CACHE_TIMEOUT=90s", "robot-cache-timeout", "90s", "ROBOT_CACHE_TIMEOUT"),
        (Run, "", "", "robot-rate-limit-wait-time", "None", "default"),
        (Run, "", "ROBOT_RATE_LIMIT_WAIT_TIME=0s", "robot-rate-limit-wait-time", "None", "ROBOT_RATE_LIMIT_WAIT_TIME"),
        (Run, "", "ROBOT_RATE_LIMIT_WAIT_TIME=10m", "robot-rate-limit-wait-time", "Some(600s)", "ROBOT_RATE_LIMIT_WAIT_TIME"),
        (Run, "", "ROBOT_RATE_LIMIT_WAIT_TIME=9h", "robot-rate-limit-wait-time", "Some(3600s)", "ROBOT_RATE_LIMIT_WAIT_TIME"),
        (Run, "", "", "robot-endpoint", "\"https://robot-ws.your-server.de\"", "default"),
        (Run, "", "HCLOUD_SERVER_CACHE_TTL=1m", "server-cache-max-age", "60s", "HCLOUD_SERVER_CACHE_TTL"),
        (Run, "", "HCLOUD_SERVER_CACHE_TTL=1m\nHCLOUD_SERVER_CACHE_MAX_AGE=0", "server-cache-max-age", "0ns", "HCLOUD_SERVER_CACHE_MAX_AGE"),
        (Run, "", "HCLOUD_SERVER_CACHE_TTL=1m\nHCLOUD_SERVER_CACHE_MAX_AGE=", "server-cache-max-age", "60s", "HCLOUD_SERVER_CACHE_TTL"),
        (Run, "", "HCLOUD_METRICS_ADDRESS=127.0.0.1:0", "metrics-address", "Some(127.0.0.1:0)", "HCLOUD_METRICS_ADDRESS"),
        (Run, "", "HCLOUD_METRICS_ADDRESS=", "metrics-address", "Some([::]:8233)", "default"),
        (Run, "--metrics-address=", "HCLOUD_METRICS_ADDRESS=:1", "metrics-address", "None", "--metrics-address"),
        // A flag wins, and what it beats is not even read.
        (Run, "--kubeconfig /a", "KUBECONFIG=/b:/c", "kubeconfig", "[\"/a\"]", "--kubeconfig"),
        (List, "", "KUBECONFIG=/b:/c", "kubeconfig", "[\"/b\", \"/c\"]", "KUBECONFIG"),
        (Run, "--kubeconfig=", "KUBECONFIG=/b", "kubeconfig", "[]", "--kubeconfig"),
        // pflag's manners.
        (Run, "--node-sync-interval=1m30s", "", "node-sync-interval", "90s", "--node-sync-interval"),
        (Run, "--node-sync-interval 300ms", "", "node-sync-interval", "300ms", "--node-sync-interval"),
        (Run, "--node_sync_interval 1s", "", "node-sync-interval", "1s", "--node-sync-interval"),
        (Run, "--node-sync-interval 1s --node-sync-interval 2s", "", "node-sync-interval", "2s", "--node-sync-interval"),
        (Run, "-v=4", "", "verbosity", "4", "-v"),
        (Run, "-v 4", "", "verbosity", "4", "-v"),
        (Run, "-v4", "", "verbosity", "4", "-v"),
        (Run, "--v=4", "", "verbosity", "4", "--v"),
        (List, "--v 4", "", "verbosity", "4", "--v"),
        (List, "-ojson", "", "output", "Json", "-o"),
        (List, "-o json", "", "output", "Json", "-o"),
        (Sync, "--output=yaml", "", "output", "Yaml", "--output"),
        (Run, "--once", "", "once", "true", "--once"),
        (Run, "--once=0", "", "once", "false", "--once"),
        (Run, "--once --dry-run=false", "", "dry-run", "false", "--dry-run"),
        (Sync, "--dry-run --detailed-exitcode", "", "detailed-exitcode", "true", "--detailed-exitcode"),
        (Run, "--logging-format=json", "", "log-format", "Json", "--logging-format"),
        (Run, "--controllers=cloud-node --controllers -route", "", "controllers", "[Node]", "--controllers"),
        (Run, "--controllers -cloud-node,*", "", "controllers", "[NodeLifecycle, Service, Route]", "--controllers"),
        (Run, "", "", "cluster-cidr", "[]", "default"),
        (Run, "--cluster-cidr=", "", "cluster-cidr", "[]", "--cluster-cidr"),
        (Run, "--cluster-cidr=10.244.1.2/16,fd00::1/56", "", "cluster-cidr", "[10.244.0.0/16, fd00::/56]", "--cluster-cidr"),
        (Command::RouteSync, "--cluster-cidr 10.244.0.0/16 --cluster-cidr 10.8.0.0/16", "", "cluster-cidr", "[10.244.0.0/16, 10.8.0.0/16]", "--cluster-cidr"),
        (Run, "", "HCLOUD_NETWORK_ROUTES_ENABLED=F", "network-routes-enabled", "false", "HCLOUD_NETWORK_ROUTES_ENABLED"),
        (Run, "--once --leader-elect=false", "", "once", "true", "--once"),
        (Run, "--leader-elect=false --leader-elect-lease-duration=1s", "", "leader-elect", "false", "--leader-elect"),
        (Run, "--leader-elect --leader-elect-lease-duration 10s --leader-elect-renew-deadline 5s", "", "leader-elect-lease-duration", "10s", "--leader-elect-lease-duration"),
    ] {
        let parsed = read_with_token(command, line, text);
        let case = format!("{command:?} {line} {text}");
        assert_eq!(lines(&parsed.problems), "", "{case}");
        assert_eq!(shown(&parsed, name), (value.to_owned(), source.to_owned()), "{case}");
    }
}

#[test]
fn values_on_the_command_line_are_parsed_by_their_type() {
    let parsed = read_with_token(
        Command::Run,
        "--cloud-provider=hcloud --master=https://[fd00::1]:6443/ --context admin \
         --controllers=*,-service",
        "HCLOUD_NETWORK=4711
         HCLOUD_ENDPOINT=http://127.0.0.1:8080/v1/
         HCLOUD_INSTANCES_ADDRESS_FAMILY=dualstack
         HCLOUD_INSTANCES_ZONE_LABEL_ENABLED=False
         HCLOUD_DEBUG=t
         KUBECONFIG=:/a::/b
         CCM_TEST_TIME_SCALE=0.01",
    );
    assert_eq!(lines(&parsed.problems), "");
    let settings = parsed.settings;
    assert_eq!(settings.cloud_provider.value, Profile::Hcloud);
    let expected = "https://[fd00::1]:6443";
    assert_eq!(settings.master.value.unwrap().as_str(), expected);
    assert_eq!(settings.context.value.as_deref(), Some("admin"));
    assert!(!settings.controllers.value.contains(&Controller::Service));
    assert!(settings.controllers.value.contains(&Controller::Node));
    assert_eq!(settings.network.value, Some(NetworkSelector::Id(4711)));
    assert_eq!(settings.endpoint.value.as_str(), "http://127.0.0.1:8080/v1");
    assert_eq!(settings.address_family.value, AddressFamily::Dualstack);
    assert!(!settings.zone_label_enabled.value && settings.debug.value);
    assert_eq!(settings.kubeconfig.value, ["/a", "/b"].map(PathBuf::from));
    assert_eq!(settings.test_time_scale.value, 0.01);
}

#[test]
#[rustfmt::skip] // A case is a line.
fn prefixes_of_labels_of_servers_are_checked() {
    let reserved = "is refused, because ccm copies no labels of kubernetes.io, k8s.io and hetzner.cloud from servers to \
                    nodes, except labels of topology.kubernetes.io and node-role.kubernetes.io that are listed with their \
                    whole key";
    let by_us = "is refused, because ccm sets this label from the location of the server";
    let no_slash = "lacks a slash; write a domain with a slash at its end, e.g. node.example.com/";
    let no_key = "is neither a domain with a slash at its end nor the key of a label";
    for (text, wrong) in [
        ("node.example.com/", None),
        (" node.example.com/ , example.org/rack,", None),
        ("topology.kubernetes.io/rack,node-role.kubernetes.io/worker", None),
        ("node-role.kubernetes.io/taint.worker", None),
        ("my-kubernetes.io/,notk8s.io/", None),
        ("topology.kubernetes.io/", Some(("topology.kubernetes.io/", reserved))),
        ("node-role.kubernetes.io/", Some(("node-role.kubernetes.io/", reserved))),
        ("node.kubernetes.io/exclude-from-external-load-balancers", Some(("node.kubernetes.io/exclude-from-external-load-balancers", reserved))),
        ("node-restriction.kubernetes.io/secure", Some(("node-restriction.kubernetes.io/secure", reserved))),
        ("kubernetes.io/hostname", Some(("kubernetes.io/hostname", reserved))),
        ("a.k8s.io/", Some(("a.k8s.io/", reserved))),
        ("instance.hetzner.cloud/", Some(("instance.hetzner.cloud/", reserved))),
        ("topology.kubernetes.io/zone", Some(("topology.kubernetes.io/zone", by_us))),
        ("topology.kubernetes.io/region", Some(("topology.kubernetes.io/region", by_us))),
        ("pool", Some(("pool", no_slash))),
        ("example.org/,pool", Some(("pool", no_slash))),
        ("/pool", Some(("/pool", no_key))),
        ("/", Some(("/", no_key))),
        ("Example.org/", Some(("Example.org/", no_key))),
        ("example.org/a/b", Some(("example.org/a/b", no_key))),
        ("example.org/-", Some(("example.org/-", no_key))),
        ("*", Some(("*", no_slash))),
    ] {
        let parsed = read_with_token(Command::Run, "", &format!("HCLOUD_INSTANCES_LABEL_PREFIXES={text}"));
        let problems = wrong.map(|(item, why)| {
            format!("HCLOUD_INSTANCES_LABEL_PREFIXES: {:?} can't be used: {item:?} {why}", text.trim())
        });
        assert_eq!(lines(&parsed.problems), problems.unwrap_or_default(), "{text}");
        assert_eq!(parsed.settings.label_prefixes.value.0.is_empty(), wrong.is_some(), "{text}");
    }
}

#[test]
fn the_command_line_is_split_into_names_flags_help_and_version() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        (Command::NodeSync, "web-1 --dry-run web-2", "web-1 web-2", false, false),
        (Command::NodeSync, "-- --dry-run -h", "--dry-run -h", false, false),
        (Command::NodeSync, "web-1 -- web-2 -- x", "web-1 web-2 -- x", false, false),
        (Command::NodeSync, "--dry-run t", "t", false, false),
        (Command::NodeSync, "--dry-run -- false", "false", false, false),
        (Command::NodeList, "-", "-", false, false),
        (Command::NodeList, "-h", "", true, false),
        (Command::Run, "--help", "", true, false),
        (Command::Run, "--help=false", "", true, false),
        (Command::Run, "--version", "", false, true),
        (Command::Run, "--version=raw", "", false, true),
        (Command::Run, "--version=false", "", false, false),
        (Command::Run, "-hv4", "", true, false),
    ];
    for (command, line, words, asks_help, asks_version) in cases {
        let parsed = read_with_token(command, line, "");
        assert_eq!(lines(&parsed.problems), "", "{line}");
        assert_eq!(parsed.words.join(" "), words, "{line}");
        let expected = (asks_help, asks_version);
        assert_eq!((parsed.help, parsed.version), expected, "{line}");
    }
}

#[test]
#[rustfmt::skip] // A case is a line.
fn a_wrong_command_line_says_what_to_write() {
    use Command::{NodeList as List, NodeSync as Sync, Run};
    for (command, line, problems) in [
        (Run, "--node-sync-interval 5", "--node-sync-interval: \"5\" can't be used: a duration needs a unit, e.g. 5s or 1m30s"),
        (Run, "--node-sync-interval=0", "--node-sync-interval: \"0\" can't be used: must be 100ms or longer"),
        (Run, "--node-sync-interval=-5s", "--node-sync-interval: \"-5s\" can't be used: must not be negative"),
        (Run, "--node-sync-interval", "--node-sync-interval: needs a value: DURATION, e.g. --node-sync-interval 5s"),
        (Run, "--node-sync-interval=", "--node-sync-interval: \"\" can't be used: not a duration; write e.g. 5s or 1m30s"),
        (Run, "--nod-sync-interval 5s", "--nod-sync-interval: unknown flag; did you mean --node-sync-interval?"),
        (Run, "--nod-sync-interval=5s", "--nod-sync-interval: unknown flag; did you mean --node-sync-interval?"),
        (Run, "--leader-elct=false", "--leader-elct: unknown flag; did you mean --leader-elect?"),
        (Run, "---once", "---once: unknown flag; did you mean --once?"),
        (Run, "--\u{1b}[0m", "--\\u{1b}[0m: unknown flag; see ccm run --help"),
        (Run, "--whatever 5", "--whatever: unknown flag; see ccm run --help"),
        (Run, "--once 5", "ccm run: \"5\" can't be used: unexpected word; this command takes only flags, and a boolean flag takes its value with ="),
        (Run, "--leader-elect false", "ccm run: \"false\" can't be used: unexpected word; this command takes only flags, and a boolean flag takes its value with ="),
        (Run, "-- --once", "ccm run: \"--once\" can't be used: unexpected word; this command takes only flags, and a boolean flag takes its value with ="),
        (Run, "-once", "-once: long flags have two dashes: did you mean --once?"),
        (Run, "-kubeconfig=/a --once", "-kubeconfig: long flags have two dashes: did you mean --kubeconfig?"),
        (Run, "-kubeconfig /a --once", "-kubeconfig: long flags have two dashes: did you mean --kubeconfig?"),
        (Run, "-x", "-x: unknown flag; see ccm run --help"),
        (Run, "-o json", "-o: not a flag of run; see ccm run --help"),
        (Run, "-v", "-v: needs a value: N, e.g. -v 0"),
        (Run, "-v=-1", "-v: \"-1\" can't be used: use a whole number, 0 or larger"),
        (Run, "--v=high", "--v: \"high\" can't be used: use a whole number, 0 or larger"),
        (Run, "-h=x", "-h: takes no value"),
        (Run, "--once=ja", "--once: \"ja\" can't be used: use true or false"),
        (Run, "--log-format=xml", "--log-format: \"xml\" can't be used: use text or json"),
        (Run, "--logging-format=xml", "--logging-format: \"xml\" can't be used: use text or json"),
        (Run, "--cloud-provider=aws", "--cloud-provider: \"aws\" can't be used: use ccm-from-scratch or hcloud"),
        (Run, "--controllers=cloud-nod", "--controllers: \"cloud-nod\" can't be used: no controller is called \"cloud-nod\"; did you mean cloud-node?"),
        (Run, "--master=https://u:hunter2@host", "--master: \"https://…@host\" can't be used: leave out the user name and password"),
        (Run, "--metrics-address=8233", "--metrics-address: \"8233\" can't be used: write :PORT or IP:PORT, e.g. :8233, 127.0.0.1:8233 or [::1]:8233"),
        (Run, "--token geheim", "--token: unknown flag; a secret on the command line could be read by every user of this machine: set HCLOUD_TOKEN or HCLOUD_TOKEN_FILE instead"),
        (Run, "--cluster-cidr", "--cluster-cidr: needs a value: CIDR,…, e.g. --cluster-cidr 10.244.0.0/16"),
        (Run, "--cluster-cidr=0.0.0.0/0", "--cluster-cidr: \"0.0.0.0/0\" can't be used: this range contains every address; use only the range of the pods"),
        (Run, "--cluster-cidr=10.244.0.0/33", "--cluster-cidr: \"10.244.0.0/33\" can't be used: use IP ranges, e.g. 10.244.0.0/16 or 10.244.0.0/16,fd00:10:244::/56"),
        (Run, "--node-out-of-service-after=299s", "--node-out-of-service-after: \"299s\" can't be used: use 0 (never), or at least 5m"),
        (Run, "--node-out-of-service-after=never", "--node-out-of-service-after: \"never\" can't be used: not a duration; write e.g. 5s or 1m30s"),
        (Run, "--node-monitor-period=1ns", "--node-monitor-period: \"1ns\" can't be used: must be 100ms or longer"),
        (Run, "--service-sync-interval=99ms", "--service-sync-interval: \"99ms\" can't be used: must be 100ms or longer"),
        (Run, "--route-reconciliation-period=0", "--route-reconciliation-period: \"0\" can't be used: must be 100ms or longer"),
        (Run, "--leader-elect-lease-duration=0s", "--leader-elect-lease-duration: \"0s\" can't be used: must be 100ms or longer"),
        (Run, "--leader-elect-lease-duration=10s", "--leader-elect-lease-duration: \"10s\" can't be used: must be longer than --leader-elect-renew-deadline (10s)"),
        (Run, "--leader-elect-renew-deadline=2400ms", "--leader-elect-renew-deadline: \"2.4s\" can't be used: must be longer than 1.2 × 2s (--leader-elect-retry-period)"),
        (Run, "--leader-elect-lease-duration=9s --leader-elect-renew-deadline=5s", "--leader-elect-lease-duration: \"9s\" can't be used: must be 10s or longer, because a write may take 8s and must end before the Lease expires, even if the write begins at the end of a --leader-elect-retry-period (2s)"),
        (Run, "--leader-elect-lease-duration=999999h", "--leader-elect-lease-duration: \"3599996400s\" can't be used: must not be longer than 68 years"),
        (Run, "--leader-elect-resource-name=Ccm", "--leader-elect-resource-name: \"Ccm\" can't be used: use lower case letters, digits, - and ., and begin and end with a letter or digit"),
        (Run, "--leader-elect-resource-namespace=a/b", "--leader-elect-resource-namespace: \"a/b\" can't be used: use at most 63 lower case letters, digits and -, and begin and end with a letter or digit"),
        // Client commands know their own flags only.
        (List, "--leader-elect", "--leader-elect: only for run, doctor or status"),
        (List, "--once", "--once: only for run"),
        (List, "--version", "--version: unknown flag; see ccm version"),
        (List, "--outptu json", "--outptu: unknown flag; did you mean --output?"),
        (List, "-o xml", "-o: \"xml\" can't be used: use table, wide, name, json or yaml"),
        (Sync, "--dry-rn web-1", "--dry-rn: unknown flag; did you mean --dry-run?"),
        // Everything at once.
        (
            Run,
            "--onc --node-sync-interval 5 --log-format=xml",
            "--onc: unknown flag; did you mean --once?\n\
             --node-sync-interval: \"5\" can't be used: a duration needs a unit, e.g. 5s or 1m30s\n\
             --log-format: \"xml\" can't be used: use text or json",
        ),
    ] {
        let parsed = read_with_token(command, line, "");
        assert_eq!(lines(&parsed.problems), problems, "{command:?} {line}");
        assert!(parsed.problems.iter().all(|problem| problem.usage), "{line}");
    }
}

/// The rule of the API server for `spec.loadBalancerClass`.
#[test]
fn a_class_that_no_service_can_have_is_refused() {
    let read = |class: &str| {
        let parsed = read_with_token(Command::Run, &format!("--load-balancer-class={class}"), "");
        (parsed.settings.load_balancer_class.value, parsed.problems)
    };
    let (longest, too_long) = ("x".repeat(63), "x".repeat(64));
    for class in ["hetzner", "Hetzner_1.a-b", "example.com/Hetzner", "a/b", &longest] {
        let (value, problems) = read(class);
        assert_eq!(lines(&problems), "", "{class}");
        assert_eq!(value.as_deref(), Some(class));
    }
    let (value, problems) = read("");
    assert_eq!((value, lines(&problems)), (None, String::new()));
    let domain_too_long = format!("{}/hetzner", "x".repeat(254));
    for class in [
        "hetzner,",
        "*",
        "-hetzner",
        "hetzner.",
        "/hetzner",
        "example.com/",
        "Example.com/hetzner",
        "example_com/hetzner",
        "example..com/hetzner",
        "a/b/c",
        "hetzner\u{e4}",
        &too_long,
        &domain_too_long,
    ] {
        let (_, problems) = read(class);
        let problems = lines(&problems);
        assert!(
            problems.ends_with(
                ": no Service can have this class; use at most 63 letters, digits, -, _ or ., and begin and end with \
                 a letter or digit; before them may come a domain in lower case and a slash, e.g. example.com/hetzner"
            ),
            "{class}: {problems}"
        );
    }
}

/// A Secret is mounted whose keys of Robot are optional.
#[test]
fn files_of_robots_login_may_be_missing_or_empty_like_its_variables() {
    let unset = "HCLOUD_TOKEN=t\nROBOT_ENABLED=true\nROBOT_USER_FILE=/u\nROBOT_PASSWORD_FILE=/p";
    for files in ["", "\n/u=", "\n/u=\n/p= \t"] {
        let parsed = read(Command::Run, "", &format!("{unset}{files}"));
        assert_eq!(lines(&parsed.problems), "", "{files}");
        let settings = parsed.settings;
        assert!(settings.robot_user.value.is_none() && settings.robot_password.value.is_none());
    }
}

#[test]
#[rustfmt::skip] // A case is a line.
fn a_wrong_environment_says_what_to_write() {
    for (text, problems) in [
        (
            "",
            "HCLOUD_TOKEN: not set; set it to a token of the project's API (Hetzner Console → Security → API tokens), \
             or set HCLOUD_TOKEN_FILE to the path of a file with the token",
        ),
        ("HCLOUD_TOKEN_FILE=/none", "HCLOUD_TOKEN_FILE: \"/none\" can't be used: No such file or directory (os error 2)"),
        ("HCLOUD_TOKEN_FILE=/t\n/t= \t", "HCLOUD_TOKEN_FILE: \"/t\" can't be used: the file is empty"),
        ("HCLOUD_TOKEN_FILE=/t\n/t=a b", "HCLOUD_TOKEN_FILE: \"/t\" can't be used: holds characters that no token has, e.g. white space; copy it again"),
        ("HCLOUD_TOKEN=a b", "HCLOUD_TOKEN: holds characters that no token has, e.g. white space; copy it again"),
        (
            "HCLOUD_TOKEN_FILE=jEheVytlAoFl7F8MqUQ7jAo2hOXASztX",
            "HCLOUD_TOKEN_FILE: the value is not the path of a file that can be read, and looks like a token; write the path of a file with the token",
        ),
        ("HCLOUD_TOKEN=t\nHCLOUD_INSTANCES_ADDRESS_FAMILY=ipv5", "HCLOUD_INSTANCES_ADDRESS_FAMILY: \"ipv5\" can't be used: use ipv4, ipv6, dualstack or none"),
        ("HCLOUD_TOKEN=t\nHCLOUD_INSTANCES_INTERNAL_IP_RANGES=10.0.0.0/8,vpn", "HCLOUD_INSTANCES_INTERNAL_IP_RANGES: \"10.0.0.0/8,vpn\" can't be used: use IP ranges, e.g. 10.0.0.0/16 or 100.64.0.0/10,fd7a::/48"),
        ("HCLOUD_TOKEN=t\nHCLOUD_INSTANCES_INTERNAL_IP_FROM=vpn", "HCLOUD_INSTANCES_INTERNAL_IP_FROM: \"vpn\" can't be used: use network or kubelet"),
        ("HCLOUD_TOKEN=t\nHCLOUD_DEBUG=yes", "HCLOUD_DEBUG: \"yes\" can't be used: use true or false"),
        ("HCLOUD_TOKEN=t\nROBOT_ENABLED=true\nROBOT_USER=#ws+hunter2", "ROBOT_PASSWORD: not set, but ROBOT_USER is set; set this variable (or ROBOT_PASSWORD_FILE) too, or unset ROBOT_USER"),
        ("HCLOUD_TOKEN=t\nROBOT_ENABLED=true\nROBOT_PASSWORD_FILE=/p\n/p=hunter2", "ROBOT_USER: not set, but ROBOT_PASSWORD is set; set this variable (or ROBOT_USER_FILE) too, or unset ROBOT_PASSWORD"),
        ("HCLOUD_TOKEN=t\nROBOT_ENABLED=true\nROBOT_USER=hunter2:hunter2\nROBOT_PASSWORD=hunter2", "ROBOT_USER: the value has a colon, but no user name of the Robot web service has one. Does the value also contain the password?"),
        ("HCLOUD_TOKEN=t\nROBOT_ENABLED=true\nROBOT_USER=u\nROBOT_PASSWORD_FILE=/none", "ROBOT_PASSWORD_FILE: \"/none\" can't be used: the file is missing or empty, but ROBOT_USER is set; set both user and password, or neither"),
        ("HCLOUD_TOKEN=t\nROBOT_ENABLED=true\nROBOT_USER_FILE=/u\nROBOT_PASSWORD_FILE=/p\n/u= \n/p=hunter2", "ROBOT_USER_FILE: \"/u\" can't be used: the file is missing or empty, but ROBOT_PASSWORD is set; set both user and password, or neither"),
        ("HCLOUD_TOKEN=t\nROBOT_ENABLED=true\nROBOT_USER=u\nROBOT_PASSWORD_FILE=jEheVytlAoFl7F8MqUQ7jAo2hOXASztX", "ROBOT_PASSWORD_FILE: the value is not the path of a file that can be read, and looks like a token; write the path of a file with the token"),
        ("HCLOUD_TOKEN=t\nROBOT_ENDPOINT=http://robot.example.com", "ROBOT_ENDPOINT: \"http://robot.example.com\" can't be used: without TLS anybody on the network path can read the password; use https://, or set HCLOUD_ALLOW_INSECURE_ENDPOINT=true if you trust the path"),
        ("HCLOUD_TOKEN=t\nROBOT_CACHE_TIMEOUT=5", "ROBOT_CACHE_TIMEOUT: \"5\" can't be used: a duration needs a unit, e.g. 5s or 1m30s"),
        ("HCLOUD_TOKEN=t\nHCLOUD_SERVER_CACHE_TTL=10", "HCLOUD_SERVER_CACHE_TTL: \"10\" can't be used: a duration needs a unit, e.g. 5s or 1m30s"),
        ("HCLOUD_TOKEN=t\nHCLOUD_NETWORK=99999999999999999999", "HCLOUD_NETWORK: \"99999999999999999999\" can't be used: too large for the ID of a Network"),
        ("HCLOUD_TOKEN=t\nHCLOUD_ENDPOINT=https://api.hetzner.cloud/v1?token=hunter2", "HCLOUD_ENDPOINT: \"https://api.hetzner.cloud/v1?…\" can't be used: a base URL must have no query (from ? on) and no fragment (from # on)"),
        ("HCLOUD_TOKEN=t\nCCM_TEST_TIME_SCALE=0", "CCM_TEST_TIME_SCALE: \"0\" can't be used: use a number greater than 0 and at most 1000"),
        ("HCLOUD_TOKEN=t\nHCLOUD_NETWORK_ROUTES_ENABLED=maybe\nROBOT_PASSWORD=hunter2", "HCLOUD_NETWORK_ROUTES_ENABLED: \"maybe\" can't be used: use true or false"),
    ] {
        let parsed = read(Command::Run, "", text);
        assert_eq!(lines(&parsed.problems), problems, "{text}");
        assert!(parsed.problems.iter().all(|problem| !problem.usage), "{text}");
        assert!(!format!("{parsed:?}").contains("hunter2"), "{text}");
    }
}

#[test]
#[rustfmt::skip] // A case is a line.
fn a_token_is_not_sent_unencrypted_but_to_this_machine() {
    let hosts = [
        ("127.0.0.1", true), ("127.9.8.7:8080", true), ("[::1]:8080", true), ("localhost", true), ("LocalHost:80", true),
        ("10.0.0.1", false), ("169.254.169.254", false), ("api.example.com:80", false), ("[::2]", false), ("[::ffff:127.0.0.1]", false),
        ("0.0.0.0", false), ("128.0.0.1", false), ("127.1", false), ("localhost.example.com", false), ("local.localhost", false),
        ("127.0.0.1.example.com", false), ("localhost.", false),
    ];
    let allow = "HCLOUD_ALLOW_INSECURE_ENDPOINT";
    let why = format!("without TLS anybody on the network path can read the token; use https://, or set {allow}=true if you trust the path");
    for (host, is_fine) in hosts {
        let variables = format!("HCLOUD_TOKEN=t\nHCLOUD_ENDPOINT=http://{host}/v1");
        let problems = match is_fine {
            true => String::new(),
            false => format!("HCLOUD_ENDPOINT: \"http://{host}/v1\" can't be used: {why}"),
        };
        for command in [Command::Run, Command::NodeList, Command::Doctor] {
            let parsed = read(command, "", &variables);
            let mut found: Vec<String> = parsed.problems.iter().map(ToString::to_string).collect();
            found.sort();
            assert_eq!(lines(&found), problems, "{host}");
            assert_eq!(lines(&parsed.notices), "", "{host}");
        }
        let secure = read(Command::Run, "", &variables.replace("http:", "https:"));
        assert_eq!(lines(&secure.problems), "", "{host}");
        let allowed = read(Command::Run, "", &format!("{variables}\n{allow}=true"));
        assert_eq!((lines(&allowed.problems), lines(&allowed.notices)), (String::new(), String::new()), "{host}");
        // Where another CCM ran, the image can be changed, and nothing else must be.
        let hcloud = read(Command::Run, "--cloud-provider=hcloud", &variables);
        let notices = match is_fine {
            true => String::new(),
            false => format!("HCLOUD_ENDPOINT: {why}"),
        };
        assert_eq!((lines(&hcloud.problems), lines(&hcloud.notices)), (String::new(), notices), "{host}");
    }
}

#[test]
fn a_value_that_is_not_utf_8_is_a_problem() {
    let broken = OsString::from_vec(b"n\xff".to_vec());
    let mut given = environment("HCLOUD_TOKEN=t");
    given.variables.insert("HCLOUD_NETWORK".to_owned(), broken.clone());
    let mut flag = OsString::from("--context=");
    flag.push(&broken);
    let parsed = parse(Command::NodeList, vec![flag, broken], &given, None);
    let expected = "--context: its value is not UTF-8\nn\u{fffd}: not UTF-8\n\
                    HCLOUD_NETWORK: its value is not UTF-8";
    assert_eq!(lines(&parsed.problems), expected);
}

#[test]
fn the_token_is_trimmed_kept_with_its_file_and_never_shown() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("HCLOUD_TOKEN= geheim ", "geheim", "HCLOUD_TOKEN"),
        ("HCLOUD_TOKEN=geheim\nHCLOUD_TOKEN_FILE=/none", "geheim", "HCLOUD_TOKEN"),
        ("HCLOUD_TOKEN=\nHCLOUD_TOKEN_FILE= /t \n/t= geheim  ", "geheim", "HCLOUD_TOKEN_FILE (/t)"),
    ];
    for (text, token, source) in cases {
        let parsed = read(Command::Run, "", text);
        assert_eq!(lines(&parsed.problems), "", "{text}");
        assert!(!format!("{parsed:#?}").contains("geheim"), "{text}");
        assert_eq!(shown(&parsed, "token").1, source);
        let read = parsed.settings.token.value.unwrap();
        let secret = read.current().unwrap().unwrap();
        assert_eq!(secret.expose(), token, "{text}");
        let is_file = format!("{read:?}").contains("Some(\"/t\")");
        assert_eq!(is_file, source.contains("/t"), "{text}");
    }
}

#[test]
fn a_flag_without_effect_is_reported_once() {
    #[rustfmt::skip] // A case is a paragraph.
    let cases = [
        (Command::Run,
            "--profiling=false --allow-untagged-cloud --profiling --feature-gates A=true \
             --webhook-secure-port 0 --node-sync-period=1m", "",
            "--profiling: this setting has no effect in ccm, so ccm ignores it; it can be \
             removed\n--allow-untagged-cloud: this setting has no effect in ccm, so ccm ignores it; it can be \
             removed\n--feature-gates: this setting has no effect in ccm, so ccm ignores it; it can be \
             removed\n--webhook-secure-port: this setting has no effect in ccm, so ccm ignores it; it can be \
             removed\n--node-sync-period: this setting has no effect in ccm, so ccm ignores it; it can be removed"),
        (Command::Run, "", "HCLOUD_SERVER_CACHE_MODE=one\nHCLOUD_METRICS_ADDRESS=",
            "HCLOUD_SERVER_CACHE_MODE: this setting has no effect in ccm, so ccm ignores it; it can be removed"),
        // The flag of Kubernetes 1.37.
        (Command::Run, "--concurrent-node-lifecycle-syncs=5 --concurrent-node-lifecycle-syncs 7", "",
            "--concurrent-node-lifecycle-syncs: this setting has no effect in ccm, so ccm ignores it; set \
             --concurrent-node-syncs instead"),
        // In a shell these variables are another program's.
        (Command::NodeList, "", "HCLOUD_SERVER_CACHE_MODE=one", ""),
        (Command::NodeList, "",
            "HCLOUD_NETWORK_ID=1\nHCLOUD_TOKN=x\nHCLOUD_CONTEXT=x\nHCLOUD_SSH_KEYS=x\n\
             HCLOUD_METRIC_ENABLED=x\nHCLOUD_ENDPIONT=\nHOME=/root",
            "HCLOUD_METRIC_ENABLED: ccm does not read this variable; did you mean HCLOUD_METRICS_ENABLED?\n\
             HCLOUD_NETWORK_ID: ccm does not read this variable; did you mean HCLOUD_NETWORK?\n\
             HCLOUD_TOKN: ccm does not read this variable; did you mean HCLOUD_TOKEN?"),
    ];
    for (command, line, text, notices) in cases {
        let parsed = read_with_token(command, line, text);
        assert_eq!(lines(&parsed.problems), "", "{line} {text}");
        assert_eq!(lines(&parsed.notices), notices, "{line} {text}");
    }
}

/// The daemon logs the variables of two forks, and `doctor` and `status` report them. No variable is an alias.
#[test]
fn a_variable_of_a_fork_is_reported_with_our_name() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("ROBOT_USER_NAME", "set ROBOT_USER or ROBOT_USER_FILE instead"),
        ("CACHE_TIMEOUT", "set ROBOT_CACHE_TIMEOUT instead"),
        ("RATE_LIMIT_WAIT_TIME_ROBOT", "set ROBOT_RATE_LIMIT_WAIT_TIME instead"),
        ("ROBOT_DEBUG", "set -v 4 instead"),
        ("HROBOT_USER", "set ROBOT_USER or ROBOT_USER_FILE instead"),
        ("HROBOT_PASS", "set ROBOT_PASSWORD or ROBOT_PASSWORD_FILE instead"),
        ("HROBOT_PERIOD", "set ROBOT_CACHE_TIMEOUT instead"),
        ("PROVIDER_NAME", "set --cloud-provider instead"),
        ("NAME_LABEL_TYPE", "it can be removed"),
        ("NAME_CLOUD_NODE", "it can be removed"),
        ("NAME_DEDICATED_NODE", "it can be removed"),
        ("ENABLE_SYNC_LABELS", "set HCLOUD_INSTANCES_LABEL_PREFIXES instead"),
    ];
    for (name, ours) in cases {
        let text = format!("HCLOUD_TOKEN=x\nROBOT_ENABLED=true\n{name}=geheim");
        let notice =
            format!("{name}: this setting has no effect in ccm, so ccm ignores it; {ours}");
        for command in [Command::Run, Command::Config, Command::Doctor, Command::Status] {
            let parsed = read(command, "", &text);
            assert_eq!(lines(&parsed.problems), "", "{name}");
            let (reported, none) = match command {
                Command::Run | Command::Config => (parsed.notices, parsed.of_forks),
                _ => (parsed.of_forks, parsed.notices),
            };
            assert_eq!((lines(&reported), lines(&none)), (notice.clone(), String::new()));
            assert!(parsed.settings.robot_user.value.is_none(), "{name}");
        }
        // In a shell these variables may be another program's.
        let parsed = read(Command::NodeSync, "", &text);
        assert_eq!((lines(&parsed.notices), lines(&parsed.of_forks)), Default::default(), "{name}");
        // An empty variable is unset.
        let parsed = read(Command::Run, "", &format!("HCLOUD_TOKEN=x\n{name}="));
        assert_eq!(lines(&parsed.notices), "", "{name}");
    }
}

/// Every word of a choice and every default in the table can be read.
#[test]
fn each_choice_in_the_table_of_settings_can_be_parsed() {
    for setting in TABLE {
        let words: Vec<&str> = match setting.kind {
            ValueKind::Choice(words) => words.to_vec(),
            _ => setting.default.into_iter().collect(),
        };
        for (word, command) in
            words.iter().flat_map(|w| setting.commands.iter().map(move |c| (w, c)))
        {
            // Refused with its own message.
            let is_list =
                matches!(command, Command::NodeList | Command::LbList | Command::RouteList);
            if *word == "name" && !is_list {
                continue;
            }
            let parsed = match (setting.flags.first(), setting.variables.first()) {
                (Some(flag), _) => read_with_token(*command, &format!("--{flag}={word}"), ""),
                (None, Some(variable)) => {
                    read_with_token(*command, "", &format!("{}={word}", variable.name()))
                }
                (None, None) => panic!("{} can't be set", setting.name()),
            };
            assert_eq!(lines(&parsed.problems), "", "{} {word}", setting.name());
        }
    }
}

/// The flags that k8s.io/cloud-provider 0.37 adds to those of hcloud-cloud-controller-manager 1.35, with their types.
const FLAGS_OF_1_37: [(&str, &str); 1] = [("concurrent-node-lifecycle-syncs", "int32")];

/// The list in the code is compared with the list of flags that hcloud-cloud-controller-manager prints: a name, and a
/// type unless it is a boolean.
#[test]
fn all_flags_of_hcloud_cloud_controller_manager_are_accepted() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/hccm-flags.txt");
    let path = std::env::var_os("CCM_TEST_HCCM_FLAGS").map_or(default, PathBuf::from);
    let Ok(text) = std::fs::read_to_string(&path) else {
        let why = format!("the list of flags is not at {} (CCM_TEST_HCCM_FLAGS)", path.display());
        sandbox::skipped::skip(
            "all_flags_of_hcloud_cloud_controller_manager_are_accepted",
            "flags",
            &why,
        );
        return;
    };
    let (mut expected, mut flags) = (BTreeMap::new(), BTreeSet::from(FLAGS_OF_1_37));
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let flag = line.split_once("--").map(|(_, flag)| flag).unwrap();
        flags.insert(flag.split_once(' ').unwrap_or((flag, "")));
    }
    for (name, kind) in flags {
        let bare = kind.is_empty() || kind.contains("[=");
        expected.insert(name, !bare);
    }
    let ours = TABLE.iter().filter(|row| row.is_for(Command::Run));
    let ours = ours.flat_map(|row| row.flags.iter().map(|flag| (*flag, row.takes_value())));
    let ours: BTreeMap<_, _> = ours.chain([("help", false), ("version", false)]).collect();
    let ignored = IGNORED_FLAGS.iter();
    let mut known: BTreeMap<_, _> =
        ignored.map(|(name, kind)| (*name, *kind == FlagUse::WithValue)).collect();
    assert_eq!(known.len(), IGNORED_FLAGS.len(), "one is there twice");
    let honoured = ours.into_iter().filter(|(name, _)| expected.contains_key(name));
    for (name, takes_value) in honoured {
        assert_eq!(known.insert(name, takes_value), None, "{name} is honoured");
    }
    assert_eq!(known, expected);
}

#[test]
fn every_ignored_flag_is_reported() {
    for (name, kind) in IGNORED_FLAGS {
        let value = if *kind == FlagUse::WithValue { " 1s" } else { "" };
        let parsed = read_with_token(Command::Run, &format!("--{name}{value}"), "");
        let reported = lines(&parsed.notices).starts_with(&format!("--{name}: "));
        assert!(reported, "{name}");
        assert!(parsed.words.is_empty());
        assert!(parsed.problems.is_empty(), "{name}");
    }
}

/// The example that `ccm explain` shows is accepted wherever the setting is.
#[test]
fn the_example_of_each_setting_is_right() {
    for setting in TABLE.iter().filter(|one| !one.hidden && !one.secret) {
        let mut variables = setting.variables.iter();
        if variables.any(|one| one.name().starts_with("ROBOT")) {
            // The setting needs credentials beside it.
            continue;
        }
        let value = setting.example();
        let (flags, variables) = match (setting.flags.first(), setting.variables.first()) {
            (Some(flag), _) if setting.takes_value() => {
                (format!("--{flag} {value}"), String::new())
            }
            (Some(flag), _) => (format!("--{flag}={value}"), String::new()),
            (None, Some(variable)) => (String::new(), format!("{}={value}", variable.name())),
            (None, None) => panic!("{setting:?}"),
        };
        let parsed = read_with_token(setting.commands[0], &flags, &variables);
        let problems: Vec<String> = parsed.problems.iter().map(ToString::to_string).collect();
        assert!(problems.is_empty(), "{flags}{variables}: {problems:?}");
    }
}

/// A lease duration equal to the renew deadline is refused, as client-go does. A renew deadline equal to a retry and a
/// write is enough.
#[test]
fn the_help_of_the_lease_says_which_durations_may_be_equal() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("--leader-elect-lease-duration=10s", false),
        ("--leader-elect-lease-duration=10s --leader-elect-renew-deadline=5s", true),
        ("--leader-elect-lease-duration=9s --leader-elect-renew-deadline=5s", false),
    ];
    for (flags, is_accepted) in cases {
        let parsed = read_with_token(Command::Run, flags, "");
        assert_eq!(parsed.problems.is_empty(), is_accepted, "{flags}");
    }
    let mut rows = TABLE.iter();
    let row = rows.position(|row| row.name() == "leader-elect-lease-duration");
    let said =
        "must be longer than the renew deadline, and not shorter than the retry period plus 8s";
    assert!(MEANINGS[row.unwrap()].contains(said), "{row:?}");
}

/// Returns the table of all settings that are not hidden, in Markdown, as `src/help/settings.md` has it.
fn markdown() -> String {
    let head = "| setting | flag | variable | default | meaning |\n|---|---|---|---|---|\n";
    let rows = TABLE.iter().zip(MEANINGS).filter(|(setting, _)| !setting.hidden);
    let rows: String = rows.map(|(setting, meaning)| row(setting, meaning)).collect();
    format!("{head}{rows}")
}

/// Returns the row of a setting in the Markdown table. A `|` in the text is escaped, because it would end the cell,
/// even inside code.
fn row(setting: &Setting, meaning: &str) -> String {
    let code = |text: &str| format!("`{text}`");
    let short = setting.short.map(|letter| format!("-{letter}"));
    let long = setting.flags.iter().map(|flag| format!("--{flag}"));
    let mut flags: Vec<String> = short.into_iter().chain(long).collect();
    if let Some(first) = flags.first_mut()
        && setting.takes_value()
    {
        *first = format!("{first} {}", setting.kind.value_name());
    }
    let flags: Vec<String> = flags.iter().map(|flag| code(flag)).collect();
    let variable = |variable: &Variable| match variable {
        Variable::Older(name) => format!("{} (older name)", code(name.text())),
        other => code(other.name()),
    };
    let variables: Vec<String> = setting.variables.iter().map(variable).collect();
    let cells = [
        setting.name(),
        flags.join(", "),
        variables.join(", "),
        setting.default.map(code).unwrap_or_default(),
        meaning.to_owned(),
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

/// `CCM_UPDATE_HELP=1 cargo test --test cli` writes the table.
#[test]
fn the_help_page_has_the_table_as_it_is() {
    has_table("settings", "settings", &markdown());
    for row in markdown().lines() {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 6, "{row}");
    }
}

#[test]
fn a_table_is_between_its_markers_and_nowhere_else() {
    let [begin, end] = ["<!-- x:begin -->", "<!-- x:end -->"];
    let before = format!("# A\n\n{begin}\nold\n{end}\n\nmore\n");
    let after = with_table(&before, "x", "new\n").unwrap();
    assert_eq!(after, format!("# A\n\n{begin}\nnew\n{end}\n\nmore\n"));
    assert_eq!(with_table(&after, "x", "new\n"), Some(after));
    let twice = format!("{before}{before}");
    for broken in ["", begin, end, &format!("{end}{begin}"), &twice] {
        assert_eq!(with_table(broken, "x", "new\n"), None, "{broken}");
    }
}

#[test]
fn a_daemon_s_settings_come_below_a_person_s_own() {
    let from =
        WorkloadName { namespace: "kube-system".into(), kind: "deployment", name: "ccm".into() };
    let words = "run -v=4 --dry-run --cluster-name=theirs --secure-port 1 --kubeconfig=/theirs";
    let variables = "HCLOUD_TOKEN=theirs HCLOUD_ENDPOINT=https://theirs.example HCLOUD_NETWORK=7 KUBECONFIG=/theirs \
                     HCLOUD_LOAD_BALANCERS_TYPE=lb21 HCLOUD_LOAD_BALANCERS_LOCATION= HCLOUD_DEBUG=true \
                     HCLOUD_SERVER_CACHE_TTL=3s HCLOUD_METRICS_ADDRESS=x CCM_TEST_TIME_SCALE=9";
    let variables = variables.split_whitespace().map(|one| one.split_once('=').unwrap());
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let words = words.split_whitespace().map(str::to_owned).collect();
    let taken = DaemonSettings::new(&from, words, variables.collect()).unwrap();
    let read = |line: &str, text: &str| {
        let words = line.split_whitespace().map(OsString::from).collect();
        let environment = environment(&format!("HCLOUD_TOKEN=mine\n{text}"));
        let parsed = parse(Command::LbSync, words, &environment, Some(&taken));
        assert_eq!(lines(&parsed.problems), "");
        parsed.settings
    };
    let of = |what: &str| format!("{what} of deployment kube-system/ccm");
    let settings = read("", "");
    let name = &settings.cluster_name;
    let wanted = ("theirs", of("--cluster-name"));
    assert_eq!((name.value.as_str(), name.source.name().to_owned()), wanted);
    let kind = settings.load_balancers.kind.unwrap();
    assert_eq!(kind.value, "lb21");
    assert_eq!(kind.source.name(), of("HCLOUD_LOAD_BALANCERS_TYPE"));
    assert_eq!(settings.network.value, Some(NetworkSelector::Id(7)));
    assert_eq!(settings.server_cache_max_age.value, Duration::from_secs(3));
    // These settings stay the shell's own: how both APIs are reached, what is printed, and whether anything is written.
    let token = settings.token.value.unwrap().current().unwrap().unwrap();
    assert_eq!(token.expose(), "mine");
    assert!(settings.endpoint.source.is_default());
    assert!(settings.kubeconfig.value.is_empty());
    assert!(!settings.dry_run.value && !settings.debug.value);
    assert_eq!((settings.verbosity.value, settings.test_time_scale.value), (0, 1.0));
    // Own flag, own variable, then theirs.
    let own = read("--cluster-name=mine", "HCLOUD_LOAD_BALANCERS_TYPE=lb31\nHCLOUD_NETWORK=9");
    assert_eq!(own.cluster_name.source.name(), "--cluster-name");
    assert_eq!(own.load_balancers.kind.unwrap().value, "lb31");
    assert_eq!(own.network.value, Some(NetworkSelector::Id(9)));
    let unset =
        parse(Command::LbSync, Vec::new(), &environment("HCLOUD_NETWORK=7"), None).unset_names();
    for (name, counts) in [
        ("HCLOUD_LOAD_BALANCERS_TYPE", true),
        // The shell has set this variable.
        ("HCLOUD_NETWORK", false),
        ("HCLOUD_INSTANCES_ADDRESS_FAMILY", true),
        ("--cloud-provider", true),
        ("HCLOUD_TOKEN", false),
        ("HCLOUD_TOKEN_FILE", false),
        ("HCLOUD_ENDPOINT", false),
        ("HCLOUD_ALLOW_INSECURE_ENDPOINT", false),
        ("HCLOUD_METRICS_ADDRESS", false),
        ("--leader-elect", false),
        ("--once", false),
        ("--dry-run", false),
        ("--kubeconfig", false),
    ] {
        assert_eq!(unset.iter().any(|one| one == name), counts, "{name}");
    }
}
