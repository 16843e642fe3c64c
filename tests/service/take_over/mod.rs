//! From hcloud-cloud-controller-manager to `ccm` and back. What the other controller left is taken over without a
//! write, and it can read what `ccm` leaves.

mod left;

use crate::common::cluster::{Cluster, held, id, listen_ports, targets};
use crate::common::{self, Daemon, Env, Ran, ccm, env, wait_until, writes};
use left::{FINALIZER, Left, Program, SERVICE_UID};
use sandbox::kubelet::CertificateAsk;
use serde_json::{Value, json};

/// The arguments that the chart passes with a private Network, except those of the Lease, because the tests
/// watch the Lease.
const ITS_WORDS: &[&str] = &[
    "--allow-untagged-cloud",
    "--cloud-provider=hcloud",
    "--route-reconciliation-period=30s",
    "--webhook-secure-port=0",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/16",
];

/// The argument that the chart passes for one replica.
const NO_LEASE: &[&str] = &["--leader-elect=false"];

/// Returns the states in which the Lease may be found: held by a Pod that does not exist, released, and never created.
/// Each has the further arguments of the daemon.
fn leases() -> [(&'static str, Option<Value>, &'static [&'static str]); 4] {
    let held =
        |holder: &str, duration_s: u32| held(holder, duration_s, "2026-01-01T00:00:00.000000Z", 3);
    [
        ("held", Some(held("master-1_5f2c0e5e", 15)), &[]),
        ("given away", Some(held("", 1)), &[]),
        ("none", None, &[]),
        ("not asked for", None, NO_LEASE),
    ]
}

impl Left {
    /// Takes the cluster over with these settings and flags, as `ccm help migrate` tells people to do. Fails when a
    /// plan, `run --once` or the daemon would change something or warns. Returns the daemon, which still runs.
    fn is_taken_over(&self, env: &Env, words: &[&str], case: &str) -> Daemon {
        let before = self.world();
        let ran = ccm(env, &[words, &["--dry-run"]].concat());
        let last = ran.stdout.lines().last().unwrap();
        let is_nothing = last.starts_with("Plan: 0 to change, ") && last.ends_with(" 0 blocked");
        assert!(ran.code == 0 && is_nothing, "{case}: {ran:?}");
        let ran = ccm(env, &[words, &["--once"]].concat());
        ran.with_code(0).warns(" 0 changed, ");
        assert_eq!(writes(&self.sandbox), Vec::<String>::new(), "{case}");
        // The daemon makes no write either, at its start and at each later comparison.
        let often = ["--load-balancer-resync-period=10s", "--node-status-update-frequency=10s"];
        let daemon = Daemon::start_with(env, &[words, &often].concat());
        let enough = self.polls() + 3;
        wait_until("polls of everything", || self.polls() >= enough);
        let log = daemon.log();
        assert_eq!(writes(&self.sandbox), Vec::<String>::new(), "{case}: {log}");
        self.is_as(&before, &format!("{case}: {log}"));
        assert!(!log.contains("WARN"), "{case}: {log}");
        daemon
    }
}

#[test]
fn load_balancers_of_hcloud_cloud_controller_manager_are_taken_over_without_a_write() {
    common::run_in_parallel(leases().into(), |(case, lease, more)| {
        let its_words = [ITS_WORDS, more].concat();
        let left = Left::new();
        if let Some(lease) = lease {
            left.create_lease(lease);
        }
        let before = left.world();
        let daemon = left.is_taken_over(&left.env, &its_words, case);
        // The daemon continues. A new port is served, and only that is written.
        left.set_port("web", 81);
        wait_until("the other port", || listen_ports(&left.balancer("web")).contains(&81));
        let id = |one: &Value| one["id"].clone();
        let web = left.balancer("web");
        for (now, before) in left.world().iter().zip(&before) {
            // Services have no id, and this one was changed.
            if now["kind"] != "Service" && id(now) != id(&web) {
                assert_eq!(now, before, "{case}");
            }
        }
        daemon.signal("-TERM");
        assert!(daemon.ended().success(), "{}", daemon.log());
    });
}

/// Settings about load balancers that hcloud-cloud-controller-manager does not have. No Service and no Namespace asks for
/// anything that they allow, and each existing load balancer fits.
#[test]
fn a_cluster_is_taken_over_without_a_write_with_each_new_setting_of_load_balancers() {
    let cases = [
        ("HCLOUD_LOAD_BALANCERS_TYPE", "auto"),
        ("HCLOUD_LOAD_BALANCERS_TYPE_MAX", "lb31"),
        ("HCLOUD_LOAD_BALANCERS_LOCATION", "auto"),
        ("HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS", "true"),
        ("HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY", "1m"),
        ("HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS", "true"),
    ];
    common::run_in_parallel(cases.into(), |(variable, value)| {
        let left = Left::new();
        for component in ["namespace-defaults", "endpointslices"] {
            left.cluster().grant("ccm", common::component_rules(component));
        }
        let env = common::with(left.env.clone(), &[(variable, value)]);
        left.is_taken_over(&env, ITS_WORDS, &format!("{variable}={value}"));
    });
}

/// Settings that hcloud-cloud-controller-manager does not have. The requests of kubelets are decided already, two of them
/// by another program, and all nodes have provider IDs of this cloud.
#[test]
fn a_cluster_is_taken_over_without_a_write_with_each_value_of_each_new_setting() {
    let cases = [
        ("HCLOUD_INSTANCES_ZONE_LABEL", "datacenter", ""),
        ("HCLOUD_INSTANCES_ZONE_LABEL", "location", ""),
        ("HCLOUD_LOAD_BALANCERS_FOREIGN_NODES", "ignore", ""),
        ("HCLOUD_LOAD_BALANCERS_FOREIGN_NODES", "match", ""),
        ("HCLOUD_LOAD_BALANCERS_FOREIGN_NODES", "match", "--controllers=*,node-csr-approval"),
        ("HCLOUD_INSTANCES_ZONE_LABEL", "location", "--controllers=*,node-csr-approval"),
    ];
    common::run_in_parallel(cases.into(), |(variable, value, flag)| {
        let left = Left::with_dedicated(1, true);
        let env = common::with(left.env.clone(), &[(variable, value)]);
        let case = format!("{variable}={value} {flag}");
        let words: Vec<&str> =
            ITS_WORDS.iter().copied().chain([flag]).filter(|word| !word.is_empty()).collect();
        left.cluster().grant("ccm", common::component_rules("kubelet-certificates"));
        for (node, decision) in [("worker-1", "Approved"), ("worker-2", "Denied")] {
            let name = CertificateAsk::of(node, &[node]).create(left.cluster());
            left.cluster().edit("certificatesigningrequests", None, &name, |request| {
                request["status"]["conditions"] = json!([{ "type": decision, "status": "True" }]);
            });
        }
        left.is_taken_over(&env, &words, &case);
        // The requests were read when the controller is on, and only then.
        let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        let is_read = left.sandbox.calls().count(|call| call.path == path) > 0;
        assert_eq!(is_read, !flag.is_empty(), "{case}");
    });
}

/// hcloud-cloud-controller-manager leaves a node with this taint out of the targets at its next sync of the Service, so
/// the node may still be a target of one load balancer and of another one no more.
#[test]
fn a_node_that_the_cluster_autoscaler_will_delete_stays_a_target_or_stays_none() {
    let left = Left::new();
    let node = left.servers()[0]["name"].as_str().unwrap().to_owned();
    left.cluster().set_taint(&node, "ToBeDeletedByClusterAutoscaler", "1", "NoSchedule");
    let (gone, mail) = (left.server_id(&node), id(&left.balancer("mail")));
    left.edit_balancer(mail, |balancer| {
        let targets = balancer["targets"].as_array_mut().unwrap();
        targets.retain(|target| target["server"]["id"] != gone);
    });
    left.sandbox.calls().clear();
    ccm(&left.env, &[ITS_WORDS, &["--once"]].concat()).with_code(0).warns(" 0 changed, ");
    assert_eq!(writes(&left.sandbox), Vec::<String>::new());
    let has = |name: &str| targets(&left.balancer(name)).contains(&gone);
    assert!(has("web") && !has("mail"));
}

/// The cluster has nodes on dedicated servers, and the login of Robot is configured in every possible way. Nothing is
/// written to any API.
#[test]
fn a_cluster_with_dedicated_servers_is_taken_over_by_a_change_of_the_image() {
    type Variables = &'static [(&'static str, &'static str)];
    // Whether targets are reached by the private IP, variables, whether Robot is asked.
    let cases: [(bool, Variables, bool); 5] = [
        (true, &[], true),
        (false, &[], true),
        (true, &[("ROBOT_USER", ""), ("ROBOT_PASSWORD", "")], false),
        (false, &[("ROBOT_ENABLED", "false")], false),
        (true, &[("ROBOT_PASSWORD", "another")], true),
    ];
    common::run_in_parallel(cases.into(), |(by_private_ip, variables, asks)| {
        let mut left = Left::with_dedicated(2, by_private_ip);
        left.env = common::with(left.env, variables);
        let before = left.world();
        let case = format!("{by_private_ip} {variables:?}");
        let logins = || {
            let logins = left.sandbox.robot().logins();
            logins.good + logins.failed
        };
        let ran = ccm(&left.env, &[ITS_WORDS, &["--once"]].concat());
        let is_refused = variables.iter().any(|(_, value)| *value == "another");
        assert_eq!(ran.code, i32::from(is_refused), "{case}: {}", ran.stderr);
        let mut others = writes(&left.sandbox);
        if is_refused || !asks {
            // Events about nodes that are not looked up are allowed.
            others.retain(|write| !write.contains("/events"));
        }
        assert_eq!(others, Vec::<String>::new(), "{case}: {}", ran.stderr);
        left.is_as(&before, &format!("{case}: {}", ran.stderr));
        assert_eq!(logins() > 0, asks, "{case}");
        assert!(!is_refused || logins() == 1, "{case}: {}", logins());
    });
}

/// Returns the variables of a fork's Secret `hetzner`, which is mounted as files: the three `_FILE` variables.
fn from_files_of_syself(left: &Left) -> Env {
    let folder = left.folder().join("hetzner-secret");
    std::fs::create_dir_all(&folder).unwrap();
    let mut env = left.env.clone();
    for (ours, key) in [
        ("HCLOUD_TOKEN", "hcloud"),
        ("ROBOT_USER", "robot-user"),
        ("ROBOT_PASSWORD", "robot-password"),
    ] {
        let path = folder.join(key);
        std::fs::write(&path, common::variable(&env, ours)).unwrap();
        let file = path.to_str().unwrap();
        env = common::with(env, &[(ours, ""), (&format!("{ours}_FILE"), file)]);
    }
    env
}

/// Its variables have no effect, and ours are set. Everything stays, whether Robot is asked or not.
#[test]
fn a_cluster_of_the_fork_by_syself_is_taken_over_without_a_write() {
    let its_own = [("ROBOT_USER_NAME", "old"), ("CACHE_TIMEOUT", "10m")];
    for is_enabled in [true, false] {
        let left = Left::of_fork(Program::Syself);
        let env = common::with(from_files_of_syself(&left), &its_own);
        let env = common::with(env, &[("ROBOT_ENABLED", &is_enabled.to_string())]);
        // Nobody knows whether this node still exists, and it is not deleted.
        left.edit_node("metal-2", |node| node["status"]["conditions"] = json!([]));
        left.sandbox.calls().clear();
        let before = left.world();
        let ran = ccm(&env, &[ITS_WORDS, &["--dry-run"]].concat()).with_code(0);
        let last = ran.stdout.lines().last().unwrap();
        assert_eq!(last, "Plan: 0 to change, 13 unchanged, 0 blocked", "{ran:?}");
        let warning = |name: &str, number: u64| {
            format!(
                "! node/{name}  warning: ccm does not change the node, whose provider ID is \
                 \"hcloud://bm-{number}\", because ccm looks up dedicated server {number} only if ROBOT_ENABLED is \
                 true. Fix: set ROBOT_ENABLED=true, ROBOT_USER and ROBOT_PASSWORD for ccm"
            )
        };
        for server in left.robot().servers() {
            let told = ran.stdout.contains(&warning(&server.name, server.number));
            assert_eq!(told, !is_enabled, "{ran:?}");
        }
        for name in ["ROBOT_USER_NAME", "CACHE_TIMEOUT"] {
            assert_eq!(
                ran.stderr.matches(&format!(" {name}: this setting has no effect in ccm")).count(),
                1
            );
        }
        let ran = ccm(&env, &[ITS_WORDS, &["--once"]].concat()).with_code(0);
        ran.warns(" 0 changed, ");
        assert_eq!(writes_beside_events(&left, is_enabled), Vec::<String>::new(), "{ran:?}");
        left.is_as(&before, &ran.stderr);
    }
}

/// Returns the writes. Events about nodes and targets that ccm leaves alone are allowed, unless `with_events`.
fn writes_beside_events(left: &Left, with_events: bool) -> Vec<String> {
    let mut all = writes(&left.sandbox);
    all.retain(|write| with_events || !write.contains("/events"));
    all
}

/// The provider IDs `hetzner://N` are foreign, because the number does not say which API has the server. Their load
/// balancers stay as they are.
#[test]
fn a_cluster_of_the_fork_by_identw_stays_as_it_is() {
    let mut left = Left::of_fork(Program::Identw);
    let annotations = ["external-dns-hostname", "external-dns-hostname-ipv4-only"];
    for name in annotations {
        left.annotate("web", name, Some("web.example.com"));
    }
    left.edit_node("metal-2", |node| node["status"]["conditions"] = json!([]));
    left.sandbox.calls().clear();
    let ran = ccm(&left.env, &[ITS_WORDS, &["--dry-run"]].concat()).with_code(1);
    assert!(ran.stdout.ends_with("\nPlan: 0 to change, 7 unchanged, 3 blocked\n"), "{ran:?}");
    for robot in ["true", "false"] {
        left.env = common::with(left.env, &[("ROBOT_ENABLED", robot)]);
        let ran = stays(&left, &["run", "--once", "--cloud-provider=hcloud"], "ccm help migrate");
        for name in annotations {
            let prefix = "load-balancer.hetzner.cloud/";
            ran.warns(&format!(
                "service/default/web: annotation {prefix}{name} is unknown; did you mean {prefix}hostname?"
            ));
        }
    }
    // While the nodes join again one after the other, the others stay targets.
    let server = left.server_id("worker-1");
    left.edit_node("worker-1", |node| {
        node["spec"]["providerID"] = json!(format!("hcloud://{server}"));
    });
    left.sandbox.calls().clear();
    let ran = stays(&left, &["run", "--once", "--cloud-provider=hcloud"], "to node worker-2, ");
    assert!(!ran.stderr.contains("to node worker-1, "), "{ran:?}");
}

/// With `match`, the nodes of the fork by identw stay targets, and nothing is written.
#[test]
fn nodes_of_the_fork_by_identw_stay_targets_when_they_are_matched() {
    let mut left = Left::of_fork(Program::Identw);
    left.env = common::with(left.env, &[("HCLOUD_LOAD_BALANCERS_FOREIGN_NODES", "match")]);
    for robot in ["true", "false"] {
        left.env = common::with(left.env, &[("ROBOT_ENABLED", robot)]);
        left.sandbox.calls().clear();
        let before = left.world();
        let ran = ccm(&left.env, &[ITS_WORDS, &["--once"]].concat()).with_code(0);
        assert_eq!(writes_beside_events(&left, false), Vec::<String>::new(), "{ran:?}");
        left.is_as(&before, &ran.stderr);
    }
}

/// Object by object, what we write and how that one finds it again.
#[test]
fn hcloud_cloud_controller_manager_reads_what_ccm_leaves() {
    let left = Left::new();
    let daemon = Daemon::start_with(&left.env, ITS_WORDS);
    let joined = "worker-4";
    let server = left.attach_server(joined, None);
    left.register_nodes_of(&[server]);
    wait_until("the new node", || common::is_initialised(&left.node(joined)));
    let uid = left.create("new", &[], &[80]);
    wait_until("its address", || left.has_address("new"));
    for name in ["web", "shop", "mail", "new"] {
        wait_until("the new target", || targets(&left.balancer(name)).contains(&server));
        let balancer = left.balancer(name);
        let mut all = balancer["targets"].as_array().unwrap().iter();
        assert!(all.all(|one| one["use_private_ip"] == true), "{balancer}");
    }
    daemon.signal("-TERM");
    assert!(daemon.ended().success(), "{}", daemon.log());

    // The node's ID is that of the server, and it has the other controller's labels beside Kubernetes' own.
    let own = left.node(joined);
    assert_eq!(own["spec"]["providerID"], format!("hcloud://{server}"));
    let old = left.node("worker-1");
    for (key, value) in old["metadata"]["labels"].as_object().unwrap() {
        if !key.contains("hostname") {
            assert_eq!(&own["metadata"]["labels"][key], value, "{key}");
        }
    }
    // The Service has its finalizer and addresses, and nothing that only ccm knows.
    let service = left.service("new").unwrap();
    assert_eq!(service["metadata"]["finalizers"], json!([FINALIZER]));
    let annotations = service["metadata"]["annotations"].as_object();
    assert!(annotations.is_none_or(serde_json::Map::is_empty));
    let balancer = left.balancer("new");
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    let ips: Vec<&Value> = ingress.unwrap().iter().map(|one| &one["ip"]).collect();
    assert_eq!(
        ips,
        [
            &balancer["public_net"]["ipv4"]["ip"],
            &balancer["public_net"]["ipv6"]["ip"],
            &balancer["private_net"][0]["ip"],
        ]
    );
    // The load balancer is found by this label and by this name.
    assert_eq!(balancer["labels"][SERVICE_UID], uid);
    assert_eq!(balancer["name"], format!("a{}", uid.replace('-', ""))[..32]);
    let foreign = balancer["labels"].as_object().unwrap().keys();
    let foreign: Vec<&String> = foreign
        .filter(|label| *label != SERVICE_UID && !label.starts_with("ccm-from-scratch/"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    // The Lease is released, so that it is taken at once.
    let lease = left.lease();
    assert_eq!(lease["spec"]["holderIdentity"], "");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 1);
    // No other kind of object was written.
    let known = ["/nodes/", "/services/", "/events", "/load_balancers", "/networks/"];
    for write in writes(&left.sandbox) {
        assert!(known.iter().any(|part| write.contains(part)), "{write}");
    }
}

/// Somebody forgot a flag on one side. The nodes are the other profile's, and the traffic goes on.
#[test]
fn the_wrong_profile_removes_nothing() {
    let left = Left::new();
    stays(&left, &["run", "--once"], "--cloud-provider=hcloud");

    let sandbox = common::builder().nodes(2).heartbeats(false).start();
    let variables = [("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1")];
    let env = common::with(env(&sandbox), &variables);
    let ours = Left { env, sandbox, program: Program::Hccm, by_private_ip: false };
    // Nodes are initialised first, because the first pass of a new cluster reads Services at the same time.
    ccm(&ours.env, &["run", "--once"]).with_code(0);
    for name in ["web", "shop", "mail"] {
        ours.create(name, &[], &[80]);
    }
    ccm(&ours.env, &["run", "--once"]).with_code(0);
    ours.sandbox.calls().clear();
    let words = ["run", "--once", "--cloud-provider=hcloud"];
    stays(&ours, &words, "--cloud-provider=ccm-from-scratch");
}

/// Asserts that this command changes nothing but events, and says what to do.
fn stays(left: &Left, words: &[&str], remedy: &str) -> Ran {
    let before = left.world();
    let ran = ccm(&left.env, words);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    for name in ["web", "shop", "mail"] {
        let parts = ["SyncLoadBalancerFailed", &format!("service/default/{name}"), remedy];
        let says = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(ran.stderr.lines().any(says), "{name}: {}", ran.stderr);
    }
    assert_eq!(writes_beside_events(left, false), Vec::<String>::new(), "{}", ran.stderr);
    left.is_as(&before, &ran.stderr);
    ran
}
