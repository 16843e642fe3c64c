//! EndpointSlices, which say on which nodes the pods of a Service run.

use super::client::{KubeClient, ListOf, Print, ReadFrom, percent_encoded};
use super::error::KubeError;
use super::streamed::{Collect, StreamedPage};
use super::types::null_as_default;
use crate::provider::{PodNodes, PodsOnNode, ServiceName};
use crate::text::shell_command;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The EndpointSlices of at most this number of Services are read. Each of these Services needs one of the 64 bits of
/// the masks in [`PodNodes`].
pub const SERVICES_WITH_PODS: usize = 50;
const _: () = assert!(SERVICES_WITH_PODS <= u64::BITS as usize);

const ENDPOINT_SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

/// The label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// An EndpointSlice, with the fields that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Slice {
    metadata: SliceMeta,
    #[serde(default)]
    address_type: String,
    #[serde(default, deserialize_with = "null_as_default")]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct SliceMeta {
    namespace: String,
    #[serde(default, deserialize_with = "null_as_default")]
    labels: SliceLabels,
}

#[derive(Default, Deserialize)]
struct SliceLabels {
    #[serde(default, rename = "kubernetes.io/service-name")]
    service: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    node_name: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    conditions: Conditions,
}

/// The conditions of an endpoint. A missing `ready` means ready, and a missing `serving` means the same as `ready`.
#[derive(Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
}

/// What was read so far from a list of EndpointSlices: the nodes with endpoints, and the Services to which the
/// endpoints belong.
struct CollectedEndpoints<'a> {
    places: &'a HashMap<(&'a str, &'a str), usize>,
    /// The names of the nodes that exist. An endpoint that names any other node is ignored, because the author of an
    /// EndpointSlice can write any name there.
    nodes: &'a HashSet<&'a str>,
    found: BTreeMap<String, PodsOnNode>,
    /// The Services that have at least one endpoint without a node name, as a mask (each bit stands for a Service). It
    /// is not known on which nodes such endpoints run.
    unplaced: u64,
}

impl Collect for CollectedEndpoints<'_> {
    type Item = Slice;
    const KIND: &'static str = "EndpointSliceList";

    /// Does nothing. When a page is read again after a failed try, the items of the failed try need not be removed
    /// first. An endpoint only sets a bit for its Service, and setting the same bit again changes nothing.
    fn begin_page(&mut self) {}

    fn end_page(&mut self) {}

    fn add(&mut self, slice: Slice) {
        let name = (slice.metadata.namespace.as_str(), slice.metadata.labels.service.as_str());
        let Some(place) = self.places.get(&name).filter(|_| slice.address_type == "IPv4") else {
            return;
        };
        let bit = 1 << place;
        for Endpoint { node_name, conditions } in slice.endpoints {
            let is_ready = conditions.ready.unwrap_or(true);
            let is_serving = is_ready || conditions.serving.unwrap_or(is_ready);
            if !is_serving {
                continue;
            }
            let Some(node) = node_name else {
                self.unplaced |= bit;
                continue;
            };
            if let Some(node) = self.nodes.get(node.as_str()) {
                let on_node = self.found.entry((*node).to_owned()).or_default();
                on_node.serving |= bit;
                on_node.ready |= if is_ready { bit } else { 0 };
            }
        }
    }
}

impl KubeClient {
    /// Returns on which of these nodes the pods of these Services run. EndpointSlices with IPv6 addresses are
    /// ignored. At most [`SERVICES_WITH_PODS`] Services are allowed. `print` is the hash of the API server's
    /// earlier answer about the same Services and nodes. When the new answer has the same hash, nothing has
    /// changed, and the result is `None`.
    pub fn endpoints(
        &self,
        services: &[ServiceName],
        nodes: &HashSet<&str>,
        print: &mut Print,
    ) -> Result<Option<PodNodes>, KubeError> {
        let names: Vec<&str> = services.iter().map(|(_, name)| name.as_str()).collect();
        let selector = format!("{SERVICE_NAME} in ({})", names.join(","));
        let query = format!("&labelSelector={}", percent_encoded(&selector));
        let places = services.iter().take(SERVICES_WITH_PODS).enumerate();
        let places: HashMap<(&str, &str), usize> =
            places.map(|(place, (space, name))| ((space.as_str(), name.as_str()), place)).collect();
        let list = ListOf {
            path: ENDPOINT_SLICES,
            query: &query,
            kind: CollectedEndpoints::KIND,
            from: ReadFrom::Cache,
        };
        let begin = || {
            let found = BTreeMap::new();
            RefCell::new(CollectedEndpoints { places: &places, nodes, found, unplaced: 0 })
        };
        let read = self.read_pages(list, Some(print), begin, |collected, path, reading| {
            self.page(path, reading, StreamedPage(collected), |token| token)
        })?;
        Ok(read.map(|collected| {
            let CollectedEndpoints { found, unplaced, .. } = collected.into_inner();
            PodNodes { services: services.to_vec(), nodes: found, unplaced, ..PodNodes::default() }
        }))
    }
}

/// Returns the message for the user when this program is not allowed to read EndpointSlices. The message says how to
/// allow it.
pub fn without_endpoint_rights(error: &KubeError) -> String {
    let apply = shell_command("kubectl apply -k", &[&"manifests/components/endpointslices"]);
    format!(
        "it has no right to list EndpointSlices. To give it this right, run {apply}, or, with the Helm chart, set \
         preferNodesWithPods: true in the values ({error})"
    )
}
