//! One plain text, asked for once: what is no API.

use super::connect::{Connect, Unresolved};
use super::deadline;
use super::error::{Kind, describe_io, describe_transport};
use super::proxy::Route;
use super::waiting;
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 4 * 1024;

/// More than any server says about itself.
const LIMIT_BYTES: u64 = 64 * 1024;

/// The body behind an `http` URL, without any proxy and without TLS. An error says what happened
/// instead, in one line.
pub fn fetch_text(url: &str, timeout: Duration) -> Result<String, String> {
    let by = Instant::now() + timeout;
    let _held = deadline::hold(by);
    let _waiting = waiting::on(|| format!("GET {url}"));
    let in_words = |kind: Kind| match kind {
        Kind::TimedOut(_) => format!("no answer within {} s", timeout.as_secs_f32()),
        Kind::Unreachable(why) | Kind::Malformed(why) | Kind::Request(why) => why,
        _ => "no answer that can be read".to_owned(),
    };
    let response = agent(timeout)
        .get(url)
        .call()
        .map_err(|error| match &error {
            // It is no API that somebody could have started.
            ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                "connection refused".to_owned()
            }
            error => in_words(describe_transport(error, timeout)),
        })?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(format!("HTTP status {status}"));
    }
    let mut text = String::new();
    response
        .into_body()
        .into_reader()
        .take(LIMIT_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| in_words(describe_io(&error, timeout)))?;
    Ok(text)
}

fn agent(timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(super::USER_AGENT)
        .timeout_global(Some(timeout))
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .build();
    let connect = Connect {
        route: Route::Direct,
        timeout,
        buffer_bytes: BUFFER_BYTES,
    };
    ureq::Agent::with_parts(config, connect, Unresolved)
}
