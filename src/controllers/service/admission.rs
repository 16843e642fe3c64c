//! Decides which changes of Services the controller works on now, and which namespace's share of API calls is charged
//! for them. Each namespace has a share of the calls that the cloud project allows.
//!
//! The controller works on a change while the namespace has calls left. Otherwise the change waits, and the Service is
//! planned with its spec and annotations from before the change, so that changes of nodes, Secrets and other Services
//! are still carried out. A new Service is not planned at all while its namespace has no calls left. Deletions never
//! wait. Services that exist when the process starts cost their namespace nothing until they change.

use super::agenda::{Agenda, News};
use super::plan::{Want, want};
use crate::controllers::share::{CallShare, Payer};
use crate::kube::KubeService;
use crate::provider::clock;
use crate::provider::order;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// How many API calls most changes need: a list, one or two writes, and the requests that ask whether the writes have
/// ended. A change is begun only when this many calls are left of those that ccm allows the namespace.
const CALLS_OF_A_CHANGE: f64 = 5.0;

#[derive(Default)]
pub(super) struct Admission {
    /// How many API calls the Services of each namespace may still cause, by the name of the namespace. An entry is
    /// removed when nothing uses it and all of these calls are available again.
    shares: HashMap<String, Arc<CallShare>>,
    /// The Services that want a load balancer, by UID. A new Service is not added while its namespace has used up its
    /// share of API calls.
    admitted: HashMap<String, Admitted>,
    /// The Services with a change that waits, because their namespace has used up its share of API calls, by UID. The
    /// value is the time at which the wait began.
    waiting: HashMap<String, Instant>,
    /// For each namespace, how many more changes its Services can begin before the Services are listed the next time.
    /// The number is computed from the API calls that ccm still allows the namespace.
    rooms: HashMap<String, usize>,
    has_looked: bool,
}

struct Admitted {
    /// The Service as the controller plans it. When the namespace has used up its share of API calls (the calls that
    /// ccm allows each namespace), a change of the Service has to wait. Until then, the spec and the annotations here
    /// are those from before the change.
    service: Arc<KubeService>,
    /// The share of API calls (the calls that ccm allows a namespace) from which the calls for the latest change of the
    /// Service are subtracted, until the change is carried out. `None` when it is carried out. Also `None` for a
    /// Service that existed when this process started, because only later changes are counted.
    payer: Option<Payer>,
    /// The Service as it was before its latest change, until this change is carried out. `None` when no change is being
    /// carried out, or when the earlier version is not known. If the change moves the Service to another load balancer,
    /// it can cause API calls for the other Services on the previous load balancer. They are also subtracted from the
    /// share in `payer`.
    before: Option<Arc<KubeService>>,
}

impl Admission {
    /// Lets a change of a Service wait when its namespace has too few API calls left. In `services`, each Service whose
    /// change has to wait is replaced by the Service as it was before the change, and each new Service that has to wait
    /// is removed. Returns the Services whose change begins to wait now.
    ///
    /// `busy` has one entry for each change that is already being made. An entry is the share of API calls (the calls
    /// that ccm allows a namespace) from which the calls for the change are subtracted. Each entry reduces by one the
    /// number of new changes that its namespace can begin now.
    pub(super) fn look(
        &mut self,
        services: &mut Vec<Arc<KubeService>>,
        agenda: &Agenda,
        busy: &[Payer],
    ) -> Vec<Arc<KubeService>> {
        let now = clock::now();
        let listed = std::mem::take(services);
        self.forget(&listed, now);
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let mut shown: Vec<Option<Arc<KubeService>>> = listed.iter().cloned().map(Some).collect();
        let changed = listed.iter().zip(&mut shown);
        let mut changed: Vec<_> =
            changed.filter(|(service, _)| self.is_changed(service, agenda)).collect();
        // The share of API calls that a namespace has left can be enough for only some of the changes. The changes that
        // have waited longest come first.
        order::sort_by_key(&mut changed, |(service, _)| {
            self.waiting.get(&service.metadata.uid).copied().unwrap_or(now)
        });
        self.rooms.clear();
        for (service, shown) in changed {
            if is_first {
                self.take(service, None);
            } else {
                let has_room = self.enter(&service.metadata.namespace, busy);
                *shown = self.admit(service, agenda, has_room);
            }
        }
        let mut begin_to_wait = Vec::new();
        for (service, shown) in listed.iter().zip(&shown) {
            let uid = &service.metadata.uid;
            let waits = shown.as_ref().is_none_or(|shown| asks_otherwise(shown, service));
            if !waits && !self.is_held_back(uid) {
                self.waiting.remove(uid);
            } else if !self.waiting.contains_key(uid) {
                self.waiting.insert(uid.clone(), now);
                begin_to_wait.push(Arc::clone(service));
            }
        }
        services.extend(shown.into_iter().flatten());
        begin_to_wait
    }

