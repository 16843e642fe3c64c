//! All code for Hetzner: cloud servers, dedicated servers, load balancers, routes, the rate limits of the Cloud API and
//! of Robot, and the two profiles (`--cloud-provider` is `ccm-from-scratch` or `hcloud`).
//!
//! This module knows the paths, errors and limits of the Cloud API, and which data of a server become data of its node.
//! It must never import `controllers`, `cache` or `kube`.

mod actions;
mod addresses;
mod api;
mod budget;
mod certificates;
mod error;
pub mod load_balancers;
mod networks;
mod pages;
mod profile;
mod provider;
pub mod robot;
mod servers;

pub use crate::provider::{AddressFamily, NetworkSelector, Profile};
pub use addresses::EXTERNAL_IPV6;
pub use api::HARMLESS_WRITE;
pub use networks::METADATA_ENDPOINT;
pub use provider::{CloudConnection, Hetzner, HetznerSettings, NodeSettings, READ_TIMEOUT};
