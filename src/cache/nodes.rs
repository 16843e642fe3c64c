//! The cached nodes, each with the moment at which its last read was requested. They are kept fresh with few and small
//! calls.
//!
//! The first read lists the complete Node objects, and so does another read every few minutes. Between these lists, a
//! poll reads the API server's `Table` form of the list, which has one short row for each node. The poll then reads the
//! complete objects of the nodes whose rows have changed: a few nodes by name, many nodes by one list.
//!
//! A table contains no taints and no addresses. The rows contain the metadata of the nodes only if the request asks for
//! it. Without the metadata, a table does not show that a node was replaced by another node with the same name and
//! readiness. The cache sees such changes in the next list of complete objects, or when a controller reads the node
//! again.
//!
//! A row is compared with the cached node, and not with the row of the last poll. When a node could not be read, or was
//! read before its change, the row differs from the cached node at the next poll too, and the node is read again. No
//! change gets lost. When the API server sends an old table from its cache, the only cost is an unnecessary read.

use super::cached::{CacheError, View, turn};
use crate::kube::{Detail, KubeClient, KubeNode, NodeRow, Print, ReadFrom, RowMeta};
use crate::provider::clock;
use crate::provider::order;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// When more nodes than this are cached, the cache drops them before it reads a new list, so that two large lists are
/// never in memory at once.
const KEPT_AT_MOST: usize = 500;

/// At most this many changed nodes, or a fiftieth of all nodes when that is more, are read by name. When more nodes
/// have changed, all nodes are read by one list.
const BY_NAME_AT_MOST: usize = 10;
const BY_NAME_PART: usize = 50;

/// Nodes that are cordoned or not ready may be about to stop. Their taints and conditions show whether this is so. Each
/// of these nodes is therefore read again, by its name, when its last read is older than `SUSPECTS_MAX_AGE`. When there
/// are more than `SUSPECTS_BY_NAME` such nodes, all nodes are listed instead, at most once in `SUSPECTS_LISTED`.
const SUSPECTS_MAX_AGE: Duration = Duration::from_secs(15);
const SUSPECTS_BY_NAME: usize = 20;
const SUSPECTS_LISTED: Duration = Duration::from_secs(60);

/// All nodes, sorted by name. Their age is the time since all nodes were last read, as complete objects or as a table.
pub type ListedNodes = View<Vec<Arc<KubeNode>>>;

/// How old the nodes that [`NodeCache::poll`] returns may be. There is one limit for each kind of read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The longest time that may have passed since all nodes were last read, as complete objects or as a table with one
    /// row for each node.
    pub table_max_age: Duration,
    /// The longest time that may have passed since the complete objects of all nodes were last listed.
    pub whole_max_age: Duration,
    /// The longest time that may have passed since labels and deletion times of all nodes were last read. The
    /// controllers for routes and load balancers need both. `None` means that any age is accepted.
    pub metadata_max_age: Option<Duration>,
}

pub struct NodeCache {
    kube: Arc<KubeClient>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The nodes, sorted by name.
    nodes: Arc<Vec<Arc<KubeNode>>>,
    /// The times at which each node was read. The element at an index belongs to the node at the same index of `nodes`.
    notes: Vec<Note>,
    /// The moment when all nodes were last requested, as complete objects or as a table with one row for each node.
    /// `None` when no nodes are cached.
    polled: Option<Instant>,
    /// The moment at which the metadata of all nodes was last known to be as cached: the last table of nodes with metadata
    /// was requested then, or another table showed that no node had changed since. `None` when no table with metadata was
    /// read for the cached nodes.
    shown: Option<Instant>,
    /// The moment when the complete objects of all nodes were last requested by one list. `None` when no nodes are
    /// cached.
    listed: Option<Instant>,
    /// The moment when all nodes were last requested by one list of their complete objects, if that list was read from
    /// etcd. `None` when that list came from the API server's cache, or when no nodes are cached.
    listed_latest: Option<Instant>,
    /// The moment when the table of nodes was last requested, if the API server did not answer with a table in the
    /// expected form. For some minutes after this moment, complete Node objects are listed, and no table is requested.
    /// `None` when the last table had the expected form.
    odd: Option<Instant>,
    /// The API server's table of nodes has one row for each node. A table whose rows all agree with the cached nodes
    /// shows no change, and its hash is stored here. A new table with the same hash shows no change either, so it is
    /// not parsed. The first hash is for tables without metadata, and the second for tables with metadata. When both have
    /// the same version, no node has changed between them.
    agreed: [Print; 2],
    /// Whether a node counts as changed, and is read again, when it was cordoned or uncordoned.
    watches_cordons: bool,
    /// The names of the nodes that could not be read again after a change. The API server's table of nodes has shown
    /// the change. Only the first failed read of each such node is logged.
    unread: HashSet<String>,
}

