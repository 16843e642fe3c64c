//! Decides how the API server is reached. There are four sources, and the first one that exists is used:
//! `--kubeconfig`, `$KUBECONFIG`, the service account of the pod, and `~/.kube/config`.

mod context;
mod entry;
mod exec;
mod file;

pub use context::{Access, EXEC_TIME_LIMIT, Options};

use crate::http::{Authorities, Roots, SecretSource, Tls, TlsSource, read_file};
use crate::provider::variables::KUBECONFIG;
use entry::shown;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads the configuration and returns how the cluster is reached. The function makes no call.
pub fn load(options: &Options) -> Result<Access, String> {
    let context = options.context.as_deref();
    let mut access = if !options.kubeconfig.is_empty() {
        context::load(&options.kubeconfig, options)?
    } else if let Some((host, port)) = &options.service {
        no_context(context, "in a pod, ccm uses the pod's service account")?;
        in_cluster(Path::new(MOUNT), host, port)?
    } else {
        by_default(options, context)?
    };
    if let Some(master) = &options.master {
        access.server.clone_from(master);
        access.origin = format!("--master, and {}", access.origin);
        access.named_by = "--master".into();
    }
    Ok(access)
}

/// Returns the names of all contexts of the kubeconfig.
pub fn contexts(options: &Options) -> Result<Vec<String>, String> {
    let paths = match options.kubeconfig.as_slice() {
        [] => &Vec::from_iter(default_path(options)),
        paths => paths,
    };
    Ok(file::read(paths)?.contexts())
}

fn default_path(options: &Options) -> Option<PathBuf> {
    options.home.as_ref().map(|home| home.join(".kube/config"))
}

/// Returns how the cluster is reached when neither a flag nor a variable names a kubeconfig and the process does not
/// run in a pod. Uses `~/.kube/config`. If that file does not exist, uses the address of `--master` without
/// credentials.
fn by_default(options: &Options, context: Option<&str>) -> Result<Access, String> {
    if let Some(path) = default_path(options).filter(|path| path.exists()) {
        return context::load(&[path], options);
    }
    if options.master.is_some() {
        no_context(context, "~/.kube/config does not exist")?;
        return Ok(Access::without_credentials(""));
    }
    Err(format!(
        "no cluster is configured: give --kubeconfig or set {KUBECONFIG} (this is no pod, because \
         KUBERNETES_SERVICE_HOST is not set, and ~/.kube/config does not exist)"
    ))
}

/// Returns an error when `--context` is set although no kubeconfig is used. Without this error, the program would use
/// another cluster than the user wants.
fn no_context(context: Option<&str>, why: &str) -> Result<(), String> {
    match context {
        None => Ok(()),
        Some(name) => Err(format!(
            "--context: ccm reads no kubeconfig, so it can't find context {} ({why}); give --kubeconfig, set \
             {KUBECONFIG}, or leave --context out",
            shown(name)
        )),
    }
}

/// The folder of a pod in which Kubernetes mounts `ca.crt`, `token` and `namespace`.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The largest file with a cluster's CA certificates that is read, in bytes.
const CA_LIMIT_BYTES: u64 = 4 << 20;

/// Returns how a pod reaches the API server with its service account.
fn in_cluster(mount: &Path, host: &str, port: &str) -> Result<Access, String> {
    let ca_path = mount.join("ca.crt");
    let tls = tls_of(&ca_path)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port.parse::<u16>().is_err() {
        return Err(format!(
            "in-cluster: KUBERNETES_SERVICE_PORT is {port:?}, which is not a port"
        ));
    }
    Ok(Access {
        server: format!("https://{host}:{port}"),
        tls: TlsSource::files(tls, move || tls_of(&ca_path)),
        proxy: None,
        login: Arc::new(SecretSource::file(mount.join("token"), None)),
        namespace: std::fs::read_to_string(mount.join("namespace")).ok(),
        origin: "in-cluster service account".into(),
        named_by: String::new(),
    })
}

fn tls_of(ca_path: &Path) -> Result<Tls, String> {
    let name = ca_path.display();
    let ca = read_file(ca_path, CA_LIMIT_BYTES).map_err(|why| match ca_path.exists() {
        true => format!("in-cluster: {name}: {why}"),
        false => format!("in-cluster: there is no file {name}; set automountServiceAccountToken: true for the pod"),
    })?;
    let found = Authorities::parse(&ca).map_err(|why| format!("in-cluster: {name}: {why}"))?;
    Ok(Tls { roots: Roots::Only(found.certificates), ..Tls::default() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::http::{Proxies, Timing};
    use crate::kube::{KubeClient, ReadFrom};
    use sandbox::credentials::{Authority, Validity};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    /// Writes the files of a service account like a kubelet that updates a mounted volume. The files are in a new
    /// folder, and a link to this folder replaces the link to the previous folder.
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
        let sandbox = sandbox::Sandbox::builder().nodes(1).heartbeats(false).start();
        let folder = sandbox.folder().join("serviceaccount");
        fs::create_dir(&folder).unwrap();
        for name in ["ca.crt", "token"] {
            symlink(format!("..data/{name}"), folder.join(name)).unwrap();
        }
        let token = sandbox.account("ccm").unwrap().token;
        mount(&folder, "..1", sandbox.authority(), &token);
        let address = sandbox.address(sandbox::Half::Kubernetes);
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let access = in_cluster(&folder, &host, &port).unwrap();
        let timing = Timing {
            read_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(20),
            retry_wait: Duration::from_millis(1),
        };
        let client = KubeClient::new(
            access,
            Proxies::Never,
            timing,
            std::sync::Arc::new(crate::provider::OpenGate),
        );
        assert_eq!(client.nodes(ReadFrom::Latest).unwrap().len(), 1);
        // Now the token of the service account changes, and the server gets a certificate of another authority. The
        // client must read the new token and the new CA certificate from their files.
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
    fn a_missing_service_account_is_reported() {
        let error = in_cluster(Path::new("/nowhere"), "10.0.0.1", "443").map(|_| ()).unwrap_err();
        assert_eq!(
            error,
            "in-cluster: there is no file /nowhere/ca.crt; set automountServiceAccountToken: true for the pod"
        );
    }
}
