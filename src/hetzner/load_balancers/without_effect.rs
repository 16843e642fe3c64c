//! Annotations that ask for what only `http` or `https` ports have, and hold for no such port: told.

use super::annotations::{self as a, Annotation};
use super::listener::ListenerProtocol;
use super::ports::Port;
use super::reading::{Held, Reading};
use crate::provider::{Finding, Reason};
use crate::text;

/// An annotation, and whether plain `http` has it too.
const HTTP_ONLY: [(&Annotation, bool); 10] = [
    (&a::HTTP_COOKIE_NAME, true),
    (&a::HTTP_COOKIE_LIFETIME, true),
    (&a::HTTP_STICKY_SESSIONS, true),
    (&a::HTTP_TIMEOUT_IDLE, true),
    (&a::HTTP_REDIRECT_HTTP, false),
    (&a::CERTIFICATE_TYPE, false),
    (&a::HTTP_CERTIFICATES, false),
    (&a::HTTP_MANAGED_CERTIFICATE_NAME, false),
    (&a::HTTP_MANAGED_CERTIFICATE_DOMAINS, false),
    (&a::HTTP_MANAGED_CERTIFICATE_ACME_STAGING, false),
];

/// One that holds for a port that has it is none of them, whatever its other ports are.
pub(super) fn tell(reading: &mut Reading, ports: &[Port]) {
    // What stops the whole is told alone; it may be a value of one of these.
    if !reading.problems.is_empty() {
        return;
    }
    for (annotation, in_http) in HTTP_ONLY {
        let speaks = |number: &u16| {
            let mut ports = ports.iter().map(|port| &port.listener);
            let port = ports.find(|port| port.listen_port == *number);
            port.is_some_and(|port| match port.protocol {
                ListenerProtocol::Tcp | ListenerProtocol::Unknown => false,
                ListenerProtocol::Http => in_http,
                ListenerProtocol::Https => true,
            })
        };
        for Held { key, value, ports } in reading.held(annotation) {
            // Whoever wants none of it has none of it.
            let is_off = annotation.is_switch() && text::boolean(value) == Ok(false);
            if value.is_empty() || is_off || ports.is_empty() || ports.iter().any(speaks) {
                continue;
            }
            let numbers: Vec<String> = ports.iter().map(ToString::to_string).collect();
            let (which, whose) = match numbers.len() {
                1 => ("port", "whose protocol is"),
                _ => ("ports", "whose protocols are"),
            };
            let words = if in_http { "http or https" } else { "https" };
            reading.finding(Finding::warning(
                Reason::AnnotationWithoutEffect,
                format!(
                    "annotation {key} has no effect on {which} {}, {whose} not {words}: set {} to {words}",
                    numbers.join(" and "),
                    a::PROTOCOL.key()
                ),
            ));
        }
    }
}
