//! The nodes as we know them, each with its age; and how they are kept fresh for little.
//!
//! The first read, and one every few minutes, lists whole nodes. In between a poll reads a table of one line a node,
//! and reads whole only those nodes whose row has changed (see `change_detection`): a few by name, many by one list.
//! What a table can't show – a taint, an address – is as old as the last list, or younger where a controller reads
//! those nodes again.

use super::cached::{View, turn};
use super::change_detection::{Aged, has_changed};
use crate::kube::{Age, Client, Detail, Error, Node, NodeRow, NodeTable, ReadFrom};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// More nodes than this are given up before they are listed anew.
const KEPT_AT_MOST: usize = 500;

/// More nodes than this are read by one list.
const BY_NAME_AT_MOST: usize = 10;

/// How old the nodes may be that a poll rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The last read of the table, or the last list.
    pub table_max_age: Duration,
    /// The last list of whole nodes.
    pub whole_max_age: Duration,
    /// The last read that had labels and deletions, where routes and load balancers need them.
    pub metadata_max_age: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct Nodes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By name.
    nodes: Arc<Vec<Arc<Node>>>,
    /// In the same order.
    notes: Vec<Note>,
    /// When the last read of the table, or the last list, began.
    polled: Option<Instant>,
    /// When the last read of the table with metadata began.
    shown: Option<Instant>,
    /// When the last list began.
    listed: Option<Instant>,
    /// The same, where it was not answered from the API server's cache.
    listed_latest: Option<Instant>,
    /// When the table was last found to be odd.
    odd: Option<Instant>,
    /// Nodes that changed and could not be read, which was logged.
    unread: HashSet<String>,
}

/// What is known of a node beside itself.
#[derive(Clone, Copy, Debug)]
struct Note {
    /// Before the call that read it.
    asked: Instant,
    /// After the call that first read this very node, by its UID.
    first_seen: Instant,
    aged: Option<Aged>,
}

impl Note {
    /// Read by a call that was begun then, and answered now.
    fn of_new(asked: Instant) -> Note {
        Note {
            asked,
            first_seen: Instant::now(),
            aged: None,
        }
    }
}

/// A node that changed, with the age that the table shows; none for one that it does not show.
#[derive(Debug)]
struct ChangedRow {
    name: String,
    age: Option<Age>,
}

impl Nodes {
    /// All nodes, read whole no longer ago than that.
    pub(super) fn whole(
        &self,
        kube: &Client,
        max_age: Duration,
        from: ReadFrom,
    ) -> Result<View<Vec<Arc<Node>>>, Error> {
        let mut state = turn(&self.state);
        // An answer from the API server's cache, however young, may show an old state.
        let listed = match from {
            ReadFrom::Cache => state.listed,
            ReadFrom::Latest => state.listed_latest,
        };
        if !is_younger(listed, max_age) {
            state.list(kube, from)?;
        }
        Ok(state.view())
    }

    /// All nodes, as fresh as the table.
    pub(super) fn poll(&self, kube: &Client, poll: Poll) -> Result<View<Vec<Arc<Node>>>, Error> {
        let mut state = turn(&self.state);
        let wants_metadata = poll
            .metadata_max_age
            .is_some_and(|age| !is_younger(state.shown.max(state.listed), age));
        let detail = match wants_metadata {
            true => Detail::Metadata,
            false => Detail::Cells,
        };
        if !is_younger(state.listed, poll.whole_max_age) {
            state.list(kube, ReadFrom::Cache)?;
        } else if wants_metadata || !is_younger(state.polled, poll.table_max_age) {
            match is_younger(state.odd, poll.whole_max_age) {
                true => state.list(kube, ReadFrom::Cache)?,
                false => state.read_table(kube, detail)?,
            }
        }
        Ok(state.view())
    }

