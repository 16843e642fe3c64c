//! The table of annotations: it feeds the parser, `inspect` and the README.

/// What all of them begin with.
pub const PREFIX: &str = "load-balancer.hetzner.cloud/";

/// One annotation of a Service.
#[derive(Debug)]
pub struct Annotation {
    /// Without the prefix.
    pub name: &'static str,
    /// What a value looks like, for messages and the README.
    pub form: &'static str,
    /// The variable that sets it for all Services that do not say otherwise.
    pub variable: Option<&'static str>,
    /// It is about a port: with the port's name or number behind a dot it holds for that one alone.
    pub per_port: bool,
    pub state: State,
    /// For the README; whole sentences.
    pub meaning: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Honoured,
    /// Upstream documents it as written by itself; nobody reads it.
    NeverRead,
}

const BOOLEAN: &str = "`true` or `false`";
const TEXT: &str = "text";
const DURATION: &str = "duration, e.g. `15s`";
const PROTOCOLS: &str = "`tcp`, `http` or `https`";

const BLANK: Annotation = Annotation {
    name: "",
    form: TEXT,
    variable: None,
    per_port: false,
    state: State::Honoured,
    meaning: "",
};

macro_rules! table {
    ($($id:ident = { $($field:ident: $value:expr),* $(,)? };)*) => {
        $(pub static $id: Annotation = Annotation { $($field: $value,)* ..BLANK };)*
        /// All of them, in the order in which people read about them.
        pub static TABLE: &[&Annotation] = &[$(&$id),*];
    };
}

