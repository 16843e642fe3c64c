//! Reads the cluster and the user of a kubeconfig's context, and returns how the cluster is reached. A field that is
//! not supported is an error that names the field, so that no field is ignored.

use super::entry::{KubeconfigCluster, KubeconfigContext, KubeconfigEntry, User};
use super::exec::{Plugin, Program};
use super::file;
use crate::http::{
    Authorities, ClientIdentity, Credentials, Login, Pem, Proxy, Roots, Secret, SecretSource, Tls,
    TlsSource,
};
use crate::text::{base_url, is_this_machine, leaves_unencrypted};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a credential plugin may run. A thread that needs credentials waits for the plugin. The limit is so short
/// that the daemon's health check does not take the waiting thread for a hanging one.
pub const EXEC_TIME_LIMIT: Duration = Duration::from_secs(30);

/// What the command line and the environment say about how the cluster is reached, e.g. the files of the kubeconfig.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The files of `--kubeconfig`, or of `$KUBECONFIG` when the flag is not set. The files are merged. When several
    /// files set a value, the first file wins.
    pub kubeconfig: Vec<PathBuf>,
    /// The name of the context in the flag `--context`. `None` when the flag is not set, and then the context in the
    /// kubeconfig's `current-context` is used.
    pub context: Option<String>,
    /// The value of `--master`. This address is used instead of the address in the kubeconfig or in the environment of
    /// the pod.
    pub master: Option<String>,
    /// The API server's host and port from `$KUBERNETES_SERVICE_HOST` and `$KUBERNETES_SERVICE_PORT`. `None` when the
    /// variable for the host is not set, because the process does not run in a pod.
    pub service: Option<(String, String)>,
    /// The value of `$HOME`.
    pub home: Option<PathBuf>,
    /// The time limit that a test uses instead of [`EXEC_TIME_LIMIT`].
    pub exec_time_limit: Option<Duration>,
}

/// Everything that a client needs to reach a cluster.
pub struct Access {
    /// The scheme, host and port of the API server, without a trailing slash.
    pub server: String,
    pub tls: TlsSource,
    /// The proxy in the kubeconfig's field `proxy-url`, which takes precedence over the proxy in environment variables.
    /// `None` means that the environment variables decide whether a proxy is used.
    pub proxy: Option<Proxy>,
    pub login: Login,
    /// The namespace in the kubeconfig's context, or the namespace of the pod. It is used for objects for which the
    /// user gives no namespace. `None` when neither the context nor a pod has a namespace.
    pub namespace: Option<String>,
    /// Where this access to the API server was configured, for messages, e.g. a context of a kubeconfig.
    pub origin: String,
    /// The setting or the kubeconfig field that sets the server's address, for messages.
    pub named_by: String,
}

