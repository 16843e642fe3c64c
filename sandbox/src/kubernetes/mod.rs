//! A Kubernetes API server in memory, whose answers have the same messages as those of kube-apiserver 1.36.
//!
//! | module | its part |
//! |---|---|
//! | `api` | one request: authentication, authorization, verb and resource |
//! | `request_info`, `access`, `status` | the meaning of a path; users and RBAC; `Status` errors |
//! | `resource`, `schema`, `rules` | the kinds: names, fields, defaults, allocated IPs and ports, validation |
//! | `store` | the objects, and the revision, which every write raises |
//! | `read`, `view`, `selector` | GET and LIST: pages, selectors, answers with whole objects or metadata only |
//! | `body`, `write`, `delete`, `patch` | POST, PUT, PATCH, DELETE |
//! | `node_ports` | what kube-proxy answers on the ports of the nodes |
//! | `node_marks`, `pods` | changes by tests: conditions, taints and cordons of Nodes; the pods of a Service |
//! | `others` | requests of clients other than ccm: tables, discovery, OpenAPI, protobuf, JSON patches |
//! | `real` | the use of a real cluster, whose API server then answers instead of the simulation |
//!
//! Some features of a real API server are missing. A watch is refused with 405, so `ccm` polls instead, and kubectl
//! lists again with a warning. Server-side apply is refused with 415, so objects have no `managedFields`. Answers are
//! never protobuf. This module does not simulate the controllers of kube-controller-manager either, with one exception:
//! it deletes the contents of a deleted namespace.

mod access;
mod api;
mod body;
mod delete;
mod node_marks;
mod node_ports;
mod others;
mod patch;
mod pods;
mod random;
mod read;
mod real;
mod request_info;
mod resource;
mod rules;
mod schema;
mod selector;
mod status;
mod store;
mod view;
mod write;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

pub use access::{PolicyRule, User};
pub use node_ports::{NodePort, PortAnswer};
pub use pods::Pod;
pub use real::Server as RealServer;

use crate::exchange::{Handler, Request, Response};
use access::Directory;
use node_ports::NodePorts;
use random::Random;
use read::Pages;
use real::Corner;
use resource::Resource;
use store::{Object, Store};

/// A copy of all objects, which [`Cluster::backup`] makes and [`Cluster::restore`] puts back.
pub struct Backup(Store);

/// The API server. One lock protects the whole state. A request holds the lock while it selects the objects of its
/// answer, but not while it writes these objects as JSON.
pub struct Cluster {
    state: Mutex<State>,
    /// The part of a real cluster in which this sandbox keeps its objects. `None` when the cluster is simulated, and
    /// its objects are in `state`.
    corner: Option<Corner>,
}

struct State {
    store: Store,
    /// The objects as they were when the test froze the watch cache. Reads with `resourceVersion=0` see these objects.
    /// `None` when the cache is not frozen.
    frozen: Option<Store>,
    pages: Pages,
    node_ports: NodePorts,
    directory: Directory,
    random: Random,
}

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Handler for Cluster {
    fn handle(&self, request: &Request) -> Response {
        let answer = match &self.corner {
            Some(corner) => {
                // A real API server answers the request, which can take long. The lock on the state must not be held
                // during this time, so the request is answered with a copy of the users.
                let directory = self.state().directory.clone();
                corner.answer(&directory, request, directory.authenticate(request))
            }
            None => api::answer(self, request),
        };
        answer.unwrap_or_else(|refusal| refusal.response())
    }
}

impl Cluster {
    /// Creates a new cluster. It contains the namespaces that every cluster has, and the Service `kubernetes`. It has
    /// no users yet.
    pub fn new() -> Arc<Cluster> {
        Cluster::seeded(RandomState::new().build_hasher().finish())
    }

