//! kubeconfig files: merged first-wins, one context chosen, every field either honoured or refused by name.

use super::{Access, ConfigError, server_url};
use crate::http::{Identity, Roots, Secret, Tls, Token, parse_authorities};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A kubeconfig is a few kilobytes; one with inline certificates some tens.
const FILE_LIMIT_BYTES: u64 = 16 << 20;

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    current_context: Option<String>,
    #[serde(default)]
    clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<serde_yaml::Value>,
    password: Option<serde_yaml::Value>,
    exec: Option<serde_yaml::Value>,
    auth_provider: Option<serde_yaml::Value>,
    #[serde(rename = "as")]
    impersonate: Option<serde_yaml::Value>,
}

/// A part of a file that others point to, with where it stands: relative paths are relative to that file.
struct Entry<T> {
    name: String,
    value: T,
    file: PathBuf,
}

/// All files together.
#[derive(Default)]
struct Merged {
    current_context: Option<(String, PathBuf)>,
    clusters: Vec<Entry<Cluster>>,
    contexts: Vec<Entry<Context>>,
    users: Vec<Entry<User>>,
}

pub(super) fn load(paths: &[PathBuf], context: Option<&str>) -> Result<Access, ConfigError> {
    let mut merged = Merged::default();
    let mut read_any = false;
    for path in paths {
        // Of several files some may be missing, as kubectl has it; a single one must be there.
        if paths.len() > 1 && !path.exists() {
            continue;
        }
        merged.add(path, read(path)?);
        read_any = true;
    }
    if !read_any {
        let list: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(ConfigError(format!(
            "kubeconfig: none of these files exists: {}",
            list.join(", ")
        )));
    }
    merged.access(paths, context)
}

fn read(path: &Path) -> Result<File, ConfigError> {
    let fail = |why: String| ConfigError(format!("kubeconfig {}: {why}", path.display()));
    let length = std::fs::metadata(path)
        .map_err(|error| fail(error.to_string()))?
        .len();
    if length > FILE_LIMIT_BYTES {
        return Err(fail(format!("{length} bytes is too long for a kubeconfig")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    if text.trim().is_empty() {
        return Err(fail("the file is empty".into()));
    }
    serde_yaml::from_str(&text).map_err(|error| fail(without_values(&error.to_string())))
}

/// serde quotes the value it did not expect; here that value may be a secret.
fn without_values(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(first), Some(last)) if first < last => {
            format!("{}[not shown]{}", &message[..first], &message[last + 1..])
        }
        _ => message.to_owned(),
    }
}

impl Merged {
    fn add(&mut self, path: &Path, file: File) {
        fn entries<T, U>(
            into: &mut Vec<Entry<U>>,
            path: &Path,
            items: Option<Vec<T>>,
            split: fn(T) -> (String, U),
        ) {
            for item in items.unwrap_or_default() {
                let (name, value) = split(item);
                if !into.iter().any(|entry| entry.name == name) {
                    into.push(Entry {
                        name,
                        value,
                        file: path.to_owned(),
                    });
                }
            }
        }
        if self.current_context.is_none() {
            self.current_context = file
                .current_context
                .filter(|name| !name.is_empty())
                .map(|name| (name, path.to_owned()));
        }
        entries(&mut self.clusters, path, file.clusters, |item| {
            (item.name, item.cluster)
        });
        entries(&mut self.contexts, path, file.contexts, |item| {
            (item.name, item.context)
        });
        entries(&mut self.users, path, file.users, |item| {
            (item.name, item.user.unwrap_or_default())
        });
    }

    fn access(&self, paths: &[PathBuf], asked: Option<&str>) -> Result<Access, ConfigError> {
        let first = paths
            .first()
            .map(|path| path.display().to_string())
            .unwrap_or_default();
        let (name, wanted_by) = match (asked, &self.current_context) {
            (Some(name), _) => (name, "--context".to_owned()),
            (None, Some((name, file))) => (
                name.as_str(),
                format!("kubeconfig {}: current-context", file.display()),
            ),
            (None, None) => {
                return Err(ConfigError(format!(
                    "kubeconfig {first}: current-context: not set; set it, or give --context ({})",
                    names(&self.contexts)
                )));
            }
        };
        let context = find(&self.contexts, name, "context", &wanted_by)?;
        let at = |field: &str| {
            format!(
                "kubeconfig {}: context {name:?}: {field}",
                context.file.display()
            )
        };
        let cluster = find(
            &self.clusters,
            &context.value.cluster,
            "cluster",
            &at("cluster"),
        )?;
        let nobody = Entry {
            name: String::new(),
            value: User::default(),
            file: context.file.clone(),
        };
        let user = match context.value.user.as_str() {
            "" => &nobody,
            user => find(&self.users, user, "user", &at("user"))?,
        };
        cluster_supported(cluster)?;
        user_supported(user)?;
        Ok(Access {
            server: server_url(&cluster.value.server)
                .map_err(|why| cluster.error("cluster", "server", why))?,
            tls: Tls {
                roots: roots(cluster)?,
                identity: identity(user)?,
                insecure: cluster.value.insecure_skip_tls_verify.unwrap_or(false),
            },
            token: token(user)?,
            origin: format!("kubeconfig {}, context {name}", context.file.display()),
        })
    }
}

impl<T> Entry<T> {
    fn error(&self, kind: &str, field: &str, why: impl std::fmt::Display) -> ConfigError {
        ConfigError(format!(
            "kubeconfig {}: {kind} {:?}: {field}: {why}",
            self.file.display(),
            self.name
        ))
    }

    /// A path relative to the file that names it.
    fn path(&self, text: &str) -> PathBuf {
        match self.file.parent() {
            Some(folder) => folder.join(text),
            None => PathBuf::from(text),
        }
    }

    /// Inline data, else the file; none when neither is set.
    fn bytes(
        &self,
        kind: &str,
        field: &str,
        data: &Option<String>,
        path: &Option<String>,
    ) -> Result<Option<Vec<u8>>, ConfigError> {
        if let Some(data) = set(data) {
            let compact: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            return STANDARD.decode(compact).map(Some).map_err(|error| {
                self.error(
                    kind,
                    &format!("{field}-data"),
                    format!("not base64: {error}"),
                )
            });
        }
        let Some(path) = set(path) else {
            return Ok(None);
        };
        let path = self.path(path);
        std::fs::read(&path)
            .map(Some)
            .map_err(|error| self.error(kind, field, format!("{}: {error}", path.display())))
    }
}

fn find<'a, T>(
    entries: &'a [Entry<T>],
    name: &str,
    kind: &str,
    wanted_by: &str,
) -> Result<&'a Entry<T>, ConfigError> {
    entries
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| {
            ConfigError(format!(
                "{wanted_by}: there is no {kind} {name:?} ({})",
                names(entries)
            ))
        })
}

