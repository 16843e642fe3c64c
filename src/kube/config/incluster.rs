//! In a pod: the service account that Kubernetes mounts.

use super::{Access, ConfigError, read_file};
use crate::http::{Roots, Tls, TlsSource, Token, parse_authorities};
use std::path::Path;

/// Where Kubernetes mounts `ca.crt`, `token` and `namespace`.
pub(super) const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The CAs of one cluster.
const CA_LIMIT_BYTES: u64 = 4 << 20;

pub(super) fn load(mount: &Path, host: &str, port: &str) -> Result<Access, ConfigError> {
    let ca_path = mount.join("ca.crt");
    let tls = tls_of(&ca_path).map_err(ConfigError)?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    if port.parse::<u16>().is_err() {
        return Err(ConfigError(format!(
            "in-cluster: KUBERNETES_SERVICE_PORT: {port:?} is not a port"
        )));
    }
    Ok(Access {
        server: format!("https://{host}:{port}"),
        tls: TlsSource::files(tls, vec![ca_path.clone()], move || tls_of(&ca_path)),
        proxy: None,
        login: Token::file(mount.join("token"), None).into(),
        origin: "in-cluster service account".into(),
    })
}

fn tls_of(ca_path: &Path) -> Result<Tls, String> {
    let name = ca_path.display();
    let ca = read_file(ca_path, CA_LIMIT_BYTES).map_err(|why| {
        format!(
            "in-cluster: {name}: {why}; does the pod have a service account (automountServiceAccountToken)?"
        )
    })?;
    let roots = parse_authorities(&ca).map_err(|why| format!("in-cluster: {name}: {why}"))?;
    Ok(Tls {
        roots: Roots::Only(roots),
        ..Tls::default()
    })
}
