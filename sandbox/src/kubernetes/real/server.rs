//! The connection to a real API server: the contents of its kubeconfig, and single requests.

use std::io;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::exchange::{Request, Response, percent_encode};

/// A real API server, together with the credentials of the user in the kubeconfig. This user must have all rights in
/// the cluster, and is called the owner in this module.
pub struct Server {
    base: String,
    token: Option<String>,
    /// The HTTP client for requests with the credentials of the kubeconfig. It sends the kubeconfig's client
    /// certificate, if there is one.
    owner: ureq::Agent,
    stranger: ureq::Agent,
}

/// The caller of a request that is sent on to the real API server. The variant decides which credentials are sent with
/// the request.
pub(super) enum Caller {
    /// The user of the kubeconfig with which the sandbox reaches the real API server. This user has all rights.
    Owner,
    /// A user with this name. The request is sent with the credentials of the kubeconfig and impersonates the user.
    User(String),
    /// The kubelet with this user name. It is impersonated with the group of all kubelets.
    Kubelet(String),
    /// A caller who does not use the credentials of the kubeconfig. The request is sent with this value of the header
    /// `Authorization`, or without the header when the value is `None`.
    Header(Option<String>),
}

/// The time-out of a request to the real API server. It is longer than the server's own limit of 60 seconds, so that
/// the server can still answer that its limit has passed.
const TIMEOUT: Duration = Duration::from_secs(70);
const BODY_LIMIT_BYTES: u64 = 512 << 20;

impl Server {
    /// Reads the server and the user of a kubeconfig's current context. The user has a certificate or a token, which is
    /// written in the kubeconfig or in a file that it names. Credential plugins are not supported.
    ///
    /// # Errors
    /// An error means that the kubeconfig cannot be read or names no server, or that its user has neither a certificate
    /// nor a token.
    pub fn of(kubeconfig: &Path) -> io::Result<Server> {
        let read = Kubeconfig::read(kubeconfig)?;
        let base = read.text(&read.cluster, "server");
        let base = base.ok_or_else(|| read.problem("names no server"))?;
        let mut roots = Vec::new();
        for item in
            parse_pem(&read.data(&read.cluster, "certificate-authority")?.unwrap_or_default())
        {
            if let Ok(PemItem::Certificate(certificate)) = item {
                roots.push(certificate);
            }
        }
        let identity = match (
            read.data(&read.user, "client-certificate")?,
            read.data(&read.user, "client-key")?,
        ) {
            (Some(certificate), Some(key)) => Some(read.identity(&certificate, &key)?),
            _ => None,
        };
        let token = match read.text(&read.user, "tokenFile") {
            Some(path) => Some(std::fs::read_to_string(read.folder.join(path))?.trim().to_owned()),
            None => read.text(&read.user, "token"),
        };
        if identity.is_none() && token.is_none() {
            return Err(read.problem("its user has neither certificate nor token"));
        }
        let insecure = read.cluster["insecure-skip-tls-verify"] == true;
        Ok(Server {
            base: base.trim_end_matches('/').to_owned(),
            token,
            owner: agent(&roots, identity, insecure),
            stranger: agent(&roots, None, insecure),
        })
    }

    /// Sends a client's request to the real API server and returns the answer.
    ///
    /// # Errors
    /// The error says why there is no answer.
    pub(super) fn send(&self, caller: &Caller, request: &Request) -> Result<Response, String> {
        let pair = |(key, value): &(String, String)| {
            format!("{}={}", percent_encode(key), percent_encode(value))
        };
        let query: Vec<String> = request.query.iter().map(pair).collect();
        let mut url = format!("{}{}", self.base, request.path);
        if !query.is_empty() {
            url = format!("{url}?{}", query.join("&"));
        }
        let mut sent = ureq::http::Request::builder().method(request.method.as_str()).uri(url);
        // Formats other than JSON are removed from the `Accept` header, because the sandbox can remove its prefix from
        // names only in JSON.
        let accept = request.header("accept").unwrap_or("application/json");
        let accept: Vec<&str> = accept
            .split(',')
            .filter(|range| !range.contains("protobuf") && !range.contains("cbor"))
            .collect();
        sent = sent.header("Accept", accept.join(","));
        for name in ["content-type", "user-agent"] {
            if let Some(value) = request.header(name) {
                sent = sent.header(name, value);
            }
        }
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let (agent, authorization) = match caller {
            Caller::Owner => (&self.owner, bearer),
            Caller::User(name) => {
                sent = sent.header("Impersonate-User", name);
                (&self.owner, bearer)
            }
            Caller::Kubelet(name) => {
                sent = sent.header("Impersonate-User", name);
                sent = sent.header("Impersonate-Group", "system:nodes");
                (&self.owner, bearer)
            }
            Caller::Header(value) => (&self.stranger, value.clone()),
        };
        if let Some(value) = authorization {
            sent = sent.header("Authorization", value);
        }
        let answer = match request.body.is_empty() {
            true => agent.run(sent.body(()).map_err(|error| error.to_string())?),
            false => {
                let sent = sent.body(&request.body[..]);
                agent.run(sent.map_err(|error| error.to_string())?)
            }
        };
        read(answer.map_err(|error| error.to_string())?)
    }

