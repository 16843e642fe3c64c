//! Credential plugins (`exec`): those that work, what they are told, how often they are run, and the line that explains
//! each that does not work.

use super::bad::{mismatch, says};
use super::{World, yaml};
use crate::common::{Cluster, ccm, contains, on, with};
use sandbox::credentials::{Subject, Validity};
use sandbox::faults::Effect;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// The text before the words about a plugin.
const NOT_SENT: &str = "GET URL/api/v1/nodes was not sent: kubeconfig \"DIR/bad\", user \"me\": credential plugin \"./plugin\" ";

impl World {
    /// A kubeconfig whose user has this `exec`.
    pub(super) fn with_exec(&self, exec: Value) -> Value {
        let mut config = self.config();
        config["users"][0]["user"] = json!({"exec": exec});
        config
    }

    /// Writes a shell script beside the kubeconfig that counts its runs, then does this.
    pub(super) fn script(&self, name: &str, text: &str) {
        let folder = self.folder().display();
        let path =
            self.write(name, format!("#!/bin/sh\necho run >> {folder}/{name}.runs\n{text}\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    pub(super) fn runs(&self, name: &str) -> usize {
        let runs = std::fs::read_to_string(self.folder().join(format!("{name}.runs")));
        runs.unwrap_or_default().lines().count()
    }

    /// A script that prints an `ExecCredential` with this status.
    pub(super) fn plugin(&self, name: &str, version: &str, status: Value) {
        let answer = json!({"kind": "ExecCredential", "apiVersion": version, "status": status});
        let file = self.write(&format!("{name}.json"), answer.to_string());
        self.script(name, &format!("cat {file}"));
    }
}

/// An `exec` with nothing special.
pub(super) fn exec(command: &str) -> Value {
    json!({"apiVersion": V1, "command": command, "interactiveMode": "Never"})
}

/// Returns the plugin with one field changed. Null removes the field.
fn with_field(field: &str, value: Value) -> Value {
    let mut exec = exec("./plugin");
    match value {
        Value::Null => drop(exec.as_object_mut().unwrap().remove(field)),
        value => exec[field] = value,
    }
    exec
}

#[test]
fn plugins_that_work_are_used() {
    let world = World::new();
    let certificate = json!({
        "clientCertificateData": world.identity.certificate_pem,
        "clientKeyData": world.identity.key_pem,
    });
    world.plugin("plugin", V1, json!({"token": world.token}));
    world.plugin(
        "beta",
        V1BETA1,
        json!({"token": world.token, "expirationTimestamp": "2999-01-01T00:00:00Z"}),
    );
    world.plugin(
        "endless",
        V1,
        json!({"token": world.token, "expirationTimestamp": "9999-12-31T23:59:59Z"}),
    );
    // The plugin leaves a process behind that holds its standard output open.
    let credential = world.folder().join("plugin.json").display().to_string();
    world.script("leaving", &format!("cat {credential}\nsleep 3 &"));
    world.plugin("certified", V1, certificate.clone());
    let mut both = certificate;
    both["token"] = json!(world.token);
    world.plugin("both", V1, both);
    let absolute = world.folder().join("plugin").display().to_string();
    let folder = world.folder().display().to_string();
    #[rustfmt::skip]
    let cases = [
        ("relative to the kubeconfig", exec("./plugin")),
        ("absolute", exec(&absolute)),
        ("in PATH", exec("plugin")),
        ("v1beta1, which needs no mode", json!({"apiVersion": V1BETA1, "command": "./beta"})),
        ("if available", with_field("interactiveMode", json!("IfAvailable"))),
        ("a certificate", exec("./certified")),
        ("both", exec("./both")),
        ("the end of all times", exec("./endless")),
        ("with a child that goes on", exec("./leaving")),
        ("empty fields", json!({"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never", "args": null, "env": [], "installHint": ""})),
    ];
    for (name, exec) in cases {
        let path = world.write("good", yaml(&world.with_exec(exec)));
        let env = with(world.env(&path), &[("PATH", &format!("{folder}:/usr/bin:/bin"))]);
        let ran = ccm(&env, &["node", "list", "-v=10"]);
        assert_eq!(ran.code, 0, "{name}: {ran:?}");
        ran.prints("worker-1");
        assert_eq!(world.secrets().leak(&ran.stderr), None, "{name}: {ran:?}");
    }
    for call in world.sandbox.calls().calls() {
        assert!(["ccm", "project"].contains(&&*call.caller), "{call}");
    }
}

/// Like kubectl, ccm runs no plugin when the kubeconfig itself has credentials.
#[test]
fn a_plugin_is_not_run_when_the_kubeconfig_has_other_credentials() {
    let world = World::new();
    world.script("plugin", "exit 1");
    world.sandbox.cluster().add_password("ccm", "a-password");
    let mut certified = world.certified(&world.identity)["users"][0]["user"].clone();
    certified["exec"] = exec("./plugin");
    for user in [
        json!({"exec": exec("./plugin"), "token": world.token}),
        json!({"exec": exec("./plugin"), "username": "ccm", "password": "a-password"}),
        certified,
    ] {
        let mut config = world.config();
        config["users"][0]["user"] = user;
        world.list(&world.write("better", yaml(&config)), &[]).with_code(0);
    }
    assert_eq!(world.runs("plugin"), 0);
}

#[test]
fn a_plugin_gets_its_documented_environment() {
    let world = World::new();
    let folder = world.folder().display().to_string();
    world.plugin("credential", V1, json!({"token": world.token}));
    let script = format!(
        "printf '%s' \"$KUBERNETES_EXEC_INFO\" > {folder}/info\nprintf '%s,' \"$@\" \"$MORE\" \"$HOME\" > {folder}/args\n{folder}/credential"
    );
    world.script("plugin", &script);
    let mut exec = exec("./plugin");
    exec["args"] = json!(["--cluster", "a b", ""]);
    exec["env"] = json!([{"name": "MORE", "value": "c d"}]);
    let mut config = world.with_exec(exec.clone());
    let cluster = &mut config["clusters"][0]["cluster"];
    cluster["tls-server-name"] = "localhost".into();
    cluster["extensions"] = json!([
        {"name": "others", "extension": {"x": 1}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a", "n": [1, null]}},
    ]);
    let told = |config: &Value| -> Value {
        world.list(&world.write("told", yaml(config)), &[]).with_code(0);
        let info = std::fs::read_to_string(world.folder().join("info")).unwrap();
        serde_json::from_str(&info).unwrap()
    };
    let nothing =
        json!({"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": false}});
    assert_eq!(told(&config), nothing);
    let args = std::fs::read_to_string(world.folder().join("args")).unwrap();
    assert_eq!(args, "--cluster,a b,,c d,/nonexistent,");
    config["users"][0]["user"]["exec"]["provideClusterInfo"] = true.into();
    let cluster = &config["clusters"][0]["cluster"];
    let expected = json!({
        "server": cluster["server"],
        "certificate-authority-data": cluster["certificate-authority-data"],
        "tls-server-name": "localhost",
        "config": {"audience": "a", "n": [1, null]},
    });
    assert_eq!(told(&config)["spec"]["cluster"], expected);
    // The authority in a file is passed as data, too.
    world.write("ca.crt", world.sandbox.authority().certificate_pem());
    let cluster = config["clusters"][0]["cluster"].as_object_mut().unwrap();
    cluster.remove("certificate-authority-data");
    cluster.insert("certificate-authority".into(), "ca.crt".into());
    assert_eq!(told(&config)["spec"]["cluster"], expected);
}

/// The project's token must not reach the cluster's plugin. Variables that the kubeconfig itself names may reach it.
#[test]
fn a_plugin_gets_no_variable_of_the_cloud() {
    let world = World::new();
    let folder = world.folder().display().to_string();
    world.plugin("credential", V1, json!({"token": world.token}));
    world.script("plugin", &format!("env > {folder}/env\n{folder}/credential"));
    let mut exec = exec("./plugin");
    exec["env"] = json!([{"name": "HCLOUD_CONTEXT", "value": "given"}]);
    let path = world.write("config", yaml(&world.with_exec(exec)));
    let env = with(
        world.env(&path),
        &[("ROBOT_PASSWORD", "of-the-robot"), ("HCLOUD_CONTEXT", "inherited"), ("OTHERS", "stay")],
    );
    ccm(&env, &["node", "list"]).with_code(0);
    let given = std::fs::read_to_string(world.folder().join("env")).unwrap();
    let of_cloud: Vec<&str> =
        given.lines().filter(|line| line.contains("HCLOUD_") || line.contains("ROBOT_")).collect();
    assert_eq!(of_cloud, ["HCLOUD_CONTEXT=given"]);
    contains(&given, "OTHERS=stay");
    contains(&given, "KUBECONFIG=");
}

#[test]
fn a_plugin_is_run_once_and_again_after_a_401() {
    let world = World::new();
    let folder = world.folder().display().to_string();
    let config = world.write("config", yaml(&world.with_exec(exec("./plugin"))));
    let refuse = |times: u64| {
        let effect = Effect::kubernetes_status(401, "Unauthorized", "Unauthorized");
        let rule = on("/api/**", effect).times(times);
        world.sandbox.fault(rule)
    };
    let second = "another-token-that-is-known-as-well";
    world.sandbox.cluster().add_token("ccm", second);
    let other_each_time = format!(
        "n=$(wc -l < {folder}/plugin.runs)\ntoken={}\n[ $((n % 2)) = 0 ] && token={second}\n\
         echo '{{\"kind\":\"ExecCredential\",\"apiVersion\":\"{V1}\",\"status\":{{\"token\":\"'$token'\"}}}}'",
        world.token
    );
    let same = |world: &World| world.plugin("plugin", V1, json!({"token": world.token}));
    // Each case has the number of refusals, whether the token changes, the exit code, and the runs of the plugin.
    for (times, changes, code, runs) in
        [(0, false, 0, 1), (1, true, 0, 2), (2, true, 1, 2), (1, false, 1, 2)]
    {
        match changes {
            true => world.script("plugin", &other_each_time),
            false => same(&world),
        }
        let _ = std::fs::remove_file(world.folder().join("plugin.runs"));
        let rule = refuse(times);
        // The API is called more than once, and a credential that works is kept.
        let ran = ccm(&world.env(&config), &["node", "inspect", "worker-1"]);
        world.sandbox.faults().remove(rule);
        assert_eq!(ran.code, code, "{times} {changes}: {ran:?}");
        assert_eq!(world.runs("plugin"), runs, "{times} {changes}: {ran:?}");
        let secrets = super::Secrets::new(&[&world.token, second]);
        assert_eq!(secrets.leak(&ran.stderr), None, "{ran:?}");
    }
}

#[test]
fn wrong_fields_of_a_plugin_are_explained() {
    let world = World::new();
    world.script("plugin", "exit 1");
    world.write("data", "no program");
    let secret = world.token.clone();
    #[rustfmt::skip]
    let cases = [
        ("apiVersion", Value::Null, ": not set; write client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1, whichever the program prints"),
        ("apiVersion", json!("client.authentication.k8s.io/v1alpha1"), ": \"client.authentication.k8s.io/v1alpha1\" is not supported; write client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1"),
        ("apiVersion", json!(1), ": must be text; put it in quotes"),
        ("command", Value::Null, ": not set; name the program to run"),
        ("command", json!(""), ": not set; name the program to run"),
        ("command", json!("no-such-program"), ": there is no program \"no-such-program\" in PATH; install it or write its path"),
        ("command", json!("./nowhere"), ": there is no program \"./nowhere\"; correct the path"),
        ("command", json!("./data"), ": \"./data\" is not executable; run chmod +x on the file"),
        ("command", json!("/"), ": there is no program \"/\"; correct the path"),
        ("command", json!(secret), ": there is no program [not shown: looks like a secret] in PATH; install it or write its path"),
        ("command", json!("a\0b"), ": there is no program \"a\\0b\" in PATH; install it or write its path"),
        ("command", json!(["./plugin"]), ": must be text; put it in quotes"),
        ("interactiveMode", Value::Null, ": not set; write Never or IfAvailable"),
        ("interactiveMode", json!("Always"), ": is Always, but ccm gives the program no terminal; if the program works without a terminal, write Never or IfAvailable"),
        ("interactiveMode", json!("never"), ": \"never\" is unknown; write Never or IfAvailable"),
        ("args", json!("--token"), ": must be a list"),
        ("args", json!(["a", 1]), ": must be text; put it in quotes"),
        ("env", json!({"A": secret}), ": must be a list"),
        ("env", json!([{"value": secret}]), ": name: not set"),
        ("env", json!([{"name": "A", "value": 1}]), ": must be text; put it in quotes"),
        ("env", json!([secret]), ": must be a name and a value"),
        ("provideClusterInfo", json!("yes"), ": must be a boolean"),
        ("comand", json!("x"), ": unknown field; use one of apiVersion, command, args, env, installHint, provideClusterInfo, interactiveMode"),
    ];
    let place = "kubeconfig \"DIR/bad\", user \"me\": exec";
    for (field, value, why) in cases {
        let config = world.with_exec(with_field(field, value.clone()));
        let message = format!("{place}.{field}{why}");
        says(&world, &config, &message);
    }
    let config = world.with_exec(json!("./plugin"));
    let message = format!("{place}: must be a YAML mapping");
    says(&world, &config, &message);
    // A hint that may hold a secret is not shown.
    for (key, shown) in [("", "; Get it: https://example.com/install?key="), (secret.as_str(), "")]
    {
        let mut hinted = exec("aws-iam");
        hinted["installHint"] =
            format!("Get it:\n\n  https://example.com/install?key={key}\n").into();
        let message = format!(
            "{place}.command: there is no program \"aws-iam\" in PATH; install it or write its path{shown}"
        );
        says(&world, &world.with_exec(hinted), &message);
    }
    assert_eq!(world.runs("plugin"), 0, "a wrong one is not run");
}

/// A log contains nothing of this output, because it may contain a secret.
#[test]
fn the_standard_error_of_a_plugin_is_shown_only_at_a_terminal() {
    let world = World::new();
    let config = yaml(&world.with_exec(exec("./plugin")));
    world.script("plugin", "echo log in first >&2; exit 1");
    let message = format!(
        "{NOT_SENT}failed (exit status: 1); run the plugin by hand to see why (kubeconfig \"DIR/bad\", context \"here\")"
    );
    assert_eq!(mismatch(&world, &config, &[], &message), None);
}

#[test]
fn plugins_that_fail_are_explained() {
    let world = World::new();
    let token = &world.token;
    let print = |text: &str| format!("cat <<'END'\n{text}\nEND");
    let credential = |status: Value| {
        print(&json!({"kind": "ExecCredential", "apiVersion": V1, "status": status}).to_string())
    };
    let subject = Subject { user: "ccm".into(), group: None };
    let other = world.sandbox.authority().client(&subject, Validity::Now).unwrap();
    let (certificate, key) = (&world.identity.certificate_pem, &world.identity.key_pem);
    #[rustfmt::skip]
    let cases = [
        ("exit 3".into(), "failed (exit status: 3); run the plugin by hand to see why"),
        ("echo no such profile >&2\necho 'log in first' >&2; exit 1".into(), "failed (exit status: 1); run the plugin by hand to see why"),
        (format!("echo 'token={token} is old' >&2; exit 1"), "failed (exit status: 1); run the plugin by hand to see why"),
        ("echo \"hello $GIVEN\" >&2; exit 1".into(), "failed (exit status: 1); run the plugin by hand to see why"),
        (credential(json!({"token": "it-is-short"})) + "\necho it-is-short >&2; exit 1", "failed (exit status: 1); run the plugin by hand to see why"),
        ("kill -9 $$".into(), "failed (signal: 9 (SIGKILL)); run the plugin by hand to see why"),
        ("exec sleep 100".into(), "did not end within 5 s, so ccm stopped it; the plugin must not wait for input, which ccm can't give"),
        ("read line; exit 4".into(), "failed (exit status: 4); run the plugin by hand to see why"),
        ("head -c 3000000 /dev/zero".into(), "printed more than 1 MiB"),
        ("true".into(), "must print an ExecCredential and nothing else, but ccm can't read its output at line 1, column 0"),
        (format!("echo _{token}"), "must print an ExecCredential and nothing else, but ccm can't read its output at line 1, column 1"),
        (print(&format!("{{\"kind\": \"{token}")), "must print an ExecCredential and nothing else, but ccm can't read its output at line 2, column 0"),
        (print("[]"), "must print an ExecCredential and nothing else, but ccm can't read its output at line 1, column 2"),
        (print(&json!({"kind": token}).to_string()), "must print an ExecCredential and nothing else, but ccm can't read its output at line 1, column 75"),
        (print(&json!({"kind": "ExecCredential", "apiVersion": V1BETA1, "status": {"token": token}}).to_string()), "did not print an ExecCredential with apiVersion client.authentication.k8s.io/v1, which the kubeconfig names; in the kubeconfig, set apiVersion to the version that the plugin prints"),
        (credential(json!(null)), "printed neither status.token nor status.clientCertificateData"),
        (credential(json!({"token": ""})), "printed neither status.token nor status.clientCertificateData"),
        (credential(json!({"token": [token]})), "must print an ExecCredential and nothing else, but ccm can't read its output at line 1, column 90"),
        (credential(json!({"token": format!("{token} {token}")})), "printed a status.token with characters that no token has, e.g. white space"),
        (credential(json!({"token": token, "expirationTimestamp": "tomorrow"})), "printed a status.expirationTimestamp that is not an RFC 3339 time"),
        (credential(json!({"token": token, "expirationTimestamp": "2020-01-01T00:00:00Z"})), "printed credentials that expired at TIME; if this machine's clock is right, renew the plugin's own login"),
        (credential(json!({"token": token, "expirationTimestamp": "0000-01-01T00:00:00Z"})), "printed credentials that expired at TIME; if this machine's clock is right, renew the plugin's own login"),
        (credential(json!({"clientCertificateData": certificate})), "printed only one of status.clientCertificateData and status.clientKeyData, but must print both or none"),
        (credential(json!({"clientKeyData": key})), "printed only one of status.clientCertificateData and status.clientKeyData, but must print both or none"),
        (credential(json!({"clientCertificateData": certificate, "clientKeyData": other.key_pem})), "printed a wrong status.clientKeyData: is the key of another certificate"),
        (credential(json!({"clientCertificateData": key, "clientKeyData": certificate})), "printed a wrong status.clientCertificateData: holds a private key instead of a certificate; did you swap the key and the certificate?"),
    ];
    let mut exec = exec("./plugin");
    exec["env"] = json!([{"name": "GIVEN", "value": "given-to-it"}]);
    let config = yaml(&world.with_exec(exec));
    for (script, why) in cases {
        world.script("plugin", &script);
        let message = format!("{NOT_SENT}{why} (kubeconfig \"DIR/bad\", context \"here\")");
        assert_eq!(mismatch(&world, &config, &["-v=1"], &message), None, "{script}");
    }
    world.write("plugin", "no interpreter, no program");
    let message = format!(
        "{NOT_SENT}can't be started (Exec format error (os error 8)) (kubeconfig \"DIR/bad\", context \"here\")"
    );
    assert_eq!(mismatch(&world, &config, &[], &message), None);
    world.plugin("plugin", V1, json!({"token": "nobody-knows-this-one"}));
    let message = "GET URL/api/v1/nodes: Unauthorized (401 Unauthorized); the API server requires valid credentials: is the token or certificate missing, expired, or for another cluster? (kubeconfig \"DIR/bad\", context \"here\")";
    assert_eq!(mismatch(&world, &config, &[], message), None);
}
