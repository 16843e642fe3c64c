//! `make dev-up`, `dev-push` and `dev-down` with the official CLI, on the simulated Hetzner project.
//!
//! There is no machine behind a simulated server: `ssh` and `kubectl` are stand-ins that write down what they are asked.

use crate::built::rendered::{documents, kustomized_at, one, pod, understood};
use crate::common::cluster::text;
use crate::common::{self, Cluster, Ran, contains, run_in_parallel};
use sandbox::exchange::{Handler, Request};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const KINDS: [&str; 5] = ["servers", "load_balancers", "firewalls", "networks", "ssh_keys"];

/// A project, and a user with a folder of programs before all others.
struct Dev {
    sandbox: Sandbox,
    /// The name of the cluster, which no other test has.
    name: String,
}

/// Prepares a cluster. Returns `None` when a program is missing.
fn dev(what: &str) -> Option<Dev> {
    for program in ["hcloud", "ssh-keygen"] {
        if real(program).is_none() {
            let why = format!("there is no {program} on this machine");
            sandbox::skipped::skip(&format!("dev-up: {what}"), "hcloud", &why);
            return None;
        }
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let builder = Sandbox::builder().only(Half::Hetzner).nodes(0).scale(0.01);
    let sandbox = builder.start();
    let name = format!("test-{}-{number}", std::process::id());
    let dev = Dev { sandbox, name };
    dev.write_programs();
    Some(dev)
}

/// Returns the path of a program in PATH.
fn real(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.into_iter().find(|path| path.is_file())
}

impl Dev {
    fn place(&self, file: &str) -> PathBuf {
        self.sandbox.folder().join(file)
    }

    /// Returns the folder in which the cluster's scripts keep their files.
    fn folder(&self) -> PathBuf {
        Path::new(ROOT).join("target/dev").join(&self.name)
    }

    fn label(&self) -> String {
        format!("ccm-dev-cluster={}", self.name)
    }

    /// A program before those of the machine. It writes its arguments down first.
    fn write_program(&self, program: &str, body: &str) {
        let path = self.place("bin").join(program);
        let folder = self.sandbox.folder().display();
        let text = format!(
            "#!/bin/sh\nfolder='{folder}'\nprintf '%s\\n' \"{program} $*\" >>\"$folder/argv\"\n{body}\n"
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// The machine's own program, whose arguments are written down.
    fn record(&self, program: &str, flags: &str) {
        let real = real(program).unwrap();
        self.write_program(program, &format!("exec {} {flags} \"$@\"", real.display()));
    }

    /// The machine's own CLI, which refuses a deletion with each line of the file `refusals` first.
    fn refuse_deletions(&self) {
        let real = real("hcloud").unwrap();
        let refusal = r#"case "$*" in
*" delete "*) if [ -s "$folder/refusals" ]; then
    head -n 1 "$folder/refusals" >&2
    sed -i 1d "$folder/refusals"
    exit 1
fi ;;
esac"#;
        let body = format!("{refusal}\nexec {} --poll-interval 10ms \"$@\"", real.display());
        self.write_program("hcloud", &body);
    }

    fn write_programs(&self) {
        std::fs::create_dir_all(self.place("bin")).unwrap();
        self.record("hcloud", "--poll-interval 10ms");
        self.write_program("sleep", "exec /bin/sleep 0.02");
        let ssh = r#"case "$*" in
*"images import"*) cat >>"$folder/imported" ;;
*k3s.yaml*) cat "$folder/kubeconfig-on-the-server" ;;
*uname*) echo x86_64 ;;
esac"#;
        self.write_program("ssh", ssh);
        let kubectl = r#"case "$*" in
*"apply --server-side"*) cat >"$folder/secret" ;;
*"get nodes --no-headers"*) for n in 1 2 3 4; do echo "node-$n   Ready   <none>   1m   v1.36.1"; done ;;
esac"#;
        self.write_program("kubectl", kubectl);
        let kubeconfig = "clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n  name: default\nusers:\n- user: {client-key-data: a-client-key}\n";
        std::fs::write(self.place("kubeconfig-on-the-server"), kubeconfig).unwrap();
        std::fs::write(self.place("image.tar"), "the image").unwrap();
    }

    /// Runs one of the scripts. YES is 1 unless it is set otherwise.
    fn run(&self, script: &str, variables: &[(&str, &str)]) -> Ran {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(format!("{ROOT}/manifests/dev/{script}.sh"));
        command
            .env_clear()
            .env("PATH", format!("{}:{path}", self.place("bin").display()))
            .env("HOME", self.sandbox.folder())
            .env("NAME", &self.name)
            .env("YES", "1")
            .env("ARCHIVE", self.place("image.tar"))
            .envs(self.sandbox.env())
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        Ran::from(output)
    }

    fn succeeds(&self, script: &str, variables: &[(&str, &str)]) -> String {
        let ran = self.run(script, variables);
        assert_eq!(ran.code, 0, "{script} {variables:?}: {ran:?}");
        ran.stdout
    }

    fn token(&self) -> String {
        let env = self.sandbox.env();
        let (_, token) = env.iter().find(|(name, _)| name == "HCLOUD_TOKEN").unwrap();
        token.clone()
    }

    /// Makes a call that no log shows. Returns its status and answer.
    fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let response = self.sandbox.cloud().handle(&Request {
            method: method.into(),
            path: format!("/v1/{path}"),
            query: Vec::new(),
            headers: vec![("authorization".into(), format!("Bearer {}", self.token()))],
            body: match body {
                Value::Null => Vec::new(),
                body => body.to_string().into_bytes(),
            },
            client_certificate: None,
        });
        let body = serde_json::from_slice(&response.body).unwrap_or_default();
        (response.status, body)
    }

    fn all(&self, kind: &str) -> Vec<Value> {
        let (_, answer) = self.call("GET", kind, &Value::Null);
        answer[kind].as_array().unwrap().clone()
    }

    /// `kind name` of all that carries the label, or of all that does not.
    fn names(&self, is_labelled: bool) -> BTreeSet<String> {
        let named = |kind: &'static str| {
            let label = |one: &Value| one["labels"]["ccm-dev-cluster"] == self.name.as_str();
            let all = self.all(kind).into_iter();
            all.filter(move |one| label(one) == is_labelled)
                .map(move |one| format!("{kind} {}", one["name"].as_str().unwrap()))
        };
        KINDS.into_iter().flat_map(named).collect()
    }

    /// Returns everything in the project, without what differs from run to run.
    fn world(&self) -> Value {
        let count = |list: &Value| list.as_array().unwrap().len();
        let servers = self.all("servers");
        let servers = servers.iter().map(|one| {
            json!({"name": one["name"], "labels": one["labels"], "type": one["server_type"]["name"],
                "location": one["location"]["name"], "image": one["image"]["name"], "status": one["status"],
                "private_net": one["private_net"][0]["ip"], "firewalls": count(&one["public_net"]["firewalls"])})
        });
        let networks = self.all("networks");
        let networks = networks.iter().map(|one| {
            json!({"name": one["name"], "labels": one["labels"], "range": one["ip_range"],
                "subnet": one["subnets"][0]["ip_range"], "subnets": count(&one["subnets"]), "servers": count(&one["servers"])})
        });
        let firewalls = self.all("firewalls");
        let firewalls = firewalls.iter().map(|one| {
            json!({"name": one["name"], "labels": one["labels"], "rules": one["rules"], "on": count(&one["applied_to"])})
        });
        let keys = self.all("ssh_keys");
        let keys = keys.iter().map(
            |one| json!({"name": one["name"], "labels": one["labels"], "key": one["public_key"]}),
        );
        let world = json!({
            "servers": servers.collect::<Vec<_>>(), "networks": networks.collect::<Vec<_>>(),
            "firewalls": firewalls.collect::<Vec<_>>(), "keys": keys.collect::<Vec<_>>(),
        });
        let text = world.to_string().replace(&self.name, "NAME");
        let key = std::fs::read_to_string(self.folder().join("id_ed25519.pub")).unwrap_or_default();
        let text = text.replace(key.split(' ').nth(1).unwrap_or("-"), "KEY");
        serde_json::from_str(&text).unwrap()
    }

    /// `METHOD path` of the writes so far, IDs left out.
    fn writes(&self) -> Vec<String> {
        let calls = self.sandbox.calls().calls();
        let path = |path: &str| -> String {
            let parts = path.trim_start_matches("/v1/").split('/');
            let parts = parts.map(|part| part.parse::<u64>().map_or(part, |_| "*"));
            parts.collect::<Vec<_>>().join("/")
        };
        let writes = calls.iter().filter(|call| call.is_write());
        writes.map(|call| format!("{} {}", call.method, path(&call.path))).collect()
    }

    /// `user_data` of each new server, in order.
    fn user_data(&self) -> Vec<String> {
        let calls = self.sandbox.calls().calls();
        let created =
            calls.iter().filter(|call| call.method == "POST" && call.path == "/v1/servers");
        let bodies = created.map(|call| call.json().unwrap());
        bodies.map(|body| text(&body["user_data"])).collect()
    }

    fn written(&self, file: &str) -> String {
        std::fs::read_to_string(self.place(file)).unwrap_or_default()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.folder());
    }
}

