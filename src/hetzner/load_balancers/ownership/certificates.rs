//! Reads and writes the labels that say who owns a certificate.

use super::labels::{CLUSTER_UID, Ownership, SECRET, SERVICE, SERVICE_UID, STAGING, namespace_of};
use super::names::{label_value, service_value};
use crate::hetzner::api::Api;
use crate::hetzner::certificates::Certificate;
use crate::provider::{Cluster, ProviderError, SecretName, Service, Urgency};
use std::collections::BTreeMap;

/// Functions that read from a certificate's labels to which Service and cluster the certificate belongs.
impl Certificate {
    /// The key of the label with the UID of the Service that owns the certificate.
    pub(crate) const UID_LABEL: &'static str = SERVICE_UID;

    pub(crate) fn service_uid(&self) -> Option<&String> {
        self.labels.get(SERVICE_UID)
    }

    pub(crate) fn cluster_uid(&self) -> Option<&String> {
        self.labels.get(CLUSTER_UID)
    }

    /// Returns the Secret from which the certificate was uploaded, as `namespace.name`, according to a label. `None`
    /// for certificates that were not uploaded from a Secret.
    pub(crate) fn secret(&self) -> Option<&String> {
        self.labels.get(SECRET)
    }

    /// Whether the certificate was ordered from the staging environment of Let's Encrypt, whose certificates browsers
    /// do not trust.
    pub(crate) fn is_staging(&self) -> bool {
        self.labels.get(STAGING.0).is_some_and(|value| value == STAGING.1)
    }

    /// Whether the certificate was ordered in this cluster for a Service with the same name and namespace as this
    /// Service.
    pub(crate) fn was_made_for(&self, service: &Service, cluster: &Cluster) -> bool {
        self.is_of_cluster(cluster) && self.labels.get(SERVICE) == Some(&service_value(service))
    }

    /// Whether a label says that the certificate belongs to this cluster. The result is `false` while the UID of this
    /// cluster is not known.
    pub(crate) fn is_of_cluster(&self, cluster: &Cluster) -> bool {
        self.cluster_uid().is_some_and(|uid| cluster.is_known_by(uid))
    }

    fn other_cluster(&self, cluster: &Cluster) -> Option<&String> {
        self.cluster_uid().filter(|uid| !cluster.is_known_by(uid))
    }

    /// Whether the certificate's label names this Secret. A label's value has at most 63 characters, so a long name is
    /// stored there in a shortened form. `secret` is shortened in the same way before the comparison.
    pub(crate) fn is_of_secret(&self, secret: &SecretName) -> bool {
        self.secret() == Some(&secret_value(secret))
    }

    /// Whether the certificate belongs to this cluster, and the Service in its label was deleted.
    pub(crate) fn is_left(&self, cluster: &Cluster) -> bool {
        let is_gone = |uid: &String| !cluster.service_uids.contains(uid);
        self.is_of_cluster(cluster) && self.service_uid().is_some_and(is_gone)
    }

    /// Whether the labels of the certificate allow the Service to use it. `None` means that the labels decide nothing
    /// about this.
    ///
    /// | the certificate has | then |
    /// |---|---|
    /// | the label `cluster-uid` of another cluster | no Service of this cluster is allowed to use it |
    /// | the label `secret` | only Services of the namespace in this label are allowed to use it |
    /// | the label `service-uid` with the UID of the Service, or the label `cluster-uid` of this cluster and a label `service` with the namespace of the Service | the Service is allowed to use it |
    /// | none of these | the labels decide nothing |
    pub(crate) fn gives(&self, service: &Service, cluster: &Cluster) -> Option<bool> {
        let is_of_namespace =
            |value: &String| namespace_of(value) == Some(service.namespace.as_str());
        if self.other_cluster(cluster).is_some() {
            return Some(false);
        }
        if let Some(secret) = self.secret() {
            return Some(is_of_namespace(secret));
        }
        let made_for = self.labels.get(SERVICE).filter(|_| self.is_of_cluster(cluster));
        let is_own = self.service_uid() == Some(&service.uid);
        (is_own || made_for.is_some_and(is_of_namespace)).then_some(true)
    }

    /// Returns why a Service can't take over the certificate: a label names another cluster, or another Service that
    /// exists. `None` when there is no such label.
    pub(crate) fn why_it_is_of_others(&self, cluster: &Cluster) -> Option<String> {
        if let Some(uid) = self.other_cluster(cluster) {
            return Some(format!("its label {CLUSTER_UID} names another cluster ({uid})"));
        }
        let uid = self.service_uid().filter(|uid| cluster.service_uids.contains(*uid))?;
        Some(format!("its label {SERVICE_UID} names another Service ({uid})"))
    }

    /// Returns the reason why no Service should take over the certificate, whose label names a Service that does not
    /// exist in this cluster. The reason is that no label names a cluster, and that a load balancer uses the
    /// certificate. So it may belong to a Service of another cluster. `None` when there is no such reason.
    pub(crate) fn why_it_may_be_of_others(&self) -> Option<String> {
        let is_used = self.cluster_uid().is_none() && !self.used_by.is_empty();
        let uid = self.service_uid().filter(|_| is_used)?;
        Some(format!(
            "it may belong to another cluster: a load balancer uses the certificate, and label {SERVICE_UID} of the \
             certificate names a Service that this cluster does not have ({uid})"
        ))
    }
}

/// Reads the certificates whose label names this cluster. The label contains a UID of the cluster. A cluster that was
/// restored from a backup can have a present UID and former ones, and certificates with any of these UIDs are read.
pub(in crate::hetzner) fn read(
    api: &Api,
    cluster: &Cluster,
    urgency: Urgency,
) -> Result<Vec<Certificate>, ProviderError> {
    let label = CLUSTER_UID.replace('/', "%2F");
    let uids: Vec<&str> = cluster.uids().collect();
    let values = match uids.as_slice() {
        [] => return Ok(Vec::new()),
        [uid] => format!("%3D{uid}"),
        several => format!("%20in%20({})", several.join(",")),
    };
    api.list(&format!("label_selector={label}{values}&"), urgency)
}

/// Returns the labels for a managed certificate. They name the Service as the owner of the certificate.
pub(crate) fn of_managed(
    service: &Service,
    cluster: &Cluster,
    is_staging: bool,
) -> BTreeMap<String, String> {
    let mut labels = Ownership::of_service(service, cluster).labels();
    if is_staging {
        labels.insert(STAGING.0.to_owned(), STAGING.1.to_owned());
    }
    labels
}

/// Returns the labels of a certificate that is uploaded from this Secret. They do not contain the UID of a Service,
/// because every Service of the Secret's namespace is allowed to use the certificate.
pub(crate) fn of_upload(secret: &SecretName, cluster: &Cluster) -> BTreeMap<String, String> {
    let mut labels = Ownership::of_cluster(cluster).labels();
    labels.insert(SECRET.to_owned(), secret_value(secret));
    labels
}

/// Returns `namespace.name` of a Secret, in the form that is allowed for a label's value.
fn secret_value((namespace, secret): &SecretName) -> String {
    label_value(&format!("{namespace}.{secret}"))
}
