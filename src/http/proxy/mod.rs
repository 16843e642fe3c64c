//! Which calls go through a proxy, and through which.
//!
//! | file | its one job |
//! |---|---|
//! | `address` | how a proxy is written, and shown without its password |
//! | `environment` | `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as Go programs read them |

mod address;
mod environment;

pub use address::{Protocol, Proxy};
pub use environment::Environment;

/// What decides whether a client's calls go through a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// None, whatever the environment says.
    #[default]
    Never,
    /// This one, whatever the environment says: a kubeconfig's `proxy-url`.
    Only(Proxy),
    /// What the environment says of the address called.
    ByEnvironment(Environment),
}