#[test]
fn a_cluster_has_one_label_and_a_second_run_changes_nothing() {
    let Some(dev) = dev("a cluster") else { return };
    let printed = dev.succeeds("up", &[]);
    // cx23 and lb11 in fsn1, as the project sells them.
    contains(&printed, "3 × cx23 in fsn1: EUR 0.0144 an hour");
    assert!(printed.contains("(lb11): EUR 0.0086 an hour"), "{printed}");
    let expected = [
        "POST ssh_keys",
        "POST networks",
        "POST networks/*/actions/add_subnet",
        "POST firewalls",
        "POST servers",
        "POST servers",
        "POST servers",
    ];
    assert_eq!(dev.writes(), expected);
    assert_eq!(dev.names(false), BTreeSet::new());
    assert_eq!(dev.names(true).len(), 6);
    let world = dev.world();
    let rule = |port: Value, protocol: &str| {
        json!({"direction": "in", "protocol": protocol, "port": port, "source_ips": ["0.0.0.0/0", "::/0"],
            "destination_ips": [], "description": null})
    };
    let rules = [rule(json!("22"), "tcp"), rule(json!("6443"), "tcp"), rule(Value::Null, "icmp")];
    assert_eq!(world["firewalls"][0]["rules"], json!(rules));
    let network = &world["networks"][0];
    assert_eq!(network["range"], "10.0.0.0/8");
    assert_eq!(network["subnet"], "10.0.0.0/24");
    for (n, server) in world["servers"].as_array().unwrap().iter().enumerate() {
        assert_eq!(server["name"], format!("NAME-{}", n + 1));
        assert_eq!(server["private_net"], format!("10.0.0.{}", n + 2));
        assert_eq!(server["status"], "running");
        assert_eq!(server["firewalls"], 1);
    }

    // The scripts run the kubeconfig on the first server, and then the image on each.
    let argv = dev.written("argv");
    let asked: Vec<&str> = argv.lines().filter(|line| line.starts_with("ssh -i")).collect();
    let hosts = ["203.0.113.1", "203.0.113.1", "203.0.113.2", "203.0.113.3"];
    assert_eq!(asked.len(), hosts.len(), "{asked:#?}");
    for (line, host) in asked.iter().zip(hosts) {
        assert!(line.contains(&format!(" root@{host} ")), "{line}");
        let known = dev.folder().join("known_hosts");
        contains(line, &format!("UserKnownHostsFile={}", known.display()));
    }
    assert_eq!(dev.written("imported"), "the image".repeat(3));
    let kubeconfig = std::fs::read_to_string(dev.folder().join("kubeconfig")).unwrap();
    contains(&kubeconfig, "server: https://203.0.113.1:6443\n");
    let secret = &documents(&dev.written("secret"))[0];
    let id = dev.all("networks")[0]["id"].to_string();
    let wanted = json!({"token": dev.token(), "network": id});
    assert_eq!(secret["stringData"], wanted);
    let wanted = json!({"name": "hcloud", "namespace": "kube-system"});
    assert_eq!(secret["metadata"], wanted);

    let mark = dev.sandbox.mark();
    dev.succeeds("up", &[]);
    let again = dev.sandbox.calls().calls_since(mark);
    assert!(!again.is_empty() && again.iter().all(|call| !call.is_write()), "{again:?}");
    assert_eq!(dev.world(), world);
    // A missing server is created, and no server is deleted when there are more.
    dev.succeeds("up", &[("NODES", "1")]);
    dev.succeeds("up", &[("NODES", "4")]);
    assert_eq!(dev.writes().split_off(expected.len()), ["POST servers"]);
    let Some(spec) = common::openapi() else {
        return;
    };
    // The document has neither keys nor firewalls, and does not know that clients send an empty gateway.
    let has = |path: &str| {
        !["ssh_keys", "firewalls", "add_subnet"].iter().any(|part| path.contains(part))
    };
    for call in dev.sandbox.calls().calls() {
        if call.is_write() && has(&call.path) {
            let body = call.json().unwrap().to_string();
            spec.check_request(&call.method, &call.path, &call.query, body.as_bytes())
                .unwrap_or_else(|problem| panic!("{call}: {problem:?}"));
        }
    }
}

