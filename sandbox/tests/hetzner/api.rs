//! A cloud with one project, spoken to as a client does, but without sockets.

// Every test binary that includes this file uses a part of it.
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

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
    pub headers: Vec<(String, String)>,
}

impl Api {
    /// Actions are over as soon as somebody looks again, unless they are held.
    pub fn new() -> Api {
        let cloud = Cloud::new(0.0);
        let project = cloud.add_project();
        cloud.add_token(project, TOKEN, false);
        cloud.add_token(project, READ_ONLY, true);
        Api { cloud, project }
    }

    /// `path` without `/v1`, with its query; `body` null for none.
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

    /// The error's code, empty for a success.
    pub fn code(&self) -> &str {
        self.body.pointer("/error/code").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A value by its JSON pointer; null when there is none.
    pub fn at(&self, pointer: &str) -> &Value {
        self.body.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The names in a list of resources.
    pub fn names(&self, key: &str) -> Vec<String> {
        let list = self.body[key].as_array().cloned().unwrap_or_default();
        list.iter().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// A request with the token that may write. Spaces in a query are written as `+`.
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
