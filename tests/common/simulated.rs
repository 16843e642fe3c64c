//! Runs `ccm run` and other commands in the thread of the test, and not as processes. The commands get environment
//! variables and flags as a process does.
//!
//! [`start`] creates a sandbox in memory. From then on, the clocks of the test's thread are simulated: time passes when
//! `ccm` or the test waits. During such a wait, the simulated daemons do the work that becomes due. The work that is
//! due first is done first.

use super::Ran;
use super::machine::Machine;
use ccm::cli;
use ccm::provider::clock::{self, Surroundings};
use log::{Log, Metadata, Record};
use sandbox::{Builder, Sandbox};
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fmt;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::{Arc, Once};
use std::time::Duration;

/// An environment variable that makes the functions in `tests/common` run a program simulated in the test's thread, and
/// not as a process. The variable is not passed on to the program.
pub const MARK: &str = "SIMULATED";

/// The longest simulated time between two checks of a condition for which a test waits. The condition is checked this
/// often even when no daemon has work. The reason is that e.g. a simulated kubelet can also change what the APIs show.
const LOOK: Duration = Duration::from_secs(1);

thread_local! {
    static MACHINE: RefCell<Option<Rc<Machine>>> = const { RefCell::new(None) };
}

/// Returns the [`Machine`] that simulates clocks, network and processes for this thread. Returns `None` when the thread
/// has no simulated sandbox.
pub fn machine() -> Option<Rc<Machine>> {
    let machine = MACHINE.try_with(|machine| machine.borrow().clone());
    machine.ok().flatten().filter(|one| one.sandboxes() > 0)
}

/// Starts a sandbox whose APIs do not listen on sockets. The programs that are simulated in this thread reach the APIs
/// over the simulated network. The APIs use the simulated clocks of this thread.
pub fn start(builder: Builder) -> Arc<Sandbox> {
    let machine = MACHINE.with(|machine| {
        let mut machine = machine.borrow_mut();
        Rc::clone(machine.get_or_insert_with(new_machine))
    });
    // Each sandbox of a test has its own IP address: 127.0.1.1 when no other sandbox of the test exists yet, 127.0.1.2
    // when one exists already, and so on.
    let number = u8::try_from(1 + machine.sandboxes()).unwrap();
    let address = Ipv4Addr::new(127, 0, 1, number).into();
    let builder = builder.address(address).scale(1.0).in_memory();
    let sandbox = Arc::new(builder.start());
    machine.connect(&sandbox);
    sandbox
}

/// Creates the [`Machine`] that simulates clocks, network and processes for this thread. From now on until the thread
/// ends, the clocks of the thread are simulated.
fn new_machine() -> Rc<Machine> {
    let machine = Machine::new(1, false);
    after_processes();
    std::mem::forget(sandbox::time::simulate(machine.time()));
    std::mem::forget(clock::simulate(machine.clone()));
    static LOGGER: Once = Once::new();
    LOGGER.call_once(|| {
        let _ = log::set_logger(&ToProcess);
        log::set_max_level(log::LevelFilter::Trace);
    });
    machine
}

/// Gives this thread a low priority. The thread never waits for real time, and would otherwise slow down the tests
/// whose processes run in real time.
#[allow(unsafe_code)]
fn after_processes() {
    // Safety: setpriority takes only numbers and no pointers. On Linux, 0 means the calling thread and not its process.
    // A failure changes nothing.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 15);
    }
}

/// Lets simulated time pass until `holds` returns true. Returns false when this takes longer than `limit`.
pub fn holds_within(machine: &Machine, limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = machine.passed() + limit;
    while !holds() {
        if machine.passed() >= end {
            return false;
        }
        let look = machine.passed() + LOOK;
        if !machine.processes.work(machine, look) {
            machine.pass_until(look);
        }
    }
    true
}

/// Runs a `ccm` command simulated in this thread, and waits until it has ended.
pub fn command(env: &super::Env, words: &[&str]) -> Ran {
    let machine = machine().expect("a simulated sandbox");
    let ends = ["--once", "--dry-run", "--help", "-h"];
    if words.first() == Some(&"run") && !words.iter().any(|word| ends.contains(word)) {
        return ended(&machine, &Daemon::start(env, words));
    }
    let process = machine.processes.begin(env);
    let code = machine.processes.as_process(&process, || cli::in_simulation(called("ccm", words)));
    machine.processes.end(&process);
    Ran { code: code.into(), stdout: process.stdout.take(), stderr: process.stderr.take() }
}

