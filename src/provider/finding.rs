//! Something to report to the user: plain data that `plan` returns. One place
//! (`controllers::report`) decides what becomes a log line, an event, a metric.

use serde::Serialize;
use std::borrow::Cow;

/// One thing to report about one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub reason: Reason,
    /// What is wrong; and what to do about it, where one sentence says both.
    pub message: String,
    /// What to do about it, made for this object, with its own names in commands. `None`: nothing is to be done, or the
    /// message says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    #[serde(skip)]
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
}

/// Who found it: events of the provider may carry its own component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Origin {
    #[default]
    Controller,
    Provider,
}

/// What is done with findings of a reason.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trait {
    /// It is an event of the object.
    NormalEvent,
    WarningEvent,
    /// It is for the log: there is no object to report it of, or it is about the shell that asks.
    LogOnly,
    /// The change that it is about is logged already.
    LoggedByItsWrite,
    /// It lasts until a person fixes it: one report is enough.
    Once,
    /// The object is as it should be.
    Success,
    /// The object is not as it should be.
    Failure,
}
use Trait::{Failure, LogOnly, LoggedByItsWrite, NormalEvent, Once, Success, WarningEvent};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident: $($of:ident)+;)*) => {
        /// Why. The names of those that become events are upstream's, so that existing alerts keep working.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// In the order of the table.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// As it stands in an event.
            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => stringify!($name),)*
                }
            }

            fn traits(self) -> &'static [Trait] {
                match self {
                    $(Reason::$name => &[$($of),+],)*
                }
            }
        }
    };
}

// The table of all reasons: log, events and memory take what they need to know from here.
reasons! {
    /// A node was initialised.
    Synced: NormalEvent LoggedByItsWrite Success;
    /// The provider ID belongs to another cloud.
    UnknownProviderIDPrefix: WarningEvent Once;
    /// No server matches the node.
    ServerNotFound: WarningEvent Failure;
    /// The provider ID names a server that does not exist, and another server has the node's name.
    ServerReplaced: WarningEvent;
    /// More than one way to match a node, or none that is safe.
    InstanceLookupFailed: WarningEvent Failure;
    /// `--node-ip` of the kubelet is private, but no private network is configured.
    InternalIPNotConfigured: WarningEvent Failure;
    /// `--node-ip` of the kubelet is not an address of the server, or no address at all.
    InvalidProvidedNodeIP: WarningEvent Failure;
    /// The annotation that names a server's IPv6 address does not parse.
    InvalidExternalIPv6: WarningEvent Failure;
    /// That annotation has no effect with this address family.
    IgnoredExternalIPv6: WarningEvent;
    /// The annotation that names a node's `InternalIP` does not parse, or the address is another one's.
    InvalidInternalIP: WarningEvent Failure;
    /// A label of the server can't become one of the node, or a taint.
    InvalidServerLabel: WarningEvent Once;
    /// The server is being migrated or rebuilt, in rescue, or locked. Reported again when it was not meanwhile.
    ServerImpaired: WarningEvent Once Failure;
    /// An `InternalIP` that the kubelet of a dedicated server reported can't stay one.
    MisconfiguredInternalIP: WarningEvent;
    /// Our prefix, but no server ID.
    UnknownProviderID: LogOnly Once;
    /// Matched by an address instead of the name.
    MatchedByAddress: LogOnly;
    /// The provider ID of a new node names a server with another name.
    ServerNameDiffers: LogOnly;
    /// The same server is claimed by another node's provider ID.
    ServerClaimedTwice: LogOnly;
    /// Neither provider ID nor the uninitialized taint: the kubelet runs without `--cloud-provider=external`.
    NotExternal: LogOnly Once;
    /// The server of a node does not exist any more: the node is deleted.
    DeletingNode: NormalEvent;
    /// Deleting the node was refused or failed.
    DeletingNodeFailed: WarningEvent Failure;
    /// The shutdown taint can't be added or removed.
    TaintingNodeFailed: WarningEvent Failure;
    /// The node would be deleted, if that were beyond doubt; also one that others would delete.
    PossibleNodeDeletion: WarningEvent Failure;
    /// The server has no address of the configured family and network.
    NoAddress: LogOnly Failure;
    /// A load balancer is being made or changed.
    EnsuringLoadBalancer: NormalEvent LoggedByItsWrite;
    /// It is as it should be.
    EnsuredLoadBalancer: NormalEvent LoggedByItsWrite Success;
    /// Its targets are those that they should be.
    UpdatedLoadBalancer: NormalEvent LoggedByItsWrite Success;
    /// Changing its targets failed.
    UpdateLoadBalancerFailed: WarningEvent Failure;
    /// No node can be its target.
    UnAvailableLoadBalancer: WarningEvent;
    /// It is being deleted.
    DeletingLoadBalancer: NormalEvent LoggedByItsWrite;
    /// It is gone.
    DeletedLoadBalancer: NormalEvent LoggedByItsWrite Success;
    /// A Service's load balancer can't be created or changed.
    SyncLoadBalancerFailed: WarningEvent Failure;
    /// A load balancer can't be removed.
    DeleteLoadBalancerFailed: WarningEvent Failure;
    /// A Service's change waits, because Services of its namespace have used up their share of the project's calls.
    CallLimitReached: WarningEvent Failure;
    /// An existing load balancer has become a Service's.
    LoadBalancerAdopted: NormalEvent;
    /// An existing load balancer does not become a Service's, although that asks for it.
    LoadBalancerNotAdopted: WarningEvent Failure;
    /// A load balancer stays when its Service is deleted, without what the Service had on it.
    LoadBalancerReleased: NormalEvent Success;
    /// The cloud protects the load balancer from being deleted: it stays.
    LoadBalancerProtected: WarningEvent;
    /// A port is another Service's, or somebody else's, on the same load balancer.
    PortConflict: WarningEvent;
    /// The Service moves to another load balancer, which has other addresses.
    LoadBalancerChanges: WarningEvent;
    /// The nodes become targets of ports that are not ours, too.
    TargetsShared: WarningEvent Once;
    /// Another load balancer has the name.
    LoadBalancerNameTaken: WarningEvent;
    /// No type of load balancer is set.
    LoadBalancerTypeUnconfigured: NormalEvent;
    /// The cloud is going to take the type of load balancer away.
    LoadBalancerTypeDeprecated: WarningEvent;
    /// A port's protocol is none that the cloud's load balancers speak.
    UnsupportedProtocolConfigured: WarningEvent;
    /// `loadBalancerSourceRanges` restrict nothing in this cloud.
    LoadBalancerSourceRangesIgnored: WarningEvent;
    /// The type of the load balancer takes no more targets.
    MaxTargetsReached: WarningEvent;
    /// A node can't be a target, or a target is not ours to touch.
    TargetIgnored: LogOnly;
    /// An annotation with the provider's prefix that it does not know.
    UnknownAnnotation: WarningEvent;
    /// An annotation that has no effect here.
    AnnotationWithoutEffect: WarningEvent;
    /// A field of the Service that the cloud's load balancers can't honour.
    FieldIgnored: LogOnly;
    /// A port waits for a certificate that is being issued.
    CertificatePending: WarningEvent;
    /// A certificate can't be issued or renewed, or the Service may not use it.
    CertificateFailed: WarningEvent;
    /// No target of a Service is healthy on every port of the Service.
    NoHealthyTarget: WarningEvent;
    /// A target of such a Service is healthy again.
    HealthyTarget: NormalEvent;
    /// An address that was chosen to be kept is deleted with the load balancer.
    AddressNotKept: WarningEvent;
    /// A load balancer of this cluster whose Service does not exist.
    OrphanedLoadBalancer: LogOnly Once;
    /// Only the default of a setting asks for it, and the daemon may have another value.
    /// The route to a node's pods can't be made.
    FailedToCreateRoute: WarningEvent Failure;
    /// A node's pods are in none of the cluster's CIDRs.
    ClusterCIDRMisconfigured: WarningEvent Failure;
    /// A private network takes hardly any more routes.
    RouteLimitNear: LogOnly Once;
    /// A route leads to a server that no node runs on, and may be wanted by other programs.
    StaleRoute: LogOnly;
    /// The private network takes no routes to dedicated servers.
    DedicatedNodeWithoutRoute: LogOnly Once;
    /// The private network knows no IPv6.
    IPv6RouteIgnored: LogOnly Once;
    /// The private network holds no server of any node.
    NoNodeInNetwork: LogOnly;
    /// An object has more findings than are reported of it.
    MoreFindings: WarningEvent;
}

