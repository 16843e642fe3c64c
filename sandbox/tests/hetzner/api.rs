//! The simulated Hetzner Cloud API with one project. Tests send requests to it as a client does, but without sockets.

// Each test binary that includes this file uses only a part of it. Without this attribute the compiler would warn about
// the rest.
#![allow(dead_code)]

use std::sync::Arc;

use sandbox::exchange::{Handler, Request, Response};
use sandbox::hetzner::Cloud;
use serde_json::Value;

pub const TOKEN: &str = "a-token-that-may-write";
pub const READ_ONLY: &str = "a-token-that-may-read";

pub struct Api {
    pub cloud: Arc<Cloud>,
    pub project: u64,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
    pub headers: Vec<(String, String)>,
}

impl Api {
    /// Creates a cloud whose actions take no time: an action has ended at the next call, unless the test keeps actions
    /// from ending.
    pub fn new() -> Api {
        let cloud = Cloud::new(0.0);
        let project = cloud.add_project();
        cloud.add_token(project, TOKEN, false);
        cloud.add_token(project, READ_ONLY, true);
        Api { cloud, project }
    }

    /// Sends a request. `path` has no `/v1`, and can have a query. A null `body` means that the request has no body.
    pub fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        Answer::of(self.cloud.handle(&request(method, path, &body)))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Value::Null)
    }

    pub fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, body)
    }
}

impl Answer {
    pub fn of(response: Response) -> Answer {
        let body = match response.body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&response.body).expect("answers are JSON"),
        };
        Answer { status: response.status, body, headers: response.headers }
    }

    /// Returns the code of the error, which is empty for a success.
    pub fn code(&self) -> &str {
        self.body.pointer("/error/code").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value at this JSON pointer of the body, or null when there is none.
    pub fn at(&self, pointer: &str) -> &Value {
        self.body.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Returns the names of the resources in the list `key` of the body.
    pub fn names(&self, key: &str) -> Vec<String> {
        let list = self.body[key].as_array().cloned().unwrap_or_default();
        list.iter().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// Creates a request with an API token that allows reads and writes. A `+` in the query stands for a space.
pub fn request(method: &str, path: &str, body: &Value) -> Request {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.to_owned(), value.replace('+', " "))
    };
    Request {
        method: method.into(),
        path: format!("/v1{path}"),
        query: pairs.map(pair).collect(),
        headers: vec![("authorization".into(), format!("Bearer {TOKEN}"))],
        body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
        client_certificate: None,
    }
}
