//! Resources of a Hetzner Cloud project that ccm does not use, but other clients such as `hcloud` and Terraform do.
//!
//! | file | its resource |
//! |---|---|
//! | `firewalls` | firewalls of servers, whose rules are checked and shown |
//! | `ssh_keys` | public keys with which people can log in to new servers |
//!
//! A request for a new server can contain these resources. Nothing else in this crate depends on them.

pub mod firewalls;
pub mod ssh_keys;
