//! How a cloud is reached, and what it says about that: what `doctor` shows.

use super::Error;

/// What was found without changing anything.
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    pub permission: Permission,
    /// Calls an hour, and how many of them remain; none: the API did not say.
    pub rate_limit: Option<(u64, u64)>,
    /// By how much the API's clock is ahead of this machine's; a second or two are the network's.
    pub clock_ahead_s: Option<i64>,
    /// The private network that the settings name, for people; none: they name none.
    pub network: Option<Result<String, Error>>,
    pub attached: Attached,
}

/// What the credentials allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    ReadWrite,
    ReadOnly,
    /// Not known; why.
    Unknown(String),
}

/// Is this machine in the private network?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    Yes,
    /// The networks that it is attached to, for people.
    No(String),
    /// Not known; why.
    Unknown(String),
}

impl Default for Permission {
    fn default() -> Permission {
        Permission::Unknown("not asked".into())
    }
}

impl Default for Attached {
    fn default() -> Attached {
        Attached::Unknown("not asked".into())
    }
}
