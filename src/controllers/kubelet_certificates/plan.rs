//! Decides whether the cloud proves everything that a kubelet asks for in a certificate request.
//!
//! A wrong approval gives the kubelet a certificate for the name of another machine, with which it can pretend to be
//! that machine. Only the name of the node is taken from Kubernetes, because the API server binds it to the credential
//! of the kubelet. The addresses are those that the cloud states for the server of that name.

use crate::controllers::Plan;
use crate::controllers::matching::MatchIndex;
use crate::kube::{
    AltName, KUBELET_SERVING, KubeNode, NODE_USER, NODES_GROUP, ObjectReference, ServingRequest,
    SigningRequest, SigningRow,
};
use crate::provider::{Description, Finding, Reason, Write, WriteVerb};
use crate::text::shell_command;
use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Instant;

/// The greatest number of requests of one node that are approved in an hour. The API server deletes a request one hour
/// after its approval, so the approved requests that still exist are counted.
pub const APPROVALS_OF_NODE: usize = 10;

/// The plan for one certificate request.
pub type RequestPlan = Plan<CertificateApproval, RequestFacts>;

/// What a kubelet asks for in its certificate request. The error says why this program does not approve such a request,
/// e.g. because it does not come from the kubelet of the node.
pub type Asked = Result<ServingRequest, String>;

/// The write that approves the certificate request `request`. `server` is the cloud server that proves the request,
/// because it has the names and addresses for which the certificate is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename = "ApproveCertificate")]
pub struct CertificateApproval {
    pub request: String,
    pub server: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The node whose kubelet has created the request.
    pub node: ObjectReference,
    /// The names that the request asks for. The text says why the cloud does not prove the name, and is `None` for a
    /// proven name.
    pub names: Vec<(AltName, Option<&'static str>)>,
    /// Why this controller has not decided about the request yet, e.g. because its node is not initialised. `None` when
    /// it has decided.
    pub waits: Option<String>,
}

/// The newest pending request of a node.
#[derive(Clone)]
pub struct PendingRequest {
    pub row: SigningRow,
    pub asked: Asked,
    /// How many requests of the node are approved already.
    pub approved: usize,
    /// The moment at which this process first read a list of certificate requests that contains this request.
    pub first_seen: Instant,
}

impl Write for CertificateApproval {
    fn word(&self) -> &'static str {
        "approve_certificate"
    }

