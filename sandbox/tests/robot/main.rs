//! The Robot web service over HTTP, the dedicated servers behind it, and what the Cloud knows of them. The rules are
//! those of <https://robot.hetzner.com/doc/webservice/en.html>.

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

/// Nothing but dedicated servers, and the web service alone is served.
fn servers(count: usize) -> Builder {
    Sandbox::builder().nodes(0).robot(count).only(Half::Robot).heartbeats(false)
}

fn request(method: &str, path: &str, (user, password): (&str, &str)) -> String {
    let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {login}\r\n\r\n")
}

/// Status and body; null for a body that is no JSON.
fn send(sandbox: &Sandbox, method: &str, path: &str, login: (&str, &str)) -> (u16, Value) {
    let request = request(method, path, login);
    let answer = raw::call(sandbox.address(Half::Robot), &request).unwrap();
    let body = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, body)
}

/// With the login of the environment.
fn get(sandbox: &Sandbox, path: &str) -> (u16, Value) {
    let (user, password) = sandbox.robot().login();
    send(sandbox, "GET", path, (&user, &password))
}

/// Status and code of an answer; no code for a success or a body that is no JSON.
fn code((status, body): &(u16, Value)) -> (u16, &str) {
    let code = body.pointer("/error/code").and_then(Value::as_str);
    (*status, code.unwrap_or_default())
}
