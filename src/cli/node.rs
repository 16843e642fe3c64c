//! `ccm node list | inspect | sync`: the commands that show and do the work of the node controller and of the node
//! lifecycle controller. `ccm node relabel` is in `relabel.rs`.

use super::lists::{List, Table};
use super::names::{self, KnownObject, Word};
use super::objects::{
    CommandContext, Item, PlannedObjects, Sides, error_of, field, finding, listed, or_none,
    section, sides, warnings, would_do,
};
use super::output::{CommandFailure, Exit, line, or_dash, paragraph, without};
use super::table::Columns;
use super::terminal::columns;
use super::{startup, wire};
use crate::cache::ServerNeeds;
use crate::controllers::kubelet_certificates::{
    CertificateApproval, KubeletCertificates, ObservedRequests, RequestPlan,
};
use crate::controllers::lifecycle::{
    LifecycleController, LifecyclePlan, OUT_OF_SERVICE, TaintRule, is_own,
};
use crate::controllers::node::{self, NodeController, NodePlan, ServerMatch, is_uninitialized};
use crate::controllers::{ForeignMatch, MatchedBy, NodeChange, Plan, Proposal, Report, Selection};
use crate::kube::{self, SigningRow, Taint};
use crate::provider::order;
use crate::provider::process::is_terminal;
use crate::provider::{
    Field, Finding, Instance, InstanceId, NodeAddress, Reason, SERVER_LABELS, Urgency,
};
use crate::settings::Command;
use crate::text::duration::shown_duration;
use jiff::Timestamp;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::time::Duration;

pub(super) fn list(words: Vec<OsString>) -> Result<Exit, Exit> {
    let nodes = NodeCommands::start(Command::NodeList, words)?;
    let context = &nodes.context;
    let selector = context.settings.selector.value.clone().unwrap_or_default();
    TABLE.show(context, || {
        let empty = "The cluster has no nodes.\n";
        let mut list = List::read(context, empty, |sides| nodes.read(sides))?;
        list.plans.retain(|plan| {
            let labels = &plan.node.node.metadata.labels;
            // The selector is applied only to nodes. When Kubernetes did not answer, the rows are about servers. These
            // have no labels of a node, so all of them are shown.
            !plan.has_node() || selector.matches(|key| labels.get(key))
        });
        Ok(list)
    })
}

pub(super) fn inspect(words: Vec<OsString>) -> Result<Exit, Exit> {
    let nodes = NodeCommands::start(Command::NodeInspect, words)?;
    let (plans, outage) = nodes.context.read(|sides| nodes.read(sides))?;
    let known = Sides::of(outage.as_ref());
    let text = |_| plans.iter().map(|plans| inspection(plans, known)).collect();
    let exit = nodes.context.print("Inspection", &plans, outage.as_ref(), text);
    Ok(exit.fail_if(outage.is_some()))
}

pub(super) fn sync(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut nodes = NodeCommands::start(Command::NodeSync, words)?;
    nodes.context.check_profile()?;
    let selection = nodes.context.or_exit(nodes.selection())?;
    nodes.context.show_leader();
    if nodes.context.settings.dry_run.value {
        let plans = nodes.context.or_exit(nodes.evaluate(&selection))?;
        return Ok(nodes.context.would_do(&plans));
    }
    let apis = &nodes.context.apis;
    Ok(nodes.context.do_now(|| {
        let (mut report, plans) = nodes.nodes.sync(apis, &selection);
        // The command ends here when an API did not answer, and there is no plan for any node. When only Robot or only
        // the Cloud API did not answer, the other of these two APIs knows the servers of some nodes. There are then
        // plans for these nodes, and the command goes on with the node lifecycle controller.
        if report.outage.is_some() && plans.is_empty() {
            return (report, Vec::new());
        }
        let (second, lifecycle) = nodes.lifecycle.sync(apis, &selection);
        report.merge(second);
        let mut plans = together(plans, lifecycle);
        if let Some(controller) = &mut nodes.certificates {
            let (third, certificates) = controller.sync(apis, &selection);
            report.merge(third);
            add_certificates(&mut plans, (ObservedRequests::default(), certificates));
        }
        (report, plans)
    }))
}

