//! Formats ages as tables show them: with at most two units, and with less precision for longer ages.

use crate::time;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Returns the time since `timestamp` (RFC 3339), or `<unknown>` when there is no timestamp.
pub fn since(timestamp: Option<&str>) -> String {
    match timestamp.and_then(|text| text.parse::<jiff::Timestamp>().ok()) {
        Some(then) => human(time::timestamp().as_second() - then.as_second()),
        None => "<unknown>".into(),
    }
}

/// Returns a duration as `kubectl` shows the age of an object. A longer duration is shown in larger units, e.g. `90s`,
/// `3h5m` or `12d`. The durations at which the unit changes are those of `HumanDuration` in `apimachinery`.
fn human(seconds: i64) -> String {
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(seconds, MINUTE, 'm', 1, 's'),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(seconds, HOUR, 'h', MINUTE, 'm'),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(seconds, DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds, YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Returns a duration in two units, e.g. `3h5m`. `large` and `small` are the lengths of the units in seconds. The small
/// unit is left out when its number is zero.
fn two(seconds: i64, large: i64, large_name: char, small: i64, small_name: char) -> String {
    let (whole, rest) = (seconds / large, seconds % large / small);
    if rest == 0 {
        format!("{whole}{large_name}")
    } else {
        format!("{whole}{large_name}{rest}{small_name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_at_most_two_units() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR + 61, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR + DAY, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }
}
