//! The labels a node should have: set once from the server, afterwards kept equal to their beta twins.

use crate::kube::Node;
use crate::provider::{Metadata, Source, Sourced, TopologyLabel};

/// A label and what it should be.
pub(super) type Wanted = (String, Sourced<String>);

/// At initialisation: every pair under both keys, and the profile's own where there is none of that name.
pub(super) fn at_initialisation(node: &Node, metadata: &Metadata) -> Vec<Wanted> {
    let topology = metadata.topology.iter().flat_map(|(label, wanted)| {
        [label.beta_key(), label.stable_key()].map(|key| (key.to_owned(), wanted.clone()))
    });
    let extra = metadata.extra_labels.iter().map(|(key, wanted)| {
        let kept = node
            .metadata
            .labels
            .get(key)
            .map(|have| Sourced::new(have.to_owned(), Source::Kept));
        (key.clone(), kept.unwrap_or_else(|| wanted.clone()))
    });
    topology
        .chain(extra)
        .filter(|(_, wanted)| !wanted.value.is_empty())
        .collect()
}

/// Afterwards, as k8s.io/cloud-provider: the stable label follows its beta twin. Who wants
/// another value changes the beta one; without a beta one nothing is said.
pub(super) fn afterwards(node: &Node) -> Vec<Wanted> {
    let twin = |label: TopologyLabel| {
        let beta = node.metadata.labels.get(label.beta_key())?;
        let source = Source::Label(label.beta_key().to_owned());
        Some((
            label.stable_key().to_owned(),
            Sourced::new(beta.to_owned(), source),
        ))
    };
    TopologyLabel::ALL.into_iter().filter_map(twin).collect()
}
