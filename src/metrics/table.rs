//! Every metric. The table in `src/help/metrics.md` is made from this one.

use super::{Kind, Metric};

/// Each row becomes a static of its name, and [`TABLE`] lists them in this order.
macro_rules! metrics {
    ($($(#[$doc:meta])* $static:ident: $kind:ident $name:literal $labels:tt, $help:literal;)*) => {
        $($(#[$doc])* pub static $static: Metric = Metric::new(Kind::$kind, $name, &$labels, $help);)*

        /// In the order in which they are exposed.
        pub static TABLE: &[&Metric] = &[$(&$static),*];
    };
}

metrics! {
    /// With the names and labels of hcloud-go, so that dashboards made for it go on working.
    HCLOUD_REQUESTS: Counter "hcloud_api_requests_total" ["method", "api_endpoint", "code"],
        "Answers of the Hetzner Cloud API by method, path with IDs as -, and HTTP status.";

    HCLOUD_DURATION: Histogram "hcloud_api_request_duration_seconds" ["method"],
        "How long an answer of the Hetzner Cloud API took, in seconds.";

    HCLOUD_IN_FLIGHT: Gauge "hcloud_api_in_flight_requests" [],
        "Requests to the Hetzner Cloud API that wait for an answer.";

    HCLOUD_LIMIT: Gauge "ccm_hcloud_rate_limit" [],
        "Limit of the project in calls an hour, from the last answer.";

    HCLOUD_REMAINING: Gauge "ccm_hcloud_rate_limit_remaining" [],
        "Calls left of that limit, from the last answer; one is added each second.";

    KUBERNETES_REQUESTS: Counter "ccm_kubernetes_requests_total" ["method", "resource", "code"],
        "Answers of the Kubernetes API by method, resource and HTTP status.";

    UNANSWERED: Counter "ccm_unanswered_requests_total" ["api", "reason"],
        "Requests without an answer by API (hcloud, kubernetes) and reason (unreachable, timeout, tls, other).";

    TICKS: Counter "ccm_ticks_total" ["controller", "result"],
        "Ticks by controller and result: ok, failed (an object could not be synced), outage (an API did not answer).";

    TICK_DURATION: Histogram "ccm_tick_duration_seconds" ["controller"],
        "How long a tick took, in seconds.";

    PLANNED: Gauge "ccm_planned_changes" ["controller"],
        "Changes that the last tick planned.";

    CHANGES: Counter "ccm_changes_total" ["controller", "kind", "result"],
        "Writes by controller, kind and result: ok, failed, conflict (the object changed, was deleted or was busy; planned again).";

    FINDINGS: Counter "ccm_findings_total" ["controller", "reason"],
        "Findings reported, by controller and reason; a lasting one is reported again every ten minutes.";

    EVENTS: Counter "ccm_events_total" ["result"],
        "Events by result: written, failed (the API server did not take it), dropped (more than are written).";

    /// A node is in one state: the first of these that holds.
    NODES: Gauge "ccm_nodes" ["state"],
        "Nodes by state: foreign (a provider ID that is not ours), unmatched (tried, not initialised), uninitialised, shutdown (its server is off), ready, not_ready.";

    LOAD_BALANCERS: Gauge "ccm_load_balancers" ["state"],
        "Load balancers by state: managed (its Service has an address), pending (it has none yet), leaving (its Service needs none any more), orphaned (its Service does not exist).";

    ROUTES: Gauge "ccm_routes" ["state"],
        "Routes of the private Network by state, as in ccm route list; only where the route controller runs.";

    LEADER: Gauge "ccm_leader" [],
        "1 while this process does the work, 0 while another one holds the Lease.";

    BUILD: Gauge "ccm_build_info" ["version", "profile"],
        "Always 1; version of the program and profile (--cloud-provider).";

    PROCESS_START: Gauge "process_start_time_seconds" [],
        "Start of the process, in seconds since 1970.";

    PROCESS_CPU: Counter "process_cpu_seconds_total" [],
        "Processor time used, in seconds.";

    PROCESS_MEMORY: Gauge "process_resident_memory_bytes" [],
        "Memory in use, in bytes.";
}