    /// Takes a Service that was just read again, and returns it as it is planned now. When its namespace has used up
    /// its share of API calls (the calls that ccm allows each namespace), a change has to wait. The result is then the
    /// Service as it was before the change, or `None` for a new Service.
    pub(super) fn again(
        &mut self,
        service: Arc<KubeService>,
        agenda: &Agenda,
    ) -> Option<Arc<KubeService>> {
        if !self.has_looked || !self.is_changed(&service, agenda) {
            return Some(service);
        }
        let meta = &service.metadata;
        let has_room = !self.waiting.contains_key(&meta.uid) && self.enter(&meta.namespace, &[]);
        self.admit(&service, agenda, has_room)
    }

    /// Returns the share of API calls (the calls that ccm allows one namespace) that is charged for the plan of this
    /// Service. While a change of this Service is unfinished, this is the share that was charged when the change began.
    /// Otherwise, if a change of another Service on the same load balancer is unfinished, this is the share in
    /// `of_groups`, see [`Admission::payers_of_groups`]. `None` means that no share is charged, because no change of a
    /// Service has caused the plan.
    pub(super) fn payer(
        &self,
        service: &KubeService,
        group: Option<String>,
        of_groups: &HashMap<String, Payer>,
    ) -> Option<Payer> {
        let own = self.own_payer(&service.metadata.uid);
        own.or_else(|| {
            let share = &of_groups.get(&group?)?.share;
            let own = self.shares.get(&service.metadata.namespace);
            Some(Payer {
                share: Arc::clone(share),
                can_stop: own.is_some_and(|own| Arc::ptr_eq(own, share)),
            })
        })
    }

    /// The Services that share a load balancer are a group. While a change of one Service in a group is unfinished, it
    /// can also need API calls for the other Services in the group. All these calls are subtracted from one share of
    /// API calls (the calls that ccm allows a namespace). Returns this share for each group with an unfinished change,
    /// by the key of the group.
    pub(super) fn payers_of_groups(
        &self,
        group: impl Fn(&KubeService) -> Option<String>,
    ) -> HashMap<String, Payer> {
        let mut payers = HashMap::new();
        for admitted in self.admitted.values() {
            let Some(payer) = admitted.payer.as_ref().filter(|payer| payer.can_stop) else {
                continue;
            };
            let services = admitted.before.iter().chain([&admitted.service]);
            let groups = services.filter_map(|service| group(service));
            payers.extend(groups.map(|group| (group, payer.clone())));
        }
        payers
    }

    pub(super) fn own_payer(&self, uid: &str) -> Option<Payer> {
        self.admitted.get(uid)?.payer.clone()
    }

    /// Returns the UIDs of the Services whose change was begun but can't go on now, because their namespace has nearly
    /// used up its share of API calls (the calls that ccm allows each namespace).
    pub(super) fn held_back(&self) -> impl Iterator<Item = &str> {
        self.admitted.keys().map(String::as_str).filter(|uid| self.is_held_back(uid))
    }

    fn is_held_back(&self, uid: &str) -> bool {
        let payer = self.own_payer(uid);
        payer.is_some_and(|payer| payer.can_stop && calls_left(&payer.share) < CALLS_OF_A_CHANGE)
    }

    /// Returns the UIDs of those given Services whose change waits, because their namespace has used up its share of
    /// API calls (the calls that ccm allows each namespace).
    pub(super) fn waiting_of(&self, services: &[Arc<KubeService>]) -> HashSet<String> {
        let uids = services.iter().map(|service| &service.metadata.uid);
        uids.filter(|uid| self.waiting.contains_key(*uid)).cloned().collect()
    }

