//! Reads PersistentVolumes, DaemonSets and pods, and decides from a node's labels whether they can be on the node. Only
//! the names and the rules (e.g. the node affinity) of these objects are read. Commands read them with the rights of
//! the user who runs the command. The daemon never reads them.

use super::client::{KubeClient, ListOf, ReadFrom};
use super::error::KubeError;
use super::types::{ListPage, PageForm};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// How many names are kept of the objects (pods, DaemonSets or volumes) that depend on a node's labels. Further objects
/// are only counted.
pub const NAMES_AT_MOST: usize = 20;

/// A kind of objects whose rules (e.g. a node affinity) can limit on which nodes they run or can be used. The kinds are
/// PersistentVolumes, DaemonSets and pods.
#[derive(Clone, Copy)]
pub struct PlacedKind(ListOf<'static>);

impl PlacedKind {
    pub const VOLUMES: PlacedKind =
        PlacedKind::new("/api/v1/persistentvolumes", "PersistentVolumeList", "");
    pub const DAEMON_SETS: PlacedKind =
        PlacedKind::new("/apis/apps/v1/daemonsets", "DaemonSetList", "");
    /// The pods, except those that have ended (phase `Succeeded` or `Failed`).
    pub const PODS: PlacedKind = PlacedKind::new("/api/v1/pods", "PodList", RUNNING);

    const fn new(path: &'static str, kind: &'static str, query: &'static str) -> PlacedKind {
        PlacedKind(ListOf { path, query, kind, from: ReadFrom::Latest })
    }
}

/// The query parameter that leaves out pods that have ended.
const RUNNING: &str = "&fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed";

/// A Kubernetes object (a pod, a DaemonSet or a PersistentVolume) whose rules say on which nodes it can be. A node is
/// allowed when it fulfils all of the rules. An object without rules allows every node.
#[derive(Deserialize)]
pub struct PlacedObject {
    metadata: PlacedMeta,
    spec: PlacedSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlacedMeta {
    /// The namespace of the object. `None` for a PersistentVolume, which has no namespace.
    namespace: Option<String>,
    name: String,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<PlacedReference>>,
}

/// A reference in an object to another object: to its owner (`ownerReferences`), or from a volume to the
/// PersistentVolumeClaim that uses it (`claimRef`).
#[derive(Deserialize)]
struct PlacedReference {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
}

/// The spec of a pod, of a DaemonSet or of a PersistentVolume, with the fields that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlacedSpec {
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    /// The template of the pods of a DaemonSet.
    template: Option<Template>,
    /// The node affinity of a PersistentVolume, i.e. the nodes on which the volume can be used.
    node_affinity: Option<NodeAffinity>,
    claim_ref: Option<PlacedReference>,
}

#[derive(Deserialize)]
struct Template {
    spec: Box<PlacedSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

/// The node affinity of a pod or a PersistentVolume. Only its required part is read, because a preferred affinity
/// excludes no node. Pods and volumes have different names for the required part.
#[derive(Deserialize)]
struct NodeAffinity {
    #[serde(alias = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<Terms>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terms {
    node_selector_terms: Vec<Term>,
}

/// A term of an affinity. A node matches the affinity when it fulfils all requirements of one term. A term without
/// requirements matches no node.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    match_expressions: Option<Vec<NodeRequirement>>,
    /// Requirements for `metadata.name` of the node, the only field that Kubernetes allows.
    match_fields: Option<Vec<NodeRequirement>>,
}

#[derive(Deserialize)]
struct NodeRequirement {
    key: String,
    operator: Operator,
    values: Option<Vec<String>>,
}

/// An operator in a requirement for the labels of a node. When an object contains any other operator, the whole list of
/// objects can't be parsed, so that nothing is decided from it.
#[derive(Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// The labels of a PersistentVolume that the scheduler compares with those of a node. A value can list several zones,
/// with `__` between them.
const ZONES_OF_VOLUME: [&str; 2] =
    ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

impl PlacedObject {
    /// Whether the rules of this object allow a node with this name and these labels. The rules of a pod or of a
    /// DaemonSet are its node selector and its required node affinity. The rules of a PersistentVolume are its required
    /// node affinity and its zone labels.
    pub fn allows<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let spec = self.spec.template.as_ref().map_or(&self.spec, |template| &template.spec);
        let has = |(key, value): (&String, &String)| label(key) == Some(value.as_str());
        let is_met = |term: &Term| {
            let [labels, fields] = [&term.match_expressions, &term.match_fields].map(items);
            !(labels.is_empty() && fields.is_empty())
                && labels.iter().all(|it| it.allows(label(&it.key)))
                && fields.iter().all(|it| it.allows((it.key == "metadata.name").then_some(name)))
        };
        let of_pod = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = of_pod.or(spec.node_affinity.as_ref()).and_then(|it| it.required.as_ref());
        spec.node_selector.iter().flatten().all(has)
            && required.is_none_or(|terms| terms.node_selector_terms.iter().any(is_met))
            && ZONES_OF_VOLUME.iter().all(|key| self.is_in_zone(key, label(key)))
    }

    /// Whether the zone label `key` of a PersistentVolume allows a node. `zone` is the value of the same label of the
    /// node, or `None` when the node has no such label. A volume without this label allows every node. A volume with
    /// this label allows only the nodes whose zone is in the label's list.
    fn is_in_zone(&self, key: &str, zone: Option<&str>) -> bool {
        let labels = self.metadata.labels.as_ref().filter(|_| self.metadata.namespace.is_none());
        let zones = labels.and_then(|labels| labels.get(key));
        zones.is_none_or(|zones| zones.split("__").any(|listed| Some(listed) == zone))
    }

    fn is_of_daemon_set(&self) -> bool {
        items(&self.metadata.owner_references).iter().any(|owner| owner.kind == "DaemonSet")
    }

    /// Returns the name of the object for messages. The name of a PersistentVolume is followed by the
    /// PersistentVolumeClaim that uses it.
    fn full_name(&self) -> String {
        let name = &self.metadata.name;
        match (&self.metadata.namespace, &self.spec.claim_ref) {
            (Some(namespace), _) => format!("{namespace}/{name}"),
            (None, Some(claim)) => format!("{name} (claim {}/{})", claim.namespace, claim.name),
            (None, None) => name.clone(),
        }
    }
}

