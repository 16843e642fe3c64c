//! The simulated kubelets, which create Nodes and report their conditions. This module also simulates the node
//! controller of Kubernetes, which reacts when a kubelet does not report.
//!
//! A simulated kubelet behaves as with `--cloud-provider=external`. It creates its Node with the `uninitialized` taint
//! and the addresses that it finds. It then reports the Node's conditions every [`REPORT_PERIOD`]. It never changes
//! addresses, labels or taints of an existing Node, because the cloud controller manager does that.
//!
//! A kubelet does not report while its server is not `running` or does not exist. When the server runs again, the
//! kubelet reports at once. If its Node was deleted in the time between, the kubelet creates the Node again. A Node
//! that is deleted while its server runs stays deleted. This is also the case with a real kubelet, until the kubelet
//! restarts.
//!
//! When a kubelet has not reported for [`GRACE_PERIOD`], the simulated node controller sets the Node's conditions to
//! `Unknown` and adds the `unreachable` taints. When the kubelet reports again, the node controller removes the
//! `not-ready` and `unreachable` taints. Pods and the Leases in `kube-node-lease` are not simulated.
//!
//! Every machine with a kubelet also has a simulated kube-proxy. It answers the health checks of load balancers at the
//! node ports of Services that have EndpointSlices.

mod certificate;
mod node;
mod proxy;
mod report;
mod weight;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use certificate::{CertificateAsk, sign_approved};
pub use node::{NodeSpec, UNINITIALIZED_TAINT};

use crate::hetzner::{Cloud, PortChecks};
use crate::kubernetes::Cluster;
use crate::robot::Robot;
use crate::time;

/// The time between two reports of a kubelet when nothing has changed. A real kubelet calls it
/// `nodeStatusReportFrequency`.
pub const REPORT_PERIOD: Duration = Duration::from_secs(5 * 60);
/// How often a simulated kubelet checks whether its server runs. A real kubelet checks the state of its Node after the
/// same time, which is called `nodeStatusUpdateFrequency`.
pub const UPDATE_PERIOD: Duration = Duration::from_secs(10);
/// How long a kubelet can be silent before the conditions of its Node become `Unknown`. In kube-controller-manager, the
/// flag `--node-monitor-grace-period` sets this time.
pub const GRACE_PERIOD: Duration = Duration::from_secs(50);

/// The shortest time between two checks by which the simulated kubelets find out which servers run. Even with a small
/// time scale and a large cluster, the checks then leave most of the processor time to the tested program.
const SHORTEST_PERIOD: Duration = Duration::from_millis(20);
/// The simulated kubelets check again and again which servers run. The wait after each check is at least this many
/// times as long as the check took, so that the checks leave most of the processor time to the tested program.
const REST: u32 = 9;

/// All simulated kubelets of a cluster.
pub struct Kubelets {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The time at which [`catch_up`](Kubelets::catch_up) checks again which servers run. With `None`, `catch_up` does
    /// nothing: a thread makes these checks, or [`run`](Kubelets::run) was never called.
    next_look: Mutex<Option<Instant>>,
}

struct Shared {
    cloud: Arc<Cloud>,
    project: u64,
    robot: Arc<Robot>,
    cluster: Arc<Cluster>,
    scale: f64,
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    kubelets: Vec<Kubelet>,
}

struct Kubelet {
    spec: NodeSpec,
    reported: Instant,
    /// The time since which the kubelet has not reported, because its server does not run or because the kubelet hangs.
    /// `None` while the kubelet reports.
    silent: Option<Instant>,
    /// Whether the node controller has already set the node's conditions to `Unknown`.
    unknown: bool,
    /// Whether the kubelet hangs. It then reports nothing about its Node, although its server runs.
    hangs: bool,
}

/// The three kinds of checks of the simulated kubelets. A check decides for each kubelet whether it reports the
/// conditions of its Node now, and whether the conditions become `Unknown` because the kubelet has been silent.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    /// A kubelet reports the conditions of its Node only when its report is due. The conditions of a Node become
    /// `Unknown` only after its kubelet was silent for the whole [`GRACE_PERIOD`].
    Due,
    /// Every kubelet reports the conditions of its Node now, even if its report is not due. The only exceptions are
    /// kubelets that hang or whose server does not run.
    Report,
    /// The check that a test starts with [`Kubelets::expire`]. Each kubelet that hangs, or whose server does not run,
    /// is treated as if it had been silent for the whole [`GRACE_PERIOD`]. The conditions of its Node then become
    /// `Unknown` at once. All other kubelets report if their report is due.
    Expire,
}

