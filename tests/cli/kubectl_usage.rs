//! What users of kubectl type: names of every form, flags of the lists, flags before the command, completed names.

use crate::common::{self, Cluster, Env, LIMIT, ccm, command, contains, env, with};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Returns twelve nodes and three Services with load balancers: `web` and `api` in `default`, and `web` in `shop`.
fn cluster() -> (Sandbox, Env) {
    let sandbox = common::networked(12).scale(0.01).start();
    let env = with(env(&sandbox), &[("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1")]);
    ccm(&env, &["node", "sync"]).with_code(0);
    sandbox.create("web", &[("name", "front")], &[80]);
    sandbox.create("api", &[], &[80, 81]);
    sandbox.edit("api", |one| one["metadata"]["labels"] = json!({ "app": "api" }));
    let kubernetes = sandbox.cluster();
    sandbox.create_namespace("shop");
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    let shop = json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": spec });
    kubernetes.create("services", Some("shop"), shop);
    ccm(&env, &["lb", "sync"]).with_code(0);
    (sandbox, env)
}

/// Adds a namespace to the context, and a second context.
fn with_namespace(sandbox: &Sandbox, env: &Env, namespace: &str) -> Env {
    let path = common::variable(env, "KUBECONFIG");
    let text = std::fs::read_to_string(path).unwrap();
    let mut config: serde_json::Value = serde_yaml::from_str(&text).unwrap();
    let mut other = config["contexts"][0].clone();
    other["name"] = json!("other");
    config["contexts"].as_array_mut().unwrap().push(other);
    config["contexts"][0]["context"]["namespace"] = json!(namespace);
    let path = sandbox.folder().join(format!("kubeconfig-{namespace}"));
    std::fs::write(&path, config.to_string()).unwrap();
    with(env.clone(), &[("KUBECONFIG", path.to_str().unwrap())])
}