/// The times of the first and of the last read of one cached node.
#[derive(Clone, Copy, Debug)]
struct Note {
    /// The moment just before the call that last read the node was sent. The cached node shows the state at this moment
    /// or later.
    asked: Instant,
    /// The moment when the answer to the first read of this node came. When another node with the same name but another
    /// UID has replaced a node, the first read of the other node counts.
    first_seen: Instant,
}

impl Note {
    /// Returns the read times of a node that was not in the cache. `asked` is the moment just before the call that read
    /// the node. The answer came just now, so `first_seen` is the present moment.
    fn of_new(asked: Instant) -> Note {
        Note { asked, first_seen: clock::now() }
    }
}

impl NodeCache {
    pub(super) fn new(kube: Arc<KubeClient>) -> NodeCache {
        NodeCache { kube, state: Mutex::default() }
    }

    /// Returns the complete objects of all nodes, from a list that was requested no longer ago than `max_age`. With
    /// [`ReadFrom::Latest`], that list came from etcd and not from the API server's cache. Single nodes may have been
    /// read again since then.
    pub fn whole(&self, max_age: Duration, from: ReadFrom) -> Result<ListedNodes, CacheError> {
        let mut state = turn(&self.state);
        // An answer from the API server's cache can show an old state even when the answer has just come. A caller that
        // needs the latest state therefore gets only a list that did not come from that cache.
        let listed = match from {
            ReadFrom::Cache => state.listed,
            ReadFrom::Latest => state.listed_latest,
        };
        if !is_younger(listed, max_age) {
            state.list(&self.kube, from)?;
        }
        Ok(state.view())
    }

    /// Returns all nodes. When the cached nodes are older than `poll` allows, reads either the complete objects of all
    /// nodes, or a table with one row for each node and then the complete objects of the nodes that have changed.
    /// Tables and lists come from the API server's cache and can be a moment old. This is safe, because each write
    /// carries the `resourceVersion` of its object, and a write that is based on an old node fails.
    pub fn poll(&self, poll: Poll) -> Result<ListedNodes, CacheError> {
        let mut state = turn(&self.state);
        let wants_metadata = poll
            .metadata_max_age
            .is_some_and(|age| !is_younger(state.shown.max(state.listed), age));
        let detail = if wants_metadata { Detail::Metadata } else { Detail::Cells };
        if !is_younger(state.listed, poll.whole_max_age) {
            state.list(&self.kube, ReadFrom::Cache)?;
        } else if wants_metadata || !is_younger(state.polled, poll.table_max_age) {
            if is_younger(state.odd, poll.whole_max_age) {
                state.list(&self.kube, ReadFrom::Cache)?;
            } else if !wants_metadata || !state.is_unchanged(&self.kube)? {
                state.read_table(&self.kube, detail)?;
            }
        }
        Ok(state.view())
    }

