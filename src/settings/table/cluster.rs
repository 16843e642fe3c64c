//! How the Kubernetes API is reached.

use super::TAKE_SETTINGS;
use crate::settings::setting::{Group, Kind, Setting, Variable};

pub(in crate::settings) static KUBECONFIG: Setting = Setting {
    name: "kubeconfig",
    flags: &["kubeconfig"],
    variables: &[Variable::Value("KUBECONFIG")],
    kind: Kind::Path,
    help: "How to reach the cluster; the variable may list several files, separated by colons. \
           Without either: the pod's service account, else ~/.kube/config.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(in crate::settings) static CONTEXT: Setting = Setting {
    name: "context",
    flags: &["context"],
    kind: Kind::Text("NAME"),
    help: "Context of the kubeconfig. Without it: its current-context.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(in crate::settings) static MASTER: Setting = Setting {
    name: "master",
    flags: &["master"],
    kind: Kind::Url,
    help: "URL of the Kubernetes API server, instead of the kubeconfig's or, in a pod, the \
           cluster's own. It is sent the credentials that go with those, in a pod the service \
           account's token: name only an address of the same cluster.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(in crate::settings) static SETTINGS_FROM: Setting = Setting {
    name: "settings-from",
    flags: &["settings-from"],
    kind: Kind::Text("NAMESPACE/deployment/NAME"),
    help: "Work with the settings of the daemon that runs there (or NAMESPACE/daemonset/NAME): its \
           arguments and variables, below your own. Values in Secrets and ConfigMaps are not read, \
           and are told; tokens, addresses of APIs and what is printed stay your own.",
    commands: TAKE_SETTINGS,
    group: Group::Cluster,
    ..Setting::BLANK
};
