//! The recorded requests in their order. During the recording, the cluster was also changed in ways that the recordings
//! do not contain, e.g. by a server-side apply. Functions of this file make the same changes in the simulated cluster.

use sandbox::kubernetes::Cluster;
use serde_json::json;

/// One recorded request and its answer.
pub struct Case {
    /// The path of the recording as `FOLDER/FILE`, without the file's ending.
    pub name: &'static str,
    pub who: Who,
    /// Makes a change in the simulated cluster before this request is sent. At the same point of the recording, the
    /// real cluster was changed in this way, but not by a recorded request. `None` when there was no such change.
    pub before: Option<fn(&Cluster)>,
    pub exempt: Option<Exemption>,
    /// Whether the answer is a discovery document, of which only the part that the sandbox serves is compared.
    pub discovery: bool,
    pub generated_name: bool,
}

#[derive(Clone, Copy)]
pub enum Who {
    Admin,
    /// The request is sent by a service account without any rights.
    Limited,
    WrongToken,
    Nobody,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Exemption {
    /// The simulated answer is expected to differ from the recorded one. The text is the reason, and the test reports
    /// the case as skipped with this text. The test fails when the two answers are equal.
    Whole(&'static str),
    /// The field `message` of the answer is not compared, because it quotes `managedFields`. The rest of the answer is
    /// compared.
    Message,
}

const SERVER_SIDE_APPLY: Exemption = Exemption::Whole("server-side apply is not served");
const AGGREGATED: Exemption =
    Exemption::Whole("aggregated discovery is not served: clients go on with the plain one");

const fn case(name: &'static str) -> Case {
    Case {
        name,
        who: Who::Admin,
        before: None,
        exempt: None,
        discovery: false,
        generated_name: false,
    }
}

impl Case {
    const fn by(mut self, who: Who) -> Case {
        self.who = who;
        self
    }

    const fn after(mut self, before: fn(&Cluster)) -> Case {
        self.before = Some(before);
        self
    }

    const fn without(mut self, exemption: Exemption) -> Case {
        self.exempt = Some(exemption);
        self
    }

    const fn of_discovery(mut self) -> Case {
        self.discovery = true;
        self
    }

    const fn with_generated_name(mut self) -> Case {
        self.generated_name = true;
        self
    }
}

pub const ORDER: &[Case] = &[
    case("nodes/list-empty").after(lease_of_the_api_server),
    case("nodes/create"),
    case("nodes/get"),
    case("nodes/create-again"),
    case("nodes/create-bad-name"),
    case("nodes/create-no-name"),
    case("nodes/create-wrong-kind"),
    case("nodes/get-not-found"),
    case("nodes/patch-status-addresses"),
    case("nodes/patch-status-bad-address-type"),
    case("nodes/patch-status-strategic-addresses"),
    case("nodes/patch-status-strategic-condition"),
    case("nodes/patch-status-ignores-spec-and-labels"),
    case("nodes/patch-main-ignores-status"),
    case("nodes/patch-status-stale-resource-version"),
    case("nodes/patch-initialise"),
    case("nodes/patch-provider-id-changed"),
    case("nodes/patch-provider-id-removed"),
    case("nodes/patch-pod-cidr-changed"),
    case("nodes/patch-stale-resource-version"),
    case("nodes/patch-wrong-uid"),
    case("nodes/patch-not-found"),
    case("nodes/patch-not-found-with-uid"),
    case("nodes/patch-nothing"),
    case("nodes/patch-unknown-field"),
    case("nodes/patch-unknown-field-strict").without(Exemption::Message),
    case("nodes/patch-wrong-type").without(Exemption::Message),
    case("nodes/patch-bad-label"),
    case("nodes/patch-duplicate-taint"),
    case("nodes/json-patch-add-taint"),
    case("nodes/json-patch-test-fails"),
    case("nodes/json-patch-bad-path"),
    case("nodes/strategic-patch-taint"),
    case("nodes/put-stale-resource-version"),
    case("nodes/put-without-resource-version"),
    case("nodes/apply-server-side").without(SERVER_SIDE_APPLY),
    case("nodes/get-as-table").after(apply_server_side),
    case("nodes/list").after(two_more_nodes),
    case("nodes/list-resource-version-0"),
    case("nodes/list-limit-with-resource-version-0"),
    case("nodes/list-limit-page-1"),
    case("nodes/list-limit-page-2"),
    case("nodes/list-label-selector"),
    case("nodes/list-field-selector-name"),
    case("nodes/list-partial-metadata"),
    case("nodes/list-as-table"),
    case("nodes/table-include-object-metadata"),
    case("nodes/table-include-object-none"),
    case("nodes/delete-wrong-uid"),
    case("nodes/delete-stale-resource-version"),
    case("nodes/delete"),
    case("nodes/delete-not-found"),
    case("services/create-load-balancer"),
    case("services/get"),
    case("services/get-not-found"),
    case("services/create-local-policy"),
    case("services/create-two-ports-udp"),
    case("services/create-without-node-ports"),
    case("services/create-load-balancer-class"),
    case("services/create-cluster-ip"),
    case("services/create-dual-stack-requested"),
    case("services/create-source-ranges"),
    case("services/create-no-ports"),
    case("services/create-two-unnamed-ports"),
    case("services/create-same-node-port"),
    case("services/create-bad-name"),
    case("services/create-in-missing-namespace"),
    case("services/patch-status-finalizer"),
    case("services/patch-status-load-balancer"),
    case("services/patch-status-no-ip-mode"),
    case("services/patch-status-hostname"),
    case("services/patch-status-ip-mode-without-ip"),
    case("services/patch-status-bad-ip"),
    case("services/patch-status-labels-and-annotations"),
    case("services/patch-status-spec-ignored"),
    case("services/patch-main-status-ignored"),
    case("services/patch-status-condition"),
    case("services/patch-stale-resource-version"),
    case("services/strategic-patch-port"),
    case("services/patch-annotation"),
    case("services/patch-class-changed"),
    case("services/patch-cluster-ip-changed"),
    case("services/patch-to-cluster-ip"),
    case("services/delete-with-finalizer"),
    case("services/delete-again-terminating"),
    case("services/get-terminating"),
    case("services/patch-add-finalizer-while-terminating"),
    case("services/patch-status-remove-finalizer"),
    case("services/get-after-finalizer-removed"),
    case("services/delete"),
    case("services/list-all-namespaces").after(port_of_the_api_server),
    case("services/list-field-selector-type"),
    case("services/list-field-selector-name-in-namespace"),
    case("services/list-partial-metadata"),
    case("services/list-as-table"),
    case("events/create"),
    case("events/create-again"),
    case("events/patch-count"),
    case("events/patch-not-found"),
    case("events/create-wrong-namespace"),
    case("events/create-bad-type"),
    case("events/create-long-message"),
    case("events/list-field-selector"),
    case("events/list-as-table"),
    case("leases/get-not-found"),
    case("leases/create"),
    case("leases/create-again"),
    case("leases/put-renew"),
    case("leases/put-stale-resource-version"),
    case("leases/put-release"),
    case("leases/put-zero-duration"),
    case("leases/put-without-resource-version"),
    case("leases/put-bad-time"),
    case("leases/put-nonsense-time"),
    case("leases/list-as-table"),
    case("leases/create-generate-name").with_generated_name(),
    case("namespaces/get"),
    case("namespaces/list"),
    case("namespaces/get-not-found"),
    case("namespaces/create"),
    case("namespaces/list-as-table"),
    case("general/version"),
    case("general/readyz"),
    case("general/api").of_discovery(),
    case("general/apis").of_discovery(),
    case("general/api-v1-resources").of_discovery(),
    case("general/authorization-resources").of_discovery(),
    case("general/coordination-resources").of_discovery(),
    case("general/aggregated-discovery-api").without(AGGREGATED),
    case("general/aggregated-discovery-apis").without(AGGREGATED),
    case("general/unauthorized-no-token").by(Who::Nobody),
    case("general/unauthorized-wrong-token").by(Who::WrongToken),
    case("general/forbidden-delete-node").by(Who::Limited),
    case("general/forbidden-lease").by(Who::Limited),
    case("general/forbidden-list-services-all-namespaces").by(Who::Limited),
    case("general/forbidden-patch-services-status").by(Who::Limited),
    case("general/self-subject-access-review-allowed"),
    case("general/self-subject-access-review-denied").by(Who::Limited),
    case("general/bad-continue"),
    case("general/bad-field-selector"),
    case("general/bad-label-selector"),
    case("general/bad-limit"),
    case("general/bad-resource-version"),
    case("general/malformed-json"),
    case("general/method-not-allowed"),
    case("general/unknown-group"),
    case("general/unknown-path"),
    case("general/unsupported-media-type"),
];

/// During the recording, a server-side apply set the label `applied` of the node `worker-1` on the real API server. The
/// sandbox does not support server-side apply, so this function sets the label directly.
fn apply_server_side(cluster: &Cluster) {
    cluster.edit("nodes", None, "worker-1", |node| {
        node["metadata"]["labels"]["applied"] = "yes".into()
    });
}

fn two_more_nodes(cluster: &Cluster) {
    let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true",
        "effect": "NoSchedule"});
    for name in ["worker-2", "worker-3"] {
        let metadata = json!({"name": name, "labels": {"pool": "b"}});
        cluster.create("nodes", None, json!({"metadata": metadata, "spec": {"taints": [taint]}}));
    }
}

/// Gives the Service `kubernetes` the target port that it had on the real API server during the recording.
fn port_of_the_api_server(cluster: &Cluster) {
    cluster.edit("services", Some("default"), "kubernetes", |service| {
        service["spec"]["ports"][0]["targetPort"] = 16443.into();
    });
}

/// Creates the Lease by which a real API server announces itself.
fn lease_of_the_api_server(cluster: &Cluster) {
    let metadata = json!({
        "name": "apiserver-wlv32tlttr4jl3gtroqexyxapa",
        "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "vm"},
        "annotations": {"kubernetes.io/peer-advertise-address": "10.255.255.1:16443"},
    });
    let holder = "apiserver-wlv32tlttr4jl3gtroqexyxapa_66988067-6af9-401b-bb0d-8ecfc16b433e";
    let lease = json!({"metadata": metadata, "spec": {"holderIdentity": holder}});
    cluster.create("leases", Some("kube-system"), lease);
}
