//! A person at a terminal with kubectl, and what they write into files.

use crate::common::{Env, Ran};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// A person who uses kubectl on a sandbox.
pub struct Person<'a> {
    sandbox: &'a Sandbox,
    env: Env,
}

impl Person<'_> {
    /// `admin` may do everything, `ccm` what the official role allows. None where there is no kubectl.
    pub fn of<'a>(sandbox: &'a Sandbox, user: &str) -> Option<Person<'a>> {
        let mut version = Command::new("kubectl");
        version.args(["version", "--client"]);
        if !version.output().is_ok_and(|out| out.status.success()) {
            sandbox::skipped::skip("kubectl", "kubectl", "there is no kubectl on this machine");
            return None;
        }
        let env = sandbox.env_of(user);
        Some(Person { sandbox, env })
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            // kubectl stores here what it learned about the server. What it learned about another server
            // would be wrong.
            .env("HOME", self.sandbox.folder())
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        let output = self.command(words).output().unwrap();
        Ran::from(output)
    }

    /// Runs kubectl, which must succeed. Returns its output.
    pub fn gets(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "kubectl {words:?}: {}", ran.stderr);
        ran.stdout
    }

    /// Runs a line whose words contain no spaces. Returns its output.
    pub fn does(&self, line: &str) -> String {
        self.gets(&line.split(' ').collect::<Vec<_>>())
    }

    /// Runs a line that must fail. Returns its error.
    pub fn is_refused(&self, line: &str) -> String {
        let ran = self.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, 1, "kubectl {line}: {ran:?}");
        ran.stderr
    }

    /// Writes a file for `-f`.
    pub fn file(&self, name: &str, object: &Value) -> String {
        let path = self.sandbox.folder().join(name);
        std::fs::write(&path, object.to_string()).unwrap();
        path.display().to_string()
    }
}

/// Starts a sandbox with nodes that change only when somebody changes them. It is never a real cluster, because the
/// sandbox is tested here.
pub fn simulated(nodes: usize) -> Sandbox {
    let builder = Sandbox::builder().nodes(nodes);
    builder.heartbeats(false).start()
}

/// A Service as somebody would apply it.
pub fn shop() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "shop", "labels": { "kept": "1", "dropped": "2" } },
        "spec": {
            "type": "LoadBalancer",
            "selector": { "app": "shop" },
            "ports": [{ "name": "http", "port": 80 }, { "name": "https", "port": 443 }],
        },
    })
}