    /// All nodes, those of these names read whole no longer ago than that.
    pub(super) fn again(
        &self,
        kube: &Client,
        names: &[String],
        max_age: Duration,
    ) -> Result<View<Vec<Arc<Node>>>, Error> {
        let mut state = turn(&self.state);
        if state.polled.is_none() {
            state.list(kube, ReadFrom::Cache)?;
        }
        let is_old = |place: usize| state.notes[place].asked.elapsed() > max_age;
        let old = names
            .iter()
            .filter(|name| state.place(name).is_ok_and(is_old));
        let old = old.map(|name| ChangedRow {
            name: name.clone(),
            age: None,
        });
        let old: Vec<ChangedRow> = old.collect();
        state.read(kube, &old)?;
        Ok(state.view())
    }

    /// A node as a write of ours, begun then, was answered. One that is not known is left to the next poll, and one
    /// that was read since the write began may be newer than its answer.
    pub(super) fn written(&self, node: Node, begun: Instant) {
        let mut state = turn(&self.state);
        if let Ok(place) = state.place(node.name())
            && state.nodes[place].metadata.uid == node.metadata.uid
            && state.notes[place].asked <= begun
        {
            state.put(node, begun);
        }
    }

    /// When this very node was first read; none: it is not known, or another one has its name.
    pub(super) fn first_seen(&self, node: &Node) -> Option<Instant> {
        let state = turn(&self.state);
        let place = state.place(node.name()).ok()?;
        let is_same = state.nodes[place].metadata.uid == node.metadata.uid;
        is_same.then(|| state.notes[place].first_seen)
    }

    /// As they were last seen; none before the first list.
    pub(super) fn last(&self) -> Option<View<Vec<Arc<Node>>>> {
        let state = turn(&self.state);
        state.polled.map(|_| state.view())
    }
}

/// What a node keeps from one list to the next.
#[derive(Clone, Copy, Debug)]
struct Kept {
    first_seen: Instant,
    aged: Option<Aged>,
}

/// Of this very node: another one with its name has another.
fn fingerprint(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.metadata.uid.hash(&mut hasher);
    hasher.finish()
}

fn is_younger(moment: Option<Instant>, max_age: Duration) -> bool {
    moment.is_some_and(|moment| moment.elapsed() <= max_age)
}

impl State {
    fn view(&self) -> View<Vec<Arc<Node>>> {
        let now = Instant::now();
        View {
            value: Arc::clone(&self.nodes),
            asked: self.polled.unwrap_or(now),
            answered: now,
        }
    }