/// The data that all commands `ccm node …` work with: the settings and API clients in `context`, and the two
/// controllers of nodes.
pub(super) struct NodeCommands {
    pub(super) context: CommandContext,
    pub(super) nodes: NodeController,
    lifecycle: LifecycleController,
    /// The controller that approves the certificate requests of kubelets. `None` when this controller is not turned on
    /// in the settings.
    certificates: Option<KubeletCertificates>,
}

/// The plans of the node controller and of the node lifecycle controller for one node.
pub(super) struct NodePlans {
    node: NodePlan,
    /// The plan of the node lifecycle controller. `None` when that controller has nothing to check for this node, e.g.
    /// because the node is ready.
    lifecycle: Option<LifecyclePlan>,
    /// The newest certificate request of the node's kubelet. `None` when there is none, or when the requests were not
    /// read.
    newest: Option<SigningRow>,
    /// The plan for the certificate request in `newest`, when nobody has approved or denied this request yet. When ccm
    /// can't approve the requests of any node, e.g. because a right is missing, this plan says why.
    certificate: Option<RequestPlan>,
}

/// Sets the fields `newest` and `certificate` of each node's plans: the newest certificate request of the node, and the
/// plan for this request.
fn add_certificates(
    plans: &mut [NodePlans],
    (observed, certificates): (ObservedRequests, Vec<RequestPlan>),
) {
    let of_nodes = certificates.into_iter().map(|plan| (plan.node.name.clone(), plan));
    let mut of_nodes: HashMap<String, RequestPlan> = of_nodes.collect();
    let of_all = of_nodes.remove("");
    for plan in plans {
        let name = plan.node.object.name.as_str();
        plan.newest = observed.newest_of(name).cloned();
        plan.certificate = of_nodes.remove(name).or_else(|| of_all.clone());
    }
}

impl NodeCommands {
    pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<NodeCommands, Exit> {
        let context = CommandContext::new(startup::start(command, words)?)?;
        Ok(NodeCommands {
            nodes: NodeController::new(wire::node_settings(&context.settings)),
            lifecycle: LifecycleController::new(wire::lifecycle_settings(&context.settings)),
            certificates: wire::certificates(&context.settings),
            context,
        })
    }

    /// Returns the nodes that the user named, or all nodes when the user named none. Returns an error when a word does
    /// not name a node.
    pub(super) fn selection(&self) -> Result<Selection, CommandFailure> {
        if self.context.names.is_empty() {
            return Ok(Selection::All);
        }
        // This call puts the list of nodes into the cache. The names that the user typed are looked up in this list,
        // and the plans are made later from the same list.
        let nodes = self.nodes.nodes(&self.context.apis, &Selection::All)?;
        let known = nodes.value.iter().map(|node| KnownObject::new(node.name()));
        let in_cloud = || {
            let plans = self.evaluate(&Selection::All)?;
            Ok(plans.iter().map(called_in_cloud).collect())
        };
        self.resolve(known.collect(), in_cloud, Sides::Both).map(Selection::Names)
    }

    fn resolve(
        &self,
        known: Vec<KnownObject>,
        in_cloud: impl FnMut() -> Result<Vec<KnownObject>, CommandFailure>,
        sides: Sides,
    ) -> Result<BTreeSet<String>, CommandFailure> {
        let none = |word: &Word| format!("node {:?}{}", word.bare(), sides.only());
        let words = &self.context.names;
        names::resolve(&names::NODES, words, None, known, in_cloud, none)
    }

    fn evaluate(&self, selection: &Selection) -> Result<Vec<NodePlans>, CommandFailure> {
        let apis = &self.context.apis;
        let nodes = self.nodes.evaluate(apis, selection)?;
        let lifecycle = self.lifecycle.evaluate(apis, selection)?;
        let mut plans = together(nodes, lifecycle);
        if let Some(controller) = &self.certificates {
            add_certificates(&mut plans, controller.evaluate(apis, selection)?);
        }
        Ok(plans)
    }

