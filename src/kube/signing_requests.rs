//! Reads and approves the CertificateSigningRequests by which kubelets ask for serving certificates. All requests are
//! read as a table. A single request is read completely before it is approved.

use super::client::{JSON, KubeClient, PASS, ReadFrom, SIGNING_TABLE, percent_encoded};
use super::error::KubeError;
use super::node_table::{RowForm, TablePage};
use super::serving_request::ServingRequest;
use super::types::{ListPage, ObjectReference, timestamp};
use crate::http::Method;
use crate::provider::clock;
use crate::text::shell_command;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::sync::Arc;

/// The signer of the serving certificates of kubelets. Requests for another signer are neither read nor approved.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// When more certificate requests than this number were read, no further page of the list is read. A limit is needed
/// because any kubelet can create any number of requests. The API server can also send the whole list as the first
/// page. Such a list can have more requests than this number, but at most 64 MB, which is about 70,000 requests.
pub const REQUESTS_AT_MOST: usize = 10_000;

/// The beginning of the user name of each kubelet. The name of its node follows.
pub const NODE_USER: &str = "system:node:";

pub const SIGNING_REQUEST: &str = "CertificateSigningRequest";

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A certificate request, as a row of the API server's table of requests shows it. Rows are ordered by the time at
/// which the requests were created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SigningRow {
    pub created: Timestamp,
    pub name: String,
    pub uid: String,
    /// The name of the node whose kubelet has created the request. `None` when no kubelet has created it.
    pub node: Option<String>,
    pub state: SigningState,
}

/// The state of a certificate request: whether it was approved or denied, and whether the certificate was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SigningState {
    Pending,
    /// The request is approved but has no certificate. The signer has not signed it yet, or could not sign it.
    Approved,
    /// The request is approved and has its certificate.
    Signed,
    Denied,
}

/// A whole CertificateSigningRequest, as JSON. It is kept whole, because the write that approves the request replaces
/// the whole object, including its metadata.
pub struct SigningRequest(Value);

/// A row of the table, as the API server sends it.
#[derive(Deserialize)]
struct SigningTableRow {
    /// The cells of a row, one for each column of the table. The API server defines the columns, and two of them are
    /// not needed.
    cells: (String, IgnoredAny, String, String, IgnoredAny, String),
    object: SigningObject,
}

#[derive(Deserialize)]
struct SigningObject {
    metadata: SigningMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SigningMeta {
    uid: String,
    #[serde(deserialize_with = "timestamp")]
    creation_timestamp: Option<Timestamp>,
}

impl RowForm for SigningTableRow {
    type Item = SigningRow;
    const COLUMNS: &'static [&'static str] =
        &["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"];
    const ROWS_AT_MOST: usize = REQUESTS_AT_MOST;

    fn read(self) -> Result<SigningRow, String> {
        let (name, _, signer, user, _, condition) = self.cells;
        let metadata = self.object.metadata;
        let state = match condition.split(',').collect::<Vec<_>>()[..] {
            _ if signer != KUBELET_SERVING => {
                return Err(format!(
                    "certificate request {name} in the answer is for another signer"
                ));
            }
            ["Pending"] => SigningState::Pending,
            ["Approved", "Issued"] => SigningState::Signed,
            ["Approved", ..] => SigningState::Approved,
            _ => SigningState::Denied,
        };
        let created = metadata.creation_timestamp.ok_or_else(|| {
            format!("certificate request {name} in the answer has no creation time")
        })?;
        let node = user.strip_prefix(NODE_USER).map(str::to_owned);
        Ok(SigningRow { created, name, uid: metadata.uid, node, state })
    }
}

impl SigningState {
    pub fn word(self) -> &'static str {
        ["pending", "approved", "approved and signed", "denied"][self as usize]
    }
}

impl SigningRow {
    pub fn object(&self) -> ObjectReference {
        ObjectReference::without_namespace(SIGNING_REQUEST, &self.name, &self.uid)
    }

    /// Returns the time since the creation of the request, in seconds.
    pub fn age_s(&self) -> u64 {
        let age = clock::timestamp().duration_since(self.created).as_secs();
        age.try_into().unwrap_or_default()
    }

