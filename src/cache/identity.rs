//! The identity of the cluster: the UID of the Service `default/kubernetes`, as the Lease remembers it.
//!
//! The daemon that leads gets what the Lease notes with its acquisition, adds what it sees, and writes it with its
//! renewals. A command reads the Lease once. Without a Lease the UID that the Service has now is the identity.

use crate::kube::{Client, Error, Identities, Lease, LeaseKey};
use crate::provider::lock;
use std::sync::Mutex;

/// What is remembered of the cluster's identity.
#[derive(Default)]
pub struct Identity(Mutex<Memory>);

#[derive(Default)]
enum Memory {
    /// There is no Lease, or it notes nothing for this command: the Service alone counts.
    #[default]
    Nothing,
    /// This Lease is read before the first answer.
    Unread(LeaseKey),
    /// What the Lease of this process notes, and what was seen since.
    Kept(Identities),
}

impl Identity {
    /// Reads this Lease before the first answer: the process itself does not hold one.
    pub fn read_from(&self, key: LeaseKey) {
        *lock(&self.0) = Memory::Unread(key);
    }

    /// Takes what this Lease notes, which the process read and does not hold; none: there is no Lease.
    pub fn heed(&self, key: &LeaseKey, lease: Option<&Lease>) {
        *lock(&self.0) = Memory::of(key, lease);
    }

    /// Remembers what the Lease notes that this process acquires.
    pub fn recall(&self, noted: Option<Identities>) {
        *lock(&self.0) = Memory::Kept(noted.unwrap_or_default());
    }

    /// What is to be noted on the Lease; none: nothing was seen.
    pub fn kept(&self) -> Option<Identities> {
        match &*lock(&self.0) {
            Memory::Kept(known) if !known.identity.is_empty() => Some(known.clone()),
            _ => None,
        }
    }

    /// The identities of the cluster, where its Service has this UID now; none: neither the Service nor a Lease says
    /// one. The error: the Lease can't be read at the moment, so another identity may count.
    pub(super) fn of(
        &self,
        kube: &Client,
        service_uid: Option<&str>,
    ) -> Result<Option<Identities>, Error> {
        let mut memory = lock(&self.0);
        if let Memory::Unread(key) = &*memory {
            let lease = match kube.lease(key) {
                Err(error) if error.is_forbidden() => None,
                lease => lease?,
            };
            let noted = Memory::of(key, lease.as_ref());
            *memory = noted;
        }
        let mut alone = Identities::default();
        let known = match &mut *memory {
            Memory::Kept(known) => known,
            Memory::Nothing | Memory::Unread(_) => &mut alone,
        };
        if let Some(uid) = service_uid
            && known.see(uid)
        {
            let identity = &known.identity;
            log::info!(
                "the Service default/kubernetes was deleted and has another UID now, {uid}: the identity of the cluster \
                 stays {identity}, as the Lease remembers it"
            );
        }
        Ok(Some(known.clone()).filter(|known| !known.identity.is_empty()))
    }
}

impl Memory {
    fn of(key: &LeaseKey, lease: Option<&Lease>) -> Memory {
        match lease.map_or(Ok(None), Lease::identities) {
            Ok(noted) => noted.map_or(Memory::Nothing, Memory::Kept),
            Err(why) => {
                log::warn!("{key}: {why}");
                Memory::Nothing
            }
        }
    }
}