    /// Returns the plans of the nodes that the user named, or of all nodes when the user named none. When only
    /// Kubernetes or only the cloud answers, the plans contain no changes.
    fn read(&self, sides: Sides) -> Result<Vec<NodePlans>, CommandFailure> {
        let apis = &self.context.apis;
        let mut plans = match sides {
            Sides::Both => return self.evaluate(&self.selection()?),
            Sides::Kubernetes => {
                let nodes = self.nodes.nodes(apis, &Selection::All)?.value;
                node::plan(&nodes, &[][..], &*apis.provider, Timestamp::MIN)
            }
            Sides::Cloud => {
                let needs = ServerNeeds::max_age(Duration::ZERO);
                let servers = apis.servers(None, &needs, Urgency::Asked)?;
                let servers = servers.servers();
                servers.iter().map(NodePlan::of_server).collect()
            }
        };
        for plan in &mut plans {
            plan.findings.clear();
            plan.obstacle = None;
        }
        let mut plans = together(plans, Vec::new());
        if !self.context.names.is_empty() {
            let known = plans.iter().map(called_in_cloud).collect();
            let named = self.resolve(known, || Ok(Vec::new()), sides)?;
            plans.retain(|plan| named.contains(&plan.node.object.name));
        }
        Ok(plans)
    }
}

/// Returns everything by which a user can name the node: its name and addresses, its provider ID, and the ID, name and
/// addresses of its server.
fn called_in_cloud(plans: &NodePlans) -> KnownObject {
    let plan = &plans.node;
    let mut others: Vec<String> =
        plan.node.status.addresses.iter().map(|address| address.address.to_string()).collect();
    if let ServerMatch::Matched(instance, _) = &plan.server {
        others.extend(instance.private.iter().map(|private| private.ip.to_string()));
        others.extend(instance.public_ipv4.map(|ip| ip.to_string()));
        others.extend(instance.public_ipv6.map(|range| range.to_string()));
        others.extend([instance.name.clone(), instance.id.number().to_string()]);
    }
    others.extend([plan.node.spec.provider_id.clone(), server(&plan.server).0]);
    KnownObject { name: plan.object.name.clone(), others }
}

pub(super) fn together(nodes: Vec<NodePlan>, lifecycle: Vec<LifecyclePlan>) -> Vec<NodePlans> {
    let lifecycle = lifecycle.into_iter().map(|plan| (plan.object.uid.clone(), plan));
    let mut by_uid: HashMap<String, LifecyclePlan> = lifecycle.collect();
    let with = |node: NodePlan| {
        let lifecycle = by_uid.remove(&node.object.uid);
        NodePlans { node, lifecycle, newest: None, certificate: None }
    };
    nodes.into_iter().map(with).collect()
}

impl NodePlans {
    /// Whether the plan is about a node of Kubernetes. When Kubernetes did not answer, the plan is about a server
    /// instead.
    fn has_node(&self) -> bool {
        self.node.object.kind == kube::NODE
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        let unproven = self.certificate.iter().flat_map(|plan| &plan.obstacle);
        self.node.findings.iter().chain(self.obstacles()).chain(unproven)
    }

    /// Returns the findings that prevent the node controller or the node lifecycle controller from changing the node. A
    /// finding is a fact or a problem that a plan reports.
    fn obstacles(&self) -> impl Iterator<Item = &Finding> {
        let lifecycle = self.lifecycle.iter().flat_map(|plan| &plan.obstacle);
        self.node.obstacle.iter().chain(lifecycle)
    }

    /// Returns the changes that the node lifecycle controller would make.
    fn lifecycle_changes(&self) -> impl Iterator<Item = &NodeChange> {
        self.lifecycle.iter().flat_map(|plan| &plan.changes)
    }

    fn proposal(&self) -> Proposal {
        let lifecycle = self.lifecycle.iter().map(LifecyclePlan::proposal);
        lifecycle.fold(self.node.proposal(), Proposal::and)
    }
}

