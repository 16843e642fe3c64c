//! What a text names exists: annotations, settings, commands, reasons, metrics and files, in what the program says, in
//! help pages, READMEs and manifests, and in what scripts and the Makefile print.
//!
//! | file | its job |
//! |---|---|
//! | `tree` | the texts of the repository, and whether a name exists |
//! | `names` | which words of a text are names, and of what |

mod names;
mod tree;

use crate::common::help::has_table;
use ccm::provider::Reason;
use ccm::provider::variables::ALL;
use names::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use tree::{Text, Tree};

/// Words that have the form of a name of ours and are none.
#[rustfmt::skip] // What they are, then the words.
const OF_OTHERS: &[(&str, &[&str])] = &[
    ("a setting of ingress-nginx", &["use-proxy-protocol"]),
    ("a variable of hcloud-cloud-controller-manager", &["HCLOUD_SERVER_CACHE_MODE"]),
    ("variables of a fork of it", &["ROBOT_DEBUG", "ROBOT_USER_NAME"]),
    ("a variable of the tests", &["HCLOUD_OPENAPI_SPEC"]),
    ("the form of a label's value", &["VALUE_EFFECT"]),
    ("flags of k3s", &["--disable", "--kube-proxy-arg", "--kubelet-arg"]),
    ("flags of hcloud, added to its command by the code", &["--destination", "--gateway", "--ip-range", "--network", "--network-zone", "--type"]),
    ("flags of kubectl, helm and cargo, named alone", &["--previous", "--replicas", "--set", "--test"]),
    ("a flag of kube-controller-manager", &["--node-cidr-mask-size"]),
    ("a flag of the cluster autoscaler", &["--cordon-node-before-terminating"]),
    ("a flag of the kubelet", &["--node-ip"]),
    ("kinds of Kubernetes", &["ConfigMap", "ConfigMaps", "EndpointSlices", "PartialObjectMetadata", "PersistentVolumes", "ResourceQuota", "StatefulSet"]),
    ("kinds of kubeadm", &["InitConfiguration", "JoinConfiguration"]),
    ("values of Kubernetes", &["NodePort", "PreferDualStack"]),
    ("what headers of the Cloud API begin with", &["RateLimit"]),
    ("words of Linux", &["CAP_SYS_PTRACE", "VmRSS"]),
    ("units", &["KiB", "MiB", "TiB"]),
    ("other projects", &["CycloneDX", "RustSec", "WireGuard"]),
    ("files of users", &["api.yaml", "mine/kustomization.yaml", "service.yaml", "web.yaml"]),
];

static TREE: LazyLock<Tree> = LazyLock::new(Tree::read);

#[test]
fn every_name_in_a_text_exists() {
    // Each name with the first place that has it.
    let mut named: BTreeMap<Name, String> = BTreeMap::new();
    for text in &TREE.texts {
        for name in names::of(text) {
            let place = || format!("{}:{}", text.file, text.line);
            named.entry(name).or_insert_with(place);
        }
    }
    named.retain(|(kind, name), _| !TREE.has(*kind, name));
    let others = OF_OTHERS.iter().flat_map(|(_, words)| *words);
    let mut others: BTreeSet<&str> = others.copied().collect();
    named.retain(|(_, name), _| !others.remove(name.as_str()));
    let wrong = named.iter();
    let wrong = wrong.map(|((kind, name), place)| format!("{place}: no {kind:?} {name}"));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(others, BTreeSet::new(), "words that no text has any more");
}

