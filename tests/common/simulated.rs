//! Whole programs on the simulated machine: `ccm run` and commands run in the thread of the test, with the wiring and
//! the settings that they have as processes.
//!
//! [`start`] makes a sandbox in memory, and the thread of the test is simulated from then on. Time passes when a
//! program waits, and while the test waits for something. Daemons then do their work in the order in which it is due.

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

/// A variable that tells the functions in `tests/common` that the machine is simulated. Programs do
/// not get this variable.
pub const MARK: &str = "SIMULATED";

/// The longest time between two checks of a waiting test. The test checks even when no daemon has work, because others
/// change the APIs too, e.g. a kubelet.
const LOOK: Duration = Duration::from_secs(1);

thread_local! {
    static MACHINE: RefCell<Option<Rc<Machine>>> = const { RefCell::new(None) };
}

/// Returns the machine of this thread, if a sandbox runs on the machine.
pub fn machine() -> Option<Rc<Machine>> {
    let machine = MACHINE.try_with(|machine| machine.borrow().clone());
    machine.ok().flatten().filter(|one| one.sandboxes() > 0)
}

/// Starts the sandbox in memory, on the simulated machine of this thread.
pub fn start(builder: Builder) -> Arc<Sandbox> {
    let machine = MACHINE.with(|machine| {
        let mut machine = machine.borrow_mut();
        Rc::clone(machine.get_or_insert_with(new_machine))
    });
    // Each sandbox has its own addresses and UIDs.
    let number = u8::try_from(1 + machine.sandboxes()).unwrap();
    let address = Ipv4Addr::new(127, 0, 1, number).into();
    let builder = builder.address(address).scale(1.0).in_memory();
    let sandbox = Arc::new(builder.start());
    machine.connect(&sandbox);
    sandbox
}

/// Creates the machine. From now on until the thread ends, the clocks of the thread are simulated.
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

/// Gives this thread a low priority, because the thread never waits for real time, while the processes of
/// other tests do.
#[allow(unsafe_code)]
fn after_processes() {
    // Safety: setpriority takes only numbers. On Linux 0 is the calling thread, not its process. An
    // error changes nothing.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 15);
    }
}

/// Lets time pass until `holds` returns true. Returns false when it does not in time.
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

/// Runs a command and waits for its end.
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

/// Waits until a daemon has ended by itself, and returns its output and exit code.
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

/// A daemon that runs on the simulated machine until it is dropped.
pub struct Daemon {
    machine: Rc<Machine>,
    process: Rc<Process>,
    /// The running daemon, or the exit code of a daemon that ended at its start.
    daemon: Result<cli::SimulatedDaemon, u8>,
    /// The daemon's exit code, once it has ended.
    code: Cell<Option<u8>>,
}

impl Daemon {
    /// Starts a daemon. `words` are `run` and flags, or only flags.
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

    /// Asks the daemon to end.
    pub fn terminate(&self) {
        let stop = || self.daemon.iter().for_each(cli::SimulatedDaemon::stop);
        self.machine.processes.as_process(&self.process, stop);
    }

    /// Returns the daemon's exit code, once it has ended.
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

    /// Stops the daemon at once, without its usual work at the end.
    pub fn kill(&self) {
        self.machine.processes.end(&self.process);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All programs of a machine, and those that are running at this moment.
#[derive(Default)]
pub struct Processes {
    all: RefCell<Vec<Rc<Process>>>,
    /// The programs that are in the middle of some work. The last one has begun its work while the others wait.
    stack: RefCell<Vec<Rc<Process>>>,
}

/// A simulated process: the environment variables, the output, the logger and the threads of a program.
#[derive(Default)]
pub struct Process {
    variables: Vec<(OsString, OsString)>,
    stdout: RefCell<String>,
    stderr: RefCell<String>,
    logger: RefCell<Option<Rc<dyn Log>>>,
    threads: RefCell<Vec<Rc<Thread>>>,
}

/// A thread of a program.
struct Thread {
    /// The time of the machine at which the thread's next work is due.
    due: Cell<Duration>,
    /// Whether the thread may work while another thread of its process waits, because the thread shares
    /// no lock with it.
    is_apart: bool,
    /// The work of the thread. `None` while the thread does this work.
    work: RefCell<Option<Work>>,
}

type Work = Box<dyn FnMut() -> Option<Duration>>;

impl Processes {
    /// Creates a process with these environment variables.
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

    /// Ends a process. Its threads do no more work.
    fn end(&self, process: &Rc<Process>) {
        self.all.borrow_mut().retain(|one| !Rc::ptr_eq(one, process));
        process.threads.take();
    }

    /// Runs `work` as this process, with its environment, output and logger.
    fn as_process<T>(&self, process: &Rc<Process>, work: impl FnOnce() -> T) -> T {
        self.stack.borrow_mut().push(Rc::clone(process));
        let done = ccm::http::apart(work);
        self.stack.borrow_mut().pop();
        done
    }

    /// Returns the surroundings of the process that is at work, or `None` while the test itself is at work.
    pub fn at_work(&self) -> Option<&dyn Surroundings> {
        let is_any = !self.stack.borrow().is_empty();
        is_any.then_some(self as &dyn Surroundings)
    }

    fn current(&self) -> Option<Rc<Process>> {
        self.stack.borrow().last().cloned()
    }

    /// Runs the work that is due first, if it is due by the moment `until`. Returns false when no work is due by then.
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

    /// Returns the thread whose work is due first, if that work is due by `until`. A process that is already at work
    /// waits for something and may hold a lock. Only its threads that share no lock with others may work then.
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

/// A logger that passes each record to the logger of the simulated process that is running.
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
