//! `--help`: enough on its own, for each command.

use super::topics;
use crate::settings::{self, Command};

/// As typed after `ccm help`.
pub(super) const COMMANDS: &[&str] = &[
    "run",
    "node",
    "node list",
    "node inspect",
    "node sync",
    "lb",
    "lb list",
    "lb inspect",
    "lb sync",
    "route",
    "route list",
    "route sync",
    "config",
    "completions",
    "doctor",
    "version",
];

pub(super) fn overview() -> String {
    let topics = topics::list();
    format!(
        "\
ccm – a cloud-controller-manager for Kubernetes on Hetzner Cloud, and the tool
to inspect it.

Usage:
  ccm run [flags]              the daemon; also what ccm does when its first
                               word is a flag
  ccm run --once [flags]       one pass of every controller, then exit: for cron
  ccm node list                every node with its server, and what differs
  ccm node inspect NAME        one node: both sides, what differs, and why
  ccm node sync [NAME…]        do now what the daemon would do
  ccm lb list                  every Service with its load balancer, and what
                               differs
  ccm lb inspect NAMESPACE/NAME
                               one Service: both sides, health, and why
  ccm lb sync [NAMESPACE/NAME…]
                               do now what the daemon would do
  ccm route list               every route of the private Network, and what
                               sync would change
  ccm route sync               do now what the daemon would do
  ccm config [flags]           the settings that the daemon would use, and the
                               source of each
  ccm completions bash|zsh|fish
                               a script that completes commands and flags
  ccm doctor                   check everything; show what is wrong and the fix
  ccm help [COMMAND|TOPIC]     this text, the flags of a command, or a topic
  ccm version

Topics:
{topics}
Try it:
  export HCLOUD_TOKEN=… KUBECONFIG=~/.kube/config
  ccm doctor                   reads both APIs and changes nothing
  ccm node list
  ccm node sync --dry-run      the plan, and nothing else

Settings come from flags, then environment variables, then defaults:
ccm help run lists them. From a shell, --settings-from takes the daemon's.
Data is written to stdout, everything else to stderr.

Exit codes: 0 done, 1 something failed, 2 wrong usage,
            3 changes are pending (only with --detailed-exitcode)
"
    )
}

pub(super) fn node() -> String {
    "\
ccm node – nodes and their servers.

Usage:
  ccm node list [-o wide|json|yaml]
  ccm node inspect NAME [-o json|yaml]
  ccm node sync [NAME…] [--dry-run [--detailed-exitcode]] [-o json|yaml]

list and inspect only read. sync does for the named nodes (without a name: for
all) what one tick of the daemon would do, also beside a running daemon.

ccm help node list, ccm help node inspect and ccm help node sync show the flags
and variables of each.
"
    .to_owned()
}

pub(super) fn lb() -> String {
    "\
ccm lb – Services of type LoadBalancer and their load balancers.

Usage:
  ccm lb list [-n NAMESPACE] [-o wide|json|yaml]
  ccm lb inspect NAMESPACE/NAME [-o json|yaml]
  ccm lb sync [NAMESPACE/NAME…] [--dry-run [--detailed-exitcode]] [-o json|yaml]
  ccm lb sync --delete-orphans [--dry-run | --yes] [-o json|yaml]

list and inspect only read. sync does for the named Services (without a name:
for all) what one tick of the daemon would do, also beside a running daemon.
With -n NAMESPACE a Service's name alone will do.

ccm help lb list, ccm help lb inspect and ccm help lb sync show the flags and
variables of each.
"
    .to_owned()
}

pub(super) fn route() -> String {
    "\
ccm route – routes of the private Network to the pods of each node.

Usage:
  ccm route list [-o wide|json|yaml]
  ccm route sync [--dry-run [--detailed-exitcode]] [-o json|yaml]

Both need HCLOUD_NETWORK and --cluster-cidr. list only reads. sync does what one
tick of the daemon would do, also beside a running daemon. Routes outside
--cluster-cidr are never changed.

ccm help route list and ccm help route sync show the flags and variables of
each.
"
    .to_owned()
}

pub(super) fn version() -> String {
    "\
ccm version – the version of this program.

Usage:
  ccm version

Exit codes:
  0  printed; 2  wrong usage
"
    .to_owned()
}

