//! Who we say we are in every call: a token, a name with a password, or what somebody issues for a while.

use super::{Identity, Secret, Token};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

pub enum Login {
    Token(Token),
    /// HTTP basic authentication.
    Basic {
        user: String,
        password: Secret,
    },
    Issued(Arc<dyn Issuer>),
}

/// Hands out credentials that end some time.
pub trait Issuer: Send + Sync {
    /// What is in force, from memory as long as that is good. The error is for people.
    fn current(&self) -> Result<Issued, String>;

    /// The API refused what bears this number: others are asked for, unless that was done since.
    fn refused(&self, number: u64);
}

/// A token, a client certificate, or both.
#[derive(Clone)]
pub struct Issued {
    /// Counts the issues, from 1.
    pub number: u64,
    pub token: Option<Secret>,
    pub identity: Option<Identity>,
}

/// What a call shows.
#[derive(Default)]
pub(super) struct Shown {
    /// Value of the header `Authorization`.
    pub(super) header: Option<Secret>,
    /// In place of the one that the TLS settings name.
    pub(super) identity: Option<Identity>,
    /// Every form in which the secret may come back.
    pub(super) secrets: Vec<Secret>,
    issue: u64,
}

impl From<Token> for Login {
    fn from(token: Token) -> Login {
        Login::Token(token)
    }
}

impl Login {
    pub fn is_none(&self) -> bool {
        matches!(self, Login::Token(token) if token.is_none())
    }

    /// What to show with a call now.
    pub(super) fn current(&self) -> Result<Shown, String> {
        match self {
            Login::Token(token) => Ok(Shown::bearer(token.current()?)),
            Login::Basic { user, password } => Ok(Shown::basic(user, password)),
            Login::Issued(issuer) => {
                let issued = issuer.current()?;
                Ok(Shown {
                    identity: issued.identity,
                    issue: issued.number,
                    ..Shown::bearer(issued.token)
                })
            }
        }
    }

    /// After a 401. A token's file is read before every call anyway.
    pub(super) fn refused(&self, shown: &Shown) {
        match self {
            Login::Issued(issuer) => issuer.refused(shown.issue),
            Login::Token(token) => token.refused(),
            Login::Basic { .. } => {}
        }
    }
}

impl Shown {
    fn bearer(token: Option<Secret>) -> Shown {
        let Some(token) = token else {
            return Shown::default();
        };
        Shown {
            header: Some(Secret::new(&format!("Bearer {}", token.expose()))),
            secrets: vec![token],
            ..Shown::default()
        }
    }

    fn basic(user: &str, password: &Secret) -> Shown {
        let both = STANDARD.encode(format!("{user}:{}", password.expose()));
        Shown {
            header: Some(Secret::new(&format!("Basic {both}"))),
            secrets: vec![Secret::new(&both), password.clone(), password.in_json()],
            ..Shown::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Redactor;
    use super::*;

    #[test]
    fn a_password_is_sent_as_rfc_7617_has_it_and_taken_out_of_whatever_comes_back() {
        let login = Login::Basic {
            user: "Aladdin".into(),
            password: Secret::exactly("open \"sesame\" ".into()),
        };
        let shown = login.current().unwrap();
        let header = shown.header.unwrap();
        assert_eq!(header.expose(), "Basic QWxhZGRpbjpvcGVuICJzZXNhbWUiIA==");
        let redactor = Redactor::new(&shown.secrets);
        for told in [
            "a QWxhZGRpbjpvcGVuICJzZXNhbWUiIA== b",
            "a open \"sesame\"  b",
            "a open \\\"sesame\\\"  b",
        ] {
            assert_eq!(redactor.redact(told), "a [redacted] b");
        }
    }
}
