//! A Hetzner Cloud project, the Robot web service and a Kubernetes API server, simulated in one process. Clients reach
//! them over real HTTP, or in memory with simulated time ([`Builder::in_memory`], [`time::simulate`]).
//!
//! | module | job | knows |
//! |---|---|---|
//! | `exchange` | a request and an answer as plain data | nothing |
//! | `hetzner` | the Hetzner Cloud API: state, rules, answers | `exchange`, `robot`, `credentials` |
//! | `kubernetes` | the Kubernetes API: state, rules, answers | `exchange` |
//! | `robot` | dedicated servers: their web service | `exchange` |
//! | `server` | bytes on sockets or in memory, TLS, limits | `exchange`, `calls`, `faults`, `credentials` |
//! | `time` | the time of the APIs: real, or simulated | nothing |
//! | `calls` | all requests and answers, in order | `exchange` |
//! | `faults` | the calls that fail, and how they fail | `exchange`, `calls` |
//! | `credentials`, `kubeconfig` | certificates; the text with the credentials of users | nothing |
//! | `kubelet` | simulated kubelets, which register and report Nodes; what kube-proxy answers to health checks | all APIs |
//! | `world` | the whole sandbox: [`Sandbox`] and its [`Builder`] | everything above |
//! | `scenario` | a sandbox described in a file | `world`, `faults` |
//! | `openapi` | checks of requests and answers against an OpenAPI document | nothing |
//! | `skipped` | reports of skipped tests | nothing |
//!
//! The column "knows" lists the modules that a module uses. All modules can also use `time` and the random numbers of
//! [`faults::SplitMix64`]. The modules of the APIs do not use sockets, and the server does not use the modules of the
//! APIs. A test can therefore call an API directly.

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

/// One of the three simulated APIs. At first the sandbox had only the APIs of Hetzner Cloud and of Kubernetes, and each
/// was one half of the sandbox. The type kept its name when the Robot web service was added.
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
