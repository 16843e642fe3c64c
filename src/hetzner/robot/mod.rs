//! Dedicated servers, and the client of the Robot web service, which knows these servers.
//!
//! The rules of the web service are documented at <https://robot.hetzner.com/doc/webservice/en.html>. Only one call is
//! made at a time. So a wrong password leads to only one failed login, even when several threads need the web service.

mod budget;
mod error;
mod login;

use super::api::endpoint;
use crate::http::{self, Method, SecretSource, TryStage};
use crate::metrics::{ROBOT_DURATION, ROBOT_REQUESTS, UNANSWERED};
use crate::provider::heartbeat::turn;
use crate::provider::{
    Dedicated, ErrorKind, Instance, InstanceId, Interned, ProviderError, Sourced, Urgency, clock,
};
use budget::{RobotBudget, RobotCall};
use error::RobotFailure;
use ipnet::Ipv6Net;
use jiff::Timestamp;
use login::RobotLogin;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Settings of the Robot web service. Settings that also concern the Cloud API, such as proxies, are not among them.
pub struct RobotSettings {
    /// The value of `ROBOT_ENDPOINT`, without a trailing slash.
    pub endpoint: String,
    /// The user and the password. `None` means that dedicated servers can't be looked up.
    pub credentials: Option<(SecretSource, SecretSource)>,
    /// The pause after Robot has answered that its rate limit is used up (`ROBOT_RATE_LIMIT_WAIT_TIME`). `None` means
    /// that Robot's answer decides how long the pause is.
    pub rate_limit_wait: Option<Duration>,
    /// Whether nodes on dedicated servers keep the private addresses that their kubelets reported
    /// (`ROBOT_FORWARD_INTERNAL_IPS`).
    pub forward_internal_ips: Sourced<bool>,
}

/// A client of the Robot web service. The web service shows only the servers to which the credentials have access.
pub(super) struct Robot {
    http: http::HttpClient,
    login: Arc<RobotLogin>,
    budget: RobotBudget,
    /// A lock that a thread holds during a call, so that only one call is made at a time.
    calling: Mutex<()>,
}

/// Robot's answer to `GET /reset/{number}`, which says whether the dedicated server with this number is on.
#[derive(Deserialize)]
struct ResetAnswer {
    reset: Reset,
}

#[derive(Deserialize)]
struct Reset {
    server_number: u64,
    operating_status: Option<String>,
}

impl Robot {
    /// Creates the client, without a call to the web service. Returns `None` when no credentials are set. `client`
    /// creates the HTTP client from the URL and the login.
    pub(super) fn new(
        settings: &RobotSettings,
        client: impl FnOnce(&str, http::Login) -> http::HttpClient,
    ) -> Option<Robot> {
        let (user, password) = settings.credentials.clone()?;
        let login = Arc::new(RobotLogin::new(user, password));
        Some(Robot {
            http: client(&settings.endpoint, login.clone()),
            login,
            budget: RobotBudget::new(settings.rate_limit_wait),
            calling: Mutex::default(),
        })
    }

    fn read<T: DeserializeOwned>(&self, path: &str, call: RobotCall) -> Result<T, RobotFailure> {
        let _one_at_a_time = turn(&self.calling);
        let what = format!("GET {}{path}", self.http.base());
        // The login is checked first. A call that must not be sent because of its login then takes nothing from the
        // call limit.
        http::Issuer::current(&*self.login).map_err(|why| {
            let why = format!("{what}: not sent: {why}");
            RobotFailure::from(ProviderError::new(ErrorKind::Unauthorized, why))
        })?;
        self.budget.admit(call, &what, clock::now()).map_err(RobotFailure::from)?;
        let mut failed = match self.http.get(path) {
            Ok(reply) => {
                self.login.accepted();
                return Ok(reply.value);
            }
            Err(error) => RobotFailure::of(error),
        };
        match &mut failed.error.kind {
            ErrorKind::Unauthorized => self.login.refuse(false),
            ErrorKind::Forbidden => self.login.refuse(true),
            ErrorKind::RateLimited { retry_in, .. } => {
                let why = "Robot's rate limit is used up";
                *retry_in = self.budget.pause(why, failed.interval, clock::now());
            }
            _ if failed.code.is_some() => self.login.accepted(),
            _ => {}
        }
        Err(failed)
    }

