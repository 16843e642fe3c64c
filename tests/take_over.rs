//! From hcloud-cloud-controller-manager to `ccm` and back: what that one left is taken over without a write, and what
//! `ccm` leaves is what that one reads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Daemon, Env, ccm, env, node, services, wait_until, writes};
use sandbox::credentials::Validity;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

/// What its chart passes, with a private Network, but for the Lease: ours is to be seen.
const ITS_WORDS: &[&str] = &[
    "--allow-untagged-cloud",
    "--cloud-provider=hcloud",
    "--route-reconciliation-period=30s",
    "--webhook-secure-port=0",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/16",
];
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const SERVICE_UID: &str = "hcloud-ccm/service-uid";
const LEASE: &str = "cloud-controller-manager";
const OFF: &str = "worker-3";

/// A cluster of three nodes, one of them switched off, with three Services, as it was when that one was stopped.
struct Left {
    sandbox: Sandbox,
    env: Env,
}

impl Left {
    fn new() -> Left {
        let builder = Sandbox::builder().nodes(3).network("10.0.0.0/8");
        let sandbox = builder.scale(0.02).heartbeats(false).start();
        let variables = [
            ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
            ("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "true"),
        ];
        let left = Left {
            env: common::with(env(&sandbox), &variables),
            sandbox,
        };
        left.nodes();
        left.routes();
        left.services();
        // None of that was ccm.
        left.sandbox.calls().clear();
        left
    }

    fn servers(&self) -> Vec<Value> {
        self.sandbox.cloud().servers(self.sandbox.project())
    }

    fn nodes(&self) {
        for server in self.servers() {
            let name = server["name"].as_str().unwrap();
            let is_off = name == OFF;
            let mut taints = Vec::new();
            if is_off {
                let id = server["id"].as_u64().unwrap();
                self.sandbox.cloud().set_power(id, false);
                let key = "node.cloudprovider.kubernetes.io/shutdown";
                taints.push(json!({"key": key, "effect": "NoSchedule"}));
            }
            let initialise = |node: &mut Value| {
                node["spec"]["providerID"] = json!(format!("hcloud://{}", server["id"]));
                node["spec"]["taints"] = json!(taints);
                for (key, value) in [
                    ("node.kubernetes.io/instance-type", "cx22"),
                    ("beta.kubernetes.io/instance-type", "cx22"),
                    ("topology.kubernetes.io/region", "fsn1"),
                    ("failure-domain.beta.kubernetes.io/region", "fsn1"),
                    ("topology.kubernetes.io/zone", "fsn1-dc14"),
                    ("failure-domain.beta.kubernetes.io/zone", "fsn1-dc14"),
                    ("instance.hetzner.cloud/provided-by", "cloud"),
                ] {
                    node["metadata"]["labels"][key] = json!(value);
                }
                node["status"]["addresses"] = json!([
                    {"type": "Hostname", "address": name},
                    {"type": "ExternalIP", "address": server["public_net"]["ipv4"]["ip"]},
                    {"type": "InternalIP", "address": server["private_net"][0]["ip"]},
                ]);
                let conditions = node["status"]["conditions"].as_array_mut().unwrap();
                if is_off {
                    let ready = conditions.iter_mut().find(|one| one["type"] == "Ready");
                    ready.unwrap()["status"] = json!("Unknown");
                }
                conditions.push(json!({
                    "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated",
                    "message": "RouteController created a route",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }));
            };
            let cluster = self.sandbox.cluster();
            assert!(cluster.edit("nodes", None, name, initialise));
        }
    }

    /// To each node's Pods, in the Network.
    fn routes(&self) {
        let network = self.sandbox.network().unwrap();
        for server in self.servers() {
            let own = node(&self.sandbox, server["name"].as_str().unwrap());
            let route = json!({
                "destination": own["spec"]["podCIDR"],
                "gateway": server["private_net"][0]["ip"],
            });
            let url = self.sandbox.hetzner_url();
            let token = &self.sandbox.projects().token;
            let routed = || {
                ureq::post(format!("{url}/networks/{network}/actions/add_route"))
                    .header("Authorization", format!("Bearer {token}"))
                    .header("Content-Type", "application/json")
                    .send(route.to_string())
                    .is_ok()
            };
            // While the one before is being added, the Network is locked.
            wait_until("a route", routed);
        }
        let all = self.servers().len();
        let networks = || self.sandbox.cloud().networks(self.sandbox.project());
        wait_until("all routes", || {
            networks()[0]["routes"]
                .as_array()
                .is_some_and(|routes| routes.len() == all)
        });
    }

    fn services(&self) {
        let authority = self.sandbox.authority();
        let certificate = authority.server(&["shop.example.com"], Validity::Now);
        let certificate = certificate.unwrap();
        let certificate = json!({
            "name": "cert", "type": "uploaded",
            "certificate": certificate.certificate_pem, "private_key": certificate.key_pem,
        });
        let (cloud, project) = (self.sandbox.cloud(), self.sandbox.project());
        let certificate = cloud.create_certificate(project, certificate);
        self.service("web", &[], &[80, 443], None, |_| {});
        // What no annotation names somebody set by hand; that one leaves it so.
        let shop = [
            ("name", "shop"),
            ("type", "lb21"),
            ("protocol", "https"),
            ("http-certificates", "cert"),
            ("http-redirect-http", "true"),
        ];
        self.service("shop", &shop, &[443], None, |balancer| {
            balancer["name"] = json!("shop");
            balancer["load_balancer_type"] = json!("lb21");
            balancer["algorithm"] = json!({"type": "least_connections"});
            let service = &mut balancer["services"][0];
            service["protocol"] = json!("https");
            service["http"] = json!({
                "certificates": [certificate], "redirect_http": true, "sticky_sessions": true,
                "cookie_name": "MINE", "cookie_lifetime": 600,
            });
            service["health_check"]["interval"] = json!(30);
            service["health_check"]["retries"] = json!(5);
        });
        let mail = [
            ("hostname", "mail.example.com"),
            ("uses-proxyprotocol", "true"),
            ("health-check-interval", "20s"),
        ];
        self.service("mail", &mail, &[25], Some("mail.example.com"), |balancer| {
            let port = &mut balancer["services"][0];
            port["proxyprotocol"] = json!(true);
            port["health_check"]["interval"] = json!(20);
        });
    }

    /// One with its load balancer, which is as that one makes it without annotations, but for a change, and with its
    /// addresses or a name in its status.
    fn service(
        &self,
        name: &str,
        annotations: &[(&str, &str)],
        ports: &[u16],
        hostname: Option<&str>,
        change: impl Fn(&mut Value),
    ) {
        let new = services::LoadBalancerService::new(name, ports).with(annotations);
        let created = services::create(&self.sandbox, new);
        let uid = created["metadata"]["uid"].as_str().unwrap();
        let listeners = created["spec"]["ports"].as_array().unwrap().iter();
        let listeners: Vec<Value> = listeners
            .map(|port| {
                json!({
                    "protocol": "tcp", "proxyprotocol": false,
                    "listen_port": port["port"], "destination_port": port["nodePort"],
                    "health_check": {
                        "protocol": "tcp", "port": port["nodePort"], "interval": 15, "timeout": 10, "retries": 3,
                    },
                })
            })
            .collect();
        let servers = self.servers();
        let target = |server: &Value| json!({"type": "server", "server": {"id": server["id"]}, "use_private_ip": true});
        let mut balancer = json!({
            "name": format!("a{}", uid.replace('-', ""))[..32],
            "load_balancer_type": "lb11",
            "location": "fsn1",
            "network": self.sandbox.network(),
            "labels": {SERVICE_UID: uid},
            "services": listeners,
            "targets": servers.iter().map(target).collect::<Vec<_>>(),
        });
        change(&mut balancer);
        let (cloud, project) = (self.sandbox.cloud(), self.sandbox.project());
        let made = cloud.load_balancer(cloud.create_load_balancer(project, balancer));
        let ip = |pointer: &str| json!({"ip": made.pointer(pointer), "ipMode": "VIP"});
        let ingress = match hostname {
            Some(name) => json!([{"hostname": name}]),
            None => json!([
                ip("/public_net/ipv4/ip"),
                ip("/public_net/ipv6/ip"),
                ip("/private_net/0/ip"),
            ]),
        };
        services::edit(&self.sandbox, name, |service| {
            service["metadata"]["finalizers"] = json!([FINALIZER]);
            service["status"]["loadBalancer"]["ingress"] = ingress.clone();
        });
    }

    /// Everything that was left, the Lease aside, and what changes by itself.
    fn world(&self) -> Vec<Value> {
        let (cloud, project) = (self.sandbox.cloud(), self.sandbox.project());
        let cluster = self.sandbox.cluster();
        let mut world = [
            cluster.list("nodes", None),
            cluster.list("services", None),
            cloud.load_balancers(project),
            cloud.networks(project),
            cloud.certificates(project),
            cloud.servers(project),
        ]
        .concat();
        for target in world
            .iter_mut()
            .filter_map(|one| one["targets"].as_array_mut())
            .flatten()
        {
            target["health_status"] = Value::Null;
        }
        world
    }

    /// It is all as it was.
    fn is_as(&self, before: &[Value], why: &str) {
        for (now, before) in self.world().iter().zip(before) {
            assert_eq!(now, before, "{why}");
        }
        assert_eq!(self.world().len(), before.len(), "{why}");
    }

    fn lease(&self, fields: Value) {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": "kube-system"},
        });
        lease["spec"] = fields;
        let cluster = self.sandbox.cluster();
        cluster.create("leases", Some("kube-system"), lease);
    }

    fn balancer(&self, name: &str) -> Value {
        let id = services::balancer_of(&self.sandbox, name);
        self.sandbox.cloud().load_balancer(id)
    }

    /// Looks at Services that were answered, and reads of load balancers.
    fn looks(&self) -> usize {
        let calls = self.sandbox.calls();
        let count = |half: Half, path: &str| {
            calls.count(|call| call.half == half && call.path == path && call.duration.is_some())
        };
        let cloud = count(Half::Hetzner, "/v1/load_balancers");
        cloud.min(count(Half::Kubernetes, "/api/v1/services"))
    }
}

