//! Serving certificates of kubelets: what the cloud proves is approved, and everything else stays pending. The whole
//! program runs in simulated time.

use crate::common::{self, Cluster, Simulate, answer, on, pass, wait_until};
use sandbox::Sandbox;
use sandbox::kubelet::{CertificateAsk, sign_approved};
use serde_json::{Value, json};
use std::time::Duration;

const ON: &str = "--controllers=*,node-csr-approval";
const REQUESTS: &str = "certificatesigningrequests";
const MINUTE: Duration = Duration::from_secs(60);

/// Gives ccm the rights of `manifests/components/kubelet-certificates`.
fn grant(sandbox: &Sandbox) {
    sandbox.cluster().grant("ccm", common::component_rules("kubelet-certificates"));
}

/// Starts a sandbox with this number of initialised nodes, in which ccm may approve certificates.
fn initialised(nodes: usize) -> std::sync::Arc<Sandbox> {
    let sandbox =
        common::builder().nodes(nodes).network("10.0.0.0/8").heartbeats(false).simulated();
    sandbox.converge();
    grant(&sandbox);
    sandbox
}

fn request(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.cluster().get(REQUESTS, None, name).unwrap()
}

fn is_approved(sandbox: &Sandbox, name: &str) -> bool {
    let conditions = request(sandbox, name)["status"]["conditions"].clone();
    let conditions = conditions.as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == "Approved")
}

/// Asks like an honest kubelet: for the node's name and all addresses in its status.
fn ask(sandbox: &Sandbox, node: &str) -> String {
    let mut names = vec![node.to_owned()];
    names.extend(common::addresses(&sandbox.node(node)).into_iter().filter_map(|address| {
        let ip = address.split(['=', ' ']).next_back()?.to_owned();
        ip.parse::<std::net::IpAddr>().ok().map(|_| ip)
    }));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    CertificateAsk::of(node, &names).create(sandbox.cluster())
}

#[test]
fn an_honest_request_is_approved_once_and_nothing_else_of_it_changes() {
    let sandbox = initialised(2);
    let _daemon = sandbox.daemon(&[ON]);
    let name = ask(&sandbox, "worker-1");
    sandbox.cluster().edit(REQUESTS, None, &name, |it| {
        it["metadata"]["labels"] = json!({ "a": "b" });
    });
    let before = request(&sandbox, &name);
    let mark = sandbox.mark();
    wait_until("the approval", || is_approved(&sandbox, &name));
    sandbox.wait_for_event("worker-1", "KubeletCertificateApproved", &[&name]);
    let after = request(&sandbox, &name);
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
    let condition = &after["status"]["conditions"][0];
    assert_eq!(condition["reason"], "AddressesProven");
    common::contains(&condition["message"].to_string(), "worker-1 (");
    // Nobody signs on a real API server without kube-controller-manager.
    if !sandbox.cluster().is_real() {
        sign_approved(sandbox.cluster());
    }
    pass(&sandbox, MINUTE);
    let approvals =
        sandbox.calls_of(mark, &format!("/apis/certificates.k8s.io/v1/{REQUESTS}/{name}/approval"));
    assert_eq!(approvals, 1);
    sandbox.assert_nothing_refused();
}

#[test]
fn what_the_cloud_does_not_state_stays_pending_and_the_event_says_what() {
    let sandbox = initialised(2);
    let _daemon = sandbox.daemon(&[ON]);
    let other = sandbox.ip("worker-2");
    let ask = CertificateAsk::of("worker-1", &["worker-1", &other]);
    let names = [
        ask.create(sandbox.cluster()),
        CertificateAsk { node: "worker-2".into(), ..ask }.create(sandbox.cluster()),
    ];
    sandbox.wait_for_event(
        "worker-1",
        "KubeletCertificateNotProven",
        &[&other, &format!("kubectl certificate approve {}", names[0])],
    );
    sandbox.wait_for_event("worker-2", "KubeletCertificateNotProven", &["the common name"]);
    pass(&sandbox, MINUTE);
    for name in &names {
        assert!(request(&sandbox, name)["status"]["conditions"].is_null(), "never denied");
    }
    // A new request of the same node that is proven is approved. The older one is not looked at any more.
    let good = self::ask(&sandbox, "worker-1");
    wait_until("the approval", || is_approved(&sandbox, &good));
    assert!(!is_approved(&sandbox, &names[0]));
}