pub(super) fn command(command: Command) -> String {
    let head = match command {
        Command::Run => RUN,
        Command::NodeList => NODE_LIST,
        Command::NodeInspect => NODE_INSPECT,
        Command::NodeSync => NODE_SYNC,
        Command::LbList => LB_LIST,
        Command::LbInspect => LB_INSPECT,
        Command::LbSync => LB_SYNC,
        Command::RouteList => ROUTE_LIST,
        Command::RouteSync => ROUTE_SYNC,
        Command::Config => CONFIG,
        Command::Doctor => DOCTOR,
    };
    let (head, tail) = head.split_once(FLAGS).unwrap_or((head, ""));
    format!("{head}{}\n{tail}", settings::help(command))
}

pub(super) fn completions() -> String {
    COMPLETIONS.to_owned()
}

/// Place of the table of settings.
const FLAGS: &str = "@flags\n";

const RUN: &str = "\
ccm run – the daemon: a thread per controller, until SIGTERM or SIGINT.

Usage:
  ccm run [flags]
  ccm run --once [flags]       one pass over everything, then exit: for cron;
                               exit 1 when an object can't be synced
  ccm run --dry-run [flags]    one pass that only prints what it would do

The flags of hcloud-cloud-controller-manager are accepted. Those without an
effect here are logged once as ignored.

When an API does not answer, the daemon waits for it. It exits with code 1 when
a setting is wrong, a token or role is refused, or the Network does not exist.

@flags
Examples:
  ccm run --cluster-name=prod --log-format=json
  ccm run --controllers=*,-service   everything but load balancers
  ccm run --once && echo synced      from cron, or as a CronJob
  ccm run --dry-run                  before the first start

Exit codes:
  0  ended by SIGTERM or SIGINT; with --once: everything is synced, or another
     process that is alive holds the Lease
  1  a setting, token or role is wrong, or the Lease was lost; with --once and
     --dry-run: an API did not answer, or something can't be synced
  2  wrong usage
";

const NODE_LIST: &str = "\
ccm node list – every node with its server, and what differs. Only reads.

Usage:
  ccm node list [-o wide|json|yaml]

  STATUS     New: it still has the uninitialized taint; else Ready or NotReady
  SERVER     number of the server
  STATE      of the server: running, off, …; missing: it does not exist, or the
             token belongs to another project; foreign: the provider ID of
             another cloud; unknown: a provider ID without a server's number
  ADDRESSES  of the node, external first
  DIFF       - nothing; initialise: new node, the next sync makes it usable;
             address, label: these differ; shutdown taint: to be set or removed;
             delete: its server does not exist any more; !Reason: blocked, see
             ccm help troubleshooting

@flags
Examples:
  ccm node list
  ccm node list -o json | jq '.items[] | select(.differences != [])'

Exit codes:
  0  shown; 1  an API did not answer or refused, or a setting is wrong;
  2  wrong usage
";

const NODE_INSPECT: &str = "\
ccm node inspect – one node and its server: both sides, how they were matched,
every value with its source, and what sync would do. Only reads.

Usage:
  ccm node inspect NAME [-o json|yaml]

@flags
Examples:
  ccm node inspect worker-1
  ccm node inspect worker-1 -o yaml

Exit codes:
  0  shown; 1  there is no such node, an API did not answer or refused, or a
     setting is wrong;
  2  wrong usage
";

const NODE_SYNC: &str = "\
ccm node sync – do for the named nodes, or for all, what one tick of the daemon
would do. A node whose server does not exist any more is deleted, with all the
precautions of the daemon. Safe beside a running daemon: each write names the
version of the node that it was planned on.

A shell does not have the daemon's settings. A node that would lose an address
only because HCLOUD_NETWORK or the address family is not set in the shell is
held back. --settings-from takes the daemon's settings, --yes syncs without
them.

Usage:
  ccm node sync [NAME…]
  ccm node sync --dry-run [NAME…]                      the plan; writes nothing
  ccm node sync --dry-run --detailed-exitcode [NAME…]  exit 3 when there is one

@flags
Examples:
  ccm node sync --dry-run
  ccm node sync worker-1 worker-2
  ccm node sync --dry-run --detailed-exitcode || echo something differs

