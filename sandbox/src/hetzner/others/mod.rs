//! Resources of a Hetzner Cloud project that only clients other than ccm use: `hcloud`, Terraform, whoever creates servers.
//!
//! | file | its resource |
//! |---|---|
//! | `firewalls` | firewalls of servers, whose rules are checked and shown |
//! | `ssh_keys` | public keys that new servers let in |
//!
//! A new server may name them; nothing else here depends on them.

pub mod firewalls;
pub mod ssh_keys;