/// Each case has something wrong in a text, as a file may contain it, beside the right form.
#[test]
fn a_wrong_name_is_found() {
    #[rustfmt::skip]
    let cases = [
        ("x.rs", "annotations health-check-http-path, health-check-http-status-codes", "health-check-http-status-codes"),
        ("x.md", "the annotations `selector` and `node-selector`", "selector"),
        ("x.md", "`uses-proxy-protocol: \"true\"` or `uses-proxyprotocol`", "uses-proxy-protocol"),
        ("x.rs", "remove its annotation shar; annotation share stays", "shar"),
        ("x.rs", "set annotation externl", "externl"),
        ("x.rs", "annotations http-status-codes, http-statuses and type", "http-statuses"),
        ("x.yaml", "# an annotation of the Service decides, annotation locaton wins", "locaton"),
        ("x.yaml", "load-balancer.hetzner.cloud/protocol.443: http, load-balancer.hetzner.cloud/proto: http", "proto"),
        ("x.md", "`instance.hetzner.cloud/internal-ip`, `instance.hetzner.cloud/internal-ipv4`", "instance.hetzner.cloud/internal-ipv4"),
        ("x.rs", "ccm-from-scratch/external, ccm-from-scratch/extern=default", "ccm-from-scratch/extern"),
        ("x.rs", "HCLOUD_NETWORK, HCLOUD_NETWROK", "HCLOUD_NETWROK"),
        ("x.md", "`HCLOUD_LOAD_BALANCERS_…`, `HCLOUD_BALANCERS_…`", "HCLOUD_BALANCERS_"),
        ("x.md", "`CCM_UPDATE_HELP=1`, `CCM_UPDATE_HELPS=1`", "CCM_UPDATE_HELPS"),
        ("x.rs", "set --cluster-cidr and --cluster-cidrs", "--cluster-cidrs"),
        ("x.md", "`ccm lb sync --delete-orphans`, `ccm lb list --delete-orphans`", "lb list --delete-orphans"),
        ("x.md", "`kubectl scale --replicas=1`, `kubectl ccm lb list --replicas`", "lb list --replicas"),
        ("x.rs", "ccm runs; ccm lb lists", "lb lists"),
        ("x.rs", "ccm doktor shows it, ccm deletes it", "doktor"),
        ("x.rs", "see ccm version and ccm versions", "versions"),
        ("x.md", "ccm stops; `ccm stop`", "stop"),
        ("x.txt", "see ccm help services and ccm help service", "service"),
        ("x.md", "`make test`, `make tests`", "tests"),
        ("x.sh", "[ -n \"$a\" ] || stop \"see ccm doktor, not ccm doctor\"", "doktor"),
        ("x.sh", "echo \"set HCLOUD_NETWROK \" \\\n  \"or HCLOUD_NETWORK\"", "HCLOUD_NETWROK"),
        ("x.sh", "unset HCLOUD_CONFIGS\n    ask \"run it again: make dev-dwon, and make dev-up\"", "dev-dwon"),
        ("Makefile", "test: ## what ccm lb lists", "lb lists"),
        ("x.md", "event `SyncLoadbalancerFailed` of a LoadBalancer", "SyncLoadbalancerFailed"),
        ("x.rs", "reason ServerNotThere, and not ServerNotFound", "ServerNotThere"),
        ("x.md", "`ccm_tick_duration_seconds_bucket`, `ccm_tick_seconds`", "ccm_tick_seconds"),
        ("x.md", "`src/lib.rs`, `lib.rs`, `src/libs.rs`", "src/libs.rs"),
        ("x.md", "`manifests/overlays/hcloud`, `overlays/cloud`", "overlays/cloud"),
        ("README.md", "[a](manifests/README.md#a-release), [b](manifests/READ.md)", "manifests/READ.md"),
        ("src/README.md", "[a](lib.rs), [b](../README.md#releases)", "README.md#releases"),
    ];
    for (file, text, wrong) in cases {
        let texts = match file {
            "x.sh" | "Makefile" => tree::printed(file, text),
            _ => vec![Text::new(file, 1, text, false)],
        };
        let mut names: BTreeSet<Name> = texts.iter().flat_map(names::of).collect();
        names.retain(|(kind, name)| !TREE.has(*kind, name));
        let names: BTreeSet<&str> = names.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, [wrong].into(), "{text}");
    }
}

/// The file whose texts are a table of constants, which the test above reads.
const TABLE_OF_CHECKS: &str = "src/cli/doctor/mod.rs";

/// A message prints the name of a variable from its constant, as in `{HCLOUD_NETWORK}`. A wrong name then
/// does not compile.
#[test]
fn code_names_a_setting_by_its_constant() {
    let is_code = |text: &&Text| {
        text.file.ends_with(".rs")
            && !text.file.starts_with("src/settings/")
            && text.file != TABLE_OF_CHECKS
    };
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || "_{}".contains(c));
    let mut written = Vec::new();
    for text in TREE.texts.iter().filter(is_code) {
        let words = text.text.split(is_end);
        let names = words.filter(|word| ALL.iter().any(|name| name.text() == *word));
        written.extend(names.map(|name| format!("{}:{}: {name}", text.file, text.line)));
    }
    assert_eq!(written, Vec::<String>::new());
}

/// People who see a reason in an event or a metric find it on this page. `CCM_UPDATE_HELP=1 cargo test --test plan`
/// writes the tables.
#[test]
fn the_help_page_has_every_reason_with_its_meaning() {
    let tables = Reason::BY_SUBJECT.iter().map(|(subject, reasons)| {
        let rows = reasons.iter();
        let rows = rows.map(|reason| format!("| `{}` | {} |\n", reason.name(), reason.meaning()));
        let rows: String = rows.collect();
        format!("### {subject}\n\n| reason | meaning and fix |\n|---|---|\n{rows}")
    });
    has_table("troubleshooting", "reasons", &tables.collect::<Vec<_>>().join("\n"));
}

/// A reader who learns that an address without TLS is refused also learns the exceptions.
#[test]
fn a_sentence_about_plain_http_names_its_exceptions() {
    let is_about_it = |text: &&Text| text.text.contains("`http://` endpoints");
    for text in TREE.texts.iter().filter(is_about_it) {
        for exception in ["loopback", "rofile `hcloud` only warns"] {
            assert!(text.text.contains(exception), "{}:{}", text.file, text.line);
        }
    }
}