impl Access {
    /// Returns an `Access` without credentials, for a server that requires none.
    pub fn without_credentials(server: &str) -> Access {
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

    /// Whether others on the network can read the credentials, because a request leaves this machine without TLS. For a
    /// server on this machine, a request without TLS leaves the machine only when the proxy is on another machine.
    pub fn is_unencrypted(&self) -> bool {
        let scheme = self.server.split("://").next().unwrap_or_default();
        let proxy = self.proxy.as_ref();
        let is_elsewhere = proxy.is_some_and(|proxy| !is_this_machine(&proxy.host));
        scheme.eq_ignore_ascii_case("http") && (is_elsewhere || leaves_unencrypted(&self.server))
    }
}

/// The name of the extension, in a `cluster` of a kubeconfig, that contains data for credential plugins.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Reads the kubeconfig and returns how the cluster of the chosen context is reached. `paths` are the files of the
/// kubeconfig.
pub(super) fn load(paths: &[PathBuf], options: &Options) -> Result<Access, String> {
    let merged = file::read(paths)?;
    let (name, wanted_by) = match (&options.context, &merged.current_context) {
        (Some(name), _) => (name, "--context".to_owned()),
        (None, Some((name, file))) => (name, format!("kubeconfig {file:?}: current-context")),
        (None, None) => {
            return Err(format!(
                "kubeconfig {}: current-context: not set; set it or give --context ({})",
                file::list(paths),
                merged.names("context")
            ));
        }
    };
    let context: KubeconfigEntry<KubeconfigContext> = merged.find("context", name, &wanted_by)?;
    let place = context.place();
    let name = context.fields.cluster.as_deref().unwrap_or_default();
    let cluster: KubeconfigEntry<KubeconfigCluster> =
        merged.find("cluster", name, &format!("{place}: cluster"))?;
    let user: KubeconfigEntry<User> = match &context.fields.user {
        None => context.with(User::default()),
        Some(name) => merged.find("user", name, &format!("{place}: user"))?,
    };
    let login = login(&user, &cluster, options)?;
    let tls = tls_of(&cluster, &user)?;
    let mut origin = format!("kubeconfig {:?}, context {:?}", context.file, context.name);
    if login.is_none() && tls.identity.is_none() {
        origin += ", which has no credentials";
    }
    let server = server(&cluster)?;
    let proxy = cluster.fields.proxy_url.as_deref().map(Proxy::parse).transpose();
    let proxy = proxy.map_err(|why| cluster.error("proxy-url", why))?;
    let named_by = format!("{}: server", cluster.place());
    Ok(Access {
        server,
        tls: TlsSource::files(tls, move || tls_of(&cluster, &user)),
        proxy,
        login: login.unwrap_or_else(|| Arc::new(SecretSource::none())),
        namespace: context.fields.namespace.and_then(|name| Some(name.as_str()?.to_owned())),
        origin,
        named_by,
    })
}

fn tls_of(
    cluster: &KubeconfigEntry<KubeconfigCluster>,
    user: &KubeconfigEntry<User>,
) -> Result<Tls, String> {
    let server_name = cluster.fields.tls_server_name.as_deref();
    let server_name = server_name.map(|name| ServerName::try_from(name.to_owned()));
    Ok(Tls {
        roots: roots(cluster)?,
        identity: identity(user)?,
        server_name: server_name.transpose().map_err(|_| {
            let why = "is neither a host name nor an IP address; write a name that the server's certificate has";
            cluster.error("tls-server-name", why)
        })?,
        ..Tls::default()
    })
}

fn server(cluster: &KubeconfigEntry<KubeconfigCluster>) -> Result<String, String> {
    match &cluster.fields.server {
        None => Err(cluster
            .error("server", "not set; write the API server's URL, like https://10.0.0.1:6443")),
        Some(url) => base_url(url).map_err(|why| cluster.error("server", why)),
    }
}

fn authority(cluster: &KubeconfigEntry<KubeconfigCluster>) -> Result<Option<Pem>, String> {
    let fields = &cluster.fields;
    cluster.pem(
        "certificate-authority",
        &fields.certificate_authority,
        &fields.certificate_authority_data,
    )
}

fn roots(cluster: &KubeconfigEntry<KubeconfigCluster>) -> Result<Roots, String> {
    match (authority(cluster)?, cluster.fields.insecure_skip_tls_verify) {
        (None, true) => Ok(Roots::Any),
        (None, false) => Ok(Roots::BuiltIn),
        (Some(pem), true) => Err(cluster.error(
            &pem.origin,
            "can't be given together with insecure-skip-tls-verify; remove one of them",
        )),
        (Some(pem), false) => Authorities::parse(&pem.bytes)
            .map(|found| Roots::Only(found.certificates))
            .map_err(|why| cluster.error(&pem.origin, why)),
    }
}

/// Returns the object `Cluster` of client.authentication.k8s.io. It tells a credential plugin about the cluster.
fn for_plugin(cluster: &KubeconfigEntry<KubeconfigCluster>) -> Result<Value, String> {
    let fields = &cluster.fields;
    let pem = authority(cluster)?.map(|pem| STANDARD.encode(pem.bytes));
    let all = json!({
        "server": server(cluster)?,
        "tls-server-name": fields.tls_server_name.as_deref(),
        "proxy-url": fields.proxy_url.as_deref(),
        "insecure-skip-tls-verify": fields.insecure_skip_tls_verify.then_some(true),
        "disable-compression": fields.disable_compression.then_some(true),
        "certificate-authority-data": pem,
        "config": exec_extension(cluster)?,
    });
    let all = all.as_object().cloned().unwrap_or_default().into_iter();
    Ok(all.filter(|(_, value)| !value.is_null()).collect())
}

fn exec_extension(cluster: &KubeconfigEntry<KubeconfigCluster>) -> Result<Option<Value>, String> {
    let extensions = cluster.fields.extensions.as_ref();
    let mut extensions = extensions.and_then(|all| all.as_sequence()).into_iter().flatten();
    let ours = extensions.find(|value| value["name"] == EXEC_EXTENSION);
    let config = ours.and_then(|extension| extension.get("extension"));
    config.map(serde_json::to_value).transpose().map_err(|_| {
        cluster.error(
            "extensions",
            format_args!("the content of {EXEC_EXTENSION} can't be written as JSON; correct it"),
        )
    })
}

/// Returns the credentials that are sent with every call. As in kubectl, only one kind of credentials is used: the
/// token or the user name with the password, else the client certificate, else the plugin. For a client certificate the
/// result is `None`, because the certificate is a part of the TLS settings. The result is also `None` when the user has
/// no credentials.
fn login(
    user: &KubeconfigEntry<User>,
    cluster: &KubeconfigEntry<KubeconfigCluster>,
    options: &Options,
) -> Result<Option<Login>, String> {
    let token = token(user)?;
    let basic = basic(user)?;
    let time_limit = options.exec_time_limit.unwrap_or(EXEC_TIME_LIMIT);
    let exec = user.fields.exec.as_ref();
    let program = exec.map(|exec| Program::of(user, exec, || for_plugin(cluster))).transpose()?;
    if token.is_some() && basic.is_some() {
        return Err(
            user.error("username", "can't be given together with a token; remove one of them")
        );
    }
    let fields = &user.fields;
    let has_certificate =
        fields.client_certificate.is_some() || fields.client_certificate_data.is_some();
    let program = program.filter(|_| !has_certificate);
    let plugin = |program| -> Login { Plugin::of(user, program, time_limit) };
    Ok(token.or(basic).or_else(|| program.map(plugin)))
}

fn identity(user: &KubeconfigEntry<User>) -> Result<Option<ClientIdentity>, String> {
    let fields = &user.fields;
    let (path, data) = (&fields.client_certificate, &fields.client_certificate_data);
    let certificate = user.pem("client-certificate", path, data)?;
    let key = user.pem("client-key", &fields.client_key, &fields.client_key_data)?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(user.error(
            "client-key",
            "not set, but the user has a client certificate; set client-key or client-key-data, or remove the certificate",
        )),
        (None, Some(_)) => Err(user.error(
            "client-certificate",
            "not set, but the user has a client key; set client-certificate or client-certificate-data, or remove the key",
        )),
        (Some(certificate), Some(key)) => ClientIdentity::from_pem(&certificate, &key)
            .map(Some)
            .map_err(|why| format!("{}: {why}", user.place())),
    }
}

