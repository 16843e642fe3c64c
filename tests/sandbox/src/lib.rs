//! A Hetzner Cloud project and a Kubernetes API server, simulated in one process and spoken to over real HTTP.

pub mod exchange;
pub mod hetzner;
pub mod kubernetes;
pub mod openapi;
pub mod server;