    fn about_another(&self, path: &str, number: u64) -> ProviderError {
        self.incomplete(path, &format!("the answer is about server {number}"))
    }

    fn incomplete(&self, path: &str, why: &str) -> ProviderError {
        let base = self.http.base();
        let why = format!("GET {base}{path}: {why}, so ccm does not use the answer");
        ProviderError::new(ErrorKind::Unavailable, why)
    }
}

impl Dedicated for Robot {
    /// Returns all servers. When there are none, the web service answers with an error, and the result is an empty
    /// list.
    fn list(&self, _urgency: Urgency) -> Result<Vec<Instance>, ProviderError> {
        let path = "/server";
        match self.read::<Vec<Entry>>(path, RobotCall::List) {
            Ok(entries) => instances(entries).map_err(|why| self.incomplete(path, &why)),
            Err(failed) if failed.is_404("SERVER_NOT_FOUND") => Ok(Vec::new()),
            Err(failed) => Err(failed.error),
        }
    }

    fn get(&self, number: u64) -> Result<(), ProviderError> {
        let path = format!("/server/{number}");
        match self.read::<Entry>(&path, RobotCall::Server) {
            Ok(entry) if entry.server.server_number == number => Ok(()),
            Ok(entry) => Err(self.about_another(&path, entry.server.server_number)),
            Err(failed) if failed.is_404("SERVER_NOT_FOUND") => {
                Err(ProviderError::new(ErrorKind::NotFound, failed.error.message))
            }
            Err(failed) => Err(failed.error),
        }
    }

    fn is_off(&self, number: u64) -> Result<Option<bool>, ProviderError> {
        let path = format!("/reset/{number}");
        match self.read::<ResetAnswer>(&path, RobotCall::Reset) {
            Ok(ResetAnswer { reset }) if reset.server_number == number => {
                Ok(match reset.operating_status.as_deref() {
                    Some("shut off") => Some(true),
                    Some("running") => Some(false),
                    _ => None,
                })
            }
            Ok(ResetAnswer { reset }) => Err(self.about_another(&path, reset.server_number)),
            Err(failed) if failed.is_404("RESET_NOT_AVAILABLE") => Ok(None),
            Err(failed) => Err(failed.error),
        }
    }

    fn login_refused(&self) -> Option<Timestamp> {
        self.login.refused()
    }

    fn wait_since(&self, refused: Timestamp) {
        self.login.wait_since(refused);
    }

    fn blocked_until(&self) -> Option<Timestamp> {
        self.login.blocked_until()
    }
}

/// Counts the answers of Robot in a metric by method, path and status code, and measures how long each took. A call
/// without an answer is counted in another metric.
pub(super) fn watch(_: &str, method: Method, path: &str, stage: TryStage) {
    let method = &method.lower_name();
    match stage {
        TryStage::Begun => {}
        TryStage::Ended(Ok(code), took) => {
            ROBOT_REQUESTS.count(&[method, &endpoint(path), &code.to_string()]);
            ROBOT_DURATION.observe(&[method], took);
        }
        TryStage::Ended(Err(kind), _) => UNANSWERED.count(&["robot", kind.word()]),
    }
}

/// The highest number of characters in the value of a Kubernetes label. The value must begin and end with a letter or a
/// digit.
const LABEL_CHARACTERS: usize = 63;

/// One server in the answer of `GET /server`. It is also the whole answer of `GET /server/{number}`.
#[derive(Debug, Deserialize)]
struct Entry {
    server: RobotServer,
}

