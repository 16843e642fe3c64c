//! Simulates Hetzner's Robot web service in memory: dedicated servers, logins, and rate limits.
//!
//! The rules and the JSON are those of <https://robot.hetzner.com/doc/webservice/en.html>. Where that document says
//! nothing, a comment says what the simulation does. This module does not depend on the simulated Hetzner Cloud. It is
//! the Hetzner Cloud that asks this module whether an address belongs to a dedicated server.

mod operator;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::exchange::{Handler, Request, Response};
use crate::time;

/// The number of failed logins after which Robot blocks the caller's IP address for ten minutes (`BLOCK`). All callers
/// of a sandbox share one address. Each failed login counts for ten minutes, even when a later login succeeds. Robot's
/// documentation does not say how long a failed login counts.
const FAILURES: usize = 3;
const BLOCK: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3600);

/// The number of the Robot account that belongs to the user of the sandbox. Clients of the sandbox get a login for this
/// account. The addresses of the account's dedicated servers can be targets of load balancers.
pub const OWN_ACCOUNT: u32 = 0;

/// The simulated Robot web service with all its accounts. Its methods for tests do what a customer can do in Robot's
/// administration, or a technician in the data centre. They take effect at once, need no login, and do not count for a
/// rate limit.
pub struct Robot {
    scale: f64,
    state: Mutex<State>,
}

/// A dedicated server: the facts that the Robot API shows, and a few that the API does not show.
#[derive(Clone, Debug, PartialEq)]
pub struct DedicatedServer {
    pub number: u64,
    pub name: String,
    /// The server's IPv4 address. The API shows `None` as null. A test can also set an empty text.
    pub server_ip: Option<String>,
    /// The server's IPv6 network without `/64` at its end. The API shows `None` as null. A test can also set an empty
    /// text.
    pub server_ipv6_net: Option<String>,
    pub product: String,
    pub dc: String,
    pub traffic: String,
    /// The status that Robot shows for the server, which is `ready` or `in process`.
    pub status: String,
    pub cancelled: bool,
    pub paid_until: String,
    pub ips: Vec<String>,
    /// The server's subnets, each with its address and its prefix length, e.g. `64`. The API shows `None` as null.
    pub subnets: Option<Vec<(String, String)>>,
    /// The ways in which the server can be reset, e.g. `power`. When the list is empty, a request for the server's
    /// reset options gets the error `RESET_NOT_AVAILABLE`.
    pub reset_types: Vec<String>,
    /// The operating status that the API shows, e.g. `not supported`. With `None` the API shows `running` or `shut
    /// off`, depending on whether the server is on.
    pub operating_status: Option<String>,
    /// The account that owns the server. A new server belongs to [`OWN_ACCOUNT`].
    pub account: u32,
    /// The server's private address in the vSwitch of a Hetzner Cloud Network, or `None` when it has none. The Robot
    /// API does not show this address.
    pub private_ip: Option<Ipv4Addr>,
    /// A number that identifies the physical machine. It stays the same when a test changes the server's number.
    machine: u64,
    /// The time at which the dedicated server was switched on. `None` while the server is off.
    on: Option<Instant>,
}

/// Which dedicated servers a login can see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sees {
    /// The login of a web service user, who sees all servers of one account.
    Account(u32),
    /// The login that Robot calls "Admin login", which sees only one server.
    Server(u64),
}

/// The two rate limits of Robot. One counts all requests to `/server`, and the other counts all requests to `/reset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The limit of requests to `/server` and to paths below it: 200 an hour.
    Server,
    /// The limit of requests to `/reset` and to paths below it: 500 an hour.
    Reset,
}

/// The numbers of requests that Robot has received: with a right login, with a wrong login, and from a blocked IP
/// address.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Logins {
    pub good: usize,
    /// The number of requests with a wrong user or password. They got the status 401.
    pub failed: usize,
    /// The number of requests that came while the caller's IP address was blocked.
    pub blocked: usize,
}

struct State {
    servers: BTreeMap<u64, DedicatedServer>,
    /// The number of servers that were created so far, including servers that were removed.
    created: u64,
    users: Vec<User>,
    limits: [Budget; 2],
    failures: Vec<Instant>,
    blocked_until: Option<Instant>,
    /// The answer to a request from a blocked IP address.
    blocked_answer: Response,
    logins: Logins,
}

struct User {
    name: String,
    password: String,
    sees: Sees,
}

/// A rate limit, which allows `max_request` requests within any period of the length `interval`.
struct Budget {
    max_request: usize,
    interval: Duration,
    spent: VecDeque<Instant>,
}

