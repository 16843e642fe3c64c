//! Parses the query parameters and the body fields of requests. A request with an unknown parameter or field is
//! refused.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::labels;
use crate::exchange::percent_encode;

type Result<T> = std::result::Result<T, ApiError>;

/// The query parameters of a request, after the check that the path supports all of them.
pub struct Query<'a> {
    pairs: &'a [(String, String)],
}

impl<'a> Query<'a> {
    /// Returns the query parameters of a request, or an error when one of them is not in `known`.
    pub fn new(pairs: &'a [(String, String)], known: &[&str]) -> Result<Query<'a>> {
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(ApiError::invalid(name, "unknown parameter")),
            None => Ok(Query { pairs }),
        }
    }

    pub fn all(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn one(&self, name: &str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// Returns the query parameters except those in `left_out`. They are percent-encoded, and each has a `&` before it.
    pub fn encode_except(&self, left_out: &[&str]) -> String {
        let kept = self.pairs.iter().filter(|(name, _)| !left_out.contains(&name.as_str()));
        kept.map(|(name, value)| format!("&{}={}", percent_encode(name), percent_encode(value)))
            .collect()
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>> {
        let parse =
            |text: &str| text.parse().map_err(|_| ApiError::invalid(name, "must be an integer"));
        self.one(name).map(parse).transpose()
    }

    pub fn numbers(&self, name: &str) -> Result<Vec<u64>> {
        let parse =
            |text: &str| text.parse().map_err(|_| ApiError::invalid(name, "must be an integer"));
        self.all(name).map(parse).collect()
    }
}

/// The fields of a JSON object in a request's body. Reading a field removes it. [`Fields::finish`] returns an error
/// when fields are left that nothing has read.
///
/// A field with the value `null` counts as missing, because official clients send `null` for options that are not set.
pub struct Fields {
    values: Map<String, Value>,
    /// The text that stands before a field's name in errors about a nested object, e.g. `public_net.`.
    prefix: String,
}

impl Fields {
    /// Returns the fields of a JSON value, or no fields when the value is not an object.
    pub fn of(document: &Value) -> Fields {
        Fields { values: document.as_object().cloned().unwrap_or_default(), prefix: String::new() }
    }

    /// Parses the body of a request. An empty body counts as an object without fields, because clients send no body for
    /// actions such as `poweron`.
    pub fn parse(body: &[u8]) -> Result<Fields> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Fields { values: Map::new(), prefix: String::new() });
        }
        match serde_json::from_slice(body).map_err(ApiError::not_json)? {
            Value::Object(values) => Ok(Fields { values, prefix: String::new() }),
            _ => Err(ApiError::not_json("an object is expected")),
        }
    }

    pub fn string(&mut self, name: &str) -> Result<Option<String>> {
        self.read(name, "must be a string", |value| value.as_str().map(str::to_owned))
    }

    pub fn number(&mut self, name: &str) -> Result<Option<u64>> {
        self.read(name, "must be a positive integer", Value::as_u64)
    }