impl Reason {
    /// The severity of its events; none: it is for the log alone.
    pub fn event(self) -> Option<Severity> {
        match (self.is(NormalEvent), self.is(WarningEvent)) {
            (true, _) => Some(Severity::Info),
            (_, true) => Some(Severity::Warning),
            (false, false) => None,
        }
    }

    /// The change that it is about is logged already.
    pub fn is_logged_by_its_write(self) -> bool {
        self.is(LoggedByItsWrite)
    }

    /// It is reported again while it lasts.
    pub fn is_repeated(self) -> bool {
        !self.is(Once)
    }

    /// Of an object that is as it should be.
    pub fn is_success(self) -> bool {
        self.is(Success)
    }

    /// Of an object that is not as it should be.
    pub fn is_failure(self) -> bool {
        self.is(Failure)
    }

    fn is(self, one: Trait) -> bool {
        self.traits().contains(&one)
    }
}

impl Finding {
    pub fn warning(reason: Reason, message: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Warning,
            reason,
            message: message.into(),
            fix: None,
            origin: Origin::Controller,
        }
    }

    pub fn info(reason: Reason, message: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Info,
            ..Finding::warning(reason, message)
        }
    }

    /// The same finding with what to do about it.
    pub fn with_fix(self, fix: impl Into<String>) -> Finding {
        Finding {
            fix: Some(fix.into()),
            ..self
        }
    }

    /// Message and fix in one text: for events, logs, and lists of one line each.
    pub fn text(&self) -> Cow<'_, str> {
        let message = &self.message;
        let end = if message.ends_with('?') { "" } else { "." };
        match &self.fix {
            Some(fix) => Cow::Owned(format!("{message}{end} Fix: {fix}")),
            None => Cow::Borrowed(message),
        }
    }

    /// The same, found by the provider.
    pub fn by_provider(self) -> Finding {
        Finding {
            origin: Origin::Provider,
            ..self
        }
    }
}
