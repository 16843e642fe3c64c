//! A whole sandbox: the simulated APIs of Hetzner Cloud, Robot and Kubernetes with their contents. Tests read and
//! change everything in it.

mod access;
mod builder;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::Half;
use crate::calls::CallLog;
use crate::credentials::{Authority, Identity, ServerTls, Subject, Validity};
use crate::exchange::Handler;
use crate::faults::Faults;
use crate::hetzner::{Cloud, ServerSpec};
use crate::kubeconfig::{Context, Kubeconfig, Login, Material};
use crate::kubelet::{Kubelets, NodeSpec};
use crate::kubernetes::{Cluster, PolicyRule, User};
use crate::robot::Robot;
use crate::server::{self, Config, Ending, Exchanged, KeptPort, Server};
pub use access::{Account, admin_rules, official_rules};
use access::{Accounts, Folder, Tokens};
pub use builder::Builder;

/// A running sandbox, which simulates the APIs of Hetzner Cloud, Robot and Kubernetes. Dropping this value stops the
/// HTTP servers and the simulated kubelets, and removes the files.
///
/// ```no_run
/// use sandbox::Sandbox;
///
/// let sandbox = Sandbox::builder().nodes(3).services(1).scale(0.01).network("10.0.0.0/8").start();
/// let ccm = std::process::Command::new("ccm").arg("run").envs(sandbox.env_of("ccm"));
/// ```
pub struct Sandbox {
    // Rust drops the fields in their order. This field is first, because the simulated kubelets write to the cluster
    // and must end before the cluster is dropped.
    kubelets: Kubelets,
    /// The APIs that answer requests now, each with its HTTP server. The server is `None` in a sandbox without sockets,
    /// see [`Builder::in_memory`].
    served: Mutex<HashMap<Half, Option<Server>>>,
    /// The ports of the APIs that a test has stopped. The sandbox keeps these ports, so that no other program gets them
    /// before the APIs are served again.
    kept: Mutex<HashMap<Half, KeptPort>>,
    /// The address and ports on which the APIs listen. When an API with the port 0 is served for the first time, it
    /// gets any free port, and the number of this port replaces the 0. An API that was stopped is therefore served on
    /// the same port again.
    ports: Mutex<Ports>,
    cloud: Arc<Cloud>,
    cluster: Arc<Cluster>,
    robot: Arc<Robot>,
    serves_robot: bool,
    projects: Projects,
    network: Option<u64>,
    /// The IP range of the Network's subnet for dedicated servers. `None` when there is no such subnet.
    vswitch: Option<Ipv4Net>,
    node_bytes: usize,
    only: Option<Half>,
    /// The certificates of the Kubernetes API. `None` in a sandbox without sockets ([`Builder::in_memory`]), which has
    /// no TLS.
    tls: Option<Tls>,
    tokens: Tokens,
    calls: Arc<CallLog>,
    faults: Arc<Faults>,
    accounts: Mutex<Accounts>,
    /// The temporary folder of the sandbox. It is created when it is first needed.
    folder: OnceLock<Folder>,
}

/// The certificate authority of the Kubernetes API, and the TLS configuration of its server.
struct Tls {
    authority: Authority,
    server: ServerTls,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    address: IpAddr,
    hetzner: u16,
    kubernetes: u16,
    robot: u16,
}

/// The two projects of the simulated Hetzner Cloud, and their API tokens.
#[derive(Clone, Debug)]
pub struct Projects {
    /// The ID of the project that contains the sandbox's servers.
    pub own: u64,
    /// The ID of a second project, to which the sandbox's servers do not belong. Tests use it as the project of
    /// somebody else.
    pub foreign: u64,
    pub token: String,
    pub read_only_token: String,
    pub foreign_token: String,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // An open connection can keep a reference to the cluster until the process ends. The `Cluster` is then never
        // dropped, so it cannot remove its objects from a real cluster. The objects are therefore removed here.
        self.cluster.clear();
    }
}

