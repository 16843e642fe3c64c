//! Answers the questions of the controller of Services about a snapshot: the load balancers and other objects of the
//! API, as they were read at one time. The controller asks, for example, for the plan of a Service, for the health of
//! targets, and for orphans (load balancers that no Service uses).

use super::change::Purpose;
use super::desired::uploads::shown;
use super::diff::status;
use super::leave::removal;
use super::model::balancer::TargetId;
use super::observe::{covers, with_new_types};
use super::ownership::context::BalancerSnapshot;
use super::ownership::group::is_of_several_owners;
use super::ownership::judge::{Leftover, leftover, owned};
use super::ownership::labels::Labelled;
use super::ownership::replacement::is_beside;
use super::ownership::share::known_key;
use crate::hetzner::pages;
use crate::provider::{
    self, Balancer, Cluster, Ingress, KeptObject, LoadBalancerPlan, Orphan, ReplaceOrder,
    SeenHealth, Service, ServiceInput, ShownCertificate, Urgency,
};
use std::collections::HashSet;
use std::sync::Arc;

impl provider::Snapshot for BalancerSnapshot {
    fn calls(&self) -> u32 {
        let observed = &self.observed;
        let certificates = observed.certificates.as_ref().map(Vec::len);
        let primary_ips = observed.primary_ips.as_ref().map(Vec::len);
        // The lengths of the lists that are read to get the present state of the load balancers. Lists are read page by
        // page, so the number of API calls follows from the lengths. The list of certificates is here twice, because it
        // is read once more to find unused certificates.
        let lists = [Some(observed.balancers.len()), certificates, certificates, primary_ips];
        lists.into_iter().flatten().map(pages::calls).sum()
    }

    fn covers(&self, service: &Service) -> bool {
        covers(self, service)
    }

    fn with_new_types(&self, urgency: Urgency) -> Option<Arc<dyn provider::Snapshot>> {
        Some(Arc::new(with_new_types(self, urgency)))
    }

    fn plan(&self, of: ServiceInput) -> LoadBalancerPlan {
        self.plan_service(of)
    }

