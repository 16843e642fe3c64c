//! Compares the zone labels of an initialised node with the zone labels that a new node on the same server would get.

use crate::kube::KubeNode;
use crate::provider::variables::HCLOUD_INSTANCES_ZONE_LABEL;
use crate::provider::{Field, TopologyLabel, ZoneValues};

/// The beta key and the stable key of the zone label. In Kubernetes, the cloud-node controller copies the value of the
/// beta label to the stable label.
pub(super) const ZONE_KEYS: [&str; 2] =
    [TopologyLabel::Zone.beta_key(), TopologyLabel::Zone.stable_key()];

/// The zone labels of an initialised node, compared with those of a new node on the same server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneState {
    /// The beta label and the stable label. Each entry has the value that the node has now, and the value that a new
    /// node on the same server would get.
    pub fields: [Field; 2],
    /// The reason why `ccm node relabel` does not change the zone labels, although they differ from those of a new
    /// node. `None` means that it changes them, or that they do not differ.
    pub stays: Option<String>,
}

impl ZoneState {
    pub(super) fn new(node: &KubeNode, zone: &ZoneValues) -> ZoneState {
        let wanted = &zone.wanted;
        let label = |key: &str| node.metadata.labels.get(key);
        let field = |key: &str| {
            let have = label(key).map(str::to_owned);
            Field::new(format!("label {key}"), have, wanted.value.clone(), wanted.source.clone())
        };
        let ([beta, _], [datacenter, location]) = (ZONE_KEYS, &zone.possible);
        let is_known = !datacenter.is_empty() && !location.is_empty();
        let stays = match label(beta) {
            _ if ZONE_KEYS.iter().all(|key| label(key) == wanted.value.as_deref()) => None,
            None => Some(format!(
                "ccm changes the zone labels only on a node that has label {beta}, and this node does not have it"
            )),
            Some(value) if zone.possible.iter().any(|it| it == value) && is_known => None,
            Some(value) => Some(format!(
                "label {beta} has the value {value:?}, which a person or another program has set, so ccm leaves the \
                 label unchanged. ccm itself sets {datacenter:?} or {location:?}, as \
                 {HCLOUD_INSTANCES_ZONE_LABEL} says"
            )),
        };
        ZoneState { fields: ZONE_KEYS.map(field), stays }
    }

    /// Whether `ccm node relabel` would change the labels.
    pub fn is_to_change(&self) -> bool {
        self.stays.is_none() && self.fields.iter().any(|field| field.have != field.want)
    }
}