    /// Reads the nodes like [`poll`](NodeCache::poll), for a caller that must know which nodes are about to be shut
    /// down or deleted. From now on, a node also counts as changed when it was cordoned or uncordoned. In addition, the
    /// complete objects of the nodes that are cordoned or not ready are read, because the table of nodes that a poll
    /// reads shows neither the taints nor most conditions of a node.
    pub fn poll_departing(&self, poll: Poll) -> Result<ListedNodes, CacheError> {
        let mut state = turn(&self.state);
        if !std::mem::replace(&mut state.watches_cordons, true) {
            state.agreed = Default::default();
        }
        drop(state);
        let all = self.poll(poll)?;
        let suspects = all.value.iter().filter(|node| node.spec.unschedulable || !node.is_ready());
        let names: Vec<String> = suspects.map(|node| node.name().to_owned()).collect();
        if names.len() > SUSPECTS_BY_NAME {
            let whole_max_age = SUSPECTS_LISTED.min(poll.whole_max_age);
            return self.poll(Poll { whole_max_age, ..poll });
        }
        let mut state = turn(&self.state);
        let is_old = |place: usize| clock::since(state.notes[place].asked) >= SUSPECTS_MAX_AGE;
        let old = names.into_iter().filter(|name| state.place(name).is_ok_and(is_old));
        let old: Vec<String> = old.collect();
        state.read_each(&self.kube, &old)?;
        Ok(state.view())
    }

    /// Reads the nodes in `names` again, except those that were read within the last `max_age`. Then returns all nodes.
    pub fn again(&self, names: &[String], max_age: Duration) -> Result<ListedNodes, CacheError> {
        let mut state = turn(&self.state);
        if state.polled.is_none() {
            state.list(&self.kube, ReadFrom::Cache)?;
        }
        let is_old = |place: usize| clock::since(state.notes[place].asked) > max_age;
        let old = names.iter().filter(|name| state.place(name).is_ok_and(is_old));
        let old: Vec<String> = old.cloned().collect();
        state.read(&self.kube, &old)?;
        Ok(state.view())
    }

    /// Stores the node that the API server returned for a write of this process. The write began at `begun`. Nothing is
    /// stored when the node is not in the cache yet. Nothing is stored either when the cached node was read after the
    /// write began, because the cached node can be newer.
    pub fn written(&self, node: KubeNode, begun: Instant) {
        let mut state = turn(&self.state);
        let known = state.note_of(&node);
        if known.is_some_and(|note| note.asked <= begun) {
            state.put(node, begun);
        }
    }

    /// Returns when this process received its first answer that contained this node. The node is identified by its UID.
    /// Returns `None` when the cache does not have the node.
    pub fn first_seen(&self, node: &KubeNode) -> Option<Instant> {
        let state = turn(&self.state);
        state.note_of(node).map(|note| note.first_seen)
    }

    /// Returns all nodes of the last read, however old that read is. No call is made. `None` when no list was read yet.
    pub fn last(&self) -> Option<ListedNodes> {
        let state = turn(&self.state);
        state.polled.map(|_| state.view())
    }
}

fn is_younger(moment: Option<Instant>, max_age: Duration) -> bool {
    moment.is_some_and(|moment| clock::since(moment) <= max_age)
}

impl State {
    fn view(&self) -> ListedNodes {
        let asked = self.polled.unwrap_or_else(clock::now);
        View::new(Arc::clone(&self.nodes), asked)
    }

