//! What holds for the whole process: memory, and how a bug ends it.

use super::output::Printer;
use super::terminal;
use std::panic::PanicHookInfo;

/// First thing in every run.
pub(super) fn prepare() {
    one_malloc_arena();
    forbid_dumps();
    std::panic::set_hook(Box::new(end_with_one_line));
}

/// glibc gives every thread an arena of its own, which keeps what that thread once needed:
/// megabytes for a daemon whose threads take turns parsing lists.
#[allow(unsafe_code)]
fn one_malloc_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // Safety: mallopt has no preconditions, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Its memory holds tokens and private keys: there is no core dump of it, and no process without CAP_SYS_PTRACE reads its
/// memory or environment. Not RLIMIT_CORE: a program that takes core dumps by a pipe does not obey it. What is read of
/// `/proc/self` for metrics (`stat`, `status`) stays readable.
#[allow(unsafe_code)]
fn forbid_dumps() {
    #[cfg(target_os = "linux")]
    // Safety: it takes numbers alone.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// No backtrace reaches a user; the process ends whole, never half.
fn end_with_one_line(info: &PanicHookInfo) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Printer::failure(&format!(
        "internal error at {place}: {message}; this is a bug in ccm, please report it"
    ));
    terminal::end();
    std::process::exit(1);
}