impl Sandbox {
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub fn cloud(&self) -> &Arc<Cloud> {
        &self.cloud
    }

    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Returns the simulated Robot. It exists even when the sandbox does not serve the Robot web service.
    pub fn robot(&self) -> &Arc<Robot> {
        &self.robot
    }

    pub fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    pub fn calls(&self) -> &CallLog {
        &self.calls
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    pub fn projects(&self) -> &Projects {
        &self.projects
    }

    /// Adds another API token to the project that contains the servers, as an operator does before deleting the old
    /// token. Returns the new token.
    pub fn add_token(&self) -> String {
        let token = self.tokens.next();
        self.cloud.add_token(self.projects.own, &token, false);
        self.calls.name_caller(token.as_str(), "project");
        token
    }

    /// Returns the ID of the Hetzner Cloud project that contains the sandbox's servers.
    pub fn project(&self) -> u64 {
        self.projects.own
    }

    /// Returns the ID of the sandbox's Network. Returns `None` when the builder was not told to create a Network.
    pub fn network(&self) -> Option<u64> {
        self.network
    }

    /// Returns the certificate authority of the Kubernetes API.
    ///
    /// # Panics
    /// Panics in a sandbox without sockets ([`Builder::in_memory`]), which has no certificate authority.
    pub fn authority(&self) -> &Authority {
        &self.material().authority
    }

    /// Returns the TLS configuration of the Kubernetes API: its certificate, and the authority that signs client
    /// certificates. A test can replace both.
    ///
    /// # Panics
    /// Panics in a sandbox without sockets ([`Builder::in_memory`]), which has no TLS.
    pub fn tls(&self) -> &ServerTls {
        &self.material().server
    }

    fn material(&self) -> &Tls {
        self.tls.as_ref().unwrap_or_else(|| panic!("a sandbox in memory has no TLS"))
    }

    /// Returns the folder that contains the kubeconfigs. It is removed together with the sandbox. Tests can write their
    /// own files to it.
    ///
    /// # Panics
    /// Panics when the folder cannot be created.
    pub fn folder(&self) -> &Path {
        self.files().path()
    }

    fn files(&self) -> &Folder {
        self.folder
            .get_or_init(|| Folder::new().unwrap_or_else(|error| panic!("no folder: {error}")))
    }

    /// Returns the base URL of the simulated Hetzner Cloud API.
    pub fn hetzner_url(&self) -> String {
        format!("http://{}/v1", self.address(Half::Hetzner))
    }

    /// Returns the base URL of the simulated metadata service. A real metadata service can only be reached from a cloud
    /// server.
    pub fn metadata_url(&self) -> String {
        format!("http://{}/hetzner/v1/metadata", self.address(Half::Hetzner))
    }

    pub fn kubernetes_url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address(Half::Kubernetes))
    }

    /// Returns the base URL of the simulated Robot web service.
    pub fn robot_url(&self) -> String {
        format!("http://{}", self.address(Half::Robot))
    }

    /// Whether the sandbox is configured to serve this API. The result does not change when a test stops the API.
    /// [`env`](Sandbox::env) returns environment variables only for the APIs for which the result is true.
    pub fn serves(&self, half: Half) -> bool {
        match half {
            Half::Robot => self.serves_robot && self.only != Some(Half::Kubernetes),
            _ => self.only.is_none_or(|only| only == half),
        }
    }

    /// Whether the sandbox is in memory. Its APIs then listen on no port, and only [`exchange`](Sandbox::exchange)
    /// answers requests.
    pub fn is_in_memory(&self) -> bool {
        self.tls.is_none()
    }

    /// Returns the address on which this API (Hetzner, Robot or Kubernetes) listens, or on which it listened before it
    /// was stopped. The port is 0 when the API was never served.
    pub fn address(&self, half: Half) -> SocketAddr {
        let ports = self.ports();
        SocketAddr::new(ports.address, ports.of(half))
    }

    /// Stops an API. Connections to its address are refused from now on. The sandbox keeps the port, so that no other
    /// program gets it.
    pub fn stop(&self, half: Half) {
        let server = self.served().remove(&half);
        let address = server.flatten().map(|server| server.address());
        let kept = address.and_then(|address| KeptPort::new(address).ok());
        self.kept().extend(kept.map(|port| (half, port)));
    }

    /// Starts to serve an API. After [`stop`](Sandbox::stop), the API is served on the same address again. Nothing
    /// happens when the API is served already.
    ///
    /// # Errors
    /// Returns an error when another process has taken the port.
    pub fn resume(&self, half: Half) -> io::Result<()> {
        let mut served = self.served();
        if served.contains_key(&half) {
            return Ok(());
        }
        if self.tls.is_none() {
            served.insert(half, None);
            return Ok(());
        }
        let mut ports = self.ports();
        let server = Server::start(Config {
            address: ports.address,
            port: ports.of(half),
            ..self.config(half)
        })?;
        self.kept().remove(&half);
        *ports.of_mut(half) = server.address().port();
        served.insert(half, Some(server));
        Ok(())
    }

    /// Whether the API is served now, so that it answers requests.
    pub fn is_served(&self, half: Half) -> bool {
        self.served().contains_key(&half)
    }

    /// Answers one HTTP/1.1 request in the caller's thread and without a socket. `pause` is called where a server would
    /// wait. When the API is stopped, there is no answer and the connection ends with a TCP reset.
    pub fn exchange(&self, half: Half, request: &[u8], pause: &dyn Fn(Duration)) -> Exchanged {
        if !self.is_served(half) {
            return Exchanged { answer: Vec::new(), ending: Ending::Reset };
        }
        self.kubelets.catch_up();
        server::exchange(&self.config(half), request, pause)
    }

    /// Returns the configuration of the HTTP server of an API. The port in it is 0, which means any free port.
    fn config(&self, half: Half) -> Config {
        let (tls, handler): (_, Arc<dyn Handler>) = match half {
            Half::Hetzner => (None, self.cloud.clone()),
            Half::Kubernetes => {
                (self.tls.as_ref().map(|tls| tls.server.clone()), self.cluster.clone())
            }
            Half::Robot => (None, self.robot.clone()),
        };
        Config {
            tls,
            calls: self.calls.clone(),
            faults: self.faults.clone(),
            ..Config::new(half, handler)
        }
    }

    /// Creates a cloud server and a Node for it. Returns the server's ID.
    pub fn join(&self, server: ServerSpec) -> u64 {
        let id = self.cloud.create_server(self.projects.own, server);
        self.register_nodes_of(&[id]);
        id
    }

    /// Creates Nodes for cloud servers that already exist.
    ///
    /// The internal address of a Node is the server's private address, or the public IPv4 address when there is no
    /// private one. When the server has neither, the Node has no internal address.
    pub fn register_nodes_of(&self, ids: &[u64]) {
        for id in ids {
            let Some(server) = self.cloud.seen_by_its_kubelet(self.projects.own, *id) else {
                continue;
            };
            let arm = server.architecture == "arm";
            self.register_node(NodeSpec {
                name: server.name,
                server: Some(*id),
                internal_ip: server.ip.map(|ip| ip.to_string()),
                pod_cidrs: vec![pod_cidr(self.kubelets.count() + 1)],
                architecture: if arm { "arm64" } else { "amd64" }.into(),
                bytes: self.node_bytes,
                ..NodeSpec::default()
            });
        }
    }

    /// Creates a dedicated server and a Node for it. Returns the server's number.
    pub fn join_dedicated(&self, name: &str) -> u64 {
        let number = self.robot.create(name);
        self.register_dedicated_node(number);
        number
    }

    /// Creates the Node of a dedicated server that already exists. A server without a private address gets a free
    /// address of the Network's subnet for dedicated servers. The kubelet uses the private address as with the flag
    /// `--node-ip`. When the Network has no such subnet, or the subnet has no free address, the kubelet uses the
    /// server's public IPv4 address, or no address when the server has none.
    ///
    /// # Panics
    /// Panics when a Node of that name exists, or when the API server refuses the Node.
    pub fn register_dedicated_node(&self, number: u64) {
        let others = self.robot.servers().into_iter();
        let used: HashSet<_> = others.filter_map(|server| server.private_ip).collect();
        // The first host address of the subnet is the address of the vSwitch's gateway, so no server can have it.
        let free = self.vswitch.and_then(|range| {
            let mut hosts = range.hosts().skip(1);
            hosts.find(|ip| !used.contains(ip))
        });
        self.robot.edit(number, |server| {
            server.private_ip = server.private_ip.or(free);
        });
        let Some(server) = self.robot.server(number) else {
            return;
        };
        self.register_node(NodeSpec {
            machine: Some(server.machine()),
            internal_ip: server.server_ip.filter(|ip| !ip.is_empty()),
            node_ip: server.private_ip.map(|ip| ip.to_string()),
            pod_cidrs: vec![pod_cidr(self.kubelets.count() + 1)],
            bytes: self.node_bytes,
            name: server.name,
            ..NodeSpec::default()
        });
    }

    /// Creates a Node and starts its simulated kubelet, but creates no server. When `spec` names a server, this server
    /// must already exist.
    ///
    /// # Panics
    /// Panics when a Node of that name exists, or when the API server refuses the Node.
    pub fn register_node(&self, spec: NodeSpec) {
        self.kubelets.register(spec);
    }

    /// Adds a user of the Kubernetes API with these RBAC rules, or replaces the user of the same name. The user gets a
    /// token and a client certificate.
    ///
    /// # Errors
    /// Returns an error when the certificate cannot be made.
    pub fn add_user(
        &self,
        name: &str,
        groups: &[&str],
        rules: Vec<PolicyRule>,
    ) -> io::Result<Account> {
        let subject = Subject {
            user: name.to_owned(),
            group: groups.first().map(|group| (*group).to_owned()),
        };
        let identity = match &self.tls {
            Some(tls) => tls.authority.client(&subject, Validity::Now),
            None => Ok(Identity::default()),
        };
        let identity = identity.map_err(io::Error::other)?;
        let certificates = self.tls.iter().map(|_| identity.certificate_der.clone());
        let certificates: Vec<Vec<u8>> = certificates.collect();
        for certificate in &certificates {
            self.calls.name_caller(certificate.as_slice(), name);
        }
        let account = Account { name: name.to_owned(), token: self.tokens.next(), identity };
        self.cluster.add_user(User {
            name: account.name.clone(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            tokens: vec![account.token.clone()],
            certificates,
            rules,
        });
        self.calls.name_caller(account.token.as_str(), name);
        self.accounts().insert(account.name.clone(), account.clone());
        Ok(account)
    }

    /// Returns the token and the certificate of a user of the Kubernetes API, or `None` when there is no such user. The
    /// users are `admin`, `ccm`, and those that tests have added.
    pub fn account(&self, user: &str) -> Option<Account> {
        self.accounts().get(user).cloned()
    }

    /// Returns a kubeconfig for one user, who authenticates with `login`. No file is written, so that the caller can
    /// still change the kubeconfig.
    pub fn kubeconfig(&self, user: &str, login: Login) -> Kubeconfig {
        let authority = self.tls.as_ref().map(|tls| &tls.authority);
        let authority = authority.map(|authority| authority.certificate_pem().to_owned());
        Kubeconfig {
            cluster: "sandbox".into(),
            server: self.kubernetes_url(),
            authority: Material::Inline(authority.unwrap_or_default()),
            contexts: vec![Context { name: user.to_owned(), user: login }],
            current: user.to_owned(),
        }
    }

    /// Returns the environment variables with which a client reaches the APIs of the sandbox. `KUBECONFIG` names a file
    /// whose current context belongs to the user `admin`. A second context in the file belongs to the user `ccm`.
    pub fn env(&self) -> Vec<(String, String)> {
        self.env_with(self.folder().join(KUBECONFIG))
    }

    /// Returns the environment variables with which a client reaches the APIs of the sandbox. `KUBECONFIG` names a file
    /// that this function writes for `user`, a user of the Kubernetes API.
    ///
    /// # Panics
    /// Panics when there is no such user, or when the kubeconfig cannot be written.
    pub fn env_of(&self, user: &str) -> Vec<(String, String)> {
        let account =
            self.account(user).unwrap_or_else(|| panic!("no user {user:?} in the sandbox"));
        let kubeconfig = self.kubeconfig(user, Login::Token(account.token));
        let name = format!("{KUBECONFIG}-{}", user.replace(['/', ':'], "-"));
        let path = self.files().write(&name, &kubeconfig.text());
        self.env_with(path.unwrap_or_else(|error| panic!("the kubeconfig of {user:?}: {error}")))
    }

    fn env_with(&self, kubeconfig: impl AsRef<Path>) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        let mut set = |name: &str, value: String| variables.push((name.to_owned(), value));
        if self.serves(Half::Kubernetes) {
            set("KUBECONFIG", kubeconfig.as_ref().display().to_string());
        }
        if self.serves(Half::Hetzner) {
            set("HCLOUD_TOKEN", self.projects.token.clone());
            set("HCLOUD_ENDPOINT", self.hetzner_url());
            set("HCLOUD_METADATA_ENDPOINT", self.metadata_url());
            if self.network.is_some() {
                set("HCLOUD_NETWORK", "sandbox".into());
            }
        }
        if self.serves(Half::Robot) {
            set("ROBOT_ENABLED", "true".into());
            let (user, password) = self.robot.login();
            set("ROBOT_USER", user);
            set("ROBOT_PASSWORD", password);
            set("ROBOT_ENDPOINT", self.robot_url());
        }
        variables
    }

    /// Writes the kubeconfig file whose path [`env`](Sandbox::env) returns as `KUBECONFIG`. In the context `sandbox`,
    /// the user `admin` authenticates with a client certificate. In the context `ccm`, the user `ccm` authenticates
    /// with a token.
    fn write_kubeconfig(&self) -> io::Result<()> {
        let mut contexts = Vec::new();
        if let Some(admin) = self.account("admin") {
            let certificate = Material::Inline(admin.identity.certificate_pem);
            let key = Material::Inline(admin.identity.key_pem);
            contexts.push(Context {
                name: "sandbox".into(),
                user: Login::Certificate { certificate, key },
            });
        }
        if let Some(ccm) = self.account("ccm") {
            contexts.push(Context { name: "ccm".into(), user: Login::Token(ccm.token) });
        }
        let kubeconfig = Kubeconfig { contexts, ..self.kubeconfig("sandbox", Login::Anonymous) };
        self.files().write(KUBECONFIG, &kubeconfig.text())?;
        Ok(())
    }

    fn networks(&self, wanted: bool) -> Vec<(u64, Option<IpAddr>)> {
        self.network.filter(|_| wanted).map(|network| (network, None)).into_iter().collect()
    }

    fn served(&self) -> MutexGuard<'_, HashMap<Half, Option<Server>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Half, KeptPort>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const KUBECONFIG: &str = "kubeconfig";

impl Ports {
    fn of(&self, half: Half) -> u16 {
        match half {
            Half::Hetzner => self.hetzner,
            Half::Kubernetes => self.kubernetes,
            Half::Robot => self.robot,
        }
    }

    fn of_mut(&mut self, half: Half) -> &mut u16 {
        match half {
            Half::Hetzner => &mut self.hetzner,
            Half::Kubernetes => &mut self.kubernetes,
            Half::Robot => &mut self.robot,
        }
    }
}

/// Returns the pod CIDR of the node with this number, counted from 1. For the first 255 nodes it is 10.244.n.0/24,
/// where n is the number. These ranges are in the usual cluster CIDR, 10.244.0.0/16. Nodes with a higher number get
/// ranges from 10.129.0.0/24 on.
fn pod_cidr(number: usize) -> String {
    let second = if number < 256 { 244 } else { 128 + number / 256 };
    format!("10.{second}.{}.0/24", number % 256)
}
