//! SIGTERM and SIGINT: end cleanly; a second one: end at once.

use super::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;

/// Sets `stop` at the first signal, on a thread of its own.
pub fn stop_on_signals(stop: &'static Stop) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if stop.is_set() {
                log::warn!("second signal: ending at once");
                std::process::exit(1);
            }
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
