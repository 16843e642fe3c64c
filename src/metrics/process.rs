//! What the kernel says about this process, under the names that Prometheus' clients use.

use super::{PROCESS_CPU, PROCESS_MEMORY, PROCESS_START};
use std::time::{SystemTime, UNIX_EPOCH};

/// Of `/proc/self/stat`, on every architecture that Linux still runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// Takes note of when the process began: now.
pub fn begin() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    PROCESS_START.set(&[], now.unwrap_or_default().as_secs_f64().floor());
}

/// Where there is no `/proc`, nothing is said.
pub(super) fn look() {
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

/// Own and kernel time: the 14th and 15th field. The second, the program's name in
/// parentheses, may hold anything.
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

    #[test]
    fn the_kernels_words_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 120 34 0 0 20 0 9 0 1 1 1";
        assert_eq!(processor_ticks(stat), Some(154));
        assert_eq!(processor_ticks("7 (ccm) S 1"), None);
        assert_eq!(
            resident_kilobytes("VmHWM:\t 9 kB\nVmRSS:\t    5432 kB\n"),
            Some(5432)
        );
        assert_eq!(resident_kilobytes("VmHWM: 9 kB"), None);
    }
}
