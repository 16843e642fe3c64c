//! `ccm lint`. One table of Services and their problems is used for the manifest alone and for the plan in a cluster.

use crate::common::cluster::{service, with_spec};
use crate::common::{self, Cluster, Env, Ran, ccm, command, env};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

/// The ports, the annotations, the fields of the spec, and a part of each problem in its order.
type Case = (
    &'static [u16],
    &'static [(&'static str, &'static str)],
    fn() -> Value,
    &'static [&'static str],
);

const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";

fn plain() -> Value {
    json!({})
}

#[rustfmt::skip] // A case is a line or two.
const CASES: &[Case] = &[
    (&[80], &[], plain, &[]),
    (&[80], &[("location", "fsn1"), ("type", "lb11"), ("name", "x")], plain, &[]),
    (&[80], &[("health-check-http-domain", "a.example")], || json!({ "externalTrafficPolicy": "Local" }), &[]),
    (&[80], &[("private-ipv4", "10.0.0.200"), ("use-private-ip", "true")], plain, &[]),
    (&[443], &[("protocol", "https"), ("http-certificates", "one")], plain, &[]),
    // Unknown and misspelt.
    (&[80], &[("protcol", "http")], plain, &["annotation load-balancer.hetzner.cloud/protcol is unknown; did you mean load-balancer.hetzner.cloud/protocol?"]),
    (&[80], &[("whatever", "x")], plain, &["whatever is unknown"]),
    (&[80], &[("protocol.htpp", "http")], plain, &["no port \"htpp\". End the key with the name or the number of one of its ports: p80 (80)"]),
    (&[80], &[("type.p80", "lb11")], plain, &["type is about the whole load balancer"]),
    // Wrong values.
    (&[80], &[("protocol", "ftp"), ("algorithm-type", "random"), ("use-private-ip", "maybe")], plain,
        &["algorithm-type: \"random\" is not valid: use round_robin or least_connections", "use-private-ip: \"maybe\"", "protocol: \"ftp\" is not valid: use tcp, http or https"]),
    (&[80], &[("http-timeout-idle", "10s"), ("health-check-retries", "0")], plain, &["use 30s to 300s", "health-check-retries: \"0\""]),
    (&[80], &[("hostname", "Foo_Bar.example")], plain, &["hostname: \"Foo_Bar.example\" is not valid: use a host name"]),
    (&[80], &[("node-selector", "a in b")], plain, &["node-selector: \"a in b\""]),
    (&[80], &[("private-ipv4", "10.0.0")], plain, &["use an IPv4 address"]),
    // Contradictions.
    (&[80], &[("protocol.p80", "http"), ("protocol.80", "tcp")], plain, &["have different values: remove one of them"]),
    (&[80], &[("disable-public-network", "true")], plain, &["with its public interface off"]),
    (&[80], &[("health-check-protocol", "https"), ("health-check-http-validate-certificate", "false")], plain, &["asks for a health check without TLS"]),
    (&[80, 443], &[("protocol.443", "https"), ("http-certificates", "one"), ("http-redirect-http.443", "true")], plain, &["Remove that port from the Service"]),
    (&[443], &[("protocol", "https")], plain, &["has protocol https, which needs a certificate", "or a Secret in annotation load-balancer.hetzner.cloud/http-tls-secret"]),
    (&[443], &[("protocol", "https"), ("certificate-type", "managed")], plain, &["port 443 asks for a managed certificate, but no annotation names its domains"]),
    (&[80], &[("share", "Edge_1")], plain, &["share: \"Edge_1\" is not valid: write a name for the load balancer that Services share"]),
    (&[80], &[("share", "edge"), ("external", "edge-lb")], plain, &["share and load-balancer.hetzner.cloud/external contradict each other"]),
    // These annotations have no effect.
    (&[80], &[("http-sticky-sessions", "true")], plain, &["http-sticky-sessions has no effect"]),
    (&[80], &[("health-check-http-path", "/x"), ("health-check-protocol", "tcp")], plain, &["health-check-http-path has no effect"]),
    // A wrong value hides no other problem, and none is made of it.
    (&[80], &[("algorithm-type", "random"), ("http-sticky-sessions", "true")], plain,
        &["http-sticky-sessions has no effect", "algorithm-type: \"random\""]),
    (&[80], &[("protocol", "ftp"), ("http-sticky-sessions", "true")], plain, &["protocol: \"ftp\""]),
    (&[80], &[("http-sticky-sessions", "perhaps")], plain, &["http-sticky-sessions: \"perhaps\""]),
    // Limits.
    (&[], &[], || json!({ "ports": (1..=251).map(|n| json!({ "name": format!("p{n}"), "port": n })).collect::<Vec<_>>() }), &["the Service has 251 ports, but ccm reads at most 250"]),
    (&[80], &[("http-status-codes", LONG)], plain, &["is no status code"]),
    // Fields and protocols that can't be honoured.
    (&[80], &[], || json!({ "loadBalancerSourceRanges": ["10.0.0.0/8"] }), &["spec.loadBalancerSourceRanges (10.0.0.0/8) restricts nothing"]),
    (&[80], &[], || json!({ "sessionAffinity": "ClientIP" }), &["spec.sessionAffinity: ClientIP has no effect"]),
    (&[], &[], || json!({ "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }] }), &["port 53 is UDP", "no port of the Service is TCP"]),
    (&[80], &[], || json!({ "allocateLoadBalancerNodePorts": false }), &["port 80 has no node port"]),
    // Another controller's, or of another type.
    (&[80], &[("protcol", "http")], || json!({ "loadBalancerClass": "example.com/other" }), &[]),
    (&[80], &[("protcol", "http")], || json!({ "type": "ClusterIP" }), &[]),
];

fn manifest(number: usize, case: &Case) -> Value {
    let (ports, annotations, spec, _) = case;
    with_spec(service(&format!("case-{number}"), annotations, ports), &spec())
}

fn lint(env: &Env, flags: &[&str], stdin: &str) -> Ran {
    let words = [&["lint", "-f", "-"], flags].concat();
    let mut command = command(env, &words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The command may refuse the input before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran::from(output)
}

/// Messages of the warnings of a Service in a document, joined as an obstacle's problems are.
fn warnings(document: &Value, name: &str) -> Vec<String> {
    let items = document["items"].as_array().unwrap();
    let item = items.iter().find(|item| item["object"]["name"] == name);
    let findings = item.and_then(|item| item["findings"].as_array());
    let warnings = findings.into_iter().flatten().filter(|one| one["severity"] == "warning");
    let mut obstacle = Vec::new();
    let mut others = Vec::new();
    for one in warnings {
        let message = one["message"].as_str().unwrap().to_owned();
        match one["reason"] == "SyncLoadBalancerFailed" {
            true => obstacle.push(message),
            false => others.push(message),
        }
    }
    others.extend((!obstacle.is_empty()).then(|| obstacle.join("; ")));
    others
}

fn cluster() -> Sandbox {
    let sandbox = common::networked(1).start();
    let certificate = json!({ "name": "one", "type": "managed", "domain_names": ["one.example"] });
    sandbox.create_certificate(certificate);
    sandbox.ccm(&["node", "sync"]).with_code(0);
    sandbox
}

#[test]
fn lint_of_a_manifest_finds_the_problems_of_the_plan_in_a_cluster() {
    let sandbox = cluster();
    let mut file = String::new();
    for (number, case) in CASES.iter().enumerate() {
        let created = sandbox.create_as(manifest(number, case));
        assert!(created["metadata"]["uid"].is_string(), "{created}");
        file += &format!("---\n{}\n", manifest(number, case));
    }
    let alone = lint(&vec![], &["-o", "json"], &file).with_code(1);
    let planned = sandbox.ccm(&["lb", "list", "-o", "json"]);
    let with_token = lint(&env(&sandbox), &["-o", "json"], &file);
    for (number, (.., problems)) in CASES.iter().enumerate() {
        let name = format!("case-{number}");
        let shown = warnings(&alone.json(), &name);
        let text = shown.join("; ");
        let mut rest = text.as_str();
        for problem in *problems {
            let found = rest.split_once(problem);
            rest = found.unwrap_or_else(|| panic!("{name}: {problem:?} is not in {text}")).1;
        }
        assert_eq!(problems.is_empty(), text.is_empty(), "{name}: {text}");
        assert_eq!(warnings(&planned.json(), &name), shown, "{name}");
        assert_eq!(warnings(&with_token.json(), &name), shown, "{name}");
    }
}

#[test]
fn lint_prints_a_line_for_each_problem_and_its_exit_code_says_whether_there_is_one() {
    let good = service("good", &[], &[80]);
    let bad = service("bad", &[("protcol", "http"), ("protocol", "ftp")], &[80]);
    let list =
        json!({ "apiVersion": "v1", "kind": "List", "items": [good, bad, { "kind": "Secret" }] });
    #[rustfmt::skip] // A case is a paragraph.
    let cases = [
        (good.to_string(), 0, "", "ccm: 1 Service, nothing wrong\n"),
        (String::new(), 0, "", "ccm: 0 Services, nothing wrong\n"),
        ("apiVersion: serving.knative.dev/v1\nkind: Service\n---\n1: x\n---\nnull\n".into(), 0, "",
            "ccm: 0 Services, nothing wrong\n"),
        (list.to_string(), 1,
            "-: service/default/bad: annotation load-balancer.hetzner.cloud/protocol: \"ftp\" is not valid: use tcp, http or https\n\
             -: service/default/bad: annotation load-balancer.hetzner.cloud/protcol is unknown; did you mean \
             load-balancer.hetzner.cloud/protocol?\n", "ccm: 2 Services, 1 with problems\n"),
        ("apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: {a: true}\nspec: {type: LoadBalancer}\n".into(),
            1,
            "-: service/default/web: annotation a: the value true is not a string, so Kubernetes refuses the Service; put \
             the value in quotes\n-: service/default/web: no port of the Service is TCP, so its load balancer serves nothing, but \
             still costs money. Give the Service a TCP port, or change its type from LoadBalancer to another one\n", "ccm: 1 Service, 1 with problems\n"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: 5}\n".into(), 1,
            "-: service/default/web: not a valid Service: invalid type: integer `5`, expected a sequence\n",
            "ccm: 1 Service, 1 with problems\n"),
    ];
    for (file, code, stdout, stderr) in cases {
        let ran = lint(&vec![], &[], &file);
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
            (code, stdout, stderr),
            "{file}"
        );
    }
}

#[test]
fn services_of_another_class_or_with_other_labels_are_not_checked() {
    let class = json!({ "loadBalancerClass": "example.com/hetzner" });
    let class = with_spec(service("bad", &[("protcol", "http")], &[80]), &class);
    for (flag, code) in [
        ("--load-balancer-class=", 0),
        ("--load-balancer-class=example.com/hetzner", 1),
        ("--service-selector=!app", 0),
        // No Service can have it.
        ("--load-balancer-class=Hetzner, or any", 2),
    ] {
        let ran = lint(&vec![], &[flag], &class.to_string());
        assert_eq!(ran.code, code, "{flag}: {ran:?}");
    }
}

#[test]
fn a_file_that_can_t_be_read_is_wrong_usage_and_the_others_are_checked() {
    let large = " ".repeat((8 << 20) + 1);
    let mut bomb = "a: &a [x]\n".to_owned();
    for level in 'b'..='z' {
        let before = (level as u8 - 1) as char;
        bomb += &format!(
            "{level}: &{level} [*{before},*{before},*{before},*{before},*{before},*{before}]\n"
        );
    }
    let text = format!("a: &a {LONG}{}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(1 << 10));
    for (file, why) in [
        ("a: [", "did not find"),
        (large.as_str(), "the file is longer than 8 MiB"),
        (bomb.as_str(), ""),
        (text.as_str(), "the YAML aliases expand to too much data"),
        ("\0", ""),
    ] {
        let ran = lint(&vec![], &[], file);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
        assert!(
            ran.stderr.starts_with("ccm: -: ")
                && ran.stderr.contains(why)
                && ran.stderr.ends_with("not every file was read\n"),
            "{ran:?}"
        );
    }
    let folder = std::env::temp_dir().join(format!("ccm-lint-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("bad.yaml");
    let bad = service("bad", &[("protcol", "http")], &[80]);
    std::fs::write(&file, bad.to_string()).unwrap();
    let [folder, file] = [folder, file].map(|path: PathBuf| path.display().to_string());
    let ran = ccm(&vec![], &["lint", "-f", &folder, &file, "/does/not/exist"]).with_code(2);
    assert!(ran.stdout.starts_with(&format!("{file}: service/default/bad: annotation")), "{ran:?}");
    for part in [
        "this is a folder, not a file",
        "/does/not/exist: the file does not exist",
        "1 Service, 1 with problems",
    ] {
        ran.warns(part);
    }
    let none = ccm(&vec![], &["lint"]);
    let expected = (2, "ccm: lint needs files: ccm lint -f FILE, or -f - for stdin\n");
    assert_eq!((none.code, none.stderr.as_str()), expected);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn lint_with_a_token_checks_names_and_limits() {
    let sandbox = cluster();
    #[rustfmt::skip] // A case is a line or two.
    let cases = [
        (&[("type", "lb99")][..], "there is no load balancer type \"lb99\"; use lb11, lb21 or lb31"),
        (&[("location", "fsn9")], "there is no location \"fsn9\""),
        (&[("protocol", "https"), ("http-certificates", "on")],
            "the project has no certificate with the ID or name \"on\"; did you mean one?"),
        (&[("public-net-ipv4", "mine")], "the project has no Primary IP with the ID, name or address \"mine\""),
        (&[("private-ipv4", "192.168.0.5")], "192.168.0.5"),
    ];
    for (annotations, problem) in cases {
        let service = service("web", annotations, &[80]).to_string();
        lint(&vec![], &[], &service).with_code(0);
        let read = lint(&env(&sandbox), &[], &service).with_code(1);
        assert!(read.stdout.contains(problem), "{problem}: {read:?}");
    }
    let six = service("web", &[], &[1, 2, 3, 4, 5, 6]).to_string();
    let read = lint(&env(&sandbox), &[], &six);
    read.prints("6 TCP ports, but a load balancer of type lb11 takes at most 5");
    // With `auto` the type is chosen by the ports, up to the limit of `type-max`.
    let auto = |more: &[(&str, &str)]| {
        let annotations = [&[("type", "auto")][..], more].concat();
        service("web", &annotations, &[1, 2, 3, 4, 5, 6]).to_string()
    };
    lint(&env(&sandbox), &[], &auto(&[])).with_code(0);
    let read = lint(&env(&sandbox), &[], &auto(&[("type-max", "lb11")]));
    read.prints("6 TCP ports, but a load balancer of type lb11 takes at most 5");
    let read = lint(&env(&sandbox), &[], &auto(&[("type-max", "lb12")])).with_code(1);
    read.prints("type-max: there is no load balancer type \"lb12\"");
    let no_network = common::with(env(&sandbox), &[("HCLOUD_NETWORK", "nowhere")]);
    lint(&no_network, &[], &six).with_code(1).warns("nowhere");
    assert!(!sandbox.calls().calls().iter().any(|call| call.is_write()
        && call.caller == "ccm"
        && call.path.contains("load_balancers")));
}

/// Services of one group, in whatever file, are checked together. The first is as the oldest is in a cluster.
#[test]
fn lint_checks_services_of_a_group_together() {
    let edge = [("share", "edge"), ("type", "lb11")];
    let first = service("first", &edge, &[80]);
    let second = [("share", "default/edge"), ("type", "lb21")];
    let second = service("second", &second, &[80, 443]);
    let other = service("other", &[("share", "front")], &[80]);
    let file = [first, second, other].map(|one| one.to_string());
    let ran = lint(&vec![], &[], &file.join("\n---\n")).with_code(1);
    assert_eq!(
        ran.stdout,
        "-: service/default/second: annotation load-balancer.hetzner.cloud/type has no effect, because Service \
         default/first, which comes first in the manifests, sets \"lb11\" for the load balancer that both Services \
         share. Remove the annotation from Service default/second, or change it on Service default/first\n-: \
         service/default/second: port 80 can't be used, because Service default/first, which comes first in the \
         manifests, asks for the same port of the load balancer that both Services share. Fix: \
         give the Service another port, or remove its annotation load-balancer.hetzner.cloud/share\n"
    );
    assert!(ran.stderr.ends_with("3 Services, 1 with problems\n"), "{ran:?}");
}

/// The examples in README and in the folder of examples are right.
#[test]
fn lint_finds_no_problem_in_our_own_examples() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let first = readme.split("## The first Service").nth(1).unwrap();
    let first = first.split("```").nth(1).unwrap().trim_start_matches("yaml");
    let ran = lint(&vec![], &[], first);
    let expected = (0, "ccm: 1 Service, nothing wrong\n");
    assert_eq!((ran.code, ran.stderr.as_str()), expected, "{ran:?}");
    for file in std::fs::read_dir(root.join("manifests/examples")).unwrap() {
        let file = file.unwrap().path().display().to_string();
        if file.ends_with(".yaml") {
            let ran = ccm(&vec![], &["lint", &file]);
            assert_eq!(ran.code, 0, "{file}: {ran:?}");
        }
    }
}

/// The annotations of all Services together have a limit. In a cluster the oldest Services come first, and here the
/// first in the file.
#[test]
fn lint_reports_a_manifest_that_is_larger_than_ccm_keeps_of_a_namespace() {
    let names: Vec<String> = (0..1350).map(|n| format!("other-{n:04}")).collect();
    let names = names.join(",");
    let nodes = format!("pool notin ({names})");
    let large = |n: usize| {
        let annotations = [("node-selector", &*nodes), ("share-namespaces", &names)];
        service(&format!("large-{n}"), &annotations, &[80])
    };
    let mut items: Vec<Value> = (0..150).map(large).collect();
    items.push(service("small", &[], &[80]));
    let ran =
        lint(&vec![], &["-o", "json"], &json!({ "kind": "List", "items": items }).to_string());
    let document = ran.json();
    let is_above = |name: &str| {
        let all = warnings(&document, name);
        all.iter().any(|why| why.contains("the Services of namespace default have more than 4 MiB"))
    };
    let above: Vec<usize> = (0..150).filter(|n| is_above(&format!("large-{n}"))).collect();
    assert_eq!(above, (145..150).collect::<Vec<_>>());
    assert!(!is_above("small"));
}

#[test]
fn lint_reads_namespaces_in_the_same_files_when_the_setting_is_on() {
    let sandbox = cluster();
    let annotations = json!({
        "load-balancer.hetzner.cloud/algorithm-type": "fastest",
        "load-balancer.hetzner.cloud/name": "mine",
    });
    let metadata = json!({ "name": "default", "annotations": annotations });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    let all = format!("{}\n---\n{}", service("web", &[], &[80]), namespace);
    let ran = lint(&env(&sandbox), &[], &all);
    assert_eq!(ran.code, 0, "without the setting: {ran:?}");
    let on = [("HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS", "true")];
    let ran = lint(&common::with(env(&sandbox), &on), &[], &all);
    assert_eq!(ran.code, 1, "{ran:?}");
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("algorithm-type of namespace default (\"fastest\") is no valid default: "),
        "{said}"
    );
    assert!(ran.stderr.contains("name of namespace default has no effect"), "{ran:?}");
}