impl PlannedObjects for Vec<NodePlans> {
    const KIND: &'static str = "Node";

    fn items<'a>(&'a self, report: Option<&'a Report>) -> Vec<impl Serialize> {
        let has_outage = report.is_some_and(|report| report.outage.is_some());
        let is_partial = has_outage && Sides::of(report) == Sides::Both;
        let item = |plans: &'a NodePlans| {
            let changes = plans.node.changes.iter();
            let certificate = plans.certificate.iter().flat_map(|plan| &plan.changes);
            Item {
                object: plans.has_node().then_some(NodeJson(&plans.node)),
                cloud: match &plans.node.server {
                    ServerMatch::Matched(instance, by) => {
                        Some(MatchedServer(instance, plans.has_node().then_some(by)))
                    }
                    _ => None,
                },
                differences: plans.node.differences().collect(),
                changes: changes
                    .chain(plans.lifecycle_changes())
                    .map(ShownChange::Node)
                    .chain(certificate.map(ShownChange::Certificate))
                    .collect(),
                held_back: None,
                findings: plans.findings().collect(),
                events: None,
                error: error_of(report, &format!("node/{}", plans.node.object.name))
                    .filter(|_| !is_partial || plans.node.server == ServerMatch::Unclear),
            }
        };
        self.iter().map(item).collect()
    }

    fn proposals(&self) -> Vec<Proposal> {
        let certificates = self.iter().flat_map(|plans| &plans.certificate);
        let mut certificates: Vec<Proposal> = certificates.map(Plan::proposal).collect();
        certificates.dedup();
        self.iter().map(NodePlans::proposal).chain(certificates).collect()
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.iter().map(|plans| &plans.node);
        notes.flat_map(|node| warnings(node.object.for_people(), &node.findings)).collect()
    }

    fn is_unclear(&self) -> bool {
        self.iter().any(|plans| plans.node.server == ServerMatch::Unclear)
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ShownChange<'a> {
    Node(&'a NodeChange),
    Certificate(&'a CertificateApproval),
}

struct NodeJson<'a>(&'a NodePlan);

impl Serialize for NodeJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let NodeJson(plan) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "Node")?;
        map.serialize_entry("name", &plan.object.name)?;
        map.serialize_entry("uid", &plan.object.uid)?;
        map.serialize_entry("providerID", &plan.node.spec.provider_id)?;
        map.serialize_entry("ready", &plan.node.is_ready())?;
        map.serialize_entry("uninitialized", &is_uninitialized(&plan.node))?;
        map.serialize_entry("addresses", &plan.node.status.addresses)?;
        map.serialize_entry("taints", &plan.node.spec.taints)?;
        map.end()
    }
}

/// A server, and the rule by which it was matched to its node.
struct MatchedServer<'a>(&'a Instance, Option<&'a MatchedBy>);

impl Serialize for MatchedServer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let MatchedServer(instance, matched_by) = self;
        let private = instance.private.iter().map(|private| private.ip);
        let mut map = serializer.serialize_map(None)?;
        let is_dedicated = instance.id.dedicated().is_some();
        let kind = if is_dedicated { "DedicatedServer" } else { "Server" };
        map.serialize_entry("kind", kind)?;
        map.serialize_entry("id", &instance.id.number())?;
        map.serialize_entry("name", &instance.name)?;
        map.serialize_entry("state", &instance.state.to_string())?;
        map.serialize_entry("type", &*instance.instance_type)?;
        map.serialize_entry("location", &*instance.location)?;
        map.serialize_entry("networkZone", &*instance.network_zone)?;
        if is_dedicated {
            map.serialize_entry("dataCenter", &*instance.data_center)?;
            map.serialize_entry("cancelled", &instance.is_cancelled)?;
            map.serialize_entry("paidUntil", &*instance.paid_until)?;
        } else {
            map.serialize_entry("rescue", &instance.is_in_rescue)?;
            map.serialize_entry("locked", &instance.is_locked)?;
        }
        map.serialize_entry("publicIpv4", &instance.public_ipv4)?;
        map.serialize_entry("publicIpv6", &instance.public_ipv6)?;
        map.serialize_entry("privateIps", &private.collect::<Vec<_>>())?;
        map.serialize_entry("matchedBy", &matched_by.map(MatchedBy::word))?;
        map.end()
    }
}