/// Its Lease, as it may be found: held by a Pod that is gone, given away, and never there.
fn leases() -> [(&'static str, Option<Value>); 3] {
    let held = |holder: &str, duration: u32| {
        json!({
            "holderIdentity": holder, "leaseDurationSeconds": duration, "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        })
    };
    [
        ("held", Some(held("master-1_5f2c0e5e", 15))),
        ("given away", Some(held("", 1))),
        ("none", None),
    ]
}

#[test]
fn what_it_left_is_taken_over_without_a_write() {
    common::side_by_side(leases().into(), |(case, lease)| {
        let left = Left::new();
        if let Some(lease) = lease {
            left.lease(lease);
        }
        let before = left.world();
        let ran = ccm(&left.env, &[ITS_WORDS, &["--once"]].concat());
        assert_eq!(ran.code, 0, "{case}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(" 0 changed, "),
            "{case}: {}",
            ran.stderr
        );
        assert_eq!(writes(&left.sandbox), Vec::<String>::new(), "{case}");
        // And the daemon, at start and at each comparison afterwards.
        let often = [
            "--load-balancer-resync-period=10s",
            "--node-status-update-frequency=10s",
        ];
        let daemon = Daemon::start_with(&left.env, &[ITS_WORDS, &often].concat());
        let enough = left.looks() + 3;
        wait_until("looks at everything", || left.looks() >= enough);
        let log = daemon.log();
        assert_eq!(writes(&left.sandbox), Vec::<String>::new(), "{case}: {log}");
        left.is_as(&before, &format!("{case}: {log}"));
        assert!(!log.contains("WARN"), "{case}: {log}");
        // It goes on: what is new is served, and only that is written.
        services::edit(&left.sandbox, "web", |service| {
            service["spec"]["ports"][0]["port"] = json!(81);
        });
        wait_until("the other port", || {
            let web = left.balancer("web");
            let mut ports = web["services"].as_array().unwrap().iter();
            ports.any(|one| one["listen_port"] == 81)
        });
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

/// Object by object, what we write and how that one finds it again.
#[test]
fn what_is_left_for_it_is_what_it_reads() {
    let left = Left::new();
    let daemon = Daemon::start_with(&left.env, ITS_WORDS);
    let (network, joined) = (left.sandbox.network().unwrap(), "worker-4");
    left.sandbox.join(sandbox::hetzner::ServerSpec {
        name: joined.into(),
        networks: vec![(network, None)],
        ..Default::default()
    });
    wait_until("the new node", || {
        common::is_initialised(&node(&left.sandbox, joined))
    });
    let new = services::LoadBalancerService::new("new", &[80]);
    let uid = services::create(&left.sandbox, new)["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap();
    let service = || services::service(&left.sandbox, "new");
    wait_until("its address", || services::has_address(&service()));
    let is_target = |name: &str, id: &Value| {
        let targets = left.balancer(name)["targets"].clone();
        let mut targets = targets.as_array().unwrap().iter();
        targets.any(|one| one["server"]["id"] == *id && one["use_private_ip"] == true)
    };
    let servers = left.servers();
    let server = servers.iter().find(|one| one["name"] == joined).unwrap();
    for name in ["web", "shop", "mail", "new"] {
        wait_until("the new target", || is_target(name, &server["id"]));
    }
    daemon.signal("-TERM");
    assert!(daemon.ended().success(), "{}", daemon.log());

    // The node: its ID is the server's, with that one's labels beside Kubernetes' own.
    let own = node(&left.sandbox, joined);
    assert_eq!(
        own["spec"]["providerID"],
        json!(format!("hcloud://{}", server["id"]))
    );
    let old = node(&left.sandbox, "worker-1");
    for (key, value) in old["metadata"]["labels"].as_object().unwrap() {
        if !key.contains("hostname") {
            assert_eq!(&own["metadata"]["labels"][key], value, "{key}");
        }
    }
    // The Service: finalizer and addresses, and nothing that only we know.
    let service = service();
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
    // The load balancer: found by this label, and by this name.
    assert_eq!(balancer["labels"][SERVICE_UID], uid);
    assert_eq!(balancer["name"], format!("a{}", uid.replace('-', ""))[..32]);
    let foreign = balancer["labels"].as_object().unwrap().keys();
    let foreign: Vec<&String> = foreign
        .filter(|label| *label != SERVICE_UID && !label.starts_with("ccm-from-scratch/"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    // The Lease: empty-handed, so that it is taken at once.
    let cluster = left.sandbox.cluster();
    let lease = cluster.get("leases", Some("kube-system"), LEASE).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 1);
    // No other kind of object was written.
    for write in writes(&left.sandbox) {
        let known = [
            "/nodes/",
            "/services/",
            "/events",
            "/load_balancers",
            "/networks/",
        ];
        assert!(known.iter().any(|part| write.contains(part)), "{write}");
    }
}

/// Somebody forgot a flag, here or there: the nodes are the other profile's, and traffic goes on.
#[test]
fn in_the_wrong_profile_nothing_is_taken_away() {
    let left = Left::new();
    stays(&left, &["run", "--once"], "--cloud-provider=hcloud");

    let sandbox = common::builder().nodes(2).heartbeats(false).start();
    let variables = [("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1")];
    let ours = Left {
        env: common::with(env(&sandbox), &variables),
        sandbox,
    };
    // The nodes first: the first pass of a new cluster looks at Services while they are being initialised.
    assert_eq!(ccm(&ours.env, &["run", "--once"]).code, 0);
    for name in ["web", "shop", "mail"] {
        let new = services::LoadBalancerService::new(name, &[80]);
        services::create(&ours.sandbox, new);
    }
    assert_eq!(ccm(&ours.env, &["run", "--once"]).code, 0);
    ours.sandbox.calls().clear();
    let words = ["run", "--once", "--cloud-provider=hcloud"];
    stays(&ours, &words, "--cloud-provider=ccm-from-scratch");
}

/// These words change nothing but events, and say what to do.
fn stays(left: &Left, words: &[&str], remedy: &str) {
    let before = left.world();
    let ran = ccm(&left.env, words);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    for name in ["web", "shop", "mail"] {
        let line = ran.stderr.lines().find(|line| {
            line.contains("SyncLoadBalancerFailed")
                && line.contains(&format!("service/default/{name}"))
        });
        assert!(
            line.is_some_and(|line| line.contains(remedy)),
            "{name}: {}",
            ran.stderr
        );
    }
    let mut others = writes(&left.sandbox);
    others.retain(|write| !write.contains("/events"));
    assert_eq!(others, Vec::<String>::new(), "{}", ran.stderr);
    left.is_as(&before, &ran.stderr);
}