/// A dedicated server, as the web service describes it. Some texts can be null, for example while the server is being
/// set up.
#[derive(Debug, Deserialize)]
struct RobotServer {
    server_number: u64,
    server_name: Option<String>,
    server_ip: Option<String>,
    /// The IPv6 network of the server, without the prefix length, which is always 64. `None` when the server has no
    /// IPv6 network.
    server_ipv6_net: Option<String>,
    product: Option<String>,
    dc: Option<String>,
    status: Option<String>,
    #[serde(default)]
    cancelled: bool,
    paid_until: Option<String>,
}

/// Converts the web service's list of servers to [`Instance`], the type for servers of every kind. The error says which
/// entry is invalid.
fn instances(entries: Vec<Entry>) -> Result<Vec<Instance>, String> {
    let mut seen = HashSet::new();
    let read = |entry: Entry| {
        let number = entry.server.server_number;
        if !seen.insert(number) {
            return Err(format!("server {number} is listed twice"));
        }
        instance(entry.server).map_err(|why| format!("server {number}: {why}"))
    };
    entries.into_iter().map(read).collect()
}

fn instance(server: RobotServer) -> Result<Instance, String> {
    if server.server_number == 0 {
        return Err("the number of a server can't be 0".to_owned());
    }
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let no_ip = |text: &str| format!("{text:?} is not an IP address");
    let ipv4 = filled(server.server_ip);
    let ipv4 = ipv4.map(|text| text.parse().map_err(|_| no_ip(&text)));
    let ipv6 = filled(server.server_ipv6_net).map(|text| {
        let net = text.strip_suffix("/64").unwrap_or(&text);
        let net = net.parse::<Ipv6Addr>().map_err(|_| no_ip(&text))?;
        Ipv6Net::new(net, 64).map_err(|error| error.to_string())
    });
    let data_center = server.dc.unwrap_or_default().to_lowercase();
    let location = data_center.split('-').next().unwrap_or_default();
    Ok(Instance {
        id: InstanceId::Dedicated(server.server_number),
        name: server.server_name.unwrap_or_default(),
        state: server.status.unwrap_or_default().into(),
        is_cancelled: server.cancelled,
        paid_until: server.paid_until.unwrap_or_default().into(),
        instance_type: label(&server.product.unwrap_or_default()),
        location: location.into(),
        network_zone: network_zone(location).into(),
        data_center: data_center.as_str().into(),
        public_ipv4: ipv4.transpose()?,
        public_ipv6: ipv6.transpose()?.map(|net| net.trunc()),
        ..Instance::default()
    })
}

/// Returns the name of a product in the form that is allowed for a label's value. Spaces become `-`, and other
/// characters that are not allowed are removed.
fn label(product: &str) -> Interned {
    let is_kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let dashed = product.replace(' ', "-");
    let label: String = dashed.chars().filter(is_kept).take(LABEL_CHARACTERS).collect();
    let is_no_end = |c: char| !c.is_ascii_alphanumeric();
    label.trim_matches(is_no_end).into()
}

