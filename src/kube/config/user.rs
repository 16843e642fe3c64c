//! The user of a context: what it proves who it is with. One way alone counts, as in kubectl: a token, a name with a
//! password, or else a client certificate, or else a plugin.

use super::ConfigError;
use super::entry::Entry;
use super::exec::Plugin;
use super::hidden::is_perhaps_secret;
use crate::http::{Identity, IdentityError, Login, Secret, Token};
use std::time::Duration;

const FIELDS: &[&str] = &[
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
const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "auth-provider",
        "Kubernetes has it no more either; use exec, or a token",
    ),
    ("as", NO_IMPERSONATION),
    ("as-uid", NO_IMPERSONATION),
    ("as-groups", NO_IMPERSONATION),
    ("as-user-extra", NO_IMPERSONATION),
];

pub(super) fn check(user: &Entry) -> Result<(), ConfigError> {
    user.check(FIELDS, UNSUPPORTED)
}

/// What goes with every call. A plugin may want to know about the cluster, and has so much time.
pub(super) fn login(
    user: &Entry,
    cluster: &Entry,
    exec_time_limit: Duration,
) -> Result<Login, ConfigError> {
    let token = token(user)?;
    let basic = basic(user)?;
    let plugin = Plugin::of(user, cluster, exec_time_limit)?;
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

pub(super) fn identity(user: &Entry) -> Result<Option<Identity>, ConfigError> {
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
        let token = Token::file(user.path(path), None);
        return match token.current() {
            Ok(_) => Ok(Some(token.into())),
            Err(_) if is_perhaps_secret(path) => Err(user.no_path("tokenFile", "token")),
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
