//! Reads the annotations of one Service, parses each value, and reports all mistakes together.
//!
//! Users of the cluster write the annotations, so their size is limited. The module `kube` reads at most 250 ports of a
//! Service, and at most 500 annotations with 32 KiB together. This file limits how many mistakes are reported.

use super::table::{self as a, Annotation, AnnotationScope, PREFIX, TABLE};
use crate::provider::{Finding, Protocol, Reason, Service, ServicePort, Source, Sourced};
use crate::text::{self, nearest};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// The highest number of problems whose texts are reported. When there are more problems, a last text says how many
/// more.
const SAID_AT_MOST: usize = 10;

/// The highest number of findings (remarks for the user) with the same reason whose texts are reported. When there are
/// more, a last finding says how many more. At most ten findings are reported about one object, so this limit leaves
/// places for findings with other reasons.
const FINDINGS_OF_A_REASON: usize = 5;

/// The highest number of characters in the text of a problem (which prevents a change) or of a finding (a remark for
/// the user).
const LONGEST_MESSAGE: usize = 1000;

/// The annotations of a Service, and the mistakes that were found so far.
pub(crate) struct AnnotationParser<'a> {
    service: &'a Service,
    set: BTreeMap<Place, Set<'a>>,
    /// The texts of the problems because of which the load balancer is not changed.
    pub(crate) problems: Vec<String>,
    findings: Vec<Finding>,
    /// The texts of all problems and findings (remarks for the user) that were added so far. A text that is added
    /// again, for example for another port, is not reported twice.
    seen: HashSet<String>,
    /// Whether several Services share the load balancer.
    pub(crate) is_shared: bool,
    /// The problems with settings of the load balancer that do not belong to a single port. While there are such
    /// problems, these settings are not changed. The list is used only when several Services share the load balancer.
    /// Otherwise such problems are in `problems`.
    pub(crate) whole_problems: Vec<String>,
    /// Advice for the user, in addition to the texts of the problems. When several problems have advice, this is the
    /// advice of the first. `None` when no problem has advice.
    pub(crate) fix: Option<String>,
}

