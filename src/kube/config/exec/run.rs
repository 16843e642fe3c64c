//! Runs a plugin to its end, or to ours: what it prints and how long it takes are bounded.

use super::answer;
use super::program::Program;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Credentials have some kilobytes.
const STDOUT_LIMIT_BYTES: u64 = 1 << 20;

/// The beginning of it is shown.
const STDERR_LIMIT_BYTES: u64 = 64 << 10;

/// How often it is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// What a program printed may come a moment after its end, or never when it left a child behind.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What it printed on its standard output. The error is for people and says nothing secret.
pub(super) fn run(program: &Program, time_limit: Duration) -> Result<Vec<u8>, String> {
    let name = program.shown();
    let mut child = Command::new(&program.path)
        .args(&program.args)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name} can't be started: {error}"))?;
    let stdout = drain(child.stdout.take(), STDOUT_LIMIT_BYTES);
    let stderr = drain(child.stderr.take(), STDERR_LIMIT_BYTES);
    let status = wait(&mut child, time_limit).map_err(|error| format!("{name}: {error}"))?;
    let printed = stdout.recv_timeout(LAST_WORDS).unwrap_or_default();
    let complaint = || {
        let text = stderr.recv_timeout(LAST_WORDS).unwrap_or_default();
        let made = answer::secrets(&printed);
        match program.redacted(&String::from_utf8_lossy(&text), &made) {
            text if text.is_empty() => "and said nothing about it".into(),
            text => format!("and said: {text}"),
        }
    };
    match status {
        Some(status) if status.success() && printed.len() as u64 > STDOUT_LIMIT_BYTES => Err(
            format!("{name} printed more than {} MiB", STDOUT_LIMIT_BYTES >> 20),
        ),
        Some(status) if status.success() => Ok(printed),
        Some(status) => Err(format!("{name} failed ({status}) {}", complaint())),
        None => Err(format!(
            "{name} was not done within {} s and was stopped; does it wait for somebody? run it by hand, \
             without a standard input",
            time_limit.as_secs_f32()
        )),
    }
}

/// None: it took too long, and is no more.
fn wait(child: &mut Child, time_limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= time_limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Reads to the end, so that nobody waits for us to read; keeps so much of it, and a byte more.
fn drain(pipe: Option<impl Read + Send + 'static>, limit_bytes: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let read = move || {
        let mut kept = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = (&mut pipe).take(limit_bytes + 1).read_to_end(&mut kept);
            let _ = io::copy(&mut pipe, &mut io::sink());
        }
        // Nobody waits for it any more.
        let _ = sender.send(kept);
    };
    // Without a thread the receiver finds nothing, which is an error where it matters.
    let _ = std::thread::Builder::new().name("exec".into()).spawn(read);
    receiver
}
