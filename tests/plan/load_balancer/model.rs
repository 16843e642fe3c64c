//! Hetzner's load balancers as a value: what a change makes of them, and what the API would refuse.

use ccm::hetzner::load_balancers::{
    AlgorithmOf, BalancerType, Certificate, CertificateStatus, IpRef, Listener, LoadBalancer,
    Location, Observed, PortField, PriceOf, PrivateNet, PublicIp, PublicNet, Reference, Target,
};
use ccm::provider::Change;
use serde_json::{Value, json};
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
        prices: ["ash", "fsn1", "hel1", "hil", "nbg1", "sin"]
            .map(|location| PriceOf {
                location: location.into(),
                ..PriceOf::default()
            })
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
                ip: Some(Ipv4Addr::new(203, 0, 113, last).into()),
                dns_ptr: Some("static.example".into()),
            },
            ipv6: PublicIp {
                id: Some(id * 10 + 6),
                ip: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into()),
                dns_ptr: None,
            },
        },
        ..LoadBalancer::default()
    }
}

/// Makes the change, as the API would by its request. True: the plan has to be made anew. Panics where the API would
/// refuse.
pub fn apply(state: &mut Observed, change: &dyn Change) -> bool {
    let (line, change) = (change.description().done().join(", "), change.json());
    let (word, request) = (change["change"].as_str().unwrap(), &change["request"]);
    let id = change["loadBalancer"].as_u64();
    let Some(id) = id else {
        match word {
            "create" => create_one(state, request),
            "create_certificate" => order(state, request),
            "edit_certificate" => {
                let labels = labels(request);
                let mut all = state.certificates.iter_mut().flatten();
                let is_it = |one: &&mut Certificate| line.contains(&one.shown());
                let one = all.find(is_it).expect("a certificate to edit");
                let kept = one.labels.keys().all(|label| labels.contains_key(label));
                assert!(kept && one.labels != labels, "an edit of nothing");
                one.labels = labels;
            }
            other => panic!("{other}"),
        }
        return word == "create";
    };
    if word == "delete" {
        state.balancers.retain(|one| one.id != id);
        return false;
    }
    let at = state.balancers.iter().position(|one| one.id == id).unwrap();
    if let (true, Some(name)) = (word == "edit", request["name"].as_str()) {
        let mut others = state.balancers.iter().filter(|one| one.id != id);
        assert!(others.all(|one| one.name != name), "uniqueness_error");
    }
    changed(&mut state.balancers[at], word, request);
    matches!(word, "attach_to_network" | "detach_from_network")
}

fn labels(request: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(request["labels"].clone()).unwrap()
}

fn listener(request: &Value) -> Listener {
    serde_json::from_value(request.clone()).unwrap()
}

