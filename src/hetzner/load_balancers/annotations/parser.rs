//! The annotations of one Service, each read into its type; everything that is wrong, at once.
//!
//! A tenant writes them. What is read of a Service is bounded (250 ports, 500 annotations with 32 KiB together, see
//! `kube`); what is reported of it is bounded here.

use super::table::{self as a, Annotation, PREFIX, Scope, TABLE};
use crate::provider::{Finding, Protocol, Reason, Service, ServicePort, Source, Sourced};
use crate::text::{self, nearest};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Of problems, and of findings of one reason, so many are said; the others are counted.
const SAID_AT_MOST: usize = 10;

/// Of one reason; the rest is counted. Of one object ten findings are reported at most.
const FINDINGS_OF_A_REASON: usize = 5;

/// Of one problem or finding.
const LONGEST_MESSAGE: usize = 1000;

/// What a Service's annotations say.
pub(crate) struct AnnotationParser<'a> {
    service: &'a Service,
    set: BTreeMap<Place, Set<'a>>,
    /// What keeps the load balancer from being touched.
    pub(crate) problems: Vec<String>,
    findings: Vec<Finding>,
    /// The problems and findings that there were: each is said once, however many ports it is about.
    seen: HashSet<String>,
    /// Several Services share the load balancer.
    is_shared: bool,
    /// What is wrong with what they want of the whole of it.
    pub(crate) whole_problems: Vec<String>,
    /// What to do about a problem that does not say it.
    pub(crate) fix: Option<String>,
}

/// Who decides about the whole load balancer.
pub(crate) struct Deciders<'a, 'b> {
    /// The Services that decide, the oldest first.
    pub(crate) deciders: &'b [&'a Service],
    /// Whether other Services use the load balancer, too.
    pub(crate) is_shared: bool,
    pub(crate) is_external: bool,
    /// Why the annotation of a Service that does not decide has no effect.
    pub(crate) why_others_do_not: String,
}

/// Name of an annotation, and the listen port that it is about alone; always a TCP one.
type Place = (&'static str, Option<u16>);

/// One annotation that is there and known.
struct Set<'a> {
    key: Cow<'a, str>,
    value: &'a str,
    /// It does not parse, which is a problem already.
    is_bad: bool,
}

