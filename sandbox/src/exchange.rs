//! One HTTP request and its answer as plain data, without sockets. The simulated APIs work with these types.

/// A request after the server has read all of it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method in upper case.
    pub method: String,
    /// The percent-decoded path without the query, e.g. `/v1/servers/42`.
    pub path: String,
    /// The percent-decoded query parameters, in the order in which they were sent.
    pub query: Vec<(String, String)>,
    /// The headers in the order in which they were sent, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The DER of the client's certificate. `None` when the client sent no certificate. The DER is empty when the
    /// sandbox's CA has not signed the certificate, or when the certificate is not valid now.
    pub client_certificate: Option<Vec<u8>>,
}

impl Request {
    /// Returns the value of the first query parameter with this name.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of the first header with this name. `name` must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// An answer that the HTTP server has not written yet. The HTTP server adds `Content-Length`, and also `Date` when the
/// simulated API has not set it.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// Returns an answer that is a JSON document.
    pub fn json(status: u16, body: &serde_json::Value) -> Response {
        Response::json_text(status, body.to_string().into_bytes())
    }

    /// Returns an answer with a JSON document that is already written as text.
    pub fn json_text(status: u16, body: Vec<u8>) -> Response {
        Response { status, headers: vec![("Content-Type".into(), "application/json".into())], body }
    }

    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Response {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// One of the simulated APIs, which answers requests. Several threads can call it at the same time.
pub trait Handler: Send + Sync {
    fn handle(&self, request: &Request) -> Response;
}

/// Percent-encodes all characters except the unreserved characters of RFC 3986.
pub fn percent_encode(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