impl NodeRequirement {
    fn allows(&self, value: Option<&str>) -> bool {
        let values = items(&self.values);
        let is_listed = values.iter().any(|listed| Some(listed.as_str()) == value);
        let number = |text: &str| text.parse::<i64>().ok();
        let numbers = value.and_then(number).zip(values.first().and_then(|text| number(text)));
        match self.operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => numbers.is_some_and(|(number, limit)| number > limit),
            Operator::Lt => numbers.is_some_and(|(number, limit)| number < limit),
        }
    }
}

fn items<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

impl KubeClient {
    /// Reads all objects of this kind, and calls `affected` with each of them, except pods of DaemonSets. `affected`
    /// returns a text about the object, or `None` when the caller does not want this object. Returns the names and
    /// texts of the wanted objects, at most [`NAMES_AT_MOST`], and the number of all wanted objects. The list is read
    /// from etcd page by page, and only the names and texts are kept in memory. Returns an error when the list is not
    /// complete.
    pub fn placed(
        &self,
        PlacedKind(list): PlacedKind,
        affected: impl Fn(&PlacedObject) -> Option<String>,
    ) -> Result<(Vec<(String, String)>, usize), KubeError> {
        let add = |found: &mut (Vec<(String, String)>, usize), page: ListPage<PlacedObject>| {
            let mut objects = Vec::new();
            let token = page.add_to(&mut objects, list.kind)?;
            for object in objects.iter().filter(|object| !object.is_of_daemon_set()) {
                let Some(text) = affected(object) else { continue };
                found.1 += 1;
                if found.0.len() < NAMES_AT_MOST {
                    found.0.push((object.full_name(), text));
                }
            }
            Ok(token)
        };
        let found = self.read_pages(list, None, Default::default, |found, path, reading| {
            self.page(path, reading, PhantomData::<Option<_>>, |page| Some(add(found, page?)))
        });
        Ok(found?.unwrap_or_default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ZONE: &str = "topology.kubernetes.io/zone";

    fn term(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    }

    fn object(metadata: Value, spec: Value) -> Result<PlacedObject, serde_json::Error> {
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec }))
    }

    fn pod(spec: Value) -> PlacedObject {
        object(json!({ "namespace": "shop", "name": "db", "labels": { ZONE: "other" } }), spec)
            .unwrap()
    }

    /// Whether the object's rules (node selector, node affinity, or zone of a volume) allow a node with the name `n`
    /// and these labels.
    fn allows(object: &PlacedObject, labels: &[(&str, &str)]) -> bool {
        object.allows("n", |key| {
            labels.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
        })
    }

    #[test]
    fn a_node_fulfils_an_affinity_as_for_the_scheduler() {
        let old = term(ZONE, "In", &["old"]);
        let named = |name| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] });
        let mut both = old.clone();
        both["matchExpressions"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "key": "disk", "operator": "Exists" }));
        let labels = [(ZONE, "old"), ("disk", "ssd"), ("size", "7")];
        for (terms, is_met) in [
            (vec![old.clone()], true),
            (vec![term(ZONE, "In", &["new", "old"])], true),
            (vec![term(ZONE, "In", &["new"])], false),
            (vec![term(ZONE, "In", &["new"]), old.clone()], true),
            (vec![both], true),
            (vec![term(ZONE, "NotIn", &["new"])], true),
            (vec![term(ZONE, "NotIn", &["old"])], false),
            (vec![term("none", "NotIn", &["old"])], true),
            (vec![term(ZONE, "Exists", &[])], true),
            (vec![term("none", "Exists", &[])], false),
            (vec![term(ZONE, "DoesNotExist", &[])], false),
            (vec![term("none", "DoesNotExist", &[])], true),
            (vec![term("size", "Gt", &["6"])], true),
            (vec![term("size", "Gt", &["7"])], false),
            (vec![term("size", "Lt", &["8"])], true),
            (vec![term("disk", "Lt", &["8"])], false),
            (vec![named("n")], true),
            (vec![named("m")], false),
            (vec![json!({})], false),
            (vec![], false),
        ] {
            let required = json!({ "nodeSelectorTerms": terms });
            let affinity = json!({
                "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required.clone() },
            });
            let of_pod = json!({ "affinity": affinity });
            let of_volume = json!({ "nodeAffinity": { "required": required } });
            let daemon_set = json!({ "template": { "spec": of_pod.clone() } });
            assert_eq!(allows(&pod(of_pod), &labels), is_met, "{terms:?}");
            assert_eq!(allows(&pod(daemon_set), &labels), is_met, "{terms:?}");
            let volume = object(json!({ "name": "pv" }), of_volume).unwrap();
            assert_eq!(allows(&volume, &labels), is_met, "{terms:?}");
        }
        let preferred = json!([{ "weight": 1, "preference": term(ZONE, "In", &["new"]) }]);
        for (spec, is_met) in [
            (json!({}), true),
            (json!({ "nodeSelector": null, "affinity": null }), true),
            (json!({ "affinity": { "podAffinity": {}, "nodeAffinity": null } }), true),
            (
                json!({ "affinity": { "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            } } }),
                true,
            ),
            (json!({ "nodeSelector": { "disk": "ssd", "size": "7" } }), true),
            (json!({ "nodeSelector": { "disk": "ssd", "size": "8" } }), false),
            (json!({ "nodeSelector": { "none": "" } }), false),
        ] {
            assert_eq!(allows(&pod(spec.clone()), &labels), is_met, "{spec}");
        }
        let unknown = json!({ "nodeSelectorTerms": [term(ZONE, "Near", &["old"])] });
        let unknown = json!({ "nodeAffinity": { "required": unknown } });
        assert!(object(json!({ "name": "pv" }), unknown).is_err());
    }

    #[test]
    fn a_volume_is_also_bound_by_its_zone_labels() {
        let terms = json!({ "nodeSelectorTerms": [term("disk", "Exists", &[])] });
        let affinity = json!({ "required": terms });
        for (labels, affinity, with_old, with_new) in [
            (json!(null), json!(null), true, true),
            (json!({ ZONE: "old" }), json!(null), true, false),
            (json!({ ZONE: "new__old" }), json!(null), true, true),
            (json!({ ZONE: "old" }), affinity.clone(), true, false),
            (json!({ "app": "old" }), affinity.clone(), true, true),
        ] {
            let spec = json!({
                "nodeAffinity": affinity, "claimRef": { "namespace": "shop", "name": "data" },
            });
            let volume = object(json!({ "name": "pv", "labels": labels }), spec).unwrap();
            assert_eq!(volume.full_name(), "pv (claim shop/data)");
            let with = |zone| allows(&volume, &[(ZONE, zone), ("disk", "ssd")]);
            assert_eq!((with("old"), with("new")), (with_old, with_new), "{labels} {affinity}");
        }
    }
}
