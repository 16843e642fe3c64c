//! The trait of all controllers. A controller works in ticks, i.e. sync passes. Each tick checks some objects, makes
//! the necessary changes, and returns a report.

use crate::cache::{self, Apis, Poll, ReadFrom};
use crate::provider::{Description, Reason};
use crate::text;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// The length to which a message in the log or in an event is cut, in characters.
pub(super) const MESSAGE_CHARACTERS_AT_MOST: usize = 1000;

/// A control loop of this cloud-controller-manager, e.g. the node controller.
pub trait Controller: Send {
    /// Returns the name of the controller, e.g. `cloud-node-controller`. Upstream Kubernetes uses the same names.
    fn name(&self) -> &'static str;

    /// Returns how long the daemon waits after the end of one sync pass before it begins the next sync pass.
    fn interval(&self) -> Duration;

    /// Makes one sync pass: checks the objects in `selection`, and makes the changes that they need. A change that the
    /// cloud is still carrying out (`Progress::Unfinished`) is continued in the next sync pass.
    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report;

    /// Reads the state and makes plans like a sync pass, but writes nothing. Returns the changes that a sync pass would
    /// make now.
    fn propose(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<Proposal>, cache::CacheError>;
}

/// The changes that a sync pass would make to one object, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The name of the object, e.g. `node/worker-1`.
    pub object: String,
    pub changes: Description,
    /// The reason why some necessary changes can't be made. `None` means that all of them can be made.
    pub obstacle: Option<String>,
    /// The warning that the object is not changed, because its provider ID can't be used, e.g. because a setting is
    /// missing. Without the warning, a plan without changes would look as if the object needed no change.
    pub warning: Option<String>,
}

impl Proposal {
    /// Adds the changes of another proposal for the same object. When both proposals have an `obstacle` (a reason why
    /// something can't be done), only that of `self` is kept. The same is true for `warning`.
    pub fn and(mut self, other: Proposal) -> Proposal {
        self.changes = [self.changes, other.changes].into_iter().collect();
        self.obstacle = self.obstacle.or(other.obstacle);
        self.warning = self.warning.or(other.warning);
        self
    }
}

/// The objects that a sync pass of a controller works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Only the objects that need a check or a retry now.
    Due,
    /// All objects, even those that need no check yet. A person has asked for them.
    All,
    /// Only the objects with these names. A person has named them, so they are checked even if no check is due.
    Names(BTreeSet<String>),
}

impl Selection {
    /// Whether the selection can contain every object, i.e. is not limited to objects with certain names.
    pub fn is_of_all(&self) -> bool {
        !matches!(self, Selection::Names(_))
    }

    /// Whether a person asked for these objects, e.g. by a command. Such objects are worked on at once, even while they
    /// wait for a retry after a failure.
    pub fn is_explicit(&self) -> bool {
        *self != Selection::Due
    }

    /// Returns all nodes.
    ///
    /// When a person asked for the objects, returns complete Node objects that were read at most `table_max_age` ago.
    ///
    /// Otherwise, a complete Node object can be as old as `whole_max_age`, if the node has not changed since it was
    /// read. A table with a few columns of each node shows which nodes have changed, and only these nodes are read
    /// completely again. The table is at most `table_max_age` old.
    pub(super) fn nodes(
        &self,
        apis: &Apis,
        table_max_age: Duration,
        whole_max_age: Duration,
    ) -> Result<cache::ListedNodes, cache::CacheError> {
        if self.is_explicit() {
            return apis.nodes.whole(table_max_age, ReadFrom::Latest);
        }
        apis.nodes.poll(Poll { table_max_age, whole_max_age, metadata_max_age: None })
    }

    pub fn names(&self, name: &str) -> bool {
        match self {
            Selection::Due | Selection::All => true,
            Selection::Names(names) => names.contains(name),
        }
    }
}

/// The results of one sync pass. The numbers of changed, unchanged and failed objects are counted from `objects` and
/// `failures`.
#[derive(Debug, Default)]
pub struct Report {
    /// The changes in the order in which they were made. Each has the name of the object, and a line of text about the
    /// change.
    pub changes: Vec<(String, String)>,
    /// The objects that failed and why, in the order in which they failed.
    pub failures: Vec<Failure>,
    /// What the sync pass has achieved for each object, by the name of the object, e.g. `node/worker-1`.
    pub(super) objects: BTreeMap<String, Progress>,
    /// The number of changes in all plans of the sync pass, including changes that were not made.
    pub planned: usize,
    /// The number of load balancers of this cluster whose Service does not exist. `None` means that this sync pass did
    /// not search for such load balancers.
    pub orphans: Option<usize>,
    /// Set when an API did not answer, so that some or all of the work could not be done in this sync pass.
    pub outage: Option<Outage>,
}

/// The outcome for one object that did not fail. When several outcomes are reported for the same object, the one
/// that counts is the one whose variant is declared last in this enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// The object was already as it should be.
    Unchanged,
    /// The object was changed, and is as it should be now.
    Changed,
    /// The sync pass has ended, but the cloud is still carrying out changes of the object. The next sync pass begins at
    /// once and goes on with these changes.
    Unfinished,
    /// The sync pass ended before the work on the object was begun or finished.
    Unreached,
}

