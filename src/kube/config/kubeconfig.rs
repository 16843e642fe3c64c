//! A kubeconfig's context → how to reach its cluster as its user. Every field is either honoured or refused by name.

use super::entry::{Entry, Kind, shown};
use super::file::{self, Merged};
use super::hidden::is_perhaps_secret;
use super::{Access, ConfigError, server_url};
use crate::http::{Identity, IdentityError, Roots, Secret, Tls, Token, parse_authorities};
use serde_yaml::Mapping;
use std::path::PathBuf;

const CLUSTER_FIELDS: &[&str] = &[
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    // Without effect here: nothing is compressed, and extensions are other programs' notes.
    "disable-compression",
    "extensions",
];
const CLUSTER_UNSUPPORTED: &[&str] = &["tls-server-name", "proxy-url"];

const CONTEXT_FIELDS: &[&str] = &["cluster", "user", "namespace", "extensions"];

const USER_FIELDS: &[&str] = &[
    "token",
    "tokenFile",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "extensions",
];
const USER_UNSUPPORTED: &[&str] = &[
    "exec",
    "auth-provider",
    "username",
    "password",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
];

pub(super) fn load(paths: &[PathBuf], asked: Option<&str>) -> Result<Access, ConfigError> {
    let merged = file::read(paths)?;
    let context = context(&merged, paths, asked)?;
    context.check(CONTEXT_FIELDS, &[], "")?;
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
    let nobody = Entry {
        kind: Kind::User,
        name: String::new(),
        file: context.file.clone(),
        fields: Mapping::new(),
    };
    let user = match context.text("user")? {
        None => &nobody,
        Some(name) => merged.find(Kind::User, name, &wanted_by("user"))?,
    };
    cluster.check(CLUSTER_FIELDS, CLUSTER_UNSUPPORTED, "remove it")?;
    user.check(
        USER_FIELDS,
        USER_UNSUPPORTED,
        "use token, tokenFile or client-certificate",
    )?;
    let token = token(user)?;
    let tls = Tls {
        roots: roots(cluster)?,
        identity: identity(user)?,
        insecure: cluster.flag("insecure-skip-tls-verify")?,
        ..Tls::default()
    };
    let mut origin = format!(
        "kubeconfig {}, context {}",
        context.file.display(),
        context.name
    );
    if token.is_none() && tls.identity.is_none() {
        origin += ", which has no credentials";
    }
    Ok(Access {
        server: server(cluster)?,
        tls,
        proxy: None,
        token,
        origin,
    })
}

fn context<'a>(
    merged: &'a Merged,
    paths: &[PathBuf],
    asked: Option<&str>,
) -> Result<&'a Entry, ConfigError> {
    match (asked, &merged.current_context) {
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

fn roots(cluster: &Entry) -> Result<Roots, ConfigError> {
    let Some(pem) = cluster.pem("certificate-authority")? else {
        return Ok(Roots::BuiltIn);
    };
    if cluster.flag("insecure-skip-tls-verify")? {
        return Err(cluster.error(
            &pem.origin,
            "can't be given together with insecure-skip-tls-verify; remove one of them",
        ));
    }
    parse_authorities(&pem.bytes)
        .map(Roots::Only)
        .map_err(|why| cluster.error(&pem.origin, why))
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

/// A token's file wins over the token itself, as in kubectl.
fn token(user: &Entry) -> Result<Token, ConfigError> {
    if let Some(path) = user.text("tokenFile")? {
        let token = Token::file(user.path(path), None);
        return match token.current() {
            Ok(_) => Ok(token),
            Err(_) if is_perhaps_secret(path) => Err(user.no_path("tokenFile", "token")),
            Err(why) => Err(user.error("tokenFile", why)),
        };
    }
    let Some(text) = user.text("token")? else {
        return Ok(Token::none());
    };
    let secret = Secret::new(text);
    match secret.check() {
        Ok(()) => Ok(Token::fixed(secret)),
        Err(why) => Err(user.error("token", why)),
    }
}
