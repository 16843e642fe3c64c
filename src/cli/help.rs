//! `--help`: enough on its own, for each command.

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
    "doctor",
    "version",
];

pub(super) fn overview() -> String {
    "\
ccm – a cloud-controller-manager for Kubernetes on Hetzner Cloud, and the tool
to look inside.

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
  ccm doctor                   what is wrong, and how to mend it
  ccm help [COMMAND]           this text, or a command's flags and variables
  ccm version

Try it:
  export HCLOUD_TOKEN=… KUBECONFIG=~/.kube/config
  ccm node list                reads both APIs and writes nothing
  ccm node sync --dry-run      the plan, and nothing else

Settings come from flags, then environment variables, then defaults:
ccm help run lists them. Data goes to stdout, everything else to stderr.

Exit codes: 0 done, 1 something failed, 2 wrong usage,
            3 changes are pending (only with --detailed-exitcode)
"
    .to_owned()
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

list and inspect only read. sync does for the named Services (without a name:
for all) what one tick of the daemon would do, also beside a running daemon.
With -n NAMESPACE a Service's name alone will do.

ccm help lb list, ccm help lb inspect and ccm help lb sync show the flags and
variables of each.
"
    .to_owned()
}

pub(super) fn version() -> String {
    "\
ccm version – the version of this program.

Usage:
  ccm version
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
        Command::Doctor => DOCTOR,
    };
    format!("{head}\n{}", settings::help(command))
}

const RUN: &str = "\
ccm run – the daemon: a thread per controller, until SIGTERM or SIGINT.

Usage:
  ccm run [flags]
  ccm run --once [flags]       one pass over everything, then exit: for cron;
                               exit 1 when a node can't be brought in order
  ccm run --dry-run [flags]    one pass that only prints what it would do

The flags of hcloud-cloud-controller-manager are accepted; those without a
meaning here are logged once as ignored.

An API that does not answer is waited for; wrong settings, a token or role that
is refused, and a Network that does not exist end the daemon with exit code 1.
";

const NODE_LIST: &str = "\
ccm node list – every node with its server, and what differs. Only reads.

Usage:
  ccm node list [-o wide|json|yaml]

  STATUS     New: it still has the uninitialized taint; else Ready or NotReady
  SERVER     number of the server
  STATE      of the server: running, off, …; missing: deleted, or the token is
             another project's; foreign: another cloud's provider ID; unknown:
             a provider ID that is no server's number
  ADDRESSES  of the node, external first
  DIFF       - nothing; initialise: new node, the next sync makes it usable;
             address, label: these differ; shutdown taint: to be set or removed;
             delete: its server does not exist any more; !Reason: what stands in
             the way
";

const NODE_INSPECT: &str = "\
ccm node inspect – one node and its server: both sides, how they were matched,
every value with what asks for it, and what sync would do. Only reads.

Usage:
  ccm node inspect NAME [-o json|yaml]
";

const NODE_SYNC: &str = "\
ccm node sync – do for the named nodes, or for all, what one tick of the daemon
would do. A node whose server does not exist any more is deleted, with all the
precautions of the daemon. Safe beside a running daemon: each write names the
version of the node that it was planned on.

Usage:
  ccm node sync [NAME…]
  ccm node sync --dry-run [NAME…]                      the plan; writes nothing
  ccm node sync --dry-run --detailed-exitcode [NAME…]  exit 3 when there is one
";

const LB_LIST: &str = "\
ccm lb list – every Service that has or wants a load balancer from us, and what
differs. Only reads.

Usage:
  ccm lb list [-n NAMESPACE] [-o wide|json|yaml]

  LOAD BALANCER  its name; - none yet
  ADDRESS        the first of its addresses; -o wide shows all
  TARGETS        healthy on every port/all
  DIFF           - nothing; create: the next sync makes it; delete: it and then
                 the finalizer go; finalizer: only that goes; the names of
                 fields that differ; !Reason: something stands in the way, and
                 ccm lb inspect says what
";

const LB_INSPECT: &str = "\
ccm lb inspect – one Service and its load balancer: what is wrong, both sides,
what the health checks say of each port and target, every field with what asks
for it, and what sync would do. Only reads.

Usage:
  ccm lb inspect NAMESPACE/NAME [-o json|yaml]
  ccm lb inspect -n NAMESPACE NAME
";

const LB_SYNC: &str = "\
ccm lb sync – do for the named Services, or for all, what one tick of the daemon
would do. A load balancer is changed only when it is found by the Service's own
label, or belongs to nobody else; one is deleted only by that label. Safe beside
a running daemon.

Usage:
  ccm lb sync [NAMESPACE/NAME…]
  ccm lb sync --dry-run [NAMESPACE/NAME…]
                               the plan, in the order in which it would be done;
                               writes nothing
  ccm lb sync --dry-run --detailed-exitcode [NAMESPACE/NAME…]
                               exit 3 when there is one, 1 when something
                               stands in its way

At a terminal each change is shown on stderr as it is made.
";

const DOCTOR: &str = "\
ccm doctor – look at everything that the daemon needs: settings, token, the
project's API, private Network, cluster, role, Lease, other cloud-controller-
managers, nodes, Services, load balancers. Only reads.

Usage:
  ccm doctor
  ccm doctor -o wide           also what was looked at where all is well
  ccm doctor -o json|yaml

Each check is ok, warn, FAIL, or skipped with the reason; what needs somebody
comes first, with how to mend it. Exit 1 when one fails, 0 otherwise.

Run it with the daemon's settings. Outside of the cluster the rights are those
of the kubeconfig's user; inside, as a Job with the daemon's account, they are
the daemon's own, which may not look at Deployments: other-ccm and probes are
skipped there.

Nothing is changed. Two questions have the form of a write: what we may do in
the cluster (selfsubjectaccessreviews), and whether the token may write (a
change of nothing, of a load balancer that can't exist).
";
