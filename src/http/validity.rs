//! From when until when a certificate is valid: the one thing about our own certificate that no
//! library here tells, and the most frequent reason for it to be refused.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which the oldest certificates leave out.
const CONTEXT_0: u8 = 0xa0;

/// What keeps a certificate from being accepted at `now`. One that can't be read is the server's to judge.
pub(super) fn check(der: &[u8], now: Timestamp) -> Result<(), String> {
    let Some((from, until)) = period(der) else {
        return Ok(());
    };
    if until < now {
        return Err(format!("expired at {until}; get a new one"));
    }
    if now < from {
        return Err(format!(
            "is valid only from {from} on, and now it is {}; is this machine's clock right?",
            now.strftime("%Y-%m-%dT%H:%M:%SZ")
        ));
    }
    Ok(())
}

/// `Certificate`, `TBSCertificate` and `Validity` of RFC 5280, 4.1.
fn period(der: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let (certificate, _) = expect(SEQUENCE, der)?;
    let (mut rest, _) = expect(SEQUENCE, certificate)?;
    if let Some((_, after)) = expect(CONTEXT_0, rest) {
        rest = after;
    }
    // Serial number, signature, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, rest) = expect(tag, rest)?;
    }
    let (validity, _) = expect(SEQUENCE, rest)?;
    let (from, rest) = time(validity)?;
    let (until, _) = time(rest)?;
    Some((from, until))
}

fn time(der: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (tag, content, rest) = element(der)?;
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let text = match tag {
        // Two digits of the year: 50 to 99 are of the last century.
        UTC_TIME if text < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i8>().ok();
    let time = DateTime::new(
        text.get(..4)?.parse().ok()?,
        number(4, 6)?,
        number(6, 8)?,
        number(8, 10)?,
        number(10, 12)?,
        number(12, 14)?,
        0,
    );
    let time = time.ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some((time, rest))
}

fn expect(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(der)?;
    (found == tag).then_some((content, rest))
}

/// Tag, content, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // So many bytes of length follow; four are four gigabytes.
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = bytes
                .iter()
                .fold(0usize, |length, byte| length << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}
