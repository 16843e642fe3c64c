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
        unencrypted: None,
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::http::{Proxies, Timing};
    use crate::kube::{Client, ReadFrom};
    use sandbox::credentials::{Authority, Validity};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    /// As the kubelet does it: a link to the folder of both files is renamed over the old one.
    fn mount(folder: &Path, version: &str, authority: &Authority, token: &str) {
        let files = folder.join(version);
        fs::create_dir(&files).unwrap();
        fs::write(files.join("ca.crt"), authority.certificate_pem()).unwrap();
        fs::write(files.join("token"), token).unwrap();
        symlink(version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }

    #[test]
    fn the_service_account_rotates() {
        let sandbox = sandbox::Sandbox::builder()
            .nodes(1)
            .heartbeats(false)
            .start();
        let folder = sandbox.folder().join("serviceaccount");
        fs::create_dir(&folder).unwrap();
        for name in ["ca.crt", "token"] {
            symlink(format!("..data/{name}"), folder.join(name)).unwrap();
        }
        let token = sandbox.account("ccm").unwrap().token;
        mount(&folder, "..1", sandbox.authority(), &token);
        let address = sandbox.address(sandbox::Half::Kubernetes);
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let access = load(&folder, &host, &port).unwrap();
        let timing = Timing {
            read_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(20),
            retry_wait: Duration::from_millis(1),
        };
        let client = Client::new(access, Proxies::Never, timing);
        assert_eq!(client.nodes(ReadFrom::Latest).unwrap().len(), 1);
        // Another token, and a server whose certificate is of another authority.
        let authority = Authority::new("another").unwrap();
        let server = authority.server(&[&host], Validity::Now).unwrap();
        sandbox.cluster().add_token("ccm", "another-token");
        sandbox.cluster().remove_token(&token);
        sandbox.tls().replace(&server, &authority).unwrap();
        mount(&folder, "..2", &authority, "another-token");
        for _ in 0..3 {
            assert_eq!(client.nodes(ReadFrom::Latest).unwrap().len(), 1);
        }
        let refused = sandbox.calls().count(|call| call.status == Some(401));
        assert_eq!(refused, 0, "the new token is read before the call");
    }

    #[test]
    fn what_is_missing_is_told() {
        let error = load(Path::new("/nowhere"), "10.0.0.1", "443")
            .map(|_| ())
            .unwrap_err();
        assert_eq!(
            error.0,
            "in-cluster: /nowhere/ca.crt: the file does not exist; correct the path; does the pod have a service \
             account (automountServiceAccountToken)?"
        );
    }
}