/// The user data of a new server is valid for cloud-init. It contains the script of this checkout and the way
/// into the Network.
#[test]
fn user_data_is_a_document_of_cloud_init() {
    for (kind, routes) in [("k3s", "false"), ("k3s", "true"), ("kubeadm", "true")] {
        let Some(dev) = dev("user data") else { return };
        let variables = [("NODES", "2"), ("KIND", kind), ("ROUTES", routes)];
        dev.succeeds("up", &variables);
        let token = std::fs::read_to_string(dev.folder().join("token")).unwrap();
        assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let script = std::fs::read_to_string(format!("{ROOT}/manifests/dev/node.sh")).unwrap();
        let servers = dev.user_data();
        for (text, (role, control)) in servers.iter().zip([("server", ""), ("agent", "10.0.0.2")]) {
            assert!(text.starts_with("#cloud-config\n"), "{text}");
            let document = &documents(text)[0];
            let settings = format!(
                "KIND={kind}\nROLE={role}\nCONTROL={control}\nTOKEN={token}\nKUBERNETES=v1.36\nFLANNEL=v0.28.0\nROUTES={routes}\n"
            );
            let expected = json!([
                {"path": "/etc/ccm-dev/settings", "permissions": "0600", "content": settings},
                {"path": "/usr/local/sbin/ccm-dev-node", "permissions": "0700", "content": script},
            ]);
            assert_eq!(document["write_files"], expected);
            let wanted = json!([["/usr/local/sbin/ccm-dev-node"]]);
            assert_eq!(document["runcmd"], wanted);
            let file = dev.place("user-data");
            std::fs::write(&file, text).unwrap();
            let checked =
                Command::new("cloud-init").args(["schema", "--config-file"]).arg(&file).output();
            match checked {
                Ok(checked) => {
                    let said = [checked.stdout, checked.stderr].concat();
                    let said = String::from_utf8_lossy(&said);
                    assert!(checked.status.success() && said.contains("Valid"), "{said}");
                }
                Err(_) => {
                    let why = "there is no cloud-init on this machine";
                    sandbox::skipped::skip("the schema of user data", "cloud-init", why);
                }
            }
        }
        assert_eq!(servers.len(), 2);
    }
}

/// A stand-in records the arguments of each program. Commands of the shell itself have none.
#[test]
fn no_secret_is_printed_or_is_an_argument_or_can_be_read_by_others() {
    let Some(dev) = dev("secrets") else { return };
    for program in "awk cat grep mkdir mv od rm sed seq ssh-keygen tr".split(' ') {
        dev.record(program, "");
    }
    let mut printed = String::new();
    for (script, more) in [("up", "true"), ("down", ""), ("up", ""), ("push", ""), ("down", "")] {
        let hccm = if more.is_empty() { "false" } else { more };
        let read =
            |file: &str| std::fs::read_to_string(dev.folder().join(file)).unwrap_or_default();
        let (mut join, mut key) = (read("token"), read("id_ed25519"));
        let ran = dev.run(script, &[("HCCM", hccm)]).with_code(0);
        printed += &(ran.stdout + &ran.stderr + &dev.written("argv"));
        if join.is_empty() {
            (join, key) = (read("token"), read("id_ed25519"));
        }
        let key_line = key.lines().nth(1).unwrap();
        for secret in [&join, &dev.token(), key_line, "a-client-key"] {
            assert!(secret.len() > 10 && !printed.contains(secret), "{script}: {printed}");
        }
        if script == "down" {
            assert!(!dev.folder().exists());
            continue;
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dev.folder()), 0o700);
        let files = std::fs::read_dir(dev.folder()).unwrap();
        let mut names = BTreeSet::new();
        for file in files.map(|file| file.unwrap()) {
            assert_eq!(mode(&file.path()), 0o600, "{file:?}");
            names.insert(file.file_name().into_string().unwrap());
        }
        let is_of_ours = names.remove("kustomization.yaml");
        assert_eq!(is_of_ours, hccm == "false");
        let expected = ["id_ed25519", "id_ed25519.pub", "kubeconfig", "token"];
        assert_eq!(names, expected.map(str::to_owned).into());
    }
}

