//! A Hetzner Cloud project and a Kubernetes API server, simulated in one process and spoken to over real HTTP.

pub mod calls;
pub mod credentials;
pub mod exchange;
pub mod faults;
pub mod hetzner;
pub mod kubeconfig;
pub mod kubelet;
pub mod kubernetes;
pub mod openapi;
pub mod scenario;
pub mod server;
pub mod world;

use std::fmt;

pub use world::{Builder, Sandbox};

/// The two APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    Hetzner,
    Kubernetes,
}

impl Half {
    pub fn name(self) -> &'static str {
        match self {
            Half::Hetzner => "hetzner",
            Half::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
