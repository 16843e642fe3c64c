//! Something worth telling the user: plain data that `plan` returns. One place
//! (`controllers::report`) decides what becomes a log line, an event, a metric.

use serde::Serialize;

/// One thing worth telling about one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub reason: Reason,
    pub message: String,
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

/// Why. The names of those that become events are upstream's, so that existing alerts keep working.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Reason {
    /// A node was initialised.
    Synced,
    /// The provider ID belongs to another cloud.
    UnknownProviderIDPrefix,
    /// No server matches the node.
    ServerNotFound,
    /// The provider ID names a server that does not exist, and another server has the node's name.
    ServerReplaced,
    /// More than one way to match a node, or none that is safe.
    InstanceLookupFailed,
    /// `--node-ip` of the kubelet is private, but no private network is configured.
    InternalIPNotConfigured,
    /// `--node-ip` of the kubelet is not an address of the server, or no address at all.
    InvalidProvidedNodeIP,
    /// The annotation that names a server's IPv6 address does not parse.
    InvalidExternalIPv6,
    /// That annotation has no effect with this address family.
    IgnoredExternalIPv6,
    /// Our prefix, but no server ID.
    UnknownProviderID,
    /// Matched by an address instead of the name.
    MatchedByAddress,
    /// The same server is claimed by another node's provider ID.
    ServerClaimedTwice,
    /// Neither provider ID nor the uninitialized taint: the kubelet runs without `--cloud-provider=external`.
    NotExternal,
    /// The server of a node does not exist any more: the node goes.
    DeletingNode,
    /// Deleting the node was refused or failed.
    DeletingNodeFailed,
    /// The shutdown taint can't be added or removed.
    TaintingNodeFailed,
    /// The node would be deleted, if that were beyond doubt; also one that others would delete.
    PossibleNodeDeletion,
    /// The server has no address of the configured family and network.
    NoAddress,
    /// A load balancer is being made or changed.
    EnsuringLoadBalancer,
    /// It is as it should be.
    EnsuredLoadBalancer,
    /// Its targets are those that they should be.
    UpdatedLoadBalancer,
    /// Changing its targets failed.
    UpdateLoadBalancerFailed,
    /// No node can be its target.
    UnAvailableLoadBalancer,
    /// It is being deleted.
    DeletingLoadBalancer,
    /// It is gone.
    DeletedLoadBalancer,
    /// A Service's load balancer can't be brought in order: somebody has to mend something.
    SyncLoadBalancerFailed,
    /// A load balancer can't be removed.
    DeleteLoadBalancerFailed,
    /// An existing load balancer has become a Service's.
    LoadBalancerAdopted,
    /// An existing load balancer does not become a Service's, although that asks for it.
    LoadBalancerNotAdopted,
    /// A load balancer stays when its Service is deleted, without what the Service had on it.
    LoadBalancerReleased,
    /// The cloud protects the load balancer from being deleted: it stays.
    LoadBalancerProtected,
    /// Another load balancer has the name.
    LoadBalancerNameTaken,
    /// Nobody said which type of load balancer to make.
    LoadBalancerTypeUnconfigured,
    /// The cloud is going to take the type of load balancer away.
    LoadBalancerTypeDeprecated,
    /// A port's protocol is none that the cloud's load balancers speak.
    UnsupportedProtocolConfigured,
    /// `loadBalancerSourceRanges` restrict nothing in this cloud.
    LoadBalancerSourceRangesIgnored,
    /// The type of the load balancer takes no more targets.
    MaxTargetsReached,
    /// A node can't be a target, or a target is not ours to touch.
    TargetIgnored,
    /// An annotation with the provider's prefix that it does not know.
    UnknownAnnotation,
    /// An annotation that has no effect here.
    AnnotationWithoutEffect,
    /// A field of the Service that the cloud's load balancers can't honour.
    FieldIgnored,
    /// A port waits for a certificate that is being issued.
    CertificatePending,
    /// A certificate can't be issued or renewed.
    CertificateFailed,
    /// An address that was chosen to be kept goes with the load balancer.
    AddressNotKept,
    /// A load balancer of this cluster whose Service does not exist.
    OrphanedLoadBalancer,
    /// Only the default of a setting asks for it, and the daemon may have been told otherwise.
    HeldBack,
    /// The route to a node's pods can't be made.
    FailedToCreateRoute,
    /// A node's pods are in none of the cluster's CIDRs.
    ClusterCIDRMisconfigured,
    /// A private network takes hardly any more routes.
    RouteLimitNear,
    /// A route leads to a server that no node runs on, and may be somebody's.
    StaleRoute,
    /// The private network knows no IPv6.
    IPv6RouteIgnored,
    /// The private network holds no server of any node.
    NoNodeInNetwork,
}

