//! Limits the memory that all Services take. There is one limit for each namespace and one for all namespaces together.
//! When a limit is exceeded, the youngest Services lose their large fields, which are the annotations, the source
//! ranges and the ports. The older Services are kept with all fields.
//!
//! A list is read Service by Service. The large fields of a Service that is above a limit are dropped at once, so that
//! the Services in memory never exceed the limits. Once a Service is above a limit, all younger Services are above the
//! limit too. The result therefore does not depend on the order of the list.

use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap};

/// The first 1,024 bytes of each Service do not count towards the memory limits of all Services. This is enough for a
/// Service with eight usual annotations and three ports. A Service of at most this size therefore keeps all its fields,
/// however large other Services are.
const ALWAYS_KEPT: usize = 1 << 10;

/// How many bytes of memory the Services of one namespace may take together. The first [`ALWAYS_KEPT`] bytes of each
/// Service are not counted. The annotations of a Service are stored only up to 32 kB, and about 130 Services of that
/// size fit into this limit.
const OF_NAMESPACE: usize = 4 << 20;

/// How many bytes of memory all Services together may take. The first [`ALWAYS_KEPT`] bytes of each Service are not
/// counted. One Service alone can use the whole limit, and while the changes to its load balancer are computed, up to
/// three copies of its annotations are in memory. Three times this limit must therefore fit into the Pod's memory
/// limit, which is 64 MiB in the shipped manifest.
const IN_TOTAL: usize = 8 << 20;

/// The limit on memory that was exceeded, so that a Service lost its large fields (annotations, source ranges and
/// ports).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    Namespace,
    Total,
}

/// The creation time and the UID of a Service. The older of two Services has the smaller value.
pub(super) type Age = (Option<Timestamp>, String);

/// Decides which Services keep their large fields (annotations, source ranges and ports) in memory, so that all
/// Services together take limited memory. The budget counts the Services while a list is read. When a single Service is
/// read later by its name, the budget of the last list decides whether this Service keeps its large fields.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceBudget {
    namespaces: HashMap<String, LimitShare>,
    total: LimitShare,
}

/// A limit on the memory that Services take, and the Services whose sizes are added up for it. There is one such limit
/// for each namespace, and one for all namespaces together.
#[derive(Clone, Debug, Default)]
struct LimitShare {
    /// The Services whose annotations and other large fields are kept in memory, the oldest first. The memory limit
    /// applies to the sum of their sizes, which is `bytes`.
    kept: BTreeMap<Age, CountedService>,
    bytes: usize,
    /// The creation time and UID of the oldest Service that does not fit into the memory limit. All younger Services
    /// count as not fitting either. `None` means that all Services fit.
    cut: Option<Age>,
}

#[derive(Clone, Debug)]
struct CountedService {
    bytes: usize,
    place: usize,
    namespace: String,
}

impl Above {
    /// Returns a message for the user. It says that the Services together exceed this memory limit, so the Service's
    /// annotations are not read and its load balancer stays unchanged, and what to do.
    pub fn message(self, namespace: &str) -> String {
        let (whose, limit) = match self {
            Above::Namespace => (format!("the Services of namespace {namespace}"), OF_NAMESPACE),
            Above::Total => ("the Services of all namespaces".to_owned(), IN_TOTAL),
        };
        let limit = limit >> 20;
        format!(
            "ccm leaves the load balancer of this Service unchanged, because {whose} have more than {limit} \
             MiB of annotations, ports and source ranges together. ccm reads older Services first, and this Service \
             does not fit any more; remove annotations or Services, or shorten long lists"
        )
    }
}

impl ServiceBudget {
    /// Adds a Service of this size, which has the index `place` in the list. When a limit is now exceeded, returns the
    /// indexes of all Services that must lose their annotations and other large fields. The added Service itself can be
    /// among them.
    pub(super) fn add(
        &mut self,
        namespace: &str,
        age: &Age,
        bytes: usize,
        place: usize,
    ) -> Vec<usize> {
        let Some(bytes) = bytes.checked_sub(ALWAYS_KEPT).filter(|more| *more > 0) else {
            return Vec::new();
        };
        let namespace = namespace.to_owned();
        let counted = CountedService { bytes, place, namespace: namespace.clone() };
        let share = self.namespaces.entry(namespace).or_default();
        let mut above = share.add(age, counted.clone(), OF_NAMESPACE);
        let is_kept = above.iter().all(|(_, one)| one.place != place);
        for (age, _) in &above {
            self.total.remove(age);
        }
        if is_kept {
            let more = self.total.add(age, counted, IN_TOTAL);
            for (age, one) in &more {
                if let Some(share) = self.namespaces.get_mut(&one.namespace) {
                    share.remove(age);
                }
            }
            above.extend(more);
        }
        above.into_iter().map(|(_, one)| one.place).collect()
    }

    /// Forgets the memory that was counted for the Services from the index `place` to the end of the list, because this
    /// part of the list is read again.
    pub(super) fn forget_from(&mut self, place: usize) {
        if place == 0 {
            *self = ServiceBudget::default();
            return;
        }
        let shares = self.namespaces.values_mut().chain([&mut self.total]);
        for share in shares {
            share.kept.retain(|_, one| one.place < place);
            share.bytes = share.kept.values().map(|counted| counted.bytes).sum();
        }
    }

    /// Returns the limit because of which a Service of this age and size must lose its annotations and other large
    /// fields. Returns `None` when the Service keeps all its fields. The result depends on how much memory the Services
    /// of the last list take.
    pub(super) fn is_above(&self, namespace: &str, age: &Age, bytes: usize) -> Option<Above> {
        if bytes <= ALWAYS_KEPT { None } else { self.cut(namespace, age) }
    }