fn names<T>(entries: &[Entry<T>]) -> String {
    match entries {
        [] => "there is none".into(),
        entries => {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            format!("there is {}", names.join(", "))
        }
    }
}

fn set(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}

/// What we cannot honour is an error, never silently left out: it was set to make a connection safe.
fn cluster_supported(cluster: &Entry<Cluster>) -> Result<(), ConfigError> {
    let unsupported = [
        ("tls-server-name", &cluster.value.tls_server_name),
        ("proxy-url", &cluster.value.proxy_url),
    ];
    match unsupported.iter().find(|(_, value)| set(value).is_some()) {
        Some((field, _)) => Err(cluster.error("cluster", field, "not supported by this version")),
        None => Ok(()),
    }
}

fn user_supported(user: &Entry<User>) -> Result<(), ConfigError> {
    let value = &user.value;
    let unsupported = [
        ("exec", &value.exec),
        ("auth-provider", &value.auth_provider),
        ("username", &value.username),
        ("password", &value.password),
        ("as", &value.impersonate),
    ];
    match unsupported
        .iter()
        .find(|(_, value)| value.as_ref().is_some_and(|value| !value.is_null()))
    {
        Some((field, _)) => Err(user.error(
            "user",
            field,
            "not supported by this version; use a token, tokenFile or client certificate",
        )),
        None => Ok(()),
    }
}

fn roots(cluster: &Entry<Cluster>) -> Result<Roots, ConfigError> {
    let value = &cluster.value;
    let data = (
        &value.certificate_authority_data,
        &value.certificate_authority,
    );
    let field = if set(data.0).is_some() {
        "certificate-authority-data"
    } else {
        "certificate-authority"
    };
    if value.insecure_skip_tls_verify == Some(true)
        && (set(data.0).is_some() || set(data.1).is_some())
    {
        return Err(cluster.error(
            "cluster",
            field,
            "can't be given together with insecure-skip-tls-verify",
        ));
    }
    match cluster.bytes("cluster", "certificate-authority", data.0, data.1)? {
        None => Ok(Roots::BuiltIn),
        Some(pem) => parse_authorities(&pem)
            .map(Roots::Only)
            .map_err(|why| cluster.error("cluster", field, why)),
    }
}

fn identity(user: &Entry<User>) -> Result<Option<Identity>, ConfigError> {
    let value = &user.value;
    let certificate = user.bytes(
        "user",
        "client-certificate",
        &value.client_certificate_data,
        &value.client_certificate,
    )?;
    let key = user.bytes(
        "user",
        "client-key",
        &value.client_key_data,
        &value.client_key,
    )?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(user.error("user", "client-key", "missing beside client-certificate"))
        }
        (None, Some(_)) => {
            Err(user.error("user", "client-certificate", "missing beside client-key"))
        }
        (Some(certificate), Some(key)) => Identity::from_pem(&certificate, &key)
            .map(Some)
            .map_err(|why| user.error("user", "client-certificate, client-key", why)),
    }
}

/// The token itself wins over its file only when there is no file, as in kubectl.
fn token(user: &Entry<User>) -> Result<Token, ConfigError> {
    if let Some(path) = set(&user.value.token_file) {
        let path = user.path(path);
        let token = Token::file(path);
        token
            .current()
            .map_err(|why| user.error("user", "tokenFile", why))?;
        return Ok(token);
    }
    let Some(text) = set(&user.value.token) else {
        return Ok(Token::none());
    };
    if text.trim().chars().any(|c| !c.is_ascii_graphic()) {
        return Err(user.error("user", "token", "holds characters that a token can't have"));
    }
    Ok(Token::fixed(Secret::new(text)))
}
