//! Tests of the rules of the simulated Hetzner Cloud API, mostly as tables with one case a line.

#[path = "hetzner/actions.rs"]
mod actions;
#[path = "hetzner/api.rs"]
mod api;
#[path = "hetzner/attachments.rs"]
mod attachments;
#[path = "hetzner/certificates.rs"]
mod certificates;
#[path = "hetzner/lists.rs"]
mod lists;
#[path = "hetzner/load_balancer_actions.rs"]
mod load_balancer_actions;
#[path = "hetzner/load_balancer_property.rs"]
mod load_balancer_property;
#[path = "hetzner/load_balancer_services.rs"]
mod load_balancer_services;
#[path = "hetzner/load_balancer_targets.rs"]
mod load_balancer_targets;
#[path = "hetzner/load_balancers.rs"]
mod load_balancers;
#[path = "hetzner/metadata.rs"]
mod metadata;
#[path = "hetzner/networks.rs"]
mod networks;
#[path = "hetzner/primary_ips.rs"]
mod primary_ips;
#[path = "hetzner/put.rs"]
mod put;
#[path = "hetzner/requests.rs"]
mod requests;
#[path = "hetzner/servers.rs"]
mod servers;
#[path = "hetzner/ssh_keys_and_firewalls.rs"]
mod ssh_keys_and_firewalls;
