//! Runs the controllers of the `ccm` library in the test's own process, against the simulated APIs of a sandbox. A test
//! can limit how many writes the controllers are allowed to send.
#![allow(dead_code, clippy::unwrap_used)]

use ccm::cache::Apis;
use ccm::hetzner::load_balancers::Defaults;
use ccm::hetzner::{self, AddressFamily, Hetzner, NetworkSelector, Profile, robot};
use ccm::http::{self, Proxies, Secret, SecretSource, Timing, Tls};
use ccm::kube;
use ccm::kube::config::{self, Access};
use ccm::provider::{
    self, ForeignNodes, Gate, InternalIpFrom, LabelPrefixes, Refused, Source, ZoneLabel,
    ZoneSettings, clock,
};
use sandbox::robot::Sees;
use sandbox::{Half, Sandbox};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The speed of the clock of the `ccm` library in tests whose APIs listen on sockets: one second on this clock lasts
/// this many real seconds. The value is far below 1, so that tests wait only for a short time.
pub const SCALE: f64 = 0.002;

/// A duration that is longer than any test, even after it was multiplied by [`SCALE`].
pub const LONG: Duration = Duration::from_secs(1000 * 3600);

/// The addresses of a sandbox's simulated APIs, and the credentials for them.
pub struct SandboxAccess {
    access: config::Options,
    kube_token: Option<String>,
    server: String,
    endpoint: String,
    network: Option<u64>,
    token: Mutex<String>,
    /// The kind of zone label that `ccm` sets on new nodes. `None` means that `ccm` uses its default. When a test
    /// changes the value, the change applies to API clients that are created later.
    pub zone_label: Mutex<Option<ZoneLabel>>,
    /// The API token of a second Hetzner Cloud project, to which the sandbox's servers do not belong.
    pub other_token: String,
    /// Whether nodes of other providers can be targets of load balancers.
    pub foreign_nodes: ForeignNodes,
    /// Whether annotations of Namespaces are defaults for Services.
    pub namespace_defaults: bool,
    /// The URL of the Robot web service. `None` when the sandbox does not serve Robot.
    robot: Option<String>,
    /// The logins to the simulated Robot. Each has the kind of its credentials, the user and the password.
    logins: Vec<(Credentials, (String, String))>,
}

/// The kind of credentials that a tested process has for the Robot web service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    Right,
    WrongPassword,
    /// The credentials belong to another account, so the login sees only servers of that account.
    OtherAccount,
    SingleServer,
    /// `ROBOT_ENABLED` is set, but there are no credentials.
    None,
    /// `ROBOT_ENABLED`, `ROBOT_USER` and `ROBOT_PASSWORD` are not set.
    Off,
}

impl Credentials {
    /// All kinds of credentials except [`Right`](Credentials::Right). A process with any of these credentials sees no
    /// dedicated servers, or fewer than a process with the right credentials.
    pub const ALL: [Credentials; 5] = [
        Credentials::WrongPassword,
        Credentials::OtherAccount,
        Credentials::SingleServer,
        Credentials::None,
        Credentials::Off,
    ];
}

/// Returns the settings of an HTTP client that uses neither TLS nor a proxy, and has no limit for the number of calls
/// that change something. Each call takes at most `timeout`.
pub fn http_settings(base: String, login: SecretSource, timeout: Duration) -> http::HttpSettings {
    http::HttpSettings {
        base,
        tls: Tls::default().into(),
        proxies: Proxies::Never,
        login: Arc::new(login),
        connect_timeout: Duration::from_secs(5),
        timing: Timing {
            read_timeout: timeout,
            write_timeout: timeout,
            retry_wait: Duration::from_millis(1),
        },
        retry: http::Retry::NotRateLimited,
        body_limit_bytes: 64 << 20,
        unread: &[],
        log_bodies: false,
        gate: Arc::new(provider::OpenGate),
        watch: |_, _, _, _| {},
    }
}

/// Allows a number of API calls that change something, and refuses all later ones. From then on, a tested process with
/// this limit changes nothing any more, as if it had been killed.
pub struct WriteLimit {
    writes_left: AtomicI64,
}

impl SandboxAccess {
    /// Returns the addresses and credentials of a sandbox's APIs. When the APIs listen on sockets, this function makes
    /// the clock of the `ccm` library run faster: one of its seconds lasts [`SCALE`] real seconds.
    pub fn new(sandbox: &Sandbox) -> SandboxAccess {
        SandboxAccess::at(sandbox, SCALE)
    }