/// Returns the ID of the server and its state, e.g. `running`. The state can have further words, as
/// in `running,locked`.
fn server(server: &ServerMatch) -> (String, String) {
    let none = || "-".to_owned();
    match server {
        ServerMatch::Matched(instance, _) => {
            let more = [
                (instance.is_cancelled, ",cancelled"),
                (instance.is_in_rescue, ",rescue"),
                (instance.is_locked, ",locked"),
            ];
            let more = more.into_iter().filter(|(is_so, _)| *is_so);
            let more: String = more.map(|(_, word)| word).collect();
            (instance.id.to_string(), format!("{}{more}", instance.state))
        }
        ServerMatch::TargetOnly(found) => match &found.named[..] {
            [] => (none(), none()),
            [only] => (only.id.to_string(), only.state.to_string()),
            several => (format!("{} servers", several.len()), none()),
        },
        ServerMatch::Gone(id) => (id.to_string(), "missing".into()),
        ServerMatch::Foreign => (none(), "foreign".into()),
        ServerMatch::Unknown => (none(), "unknown".into()),
        ServerMatch::Unclear => ("?".into(), "?".into()),
        ServerMatch::Unmatched => (none(), none()),
    }
}

const TABLE: Table<Vec<NodePlans>, NodePlans> = Table {
    columns: Columns {
        headings: &["NAME", "STATUS", "SERVER", "STATE", "ADDRESSES", "DIFF"],
        wide: &["TYPE", "LOCATION", "MATCHED BY", "PROVIDER ID", "SERVER LABELS"],
        // When the table is too wide for the terminal, the column `ADDRESSES` is shortened first, then `DIFF`, and then
        // `NAME`. If the table is still too wide, `DIFF` is shortened further.
        yielding: &[(4, 15), (5, 20), (0, 18), (5, 10)],
    },
    rows: |plans| plans,
    cells,
    name: |plans| plans.node.object.for_people(),
};

/// When the terminal has at least this many columns, `ccm node list` shows two addresses of each node. On a narrower
/// terminal it shows one.
const ROOM_FOR_TWO: usize = 100;

/// The indexes of the columns that show `?` when the cloud does not answer. These are `STATE`, `DIFF`, `TYPE`,
/// `LOCATION` and `MATCHED BY`.
const OF_CLOUD: [usize; 5] = [3, 5, 6, 7, 8];

/// The indexes of the columns that show `?` when Kubernetes does not answer. The column `NAME` is not among them,
/// because it then shows the name of the server. This usually is the name of the node, too.
const OF_KUBERNETES: [usize; 5] = [1, 5, 8, 9, 10];

fn cells(plans: &NodePlans, is_wide: bool, known: Sides) -> Vec<String> {
    let plan = &plans.node;
    let addresses = match is_wide {
        true => usize::MAX,
        false if is_terminal(false) && columns() < ROOM_FOR_TWO => 1,
        false => 2,
    };
    let (id, state) = server(&plan.server);
    let mut cells = vec![
        plan.object.name.clone(),
        status(plan).to_owned(),
        id,
        state,
        addresses_cell(&plan.node.status.addresses, addresses),
        diff_cell(plans),
    ];
    cells.extend(match &plan.server {
        ServerMatch::Matched(instance, by) => {
            [instance.instance_type.to_string(), instance.location.to_string(), by.to_string()]
        }
        _ => ["-".into(), "-".into(), "-".into()],
    });
    cells.push(or_dash(&plan.node.spec.provider_id));
    let labels = plan.node.metadata.annotations.get(SERVER_LABELS);
    cells.push(or_dash(labels.unwrap_or_default()));
    let unknown: &[usize] = match known {
        Sides::Both => &[],
        Sides::Kubernetes => &OF_CLOUD,
        Sides::Cloud => &OF_KUBERNETES,
    };
    without(unknown, cells)
}

