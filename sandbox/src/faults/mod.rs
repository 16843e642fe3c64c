//! Faults between a client and an API. Rules or a seed choose the calls that a fault hits.
//!
//! A [`Rule`] says which calls it hits and with which [`Effect`]. [`Faults::random`] chooses effects for a share
//! of all calls. The server asks [`Faults`] once for each request and follows the `Plan`. The sandbox's scale does
//! not change the delays. When the sandbox is in memory, the server does not wait for the delays itself, but calls
//! the caller's `pause` function.

mod effect;
mod random;
mod rule;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use effect::{Effect, Hook};
pub use random::SplitMix64;
pub use rule::Rule;

use crate::Half;
use crate::exchange::{Request, Response};
use random::Random;

/// How an answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delivery {
    /// The whole answer with `Content-Length`.
    Whole,
    /// The whole answer with `Transfer-Encoding: chunked`.
    Chunked,
    /// The whole answer in parts of `bytes` bytes, with a pause after each part.
    Drip { bytes: usize, pause: Duration },
    /// `Content-Length` is that of the whole body, but the connection ends after half of the body.
    CutOff,
    /// Half of the body is sent in chunks. Then the connection ends without the last chunk.
    CutOffChunked,
}

/// The faults of one sandbox.
#[derive(Default)]
pub struct Faults {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RuleId(u64);

#[derive(Default)]
struct State {
    rules: Vec<(RuleId, Rule)>,
    last: u64,
    random: Option<Random>,
}

impl Faults {
    /// Adds a rule, which is checked for every later call. Rules are checked in the order in which they were added.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.state();
        state.last += 1;
        let id = RuleId(state.last);
        state.rules.push((id, rule));
        id
    }

    /// Removes a rule. Returns false when there is no such rule.
    pub fn remove(&self, id: RuleId) -> bool {
        let mut state = self.state();
        let before = state.rules.len();
        state.rules.retain(|(other, _)| *other != id);
        state.rules.len() < before
    }

    /// Returns how many calls the rule has hit, or 0 when there is no such rule.
    pub fn hits(&self, id: RuleId) -> u64 {
        self.state().rules.iter().find(|(other, _)| *other == id).map_or(0, |(_, rule)| rule.hits())
    }

    /// Makes a share of all calls fail in some way. The share is `rate` (0 to 1), and `seed` chooses the calls.
    ///
    /// The effect on a call depends on the seed, on the call's API, method and path, and on how often such a call was
    /// made before. The effect does not depend on the order of different calls. The same seed causes the same faults
    /// for the same work.
    pub fn random(&self, seed: u64, rate: f64) {
        self.state().random = Some(Random::new(seed, rate));
    }

    /// Returns the seed of [`random`](Faults::random), so that a test can print the seed when it fails.
    pub fn seed(&self) -> Option<u64> {
        self.state().random.as_ref().map(Random::seed)
    }

    /// Removes all rules and random faults.
    pub fn clear(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.random = None;
    }

    /// Chooses the faults of this call. Each rule that matches the call counts it.
    pub(crate) fn plan(&self, half: Half, request: &Request) -> Plan {
        let mut state = self.state();
        let mut effects: Vec<Effect> =
            state.rules.iter_mut().filter_map(|(_, rule)| rule.hit(half, request)).collect();
        effects.extend(state.random.as_mut().and_then(|random| random.draw(half, request)));
        Plan::new(effects)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The faults of one call: its delays, its hooks, and its outcome.
pub(crate) struct Plan {
    names: Vec<String>,
    /// The delay before the handler runs. `answer_delay` is the delay between the handler's answer and the first
    /// byte that is sent.
    pub delay: Duration,
    pub answer_delay: Duration,
    before: Vec<Hook>,
    after: Vec<Hook>,
    pub outcome: Outcome,
}

/// Whether the handler runs, and which answer the client gets.
pub(crate) enum Outcome {
    Handle(Delivery),
    /// The handler runs, and the client gets another answer.
    Change(Box<dyn Fn(Response) -> Response + Send>),
    /// The handler does not run, and the client gets this answer instead.
    Instead(Response),
    /// The handler does not run, and the connection is reset.
    Reset,
    /// The handler runs, and the connection ends without an answer.
    Lose,
}

impl Plan {
    /// Combines the effects on a call. All hooks run, the delays are added up, and the first effect that changes the
    /// answer wins over later ones.
    fn new(effects: Vec<Effect>) -> Plan {
        let mut plan = Plan {
            names: Vec::new(),
            delay: Duration::ZERO,
            answer_delay: Duration::ZERO,
            before: Vec::new(),
            after: Vec::new(),
            outcome: Outcome::Handle(Delivery::Whole),
        };
        let mut decided = false;
        for effect in effects {
            let name = effect.to_string();
            let outcome = match effect {
                Effect::Slow(delay) => {
                    plan.delay += delay;
                    None
                }
                Effect::SlowAnswer(delay) => {
                    plan.answer_delay += delay;
                    None
                }
                Effect::Before(hook) => {
                    plan.before.push(hook);
                    None
                }
                Effect::After(hook) => {
                    plan.after.push(hook);
                    None
                }
                Effect::Instead(response) => Some(Outcome::Instead(response)),
                Effect::AfterAll(response) => {
                    Some(Outcome::Change(Box::new(move |_| response.clone())))
                }
                Effect::Changed(change) => {
                    Some(Outcome::Change(Box::new(move |response| change(response))))
                }
                Effect::Malformed => Some(Outcome::Change(Box::new(effect::malformed))),
                Effect::Reset => Some(Outcome::Reset),
                Effect::AnswerLost => Some(Outcome::Lose),
                Effect::Deliver(delivery) => Some(Outcome::Handle(delivery)),
            };
            match outcome {
                Some(_) if decided => continue,
                Some(outcome) => {
                    plan.outcome = outcome;
                    decided = true;
                }
                None => {}
            }
            plan.names.push(name);
        }
        plan
    }

    /// Returns the names of the effects for the call log, or `None` when there is no effect.
    pub fn name(&self) -> Option<String> {
        (!self.names.is_empty()).then(|| self.names.join(", "))
    }

    /// Runs the hooks that come before the handler.
    pub fn before(&self, request: &Request) {
        self.before.iter().for_each(|hook| hook(request));
    }

    /// Runs the hooks between the handler and the answer's first byte.
    pub fn after(&self, request: &Request) {
        self.after.iter().for_each(|hook| hook(request));
    }
}
