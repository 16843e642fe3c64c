//! Twelve broken clusters as an operator meets them. `status`, `doctor` and the lists name cause and fix on
//! the first screen.

use crate::common::{Cluster, Ran, ccm, one_line, snapshot, wait_until};
use crate::doctor::world::{CIDR, KUBE_SYSTEM, World, checks, find, unchanged};
use sandbox::Half;
use sandbox::calls::Call;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::{Health, Machine};
use serde_json::json;
use std::time::{Duration, Instant};

/// Lines that a person sees without scrolling.
const SCREEN: usize = 24;

struct Broken {
    what: &'static str,
    break_it: fn(&mut World),
    /// The cause on the first screen of `status` and of `doctor`.
    cause: &'static str,
    fix: &'static str,
    /// Commands beside, and what the first screen of stdout and stderr holds.
    lists: &'static [(&'static [&'static str], &'static str)],
}

/// The world that is broken in this way.
pub fn broken(what: &str) -> World {
    let broken = WORLDS.iter().find(|one| one.what == what).unwrap();
    let mut world = World::healthy();
    (broken.break_it)(&mut world);
    world
}

const NODES: &[&str] = &["node", "list"];
const SERVICES: &[&str] = &["lb", "list"];

pub fn not_ready(world: &World, name: &str) {
    world.set_ready(name, "Unknown");
}

/// Makes a Service older, so that it does not count as new.
/// Sets the creation time of the Service to ten minutes from now, so that the Service counts as young however long a
/// test takes.
pub fn make_young(world: &World, name: &str) {
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(10);
    world.edit(name, |service| {
        let soon = soon.strftime("%Y-%m-%dT%H:%M:%SZ");
        service["metadata"]["creationTimestamp"] = soon.to_string().into();
    });
}