/// Returns the user's token, or `None` when the user has no token. As in kubectl, a token in a file takes precedence
/// over a token in the kubeconfig.
fn token(user: &KubeconfigEntry<User>) -> Result<Option<Login>, String> {
    if let Some(path) = &user.fields.token_file {
        let file = user.path(path);
        let token = SecretSource::file(file.clone(), None);
        return match token.current() {
            Ok(_) => Ok(Some(Arc::new(token))),
            Err(_) if !file.exists() => Err(user.no_file("tokenFile", "token")),
            Err(why) => Err(user.error("tokenFile", why)),
        };
    }
    let Some(text) = &user.fields.token else {
        return Ok(None);
    };
    let secret = Secret::new(text);
    secret.check().map_err(|why| user.error("token", why))?;
    Ok(Some(Arc::new(SecretSource::fixed(secret))))
}

fn basic(user: &KubeconfigEntry<User>) -> Result<Option<Login>, String> {
    let (name, password) = (&user.fields.username, &user.fields.password);
    let Some(name) = name else {
        return match password {
            None => Ok(None),
            Some(_) => {
                Err(user.error("username", "not set, but password is set; set both or none"))
            }
        };
    };
    if name.contains(':') {
        return Err(user.error(
            "username",
            "has a colon, which HTTP basic authentication can't send; write the password into the field password",
        ));
    }
    let password = Secret::exactly(password.as_deref().unwrap_or_default().to_owned());
    Ok(Some(Arc::new(Credentials::basic(name, &password))))
}
