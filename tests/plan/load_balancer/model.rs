//! Hetzner's load balancers as a value: what a change makes of them, and what the API would refuse.

use ccm::hetzner::load_balancers::{
    BalancerType, Certificate, CertificateStatus, Change, Create, Listener, LoadBalancer, Location,
    NewCertificate, Observed, PortField, PrivateNet, PublicIp, PublicNet, Reference, ServerTarget,
    Target, Write,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// `lb11`, `lb21`, `lb31`.
pub fn types() -> Vec<BalancerType> {
    let kind = |name: &str, targets, services, certificates| BalancerType {
        name: name.into(),
        max_targets: targets,
        max_services: services,
        max_assigned_certificates: certificates,
        deprecation: None,
        locations: ["ash", "fsn1", "hel1", "hil", "nbg1", "sin"]
            .map(str::to_owned)
            .into(),
    };
    vec![
        kind("lb11", 25, 5, 10),
        kind("lb21", 75, 15, 25),
        kind("lb31", 150, 30, 50),
    ]
}

/// A new load balancer as the API fills it in.
pub fn fresh(id: u64, name: &str, kind: &str) -> LoadBalancer {
    let last = u8::try_from(id % 200).unwrap() + 1;
    LoadBalancer {
        id,
        name: name.into(),
        load_balancer_type: types().into_iter().find(|t| t.name == kind).unwrap(),
        location: Location {
            name: "fsn1".into(),
            network_zone: "eu-central".into(),
        },
        public_net: PublicNet {
            enabled: true,
            ipv4: PublicIp {
                id: Some(id * 10 + 4),
                ip: Some(Ipv4Addr::new(203, 0, 113, last)),
                dns_ptr: Some("static.example".into()),
            },
            ipv6: PublicIp {
                id: Some(id * 10 + 6),
                ip: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into())),
                dns_ptr: None,
            },
        },
        ..LoadBalancer::default()
    }
}

/// Makes the change. True: the plan has to be made anew. Panics where the API would refuse.
pub fn apply(state: &mut Observed, change: &Change) -> bool {
    if let Write::Create(create) = &change.write {
        assert_eq!(change.balancer, None);
        create_one(state, create);
        return true;
    }
    match &change.write {
        Write::CreateCertificate(new) => {
            order(state, new);
            return false;
        }
        Write::EditCertificate {
            certificate,
            set,
            seen,
        } => {
            let mut all = state.certificates.iter_mut().flatten();
            let one = all.find(|one| one.id == *certificate).unwrap();
            assert_eq!(one.labels, *seen);
            one.labels.extend(set.clone());
            assert_ne!(one.labels, *seen, "an edit of nothing");
            return false;
        }
        _ => {}
    }
    let id = change.balancer.expect("an ID");
    if let Write::Delete { .. } = change.write {
        state.balancers.retain(|one| one.id != id);
        return false;
    }
    let at = state.balancers.iter().position(|one| one.id == id).unwrap();
    if let Write::Edit {
        name: Some(name), ..
    } = &change.write
    {
        let mut others = state.balancers.iter().filter(|one| one.id != id);
        assert!(others.all(|one| one.name != *name), "uniqueness_error");
    }
    changed(&mut state.balancers[at], &change.write);
    matches!(change.write, Write::Attach { .. } | Write::Detach { .. })
}

/// The same load balancer, as far as anybody can see.
pub fn same_listener(left: &Listener, right: &Listener) -> bool {
    PortField::ALL
        .iter()
        .all(|field| field.of(left) == field.of(right))
}

