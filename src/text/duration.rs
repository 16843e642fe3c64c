//! Parses and prints durations in the form that Go's `time.ParseDuration` reads, e.g. `1m30s`.

use std::time::Duration;

/// The longest duration that is accepted, about 292 years. It is the limit of Go, where a duration is an `i64` of
/// nanoseconds.
const MAX_NANOSECONDS: u128 = i64::MAX as u128;

/// The shortest interval that is accepted between two reads of an API. A shorter interval would make too many calls to
/// an API that other programs use, too.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The longest duration that [`whole_seconds`] accepts, one year. A longer value is probably a mistake, and would be
/// too large for some fields of the Hetzner Cloud API.
const LONGEST_S: u32 = 365 * 24 * 3600;

/// Parses a duration, e.g. `300ms`, `1.5h` or `1m30s`. A number without a unit is accepted only when it is 0.
pub fn duration(text: &str) -> Result<Duration, String> {
    let unsigned = match text.strip_prefix('-') {
        Some(rest) if nanoseconds(rest)? > 0 => return Err("must not be negative".to_owned()),
        Some(rest) => rest,
        None => text.strip_prefix('+').unwrap_or(text),
    };
    let nanoseconds = nanoseconds(unsigned)?;
    u64::try_from(nanoseconds).map(Duration::from_nanos).map_err(|_| too_long())
}

/// Parses the interval between two reads of an API. An interval that is shorter than `SHORTEST_INTERVAL` is an error.
pub fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        interval if interval < SHORTEST_INTERVAL => {
            Err(format!("must be {}ms or longer", SHORTEST_INTERVAL.as_millis()))
        }
        interval => Ok(interval),
    }
}

/// Parses a duration that must be a whole number of seconds and at least one second.
pub fn whole_seconds(text: &str) -> Result<u32, String> {
    seconds_between(text, 1, LONGEST_S)
}

/// Parses how long a node that will stop soon stays a target of a load balancer: `0s` to `600s`.
pub fn departing_delay(text: &str) -> Result<Duration, String> {
    seconds_between(text, 0, 600).map(|seconds| Duration::from_secs(seconds.into()))
}

/// Parses the time during which both load balancers serve while one replaces the other, from `0s` to `720h`. Returns it
/// in seconds.
pub fn overlap(text: &str) -> Result<u32, String> {
    let seconds = seconds_between(text, 0, 720 * 3600);
    seconds.map_err(|_| "use a duration from 0s to 720h, e.g. 24h".to_owned())
}

/// Parses a duration that must be a whole number of seconds, from `least` to `most`.
pub fn seconds_between(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let duration = duration(text)?;
    let whole = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
    if duration.subsec_nanos() != 0 {
        return Err("use whole seconds, e.g. 15s".to_owned());
    }
    if (least..=most).contains(&whole) {
        Ok(whole)
    } else {
        Err(format!("use {least}s to {most}s"))
    }
}

/// Returns the text of a duration in seconds in Go's form, without units that are zero, e.g. `50m` or `1h30m`.
pub fn shown_duration(seconds: u64) -> String {
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let text: String = parts.map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn nanoseconds(text: &str) -> Result<u128, String> {
    if text == "0" {
        return Ok(0);
    }
    let (mut sum, mut rest) = first_part(text)?;
    while !rest.is_empty() {
        let (part, after) = first_part(rest)?;
        sum = part.saturating_add(sum);
        rest = after;
    }
    if sum > MAX_NANOSECONDS { Err(too_long()) } else { Ok(sum) }
}

/// Parses the first number of the text together with its unit, e.g. `1h` of `1h30m`. Returns this duration in
/// nanoseconds, and the rest of the text. Fractions of a nanosecond are dropped.
fn first_part(text: &str) -> Result<(u128, &str), String> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err("not a duration; write e.g. 5s or 1m30s".to_owned());
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit());
    let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let unit = unit(name)?;
    // A number with more than 20 digits is too large in every unit. It is refused here, because the `u128` would
    // overflow when there are very many digits. A number with 20 digits does not overflow, even in hours.
    if whole.trim_start_matches('0').len() > 20 {
        return Err(too_long());
    }
    // The text contains only digits and is not too long, so parsing fails only for an empty text, which counts as 0.
    let number = |digits: &str| digits.parse::<u128>().unwrap_or(0);
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_u128.pow(fraction.len() as u32);
    let part = number(whole) * unit + number(fraction) * unit / scale;
    Ok((part, rest))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit(name: &str) -> Result<u128, String> {
    Ok(match name {
        "ns" => 1,
        // Unicode has two characters for the micro sign. Go accepts both of them.
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err("a duration needs a unit, e.g. 5s or 1m30s".to_owned()),
        _ => return Err(format!("{name:?} is not a unit of time; use h, m, s, ms, us or ns")),
    })
}

fn too_long() -> String {
    "must not be longer than 292 years".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("-0", 0),
            ("+5s", 5_000_000_000),
            ("5s", 5_000_000_000),
            ("300ms", 300_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("1us2µs3μs", 6_000),
            ("10ns", 10),
            ("1.9999ns", 1),
            ("0.3333333333333333333333h", 1_199_999_999_999),
            ("0s", 0),
            ("30s1h", 3_630_000_000_000),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn is_shown_as_it_is_written() {
        for (seconds, text) in
            [(0, "0s"), (30, "30s"), (300, "5m"), (3000, "50m"), (5405, "1h30m5s"), (7200, "2h")]
        {
            assert_eq!(shown_duration(seconds), text);
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for (text, message) in [
            ("5", "a duration needs a unit, e.g. 5s or 1m30s"),
            ("1m30", "a duration needs a unit, e.g. 5s or 1m30s"),
            ("", "not a duration; write e.g. 5s or 1m30s"),
            ("+", "not a duration; write e.g. 5s or 1m30s"),
            (".s", "not a duration; write e.g. 5s or 1m30s"),
            ("soon", "not a duration; write e.g. 5s or 1m30s"),
            ("5d", "\"d\" is not a unit of time; use h, m, s, ms, us or ns"),
            ("5 s", "\" s\" is not a unit of time; use h, m, s, ms, us or ns"),
            ("-5s", "must not be negative"),
            ("9223372036854775808ns", "must not be longer than 292 years"),
            ("99999999999999999999999999999999999999999h", "must not be longer than 292 years"),
            ("99999999999999999999h", "must not be longer than 292 years"),
        ] {
            assert_eq!(duration(text), Err(message.to_owned()), "{text}");
        }
        for short in ["0", "0h0m", "1ns", "99ms", "99999us"] {
            assert_eq!(interval(short), Err("must be 100ms or longer".to_owned()));
        }
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
    }
}