    /// Returns the index of the node with this name. The error is the index at which this node would be inserted.
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.name().cmp(name))
    }

    /// Returns the times of the first and of the last read of the node. Returns `None` when the cache has no node with
    /// this name and UID.
    fn note_of(&self, node: &KubeNode) -> Option<&Note> {
        let place = self.place(node.name()).ok()?;
        let is_same = self.nodes[place].metadata.uid == node.metadata.uid;
        is_same.then(|| &self.notes[place])
    }

    /// Reads the complete objects of all nodes, and replaces the cached nodes by them.
    fn list(&mut self, kube: &KubeClient, from: ReadFrom) -> Result<(), CacheError> {
        let asked = clock::now();
        // For each cached node, by its UID: the times of its first and of its last read. A node that is also in the new
        // list keeps the time of its first read.
        let known = self.nodes.iter().zip(&self.notes);
        let known: HashMap<String, Note> =
            known.map(|(node, note)| (node.metadata.uid.clone(), *note)).collect();
        if self.nodes.len() > KEPT_AT_MOST {
            self.give_up();
        }
        let mut nodes = kube.nodes(from)?;
        // The API server sends nodes in the order of etcd's keys, which is only nearly the order by name. The cache
        // needs the order by name.
        order::sort_by(&mut nodes, |left, right| left.name().cmp(right.name()));
        let new = Note::of_new(asked);
        let note = |node: &Arc<KubeNode>| Note {
            asked,
            ..known.get(&node.metadata.uid).copied().unwrap_or(new)
        };
        self.notes = nodes.iter().map(note).collect();
        self.nodes = Arc::new(nodes);
        self.polled = Some(asked);
        self.listed = Some(asked);
        self.listed_latest = (from == ReadFrom::Latest).then_some(asked);
        self.unread.clear();
        self.agreed = Default::default();
        Ok(())
    }

    /// Forgets all nodes before a new list is read, because two lists of thousands of nodes in memory at once would
    /// need too much memory.
    fn give_up(&mut self) {
        self.nodes = Arc::default();
        self.notes = Vec::new();
        (self.polled, self.shown, self.listed, self.listed_latest) = (None, None, None, None);
        self.agreed = Default::default();
    }

    /// Returns whether no node has changed since the last table with metadata was read. Reads the table without metadata
    /// for this, but only if no node had changed until its last read either. Otherwise the answer is probably no.
    fn is_unchanged(&mut self, kube: &KubeClient) -> Result<bool, CacheError> {
        let is_same = |state: &State| {
            let [cells, metadata] = state.agreed;
            cells.has_version_of(metadata)
        };
        if !is_same(self) {
            return Ok(false);
        }
        self.read_table(kube, Detail::Cells)?;
        if is_same(self) {
            self.shown = self.polled;
        }
        Ok(is_same(self))
    }

    /// Reads the table with one row for each node, and then the complete objects of the nodes whose rows have changed.
    fn read_table(&mut self, kube: &KubeClient, detail: Detail) -> Result<(), CacheError> {
        let asked = clock::now();
        let mut print = self.agreed[detail as usize];
        let rows = match kube.node_table(detail, &mut print) {
            Ok(rows) => rows,
            Err(error) => {
                let Some(why) = error.no_such_form() else {
                    return Err(error.into());
                };
                if self.odd.is_none() {
                    log::warn!(
                        "ccm can't read the nodes as a table from the API server ({why}). So ccm reads complete Node \
                         objects at every poll. This only takes more time and memory"
                    );
                }
                self.odd = Some(asked);
                return self.list(kube, ReadFrom::Cache);
            }
        };
        self.odd = None;
        let changed = rows.map_or_else(Vec::new, |rows| self.changed_rows(rows));
        self.agreed[detail as usize] = if changed.is_empty() { print } else { Print::default() };
        if !changed.is_empty() {
            self.read(kube, &changed)?;
        }
        self.polled = Some(asked);
        if detail == Detail::Metadata {
            self.shown = Some(asked);
        }
        Ok(())
    }

    /// Returns the names of the nodes that have changed since they were cached. `rows` is the API server's table of
    /// nodes. A node has changed when its row differs from the cached node, when it has a row but is not cached, or
    /// when it is cached but has no row.
    fn changed_rows(&self, rows: Vec<NodeRow>) -> Vec<String> {
        let mut is_shown = vec![false; self.nodes.len()];
        let mut changed = Vec::new();
        for row in rows {
            if let Ok(place) = self.place(&row.name) {
                is_shown[place] = true;
                if !has_changed(&row, &self.nodes[place], self.watches_cordons) {
                    continue;
                }
            }
            changed.push(row.name);
        }
        let gone = self.nodes.iter().zip(is_shown).filter(|(_, shown)| !shown);
        changed.extend(gone.map(|(node, _)| node.name().to_owned()));
        changed
    }

    /// Reads the complete objects of these nodes. When a node can't be read, its last known state is kept, and the next
    /// poll reads the node again.
    fn read(&mut self, kube: &KubeClient, changed: &[String]) -> Result<(), CacheError> {
        if changed.len() > BY_NAME_AT_MOST.max(self.nodes.len() / BY_NAME_PART) {
            return self.list(kube, ReadFrom::Cache);
        }
        self.read_each(kube, changed)
    }

    /// Reads the complete objects of these nodes, each by its name.
    fn read_each(&mut self, kube: &KubeClient, names: &[String]) -> Result<(), CacheError> {
        for name in names {
            let asked = clock::now();
            match kube.node(name) {
                Ok(Some(node)) => self.put(node, asked),
                Ok(None) => self.remove(name),
                // The API server does not answer, or the credentials, the role or the TLS settings are wrong. The
                // remaining nodes are not read now, because their reads would fail in the same way.
                Err(error) if error.is_unavailable() || error.is_permanent() => {
                    return Err(error.into());
                }
                Err(error) => {
                    if self.unread.insert(name.clone()) {
                        log::warn!("node/{name}: could not be read (ccm tries again): {error}");
                    }
                    continue;
                }
            }
            self.unread.remove(name);
        }
        Ok(())
    }

    fn put(&mut self, node: KubeNode, asked: Instant) {
        let place = self.place(node.name());
        // When the node has not changed, `nodes` must stay the same `Arc`. The Service controller compares this `Arc`
        // with an earlier one to see whether any node has changed.
        if let Ok(place) = place
            && *self.nodes[place] == node
        {
            self.notes[place].asked = asked;
            return;
        }
        self.agreed = Default::default();
        let nodes = Arc::make_mut(&mut self.nodes);
        match place {
            Ok(place) => {
                let note = &mut self.notes[place];
                if nodes[place].metadata.uid == node.metadata.uid {
                    note.asked = asked;
                } else {
                    *note = Note::of_new(asked);
                }
                nodes[place] = Arc::new(node);
            }
            Err(place) => {
                nodes.insert(place, Arc::new(node));
                self.notes.insert(place, Note::of_new(asked));
            }
        }
    }

    fn remove(&mut self, name: &str) {
        self.agreed = Default::default();
        if let Ok(place) = self.place(name) {
            Arc::make_mut(&mut self.nodes).remove(place);
            self.notes.remove(place);
        }
    }
}