/// Returns the network zone of this location, in the words of Hetzner Cloud. The Robot web service does not report it.
fn network_zone(location: &str) -> &'static str {
    if matches!(location, "fsn1" | "nbg1" | "hel1") { "eu-central" } else { "" }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::http::{Proxies, Retry, Secret, Timing, Tls};
    use crate::provider::OpenGate;
    use serde_json::{Value, json};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::{Path, PathBuf};

    const SERVER: &str = r#"{"server":{"server_number":7,"server_name":"metal-7","server_ip":"203.0.113.7",
        "server_ipv6_net":null,"product":"AX41","dc":"FSN1-DC1","status":"ready","cancelled":false}}"#;

    /// Starts a server that sends these answers, one for each request, and then accepts no more requests. Returns its
    /// URL, and a thread whose result is the texts of the requests.
    fn serve(answers: Vec<(u16, String)>) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let answer = |(status, body): (u16, String)| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 2048];
                let count = stream.read(&mut request).unwrap();
                let kind =
                    if body.starts_with(['{', '[']) { "application/json" } else { "text/html" };
                let head = format!(
                    "HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + &body).as_bytes()).unwrap();
                String::from_utf8_lossy(&request[..count]).into_owned()
            };
            answers.into_iter().map(answer).collect()
        });
        (base, server)
    }

    fn robot(base: &str, password: SecretSource) -> Robot {
        let second = Duration::from_secs(1);
        let settings = RobotSettings {
            endpoint: base.to_owned(),
            credentials: Some((SecretSource::fixed(Secret::new("#ws+user")), password)),
            rate_limit_wait: None,
            forward_internal_ips: Sourced::new(true, crate::provider::Source::Rule("test")),
        };
        let client = |base: &str, login| {
            http::HttpClient::new(http::HttpSettings {
                base: base.to_owned(),
                tls: Tls::default().into(),
                proxies: Proxies::Never,
                login,
                connect_timeout: second,
                timing: Timing {
                    read_timeout: second * 5,
                    write_timeout: second * 5,
                    retry_wait: Duration::from_millis(1),
                },
                retry: Retry::Never,
                body_limit_bytes: 1 << 20,
                unread: &[],
                log_bodies: false,
                gate: Arc::new(OpenGate),
                watch,
            })
        };
        Robot::new(&settings, client).unwrap()
    }

    fn fixed() -> SecretSource {
        SecretSource::fixed(Secret::new("hunter22"))
    }

    fn error(status: u16, code: &str) -> (u16, String) {
        let more = match code {
            "RATE_LIMIT_EXCEEDED" => r#","max_request":200,"interval":90"#,
            _ => "",
        };
        let body =
            format!(r#"{{"error":{{"status":{status},"code":"{code}","message":"so"{more}}}}}"#);
        (status, body)
    }

    fn page(status: u16) -> (u16, String) {
        (status, "<html>hunter22 #ws+user</html>".to_owned())
    }

    /// Each case has the path of a call, the answer to it, and the expected result.
    #[test]
    #[rustfmt::skip] // A case is a line.
    fn each_answer_has_its_meaning() {
        let outcome = |kind: ErrorKind| match kind {
            ErrorKind::RateLimited { retry_in, put_off } => format!("RateLimited {} {put_off}", retry_in.as_secs()),
            kind => format!("{kind:?}"),
        };
        let ok = |body: &str| (200, body.to_owned());
        let reset = |status: &str| ok(&format!(r#"{{"reset":{{"server_number":7,"type":["hw"],"operating_status":{status}}}}}"#));
        let cases = [
            ("/server", ok(&format!("[{SERVER}]")), "1"),
            ("/server", ok("[]"), "0"),
            ("/server", error(404, "SERVER_NOT_FOUND"), "0"),
            ("/server", error(404, "NOT_FOUND"), "Misconfigured"),
            ("/server", page(404), "Misconfigured"),
            ("/server", ok(&format!("[{SERVER},{SERVER}]")), "Unavailable"),
            ("/server", ok(r#"[{"server":{"server_name":"x"}}]"#), "Unavailable"),
            ("/server", ok("{}"), "Unavailable"),
            ("/server", ok("[{\"server\":"), "Unavailable"),
            ("/server", page(200), "Unavailable"),
            ("/server", page(503), "Unavailable"),
            ("/server", (503, String::new()), "Unavailable"),
            ("/server", error(500, "INTERNAL_ERROR"), "Unavailable"),
            ("/server", page(429), "Unavailable"),
            ("/server", error(400, "INVALID_INPUT"), "Other"),
            ("/server", error(401, "UNAUTHORIZED"), "Unauthorized"),
            ("/server", page(401), "Unauthorized"),
            ("/server", page(403), "Forbidden"),
            ("/server", error(403, "FORBIDDEN"), "Forbidden"),
            ("/server", error(403, "RATE_LIMIT_EXCEEDED"), "RateLimited 90 false"),
            ("/server/7", ok(SERVER), "there"),
            ("/server/8", ok(SERVER), "Unavailable"),
            ("/server/7", error(404, "SERVER_NOT_FOUND"), "NotFound"),
            ("/server/7", error(404, "NOT_FOUND"), "Misconfigured"),
            ("/server/7", error(410, "SERVER_NOT_FOUND"), "Other"),
            ("/server/7", page(404), "Misconfigured"),
            ("/reset/7", reset("\"running\""), "Some(false)"),
            ("/reset/7", reset("\"shut off\""), "Some(true)"),
            ("/reset/7", reset("\"not supported\""), "None"),
            ("/reset/7", reset("null"), "None"),
            ("/reset/8", reset("\"shut off\""), "Unavailable"),
            ("/reset/7", error(404, "RESET_NOT_AVAILABLE"), "None"),
            ("/reset/7", error(404, "SERVER_NOT_FOUND"), "Other"),
            ("/reset/7", page(404), "Misconfigured"),
            ("/reset/7", error(403, "RATE_LIMIT_EXCEEDED"), "RateLimited 90 false"),
        ];
        for (path, answer, expected) in cases {
            let (base, server) = serve(vec![answer.clone()]);
            let robot = robot(&base, fixed());
            let number = || path.rsplit('/').next().unwrap().parse().unwrap();
            let result = match &path[1..4] {
                "res" => robot.is_off(number()).map(|off| format!("{off:?}")),
                _ if path == "/server" => robot.list(Urgency::Needed).map(|all| all.len().to_string()),
                _ => Dedicated::get(&robot, number()).map(|()| "there".to_owned()),
            };
            let shown = result.clone().unwrap_or_else(|error| outcome(error.kind));
            assert_eq!(shown, expected, "{path} {answer:?}");
            let sent = server.join().unwrap().remove(0).to_lowercase();
            assert!(sent.starts_with(&format!("get {path} http/1.1\r\n")), "{sent}");
            // The header contains "#ws+user:hunter22" in Base64. The text of the request was changed to lower case
            // before this comparison.
            assert!(sent.contains("\r\nauthorization: basic i3dzk3vzzxi6ahvudgvymji=\r\n"), "{sent}");
            if let Err(error) = result {
                let said = error.message;
                assert!(!said.contains("hunter22") && !said.contains("#ws+user"), "{said}");
                assert!(said.starts_with(&format!("GET {base}{path}: ")), "{said}");
            }
        }
    }

    #[test]
    fn nothing_is_sent_after_a_rate_limit_or_a_refused_login() {
        for (answer, word) in [
            (page(401), "Robot refused a login at "),
            (page(403), "Robot refused a login at "),
            (error(403, "RATE_LIMIT_EXCEEDED"), "rate limit is used up"),
        ] {
            let (base, server) = serve(vec![answer]);
            let robot = robot(&base, fixed());
            let first = robot.list(Urgency::Needed).unwrap_err();
            assert_eq!(server.join().unwrap().len(), 1);
            // The test server has ended after its answer to one request. A second request would therefore fail with the
            // error `Unavailable`. The next two calls fail in another way, which proves that the client sends no
            // request for them.
            let next = robot.is_off(7).unwrap_err();
            let word_is_there = next.message.contains("not sent: ") && next.message.contains(word);
            assert!(word_is_there, "{}", next.message);
            assert!(
                Dedicated::get(&robot, 7).is_err_and(|error| error.kind != ErrorKind::Unavailable)
            );
            let is_login = matches!(first.kind, ErrorKind::Unauthorized | ErrorKind::Forbidden);
            assert_eq!(robot.login_refused().is_some(), is_login);
            assert_eq!(robot.blocked_until().is_some(), is_login);
        }
    }

    fn password_file(name: &str) -> (PathBuf, impl Fn(&str)) {
        let name = format!("ccm-robot-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let write = {
            let path = path.clone();
            move |text: &str| std::fs::write(&path, text).unwrap()
        };
        (path, write)
    }

    fn of_file(path: &Path) -> SecretSource {
        SecretSource::file(path.to_owned(), None).of("password", Secret::check_line)
    }

    #[test]
    fn other_credentials_are_tried_at_once_but_not_a_third_time() {
        let (path, write) = password_file("tries");
        let list = (200, format!("[{SERVER}]"));
        let (base, server) = serve(vec![page(401), list.clone(), page(401)]);
        let robot = robot(&base, of_file(&path));
        let fails = || robot.list(Urgency::Needed).unwrap_err().kind;
        write("one and only");
        assert_eq!(fails(), ErrorKind::Unauthorized);
        assert_eq!(fails(), ErrorKind::Unauthorized, "not sent");
        write("two");
        assert_eq!(robot.list(Urgency::Needed).unwrap().len(), 1);
        assert_eq!(robot.login_refused(), None);
        write("one and only");
        assert_eq!(fails(), ErrorKind::Unauthorized, "not sent");
        write("three");
        assert_eq!(fails(), ErrorKind::Unauthorized);
        assert!(robot.login_refused().is_some());
        // The passwords `one and only` and `three` were refused. After a third failed login Robot would block the IP,
        // so the password `four` is not sent.
        write("four");
        assert_eq!(fails(), ErrorKind::Unauthorized, "not sent");
        assert_eq!(server.join().unwrap().len(), 3);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_login_that_another_process_was_refused_waits() {
        let (path, write) = password_file("since");
        write("one");
        let ago = |minutes| Timestamp::now() - jiff::SignedDuration::from_mins(minutes);
        for (since, is_blocked) in
            [(ago(0), true), (ago(9), true), (ago(11), false), (ago(-60), true)]
        {
            let robot = robot("http://127.0.0.1:1", of_file(&path));
            robot.wait_since(since);
            let error = robot.list(Urgency::Needed).unwrap_err();
            let kind = if is_blocked { ErrorKind::Unauthorized } else { ErrorKind::Unavailable };
            assert_eq!(error.kind, kind, "{since}: {}", error.message);
            assert_eq!(robot.blocked_until().is_some(), is_blocked);
            let until = robot.blocked_until().unwrap_or_default();
            assert!(until <= Timestamp::now() + jiff::SignedDuration::from_secs(601), "{until}");
            assert!(robot.login_refused().is_some_and(|at| at <= Timestamp::now()));
            write("two");
            let error = robot.list(Urgency::Needed).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unavailable, "it is tried: {}", error.message);
            write("one");
        }
        std::fs::remove_file(path).unwrap();
    }

    fn server(changes: Value) -> Value {
        let mut server = json!({
            "server_ip": "123.123.123.123",
            "server_ipv6_net": "2a01:f48:111:4221::",
            "server_number": 321,
            "server_name": "metal-1",
            "product": "AX41-NVMe",
            "dc": "FSN1-DC16",
            "traffic": "unlimited",
            "status": "ready",
            "cancelled": false,
            "paid_until": "2026-12-01",
            "ip": ["123.123.123.123"],
            "subnet": [{ "ip": "2a01:f48:111:4221::", "mask": "64" }],
        });
        for (key, value) in changes.as_object().unwrap() {
            match value {
                Value::String(text) if text == "(missing)" => {
                    server.as_object_mut().unwrap().remove(key);
                }
                value => server[key] = value.clone(),
            }
        }
        json!({ "server": server })
    }

    fn read(servers: Vec<Value>) -> Result<Vec<Instance>, String> {
        let entries: Vec<Entry> =
            serde_json::from_value(servers.into()).map_err(|e| e.to_string())?;
        instances(entries)
    }

    #[test]
    fn a_server_is_read_whole() {
        let expected = Instance {
            id: InstanceId::Dedicated(321),
            name: "metal-1".into(),
            state: "ready".into(),
            is_off: false,
            is_cancelled: false,
            paid_until: "2026-12-01".into(),
            instance_type: "AX41-NVMe".into(),
            location: "fsn1".into(),
            data_center: "fsn1-dc16".into(),
            network_zone: "eu-central".into(),
            public_ipv4: Some("123.123.123.123".parse().unwrap()),
            public_ipv6: Some("2a01:f48:111:4221::/64".parse().unwrap()),
            ..Instance::default()
        };
        assert_eq!(read(vec![server(json!({}))]), Ok(vec![expected.clone()]));
        let with = |change: &dyn Fn(&mut Instance)| {
            let mut instance = expected.clone();
            change(&mut instance);
            Ok(vec![instance])
        };
        for (changes, expected) in [
            (json!({ "server_ip": null }), with(&|it| it.public_ipv4 = None)),
            (json!({ "server_ip": "" }), with(&|it| it.public_ipv4 = None)),
            (json!({ "server_ip": "(missing)" }), with(&|it| it.public_ipv4 = None)),
            (json!({ "server_ipv6_net": null }), with(&|it| it.public_ipv6 = None)),
            (json!({ "server_ipv6_net": "" }), with(&|it| it.public_ipv6 = None)),
            (json!({ "server_ipv6_net": "2a01:f48:111:4221::/64" }), with(&|_| {})),
            (json!({ "server_ipv6_net": "2a01:f48:111:4221::1" }), with(&|_| {})),
            (json!({ "subnet": null, "ip": null }), with(&|_| {})),
            (json!({ "server_name": "" }), with(&|it| it.name = String::new())),
            (json!({ "server_name": null }), with(&|it| it.name = String::new())),
            (json!({ "product": null }), with(&|it| it.instance_type = "".into())),
            (json!({ "cancelled": true }), with(&|it| it.is_cancelled = true)),
            (json!({ "status": "in process" }), with(&|it| it.state = "in process".into())),
            (
                json!({ "dc": "HEL1-DC2" }),
                with(&|it| {
                    it.location = "hel1".into();
                    it.data_center = "hel1-dc2".into();
                }),
            ),
            (
                json!({ "dc": "XYZ9-DC2" }),
                with(&|it| {
                    it.location = "xyz9".into();
                    it.data_center = "xyz9-dc2".into();
                    it.network_zone = "".into();
                }),
            ),
            (
                json!({ "dc": null }),
                with(&|it| {
                    it.location = "".into();
                    it.data_center = "".into();
                    it.network_zone = "".into();
                }),
            ),
        ] {
            assert_eq!(read(vec![server(changes.clone())]), expected, "{changes}");
        }
    }

    #[test]
    fn a_list_with_something_malformed_is_none() {
        let good = || server(json!({}));
        let of = |changes: Value| server(changes);
        for (servers, why) in [
            (vec![good(), good()], "server 321 is listed twice"),
            (
                vec![good(), of(json!({ "server_number": "(missing)" }))],
                "missing field `server_number`",
            ),
            (vec![good(), of(json!({ "server_number": null }))], "invalid type: null"),
            (vec![good(), of(json!({ "server_number": -5 }))], "invalid value"),
            (
                vec![good(), of(json!({ "server_number": 0 }))],
                "server 0: the number of a server can't be 0",
            ),
            (
                vec![good(), of(json!({ "server_number": 5, "server_ip": "10.0.0" }))],
                "server 5: \"10.0.0\" is not an IP",
            ),
            (
                vec![of(json!({ "server_ipv6_net": "2a01::/56" }))],
                "server 321: \"2a01::/56\" is not an IP",
            ),
            (vec![json!({})], "missing field `server`"),
        ] {
            let error = read(servers).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_product_becomes_a_label() {
        for (product, expected) in [
            ("AX41-NVMe", "AX41-NVMe"),
            ("EX 101", "EX-101"),
            ("Server Auction", "Server-Auction"),
            ("DELL PowerEdge™ R6615 (DX182)", "DELL-PowerEdge-R6615-DX182"),
            ("a_b.c/d", "a_b.cd"),
            ("(beta) ", "beta"),
            ("™", ""),
            ("", ""),
        ] {
            assert_eq!(label(product).as_str(), expected, "{product}");
        }
        assert_eq!(label(&"x".repeat(99)).as_str().len(), LABEL_CHARACTERS);
    }
}
