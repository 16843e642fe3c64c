//! The nodes as we know them, each with its age; and how they are kept fresh for little.
//!
//! The first look, and one every few minutes, reads whole nodes. In between the poll reads a
//! table, and whole only those nodes that it shows otherwise than we know them (see `bell`):
//! a few by name, many by one list. What a table can't show – a taint, an address – is as old
//! as the last whole look, or younger where somebody asks for those nodes again.

use super::bell::{self, Aged};
use super::cached::{View, turn};
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
    /// The last look at the table, or at everything.
    pub look_max_age: Duration,
    /// The last look at everything.
    pub whole_max_age: Duration,
    /// The last look that showed labels and deletions, where somebody needs them: routes and
    /// load balancers follow them.
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
    /// When the last look at the table or at everything began.
    looked: Option<Instant>,
    /// When the last look at the table with metadata began.
    shown: Option<Instant>,
    /// When the last look at everything began.
    listed: Option<Instant>,
    /// The same, when it was no look at the API server's cache.
    listed_latest: Option<Instant>,
    /// When the table was last found to be odd.
    odd: Option<Instant>,
    /// Nodes that rang and could not be read, which was told.
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

/// A node that rang, with the age that the table shows; none for one that it does not show.
#[derive(Debug)]
struct Rung {
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
        // A look at the cache, however young, may show what was long ago.
        let listed = match from {
            ReadFrom::Cache => state.listed,
            ReadFrom::Latest => state.listed_latest,
        };
        if !is_younger(listed, max_age) {
            state.list(kube, from)?;
        }
        Ok(state.view())
    }

    /// All nodes, as fresh as the bell.
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
        } else if wants_metadata || !is_younger(state.looked, poll.look_max_age) {
            match is_younger(state.odd, poll.whole_max_age) {
                true => state.list(kube, ReadFrom::Cache)?,
                false => state.look(kube, detail)?,
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
        if state.looked.is_none() {
            state.list(kube, ReadFrom::Cache)?;
        }
        let is_old = |place: usize| state.notes[place].asked.elapsed() > max_age;
        let old = names
            .iter()
            .filter(|name| state.place(name).is_ok_and(is_old));
        let old = old.map(|name| Rung {
            name: name.clone(),
            age: None,
        });
        let old: Vec<Rung> = old.collect();
        state.read(kube, &old)?;
        Ok(state.view())
    }

    /// A node as a write of ours, begun then, was answered. One that is not known is left to the
    /// bell, and one that was read since the write began may be newer than its answer.
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

    /// As they were last seen; none before the first look.
    pub(super) fn last(&self) -> Option<View<Vec<Arc<Node>>>> {
        let state = turn(&self.state);
        state.looked.map(|_| state.view())
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
            asked: self.looked.unwrap_or(now),
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
        self.looked = Some(asked);
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
    /// nothing is known: whoever wants nodes meanwhile lists them.
    fn give_up(&mut self) {
        self.nodes = Arc::default();
        self.notes = Vec::new();
        (self.looked, self.shown, self.listed) = (None, None, None);
    }

    /// Looks at the table, and reads whole what rings.
    fn look(&mut self, kube: &Client, detail: Detail) -> Result<(), Error> {
        let asked = Instant::now();
        let rows = match kube.node_table(detail)? {
            NodeTable::Rows(rows) => rows,
            NodeTable::Unreadable(why) => {
                if self.odd.is_none() {
                    log::warn!(
                        "the API server's table of nodes is not one that ccm can read ({why}); whole nodes are \
                         read at every look instead, which costs more"
                    );
                }
                self.odd = Some(asked);
                return self.list(kube, ReadFrom::Cache);
            }
        };
        self.odd = None;
        let rung = self.rung(rows, asked);
        self.read(kube, &rung)?;
        self.looked = Some(asked);
        if detail == Detail::Metadata {
            self.shown = Some(asked);
        }
        Ok(())
    }

    /// The nodes that the table shows otherwise than we know them; of the others it keeps the ages.
    fn rung(&mut self, rows: Vec<NodeRow>, now: Instant) -> Vec<Rung> {
        let mut is_shown = vec![false; self.nodes.len()];
        let mut rung = Vec::new();
        for row in rows {
            if let Ok(place) = self.place(&row.name) {
                is_shown[place] = true;
                let note = &mut self.notes[place];
                if !bell::rings(&row, &self.nodes[place], note.aged, now) {
                    note.aged = row.age.map(|age| Aged::new(age, now));
                    continue;
                }
            }
            rung.push(Rung {
                name: row.name,
                age: row.age,
            });
        }
        let gone = self.nodes.iter().zip(is_shown).filter(|(_, shown)| !shown);
        rung.extend(gone.map(|(node, _)| Rung {
            name: node.name().to_owned(),
            age: None,
        }));
        rung
    }

    /// Reads these whole. One that can't be read stays as it is known, and rings again.
    fn read(&mut self, kube: &Client, rung: &[Rung]) -> Result<(), Error> {
        if rung.len() > BY_NAME_AT_MOST {
            self.list(kube, ReadFrom::Cache)?;
            for rung in rung {
                self.reset_age(rung);
            }
            return Ok(());
        }
        for rung in rung {
            let asked = Instant::now();
            match kube.node(&rung.name) {
                Ok(Some(node)) => {
                    self.put(node, asked);
                    self.reset_age(rung);
                }
                Ok(None) => self.remove(&rung.name),
                // The next one would be asked of the same server.
                Err(error) if error.is_unavailable() || error.is_permanent() => {
                    return Err(error);
                }
                Err(error) => {
                    if self.unread.insert(rung.name.clone()) {
                        log::warn!("node/{}: not read, tried again: {error}", rung.name);
                    }
                    continue;
                }
            }
            self.unread.remove(&rung.name);
        }
        Ok(())
    }

    /// From now on its age grows from what the table showed.
    fn reset_age(&mut self, rung: &Rung) {
        if let Ok(place) = self.place(&rung.name)
            && let Some(age) = rung.age
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