/// Waits until a daemon ends although the test sends no signal to it. Returns the daemon's output and exit code.
fn ended(machine: &Machine, daemon: &Daemon) -> Ran {
    let mut code = None;
    let ends = || {
        code = daemon.ended();
        code.is_some()
    };
    assert!(holds_within(machine, super::LIMIT, ends), "{}", daemon.log());
    Ran { code: code.unwrap().into(), stdout: daemon.process.stdout.take(), stderr: daemon.log() }
}

fn called(name: &str, words: &[&str]) -> Vec<OsString> {
    let words = std::iter::once(name).chain(words.iter().copied());
    words.map(OsString::from).collect()
}

/// A `ccm run` that is simulated in the test's thread. Dropping this value ends the daemon.
pub struct Daemon {
    machine: Rc<Machine>,
    process: Rc<Process>,
    /// The running daemon, or the exit code when the daemon ended during its start.
    daemon: Result<cli::SimulatedDaemon, u8>,
    /// The daemon's exit code, or `None` while the daemon runs.
    code: Cell<Option<u8>>,
}

impl Daemon {
    /// Starts `ccm run`. `words` are its arguments: `run` and flags, or only flags.
    pub fn start(env: &super::Env, words: &[&str]) -> Daemon {
        let machine = machine().expect("a simulated sandbox");
        let process = machine.processes.begin(env);
        let words = words.strip_prefix(&["run"]).unwrap_or(words);
        let words = words.iter().map(OsString::from).collect();
        let daemon = machine.processes.as_process(&process, || cli::SimulatedDaemon::start(words));
        Daemon { code: Cell::new(daemon.as_ref().err().copied()), machine, process, daemon }
    }

    pub fn log(&self) -> String {
        self.process.stderr.borrow().clone()
    }

    /// Asks the daemon to end, as SIGTERM does.
    pub fn terminate(&self) {
        let stop = || self.daemon.iter().for_each(cli::SimulatedDaemon::stop);
        self.machine.processes.as_process(&self.process, stop);
    }

    /// Returns the daemon's exit code, or `None` while the daemon runs.
    pub fn ended(&self) -> Option<u8> {
        if let (None, Ok(daemon)) = (self.code.get(), &self.daemon)
            && daemon.is_stopped()
        {
            let code = self.machine.processes.as_process(&self.process, || daemon.end());
            self.machine.processes.end(&self.process);
            self.code.set(Some(code));
        }
        self.code.get()
    }