Exit codes:
  0  everything is synced, or with --dry-run: was planned
  1  something can't be synced, an API did not answer, a name is unknown
  2  wrong usage
  3  --dry-run --detailed-exitcode: changes are pending
";

const LB_LIST: &str = "\
ccm lb list – every Service that has or needs a load balancer of ccm, and what
differs. Only reads.

Usage:
  ccm lb list [-n NAMESPACE] [-o wide|json|yaml]

  LOAD BALANCER  its name; - none yet
  ADDRESS        the first of its addresses; -o wide shows all
  TARGETS        healthy on every port/all
  DIFF           - nothing; create: the next sync makes it; delete: it and then
                 the finalizer are removed; finalizer: only that is removed; the
                 names of fields that differ; Reason: a warning, e.g.
                 MaxTargetsReached; !Reason: blocked, ccm lb inspect shows why;
                 orphan: the Service does not exist, and
                 ccm lb sync --delete-orphans deletes it, unless it stays;
                 in parentheses: held back by ccm lb sync, see ccm help lb sync

Without -n it also lists managed certificates whose Service does not exist any
more: below the table; in JSON and YAML as kept, beside items:
kept: [{kind, id, name, domains}], null when they could not be read. ccm never
deletes a certificate.

@flags
Examples:
  ccm lb list
  ccm lb list -n ingress -o wide
  ccm lb list -o json | jq -r '.items[] | select(.changes != []) | .object.name'
  ccm lb list -o json | jq -r '.kept[].name'

Exit codes:
  0  shown; 1  an API did not answer or refused, or a setting is wrong;
  2  wrong usage
";

const LB_INSPECT: &str = "\
ccm lb inspect – one Service and its load balancer: what is wrong, both sides,
the health of each port and target, every field with its source, and what sync
would do. Only reads.

Usage:
  ccm lb inspect NAMESPACE/NAME [-o json|yaml]
  ccm lb inspect -n NAMESPACE NAME

@flags
Examples:
  ccm lb inspect ingress/nginx
  ccm lb inspect -n ingress nginx -o yaml

Exit codes:
  0  shown; 1  there is no such Service, an API did not answer or refused, or a
     setting is wrong;
  2  wrong usage
";

const LB_SYNC: &str = "\
ccm lb sync – do for the named Services, or for all, what one tick of the daemon
would do. A load balancer is changed only when it has the label of the Service,
or is adopted by the rules in ccm help services. Safe beside a running daemon.

Usage:
  ccm lb sync [NAMESPACE/NAME…]
  ccm lb sync --dry-run [NAMESPACE/NAME…]
                               the plan, in the order in which it would be done;
                               writes nothing
  ccm lb sync --dry-run --detailed-exitcode [NAMESPACE/NAME…]
                               exit 3 when changes are pending, 1 when
                               something is blocked
  ccm lb sync --delete-orphans [--dry-run | --yes] [-n NAMESPACE]
                               list load balancers of this cluster whose
                               Service does not exist, ask, and delete them;
                               nothing else. Never one that is protected, or
                               has targets that are no nodes of this cluster

A shell does not have the daemon's settings. A change that follows only from the
default of a setting that is unset in the shell is held back: it is named, and
the exit code is 1. --settings-from takes the daemon's settings, --yes makes
these changes. See ccm help shell.

At a terminal each change is shown on stderr when it is made.

@flags
Examples:
  ccm lb sync --dry-run
  ccm lb sync ingress/nginx
  ccm lb sync -n ingress nginx --dry-run --detailed-exitcode

Exit codes:
  0  everything is synced, or with --dry-run: was planned
  1  something can't be synced, an API did not answer, a name is unknown
  2  wrong usage
  3  --dry-run --detailed-exitcode: changes are pending
";

const CONFIG: &str = "\
ccm config – the settings that ccm run would use with these flags and in this
environment, and the source of each. Calls no API. Secrets are not shown.

Usage:
  ccm config [-o wide|json|yaml] [flags of ccm run]

  SETTING  its name, as in ccm help settings
  VALUE    the value in use; - nothing; !wrong: ccm run would not start, and
           stderr shows why
  SOURCE   the flag, the variable (with the file that it names), or default

@flags
Examples:
  ccm config
  ccm config -o json | jq '.items[] | select(.source != \"default\")'
  ccm config --cloud-provider=hcloud --node-sync-interval=10s

