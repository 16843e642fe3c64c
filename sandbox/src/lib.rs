//! A Hetzner Cloud project, the Robot web service and a Kubernetes API server, simulated in one process and reached
//! over real HTTP, or in memory with simulated time ([`Builder::in_memory`], [`time::simulate`]).
//!
//! | module | job | knows |
//! |---|---|---|
//! | `exchange` | a request and an answer as plain data | nothing |
//! | `hetzner`, `kubernetes` | the two halves: state, rules, answers | `exchange`; `hetzner` also `robot` |
//! | `robot` | dedicated servers: their web service | `exchange` |
//! | `server` | bytes on sockets or in memory, TLS, limits | `exchange`, `calls`, `faults`, `credentials` |
//! | `time` | the time of the APIs: real, or simulated | nothing |
//! | `calls` | all requests and answers, in order | `exchange` |
//! | `faults` | the calls that fail, in which way, by which seed | `exchange` |
//! | `credentials`, `kubeconfig` | certificates; the text with the credentials of users | nothing |
//! | `kubelet` | machines that join, report and fall silent | all APIs |
//! | `world` | all of it together: [`Sandbox`] and its [`Builder`] | everything above |
//! | `scenario` | a world described in a file | `world` |
//!
//! All modules may use `time`. The halves know nothing of sockets, and the server knows nothing of the APIs, so that a
//! test can call a half directly.

pub mod calls;
pub mod credentials;
pub mod exchange;
pub mod faults;
pub mod hetzner;
pub mod kubeconfig;
pub mod kubelet;
pub mod kubernetes;
pub mod openapi;
pub mod robot;
pub mod scenario;
pub mod server;
pub mod skipped;
pub mod time;
pub mod world;

use std::fmt;

pub use world::{Builder, Sandbox};

/// The APIs: the two halves of the world, and the Robot web service beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    Hetzner,
    Kubernetes,
    Robot,
}

impl Half {
    pub fn name(self) -> &'static str {
        match self {
            Half::Hetzner => "hetzner",
            Half::Kubernetes => "kubernetes",
            Half::Robot => "robot",
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
