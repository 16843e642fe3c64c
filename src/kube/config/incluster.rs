//! In a pod: the service account that Kubernetes mounts.

use super::{Access, ConfigError, read_file};
use crate::http::{Roots, Tls, Token, parse_authorities};
use std::path::Path;

/// Where Kubernetes mounts `ca.crt`, `token` and `namespace`.
pub(super) const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The CAs of one cluster.
const CA_LIMIT_BYTES: u64 = 4 << 20;

pub(super) fn load(mount: &Path, host: &str, port: &str) -> Result<Access, ConfigError> {
    let ca_path = mount.join("ca.crt");
    let ca = read_file(&ca_path, CA_LIMIT_BYTES).map_err(|why| {
        ConfigError(format!(
            "in-cluster: {}: {why}; does the pod have a service account (automountServiceAccountToken)?",
            ca_path.display()
        ))
    })?;
    let roots = parse_authorities(&ca)
        .map_err(|why| ConfigError(format!("in-cluster: {}: {why}", ca_path.display())))?;
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
        tls: Tls {
            roots: Roots::Only(roots),
            ..Tls::default()
        },
        proxy: None,
        token: Token::file(mount.join("token"), None),
        origin: "in-cluster service account".into(),
    })
}