fn create_one(state: &mut Observed, create: &Create) {
    let taken = state.balancers.iter().any(|one| one.name == create.name);
    assert!(!taken, "uniqueness_error: {}", create.name);
    let id = 1000 + state.balancers.len() as u64;
    let mut balancer = fresh(id, &create.name, &create.kind);
    balancer.labels = create.labels.clone();
    let places = (&create.location, &create.network_zone);
    match places {
        (Some(location), None) => balancer.location.name = location.clone(),
        (None, Some(zone)) => balancer.location.network_zone = zone.clone(),
        _ => panic!("one of location and network_zone: {places:?}"),
    }
    for (asked, kind) in [
        (create.public_net.ipv4, "ipv4"),
        (create.public_net.ipv6, "ipv6"),
    ] {
        let Some(asked) = asked else { continue };
        let mut all = state.primary_ips.iter_mut().flatten();
        let one = all.find(|one| one.id == asked).expect("not_found");
        assert_eq!(one.kind, kind, "primary_ip_version_mismatch");
        assert_eq!(one.assignee_id, None, "primary_ip_assigned");
        assert!(!one.blocked, "blocked");
        assert_eq!(
            one.location, balancer.location,
            "primary_ip_datacenter_mismatch"
        );
        one.assignee_id = Some(id);
        one.assignee_type = "load_balancer".into();
        let net = &mut balancer.public_net;
        match kind {
            "ipv4" => {
                net.ipv4.id = Some(asked);
                net.ipv4.ip = Some(one.ip.parse().unwrap());
            }
            _ => {
                net.ipv6.id = Some(asked);
                let first = one.ip.replace("::/64", "::1");
                net.ipv6.ip = Some(first.parse().unwrap());
            }
        }
    }
    balancer.algorithm = create.algorithm.unwrap_or_default();
    if let Some(network) = create.network {
        attach(&mut balancer, network, None);
    }
    balancer.public_net.enabled = create.public_interface.unwrap_or(true);
    for service in &create.services {
        add_service(&mut balancer, service);
    }
    for target in &create.targets {
        add_target(&mut balancer, *target);
    }
    check(&balancer);
    state.balancers.push(balancer);
}

/// A managed certificate begins as pending.
fn order(state: &mut Observed, new: &NewCertificate) {
    let all = state.certificates.as_mut().unwrap();
    let taken = all.iter().any(|one| one.name == new.name);
    assert!(!taken, "uniqueness_error: {}", new.name);
    assert!(!new.domain_names.is_empty(), "invalid_input");
    all.push(Certificate {
        id: 500 + all.len() as u64,
        name: new.name.clone(),
        labels: new.labels.clone(),
        domain_names: new.domain_names.clone(),
        status: Some(CertificateStatus {
            issuance: "pending".into(),
            ..CertificateStatus::default()
        }),
        used_by: Vec::new(),
    });
}

fn changed(balancer: &mut LoadBalancer, write: &Write) {
    match write {
        Write::Create(_)
        | Write::Delete { .. }
        | Write::CreateCertificate(_)
        | Write::EditCertificate { .. } => unreachable!(),
        Write::Edit { name, labels } => {
            assert!(name.is_some() || labels.is_some(), "an empty PUT");
            balancer.name = name.clone().unwrap_or(balancer.name.clone());
            if let Some(edit) = labels {
                assert_ne!(edit.whole(), balancer.labels, "an edit of nothing");
                balancer.labels = edit.whole();
            }
        }
        Write::ChangeType { kind } => {
            let mut types = types().into_iter();
            balancer.load_balancer_type = types.find(|one| one.name == *kind).unwrap();
        }
        Write::ChangeAlgorithm(algorithm) => balancer.algorithm = *algorithm,
        Write::ChangeDnsPtr { ip, dns_ptr } => match ip {
            IpAddr::V4(_) => balancer.public_net.ipv4.dns_ptr = Some(dns_ptr.clone()),
            IpAddr::V6(_) => balancer.public_net.ipv6.dns_ptr = Some(dns_ptr.clone()),
        },
        Write::Detach { network } => {
            let before = balancer.private_net.len();
            balancer.private_net.retain(|net| net.network != *network);
            assert_eq!(balancer.private_net.len() + 1, before, "it was attached");
            let is_private = |target: &Target| {
                matches!(
                    target,
                    Target::Server {
                        use_private_ip: true,
                        ..
                    }
                )
            };
            balancer.targets.retain(|target| !is_private(target));
        }
        Write::Attach { network, ip, .. } => attach(balancer, *network, *ip),
        Write::EnablePublicInterface => balancer.public_net.enabled = true,
        Write::DisablePublicInterface => {
            let all_private = balancer.server_targets().all(|(_, private)| private);
            assert!(all_private, "targets_without_use_private_ip");
            balancer.public_net.enabled = false;
        }
        Write::DeleteService { listen_port } => {
            let before = balancer.services.len();
            balancer
                .services
                .retain(|one| one.listen_port != *listen_port);
            assert_eq!(balancer.services.len() + 1, before);
        }
        Write::UpdateService(listener) => {
            let before = balancer.services.len();
            let mut old = balancer.services.iter();
            let old = old.find(|one| one.listen_port == listener.listen_port);
            assert!(
                !same_listener(old.unwrap(), listener),
                "an update of nothing"
            );
            balancer
                .services
                .retain(|one| one.listen_port != listener.listen_port);
            add_service(balancer, listener);
            assert_eq!(balancer.services.len(), before);
        }
        Write::AddService(listener) => add_service(balancer, listener),
        Write::AddTarget(target) => add_target(balancer, *target),
        Write::RemoveTarget { server, .. } => {
            let before = balancer.targets.len();
            let is_it = |target: &Target| matches!(target, Target::Server { server: s, .. } if s.id == *server);
            balancer.targets.retain(|target| !is_it(target));
            assert_eq!(balancer.targets.len() + 1, before, "it was a target");
        }
    }
    check(balancer);
}