Exit codes:
  0  shown; 1  shown, and something is wrong; 2  wrong usage
";

const COMPLETIONS: &str = "\
ccm completions – a script for your shell that completes commands, flags and
their values. It calls no API.

Usage:
  ccm completions bash|zsh|fish

Examples:
  source <(ccm completions bash)        now; in ~/.bashrc: always
  ccm completions zsh >~/.zfunc/_ccm    a folder of $fpath
  ccm completions fish >~/.config/fish/completions/ccm.fish

Exit codes:
  0  printed; 2  wrong usage
";

const ROUTE_LIST: &str = "\
ccm route list – every route of the private Network, and those that are missing.
Only reads.

Usage:
  ccm route list --cluster-cidr=CIDR,… [-o wide|json|yaml]

  DESTINATION  addresses of pods
  GATEWAY      where packets for them are sent: a server's IP in the Network
  NODE         the node of these pods, or of the server where the route ends
  STATE        ok
               missing        the pods of a node have no route
               wrong gateway  it leads to another server than its node's
               blackhole      no server has the IP of its gateway
               unwanted       it leads to a node that does not have these pods
               stale          it leads to a server without a node: left
                              unchanged, unless this process saw its node
                              deleted
               left alone     the pods belong to a node without a provider ID of
                              this profile, or without a pod CIDR
               not ours       outside --cluster-cidr: never changed
               behind the arrow: what sync would do, or ! when it is blocked

@flags
Examples:
  ccm route list --cluster-cidr=10.244.0.0/16
  ccm route list --settings-from kube-system/deployment/ccm-from-scratch

Exit codes:
  0  shown; 1  an API did not answer or refused, or a setting is wrong or
     missing; 2  wrong usage
";

const ROUTE_SYNC: &str = "\
ccm route sync – do for all routes what one tick of the daemon would do: delete
those without a server, replace those with a wrong gateway, add those that are
missing, and set the condition NetworkUnavailable of each node. Routes outside
--cluster-cidr are never changed. Nothing is deleted unless the server of a node
is in the Network. Safe beside a running daemon.

Usage:
  ccm route sync --cluster-cidr=CIDR,…
  ccm route sync --dry-run     the plan, in the order in which it would be done;
                               writes nothing
  ccm route sync --dry-run --detailed-exitcode
                               exit 3 when changes are pending, 1 when
                               something is blocked

At a terminal each change is shown on stderr when it is made.

@flags
Examples:
  ccm route sync --cluster-cidr=10.244.0.0/16 --dry-run
  ccm route sync --cluster-cidr=10.244.0.0/16,10.245.0.0/16

Exit codes:
  0  everything is synced, or with --dry-run: was planned
  1  a route can't be synced, an API did not answer
  2  wrong usage
  3  --dry-run --detailed-exitcode: changes are pending
";

const DOCTOR: &str = "\
ccm doctor – check everything that the daemon needs: settings, token, the
project's API, private Network, cluster, role, Lease, other cloud-controller-
managers, nodes, routes, Services, load balancers. Only reads.

Usage:
  ccm doctor
  ccm doctor -o wide           also what was checked when all is well
  ccm doctor -o json|yaml

Each check is ok, warn, fail (shown as FAIL), or skipped with the reason.
Problems come first, each with its fix. ccm help troubleshooting lists the
checks.

Run it with the daemon's settings: without its --cluster-cidr the wanted routes
are unknown, and routes are not checked. Outside of the cluster the rights are
those of the kubeconfig's user. Inside, as a Job with the daemon's account, they
are the daemon's own. That account can't list Deployments: other-ccm and probes
are skipped there.

Nothing is changed. Two requests have the form of a write: what this user may do
in the cluster (selfsubjectaccessreviews), and whether the token may write (an
empty change of a load balancer that can't exist).

@flags
Examples:
  ccm doctor
  ccm doctor -o json | jq -r '.items[] | select(.status == \"fail\") | .remedy'
  ccm doctor --kubeconfig=/root/admin.conf --cloud-provider=hcloud
  ccm doctor --settings-from=kube-system/deployment/ccm-from-scratch

Exit codes:
  0  nothing fails; 1  a check fails; 2  wrong usage
";
