//! The clients below the controllers: the gate before every write, retries, tokens, long lists, and limits.

use crate::common::library::http_settings;
use crate::common::objects::{connection, settings};
use crate::common::{Cluster, variable};
use ccm::hetzner::{AddressFamily, CloudConnection, Hetzner, HetznerSettings, NetworkSelector};
use ccm::http::{self, HttpErrorKind, Method, Proxies, Secret, SecretSource, Timing};
use ccm::kube::{self, ReadFrom, config};
use ccm::provider::{ErrorKind, Gate, OpenGate, Provider, Refused, Urgency};
use sandbox::calls::Call;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const TIMING: Timing = Timing {
    read_timeout: Duration::from_secs(5),
    write_timeout: http::WRITE_TIMEOUT,
    retry_wait: Duration::from_millis(1),
};

/// Counts what passes, and lets through the first so many.
struct Counter {
    passed: AtomicUsize,
    at_most: usize,
}

impl Counter {
    fn new(at_most: usize) -> Arc<Counter> {
        Arc::new(Counter { passed: AtomicUsize::new(0), at_most })
    }

    fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Gate for Counter {
    fn pass(&self, what: &str) -> Result<(), Refused> {
        assert!(what.starts_with("PATCH /api/v1/nodes/") || what.starts_with("POST /"), "{what}");
        if self.passed() == self.at_most {
            return Err(Refused("the test says no".into()));
        }
        self.passed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn kube_client(sandbox: &Sandbox) -> kube::KubeClient {
    kube_client_of(sandbox, Arc::new(OpenGate))
}

fn kube_client_of(sandbox: &Sandbox, gate: Arc<dyn Gate>) -> kube::KubeClient {
    let env = sandbox.env_of("ccm");
    let options = config::Options {
        kubeconfig: vec![variable(&env, "KUBECONFIG").into()],
        ..config::Options::default()
    };
    let config = config::load(&options).unwrap();
    kube::KubeClient::new(config, Proxies::Never, TIMING, gate)
}

fn hetzner(sandbox: &Sandbox, network: Option<NetworkSelector>) -> Hetzner {
    Hetzner::new(HetznerSettings {
        connection: CloudConnection {
            endpoint: sandbox.hetzner_url(),
            token: SecretSource::fixed(Secret::new(&sandbox.projects().token)),
            timing: TIMING,
            ..connection()
        },
        network,
        ..settings(AddressFamily::Ipv4)
    })
}

/// A plain client of the Hetzner half.
fn plain(sandbox: &Sandbox, token: SecretSource, body_limit_bytes: u64) -> http::HttpClient {
    plain_of(sandbox, token, body_limit_bytes, Arc::new(OpenGate))
}

fn plain_of(
    sandbox: &Sandbox,
    token: SecretSource,
    body_limit_bytes: u64,
    gate: Arc<dyn Gate>,
) -> http::HttpClient {
    http::HttpClient::new(http::HttpSettings {
        body_limit_bytes,
        gate,
        ..http_settings(sandbox.hetzner_url(), token, TIMING.read_timeout)
    })
}

fn patch() -> Value {
    json!({ "metadata": { "labels": { "a": "b" } } })
}

#[test]
fn a_write_that_the_gate_refuses_never_leaves() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    let client = kube_client_of(&sandbox, Counter::new(0));
    let error = client.patch_node("worker-1", &patch()).unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("not sent: the test says no"),
        "{error}"
    );
    assert_eq!(sandbox.calls().count(|call| call.is_write()), 0);
}

#[test]
fn a_write_is_sent_once_whatever_the_answer_is() {
    let answers = [
        Effect::Reset,
        Effect::AnswerLost,
        Effect::cut_off(),
        Effect::Malformed,
        Effect::gateway_timeout(),
        Effect::kubernetes_busy(1),
        Effect::kubernetes_status(500, "InternalError", "sorry"),
    ];
    for answer in answers {
        let sandbox = Sandbox::builder().heartbeats(false).start();
        sandbox.fault(Rule::new(answer).half(Half::Kubernetes).writes());
        let gate = Counter::new(10);
        let client = kube_client_of(&sandbox, Arc::clone(&gate) as _);
        assert!(client.patch_node("worker-1", &patch()).is_err());
        assert_eq!((gate.passed(), sandbox.calls().count(|call| call.is_write())), (1, 1));
    }
}

#[test]
fn a_write_refused_for_its_token_passes_the_gate_again_with_the_new_one() {
    let sandbox = Sandbox::builder().only(Half::Hetzner).nodes(0).start();
    let file = sandbox.folder().join("token");
    std::fs::write(&file, "old").unwrap();
    // The file is replaced while the first try is under way.
    let (new, path) = (sandbox.projects().token.clone(), file.clone());
    let replace = move |_: &Request| std::fs::write(&path, &new).unwrap();
    sandbox.fault(Rule::new(Effect::before(replace)).nth(1));
    let gate = Counter::new(2);
    let token = SecretSource::file(file, None);
    let client = plain_of(&sandbox, token, 1 << 20, Arc::clone(&gate) as _);
    let network = json!({ "name": "new", "ip_range": "10.0.0.0/16" });
    let write = http::HttpWrite {
        pass: <dyn Gate>::pass,
        method: Method::Post,
        path: "/networks",
        content_type: "application/json",
        secrets: &[],
    };
    let reply = client.write::<Value>(write, Some(&network)).unwrap();
    assert_eq!(reply.value["network"]["name"], "new");
    let calls = sandbox.calls().calls();
    let statuses: Vec<_> = calls.iter().map(|call| call.status).collect();
    assert_eq!((gate.passed(), statuses), (2, vec![Some(401), Some(201)]));
}

#[test]
fn a_read_is_tried_three_times_at_most() {
    let sandbox = Sandbox::builder().only(Half::Hetzner).nodes(1).start();
    let client = hetzner(&sandbox, None);
    let list = || client.instances().unwrap().list(Urgency::Needed);
    let rule = sandbox.fault(Rule::new(Effect::Reset).times(2));
    assert_eq!(list().unwrap().len(), 1, "two failures heal");
    assert_eq!((sandbox.faults().hits(rule), client.calls()), (2, 3));
    sandbox.fault(Rule::new(Effect::Reset));
    assert_eq!(list().unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(client.calls(), 6);
}

/// A 429 of Hetzner goes to the budget, which pauses all calls. One of Kubernetes concerns only this call.
#[test]
fn a_429_is_retried_only_where_no_budget_is_kept() {
    for (half, calls) in [(Half::Hetzner, 1), (Half::Kubernetes, 2)] {
        let sandbox = Sandbox::builder().nodes(1).heartbeats(false).start();
        let answer = match half {
            Half::Hetzner => {
                let body = json!({ "error": { "code": "rate_limit_exceeded", "message": "wait" } });
                let answer = Response::json(429, &body);
                Effect::Instead(answer.with_header("Retry-After", "1"))
            }
            Half::Kubernetes => Effect::kubernetes_busy(1),
            Half::Robot => unreachable!("no case"),
        };
        sandbox.fault(Rule::new(answer).half(half).times(1));
        match half {
            Half::Hetzner => {
                let client = hetzner(&sandbox, None);
                let error = client.instances().unwrap().list(Urgency::Needed);
                let kind = error.unwrap_err().kind;
                assert!(matches!(kind, ErrorKind::RateLimited { .. }), "{kind:?}");
            }
            Half::Kubernetes => {
                let nodes = kube_client(&sandbox).nodes(ReadFrom::Latest);
                assert_eq!(nodes.unwrap().len(), 1);
            }
            Half::Robot => unreachable!("no case"),
        }
        let made = sandbox.calls().count(|call| call.half == half);
        assert_eq!(made, calls, "{half}");
    }
}

#[test]
fn a_long_list_is_read_in_pages_and_again_when_it_expires() {
    let builder = Sandbox::builder().only(Half::Kubernetes).nodes(0);
    let sandbox = builder.heartbeats(false).start();
    for n in 0..1_100 {
        let node = json!({ "metadata": { "name": format!("n-{n:04}") } });
        sandbox.cluster().create("nodes", None, node);
    }
    let client = kube_client(&sandbox);
    let pages = || sandbox.calls().count(|call| call.path == "/api/v1/nodes");
    let read = |from| (client.nodes(from).unwrap().len(), pages());
    assert_eq!(read(ReadFrom::Latest), (1_100, 3));
    assert_eq!(read(ReadFrom::Cache), (1_100, 4), "one answer");

    let cluster = Arc::clone(sandbox.cluster());
    let expire = move |_: &Request| cluster.expire_continue_tokens();
    let continued = |request: &Request| request.query("continue").is_some();
    let rule = sandbox.fault(Rule::new(Effect::before(expire)).when(continued).times(1));
    sandbox.calls().clear();
    assert_eq!(read(ReadFrom::Latest), (1_100, 2 + 3));
    sandbox.faults().remove(rule);

    let cluster = Arc::clone(sandbox.cluster());
    let expire = move |_: &Request| cluster.expire_continue_tokens();
    sandbox.fault(Rule::new(Effect::before(expire)).when(continued));
    sandbox.calls().clear();
    let error = client.nodes(ReadFrom::Latest).unwrap_err();
    assert!(error.is_expired() && pages() == 3 * 2, "{error}: {} pages", pages());
}

/// Servers are deleted and created before each page is read.
#[test]
fn a_list_that_changes_while_it_is_read_misses_no_server() {
    let sandbox = Sandbox::builder().only(Half::Hetzner).nodes(120).start();
    let client = hetzner(&sandbox, None);
    let list = || {
        let instances = client.instances().unwrap().list(Urgency::Needed);
        instances.map(|all| all.iter().map(|one| one.id.number()).collect::<Vec<_>>())
    };
    let pages = || {
        let calls = sandbox.calls().calls();
        let page = |call: &Call| {
            let (_, page) = call.query.iter().find(|(name, _)| name == "page").unwrap();
            page.parse().unwrap()
        };
        calls.iter().map(page).collect::<Vec<u32>>()
    };
    let ids = list().unwrap();
    assert_eq!((ids.len(), pages()), (120, vec![1, 3, 2, 1]));

    sandbox.calls().clear();
    let cloud = Arc::clone(sandbox.cloud());
    let (project, there, count) = (sandbox.project(), ids.clone(), AtomicUsize::new(0));
    let change = move |_: &Request| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        cloud.delete_server(there[n]);
        let name = format!("made-{n}");
        let spec = ServerSpec::default();
        cloud.create_server(project, ServerSpec { name, ..spec });
    };
    sandbox.fault(Rule::new(Effect::before(change)));
    let after = list().unwrap();
    assert_eq!(pages(), [1, 3, 2, 1], "nothing is begun anew");
    for id in &ids[4..] {
        assert!(after.contains(id), "server {id} slipped through");
    }
}

/// An empty list that is not said to be the whole one is no empty project.
#[test]
fn a_list_without_its_pagination_is_an_error() {
    let sandbox = Sandbox::builder().only(Half::Hetzner).nodes(1).start();
    let client = hetzner(&sandbox, None);
    let full = json!({ "page": 1, "per_page": 50, "previous_page": null, "next_page": null,
        "last_page": 1, "total_entries": 0 });
    let without = |field: &str| {
        let mut pagination = full.clone();
        pagination.as_object_mut().unwrap().remove(field);
        pagination
    };
    for (pagination, is_whole) in [
        (full.clone(), true),
        (json!({ "page": 1 }), false),
        (without("next_page"), false),
        (without("last_page"), false),
        (without("page"), false),
        (json!({}), false),
    ] {
        let body = json!({ "servers": [], "meta": { "pagination": pagination } });
        let answer = Response::json(200, &body);
        let rule = sandbox.fault(Rule::new(Effect::Instead(answer)));
        let outcome = client.instances().unwrap().list(Urgency::Needed);
        assert_eq!(outcome.is_ok(), is_whole, "{pagination}: {outcome:?}");
        sandbox.faults().remove(rule);
    }
}

#[test]
fn an_answer_that_is_too_long_or_elsewhere_is_an_error() {
    let sandbox = Sandbox::builder().only(Half::Hetzner).nodes(50).start();
    let token = || SecretSource::fixed(Secret::new(&sandbox.projects().token));
    let small = plain(&sandbox, token(), 10_000);
    let error = small.get::<Value>("/servers?per_page=50").unwrap_err();
    assert!(
        matches!(error.kind, HttpErrorKind::TooLarge(10_000))
            && error.to_string().contains("longer than 10000 bytes"),
        "{error}"
    );

    let moved = Response {
        status: 302,
        headers: vec![("Location".into(), format!("{}/servers", sandbox.hetzner_url()))],
        body: Vec::new(),
    };
    sandbox.fault(Rule::new(Effect::Instead(moved)));
    let outcome = plain(&sandbox, token(), 1 << 20).get::<Value>("/servers");
    let status = outcome.unwrap_err().status();
    assert_eq!(status, Some(302), "a token is not carried elsewhere");
}

#[test]
fn a_network_is_found_by_id_or_name_with_one_call() {
    let builder = Sandbox::builder().only(Half::Hetzner).nodes(0);
    let sandbox = builder.network("10.0.0.0/16").start();
    let id = sandbox.network_id();
    let name = |name: &str| NetworkSelector::Name(name.into());
    for (named, found) in [
        (name("sandbox"), true),
        (NetworkSelector::Id(id), true),
        (name("other"), false),
        (NetworkSelector::Id(1), false),
    ] {
        let client = hetzner(&sandbox, Some(named));
        let outcome = client.prepare();
        assert_eq!(client.calls(), 1);
        match found {
            true => assert_eq!(
                (outcome, client.prepare(), client.calls()),
                (Ok(()), Ok(()), 1),
                "and asked once"
            ),
            false => {
                let error = outcome.unwrap_err();
                assert!(
                    error.is_permanent() && error.message.contains(&format!("has sandbox ({id})")),
                    "{error}"
                );
            }
        }
    }
}