/// The name of an annotation without the prefix, and the TCP port for which it is set. The second value is `None` for
/// an annotation that is set for all ports.
type Place = (&'static str, Option<u16>);

/// An annotation that the Service has and that this program reads.
struct Set<'a> {
    key: Cow<'a, str>,
    value: &'a str,
    /// Whether the parser has already found that the value is invalid, and has reported a problem. Later reads of the
    /// value report no second problem.
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

    /// Returns the parsed value for a port, or for the whole load balancer when `port` is `None`. An empty value is
    /// treated like a missing annotation.
    pub(crate) fn read<T>(
        &mut self,
        annotation: &'static Annotation,
        port: Option<&ServicePort>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        let place = self.place(annotation, port)?;
        let set = self.set.get_mut(&place)?;
        let (key, value) = (set.key.clone(), set.value);
        // An annotation without a port in its key is read once for each port. An invalid value is reported only at the
        // first read.
        if value.is_empty() || set.is_bad {
            return None;
        }
        let (length, longest) = (value.len(), annotation.longest);
        let parsed = if length <= longest {
            parse(value)
        } else {
            Err(format!("it has {length} bytes, but at most {longest} are allowed"))
        };
        match parsed {
            Ok(value) => Some(Sourced::new(value, Source::Annotation(key.into_owned()))),
            Err(why) => {
                set.is_bad = true;
                let why = format!("annotation {key}: {} is not valid: {why}", text::quoted(value));
                match annotation.scope {
                    AnnotationScope::Whole => self.whole_problem(why),
                    AnnotationScope::Port | AnnotationScope::Service => self.problem(why),
                }
                None
            }
        }
    }

    /// Replaces this Service's values of the annotations that apply to the whole load balancer and not to a single
    /// port. This is for Services that share a load balancer. Each new value is the value of the oldest Service in
    /// `deciders` that has the annotation. `deciders` is sorted by age. On an external load balancer (one that somebody
    /// else made), the Service keeps its own values of the annotations about targets.
    ///
    /// When a value of this Service is not used, this is reported. If another Service of the same namespace sets the
    /// new value, the message names that Service. Otherwise the message is `why_not`.
    pub(crate) fn join(&mut self, deciders: &[&'a Service], is_external: bool, why_not: &str) {
        let service = self.service;
        let is_joined = |annotation: &&Annotation| {
            let is_own = is_external && annotation.is_of_targets();
            annotation.scope == AnnotationScope::Whole && !is_own
        };
        for annotation in TABLE.iter().copied().filter(is_joined) {
            let place = (annotation.name, None);
            let own = self.set.get(&place).map(|own| own.value);
            let first = deciders.iter().find(|service| has(service, annotation));
            if first.map_or(own.is_none(), |first| first.uid == service.uid) {
                continue;
            }
            let value = first.and_then(|first| value_of(first, annotation)).unwrap_or_default();
            if own.is_some_and(|own| first.is_none() || own != value) {
                let why = match first.filter(|first| first.namespace == service.namespace) {
                    Some(one) => format!(
                        "{} sets {} for the load balancer that both Services share. Remove the annotation from Service \
                         {}, or change it on Service {}",
                        first_to_decide(one),
                        text::quoted(value),
                        service.full_name(),
                        one.full_name()
                    ),
                    None => why_not.to_owned(),
                };
                let key = annotation.key();
                let why = format!("annotation {key} has no effect, because {why}");
                self.warning(Reason::AnnotationWithoutEffect, why);
            }
            self.set.remove(&place);
            if let Some(first) = first {
                let key = format!("{} of Service {}", annotation.key(), first.full_name());
                self.set.insert(place, Set { key: key.into(), value, is_bad: false });
            }
        }
    }

    /// Whether the Service sets the annotation for this port or for all ports, even to an empty value.
    pub(crate) fn has(&self, annotation: &'static Annotation, port: Option<&ServicePort>) -> bool {
        self.place(annotation, port).is_some()
    }

    /// Whether the Service asks for something by this annotation: the annotation has a value that is neither empty nor
    /// `false`, for all ports or for a single port. The value `false` is also the default, so it asks for nothing.
    pub(crate) fn asks(&self, annotation: &'static Annotation) -> bool {
        let mut all = self.values(annotation);
        all.any(|set| !set.value.is_empty() && text::boolean(set.value) != Ok(false))
    }

    /// Whether the Service itself sets the annotation. An annotation about ports counts as set only when it is set for
    /// all TCP ports of the Service. When the result is `true`, the default of the annotation has no effect. For the
    /// annotations `labels` and `type-max` the result is always `false`, because their defaults have an effect in
    /// addition to the Service's values.
    pub(crate) fn sets(&self, annotation: &'static Annotation) -> bool {
        let is_set = |port: Option<&ServicePort>| {
            let set = self.place(annotation, port).and_then(|place| self.set.get(&place));
            set.is_some_and(|set| annotation.is_place() || !set.value.is_empty())
        };
        match annotation.scope {
            _ if [a::LABELS.name, a::TYPE_MAX.name].contains(&annotation.name) => false,
            AnnotationScope::Port => {
                let tcp = |port: &&ServicePort| port.protocol == Protocol::Tcp;
                self.service.ports.iter().filter(tcp).all(|port| is_set(Some(port)))
            }
            AnnotationScope::Whole | AnnotationScope::Service => is_set(None),
        }
    }

    /// Whether one of the annotation's values was read and could not be parsed.
    pub(crate) fn is_bad(&self, annotation: &'static Annotation) -> bool {
        self.values(annotation).any(|set| set.is_bad)
    }

    /// Returns the annotation's value for all ports and its values for single ports.
    fn values(&self, annotation: &'static Annotation) -> impl Iterator<Item = &Set<'a>> {
        let name = annotation.name;
        self.set.range((name, None)..=(name, Some(u16::MAX))).map(|(_, set)| set)
    }

    pub(crate) fn problem(&mut self, problem: String) {
        if self.seen.insert(problem.clone()) {
            self.problems.push(text::cut(&problem, LONGEST_MESSAGE).into_owned());
        }
    }

    /// Adds a problem (a mistake in an annotation) with a setting of the whole load balancer, and not of a single port.
    /// When several Services share the load balancer, the ports of an existing load balancer are still changed. When
    /// the Service uses the load balancer alone, nothing of it is changed until the mistake is corrected.
    pub(crate) fn whole_problem(&mut self, problem: String) {
        if self.is_shared { self.whole_problems.push(problem) } else { self.problem(problem) }
    }

    /// Reports why the Service stays on its present load balancer although its annotations ask for another one.
    /// `others_decide` means that the settings of the present load balancer come from annotations of other Services.
    /// The plan for this Service then changes only ports, and no settings of the whole load balancer.
    pub(crate) fn stays(&mut self, why: Finding, others_decide: bool) {
        if others_decide {
            self.whole_problem(why.text().into_owned())
        } else {
            self.finding(Finding { reason: Reason::SyncLoadBalancerFailed, ..why })
        }
    }

    /// Adds a problem because of which the load balancer is not changed, with the advice what to do about it.
    pub(crate) fn blocked(&mut self, why: Finding) {
        self.problem(why.message);
        self.fix = self.fix.take().or(why.fix);
    }

    /// Reports the problems with settings of the load balancer that do not belong to a single port. While there are
    /// such problems, no new load balancer is created, and only the ports of an existing load balancer are changed.
    /// `is_there` says that the load balancer exists.
    pub(crate) fn end_whole(&mut self, is_there: bool) {
        for problem in self.whole_problems.clone() {
            if is_there {
                let stays =
                    "Until this is corrected, ccm changes only the ports of the load balancer";
                let why = format!("{problem}. {stays}");
                self.warning(Reason::SyncLoadBalancerFailed, why);
            } else {
                self.problem(problem)
            }
        }
    }

    /// Whether the text of one more problem would be reported. No more texts are reported when there are already
    /// `SAID_AT_MOST` problems.
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

    /// Returns the texts of the problems, and the findings (messages for the operator). Long texts are cut. When there
    /// are too many texts, the last one says how many are left out.
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
        // An annotation that this program does not know is reported by its key. When a Service has very many of them,
        // only some of their keys are kept in memory. `more_unknown` is the number of the other keys. It is added here
        // so that the reported number is right.
        if let Some(count) = counts.get_mut(&Reason::UnknownAnnotation) {
            *count += self.service.more_unknown;
        }
        for (reason, count) in counts {
            if let Some(more @ 1..) = count.checked_sub(FINDINGS_OF_A_REASON) {
                let message = format!(
                    "ccm reports only {FINDINGS_OF_A_REASON} messages with reason {}, and leaves out {more} more",
                    reason.name()
                );
                findings.push(Finding::warning(reason, message).by_provider());
            }
        }
        (self.problems, findings)
    }

    /// Returns the key under which the map `set` has the annotation's value for this port. A value for this port alone
    /// takes precedence over a value for all ports. `None` when the Service has neither value.
    fn place(&self, annotation: &'static Annotation, port: Option<&ServicePort>) -> Option<Place> {
        // A Service can have a UDP port and a TCP port with the same number. An annotation for a single port applies
        // only to the TCP port.
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
        if !annotation.is_read {
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
                "annotations {other} and {key} mean the same, but have different values: remove one of them"
            ));
        }
    }

    /// Returns the TCP port whose name or number follows the dot in the annotation's key. When the annotation has no
    /// effect, the function reports why, and returns `None`.
    fn port(&mut self, annotation: &Annotation, key: &str, suffix: &str) -> Option<u16> {
        if annotation.scope != AnnotationScope::Port {
            self.problem(format!(
                "annotation {key}: {} is about the whole load balancer, not about one port. Write the key without the \
                 port: {}",
                annotation.name,
                annotation.key()
            ));
            return None;
        }
        let Some(port) = find_port(self.service, suffix) else {
            let there: Vec<String> = self.service.ports.iter().map(shown).collect();
            self.problem(format!(
                "annotation {key}: the Service has no port {suffix:?}. End the key with the name or the number of one \
                 of its ports: {}",
                text::some_of(&there)
            ));
            return None;
        };
        if port.protocol == Protocol::Tcp {
            return Some(port.port);
        }
        let why = format!(
            "annotation {key} has no effect, because port {} is {}, and Hetzner's load balancers take only TCP. Remove \
             the annotation",
            shown(port),
            port.protocol.name()
        );
        self.warning(Reason::AnnotationWithoutEffect, why);
        None
    }
}

