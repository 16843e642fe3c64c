//! The library's controllers in the test's own process, over real HTTP, behind a gate that closes for good.
#![allow(dead_code, clippy::unwrap_used)]

use ccm::cache::Apis;
use ccm::hetzner::load_balancers::Defaults;
use ccm::hetzner::{self, AddressFamily, Hetzner, NetworkSelector, Profile};
use ccm::http::{Proxies, Secret, SecretSource, Timing, Tls};
use ccm::kube::{self, config};
use ccm::provider::{self, Gate, Refused, Source};
use sandbox::Sandbox;
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
            load_balancers,
            robot: None,
            zone_label: provider::Sourced::new(true, Source::Rule("test")),
            debug: false,
            timing,
            gate: Arc::clone(&gate) as Arc<dyn Gate>,
            time_scale: SCALE,
        });
        Apis::new(
            kube::Client::new(access, Proxies::Never, timing, gate),
            Box::new(hetzner),
            SCALE,
        )
    }
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
