//! `ccm lint` checks the manifests of Services without a cluster. It reports the same facts and problems as the Service
//! controller would report in a cluster. When there is an API token, names and limits are also checked against the
//! Hetzner project of the token.

use super::output::{self, Document, Exit, Printer, usage, whole_line};
use super::startup::{self, Started};
use super::wire;
use crate::controllers::service;
use crate::http::{Secret, SecretSource, read_file};
use crate::kube::{self, KubeService, ServiceScope};
use crate::provider::{Cluster, Finding, NamespaceDefaults, Reason, Snapshot, Urgency};
use crate::settings::Command;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The largest size of a file that is accepted. `helm template` writes files of some megabytes for large charts.
const FILE_BYTES_AT_MOST: u64 = 8 << 20;

/// The largest size of a file's values in memory. YAML aliases can turn a few lines of text into gigabytes. The size of
/// a value is counted as the length of its text plus a fixed number of bytes.
const RESOLVED_BYTES_AT_MOST: usize = 128 << 20;
const BYTES_OF_A_VALUE: usize = 64;

/// The node port that is assumed for each port without a node port, in place of the port that the API server would
/// allocate.
const ALLOCATED_PORT: u16 = 30000;

const UNKNOWN: &str = "unknown";

/// Fields of the metadata that a manifest need not have, because the API server or another tool sets them later. Beside
/// each field is the value that `ccm lint` uses when the manifest lacks the field. A missing name is not reported,
/// because the API server reports it.
const COMPLETED: [(&str, &str); 4] =
    [("namespace", "default"), ("name", "unnamed"), ("uid", UNKNOWN), ("resourceVersion", "0")];

/// One Service from a manifest file, with the problems that `ccm lint` has found in it.
#[derive(Serialize)]
struct CheckedService {
    file: String,
    object: Value,
    findings: Vec<Finding>,
    #[serde(skip)]
    service: Option<KubeService>,
}

pub(super) fn lint(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut started = startup::start(Command::Lint, words)?;
    let files = [&started.settings.files.value[..], &started.words].concat();
    if files.is_empty() {
        return Err(usage("lint needs files: ccm lint -f FILE, or -f - for stdin"));
    }
    let scope = wire::service_scope(&started.settings);
    let mut is_unreadable = false;
    let (mut all, mut namespaces) = (Vec::new(), Vec::new());
    for file in files {
        match services(&file) {
            Ok((services, others)) => {
                all.extend(services.into_iter().map(|value| checked(&file, value, &scope)));
                namespaces.extend(others);
            }
            Err(why) => {
                is_unreadable = true;
                Printer::notice(format_args!("{file}: {why}"));
            }
        }
    }
    // When Services share a load balancer, the oldest one decides about its settings. Manifests usually contain no
    // creation time, and Services of equal age are ordered by their UIDs. Services without a UID therefore get invented
    // UIDs here, which ascend in the order of the manifests, because Kubernetes would create the Services in this
    // order.
    let services = all.iter_mut().filter_map(|checked| checked.service.as_mut());
    for (number, service) in services.enumerate() {
        if service.metadata.uid == UNKNOWN {
            service.metadata.uid = format!("{UNKNOWN}-{number:06}");
        }
    }
    kube::limit_manifests(all.iter_mut().filter_map(|checked| checked.service.as_mut()));
    let namespaces = kube::defaults_of_manifests(&namespaces, &scope).map_err(Printer::failure)?;
    for without_effect in &namespaces.without_effect {
        Printer::notice(format_args!("{}", NamespaceDefaults::no_effect(without_effect)));
    }
    let made = snapshot(&mut started, &all, Arc::new(namespaces));
    let (snapshot, cluster) = made.map_err(Printer::failure)?;
    all.retain_mut(|checked| {
        let found =
            checked.service.as_ref().map(|service| service::check(service, &*snapshot, &cluster));
        checked.findings.extend(found.iter().flatten().flatten().cloned());
        found.is_none_or(|found| found.is_some())
    });
    let document = || Document::new("ManifestList", all.iter().collect());
    let text = |_| all.iter().flat_map(lines).collect();
    let exit = output::print(started.settings.output.value, document, text);
    let s = if all.len() == 1 { "" } else { "s" };
    let found = match all.iter().filter(|checked| !checked.findings.is_empty()).count() {
        0 if is_unreadable => "not every file was read".to_owned(),
        0 => "nothing wrong".to_owned(),
        wrong => format!("{wrong} with problems"),
    };
    Printer::notice(format_args!("{} Service{s}, {found}", all.len()));
    let exit = exit.fail_if(all.iter().any(|checked| !checked.findings.is_empty()));
    if is_unreadable { Err(Exit::Usage) } else { Ok(exit) }
}

fn lines(checked: &CheckedService) -> Vec<String> {
    let CheckedService { file, object, .. } = checked;
    let (namespace, name) = (text(&object["namespace"]), text(&object["name"]));
    let findings = checked.findings.iter().map(|finding| finding.text());
    let line = |why| format!("{file}: service/{namespace}/{name}: {why}");
    findings.map(|why| whole_line(false, "", 6, &line(why))).collect()
}