/// Returns the port with this name, or else with this number, or else `None`. When a TCP and a UDP port have this
/// number, the TCP port is returned.
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

/// Whether a Service has the annotation, for all ports or for a single port.
pub(crate) fn has(service: &Service, annotation: &Annotation) -> bool {
    values_of(service, annotation).next().is_some()
}

/// Returns the values that the Service sets for the annotation, for all ports and for single ports.
pub(crate) fn values_of<'a>(
    service: &'a Service,
    annotation: &Annotation,
) -> impl Iterator<Item = &'a str> {
    let set = service.annotations.iter().filter(|(key, _)| annotation.has_key_with_port(key));
    set.map(|(_, value)| value.trim())
}

/// Returns the value of this annotation of a Service, without parsing all annotations of the Service. A value for a
/// single port is not returned. The result is `None` when the annotation is missing or empty.
pub(crate) fn value_of<'a>(service: &'a Service, annotation: &Annotation) -> Option<&'a str> {
    let (_, value) = service.annotations.iter().find(|(key, _)| {
        let name = key.strip_prefix(PREFIX);
        name.is_some_and(|name| name.eq_ignore_ascii_case(annotation.name))
    })?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// Returns the port as `name (number)`, or as its number alone when the port has no name.
fn shown(port: &ServicePort) -> String {
    match port.name.as_str() {
        "" => port.port.to_string(),
        name => format!("{name} ({})", port.port),
    }
}

fn unknown(key: &str, name: &str) -> String {
    let names = TABLE.iter().filter(|row| row.is_read).map(|row| row.name);
    // A fork of hcloud-cloud-controller-manager has the annotations external-dns-hostname and
    // external-dns-hostname-ipv4-only. This program has the annotation `hostname` for both. The names are too different
    // for the search for a similar name, so the message suggests `hostname` by this rule.
    let of_fork = name.starts_with("external-dns-hostname").then_some("hostname");
    let near = nearest(&name.to_ascii_lowercase(), names).or(of_fork);
    let meant = near.map(|name| format!("; did you mean {PREFIX}{name}?")).unwrap_or_default();
    format!("annotation {key} is unknown{meant}")
}

/// Returns the beginning of a message about a conflict between two Services. It names the Service that wins and says
/// why, e.g. `Service web/shop, which is older,`. A Service that was read from a manifest file has no age, so the text
/// is then `which comes first in the manifests`.
pub(crate) fn first_to_decide(service: &Service) -> String {
    let why = match service.created {
        Some(_) => "is older",
        None => "comes first in the manifests",
    };
    format!("Service {}, which {why},", service.full_name())
}
