//! An answer: its head, its status, and its body, which is parsed while it arrives.

use super::error::{Head, HttpError, HttpErrorKind, describe_io};
use super::request::{HttpSettings, Parse, Reading};
use super::secret::{Secret, redact};
use super::unread::WithoutArrays;
use crate::text::cut;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use std::io::{self, BufReader, Read};
use std::time::Duration;
use ureq::http::HeaderMap;

/// The greatest number of bytes that the parser reads from an answer at once.
const PIECE_BYTES: usize = 16 * 1024;

/// How many bytes of a body are read first, before the body is parsed or logged. When the answer is an error, no more
/// of the body is read.
const BEGINNING_BYTES: u64 = 16 * 1024;

/// How many bytes of a body are read first when the caller wants to know whether the body equals an earlier answer. A
/// longer body is not compared. A table with the rows of about 1,000 nodes fits into this size.
const KNOWN_BYTES: u64 = 256 * 1024;

/// How many characters of a body the log shows at most.
const SHOWN_CHARACTERS: usize = 2 * 1024;

/// The length to which a content type is cut in messages, in characters.
const CONTENT_TYPE_CHARACTERS: usize = 100;

/// The longest `X-Correlation-Id`, in bytes. The IDs of Hetzner have 16 digits.
const CORRELATION_ID_BYTES: usize = 64;

/// The status of a call that succeeded and whose answer has no body. The parser gets the JSON value `null` instead of a
/// body.
const NO_CONTENT: u16 = 204;

/// An answer whose body was read and parsed completely.
#[derive(Debug)]
pub struct Reply<T> {
    pub head: Head,
    pub value: T,
    /// The length of the body, in bytes.
    pub length: u64,
}

/// A reader of a body that counts the bytes of the body.
struct CountedBody<R> {
    body: R,
    length: u64,
}

impl<R: Read> Read for CountedBody<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(into)?;
        self.length += count as u64;
        Ok(count)
    }
}

/// A request that was sent, with the options for reading its answer.
pub(super) struct SentRequest<'a> {
    /// The method and the URL of the call.
    pub(super) line: &'a str,
    pub(super) timeout: Duration,
    pub(super) settings: &'a HttpSettings,
    pub(super) reading: Reading<'a>,
    pub(super) secrets: &'a [Secret],
}

impl SentRequest<'_> {
    pub(super) fn read<P: Parse>(
        &self,
        response: ureq::http::Response<ureq::Body>,
        how: P,
    ) -> Result<Reply<P::Value>, HttpError> {
        let &SentRequest { line, timeout, settings, reading, secrets } = self;
        let head = head_of(response.status().as_u16(), response.headers());
        let is_known = reading.is_known;
        let limit = reading.body_limit_bytes;
        let body = response
            .into_body()
            .into_with_config()
            .limit(limit.unwrap_or(settings.body_limit_bytes))
            .reader();
        let body = CountedBody { body, length: 0 };
        let mut body = WithoutArrays::new(body, settings.unread);
        let most = is_known.map_or(BEGINNING_BYTES, |_| KNOWN_BYTES);
        // A vector that is full doubles its memory, so there is space for a body that is a little longer than before.
        let space = reading.length.min(most as usize) / 8 * 9;
        let mut start = Vec::with_capacity(space);
        let begun = body.by_ref().take(most).read_to_end(&mut start);
        if settings.log_bodies {
            log::debug!("{line}: answered {} {}", head.status, beginning(&start, secrets));
        }
        let is_known =
            |read| (read as u64) < most && is_known.is_some_and(|is_known| is_known(&start));
        let parsed = match (head.status, begun) {
            (200..300, Ok(read)) if is_known(read) => null("the same as before", how),
            (200..300, Ok(read)) => {
                // When the whole answer is shorter than `PIECE_BYTES`, the buffer is only as large as the answer.
                let piece = PIECE_BYTES.min(read);
                let body = BufReader::with_capacity(piece, start.as_slice().chain(&mut body));
                parse(body, &head, timeout, how)
            }
            (200..300, Err(error)) => Err(describe_io(&error, timeout)),
            // When the status is an error, it does not matter whether the whole body could be read. The status is
            // reported with the part of the body that was read.
            _ => Err(HttpErrorKind::Status(start)),
        };
        match parsed {
            Ok(value) => Ok(Reply { head, value, length: body.inner().length }),
            Err(kind) => Err(HttpError { call: line.to_owned(), kind, head: Some(Box::new(head)) }),
        }
    }
}

