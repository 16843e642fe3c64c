//! The annotations of one Service, each read into its type; everything that is wrong, at once.

use super::annotations::{Annotation, PREFIX, State, TABLE};
use crate::cloud::{Finding, Protocol, Reason, Service, ServicePort, Source, Sourced};
use crate::text::{nearest::nearest, one_of};

/// What a Service's annotations say.
pub(super) struct Reading<'a> {
    service: &'a Service,
    set: Vec<Set<'a>>,
    /// What keeps the load balancer from being touched; each once.
    pub(super) problems: Vec<String>,
    pub(super) findings: Vec<Finding>,
}

/// One annotation that is there and known.
struct Set<'a> {
    annotation: &'static Annotation,
    /// The listen port it is about alone; always a TCP one.
    port: Option<u16>,
    key: &'a str,
    value: &'a str,
}

/// One annotation as it stands on the Service.
pub(super) struct Held<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a str,
    /// Listen ports that it holds for; for the others one of their own wins.
    pub(super) ports: Vec<u16>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(service: &'a Service) -> Reading<'a> {
        let mut reading = Reading {
            service,
            set: Vec::new(),
            problems: Vec::new(),
            findings: Vec::new(),
        };
        for (key, value) in &service.annotations {
            if let Some(name) = key.strip_prefix(PREFIX) {
                reading.note(key, name, value.trim());
            }
        }
        reading
    }

    /// The value for a port, or with none for the whole; empty texts count as not set.
    pub(super) fn read<T>(
        &mut self,
        annotation: &'static Annotation,
        port: Option<&ServicePort>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        let (key, value) = self.text(annotation, port)?;
        if value.is_empty() {
            return None;
        }
        match parse(value) {
            Ok(value) => Some(Sourced::new(value, Source::Annotation(key.to_owned()))),
            Err(why) => {
                self.problem(format!("annotation {key}: {value:?}: {why}"));
                None
            }
        }
    }

    /// Does it stand there at all, empty or not?
    pub(super) fn has(&self, annotation: &'static Annotation, port: Option<&ServicePort>) -> bool {
        self.text(annotation, port).is_some()
    }

    /// Where an annotation stands: for all ports, for single ones, or both.
    pub(super) fn held(&self, annotation: &'static Annotation) -> Vec<Held<'a>> {
        let ports = self.service.ports.iter();
        let tcp = ports.filter(|port| port.protocol == Protocol::Tcp);
        let tcp: Vec<&ServicePort> = tcp.collect();
        let all = self.set.iter();
        all.filter(|set| set.annotation.name == annotation.name)
            .map(|set| {
                let holds = |port: &&&ServicePort| {
                    let winner = self.text(annotation, Some(port));
                    winner.is_some_and(|(key, _)| key == set.key)
                };
                Held {
                    key: set.key,
                    value: set.value,
                    ports: tcp.iter().filter(holds).map(|port| port.port).collect(),
                }
            })
            .collect()
    }

    /// Said once, however many ports it is about.
    pub(super) fn problem(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Told once, however many ports it is about.
    pub(super) fn finding(&mut self, finding: Finding) {
        let finding = finding.by_provider();
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Key and value: that of the port alone wins.
    fn text(
        &self,
        annotation: &'static Annotation,
        port: Option<&ServicePort>,
    ) -> Option<(&'a str, &'a str)> {
        let of = |port: Option<u16>| {
            let is_it = |set: &&Set| set.annotation.name == annotation.name && set.port == port;
            self.set.iter().find(is_it).map(|set| (set.key, set.value))
        };
        // A UDP port may have the same number.
        let own = port.filter(|port| port.protocol == Protocol::Tcp);
        own.and_then(|port| of(Some(port.port)))
            .or_else(|| of(None))
    }

    fn note(&mut self, key: &'a str, name: &str, value: &'a str) {
        let (name, suffix) = match name.split_once('.') {
            Some((name, suffix)) => (name, Some(suffix)),
            None => (name, None),
        };
        let known = TABLE.iter().find(|row| row.name.eq_ignore_ascii_case(name));
        let Some(&annotation) = known else {
            return self.finding(unknown(key, name));
        };
        match annotation.state {
            State::NeverRead => return,
            State::Honoured => {}
        }
        let port = match suffix {
            None => None,
            Some(suffix) => match self.port(annotation, key, suffix) {
                Some(port) => Some(port),
                None => return,
            },
        };
        let set = Set {
            annotation,
            port,
            key,
            value,
        };
        let other = |other: &Set| other.annotation.name == annotation.name && other.port == port;
        match self.set.iter().position(other) {
            None => self.set.push(set),
            Some(at) if self.set[at].value == value => {}
            Some(at) => {
                let other = self.set[at].key;
                self.problem(format!(
                    "annotations {other} and {key} are about the same and differ; remove one"
                ));
            }
        }
    }

    /// The TCP port that a suffix names.
    fn port(&mut self, annotation: &Annotation, key: &str, suffix: &str) -> Option<u16> {
        if !annotation.per_port {
            self.problem(format!(
                "annotation {key}: {} is about the whole load balancer: write {}",
                annotation.name,
                annotation.key()
            ));
            return None;
        }
        let ports = &self.service.ports;
        let by_name = ports
            .iter()
            .find(|port| port.name.eq_ignore_ascii_case(suffix));
        let numbered = |port: &&ServicePort| port.port.to_string() == suffix;
        let mut tcp = ports.iter().filter(|port| port.protocol == Protocol::Tcp);
        // Of two with one number the TCP one is the load balancer's.
        let by_number = || {
            let found = tcp.find(numbered);
            found.or_else(|| ports.iter().find(numbered))
        };
        if let Some(port) = by_name.or_else(by_number) {
            if port.protocol == Protocol::Tcp {
                return Some(port.port);
            }
            self.finding(Finding::warning(
                Reason::AnnotationWithoutEffect,
                format!(
                    "annotation {key} has no effect: port {} is {}, and Hetzner's load balancers take TCP only",
                    shown(port),
                    port.protocol.name()
                ),
            ));
            return None;
        }
        let there: Vec<String> = ports.iter().map(shown).collect();
        self.problem(format!(
            "annotation {key}: the Service has no port {suffix:?}; use {}",
            one_of(&there)
        ));
        None
    }
}

/// `name (number)`, or the number alone.
fn shown(port: &ServicePort) -> String {
    match port.name.as_str() {
        "" => port.port.to_string(),
        name => format!("{name} ({})", port.port),
    }
}

fn unknown(key: &str, name: &str) -> Finding {
    let names = TABLE
        .iter()
        .filter(|row| row.state == State::Honoured)
        .map(|row| row.name);
    let meant = match nearest(&name.to_ascii_lowercase(), names) {
        Some(name) => format!("; did you mean {PREFIX}{name}?"),
        None => String::new(),
    };
    Finding::warning(
        Reason::UnknownAnnotation,
        format!("annotation {key} is not one that is known{meant}"),
    )
}
