//! In a shell: a change that only the default of a setting asks for is held back and reported, because the setting may
//! be set for the daemon.

use super::balancer::LoadBalancer;
use super::change::{Change, Plan, Write};
use super::names::CLUSTER;
use super::observe::Observed;
use super::parser::AnnotationParser;
use super::{Defaults, Planner, annotations as a, primary_ips};
use crate::provider::{Cluster, Field, Ingress, OfferedNode, Service, Source, TrafficPolicy};
use crate::text;
use std::net::IpAddr;

/// The flag whose default names the cluster on a label.
const CLUSTER_NAME: &str = "--cluster-name";

const NETWORK: &str = "HCLOUD_NETWORK";

/// Of the settings that decide how a new one is made, so many are named.
const NAMED_AT_MOST: usize = 3;

/// It has no annotation.
const NODE_PORT: &str = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT";

impl Planner<'_> {
    /// Unset here, and may be set for the daemon: its default changes nothing.
    pub(super) fn holds_back(&self, setting: &str) -> bool {
        self.defaults.unknown.iter().any(|one| one == setting)
    }

    /// The same of what an annotation or its variable would set.
    pub(super) fn holds_back_default_of(&self, annotation: &a::Annotation) -> bool {
        annotation
            .variable
            .is_some_and(|variable| self.holds_back(variable))
    }

    pub(super) fn holds_back_cluster_name(&self) -> bool {
        self.holds_back(CLUSTER_NAME)
    }

    /// May the daemon have a setting that decides whether the health check node port is used?
    pub(super) fn holds_back_node_port(&self, service: &Service) -> bool {
        self.defaults.health_check_node_port.is_none()
            && service.traffic_policy == TrafficPolicy::Local
            && service.health_check_node_port.is_some()
            && self.holds_back(NODE_PORT)
    }

    /// [`Planner::plan`], and what it would do besides if settings that are unset here are unset for the daemon too.
    pub fn plan_without_unset_defaults(
        &self,
        observed: &Observed,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> Plan {
        let mut plan = self.plan(observed, service, nodes, cluster);
        if self.defaults.unknown.is_empty() || plan.obstacle.is_some() {
            return plan;
        }
        let defaults = Defaults {
            unknown: Vec::new(),
            ..self.defaults.clone()
        };
        let all = Planner {
            defaults: &defaults,
            ..*self
        };
        let mut whole = all.plan(observed, service, nodes, cluster);
        let Some(found) = plan.found.as_ref().map(|balancer| balancer.id) else {
            // A new one is created with the defaults, and the daemon corrects it by its settings; but it can't correct the
            // location, nor who could reach it until then.
            if self.may_not_claim(&whole) {
                whole.changes.clear();
                whole.new_name = None;
                let want = name_of(&whole.fields);
                whole.held_back.push(Field {
                    field: "load balancer".to_owned(),
                    have: None,
                    want,
                    source: Source::Default(primary_ips::SELECTOR.to_owned()),
                });
            } else {
                whole.unsure_new = self.unsure_new(service, &whole.fields);
            }
            return whole;
        };
        let mut fields = std::mem::take(&mut whole.fields);
        let rest = &mut plan.rest;
        let made: Vec<&Field> = rest.fields.iter().filter(|one| one.differs()).collect();
        for field in &mut fields {
            let is_made = made.iter().any(|one| one.field == field.field);
            // What is not there yet is made of the defaults.
            if field.differs() && field.have.is_some() && !is_made {
                field.source = Source::Default(setting_of(field, service));
                rest.held_back.push(field.clone());
            }
        }
        plan.fields = fields;
        let balancer = observed.balancers.iter().find(|one| one.id == found);
        if let (Some(balancer), Some(status)) = (balancer, &plan.status) {
            plan.unsure = self.unsure(balancer, service, status);
        }
        plan
    }

    /// It would claim a Primary IP, and the daemon may know that Services may not claim this one.
    fn may_not_claim(&self, plan: &Plan) -> bool {
        let claims = |change: &Change| matches!(&change.write, Write::Create(one) if one.ipv4.or(one.ipv6).is_some());
        self.defaults.primary_ip_selector.is_none()
            && self.holds_back(primary_ips::SELECTOR)
            && plan.changes.iter().any(claims)
    }

    /// Settings that decide about a new one and may be set otherwise for the daemon.
    fn unsure_new(&self, service: &Service, fields: &[Field]) -> Option<Field> {
        let parser = AnnotationParser::new(service);
        let defaults = self.defaults;
        let is_placed = defaults.location.is_some()
            || defaults.network_zone.is_some()
            || parser.has(&a::NETWORK_ZONE, None);
        let annotated = [
            (
                &a::DISABLE_PUBLIC_NETWORK,
                defaults.disable_public_network.is_some(),
            ),
            (&a::USE_PRIVATE_IP, defaults.use_private_ip.is_some()),
            (&a::LOCATION, is_placed),
            (&a::TYPE, defaults.kind.is_some()),
        ];
        let annotated = annotated.into_iter().filter_map(|(annotation, is_set)| {
            let is_said = is_set || parser.has(annotation, None);
            annotation.variable.filter(|_| !is_said)
        });
        let name = (!parser.has(&a::NAME, None)).then_some(CLUSTER_NAME);
        let all = [NETWORK].into_iter().chain(annotated).chain(name);
        let all: Vec<&str> = all.filter(|setting| self.holds_back(setting)).collect();
        if all.is_empty() {
            return None;
        }
        let named = text::first_of(&all, NAMED_AT_MOST);
        Some(Field {
            field: "load balancer".to_owned(),
            have: None,
            want: name_of(fields),
            source: Source::Default(named),
        })
    }

    /// Addresses that are in the status only because a setting is unset here.
    fn unsure(
        &self,
        balancer: &LoadBalancer,
        service: &Service,
        status: &[Ingress],
    ) -> Vec<(Ingress, Source)> {
        let parser = AnnotationParser::new(service);
        let defaults = self.defaults;
        let is_open = |annotation, is_set: bool| {
            !is_set && !parser.has(annotation, None) && self.holds_back_default_of(annotation)
        };
        let ipv6 = is_open(&a::IPV6_DISABLED, defaults.disable_ipv6.is_some());
        let private = &a::DISABLE_PRIVATE_INGRESS;
        let private = is_open(private, defaults.disable_private_ingress.is_some());
        let private_ips: Vec<String> = balancer
            .private_net
            .iter()
            .filter_map(|net| Some(net.ip?.to_string()))
            .collect();
        let annotation = |entry: &Ingress| {
            let ip = entry.ip.as_ref()?;
            let is_ipv6 = matches!(ip.parse(), Ok(IpAddr::V6(_)));
            match private_ips.contains(ip) {
                true => private.then_some(&a::DISABLE_PRIVATE_INGRESS),
                false => (ipv6 && is_ipv6).then_some(&a::IPV6_DISABLED),
            }
        };
        let unsure = status.iter().filter_map(|entry| {
            let variable = annotation(entry)?.variable?;
            Some((entry.clone(), Source::Default(variable.to_owned())))
        });
        unsure.collect()
    }
}

fn name_of(fields: &[Field]) -> Option<String> {
    let name = fields.iter().find(|field| field.field == "name");
    name.and_then(|name| name.want.clone())
}

/// Whose default it is.
fn setting_of(field: &Field, service: &Service) -> String {
    let health_check = match service.traffic_policy {
        TrafficPolicy::Local => NODE_PORT,
        // It decides whether a check speaks the port's own protocol.
        TrafficPolicy::Cluster => a::HEALTH_CHECK_INTERVAL.variable.unwrap_or_default(),
    };
    match &field.source {
        Source::Default(setting) => setting.clone(),
        _ if field.field.ends_with(CLUSTER) => CLUSTER_NAME.to_owned(),
        _ => health_check.to_owned(),
    }
}
