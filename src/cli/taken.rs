//! `--settings-from`: reads what the daemon of the cluster is started with, and says what could not be read.

use super::output::Printer;
use super::wire;
use crate::cache::{Apis, Error, ReadFrom};
use crate::kube::{self, Node, container};
use crate::provider::ProviderId;
use crate::settings::{self, Command, Settings, Source, Taken, WorkloadName};
use std::sync::Arc;
use std::time::Duration;

/// What was found there.
pub(super) struct Found {
    /// To be used for the rest of the command.
    pub(super) kube: kube::Client,
    pub(super) taken: Taken,
    pub(super) left_out: LeftOut,
}

/// What the daemon is told, and we can't know.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    /// Variables, and flags with their dashes.
    pub(super) names: Vec<String>,
    /// Any variable may be among what it takes whole from other objects.
    pub(super) any: bool,
}

/// The error is what to print: each a line.
pub(super) fn take(
    command: Command,
    settings: &Settings,
    name: &WorkloadName,
) -> Result<Found, Vec<String>> {
    let one = |why: String| vec![format!("--settings-from: {why}")];
    let kube = wire::kube_client(settings).map_err(|why| vec![why])?;
    let plural = format!("{}s", name.kind);
    let workload = kube
        .workload(&plural, &name.namespace, &name.name)
        .map_err(|error| one(format!("{error} ({})", kube.origin())))?;
    let Some(workload) = workload else {
        return Err(one(format!("there is no {name} ({})", kube.origin())));
    };
    let container = container(&workload).map_err(|why| one(format!("{name}: {why}")))?;
    let count = settings::names_that_count(command);
    let names: Vec<String> = container
        .elsewhere
        .iter()
        .filter(|(what, _)| count.contains(what))
        .map(|(what, place)| {
            if !is_set_here(what) {
                Printer::notice(format_args!(
                    "{what} of {name} stands in {place}, which is not read: set it here"
                ));
            }
            what.clone()
        })
        .collect();
    if container.imports {
        Printer::notice(format_args!(
            "{name} takes variables whole from other objects, which are not read: set them here"
        ));
    }
    let taken = Taken::new(name, container.words, container.variables).map_err(|problems| {
        let lines = problems.iter().map(ToString::to_string);
        lines.collect::<Vec<_>>()
    })?;
    Ok(Found {
        kube,
        taken,
        left_out: LeftOut {
            names,
            any: container.imports,
        },
    })
}

/// Settings whose default may not be the daemon's: nobody set them here, and nobody says what it
/// was told. In a pod the environment is taken for the daemon's own.
pub(super) fn unknown(
    command: Command,
    settings: &Settings,
    left_out: Option<&LeftOut>,
) -> Vec<String> {
    let is_named = !settings.kubeconfig.value.is_empty();
    let in_pod = !is_named && is_set_here("KUBERNETES_SERVICE_HOST");
    let mut names = match settings.yes.value {
        true => Vec::new(),
        false => not_known(command, left_out, in_pod),
    };
    // The others have no default: their value says whether somebody set them.
    let set = [
        (&settings.cluster_name.source, "--cluster-name"),
        (&settings.cloud_provider.source, CLOUD_PROVIDER),
        (&settings.network.source, "HCLOUD_NETWORK"),
        (
            &settings.address_family.source,
            "HCLOUD_INSTANCES_ADDRESS_FAMILY",
        ),
    ];
    for (source, flag) in set {
        if *source != Source::Default {
            names.retain(|name| name != flag);
        }
    }
    names
}

/// With the other profile's eyes no node is ours: every target would go, and a new node would get
/// a provider ID that it keeps for good. The error: what to say, when only a default says so.
pub(super) fn check_profile(apis: &Apis, unknown: &[String]) -> Result<Option<String>, Error> {
    if !unknown.iter().any(|name| name == CLOUD_PROVIDER) {
        return Ok(None);
    }
    let nodes = apis.nodes(Duration::MAX, ReadFrom::Latest)?.value;
    let has_id = |node: &&Arc<Node>| !node.spec.provider_id.is_empty();
    let is_foreign = |node: &Arc<Node>| {
        let id = apis.provider.parse_provider_id(&node.spec.provider_id);
        id == ProviderId::Foreign
    };
    let mut with_id = nodes.iter().filter(has_id).peekable();
    let is_other = with_id.peek().is_some() && with_id.all(is_foreign);
    Ok(is_other.then(|| {
        format!(
            "no node has a provider ID of profile {}, and --cloud-provider is not set here: name the cluster's profile, \
             or take the daemon's settings with --settings-from",
            apis.provider.name()
        )
    }))
}

fn not_known(command: Command, left_out: Option<&LeftOut>, in_pod: bool) -> Vec<String> {
    let all = settings::names_that_count(command);
    match left_out {
        None if in_pod => Vec::new(),
        None => all,
        // What it takes from elsewhere are variables.
        Some(left_out) => {
            let is_any = |name: &String| left_out.any && !name.starts_with('-');
            let is_one = |name: &String| left_out.names.contains(name);
            all.into_iter()
                .filter(|name| is_any(name) || is_one(name))
                .collect()
        }
    }
}

/// The flag that decides which nodes are ours at all.
const CLOUD_PROVIDER: &str = "--cloud-provider";

fn is_set_here(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_may_have_been_told() {
        let left_out = |names: &[&str], any| LeftOut {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            any,
        };
        let proxy = "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL";
        // With --settings-from, in a pod → is the variable, is the flag unknown?
        for (left_out, in_pod, variable, flag) in [
            (None, false, true, true),
            (None, true, false, false),
            (Some(left_out(&[], false)), false, false, false),
            (Some(left_out(&[], false)), true, false, false),
            (Some(left_out(&[proxy], false)), true, true, false),
            (
                Some(left_out(&["--cluster-name"], false)),
                false,
                false,
                true,
            ),
            (Some(left_out(&[], true)), false, true, false),
        ] {
            let names = not_known(Command::LbSync, left_out.as_ref(), in_pod);
            let has = |name: &str| names.iter().any(|one| one == name);
            let has = (has(proxy), has("--cluster-name"));
            assert_eq!(has, (variable, flag), "{left_out:?}, in a pod: {in_pod}");
        }
    }
}