    /// Returns the addresses and credentials of a sandbox's APIs. When the APIs listen on sockets, this function
    /// changes the speed of the clock of the `ccm` library: one of its seconds lasts `scale` real seconds. The speed
    /// holds for the whole process, so all tests of a crate must use the same `scale`. A sandbox in memory ignores
    /// `scale`.
    pub fn at(sandbox: &Sandbox, scale: f64) -> SandboxAccess {
        if sandbox.is_in_memory() {
            return SandboxAccess::in_memory(sandbox);
        }
        clock::quicken(scale);
        SandboxAccess::of(sandbox, false)
    }

    /// Returns the addresses and credentials of a sandbox in memory, whose APIs do not listen on sockets.
    pub fn in_memory(sandbox: &Sandbox) -> SandboxAccess {
        SandboxAccess::of(sandbox, true)
    }

    fn of(sandbox: &Sandbox, in_memory: bool) -> SandboxAccess {
        let token = || sandbox.account("ccm").unwrap().token;
        let kubeconfig = || {
            let env = sandbox.env_of("ccm");
            super::variable(&env, "KUBECONFIG").into()
        };
        SandboxAccess {
            access: config::Options {
                kubeconfig: (!in_memory).then(kubeconfig).into_iter().collect(),
                ..config::Options::default()
            },
            kube_token: in_memory.then(token),
            server: sandbox.kubernetes_url(),
            endpoint: sandbox.hetzner_url(),
            network: sandbox.network(),
            token: Mutex::new(sandbox.projects().token.clone()),
            zone_label: Mutex::default(),
            other_token: sandbox.projects().foreign_token.clone(),
            foreign_nodes: ForeignNodes::Ignore,
            namespace_defaults: false,
            robot: sandbox.serves(Half::Robot).then(|| sandbox.robot_url()),
            logins: logins(sandbox),
        }
    }

    /// Returns the current API token of the Hetzner Cloud project. [`rotate_token`](SandboxAccess::rotate_token)
    /// replaces the token.
    pub fn token(&self) -> String {
        self.token.lock().unwrap().clone()
    }

    /// Gives the Hetzner Cloud project a new API token. The old token is refused from now on, and
    /// [`token`](SandboxAccess::token) returns the new token.
    pub fn rotate_token(&self, sandbox: &Sandbox) {
        let new = sandbox.add_token();
        let old = std::mem::replace(&mut *self.token.lock().unwrap(), new);
        sandbox.cloud().remove_token(&old);
    }

    pub fn network(&self) -> Option<u64> {
        self.network
    }

    /// Returns the time-outs of API calls. For a sandbox in memory they are as long as in production. When the APIs
    /// listen on sockets, a call needs real time, so its time-out is five real seconds, which the time scale does not
    /// shorten.
    pub fn timing(&self) -> Timing {
        if self.kube_token.is_none() {
            let timeout = clock::from_machine(Duration::from_secs(5));
            return Timing {
                read_timeout: timeout,
                write_timeout: timeout,
                retry_wait: clock::from_machine(Duration::from_millis(1)),
            };
        }
        Timing {
            read_timeout: Duration::from_secs(10),
            write_timeout: ccm::http::WRITE_TIMEOUT,
            retry_wait: Duration::from_millis(500),
        }
    }

    pub fn access(&self) -> Access {
        match &self.kube_token {
            None => config::load(&self.access).unwrap(),
            Some(token) => Access {
                login: Arc::new(SecretSource::fixed(Secret::new(token))),
                ..Access::without_credentials(&self.server)
            },
        }
    }

    /// Returns new API clients with empty caches, as in a process that has just started. The Robot credentials are
    /// valid, and calls that change something are not limited. `load_balancers` is `None` when load balancers are
    /// disabled.
    pub fn world(&self, token: &str, load_balancers: Option<Defaults>) -> Apis {
        self.world_of(WriteLimit::after(None), token, load_balancers)
    }

    /// Returns new API clients with empty caches, as in a process that has just started. The Robot credentials are
    /// valid. `gate` decides for each call that changes something whether it is sent.
    pub fn world_of(
        &self,
        gate: Arc<WriteLimit>,
        token: &str,
        load_balancers: Option<Defaults>,
    ) -> Apis {
        self.apis(gate, token, Credentials::Right, load_balancers)
    }

