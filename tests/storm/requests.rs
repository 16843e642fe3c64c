//! Certificate requests of kubelets whose bytes are changed. A request that our reader accepts must mean the same to
//! `x509-parser`, another reader.
//!
//! The requests in the folder `requests` were made by Go's `x509.CreateCertificateRequest`, which kubelets use.

use crate::common::random::Random;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ccm::kube::{AltName, ServingRequest};
use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

const REAL: [&str; 3] = [
    include_str!("requests/p256.pem"),
    include_str!("requests/rsa.pem"),
    include_str!("requests/ed25519.pem"),
];

#[test]
fn changed_requests_are_read_as_another_reader_reads_them() {
    compare(1, 2_000);
}

#[test]
fn the_requests_of_go_are_read() {
    for pem in REAL {
        let request = ServingRequest::read(pem.as_bytes()).unwrap();
        assert_eq!(request.common_name, "system:node:worker-1");
        let names: Vec<String> = request.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["worker-1", "10.0.0.2", "203.0.113.10", "2001:db8:0:1::1"]);
        assert_eq!(other_reader(&der_of(pem)), Ok(request));
    }
}

/// Compares the two readers on so many changed requests. Half of the changes keep the lengths right, so that they reach
/// the inner fields.
pub fn compare(seed: u64, count: usize) {
    let mut random = Random::new(seed);
    let mut accepted = 0;
    for _ in 0..count {
        let mut der = der_of(random.pick::<&str>(&REAL));
        for _ in 0..1 + random.below(3) {
            change(&mut der, &mut random);
        }
        let Ok(request) = ServingRequest::read(pem_of(&der).as_bytes()) else {
            continue;
        };
        accepted += 1;
        let other = other_reader(&der);
        assert_eq!(other.as_ref(), Ok(&request), "{}", STANDARD.encode(&der));
    }
    println!("{count} changed requests, {accepted} of them accepted");
    assert!(accepted > count / 50, "{accepted} of {count} accepted: too few to compare");
}

fn change(der: &mut Vec<u8>, random: &mut Random) {
    if der.len() < 2 {
        return;
    }
    let place = random.below(der.len() as u64) as usize;
    match random.below(8) {
        0 => drop(der.remove(place)),
        1 => der.insert(place, random.next() as u8),
        2 => der.truncate(place.max(1)),
        3 => der[place] ^= 1 << random.below(8),
        4 => {
            // A part of the request is repeated or replaces another part.
            let length = random.below(40).min((der.len() - place) as u64) as usize;
            let part = der[place..place + length].to_vec();
            let to = random.below((der.len() - length) as u64 + 1) as usize;
            der.splice(to..to + length, part);
        }
        _ => der[place] = random.next() as u8,
    }
}

fn der_of(pem: &str) -> Vec<u8> {
    let lines = pem.lines().filter(|line| !line.starts_with('-'));
    STANDARD.decode(lines.collect::<String>()).unwrap()
}

fn pem_of(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
}

/// Reads the base64 of a request's PEM with the other reader.
pub fn read_by_other(base64: &str) -> Result<ServingRequest, String> {
    let pem = STANDARD.decode(base64).map_err(|error| error.to_string())?;
    other_reader(&der_of(&String::from_utf8_lossy(&pem)))
}

/// Reads what a request asks for with `x509-parser`. The error says what is different from the form that we accept.
fn other_reader(der: &[u8]) -> Result<ServingRequest, String> {
    let (rest, request) = X509CertificationRequest::from_der(der).map_err(|e| e.to_string())?;
    if !rest.is_empty() {
        return Err("bytes after the end".into());
    }
    let info = &request.certification_request_info;
    let mut parts: Vec<(String, String)> = Vec::new();
    for part in info.subject.iter_attributes() {
        let text = part.as_str().map_err(|error| error.to_string())?;
        parts.push((part.attr_type().to_id_string(), text.to_owned()));
    }
    parts.sort();
    let [(o, organisation), (cn, common_name)] = parts.as_slice() else {
        return Err(format!("a subject of {parts:?}"));
    };
    let is_right = (o.as_str(), cn.as_str()) == ("2.5.4.10", "2.5.4.3");
    if !is_right || organisation != "system:nodes" {
        return Err(format!("a subject of {parts:?}"));
    }
    if info.version.0 != 0 || info.iter_attributes().count() != 1 {
        return Err("another version or several attributes".into());
    }
    let all: Vec<&ParsedExtension> = request.requested_extensions().into_iter().flatten().collect();
    let [ParsedExtension::SubjectAlternativeName(names)] = all.as_slice() else {
        return Err(format!("extensions {all:?}"));
    };
    let names = names.general_names.iter().map(|name| match name {
        GeneralName::DNSName(name) => Ok(AltName::Dns((*name).to_owned())),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), bytes.len()) {
            (Ok(ipv4), _) => Ok(AltName::Ip(IpAddr::from(ipv4))),
            (_, 16) => Ok(AltName::Ip(IpAddr::from(<[u8; 16]>::try_from(*bytes).unwrap()))),
            _ => Err(format!("an address of {} bytes", bytes.len())),
        },
        other => Err(format!("{other:?}")),
    });
    let names = names.collect::<Result<Vec<AltName>, String>>()?;
    Ok(ServingRequest { common_name: common_name.clone(), names })
}
