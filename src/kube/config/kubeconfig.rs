//! A kubeconfig's context → how to reach its cluster as its user. Every field is either honoured or refused by name.

use super::entry::{Entry, Kind, shown};
use super::file::{self, Merged};
use super::{Access, ConfigError, Options, cluster, user};
use crate::http::{Tls, TlsSource};
use serde_yaml::Mapping;
use std::path::PathBuf;

const CONTEXT_FIELDS: &[&str] = &["cluster", "user", "namespace", "extensions"];

/// `paths` are those of the options, or what stands for them.
pub(super) fn load(paths: &[PathBuf], options: &Options) -> Result<Access, ConfigError> {
    let merged = file::read(paths)?;
    let context = context(&merged, paths, options.context.as_deref())?;
    context.check(CONTEXT_FIELDS, &[])?;
    let wanted_by = |field: &str| {
        let file = context.file.display();
        format!(
            "kubeconfig {file}: context {}: {field}",
            shown(&context.name)
        )
    };
    let Some(name) = context.text("cluster")? else {
        return Err(context.error(
            "cluster",
            format_args!(
                "not set; name the cluster to talk to ({})",
                merged.names(Kind::Cluster)
            ),
        ));
    };
    let cluster = merged.find(Kind::Cluster, name, &wanted_by("cluster"))?;
    let nobody = Entry {
        kind: Kind::User,
        name: String::new(),
        file: context.file.clone(),
        fields: Mapping::new(),
    };
    let user = match context.text("user")? {
        None => &nobody,
        Some(name) => merged.find(Kind::User, name, &wanted_by("user"))?,
    };
    cluster::check(cluster)?;
    user::check(user)?;
    let login = user::login(user, cluster, options.exec_time_limit)?;
    let tls = tls(cluster, user)?;
    let mut origin = format!(
        "kubeconfig {}, context {}",
        context.file.display(),
        context.name
    );
    if login.is_none() && tls.identity.is_none() {
        origin += ", which has no credentials";
    }
    let files = [
        cluster.pem_file("certificate-authority"),
        user.pem_file("client-certificate"),
        user.pem_file("client-key"),
    ];
    let server = cluster::server(cluster)?;
    let proxy = cluster::proxy(cluster)?;
    let unencrypted = super::unencrypted(&server, proxy.as_ref()).then(|| {
        let shown = super::hidden::url(&server);
        cluster.error("server", shown).to_string()
    });
    let (cluster, user) = (cluster.clone(), user.clone());
    let read = move || self::tls(&cluster, &user).map_err(|error| error.to_string());
    Ok(Access {
        server,
        tls: TlsSource::files(tls, files.into_iter().flatten().collect(), read),
        proxy,
        login,
        origin,
        unencrypted,
    })
}

fn tls(cluster: &Entry, user: &Entry) -> Result<Tls, ConfigError> {
    Ok(Tls {
        roots: cluster::roots(cluster)?,
        identity: user::identity(user)?,
        insecure: cluster::is_insecure(cluster)?,
        server_name: cluster::server_name(cluster)?,
        ..Tls::default()
    })
}

fn context<'a>(
    merged: &'a Merged,
    paths: &[PathBuf],
    asked: Option<&str>,
) -> Result<&'a Entry, ConfigError> {
    match (asked, &merged.current_context) {
        (Some(name), _) => merged.find(Kind::Context, name, "--context"),
        (None, Some((name, file))) => {
            let wanted_by = format!("kubeconfig {}: current-context", file.display());
            merged.find(Kind::Context, name, &wanted_by)
        }
        (None, None) => {
            let files: Vec<String> = paths
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Err(ConfigError(format!(
                "kubeconfig {}: current-context: not set; set it or give --context ({})",
                files.join(":"),
                merged.names(Kind::Context)
            )))
        }
    }
}
