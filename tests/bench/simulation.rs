//! The sandbox itself at 5,000 nodes and servers: if it were slow, every other figure would be its own.
//!
//! Processor time of this thread, without sockets: the same on a machine that is busy with something else.

use crate::NODE_BYTES;
use crate::figure::Figure;
use sandbox::Sandbox;
use sandbox::exchange::{Handler, Request};
use std::time::Duration;

const MANY: usize = 5000;
const TIMES: u32 = 5;
/// The memory of the process, which includes the rest of the benchmark.
const MEMORY_MB: f64 = 1000.0;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

pub fn all() -> Vec<Figure> {
    let begun = cpu();
    let sandbox = Sandbox::builder().nodes(MANY).node_bytes(NODE_BYTES).heartbeats(false).start();
    let started = cpu() - begun;
    let kubernetes = Caller::kubernetes(&sandbox);
    let cloud = Caller::cloud(&sandbox);
    let list = "/api/v1/nodes";
    let named = |n: u32| format!("{list}/worker-{}", n + 1);
    let page = |n: u32| vec![("page", format!("{}", 100 - n)), ("per_page", "50".into())];
    let table = |include: &str| vec![("includeObject", include.to_owned())];
    let patch = |n: u32| format!(r#"{{"metadata":{{"labels":{{"n":"{n}"}}}}}}"#);
    let title = |what: &str| format!("sandbox, 5,000 nodes: {what}");
    let figure = |what: &str, call: &dyn Fn(u32)| Figure::milliseconds(title(what), mean(call));
    vec![
        Figure::seconds(title("start"), started),
        figure("whole list, first", &|_| {
            sandbox.kubelets().heartbeat();
            kubernetes.get(list, vec![], "application/json");
        }),
        figure("whole list, unchanged", &|_| {
            kubernetes.get(list, vec![], "application/json");
        }),
        figure("table without objects", &|_| {
            kubernetes.get(list, table("None"), TABLE);
        }),
        figure("table with metadata", &|_| {
            kubernetes.get(list, table("Metadata"), TABLE);
        }),
        figure("GET of a node", &|n| {
            kubernetes.get(&named(n), vec![], "application/json");
        }),
        figure("PATCH of a node", &|n| kubernetes.patch(&named(n), patch(n))),
        figure("page of 50 servers", &|n| cloud.get("/v1/servers", page(n), "*/*")),
        figure("heartbeats of all machines", &|_| sandbox.kubelets().heartbeat()),
        Figure::bytes(title("peak memory"), peak_bytes()).at_most(MEMORY_MB),
    ]
}

/// Speaks to a half without a socket.
struct Caller {
    half: std::sync::Arc<dyn Handler>,
    token: String,
}

impl Caller {
    fn kubernetes(sandbox: &Sandbox) -> Caller {
        Caller { half: sandbox.cluster().clone(), token: sandbox.account("admin").unwrap().token }
    }

    fn cloud(sandbox: &Sandbox) -> Caller {
        Caller { half: sandbox.cloud().clone(), token: sandbox.projects().token.clone() }
    }

    fn get(&self, path: &str, query: Vec<(&str, String)>, accept: &str) {
        let query = query.into_iter().map(|(name, value)| (name.into(), value));
        self.call(Request {
            method: "GET".into(),
            path: path.into(),
            query: query.collect(),
            headers: vec![("accept".into(), accept.into())],
            ..Request::default()
        });
    }

    fn patch(&self, path: &str, body: String) {
        let content_type = "application/strategic-merge-patch+json";
        self.call(Request {
            method: "PATCH".into(),
            path: path.into(),
            headers: vec![("content-type".into(), content_type.into())],
            body: body.into_bytes(),
            ..Request::default()
        });
    }

    fn call(&self, mut request: Request) {
        let token = format!("Bearer {}", self.token);
        request.headers.push(("authorization".into(), token));
        let response = self.half.handle(&request);
        assert_eq!(response.status, 200, "{request:?}");
    }
}

fn mean(call: impl Fn(u32)) -> Duration {
    let begun = cpu();
    (0..TIMES).for_each(call);
    (cpu() - begun) / TIMES
}

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = stat.split_whitespace().next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes: u64 = line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}