    /// Creates a new cluster. With the same seed and the same calls, UIDs and generated names are the same in every
    /// run.
    pub fn seeded(seed: u64) -> Arc<Cluster> {
        let cluster = Cluster::empty(None, seed);
        for name in NAMESPACES {
            cluster.create("namespaces", None, json!({"metadata": {"name": name}}));
        }
        let mut service = service_of_the_api();
        service["spec"]["clusterIP"] = "10.96.0.1".into();
        cluster.create("services", Some("default"), service);
        Arc::new(cluster)
    }

    /// Creates a `Cluster` that sends the requests of clients to a real cluster. The user of this kubeconfig must have
    /// all rights in the real cluster.
    ///
    /// Clients see and change only objects that were created through this `Cluster`. Namespaces are the exception,
    /// because they belong to the real cluster. Dropping the `Cluster` deletes the created objects. The first of them
    /// is a Service with the name `kubernetes`, because `ccm` identifies a cluster by the UID of this Service.
    ///
    /// # Errors
    ///
    /// An error means that the kubeconfig has no credentials, or that no server answers there.
    pub fn real(kubeconfig: &Path) -> io::Result<Arc<Cluster>> {
        let cluster = Cluster::empty(Some(Corner::new(kubeconfig)?), 0);
        cluster.create("services", Some("default"), service_of_the_api());
        Ok(Arc::new(cluster))
    }

    /// Deletes the objects that tests have created in a real cluster by means of this `Cluster`. When the cluster is
    /// only simulated, the function does nothing.
    pub fn clear(&self) {
        if let Some(corner) = &self.corner {
            corner.clear();
        }
    }

    /// Whether the requests are answered by a real API server and not by the simulation. Then
    /// [`freeze_cache`](Cluster::freeze_cache) is not possible, and the object that a call of [`edit`](Cluster::edit)
    /// writes must be valid.
    pub fn is_real(&self) -> bool {
        self.corner.is_some()
    }

    fn empty(corner: Option<Corner>, seed: u64) -> Cluster {
        let state = State {
            store: Store::default(),
            frozen: None,
            pages: Pages::default(),
            node_ports: NodePorts::default(),
            directory: Directory::default(),
            random: Random::new(seed),
        };
        Cluster { state: Mutex::new(state), corner }
    }

    /// Adds a user, or replaces the user of that name. All RBAC rules of the previous user are removed, also those that
    /// apply only in one namespace.
    pub fn add_user(&self, user: User) {
        let (name, groups, rules) = (user.name.clone(), user.groups.clone(), user.rules.clone());
        if let Some(corner) = &self.corner {
            let mut directory = self.state().directory.clone();
            while let Some(namespace) = directory.revoke_in_a_namespace(&name) {
                corner.bind(&directory, &name, &[], &namespace, &[]);
            }
        }
        self.state().directory.add_user(user);
        if let Some(corner) = &self.corner {
            let directory = self.state().directory.clone();
            corner.bind(&directory, &name, &groups, "", &rules);
        }
    }

    /// Adds another token of an existing user.
    pub fn add_token(&self, user: &str, token: &str) {
        self.state().directory.add_token(user, token);
    }

    /// Adds another certificate of an existing user.
    pub fn add_certificate(&self, user: &str, der: &[u8]) {
        self.state().directory.add_certificate(user, der);
    }

    /// Lets an existing user also log in with its name and this password. Earlier credentials of the user stay valid.
    pub fn add_password(&self, user: &str, password: &str) {
        self.state().directory.add_password(user, password);
    }

    /// Removes a token. Requests with the token are answered with 401 from now on.
    pub fn remove_token(&self, token: &str) {
        self.state().directory.remove_token(token);
    }

    /// Gives RBAC rules to an existing user, in addition to the user's earlier rules. The rules apply in the whole
    /// cluster, like the rules of a ClusterRole.
    ///
    /// # Panics
    /// Panics when there is no such user.
    pub fn grant(&self, user: &str, rules: Vec<PolicyRule>) {
        let all = self.state().directory.grant(user, rules);
        if let Some(corner) = &self.corner {
            let directory = self.state().directory.clone();
            corner.bind(&directory, user, &[], "", &all);
        }
    }

