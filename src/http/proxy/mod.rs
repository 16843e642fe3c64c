//! Which calls go through a proxy, and through which.
//!
//! | file | its one job |
//! |---|---|
//! | `address` | how a proxy is written, and shown without its password |
//! | `environment` | `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as Go programs read them |
//! | `bypass` | which hosts `NO_PROXY` means |
//! | `tunnel` | from a connection to a proxy to one through it, and what keeps it from that |
//! | `connect`, `socks` | the words that are spoken with the two kinds of proxies |

mod address;
mod bypass;
mod connect;
mod environment;
mod socks;
mod tunnel;

pub use address::{Protocol, Proxy};
pub use environment::Environment;
pub(super) use tunnel::{Failure, Way, open};

use super::Tls;
use super::tls::Encrypt;
use ureq::http::Uri;

/// The field of a kubeconfig that names a proxy.
const PROXY_URL: &str = "proxy-url";

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

/// The way to one API.
#[derive(Debug)]
pub(super) enum Route {
    Direct,
    Through(Box<Way>),
    /// Not to be gone at all; why.
    Refused(String),
}

impl Proxies {
    /// The way to the host of a base URL. `tls` says whom to trust, should the proxy want TLS.
    pub(super) fn route(&self, base: &str, tls: &Tls, buffer_bytes: usize) -> Route {
        let chosen = match self {
            Proxies::Never => Ok(None),
            Proxies::Only(proxy) => Ok(Some((proxy, PROXY_URL))),
            Proxies::ByEnvironment(environment) => match base.parse::<Uri>() {
                Ok(uri) => environment.proxy_for(&uri),
                // The call itself will say so.
                Err(_) => Ok(None),
            },
        };
        match chosen {
            Ok(None) => Route::Direct,
            Ok(Some((proxy, told_by))) => Route::Through(Box::new(Way {
                proxy: proxy.clone(),
                told_by,
                tls: (proxy.protocol() == Protocol::Https)
                    .then(|| Encrypt::new(&for_proxy(tls), buffer_bytes)),
            })),
            Err(why) => Route::Refused(why),
        }
    }
}

/// A proxy is somebody else than the API: it has a certificate of the public's, and what we show
/// the API is not for it.
fn for_proxy(tls: &Tls) -> Tls {
    Tls {
        more_authorities: tls.more_authorities.clone(),
        ..Tls::default()
    }
}
