//! What was read for the checks, or why it was not.

use super::verbs::Need;
use crate::controllers::node::NodePlan;
use crate::controllers::route;
use crate::controllers::service::{FailedTry, ServicePlan};
use crate::kube::{LeaseSpec, Version, Workload};
use crate::provider::{Checkup, Orphan};
use std::collections::HashMap;

/// Something that was read.
pub(super) type Seen<T> = Result<T, Gap>;

/// Why it was not read.
#[derive(Clone, Debug)]
pub(super) enum Gap {
    /// It rests on another check, which did not pass: the name of that one.
    Needs(&'static str),
    /// It does not exist here, or may not be read, and that is no fault.
    NotHere(String),
    /// It was tried; the error.
    Failed(String),
}

pub(super) struct View {
    /// What is wrong with the settings, the token's aside.
    pub(super) problems: Vec<String>,
    pub(super) token: Seen<Token>,
    pub(super) is_in_pod: bool,
    /// `HCLOUD_ENDPOINT`.
    pub(super) endpoint: String,
    /// How many servers the project has.
    pub(super) servers: Seen<usize>,
    /// What it says of a call that failed counts as well.
    pub(super) checkup: Checkup,
    pub(super) attached_check: bool,
    /// Address of the API server, and what named it.
    pub(super) cluster: Seen<String>,
    pub(super) version: Seen<Version>,
    /// What the user that we log in as may not do.
    pub(super) missing: Seen<Vec<Need>>,
    pub(super) lease: Seen<Lease>,
    /// Beside us, in the namespace of the Lease.
    pub(super) workloads: Seen<Vec<Workload>>,
    pub(super) namespace: String,
    /// Of the provider IDs that we write.
    pub(super) prefix: &'static str,
    pub(super) nodes: Seen<Vec<NodePlan>>,
    pub(super) routes: Seen<route::Plan>,
    pub(super) services: Seen<Vec<ServicePlan>>,
    /// By UID of the Service; read when one lacks something.
    pub(super) failed_tries: Seen<HashMap<String, FailedTry>>,
    pub(super) orphans: Seen<Vec<Orphan>>,
}

pub(super) struct Token {
    /// What named it.
    pub(super) source: String,
    pub(super) characters: usize,
}

pub(super) struct Lease {
    /// For people.
    pub(super) key: String,
    /// None: there is none.
    pub(super) spec: Option<LeaseSpec>,
    /// By both hosts' clocks, which may differ; none: it was never renewed.
    pub(super) age_s: Option<i64>,
}

impl Gap {
    /// For what rests on this as well.
    pub(super) fn or_needs(&self, check: &'static str) -> Gap {
        match self {
            Gap::NotHere(why) => Gap::NotHere(why.clone()),
            Gap::Needs(_) | Gap::Failed(_) => Gap::Needs(check),
        }
    }
}