/// Returns the data that the manifests are checked against: what exists in the Hetzner project, and which of the
/// Services share a load balancer. Without an API token no call is made. The checks then assume that each object exists
/// that a manifest names, e.g. a certificate.
fn snapshot(
    started: &mut Started,
    all: &[CheckedService],
    namespaces: Arc<NamespaceDefaults>,
) -> Result<(Arc<dyn Snapshot>, Cluster), String> {
    let settings = &mut started.settings;
    let manifests = all.iter().filter_map(|checked| checked.service.as_ref());
    let for_cloud = |service: &KubeService| service.in_namespace(&namespaces);
    let services: Vec<_> = manifests.clone().map(for_cloud).collect();
    let reads = settings.token.value.is_some() && !services.is_empty();
    let unused = || SecretSource::fixed(Secret::new("unused"));
    settings.token.value.get_or_insert_with(unused);
    settings.load_balancers_enabled.value = true;
    let gate = wire::gate(Command::Lint, settings);
    let hetzner = wire::provider(settings, gate, Urgency::Asked, None)?;
    let groups = service::groups(&hetzner, &namespaces, manifests);
    let cluster = Cluster { groups, namespaces, ..Cluster::default() };
    let snapshot = hetzner.for_manifests(&services.iter().collect::<Vec<_>>(), reads);
    Ok((snapshot.map_err(|error| error.to_string())?, cluster))
}

/// Returns all Services and all Namespaces in a file, including those within lists such as `kind: List`.
fn services(file: &str) -> Result<(Vec<Value>, Vec<Value>), String> {
    let path = if file == "-" { "/dev/stdin" } else { file };
    let bytes = read_file(Path::new(path), FILE_BYTES_AT_MOST)?;
    let mut left = RESOLVED_BYTES_AT_MOST;
    let (mut services, mut namespaces) = (Vec::new(), Vec::new());
    for document in serde_yaml::Deserializer::from_slice(&bytes) {
        let document = Bounded(&mut left).deserialize(document);
        let mut rest = vec![document.map_err(|error| error.to_string())?];
        while let Some(mut document) = rest.pop() {
            let kind = text(&document["kind"]);
            if kind == "Service" && document["apiVersion"] == "v1" {
                services.push(document);
            } else if kind == "Namespace" && document["apiVersion"] == "v1" {
                namespaces.push(document);
            } else if kind.ends_with("List")
                && let Some(Value::Array(items)) = document.get_mut("items").map(Value::take)
            {
                rest.extend(items.into_iter().rev());
            }
        }
    }
    Ok((services, namespaces))
}

/// Returns the Service of this manifest, completed by the fields that the API server would set. The result also says
/// what Kubernetes would refuse in the manifest.
fn checked(file: &str, mut document: Value, scope: &ServiceScope) -> CheckedService {
    let mut problems = Vec::new();
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        for (name, usual) in COMPLETED {
            metadata.entry(name).or_insert(json!(usual));
        }
        metadata.remove("deletionTimestamp");
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        for (key, value) in annotations.into_iter().flatten().filter(|(_, one)| !one.is_string()) {
            problems.push(format!(
                "annotation {key}: the value {value} is not a string, so Kubernetes refuses the Service; put the value in quotes"
            ));
            *value = json!(value.to_string());
        }
    }
    document.get_mut("spec").and_then(Value::as_object_mut).map(allocate);
    let mut service = KubeService::deserialize(&document);
    service.iter_mut().for_each(|service| service.select(scope));
    let service = service.map_err(|error| problems.push(format!("not a valid Service: {error}")));
    let metadata = &document["metadata"];
    let finding = |why| Finding::warning(Reason::SyncLoadBalancerFailed, why);
    CheckedService {
        file: file.to_owned(),
        object: json!({
            "kind": "Service", "namespace": metadata["namespace"], "name": metadata["name"],
        }),
        service: service.ok(),
        findings: problems.into_iter().map(finding).collect(),
    }
}

/// Adds node ports to the spec of a Service in a manifest, because the API server would allocate them when the Service
/// is created.
fn allocate(spec: &mut Map<String, Value>) {
    let allocated = || json!(ALLOCATED_PORT);
    if spec.get("externalTrafficPolicy").is_some_and(|policy| policy == "Local") {
        spec.entry("healthCheckNodePort").or_insert_with(allocated);
    }
    if spec.get("allocateLoadBalancerNodePorts").is_none_or(|is_on| is_on != false) {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            port.entry("nodePort").or_insert_with(allocated);
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Reads one value of a YAML file, whose aliases can expand to gigabytes. The field is the number of bytes that the
/// values of the file may still take in memory. The size of each value is subtracted from this number, and reading
/// fails when too few bytes are left. Fields with the value null are left out.
struct Bounded<'a>(&'a mut usize);

impl Bounded<'_> {
    fn counted<E: Error>(self, value: Value) -> Result<Value, E> {
        let left = self.0.checked_sub(BYTES_OF_A_VALUE + text(&value).len());
        *self.0 = left.ok_or_else(|| E::custom("the YAML aliases expand to too much data"))?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Defines the methods of `Visitor` for values that contain no other values, e.g. numbers and strings.
macro_rules! scalars {
    ($($visit:ident($type:ty);)*) => {
        $(fn $visit<E: Error>(self, value: $type) -> Result<Value, E> {
            self.counted(value.into())
        })*
    };
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of Kubernetes")
    }

    scalars! {
        visit_bool(bool);
        visit_i64(i64);
        visit_u64(u64);
        visit_f64(f64);
        visit_str(&str);
    }

    // serde_yaml calls this method for an empty document, which has the value null.
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.counted(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Bounded(self.0))? {
            items.push(item);
        }
        self.counted(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key_seed(Bounded(self.0))? {
            let value = map.next_value_seed(Bounded(self.0))?;
            if let (Value::String(key), false) = (key, value.is_null()) {
                fields.insert(key, value);
            }
        }
        self.counted(fields.into())
    }
}