/// The numbers of objects that a sync pass has changed, has left unchanged, could not change as necessary, or has not
/// reached before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub changed: usize,
    pub unchanged: usize,
    pub failed: usize,
    #[serde(skip)]
    pub unreached: usize,
}

/// An object for which the sync pass could not do what is necessary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name of the object, e.g. `node/worker-1`.
    pub object: String,
    pub why: String,
    /// The reason of the finding (a message for the operator in the log and the events) that has already reported this
    /// failure. `None` means that no finding has reported it.
    pub finding: Option<Reason>,
}

impl Failure {
    /// Returns why the object failed, cut to the greatest length of a message in the log.
    pub fn short_why(&self) -> Cow<'_, str> {
        text::cut(&self.why, MESSAGE_CHARACTERS_AT_MOST)
    }
}

/// The error of an API that did not answer, and the work that could not be done because of it.
#[derive(Debug)]
pub struct Outage {
    pub error: cache::CacheError,
    /// A text about the work that could not be done, e.g. `2 nodes wait`. The text is empty when no work was left.
    pub waiting: String,
}

/// Returns a text such as `2 nodes wait`, or an empty text when `count` is 0. `what` is the word for one object, e.g.
/// `node`.
pub(super) fn waiting(count: usize, what: &str) -> String {
    match count {
        0 => String::new(),
        1 => format!("1 {what} waits"),
        count => format!("{count} {what}s wait"),
    }
}

impl From<cache::CacheError> for Outage {
    /// Returns an outage (the report that an API did not answer) with this error. Its text about the work that waits is
    /// empty.
    fn from(error: cache::CacheError) -> Outage {
        Outage { error, waiting: String::new() }
    }
}

impl Report {
    pub fn outage(error: cache::CacheError, waiting: String) -> Report {
        Report { outage: Some(Outage { error, waiting }), ..Report::default() }
    }

    pub(super) fn fail(&mut self, object: String, why: String, finding: Option<Reason>) {
        let failure = Failure { object, why, finding };
        self.failures.push(failure);
    }

    /// Adds a line to `changes` for each change that was made to the object.
    pub(super) fn add_changes(&mut self, object: &str, made: &Description) {
        self.changes.extend(made.done().into_iter().map(|line| (object.to_owned(), line)));
    }

    pub fn note(&mut self, object: String, progress: Progress) {
        let known = self.objects.entry(object).or_insert(progress);
        *known = progress.max(*known);
    }

    /// Adds the objects, changes and failures of another report to this report.
    pub fn merge(&mut self, other: Report) {
        self.outage = self.outage.take().or(other.outage);
        self.orphans = other.orphans.or(self.orphans);
        self.planned += other.planned;
        self.changes.extend(other.changes);
        self.failures.extend(other.failures);
        for (object, progress) in other.objects {
            self.note(object, progress);
        }
    }

    pub fn counts(&self) -> Counts {
        let failed: HashSet<&str> =
            self.failures.iter().map(|failure| failure.object.as_str()).collect();
        let mut counts = Counts { failed: failed.len(), ..Counts::default() };
        for (object, progress) in &self.objects {
            let has_failed = failed.contains(object.as_str());
            match progress {
                Progress::Changed if !has_failed => counts.changed += 1,
                Progress::Unchanged if !has_failed => counts.unchanged += 1,
                Progress::Unreached => counts.unreached += 1,
                Progress::Changed | Progress::Unchanged | Progress::Unfinished => {}
            }
        }
        counts
    }

    /// Whether the sync pass has finished the work on every object, and the cloud is not carrying out any change any
    /// more.
    pub fn is_complete(&self) -> bool {
        !self.has(Progress::Unfinished) && !self.has(Progress::Unreached)
    }

    /// Whether any object has this `progress`, e.g. `Changed` or `Unreached`, at the end of the sync pass.
    pub fn has(&self, progress: Progress) -> bool {
        self.objects.values().any(|object| *object == progress)
    }
}

impl Progress {
    pub(super) fn in_order(is_changed: bool) -> Progress {
        if is_changed { Progress::Changed } else { Progress::Unchanged }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.changed += other.changed;
        self.unchanged += other.unchanged;
        self.failed += other.failed;
        self.unreached += other.unreached;
    }
}

/// Writes a text such as `2 changed, 98 unchanged, 0 failed`. If the sync pass did not reach some objects, their number
/// follows.
impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (changed, unchanged, failed) = (self.changed, self.unchanged, self.failed);
        write!(f, "{changed} changed, {unchanged} unchanged, {failed} failed")?;
        match self.unreached {
            0 => Ok(()),
            count => write!(f, ", {count} not reached"),
        }
    }
}

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.waiting.is_empty() {
            write!(f, "{}: ", self.waiting)?;
        }
        self.error.fmt(f)
    }
}