    /// Stops the daemon at once, as SIGKILL does. The daemon sends no more API calls, e.g. to release its Lease.
    pub fn kill(&self) {
        self.machine.processes.end(&self.process);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All simulated processes of a [`Machine`]. When one process waits in the middle of its work, another process can run.
/// The first process continues only when the other process has finished its work. The processes with unfinished work
/// therefore form a stack.
#[derive(Default)]
pub struct Processes {
    all: RefCell<Vec<Rc<Process>>>,
    /// The processes whose work has begun and is not finished. The code of the last process in this list runs now. All
    /// other processes in the list wait for the last one.
    stack: RefCell<Vec<Rc<Process>>>,
}

/// A simulated process: the environment variables, the output, the logger and the threads of a program that runs in the
/// test's thread.
#[derive(Default)]
pub struct Process {
    variables: Vec<(OsString, OsString)>,
    stdout: RefCell<String>,
    stderr: RefCell<String>,
    logger: RefCell<Option<Rc<dyn Log>>>,
    threads: RefCell<Vec<Rc<Thread>>>,
}

/// A thread of a simulated process.
struct Thread {
    /// The simulated time at which the thread's next work is due, counted from the creation of the [`Machine`].
    due: Cell<Duration>,
    /// Whether this thread can run while another thread of its process waits in the middle of its work. Only a thread
    /// that shares no lock with other threads can do this without a deadlock.
    is_apart: bool,
    /// The function that does the thread's work. `None` while the function is running.
    work: RefCell<Option<Work>>,
}

type Work = Box<dyn FnMut() -> Option<Duration>>;

impl Processes {
    /// Creates a simulated process with these environment variables.
    fn begin(&self, env: &super::Env) -> Rc<Process> {
        let variables = env.iter().filter(|(name, _)| name != MARK);
        let process = Rc::new(Process {
            variables: variables
                .map(|(name, value)| (name.into(), value.into()))
                .chain([("HOME".into(), "/nonexistent".into())])
                .collect(),
            ..Process::default()
        });
        self.all.borrow_mut().push(Rc::clone(&process));
        process
    }

    /// Ends a simulated process. Its threads do no more work.
    fn end(&self, process: &Rc<Process>) {
        self.all.borrow_mut().retain(|one| !Rc::ptr_eq(one, process));
        process.threads.take();
    }

    /// Calls `work`, whose code then runs as this simulated process: it sees the environment, output and logger of the
    /// process.
    fn as_process<T>(&self, process: &Rc<Process>, work: impl FnOnce() -> T) -> T {
        self.stack.borrow_mut().push(Rc::clone(process));
        let done = ccm::http::apart(work);
        self.stack.borrow_mut().pop();
        done
    }

    /// Returns the environment, output and logger of the simulated process whose code runs now. The test and its
    /// simulated processes share one thread. Returns `None` when the thread runs code of the test itself.
    pub fn at_work(&self) -> Option<&dyn Surroundings> {
        let is_any = !self.stack.borrow().is_empty();
        is_any.then_some(self as &dyn Surroundings)
    }

    fn current(&self) -> Option<Rc<Process>> {
        self.stack.borrow().last().cloned()
    }

    /// Finds the work that is due first in the threads of all simulated processes, and does it. Returns false when no
    /// work is due by `until`.
    pub fn work(&self, machine: &Machine, until: Duration) -> bool {
        let Some((process, thread)) = self.next(until) else {
            return false;
        };
        machine.pass_until(thread.due.get());
        let Some(mut work) = thread.work.take() else {
            return false;
        };
        match self.as_process(&process, &mut work) {
            Some(pause) => {
                thread.due.set(machine.passed() + pause);
                *thread.work.borrow_mut() = Some(work);
            }
            None => {
                let mut threads = process.threads.borrow_mut();
                threads.retain(|one| !Rc::ptr_eq(one, &thread));
            }
        }
        true
    }

    /// Returns the thread whose work is due first, if that work is due by `until`. While one thread of a process waits
    /// in the middle of its work, it can hold a lock. The other threads of this process are then not chosen, because
    /// they could wait for this lock for ever. A thread that shares no lock with other threads can always be chosen.
    fn next(&self, until: Duration) -> Option<(Rc<Process>, Rc<Thread>)> {
        let stack = self.stack.borrow();
        let mut first: Option<(Rc<Process>, Rc<Thread>)> = None;
        for process in self.all.borrow().iter() {
            let is_at_work = stack.iter().any(|one| Rc::ptr_eq(one, process));
            for thread in process.threads.borrow().iter() {
                let may_work = (thread.is_apart || !is_at_work) && thread.work.borrow().is_some();
                let end = first.as_ref().map_or(until, |(_, first)| first.due.get());
                let is_first = match first {
                    None => thread.due.get() <= end,
                    Some(_) => thread.due.get() < end,
                };
                if may_work && is_first {
                    first = Some((Rc::clone(process), Rc::clone(thread)));
                }
            }
        }
        first
    }
}

impl Surroundings for Processes {
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let current = self.current();
        current.map_or_else(Vec::new, |process| process.variables.clone())
    }

    fn print(&self, is_stderr: bool, text: &[u8]) {
        let Some(process) = self.current() else {
            return;
        };
        let text = String::from_utf8_lossy(text);
        match is_stderr {
            true => process.stderr.borrow_mut().push_str(&text),
            false => process.stdout.borrow_mut().push_str(&text),
        }
    }

    fn log_with(&self, logger: Box<dyn Log>) {
        if let Some(process) = self.current() {
            *process.logger.borrow_mut() = Some(logger.into());
        }
    }

    fn repeat(&self, is_apart: bool, work: Work) {
        let Some(process) = self.current() else {
            return;
        };
        process.threads.borrow_mut().push(Rc::new(Thread {
            due: Cell::default(),
            is_apart,
            work: RefCell::new(Some(work)),
        }));
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} processes", self.all.borrow().len())
    }
}

/// A logger that passes each record to the logger of the simulated process whose code runs now.
struct ToProcess;

impl Log for ToProcess {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        let machine = MACHINE.try_with(|machine| machine.try_borrow().ok()?.clone());
        let process = machine.ok().flatten().and_then(|one| one.processes.current());
        let logger = process.and_then(|process| process.logger.borrow().clone());
        if let Some(logger) = logger.filter(|logger| logger.enabled(record.metadata())) {
            logger.log(record);
        }
    }

    fn flush(&self) {}
}
