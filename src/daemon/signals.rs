//! SIGTERM and SIGINT: end cleanly; a second one: end at once.

use super::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::time::{Duration, Instant};

/// One wish to end may come twice: coreutils' timeout signals its child and then the group of
/// processes that the child is in.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Sets `stop` at the first signal, on a thread of its own.
pub fn stop_on_signals(stop: &'static Stop) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            if let Some(first) = first {
                if first.elapsed() < SAME_WISH {
                    continue;
                }
                log::warn!("second signal: ending at once");
                std::process::exit(1);
            }
            first = Some(Instant::now());
            let name = if signal == SIGTERM {
                "SIGTERM"
            } else {
                "SIGINT"
            };
            log::info!("{name}: ending; a second signal ends at once");
            stop.set();
        }
    });
    Ok(())
}
