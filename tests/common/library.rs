//! The library's controllers in the test's own process, over real HTTP, behind a gate that closes for good.
#![allow(dead_code, clippy::unwrap_used)]

use ccm::cache::Apis;
use ccm::hetzner::load_balancers::Defaults;
use ccm::hetzner::{self, AddressFamily, Hetzner, NetworkSelector, Profile, robot};
use ccm::http::{Proxies, Secret, SecretSource, Timing, Tls};
use ccm::kube::{self, config};
use ccm::provider::{self, Gate, InternalIpFrom, LabelPrefixes, Refused, Source};
use sandbox::robot::Sees;
use sandbox::{Half, Sandbox};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A second of the daemon's waits.
pub const SCALE: f64 = 0.002;

/// How to reach one sandbox.
pub struct Place {
    kubeconfig: config::Options,
    endpoint: String,
    network: Option<u64>,
    pub token: String,
    /// Another project's.
    pub other_token: String,
    /// URL, where there are dedicated servers.
    robot: Option<String>,
    /// Logins by what they are.
    logins: Vec<(Credentials, (String, String))>,
}

/// What a process has of Robot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    Right,
    WrongPassword,
    /// They see other servers alone.
    OtherAccount,
    SingleServer,
    /// `ROBOT_ENABLED` alone.
    None,
    /// Not even that.
    Off,
}

/// Lets so many writes pass, and then none: as far as the APIs can tell, the process is dead.
pub struct Mortal {
    writes_left: AtomicI64,
}

impl Place {
    pub fn new(sandbox: &Sandbox) -> Place {
        let env = sandbox.env_of("ccm");
        let value = |name: &str| {
            let found = env.iter().find(|(other, _)| other == name);
            found.unwrap().1.clone()
        };
        Place {
            kubeconfig: config::Options {
                kubeconfig: vec![value("KUBECONFIG").into()],
                ..config::Options::default()
            },
            endpoint: value("HCLOUD_ENDPOINT"),
            network: sandbox.network(),
            token: value("HCLOUD_TOKEN"),
            other_token: sandbox.projects().foreign_token.clone(),
            robot: sandbox.serves(Half::Robot).then(|| sandbox.robot_url()),
            logins: logins(sandbox),
        }
    }

    /// Both APIs as a new process sees them.
    pub fn world(&self, token: &str, load_balancers: Option<Defaults>) -> Apis {
        self.world_of(Mortal::after(None), token, load_balancers)
    }

    /// The same; its writes pass this gate.
    pub fn world_of(
        &self,
        gate: Arc<Mortal>,
        token: &str,
        load_balancers: Option<Defaults>,
    ) -> Apis {
        self.world_with(gate, token, Credentials::Right, load_balancers)
    }

    /// The same, with these credentials of Robot.
    pub fn world_with(
        &self,
        gate: Arc<Mortal>,
        token: &str,
        robot: Credentials,
        load_balancers: Option<Defaults>,
    ) -> Apis {
        let login = self.logins.iter().find(|(which, _)| *which == robot);
        let endpoint = self.robot.clone();
        let endpoint = endpoint.filter(|_| robot != Credentials::Off);
        let timing = Timing {
            read_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            retry_wait: Duration::from_millis(1),
        };
        let access = config::load(&self.kubeconfig).unwrap();
        let hetzner = Hetzner::new(hetzner::Settings {
            profile: Profile::CcmFromScratch,
            endpoint: self.endpoint.clone(),
            proxies: Proxies::Never,
            tls: Tls::default(),
            metadata: None,
            token: SecretSource::fixed(Secret::new(token)),
            network: self.network.map(NetworkSelector::Id),
            address_family: provider::Sourced::new(AddressFamily::Ipv4, Source::Rule("test")),
            internal_ip_from: InternalIpFrom::Network,
            label_prefixes: LabelPrefixes(vec!["node.example.com/".into()]),
            load_balancers,
            robot: endpoint.map(|endpoint| {
                let secret = |text: &str| SecretSource::fixed(Secret::new(text));
                robot::Settings {
                    endpoint,
                    credentials: login.map(|(_, (user, pass))| (secret(user), secret(pass))),
                    rate_limit_wait: None,
                    forward_internal_ips: provider::Sourced::new(true, Source::Rule("test")),
                }
            }),
            zone_label: provider::Sourced::new(true, Source::Rule("test")),
            debug: false,
            timing,
            gate: Arc::clone(&gate) as Arc<dyn Gate>,
            urgency: ccm::provider::Urgency::Asked,
            time_scale: SCALE,
        });
        Apis::new(
            kube::Client::new(access, Proxies::Never, timing, gate),
            Box::new(hetzner),
            SCALE,
        )
    }
}

/// The account's own, and others that nobody should be given.
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
    let first = robot.servers().first().map(|server| server.number);
    let others = [
        (Credentials::OtherAccount, Some(Sees::Account(99))),
        (Credentials::SingleServer, first.map(Sees::Server)),
    ];
    for (which, sees) in others {
        if let Some(sees) = sees {
            let user = format!("{which:?}");
            robot.set_login(&user, "secret", sees);
            logins.push((which, (user, "secret".into())));
        }
    }
    logins
}

impl Mortal {
    /// None: it does not die.
    pub fn after(writes: Option<u64>) -> Arc<Mortal> {
        let writes = writes.map_or(i64::MAX, |writes| writes as i64);
        Arc::new(Mortal {
            writes_left: writes.into(),
        })
    }

    pub fn is_closed(&self) -> bool {
        self.writes_left.load(Ordering::Relaxed) <= 0
    }
}

impl Gate for Mortal {
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

pub fn scaled(time_s: u64) -> Duration {
    Duration::from_secs(time_s).mul_f64(SCALE)
}
