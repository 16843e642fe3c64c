//! Tests of the Robot web service over HTTP, of dedicated servers, and of what the Hetzner Cloud API knows about them.
//! The rules are those of <https://robot.hetzner.com/doc/webservice/en.html>.

mod answers;
#[path = "../server/raw.rs"]
#[allow(dead_code)]
mod raw;
mod refusals;
mod world;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sandbox::{Builder, Half, Sandbox};
use serde_json::Value;

/// Returns the builder of a sandbox that has only dedicated servers and serves only the Robot web service.
fn servers(count: usize) -> Builder {
    Sandbox::builder().nodes(0).robot(count).only(Half::Robot).heartbeats(false)
}

fn request(method: &str, path: &str, (user, password): (&str, &str)) -> String {
    let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {login}\r\n\r\n")
}

/// Sends a request to Robot and returns the status and the JSON body. The body is null when it is not JSON.
fn send(sandbox: &Sandbox, method: &str, path: &str, login: (&str, &str)) -> (u16, Value) {
    let request = request(method, path, login);
    let answer = raw::call(sandbox.address(Half::Robot), &request).unwrap();
    let body = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, body)
}

/// Sends a GET to Robot with the valid login.
fn get(sandbox: &Sandbox, path: &str) -> (u16, Value) {
    let (user, password) = sandbox.robot().login();
    send(sandbox, "GET", path, (&user, &password))
}

/// Returns the status and the error code of an answer. The code is empty for a success, and for a body that is not
/// JSON.
fn code((status, body): &(u16, Value)) -> (u16, &str) {
    let code = body.pointer("/error/code").and_then(Value::as_str);
    (*status, code.unwrap_or_default())
}
