//! The annotations of one Service, each read into its type; everything that is wrong, at once.
//!
//! A tenant writes them: however many there are and however long, reading them costs little, and so does what is
//! reported of them.

use super::annotations::{Annotation, PREFIX, TABLE};
use crate::provider::{Finding, Protocol, Reason, Service, ServicePort, Source, Sourced};
use crate::text::{self, nearest};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Of problems, and of findings of one reason, so many are said; the others are counted.
const SAID_AT_MOST: usize = 10;

/// Of one reason; the rest is counted. Of one object ten findings are reported at most.
const FINDINGS_OF_A_REASON: usize = 5;

/// Of one problem or finding.
const LONGEST_MESSAGE: usize = 1000;

/// What a Service's annotations say.
pub(super) struct AnnotationParser<'a> {
    service: &'a Service,
    set: BTreeMap<Place, Set<'a>>,
    ports: OnceCell<PortIndex<'a>>,
    /// What keeps the load balancer from being touched; each once.
    pub(super) problems: Vec<String>,
    /// Those that are counted alone.
    more_problems: usize,
    findings: Vec<Finding>,
    /// How many of each reason there were.
    count: BTreeMap<Reason, usize>,
    /// Hashes of the problems and findings that there were.
    seen: HashSet<u64>,
}

/// Name of an annotation, and the listen port that it is about alone; always a TCP one.
type Place = (&'static str, Option<u16>);

/// One annotation that is there and known.
struct Set<'a> {
    key: &'a str,
    value: &'a str,
    /// It does not parse, which is a problem already.
    is_bad: bool,
}

/// The Service's ports, by what a suffix may call them.
struct PortIndex<'a> {
    /// In lower case.
    by_name: HashMap<String, &'a ServicePort>,
    /// Of two with one number the TCP one is the load balancer's.
    by_number: HashMap<u16, &'a ServicePort>,
}

impl<'a> PortIndex<'a> {
    fn new(service: &'a Service) -> PortIndex<'a> {
        let mut index = PortIndex {
            by_name: HashMap::new(),
            by_number: HashMap::new(),
        };
        for port in &service.ports {
            let name = port.name.to_ascii_lowercase();
            index.by_name.entry(name).or_insert(port);
            let same_number = index.by_number.entry(port.port).or_insert(port);
            if same_number.protocol != Protocol::Tcp && port.protocol == Protocol::Tcp {
                *same_number = port;
            }
        }
        index
    }

    fn find(&self, suffix: &str) -> Option<&'a ServicePort> {
        let by_name = self.by_name.get(&suffix.to_ascii_lowercase());
        let by_number = || {
            let number = suffix.parse::<u16>().ok()?;
            let is_written_so = number.to_string() == suffix;
            self.by_number.get(&number).filter(|_| is_written_so)
        };
        by_name.or_else(by_number).copied()
    }
}

