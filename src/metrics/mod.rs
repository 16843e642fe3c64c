//! The metrics that `/metrics` shows: what the program counts and measures, and their text for Prometheus.
//!
//! Every module may use this module, and this module uses no other module. Each module counts what it does, and the
//! health server calls [`exposition`]. The numbers start at zero when the process starts. They are only shown, and the
//! program decides nothing by them.
//!
//! The value of a label must never be the name of an object, because a label with many values would need much memory.
//! It is a fixed word, the path of an API call without IDs and names, or a word from a short list that no API can make
//! longer. The name of the Lease and the address of the API server are allowed, because a process has only one of each.
//! When a metric has [`SERIES_AT_MOST`] combinations of label values, every further combination is counted as `other`.
//! [`TABLE`] lists every metric with its name, labels and help text. The table in `src/help/metrics.md` is generated
//! from it.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Turns each row into a static variable with the name in the row, and lists all of these variables in [`TABLE`].
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $static:ident: $kind:ident $name:literal $labels:tt $(in $buckets:ident)?;)*) => {
        $(
            $(#[doc = $help])+
            pub static $static: Metric = Metric::new(
                MetricKind::$kind, $name, &$labels, concat!($($help),+).trim_ascii_start(),
            )$(.with_buckets(&$buckets))?;
        )*

        /// All metrics, in the order in which `/metrics` shows them.
        pub static TABLE: &[&Metric] = &[$(&$static),*];
    };
}