    /// Returns the memory limit, for this namespace or for all namespaces, that the Services older than `age` have used
    /// up. A Service of this age then loses its annotations and other large fields if it is larger than
    /// [`ALWAYS_KEPT`]. `None` means that neither limit is used up, so the Service keeps all its fields.
    pub(super) fn cut(&self, namespace: &str, age: &Age) -> Option<Above> {
        let is_cut = |share: &LimitShare| share.cut.as_ref().is_some_and(|cut| cut <= age);
        if self.namespaces.get(namespace).is_some_and(is_cut) {
            Some(Above::Namespace)
        } else {
            is_cut(&self.total).then_some(Above::Total)
        }
    }

    /// Drops the data that is needed only while the list of Services is read. The result can still decide whether a
    /// Service that is read later by its name fits into the memory limit. When it does not fit, its annotations, source
    /// ranges and ports are dropped.
    pub(super) fn ended(mut self) -> ServiceBudget {
        self.namespaces.retain(|_, share| share.cut.is_some());
        let shares = self.namespaces.values_mut().chain([&mut self.total]);
        shares.for_each(|share| share.kept = BTreeMap::new());
        self
    }
}

impl LimitShare {
    /// Adds a Service to those that share this memory limit. When they now exceed the limit, returns the Services that
    /// must lose their large fields (annotations, source ranges and ports), the youngest first.
    fn add(
        &mut self,
        age: &Age,
        counted: CountedService,
        limit: usize,
    ) -> Vec<(Age, CountedService)> {
        if self.cut.as_ref().is_some_and(|cut| cut <= age) {
            return vec![(age.clone(), counted)];
        }
        self.bytes += counted.bytes;
        self.kept.insert(age.clone(), counted);
        let mut above = Vec::new();
        while self.bytes > limit
            && let Some((age, one)) = self.kept.pop_last()
        {
            self.bytes -= one.bytes;
            self.cut = Some(age.clone());
            above.push((age, one));
        }
        above
    }

    fn remove(&mut self, age: &Age) {
        if let Some(one) = self.kept.remove(age) {
            self.bytes -= one.bytes;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LARGE: usize = 31 << 10;

    fn age(second: usize) -> Age {
        let created = Timestamp::from_second(second as i64).unwrap();
        (Some(created), format!("uid-{second}"))
    }

    /// Adds these Services in this order to a [`ServiceBudget`], which limits the memory of all Services. Returns the
    /// Services that keep all their fields. Each Service is given as its namespace, its creation time in seconds, and
    /// its size in bytes.
    fn kept(services: &[(String, usize, usize)]) -> Vec<(String, usize)> {
        let mut budget = ServiceBudget::default();
        let mut is_kept = vec![true; services.len()];
        for (place, (namespace, second, bytes)) in services.iter().enumerate() {
            for above in budget.add(namespace, &age(*second), *bytes, place) {
                is_kept[above] = false;
            }
            assert!(budget.total.bytes <= IN_TOTAL);
        }
        let budget = budget.ended();
        let mut kept = Vec::new();
        for ((namespace, second, bytes), is_kept) in services.iter().zip(is_kept) {
            let above = budget.is_above(namespace, &age(*second), *bytes);
            assert_eq!(above.is_none(), is_kept, "{namespace} {second}");
            kept.extend(is_kept.then(|| (namespace.clone(), *second)));
        }
        kept.sort();
        kept
    }

    #[test]
    fn the_oldest_of_a_namespace_come_first_whatever_the_order_of_the_list() {
        let greedy = (0..1000).map(|second| ("greedy".to_owned(), second, LARGE));
        let small = (1000..1100).map(|second| ("greedy".to_owned(), second, ALWAYS_KEPT));
        let other = (2000..2100).map(|second| ("other".to_owned(), second, LARGE));
        let mut services: Vec<_> = greedy.chain(small).chain(other).collect();
        let first = kept(&services);
        let fit = OF_NAMESPACE / (LARGE - ALWAYS_KEPT);
        let of = |namespace: &str| -> Vec<usize> {
            first.iter().filter(|(of, _)| of == namespace).map(|(_, second)| *second).collect()
        };
        let expected: Vec<usize> = (0..fit).chain(1000..1100).collect();
        assert_eq!((of("greedy"), of("other").len()), (expected, 100));
        services.reverse();
        assert_eq!(kept(&services), first);
        services.sort_by_key(|(_, second, _)| second * 7919 % 1009);
        assert_eq!(kept(&services), first);
    }

    #[test]
    fn the_oldest_of_all_come_first_in_total() {
        // Each of ten namespaces has 100 Services. The Services of one namespace fit into the memory limit of a
        // namespace, but all 1,000 Services together do not fit into the limit of all namespaces.
        let of = |number: usize| {
            let all = 0..100;
            all.map(move |n| (format!("n-{number}"), number * 100 + n, LARGE))
        };
        let mut services: Vec<_> = (0..10).flat_map(of).collect();
        let first = kept(&services);
        let seconds: Vec<usize> = first.iter().map(|(_, second)| *second).collect();
        let fit = IN_TOTAL / (LARGE - ALWAYS_KEPT);
        assert_eq!(seconds, (0..fit).collect::<Vec<_>>());
        services.reverse();
        assert_eq!(kept(&services), first);
    }

    #[test]
    fn a_part_that_is_read_again_counts_once() {
        let mut budget = ServiceBudget::default();
        for _ in 0..3 {
            budget.forget_from(1);
            assert!(budget.add("a", &age(1), LARGE, 1).is_empty());
        }
        assert_eq!(budget.total.bytes, LARGE - ALWAYS_KEPT);
    }
}