    /// Gives RBAC rules to a user, in addition to the user's earlier rules. The rules apply only in this namespace,
    /// like the rules of a Role.
    pub fn grant_in_namespace(&self, user: &str, namespace: &str, rules: Vec<PolicyRule>) {
        if let Some(corner) = &self.corner {
            let mut directory = self.state().directory.clone();
            directory.grant_in_namespace(user, namespace, rules.clone());
            // The function `bind` replaces the whole Role on the real API server. The new Role must therefore also
            // contain the rules that earlier calls have granted.
            let all = directory.granted_in_namespace(user, namespace);
            corner.bind(&directory, user, &[], namespace, &all);
        }
        self.state().directory.grant_in_namespace(user, namespace, rules);
    }

    /// Waits until the next second has begun, if the API server is real. Creation times have whole seconds. After the
    /// wait, new objects have a later creation time than all existing ones. A simulated cluster does not wait.
    pub fn await_next_second(&self) {
        if let Some(corner) = &self.corner {
            corner.await_next_second();
        }
    }

    /// Creates an object as an administrator would, and returns the object.
    ///
    /// # Panics
    /// Panics when the server refuses the object. Only tests and the simulation call this function, and
    /// they write valid objects.
    pub fn create(&self, resource: &str, namespace: Option<&str>, object: Value) -> Value {
        let row = row(resource);
        if let Some(corner) = &self.corner {
            return corner.create(row, namespace.unwrap_or_default(), &object);
        }
        let created =
            write::create_object(&mut self.state(), row, namespace.unwrap_or_default(), &object);
        match created {
            Ok(object) => with_kind(row, object.value.clone()),
            Err(refusal) => panic!("{resource}: {}", refusal.message),
        }
    }

    pub fn get(&self, resource: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let row = row(resource);
        if let Some(corner) = &self.corner {
            return corner.get(row, namespace.unwrap_or_default(), name);
        }
        let object = self.state().store.get(row, &key(namespace, name))?.clone();
        Some(with_kind(row, object.value.clone()))
    }