metrics! {
    // The metrics that begin with `hcloud_api_` have the same names and labels as those of the library hcloud-go, so
    // that dashboards made for hcloud-go can be used.
    /// Number of answers of the Hetzner Cloud API by HTTP method, path and status. IDs in the path are replaced by -.
    HCLOUD_REQUESTS: Counter "hcloud_api_requests_total" ["method", "api_endpoint", "code"];

    /// How long an answer of the Hetzner Cloud API took, in seconds.
    HCLOUD_DURATION: Histogram "hcloud_api_request_duration_seconds" ["method"];

    /// Requests to the Hetzner Cloud API that wait for an answer.
    HCLOUD_IN_FLIGHT: Gauge "hcloud_api_in_flight_requests" [];

    /// Rate limit of the project in calls an hour, as the API reported it in its last answer.
    HCLOUD_LIMIT: Gauge "ccm_hcloud_rate_limit" [];

    /// How many calls the project's rate limit still allowed at the last answer. One call is added each second.
    HCLOUD_REMAINING: Gauge "ccm_hcloud_rate_limit_remaining" [];

    // The metrics that begin with `robot_api_` have the same labels as the metrics that begin with `hcloud_api_`.
    /// Number of answers of the Robot web service by HTTP method, path and status. Numbers in the path are replaced by
    /// -.
    ROBOT_REQUESTS: Counter "robot_api_requests_total" ["method", "api_endpoint", "code"];

    /// How long an answer of the Robot web service took, in seconds.
    ROBOT_DURATION: Histogram "robot_api_request_duration_seconds" ["method"];

    /// How many calls of the Robot web service ccm's own limit still allowed at the last call, by endpoint (server or
    /// reset). The web service itself allows more.
    ROBOT_REMAINING: Gauge "ccm_robot_budget_remaining" ["endpoint"];

    // The value is the time at which ccm calls Robot again. A metric with the number of seconds until then would be
    // wrong, because a metric of Robot changes only at a call to Robot, and ccm makes no call until then.
    /// Time at which ccm calls the Robot web service again, in seconds since 1970, by the reason for the pause. The
    /// reason is login (credentials were refused) or rate_limit. A value of 0 or a time in the past means that there is
    /// no pause.
    ROBOT_BLOCKED: Gauge "ccm_robot_blocked_until_timestamp_seconds" ["reason"];

    /// Number of answers of the Kubernetes API by HTTP method, resource and status.
    KUBERNETES_REQUESTS: Counter "ccm_kubernetes_requests_total" ["method", "resource", "code"];

    /// Number of requests that got no answer, by API (hcloud, robot, kubernetes) and reason (unreachable, timeout, tls,
    /// other).
    UNANSWERED: Counter "ccm_unanswered_requests_total" ["api", "reason"];

    /// Number of runs (ticks) by controller and result. The result is ok, failed (an object could not be synced) or
    /// outage (an API did not answer).
    TICKS: Counter "ccm_ticks_total" ["controller", "result"];

    /// How long one run (tick) of a controller took, in seconds.
    TICK_DURATION: Histogram "ccm_tick_duration_seconds" ["controller"];

    /// How many changes the last run of the controller planned.
    PLANNED: Gauge "ccm_planned_changes" ["controller"];

    /// Number of writes by controller, kind and result. The result is ok, failed or conflict. In a conflict, the object
    /// had changed, was deleted or was busy, and ccm plans the change again.
    CHANGES: Counter "ccm_changes_total" ["controller", "kind", "result"];

    /// Number of reported problems and facts (findings), by controller and reason. Most findings that last are reported
    /// again every ten minutes.
    FINDINGS: Counter "ccm_findings_total" ["controller", "reason"];

    /// Number of Kubernetes events by result. The result is written, failed (the API server did not accept the event)
    /// or dropped (there were too many to write).
    EVENTS: Counter "ccm_events_total" ["result"];

    // Each node is counted in one state only. If several states fit, the state that comes first in the help text is
    // counted.
    /// Number of nodes by state. The states are foreign (the provider ID is not one of ccm), unmatched (the node could
    /// not be initialised yet), uninitialized, out_of_service (it has the taint out-of-service), shutdown (its server
    /// is off), ready and not_ready.
    NODES: Gauge "ccm_nodes" ["state"];

    /// Number of certificate requests of kubelets by state. The states are unproven (the newest request of its node,
    /// which the cloud does not prove), pending (not decided yet) and approved. The API server deletes a request one
    /// hour after its approval.
    KUBELET_CERTIFICATES: Gauge "ccm_kubelet_certificate_requests" ["state"];

    /// Number of load balancers by state. The states are managed (its Service has an address), pending (its Service has
    /// no address yet), leaving (its Service needs no load balancer any more) and orphaned (its Service does not
    /// exist).
    LOAD_BALANCERS: Gauge "ccm_load_balancers" ["state"];

    /// Number of load balancers of Services, as of the last read, by how many of their targets are healthy. The states
    /// are all, some, none and unknown (no target was checked yet). A target that was added just now counts only if
    /// there are no others.
    LOAD_BALANCERS_HEALTH: Gauge "ccm_load_balancers_health" ["state"];

    /// Number of load balancers of Services by their use, as of the last read. The uses are own (of one Service),
    /// shared (by several Services), external (made by another owner) and released (not managed by ccm any more). A new
    /// load balancer that replaces another one counts as replacing, too.
    LOAD_BALANCERS_USE: Gauge "ccm_load_balancers_use" ["use"];

    /// The share of the month's included traffic that the load balancer of a Service has used, as of the last read. Of
    /// all load balancers of Services, this is the largest share. 1 means all of it; further traffic costs money.
    LOAD_BALANCERS_TRAFFIC: Gauge "ccm_load_balancers_traffic_ratio" [];

    /// Number of nodes that are left out of the targets of load balancers, by reason. The reason is departing (the node
    /// will stop soon) or limit (the type of the load balancer takes no more targets).
    TARGETS_LEFT_OUT: Gauge "ccm_targets_left_out" ["reason"];

    /// Time at which the health of the load balancers of Services was last read, in seconds since 1970.
    LOAD_BALANCERS_READ: Gauge "ccm_load_balancers_health_timestamp_seconds" [];

    // There is one value for all certificates, the time at which the first of them expires. A label with the name of
    // the certificate is not possible, because labels must not contain names of objects. Also, the value of a replaced
    // certificate would be shown for ever.
    /// Time at which the next certificate that load balancers of Services use expires, in seconds since 1970, as of the
    /// last read. The value 0 means that no certificate is known.
    CERTIFICATE_EXPIRY: Gauge "ccm_certificate_expiry_timestamp_seconds" [];

    /// Number of routes of the private Network by state. The states are ok, missing, wrong_gateway, blackhole,
    /// unwanted, stale, left_alone and not_ours: see ccm route list --help. The metric exists only where the route
    /// controller runs.
    ROUTES: Gauge "ccm_routes" ["state"];

    /// The value is 1 while this process does the work, and 0 while another process holds the Lease.
    LEADER: Gauge "ccm_leader" [];

    // The metrics from `leader_election_master_status` to `rest_client_requests_total` have the names, labels and
    // buckets of Kubernetes' own components, so that dashboards and alerts made for another cloud-controller-manager
    // can be used.
    /// The value is 1 while this process holds the Lease of this name, and 0 while another process holds it. The metric
    /// exists only with leader election.
    LEADER_STATUS: Gauge "leader_election_master_status" ["name"];

    /// Seconds from the creation of a node until it was initialised.
    NODE_SYNC_DELAY: Histogram "node_controller_initial_node_sync_delay_seconds" [] in DELAY_BUCKETS;

    /// Seconds from the creation of a node until it lost the taint uninitialized.
    TAINT_REMOVAL_DELAY: Histogram "node_controller_cloud_provider_taint_removal_delay_seconds" [] in DELAY_BUCKETS;

    /// Number of comparisons of the Network's routes with the nodes, by outcome and trigger. The outcome is changed (a
    /// route was added or deleted), noop (nothing was changed) or error. The trigger is node_change (a node or server
    /// changed, or the last comparison failed) or periodic.
    ROUTE_SYNCS: Counter "route_controller_route_sync_total" ["outcome", "trigger"];

    /// Number of requests to the Kubernetes API by HTTP status, method, and host with port. A request without an answer
    /// has the status `<error>`.
    REST_REQUESTS: Counter "rest_client_requests_total" ["code", "method", "host"];

    /// The value is always 1. The labels name the version of the program and its profile (--cloud-provider).
    BUILD: Gauge "ccm_build_info" ["version", "profile"];

    /// Start of the process, in seconds since 1970.
    PROCESS_START: Gauge "process_start_time_seconds" [];

    /// Processor time that the process used, in seconds.
    PROCESS_CPU: Counter "process_cpu_seconds_total" [];

    /// Memory in use, in bytes.
    PROCESS_MEMORY: Gauge "process_resident_memory_bytes" [];
}