    pub fn is_approved(&self) -> bool {
        matches!(self.state, SigningState::Approved | SigningState::Signed)
    }
}

impl SigningRequest {
    /// Creates a request from the JSON of a CertificateSigningRequest.
    pub fn new(document: Value) -> SigningRequest {
        SigningRequest(document)
    }

    /// Returns the `spec` of the request. The fields `username` and `groups` in it can be trusted, because the API
    /// server sets them.
    pub fn spec(&self) -> &Value {
        &self.0["spec"]
    }

    /// Returns what the request asks for. The error says how the request differs from those that kubelets create.
    pub fn content(&self) -> Result<ServingRequest, &'static str> {
        let pem = self.spec()["request"].as_str().and_then(|text| STANDARD.decode(text).ok());
        ServingRequest::read(&pem.unwrap_or_default())
    }

    /// Whether somebody has approved or denied the request, or whether it has a certificate.
    pub fn is_decided(&self) -> bool {
        let status = &self.0["status"];
        let conditions = status["conditions"].as_array();
        conditions.is_some_and(|all| !all.is_empty()) || !status["certificate"].is_null()
    }
}

impl KubeClient {
    /// Returns the requests for serving certificates of kubelets, from the API server's cache. The list is read page by
    /// page, and no further page is read when more than [`REQUESTS_AT_MOST`] requests were read. So a result with more
    /// requests than this number can be incomplete.
    pub fn signing_requests(&self) -> Result<Vec<SigningRow>, KubeError> {
        let signer = format!("spec.signerName={KUBELET_SERVING}");
        let query = format!("&includeObject=Metadata&fieldSelector={}", percent_encoded(&signer));
        self.list::<TablePage<SigningTableRow>>(PATH, &query, SIGNING_TABLE, ReadFrom::Cache)
    }

    /// Returns the whole request of this row as it is now, or `None` when it does not exist. The call is a list request
    /// that selects the name, because this program may have the right to `list` requests but not to `get` them.
    pub fn signing_request(&self, row: &SigningRow) -> Result<Option<SigningRequest>, KubeError> {
        let name = format!("metadata.name={}", row.name);
        let query = format!("&fieldSelector={}", percent_encoded(&name));
        let kind = "CertificateSigningRequestList";
        let found = self.list::<ListPage<Value>>(PATH, &query, kind, ReadFrom::Latest)?;
        // An item without a resource version is not accepted. The approval sends the version, so that the API server
        // refuses it when the request has changed. Without the version, a request that was changed after the check
        // could be approved.
        let is_it = |item: &Arc<Value>| {
            let metadata = &item["metadata"];
            metadata["uid"] == *row.uid && metadata["resourceVersion"].as_str() > Some("")
        };
        Ok(found
            .into_iter()
            .find(is_it)
            .map(|item| SigningRequest::new(Arc::unwrap_or_clone(item))))
    }

    /// Approves a request that was read before. The API server refuses this when the request has changed since then.
    pub fn approve(&self, request: SigningRequest, message: &str) -> Result<(), KubeError> {
        let SigningRequest(mut body) = request;
        let now = Timestamp::from_second(clock::timestamp().as_second()).unwrap_or_default();
        body["apiVersion"] = json!("certificates.k8s.io/v1");
        body["kind"] = json!(SIGNING_REQUEST);
        body["status"] = json!({ "conditions": [{
            "type": "Approved",
            "status": "True",
            "reason": "AddressesProven",
            "message": message,
            "lastUpdateTime": now.to_string(),
        }] });
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{PATH}/{}/approval", percent_encoded(name));
        self.write::<IgnoredAny>(PASS, Method::Put, &path, JSON, &body).map(drop)
    }
}

/// Returns the text of an error of a call that reads or approves certificate requests. When this program is not allowed
/// to list or approve them, the text says how to allow it.
pub fn signing_error(error: &KubeError) -> String {
    if !error.is_forbidden() {
        return error.to_string();
    }
    let apply = shell_command("kubectl apply -k", &[&"manifests/components/kubelet-certificates"]);
    format!(
        "{error}: run {apply}, or set kubeletCertificates.enabled: true in the values of the chart"
    )
}
