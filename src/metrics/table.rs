//! Every metric. The table in `src/help/metrics.md` is made from this one.

use super::{Kind, Metric};

/// In the order in which they are exposed.
pub static TABLE: &[&Metric] = &[
    &HCLOUD_REQUESTS,
    &HCLOUD_DURATION,
    &HCLOUD_IN_FLIGHT,
    &HCLOUD_LIMIT,
    &HCLOUD_REMAINING,
    &KUBERNETES_REQUESTS,
    &UNANSWERED,
    &TICKS,
    &TICK_DURATION,
    &PLANNED,
    &CHANGES,
    &FINDINGS,
    &EVENTS,
    &NODES,
    &LOAD_BALANCERS,
    &ROUTES,
    &LEADER,
    &BUILD,
    &PROCESS_START,
    &PROCESS_CPU,
    &PROCESS_MEMORY,
];

/// With the names and labels of hcloud-go, so that dashboards made for it go on working.
pub static HCLOUD_REQUESTS: Metric = Metric::new(
    Kind::Counter,
    "hcloud_api_requests_total",
    &["method", "api_endpoint", "code"],
    "Answers of the Hetzner Cloud API by method, path with IDs as -, and HTTP status.",
);

pub static HCLOUD_DURATION: Metric = Metric::new(
    Kind::Histogram,
    "hcloud_api_request_duration_seconds",
    &["method"],
    "How long an answer of the Hetzner Cloud API took, in seconds.",
);

pub static HCLOUD_IN_FLIGHT: Metric = Metric::new(
    Kind::Gauge,
    "hcloud_api_in_flight_requests",
    &[],
    "Requests to the Hetzner Cloud API that wait for an answer.",
);

pub static HCLOUD_LIMIT: Metric = Metric::new(
    Kind::Gauge,
    "ccm_hcloud_rate_limit",
    &[],
    "Limit of the project in calls an hour, from the last answer.",
);

pub static HCLOUD_REMAINING: Metric = Metric::new(
    Kind::Gauge,
    "ccm_hcloud_rate_limit_remaining",
    &[],
    "Calls left of that limit, from the last answer; one is added each second.",
);

pub static KUBERNETES_REQUESTS: Metric = Metric::new(
    Kind::Counter,
    "ccm_kubernetes_requests_total",
    &["method", "resource", "code"],
    "Answers of the Kubernetes API by method, resource and HTTP status.",
);

pub static UNANSWERED: Metric = Metric::new(
    Kind::Counter,
    "ccm_unanswered_requests_total",
    &["api", "reason"],
    "Requests without an answer by API (hcloud, kubernetes) and reason (unreachable, timeout, tls, other).",
);

pub static TICKS: Metric = Metric::new(
    Kind::Counter,
    "ccm_ticks_total",
    &["controller", "result"],
    "Ticks by controller and result: ok, failed (an object could not be synced), outage (an API did not answer).",
);

pub static TICK_DURATION: Metric = Metric::new(
    Kind::Histogram,
    "ccm_tick_duration_seconds",
    &["controller"],
    "How long a tick took, in seconds.",
);

pub static PLANNED: Metric = Metric::new(
    Kind::Gauge,
    "ccm_planned_changes",
    &["controller"],
    "Changes that the last tick planned.",
);

pub static CHANGES: Metric = Metric::new(
    Kind::Counter,
    "ccm_changes_total",
    &["controller", "kind", "result"],
    "Writes by controller, kind and result: ok, failed, conflict (the object changed, was deleted or was busy; planned again).",
);

pub static FINDINGS: Metric = Metric::new(
    Kind::Counter,
    "ccm_findings_total",
    &["controller", "reason"],
    "Findings reported, by controller and reason; a lasting one is reported again every ten minutes.",
);

pub static EVENTS: Metric = Metric::new(
    Kind::Counter,
    "ccm_events_total",
    &["result"],
    "Events by result: written, failed (the API server did not take it), dropped (more than are written).",
);

/// A node is in one state: the first of these that holds.
pub static NODES: Metric = Metric::new(
    Kind::Gauge,
    "ccm_nodes",
    &["state"],
    "Nodes by state: foreign (a provider ID that is not ours), unmatched (tried, not initialised), uninitialised, shutdown (its server is off), ready, not_ready.",
);

pub static LOAD_BALANCERS: Metric = Metric::new(
    Kind::Gauge,
    "ccm_load_balancers",
    &["state"],
    "Load balancers by state: managed (its Service has an address), pending (it has none yet), leaving (its Service needs none any more), orphaned (its Service does not exist).",
);

pub static ROUTES: Metric = Metric::new(
    Kind::Gauge,
    "ccm_routes",
    &["state"],
    "Routes of the private Network by state, as in ccm route list; only where the route controller runs.",
);

pub static LEADER: Metric = Metric::new(
    Kind::Gauge,
    "ccm_leader",
    &[],
    "1 while this process does the work, 0 while another one holds the Lease.",
);

pub static BUILD: Metric = Metric::new(
    Kind::Gauge,
    "ccm_build_info",
    &["version", "profile"],
    "Always 1; version of the program and profile (--cloud-provider).",
);

pub(super) static PROCESS_START: Metric = Metric::new(
    Kind::Gauge,
    "process_start_time_seconds",
    &[],
    "Start of the process, in seconds since 1970.",
);

pub(super) static PROCESS_CPU: Metric = Metric::new(
    Kind::Counter,
    "process_cpu_seconds_total",
    &[],
    "Processor time used, in seconds.",
);

pub(super) static PROCESS_MEMORY: Metric = Metric::new(
    Kind::Gauge,
    "process_resident_memory_bytes",
    &[],
    "Memory in use, in bytes.",
);