impl<'a> AnnotationParser<'a> {
    pub(crate) fn new(service: &'a Service) -> AnnotationParser<'a> {
        let mut parser = AnnotationParser {
            service,
            set: BTreeMap::new(),
            problems: Vec::new(),
            findings: Vec::new(),
            seen: HashSet::new(),
            is_shared: false,
            whole_problems: Vec::new(),
            fix: None,
        };
        for (key, value) in &service.annotations {
            if let Some(name) = key.strip_prefix(PREFIX) {
                parser.note(key, name, value.trim());
            }
        }
        parser
    }

    /// The value for a port, or with none for the whole; empty texts count as not set.
    pub(crate) fn read<T>(
        &mut self,
        annotation: &'static Annotation,
        port: Option<&ServicePort>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        let place = self.place(annotation, port)?;
        let set = self.set.get_mut(&place)?;
        let (key, value) = (set.key.clone(), set.value);
        // It is read for each port that it holds for.
        if value.is_empty() || set.is_bad {
            return None;
        }
        let (length, longest) = (value.len(), annotation.longest);
        let parsed = if length <= longest {
            parse(value)
        } else {
            Err(format!("it has {length} bytes, and {longest} at most are read"))
        };
        match parsed {
            Ok(value) => Some(Sourced::new(value, Source::Annotation(key.into_owned()))),
            Err(why) => {
                set.is_bad = true;
                let why = format!("annotation {key}: {}: {why}", text::quoted(value));
                match annotation.scope {
                    Scope::Whole => self.whole_problem(why),
                    Scope::Port | Scope::Service => self.problem(why),
                }
                None
            }
        }
    }

    /// Replaces what the Service says about the whole load balancer by the word of the oldest Service that may decide and
    /// says something. Which nodes are targets of an external load balancer each of its Services says for itself.
    pub(crate) fn join(&mut self, whole: &Deciders<'a, '_>) {
        let service = self.service;
        self.is_shared = whole.is_shared;
        let of_targets = [a::NODE_SELECTOR.name, a::USE_PRIVATE_IP.name];
        let of_whole = TABLE.iter().filter(|one| one.scope == Scope::Whole);
        for annotation in of_whole.copied() {
            if whole.is_external && of_targets.contains(&annotation.name) {
                continue;
            }
            let place = (annotation.name, None);
            let own = self.set.get(&place).map(|own| own.value);
            let first = whole.deciders.iter().find(|one| has(one, annotation));
            let is_own = first.map_or(own.is_none(), |first| first.uid == service.uid);
            if is_own {
                continue;
            }
            let value = first.and_then(|first| value_of(first, annotation));
            let value = value.unwrap_or_default();
            if own.is_some_and(|own| first.is_none() || own != value) {
                let why = match first.filter(|first| first.namespace == service.namespace) {
                    Some(one) => format!(
                        "{} sets {} for the load balancer",
                        first_to_decide(one),
                        text::quoted(value)
                    ),
                    None => whole.why_others_do_not.clone(),
                };
                let key = annotation.key();
                let why = format!("annotation {key} has no effect: {why}");
                self.warning(Reason::AnnotationWithoutEffect, why);
            }
            self.set.remove(&place);
            if let Some(first) = first {
                let key = format!("{} of Service {}", annotation.key(), first.full_name());
                let (key, is_bad) = (key.into(), false);
                self.set.insert(place, Set { key, value, is_bad });
            }
        }
    }

    /// Does it stand there at all, empty or not?
    pub(crate) fn has(&self, annotation: &'static Annotation, port: Option<&ServicePort>) -> bool {
        self.place(annotation, port).is_some()
    }

    /// Does it ask for something, for all ports or for a single one? What is turned off has the effect that was asked
    /// for.
    pub(crate) fn asks(&self, annotation: &'static Annotation) -> bool {
        let mut all = self.values(annotation);
        all.any(|set| !set.value.is_empty() && text::boolean(set.value) != Ok(false))
    }

    /// Does one of its values not parse? Then what follows from it is not known.
    pub(crate) fn is_bad(&self, annotation: &'static Annotation) -> bool {
        self.values(annotation).any(|set| set.is_bad)
    }

    /// The values for all ports and for single ones.
    fn values(&self, annotation: &'static Annotation) -> impl Iterator<Item = &Set<'a>> {
        let name = annotation.name;
        let all = self.set.range((name, None)..=(name, Some(u16::MAX)));
        all.map(|(_, set)| set)
    }

    pub(crate) fn problem(&mut self, problem: String) {
        if self.seen.insert(problem.clone()) {
            self.problems.push(text::cut(&problem, LONGEST_MESSAGE).into_owned());
        }
    }

    /// About the whole load balancer. Where others share it, their ports do not wait for its end.
    pub(crate) fn whole_problem(&mut self, problem: String) {
        if self.is_shared { self.whole_problems.push(problem) } else { self.problem(problem) }
    }

    /// It stays where it is, because it can't have what it asks for: what others decide about the whole is theirs.
    pub(crate) fn stays(&mut self, why: Finding) {
        if self.is_shared {
            self.whole_problem(why.text().into_owned())
        } else {
            self.finding(Finding { reason: Reason::SyncLoadBalancerFailed, ..why })
        }
    }

    /// A problem that keeps the load balancer from being touched, with what to do about it.
    pub(crate) fn blocked(&mut self, why: Finding) {
        self.problem(why.message);
        self.fix = self.fix.take().or(why.fix);
    }

    /// What is wrong with the whole keeps a load balancer from being made, and leaves one that is there as it is.
    pub(crate) fn end_whole(&mut self, is_there: bool) {
        for problem in self.whole_problems.clone() {
            if is_there {
                let stays = "until it is corrected, only ports are changed";
                let why = format!("{problem}; {stays}");
                self.warning(Reason::SyncLoadBalancerFailed, why);
            } else {
                self.problem(problem)
            }
        }
    }

    /// Will one more problem be said, and not only counted?
    pub(crate) fn has_room(&self) -> bool {
        self.problems.len() < SAID_AT_MOST
    }

    pub(crate) fn finding(&mut self, finding: Finding) {
        if self.seen.insert(finding.message.clone()) {
            self.findings.push(finding.by_provider());
        }
    }

    pub(crate) fn warning(&mut self, reason: Reason, message: impl Into<String>) {
        self.finding(Finding::warning(reason, message));
    }

    /// All problems, and all findings.
    pub(crate) fn end(mut self) -> (Vec<String>, Vec<Finding>) {
        if let Some(more @ 1..) = self.problems.len().checked_sub(SAID_AT_MOST) {
            self.problems.truncate(SAID_AT_MOST);
            self.problems.push(format!("and {more} more problems"));
        }
        let mut counts: BTreeMap<Reason, usize> = BTreeMap::new();
        let mut findings = self.findings;
        findings.retain_mut(|finding| {
            finding.message = text::cut(&finding.message, LONGEST_MESSAGE).into_owned();
            let count = counts.entry(finding.reason).or_default();
            *count += 1;
            *count <= FINDINGS_OF_A_REASON
        });
        // Their names were not kept.
        if let Some(count) = counts.get_mut(&Reason::UnknownAnnotation) {
            *count += self.service.more_unknown;
        }
        for (reason, count) in counts {
            if let Some(more @ 1..) = count.checked_sub(FINDINGS_OF_A_REASON) {
                let message =
                    format!("and {more} more like the {FINDINGS_OF_A_REASON} that are reported");
                findings.push(Finding::warning(reason, message).by_provider());
            }
        }
        (self.problems, findings)
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
        let mut parts = name.splitn(2, '.');
        let (name, suffix) = (parts.next().unwrap_or_default(), parts.next());
        let is_it = |row: &&&Annotation| row.name.eq_ignore_ascii_case(name);
        let Some(annotation) = TABLE.iter().find(is_it) else {
            return self.warning(Reason::UnknownAnnotation, unknown(key, name));
        };
        if !annotation.is_read() {
            return;
        }
        let port = suffix.map(|suffix| self.port(annotation, key, suffix));
        if port == Some(None) {
            return;
        }
        let place = (annotation.name, port.flatten());
        let set = self.set.entry(place).or_insert(Set { key: key.into(), value, is_bad: false });
        if set.value != value {
            let other = set.key.clone();
            self.problem(format!(
                "annotations {other} and {key} are about the same and differ; remove one"
            ));
        }
    }

    /// The TCP port that a suffix names.
    fn port(&mut self, annotation: &Annotation, key: &str, suffix: &str) -> Option<u16> {
        if annotation.scope != Scope::Port {
            self.problem(format!(
                "annotation {key}: {} is about the whole load balancer: write {}",
                annotation.name,
                annotation.key()
            ));
            return None;
        }
        let Some(port) = find_port(self.service, suffix) else {
            let there: Vec<String> = self.service.ports.iter().map(shown).collect();
            self.problem(format!(
                "annotation {key}: the Service has no port {suffix:?}; it has {}",
                text::some_of(&there)
            ));
            return None;
        };
        if port.protocol == Protocol::Tcp {
            return Some(port.port);
        }
        let why = format!(
            "annotation {key} has no effect: port {} is {}, and Hetzner's load balancers take TCP only",
            shown(port),
            port.protocol.name()
        );
        self.warning(Reason::AnnotationWithoutEffect, why);
        None
    }
}

/// By its name, else by its number. Of two with one number the TCP one is the load balancer's.
fn find_port<'a>(service: &'a Service, suffix: &str) -> Option<&'a ServicePort> {
    let mut ports = service.ports.iter();
    let by_name = ports.find(|port| port.name.eq_ignore_ascii_case(suffix));
    let number = suffix.parse::<u16>().ok();
    let number = number.filter(|number| number.to_string() == suffix);
    let by_number = || {
        let ports = service.ports.iter().filter(|port| Some(port.port) == number);
        ports.min_by_key(|port| port.protocol != Protocol::Tcp)
    };
    by_name.or_else(by_number)
}

