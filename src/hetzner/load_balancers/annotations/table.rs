//! The table of annotations. The parser, `ccm explain` and `ccm help annotations` use it.

use crate::provider::AnnotationKind;
use crate::provider::variables::*;

/// The prefix in the keys of all annotations of Services that this program reads.
pub const PREFIX: &str = "load-balancer.hetzner.cloud/";

/// Returns whether this program reads the annotation with this key, ignores it because it belongs to another program,
/// or does not know it although the key has the prefix of this program. The key can end in a dot and a port, as in
/// `NAME.443`. Upper and lower case make no difference.
pub fn kind_of(key: &str) -> AnnotationKind {
    let Some(name) = key.strip_prefix(PREFIX) else {
        return AnnotationKind::Foreign;
    };
    let name = name.split('.').next().unwrap_or_default();
    match TABLE.iter().find(|row| row.name.eq_ignore_ascii_case(name)) {
        Some(row) if row.is_read => AnnotationKind::Known,
        Some(_) => AnnotationKind::Foreign,
        None => AnnotationKind::Unknown,
    }
}

/// Whether a Namespace can have an annotation with this key as a default for its Services. This is so for each
/// annotation that has an environment variable for its default, when the key does not end in a dot and a port.
pub fn is_default(key: &str) -> bool {
    TABLE.iter().any(|row| row.variable.is_some() && row.has_key(key))
}

/// An annotation that a Service can have.
#[derive(Debug)]
pub struct Annotation {
    /// The part of the annotation's key after the prefix.
    pub name: &'static str,
    /// A description of the allowed values, for `ccm help annotations`. The first text in backquotes is an example.
    pub form: &'static str,
    /// The environment variable that sets a default for all Services without this annotation. `None` when no variable
    /// does this.
    pub variable: Option<VariableName>,
    pub scope: AnnotationScope,
    /// The highest length of a value, in bytes. A longer value is refused, because each message and API request that
    /// repeats the value would become too long.
    pub longest: usize,
    /// Whether this program reads the annotation. Each annotation that is read has an explanation in [`MEANINGS`].
    pub is_read: bool,
}

/// The object to which an annotation applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationScope {
    /// The annotation applies to one Service, even when several Services share the load balancer.
    Service,
    /// The annotation applies to the load balancer and all its ports. When several Services share the load balancer,
    /// the oldest Service that has the annotation decides.
    Whole,
    /// The annotation applies to one port when its key ends in a dot and the name or number of this port, as in
    /// `NAME.443`. Otherwise it applies to all ports.
    Port,
}
use AnnotationScope::{Port, Service, Whole};

const BOOLEAN: &str = "`true` or `false`";
const DURATION: &str = "duration, e.g. `15s`";
const PROTOCOLS: &str = "`tcp`, `http` or `https`";

/// The highest length in bytes of a value that is a list or a selector. The length is enough for 200 names of nodes, or
/// for 50 long names of certificates.
const LONG: usize = 16 << 10;

const fn of(scope: AnnotationScope, name: &'static str, form: &'static str) -> Annotation {
    Annotation { name, form, variable: None, scope, longest: 1024, is_read: false }
}