fn server(request: &Value) -> u64 {
    assert_eq!(request["type"], "server");
    request["server"]["id"].as_u64().unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The same load balancer, as far as anybody can see.
pub fn same_listener(left: &Listener, right: &Listener) -> bool {
    PortField::ALL
        .iter()
        .all(|field| field.of(left) == field.of(right))
}

fn create_one(state: &mut Observed, create: &Value) {
    let name = text(&create["name"]);
    let taken = state.balancers.iter().any(|one| one.name == name);
    assert!(!taken, "uniqueness_error: {name}");
    let ids = state.balancers.iter().map(|one| one.id);
    let id = 1 + ids.max().unwrap_or_default().max(999);
    let mut balancer = fresh(id, &name, create["load_balancer_type"].as_str().unwrap());
    balancer.labels = labels(create);
    let places = (create["location"].as_str(), create["network_zone"].as_str());
    match places {
        (Some(location), None) => balancer.location.name = location.into(),
        (None, Some(zone)) => balancer.location.network_zone = zone.into(),
        _ => panic!("one of location and network_zone: {places:?}"),
    }
    for kind in ["ipv4", "ipv6"] {
        let Some(asked) = create["public_net"][kind].as_u64() else {
            continue;
        };
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
    balancer.algorithm = algorithm(&create["algorithm"]);
    if let Some(network) = create["network"].as_u64() {
        attach(&mut balancer, network, None);
    }
    balancer.public_net.enabled = create["public_interface"].as_bool().unwrap_or(true);
    for service in create["services"].as_array().unwrap() {
        add_service(&mut balancer, service);
    }
    for target in create["targets"].as_array().unwrap() {
        add_target(&mut balancer, target);
    }
    check(&balancer);
    state.balancers.push(balancer);
}

fn algorithm(request: &Value) -> AlgorithmOf {
    match request {
        Value::Null => AlgorithmOf::default(),
        request => serde_json::from_value(request.clone()).unwrap(),
    }
}

/// A managed certificate begins as pending.
fn order(state: &mut Observed, new: &Value) {
    let all = state.certificates.as_mut().unwrap();
    let name = text(&new["name"]);
    let taken = all.iter().any(|one| one.name == name);
    assert!(!taken, "uniqueness_error: {name}");
    if new["type"] == "uploaded" {
        return all.push(Certificate {
            id: 500 + all.len() as u64,
            name,
            labels: labels(new),
            ..Certificate::default()
        });
    }
    assert_eq!(new["type"], "managed");
    let domains = new["domain_names"].as_array().unwrap();
    assert!(!domains.is_empty(), "invalid_input");
    all.push(Certificate {
        id: 500 + all.len() as u64,
        name,
        labels: labels(new),
        domain_names: domains.iter().map(text).collect(),
        status: Some(CertificateStatus {
            issuance: "pending".into(),
            ..CertificateStatus::default()
        }),
        ..Certificate::default()
    });
}

fn changed(balancer: &mut LoadBalancer, word: &str, request: &Value) {
    match word {
        "edit" => {
            let (name, all) = (request.get("name"), request.get("labels"));
            assert!(name.is_some() || all.is_some(), "an empty PUT");
            if let Some(name) = name {
                balancer.name = text(name);
            }
            if all.is_some() {
                assert_ne!(labels(request), balancer.labels, "an edit of nothing");
                balancer.labels = labels(request);
            }
        }
        "change_type" => {
            let mut types = types().into_iter();
            let kind = request["load_balancer_type"].as_str().unwrap();
            balancer.load_balancer_type = types.find(|one| one.name == kind).unwrap();
        }
        "change_algorithm" => balancer.algorithm = algorithm(request),
        "change_protection" => balancer.protection.delete = request["delete"].as_bool().unwrap(),
        "change_dns_ptr" => {
            let name = Some(text(&request["dns_ptr"]));
            match request["ip"].as_str().unwrap().parse().unwrap() {
                IpAddr::V4(_) => balancer.public_net.ipv4.dns_ptr = name,
                IpAddr::V6(_) => balancer.public_net.ipv6.dns_ptr = name,
            }
        }
        "detach_from_network" => {
            let network = request["network"].as_u64().unwrap();
            let before = balancer.private_net.len();
            balancer.private_net.retain(|net| net.network != network);
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
        "attach_to_network" => {
            let ip = request["ip"].as_str().map(|ip| ip.parse().unwrap());
            attach(balancer, request["network"].as_u64().unwrap(), ip);
        }
        "enable_public_interface" => balancer.public_net.enabled = true,
        "disable_public_interface" => {
            let all_private = balancer.server_targets().all(|(_, private)| private);
            assert!(all_private, "targets_without_use_private_ip");
            balancer.public_net.enabled = false;
        }
        "delete_service" => {
            let before = balancer.services.len();
            balancer
                .services
                .retain(|one| request["listen_port"] != one.listen_port);
            assert_eq!(balancer.services.len() + 1, before);
        }
        "update_service" => {
            let number = request["listen_port"].as_u64().unwrap();
            let is_it = |one: &Listener| u64::from(one.listen_port) == number;
            let at = balancer.services.iter().position(is_it).unwrap();
            let old = balancer.services.remove(at);
            add_service(balancer, request);
            let new = balancer.services.last().unwrap();
            assert!(!same_listener(&old, new), "an update of nothing");
        }
        "add_service" => add_service(balancer, request),
        "add_target" => add_target(balancer, request),
        "remove_target" => {
            let before = balancer.targets.len();
            let is_it = |target: &Target| match target {
                Target::Server { server: one, .. } => request["server"]["id"] == one.id,
                Target::Ip { ip, .. } => request["ip"]["ip"] == ip.ip.to_string(),
                _ => false,
            };
            balancer.targets.retain(|target| !is_it(target));
            assert_eq!(balancer.targets.len() + 1, before, "it was a target");
        }
        other => panic!("{other}"),
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

fn add_target(balancer: &mut LoadBalancer, request: &Value) {
    if request["type"] == "ip" {
        let ip: IpAddr = text(&request["ip"]["ip"]).parse().unwrap();
        let has = |target: &Target| matches!(target, Target::Ip { ip: one, .. } if one.ip == ip);
        assert!(!balancer.targets.iter().any(has), "target_already_defined");
        assert!(request["use_private_ip"].is_null(), "invalid_input");
        balancer.targets.push(Target::Ip {
            ip: IpRef { ip },
            health_status: Vec::new(),
        });
        return;
    }
    let id = server(request);
    let use_private_ip = request["use_private_ip"].as_bool().unwrap();
    let mut there = balancer.server_targets();
    assert!(
        there.all(|(server, _)| server != id),
        "target_already_defined"
    );
    drop(there);
    match use_private_ip {
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
        server: Reference { id },
        use_private_ip,
        health_status: Vec::new(),
    });
}

fn add_service(balancer: &mut LoadBalancer, request: &Value) {
    let mut added = listener(request);
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
        balancer.single_targets().count() + balancer.other_targets() <= kind.max_targets,
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
        is_for_manifests: false,
    }
}
