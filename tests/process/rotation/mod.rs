//! Credentials and authorities are replaced while the daemon runs, without a restart or a missed tick. A 401 in
//! between is retried.

mod plugins;

use crate::common::{self, Cluster, Daemon, env, is_initialised, with};
use sandbox::Sandbox;
use sandbox::calls::Call;
use sandbox::credentials::{Authority, Identity, Subject, Validity};
use sandbox::faults::{Effect, Rule};
use sandbox::kubeconfig::{Login, Material};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

/// Names of the simulated API server.
const SERVER: &[&str] = &["localhost", "127.0.0.1", "::1"];

/// The scale of time. Waits are longer than elsewhere, because these tests last some seconds, and a busy machine must
/// not lose the Lease.
const SCALE: (&str, &str) = ("CCM_TEST_TIME_SCALE", "0.2");

/// A sandbox and a daemon whose credentials stand in files beside the kubeconfig.
struct World {
    sandbox: Sandbox,
    daemon: Option<Daemon>,
}

impl World {
    fn new() -> World {
        let sandbox = common::socket_cluster(1);
        World { sandbox, daemon: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.folder().join(name)
    }

    /// Replaces a file as careful programs do, by renaming a new one over it.
    fn write(&self, name: &str, text: &str) {
        let new = self.path(&format!("{name}.new"));
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Replaces mounted files as the kubelet does, by renaming a link to their folder over the old one.
    fn swap(&self, version: &str, files: &[(&str, &str)]) {
        fs::create_dir(self.path(version)).unwrap();
        for (name, text) in files {
            fs::write(self.path(version).join(name), text).unwrap();
            let link = self.path(name);
            if !link.is_symlink() {
                symlink(format!("..data/{name}"), link).unwrap();
            }
        }
        symlink(version, self.path("..data_tmp")).unwrap();
        fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
    }

    /// Starts the daemon with this login, the authority in the file `ca.crt`.
    fn start(&mut self, login: Login) {
        let mut kubeconfig = self.sandbox.kubeconfig("ccm", login);
        kubeconfig.authority = Material::File("ca.crt".into());
        self.start_with(&kubeconfig.text());
    }

    fn start_with(&mut self, kubeconfig: &str) {
        self.start_flagged(kubeconfig, &[]);
    }

    fn start_flagged(&mut self, kubeconfig: &str, flags: &[&str]) {
        if !self.path("ca.crt").exists() {
            self.write("ca.crt", self.sandbox.authority().certificate_pem());
        }
        self.write("rotating", kubeconfig);
        let path = self.path("rotating").display().to_string();
        let env = with(env(&self.sandbox), &[("KUBECONFIG", &path), SCALE]);
        self.daemon = Some(Daemon::start(&env, flags));
        self.sandbox.wait_for_nodes();
    }

    fn log(&self) -> String {
        self.daemon.as_ref().unwrap().log()
    }

    /// The daemon does what there is to do, and nothing went wrong up to then.
    fn works(&self, node_name: &str) {
        self.does_work(node_name);
        let log = self.log();
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    }

    fn does_work(&self, node_name: &str) {
        self.sandbox.join_node(node_name);
        let state = || format!("{node_name}: {}", self.log());
        common::wait_or(common::LIMIT, state, || is_initialised(&self.sandbox.node(node_name)));
    }

    /// Waits until both clients, the controllers' and the Lease's, come with these credentials.
    fn uses(&self, caller: &str) {
        let calls = self.sandbox.calls();
        let mark = calls.mark();
        for is_lease in [false, true] {
            let is_such =
                |call: &Call| call.caller == caller && common::is_lease(&call.path) == is_lease;
            let state = || {
                let made = calls.calls_since(mark).len();
                format!("{caller}, {made} calls: {}", self.log())
            };
            common::wait_or(common::LIMIT, state, || calls.calls_since(mark).iter().any(is_such));
        }
    }

    /// A token of `ccm` that the log of calls knows by this name.
    fn token(&self, name: &str) -> String {
        let token = format!("{name}-{}", "t".repeat(40));
        self.sandbox.cluster().add_token("ccm", &token);
        self.sandbox.calls().name_caller(token.as_str(), name);
        token
    }

    /// Creates a client certificate of this name, which this authority signs.
    fn identity(&self, name: &str, authority: &Authority) -> Identity {
        let subject = Subject { user: "ccm".into(), group: None };
        let identity = authority.client(&subject, Validity::Now).unwrap();
        let der = identity.certificate_der.as_slice();
        self.sandbox.cluster().add_certificate("ccm", der);
        self.sandbox.calls().name_caller(der, name);
        identity
    }

    /// Makes the API server accept only client certificates of this authority from now on.
    fn trust(&self, clients: &Authority) {
        let server = self.sandbox.authority().server(SERVER, Validity::Now);
        self.sandbox.tls().replace(&server.unwrap(), clients).unwrap();
    }

    /// A credential plugin that counts its runs and prints the file `answer`.
    fn plugin(&self) -> String {
        let folder = self.sandbox.folder().display();
        let text = format!("#!/bin/sh\necho run >> {folder}/runs\ncat {folder}/answer\n");
        self.write("plugin", &text);
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(self.path("plugin"), mode).unwrap();
        let kubeconfig = self.sandbox.kubeconfig("ccm", Login::Anonymous).text();
        let mut config: Value = serde_yaml::from_str(&kubeconfig).unwrap();
        config["users"][0]["user"] = json!({"exec": {
            "apiVersion": V1, "command": "./plugin", "interactiveMode": "Never",
        }});
        serde_yaml::to_string(&config).unwrap()
    }

    fn answer(&self, status: Value) {
        let answer = json!({"kind": "ExecCredential", "apiVersion": V1, "status": status});
        self.write("answer", &answer.to_string());
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.path("runs")).unwrap().lines().count()
    }
}

const V1: &str = "client.authentication.k8s.io/v1";

fn in_files() -> Login {
    Login::Certificate {
        certificate: Material::File("tls.crt".into()),
        key: Material::File("tls.key".into()),
    }
}

fn pair(identity: &Identity) -> [(&'static str, &str); 2] {
    [("tls.crt", &identity.certificate_pem), ("tls.key", &identity.key_pem)]
}

fn status_of(identity: &Identity) -> Value {
    json!({
        "clientCertificateData": identity.certificate_pem,
        "clientKeyData": identity.key_pem,
    })
}

/// The file is like that of a service account, which the kubelet swaps.
#[test]
fn a_new_token_in_the_file_is_used() {
    let mut world = World::new();
    let [first, second, third] = ["first", "second", "third"].map(|name| world.token(name));
    world.swap("1", &[("token", &first)]);
    world.start(Login::TokenFile("token".into()));
    world.uses("first");
    world.swap("2", &[("token", &second)]);
    world.uses("second");
    world.sandbox.cluster().remove_token(&first);
    world.works("two");
    // The old token is revoked a moment before the new one is in the file. One call is refused and repeated.
    let effect = {
        let cluster = world.sandbox.cluster().clone();
        let (path, third) = (world.path("token"), third.clone());
        Effect::before(move |_| {
            cluster.remove_token(&second);
            fs::remove_file(&path).unwrap();
            fs::write(&path, &third).unwrap();
        })
    };
    let rule = Rule::new(effect).half(sandbox::Half::Kubernetes).times(1);
    world.sandbox.fault(rule);
    world.uses("third");
    world.works("three");
    let is_refused = |call: &Call| call.status == Some(401);
    let refused = world.sandbox.calls().count(is_refused);
    assert!((1..=4).contains(&refused), "{refused} refused");
}

#[test]
fn a_new_token_of_the_cloud_in_the_file_is_used() {
    let mut world = World::new();
    world.swap("1", &[("hcloud", &world.sandbox.projects().token)]);
    let path = world.path("hcloud").display().to_string();
    let from_file = [("HCLOUD_TOKEN", ""), ("HCLOUD_TOKEN_FILE", &path), SCALE];
    world.daemon = Some(Daemon::start(&with(env(&world.sandbox), &from_file), &[]));
    world.sandbox.wait_for_nodes();
    for round in ["a", "b", "c"] {
        let rotated = round.repeat(64);
        let cloud = world.sandbox.cloud();
        cloud.add_token(world.sandbox.project(), &rotated, false);
        world.sandbox.calls().name_caller(rotated.as_str(), round);
        let mark = world.sandbox.mark();
        world.swap(&format!("of-{round}"), &[("hcloud", &rotated)]);
        cloud.remove_token(&world.sandbox.projects().token);
        world.works(&format!("node-{round}"));
        let calls = world.sandbox.calls().calls_since(mark);
        assert!(calls.iter().any(|call| call.caller == round), "{round}");
    }
}

/// The file contains no token any more. That is reported once, with the reason.
#[test]
fn an_unusable_token_file_leaves_the_old_token_in_use() {
    let mut world = World::new();
    let [first, second] = ["first", "second"].map(|name| world.token(name));
    world.write("token", &first);
    world.start(Login::TokenFile("token".into()));
    let stays = "; ccm keeps using the value that it read before";
    for (text, why) in [("", "is empty"), ("two\nlines\n", "holds characters that no token has")] {
        world.write("token", text);
        world.daemon.as_ref().unwrap().logs(why);
        let told = || {
            let log = world.log();
            let lines = log.lines().filter(|line| line.contains(why));
            lines.map(str::to_owned).collect::<Vec<String>>()
        };
        let path = world.path("token").display().to_string();
        world.uses("first");
        world.uses("first");
        let [line] = &told()[..] else {
            panic!("not told once: {}", world.log());
        };
        assert!(line.contains("WARN") && line.contains(&path) && line.contains(stays), "{line}");
    }
    world.write("token", &second);
    world.uses("second");
}

#[test]
fn a_new_client_certificate_in_the_files_is_used() {
    let mut world = World::new();
    let [first, second, third] =
        ["first", "second", "third"].map(|name| world.identity(name, world.sandbox.authority()));
    world.swap("1", &pair(&first));
    world.start(in_files());
    world.uses("first");
    world.swap("2", &pair(&second));
    world.uses("second");
    world.works("two");
    // Both files are valid, but only one is new. The old pair stays in use until the files fit.
    world.write("tls.crt", &third.certificate_pem);
    world.daemon.as_ref().unwrap().logs("ccm keeps using the value that it read before");
    world.does_work("half");
    let mark = world.sandbox.mark();
    world.write("tls.key", &third.key_pem);
    world.uses("third");
    world.does_work("three");
    let log = world.log();
    let warned: Vec<&str> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert!((1..=2).contains(&warned.len()), "one for each client: {log}");
    let why =
        "tls.key: is the key of another certificate; ccm keeps using the value that it read before";
    assert!(warned.iter().all(|line| line.contains(why)), "{log}");
    let calls = world.sandbox.calls().calls_since(mark);
    assert!(calls.iter().all(|call| call.status != Some(401)));
}

/// The authority of the clients is replaced, so the old certificate is refused from one call to the next.
#[test]
fn a_refused_client_certificate_is_read_again() {
    let mut world = World::new();
    let first = world.identity("first", world.sandbox.authority());
    world.swap("1", &pair(&first));
    world.start(in_files());
    world.uses("first");
    let clients = Authority::new("new-clients").unwrap();
    let second = world.identity("second", &clients);
    world.swap("2", &pair(&second));
    world.trust(&clients);
    world.uses("second");
    world.works("two");
}

#[test]
fn a_new_authority_of_the_server_is_trusted() {
    let mut world = World::new();
    let token = world.token("first");
    world.start(Login::Token(token));
    let old = world.sandbox.authority().certificate_pem().to_owned();
    let new = Authority::new("new").unwrap();
    // Both authorities are trusted for a while before the new one signs, as in a usual rotation.
    world.write("ca.crt", &(old + new.certificate_pem()));
    let server = new.server(SERVER, Validity::Now).unwrap();
    let replace = |server| world.sandbox.tls().replace(server, world.sandbox.authority());
    replace(&server).unwrap();
    world.uses("first");
    world.works("two");
    // Damaged, and then the new one alone.
    world.write("ca.crt", "-----BEGIN CERTIFICATE-----\n");
    world.daemon.as_ref().unwrap().logs(
        "ca.crt: holds only damaged certificates; copy them again; ccm keeps using the value that it read before",
    );
    world.does_work("three");
    world.write("ca.crt", new.certificate_pem());
    let third = Authority::new("third").unwrap();
    replace(&third.server(SERVER, Validity::Now).unwrap()).unwrap();
    world.daemon.as_ref().unwrap().logs("signed by an authority that ccm does not trust");
    world.write("ca.crt", third.certificate_pem());
    world.does_work("four");
}
