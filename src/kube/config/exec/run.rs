//! Runs a plugin to its end, or to ours: what it prints and how long it takes are bounded, and nothing of it stays
//! behind when we end it.

use super::answer;
use super::program::Program;
use socket2::SockRef;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Credentials have some kilobytes.
const STDOUT_LIMIT_BYTES: usize = 1 << 20;

/// The beginning of it is shown.
const STDERR_LIMIT_BYTES: usize = 64 << 10;

/// How often it is asked whether it has ended or said something.
const POLL: Duration = Duration::from_millis(5);

/// What a pipe holds on Linux.
const PIPE_BYTES: usize = 64 << 10;

/// What it printed on its standard output. The error is for people and says nothing secret.
pub(super) fn run(program: &Program, time_limit: Duration) -> Result<Vec<u8>, String> {
    let name = program.shown();
    let mut child = Command::new(&program.path)
        .args(&program.args)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| !is_of_cloud(name)))
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: what it has started itself is ended with it.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{name} can't be started: {error}"))?;
    let mut stdout = Output::of(child.stdout.take(), STDOUT_LIMIT_BYTES);
    let mut stderr = Output::of(child.stderr.take(), STDERR_LIMIT_BYTES);
    let status = wait(&mut child, time_limit, &mut stdout, &mut stderr)
        .map_err(|error| format!("{name}: {error}"))?;
    let printed = stdout.kept;
    let complaint = || {
        let made = answer::secrets(&printed);
        match program.redacted(&complete_words(&stderr.kept), &made) {
            text if text.is_empty() => "and said nothing about it".into(),
            text => format!("and said: {text}"),
        }
    };
    match status {
        Some(status) if status.success() && printed.len() > STDOUT_LIMIT_BYTES => Err(format!(
            "{name} printed more than {} MiB",
            STDOUT_LIMIT_BYTES >> 20
        )),
        Some(status) if status.success() => Ok(printed),
        Some(status) => Err(format!("{name} failed ({status}) {}", complaint())),
        None => Err(format!(
            "{name} was not done within {} s and was stopped; does it wait for input? run it by hand, \
             without a standard input",
            time_limit.as_secs_f32()
        )),
    }
}

/// Where the reading ended in the middle of a word, that word may be half of a secret.
fn complete_words(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    if printed.len() <= STDERR_LIMIT_BYTES {
        return text.into_owned();
    }
    let end = text.rfind(char::is_whitespace).unwrap_or_default();
    text[..end].to_owned()
}

/// The token of the project, or of the Robot API, is not for a program of the kubeconfig.
fn is_of_cloud(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"HCLOUD_") || name.starts_with(b"ROBOT_")
}

/// None: it took too long, and is no more.
///
/// What it printed is read meanwhile, so that it does not wait for us to read. Its end counts,
/// and not that of the pipes: a child that it left behind may hold them open for ever.
fn wait(
    child: &mut Child,
    time_limit: Duration,
    stdout: &mut Output,
    stderr: &mut Output,
) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        // Asked before the reading: what it printed before its end is in the pipes by then.
        let status = child.try_wait();
        let has_read = stdout.read() | stderr.read();
        match status {
            Ok(None) if begun.elapsed() < time_limit => {}
            Ok(Some(status)) => return Ok(Some(status)),
            outcome => {
                end_group(child);
                child.wait()?;
                return outcome;
            }
        }
        if !has_read {
            std::thread::sleep(POLL);
        }
    }
}

/// The program, and whatever it has started and did not make a group of its own.
#[allow(unsafe_code)]
fn end_group(child: &Child) {
    let Ok(group) = libc::pid_t::try_from(child.id()) else {
        return;
    };
    // Safety: kill has no preconditions. The program was not waited for yet, so the number is
    // its own and its group's.
    unsafe {
        libc::kill(-group, libc::SIGKILL);
    }
}

/// The output that comes out of a pipe: so much of it, and a byte more.
struct Output {
    pipe: Option<Box<dyn Read>>,
    limit_bytes: usize,
    kept: Vec<u8>,
}

impl Output {
    fn of(pipe: Option<impl Read + AsFd + 'static>, limit_bytes: usize) -> Output {
        // A pipe that can only be waited for is none.
        let pipe = pipe.filter(|pipe| SockRef::from(pipe).set_nonblocking(true).is_ok());
        Output {
            pipe: pipe.map(|pipe| Box::new(pipe) as Box<dyn Read>),
            limit_bytes,
            kept: Vec::new(),
        }
    }

    /// Reads what is there, a full pipe at most; was there anything?
    fn read(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else {
            return false;
        };
        let mut buffer = [0; 4096];
        let mut read_bytes = 0;
        while read_bytes < PIPE_BYTES {
            match pipe.read(&mut buffer) {
                Ok(0) => {
                    self.pipe = None;
                    break;
                }
                Ok(count) => {
                    read_bytes += count;
                    let wanted = (self.limit_bytes + 1).saturating_sub(self.kept.len());
                    self.kept.extend(&buffer[..count.min(wanted)]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.pipe = None;
                    break;
                }
            }
        }
        read_bytes > 0
    }
}
