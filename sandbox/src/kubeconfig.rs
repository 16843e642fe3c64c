//! Writes kubeconfigs: the YAML text with a cluster, its users and their contexts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A kubeconfig with one cluster, its users, and a context for each user.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    /// The name of the cluster.
    pub cluster: String,
    /// The URL of the API server, e.g. `https://127.0.0.1:6443`.
    pub server: String,
    pub authority: Material,
    pub contexts: Vec<Context>,
    /// The name of the current context.
    pub current: String,
}

/// A context of the kubeconfig and its user. The user has the same name as the context.
#[derive(Clone, Debug)]
pub struct Context {
    pub name: String,
    pub user: Login,
}

/// How a user authenticates.
#[derive(Clone, Debug)]
pub enum Login {
    Token(String),
    /// The path of a file that contains the user's bearer token.
    TokenFile(String),
    Certificate {
        certificate: Material,
        key: Material,
    },
    /// The user does not authenticate.
    Anonymous,
}

/// A certificate or key in PEM, either inside the kubeconfig or in a file of its own.
#[derive(Clone, Debug)]
pub enum Material {
    Inline(String),
    /// The path of a file that contains the certificate or the key. A relative path begins at the folder of the
    /// kubeconfig.
    File(String),
}

impl Kubeconfig {
    /// Returns the kubeconfig as YAML.
    pub fn text(&self) -> String {
        let contexts = self.contexts.iter().map(|context| {
            json!({"name": context.name, "context": {"cluster": self.cluster, "user": context.name}})
        });
        let users = self
            .contexts
            .iter()
            .map(|context| json!({"name": context.name, "user": context.user.entry()}));
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.cluster, "cluster": self.cluster_entry()}],
            "contexts": contexts.collect::<Vec<_>>(),
            "current-context": self.current,
            "preferences": {},
            "users": users.collect::<Vec<_>>(),
        });
        // The YAML printer never fails for this document. The document as JSON would be correct too, because JSON is
        // valid YAML.
        serde_yaml::to_string(&document).unwrap_or_else(|_| document.to_string())
    }

    fn cluster_entry(&self) -> Value {
        let mut entry = json!({"server": self.server});
        // Only a server with TLS has a certificate authority.
        if !self.server.starts_with("http://") {
            self.authority.insert(&mut entry, "certificate-authority");
        }
        entry
    }
}

impl Login {
    fn entry(&self) -> Value {
        match self {
            Login::Token(token) => json!({"token": token}),
            Login::TokenFile(path) => json!({"tokenFile": path}),
            Login::Certificate { certificate, key } => {
                let mut entry = json!({});
                certificate.insert(&mut entry, "client-certificate");
                key.insert(&mut entry, "client-key");
                entry
            }
            Login::Anonymous => json!({}),
        }
    }
}

impl Material {
    fn insert(&self, entry: &mut Value, field: &str) {
        match self {
            Material::Inline(pem) => entry[format!("{field}-data")] = STANDARD.encode(pem).into(),
            Material::File(path) => entry[field] = path.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_data_is_base64_and_files_are_paths() {
        let certificate = Login::Certificate {
            certificate: Material::Inline("cert".into()),
            key: Material::File("key.pem".into()),
        };
        let text = Kubeconfig {
            cluster: "c".into(),
            server: "https://127.0.0.1:1".into(),
            authority: Material::File("ca.crt".into()),
            contexts: vec![
                Context { name: "a".into(), user: certificate },
                Context { name: "b".into(), user: Login::Token("t".into()) },
            ],
            current: "b".into(),
        }
        .text();
        let read: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(read["clusters"][0]["cluster"]["certificate-authority"], "ca.crt");
        assert_eq!(
            read["users"][0]["user"],
            json!({"client-certificate-data": "Y2VydA==", "client-key": "key.pem"})
        );
        assert_eq!(read["users"][1]["user"], json!({"token": "t"}));
        assert_eq!(
            read["contexts"][1],
            json!({"name": "b", "context": {"cluster": "c", "user": "b"}})
        );
        assert_eq!(read["current-context"], "b");
    }
}