/// The greatest number of combinations of label values that a metric stores.
pub const SERIES_AT_MOST: usize = 400;

/// The upper bounds of the buckets of most histograms in seconds. These are the default buckets of Prometheus' client
/// libraries.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The upper bounds, in seconds, of the buckets of the two histograms about how long the initialisation of a node
/// takes. k8s.io/cloud-provider uses the same bounds.
const DELAY_BUCKETS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// A metric: a number, or a number for each combination of the values of its labels.
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    /// The help text: a sentence that describes the metric and names its unit.
    pub help: &'static str,
    /// The upper bounds of the buckets of a histogram, in seconds.
    bounds: &'static [f64],
    series: Mutex<Vec<Series>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    Gauge,
    /// A distribution of durations, in seconds.
    Histogram,
}

struct Series {
    /// The labels with their values as Prometheus writes them, without the braces, e.g. `method="get",code="200"`.
    labels: String,
    /// The value of a counter or gauge. In a histogram it is the sum of all durations in seconds.
    value: f64,
    /// The number of durations in each bucket of a histogram. The last number counts the durations that are greater
    /// than the upper bound of every other bucket. The list is empty for counters and gauges.
    buckets: Vec<u64>,
}

impl Metric {
    const fn new(
        kind: MetricKind,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Metric {
        Metric { name, kind, labels, help, bounds: &BUCKETS, series: Mutex::new(Vec::new()) }
    }

    const fn with_buckets(mut self, bounds: &'static [f64]) -> Metric {
        self.bounds = bounds;
        self
    }

    /// Adds one to a counter. `values` has a value for each label, in the order in which the metric lists its labels.
    pub fn count(&self, values: &[&str]) {
        self.add(values, 1.0);
    }

    /// Adds an amount to a counter or a gauge. The amount 0 also has an effect: from then on, `/metrics` shows this
    /// combination of label values.
    pub fn add(&self, values: &[&str], amount: f64) {
        self.change(values, &|series| series.value += amount);
    }

    pub fn set(&self, values: &[&str], value: f64) {
        self.change(values, &|series| series.value = value);
    }

    /// Adds a duration to a histogram.
    pub fn observe(&self, values: &[&str], time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds.iter().position(|bound| seconds <= *bound);
        self.change(values, &|series| {
            series.value += seconds;
            series.buckets.resize(self.bounds.len() + 1, 0);
            series.buckets[bucket.unwrap_or(self.bounds.len())] += 1;
        });
    }

    fn change(&self, values: &[&str], change: &dyn Fn(&mut Series)) {
        let mut labels = self.labels_of(values);
        let mut series = self.series();
        let mut place = series.iter().position(|series| series.labels == labels);
        if place.is_none() && series.len() >= SERIES_AT_MOST {
            labels = self.labels_of(&[]);
            place = series.iter().position(|series| series.labels == labels);
        }
        let place = place.unwrap_or_else(|| {
            series.push(Series { labels, value: 0.0, buckets: Vec::new() });
            series.len() - 1
        });
        change(&mut series[place]);
    }

    /// Returns the labels with their values as Prometheus writes them, without the braces. When `values` has too few
    /// values, each of the remaining labels gets the value `other`.
    fn labels_of(&self, values: &[&str]) -> String {
        let pairs = self.labels.iter().enumerate().map(|(place, label)| {
            let value = values.get(place).unwrap_or(&"other");
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("{label}=\"{}\"", value.replace('\n', "\\n"))
        });
        pairs.collect::<Vec<_>>().join(",")
    }

    fn write(&self, text: &mut String) {
        let (name, help, kind) = (self.name, self.help, self.kind.name());
        // An error is ignored here, because writing to a `String` never fails.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for series in self.series().iter() {
            match self.kind {
                MetricKind::Counter | MetricKind::Gauge => {
                    self.write_value(text, "", &series.labels, series.value);
                }
                MetricKind::Histogram => self.write_histogram(text, series),
            }
        }
    }

