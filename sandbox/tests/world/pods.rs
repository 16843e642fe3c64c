//! The health of a load balancer's targets follows the pods of the Service behind the port of the health check.

use sandbox::Sandbox;
use sandbox::hetzner::{Health, Machine, ServerSpec};
use sandbox::kubernetes::Pod;
use serde_json::{Value, json};

/// Returns a sandbox with two Cloud servers and the dedicated server `metal-1`. Most tests in this file begin with a
/// pod on the Cloud server `worker-1`.
fn world() -> Sandbox {
    let builder = Sandbox::builder().nodes(2).robot(1).scale(1e-6);
    builder.network("10.0.0.0/8").heartbeats(false).in_memory().start()
}

/// Creates the Service `web` and returns its node port and its health check node port.
fn create_service(sandbox: &Sandbox, policy: &str) -> (u64, u64) {
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": policy, "ports": ports});
    let service = json!({"metadata": {"name": "web"}, "spec": spec});
    let service = sandbox.cluster().create("services", Some("default"), service);
    let number = |port: &Value| port.as_u64().unwrap_or_default();
    (
        number(&service["spec"]["ports"][0]["nodePort"]),
        number(&service["spec"]["healthCheckNodePort"]),
    )
}

/// Returns an EndpointSlice of the Service `web`. Each pod is a node and the endpoint's conditions.
fn slice(name: &str, pods: &[(&str, Value)]) -> Value {
    let endpoint = |(node, conditions): &(&str, Value)| {
        let node = Some(*node).filter(|node| !node.is_empty());
        json!({"addresses": ["10.244.1.2"], "nodeName": node, "conditions": conditions})
    };
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn put(sandbox: &Sandbox, slice: Value) {
    sandbox.cluster().create("endpointslices", Some("default"), slice);
}

/// Creates a load balancer that checks all three machines by this protocol at this port, and returns its ID.
fn create_balancer(sandbox: &Sandbox, destination: u64, protocol: &str, port: u64) -> u64 {
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    let mut targets: Vec<Value> = cloud
        .servers(project)
        .iter()
        .map(|server| json!({"type": "server", "server": {"id": server["id"]}}))
        .collect();
    let dedicated = sandbox.robot().servers()[0].server_ip.clone();
    targets.push(json!({"type": "ip", "ip": {"ip": dedicated}}));
    let check =
        json!({"protocol": protocol, "port": port, "interval": 15, "timeout": 10, "retries": 3});
    let service = json!({
        "protocol": "tcp", "listen_port": 80, "destination_port": destination, "health_check": check,
    });
    let name = format!("lb-{}", cloud.load_balancers(project).len());
    cloud.create_load_balancer(project, json!({
        "name": name, "load_balancer_type": "lb11", "location": "fsn1", "services": [service], "targets": targets,
    }))
}

/// Returns what is wrong with `worker-1`, `worker-2` and `metal-1`. A healthy target has an empty text.
fn health(sandbox: &Sandbox, balancer: u64) -> [String; 3] {
    let shown = sandbox.cloud().load_balancer(balancer);
    [0, 1, 2].map(|target| {
        let entry = &shown["targets"][target]["health_status"][0];
        match (entry["status"].as_str(), entry["http_status_code"].as_u64()) {
            (Some("healthy"), None) => String::new(),
            (_, Some(code)) => format!("{} {code}", entry["detail"].as_str().unwrap_or_default()),
            _ => entry["detail"].as_str().unwrap_or("unknown").to_owned(),
        }
    })
}

fn ready() -> Value {
    json!({"ready": true, "serving": true, "terminating": false})
}

fn not_ready() -> Value {
    json!({"ready": false, "serving": false, "terminating": false})
}

fn draining() -> Value {
    json!({"ready": false, "serving": true, "terminating": true})
}

fn ended() -> Value {
    json!({"ready": false, "serving": false, "terminating": true})
}

#[test]
fn a_target_is_as_healthy_as_kube_proxy_answers_at_the_port() {
    let (timeout, refused, status) =
        ("layer4_timeout", "layer4_no_connection", "unexpected_http_status 503");
    // The pods, and what is wrong with the three targets: at the port with the policy Local, at the health check node
    // port, and at the port with the policy Cluster.
    let none = ["", "", ""];
    let cases = [
        (vec![], [refused; 3], [status; 3], [refused; 3]),
        (vec![("worker-1", ready())], ["", timeout, timeout], ["", status, status], none),
        (vec![("worker-1", json!({}))], ["", timeout, timeout], ["", status, status], none),
        (vec![("metal-1", ready())], [timeout, timeout, ""], [status, status, ""], none),
        (vec![("worker-1", not_ready())], [refused; 3], [status; 3], [refused; 3]),
        (vec![("worker-1", ended())], [refused; 3], [status; 3], [refused; 3]),
        (vec![("worker-1", draining())], ["", timeout, timeout], [status; 3], none),
        (
            vec![("worker-1", draining()), ("worker-2", ready())],
            ["", "", timeout],
            [status, "", status],
            none,
        ),
        (
            vec![("worker-1", draining()), ("worker-1", ready()), ("worker-2", not_ready())],
            ["", timeout, timeout],
            ["", status, status],
            none,
        ),
        (vec![("", ready())], [timeout; 3], [status; 3], none),
    ];
    for (pods, local, checked, cluster) in cases {
        let sandbox = world();
        let (port, check) = create_service(&sandbox, "Local");
        let at_port = create_balancer(&sandbox, port, "tcp", port);
        let by_http = create_balancer(&sandbox, port, "http", port);
        let at_check = create_balancer(&sandbox, port, "http", check);
        let by_tcp = create_balancer(&sandbox, port, "tcp", check);
        let elsewhere = create_balancer(&sandbox, port, "http", 10256);
        for balancer in [at_port, by_http, at_check, by_tcp, elsewhere] {
            assert_eq!(health(&sandbox, balancer), none, "without a slice");
        }
        put(&sandbox, slice("web-1", &pods));
        assert_eq!(health(&sandbox, at_port), local, "Local {pods:?}");
        assert_eq!(health(&sandbox, by_http), local, "Local by HTTP {pods:?}");
        assert_eq!(health(&sandbox, at_check), checked, "health check {pods:?}");
        assert_eq!(health(&sandbox, by_tcp), none, "health check by TCP {pods:?}");
        assert_eq!(health(&sandbox, elsewhere), none, "another port {pods:?}");
        sandbox.cluster().edit("services", Some("default"), "web", |service| {
            service["spec"]["externalTrafficPolicy"] = json!("Cluster");
        });
        assert_eq!(health(&sandbox, at_port), cluster, "Cluster {pods:?}");
    }
}

#[test]
fn only_slices_of_the_service_and_its_port_count() {
    let sandbox = world();
    sandbox.cluster().create("namespaces", None, json!({"metadata": {"name": "shop"}}));
    let (port, _) = create_service(&sandbox, "Local");
    let balancer = create_balancer(&sandbox, port, "tcp", port);
    let (none, timeout) = (["", "", ""], "layer4_timeout");
    let with = |field: &str, value: Value| {
        let mut slice = slice("odd", &[("worker-2", ready())]);
        slice[field] = value;
        slice
    };
    let labels = json!({"name": "odd", "labels": {"kubernetes.io/service-name": "other"}});
    let mut ipv6 = with("addressType", json!("IPv6"));
    ipv6["endpoints"][0]["addresses"] = json!(["fd00::2"]);
    let cases = [
        ("shop", slice("odd", &[("worker-2", ready())])),
        ("default", with("metadata", labels)),
        ("default", ipv6),
    ];
    for (namespace, slice) in &cases {
        sandbox.cluster().create("endpointslices", Some(namespace), slice.clone());
        assert_eq!(health(&sandbox, balancer), none, "{slice}");
        assert!(sandbox.cluster().delete("endpointslices", Some(namespace), "odd"));
    }
    put(&sandbox, slice("web-1", &[("worker-1", ready())]));
    assert_eq!(health(&sandbox, balancer), ["", timeout, timeout]);
    for ports in [json!([{"name": "other", "port": 8080}]), json!([{"name": "http"}]), json!([])] {
        put(&sandbox, with("ports", ports.clone()));
        assert_eq!(health(&sandbox, balancer), ["", timeout, timeout], "{ports}");
        sandbox.cluster().delete("endpointslices", Some("default"), "odd");
    }
    put(&sandbox, slice("web-2", &[("worker-2", ready())]));
    assert_eq!(health(&sandbox, balancer), ["", "", timeout]);
    sandbox.cluster().delete("endpointslices", Some("default"), "web-1");
    assert_eq!(health(&sandbox, balancer), [timeout, "", timeout]);
    sandbox.cluster().delete("services", Some("default"), "web");
    assert_eq!(health(&sandbox, balancer), none);
}

#[test]
fn pods_do_not_matter_on_a_machine_that_is_off_or_has_no_node() {
    let sandbox = world();
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    let (port, _) = create_service(&sandbox, "Local");
    let bastion = cloud
        .create_server(project, ServerSpec { name: "bastion".into(), ..ServerSpec::default() });
    let balancer = create_balancer(&sandbox, port, "tcp", port);
    put(&sandbox, slice("web-1", &[("worker-1", ready())]));
    let status = |target: usize| {
        let shown = cloud.load_balancer(balancer);
        shown["targets"][target]["health_status"][0]["status"].clone()
    };
    let id = |target: usize| cloud.servers(project)[target]["id"].clone();
    assert_eq!((id(2), status(2)), (json!(bastion), json!("healthy")));
    let worker = id(0).as_u64().unwrap_or_default();
    cloud.set_power(worker, false);
    assert_eq!(status(0), "unhealthy");
    cloud.set_health(balancer, Machine::Server(worker), None, Some(Health::healthy()));
    assert_eq!(status(0), "healthy", "a test decides before everything else");
}

#[test]
fn a_rollout_moves_the_health_from_node_to_node() {
    let sandbox = world();
    let (port, check) = create_service(&sandbox, "Local");
    let at_port = create_balancer(&sandbox, port, "tcp", port);
    let at_check = create_balancer(&sandbox, port, "http", check);
    let (timeout, status) = ("layer4_timeout", "unexpected_http_status 503");
    let (first, second) = ("worker-1", "worker-2");
    // The pods, and what is wrong with the targets at the port and at the health check node port.
    let steps = [
        (vec![(first, Pod::Ready)], ["", timeout, timeout], ["", status, status]),
        (
            vec![(first, Pod::Ready), (second, Pod::NotReady)],
            ["", timeout, timeout],
            ["", status, status],
        ),
        (
            vec![(first, Pod::Terminating), (second, Pod::Ready)],
            ["", "", timeout],
            [status, "", status],
        ),
        (
            vec![(first, Pod::TerminatingNotReady), (second, Pod::Ready)],
            [timeout, "", timeout],
            [status, "", status],
        ),
        (vec![(second, Pod::Ready)], [timeout, "", timeout], [status, "", status]),
        (vec![], ["layer4_no_connection"; 3], [status; 3]),
    ];
    for (pods, local, checked) in steps {
        sandbox.cluster().set_endpoints("default", "web", &pods);
        assert_eq!(health(&sandbox, at_port), local, "{pods:?}");
        assert_eq!(health(&sandbox, at_check), checked, "{pods:?}");
    }
    sandbox.cluster().remove_endpoints("default", "web");
    assert_eq!(health(&sandbox, at_port), ["", "", ""]);
}

#[test]
fn kubelets_keep_the_marks_of_other_controllers() {
    let sandbox = world();
    let cluster = sandbox.cluster();
    cluster.set_condition("worker-1", "DrainInProgress", "True");
    cluster.set_condition("worker-1", "Ready", "False");
    cluster.set_cordoned("worker-1", true);
    sandbox.kubelets().heartbeat();
    let node = cluster.get("nodes", None, "worker-1").unwrap();
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let status = |kind: &str| {
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        found.map(|condition| condition["status"].clone()).unwrap_or_default()
    };
    assert_eq!((status("DrainInProgress"), status("Ready")), (json!("True"), json!("True")));
    assert_eq!(node["spec"]["unschedulable"], true);
}

#[test]
fn a_restored_cluster_has_its_old_pods() {
    let sandbox = world();
    let (port, _) = create_service(&sandbox, "Local");
    let balancer = create_balancer(&sandbox, port, "tcp", port);
    let timeout = "layer4_timeout";
    let backup = sandbox.cluster().backup();
    put(&sandbox, slice("web-1", &[("worker-1", ready())]));
    assert_eq!(health(&sandbox, balancer), ["", timeout, timeout]);
    sandbox.cluster().restore(&backup);
    put(&sandbox, slice("web-1", &[("worker-2", ready())]));
    assert_eq!(health(&sandbox, balancer), [timeout, "", timeout]);
    sandbox.cluster().restore(&backup);
    assert_eq!(health(&sandbox, balancer), ["", "", ""]);
}