impl Kubelets {
    /// Creates an object that manages simulated kubelets, and has none at first. The kubelets that are added later run
    /// on cloud servers of `project` and on dedicated servers. All their durations are multiplied by `scale`.
    pub(crate) fn new(
        cloud: Arc<Cloud>,
        project: u64,
        robot: Arc<Robot>,
        cluster: Arc<Cluster>,
        scale: f64,
    ) -> Kubelets {
        let (state, stopped) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { cloud, project, robot, cluster, scale, state, stopped });
        let checks: Weak<dyn PortChecks> = Arc::<Shared>::downgrade(&shared);
        shared.cloud.set_port_checks(checks);
        Kubelets { shared, thread: None, next_look: Mutex::default() }
    }

    /// Starts the regular reports of the kubelets, in which they write the conditions of their Nodes. When
    /// `with_thread` is true, a thread makes the reports. When it is false, each call of
    /// [`catch_up`](Kubelets::catch_up) makes the reports that are due.
    pub(crate) fn run(&mut self, with_thread: bool) -> std::io::Result<()> {
        if !with_thread {
            self.next_look = Mutex::new(Some(time::now() + self.shared.period()));
            return Ok(());
        }
        let shared = self.shared.clone();
        self.thread = Some(
            thread::Builder::new().name("sandbox-kubelets".into()).spawn(move || shared.run())?,
        );
        Ok(())
    }

    /// Lets each simulated kubelet whose report is due report the conditions of its Node. Does nothing when a thread
    /// does this work. A kubelet whose server has stopped counts as silent from the first call of this function that
    /// finds the server stopped, and not from the moment of the stop.
    pub fn catch_up(&self) {
        let mut next_look = self.next_look.lock().unwrap_or_else(PoisonError::into_inner);
        let now = time::now();
        if next_look.is_some_and(|next| next <= now) {
            *next_look = Some(now + self.shared.period());
            self.shared.pass(Pass::Due);
        }
    }

    /// Adds a kubelet and creates its Node, which is Ready. `spec` says whether the Node is initialised.
    ///
    /// # Panics
    /// Panics when a Node of that name exists, or when the API server refuses the Node.
    pub fn register(&self, spec: NodeSpec) {
        self.shared.register(&spec);
        let kubelet =
            Kubelet { spec, reported: time::now(), silent: None, unknown: false, hangs: false };
        self.shared.state().kubelets.push(kubelet);
    }

    /// Returns the number of kubelets, including those whose server has stopped.
    pub fn count(&self) -> usize {
        self.shared.state().kubelets.len()
    }

    /// Makes the kubelet of this Node hang: it no longer reports the conditions of the Node, although its server runs.
    pub fn hang(&self, node: &str) {
        let mut state = self.shared.state();
        let named = |kubelet: &&mut Kubelet| kubelet.spec.name == node;
        state.kubelets.iter_mut().filter(named).for_each(|kubelet| kubelet.hangs = true);
    }

    /// Makes every kubelet report the conditions of its Node now, except when the kubelet hangs or when its server does
    /// not run.
    pub fn heartbeat(&self) {
        self.shared.pass(Pass::Report);
    }

    /// Treats all kubelets that do not report as if they had been silent for the whole [`GRACE_PERIOD`]. The conditions
    /// of their Nodes become `Unknown`.
    pub fn expire(&self) {
        self.shared.pass(Pass::Expire);
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.shared.state().stopping = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time between two checks by which the simulated kubelets find out which servers run.
    fn period(&self) -> Duration {
        UPDATE_PERIOD.mul_f64(self.scale).max(SHORTEST_PERIOD)
    }

    fn run(&self) {
        let period = self.period();
        let mut wait = period;
        loop {
            let waited =
                self.stopped.wait_timeout_while(self.state(), wait, |state| !state.stopping);
            let stopping = waited.unwrap_or_else(PoisonError::into_inner).0.stopping;
            if stopping {
                return;
            }
            let begun = Instant::now();
            self.pass(Pass::Due);
            wait = period.max(begun.elapsed() * REST);
        }
    }

    fn pass(&self, pass: Pass) {
        let running = self.cloud.running_servers(self.project);
        let dedicated = self.robot.running_machines();
        let now = time::now();
        for kubelet in &mut self.state().kubelets {
            let NodeSpec { server, machine, .. } = kubelet.spec;
            let runs = server.is_none_or(|server| running.contains(&server))
                && machine.is_none_or(|machine| dedicated.contains(&machine));
            if runs && !kubelet.hangs {
                self.report(kubelet, now, pass);
            } else {
                self.miss(kubelet, now, pass);
            }
        }
    }

    fn report(&self, kubelet: &mut Kubelet, now: Instant, pass: Pass) {
        let restarted = kubelet.silent.take().is_some();
        let due = now.duration_since(kubelet.reported) >= REPORT_PERIOD.mul_f64(self.scale);
        if !(restarted || due || pass == Pass::Report) {
            return;
        }
        kubelet.reported = now;
        kubelet.unknown = false;
        let there = self.cluster.edit("nodes", None, &kubelet.spec.name, report::ready);
        if !there && restarted {
            self.register(&kubelet.spec);
        }
    }

    fn miss(&self, kubelet: &mut Kubelet, now: Instant, pass: Pass) {
        let since = *kubelet.silent.get_or_insert(now);
        let expired = now.duration_since(since) >= GRACE_PERIOD.mul_f64(self.scale);
        if !kubelet.unknown && (expired || pass == Pass::Expire) {
            kubelet.unknown = true;
            self.cluster.edit("nodes", None, &kubelet.spec.name, report::unknown);
        }
    }

    fn register(&self, spec: &NodeSpec) {
        let object = node::registration(spec);
        let status = object["status"].clone();
        let managed = object["metadata"]["managedFields"].clone();
        self.cluster.create("nodes", None, object);
        self.cluster.edit("nodes", None, &spec.name, |node| {
            node["status"] = status.clone();
            if !managed.is_null() {
                node["metadata"]["managedFields"] = managed.clone();
            }
            report::ready(node);
        });
    }
}