    /// Creates an object with the credentials of the kubeconfig. When the namespace does not exist, it is created
    /// first.
    pub fn create(&self, collection: &str, namespace: &str, object: &Value) -> (u16, Value) {
        let answer = self.json("POST", collection, Some(object));
        let is_missing = answer.0 == 404 && answer.1["details"]["kind"] == "namespaces";
        if !is_missing {
            return answer;
        }
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        // The answer is ignored. A conflict only means that another test has created the namespace at the same moment.
        self.json("POST", "/api/v1/namespaces", Some(&namespace));
        self.json("POST", collection, Some(object))
    }

    /// Creates an object on the real API server in the name of a kubelet, whose user name is `user`. The user is
    /// impersonated together with the group of all kubelets.
    pub(super) fn create_as(&self, user: &str, collection: &str, object: &Value) -> (u16, Value) {
        self.json_as(&Caller::Kubelet(user.to_owned()), "POST", collection, Some(object))
    }

    /// Sends a request with the credentials of the kubeconfig, and returns the status and the JSON of the answer.
    /// `path` can end with one query parameter, as in `PATH?NAME=VALUE`. The status is 0 when there is no answer.
    pub fn json(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.json_as(&Caller::Owner, method, path, body)
    }

    fn json_as(
        &self,
        caller: &Caller,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = query.split_once('=').into_iter();
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request {
            method: method.into(),
            path: path.into(),
            query: query.map(|(key, value)| (key.into(), value.into())).collect(),
            headers: vec![("content-type".into(), content_type.into())],
            body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
            client_certificate: None,
        };
        match self.send(caller, &request) {
            Ok(answer) => {
                let read = serde_json::from_slice(&answer.body);
                let text = || String::from_utf8_lossy(&answer.body).into();
                (answer.status, read.unwrap_or_else(|_| text()))
            }
            Err(why) => (0, why.into()),
        }
    }
}

fn agent(
    roots: &[Certificate<'static>],
    identity: Option<ClientCert>,
    insecure: bool,
) -> ureq::Agent {
    let roots = match roots {
        [] => RootCerts::WebPki,
        roots => RootCerts::new_with_certs(roots),
    };
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .client_cert(identity)
        .disable_verification(insecure)
        .build();
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(TIMEOUT))
        .tls_config(tls)
        .build()
        .new_agent()
}

fn read(answer: ureq::http::Response<ureq::Body>) -> Result<Response, String> {
    let status = answer.status().as_u16();
    let kept = ["content-type", "retry-after", "warning", "www-authenticate"];
    let headers = answer
        .headers()
        .iter()
        .filter(|(name, _)| kept.contains(&name.as_str()))
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect();
    let mut body = answer.into_body();
    let body = body.with_config().limit(BODY_LIMIT_BYTES).read_to_vec();
    Ok(Response { status, headers, body: body.map_err(|error| error.to_string())? })
}

/// The cluster and the user to which the current context of a kubeconfig refers.
struct Kubeconfig<'a> {
    path: &'a Path,
    folder: &'a Path,
    cluster: Value,
    user: Value,
}

impl Kubeconfig<'_> {
    fn read(path: &Path) -> io::Result<Kubeconfig<'_>> {
        let told = |why: String| io::Error::other(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| told(error.to_string()))?;
        let file: Value = serde_yaml::from_str(&text).map_err(|error| told(error.to_string()))?;
        let part = |list: &str, name: &Value, field: &str| {
            let entries = file[list].as_array().into_iter().flatten();
            let mut named = entries.filter(|entry| entry["name"] == *name);
            named.next().map(|entry| entry[field].clone())
        };
        let context = part("contexts", &file["current-context"], "context");
        let context = context.ok_or_else(|| told("there is no current context".into()))?;
        Ok(Kubeconfig {
            path,
            folder: path.parent().unwrap_or(Path::new(".")),
            cluster: part("clusters", &context["cluster"], "cluster").unwrap_or_default(),
            user: part("users", &context["user"], "user").unwrap_or_default(),
        })
    }

    fn problem(&self, why: &str) -> io::Error {
        io::Error::other(format!("{}: {why}", self.path.display()))
    }

    fn text(&self, part: &Value, field: &str) -> Option<String> {
        part[field].as_str().map(str::to_owned)
    }

    /// Returns the bytes of a certificate or a key from a kubeconfig. `part` is the entry of the cluster or of the
    /// user. The bytes are in the field `FIELD-data` in base64, or in the file whose path is in the field `FIELD`.
    /// Returns `None` when there is neither field.
    fn data(&self, part: &Value, field: &str) -> io::Result<Option<Vec<u8>>> {
        if let Some(inline) = self.text(part, &format!("{field}-data")) {
            let decoded = STANDARD.decode(inline.trim());
            return decoded
                .map(Some)
                .map_err(|_| self.problem(&format!("{field}-data is no base64")));
        }
        let file = self.text(part, field);
        file.map(|file| std::fs::read(self.folder.join(file))).transpose()
    }

    fn identity(&self, certificate: &[u8], key: &[u8]) -> io::Result<ClientCert> {
        let chain: Vec<Certificate<'static>> = parse_pem(certificate)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        let key =
            PrivateKey::from_pem(key).map_err(|_| self.problem("its client-key is no key"))?;
        Ok(ClientCert::new_with_certs(&chain, key))
    }
}