impl<'a> AnnotationParser<'a> {
    pub(super) fn new(service: &'a Service) -> AnnotationParser<'a> {
        let mut parser = AnnotationParser {
            service,
            set: BTreeMap::new(),
            ports: OnceCell::new(),
            problems: Vec::new(),
            more_problems: 0,
            findings: Vec::new(),
            count: BTreeMap::new(),
            seen: HashSet::new(),
        };
        for (key, value) in &service.annotations {
            if let Some(name) = key.strip_prefix(PREFIX) {
                parser.note(key, name, value.trim());
            }
        }
        parser
    }

    /// The value for a port, or with none for the whole; empty texts count as not set.
    pub(super) fn read<T>(
        &mut self,
        annotation: &'static Annotation,
        port: Option<&ServicePort>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        let place = self.place(annotation, port)?;
        let set = self.set.get_mut(&place)?;
        let (key, value) = (set.key, set.value);
        // It is read for each port that it holds for.
        if value.is_empty() || set.is_bad {
            return None;
        }
        let parsed = match value.len() <= annotation.longest {
            true => parse(value),
            false => Err(format!(
                "it has {} bytes, and {} at most are read",
                value.len(),
                annotation.longest
            )),
        };
        match parsed {
            Ok(value) => Some(Sourced::new(value, Source::Annotation(key.to_owned()))),
            Err(why) => {
                set.is_bad = true;
                self.problem(format!("annotation {key}: {}: {why}", text::quoted(value)));
                None
            }
        }
    }

    /// Does it stand there at all, empty or not?
    pub(super) fn has(&self, annotation: &'static Annotation, port: Option<&ServicePort>) -> bool {
        self.place(annotation, port).is_some()
    }

    /// Does it ask for something, for all ports or for a single one? What is turned off has the effect that was asked for.
    pub(super) fn asks(&self, annotation: &'static Annotation) -> bool {
        let name = annotation.name;
        let mut all = self.set.range((name, None)..=(name, Some(u16::MAX)));
        all.any(|(_, set)| !set.value.is_empty() && text::boolean(set.value) != Ok(false))
    }

    /// Said once, however many ports it is about.
    pub(super) fn problem(&mut self, problem: String) {
        let about = hash(&problem);
        self.problem_about(about, || problem);
    }

    /// The same where the message is costly: it is made only if it is said. `about`: the hash of what it is about.
    pub(super) fn problem_about(&mut self, about: u64, message: impl FnOnce() -> String) {
        if !self.seen.insert(about) {
            return;
        }
        match self.problems.len() {
            ..SAID_AT_MOST => self
                .problems
                .push(text::cut(&message(), LONGEST_MESSAGE).into_owned()),
            _ => self.more_problems += 1,
        }
    }

    /// Reported once, however many ports it is about.
    pub(super) fn finding(&mut self, finding: Finding) {
        let about = hash(&(finding.reason, &finding.message));
        self.finding_about(finding.reason, about, || finding);
    }

    /// The same where the message is costly: it is made only if it is reported.
    fn finding_about(&mut self, reason: Reason, about: u64, finding: impl FnOnce() -> Finding) {
        if !self.seen.insert(about) {
            return;
        }
        let count = self.count.entry(reason).or_default();
        *count += 1;
        if *count <= FINDINGS_OF_A_REASON {
            let mut finding = finding().by_provider();
            finding.message = text::cut(&finding.message, LONGEST_MESSAGE).into_owned();
            self.findings.push(finding);
        }
    }

    /// A warning about one of many ports.
    pub(super) fn port_finding(
        &mut self,
        reason: Reason,
        port: &ServicePort,
        message: impl FnOnce() -> String,
    ) {
        let about = hash(&(reason, port.port, port.protocol));
        self.finding_about(reason, about, || Finding::warning(reason, message()));
    }

    /// All problems, and all findings.
    pub(super) fn end(mut self) -> (Vec<String>, Vec<Finding>) {
        if self.more_problems > 0 {
            let more = format!("and {} more problems", self.more_problems);
            self.problems.push(more);
        }
        for (reason, count) in self.count {
            if let Some(more @ 1..) = count.checked_sub(FINDINGS_OF_A_REASON) {
                let message =
                    format!("and {more} more like the {FINDINGS_OF_A_REASON} that are reported");
                self.findings
                    .push(Finding::warning(reason, message).by_provider());
            }
        }
        (self.problems, self.findings)
    }

    /// That of the port alone wins.
    fn place(&self, annotation: &'static Annotation, port: Option<&ServicePort>) -> Option<Place> {
        // A UDP port may have the same number.
        let own = port.filter(|port| port.protocol == Protocol::Tcp);
        let own = own.map(|port| (annotation.name, Some(port.port)));
        let is_set = |place: &Place| self.set.contains_key(place);
        let for_all = || Some((annotation.name, None)).filter(is_set);
        own.filter(is_set).or_else(for_all)
    }

    fn note(&mut self, key: &'a str, name: &str, value: &'a str) {
        let (name, suffix) = match name.split_once('.') {
            Some((name, suffix)) => (name, Some(suffix)),
            None => (name, None),
        };
        let Some(annotation) = known(name) else {
            let about = hash(&key);
            let reason = Reason::UnknownAnnotation;
            return self.finding_about(reason, about, || unknown(key, name));
        };
        if !annotation.is_read() {
            return;
        }
        let port = match suffix {
            None => None,
            Some(suffix) => match self.port(annotation, key, suffix) {
                Some(port) => Some(port),
                None => return,
            },
        };
        let set = Set {
            key,
            value,
            is_bad: false,
        };
        match self.set.get(&(annotation.name, port)) {
            None => drop(self.set.insert((annotation.name, port), set)),
            Some(other) if other.value == value => {}
            Some(other) => {
                let other = other.key;
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
        let service = self.service;
        let index = self.ports.get_or_init(|| PortIndex::new(service));
        if let Some(port) = index.find(suffix) {
            if port.protocol == Protocol::Tcp {
                return Some(port.port);
            }
            let reason = Reason::AnnotationWithoutEffect;
            self.finding_about(reason, hash(&key), || {
                let why = format!(
                    "annotation {key} has no effect: port {} is {}, and Hetzner's load balancers take TCP only",
                    shown(port),
                    port.protocol.name()
                );
                Finding::warning(reason, why)
            });
            return None;
        }
        self.problem_about(hash(&key), || {
            let there: Vec<String> = service.ports.iter().map(shown).collect();
            format!(
                "annotation {key}: the Service has no port {suffix:?}; it has {}",
                text::some_of(&there)
            )
        });
        None
    }
}

/// Does a Service set it, for the whole or for a port?
pub(super) fn has(service: &Service, annotation: &Annotation) -> bool {
    let mut names = service
        .annotations
        .keys()
        .filter_map(|key| key.strip_prefix(PREFIX));
    names.any(|name| {
        let name = name.split('.').next().unwrap_or(name);
        name.eq_ignore_ascii_case(annotation.name)
    })
}

/// The value that a Service sets for the whole, without what else its annotations say; none: unset or empty.
pub(super) fn value_of<'a>(service: &'a Service, annotation: &Annotation) -> Option<&'a str> {
    let mut all = service.annotations.iter();
    let (_, value) = all.find(|(key, _)| {
        let name = key.strip_prefix(PREFIX);
        name.is_some_and(|name| name.eq_ignore_ascii_case(annotation.name))
    })?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// Of what a problem or a finding is about.
pub(super) fn hash(about: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    about.hash(&mut hasher);
    hasher.finish()
}

fn known(name: &str) -> Option<&'static Annotation> {
    let mut rows = TABLE.iter();
    rows.find(|row| row.name.eq_ignore_ascii_case(name))
        .copied()
}

/// `name (number)`, or the number alone.
fn shown(port: &ServicePort) -> String {
    match port.name.as_str() {
        "" => port.port.to_string(),
        name => format!("{name} ({})", port.port),
    }
}

fn unknown(key: &str, name: &str) -> Finding {
    let names = TABLE.iter().filter(|row| row.is_read()).map(|row| row.name);
    let meant = match nearest(&name.to_ascii_lowercase(), names) {
        Some(name) => format!("; did you mean {PREFIX}{name}?"),
        None => String::new(),
    };
    Finding::warning(
        Reason::UnknownAnnotation,
        format!("annotation {key} is not one that is known{meant}"),
    )
}
