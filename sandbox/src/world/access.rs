//! The users of the simulated Kubernetes API, their rights, and the files with their credentials.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::credentials::Identity;
use crate::faults::SplitMix64;
use crate::kubernetes::PolicyRule;

/// A user of the simulated Kubernetes API with the user's credentials: a token, and in `identity` a client certificate
/// with its key. In a sandbox without sockets (`Builder::in_memory`), the fields of `identity` are empty, because there
/// are no client certificates.
#[derive(Clone)]
pub struct Account {
    pub name: String,
    pub token: String,
    pub identity: Identity,
}

/// The accounts of the users of the Kubernetes API. The key is the user's name.
pub(super) type Accounts = BTreeMap<String, Account>;

/// Returns RBAC rules that allow everything.
pub fn admin_rules() -> Vec<PolicyRule> {
    let every_path = PolicyRule {
        non_resource_urls: owned(&["*"]),
        verbs: owned(&["*"]),
        ..PolicyRule::default()
    };
    vec![rule(&["*"], &["*"], &["*"]), every_path]
}

/// Returns exactly the RBAC rules of the official ClusterRole of hcloud-cloud-controller-manager. For example, they
/// allow `list` but not `get` of Services.
pub fn official_rules() -> Vec<PolicyRule> {
    vec![
        rule(&[""], &["services"], &["list", "watch"]),
        rule(&[""], &["services/status"], &["patch", "update"]),
        rule(&[""], &["nodes"], &["*"]),
        rule(&[""], &["nodes/status"], &["patch"]),
        rule(&[""], &["events"], &["create", "patch", "update"]),
        rule(&["coordination.k8s.io"], &["leases"], &["create", "get", "list", "watch", "update"]),
        rule(&[""], &["serviceaccounts"], &["create"]),
    ]
}

/// The environment variable that chooses the RBAC rules of the user `ccm`. With the value `manifests`, the rules come
/// from the files in `manifests/base`. With any other value, or without the variable, the user has the rules of the
/// official ClusterRole of hcloud-cloud-controller-manager.
const ROLE: &str = "CCM_TEST_ROLE";

/// Returns RBAC rules for the namespace `kube-system`, which allow to list Deployments and DaemonSets. Some commands of
/// `ccm` list them to find out with which settings the running `ccm` was started. A person runs these commands with
/// the person's own rights. Tests run them as the user `ccm`, who therefore needs these rules.
fn workload_rules() -> Vec<PolicyRule> {
    vec![rule(&["apps"], &["deployments", "daemonsets"], &["list"])]
}

/// Returns two lists of RBAC rules for the user `ccm`: the rules for the whole cluster, and the rules for the namespace
/// `kube-system`.
pub(super) fn ccm_rules() -> io::Result<(Vec<PolicyRule>, Vec<PolicyRule>)> {
    if std::env::var_os(ROLE).is_none_or(|role| role != "manifests") {
        return Ok((official_rules(), workload_rules()));
    }
    let mut in_system = manifest("lease.yaml")?;
    in_system.extend(workload_rules());
    Ok((manifest("role.yaml")?, in_system))
}

/// Returns the RBAC rules of the first role in a file of `manifests/base`.
fn manifest(file: &str) -> io::Result<Vec<PolicyRule>> {
    #[derive(serde::Deserialize)]
    struct Role {
        rules: Vec<PolicyRule>,
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base");
    let text = fs::read_to_string(folder.join(file))?;
    let first = serde_yaml::Deserializer::from_str(&text).next();
    let first = first.ok_or_else(|| io::Error::other(format!("{file} is empty")))?;
    let role = <Role as serde::Deserialize>::deserialize(first).map_err(io::Error::other)?;
    Ok(role.rules)
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: owned(groups),
        resources: owned(resources),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Generates the API tokens of a sandbox from a seed. All tokens are different.
pub(super) struct Tokens(Mutex<SplitMix64>);

impl Tokens {
    pub fn new(seed: u64) -> Tokens {
        Tokens(Mutex::new(SplitMix64::new(seed)))
    }

    /// Returns a new token of 64 letters and digits, as Hetzner Cloud tokens have.
    pub fn next(&self) -> String {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let mut generator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (0..64).map(|_| char::from(ALPHABET[generator.below(62) as usize])).collect()
    }
}

/// Returns a number that is different for each call, in all processes on this machine. The number does not have to be
/// secret.
pub(super) fn unique() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanoseconds =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut generator =
        SplitMix64::new(nanoseconds ^ u64::from(std::process::id()) << 40 ^ count << 20);
    generator.next()
}

/// A temporary folder of this sandbox that only its owner can read. Dropping this value removes the folder with all its
/// files.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn new() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("sandbox-{:016x}", unique()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that only its owner can read, and returns its path. The new file replaces an old file in one step,
    /// so a program that reads the file at the same time never sees a part of the text.
    pub fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        let new = self.path.join(format!("{name}-{:016x}", unique()));
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &path)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
