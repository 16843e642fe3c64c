//! A kubeconfig's context → how to reach its cluster as its user. Every field is either used or refused by name.

use super::access::{Access, ConfigError, Options, server_url, unencrypted};
use super::entry::{Entry, Kind, shown, text_of};
use super::exec::Plugin;
use super::file::{self, Merged};
use crate::http::{CertificateName, Identity, IdentityError, Login, Proxy, Roots, Secret};
use crate::http::{Tls, TlsSource, Token, parse_authorities};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use serde_yaml::Mapping;
use std::path::PathBuf;
use std::time::Duration;

const CONTEXT_FIELDS: &[&str] = &["cluster", "user", "namespace", "extensions"];

const CLUSTER_FIELDS: &[&str] = &[
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "proxy-url",
    // Without effect here: nothing is compressed, and extensions are other programs' notes.
    "disable-compression",
    "extensions",
];

/// The extension that is for credential plugins.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

const USER_FIELDS: &[&str] = &[
    "token",
    "tokenFile",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "username",
    "password",
    "exec",
    "extensions",
];

const NO_IMPERSONATION: &str = "give this user itself the role, and remove the field";
const UNSUPPORTED_USER_FIELDS: &[(&str, &str)] = &[
    (
        "auth-provider",
        "Kubernetes has it no more either; use exec, or a token",
    ),
    ("as", NO_IMPERSONATION),
    ("as-uid", NO_IMPERSONATION),
    ("as-groups", NO_IMPERSONATION),
    ("as-user-extra", NO_IMPERSONATION),
];

/// `paths` are those of the options, or what stands for them.
pub(super) fn load(paths: &[PathBuf], options: &Options) -> Result<Access, ConfigError> {
    let merged = file::read(paths)?;
    let context = context(&merged, paths, options.context.as_deref())?;
    context.check(CONTEXT_FIELDS, &[])?;
    let wanted_by = |field: &str| {
        let file = context.file.display();
        format!(
            "kubeconfig {file}: context {}: {field}",
            shown(&context.name)
        )
    };
    let Some(name) = context.text("cluster")? else {
        return Err(context.error(
            "cluster",
            format_args!(
                "not set; name the cluster to talk to ({})",
                merged.names(Kind::Cluster)
            ),
        ));
    };
    let cluster = merged.find(Kind::Cluster, name, &wanted_by("cluster"))?;
    let anonymous = Entry {
        kind: Kind::User,
        name: String::new(),
        file: context.file.clone(),
        fields: Mapping::new(),
    };
    let user = match context.text("user")? {
        None => &anonymous,
        Some(name) => merged.find(Kind::User, name, &wanted_by("user"))?,
    };
    cluster.check(CLUSTER_FIELDS, &[])?;
    user.check(USER_FIELDS, UNSUPPORTED_USER_FIELDS)?;
    let login = login(user, cluster, options.exec_time_limit)?;
    let tls = tls_of(cluster, user)?;
    let mut origin = format!(
        "kubeconfig {}, context {}",
        context.file.display(),
        context.name
    );
    if login.is_none() && tls.identity.is_none() {
        origin += ", which has no credentials";
    }
    let files = [
        cluster.pem_file("certificate-authority"),
        user.pem_file("client-certificate"),
        user.pem_file("client-key"),
    ];
    let server = server(cluster)?;
    let proxy = proxy(cluster)?;
    let unencrypted = unencrypted(&server, proxy.as_ref()).then(|| {
        let shown = format_args!("{server:?}");
        cluster.error("server", shown).to_string()
    });
    let (cluster, user) = (cluster.clone(), user.clone());
    let read = move || tls_of(&cluster, &user).map_err(|error| error.to_string());
    Ok(Access {
        server,
        tls: TlsSource::files(tls, files.into_iter().flatten().collect(), read),
        proxy,
        login,
        origin,
        unencrypted,
    })
}

fn tls_of(cluster: &Entry, user: &Entry) -> Result<Tls, ConfigError> {
    Ok(Tls {
        roots: roots(cluster)?,
        identity: identity(user)?,
        insecure: is_insecure(cluster)?,
        server_name: server_name(cluster)?,
        ..Tls::default()
    })
}

fn context<'a>(
    merged: &'a Merged,
    paths: &[PathBuf],
    wanted: Option<&str>,
) -> Result<&'a Entry, ConfigError> {
    match (wanted, &merged.current_context) {
        (Some(name), _) => merged.find(Kind::Context, name, "--context"),
        (None, Some((name, file))) => {
            let wanted_by = format!("kubeconfig {}: current-context", file.display());
            merged.find(Kind::Context, name, &wanted_by)
        }
        (None, None) => {
            let files: Vec<String> = paths
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Err(ConfigError(format!(
                "kubeconfig {}: current-context: not set; set it or give --context ({})",
                files.join(":"),
                merged.names(Kind::Context)
            )))
        }
    }
}

fn server(cluster: &Entry) -> Result<String, ConfigError> {
    match cluster.text("server")? {
        None => Err(cluster.error(
            "server",
            "not set; write the API server's URL, like https://10.0.0.1:6443",
        )),
        Some(url) => server_url(url).map_err(|why| cluster.error("server", why)),
    }
}

fn is_insecure(cluster: &Entry) -> Result<bool, ConfigError> {
    cluster.flag("insecure-skip-tls-verify")
}

fn server_name(cluster: &Entry) -> Result<Option<CertificateName>, ConfigError> {
    let field = "tls-server-name";
    let name = cluster.text(field)?.map(CertificateName::parse).transpose();
    name.map_err(|why| {
        cluster.error(
            field,
            format_args!("{why}; write a name that the server's certificate has"),
        )
    })
}