/// Does a Service set it, for the whole or for a port?
pub(crate) fn has(service: &Service, annotation: &Annotation) -> bool {
    values_of(service, annotation).next().is_some()
}

/// What a Service sets it to, for the whole and for ports.
pub(crate) fn values_of<'a>(
    service: &'a Service,
    annotation: &Annotation,
) -> impl Iterator<Item = &'a str> {
    let is_it = |key: &str| {
        let name = key.strip_prefix(PREFIX).and_then(|key| key.split('.').next());
        name.is_some_and(|name| name.eq_ignore_ascii_case(annotation.name))
    };
    service.annotations.iter().filter(move |(key, _)| is_it(key)).map(|(_, value)| value.trim())
}

/// The value that a Service sets for the whole, without what else its annotations say; none: unset or empty.
pub(crate) fn value_of<'a>(service: &'a Service, annotation: &Annotation) -> Option<&'a str> {
    let (_, value) = service.annotations.iter().find(|(key, _)| {
        let name = key.strip_prefix(PREFIX);
        name.is_some_and(|name| name.eq_ignore_ascii_case(annotation.name))
    })?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// `name (number)`, or the number alone.
fn shown(port: &ServicePort) -> String {
    match port.name.as_str() {
        "" => port.port.to_string(),
        name => format!("{name} ({})", port.port),
    }
}

fn unknown(key: &str, name: &str) -> String {
    let names = TABLE.iter().filter(|row| row.is_read()).map(|row| row.name);
    let meant = match nearest(&name.to_ascii_lowercase(), names) {
        Some(name) => format!("; did you mean {PREFIX}{name}?"),
        None => String::new(),
    };
    format!("annotation {key} is not one that is known{meant}")
}

/// One that decides before another one. In a manifest Services have no age.
pub(crate) fn first_to_decide(service: &Service) -> String {
    let why = match service.created {
        Some(_) => "is older",
        None => "comes first",
    };
    format!("Service {}, which {why},", service.full_name())
}
