//! Answers requests to `/ssh_keys`, the public keys with which people can log in to new servers.

use jiff::Timestamp;

use crate::hetzner::catalog::id;
use crate::hetzner::clock::show;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::{Fields, Query};
use crate::hetzner::labels::Labels;
use crate::hetzner::listing::Page;
use crate::hetzner::owned;
use crate::hetzner::text::{Text, text};
use crate::hetzner::{Call, Reply};
use crate::time;

#[derive(Clone, Debug)]
pub struct SshKey {
    pub id: u64,
    pub project: u64,
    pub name: String,
    created: Timestamp,
    pub labels: Labels,
    /// The key as an `authorized_keys` line: type, key in Base64, and perhaps a comment.
    public_key: String,
}

owned::owned!(SshKey, "ssh_key", ssh_keys);

impl SshKey {
    fn json(&self) -> Text {
        text!({
            "id": self.id, "name": self.name, "created": show(self.created), "labels": self.labels,
            "public_key": self.public_key, "fingerprint": fingerprint(&self.public_key),
        })
    }
}

/// Returns the type and the key of an `authorized_keys` line, without the comment. Returns `None` when the text is not
/// a public key.
fn parse(public_key: &str) -> Option<(&str, &str)> {
    let mut words = public_key.split_whitespace();
    let (kind, key) = (words.next()?, words.next()?);
    let is_known = kind.starts_with("ssh-") || kind.starts_with("ecdsa-");
    (is_known && key.starts_with("AAAA")).then_some((kind, key))
}

/// Returns 16 bytes in hexadecimal that identify a public key. The real API shows the MD5 hash of the key, and this
/// function uses another hash.
fn fingerprint(public_key: &str) -> String {
    let key = parse(public_key).map_or("", |(_, key)| key);
    let mut bytes = [0u8; 16];
    for (at, byte) in key.bytes().enumerate() {
        let place = &mut bytes[at % 16];
        *place = place.wrapping_mul(31).wrapping_add(byte);
    }
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Answers all requests to `/ssh_keys` and to paths below it.
pub fn route(call: &mut Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match (rest, call.method) {
        ([], "GET") => list(call),
        ([], "POST") => create(call),
        ([segment], _) => route_one(call, id(segment)?),
        ([], _) => Err(ApiError::wrong_method(call.method)),
        _ => Err(ApiError::no_such_path()),
    }
}

fn route_one(call: &mut Call, id: u64) -> Result<Reply, ApiError> {
    let found = owned::find::<SshKey>(call, id)?.clone();
    match call.method {
        "GET" => {
            call.refuse_query()?;
            Ok(Reply::ok(text!({"ssh_key": found.json()})))
        }
        "PUT" => update(call, found),
        "DELETE" => {
            call.world.ssh_keys.remove(&id);
            Ok(Reply::no_content())
        }
        method => Err(ApiError::wrong_method(method)),
    }
}

/// Finds the SSH key whose ID or name is `text`, in the project of the request's API token. A request for a new server
/// names its SSH keys by their IDs or names.
pub fn find<'c>(call: &'c Call, text: &str) -> Option<&'c SshKey> {
    let number = text.parse::<u64>().ok();
    owned::of_project::<SshKey>(call.world, call.project)
        .find(|key| Some(key.id) == number || key.name == text)
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    let known = ["name", "fingerprint", "label_selector", "sort", "page", "per_page"];
    let query = Query::new(call.query, &known)?;
    let page = Page::of(&query)?;
    let wanted = query.one("fingerprint");
    let has_it = |key: &&SshKey| wanted.is_none_or(|text| text == fingerprint(&key.public_key));
    let all = owned::of_project(call.world, call.project).filter(has_it);
    let found = owned::select(&query, all)?;
    Ok(page.reply("/ssh_keys", "ssh_keys", &found, |key| key.json()))
}

fn create(call: &mut Call) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let name = owned::read_name::<SshKey>(call, &mut fields)?;
    let public_key = fields.string("public_key")?;
    let public_key = fields.required("public_key", public_key)?;
    if parse(&public_key).is_none() {
        return Err(fields.invalid("public_key", "is no public key"));
    }
    let is_same = |other: &SshKey| parse(&other.public_key) == parse(&public_key);
    if owned::of_project(call.world, call.project).any(is_same) {
        let message = "SSH key with the same fingerprint already exists";
        return Err(ApiError::new(409, "uniqueness_error", message));
    }
    let labels = fields.labels()?.unwrap_or_default();
    fields.finish()?;
    let key = SshKey {
        id: call.world.new_id(),
        project: call.project,
        name,
        created: time::timestamp(),
        labels,
        public_key,
    };
    let reply = Reply::new(201, text!({"ssh_key": key.json()}));
    call.world.ssh_keys.insert(key.id, key);
    Ok(reply)
}

fn update(call: &mut Call, key: SshKey) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let (name, labels) = owned::read_changes(call, &mut fields, &key)?;
    fields.finish()?;
    let key = SshKey { name, labels, ..key };
    let reply = Reply::ok(text!({"ssh_key": key.json()}));
    call.world.ssh_keys.insert(key.id, key);
    Ok(reply)
}