#[test]
fn a_node_gets_ten_certificates_an_hour_and_its_events_are_few() {
    let sandbox = initialised(1);
    let _daemon = sandbox.daemon(&[ON]);
    for _ in 0..10 {
        let name = ask(&sandbox, "worker-1");
        wait_until("the approval", || is_approved(&sandbox, &name));
        pass(&sandbox, Duration::from_secs(1));
    }
    for _ in 0..5 {
        let name = ask(&sandbox, "worker-1");
        pass(&sandbox, Duration::from_secs(20));
        assert!(!is_approved(&sandbox, &name));
    }
    let events = sandbox.event_messages("worker-1", "KubeletCertificateNotProven");
    assert_eq!(events.len(), 1, "{events:?}");
    // The API server deletes requests an hour after their approval.
    for request in sandbox.cluster().list(REQUESTS, None) {
        sandbox.cluster().delete(REQUESTS, None, request["metadata"]["name"].as_str().unwrap());
    }
    let name = ask(&sandbox, "worker-1");
    wait_until("the approval", || is_approved(&sandbox, &name));
}

#[test]
fn the_list_of_servers_is_newer_than_the_request_and_shared() {
    let sandbox = initialised(3);
    let _daemon = sandbox.daemon(&[ON]);
    pass(&sandbox, MINUTE);
    let mark = sandbox.mark();
    // The address of the first node moves to the second, and its kubelet asks for it at once.
    let address = sandbox.ip("worker-1");
    let names: Vec<String> = (1..=3).map(|n| ask(&sandbox, &format!("worker-{n}"))).collect();
    sandbox.edit_server("worker-1", |server| {
        server["public_net"]["ipv4"] = Value::Null;
    });
    sandbox.edit_server("worker-2", |server| {
        server["public_net"]["ipv4"]["ip"] = json!(address);
    });
    wait_until("the approval", || is_approved(&sandbox, &names[2]));
    pass(&sandbox, MINUTE);
    assert!(!is_approved(&sandbox, &names[0]) && !is_approved(&sandbox, &names[1]));
    assert!(
        sandbox.calls_of(mark, "/v1/servers") <= 3,
        "{}",
        sandbox.calls_of(mark, "/v1/servers")
    );
}

#[test]
fn after_a_conflict_the_request_is_read_and_decided_anew() {
    let sandbox = initialised(1);
    let name = ask(&sandbox, "worker-1");
    let path = format!("/apis/certificates.k8s.io/v1/{REQUESTS}/{name}/approval");
    let denied = name.clone();
    let deny = common::before(&sandbox, move |sandbox| {
        sandbox.cluster().edit(REQUESTS, None, &denied, |it| {
            it["status"] = json!({ "conditions": [{ "type": "Denied", "status": "True" }] });
        });
    });
    sandbox.fault(on(&format!("PUT {path}"), deny).times(1));
    let _daemon = sandbox.daemon(&[ON]);
    pass(&sandbox, MINUTE);
    assert!(!is_approved(&sandbox, &name), "a person was first");
}

#[test]
fn without_the_rights_the_daemon_works_and_says_what_is_missing() {
    let sandbox = common::builder().nodes(1).heartbeats(false).simulated();
    let name = CertificateAsk::of("worker-1", &["worker-1"]).create(sandbox.cluster());
    let daemon = sandbox.daemon(&[ON]);
    wait_until("the node", || common::all_initialised(&sandbox));
    pass(&sandbox, 3 * MINUTE);
    assert!(!is_approved(&sandbox, &name));
    let command = "kubectl apply -k manifests/components/kubelet-certificates";
    daemon.logged(command, 1);
    let doctor = common::one_line(&sandbox.ccm(&["doctor", ON]).with_code(1).stdout);
    assert!(doctor.contains("list certificatesigningrequests"), "{doctor}");
    grant(&sandbox);
    wait_until("the approval", || is_approved(&sandbox, &name));
}

#[test]
fn nothing_is_read_without_the_setting() {
    let sandbox = initialised(1);
    let mark = sandbox.mark();
    let name = ask(&sandbox, "worker-1");
    let _daemon = sandbox.daemon(&["--controllers=*"]);
    pass(&sandbox, 5 * MINUTE);
    assert!(!is_approved(&sandbox, &name));
    assert_eq!(sandbox.calls_of(mark, &format!("/apis/certificates.k8s.io/v1/{REQUESTS}")), 0);
}