    pub(super) fn is_anything_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Records that the work for a changed Service was stopped, because its namespace may make no more API calls at
    /// present. `has_begun` means that a part of the work was already done. If it is false, plans see the Service as it
    /// was before the change, until the namespace may make calls again. Returns `true` when the Service begins to wait
    /// now, and `false` when it waited already.
    pub(super) fn stopped(&mut self, uid: &str, has_begun: bool) -> bool {
        if let Some(admitted) = self.admitted.get_mut(uid)
            && let Some(before) = admitted.before.take_if(|_| !has_begun)
        {
            admitted.service = before;
            admitted.payer = None;
        }
        self.waiting.insert(uid.to_owned(), clock::now()).is_none()
    }

    /// Records that the work on the Service has ended. When the Service will be tried again, `unfinished` is the
    /// namespace from whose share of API calls the next try is paid. It is `None` when there is no other try, or when
    /// the calls are not subtracted from any share.
    pub(super) fn ended(&mut self, service: &Arc<KubeService>, unfinished: Option<Payer>) {
        if let Some(admitted) = self.admitted.get_mut(&service.metadata.uid)
            && !asks_otherwise(&admitted.service, service)
        {
            admitted.payer = unfinished;
            admitted.before = None;
        }
    }

    /// Forgets Services that do not exist any more or want no load balancer any more. Also forgets the share of API
    /// calls (the calls that ccm allows a namespace) of each namespace that has used none of them lately and whose
    /// Services are not being changed.
    fn forget(&mut self, listed: &[Arc<KubeService>], now: Instant) {
        let wanting = listed.iter().filter(|service| want(service) == Want::Ensure);
        let uids: HashSet<&str> = wanting.map(|service| &*service.metadata.uid).collect();
        self.admitted.retain(|uid, _| uids.contains(uid.as_str()));
        self.waiting.retain(|uid, _| uids.contains(uid.as_str()));
        self.shares.retain(|_, share| !share.is_full(now) || Arc::strong_count(share) > 1);
    }

    /// Whether the Service is new, or was changed in a way that needs API calls. It is compared with its version in
    /// `admitted`, from which its plans are made. When only something that needs no API calls has changed, the new
    /// version is stored in `admitted`, and the result is `false`.
    fn is_changed(&mut self, service: &Arc<KubeService>, agenda: &Agenda) -> bool {
        let uid = &service.metadata.uid;
        let known = self.admitted.get(uid);
        let is_known = known.is_some_and(|known| Arc::ptr_eq(&known.service, service));
        if is_known || want(service) != Want::Ensure {
            return false;
        }
        let news = agenda.news(service);
        if news == News::Old {
            return false;
        }
        // The large fields of this Service were dropped, because they exceed a limit of memory. The controller changes
        // nothing for the Service, so no API calls are needed.
        if service.above.is_some() {
            self.admitted.remove(uid);
            self.take(service, None);
            return false;
        }
        match self.admitted.get_mut(uid) {
            Some(known) if !asks_otherwise(&known.service, service) && news != News::Changed => {
                known.service = Arc::clone(service);
                false
            }
            _ => true,
        }
    }

    /// When the namespace of the changed Service can begin another change (`has_room`), stores the Service and returns
    /// it. Otherwise the change waits until the namespace may make more API calls. The result is then the Service as it
    /// was before the change, or `None` when the Service is new.
    fn admit(
        &mut self,
        service: &Arc<KubeService>,
        agenda: &Agenda,
        has_room: bool,
    ) -> Option<Arc<KubeService>> {
        let own = Payer { share: self.share(&service.metadata.namespace), can_stop: true };
        if has_room {
            self.take(service, Some(own));
            return Some(Arc::clone(service));
        }
        let known = self.admitted.get_mut(&service.metadata.uid)?;
        known.service = as_before(service, &known.service);
        // A change of the spec waits here, because the namespace has used up its share of API calls (the calls that ccm
        // allows it). Changes of other parts of the Service, e.g. of the finalizer, do not wait, and anybody could
        // repeat them without end. So their calls are subtracted from the share.
        if agenda.news(&known.service) == News::Changed {
            known.payer = Some(own);
        }
        Some(Arc::clone(&known.service))
    }