/// Returns the beginning of a body as text for the log. The secrets are redacted before the text is cut, because a
/// secret that the cut had shortened would not be recognized.
pub(super) fn beginning(body: &[u8], secrets: &[Secret]) -> String {
    let text = redact(&String::from_utf8_lossy(body), secrets);
    cut(&text, SHOWN_CHARACTERS).into_owned()
}

fn head_of(status: u16, headers: &HeaderMap) -> Head {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name: &str| text(name).and_then(|value| value.trim().parse::<u64>().ok());
    Head {
        status,
        content_type: text("content-type").unwrap_or_default().to_owned(),
        correlation_id: text("x-correlation-id")
            .filter(|id| is_correlation_id(id))
            .map(str::to_owned),
        retry_after: number("retry-after").map(Duration::from_secs),
        rate_limit: number("ratelimit-limit")
            .zip(number("ratelimit-remaining"))
            .zip(number("ratelimit-reset"))
            .map(|((limit, remaining), reset)| (limit, remaining, reset)),
        date: text("date").and_then(date),
    }
}

/// Whether a text has the form of a correlation ID: letters, digits and dashes. A header `X-Correlation-Id` with any
/// other text is ignored.
fn is_correlation_id(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=CORRELATION_ID_BYTES).contains(&text.len()) && text.bytes().all(is_part)
}

/// Parses a date like `Sun, 06 Nov 1994 08:49:37 GMT`, the only form that servers are allowed to send.
fn date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

/// Parses the JSON value `null` instead of a body. This is done when the answer has no body, or when its body equals an
/// earlier answer and need not be parsed. When the parser does not accept `null`, the error message contains
/// `answered`, which describes the answer.
fn null<P: Parse>(answered: &str, how: P) -> Result<P::Value, HttpErrorKind> {
    how.parse(serde_json::Value::Null).map_err(|_| {
        HttpErrorKind::Malformed(format!("answered {answered}, without the requested content"))
    })
}

fn parse<P: Parse>(
    body: impl Read,
    head: &Head,
    timeout: Duration,
    how: P,
) -> Result<P::Value, HttpErrorKind> {
    if head.status == NO_CONTENT {
        return null("204", how);
    }
    if !head.content_type.starts_with("application/json") {
        let answered = match head.content_type.as_str() {
            "" => "no content type".into(),
            content_type => cut(content_type, CONTENT_TYPE_CHARACTERS),
        };
        return Err(HttpErrorKind::Malformed(format!(
            "answered {} with {answered} instead of JSON; is this the API's address, or did a proxy answer?",
            head.status
        )));
    }
    let mut body = serde_json::Deserializer::from_reader(body);
    let value = how.parse(&mut body);
    value.and_then(|value| body.end().map(|()| value)).map_err(|error| {
        if error.is_io() {
            describe_io(&io::Error::from(error), timeout)
        } else if error.is_eof() {
            HttpErrorKind::Unreachable("the answer ended before it was complete".into())
        } else {
            HttpErrorKind::Malformed(format!(
                "the answer does not have the form of this API: {error}"
            ))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_id_has_its_form() {
        for (text, expected) in [
            ("d1f2a3b4-c5d6", true),
            ("5a3f0f7e9b1c2d3e", true),
            ("", false),
            ("a b", false),
            ("a_b", false),
            ("ä", false),
            ("a\u{1b}[2J", false),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
        ] {
            assert_eq!(is_correlation_id(text), expected, "{text}");
        }
    }

    #[test]
    fn a_date_is_read_in_its_one_form() {
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some("1994-11-06T08:49:37Z")),
            ("Thu, 31 Dec 2026 23:59:59 GMT", Some("2026-12-31T23:59:59Z")),
            ("Sun, 06 ovD 1994 08:49:37 GMT", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("", None),
        ] {
            let read = date(text).map(|time| time.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
