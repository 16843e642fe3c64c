//! Good and bad kubeconfigs. The good ones work. For each bad one there is a line that names the file, the field and
//! the remedy, and contains no secret.

use crate::common::{Env, Ran, ccm, env, with};
mod bad;
mod good;
mod keys;
mod mutated;
mod plugins;
mod servers;

use crate::common::secrets::Secrets;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox::Sandbox;
use sandbox::credentials::Identity;
use serde_json::{Value, json};
use std::path::Path;

/// A sandbox, and what a kubeconfig for it is made of.
struct World {
    sandbox: Sandbox,
    token: String,
    identity: Identity,
}

impl World {
    fn new() -> World {
        let sandbox = Sandbox::builder().nodes(1).heartbeats(false).start();
        let account = sandbox.account("ccm").unwrap();
        World { sandbox, token: account.token, identity: account.identity }
    }

    fn folder(&self) -> &Path {
        self.sandbox.folder()
    }

    /// Writes a file into the folder of the kubeconfigs. Returns its path.
    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.folder().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// A good kubeconfig with a token.
    fn config(&self) -> Value {
        let authority = STANDARD.encode(self.sandbox.authority().certificate_pem());
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "there", "cluster": {
                "server": self.sandbox.kubernetes_url(),
                "certificate-authority-data": authority,
            }}],
            "contexts": [{"name": "here", "context": {"cluster": "there", "user": "me"}}],
            "users": [{"name": "me", "user": {"token": self.token}}],
        })
    }

    /// A good kubeconfig with a certificate.
    fn certified(&self, identity: &Identity) -> Value {
        let mut config = self.config();
        config["users"][0]["user"] = json!({
            "client-certificate-data": STANDARD.encode(&identity.certificate_pem),
            "client-key-data": STANDARD.encode(&identity.key_pem),
        });
        config
    }

    fn env(&self, kubeconfig: &str) -> Env {
        with(env(&self.sandbox), &[("KUBECONFIG", kubeconfig)])
    }

    fn list(&self, kubeconfig: &str, flags: &[&str]) -> Ran {
        ccm(&self.env(kubeconfig), &[&["node", "list"], flags].concat())
    }

    fn secrets(&self) -> Secrets {
        Secrets::new(&[&self.token, &self.identity.key_pem])
    }
}

fn yaml(config: &Value) -> String {
    serde_yaml::to_string(config).unwrap()
}