fn status(plan: &NodePlan) -> &'static str {
    if plan.server.foreign().is_some() {
        return "foreign";
    }
    match (is_uninitialized(&plan.node), plan.node.is_ready()) {
        (true, _) => "New",
        (false, true) => "Ready",
        (false, false) => "NotReady",
    }
}

/// Returns the text of the column `ADDRESSES`: the IP addresses, external addresses first. Host names are left out,
/// because nearly all of them repeat the node's name.
fn addresses_cell(addresses: &[NodeAddress], at_most: usize) -> String {
    let mut ips = Vec::from_iter(addresses.iter().filter(|address| address.ip().is_some()));
    order::sort_by_key(&mut ips, |address| address.kind.name() != "ExternalIP");
    let list: Vec<&str> = ips.iter().map(|address| address.address.as_str()).collect();
    match list.split_at_checked(at_most) {
        Some((shown, more)) if !more.is_empty() => format!("{}+{}", shown.join(","), more.len()),
        _ => or_dash(&list.join(",")),
    }
}

/// Returns the text of the column `DIFF`: what a sync would change on the node, or the reason why a sync can't do its
/// work on the node.
fn diff_cell(plans: &NodePlans) -> String {
    let plan = &plans.node;
    match plans.lifecycle_changes().next() {
        Some(NodeChange::DeleteNode { .. }) => return "delete".into(),
        Some(NodeChange::RemoveOutOfServiceTaint { .. }) => return "out-of-service taint".into(),
        Some(_) => return "shutdown taint".into(),
        None => {}
    }
    let foreign = plan.server.foreign();
    let obstacle = match foreign {
        Some(found) => found.obstacle.as_ref(),
        None => plans.obstacles().next(),
    };
    if let Some(finding) = obstacle {
        return format!("!{}", finding.reason.name());
    }
    if foreign.is_some() {
        return "target only".into();
    }
    if is_uninitialized(&plan.node) && !plan.changes.is_empty() {
        return "initialise".into();
    }
    let differs = |fields: &[Field]| fields.iter().any(|field| field.have != field.want);
    or_dash(match (differs(&plan.address_fields), differs(&plan.other_fields)) {
        (false, false) => "",
        (true, false) => "address",
        (false, true) => "label",
        (true, true) => "address,label",
    })
}

/// Returns the text of `ccm node inspect` for one node: the node beside its server, how the two were matched, the
/// values that ccm sets on the node and their sources, and what a sync would do. When the cloud does not answer, the
/// values and the changes of a sync are not known. The text then also has the node's conditions and labels.
fn inspection(plans: &NodePlans, known: Sides) -> String {
    let node = &plans.node.node;
    let taints = node.spec.taints.iter();
    let taints =
        taints.map(|taint| line(format_args!("  {}:{}{}", taint.key, taint.effect, set_by(taint))));
    let mut of_node = listed("TAINTS", taints);
    let rules = plans.node.server.foreign().into_iter().flat_map(target_rules);
    of_node += &listed(
        "RULES FOR A NODE OF ANOTHER PROVIDER AS A TARGET (= fulfilled, ~ not fulfilled, ? not checked)",
        rules.map(|(is_fulfilled, rule)| marked(is_fulfilled, &rule)),
    );
    let rules = plans.lifecycle.iter().flat_map(|plan| &plan.facts).map(rule);
    of_node += &listed(
        "RULES FOR TAINT OUT-OF-SERVICE (= fulfilled, ~ not fulfilled, ? only the daemon knows)",
        rules,
    );
    if known == Sides::Kubernetes {
        let conditions = node.status.conditions.iter().map(|condition| {
            line(format_args!("  {}: {} {}", condition.kind, condition.status, condition.reason))
        });
        let labels = node.metadata.labels.iter();
        let labels = labels.map(|(key, value)| line(format_args!("  {key}={value}")));
        of_node += &listed("CONDITIONS", conditions);
        of_node += &listed("LABELS", labels);
    }
    let fields = plans.node.fields().map(|value| field(value, false));
    let fields: String = fields.chain(zone_of_new_node(&plans.node)).collect();
    let certificate = plans.certificate.iter().map(Plan::description);
    let changes = [plans.proposal().changes].into_iter().chain(certificate).collect();
    let findings = cancelled(&plans.node.server).into_iter();
    let findings: String = findings.chain(plans.findings().map(finding)).collect();
    [
        both_sides(&plans.node, known),
        of_node,
        section(
            "\nVALUES (= as wanted, ~ differs)",
            &fields,
            match plans.obstacles().next() {
                Some(_) => "unknown: the node's desired state can't be computed, see FINDINGS",
                None => known.or_unknown("none: ccm sets nothing on this node"),
            },
        ),
        certificate_section(plans),
        section("\nFINDINGS", &findings, known.or_unknown("none")),
        would_do(&changes, known.or_unknown("change nothing")),
    ]
    .concat()
}