/// Creates objects of all kinds beside a cluster: another cluster's, those of others, and a load balancer that
/// ccm took over.
fn put_others(dev: &Dev) {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOther other";
    let other = json!({"ccm-dev-cluster": format!("{}-2", dev.name)});
    let mut adopted = json!({"ccm-from-scratch/adopted": "true"});
    adopted["ccm-dev-cluster"] = dev.name.as_str().into();
    let balancer = |name: &str, labels: Value| {
        json!({"name": name, "load_balancer_type": "lb11", "location": "fsn1", "labels": labels,
            "algorithm": {"type": "round_robin"}})
    };
    let server = |name: &str, labels: Value| json!({"name": name, "server_type": "cx23", "image": "debian-12", "location": "fsn1", "labels": labels});
    for (path, body) in [
        ("ssh_keys", json!({"name": "other", "public_key": key, "labels": other})),
        ("networks", json!({"name": "other", "ip_range": "10.0.0.0/8", "labels": other})),
        ("firewalls", json!({"name": "other"})),
        ("firewalls", json!({"name": "other-2", "labels": other})),
        ("servers", server("other", json!({}))),
        // The name is that of a server of the cluster.
        ("servers", server(&format!("{}-9", dev.name), other.clone())),
        ("load_balancers", balancer("other", other.clone())),
        ("load_balancers", balancer("adopted", adopted)),
        // Terraform takes labels away that it does not know.
        ("load_balancers", balancer("bare", json!({"ccm-dev-cluster": dev.name}))),
        (
            "load_balancers",
            balancer(
                "kept",
                json!({"ccm-dev-cluster": dev.name, "ccm-from-scratch/created": "true",
                    "ccm-from-scratch/keep": "default.web"}),
            ),
        ),
    ] {
        let (status, answer) = dev.call("POST", path, &body);
        assert_eq!(status, 201, "{path}: {answer}");
    }
}

fn create_balancer(dev: &Dev, name: &str, labels: Value, network: bool) -> Value {
    let mut body = json!({"name": name, "load_balancer_type": "lb11", "location": "fsn1", "labels": labels,
        "algorithm": {"type": "round_robin"}});
    if network {
        let networks = dev.all("networks");
        let of_cluster = networks.iter().find(|one| one["name"] == dev.name.as_str());
        body["network"] = of_cluster.unwrap()["id"].clone();
    }
    let (status, answer) = dev.call("POST", "load_balancers", &body);
    assert_eq!(status, 201, "{answer}");
    answer["load_balancer"]["id"].clone()
}

#[test]
fn dev_down_deletes_what_carries_the_label_and_nothing_else() {
    let Some(dev) = dev("its end") else { return };
    put_others(&dev);
    let others = dev.names(false);
    assert_eq!(others.len(), 7);
    // The CLI's own settings name another project.
    let settings = dev.sandbox.folder().join(".config/hcloud");
    std::fs::create_dir_all(&settings).unwrap();
    let token = &dev.sandbox.projects().foreign_token;
    let context = format!("[[contexts]]\nname = \"other\"\ntoken = \"{token}\"\n");
    std::fs::write(settings.join("cli.toml"), context).unwrap();
    dev.succeeds("up", &[("NODES", "2"), ("HCLOUD_CONTEXT", "other")]);
    dev.run("up", &[("NODES", "2"), ("HCCM", "true")]).with_code(1).warns("already has ccm");
    let created = json!({"ccm-dev-cluster": dev.name, "ccm-from-scratch/created": "true"});
    create_balancer(&dev, "of-a-service", created, true);
    let ours = dev.names(true);
    assert_eq!(ours.len(), 9, "{ours:?}");
    let stay = ["adopted", "bare", "kept"];

    let mark = dev.sandbox.mark();
    let asked = dev.run("down", &[("YES", "")]).with_code(1);
    asked.warns("this is no terminal: set YES=1 to confirm");
    let calls = dev.sandbox.calls().calls_since(mark);
    assert!(calls.iter().all(|call| !call.is_write()));
    for name in &ours {
        let (_, name) = name.split_once(' ').unwrap();
        let is_listed = asked.stdout.lines().any(|line| line.ends_with(&format!(" {name}")));
        assert_eq!(is_listed, !stay.contains(&name), "{name}: {asked:?}");
    }

    dev.succeeds("down", &[]);
    let mut deleted = dev.writes();
    deleted.retain(|write| write.starts_with("DELETE"));
    let order = "servers servers load_balancers firewalls ssh_keys networks".split(' ');
    let order: Vec<String> = order.map(|kind| format!("DELETE {kind}/*")).collect();
    assert_eq!(deleted, order);
    assert_eq!(dev.names(false), others);
    let expected = stay.map(|name| format!("load_balancers {name}")).into();
    assert_eq!(dev.names(true), expected);
    assert!(!dev.folder().exists());
    // The login of a cluster in another project is not deleted because this one has none.
    let login = dev.folder().join("id_ed25519");
    std::fs::create_dir_all(dev.folder()).unwrap();
    std::fs::write(&login, "of another project").unwrap();
    let again = dev.succeeds("down", &[]);
    assert!(login.exists());
    assert!(again.starts_with("Nothing in this project has the label"), "{again}");
}

