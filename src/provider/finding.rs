//! Findings, which are facts and problems that are reported to users. Plans contain findings. `controllers::report`
//! turns each finding into a log line, an event or a metric.

use serde::Serialize;
use std::borrow::Cow;

/// A fact or a problem to report about one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub reason: Reason,
    /// The fact or the problem in words. Some messages also say what to do, and `fix` is then `None`.
    pub message: String,
    /// What to do about the problem, with commands that contain the names of this object. `None` when there is nothing
    /// to do, or when `message` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether the provider (the code for one cloud) reports the fact or problem. Otherwise a controller reports it.
    /// Kubernetes events name either the provider's component or the controller as their source.
    #[serde(skip)]
    pub is_of_provider: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
}

/// A property of the reason of a finding, e.g. whether such findings become events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReasonTrait {
    /// A finding (a message for the operator) with this reason becomes a Kubernetes event of type `Normal` at the
    /// object.
    NormalEvent,
    WarningEvent,
    /// The finding is only logged and never becomes an event.
    LogOnly,
    /// The finding is about a write that has a log line of its own. So the finding becomes an event, but gets no log
    /// line unless it is a warning.
    LoggedByItsWrite,
    /// The finding is reported only once, and is not repeated while the problem lasts.
    Once,
    /// The reason stands for a success: the object is as it should be, e.g. a load balancer is synced.
    Success,
    /// The finding says that the object is not as it should be, e.g. that the sync of a load balancer failed.
    Failure,
}
use ReasonTrait::{Failure, LogOnly, LoggedByItsWrite, NormalEvent, Once, Success, WarningEvent};

