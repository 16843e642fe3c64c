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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    fn certificate(validity: &[u8]) -> Vec<u8> {
        let fields = [
            tlv(CONTEXT_0, &[2]),
            tlv(INTEGER, &[1]),
            tlv(SEQUENCE, b"signature"),
            tlv(SEQUENCE, &[7; 300]),
            tlv(SEQUENCE, validity),
            tlv(SEQUENCE, b"subject"),
        ];
        tlv(SEQUENCE, &tlv(SEQUENCE, &fields.concat()))
    }

    #[test]
    fn a_certificate_is_good_from_its_first_to_its_last_second() {
        let validity = [
            tlv(UTC_TIME, b"991231235959Z"),
            tlv(GENERALIZED_TIME, b"20500101000000Z"),
        ];
        let der = certificate(&validity.concat());
        for (now, expected) in [
            ("1999-12-31T23:59:58Z", Some("is valid only from")),
            ("1999-12-31T23:59:59Z", None),
            ("2050-01-01T00:00:00Z", None),
            (
                "2050-01-01T00:00:01Z",
                Some("expired at 2050-01-01T00:00:00Z"),
            ),
        ] {
            let outcome = check(&der, now.parse().unwrap());
            match expected {
                None => assert_eq!(outcome, Ok(()), "{now}"),
                Some(why) => assert!(outcome.unwrap_err().starts_with(why), "{now}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_to_the_server() {
        let good = [
            tlv(UTC_TIME, b"200101000000Z"),
            tlv(UTC_TIME, b"210101000000Z"),
        ]
        .concat();
        let whole = certificate(&good);
        let now = Timestamp::now();
        assert!(check(&whole, now).is_err());
        for end in 0..whole.len() {
            assert_eq!(check(&whole[..end], now), Ok(()), "{end}");
        }
        for wrong in [
            "20010100000Z",
            "209901000000Z",
            "200101000000",
            "é00101000000Z",
        ] {
            let validity = [tlv(UTC_TIME, wrong.as_bytes()), good.clone()].concat();
            assert_eq!(check(&certificate(&validity), now), Ok(()), "{wrong}");
        }
    }
}