fn proxy(cluster: &Entry) -> Result<Option<Proxy>, ConfigError> {
    let field = "proxy-url";
    let proxy = cluster.text(field)?.map(Proxy::parse).transpose();
    proxy.map_err(|why| cluster.error(field, why))
}

fn roots(cluster: &Entry) -> Result<Roots, ConfigError> {
    let Some(pem) = cluster.pem("certificate-authority")? else {
        return Ok(Roots::BuiltIn);
    };
    if is_insecure(cluster)? {
        return Err(cluster.error(
            &pem.origin,
            "can't be given together with insecure-skip-tls-verify; remove one of them",
        ));
    }
    parse_authorities(&pem.bytes)
        .map(Roots::Only)
        .map_err(|why| cluster.error(&pem.origin, why))
}

/// `Cluster` of client.authentication.k8s.io: what a credential plugin may want to know.
fn for_plugin(cluster: &Entry) -> Result<Value, ConfigError> {
    let mut info = json!({"server": server(cluster)?});
    for field in ["tls-server-name", "proxy-url"] {
        if let Some(text) = cluster.text(field)? {
            info[field] = text.into();
        }
    }
    for field in ["insecure-skip-tls-verify", "disable-compression"] {
        if cluster.flag(field)? {
            info[field] = true.into();
        }
    }
    if let Some(pem) = cluster.pem("certificate-authority")? {
        info["certificate-authority-data"] = STANDARD.encode(pem.bytes).into();
    }
    if let Some(config) = exec_extension(cluster)? {
        info["config"] = config;
    }
    Ok(info)
}

fn exec_extension(cluster: &Entry) -> Result<Option<Value>, ConfigError> {
    let Some(serde_yaml::Value::Sequence(extensions)) = cluster.fields.get("extensions") else {
        return Ok(None);
    };
    let ours = extensions
        .iter()
        .find(|extension| text_of(extension.get("name")) == Ok(Some(EXEC_EXTENSION)));
    let config = ours.and_then(|extension| extension.get("extension"));
    let config = config.map(serde_json::to_value).transpose();
    config.map_err(|_| {
        cluster.error(
            "extensions",
            format_args!("what {EXEC_EXTENSION} holds can't be written as JSON; correct it"),
        )
    })
}

/// What every call is authenticated with. One way alone counts, as in kubectl: a token, a name with a password, or else
/// a client certificate, or else a plugin. A plugin may ask for the cluster, and has so much time.
fn login(user: &Entry, cluster: &Entry, exec_time_limit: Duration) -> Result<Login, ConfigError> {
    let token = token(user)?;
    let basic = basic(user)?;
    let plugin = Plugin::of(user, || for_plugin(cluster), exec_time_limit)?;
    if token.is_some() && basic.is_some() {
        return Err(user.error(
            "username",
            "can't be given together with a token; remove one of them",
        ));
    }
    if let Some(login) = token.or(basic) {
        return Ok(login);
    }
    match plugin {
        Some(plugin) if !has_certificate(user) => Ok(Login::Issued(plugin.shared())),
        _ => Ok(Token::none().into()),
    }
}

fn identity(user: &Entry) -> Result<Option<Identity>, ConfigError> {
    match (user.pem("client-certificate")?, user.pem("client-key")?) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(user.error(
            "client-key",
            "not set, but client-certificate is; set both or none (client-key-data for inline)",
        )),
        (None, Some(_)) => Err(user.error(
            "client-certificate",
            "not set, but client-key is; set both or none (client-certificate-data for inline)",
        )),
        (Some(certificate), Some(key)) => Identity::from_pem(&certificate.bytes, &key.bytes)
            .map(Some)
            .map_err(|error| match error {
                IdentityError::Certificate(why) => user.error(&certificate.origin, why),
                IdentityError::Key(why) => user.error(&key.origin, why),
            }),
    }
}

fn has_certificate(user: &Entry) -> bool {
    let is_set = |field| matches!(user.text(field), Ok(Some(_)));
    is_set("client-certificate") || is_set("client-certificate-data")
}

/// A token's file wins over the token itself, as in kubectl.
fn token(user: &Entry) -> Result<Option<Login>, ConfigError> {
    if let Some(path) = user.text("tokenFile")? {
        let file = user.path(path);
        let token = Token::file(file.clone(), None);
        return match token.current() {
            Ok(_) => Ok(Some(token.into())),
            Err(_) if !file.exists() => Err(user.no_file("tokenFile", "token")),
            Err(why) => Err(user.error("tokenFile", why)),
        };
    }
    let Some(text) = user.text("token")? else {
        return Ok(None);
    };
    let secret = Secret::new(text);
    match secret.check() {
        Ok(()) => Ok(Some(Token::fixed(secret).into())),
        Err(why) => Err(user.error("token", why)),
    }
}

fn basic(user: &Entry) -> Result<Option<Login>, ConfigError> {
    let (name, password) = (user.text("username")?, user.text("password")?);
    let Some(name) = name else {
        return match password {
            None => Ok(None),
            Some(_) => Err(user.error("username", "not set, but password is; set both or none")),
        };
    };
    if name.contains(':') {
        return Err(user.error(
            "username",
            "has a colon, which HTTP basic authentication can't send; does the password stand here too?",
        ));
    }
    Ok(Some(Login::Basic {
        user: name.to_owned(),
        password: Secret::exactly(password.unwrap_or_default().to_owned()),
    }))
}
