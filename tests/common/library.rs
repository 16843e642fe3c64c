//! Runs the controllers of the library in the test's own process, against the APIs of a sandbox. A gate can end them
//! after a number of writes.
#![allow(dead_code, clippy::unwrap_used)]

use ccm::cache::Apis;
use ccm::hetzner::load_balancers::Defaults;
use ccm::hetzner::{self, AddressFamily, Hetzner, NetworkSelector, Profile, robot};
use ccm::http::{self, Proxies, Secret, SecretSource, Timing, Tls};
use ccm::kube;
use ccm::kube::config::{self, Access};
use ccm::provider::{self, Gate, InternalIpFrom, LabelPrefixes, Refused, Source, clock};
use sandbox::robot::Sees;
use sandbox::{Half, Sandbox};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The number of real seconds that one second of the library's time lasts in a test over sockets.
pub const SCALE: f64 = 0.002;

/// A duration that is longer than any test, even after it was multiplied by the scale.
pub const LONG: Duration = Duration::from_secs(1000 * 3600);

/// The addresses and credentials of one sandbox.
pub struct SandboxAccess {
    access: config::Options,
    kube_token: Option<String>,
    server: String,
    endpoint: String,
    network: Option<u64>,
    token: Mutex<String>,
    /// The token of another project.
    pub other_token: String,
    /// The URL of Robot, when there are dedicated servers.
    robot: Option<String>,
    /// The user and password of each login to Robot, with the kind of credentials that they are.
    logins: Vec<(Credentials, (String, String))>,
}

/// The Robot credentials of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    Right,
    WrongPassword,
    /// The login sees only servers of another account.
    OtherAccount,
    SingleServer,
    /// There are no credentials, but `ROBOT_ENABLED` is set.
    None,
    /// Neither `ROBOT_ENABLED` nor any credentials are set.
    Off,
}

impl Credentials {
    /// All variants except `Right`.
    pub const ALL: [Credentials; 5] = [
        Credentials::WrongPassword,
        Credentials::OtherAccount,
        Credentials::SingleServer,
        Credentials::None,
        Credentials::Off,
    ];
}

/// Returns the settings of a client without TLS and without a proxy. The client's gate is always open, so it may send
/// every write. A call may take `timeout`.
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
        log_bodies: false,
        gate: Arc::new(provider::OpenGate),
        watch: |_, _, _| {},
    }
}

/// A gate that lets a number of writes through and refuses all later writes. The process then sends no more writes, as
/// if it had died.
pub struct WriteLimit {
    writes_left: AtomicI64,
}

impl SandboxAccess {
    /// Returns the addresses and credentials of a sandbox over sockets.
    pub fn new(sandbox: &Sandbox) -> SandboxAccess {
        SandboxAccess::at(sandbox, SCALE)
    }

    /// Returns the addresses and credentials of a sandbox that is reached over sockets. One second of the program's
    /// time then lasts `scale` real seconds. All tests of a crate must use the same `scale`. A sandbox in memory is
    /// reached without sockets, and ignores `scale`.
    pub fn at(sandbox: &Sandbox, scale: f64) -> SandboxAccess {
        if sandbox.is_in_memory() {
            return SandboxAccess::in_memory(sandbox);
        }
        clock::quicken(scale);
        SandboxAccess::of(sandbox, false)
    }

    /// Returns the addresses and credentials of a sandbox in memory.
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
            other_token: sandbox.projects().foreign_token.clone(),
            robot: sandbox.serves(Half::Robot).then(|| sandbox.robot_url()),
            logins: logins(sandbox),
        }
    }

    /// Returns the current token of the project, see [`rotate_token`](SandboxAccess::rotate_token).
    pub fn token(&self) -> String {
        self.token.lock().unwrap().clone()
    }

    /// Rotates the token. Processes that are started from now on have the new token, and the old token is not
    /// accepted any more.
    pub fn rotate_token(&self, sandbox: &Sandbox) {
        let new = sandbox.add_token();
        let old = std::mem::replace(&mut *self.token.lock().unwrap(), new);
        sandbox.cloud().remove_token(&old);
    }

    pub fn network(&self) -> Option<u64> {
        self.network
    }

    /// Returns the time-outs of calls. A sandbox in memory has the time-outs of production. Over sockets the time-outs
    /// are in real time, because a call takes real time, however fast the library's time runs.
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

    /// Returns clients of the APIs, such as a new process creates.
    pub fn world(&self, token: &str, load_balancers: Option<Defaults>) -> Apis {
        self.world_of(WriteLimit::after(None), token, load_balancers)
    }

    /// Returns clients of the APIs, such as a new process creates. `gate` decides whether a write is sent.
    pub fn world_of(
        &self,
        gate: Arc<WriteLimit>,
        token: &str,
        load_balancers: Option<Defaults>,
    ) -> Apis {
        self.apis(gate, token, Credentials::Right, load_balancers)
    }

    /// Returns clients of the APIs, such as a new process with these Robot credentials creates. `gate` decides whether
    /// a write is sent.
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
                zone_label: provider::Sourced::new(true, Source::Rule("test")),
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
        let client = kube::KubeClient::new(self.access(), Proxies::Never, timing, gate);
        Apis::new(client, Box::new(hetzner))
    }
}

/// Makes the login `SingleServer` see the first dedicated server, if there is one.
pub fn see_one_server(sandbox: &Sandbox) {
    let robot = sandbox.robot();
    if let Some(first) = robot.servers().first() {
        robot.set_login("SingleServer", "secret", Sees::Server(first.number));
    }
}

/// Returns the logins to Robot: those of the sandbox's own account, and those that see the servers of another account
/// or only one server.
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
    /// Creates a gate that lets `writes` writes through. With `None` the gate never closes.
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
