//! How the Kubernetes API is reached.

use super::TAKE_SETTINGS;
use crate::settings::setting::{Group, Kind, Setting, Variable};

pub(in crate::settings) static KUBECONFIG: Setting = Setting {
    name: "kubeconfig",
    flags: &["kubeconfig"],
    variables: &[Variable::Value("KUBECONFIG")],
    kind: Kind::Path,
    help: "How to reach the cluster; the variable may list several files, separated by colons. \
           If neither is set: the service account of the pod, else ~/.kube/config.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(in crate::settings) static CONTEXT: Setting = Setting {
    name: "context",
    flags: &["context"],
    kind: Kind::Text("NAME"),
    help: "Context of the kubeconfig. Unset: its current-context.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(in crate::settings) static MASTER: Setting = Setting {
    name: "master",
    flags: &["master"],
    kind: Kind::Url,
    help: "URL of the Kubernetes API server, instead of the one in the kubeconfig or, in a pod, the \
           cluster's own. The credentials of the kubeconfig, in a pod the token of the service \
           account, are sent to it: use only an address of the same cluster.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(in crate::settings) static SETTINGS_FROM: Setting = Setting {
    name: "settings-from",
    flags: &["settings-from"],
    kind: Kind::Text("NAMESPACE/deployment/NAME"),
    help: "Use the settings of the daemon that runs there (or NAMESPACE/daemonset/NAME): its \
           arguments and variables. Your own win. Values in Secrets and ConfigMaps are not read, \
           but reported. Tokens, API addresses and output settings are always your own.",
    commands: TAKE_SETTINGS,
    group: Group::Cluster,
    ..Setting::BLANK
};
