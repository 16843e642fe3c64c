//! The Lease, and how long it lasts.

use super::{DAEMON, DAEMON_AND_DOCTOR};
use crate::settings::setting::{Group, Kind, Setting};

pub(in crate::settings) static LEADER_ELECT: Setting = Setting {
    name: "leader-elect",
    flags: &["leader-elect"],
    default: Some("true"),
    help: "Of several daemons only the holder of the Lease works, the others wait. \
           hcloud-cloud-controller-manager uses the same Lease. false: no Lease is read or written.",
    commands: DAEMON_AND_DOCTOR,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(in crate::settings) static LEASE_DURATION: Setting = Setting {
    name: "leader-elect-lease-duration",
    flags: &["leader-elect-lease-duration"],
    kind: Kind::Duration,
    default: Some("15s"),
    help: "How long the others wait for a leader that does not renew its Lease. Must be longer than the \
           renew deadline, and longer than the retry period plus 8s (the longest write).",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(in crate::settings) static RENEW_DEADLINE: Setting = Setting {
    name: "leader-elect-renew-deadline",
    flags: &["leader-elect-renew-deadline"],
    kind: Kind::Duration,
    default: Some("10s"),
    help: "A leader that could not renew its Lease for this time exits with code 1. Must be longer \
           than 1.2 retry periods.",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(in crate::settings) static RETRY_PERIOD: Setting = Setting {
    name: "leader-elect-retry-period",
    flags: &["leader-elect-retry-period"],
    kind: Kind::Duration,
    default: Some("2s"),
    help: "How often the leader renews its Lease, and the others read it.",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(in crate::settings) static LEASE_NAME: Setting = Setting {
    name: "leader-elect-resource-name",
    flags: &["leader-elect-resource-name"],
    kind: Kind::Text("NAME"),
    default: Some("cloud-controller-manager"),
    help: "Name of the Lease.",
    commands: DAEMON_AND_DOCTOR,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(in crate::settings) static LEASE_NAMESPACE: Setting = Setting {
    name: "leader-elect-resource-namespace",
    flags: &["leader-elect-resource-namespace"],
    kind: Kind::Text("NAME"),
    default: Some("kube-system"),
    help: "Namespace of the Lease.",
    commands: DAEMON_AND_DOCTOR,
    group: Group::LeaderElection,
    ..Setting::BLANK
};