    fn take(&mut self, service: &Arc<KubeService>, payer: Option<Payer>) {
        let uid = &service.metadata.uid;
        let before = self.admitted.remove(uid).map(|known| known.service);
        let admitted = Admitted { service: Arc::clone(service), payer, before };
        self.admitted.insert(uid.clone(), admitted);
    }

    fn share(&mut self, namespace: &str) -> Arc<CallShare> {
        let full = || Arc::new(CallShare::full(clock::now()));
        Arc::clone(self.shares.entry(namespace.to_owned()).or_insert_with(full))
    }

    /// Counts one more change that a Service of the namespace wants to begin. Returns `false` when the namespace has
    /// too few API calls left for this change, so that the change must wait until the Services are listed the next
    /// time. `busy` has one element for each change that is being made now. The calls that these changes need are
    /// subtracted first.
    fn enter(&mut self, namespace: &str, busy: &[Payer]) -> bool {
        let share = self.share(namespace);
        let is_own = |payer: &&Payer| payer.can_stop && Arc::ptr_eq(&payer.share, &share);
        let room = self.rooms.entry(namespace.to_owned()).or_insert_with(|| {
            let being_made = busy.iter().filter(is_own).count();
            let left = calls_left(&share) / CALLS_OF_A_CHANGE;
            (left.max(0.0) as usize).saturating_sub(being_made)
        });
        let has_room = *room > 0;
        *room = room.saturating_sub(1);
        has_room
    }
}

/// A payer names the share of API calls (the calls that ccm allows one namespace) from which calls are subtracted.
/// Several of the `payers` can name the same share. Returns only the first of these, so that calls which read data for
/// all of them are subtracted from the share only once.
pub(super) fn different(payers: impl IntoIterator<Item = Payer>) -> Vec<Payer> {
    let mut different: Vec<Payer> = Vec::new();
    for payer in payers {
        let mut shares = different.iter().map(|payer| &payer.share);
        if !shares.any(|share| Arc::ptr_eq(share, &payer.share)) {
            different.push(payer);
        }
    }
    different
}

/// Subtracts this number of API calls from the share of each namespace in `payers`. The number is not divided among the
/// namespaces, because the changes of each single namespace would have needed all of these calls.
pub(super) fn charge(payers: &[Payer], calls: u64) {
    for payer in payers {
        payer.share.charge(calls as f64, clock::now());
    }
}

fn calls_left(share: &CallShare) -> f64 {
    share.left_after_reads(clock::now())
}

/// Whether two versions of a Service differ in their spec or annotations. The owner of the Service can change these
/// fields, and a change of them needs API calls.
fn asks_otherwise(one: &Arc<KubeService>, other: &Arc<KubeService>) -> bool {
    !Arc::ptr_eq(one, other)
        && (one.spec != other.spec || one.metadata.annotations != other.metadata.annotations)
}