    fn write_histogram(&self, text: &mut String, series: &Series) {
        let labels = &series.labels;
        let comma = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        for (place, in_bucket) in series.buckets.iter().enumerate() {
            count += in_bucket;
            let bound = self.bounds.get(place).map_or("+Inf".to_owned(), f64::to_string);
            let labels = format!("{labels}{comma}le=\"{bound}\"");
            self.write_value(text, "_bucket", &labels, count as f64);
        }
        self.write_value(text, "_sum", labels, series.value);
        self.write_value(text, "_count", labels, count as f64);
    }

    /// Adds one line of the metric to the text: its name with the suffix, the labels, and the value. `labels` are the
    /// labels with their values as Prometheus writes them, without the braces.
    fn write_value(&self, text: &mut String, suffix: &str, labels: &str, value: f64) {
        let name = self.name;
        // An error is ignored here, because writing to a `String` never fails.
        let _ = match labels {
            "" => writeln!(text, "{name}{suffix} {value}"),
            labels => writeln!(text, "{name}{suffix}{{{labels}}} {value}"),
        };
    }

    fn series(&self) -> MutexGuard<'_, Vec<Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricKind {
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Returns all metrics with their present values in Prometheus' text format 0.0.4.
pub fn exposition() -> String {
    read_process();
    let mut text = String::new();
    for metric in TABLE {
        metric.write(&mut text);
    }
    text
}

/// How many clock ticks are in a second. `/proc/self/stat` gives processor time in clock ticks. The number is the same
/// on all architectures that Linux still supports.
const TICKS_A_SECOND: f64 = 100.0;

/// Stores the present time as the start time of the process.
pub fn begin() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    PROCESS_START.set(&[], now.unwrap_or_default().as_secs_f64().floor());
}

/// Reads the processor time and the memory of this process from `/proc`, and stores them as metrics. Without `/proc`,
/// nothing is stored.
fn read_process() {
    if let Ok(stat) = std::fs::read_to_string("/proc/self/stat")
        && let Some(ticks) = processor_ticks(&stat)
    {
        PROCESS_CPU.set(&[], ticks as f64 / TICKS_A_SECOND);
    }
    if let Ok(status) = std::fs::read_to_string("/proc/self/status")
        && let Some(kilobytes) = resident_kilobytes(&status)
    {
        PROCESS_MEMORY.set(&[], (kilobytes * 1024) as f64);
    }
}

/// Returns the processor time of this process, which is the sum of the 14th field (user mode) and the 15th field
/// (kernel mode) of `/proc/self/stat`. The second field is the name of the program in parentheses. The name may contain
/// spaces and parentheses, so the fields are counted from the last parenthesis.
fn processor_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let own: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(own + kernel)
}