macro_rules! reasons {
    ($($about:literal { $($(#[doc = $meaning:literal])+ $name:ident: $($of:ident)+;)* })*) => {
        /// The reason of a finding (a message for the operator), e.g. `SyncLoadBalancerFailed`. Reasons that become
        /// events have the same names as in hcloud-cloud-controller-manager, so that existing alerts still work.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Reason {
            $($($(#[doc = $meaning])+ $name,)*)*
        }

        impl Reason {
            /// All reasons, in the order of the table of reasons.
            pub const ALL: &[Reason] = &[$($(Reason::$name,)*)*];

            /// The headings of the table of reasons that `ccm help troubleshooting` prints, each with the reasons under
            /// it.
            pub const BY_SUBJECT: &[(&str, &[Reason])] = &[$(($about, &[$(Reason::$name),*])),*];

            /// Returns the name of the reason of a finding (a message for the operator) and its properties.
            fn row(self) -> (&'static str, &'static [ReasonTrait]) {
                match self {
                    $($(Reason::$name => (stringify!($name), &[$($of),+]),)*)*
                }
            }

            /// Returns the meaning of the reason (a word in events and in the log for a kind of success or problem),
            /// and what a user can do about it, as whole sentences in Markdown. The program itself prints the help
            /// page, which has the same texts. So the compiler leaves these texts out of the program.
            pub fn meaning(self) -> &'static str {
                match self {
                    $($(Reason::$name => concat!($($meaning),+).trim_ascii_start(),)*)*
                }
            }
        }
    };
}

// The table of all reasons for log lines and events. The comment above a reason is a text for users: `ccm help
// troubleshooting` and `ccm explain` print it.
reasons! {
    "Nodes" {
        /// The node was initialised.
        Synced: NormalEvent LoggedByItsWrite Success;
        /// No server has the node's name or one of its addresses, or the server in its provider ID does not exist. Give
        /// the server the name of its node, or use the token of its project, or the Robot login of its account.
        ServerNotFound: WarningEvent Failure;
        /// The provider ID names a server that does not exist, and another server has the node's name. A provider ID
        /// can't be changed, so delete the node: `kubectl delete node NODE`. Its kubelet registers again (restart the
        /// kubelet if it does not).
        ServerReplaced: WarningEvent;
        /// It is not certain which server the node has, e.g. because several servers match, or an API does not answer.
        /// Give the name of the node only to its own server.
        InstanceLookupFailed: WarningEvent Failure;
        /// This is only information: no server has the node's name, but one server has its address, and ccm uses this
        /// server.
        MatchedByAddress: LogOnly;
        /// Several nodes name the same server, and this node does not get it, e.g. because another node is older and
        /// initialised, or has the server's name. Find out which node runs on the server, and delete the other Node
        /// object.
        ServerClaimedTwice: LogOnly;
        /// The provider ID of a new node names a server that has another name than the node. No other node names this
        /// server, so the node is initialised. If you did not expect this, run `ccm node inspect NAME`, and find out
        /// who registered the node.
        ServerNameDiffers: LogOnly;
        /// The zone label of an initialised node differs from the label that `HCLOUD_INSTANCES_ZONE_LABEL` gives to a
        /// new node. ccm does not change it by itself, but `ccm node relabel` does. A value that a person set stays.
        ZoneLabelDiffers: LogOnly Once;
        /// The provider ID belongs to another provider, or to the other profile (`--cloud-provider`), so ccm ignores
        /// the node. Check this flag if ccm should manage the node.
        UnknownProviderIDPrefix: WarningEvent Once;
        /// This is only information: with `HCLOUD_LOAD_BALANCERS_FOREIGN_NODES=match`, a node of another provider can
        /// be a target of load balancers, because one server has its name and an address that it reports. ccm writes
        /// nothing to the node.
        ForeignNodeMatched: LogOnly Once;
        /// With `HCLOUD_LOAD_BALANCERS_FOREIGN_NODES=match`, a node of another provider does not become a target of
        /// load balancers, because no server has its name, or because it reports no address of that server. A node that
        /// is a target already stays one while a server has its name. The message says what is missing.
        ForeignNodeNotMatched: WarningEvent Once;
        /// The provider ID begins like the IDs of ccm, but has no server ID. Or it names a dedicated server, but
        /// `ROBOT_ENABLED=true` or the Robot login is missing. ccm ignores the node.
        UnknownProviderID: LogOnly Once;
        /// The node has no provider ID and no taint, because its kubelet runs without `--cloud-provider=external`. Set
        /// the flag, drain the node, delete it, and let it join again.
        NotExternal: LogOnly Once;
        /// The kubelet's `--node-ip` is a private address, and `HCLOUD_NETWORK` is not set, or names another Network.
        /// Set it to the Network of this address. At a Service: the node of a dedicated server has no `InternalIP` in a
        /// vSwitch subnet of the Network.
        InternalIPNotConfigured: WarningEvent Failure;
        /// The kubelet's `--node-ip` is not an address of the server. Correct the flag or `HCLOUD_NETWORK`. For an
        /// address of a VPN, set `HCLOUD_INSTANCES_INTERNAL_IP_FROM=kubelet`.
        InvalidProvidedNodeIP: WarningEvent Failure;
        /// The annotation `instance.hetzner.cloud/external-ipv6` is not a global unicast IPv6 address. Correct or
        /// remove the annotation.
        InvalidExternalIPv6: WarningEvent Failure;
        /// The annotation `instance.hetzner.cloud/internal-ip` can't be used: it is not the IP address of a machine,
        /// another node has the address, the address is an `ExternalIP`, or it is outside of
        /// `HCLOUD_INSTANCES_INTERNAL_IP_RANGES`. The addresses of the node stay unchanged. The reason is also used
        /// when another node has the address of `--node-ip`. Correct or remove the annotation or the flag.
        InvalidInternalIP: WarningEvent Failure;
        /// A label of the server can't become a label or taint of its node, or there are too many such labels. The
        /// message says why. Correct the labels of the server: see `ccm help nodes`.
        InvalidServerLabel: WarningEvent Once;
        /// The server is being migrated or rebuilt, has its rescue system enabled, or is locked. Wait until this has
        /// ended. To end the rescue system, run `hcloud server disable-rescue ID`, then reboot the server.
        ServerImpaired: WarningEvent Once Failure;
        /// The kubelet of a dedicated server reported an `InternalIP` that is a public address, or that is of a family
        /// that `HCLOUD_INSTANCES_ADDRESS_FAMILY` leaves out. The node does not get this address. Correct `--node-ip`
        /// of the kubelet.
        MisconfiguredInternalIP: WarningEvent;
        /// The annotation `instance.hetzner.cloud/external-ipv6` has no effect, because
        /// `HCLOUD_INSTANCES_ADDRESS_FAMILY` allows no IPv6 address.
        IgnoredExternalIPv6: WarningEvent;
        /// The server has no public address of the family in `HCLOUD_INSTANCES_ADDRESS_FAMILY`, and no address in
        /// `HCLOUD_NETWORK`. Change the family, or attach the server to the Network.
        NoAddress: LogOnly Failure;
        /// The server of the node seems to be gone, but a proof is missing, so ccm does not delete the node. The
        /// message says which proof. If the machine is gone forever, run `kubectl delete node NODE`. If a dedicated
        /// server has another name in Robot, give it the name of its node there.
        PossibleNodeDeletion: WarningEvent Failure;
        /// The server does not exist any more, so ccm deletes the node.
        DeletingNode: NormalEvent;
        /// The cluster refused the deletion of the node. ccm tries it again.
        DeletingNodeFailed: WarningEvent Failure;
        /// The taint `shutdown` or `out-of-service` of the node could not be set or removed. ccm tries it again.
        TaintingNodeFailed: WarningEvent Failure;
        /// The server has been off for the time of `--node-out-of-service-after`, so the node got the taint
        /// `out-of-service`. Its pods and their volumes move to other nodes. Switch the server on, or delete it: see
        /// `ccm help nodes`.
        NodeOutOfService: WarningEvent;
        /// This is only information: the server has been off for the time of `--node-out-of-service-after`, but the
        /// node does not get the taint `out-of-service` yet. The message names the rule that is not fulfilled.
        OutOfServiceHeld: LogOnly;
    }
    "Certificates of kubelets" {
        /// ccm approved a request of the node's kubelet for a serving certificate, because the cloud proves all names
        /// and addresses in it.
        KubeletCertificateApproved: NormalEvent LoggedByItsWrite Success;
        /// The cloud does not prove a name or an address in the certificate request of a kubelet, so the request stays
        /// pending. The message names it. Correct the node's addresses, or approve the request yourself: `kubectl
        /// certificate approve NAME`. See `ccm help nodes`.
        KubeletCertificateNotProven: WarningEvent Failure;
        /// No certificate request of a kubelet can be approved, because a right is missing, or because more than 10,000
        /// requests exist. The message says why.
        KubeletCertificatesBlocked: LogOnly Failure;
    }
    "Load balancers" {
        /// The load balancer is being created or changed.
        EnsuringLoadBalancer: NormalEvent LoggedByItsWrite;
        /// The load balancer is synced.
        EnsuredLoadBalancer: NormalEvent LoggedByItsWrite Success;
        /// The targets of the load balancer are synced.
        UpdatedLoadBalancer: NormalEvent LoggedByItsWrite Success;
        /// The load balancer is being deleted.
        DeletingLoadBalancer: NormalEvent LoggedByItsWrite;
        /// The load balancer was deleted.
        DeletedLoadBalancer: NormalEvent LoggedByItsWrite Success;
        /// The load balancer could not be synced with its Service. The message has the reason, e.g. a wrong annotation,
        /// or the answer of the API.
        SyncLoadBalancerFailed: WarningEvent Failure;
        /// The targets of the load balancer could not be changed. The message has the answer of the API.
        UpdateLoadBalancerFailed: WarningEvent Failure;
        /// The load balancer could not be deleted. The Service keeps its finalizer until the load balancer is deleted.
        DeleteLoadBalancerFailed: WarningEvent Failure;
        /// The load balancer has delete protection, so it stays. To remove the protection, run `hcloud load-balancer
        /// disable-protection ID delete`.
        LoadBalancerProtected: WarningEvent;
        /// The change waits, because the Services of its namespace have used up their part of the project's API calls:
        /// 900 at once, and 900 an hour. ccm makes the change later. If a program changes these Services all the time,
        /// stop the program. `ccm lb sync NAMESPACE/NAME` does not wait.
        CallLimitReached: WarningEvent Failure;
        /// The Service adopted an existing load balancer.
        LoadBalancerAdopted: NormalEvent;
        /// The load balancer was not deleted. Either ccm removed only its own ports, targets and labels, and the
        /// message says why. Or the load balancer is unchanged, because ccm does not manage it any more. After `ccm lb
        /// release`, `ccm lb adopt ID NAMESPACE/NAME` takes it back. A Service that did not match
        /// `--load-balancer-class` or `--service-selector` gets it back when it matches again.
        LoadBalancerReleased: NormalEvent Success;
        /// A load balancer of this name exists, but does not belong to the Service. The event has the command that
        /// allows the Service to take it over (adopt it): see `ccm help services`.
        LoadBalancerNotAdopted: WarningEvent Failure;
        /// Another Service, or another owner, already has this port on the shared or external load balancer. The port
        /// is not added, but the other ports work. Choose another port.
        PortConflict: WarningEvent;
        /// The Service moves to another load balancer, because its annotation `share` or `external` was set, changed or
        /// removed, or because of `ccm lb replace`. Its addresses change. The old load balancer serves the Service until
        /// its status has the new addresses. Change DNS records then.
        LoadBalancerChanges: WarningEvent;
        /// The replacement of the load balancer (`ccm lb replace`) has not come further for ten minutes. The present load
        /// balancer serves as before. The message says what is missing. `ccm lb replace --abort NAMESPACE/NAME` ends the
        /// replacement.
        LoadBalancerReplacementWaits: WarningEvent;
        /// The nodes become targets of an external load balancer, so they get the traffic of all its ports, also of the
        /// ports of other owners. The annotation `external-targets` with `"false"` prevents this.
        TargetsShared: WarningEvent Once;
        /// Another load balancer has the name in the annotation `name`. Choose another name.
        LoadBalancerNameTaken: WarningEvent;
        /// No load balancer type is set, so the cheapest type that is offered is created. The annotation `type` sets
        /// another type.
        LoadBalancerTypeUnconfigured: NormalEvent;
        /// Hetzner will remove the type of the load balancer. Choose another type in the annotation `type`.
        LoadBalancerTypeDeprecated: WarningEvent;
        /// The Service has a UDP or SCTP port, but load balancers support only TCP. Use `hostPort` or a `NodePort`.
        UnsupportedProtocolConfigured: WarningEvent;
        /// The field `loadBalancerSourceRanges` of the Service has no effect. Restrict the traffic in the ingress
        /// controller or in the application, to which the annotation `uses-proxyprotocol` passes the clients' addresses.
        LoadBalancerSourceRangesIgnored: WarningEvent;
        /// A field of the Service has no effect. The message names the field and the alternative.
        FieldIgnored: LogOnly;
        /// The Service has an annotation that ccm does not know. The message names the most similar one.
        UnknownAnnotation: WarningEvent;
        /// The annotation has no effect here. The message says why.
        AnnotationWithoutEffect: WarningEvent;
        /// A node will stop soon, but stays a target although its `departing-delay` is over. The message says why. See
        /// `ccm help services`.
        DepartingNodeKept: LogOnly;
        /// ccm can't read EndpointSlices, so it can't prefer nodes with pods as targets (`prefer-nodes-with-pods`). The
        /// present targets stay. The message says what is missing.
        EndpointsUnreadable: WarningEvent;
        /// No node can be a target of the load balancer. Check the annotation `node-selector` and the nodes.
        UnAvailableLoadBalancer: WarningEvent;
        /// The type of the load balancer allows no more targets. The event says which nodes are left out. Choose a
        /// larger `type`, or use `node-selector`.
        MaxTargetsReached: WarningEvent;
        /// A node can't be a target, or ccm leaves a target unchanged that it does not manage. The message says why.
        TargetIgnored: LogOnly;
        /// A port waits until its managed certificate is issued. The other ports work.
        CertificatePending: WarningEvent;
        /// A certificate can't be issued or renewed, or the Service may not use it, or a Secret can't be used. The
        /// message has the reason. The port keeps the certificate that it has.
        CertificateFailed: WarningEvent;
        /// No target is healthy on every port of the Service. The event says whether no traffic reaches the Service at
        /// all, and how old this information is. `ccm doctor` names the cause. The event is written once for each
        /// outage: a daemon that starts during the outage does not change the event, and an outage that ends while no
        /// daemon runs gets no `HealthyTarget`.
        NoHealthyTarget: WarningEvent;
        /// A target of the Service is healthy again, after the event `NoHealthyTarget`.
        HealthyTarget: NormalEvent;
        /// Hetzner will delete the Primary IP together with the load balancer. To keep the Primary IP, run `hcloud
        /// primary-ip update --auto-delete=false ID`.
        AddressNotKept: WarningEvent;
        /// The load balancer has no Service any more, and `ccm lb sync --delete-orphans` deletes it. Or its Service
        /// exists, but has another type and no finalizer, e.g. after a backup was restored: then delete the load
        /// balancer yourself, or set the Service's type to LoadBalancer and back.
        OrphanedLoadBalancer: LogOnly Once;
        /// The object has more problems than are reported one by one. Fix those that are reported first.
        MoreFindings: WarningEvent;
    }
    "Routes" {
        /// The route to the pods of the node can't be created. The message says why. Attach the server to the Network,
        /// or fix what the message names.
        FailedToCreateRoute: WarningEvent Failure;
        /// A range of `--cluster-cidr` is outside the Network's range, or overlaps one of its subnets. Or the pods of a
        /// node are outside `--cluster-cidr`. Set a range within the Network's range and outside of its subnets, the
        /// same as for kube-controller-manager.
        ClusterCIDRMisconfigured: WarningEvent Failure;
        /// 90 or more of the 100 possible routes of the Network are in use. A node beyond the limit gets no route.
        /// Delete routes that are not needed, or use an overlay network.
        RouteLimitNear: LogOnly Once;
        /// A route leads to a server that belongs to no node. ccm does not delete such a route. If it is not needed,
        /// delete it by hand with `hcloud network remove-route`.
        StaleRoute: LogOnly;
        /// A Network takes no routes to dedicated servers (behind a vSwitch), so the network plugin must connect their
        /// pods. Routes of cloud servers are not affected.
        DedicatedNodeWithoutRoute: LogOnly Once;
        /// A Network supports only IPv4, so the IPv6 ranges of pods get no routes.
        IPv6RouteIgnored: LogOnly Once;
        /// The server of no node is in the Network. Check `HCLOUD_NETWORK` and `--context`.
        NoNodeInNetwork: LogOnly;
    }
}

impl Reason {
    /// Returns the name of the reason, which is the `reason` of its events.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the severity of the events about findings of this reason. `None` when such findings are only logged.
    pub fn event(self) -> Option<Severity> {
        match (self.is(NormalEvent), self.is(WarningEvent)) {
            (true, _) => Some(Severity::Info),
            (_, true) => Some(Severity::Warning),
            (false, false) => None,
        }
    }

    /// Whether findings with this reason are about a write that has a log line of its own. Such a finding is then not
    /// logged, unless it is a warning.
    pub fn is_logged_by_its_write(self) -> bool {
        self.is(LoggedByItsWrite)
    }

    /// Whether a finding with this reason is reported again while the problem lasts.
    pub fn is_repeated(self) -> bool {
        !self.is(Once)
    }

    /// Whether findings with this reason say that the object is as it should be.
    pub fn is_success(self) -> bool {
        self.is(Success)
    }

    /// Whether findings with this reason say that the object is not as it should be.
    pub fn is_failure(self) -> bool {
        self.is(Failure)
    }

    fn is(self, one: ReasonTrait) -> bool {
        self.row().1.contains(&one)
    }
}

impl Finding {
    pub fn warning(reason: Reason, message: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Warning,
            reason,
            message: message.into(),
            fix: None,
            is_of_provider: false,
        }
    }

    pub fn info(reason: Reason, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Info, ..Finding::warning(reason, message) }
    }

    /// Adds a text that says what to do about the problem.
    pub fn with_fix(self, fix: impl Into<String>) -> Finding {
        Finding { fix: Some(fix.into()), ..self }
    }

    /// Returns the message and, if there is one, the text about what to do.
    pub fn text(&self) -> Cow<'_, str> {
        let message = &self.message;
        let end = if message.ends_with('?') { "" } else { "." };
        match &self.fix {
            Some(fix) => Cow::Owned(format!("{message}{end} Fix: {fix}")),
            None => Cow::Borrowed(message),
        }
    }

    /// Records that the provider (the code for one cloud) found the problem, and not a controller.
    pub fn by_provider(self) -> Finding {
        Finding { is_of_provider: true, ..self }
    }
}
