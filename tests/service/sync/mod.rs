//! Services of type LoadBalancer from outside: the binary between both APIs, under the role of
//! hcloud-cloud-controller-manager.

mod adoption;
mod bad_input;
mod budget;
mod by_hand;
mod certificates;
mod churn;
mod external;
mod floods;
mod identity;
mod keep;
mod kept;
mod kept_targets;
mod killed;
mod labels;
mod life;
mod management;
mod one_name;
mod orphans;
mod outage;
mod paused;
mod private_addresses;
mod quiet;
mod readers;
mod scope;
mod seen_before;
mod shared;
mod tenants;
mod tls_secrets;
mod trouble;
mod world;
mod wrong_project;

use sandbox::faults::Effect;

/// The call by which a Service is read before something is written for it.
const SERVICES: &str = "GET /api/v1/namespaces/default/services";

/// What loses the answer to a write that was made.
const LOST_ANSWERS: [fn() -> Effect; 3] =
    [|| Effect::AnswerLost, Effect::cut_off, Effect::gateway_timeout];