fn resident_kilobytes(status: &str) -> Option<u64> {
    let (_, rest) = status.split_once("VmRSS:")?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(metric: &Metric) -> String {
        let mut text = String::new();
        metric.write(&mut text);
        text
    }

    #[test]
    fn a_counter_and_a_gauge_read_like_this() {
        let requests =
            Metric::new(MetricKind::Counter, "r_total", &["method", "code"], "Requests.");
        requests.count(&["get", "200"]);
        requests.count(&["get", "200"]);
        requests.add(&["put", "a\"b\\c\nd"], 0.0);
        let expected = "# HELP r_total Requests.\n# TYPE r_total counter\n\
                        r_total{method=\"get\",code=\"200\"} 2\n\
                        r_total{method=\"put\",code=\"a\\\"b\\\\c\\nd\"} 0\n";
        assert_eq!(written(&requests), expected);
        let gauge = Metric::new(MetricKind::Gauge, "g", &[], "A gauge.");
        assert_eq!(written(&gauge), "# HELP g A gauge.\n# TYPE g gauge\n");
        gauge.set(&[], 1.5);
        gauge.add(&[], -1.0);
        assert!(written(&gauge).ends_with("\ng 0.5\n"));
    }

    #[test]
    fn buckets_hold_what_is_not_above_their_bound_and_add_up() {
        let took = Metric::new(MetricKind::Histogram, "t_seconds", &["m"], "Time.");
        for millis in [5, 6, 1000, 11_000] {
            took.observe(&["get"], Duration::from_millis(millis));
        }
        let text = written(&took);
        for line in [
            "t_seconds_bucket{m=\"get\",le=\"0.005\"} 1",
            "t_seconds_bucket{m=\"get\",le=\"0.01\"} 2",
            "t_seconds_bucket{m=\"get\",le=\"0.5\"} 2",
            "t_seconds_bucket{m=\"get\",le=\"1\"} 3",
            "t_seconds_bucket{m=\"get\",le=\"10\"} 3",
            "t_seconds_bucket{m=\"get\",le=\"+Inf\"} 4",
            "t_seconds_sum{m=\"get\"} 12.011",
            "t_seconds_count{m=\"get\"} 4",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in\n{text}");
        }
    }

    #[test]
    fn beyond_the_limit_everything_is_other() {
        let metric = Metric::new(MetricKind::Counter, "n_total", &["name"], "Names.");
        for number in 0..SERIES_AT_MOST + 7 {
            metric.count(&[&number.to_string()]);
        }
        let text = written(&metric);
        assert_eq!(text.lines().count(), 2 + SERIES_AT_MOST + 1);
        assert!(text.ends_with("n_total{name=\"other\"} 7\n"), "{text}");
    }

    #[test]
    fn names_are_those_that_prometheus_expects() {
        let mut names = std::collections::BTreeSet::new();
        for metric in TABLE {
            let name = metric.name;
            assert!(names.insert(name), "{name} is there twice");
            let known = ["hcloud_api_", "robot_api_", "ccm_", "process_"];
            let of_kubernetes =
                ["leader_election_", "node_controller_", "route_controller_", "rest_client_"];
            let mut prefixes = known.iter().chain(&of_kubernetes);
            assert!(prefixes.any(|prefix| name.starts_with(prefix)), "{name}");
            let is_counter = metric.kind == MetricKind::Counter;
            assert_eq!(name.ends_with("_total"), is_counter, "{name}");
            let is_histogram = metric.kind == MetricKind::Histogram;
            assert!(!is_histogram || name.ends_with("_seconds"), "{name}");
            assert!(metric.help.ends_with('.') && !metric.help.contains('\n'));
        }
    }

    #[test]
    fn the_kernels_words_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 120 34 0 0 20 0 9 0 1 1 1";
        assert_eq!(processor_ticks(stat), Some(154));
        assert_eq!(processor_ticks("7 (ccm) S 1"), None);
        assert_eq!(resident_kilobytes("VmHWM:\t 9 kB\nVmRSS:\t    5432 kB\n"), Some(5432));
        assert_eq!(resident_kilobytes("VmHWM: 9 kB"), None);
    }
}
