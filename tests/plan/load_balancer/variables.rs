//! The variables as `ccm` reads them at its start.

use ccm::settings::{self, Command, Environment, Source, TABLE};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Variables and nothing else.
struct Given(BTreeMap<String, String>);

impl Environment for Given {
    fn get(&self, name: &str) -> Option<OsString> {
        self.0.get(name).map(OsString::from)
    }

    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn read_file(&self, _path: &Path) -> std::io::Result<String> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

fn read(variables: &[(&str, &str)]) -> settings::Parsed {
    let prefixed = variables.iter().map(|(name, value)| {
        let name = format!("HCLOUD_LOAD_BALANCERS_{name}");
        (name, (*value).to_owned())
    });
    let token = ("HCLOUD_TOKEN".to_owned(), "t".repeat(64));
    settings::parse(Command::Run, vec![], &Given(prefixed.chain([token]).collect()), None)
}

/// A variable, a good value, a bad value and its message. An empty text means that any value is allowed.
#[rustfmt::skip] // A case is a line.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("ENABLED", "false", "no", "use true or false"),
    ("TYPE", "lb21", "", ""),
    ("TYPE_MAX", "lb21", "", ""),
    ("LOCATION", "fsn1", "", ""),
    ("NETWORK_ZONE", "eu-central", "", ""),
    ("ALGORITHM_TYPE", "least_connections", "random", "use round_robin or least_connections"),
    ("DISABLE_PUBLIC_NETWORK", "1", "off", "use true or false"),
    ("DISABLE_PRIVATE_INGRESS", "t", "off", "use true or false"),
    ("USE_PRIVATE_IP", "T", "off", "use true or false"),
    ("PRIVATE_SUBNET_IP_RANGE", "10.0.1.0/24", "10.0.1.0", "use an IP range"),
    ("PRIVATE_IPV4_RANGES", "10.0.1.0/24, 10.0.2.9/29", "10.0.1.0/24,10.0.2.0", "use IPv4 ranges"),
    ("DISABLE_IPV6", "TRUE", "off", "use true or false"),
    ("USES_PROXYPROTOCOL", "True", "off", "use true or false"),
    ("HEALTH_CHECK", "kube-proxy", "kubelet", "use kube-proxy"),
    ("HEALTH_CHECK_INTERVAL", "5s", "15", "a duration needs a unit"),
    ("HEALTH_CHECK_TIMEOUT", "1m", "1500ms", "use whole seconds"),
    ("HEALTH_CHECK_RETRIES", "5", "0", "use a whole number of 1 or more"),
    ("HEALTH_CHECK_NODE_PORT", "F", "off", "use true or false"),
    ("DEPARTING_DELAY", "60s", "601s", "use 0s to 600s"),
    ("DEPARTING_CORDONED", "true", "on", "use true or false"),
    ("PREFER_NODES_WITH_PODS", "true", "on", "use true or false"),
    ("NAMESPACE_DEFAULTS", "true", "on", "use true or false"),
    ("FOREIGN_NODES", "match", "all", "use ignore or match"),
    ("LABELS", "team=web,cost=42", "hcloud-ccm/service-uid=1", "are reserved"),
    ("PRIMARY_IP_SELECTOR", "use=services,!reserved", "use in services", "not a valid label name"),
    ("CERTIFICATE_SELECTOR", "use=services", "use in services", "not a valid label name"),
    ("CERTIFICATE_DOMAINS", "Example.com, example.org", "*.example.com", "use domains, e.g. example.com"),
];

#[test]
fn each_variable_is_read_and_a_bad_value_is_an_error_at_the_start() {
    for (name, good, bad, says) in CASES {
        let parsed = read(&[(name, good)]);
        assert!(parsed.problems.is_empty(), "{name}: {:?}", parsed.problems);
        // A variable is set to something, and the others are not.
        let set = parsed.settings;
        let switches = (
            set.load_balancers_enabled,
            set.load_balancers_departing_cordoned,
            set.load_balancers_namespace_defaults,
            set.foreign_nodes,
        );
        let text = format!("{switches:?} {:?}", set.load_balancers);
        let source = format!("{:?}", Source::Environment(String::new())).replace("\"\"", "");
        let source = source.trim_end_matches(')');
        assert_eq!(text.matches(source).count(), 1, "{name}: {text}");
        assert!(parsed.notices.is_empty(), "{name}: {:?}", parsed.notices);
        if bad.is_empty() {
            continue;
        }
        let problems = read(&[(name, bad)]).problems;
        let [problem] = problems.as_slice() else {
            panic!("{name}: {problems:?}");
        };
        let message = problem.to_string();
        for part in [*name, bad, says] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn every_row_has_a_case() {
    let rows = TABLE.iter().flat_map(|row| row.variables);
    let ours = rows.filter_map(|one| one.name().strip_prefix("HCLOUD_LOAD_BALANCERS_"));
    let cases: Vec<&str> = CASES.iter().map(|case| case.0).collect();
    assert_eq!(ours.collect::<Vec<_>>(), cases);
}

#[test]
fn a_location_and_a_zone_together_are_an_error() {
    let problems = read(&[("LOCATION", "fsn1"), ("NETWORK_ZONE", "eu-central")]).problems;
    let [problem] = problems.as_slice() else {
        panic!("{problems:?}");
    };
    let message = problem.to_string();
    assert!(message.contains("LOCATION: \"fsn1\" can't be used: set either this"), "{message}");
}