/// Whether the node has changed since it was stored in the cache. `row` is the new row of the table of nodes, and
/// `node` is the stored object. A changed cordon counts only when `watches_cordons` is `true`.
fn has_changed(row: &NodeRow, node: &KubeNode, watches_cordons: bool) -> bool {
    let differs = |meta: &RowMeta| {
        meta.uid != node.metadata.uid
            || meta.labels != node.metadata.labels
            || meta.is_being_deleted != node.metadata.deletion_timestamp.is_some()
    };
    row.is_ready != node.is_ready()
        || watches_cordons && row.is_cordoned != node.spec.unschedulable
        || row.meta.as_ref().is_some_and(differs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(extra: Value) -> KubeNode {
        let mut node = json!({
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "1", "labels": { "k": "v" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        for (key, value) in extra.as_object().unwrap() {
            node["metadata"][key] = value.clone();
        }
        serde_json::from_value(node).unwrap()
    }

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn a_row_has_changed_when_it_differs_from_the_node() {
        let row = |is_ready, meta| NodeRow { name: "a".into(), is_ready, is_cordoned: true, meta };
        let meta = |uid: &str, labels: &[(&str, &str)], is_being_deleted| Some(RowMeta {
            uid: uid.into(), labels: labels.iter().copied().collect(), is_being_deleted,
        });
        let same = &[("k", "v")][..];
        let plain = node(json!({}));
        let going = node(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
        let cases = [
            ("the same", &plain, row(true, None), false),
            ("not ready", &plain, row(false, None), true),
            ("the same metadata", &plain, row(true, meta("u", same, false)), false),
            ("another UID", &plain, row(true, meta("w", same, false)), true),
            ("a label more", &plain, row(true, meta("u", &[("a", ""), ("k", "v")], false)), true),
            ("a label less", &plain, row(true, meta("u", &[], false)), true),
            ("another value", &plain, row(true, meta("u", &[("k", "w")], false)), true),
            ("being deleted", &plain, row(true, meta("u", same, true)), true),
            ("known to be deleted", &going, row(true, meta("u", same, true)), false),
        ];
        for (name, node, row, expected) in cases {
            assert_eq!(has_changed(&row, node, false), expected, "{name}");
        }
    }
}
