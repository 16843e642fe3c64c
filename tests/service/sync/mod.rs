//! Services of type LoadBalancer from outside. The binary runs between both APIs, with the
//! role of hcloud-cloud-controller-manager.

mod adoption;
mod bad_input;
mod budget;
mod certificates;
mod churn;
mod creation;
mod departing;
mod external;
mod failures;
mod foreign_nodes;
mod identity;
mod keep;
mod kept_resources;
mod kept_targets;
mod killed;
mod labels;
mod lifecycle;
mod management;
mod manual_changes;
mod many_findings;
mod namespaces;
mod orphans;
mod outage;
mod paused;
mod pods;
mod predicted_refusals;
mod private_addresses;
mod read_only_commands;
mod replace;
mod scope;
mod shared;
mod steady_state;
mod tenants;
mod tls_secrets;
mod type_auto;
mod world;
mod wrong_project;

use sandbox::faults::Effect;

/// The call by which a Service is read before something is written for it.
const SERVICES: &str = "GET /api/v1/namespaces/default/services";

/// The effects that lose the answer to a write that was made.
const LOST_ANSWERS: [fn() -> Effect; 3] =
    [|| Effect::AnswerLost, Effect::cut_off, Effect::gateway_timeout];
