//! Interned strings. A text that many objects contain, e.g. a label key, a type or a location, is stored only once in
//! memory.
//!
//! For example, five thousand nodes have the same dozen label keys, and mostly the same values. A list of nodes would
//! take several times as much memory if each node had its own copies of these texts.

use super::heartbeat::lock;
use super::order;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex};

/// A string that is cheap to clone. Equal strings share their memory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Interned(Arc<str>);

/// The smallest number of interned strings at which the pool of all interned strings is searched for unused strings,
/// which are then removed.
const SWEEP_AT_LEAST: usize = 1024;

/// All interned strings, including strings that are not used any more and not removed yet.
#[derive(Default)]
struct Pool {
    strings: HashSet<Arc<str>>,
    /// The number of interned strings at which the pool next searches for unused strings and removes them.
    sweep_at: usize,
}

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

impl Pool {
    fn intern(&mut self, text: &str) -> Interned {
        let strings = &mut self.strings;
        if let Some(known) = strings.get(text) {
            return Interned(Arc::clone(known));
        }
        if strings.len() >= self.sweep_at.max(SWEEP_AT_LEAST) {
            strings.retain(|string| Arc::strong_count(string) > 1);
            self.sweep_at = strings.len() * 2;
        }
        let string: Arc<str> = text.into();
        strings.insert(Arc::clone(&string));
        Interned(string)
    }
}

impl Interned {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Interned {
    fn from(text: &str) -> Interned {
        lock(&POOL).intern(text)
    }
}

impl From<String> for Interned {
    fn from(text: String) -> Interned {
        Interned::from(text.as_str())
    }
}

impl Default for Interned {
    fn default() -> Interned {
        Interned::from("")
    }
}

impl Deref for Interned {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<&str> for Interned {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Display for Interned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Interned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for Interned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// The labels or annotations of a node, sorted by key. A clone of them is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels(Arc<[(Interned, Interned)]>);

impl NodeLabels {
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(have, _)| (**have).cmp(key)).ok()?;
        Some(&self.0[place].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// Collects labels. When a key occurs more than once, the last value is kept.
impl<K: Into<Interned>, V: Into<Interned>> FromIterator<(K, V)> for NodeLabels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> NodeLabels {
        let all = order::map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())));
        NodeLabels(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_memory_and_unused_ones_are_dropped() {
        let mut pool = Pool::default();
        let kept = pool.intern("kubernetes.io/os");
        assert!(Arc::ptr_eq(&kept.0, &pool.intern("kubernetes.io/os").0));
        for n in 0..SWEEP_AT_LEAST * 5 {
            pool.intern(&format!("worker-{n}"));
            let count = pool.strings.len();
            assert!(count <= SWEEP_AT_LEAST, "{count} strings for one in use");
        }
        assert!(Arc::ptr_eq(&kept.0, &pool.intern("kubernetes.io/os").0));
    }
}