fn attach(balancer: &mut LoadBalancer, network: u64, ip: Option<Ipv4Addr>) {
    assert!(
        balancer.private_net.is_empty(),
        "load_balancer_already_attached"
    );
    balancer.private_net.push(PrivateNet {
        network,
        ip: Some(ip.unwrap_or(Ipv4Addr::new(10, 0, 0, 200))),
    });
}

fn add_target(balancer: &mut LoadBalancer, target: ServerTarget) {
    let mut there = balancer.server_targets();
    assert!(
        there.all(|(server, _)| server != target.server),
        "target_already_defined"
    );
    drop(there);
    match target.use_private_ip {
        true => assert!(
            !balancer.private_net.is_empty(),
            "load_balancer_not_attached_to_network"
        ),
        false => assert!(
            balancer.public_net.enabled,
            "load_balancer_public_interface_disabled"
        ),
    }
    balancer.targets.push(Target::Server {
        server: Reference { id: target.server },
        use_private_ip: target.use_private_ip,
        health_status: Vec::new(),
    });
}

fn add_service(balancer: &mut LoadBalancer, listener: &Listener) {
    let mut added = listener.clone();
    if added.protocol() != "tcp" {
        // Where nothing was said, the API says.
        for (field, usual) in [
            (PortField::CookieName, json!("HCLBSTICKY")),
            (PortField::CookieLifetime, json!(300)),
            (PortField::StickySessions, json!(false)),
            (PortField::RedirectHttp, json!(false)),
            (PortField::Certificates, json!([])),
            (PortField::TimeoutIdle, json!(60)),
        ] {
            if added.get(field).is_none() {
                added.set(field, usual);
            }
        }
    }
    balancer.services.push(added);
}

fn check(balancer: &LoadBalancer) {
    let kind = &balancer.load_balancer_type;
    assert!(
        balancer.server_targets().count() + balancer.other_targets() <= kind.max_targets,
        "too many targets"
    );
    assert!(
        balancer.services.len() <= kind.max_services,
        "too many services"
    );
    let mut ports = BTreeMap::new();
    for service in &balancer.services {
        *ports.entry(service.listen_port).or_insert(0) += 1;
        if PortField::RedirectHttp.of(service).as_deref() == Some("true") {
            *ports.entry(80).or_insert(0) += 1;
        }
    }
    assert!(
        ports.values().all(|count| *count == 1),
        "source_port_already_used: {ports:?}"
    );
}

/// A project with these load balancers.
pub fn state(balancers: Vec<LoadBalancer>) -> Observed {
    Observed {
        balancers,
        types: Some(Arc::new(types())),
        certificates: Some(Vec::new()),
        primary_ips: Some(Vec::new()),
        subnets: None,
    }
}