/// A kubelet asks anew every 15 minutes, so its first request says since when it has waited.
#[test]
fn without_the_setting_doctor_says_that_no_controller_approves() {
    let sandbox = common::builder().nodes(7).heartbeats(false).simulated();
    if common::needs_simulation(&sandbox, "requests that wait for minutes") {
        return;
    }
    let _daemon = sandbox.daemon(&[]);
    wait_until("the nodes", || common::all_initialised(&sandbox));
    let doctor = || common::one_line(&sandbox.ccm(&["doctor"]).stdout);
    ask(&sandbox, "worker-1");
    pass(&sandbox, 15 * MINUTE);
    for number in 1..=7 {
        ask(&sandbox, &format!("worker-{number}"));
    }
    CertificateAsk::of("worker-9", &["worker-9"]).create(sandbox.cluster());
    pass(&sandbox, 2 * MINUTE);
    let without_right = doctor();
    assert!(!without_right.contains("certificate"), "{without_right}");
    grant(&sandbox);
    let mark = sandbox.mark();
    common::contains(
        &doctor(),
        "warn certificates certificate requests of kubelets stay pending, because no controller approves them: worker-1 for 17m, \
         worker-2 for 2m, worker-3 for 2m, worker-4 for 2m, worker-5 for 2m and 3 more",
    );
    let fix = "add node-csr-approval to --controllers and apply manifests/components/kubelet-certificates";
    common::contains(&doctor(), fix);
    let reads = || sandbox.calls_of(mark, &format!("/apis/certificates.k8s.io/v1/{REQUESTS}"));
    assert_eq!(reads(), 2, "one table for each doctor");
    // Neither the daemon nor another command reads them.
    sandbox.ccm(&["status"]);
    sandbox.ccm(&["node", "list"]);
    pass(&sandbox, 5 * MINUTE);
    assert_eq!(reads(), 2);
    // Somebody else approves them.
    for request in sandbox.cluster().list(REQUESTS, None) {
        let name = request["metadata"]["name"].as_str().unwrap();
        sandbox.cluster().edit(REQUESTS, None, name, |it| {
            it["status"] = json!({ "conditions": [{ "type": "Approved", "status": "True" }] });
        });
    }
    ask(&sandbox, "worker-1");
    let approved = doctor();
    assert!(!approved.contains("certificate"), "{approved}");
}

#[test]
fn with_ten_thousand_requests_more_nothing_is_approved() {
    let sandbox = initialised(1);
    let name = ask(&sandbox, "worker-1");
    let mut object = CertificateAsk::of("worker-9", &["worker-9"]).object();
    for number in 0..10_000 {
        object["metadata"] = json!({ "name": format!("csr-many-{number}") });
        sandbox.cluster().create(REQUESTS, None, object.clone());
    }
    let daemon = sandbox.daemon(&[ON]);
    wait_until("the finding", || {
        daemon.log().contains("certificatesigningrequest: there are more than 10000")
    });
    pass(&sandbox, MINUTE);
    assert!(!is_approved(&sandbox, &name));
    sandbox.ccm(&["run", "--dry-run", ON]).with_code(1).prints("more than 10000");
}

#[test]
fn a_list_that_fails_approves_nothing() {
    let sandbox = initialised(1);
    let fault = sandbox.fault(on("GET /v1/servers", answer(503, &json!({}))));
    let _daemon = sandbox.daemon(&[ON]);
    let name = ask(&sandbox, "worker-1");
    pass(&sandbox, 2 * MINUTE);
    assert!(!is_approved(&sandbox, &name));
    sandbox.faults().remove(fault);
    wait_until("the approval", || is_approved(&sandbox, &name));
}

#[test]
fn commands_show_and_do_what_the_daemon_would_do() {
    let sandbox = initialised(2);
    let good = ask(&sandbox, "worker-1");
    let bad = CertificateAsk::of("worker-2", &["worker-2", "192.0.2.9"]).create(sandbox.cluster());
    let plan = sandbox.ccm(&["node", "sync", "--dry-run", ON]).with_code(1);
    plan.prints(&format!("certificatesigningrequest/{good}  add approval (server worker-1 ("));
    plan.prints(&format!("certificatesigningrequest/{bad}  blocked: certificate request {bad}"));
    let inspection = sandbox.ccm(&["node", "inspect", "worker-2", ON]);
    inspection.prints("NEWEST CERTIFICATE REQUEST (= proven, ~ not proven)");
    inspection.prints("= worker-2");
    inspection.prints("~ 192.0.2.9: the cloud's API does not list this address");
    inspection.prints("KubeletCertificateNotProven");
    sandbox
        .ccm(&["node", "sync", "worker-1", ON])
        .with_code(0)
        .prints("approval: added (server worker-1 (");
    assert!(is_approved(&sandbox, &good));
    if common::needs_simulation(&sandbox, "requests that were created some minutes ago") {
        return;
    }
    pass(&sandbox, 16 * MINUTE);
    let doctor = common::one_line(&sandbox.ccm(&["doctor", ON]).stdout);
    let late = format!("certificate for 16m, and certificate request {bad} stays pending");
    common::contains(&doctor, &late);
    common::contains(&doctor, &format!("{good} is approved, but its certificate was not issued"));
    let status = common::one_line(&sandbox.ccm(&["status", ON]).stdout);
    common::contains(&status, "1 waiting for a certificate for 15 min or longer");
    sandbox.ccm(&["run", "--once", ON]).with_code(1);
    assert!(!is_approved(&sandbox, &bad));
    let plan = sandbox.ccm(&["node", "sync", "--dry-run", "-o", "json", ON]);
    common::contains(&plan.stdout, "KubeletCertificateNotProven");
}