/// The servers are protected, and the load balancers in the Network are not the cluster's. Both keep what they need.
#[test]
fn a_server_that_cannot_be_deleted_stays_with_its_network() {
    let Some(dev) = dev("protected servers") else {
        return;
    };
    dev.succeeds("up", &[("NODES", "2")]);
    let servers = dev.all("servers");
    let protect = |delete: bool| {
        let path = format!("servers/{}/actions/change_protection", servers[1]["id"]);
        let (status, _) = dev.call("POST", &path, &json!({"delete": delete, "rebuild": delete}));
        assert_eq!(status, 201);
        common::wait_until("the protection", || !dev.sandbox.cloud().has_running_actions());
    };
    protect(true);
    let id = create_balancer(&dev, "of-the-other-ccm", json!({}), true);
    let ran = dev.run("down", &[]).with_code(1);
    assert!(has_code(&ran.stdout, "protected"), "{ran:?}");
    ran.prints(&format!("load-balancer {id}\n"));
    let [second, network] = [&dev.all("servers")[0], &dev.all("networks")[0]];
    assert_eq!(second["id"], servers[1]["id"]);
    assert_eq!(second["private_net"], servers[1]["private_net"]);
    let expected = &servers[1]["public_net"]["firewalls"];
    assert_eq!(second["public_net"]["firewalls"], *expected);
    assert_eq!((dev.all("servers").len(), dev.all("ssh_keys").len()), (1, 1));
    assert_eq!(network["load_balancers"], json!([id]));

    protect(false);
    let ran = dev.run("down", &[]).with_code(1);
    assert_eq!(dev.names(true).len(), 1, "the Network: {ran:?}");
    assert_eq!(dev.all("networks")[0]["load_balancers"], json!([id]));
    dev.sandbox.cloud().delete_load_balancer(id.as_u64().unwrap());
    dev.succeeds("down", &[]);
    assert_eq!(dev.names(true), BTreeSet::new());
}

/// Whether an error of the CLI has this code, with or without a correlation ID behind it.
fn has_code(output: &str, code: &str) -> bool {
    output.contains(&format!("({code})")) || output.contains(&format!("({code}, "))
}

/// A stand-in for the CLI refuses as the CLI does. Version 1.30 names only the code, and version 1.67 adds
/// a correlation ID.
#[test]
fn a_locked_or_used_resource_is_deleted_a_moment_later() {
    for id in ["", ", 42375cb399a4fc72de883a8b2f193a41"] {
        let Some(dev) = dev("refused deletions") else {
            return;
        };
        let refuse = |refusals: &[(&str, &str)]| {
            let line = |(why, code): &(&str, &str)| format!("hcloud: {why} ({code}{id})\n");
            let lines: String = refusals.iter().map(line).collect();
            std::fs::write(dev.place("refusals"), lines).unwrap();
            std::fs::write(dev.place("argv"), "").unwrap();
        };
        let deletions = || dev.written("argv").matches("hcloud server delete").count();
        dev.refuse_deletions();
        dev.succeeds("up", &[("NODES", "1")]);
        refuse(&[("server is protected against deletion", "protected")]);
        let ran = dev.run("down", &[]);
        assert_eq!((ran.code, deletions()), (1, 1), "{ran:?}");
        assert!(has_code(&ran.stdout, "protected"), "{ran:?}");
        refuse(&[
            ("server is locked", "locked"),
            ("conflict: resource version mismatch", "conflict"),
            ("server is in use", "resource_in_use"),
        ]);
        let printed = dev.succeeds("down", &[]);
        assert_eq!(deletions(), 4, "{printed}");
        assert_eq!(dev.names(true), BTreeSet::new(), "{printed}");
    }
}

/// The answer to the n-th call is lost, which ends the script. Then it is run again, or the cluster is taken down.
#[test]
fn a_run_that_is_cut_at_any_call_is_finished_or_taken_down() {
    let Some(whole) = dev("cut runs") else { return };
    whole.succeeds("up", &[("NODES", "1")]);
    let world = whole.world();
    let calls = whole.sandbox.calls().calls();
    assert!(calls.len() > 15, "{} calls", calls.len());
    let mut cases: Vec<(usize, bool)> = (0..calls.len()).map(|at| (at, true)).collect();
    cases.extend((0..calls.len()).filter(|at| calls[*at].is_write()).map(|at| (at, false)));
    run_in_parallel(cases, |(at, is_finished)| {
        let call = &calls[at];
        let dev = dev("cut runs").unwrap();
        let rule = Rule::new(Effect::AnswerLost).half(Half::Hetzner).nth(at as u64 + 1);
        let rule = dev.sandbox.fault(rule);
        let cut = dev.run("up", &[("NODES", "1")]);
        assert_eq!(dev.sandbox.faults().hits(rule), 1, "{call}: {cut:?}");
        let expected = BTreeSet::new();
        assert_eq!(dev.names(false), expected, "{call}: something has no label");
        if is_finished {
            dev.succeeds("up", &[("NODES", "1")]);
            assert_eq!(dev.world(), world, "{call}: {cut:?}");
        } else {
            dev.succeeds("down", &[]);
            assert_eq!(dev.names(true), BTreeSet::new(), "{call}: {cut:?}");
        }
    });
}