    /// Where it is; the error: where it would be.
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.name().cmp(name))
    }

    /// Reads all nodes whole.
    fn list(&mut self, kube: &Client, from: ReadFrom) -> Result<(), Error> {
        let asked = Instant::now();
        let kept = self.kept();
        if self.nodes.len() > KEPT_AT_MOST {
            self.give_up();
        }
        let mut nodes = kube.nodes(from)?;
        // etcd's order is nearly ours.
        nodes.sort_unstable_by(|left, right| left.name().cmp(right.name()));
        let now = Instant::now();
        let notes = nodes.iter().map(|node| {
            let kept = kept.get(&fingerprint(node));
            Note {
                asked,
                first_seen: kept.map_or(now, |kept| kept.first_seen),
                aged: kept.and_then(|kept| kept.aged),
            }
        });
        self.notes = notes.collect();
        self.nodes = Arc::new(nodes);
        self.polled = Some(asked);
        self.listed = Some(asked);
        self.listed_latest = (from == ReadFrom::Latest).then_some(asked);
        self.unread.clear();
        Ok(())
    }

    /// For those nodes that the next list holds as well.
    fn kept(&self) -> HashMap<u64, Kept> {
        let known = self.nodes.iter().zip(&self.notes);
        let kept = |note: &Note| Kept {
            first_seen: note.first_seen,
            aged: note.aged,
        };
        known
            .map(|(node, note)| (fingerprint(node), kept(note)))
            .collect()
    }

    /// Two lists of thousands of nodes would be most of the memory. Until the next one is there
    /// nothing is known: a controller that needs nodes meanwhile lists them.
    fn give_up(&mut self) {
        self.nodes = Arc::default();
        self.notes = Vec::new();
        (self.polled, self.shown, self.listed) = (None, None, None);
    }

    /// Reads the table, and reads whole the nodes that changed.
    fn read_table(&mut self, kube: &Client, detail: Detail) -> Result<(), Error> {
        let asked = Instant::now();
        let rows = match kube.node_table(detail)? {
            NodeTable::Rows(rows) => rows,
            NodeTable::Unreadable(why) => {
                if self.odd.is_none() {
                    log::warn!(
                        "the API server's table of nodes is not one that ccm can read ({why}); whole nodes are \
                         read at every poll instead, which costs more"
                    );
                }
                self.odd = Some(asked);
                return self.list(kube, ReadFrom::Cache);
            }
        };
        self.odd = None;
        let changed = self.changed_rows(rows, asked);
        self.read(kube, &changed)?;
        self.polled = Some(asked);
        if detail == Detail::Metadata {
            self.shown = Some(asked);
        }
        Ok(())
    }

    /// The nodes whose rows differ from what is known; of the others it keeps the ages.
    fn changed_rows(&mut self, rows: Vec<NodeRow>, now: Instant) -> Vec<ChangedRow> {
        let mut is_shown = vec![false; self.nodes.len()];
        let mut changed = Vec::new();
        for row in rows {
            if let Ok(place) = self.place(&row.name) {
                is_shown[place] = true;
                let note = &mut self.notes[place];
                if !has_changed(&row, &self.nodes[place], note.aged, now) {
                    note.aged = row.age.map(|age| Aged::new(age, now));
                    continue;
                }
            }
            changed.push(ChangedRow {
                name: row.name,
                age: row.age,
            });
        }
        let gone = self.nodes.iter().zip(is_shown).filter(|(_, shown)| !shown);
        changed.extend(gone.map(|(node, _)| ChangedRow {
            name: node.name().to_owned(),
            age: None,
        }));
        changed
    }

    /// Reads these whole. One that can't be read stays as it is known, and counts as changed at the next poll.
    fn read(&mut self, kube: &Client, changed: &[ChangedRow]) -> Result<(), Error> {
        if changed.len() > BY_NAME_AT_MOST {
            self.list(kube, ReadFrom::Cache)?;
            for row in changed {
                self.reset_age(row);
            }
            return Ok(());
        }
        for row in changed {
            let asked = Instant::now();
            match kube.node(&row.name) {
                Ok(Some(node)) => {
                    self.put(node, asked);
                    self.reset_age(row);
                }
                Ok(None) => self.remove(&row.name),
                // The next one would be asked of the same server.
                Err(error) if error.is_unavailable() || error.is_permanent() => {
                    return Err(error);
                }
                Err(error) => {
                    if self.unread.insert(row.name.clone()) {
                        log::warn!("node/{}: not read, tried again: {error}", row.name);
                    }
                    continue;
                }
            }
            self.unread.remove(&row.name);
        }
        Ok(())
    }

    /// From now on its age grows from what the table showed.
    fn reset_age(&mut self, row: &ChangedRow) {
        if let Ok(place) = self.place(&row.name)
            && let Some(age) = row.age
        {
            self.notes[place].aged = Some(Aged::new(age, Instant::now()));
        }
    }

    fn put(&mut self, node: Node, asked: Instant) {
        let place = self.place(node.name());
        let nodes = Arc::make_mut(&mut self.nodes);
        match place {
            Ok(place) => {
                let note = &mut self.notes[place];
                match nodes[place].metadata.uid == node.metadata.uid {
                    true => note.asked = asked,
                    false => *note = Note::of_new(asked),
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
        if let Ok(place) = self.place(name) {
            Arc::make_mut(&mut self.nodes).remove(place);
            self.notes.remove(place);
        }
    }
}
