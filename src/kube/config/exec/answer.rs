//! What a plugin prints: an `ExecCredential` with a token, a client certificate, or both.

use crate::http::{Identity, IdentityError, Secret};
use jiff::Timestamp;
use serde_json::Value;

pub(super) struct Answer {
    pub(super) token: Option<Secret>,
    pub(super) identity: Option<Identity>,
    pub(super) end_at: Option<Timestamp>,
}

/// The error is for people, and repeats nothing of a field that may be secret.
pub(super) fn parse(printed: &[u8], version: &str) -> Result<Answer, String> {
    let wrong = |why: &str| format!("the program printed {why}");
    let bad = |field: &str, why: &str| format!("the program's status.{field}: {why}");
    if printed.iter().all(u8::is_ascii_whitespace) {
        return Err(wrong("nothing; it should have printed an ExecCredential"));
    }
    let document: Value = serde_json::from_slice(printed).map_err(|error| {
        wrong(&format!(
            "no JSON (line {}, column {}); it should have printed an ExecCredential and nothing else",
            error.line(),
            error.column()
        ))
    })?;
    if document.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
        return Err(wrong("JSON whose kind is not ExecCredential"));
    }
    if document.get("apiVersion").and_then(Value::as_str) != Some(version) {
        return Err(wrong(&format!(
            "an ExecCredential whose apiVersion is not {version}; write in the kubeconfig the one that it speaks"
        )));
    }
    let text = |field: &str| match document.pointer(&format!("/status/{field}")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(bad(field, "must be text")),
    };
    let token = token(text("token")?).map_err(|why| bad("token", why))?;
    let identity = identity(text("clientCertificateData")?, text("clientKeyData")?)
        .map_err(|(field, why)| bad(field, &why))?;
    if token.is_none() && identity.is_none() {
        return Err(wrong(
            "neither status.token nor status.clientCertificateData",
        ));
    }
    let end_at =
        end(text("expirationTimestamp")?).map_err(|why| bad("expirationTimestamp", &why))?;
    Ok(Answer {
        token,
        identity,
        end_at,
    })
}

/// What of it must be in no output, however wrong the rest is.
pub(super) fn secrets(printed: &[u8]) -> Vec<Secret> {
    let document: Value = serde_json::from_slice(printed).unwrap_or_default();
    let text = |field| document.pointer(field).and_then(Value::as_str);
    let fields = ["/status/token", "/status/clientKeyData"];
    fields
        .into_iter()
        .filter_map(text)
        .map(Secret::new)
        .collect()
}

fn token(text: Option<&str>) -> Result<Option<Secret>, &'static str> {
    let Some(secret) = text.map(Secret::new) else {
        return Ok(None);
    };
    secret.check()?;
    Ok(Some(secret).filter(|secret| !secret.is_empty()))
}

fn identity(
    certificate: Option<&str>,
    key: Option<&str>,
) -> Result<Option<Identity>, (&'static str, String)> {
    const CERTIFICATE: &str = "clientCertificateData";
    const KEY: &str = "clientKeyData";
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err((
            CERTIFICATE,
            "comes without a clientKeyData; both or none".into(),
        )),
        (None, Some(_)) => Err((
            KEY,
            "comes without a clientCertificateData; both or none".into(),
        )),
        (Some(certificate), Some(key)) => {
            Identity::from_pem(certificate.as_bytes(), key.as_bytes())
                .map(Some)
                .map_err(|error| match error {
                    IdentityError::Certificate(why) => (CERTIFICATE, why),
                    IdentityError::Key(why) => (KEY, why),
                })
        }
    }
}

fn end(text: Option<&str>) -> Result<Option<Timestamp>, String> {
    let Some(text) = text else {
        return Ok(None);
    };
    match text.parse::<Timestamp>() {
        Ok(end) if end > Timestamp::now() => Ok(Some(end)),
        Ok(end) => Err(format!("ended at {end}; is this machine's clock right?")),
        Err(_) if is_in_the_last_days(text) => Ok(None),
        Err(_) => Err("is not a time of RFC 3339".to_owned()),
    }
}

/// The library knows the year 9999 but for its last days, and programs that mean "never" write
/// just these.
fn is_in_the_last_days(text: &str) -> bool {
    text.strip_prefix("9999-12-3")
        .is_some_and(|rest| format!("9998-12-3{rest}").parse::<Timestamp>().is_ok())
}