    fn plan_removal(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan {
        self.plan_end(service, cluster)
    }

    fn left_on(&self, service: &Service, cluster: &Cluster) -> Option<Balancer> {
        let mut owned = owned(self.balancers(), service, cluster);
        let found = owned.find(|balancer| {
            balancer.ownership.is_of(cluster)
                || balancer.ownership.targets_before(cluster).is_some()
        })?;
        Some(status::for_people(found, cluster))
    }

    fn status_by_proxy(&self, service: &Service, cluster: &Cluster) -> Option<Vec<Ingress>> {
        let mut owned = owned(self.balancers(), service, cluster);
        let is_of_several = owned.any(|balancer| is_of_several_owners(balancer, cluster));
        let status = || status::by_proxy(service, self.balancers(), cluster);
        is_of_several.then(status).flatten()
    }

    fn plan_release(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan {
        self.plan_end_of_management(service, cluster)
    }

    fn plan_adoption(&self, id: u64, of: ServiceInput) -> LoadBalancerPlan {
        self.plan_given(id, of)
    }

    fn plan_replacement(&self, of: ServiceInput, order: ReplaceOrder) -> LoadBalancerPlan {
        self.plan_order(of, order)
    }

    fn has_server_of(&self, cluster: &Cluster) -> bool {
        let is_server = |target| matches!(target, TargetId::Server(_));
        let all = self.balancers().all();
        let mut all = all.flat_map(|labelled| labelled.balancer.single_targets());
        all.any(|(target, _)| is_server(target) && target.is_claimed(cluster))
    }

    fn external(&self) -> Vec<Balancer> {
        // The data about the cluster would add the names of nodes and Services to the result. The result is used
        // without these names, so the data of an empty cluster are enough.
        let names = &Cluster::default();
        let all = self.balancers().all();
        let external = all.filter(|balancer| balancer.ownership.external.is_some());
        external.map(|balancer| status::for_people(balancer, names)).collect()
    }

    fn health(&self, services: &HashSet<&str>) -> Vec<SeenHealth> {
        // A cluster is needed only for the names of nodes and Services, and the returned health contains no such names.
        // So an empty cluster is used.
        let names = &Cluster::default();
        let is_wanted = |uid: &&String| services.contains(uid.as_str());
        let is_ours = |balancer: &Labelled| {
            let ownership = balancer.ownership;
            ownership.uids().chain(&ownership.released).any(|uid| is_wanted(&uid))
        };
        let seen = |balancer: Labelled| {
            let shown = status::for_people(balancer, names);
            let uids = balancer.ownership.uids();
            let with_ports = uids.filter(|uid| is_wanted(uid) && shown.has_port_of(uid));
            // During a replacement, the Service has two load balancers, and its status names only one of them. The
            // health of the other one is not counted for the Service, because its traffic does not depend on it.
            let is_beside = is_beside(balancer, self.balancers());
            let with_ports = with_ports.filter(|_| !is_beside);
            let of_services = with_ports.map(|uid| (uid.clone(), shown.target_counts(Some(uid))));
            SeenHealth {
                use_of: shown.use_of,
                counts: shown.target_counts(None),
                traffic_ratio: shown.consumption.traffic_ratio(),
                is_replacing: balancer.ownership.replacement.replaces.is_some(),
                of_services: of_services.collect(),
            }
        };
        let all = self.balancers().all();
        all.filter(is_ours).map(seen).collect()
    }

    fn certificates(&self, services: &HashSet<&str>) -> Option<Vec<ShownCertificate>> {
        let certificates = self.observed.certificates.as_deref()?;
        let all = self.balancers().all();
        let is_ours = |balancer: &Labelled| {
            let mut uids = balancer.ownership.uids();
            uids.any(|uid| services.contains(uid.as_str()))
        };
        let shown = |balancer: Labelled| shown(&balancer, Some(certificates));
        Some(all.filter(is_ours).flat_map(shown).collect())
    }

    fn all(&self) -> Vec<(Balancer, String)> {
        let names = &Cluster::default();
        let shown = |balancer: Labelled| {
            let service =
                balancer.ownership.service.as_ref().or(balancer.ownership.group.as_ref()).cloned();
            (status::for_people(balancer, names), service.unwrap_or_default())
        };
        let has_uid = |balancer: &Labelled| balancer.ownership.uids().any(|uid| !uid.is_empty());
        self.balancers().all().filter(has_uid).map(shown).collect()
    }

    fn known_group(&self, key: String) -> String {
        known_key(key, self.balancers())
    }

    fn orphans(&self, cluster: &Cluster) -> Vec<Orphan> {
        let orphan = |balancer: Labelled| {
            let ownership = balancer.ownership;
            let label = |field: &'_ Option<String>| field.clone().filter(|value| !value.is_empty());
            let Some(Leftover::Orphan { stays }) = leftover(balancer, cluster) else {
                return None;
            };
            let (service, group) = (label(&ownership.service_uid), label(&ownership.group));
            let service_uid = service.or_else(|| group.clone())?;
            let removal = || Ok(removal(&self.project, balancer, Purpose::Orphan));
            Some(Orphan {
                balancer: status::for_people(balancer, cluster),
                service: label(&ownership.service)
                    .or(group)
                    .unwrap_or_else(|| "unknown".to_owned()),
                service_uid,
                service_exists: false,
                removal: stays.map_or_else(removal, Err),
            })
        };
        self.balancers().all().filter_map(orphan).collect()
    }

    fn kept(&self, cluster: &Cluster) -> Vec<KeptObject> {
        let all = self.balancers().all();
        let kept = all.filter(|balancer| leftover(*balancer, cluster) == Some(Leftover::Kept));
        kept.map(|balancer| KeptObject {
            kind: "LoadBalancer",
            id: balancer.id,
            name: balancer.name.clone(),
            domains: Vec::new(),
            addresses: status::addresses(&balancer),
        })
        .collect()
    }
}