/// Defines one static [`Annotation`] for each row. The doc comment above a row becomes the explanation of the
/// annotation in `ccm help annotations`.
macro_rules! table {
    ($($(#[doc = $meaning:literal])* $id:ident = $row:expr;)*) => {
        $(
            $(#[doc = $meaning])*
            pub static $id: Annotation =
                Annotation { is_read: !concat!($($meaning),*).is_empty(), ..$row };
        )*
        /// All annotations, in the order in which `ccm help annotations` lists them.
        pub static TABLE: &[&Annotation] = &[$(&$id),*];
        /// The explanation of each annotation in [`TABLE`], in the same order, as whole sentences in Markdown. The
        /// program itself prints the help page, which has the same texts. So the compiler leaves these texts out of the
        /// program.
        pub const MEANINGS: &[&str] = &[$(concat!($($meaning),*).trim_ascii_start()),*];
    };
}

table! {
    /// Name of the load balancer. A later change renames it. An existing load balancer of this name is taken over
    /// (adopted) while it has no ports, all its targets are nodes of this cluster, and no label says that another
    /// program owns it (`ccm help services`).
    NAME = of(Whole, "name", "text, e.g. `front`");

    /// Type of the load balancer, which limits its targets, ports and certificates. With `auto`, ccm chooses the
    /// cheapest type that fits, and a larger one before a limit is hit (see `ccm help services`). By default, a new
    /// load balancer gets the cheapest type, and an existing one keeps its type.
    TYPE = of(Whole, "type", "e.g. `lb11`, or `auto`").variable(HCLOUD_LOAD_BALANCERS_TYPE);

    /// Largest type that the load balancer can get, by `auto` or by name. The smallest one of this type, of the
    /// default of the Namespace and of the environment default is the limit. An existing load balancer that is larger
    /// is not changed.
    TYPE_MAX = of(Whole, "type-max", "e.g. `lb21`").variable(HCLOUD_LOAD_BALANCERS_TYPE_MAX);

    /// Location in which the load balancer is created. It can't be moved later. The location takes precedence over
    /// `network-zone`. With `auto`, it is the location of most servers that become targets. An empty value turns the
    /// default off. By default, the load balancer is created in the location where most nodes are; with
    /// `--cloud-provider=hcloud`, a missing location is an error.
    LOCATION = of(Whole, "location", "e.g. `fsn1`, or `auto`").variable(HCLOUD_LOAD_BALANCERS_LOCATION);

    /// Network zone in which the load balancer is created. Set it instead of `location` when the location within the
    /// zone does not matter.
    NETWORK_ZONE = of(Whole, "network-zone", "e.g. `eu-central`").variable(HCLOUD_LOAD_BALANCERS_NETWORK_ZONE);

    /// How the load balancer chooses the target of the next connection. The default is `round_robin` (with
    /// `--cloud-provider=hcloud`, it is left unchanged).
    ALGORITHM_TYPE = of(Whole, "algorithm-type", "`round_robin` or `least_connections`")
        .variable(HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE);

    /// Whether the public interface of the load balancer is turned off. This needs `use-private-ip`. By default, the
    /// interface is left unchanged.
    DISABLE_PUBLIC_NETWORK = of(Whole, "disable-public-network", BOOLEAN)
        .variable(HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK);

    /// Whether the private IPs of the load balancer are left out of the status of the Service.
    DISABLE_PRIVATE_INGRESS = of(Service, "disable-private-ingress", BOOLEAN)
        .variable(HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS);

    /// Whether the load balancer reaches the nodes by their private IPs. This needs `HCLOUD_NETWORK`.
    USE_PRIVATE_IP = of(Whole, "use-private-ip", BOOLEAN).variable(HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP);

    /// IP of the load balancer in the private Network. When the value changes, the load balancer is detached and
    /// attached again. `HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES` limits which addresses Services may ask for. An
    /// address outside these ranges has no effect: the load balancer keeps its address, or gets one that Hetzner
    /// chooses.
    PRIVATE_IPV4 = of(Whole, "private-ipv4", "IPv4 address, e.g. `10.0.0.5`");

    /// Subnet of the private Network to which the load balancer is attached. A load balancer that is already attached
    /// is not moved to this subnet.
    PRIVATE_SUBNET_IP_RANGE = of(Whole, "private-subnet-ip-range", "e.g. `10.0.1.0/24`")
        .variable(HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE);

    /// Whether the IPv6 address of the load balancer is left out of the status of the Service.
    IPV6_DISABLED = of(Service, "ipv6-disabled", BOOLEAN).variable(HCLOUD_LOAD_BALANCERS_DISABLE_IPV6);

    /// Host name that the status of the Service has instead of IPs. Pods of the cluster then reach the Service through
    /// the load balancer.
    HOSTNAME = of(Service, "hostname", "text, e.g. `web.example.com`");

    /// Reverse DNS of the load balancer's IPv4 address. By default, it is left unchanged.
    IPV4_RDNS = of(Whole, "ipv4-rdns", "host name, e.g. `web.example.com`");

    /// Reverse DNS of the load balancer's IPv6 address. By default, it is left unchanged.
    IPV6_RDNS = of(Whole, "ipv6-rdns", "host name, e.g. `web.example.com`");

    /// Label selector for the nodes that become targets, as in `kubectl get nodes -l`.
    NODE_SELECTOR = of(Whole, "node-selector", "label selector, e.g. `pool=web`").long();

    /// How long a node that will stop soon stays a target. It is removed then, so that it gets no new connections
    /// before it stops. This applies to nodes that are drained, shut down or deleted by the cluster autoscaler (`ccm
    /// help services`). By default, such a node stays a target.
    DEPARTING_DELAY = of(Whole, "departing-delay", "duration from `0s` to `600s`")
        .variable(HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY);

    /// Whether nodes that run pods of the Service become targets before other nodes, when the type of the load balancer
    /// takes fewer targets than there are nodes. It has an effect only with `externalTrafficPolicy: Local` (`ccm help
    /// services`).
    PREFER_NODES_WITH_PODS = of(Service, "prefer-nodes-with-pods", BOOLEAN)
        .variable(HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS);

    /// Whether Hetzner refuses to delete the load balancer. A protected load balancer stays when its Service is
    /// deleted, and costs money. By default, the protection is left unchanged.
    DELETION_PROTECTION = of(Whole, "deletion-protection", BOOLEAN);

    /// Labels of the load balancer, 32 at most. They are added to the labels of the environment default; when both have
    /// the same key, the annotation's value wins. Keys that begin with `ccm-from-scratch/` or `hetzner.cloud/` are
    /// refused. Keys by which other programs recognize their load balancers have no effect: `caph-cluster-*`,
    /// `kubernetes.io/*`, `*.kubernetes.io/*`, `hcloud/*` and `hcloud-ccm/*`. A label stays on the load balancer when
    /// its key is removed here.
    LABELS = of(Whole, "labels", "labels, with commas, e.g. `team=web,cost=42`").long()
        .variable(HCLOUD_LOAD_BALANCERS_LABELS);

    /// Primary IP with which the load balancer is created. You keep the address when the load balancer is deleted. The
    /// Primary IP must be free, must not have auto-delete, and must match `HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR`.
    /// It decides the location when no location is set. An existing load balancer keeps its address. With
    /// `--cloud-provider=hcloud`, the value must be an ID.
    PUBLIC_NET_IPV4 = of(Whole, "public-net-ipv4", "ID, name or address, e.g. `203.0.113.4`");

    /// Primary IP of type IPv6 with which the load balancer is created. You keep the address when the load balancer is
    /// deleted. The Primary IP must be free, must not have auto-delete, and must match
    /// `HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR`. It decides the location when no location is set. An existing load
    /// balancer keeps its address. With `--cloud-provider=hcloud`, the value must be an ID.
    PUBLIC_NET_IPV6 = of(Whole, "public-net-ipv6", "ID, name or address, e.g. `2001:db8::1`");

    /// Name under which several Services of this namespace use one load balancer together. With `NAMESPACE/NAME`, the
    /// Service joins the Services of another namespace, if a Service there allows it (`ccm help services`).
    SHARE = of(Service, "share", "name, e.g. `edge`, or `NAMESPACE/NAME`");

    /// Namespaces whose Services may share the load balancer of this Service. The value `*` allows all namespaces.
    SHARE_NAMESPACES = of(Service, "share-namespaces", "namespaces, with commas, e.g. `web,shop`, or `*`").long();

    /// Existing load balancer that gets the ports and targets of the Service, and is not changed otherwise. Its owner
    /// must allow this by the label `ccm-from-scratch/external=NAMESPACE` (`ccm help services`).
    EXTERNAL = of(Service, "external", "ID or name, e.g. `edge-lb`");

    /// Whether the nodes become targets of the external load balancer for this Service. The default is `true`.
    EXTERNAL_TARGETS = of(Service, "external-targets", BOOLEAN);

    /// Whether the load balancer stays, without ports and targets, when the Service is deleted or its type changes. A
    /// Service of the same namespace can take it over again with the annotation `name` (`ccm help services`).
    KEEP = of(Whole, "keep", BOOLEAN);

    /// Protocol of the ports. The default is `tcp`.
    PROTOCOL = of(Port, "protocol", PROTOCOLS);

    /// Whether the load balancer sends the PROXY protocol to the targets. The status of the Service then has `ipMode:
    /// Proxy`.
    USES_PROXYPROTOCOL = of(Port, "uses-proxyprotocol", BOOLEAN).variable(HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL);

    /// Name of the cookie of sticky sessions. The default is `HCLBSTICKY`.
    HTTP_COOKIE_NAME = of(Port, "http-cookie-name", "text, e.g. `SESSION`");

    /// Lifetime of the cookie of sticky sessions. The default is `300s`.
    HTTP_COOKIE_LIFETIME = of(Port, "http-cookie-lifetime", DURATION);

    /// Idle time after which a connection is closed. By default, it is left unchanged.
    HTTP_TIMEOUT_IDLE = of(Port, "http-timeout-idle", "duration from `30s` to `300s`");

    /// Whether a client always gets the same target (sticky sessions).
    HTTP_STICKY_SESSIONS = of(Port, "http-sticky-sessions", BOOLEAN);

    /// Whether port 80 redirects to this `https` port. The Service must not have its own port 80.
    HTTP_REDIRECT_HTTP = of(Port, "http-redirect-http", BOOLEAN);

    /// Which certificates an `https` port uses. With `uploaded`, it uses those of `http-certificates`. With `managed`,
    /// it uses the Service's own certificate, which is ordered if it does not exist.
    CERTIFICATE_TYPE = of(Port, "certificate-type", "`uploaded` or `managed`");

    /// Certificates of the project for `https` ports. A certificate from a Secret of another namespace is refused.
    /// Other certificates must be made by a Service of the namespace, or must match
    /// `HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR` if it is set.
    HTTP_CERTIFICATES = of(Port, "http-certificates", "IDs or names, with commas, e.g. `web,shop`").long();

    /// Secrets of type `kubernetes.io/tls` in the namespace of the Service, for `https` ports. ccm uploads their
    /// certificates, renews them when the Secret changes, and deletes them when nothing uses them. It needs the right
    /// to read the Secret (`ccm help services`). On one port, this can't be combined with `http-certificates` or
    /// `managed`.
    HTTP_TLS_SECRET = of(Port, "http-tls-secret", "names, with commas, e.g. `web-tls`").long();

    /// Name of the managed certificate. The default is `ccm-managed-certificate-` and the UID of the Service. An
    /// existing certificate of this name is reused when its domains are the same and no existing Service owns it. ccm
    /// never deletes a managed certificate.
    HTTP_MANAGED_CERTIFICATE_NAME = of(Port, "http-managed-certificate-name", "text, e.g. `web`");

    /// Domains of the managed certificate. They must be in DNS zones of this project, and
    /// `HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS` must allow them. An existing certificate keeps its domains, so
    /// choose another name (`http-managed-certificate-name`) for other domains.
    HTTP_MANAGED_CERTIFICATE_DOMAINS = of(Port, "http-managed-certificate-domains", "names, with commas, e.g. `example.com,www.example.com`").long();

    /// Whether the managed certificate is ordered from the test service of Let's Encrypt, which no browser trusts.
    HTTP_MANAGED_CERTIFICATE_ACME_STAGING = of(Port, "http-managed-certificate-acme-staging", BOOLEAN);

    /// With `kube-proxy`, the load balancer checks the node and not the node port: `GET /healthz` on port 10256 must
    /// answer with status 200. kube-proxy answers 503 there when its node is about to be deleted (`ccm help services`).
    /// This works only with `externalTrafficPolicy: Cluster`. An annotation that describes another check wins:
    /// `health-check-protocol`, `health-check-port`, `health-check-http-*`, `http-status-codes`. By default, the check
    /// is as `health-check-protocol` says.
    HEALTH_CHECK = of(Port, "health-check", "`kube-proxy`").variable(HCLOUD_LOAD_BALANCERS_HEALTH_CHECK);

    /// Protocol of the health check; `https` means `http` over TLS. By default, it is the protocol of the port when
    /// another `health-check-*` is set, and otherwise `tcp`. With `externalTrafficPolicy: Local`, the check is `GET
    /// /healthz` on the health check node port of the Service, unless this annotation, `health-check-port` or
    /// `health-check-http-path` is set.
    HEALTH_CHECK_PROTOCOL = of(Port, "health-check-protocol", PROTOCOLS);

    /// Port of the health check. The default is the port that gets the traffic.
    HEALTH_CHECK_PORT = of(Port, "health-check-port", "port number, e.g. `8080`");

    /// Interval of the health check. The default is `15s` (with `--cloud-provider=hcloud`, it is left unchanged).
    HEALTH_CHECK_INTERVAL = of(Port, "health-check-interval", DURATION)
        .variable(HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL);

    /// Timeout of the health check. The default is `10s` (with `--cloud-provider=hcloud`, it is left unchanged).
    HEALTH_CHECK_TIMEOUT = of(Port, "health-check-timeout", DURATION)
        .variable(HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT);

    /// How many checks in a row change the health of a target. The default is 3 (with `--cloud-provider=hcloud`, it is
    /// left unchanged).
    HEALTH_CHECK_RETRIES = of(Port, "health-check-retries", "whole number from 1, e.g. `3`")
        .variable(HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES);

    /// `Host` header of an HTTP health check. By default, it is empty.
    HEALTH_CHECK_HTTP_DOMAIN = of(Port, "health-check-http-domain", "text, e.g. `web.example.com`");

    /// Path of an HTTP health check. The default is `/`.
    HEALTH_CHECK_HTTP_PATH = of(Port, "health-check-http-path", "path, e.g. `/healthz`");

    /// HTTP status codes that count as healthy. The default is `2??,3??`.
    HTTP_STATUS_CODES = of(Port, "http-status-codes", "e.g. `2??,301`").long();

    /// Whether the HTTP health check uses TLS. In spite of the name, the API does not validate the certificate.
    HEALTH_CHECK_HTTP_VALIDATE_CERTIFICATE = of(Port, "health-check-http-validate-certificate", BOOLEAN);
    // According to its documentation, hcloud-cloud-controller-manager writes the annotations `id`, `ipv4` and `ipv6`.
    // This program does not read them, and does not report them as unknown.
    ID = of(Service, "id", "");
    IPV4 = of(Service, "ipv4", "");
    IPV6 = of(Service, "ipv6", "");
}

impl Annotation {
    const fn variable(mut self, name: VariableName) -> Annotation {
        self.variable = Some(name);
        self
    }

    const fn long(mut self) -> Annotation {
        self.longest = LONG;
        self
    }

    /// Whether the annotation says in which location or network zone a new load balancer is created. An empty value of
    /// such an annotation, on a Service or its Namespace, turns off the default from the settings.
    pub(crate) fn is_place(&self) -> bool {
        [LOCATION.name, NETWORK_ZONE.name].contains(&self.name)
    }

    /// Whether the annotation decides which nodes become targets, how they are reached, or how long they stay
    /// targets. Such an annotation has an effect even on an external load balancer (one that somebody else made), and
    /// each Service there uses its own value. Other annotations about the whole load balancer have no effect on an
    /// external one.
    pub(crate) fn is_of_targets(&self) -> bool {
        [NODE_SELECTOR.name, USE_PRIVATE_IP.name, DEPARTING_DELAY.name].contains(&self.name)
    }

    /// Whether this is the key of the annotation, without a port after a dot.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        let name = key.strip_prefix(PREFIX);
        name.is_some_and(|name| name.eq_ignore_ascii_case(self.name))
    }

    /// Whether this is the key of the annotation, with or without a port after a dot.
    pub(crate) fn has_key_with_port(&self, key: &str) -> bool {
        let name = key.strip_prefix(PREFIX).and_then(|key| key.split('.').next());
        name.is_some_and(|name| name.eq_ignore_ascii_case(self.name))
    }

    /// Returns an example of a value. The example is the first text in backquotes in `form`.
    pub fn example(&self) -> Option<&'static str> {
        self.form.split('`').nth(1)
    }

    /// Returns the key of the annotation: the prefix and the name.
    pub fn key(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

/// Returns the table of all annotations that this program reads, as Markdown for `src/help/annotations.md`.
pub fn markdown() -> String {
    let mut text = format!(
        "Each annotation begins with `{PREFIX}`. An annotation with `[.PORT]` applies to all ports. With the name or the \
         number of a port after a dot, e.g. `protocol.https`, it applies only to that port, and takes precedence.\n\n\
         | annotation | value | environment default | meaning |\n|---|---|---|---|\n"
    );
    let rows = TABLE.iter().zip(MEANINGS).filter(|(row, _)| row.is_read);
    for (row, meaning) in rows {
        let dot = if row.scope == Port { "[.PORT]" } else { "" };
        let variable = row.variable.map(|name| format!("`{name}`"));
        text.push_str(&format!(
            "| `{}{dot}` | {} | {} | {} |\n",
            row.name,
            row.form,
            variable.unwrap_or_default(),
            meaning
        ));
    }
    text
}
