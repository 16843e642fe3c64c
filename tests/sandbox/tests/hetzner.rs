//! The rules of the Hetzner half, one line a case.

#[path = "hetzner/actions.rs"]
mod actions;
#[path = "hetzner/api.rs"]
mod api;
#[path = "hetzner/attachments.rs"]
mod attachments;
#[path = "hetzner/lists.rs"]
mod lists;
#[path = "hetzner/metadata.rs"]
mod metadata;
#[path = "hetzner/networks.rs"]
mod networks;
#[path = "hetzner/requests.rs"]
mod requests;
#[path = "hetzner/servers.rs"]
mod servers;
