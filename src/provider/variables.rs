//! The names of the environment variables that contain settings. The table of settings and all messages use these
//! constants, so a message can't name a variable that does not exist. The constants are not in the module `settings`,
//! because controllers and providers need them and do not import that module.

use std::ffi::OsStr;
use std::fmt;

/// The name of an environment variable that contains a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VariableName(&'static str);

impl VariableName {
    pub const fn text(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

/// The prefixes of the variables for the Hetzner Cloud API and for the Robot web service.
const PREFIXES: [&str; 2] = ["HCLOUD_", "ROBOT_"];

/// Whether the name of a variable begins with `HCLOUD_` or `ROBOT_`. This is also true for variables that this program
/// does not know.
pub fn is_about_hetzner(name: impl AsRef<OsStr>) -> bool {
    let name = name.as_ref().as_encoded_bytes();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

macro_rules! variables {
    ($($name:ident)*) => {
        $(pub const $name: VariableName = VariableName(stringify!($name));)*

        /// The names of all environment variables that contain settings.
        pub const ALL: &[VariableName] = &[$($name),*];
    };
}

variables! {
    HCLOUD_TOKEN HCLOUD_TOKEN_FILE HCLOUD_ENDPOINT HCLOUD_ALLOW_INSECURE_ENDPOINT HCLOUD_NETWORK
    HCLOUD_NETWORK_ROUTES_ENABLED HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK HCLOUD_METADATA_ENDPOINT
    HCLOUD_SERVER_CACHE_MAX_AGE HCLOUD_SERVER_CACHE_TTL KUBECONFIG HCLOUD_DEBUG HCLOUD_METRICS_ENABLED
    HCLOUD_METRICS_ADDRESS CCM_TEST_TIME_SCALE

    HCLOUD_INSTANCES_ADDRESS_FAMILY HCLOUD_INSTANCES_INTERNAL_IP_FROM HCLOUD_INSTANCES_INTERNAL_IP_RANGES
    HCLOUD_INSTANCES_LABEL_PREFIXES HCLOUD_INSTANCES_ZONE_LABEL_ENABLED HCLOUD_INSTANCES_ZONE_LABEL

    ROBOT_ENABLED ROBOT_USER ROBOT_USER_FILE ROBOT_PASSWORD ROBOT_PASSWORD_FILE ROBOT_ENDPOINT ROBOT_CACHE_TIMEOUT
    ROBOT_RATE_LIMIT_WAIT_TIME ROBOT_FORWARD_INTERNAL_IPS

    HCLOUD_LOAD_BALANCERS_ENABLED HCLOUD_LOAD_BALANCERS_TYPE HCLOUD_LOAD_BALANCERS_LOCATION
    HCLOUD_LOAD_BALANCERS_TYPE_MAX
    HCLOUD_LOAD_BALANCERS_NETWORK_ZONE HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE
    HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS
    HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE
    HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES HCLOUD_LOAD_BALANCERS_DISABLE_IPV6
    HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL HCLOUD_LOAD_BALANCERS_HEALTH_CHECK
    HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED
    HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS
    HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS HCLOUD_LOAD_BALANCERS_FOREIGN_NODES
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT
    HCLOUD_LOAD_BALANCERS_LABELS HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR
    HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS
}