    pub fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        self.read(name, "must be a boolean", Value::as_bool)
    }

    /// Reads a field that contains the ID or the name of a resource. Returns `None` when the field is missing.
    pub fn id_or_name(&mut self, name: &str) -> Result<Option<String>> {
        self.read(name, "must be an ID or a name", |value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => number.as_u64().map(|id| id.to_string()),
            _ => None,
        })
    }

    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>> {
        self.read(name, "must be an array", |value| value.as_array().cloned())
    }

    pub fn numbers(&mut self, name: &str) -> Result<Vec<u64>> {
        let number = |value: &Value| {
            value.as_u64().ok_or_else(|| self.invalid(name, "must be an array of IDs"))
        };
        let list = self.values.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let numbers = list.iter().map(number).collect::<Result<Vec<u64>>>()?;
        self.list(name)?;
        Ok(numbers)
    }

    pub fn addresses(&mut self, name: &str) -> Result<Option<Vec<Ipv4Addr>>> {
        let Some(list) = self.list(name)? else {
            return Ok(None);
        };
        let address = |value: &Value| {
            let parsed = value.as_str().and_then(|text| text.parse().ok());
            parsed.ok_or_else(|| self.invalid(name, "must be an array of IPv4 addresses"))
        };
        list.iter().map(address).collect::<Result<_>>().map(Some)
    }

    pub fn address(&mut self, name: &str) -> Result<Option<Ipv4Addr>> {
        self.read(name, "must be an IPv4 address", |value| value.as_str()?.parse().ok())
    }

    /// Reads a field that contains an IPv4 CIDR whose host bits are zero. Returns `None` when the field is missing.
    pub fn range(&mut self, name: &str) -> Result<Option<Ipv4Net>> {
        self.read(name, "must be an IPv4 range in CIDR notation without host bits", |value| {
            let range: Ipv4Net = value.as_str()?.parse().ok()?;
            (range.trunc() == range).then_some(range)
        })
    }

    /// Reads the field `labels` of a request, and checks the labels. Returns `None` when the field is missing.
    pub fn labels(&mut self) -> Result<Option<BTreeMap<String, String>>> {
        let Some(map) =
            self.read("labels", "must be an object", |value| value.as_object().cloned())?
        else {
            return Ok(None);
        };
        labels::parse(&map).map_err(|problem| self.invalid("labels", problem)).map(Some)
    }

    /// Reads a field that contains an object, or returns `None` when the field is missing. An error about a field of
    /// this object shows the field's name as `NAME.FIELD`.
    pub fn object(&mut self, name: &str) -> Result<Option<Fields>> {
        let values = self.read(name, "must be an object", |value| value.as_object().cloned())?;
        Ok(values.map(|values| Fields { values, prefix: format!("{}{name}.", self.prefix) }))
    }

    /// Reads a field that contains a list of objects. An error about a field of the first object shows the field's name
    /// as `NAME.0.FIELD`.
    pub fn objects(&mut self, name: &str) -> Result<Vec<Fields>> {
        let list = self.list(name)?.unwrap_or_default();
        let object = |(index, value): (usize, Value)| match value {
            Value::Object(values) => {
                Ok(Fields { values, prefix: format!("{}{name}.{index}.", self.prefix) })
            }
            _ => Err(self.invalid(name, "must be an array of objects")),
        };
        list.into_iter().enumerate().map(object).collect()
    }

    /// Whether the request contains the field, even with the value null. This is needed for fields in which null has a
    /// meaning of its own.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub fn strings(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        self.read(name, "must be an array of strings", |value| {
            let strings = value.as_array()?.iter();
            strings.map(|one| one.as_str().map(str::to_owned)).collect()
        })
    }

    /// Reads a field that contains one of the strings in `allowed`. Returns `None` when the field is missing.
    pub fn word(&mut self, name: &str, allowed: &[&'static str]) -> Result<Option<&'static str>> {
        let problem = format!("must be one of {}", allowed.join(", "));
        self.read(name, &problem, |value| allowed.iter().copied().find(|word| value == word))
    }

    pub fn port(&mut self, name: &str) -> Result<Option<u16>> {
        self.read(name, "must be a port between 1 and 65535", |value| {
            u16::try_from(value.as_u64()?).ok().filter(|port| *port > 0)
        })
    }

    /// Returns `value`. When `value` is `None`, returns an error that says that the field `name` is required.
    pub fn required<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.invalid(name, "is required"))
    }

    pub fn invalid(&self, name: &str, problem: impl Into<String>) -> ApiError {
        ApiError::invalid(&format!("{}{name}", self.prefix), problem)
    }

    /// Returns an error when the JSON object has fields that nothing has read. Such fields are unknown to the API.
    pub fn finish(self) -> Result<()> {
        match self.values.keys().next() {
            Some(name) => Err(self.invalid(name, "unknown field")),
            None => Ok(()),
        }
    }

    fn read<T>(
        &mut self,
        name: &str,
        problem: &str,
        parse: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.values.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => parse(&value).map(Some).ok_or_else(|| self.invalid(name, problem)),
        }
    }
}