table! {
    NAME = {
        name: "name",
        meaning: "Name of the load balancer. An existing one of this name is adopted while it has no ports and all its targets are nodes of this cluster; a later change renames it.",
    };
    TYPE = {
        name: "type",
        form: "e.g. `lb11`",
        variable: Some("HCLOUD_LOAD_BALANCERS_TYPE"),
        meaning: "Its type, which says how many targets, ports and certificates it takes. Nothing set: a new one is an `lb11`, and one that is there keeps its type.",
    };
    LOCATION = {
        name: "location",
        form: "e.g. `fsn1`",
        variable: Some("HCLOUD_LOAD_BALANCERS_LOCATION"),
        meaning: "Where it is created; it can't be moved later. Wins over `network-zone`; an empty one unsets the environment's. Neither set: where most of the nodes are (profile `hcloud`: an error).",
    };
    NETWORK_ZONE = {
        name: "network-zone",
        form: "e.g. `eu-central`",
        variable: Some("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE"),
        meaning: "The network zone it is created in, when the location does not matter.",
    };
    ALGORITHM_TYPE = {
        name: "algorithm-type",
        form: "`round_robin` or `least_connections`",
        variable: Some("HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE"),
        meaning: "Which target gets the next connection. Nothing set: `round_robin` (profile `hcloud`: as it is).",
    };
    DISABLE_PUBLIC_NETWORK = {
        name: "disable-public-network",
        form: BOOLEAN,
        variable: Some("HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK"),
        meaning: "Turn its public addresses off; needs `use-private-ip`. Nothing set: as it is.",
    };
    DISABLE_PRIVATE_INGRESS = {
        name: "disable-private-ingress",
        form: BOOLEAN,
        variable: Some("HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS"),
        meaning: "Leave its private address out of the Service's status.",
    };
    USE_PRIVATE_IP = {
        name: "use-private-ip",
        form: BOOLEAN,
        variable: Some("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP"),
        meaning: "Reach the nodes by their private addresses; needs `HCLOUD_NETWORK`.",
    };
    PRIVATE_IPV4 = {
        name: "private-ipv4",
        form: "IPv4 address",
        meaning: "Its address in the private Network. Another one detaches and attaches it again.",
    };
    PRIVATE_SUBNET_IP_RANGE = {
        name: "private-subnet-ip-range",
        form: "e.g. `10.0.1.0/24`",
        variable: Some("HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE"),
        meaning: "Subnet of the private Network that it is attached in; counts only when it is attached.",
    };
    IPV6_DISABLED = {
        name: "ipv6-disabled",
        form: BOOLEAN,
        variable: Some("HCLOUD_LOAD_BALANCERS_DISABLE_IPV6"),
        meaning: "Leave its IPv6 address out of the Service's status.",
    };
    HOSTNAME = {
        name: "hostname",
        meaning: "The Service's status holds this name instead of any address: pods of the cluster then reach it through the load balancer.",
    };
    IPV4_RDNS = {
        name: "ipv4-rdns",
        form: "host name",
        meaning: "Reverse DNS of its IPv4 address. Nothing set: as it is.",
    };
    IPV6_RDNS = {
        name: "ipv6-rdns",
        form: "host name",
        meaning: "Reverse DNS of its IPv6 address. Nothing set: as it is.",
    };
    NODE_SELECTOR = {
        name: "node-selector",
        form: "label selector",
        meaning: "Which nodes become targets, as in `kubectl get nodes -l`.",
    };
    PUBLIC_NET_IPV4 = {
        name: "public-net-ipv4",
        form: "ID, name or address",
        meaning: "The Primary IP that it is created with: that address stays yours when the load balancer goes. It must be free, and decides the location when nobody says one. A load balancer that is there keeps its address. Profile `hcloud`: ID only.",
    };
    PUBLIC_NET_IPV6 = {
        name: "public-net-ipv6",
        form: "ID, name or address",
        meaning: "The same for its IPv6 address.",
    };
    PROTOCOL = {
        name: "protocol",
        form: PROTOCOLS,
        per_port: true,
        meaning: "What the ports speak. Nothing set: `tcp`.",
    };
    USES_PROXYPROTOCOL = {
        name: "uses-proxyprotocol",
        form: BOOLEAN,
        variable: Some("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL"),
        per_port: true,
        meaning: "Send the PROXY protocol to the targets. The Service's status then says `ipMode: Proxy`.",
    };
    HTTP_COOKIE_NAME = {
        name: "http-cookie-name",
        per_port: true,
        meaning: "Cookie of sticky sessions. Nothing set: `HCLBSTICKY`.",
    };
    HTTP_COOKIE_LIFETIME = {
        name: "http-cookie-lifetime",
        form: DURATION,
        per_port: true,
        meaning: "How long that cookie lives. Nothing set: `300s`.",
    };
    HTTP_TIMEOUT_IDLE = {
        name: "http-timeout-idle",
        form: "duration from `30s` to `300s`",
        per_port: true,
        meaning: "After how long a silent connection is closed. Nothing set: as it is.",
    };
    HTTP_STICKY_SESSIONS = {
        name: "http-sticky-sessions",
        form: BOOLEAN,
        per_port: true,
        meaning: "A client stays with its target.",
    };
    HTTP_REDIRECT_HTTP = {
        name: "http-redirect-http",
        form: BOOLEAN,
        per_port: true,
        meaning: "Send what comes to port 80 over to this `https` port; the Service must not have a port 80 of its own.",
    };
    CERTIFICATE_TYPE = {
        name: "certificate-type",
        form: "`uploaded` or `managed`",
        per_port: true,
        meaning: "Whether the certificates of `https` ports are those named, or the Service's own managed one (ordered when there is none).",
    };
    HTTP_CERTIFICATES = {
        name: "http-certificates",
        form: "IDs or names, with commas",
        per_port: true,
        meaning: "Certificates of `https` ports.",
    };
    HTTP_MANAGED_CERTIFICATE_NAME = {
        name: "http-managed-certificate-name",
        per_port: true,
        meaning: "Name of the managed certificate. Nothing set: `ccm-managed-certificate-` and the Service's UID. One of this name that no living Service has, for the same domains, is taken over; none is ever deleted.",
    };
    HTTP_MANAGED_CERTIFICATE_DOMAINS = {
        name: "http-managed-certificate-domains",
        form: "names, with commas",
        per_port: true,
        meaning: "Domains of the managed certificate; they must be in DNS zones of this project. A certificate that is there keeps its own: for others choose another name.",
    };
    HTTP_MANAGED_CERTIFICATE_ACME_STAGING = {
        name: "http-managed-certificate-acme-staging",
        form: BOOLEAN,
        per_port: true,
        meaning: "Have it from Let's Encrypt's test service, which no browser trusts.",
    };
    HEALTH_CHECK_PROTOCOL = {
        name: "health-check-protocol",
        form: PROTOCOLS,
        per_port: true,
        meaning: "How targets are checked; `https` is `http` over TLS. Nothing set: the port's own protocol when another `health-check-*` is set, else `tcp`. With `externalTrafficPolicy: Local` targets are asked at `/healthz` on the Service's health check node port, unless this, `health-check-port` or `health-check-http-path` is set.",
    };
    HEALTH_CHECK_PORT = {
        name: "health-check-port",
        form: "port number",
        per_port: true,
        meaning: "Where targets are checked. Nothing set: the port that traffic goes to.",
    };
    HEALTH_CHECK_INTERVAL = {
        name: "health-check-interval",
        form: DURATION,
        variable: Some("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL"),
        per_port: true,
        meaning: "How often. Nothing set: `15s` (profile `hcloud`: as it is).",
    };
    HEALTH_CHECK_TIMEOUT = {
        name: "health-check-timeout",
        form: DURATION,
        variable: Some("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT"),
        per_port: true,
        meaning: "How long an answer may take. Nothing set: `10s` (profile `hcloud`: as it is).",
    };
    HEALTH_CHECK_RETRIES = {
        name: "health-check-retries",
        form: "whole number from 1",
        variable: Some("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES"),
        per_port: true,
        meaning: "How many answers in a row change a target's health. Nothing set: 3 (profile `hcloud`: as it is).",
    };
    HEALTH_CHECK_HTTP_DOMAIN = {
        name: "health-check-http-domain",
        per_port: true,
        meaning: "`Host` header of an HTTP check. Nothing set: none.",
    };
    HEALTH_CHECK_HTTP_PATH = {
        name: "health-check-http-path",
        form: "path",
        per_port: true,
        meaning: "What an HTTP check asks for. Nothing set: `/`.",
    };
    HTTP_STATUS_CODES = {
        name: "http-status-codes",
        form: "e.g. `2??,301`",
        per_port: true,
        meaning: "Answers that an HTTP check takes for healthy. Nothing set: `2??,3??`.",
    };
    HEALTH_CHECK_HTTP_VALIDATE_CERTIFICATE = {
        name: "health-check-http-validate-certificate",
        form: BOOLEAN,
        per_port: true,
        meaning: "Make an HTTP check over TLS; the API validates no certificate.",
    };
    ID = { name: "id", state: State::NeverRead };
    IPV4 = { name: "ipv4", state: State::NeverRead };
    IPV6 = { name: "ipv6", state: State::NeverRead };
}

impl Annotation {
    /// Is it turned on and off?
    pub(super) fn is_switch(&self) -> bool {
        self.form == BOOLEAN
    }

    /// As it stands on a Service.
    pub fn key(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

pub const BEGIN: &str = "<!-- annotations:begin -->";
pub const END: &str = "<!-- annotations:end -->";

/// The table of all annotations that have a meaning, for the README.
pub fn markdown() -> String {
    let mut text = format!(
        "All of them begin with `{PREFIX}`. Those with `[.PORT]` hold for every port; with a port's name or number \
         behind a dot, e.g. `protocol.https`, they hold for that port alone, and win.\n\n\
         | annotation | value | environment default | meaning |\n|---|---|---|---|\n"
    );
    let honoured = |row: &&&Annotation| row.state == State::Honoured;
    for row in TABLE.iter().filter(honoured) {
        let dot = if row.per_port { "[.PORT]" } else { "" };
        let variable = row.variable.map(|name| format!("`{name}`"));
        text.push_str(&format!(
            "| `{}{dot}` | {} | {} | {} |\n",
            row.name,
            row.form,
            variable.unwrap_or_default(),
            row.meaning
        ));
    }
    text
}
