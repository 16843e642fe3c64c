//! What a client needs to reach a cluster, and the checks that every source of it shares.

use crate::http::{Login, Proxy, SecretSource, Tls, TlsSource};
use crate::text::{is_this_machine, leaves_unencrypted};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a credential plugin may take: so short that a thread that waits for one does not count as dead.
pub const EXEC_TIME_LIMIT: Duration = Duration::from_secs(30);

/// What the settings and the environment name.
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
    /// What a test makes of [`EXEC_TIME_LIMIT`].
    pub exec_time_limit: Option<Duration>,
}

/// Everything a client needs.
pub struct Access {
    /// Scheme, host and port, no trailing slash.
    pub server: String,
    pub tls: TlsSource,
    /// `proxy-url`, used whatever the environment names. None: the environment decides.
    pub proxy: Option<Proxy>,
    pub login: Login,
    /// Of objects that are named without one: that of the context.
    pub namespace: Option<String>,
    /// Where this comes from, for people.
    pub origin: String,
    /// Where the address stands, for people.
    pub named_by: String,
}

impl Access {
    /// To a server that wants none.
    pub(crate) fn without_credentials(server: &str) -> Access {
        Access {
            server: server.to_owned(),
            tls: Tls::default().into(),
            proxy: None,
            login: Arc::new(SecretSource::none()),
            namespace: None,
            origin: "no credentials".into(),
            named_by: String::new(),
        }
    }

    /// Are credentials read on the way? To a proxy on another machine, this machine is itself.
    pub fn is_unencrypted(&self) -> bool {
        let scheme = self.server.split("://").next().unwrap_or_default();
        let proxy = self.proxy.as_ref();
        let is_elsewhere = proxy.is_some_and(|proxy| !is_this_machine(&proxy.host));
        scheme.eq_ignore_ascii_case("http") && (is_elsewhere || leaves_unencrypted(&self.server))
    }
}