impl Reason {
    /// As it stands in an event.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Synced => "Synced",
            Reason::UnknownProviderIDPrefix => "UnknownProviderIDPrefix",
            Reason::ServerNotFound => "ServerNotFound",
            Reason::ServerReplaced => "ServerReplaced",
            Reason::InstanceLookupFailed => "InstanceLookupFailed",
            Reason::InternalIPNotConfigured => "InternalIPNotConfigured",
            Reason::InvalidProvidedNodeIP => "InvalidProvidedNodeIP",
            Reason::InvalidExternalIPv6 => "InvalidExternalIPv6",
            Reason::IgnoredExternalIPv6 => "IgnoredExternalIPv6",
            Reason::UnknownProviderID => "UnknownProviderID",
            Reason::MatchedByAddress => "MatchedByAddress",
            Reason::ServerClaimedTwice => "ServerClaimedTwice",
            Reason::NotExternal => "NotExternal",
            Reason::DeletingNode => "DeletingNode",
            Reason::DeletingNodeFailed => "DeletingNodeFailed",
            Reason::TaintingNodeFailed => "TaintingNodeFailed",
            Reason::PossibleNodeDeletion => "PossibleNodeDeletion",
            Reason::NoAddress => "NoAddress",
            Reason::EnsuringLoadBalancer => "EnsuringLoadBalancer",
            Reason::EnsuredLoadBalancer => "EnsuredLoadBalancer",
            Reason::UpdatedLoadBalancer => "UpdatedLoadBalancer",
            Reason::UpdateLoadBalancerFailed => "UpdateLoadBalancerFailed",
            Reason::UnAvailableLoadBalancer => "UnAvailableLoadBalancer",
            Reason::DeletingLoadBalancer => "DeletingLoadBalancer",
            Reason::DeletedLoadBalancer => "DeletedLoadBalancer",
            Reason::SyncLoadBalancerFailed => "SyncLoadBalancerFailed",
            Reason::DeleteLoadBalancerFailed => "DeleteLoadBalancerFailed",
            Reason::LoadBalancerAdopted => "LoadBalancerAdopted",
            Reason::LoadBalancerNotAdopted => "LoadBalancerNotAdopted",
            Reason::LoadBalancerReleased => "LoadBalancerReleased",
            Reason::LoadBalancerProtected => "LoadBalancerProtected",
            Reason::LoadBalancerNameTaken => "LoadBalancerNameTaken",
            Reason::LoadBalancerTypeUnconfigured => "LoadBalancerTypeUnconfigured",
            Reason::LoadBalancerTypeDeprecated => "LoadBalancerTypeDeprecated",
            Reason::UnsupportedProtocolConfigured => "UnsupportedProtocolConfigured",
            Reason::LoadBalancerSourceRangesIgnored => "LoadBalancerSourceRangesIgnored",
            Reason::MaxTargetsReached => "MaxTargetsReached",
            Reason::TargetIgnored => "TargetIgnored",
            Reason::UnknownAnnotation => "UnknownAnnotation",
            Reason::AnnotationWithoutEffect => "AnnotationWithoutEffect",
            Reason::FieldIgnored => "FieldIgnored",
            Reason::CertificatePending => "CertificatePending",
            Reason::CertificateFailed => "CertificateFailed",
            Reason::AddressNotKept => "AddressNotKept",
            Reason::OrphanedLoadBalancer => "OrphanedLoadBalancer",
            Reason::HeldBack => "HeldBack",
            Reason::FailedToCreateRoute => "FailedToCreateRoute",
            Reason::ClusterCIDRMisconfigured => "ClusterCIDRMisconfigured",
            Reason::RouteLimitNear => "RouteLimitNear",
            Reason::StaleRoute => "StaleRoute",
            Reason::IPv6RouteIgnored => "IPv6RouteIgnored",
            Reason::NoNodeInNetwork => "NoNodeInNetwork",
        }
    }
}

impl Reason {
    /// It lasts until a person mends it, so telling it once is enough.
    pub fn is_lasting(self) -> bool {
        matches!(
            self,
            Reason::UnknownProviderIDPrefix
                | Reason::UnknownProviderID
                | Reason::NotExternal
                | Reason::OrphanedLoadBalancer
                | Reason::IPv6RouteIgnored
                | Reason::RouteLimitNear
        )
    }
}

impl Finding {
    pub fn warning(reason: Reason, message: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Warning,
            reason,
            message: message.into(),
            origin: Origin::Controller,
        }
    }

    pub fn info(reason: Reason, message: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Info,
            ..Finding::warning(reason, message)
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