#[test]
fn a_service_is_named_in_many_ways() {
    let (sandbox, env) = cluster();
    let in_shop = with_namespace(&sandbox, &env, "shop");
    let id = sandbox.balancer_id("web").to_string();
    let cloud = sandbox.cloud().load_balancer(sandbox.balancer_id("web"));
    let address = |kind: &str| cloud["public_net"][kind]["ip"].as_str().unwrap().to_owned();
    let (ipv4, ipv6) = (address("ipv4"), address("ipv6"));
    let private = cloud["private_net"][0]["ip"].as_str().unwrap();
    let inspected = |env: &Env, words: &[&str]| {
        let ran = ccm(env, &[&["lb", "inspect", "-o", "json"], words].concat());
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
        let item = &ran.json()["items"][0];
        let text = |name: &str| item["object"][name].as_str().unwrap().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    for word in [
        "default/web",
        "web",
        "svc/web",
        "service/web",
        "services/default/web",
        "front",
        &id,
        &ipv4,
        &ipv6,
        private,
        &format!("svc/{id}"),
    ] {
        assert_eq!(inspected(&env, &[word]), "default/web", "{word}");
    }
    assert_eq!(inspected(&env, &["-n", "shop", "web"]), "shop/web");
    assert_eq!(inspected(&in_shop, &["web"]), "shop/web");
    for flags in [["-n", "default"], ["--context", "other"]] {
        let shown = inspected(&in_shop, &[&flags[..], &["web"]].concat());
        assert_eq!(shown, "default/web", "{flags:?}");
    }
    // No Service of that name there, and a load balancer of another namespace.
    #[rustfmt::skip] // A case is a line.
    let cases = [
        (&["-n", "shop", "front"][..], "there is no Service shop/front of type LoadBalancer"),
        (&["-n", "shop", "api"], "; did you mean default/api?"),
        (&["4711"], "there is no Service with load balancer 4711; ccm lb list shows all 3 services"),
    ];
    for (words, why) in cases {
        let ran = ccm(&env, &[&["lb", "inspect"], words].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{words:?}");
        assert!(ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
    }
    // Only this Service is written to.
    sandbox.edit("api", |one| one["spec"]["ports"][0]["nodePort"] = json!(31000));
    sandbox.edit("web", |one| one["spec"]["ports"][0]["nodePort"] = json!(31001));
    let ran = ccm(&env, &["lb", "sync", &id]).with_code(0);
    assert!(
        ran.stdout.contains("service/default/web") && !ran.stdout.contains("service/default/api"),
        "{ran:?}"
    );
}

#[test]
fn a_node_is_named_in_many_ways() {
    let (sandbox, env) = cluster();
    let server = &sandbox.servers()[0];
    let name = server["name"].as_str().unwrap();
    let id = server["id"].to_string();
    let ipv4 = server["public_net"]["ipv4"]["ip"].as_str().unwrap();
    let private = server["private_net"][0]["ip"].as_str().unwrap();
    for word in [name, &format!("node/{name}"), &format!("no/{name}"), &id, ipv4, private] {
        let ran = ccm(&env, &["node", "inspect", "-o", "json", word]);
        assert_eq!(ran.code, 0, "{word}: {}", ran.stderr);
        assert_eq!(ran.json()["items"][0]["object"]["name"], name, "{word}");
    }
    let ran = ccm(&env, &["node", "sync", "--dry-run", "-o", "json", &id]);
    assert_eq!(ran.json()["items"].as_array().unwrap().len(), 1, "{ran:?}");
    // An address of two servers is no name.
    let second = sandbox.servers()[1]["id"].as_u64().unwrap();
    sandbox.cloud().edit_server(second, |one| one["private_net"][0]["ip"] = json!(private));
    let ran = ccm(&env, &["node", "inspect", private]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    let both = format!("ccm: {private:?} names 2 objects: write node/worker-1 or node/worker-2\n");
    assert_eq!(ran.stderr, both);
}

#[test]
fn lists_have_the_flags_of_kubectl() {
    let (sandbox, env) = cluster();
    let in_shop = with_namespace(&sandbox, &env, "shop");
    let all = "service/default/api\nservice/default/web\nservice/shop/web\n";
    let first = |words: &str| {
        let ran = ccm(&in_shop, &words.split(' ').collect::<Vec<_>>());
        let is_quiet = ran.stderr.is_empty() || words.starts_with("route");
        assert!(ran.code == 0 && is_quiet, "{words}: {ran:?}");
        let first = ran
            .stdout
            .lines()
            .map(|line| line.split(' ').next().unwrap_or_default().to_owned() + "\n");
        first.collect::<String>()
    };
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("lb list -o name", all),
        ("lb list -A -o name", all),
        ("-Ao name lb list", all),
        ("--context other lb list -o name", all),
        ("lb --context=other list --no-headers -o name", all),
        ("lb list -n shop -o name", "service/shop/web\n"),
        ("lb list -l app=api -o name", "service/default/api\n"),
        ("lb list -l app!=api -o name", "service/default/web\nservice/shop/web\n"),
        ("lb list -l app=api --no-headers", "default/api\n"),
        ("lb list --sort-by load-balancer --no-headers -o wide", "default/web\ndefault/api\nshop/web\n"),
        ("node list -o name -l kubernetes.io/hostname=worker-2", "node/worker-2\n"),
        ("route list --cluster-cidr=10.244.0.0/16 --no-headers --sort-by node -o name", ""),
    ];
    for (words, shown) in cases {
        let listed = first(words);
        match shown.is_empty() {
            true => assert_eq!(listed.lines().count(), 12, "{listed}"),
            false => assert_eq!(listed, shown, "{words}"),
        }
    }
    // Numbers by value, in documents too.
    let names = |words: &[&str]| {
        let items = ccm(&env, words).json()["items"].clone();
        let items = items.as_array().unwrap().iter();
        items.map(|one| one["object"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let sorted = names(&["node", "list", "-o", "json", "--sort-by", "NAME"]);
    let expected = (1..=12).map(|n| format!("worker-{n}")).collect::<Vec<_>>();
    assert_eq!(sorted, expected);
    // yml is yaml.
    let [yml, yaml] = ["yml", "yaml"].map(|form| ccm(&env, &["node", "list", "-o", form]).stdout);
    assert!(yml == yaml && yml.starts_with("apiVersion: "), "{yml}");
    // Nothing is printed, because only data goes to stdout.
    let ran = ccm(&env, &["lb", "list", "-l", "app=none"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    let nothing = "Nothing matches the label selector \"app=none\".\n";
    assert_eq!(ran.stderr, nothing);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// The Cloud API is read once a minute, which is a second here, and the cluster every five seconds.
#[test]
fn a_watched_list_shows_what_changes() {
    let (sandbox, env) = cluster();
    let mark = sandbox.mark();
    let begun = Instant::now();
    let child = command(&env, &["lb", "list", "-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Killed(child);
    let (sender, lines) = mpsc::channel();
    let stdout = BufReader::new(child.0.stdout.take().unwrap());
    std::thread::spawn(move || {
        stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)))
    });
    let until = |what: &str| {
        let mut seen = Vec::new();
        while !seen.iter().any(|line: &String| line.contains(what)) {
            let line = lines.recv_timeout(LIMIT);
            seen.push(line.unwrap_or_else(|why| panic!("{why}: {seen:?}")));
        }
        seen
    };
    assert_eq!(until("shop/web").len(), 4);
    sandbox.create("another", &[], &[80]);
    // Only that row is printed again.
    assert_eq!(until("default/another").len(), 1);
    let asked = |half, path: &str| {
        sandbox.count_since(mark, |call| call.half == half && call.path.ends_with(path))
    };
    let polled = || asked(Half::Kubernetes, "/services");
    common::wait_until("polls", || polled() >= 30);
    common::send("-INT", child.0.id());
    assert_eq!(child.0.wait().unwrap().signal(), Some(2));
    let minutes =
        begun.elapsed().as_secs_f64() / Duration::from_secs(60).mul_f64(0.02).as_secs_f64();
    // One more call reads the load balancer types for the new Service.
    let at_most = minutes as usize + 2;
    for path in ["/load_balancers", "/servers", "/networks"] {
        let asked = asked(Half::Hetzner, path);
        assert!(asked <= at_most, "{path}: {asked} in {minutes} minutes");
    }
}

#[test]
fn names_are_completed() {
    let (sandbox, env) = cluster();
    let env = with_namespace(&sandbox, &env, "shop");
    for (typed, offered) in [
        ("lb inspect ", "default/api default/web shop/web web"),
        ("lb inspect sh", "shop/web"),
        ("lb inspect w", "web"),
        ("lb inspect -n default ", "default/api default/web api web"),
        ("lb inspect svc/", "svc/default/api svc/default/web svc/shop/web svc/web"),
        ("lb sync service/s", "service/shop/web"),
        ("lb sync default/web sh", "shop/web"),
        ("lb adopt 4711 sh", "shop/web"),
        ("lb adopt sh", ""),
        ("lb release w", "web"),
        ("node inspect node/worker-11", "node/worker-11"),
        ("lb list -n ", "default shop"),
        ("lb list --namespace=s", "shop"),
        ("node inspect worker-11", "worker-11"),
        ("--context other node sync worker-12", "worker-12"),
        ("node list --context ", "ccm other"),
        ("--context=o", "other"),
        ("--context wrong node inspect worker-1", ""),
    ] {
        let words: Vec<&str> = ["completions", "--"].into_iter().chain(typed.split(' ')).collect();
        let ran = ccm(&env, &words);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{typed}");
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(lines.join(" "), offered, "{typed}");
    }
    // Without an answer only flags are completed, and that soon.
    sandbox.fault(Rule::new(Effect::Slow(Duration::from_secs(60))).half(Half::Kubernetes));
    let begun = Instant::now();
    let ran = ccm(&env, &["completions", "--", "lb", "inspect", ""]);
    assert!(ran.stdout.contains("--context") && ran.stderr.is_empty(), "{ran:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn help_may_come_before_the_command() {
    let shown = |words: &[&str]| ccm(&Vec::new(), words).stdout;
    let expected = shown(&["lb", "list", "--help"]);
    assert_eq!(shown(&["--help", "lb", "list"]), expected);
    assert_eq!(shown(&["-h"]), shown(&["help"]));
}

#[test]
fn help_names_kubectl_when_kubectl_called_ccm() {
    let folder = std::env::temp_dir().join(format!("kubectl-ccm-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let link = folder.join("kubectl-ccm");
    std::os::unix::fs::symlink(common::binary(), &link).unwrap();
    for (words, columns) in [
        (&["help"][..], 80),
        (&["lb", "inspect", "--help"], 80),
        (&["lb", "sync", "--help"], 60),
        (&["help", "lb"], 80),
        (&["help", "node"], 120),
    ] {
        let mut command = Command::new(&link);
        // More than 120 columns are not used.
        let variable = if columns == 120 { 200 } else { columns };
        command.args(words).env("COLUMNS", variable.to_string());
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= columns && widest + 12 > columns, "{widest}: {text}");
        let usage =
            text.lines().find(|line| line.starts_with("  ") && line.contains("ccm ")).unwrap();
        assert!(usage.starts_with("  kubectl ccm "), "{words:?}: {usage}");
        assert!(!text.contains("kubectl kubectl"), "{text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Flags alone, by a person and by anything else.
#[test]
fn flags_without_a_command_are_explained() {
    let (_sandbox, env) = cluster();
    // `script` has no terminal for its own stdin, and gives the program one.
    if let Some(shown) = common::at_terminal(&env, &["--context", "ccm"]) {
        assert!(shown.contains("Usage:\n  ccm run"), "{shown}");
        contains(&shown, "ccm: --context needs a command, e.g. ccm node list --context …");
    }
    ccm(&env, &["--leader-elect=false", "--once"]).with_code(0);
}