pub fn make_older(world: &World, name: &str) {
    world.edit(name, |service| {
        service["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
}

fn unhealthy(world: &World, node: &str, health: Health) {
    make_older(world, "web");
    let balancer = world.balancer_id("web");
    let machine = Machine::Server(world.server_id(node));
    world.sandbox.cloud().set_health(balancer, machine, None, Some(health));
}

#[rustfmt::skip] // A world is a paragraph.
const WORLDS: &[Broken] = &[
    Broken { what: "all servers are off", break_it: |world| {
        for name in ["worker-1", "worker-2"] {
            world.set_power(name, false);
            not_ready(world, name);
        }
        unhealthy(world, "worker-1", Health::unhealthy("layer4_timeout"));
        unhealthy(world, "worker-2", Health::unhealthy("layer4_timeout"));
    }, cause: "is off; the node is not ready", fix: "switch the server on (hcloud server poweron 100",
        lists: &[(NODES, "NotReady"), (NODES, " off "), (SERVICES, "0/2"), (&["lb", "inspect", "default/web"], "the server is off")] },
    Broken { what: "half the targets are unhealthy", break_it: |world| {
        unhealthy(world, "worker-2", Health::unhealthy("layer4_timeout"));
    }, cause: "service/default/web: 1 of 2 targets healthy; worker-2: the node port does not answer (layer4_timeout)",
        fix: "let the load balancer reach the node ports",
        lists: &[(SERVICES, "1/2"), (&["lb", "inspect", "default/web"], "worker-2 is unhealthy on port 80: the node port does not answer (layer4_timeout)")] },
    Broken { what: "the token is refused", break_it: |world| {
        let token = world.sandbox.projects().token.clone();
        world.sandbox.cloud().remove_token(&token);
    }, cause: "(unauthorized", fix: "copy the token again",
        lists: &[(NODES, "worker-1 Ready"), (NODES, " ? "), (NODES, "(unauthorized"), (&["status"], "CLOUD API fails, see below; "), (SERVICES, "default/web ?"), (SERVICES, "(unauthorized")] },
    Broken { what: "the budget is used up", break_it: |world| {
        world.fault(Rule::new(Effect::hetzner_rate_limit()).half(Half::Hetzner));
    }, cause: "which allows one more call each second", fix: "Fix: wait:",
        lists: &[(NODES, "worker-1 Ready"), (NODES, "which allows one more call each second"), (SERVICES, "which allows one more call each second")] },
    Broken { what: "the cluster is unreachable", break_it: |world| world.sandbox.stop(Half::Kubernetes),
        cause: "connection refused", fix: "kubectl version with the same kubeconfig must work",
        lists: &[(NODES, "connection refused"), (&["status"], "calls an hour left"), (&["status"], "1 of 1 serving")] },
    Broken { what: "there is no leader", break_it: |world| world.leads("", 5),
        cause: "there is no leader, so nothing is synced", fix: "kubectl -n kube-system get pods", lists: &[(&["status"], "LEADER none")] },
    Broken { what: "the daemon ends again and again", break_it: |world| {
        world.sandbox.cluster().edit("deployments", KUBE_SYSTEM, "ccm-from-scratch", |deployment| {
            deployment["status"]["readyReplicas"] = json!(0);
        });
    }, cause: "0 of 1 pods are ready", fix: "logs deployment/ccm-from-scratch --previous", lists: &[] },
    Broken { what: "the Network is missing", break_it: |world| world.set("HCLOUD_NETWORK", "4711"),
        cause: "there is no Network 4711", fix: "set HCLOUD_NETWORK to the ID or the name",
        lists: &[(NODES, "there is no Network 4711"), (SERVICES, "there is no Network 4711"), (SERVICES, "default/web ?")] },
    Broken { what: "a node has no server", break_it: |world| {
        world.register("stray", None, "");
    }, cause: "node/stray: no server is named \"stray\"", fix: "rename the server of this node to the node's name",
        lists: &[(NODES, "stray"), (NODES, "!ServerNotFound")] },
    Broken { what: "a Service has a bad annotation", break_it: |world| {
        let wrong = [("location", "fsn1"), ("algorithm-type", "fastest")];
        world.create("odd", &wrong, &[80]);
    }, cause: "service/default/odd: annotation load-balancer.hetzner.cloud/algorithm-type", fix: "algorithm-type",
        lists: &[(SERVICES, "!SyncLoadBalancerFailed")] },
    Broken { what: "a certificate failed", break_it: |world| {
        let managed = [
            ("location", "fsn1"), ("type", "lb11"), ("protocol.p443", "https"), ("certificate-type", "managed"),
            ("http-managed-certificate-domains", "failed.example.org"),
        ];
        let (cloud, project) = (world.sandbox.cloud(), world.sandbox.project());
        cloud.set_dns_zones(project, &["example.com"]);
        world.create("tls", &managed, &[80, 443]);
        ccm(&world.env, &["lb", "sync", "--settings-from=none"]);
        wait_until("a failed certificate", || {
            world.certificates().iter().any(|one| one["status"]["issuance"] == "failed")
        });
    }, cause: "DNS zone of failed.example.org not found", fix: "hcloud certificate retry",
        lists: &[(SERVICES, "CertificateFailed")] },
    Broken { what: "a load balancer is an orphan", break_it: |world| {
                world.remove_finalizers("web");
        world.delete("web");
    }, cause: "costs money, but was created for Service default/web, which does not exist", fix: "ccm lb sync --delete-orphans",
        lists: &[(SERVICES, "orphan")] },
];

/// The first screen, with one space where the text has several or a line ends.
fn first_screen(ran: &Ran) -> String {
    let both = format!("{}\n{}", ran.stderr, ran.stdout);
    let lines: Vec<&str> = both.lines().take(SCREEN).collect();
    one_line(&lines.join(" "))
}

#[test]
fn each_broken_cluster_is_explained_on_the_first_screen() {
    let mut wrong = Vec::new();
    for broken in WORLDS {
        let mut world = World::healthy();
        (broken.break_it)(&mut world);
        let before = world.everything();
        for command in ["status", "doctor"] {
            let ran = world.runs(&[&[command], &world.flags[..]].concat());
            let screen = first_screen(&ran);
            for part in [broken.cause, broken.fix] {
                if !screen.contains(part) {
                    wrong.push(format!("{}: {command}: {part:?}\n{}", broken.what, ran.stdout));
                }
            }
        }
        for (words, part) in broken.lists {
            let flags = if words[0] == "status" { &world.flags[..] } else { &[] };
            let ran = world.runs(&[*words, flags].concat());
            if !format!(" {} ", first_screen(&ran)).contains(part) {
                wrong.push(format!("{}: {words:?}: {part:?}\n{ran:?}", broken.what));
            }
        }
        let after = world.everything();
        unchanged(&before, &after);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The fix of servers that are off is printed by another check. It hides no fix of a target whose server is on.
#[test]
fn servers_that_are_off_hide_no_other_cause() {
    let world = World::with_machines(3, 0);
    for name in ["worker-1", "worker-2"] {
        world.set_power(name, false);
    }
    let failed = Health::unhealthy("layer4_timeout");
    for name in ["worker-1", "worker-2", "worker-3"] {
        unhealthy(&world, name, failed.clone());
    }
    let check = world.check("targets");
    for part in ["worker-1, worker-2: the server is off", "worker-3: the node port does not answer"]
    {
        assert!(check.message.contains(part), "{check:?}");
    }
    let fix = "let the load balancer reach the node ports";
    assert!(check.remedy.contains(fix), "{check:?}");
}

/// `status` shows a few findings of many. One check with many objects hides no other check.
#[test]
fn status_names_the_service_beside_many_servers_that_are_off() {
    let world = World::with_machines(9, 0);
    for number in 1..=9 {
        let name = format!("worker-{number}");
        world.set_power(&name, false);
        not_ready(&world, &name);
        unhealthy(&world, &name, Health::unhealthy("layer4_timeout"));
    }
    let status = world.runs(&["status", CIDR]).stdout;
    let words = one_line(&status);
    for part in [
        "node/worker-7: its server",
        "service/default/web: 0 of 9 targets healthy",
        "and 2 more: ccm doctor shows everything",
    ] {
        assert!(words.contains(part), "{part}: {status}");
    }
    assert!(!words.contains("node/worker-8: its server"), "{status}");
}

/// With `externalTrafficPolicy: Local` such targets are normal while some node has a pod.
#[test]
fn the_causes_of_unhealthy_targets_are_named() {
    let answers = |status| Health {
        http_status_code: Some(status),
        ..Health::unhealthy("unexpected_http_status")
    };
    // Policy, health of both targets → status, what it says.
    #[rustfmt::skip] // A case is a line or two.
    let cases = [
        ("Cluster", [Some(answers(503)), None], "warn", "worker-1: the health check gets HTTP status 503"),
        ("Local", [Some(answers(503)), None], "ok", "or has no pod (externalTrafficPolicy: Local)"),
        ("Local", [Some(Health::unhealthy("layer4_no_connection")), Some(answers(503))], "fail",
            "0 of 2 targets healthy; worker-1, worker-2: no ready pod of the Service on this node \
             (externalTrafficPolicy: Local)"),
        ("Local", [Some(answers(500)), None], "warn", "worker-1: the health check gets HTTP status 500"),
        ("Cluster", [Some(Health::unhealthy("layer4_no_connection")), Some(Health::unhealthy("layer7_timeout"))], "fail",
            "worker-2: the node port accepts the connection, but does not answer in time (layer7_timeout); worker-1: the node port is closed"),
    ];
    for (policy, health, status, says) in cases {
        let world = World::healthy();
        for (name, health) in ["worker-1", "worker-2"].iter().zip(health) {
            if let Some(health) = health {
                unhealthy(&world, name, health);
            }
        }
        world.edit("web", |service| {
            service["spec"]["externalTrafficPolicy"] = json!(policy);
        });
        world.check("targets").says(status, &[says]);
    }
}

#[test]
fn a_kube_proxy_that_does_not_answer_is_named_with_its_likely_causes() {
    let answers =
        Health { http_status_code: Some(503), ..Health::unhealthy("unexpected_http_status") };
    #[rustfmt::skip] // A case is a paragraph.
    let cases = [
        (Health::unhealthy("layer4_no_connection"),
            "0 of 2 targets healthy; worker-1, worker-2: port 10256 of kube-proxy does not answer",
            &["healthz-bind-address=0.0.0.0", "kubeProxyReplacementHealthzBindAddr", "firewall"][..]),
        (answers, "kube-proxy answers 503, because the node is about to be deleted", &["kubectl logs"]),
    ];
    for (health, message, remedies) in cases {
        let world = World::healthy();
        for name in ["worker-1", "worker-2"] {
            unhealthy(&world, name, health.clone());
        }
        let balancer = world.balancer_id("web");
        world.edit_balancer(balancer, |one| {
            one["services"][0]["health_check"]["port"] = json!(10256);
        });
        let check = world.check("targets");
        check.says("fail", &[message]);
        let remedy = format!("{:?}", check.remedy);
        assert!(remedies.iter().all(|part| remedy.contains(part)), "{check:?}");
        let inspect = ccm(&world.env, &["lb", "inspect", "default/web"]).stdout;
        assert!(inspect.contains("kube-proxy"), "{inspect}");
    }
}

#[test]
fn targets_of_a_new_service_are_given_time() {
    let world = World::healthy();
    let balancer = world.balancer_id("web");
    for name in ["worker-1", "worker-2"] {
        let machine = Machine::Server(world.server_id(name));
        let health = Some(Health::unhealthy("layer4_timeout"));
        world.sandbox.cloud().set_health(balancer, machine, None, health);
    }
    let ran = world.doctor(&["-o", "json"]).with_code(0);
    let checks = checks(&ran);
    let check = find(&checks, "targets");
    assert_eq!(check.status, "warn", "{check:?}");
    let says = "0 of 2 targets healthy; worker-1, worker-2: the node port does not answer (layer4_timeout); the \
                Service is younger than 3 minutes";
    assert!(check.message.contains(says), "{check:?}");
}

/// Unknown facts are not shown as missing. The exit code and each item say that something is unknown.
#[test]
fn a_document_shows_one_api_although_the_other_fails() {
    const ROUTES: &[&str] = &["route", "list", CIDR];
    let world = World::healthy();
    for (half, known, unknown) in
        [(Half::Hetzner, "object", "cloud"), (Half::Kubernetes, "cloud", "object")]
    {
        world.sandbox.stop(half);
        for (words, name) in [
            (NODES, "worker-1"),
            (&["node", "inspect", "worker-1"], "worker-1"),
            (SERVICES, "web"),
            (&["lb", "inspect", "web"], "web"),
            (ROUTES, ""),
        ] {
            let ran = world.runs(&[words, &["-o", "json"]].concat()).with_code(1);
            assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
            let item = &ran.json()["items"][0];
            if words == ROUTES {
                let of_node = half == Half::Hetzner;
                assert_eq!(item["object"]["destination"], "10.244.1.0/24");
                assert_eq!(item["object"]["node"].is_string(), of_node, "{item}");
                assert_eq!(item["object"]["state"], json!(null), "{item}");
                assert_eq!(item["cloud"].is_null(), of_node, "{item}");
            } else {
                let found = item[known]["name"].as_str().unwrap();
                assert!(found.contains(name), "{item}");
                assert_eq!(item[unknown], json!(null), "{item}");
            }
            assert!(item["error"].as_str().unwrap().contains("refused"), "{item}");
            for list in ["changes", "findings", "differences"] {
                assert_eq!(item[list], json!([]), "{item}");
            }
            assert!(ran.json()["summary"].is_null(), "{ran:?}");
        }
        world.sandbox.resume(half).unwrap();
    }
}

/// The table shows what only the other API knows, by each name that it has there, and a cause.
#[test]
fn a_table_shows_one_api_although_the_other_fails() {
    let world = World::healthy();
    let id = world.server_id("worker-1").to_string();
    let balancer = world.balancer_id("web").to_string();
    world.edit("web", |service| {
        service["metadata"]["annotations"]["load-balancer.hetzner.cloud/typ"] = json!("lb11");
    });
    let route = &["route", "list", CIDR, "-o", "wide"][..];
    let (node, service) = (&["node", "inspect", &id][..], &["lb", "inspect", "203.0.113.3"][..]);
    #[rustfmt::skip]
    let cases = [
        (Half::Hetzner, node, &[
            "\nname         worker-1 ", "\nstate        Ready ", " ?\n", "\nCONDITIONS\n", "  Ready: True KubeletReady\n",
            "\nLABELS\n", "  kubernetes.io/hostname=worker-1\n", "\nSYNC WOULD\n  unknown: the Cloud API does not answer\n",
        ][..]),
        (Half::Hetzner, service, &[
            "annotation load-balancer.hetzner.cloud/typ is unknown", "\nname       default/web ", "  203.0.113.3 ", " ?\n",
            "\nSPEC\n  externalTrafficPolicy: Cluster\n", "\nANNOTATIONS\n  load-balancer.hetzner.cloud/",
            "\nFIELDS (= as wanted, ~ differs, · left unchanged)\n  unknown: the Cloud API does not answer\n", "\nEVENTS\n",
        ]),
        (Half::Hetzner, route, &["10.244.1.0/24  ?        worker-1  ?      ?       ?\n", "worker-2"]),
        (Half::Hetzner, &["lb", "inspect", "nix"], &[
            "there is no Service default/nix of type LoadBalancer in Kubernetes (ccm can't search the cloud, because the Cloud API does not answer)",
        ]),
        (Half::Kubernetes, &["lb", "list"], &["default/web  kubernetes-default-web  203.0.113.3  2/2      ?\n"]),
        (Half::Kubernetes, &["lb", "inspect", &balancer], &[
            "\nidentity   ?           load balancer ", "203.0.113.3\n", "\nUSAGE\n", " healthy ",
            "\nSYNC WOULD\n  unknown: Kubernetes does not answer\n",
        ]),
        (Half::Kubernetes, node, &["\nidentity     ?           server ", "203.0.113.1\n", "matched by               ?\n"]),
        (Half::Kubernetes, &["node", "list"], &["worker-1  ?       1", "  running  203.0.113.1,10.0.0.2  ?\n"]),
        (Half::Kubernetes, route, &["10.244.1.0/24  10.0.0.2  ?     ?      worker-1  ?\n"]),
        (Half::Kubernetes, &["node", "inspect", "nix"], &["there is no node \"nix\" in the cloud (ccm can't search Kubernetes, because Kubernetes does not answer)"]),
    ];
    for (half, words, parts) in cases {
        world.sandbox.stop(half);
        let ran = world.runs(words);
        let shown = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, 1, "{ran:?}");
        for part in parts {
            assert!(shown.contains(part), "{half:?} {words:?}: {part}\n{shown}");
        }
        let causes = ran.stderr.matches("connection refused; does a server run at this address?");
        assert_eq!(causes.count(), 1, "{half:?} {words:?}: {ran:?}");
        world.sandbox.resume(half).unwrap();
    }
}

/// A check about many objects shows ten of them in a table, and all in a document.
#[test]
fn a_check_shows_ten_of_many_objects() {
    let world = World::healthy();
    for number in 0..15 {
        let name = format!("stray-{number}");
        world.register(&name, None, "");
    }
    let shown = |words: &[&str]| world.doctor(words).stdout.matches("node/stray-").count();
    assert_eq!(shown(&[]), 10);
    assert!(world.doctor(&[]).stdout.contains("and 5 more: ccm doctor -o wide shows all"));
    assert_eq!(shown(&["-o", "wide"]), 15);
    assert_eq!(shown(&["-o", "json"]), 15);
    let status = world.runs(&["status", crate::doctor::world::CIDR]);
    assert_eq!(status.stdout.matches("node/stray-").count(), 8, "{status:?}");
    assert!(status.stdout.contains("more: ccm doctor shows everything"));
}

#[test]
fn status_of_a_healthy_cluster_has_no_problem() {
    let world = World::healthy();
    let words = [&["status", "--settings-from=none"], &world.flags[..]].concat();
    let ran = world.runs(&words);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let mut lines: Vec<String> = ran.stdout.lines().map(str::to_owned).collect();
    lines[1] = "KUBERNETES      VERSION, ADDRESS".to_owned();
    lines.retain(|line| !line.starts_with("                "));
    let left = lines.iter_mut().find(|line| line.starts_with("CLOUD API"));
    *left.unwrap() = "CLOUD API       N of 3600 calls an hour left".to_owned();
    snapshot("status.txt", &(lines.join("\n") + "\n"));
    let json = world.runs(&[&words[..], &["-o", "json"]].concat()).json();
    assert_eq!(json["kind"], "Status");
    assert_eq!(json["items"], json!([]));
    assert_eq!(json["nodes"], json!({ "healthy": 2, "total": 2 }));
    assert_eq!(json["loadBalancers"], json!({ "healthy": 1, "total": 1 }));
    assert_eq!(json["routes"], json!({ "healthy": 2, "total": 2 }));
    assert_eq!(json["leader"], "worker-1_4711");
}

/// Kubernetes is read every five seconds, and the cloud once a minute. In a pipe each screen begins with its time. The
/// command ends when its reader ends.
#[test]
fn status_watch_reads_kubernetes_every_five_seconds_and_the_cloud_every_minute() {
    let world = World::healthy();
    let mark = world.mark();
    let mut command = crate::common::command(&world.env, &["status", "--watch"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let (sender, screens) = std::sync::mpsc::channel();
    let stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        let lines = std::io::BufRead::lines(stdout).map_while(Result::ok);
        // Ends, and closes the pipe, when nobody receives any more.
        lines.take_while(|line| sender.send(line.clone()).is_ok()).count()
    });
    let begun = Instant::now();
    let until = |what: &str| {
        let mut before = String::new();
        loop {
            let line = screens.recv_timeout(crate::common::LIMIT);
            let line = line.unwrap_or_else(|why| panic!("{why}: no {what}: {before}"));
            if line.contains(what) {
                return before;
            }
            before += &(line + "\n");
        }
    };
    until("NODES           2 of 2 ready");
    not_ready(&world, "worker-1");
    let next = until("NODES           1 of 2 ready");
    let time = next.lines().find(|line| line.contains(", cloud read ")).unwrap();
    assert!(time.starts_with("20") && time.ends_with(" s ago"), "{next}");
    world.leads("worker-2_1", -600);
    until("LEADER          worker-2_1");
    for _ in 0..30 {
        until("LOAD BALANCERS  1 of 1 serving");
    }
    let calls = world.sandbox.calls().calls_since(mark);
    let count = |half, path: &str| {
        let is_such = |call: &&Call| call.half == half && call.path.ends_with(path);
        calls.iter().filter(is_such).count()
    };
    assert!(count(Half::Kubernetes, "/nodes") >= 30);
    // The rights are there, so they are checked once.
    assert_eq!(count(Half::Kubernetes, "/selfsubjectaccessreviews"), 13);
    let minutes =
        begun.elapsed().as_secs_f64() / Duration::from_secs(60).mul_f64(0.02).as_secs_f64();
    for path in ["/servers", "/load_balancers", "/networks"] {
        let asked = count(Half::Hetzner, path);
        assert!(
            asked >= 1 && asked <= minutes as usize + 1,
            "{path}: {asked} in {minutes} minutes"
        );
    }
    drop(screens);
    let ended =
        crate::common::holds_within(crate::common::LIMIT, || child.try_wait().unwrap().is_some());
    if !ended {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    assert!(ended, "it goes on without a reader");
}

/// A large cluster costs no more calls than its pages. The computation beside them takes at most three seconds, even in
/// a build without optimisation.
#[test]
fn status_of_a_large_cluster_fits_on_a_screen() {
    let builder = sandbox::Sandbox::builder().nodes(1000).scale(0.01);
    let sandbox = builder.heartbeats(false).start();
    let env = crate::common::env(&sandbox);
    sandbox.cloud().set_load_balancer_limit(sandbox.project(), 300);
    for number in 0..200 {
        let one_node = ("node-selector", "kubernetes.io/hostname=worker-1");
        let annotations = [("location", "fsn1"), one_node];
        sandbox.create(&format!("lb-{number}"), &annotations, &[80]);
    }
    for words in [["node", "sync"], ["lb", "sync"]] {
        ccm(&env, &words).with_code(0);
    }
    let mark = sandbox.mark();
    let ran = ccm(&env, &["status", "-o", "json"]);
    let screen = ran.json();
    let expected = json!({ "healthy": 1000, "total": 1000 });
    assert_eq!(screen["nodes"], expected, "{ran:?}");
    let expected = json!({ "healthy": 200, "total": 200 });
    assert_eq!(screen["loadBalancers"], expected);
    let calls = sandbox.calls().calls_since(mark);
    let cloud = calls.iter().filter(|call| call.half == Half::Hetzner);
    let cloud = cloud.count();
    assert!(cloud <= 30, "{cloud} calls of the Cloud API");
    let timed = std::process::Command::new("sh")
        .args(["-c", "\"$0\" status >/dev/null; times"])
        .arg(crate::common::binary())
        .envs(env.iter().cloned())
        .output()
        .unwrap();
    // The line has the times of the shell's children, user and system, such as `0m0.510s 0m0.030s`.
    let timed = String::from_utf8(timed.stdout).unwrap();
    let seconds = timed.lines().last().unwrap().split(' ').map(|time| {
        let (minutes, seconds) = time.split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0
            + seconds.trim_end_matches('s').parse::<f64>().unwrap()
    });
    let seconds: f64 = seconds.sum();
    println!(
        "{cloud} calls of the Cloud API, {} of Kubernetes, {seconds:.2} s",
        calls.len() - cloud
    );
    assert!(seconds <= 3.0, "{seconds} s");
}
