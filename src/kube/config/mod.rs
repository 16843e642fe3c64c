//! How to reach the API server: `--kubeconfig`, `$KUBECONFIG`, in-cluster, `~/.kube/config`, in this order.

mod incluster;
mod kubeconfig;

use crate::http::{Tls, Token};
use std::fmt;
use std::path::{Path, PathBuf};

/// What the person or the pod gave us.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--kubeconfig`, else the files of `$KUBECONFIG`; merged, the first wins.
    pub kubeconfig: Vec<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `--master`: another address than the one that the rest names.
    pub master: Option<String>,
    /// `$KUBERNETES_SERVICE_HOST` and `$KUBERNETES_SERVICE_PORT`.
    pub service: Option<(String, String)>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
}

/// Everything a client needs.
pub struct Access {
    /// Scheme, host and port, no trailing slash.
    pub server: String,
    pub tls: Tls,
    pub token: Token,
    /// What told us, for people.
    pub origin: String,
}

/// What is wrong: where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Reads what is there and says how to reach the cluster. No call is made.
pub fn load(options: &Options) -> Result<Access, ConfigError> {
    let context = options.context.as_deref();
    let mut access = if !options.kubeconfig.is_empty() {
        kubeconfig::load(&options.kubeconfig, context)?
    } else if let Some((host, port)) = &options.service {
        incluster::load(Path::new(incluster::MOUNT), host, port)?
    } else {
        without_a_word(options, context)?
    };
    if let Some(master) = &options.master {
        access.server =
            server_url(master).map_err(|why| ConfigError(format!("--master: {why}")))?;
        access.origin = format!("--master, and {}", access.origin);
    }
    Ok(access)
}

/// Nobody said anything: the file where kubectl looks, or an address alone.
fn without_a_word(options: &Options, context: Option<&str>) -> Result<Access, ConfigError> {
    let default_path = options.home.as_ref().map(|home| home.join(".kube/config"));
    if let Some(path) = default_path.filter(|path| path.exists()) {
        return kubeconfig::load(&[path], context);
    }
    if options.master.is_some() {
        return Ok(Access {
            server: String::new(),
            tls: Tls::default(),
            token: Token::none(),
            origin: "no credentials".into(),
        });
    }
    Err(ConfigError(
        "no cluster to talk to: give --kubeconfig or set KUBECONFIG (outside a cluster there is no \
         KUBERNETES_SERVICE_HOST, and ~/.kube/config does not exist)"
            .into(),
    ))
}

/// An `http(s)` URL without a trailing slash.
fn server_url(text: &str) -> Result<String, String> {
    let url: ureq::http::Uri = text
        .parse()
        .map_err(|e| format!("{text:?} is not a URL: {e}"))?;
    match url.scheme_str() {
        Some("http" | "https") if url.host().is_some_and(|host| !host.is_empty()) => {}
        _ => return Err(format!("{text:?} is not a URL like https://10.0.0.1:6443")),
    }
    if url
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(
            "a URL with a user name or password in it is not supported; use the user's fields"
                .into(),
        );
    }
    if url.query().is_some() {
        return Err(format!(
            "{text:?} has a query, which an API server's address does not have"
        ));
    }
    Ok(text.trim_end_matches('/').to_owned())
}
