//! The fault rules. A rule says what a fault does, and to which API calls.

use std::fmt;

use super::{Effect, SplitMix64};
use crate::Half;
use crate::calls::is_write;
use crate::exchange::Request;

/// A fault rule: what a fault does (its effect), and which API calls get this effect. By default, a rule applies to
/// every call that it matches. Functions such as [`nth`](Rule::nth) limit the rule to some of the matching calls.
///
/// ```
/// # use sandbox::{Half, faults::{Effect, Rule}};
/// // The second creation of a load balancer takes effect, but the client gets no answer.
/// let rule = Rule::new(Effect::AnswerLost).half(Half::Hetzner).method("POST").path("/v1/load_balancers").nth(2);
/// ```
pub struct Rule {
    effect: Effect,
    half: Option<Half>,
    methods: Vec<String>,
    writes: bool,
    path: Option<String>,
    condition: Option<Condition>,
    choice: Choice,
    times: Option<u64>,
    /// How many API calls the rule has matched so far, including matching calls to which it did not apply its effect.
    matched: u64,
    /// The number of API calls to which the rule has applied its effect so far.
    hits: u64,
}

type Condition = Box<dyn Fn(&Request) -> bool + Send>;

enum Choice {
    All,
    Nth(u64),
    Every(u64),
    Probability(f64, SplitMix64),
}

impl Rule {
    /// Creates a rule with this effect that matches every call to every simulated API.
    pub fn new(effect: Effect) -> Rule {
        Rule {
            effect,
            half: None,
            methods: Vec::new(),
            writes: false,
            path: None,
            condition: None,
            choice: Choice::All,
            times: None,
            matched: 0,
            hits: 0,
        }
    }

    pub fn half(mut self, half: Half) -> Rule {
        self.half = Some(half);
        self
    }

    /// Makes the rule match calls with this HTTP method only. A second call of this function adds another method.
    pub fn method(mut self, method: &str) -> Rule {
        self.methods.push(method.to_ascii_uppercase());
        self
    }

    /// Makes the rule match only calls with the methods POST, PUT, PATCH and DELETE.
    pub fn writes(mut self) -> Rule {
        self.writes = true;
        self
    }

    /// Makes the rule match only calls to paths with this pattern, e.g. `/v1/servers/*` or `/api/**`. `*` stands for
    /// one segment of the path, and `**` at the end stands for the rest of the path.
    pub fn path(mut self, pattern: &str) -> Rule {
        self.path = Some(pattern.to_owned());
        self
    }

    /// Makes the rule match only requests for which `condition` returns true.
    pub fn when(mut self, condition: impl Fn(&Request) -> bool + Send + 'static) -> Rule {
        self.condition = Some(Box::new(condition));
        self
    }

    /// Applies the effect only to the n-th matching call, counted from 1.
    pub fn nth(mut self, n: u64) -> Rule {
        self.choice = Choice::Nth(n);
        self
    }

    /// Applies the effect to every k-th matching call: to the calls k, 2k, 3k and so on.
    pub fn every(mut self, k: u64) -> Rule {
        self.choice = Choice::Every(k.max(1));
        self
    }

    /// Applies the effect to a random share (0 to 1) of the matching calls. When a test is repeated with the same seed,
    /// and the calls come in the same order, the same calls are chosen.
    pub fn probability(mut self, share: f64, seed: u64) -> Rule {
        self.choice = Choice::Probability(share, SplitMix64::new(seed));
        self
    }

    /// Applies the effect to at most `times` calls. Calls that come later are not changed.
    pub fn times(mut self, times: u64) -> Rule {
        self.times = Some(times);
        self
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    /// Counts an API call if the rule matches it. Returns the effect if the rule applies to this call. A rule can match
    /// a call without applying to it, e.g. when it applies only to the n-th matching call. The result is `None` when
    /// the call gets no effect from this rule.
    pub(super) fn hit(&mut self, half: Half, request: &Request) -> Option<Effect> {
        if !self.matches(half, request) {
            return None;
        }
        self.matched += 1;
        let chosen = match &mut self.choice {
            Choice::All => true,
            Choice::Nth(n) => self.matched == *n,
            Choice::Every(k) => self.matched.is_multiple_of(*k),
            Choice::Probability(share, generator) => generator.fraction() < *share,
        };
        if !chosen || self.times.is_some_and(|times| self.hits >= times) {
            return None;
        }
        self.hits += 1;
        Some(self.effect.clone())
    }

    fn matches(&self, half: Half, request: &Request) -> bool {
        self.half.is_none_or(|wanted| wanted == half)
            && (self.methods.is_empty() || self.methods.contains(&request.method))
            && (!self.writes || is_write(&request.method))
            && self.path.as_deref().is_none_or(|pattern| path_matches(pattern, &request.path))
            && self.condition.as_ref().is_none_or(|condition| condition(request))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on {:?} {:?} {:?}, {} hits",
            self.effect, self.half, self.methods, self.path, self.hits
        )
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for wanted in pattern.split('/') {
        match (wanted, segments.next()) {
            ("**", Some(_)) => return true,
            ("*", Some(segment)) if !segment.is_empty() => {}
            (literal, Some(segment)) if literal == segment => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(method: &str, path: &str) -> Request {
        Request { method: method.into(), path: path.into(), ..Request::default() }
    }

    #[test]
    fn patterns_match_whole_paths() {
        let cases = [
            ("/v1/servers", "/v1/servers", true),
            ("/v1/servers", "/v1/servers/1", false),
            ("/v1/servers/*", "/v1/servers/1", true),
            ("/v1/servers/*", "/v1/servers", false),
            ("/v1/servers/*", "/v1/servers/", false),
            ("/v1/servers/*", "/v1/servers/1/actions", false),
            ("/v1/*/1", "/v1/networks/1", true),
            ("/v1/**", "/v1/networks/1", true),
            ("/v1/**", "/v1", false),
            ("/**", "/", true),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_rule_applies_to_the_chosen_calls() {
        let slow = || Rule::new(Effect::Slow(Duration::ZERO));
        let cases: [(&str, Rule, [bool; 6]); 7] = [
            ("all", slow(), [true; 6]),
            ("nth", slow().nth(3), [false, false, true, false, false, false]),
            ("every", slow().every(2), [false, true, false, true, false, true]),
            ("times", slow().times(2), [true, true, false, false, false, false]),
            ("every, times", slow().every(2).times(1), [false, true, false, false, false, false]),
            ("never", slow().probability(0.0, 1), [false; 6]),
            ("always", slow().probability(1.0, 1), [true; 6]),
        ];
        for (name, mut rule, expected) in cases {
            let hit =
                std::array::from_fn(|_| rule.hit(Half::Hetzner, &request("GET", "/")).is_some());
            assert_eq!(hit, expected, "{name}");
        }
    }

    #[test]
    fn a_rule_matches_what_all_its_parts_match() {
        let any = || Rule::new(Effect::Reset);
        let cases = [
            (any(), true),
            (any().half(Half::Hetzner), true),
            (any().half(Half::Kubernetes), false),
            (any().method("post"), true),
            (any().method("GET"), false),
            (any().method("GET").method("POST"), true),
            (any().writes(), true),
            (any().path("/v1/*"), true),
            (any().path("/v1"), false),
            (any().when(|request| request.body.is_empty()), true),
            (any().when(|request| !request.body.is_empty()), false),
        ];
        for (mut rule, expected) in cases {
            let hit = rule.hit(Half::Hetzner, &request("POST", "/v1/servers")).is_some();
            assert_eq!(hit, expected, "{rule:?}");
        }
    }
}