/// Returns the line of `ccm node inspect` that says which zone label the node would get if it were new. `None` when the
/// node is not initialised yet, because its planned changes then contain this label, or when its server is not known.
fn zone_of_new_node(plan: &NodePlan) -> Option<String> {
    let [beta, _] = &plan.zone.as_ref()?.fields;
    let (want, source) = (beta.want.clone(), beta.source.clone());
    Some(field(&Field::new("zone label of a new node", want.clone(), want, source), true))
}

/// Returns the section about the newest certificate request of the node's kubelet. The section is empty when there is
/// no request, or when the settings do not name the controller that approves such requests.
fn certificate_section(plans: &NodePlans) -> String {
    let newest = plans.newest.iter().map(|row| {
        let (name, state, age) = (&row.name, row.state.word(), shown_duration(row.age_s()));
        line(format_args!("  {name}, created {age} ago, {state}"))
    });
    let plan = || plans.certificate.iter();
    let names = plan().flat_map(|plan| &plan.names).map(|(name, why)| match why {
        None => line(format_args!("  = {name}")),
        Some(why) => paragraph("  ~ ", 4, &format!("{name}: {why}")),
    });
    let waits = plan().filter_map(|plan| plan.waits.as_ref());
    let waits =
        waits.map(|why| paragraph("  ? ", 4, &format!("ccm has not decided yet, because {why}")));
    let heading = "NEWEST CERTIFICATE REQUEST (= proven, ~ not proven)";
    listed(heading, newest.chain(names).chain(waits))
}

/// Returns the line of `ccm node inspect` about one of the rules that must be fulfilled before ccm gives a node the
/// taint `out-of-service`. A mark in the line says whether the rule is fulfilled.
fn rule(rule: &TaintRule) -> String {
    marked(rule.is_fulfilled, &rule.to_string())
}

/// Returns a line about a rule, with a mark that says whether the rule is fulfilled. `is_fulfilled` is `None` when this
/// is not known, e.g. because the rule was not checked. The mark is then `?`.
fn marked(is_fulfilled: Option<bool>, rule: &str) -> String {
    let mark = is_fulfilled.map_or('?', |is_so| if is_so { '=' } else { '~' });
    paragraph(&format!("  {mark} "), 4, rule)
}

/// Returns the rules that a node of another provider must fulfil to become a target of load balancers, and for
/// each rule whether it is fulfilled. This is `None` for a rule that was not checked, because an earlier rule is
/// not fulfilled.
fn target_rules(found: &ForeignMatch) -> [(Option<bool>, String); 4] {
    let reason = found.obstacle.as_ref().map(|finding| finding.reason);
    let count = found.named.len();
    let is_alone = reason != Some(Reason::ServerClaimedTwice);
    let has_address = found.address.is_some();
    let address = found.address.map_or(String::new(), |ip| format!(" (found: {ip})"));
    let if_one = |is_fulfilled: bool| (count == 1).then_some(is_fulfilled);
    let is_only = (has_address && is_alone).then_some(reason.is_none());
    [
        (
            Some(count == 1),
            format!("exactly one server must have the node's name (found: {count})"),
        ),
        (
            if_one(is_alone),
            "no other node may have a provider ID that names this server".to_owned(),
        ),
        (if_one(has_address), format!("the node must report an address of this server{address}")),
        (is_only, "the node must not report an address of another server".to_owned()),
    ]
}

