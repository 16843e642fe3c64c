//! `ccm lint`: what is wrong with manifests of Services, before there is a cluster. The findings are those of the service
//! controller's plan; with a token, names and limits are checked by reading the project.

use super::output::{self, Document, Exit, Printer, line, usage};
use super::{startup, wire};
use crate::controllers::service;
use crate::http::{Secret, Token};
use crate::kube::Service;
use crate::provider::{self, Finding, Reason, Snapshot};
use crate::settings::Command;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, stdin};
use std::sync::Arc;

/// Of one file; what `helm template` makes of large charts is some megabytes.
const FILE_BYTES_AT_MOST: u64 = 8 << 20;

/// Of one file with its aliases resolved: text, and so much for each value. A few lines of YAML can stand for gigabytes.
const RESOLVED_BYTES_AT_MOST: usize = 256 << 20;
const BYTES_OF_A_VALUE: usize = 64;

/// Where a number is that the API server allocates.
const ALLOCATED_PORT: u16 = 30000;

/// One Service of a file, and what is wrong with it.
#[derive(Serialize)]
struct Checked {
    file: String,
    object: Value,
    findings: Vec<Finding>,
    #[serde(skip)]
    service: Option<Service>,
}

pub(super) fn lint(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut started = startup::start(Command::Lint, words)?;
    let files = [&started.settings.files.value[..], &started.words].concat();
    if files.is_empty() {
        return Err(usage(
            "lint needs files: ccm lint -f FILE, or -f - for stdin",
        ));
    }
    let mut is_unreadable = false;
    let mut all = Vec::new();
    for file in files {
        match documents(&file) {
            Ok(documents) => all.extend(documents.into_iter().map(|one| checked(&file, one))),
            Err(why) => {
                is_unreadable = true;
                Printer::notice(format_args!("{file}: {why}"));
            }
        }
    }
    let snapshot = snapshot(&mut started, &all).map_err(|why| Printer::failure(&why))?;
    all.retain_mut(|one| {
        let Some(service) = &one.service else {
            return true;
        };
        let findings = service::check(service, &*snapshot);
        one.findings.extend(findings.iter().flatten().cloned());
        findings.is_some()
    });
    let problems: usize = all.iter().map(|one| one.findings.len()).sum();
    let exit = show(&started, &all);
    let services = if all.len() == 1 {
        "Service"
    } else {
        "Services"
    };
    let found = match problems {
        0 => "nothing wrong".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    Printer::notice(format_args!("{} {services}, {found}", all.len()));
    match is_unreadable {
        true => Err(Exit::Usage),
        false => Ok(exit.fail_if(problems > 0)),
    }
}

fn show(started: &startup::Started, all: &[Checked]) -> Exit {
    let shown = |_| {
        let lines = all.iter().flat_map(|one| {
            let findings = one.findings.iter();
            findings.map(|finding| {
                let [namespace, name] = ["namespace", "name"].map(|part| text(&one.object[part]));
                let message = &finding.message;
                line(format_args!(
                    "{}: service/{namespace}/{name}: {message}",
                    one.file
                ))
            })
        });
        lines.collect()
    };
    let document = || Document::new("ManifestList", all.iter().collect(), None);
    output::print(started.settings.output.value, document, shown)
}

/// Without a token no call is made.
fn snapshot(started: &mut startup::Started, all: &[Checked]) -> Result<Arc<dyn Snapshot>, String> {
    let settings = &mut started.settings;
    let reads = settings.token.value.is_some();
    let unused = || Token::fixed(Secret::new("unused"));
    settings.token.value.get_or_insert_with(unused);
    settings.load_balancers_enabled.value = true;
    let gate = wire::gate(Command::Lint, settings);
    let hetzner = wire::provider(settings, gate, None, started.unknown.clone())?;
    let services = all.iter().filter_map(|one| one.service.as_ref());
    let services: Vec<provider::Service> = services.map(Service::for_cloud).collect();
    let services: Vec<&provider::Service> = services.iter().collect();
    let snapshot = hetzner.for_manifests(&services, reads && !services.is_empty());
    snapshot.map_err(|error| error.to_string())
}

/// The Services of a file.
fn documents(file: &str) -> Result<Vec<Value>, String> {
    let mut bytes = Vec::new();
    let mut read =
        |source: &mut dyn Read| source.take(FILE_BYTES_AT_MOST + 1).read_to_end(&mut bytes);
    let read = match file {
        "-" => read(&mut stdin().lock()),
        path => File::open(path).and_then(|mut file| read(&mut file)),
    };
    read.map_err(|error| match error.kind() {
        ErrorKind::IsADirectory => "it is a folder: name its files".to_owned(),
        _ => error.to_string(),
    })?;
    if bytes.len() as u64 > FILE_BYTES_AT_MOST {
        return Err(format!("larger than {FILE_BYTES_AT_MOST} bytes"));
    }
    let mut left = RESOLVED_BYTES_AT_MOST;
    let mut services = Vec::new();
    for document in serde_yaml::Deserializer::from_slice(&bytes) {
        let document = Bounded(&mut left).deserialize(document);
        let mut rest = vec![document.map_err(|error| error.to_string())?];
        while let Some(mut document) = rest.pop() {
            let kind = text(&document["kind"]);
            if kind == "Service" && document["apiVersion"] == "v1" {
                services.push(document);
            } else if kind.ends_with("List")
                && let Some(Value::Array(items)) = document.get_mut("items").map(Value::take)
            {
                rest.extend(items.into_iter().rev());
            }
        }
    }
    Ok(services)
}

/// The API server completes what is unset.
fn checked(file: &str, mut document: Value) -> Checked {
    let mut problems = Vec::new();
    let metadata = document["metadata"].clone();
    let given = |names: &[&str], usual: &str| {
        let mut given = names.iter().map(|name| text(&metadata[*name]));
        given
            .find(|text| !text.is_empty())
            .unwrap_or(usual)
            .to_owned()
    };
    let namespace = given(&["namespace"], "default");
    let name = given(&["name", "generateName"], "unnamed");
    let mut annotations = metadata["annotations"].clone();
    for (key, value) in annotations.as_object_mut().into_iter().flatten() {
        if !value.is_string() {
            problems.push(format!(
                "annotation {key}: {value} is not a text, and Kubernetes refuses it: put it in quotes"
            ));
            *value = json!(value.to_string());
        }
    }
    let mut spec = document
        .get_mut("spec")
        .map(Value::take)
        .unwrap_or_default();
    complete(&mut spec);
    let service = Service::deserialize(json!({ "spec": spec, "metadata": {
        "namespace": namespace, "name": name, "annotations": annotations,
        "uid": "unknown", "resourceVersion": "0",
    }}));
    let object = json!({ "kind": "Service", "namespace": namespace, "name": name });
    let service = service.map_err(|error| problems.push(format!("no valid Service: {error}")));
    let finding = |why| Finding::warning(Reason::SyncLoadBalancerFailed, why);
    Checked {
        file: file.to_owned(),
        object,
        service: service.ok(),
        findings: problems.into_iter().map(finding).collect(),
    }
}

/// With the ports of the nodes that a cluster allocates.
fn complete(spec: &mut Value) {
    let is_allocated = spec["allocateLoadBalancerNodePorts"] != false;
    let is_local = spec["externalTrafficPolicy"] == "Local";
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if is_allocated {
            port.entry("nodePort").or_insert(json!(ALLOCATED_PORT));
        }
    }
    if let Some(spec) = spec.as_object_mut().filter(|_| is_local) {
        let port = spec.entry("healthCheckNodePort");
        port.or_insert(json!(ALLOCATED_PORT));
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Reads a document of at most so many bytes. What is null is unset.
struct Bounded<'a>(&'a mut usize);

impl Bounded<'_> {
    fn take<E: Error>(&mut self, text: &str) -> Result<(), E> {
        let left = self.0.checked_sub(BYTES_OF_A_VALUE + text.len());
        *self.0 = left.ok_or_else(|| E::custom("its aliases stand for too much"))?;
        Ok(())
    }

    fn value<E: Error>(mut self, value: Value) -> Result<Value, E> {
        self.take(text(&value))?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of Kubernetes")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.value(json!(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.value(json!(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.value(json!(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.value(json!(value))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Value, E> {
        self.take(value)?;
        Ok(json!(value))
    }

    // A document without content.
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.value(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        self.take("")?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Bounded(self.0))? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        self.take("")?;
        let mut fields = Map::new();
        while let Some(key) = map.next_key_seed(Bounded(self.0))? {
            let value = map.next_value_seed(Bounded(self.0))?;
            let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
            if !value.is_null() {
                fields.insert(key, value);
            }
        }
        Ok(fields.into())
    }
}
