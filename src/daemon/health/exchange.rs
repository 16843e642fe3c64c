//! A request's bytes → an answer's bytes. Pure; nothing that comes in is trusted.

/// The answer to a probe.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    /// One or more lines.
    pub(super) text: String,
}

impl Verdict {
    pub(super) fn new(status: u16, text: impl Into<String>) -> Verdict {
        Verdict {
            status,
            content_type: "text/plain; charset=utf-8",
            text: text.into(),
        }
    }
}

/// Head of a request; a probe's has some 150 bytes, Prometheus' some 500.
const REQUEST_LIMIT_BYTES: usize = 4096;

/// The answer to what has arrived so far; none while more must come.
///
/// The first request is answered and the connection ends: bodies and pipelined requests are not read.
pub(super) fn answer(
    received: &[u8],
    verdict: impl Fn(&str) -> Option<Verdict>,
) -> Option<Vec<u8>> {
    // TLS and other protocols are refused at once.
    if received
        .first()
        .is_some_and(|byte| !byte.is_ascii_uppercase())
    {
        return Some(refusal(400));
    }
    let is_whole = contains(received, b"\r\n\r\n") || contains(received, b"\n\n");
    if !is_whole {
        return (received.len() >= REQUEST_LIMIT_BYTES).then(|| refusal(431));
    }
    let Some((method, path)) = request_line(received) else {
        return Some(refusal(400));
    };
    let Some(verdict) = verdict(path) else {
        return Some(refusal(404));
    };
    Some(match method {
        "GET" => response(&verdict, true),
        "HEAD" => response(&verdict, false),
        _ => refusal(405),
    })
}

/// Method and path of HTTP/1.
fn request_line(received: &[u8]) -> Option<(&str, &str)> {
    let line = received.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_end_matches('\r');
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
        return None;
    };
    let path = target.split('?').next()?;
    path.starts_with('/').then_some((method, path))
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

fn refusal(status: u16) -> Vec<u8> {
    let text = format!("{}\n", reason(status));
    response(&Verdict::new(status, text), true)
}

fn response(verdict: &Verdict, with_body: bool) -> Vec<u8> {
    let Verdict {
        status,
        content_type,
        text,
    } = verdict;
    let allow = match status {
        405 => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    format!(
        "HTTP/1.1 {status} {}\r\n\
         Content-Type: {content_type}\r\n\
         Content-Length: {}\r\n\
         Cache-Control: no-store\r\n\
         {allow}\
         Connection: close\r\n\
         \r\n\
         {}",
        reason(*status),
        text.len(),
        if with_body { text } else { "" }
    )
    .into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn verdict(path: &str) -> Option<Verdict> {
        match path {
            "/livez" => Some(Verdict::new(200, "ok\n")),
            "/readyz" => Some(Verdict::new(503, "later\n")),
            _ => None,
        }
    }

    /// Status line and body; empty while more must come.
    fn answered(request: &[u8]) -> (String, String) {
        let Some(answer) = answer(request, verdict) else {
            return Default::default();
        };
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn requests_and_their_answers() {
        let cases: [(&[u8], &str, &str); 22] = [
            (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK", "ok\n"),
            (b"GET /livez HTTP/1.0\n\n", "HTTP/1.1 200 OK", "ok\n"),
            (b"GET /livez?verbose HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", "ok\n"),
            (b"GET /readyz HTTP/1.1\r\n\r\n", "HTTP/1.1 503 Service Unavailable", "later\n"),
            (b"HEAD /livez HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", ""),
            (b"HEAD /readyz HTTP/1.1\r\n\r\n", "HTTP/1.1 503 Service Unavailable", ""),
            (b"POST /livez HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 405 Method Not Allowed", "Method Not Allowed\n"),
            (b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found", "Not Found\n"),
            (b"GET /livez/ HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found", "Not Found\n"),
            (b"GET /livez HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", "ok\n"),
            // More must come.
            (b"", "", ""),
            (b"G", "", ""),
            (b"GET /livez HTTP/1.1\r\n", "", ""),
            (b"GET /livez HTTP/1.1\r\nHost: x\r\n", "", ""),
            // No HTTP/1.
            (b"\x16\x03\x01\x02\x00", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"PRI * HTTP/2.0\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"GET /livez\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"GET  /livez HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"GET livez HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"G\xffT /livez HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"GET /livez HTTP/1.1 x\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
        ];
        for (request, status, body) in cases {
            let expected = (status.to_owned(), body.to_owned());
            assert_eq!(answered(request), expected, "{:?}", String::from_utf8_lossy(request));
        }
    }

    #[test]
    fn a_head_without_end_is_refused_at_the_limit() {
        let mut request = b"GET /livez HTTP/1.1\r\nX: ".to_vec();
        request.resize(REQUEST_LIMIT_BYTES - 1, b'x');
        assert_eq!(answered(&request).0, "");
        request.push(b'x');
        let refused = "HTTP/1.1 431 Request Header Fields Too Large";
        assert_eq!(answered(&request).0, refused);
    }

    #[test]
    fn an_answer_without_body_tells_its_length_all_the_same() {
        let answer = answer(b"HEAD /livez HTTP/1.1\r\n\r\n", verdict).unwrap();
        assert!(contains(&answer, b"\r\nContent-Length: 3\r\n"));
    }
}
