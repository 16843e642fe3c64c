//! What a call is made with: the connections, which have the trust and the client certificate of
//! now, and the login. Both change while a daemon runs, and a refused call asks for newer ones.

use super::error::{Error, Kind};
use super::login::Shown;
use super::rotation::Rotating;
use super::{Settings, Tls, agent, secret};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one call is made with.
pub(super) struct Session {
    pub(super) agent: ureq::Agent,
    pub(super) shown: Shown,
    /// Which TLS settings its connections have.
    number: u64,
}

pub(super) struct Sessions(Mutex<Connections>);

struct Connections {
    rotating: Rotating,
    agent: ureq::Agent,
    /// What the agent was made from.
    tls: Tls,
    number: u64,
}

impl Sessions {
    pub(super) fn new(settings: &Settings) -> Sessions {
        let rotating = Rotating::new(settings.tls.clone());
        let tls = rotating.tls.clone();
        Sessions(Mutex::new(Connections {
            agent: agent::build(settings, &tls),
            rotating,
            tls,
            number: 0,
        }))
    }

    /// What to make a call with now. The error is for people.
    pub(super) fn current(&self, settings: &Settings) -> Result<Session, String> {
        let shown = settings.login.current()?;
        secret::remember(&shown.secrets);
        let mut connections = self.lock();
        connections.rotating.look();
        let mut tls = connections.rotating.tls.clone();
        if shown.identity.is_some() {
            tls.identity.clone_from(&shown.identity);
        }
        if tls != connections.tls {
            // The old agent's idle connections end with it.
            connections.agent = agent::build(settings, &tls);
            connections.tls = tls;
            connections.number += 1;
        }
        Ok(Session {
            agent: connections.agent.clone(),
            shown,
            number: connections.number,
        })
    }

    /// After a call with `used` has failed: something newer to make it with, if that may be why.
    pub(super) fn newer(
        &self,
        settings: &Settings,
        used: &Session,
        error: &Error,
    ) -> Option<Session> {
        let is_unauthorized = error.status() == Some(401);
        if !is_unauthorized && !matches!(error.kind, Kind::Untrusted(_) | Kind::Tls(_)) {
            return None;
        }
        if is_unauthorized {
            settings.login.refused(&used.shown);
        }
        self.lock().rotating.look_now();
        let now = self.current(settings).ok()?;
        (now.number != used.number || now.shown.header != used.shown.header).then_some(now)
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