    /// Returns the objects of one namespace, or of all namespaces for `None`. They have the same order as in the answer
    /// to a LIST.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        let row = row(resource);
        if let Some(corner) = &self.corner {
            return corner.list(row, namespace.unwrap_or_default());
        }
        let objects = self.state().store.list(row, namespace.unwrap_or_default());
        objects.iter().map(|object| with_kind(row, object.value.clone())).collect()
    }

    /// Returns the port of this number on which kube-proxy listens for a Service. Returns `None` when no Service has
    /// the port, and when its Service has no EndpointSlice of type IPv4. When a real API server stores the objects, the
    /// result is always `None`.
    pub fn node_port(&self, number: u16) -> Option<Arc<NodePort>> {
        let State { store, node_ports, .. } = &mut *self.state();
        node_ports.find(store, number)
    }

    /// Changes an object and raises its `resourceVersion`. Returns false when the object does not exist. The simulated
    /// API server stores the object without any check, while a real API server validates it. With a real API server,
    /// the closure `edit` runs again when another client changed the object at the same time.
    ///
    /// The closure must not call methods of this cluster, because the cluster is locked. It must not call methods of
    /// the sandbox's simulated cloud either: the cloud calls this cluster for the health checks of load balancers, and
    /// would wait for the lock.
    pub fn edit(
        &self,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
        mut edit: impl FnMut(&mut Value),
    ) -> bool {
        let row = row(resource);
        if let Some(corner) = &self.corner {
            return corner.edit(row, namespace.unwrap_or_default(), name, edit);
        }
        let key = key(namespace, name);
        let mut state = self.state();
        let Some(object) = state.store.get(row, &key) else {
            return false;
        };
        let mut value = object.value.clone();
        edit(&mut value);
        state.store.put(row, &key, value);
        true
    }

    /// Deletes an object like a DELETE request: an object with finalizers is only marked for deletion. Returns false
    /// when the object does not exist.
    pub fn delete(&self, resource: &str, namespace: Option<&str>, name: &str) -> bool {
        if let Some(corner) = &self.corner {
            return corner.delete(row(resource), namespace.unwrap_or_default(), name);
        }
        let request = delete::DeleteRequest {
            resource: row(resource),
            namespace: namespace.unwrap_or_default(),
            name,
            uid: None,
            resource_version: None,
            dry_run: false,
        };
        delete::delete_object(&mut self.state(), &request).is_ok()
    }

    /// Freezes the watch cache when `frozen` is true, or else makes it current again. While it is frozen, reads with
    /// `resourceVersion=0` return the objects as they were at the time of freezing.
    ///
    /// # Panics
    /// Panics when the server is a real API server, whose cache cannot be frozen.
    pub fn freeze_cache(&self, frozen: bool) {
        assert!(!self.is_real(), "a real server's cache cannot be frozen");
        let mut state = self.state();
        state.frozen = frozen.then(|| state.store.clone());
    }

    /// Returns a copy of all objects, which [`restore`](Cluster::restore) takes.
    ///
    /// # Panics
    /// Panics when the server is a real API server, whose store cannot be read.
    pub fn backup(&self) -> Backup {
        assert!(!self.is_real(), "a real server's store is its own");
        Backup(self.state().store.clone())
    }

    /// Restores all objects and the revision of the backup, like a restore of etcd. Objects have their earlier
    /// `resourceVersion`s again.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.state();
        state.store = backup.0.clone();
        // `node_ports` keeps the ports that kube-proxy listens on, together with the revisions from which they were
        // computed. After a backup was restored, the same revision can stand for other objects, so the kept ports are
        // dropped.
        state.node_ports = NodePorts::default();
    }

    pub fn is_cache_frozen(&self) -> bool {
        self.state().frozen.is_some()
    }

    /// Makes all existing `continue` tokens expire, as a compaction of etcd does. A list with such a token is then
    /// answered with 410.
    ///
    /// # Panics
    /// Panics when the server is a real API server, whose etcd cannot be compacted by a test.
    pub fn expire_continue_tokens(&self) {
        assert!(!self.is_real(), "a real server's history is its own");
        let mut state = self.state();
        state.pages.expire();
        state.store.advance();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test can panic inside the closure that it passes to `edit`, and so poison the lock. The state is still
        // consistent then, because `edit` changes a copy of the object.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the objects that a read with this `resourceVersion` gets. While a test has frozen the watch cache,
    /// version 0 stands for the objects as they were at the time of freezing, and every other version for the present
    /// ones.
    fn store_for(&self, resource_version: Option<u64>) -> &Store {
        match &self.frozen {
            Some(frozen) if resource_version == Some(0) => frozen,
            _ => &self.store,
        }
    }

    fn find(&self, resource: &Resource, key: &str) -> Option<Arc<Object>> {
        self.store.get(resource, key).cloned()
    }
}

/// Returns the resource with this plural name. Panics when the sandbox has no such resource.
fn row(resource: &str) -> &'static Resource {
    resource::named(resource).unwrap_or_else(|| panic!("{resource}: not a resource of the sandbox"))
}

/// Returns the Service `kubernetes`, which an API server creates for itself. The Service's UID identifies the cluster.
fn service_of_the_api() -> Value {
    let port = json!({"name": "https", "port": 443, "targetPort": 6443});
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    json!({"metadata": {"name": "kubernetes", "labels": labels}, "spec": {"ports": [port]}})
}

fn key(namespace: Option<&str>, name: &str) -> String {
    store::key(namespace.unwrap_or_default(), name)
}

fn with_kind(resource: &Resource, mut value: Value) -> Value {
    value["kind"] = resource.kind.into();
    value["apiVersion"] = resource.api_version().into();
    value
}
