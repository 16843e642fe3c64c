//! Tests of the simulated Kubernetes API for what the recorded answers of a real API server do not show: access, the
//! watch cache, pages, and the life of an object.

mod access;
mod endpoint_slices;
mod lists;
mod node_marks;
mod objects;
mod pods;
mod services;
mod signing_requests;
mod workloads;

use std::sync::Arc;

use sandbox::exchange::{Handler, Request, Response};
use sandbox::kubernetes::{Cluster, User};
use serde_json::{Value, json};

const ADMIN: &str = "admin";

/// A simulated cluster, to which a test can send requests with any token.
struct World {
    cluster: Arc<Cluster>,
}

fn world() -> World {
    let cluster = Cluster::new();
    cluster.add_user(User {
        name: "admin".into(),
        groups: vec!["system:masters".into()],
        tokens: vec![ADMIN.into()],
        ..User::default()
    });
    World { cluster }
}

impl World {
    fn send(&self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        self.send_as(ADMIN, method, target, body)
    }

    fn send_as(&self, token: &str, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers =
            [("authorization", format!("Bearer {token}")), ("content-type", content_type.into())];
        let mut request = request(method, target);
        request.headers = headers.map(|(name, value)| (name.into(), value)).into();
        request.body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        read(&self.cluster.handle(&request))
    }

    fn get(&self, target: &str) -> (u16, Value) {
        self.send("GET", target, &Value::Null)
    }

    /// Creates nodes with the names `n0`, `n1` and so on.
    fn nodes(&self, count: usize) {
        (0..count).for_each(|number| self.node(&format!("n{number}")));
    }

    fn node(&self, name: &str) {
        self.cluster.create("nodes", None, json!({"metadata": {"name": name}}));
    }
}

fn request(method: &str, target: &str) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    Request {
        method: method.into(),
        path: path.into(),
        query: query.map(|(name, value)| (name.into(), value.into())).collect(),
        ..Request::default()
    }
}

fn read(response: &Response) -> (u16, Value) {
    let body = serde_json::from_slice(&response.body)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&response.body).as_ref()));
    (response.status, body)
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}