/// A change of the Service must wait, because its namespace has used up its share of API calls. Returns the Service as
/// it was `before` the change, but with the resource version, the finalizers and the status that it has `now`.
fn as_before(now: &Arc<KubeService>, before: &Arc<KubeService>) -> Arc<KubeService> {
    if before.metadata.resource_version == now.metadata.resource_version {
        return Arc::clone(before);
    }
    let mut service = before.as_ref().clone();
    let metadata = &mut service.metadata;
    metadata.resource_version.clone_from(&now.metadata.resource_version);
    metadata.finalizers.clone_from(&now.metadata.finalizers);
    service.status.clone_from(&now.status);
    Arc::new(service)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Returns a Service of namespace `a`.
    fn service(uid: &str, version: &str, ip: &str) -> Arc<KubeService> {
        let mut service = KubeService::default();
        service.metadata.namespace = "a".into();
        service.metadata.uid = uid.into();
        service.metadata.resource_version = version.into();
        service.spec.kind = "LoadBalancer".into();
        service.spec.load_balancer_ip = ip.into();
        Arc::new(service)
    }

    /// Returns a text with the Services that are allowed to be planned, each with its UID, version and IP. Also returns
    /// the number of Services whose change begins to wait now, because their namespace has used up its share of API
    /// calls (the calls that ccm allows each namespace).
    fn look(
        admission: &mut Admission,
        agenda: &Agenda,
        listed: &[Arc<KubeService>],
    ) -> (String, usize) {
        let mut shown = listed.to_vec();
        let begin_to_wait = admission.look(&mut shown, agenda, &[]);
        let shown = shown.iter().map(|one| {
            let meta = &one.metadata;
            let (uid, version) = (&meta.uid, &meta.resource_version);
            format!("{uid} {version} {}", one.spec.load_balancer_ip)
        });
        (shown.collect::<Vec<_>>().join(", "), begin_to_wait.len())
    }

    fn use_up(admission: &mut Admission) {
        admission.share("a").charge(1000.0, clock::now());
    }

    #[test]
    fn a_change_without_calls_waits_and_everything_else_goes_on() {
        let (mut admission, agenda) = (Admission::default(), Agenda::default());
        let first = [service("one", "1", "x"), service("two", "1", "x")];
        let seen = look(&mut admission, &agenda, &first);
        assert_eq!(seen, ("one 1 x, two 1 x".into(), 0));
        assert!(admission.own_payer("one").is_none(), "the first look is free");

        let changed = [service("one", "2", "y"), service("two", "1", "x")];
        assert_eq!(look(&mut admission, &agenda, &changed), ("one 2 y, two 1 x".into(), 0));
        assert!(admission.own_payer("one").is_some(), "it changed");
        assert!(admission.own_payer("two").is_none(), "it did not");
        admission.ended(&changed[0], None);
        assert!(admission.own_payer("one").is_none(), "it is in order");

        use_up(&mut admission);
        let all = [service("one", "3", "z"), service("two", "2", "x"), service("new", "1", "x")];
        let as_before = "one 3 y, two 2 x".to_owned();
        assert_eq!(look(&mut admission, &agenda, &all), (as_before.clone(), 2));
        assert_eq!(look(&mut admission, &agenda, &all), (as_before, 0), "no news");
        let again = admission.again(service("one", "4", "zz"), &agenda).unwrap();
        assert_eq!((&*again.spec.load_balancer_ip, &*again.metadata.resource_version), ("y", "4"));
        assert!(admission.again(all[2].clone(), &agenda).is_none());

        let mut leaving = all[0].as_ref().clone();
        leaving.metadata.deletion_timestamp = Some("now".into());
        let leaving = [Arc::new(leaving), service("two", "3", "x")];
        assert_eq!(look(&mut admission, &agenda, &leaving), ("one 3 z, two 3 x".into(), 0));
        assert!(!admission.is_anything_waiting());
    }

    #[test]
    fn what_failed_waits_with_its_namespace_and_the_oldest_wait_is_the_first_to_end() {
        let (mut admission, agenda) = (Admission::default(), Agenda::default());
        look(&mut admission, &agenda, &[]);
        let failing = [service("failing", "1", "x")];
        look(&mut admission, &agenda, &failing);
        let payer = admission.own_payer("failing");
        admission.ended(&failing[0], payer);
        assert!(!admission.is_held_back("failing"));
        use_up(&mut admission);
        assert!(admission.is_held_back("failing"));
        assert_eq!(look(&mut admission, &agenda, &failing).1, 1);

        let late = [service("b", "1", "x"), failing[0].clone()];
        assert_eq!(look(&mut admission, &agenda, &late).1, 1);
        let later = [service("a", "1", "x"), late[0].clone(), late[1].clone()];
        assert_eq!(look(&mut admission, &agenda, &later).1, 1);
        // A negative charge gives API calls back to namespace `a`. Then namespace `a` has enough calls for one change
        // of a Service.
        admission.share("a").charge(-107.0, clock::now());
        let (shown, _) = look(&mut admission, &agenda, &later);
        assert_eq!(shown, "b 1 x, failing 1 x");
        assert!(!admission.is_held_back("failing"));
    }

    #[test]
    fn what_is_not_used_is_forgotten() {
        let (mut admission, agenda) = (Admission::default(), Agenda::default());
        look(&mut admission, &agenda, &[]);
        let one = service("one", "1", "x");
        look(&mut admission, &agenda, &[Arc::clone(&one)]);
        assert_eq!(admission.shares.len(), 1);
        admission.ended(&one, None);
        look(&mut admission, &agenda, &[]);
        let sizes = (admission.shares.len(), admission.admitted.len(), admission.waiting.len());
        assert_eq!(sizes, (0, 0, 0));
    }
}