impl Robot {
    /// Creates a simulated Robot without servers. `scale` multiplies two durations: the hour in which a client can make
    /// a limited number of requests, and the ten minutes for which Robot blocks an IP address after failed logins.
    pub fn new(scale: f64) -> Arc<Robot> {
        let budget = |max_request| Budget {
            max_request,
            interval: HOUR.mul_f64(scale),
            spent: VecDeque::new(),
        };
        Arc::new(Robot {
            scale,
            state: Mutex::new(State {
                servers: BTreeMap::new(),
                created: 0,
                users: Vec::new(),
                limits: [budget(200), budget(500)],
                failures: Vec::new(),
                blocked_until: None,
                // Robot's documentation does not describe the answer to a blocked caller. A user with a wrong password
                // has reported an answer with status 403 that is not JSON:
                // https://github.com/syself/cluster-api-provider-hetzner/issues/1262
                blocked_answer: page(403, "403 Forbidden"),
                logins: Logins::default(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Robot {
    fn handle(&self, request: &Request) -> Response {
        let block = BLOCK.mul_f64(self.scale);
        match self.lock().answer(request, time::now(), block) {
            Ok(body) => Response::json(200, &body),
            Err(refusal) => refusal,
        }
    }
}

impl State {
    fn answer(
        &mut self,
        request: &Request,
        now: Instant,
        block: Duration,
    ) -> Result<Value, Response> {
        let sees = self.authenticate(request, now, block)?;
        let segments: Vec<&str> = request.path.split('/').skip(1).collect();
        let (limit, number) = match segments[..] {
            ["server"] => (Limit::Server, None),
            ["server", number] => (Limit::Server, Some(number)),
            ["reset"] => (Limit::Reset, None),
            ["reset", number] => (Limit::Reset, Some(number)),
            _ => return Err(error(404, "NOT_FOUND", "Not Found")),
        };
        if request.method != "GET" {
            return Err(error(405, "METHOD_NOT_ALLOWED", "Method Not Allowed"));
        }
        if !request.query.is_empty() {
            return Err(invalid_input(&request.query));
        }
        self.limits[limit as usize].spend(now)?;
        let mut visible = self.servers.values().filter(|server| sees.shows(server));
        let Some(number) = number else {
            let all: Vec<Value> = match limit {
                Limit::Server => visible.map(|one| json!({"server": one.server()})).collect(),
                Limit::Reset => visible
                    .filter(|one| !one.reset_types.is_empty())
                    .map(|one| json!({"reset": one.reset()}))
                    .collect(),
            };
            return match (all.is_empty(), limit) {
                (false, _) => Ok(all.into()),
                (true, Limit::Server) => Err(error(404, "SERVER_NOT_FOUND", "No server found")),
                (true, Limit::Reset) => {
                    let message = "No servers with reset option found";
                    Err(error(404, "NOT_FOUND", message))
                }
            };
        };
        let found = visible.find(|server| number.parse() == Ok(server.number));
        let found = found.ok_or_else(|| {
            let message = format!("Server with id {number} not found");
            error(404, "SERVER_NOT_FOUND", &message)
        })?;
        match limit {
            Limit::Server => Ok(json!({"server": found.server_alone()})),
            Limit::Reset if found.reset_types.is_empty() => {
                let message = "The server has no reset option";
                Err(error(404, "RESET_NOT_AVAILABLE", message))
            }
            Limit::Reset => {
                let mut reset = found.reset();
                reset["operating_status"] = found.shown_status().into();
                Ok(json!({ "reset": reset }))
            }
        }
    }

    /// Checks the login of a request, and returns which servers the login can see. A request without a user gets the
    /// status 401, but does not count as a failed login.
    fn authenticate(
        &mut self,
        request: &Request,
        now: Instant,
        block: Duration,
    ) -> Result<Sees, Response> {
        if let Some(until) = self.blocked_until {
            if now < until {
                self.logins.blocked += 1;
                return Err(self.blocked_answer.clone());
            }
            self.blocked_until = None;
            self.failures.clear();
        }
        let Some((name, password)) = basic(request) else {
            return Err(unauthorized());
        };
        let mut users = self.users.iter();
        if let Some(user) = users.find(|user| user.name == name && user.password == password) {
            self.logins.good += 1;
            return Ok(user.sees);
        }
        self.logins.failed += 1;
        self.failures.retain(|failed| now - *failed < block);
        self.failures.push(now);
        if self.failures.len() >= FAILURES {
            self.blocked_until = Some(now + block);
        }
        Err(unauthorized())
    }
}

impl Budget {
    fn spend(&mut self, now: Instant) -> Result<(), Response> {
        let first = self.spent.partition_point(|at| now - *at >= self.interval);
        self.spent.drain(..first);
        if self.spent.len() >= self.max_request {
            let body = json!({"error": {
                "status": 403, "code": "RATE_LIMIT_EXCEEDED", "message": "rate limit exceeded",
                "max_request": self.max_request, "interval": self.interval.as_secs_f64().ceil() as u64,
            }});
            return Err(Response::json(403, &body));
        }
        self.spent.push_back(now);
        Ok(())
    }
}

impl Sees {
    fn shows(self, server: &DedicatedServer) -> bool {
        match self {
            Sees::Account(account) => server.account == account,
            Sees::Server(number) => server.number == number,
        }
    }
}

impl DedicatedServer {
    /// Returns the JSON of the server as the list `/server` contains it.
    fn server(&self) -> Value {
        let subnets = self.subnets.as_ref().map(|subnets| {
            let subnets = subnets.iter();
            subnets.map(|(ip, mask)| json!({"ip": ip, "mask": mask})).collect::<Value>()
        });
        json!({
            "server_ip": self.server_ip, "server_ipv6_net": self.server_ipv6_net,
            "server_number": self.number, "server_name": self.name, "product": self.product, "dc": self.dc,
            "traffic": self.traffic, "status": self.status, "cancelled": self.cancelled,
            "paid_until": self.paid_until, "ip": self.ips, "subnet": subnets,
        })
    }

    /// Returns the JSON of the server as `/server/{number}` shows it. In addition to the JSON in the list, it says
    /// which functions the server supports, e.g. `reset`.
    fn server_alone(&self) -> Value {
        let mut server = self.server();
        let has_reset = !self.reset_types.is_empty();
        for (name, can) in [("reset", has_reset), ("rescue", true), ("wol", has_reset)] {
            server[name] = can.into();
        }
        for name in ["vnc", "windows", "plesk", "cpanel", "hot_swap"] {
            server[name] = false.into();
        }
        server["linked_storagebox"] = Value::Null;
        server
    }

    /// Returns the JSON of the server's reset options as the list `/reset` contains it.
    fn reset(&self) -> Value {
        json!({
            "server_ip": self.server_ip, "server_ipv6_net": self.server_ipv6_net,
            "server_number": self.number, "type": self.reset_types,
        })
    }

    fn shown_status(&self) -> &str {
        match (&self.operating_status, self.on) {
            (Some(status), _) => status,
            (None, Some(_)) => "running",
            (None, None) => "shut off",
        }
    }

    /// Whether `ip` is one of the server's public addresses, including the addresses of its subnets.
    fn has(&self, ip: IpAddr) -> bool {
        let is = |text: &String| text.parse() == Ok(ip);
        let mut ranges = self.subnets.iter().flatten();
        self.server_ip.iter().chain(&self.ips).any(is)
            || ranges.any(|(net, mask)| {
                let range = format!("{net}/{mask}").parse::<IpNet>();
                range.is_ok_and(|range| range.contains(&ip))
            })
    }
}

/// Returns the user and the password of a request with HTTP basic authentication, or `None` for any other request.
fn basic(request: &Request) -> Option<(String, String)> {
    let (scheme, text) = request.header("authorization")?.split_once(' ')?;
    let bytes = BASE64_STANDARD.decode(text.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    is_basic.then(|| (user.to_owned(), password.to_owned()))
}

fn error(status: u16, code: &str, message: &str) -> Response {
    let body = json!({"error": {"status": status, "code": code, "message": message}});
    Response::json(status, &body)
}

fn unauthorized() -> Response {
    error(401, "UNAUTHORIZED", "Unauthorized").with_header("WWW-Authenticate", "Basic")
}

/// Returns the error for a request with parameters. The requests that this simulation supports have no parameters.
fn invalid_input(query: &[(String, String)]) -> Response {
    let names: Vec<&String> = query.iter().map(|(name, _)| name).collect();
    let body = json!({"error": {
        "status": 400, "code": "INVALID_INPUT", "message": "invalid input", "missing": null, "invalid": names,
    }});
    Response::json(400, &body)
}

/// Returns an answer that contains an HTML page, as from a proxy in front of Robot.
fn page(status: u16, title: &str) -> Response {
    Response {
        status,
        headers: vec![("Content-Type".into(), "text/html".into())],
        body: format!("<html><head><title>{title}</title></head><body>{title}</body></html>\n")
            .into(),
    }
}