/// Returns the end of the line with which `ccm node inspect` shows a taint. For a taint `out-of-service`, this text
/// says whether ccm has set the taint and who must remove it. For any other taint the text is empty.
fn set_by(taint: &Taint) -> &'static str {
    match taint.key == OUT_OF_SERVICE {
        true if is_own(taint) => " (set by ccm, which removes it when the server is on again)",
        true => " (not set by ccm, so ccm never removes it; remove it yourself)",
        false => "",
    }
}

/// Returns the end of a sentence that says until which date the server is paid, or an empty text when this is not
/// known.
pub(super) fn paid_until(server: &Instance) -> String {
    match &*server.paid_until {
        "" => String::new(),
        date => format!(", and paid until {date}"),
    }
}

fn called(id: InstanceId) -> String {
    match id {
        InstanceId::Cloud(number) => format!("server {number}"),
        InstanceId::Dedicated(number) => format!("dedicated server {number}"),
    }
}

/// Returns a line which warns that the contract of the node's dedicated server was cancelled, and says what happens to
/// the node at the end of the contract. `None` when the contract was not cancelled.
fn cancelled(server: &ServerMatch) -> Option<String> {
    let ServerMatch::Matched(server, _) = server else {
        return None;
    };
    let text = format!(
        "the contract of the node's dedicated server is cancelled{}. When the contract has ended, Robot does not list \
         the server any more, and ccm deletes the node. Before that, move the node's pods to other nodes, or revoke \
         the cancellation in Robot",
        paid_until(server)
    );
    server.is_cancelled.then(|| paragraph("  ! ", 4, &text))
}

fn both_sides(plan: &NodePlan, known: Sides) -> String {
    let node = &plan.node;
    let mut ready = if node.is_ready() { "Ready" } else { "NotReady" }.to_owned();
    if is_uninitialized(node) {
        ready += ", uninitialized";
    }
    let (mut name, mut place, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    let (mut identity, mut matched_by) = (Vec::new(), "-".to_owned());
    match &plan.server {
        ServerMatch::Matched(instance, by) => {
            let at = match instance.id.cloud() {
                Some(_) => &instance.location,
                None => &instance.data_center,
            };
            identity.push(called(instance.id));
            name.push(instance.name.clone());
            place.push(format!("{}, {at} ({})", instance.instance_type, instance.network_zone));
            matched_by = by.to_string();
            addresses.extend(instance.public_ipv4.map(|ip| format!("public {ip}")));
            addresses.extend(instance.public_ipv6.map(|net| format!("public {net}")));
            let private = instance.private.iter();
            addresses.extend(private.map(|p| format!("private {} (Network {})", p.ip, p.network)));
        }
        ServerMatch::TargetOnly(found) => {
            for server in &found.named {
                name.push(server.name.clone());
                identity.push(called(server.id));
            }
            if found.obstacle.is_none() {
                matched_by = "name and address (used only as load balancer target)".to_owned();
            }
        }
        ServerMatch::Gone(id) => identity.push(called(*id)),
        ServerMatch::Foreign
        | ServerMatch::Unknown
        | ServerMatch::Unmatched
        | ServerMatch::Unclear => {}
    }
    if known == Sides::Cloud {
        matched_by = "?".to_owned();
    }
    let reported = node.status.addresses.iter().map(ToString::to_string).collect();
    let rows = [
        ("name", vec![plan.object.name.clone()], or_none(name)),
        ("identity", vec![or_dash(&node.spec.provider_id)], or_none(identity)),
        ("state", vec![ready], vec![server(&plan.server).1]),
        ("type, place", Vec::new(), or_none(place)),
        ("addresses", or_none(reported), or_none(addresses)),
        ("matched by", Vec::new(), vec![matched_by]),
    ];
    sides(&rows, known)
}