    /// Returns new API clients, which have read nothing yet, like those of a process that has just started. `robot` is
    /// the kind of their Robot credentials. `gate` decides for each call that changes something whether it is sent.
    pub fn apis(
        &self,
        gate: Arc<dyn Gate>,
        token: &str,
        robot: Credentials,
        load_balancers: Option<Defaults>,
    ) -> Apis {
        let login = self.logins.iter().find(|(which, _)| *which == robot);
        let endpoint = self.robot.clone();
        let endpoint = endpoint.filter(|_| robot != Credentials::Off);
        let timing = self.timing();
        let hetzner = Hetzner::new(hetzner::HetznerSettings {
            profile: Profile::CcmFromScratch,
            connection: hetzner::CloudConnection {
                endpoint: self.endpoint.clone(),
                proxies: Proxies::Never,
                tls: Tls::default(),
                token: SecretSource::fixed(Secret::new(token)),
                debug: false,
                timing,
            },
            metadata: None,
            network: self.network.map(NetworkSelector::Id),
            nodes: hetzner::NodeSettings {
                address_family: provider::Sourced::new(AddressFamily::Ipv4, Source::Rule("test")),
                internal_ip_from: InternalIpFrom::Network,
                internal_ip_ranges: Vec::new(),
                label_prefixes: LabelPrefixes(vec!["node.example.com/".into()]),
                foreign: self.foreign_nodes,
                zone: ZoneSettings { is_enabled: true, label: *self.zone_label.lock().unwrap() },
            },
            load_balancers: load_balancers.map(Arc::new),
            robot: endpoint.map(|endpoint| {
                let secret = |text: &str| SecretSource::fixed(Secret::new(text));
                robot::RobotSettings {
                    endpoint,
                    credentials: login.map(|(_, (user, pass))| (secret(user), secret(pass))),
                    rate_limit_wait: None,
                    forward_internal_ips: provider::Sourced::new(true, Source::Rule("test")),
                }
            }),
            gate: Arc::clone(&gate),
            urgency: provider::Urgency::Changed,
        });
        let mut client = kube::KubeClient::new(self.access(), Proxies::Never, timing, gate);
        let is_default = hetzner::load_balancers::annotations::is_default;
        client.scope.defaults = self.namespace_defaults.then_some(is_default);
        Apis::new(client, Box::new(hetzner))
    }
}

/// Gives the login `SingleServer` of the simulated Robot the right to see the first dedicated server and no other one.
/// Does nothing when there are no dedicated servers.
pub fn see_one_server(sandbox: &Sandbox) {
    let robot = sandbox.robot();
    if let Some(first) = robot.servers().first() {
        robot.set_login("SingleServer", "secret", Sees::Server(first.number));
    }
}

/// Creates logins to the simulated Robot, and returns them together with the right login. One login has a wrong
/// password, one sees the servers of another account, and one sees a single server. The list is empty when the sandbox
/// does not serve Robot.
fn logins(sandbox: &Sandbox) -> Vec<(Credentials, (String, String))> {
    if !sandbox.serves(Half::Robot) {
        return Vec::new();
    }
    let robot = sandbox.robot();
    let (user, password) = robot.login();
    let mut logins = vec![
        (Credentials::WrongPassword, (user.clone(), "wrong".into())),
        (Credentials::Right, (user, password)),
    ];
    robot.set_login("OtherAccount", "secret", Sees::Account(99));
    see_one_server(sandbox);
    let others = [Credentials::OtherAccount, Credentials::SingleServer];
    logins.extend(others.map(|which| (which, (format!("{which:?}"), "secret".into()))));
    logins
}

impl WriteLimit {
    /// Returns a limit that allows this number of API calls that change something, and refuses all later ones. With
    /// `None` there is no limit.
    pub fn after(writes: Option<u64>) -> Arc<WriteLimit> {
        let writes = writes.map_or(i64::MAX, |writes| writes as i64);
        Arc::new(WriteLimit { writes_left: writes.into() })
    }

    pub fn is_closed(&self) -> bool {
        self.writes_left.load(Ordering::Relaxed) <= 0
    }
}

impl Gate for WriteLimit {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        match self.writes_left.fetch_sub(1, Ordering::Relaxed) > 0 {
            true => Ok(()),
            false => Err(Refused("dead".into())),
        }
    }

    fn may_wait(&self) -> bool {
        !self.is_closed()
    }
}