    fn description(&self) -> Description {
        let why = format!(" (server {} has all names in the request)", self.server);
        Description::new(WriteVerb::ADD, "approval", why)
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

/// Returns what a kubelet asks for in this certificate request. Returns an error that says what is wrong when the
/// request does not have the form that the kubelet of this node uses.
pub fn asked(request: &SigningRequest, node: &str) -> Asked {
    let (spec, user) = (request.spec(), format!("{NODE_USER}{node}"));
    let texts =
        |field: &str| spec[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let in_group = |group: &str| texts("groups").any(|name| name == group);
    let mut usages: Vec<&str> = texts("usages").collect();
    usages.sort_unstable();
    let is_usual = matches!(
        usages[..],
        ["digital signature", "server auth"]
            | ["digital signature", "key encipherment", "server auth"]
    );
    let content = request.content()?;
    let rules = [
        (spec["signerName"] == KUBELET_SERVING, "spec.signerName is another signer"),
        (spec["username"] == *user, "spec.username is not the kubelet of this node"),
        (
            in_group(NODES_GROUP) && in_group("system:authenticated"),
            "spec.groups lacks a group of kubelets",
        ),
        (is_usual, "spec.usages are not those of a serving certificate"),
        (content.common_name == user, "the common name differs from spec.username"),
    ];
    let broken = rules.into_iter().find(|(is_kept, _)| !is_kept);
    broken.map_or(Ok(content), |(_, why)| Err(why.to_owned()))
}

/// Makes the plan for the newest certificate request of a node's kubelet. A plan without a change approves nothing: the
/// request waits, or people must decide about it.
pub fn plan(candidate: &PendingRequest, index: &MatchIndex) -> RequestPlan {
    let PendingRequest { row, asked, approved, .. } = candidate;
    let name = row.node.as_deref().unwrap_or_default();
    let node = index.node(name);
    let mut plan = RequestPlan::new(row.object(), "", RequestFacts::default());
    plan.node = node.map(KubeNode::object).unwrap_or_default();
    let server = node.ok_or_else(|| (true, "the node does not exist".to_owned()));
    let server = server.and_then(|node| index.proven_server_of(node));
    let instances = index.provider.instances().zip(server.as_ref().ok());
    let proven = instances.map(|(all, server)| all.stated_addresses(server));
    let proven = proven.unwrap_or_default();
    let names = asked.iter().flat_map(|asked| &asked.names);
    plan.names = names.map(|it| (it.clone(), why_not(it, name, &proven))).collect();
    let unproven = plan.names.iter().find_map(|(name, why)| Some((name, (*why)?)));
    let why = match (asked, server, unproven) {
        (Err(why), ..) => {
            format!(
                "it does not have the form of a kubelet's request for a serving certificate: {why}"
            )
        }
        (_, Err((true, why)), _) => {
            plan.waits = Some(why);
            return plan;
        }
        (_, Err((false, why)), _) => why,
        (_, Ok(server), Some((name, why))) => {
            let (server, id) = (&server.name, server.id);
            format!("it asks for {name}, and {why}. The node's server is {server} ({id})")
        }
        _ if *approved >= APPROVALS_OF_NODE => format!(
            "{approved} requests of this node were approved within the last hour, by others or by ccm. If there are \
             {APPROVALS_OF_NODE} or more, ccm approves no further request"
        ),
        (_, Ok(server), None) => {
            let server = format!("{} ({})", server.name, server.id);
            plan.changes.push(CertificateApproval { request: row.name.clone(), server });
            return plan;
        }
    };
    let message = format!("certificate request {} stays pending, because {why}", row.name);
    let show = shell_command("kubectl describe csr", &[&row.name]);
    let approve = shell_command("kubectl certificate approve", &[&row.name]);
    let fix =
        format!("look at the request ({show}). If you trust it, approve it yourself: {approve}");
    let finding = Finding::warning(Reason::KubeletCertificateNotProven, message);
    plan.obstacle = Some(finding.with_fix(fix));
    plan
}

/// Returns the reason why the certificate request must not be approved because of this name (a DNS name or an IP
/// address). `None` when the cloud proves that the name belongs to the node. `proven` are the addresses and networks of
/// the node's server. The address of an IPv6 network itself (with only zeros after the prefix) is not accepted, because
/// it belongs to no machine.
fn why_not(name: &AltName, node: &str, proven: &[IpNet]) -> Option<&'static str> {
    match name {
        AltName::Dns(dns) if is_of_api_server(dns) => Some("this is a name of the API server"),
        AltName::Dns(dns) if dns.eq_ignore_ascii_case(node) => None,
        AltName::Dns(_) => Some("this is not the name of the node"),
        AltName::Ip(ip) => {
            let is_host = |net: &IpNet| net.max_prefix_len() == net.prefix_len();
            let has = |net: &IpNet| net.contains(ip) && (is_host(net) || net.network() != *ip);
            let is_proven = proven.iter().any(has);
            (!is_proven)
                .then_some("the cloud's API does not list this address for the node's server")
        }
    }
}

/// Whether clients use this name for the API server. No kubelet may get a certificate for such a name: with kubeadm,
/// the same authority signs the certificates of the API server and those of kubelets, so a kubelet could pretend to be
/// the API server.
fn is_of_api_server(dns: &str) -> bool {
    let dns = dns.to_ascii_lowercase();
    ["localhost", "kubernetes"].contains(&&*dns) || dns.starts_with("kubernetes.")
}
