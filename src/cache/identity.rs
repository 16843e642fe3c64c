//! Finds the identity of the cluster, which is the first UID that the Service `default/kubernetes` had. An annotation
//! of the leader election's Lease stores this UID, so the identity stays the same when the Service is deleted and
//! created again. The annotation also stores the later UIDs of the Service.
//!
//! The leading daemon reads the stored UIDs when it acquires the Lease. It adds the present UID of the Service, and
//! writes all UIDs when it renews the Lease. A command that a user runs, like `doctor`, reads the Lease once and never
//! writes it. When there is no Lease, the present UID of the Service is the identity.

use crate::kube::{Identities, KubeClient, KubeError, Lease, LeaseKey};
use crate::provider::lock;
use std::sync::Mutex;

/// The present UID and the earlier UIDs of the Service `default/kubernetes`, as far as this process knows them. The UID
/// that was known first is the identity of the cluster.
#[derive(Default)]
pub struct ClusterIdentity(Mutex<IdentityMemory>);

#[derive(Default)]
enum IdentityMemory {
    /// There is no Lease, or the Lease contains no UID of the Service `default/kubernetes`. The present UID of this
    /// Service then identifies the cluster.
    #[default]
    Nothing,
    /// The namespace and the name of a Lease that was not read yet. The Lease is read when the identity of the cluster
    /// (a UID) is needed for the first time.
    Unread(LeaseKey),
    /// The UIDs that the Service `default/kubernetes` has had over time: those that were read from the Lease, and those
    /// that this process has seen since then. The process that holds the Lease writes all of them to the Lease.
    Kept(Identities),
}

impl ClusterIdentity {
    /// Sets the Lease from which the identity of the cluster (a UID) is read when it is needed for the first time. Only
    /// commands that a user runs call this function. They read the Lease, but never hold it.
    pub fn read_from(&self, key: LeaseKey) {
        *lock(&self.0) = IdentityMemory::Unread(key);
    }

    /// Remembers the UIDs that the Service `default/kubernetes` has had over time, as they are stored in `lease`. This
    /// Lease is held by another process. `lease` is `None` when the Lease does not exist.
    pub fn heed(&self, key: &LeaseKey, lease: Option<&Lease>) {
        *lock(&self.0) = IdentityMemory::of(key, lease);
    }

    /// Stores in memory the UIDs that the Service `default/kubernetes` has had over time. This function is called when
    /// this process becomes the holder of the Lease. `noted` are the UIDs that the Lease then contained, or `None` when
    /// the Lease contained none.
    pub fn recall(&self, noted: Option<Identities>) {
        *lock(&self.0) = IdentityMemory::Kept(noted.unwrap_or_default());
    }

    /// Returns the present and the former UIDs of the Service `default/kubernetes`, which gets a new UID when it is
    /// deleted and created again. The first UID is the identity of the cluster. The leader stores all of them in the
    /// Lease, so that the next leader knows the first one. Returns `None` when no UID is known.
    pub fn kept(&self) -> Option<Identities> {
        match &*lock(&self.0) {
            IdentityMemory::Kept(known) if !known.identity.is_empty() => Some(known.clone()),
            _ => None,
        }
    }

    /// Returns all known UIDs that the Service `default/kubernetes` has had over time. The first of them is the
    /// identity of the cluster. `service_uid` is the present UID of this Service. The result is `None` when there is no
    /// present UID and no Lease with a UID. When the Lease can't be read now, the result is an error, because the Lease
    /// can contain a UID that is older than the present one.
    pub(super) fn of(
        &self,
        kube: &KubeClient,
        service_uid: Option<&str>,
    ) -> Result<Option<Identities>, KubeError> {
        let mut memory = lock(&self.0);
        if let IdentityMemory::Unread(key) = &*memory {
            let lease = match kube.lease(key) {
                Err(error) if error.is_forbidden() => None,
                lease => lease?,
            };
            let noted = IdentityMemory::of(key, lease.as_ref());
            *memory = noted;
        }
        let mut alone = Identities::default();
        let known = match &mut *memory {
            IdentityMemory::Kept(known) => known,
            IdentityMemory::Nothing | IdentityMemory::Unread(_) => &mut alone,
        };
        if let Some(uid) = service_uid
            && known.see(uid)
        {
            let identity = &known.identity;
            log::info!(
                "the Service default/kubernetes was created again and has the new UID {uid}. ccm still identifies the \
                 cluster by the first UID, {identity}, which is stored in the Lease. You need not do anything"
            );
        }
        Ok(Some(known.clone()).filter(|known| !known.identity.is_empty()))
    }
}

impl IdentityMemory {
    fn of(key: &LeaseKey, lease: Option<&Lease>) -> IdentityMemory {
        match lease.map_or(Ok(None), Lease::identities) {
            Ok(noted) => noted.map_or(IdentityMemory::Nothing, IdentityMemory::Kept),
            Err(why) => {
                log::warn!("{key}: {why}");
                IdentityMemory::Nothing
            }
        }
    }
}