/// The answer to the n-th call of the deletion is lost. A load balancer in the Network that is not the cluster's never
/// loses its Network.
#[test]
fn a_deletion_that_is_cut_at_any_call_takes_nothing_from_others() {
    let cut_at = |nth: u64| {
        let dev = dev("cut deletions")?;
        put_others(&dev);
        let labels = json!({"ccm-dev-cluster": dev.name, "ccm-from-scratch/created": "true"});
        let named = |rest: Value| {
            let mut body = json!({"name": dev.name, "labels": labels});
            body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            body
        };
        let subnet =
            json!([{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.0.0/24"}]);
        let network = named(json!({"ip_range": "10.0.0.0/16", "subnets": subnet}));
        let (_, network) = dev.call("POST", "networks", &network);
        let (_, firewall) = dev.call("POST", "firewalls", &named(json!({})));
        let server = named(
            json!({"server_type": "cx23", "image": "debian-12", "networks": [network["network"]["id"]],
            "firewalls": [{"firewall": firewall["firewall"]["id"]}]}),
        );
        assert_eq!(dev.call("POST", "servers", &server).0, 201);
        create_balancer(&dev, "of-a-service", labels, true);
        let id = create_balancer(&dev, "of-the-other-ccm", json!({}), true);
        common::wait_until("servers", || !dev.sandbox.cloud().has_running_actions());
        let others = dev.names(false);
        let rule = Rule::new(Effect::AnswerLost).half(Half::Hetzner).nth(nth);
        let rule = dev.sandbox.fault(rule);
        let mark = dev.sandbox.mark();
        // Each fourth is run again, which ends the same.
        let runs = if nth > 0 && nth.is_multiple_of(4) { 2 } else { 1 };
        for _ in 0..runs {
            let ran = dev.run("down", &[]);
            assert_eq!(ran.code, 1, "call {nth}: {ran:?}");
            assert_eq!(dev.names(false), others, "call {nth}: {ran:?}");
            let networks = dev.all("networks");
            let own = networks.iter().find(|one| one["name"] == dev.name.as_str());
            let within = own.unwrap()["load_balancers"].as_array().unwrap();
            assert!(within.contains(&id), "call {nth}: {ran:?}");
        }
        if nth == 0 || runs == 2 {
            let left = [
                "load_balancers adopted".to_owned(),
                "load_balancers bare".to_owned(),
                "load_balancers kept".to_owned(),
                format!("networks {}", dev.name),
            ];
            assert_eq!(dev.names(true), left.into(), "call {nth}");
        }
        assert!(nth == 0 || dev.sandbox.faults().hits(rule) == 1);
        Some(dev.sandbox.calls().calls_since(mark).len() as u64)
    };
    let Some(calls) = cut_at(0) else { return };
    run_in_parallel((1..=calls).collect(), |nth| {
        cut_at(nth);
    });
}

/// The script ends with an error that says this.
fn fails(dev: &Dev, variables: &[(&str, &str)], why: &str) {
    let ran = dev.run("up", variables);
    assert!(ran.code != 0, "{variables:?}: {ran:?}");
    ran.warns(why);
}

#[test]
fn wrong_values_and_names_of_others_are_refused_before_anything_is_created() {
    let Some(dev) = dev("wrong values") else {
        return;
    };
    let cases = [
        (("YES", ""), "this is no terminal: set YES=1 to confirm"),
        (("NODES", "0"), "NODES=0: it must be a number, at least 1"),
        (("NODES", "many"), "NODES=many"),
        (("KIND", "k8s"), "KIND=k8s: it must be one of k3s kubeadm"),
        (("ROUTES", "yes"), "ROUTES=yes: it must be one of true false"),
        (("PROFILE", "hetzner"), "PROFILE=hetzner"),
        (("NAME", "a b"), "NAME=a b"),
        (("NAME", "12345"), "NAME=12345"),
        (("NAME", "../x"), "NAME=../x"),
        (("LOCATION", "ash"), "TYPE=cx23 is not sold in LOCATION=ash"),
        (("TYPE", "cx1"), "not found"),
        (("LOCATION", "mars"), "is not sold in LOCATION=mars"),
        (("KUBERNETES", "v1$(id)"), "use only letters, digits, dots and dashes"),
        (("HCLOUD_TOKEN", ""), "set HCLOUD_TOKEN"),
        (("HCLOUD_TOKEN", "x\ny"), "HCLOUD_TOKEN is no token"),
    ];
    for (variable, expected) in cases {
        fails(&dev, &[variable], expected);
    }
    assert_eq!(dev.writes(), [""; 0]);

    // An object with the name and without the label is not the cluster's.
    let body = json!({"name": dev.name, "ip_range": "10.0.0.0/16"});
    assert_eq!(dev.call("POST", "networks", &body).0, 201);
    let before = dev.all("networks");
    fails(&dev, &[], "uniqueness_error");
    assert_eq!(dev.all("networks"), before);
    // Without the login that its servers know, a cluster can only be deleted.
    std::fs::remove_dir_all(dev.folder()).unwrap();
    fails(&dev, &[], "was created on another machine");
    dev.succeeds("down", &[]);
    assert_eq!(dev.all("networks"), before);
}

/// The switches reach our Deployment as ccm understands them, and the other controller by its own release.
#[test]
fn settings_of_dev_up_reach_the_daemon() {
    let cases = [("ccm-from-scratch", "false"), ("ccm-from-scratch", "true"), ("hcloud", "true")];
    for (profile, routes) in cases {
        let Some(dev) = dev("switches") else { return };
        let variables =
            [("NODES", "1"), ("PROFILE", profile), ("ROUTES", routes), ("LOCATION", "nbg1")];
        dev.succeeds("up", &variables);
        let Some(objects) = kustomized_at(&dev.folder()) else {
            return;
        };
        let settings = understood(&pod(one(&objects, "Deployment"))["containers"][0]).settings;
        assert_eq!(settings.cloud_provider.value.name(), profile);
        assert_eq!(settings.network_routes_enabled.value.to_string(), routes);
        let shown = |variable: &str| {
            let container = &pod(one(&objects, "Deployment"))["containers"][0];
            crate::built::rendered::variables(container)[variable].clone()
        };
        assert_eq!(shown("HCLOUD_LOAD_BALANCERS_LABELS"), dev.label());
        assert_eq!(shown("HCLOUD_LOAD_BALANCERS_LOCATION"), "nbg1");
        assert_eq!(shown("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP"), "true");
        assert_eq!(shown("HCLOUD_NETWORK"), "from");
    }
    let Some(dev) = dev("switches") else { return };
    dev.succeeds("up", &[("NODES", "1"), ("HCCM", "true"), ("ARCHIVE", "")]);
    let argv = dev.written("argv");
    assert!(argv.contains("/v1.30.0/ccm-networks.yaml\n"), "{argv}");
    contains(
        &argv,
        "set env deployment/hcloud-cloud-controller-manager HCLOUD_NETWORK_ROUTES_ENABLED=false",
    );
    assert!(!argv.contains("--kustomize") && dev.written("imported").is_empty(), "{argv}");
}

#[test]
fn dev_push_imports_on_each_server_then_restarts() {
    let Some(dev) = dev("push") else { return };
    dev.run("push", &[]).with_code(1).warns("there is no cluster");
    dev.succeeds("up", &[("NODES", "2")]);
    std::fs::remove_file(dev.place("argv")).unwrap();
    std::fs::remove_file(dev.place("imported")).unwrap();
    let before = dev.writes();
    dev.succeeds("push", &[]);
    assert_eq!(dev.written("imported"), "the image".repeat(2));
    assert_eq!(dev.writes(), before);
    let argv = dev.written("argv");
    let steps = [
        "root@203.0.113.1 uname",
        "root@203.0.113.1 if",
        "root@203.0.113.2 if",
        "apply --kustomize",
        "rollout restart deployment/ccm-from-scratch",
        "rollout status deployment/ccm-from-scratch",
    ];
    let at = steps.map(|step| argv.find(step).unwrap_or_else(|| panic!("{step}: {argv}")));
    assert!(at.is_sorted(), "{argv}");
}

/// Runs `node.sh` with stand-ins for all that it starts, in a folder instead of the root. Returns the folder.
fn first_boot(kind: &str, role: &str, routes: bool) -> PathBuf {
    const METADATA: &str =
        "- ip: 10.0.0.3\n  alias_ips: []\n  interface_num: 1\n  network: 10.0.0.0/8\n";
    let name = format!("node-{kind}-{role}-{routes}-{}", std::process::id());
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&root);
    let folders = "bin etc/ccm-dev etc/modules-load.d etc/sysctl.d etc/apt/keyrings etc/apt/sources.list.d root";
    for folder in folders.split(' ') {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let write = |file: &str, text: &str| {
        std::fs::write(root.join(file), text).unwrap();
        let is_program = file.starts_with("bin");
        let mode = if is_program { 0o755 } else { 0o600 };
        std::fs::set_permissions(root.join(file), PermissionsExt::from_mode(mode)).unwrap();
    };
    let fake = |program: &str, body: &str| {
        let root = root.display();
        let log = format!("printf '%s\\n' \"{program} $*\" >>'{root}/argv'");
        let text = format!("#!/bin/sh\n{log}\n{body}\n");
        write(&format!("bin/{program}"), &text);
    };
    for program in "apt-get modprobe sysctl systemctl kubectl sleep".split(' ') {
        fake(program, "");
    }
    fake("containerd", "echo '    SystemdCgroup = false'");
    // The second join works.
    fake(
        "kubeadm",
        &format!(
            "case $* in version*) echo v1.36.2 ;; init*--skip-token-print*) ;; init*) echo 0123456789abcdef ;; join*) test -e '{0}/tried' || {{ : >'{0}/tried'; exit 1; }} ;; esac",
            root.display()
        ),
    );
    fake(
        "ip",
        "printf '1: lo    inet 127.0.0.1/8\\n2: eth0    inet 203.0.113.9/32\\n3: enp7s0    inet 10.0.0.3/32\\n'",
    );
    let flannel = r#"case "$*" in *kube-flannel*) printf 'net-conf.json: {"Type": "vxlan"}\n        - --kube-subnet-mgr\n' >"$file" ;; esac"#;
    let output = r#"while [ $# -gt 0 ]; do case $1 in --output) file=$2 ;; *private-networks) cat "$ROOT/metadata" ;; *public-ipv4) echo 203.0.113.9 ;; esac; shift; done"#;
    fake(
        "curl",
        &format!(
            r#"words=$*; {output}; set -- "$words"; [ -z "${{file:-}}" ] || echo 'echo "installed $INSTALL_K3S_CHANNEL $*"' >"$file"; {flannel}"#
        ),
    );
    write("metadata", METADATA);
    let token = "0123456789abcdef".repeat(4);
    let control = if role == "agent" { "10.0.0.2" } else { "" };
    write(
        "etc/ccm-dev/settings",
        &format!(
            "KIND={kind}\nROLE={role}\nCONTROL={control}\nTOKEN={token}\nKUBERNETES=v1.36\nFLANNEL=v0.28.0\nROUTES={routes}\n"
        ),
    );
    let mut script = std::fs::read_to_string(format!("{ROOT}/manifests/dev/node.sh")).unwrap();
    for folder in [" /etc/", ">/etc/", " /root/", ">/root/"] {
        let (before, rest) = folder.split_at(1);
        script = script.replace(folder, &format!("{before}{}{rest}", root.display()));
    }
    write("node.sh", &script);
    let path = std::env::var("PATH").unwrap();
    let ran = Command::new("sh")
        .arg(root.join("node.sh"))
        .env_clear()
        .env("ROOT", &root)
        .env("PATH", format!("{}:{path}", root.join("bin").display()))
        .output()
        .unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ran.status.success(), "{kind} {role}: {said}");
    let argv = std::fs::read_to_string(root.join("argv")).unwrap();
    assert!(
        !argv.contains("0123456789abcdef") && !said.contains("0123456789abcdef"),
        "{argv}{said}"
    );
    if kind == "k3s" {
        assert!(said.ends_with(&format!("installed v1.36 {role}\n")), "{said}");
    }
    root
}

/// The files that k3s and kubeadm read on a server make nodes in the Network that wait for a cloud-controller-manager.
#[test]
fn a_new_server_joins_inside_the_network_and_waits_for_its_ccm() {
    let token = "0123456789abcdef".repeat(4);
    let read = |root: &Path, file: &str| {
        let path = root.join(file);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} can be read by others");
        documents(&std::fs::read_to_string(path).unwrap())
    };
    for (role, routes) in [("server", false), ("server", true), ("agent", true)] {
        let root = first_boot("k3s", role, routes);
        let mut expected = json!({"token": token, "node-ip": "10.0.0.3", "flannel-iface": "enp7s0",
            "kubelet-arg": ["cloud-provider=external"]});
        let more = match role {
            "server" => {
                json!({"disable-cloud-controller": true, "disable": ["servicelb", "traefik"],
                "cluster-cidr": "10.244.0.0/16", "advertise-address": "10.0.0.3", "tls-san": ["203.0.113.9"]})
            }
            _ => json!({"server": "https://10.0.0.2:6443"}),
        };
        expected.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if routes {
            let file = root.join("etc/rancher/k3s/flannel.json");
            expected["flannel-conf"] = "/etc/rancher/k3s/flannel.json".into();
            let flannel = json!({"Network": "10.244.0.0/16", "EnableIPv4": true, "Backend": {"Type": "extension"}});
            assert_eq!(documents(&std::fs::read_to_string(file).unwrap()), [flannel]);
        }
        let mut config = read(&root, "etc/rancher/k3s/config.yaml").remove(0);
        if let Some(path) = config["flannel-conf"].as_str() {
            config["flannel-conf"] = path.trim_start_matches(root.to_str().unwrap()).into();
        }
        assert_eq!(config, expected);
        std::fs::remove_dir_all(root).unwrap();
    }
    for (role, routes) in [("server", false), ("server", true), ("agent", false)] {
        let root = first_boot("kubeadm", role, routes);
        let config = read(&root, "root/kubeadm.yaml");
        let wait = json!([{"name": "cloud-provider", "value": "external"}, {"name": "node-ip", "value": "10.0.0.3"}]);
        assert_eq!(config[0]["nodeRegistration"]["kubeletExtraArgs"], wait);
        let bootstrap = "012345.6789abcdef012345";
        let containerd = std::fs::read_to_string(root.join("etc/containerd/config.toml")).unwrap();
        assert!(containerd.contains("SystemdCgroup = true"), "{containerd}");
        if role == "agent" {
            assert_eq!(config[0]["discovery"]["bootstrapToken"]["token"], bootstrap);
            assert_eq!(
                config[0]["discovery"]["bootstrapToken"]["apiServerEndpoint"],
                "10.0.0.2:6443"
            );
            let argv = std::fs::read_to_string(root.join("argv")).unwrap();
            assert_eq!(argv.matches("kubeadm join").count(), 2, "{argv}");
        } else {
            let wanted = json!([{"token": bootstrap, "ttl": "0s"}]);
            assert_eq!(config[0]["bootstrapTokens"], wanted);
            assert_eq!(config[0]["localAPIEndpoint"]["advertiseAddress"], "10.0.0.3");
            assert_eq!(config[1]["kubernetesVersion"], "v1.36.2");
            assert_eq!(config[1]["networking"]["podSubnet"], "10.244.0.0/16");
            let wanted = json!(["203.0.113.9", "10.0.0.3"]);
            assert_eq!(config[1]["apiServer"]["certSANs"], wanted);
            let flannel = std::fs::read_to_string(root.join("root/kube-flannel.yml")).unwrap();
            let backend = if routes { "alloc" } else { "vxlan" };
            assert_eq!(
                flannel,
                format!(
                    "net-conf.json: {{\"Type\": \"{backend}\"}}\n        - --kube-subnet-mgr\n        - --iface-can-reach=10.0.0.1\n"
                )
            );
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}

/// The scripts are POSIX sh, also the part that runs on servers.
#[test]
fn scripts_are_understood_by_a_small_shell() {
    for script in ["common", "up", "push", "down", "node"] {
        let file = format!("{ROOT}/manifests/dev/{script}.sh");
        let checked = Command::new("sh").args(["-n", &file]).output().unwrap();
        Ran::from(checked).with_code(0);
    }
}
