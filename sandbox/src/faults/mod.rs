//! Simulates faults between a client and an API, such as errors, delays and lost answers.
//!
//! A [`Rule`] says which [`Effect`] a fault has, and on which API calls. [`Faults::random`] gives random effects to a
//! share of all calls. For each request, the HTTP server asks [`Faults`] for a `Plan`, which says what happens to the
//! request. The delays of faults are real durations, which the time scale of the sandbox does not shorten. A sandbox
//! without sockets ([`Builder::in_memory`](crate::Builder::in_memory)) does not wait for these delays. Instead, it
//! calls a function that the caller passes along with the request.

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

/// How an answer is sent to the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delivery {
    /// The whole answer is sent with the header `Content-Length`.
    Whole,
    /// The whole answer is sent with `Transfer-Encoding: chunked`.
    Chunked,
    /// The whole answer is sent in parts of `bytes` bytes, with a pause after each part.
    Drip { bytes: usize, pause: Duration },
    /// The header `Content-Length` is the length of the whole body, but the connection ends after half of the body.
    CutOff,
    /// Half of the body is sent in chunks. Then the connection ends without the last chunk.
    CutOffChunked,
}

/// The faults of one sandbox: the fault rules that tests have added, and the random faults.
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
    /// Adds a fault rule, which applies to later API calls. When several rules apply to a call, their effects are
    /// combined in the order in which the rules were added.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.state();
        state.last += 1;
        let id = RuleId(state.last);
        state.rules.push((id, rule));
        id
    }

    /// Removes a fault rule. Returns false when there is no such rule.
    pub fn remove(&self, id: RuleId) -> bool {
        let mut state = self.state();
        let before = state.rules.len();
        state.rules.retain(|(other, _)| *other != id);
        state.rules.len() < before
    }

    /// Returns the number of API calls to which the rule has applied its effect. Returns 0 when there is no such rule.
    pub fn hits(&self, id: RuleId) -> u64 {
        self.state().rules.iter().find(|(other, _)| *other == id).map_or(0, |(_, rule)| rule.hits())
    }

    /// Makes a share of all API calls fail at random. The share is `rate` (0 to 1).
    ///
    /// The effect on a call depends on the seed, on the call's API, method and path, and on how many calls with the
    /// same API, method and path came before. It does not depend on other calls. A program that makes the same calls
    /// again therefore gets the same faults with the same seed.
    pub fn random(&self, seed: u64, rate: f64) {
        self.state().random = Some(Random::new(seed, rate));
    }

    /// Returns the seed of the random faults, so that a failed test can print it. Returns `None` when
    /// [`random`](Faults::random) was not called.
    pub fn seed(&self) -> Option<u64> {
        self.state().random.as_ref().map(Random::seed)
    }

    /// Removes all fault rules, and turns off the random faults.
    pub fn clear(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.random = None;
    }

    /// Returns what the faults do to an API call. `half` is the simulated API that received the call. Each fault rule
    /// counts the calls that it matches, so this function must be called exactly once for each call.
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

/// All that the simulated faults do to one API call: how long it is delayed, which functions of the test are called
/// before and after it, and which answer the client gets.
pub(crate) struct Plan {
    names: Vec<String>,
    /// The delay before the simulated API handles the request. The other delay, `answer_delay`, comes after the API has
    /// handled the request and before the first byte of the answer is sent.
    pub delay: Duration,
    pub answer_delay: Duration,
    before: Vec<Hook>,
    after: Vec<Hook>,
    pub outcome: Outcome,
}

/// Whether the simulated API handles the request, and which answer the client gets.
pub(crate) enum Outcome {
    Handle(Delivery),
    /// The simulated API handles the request. This function gets the answer of the API, and the client gets the answer
    /// that the function returns.
    Change(Box<dyn Fn(Response) -> Response + Send>),
    /// The simulated API does not handle the request. The client gets this answer.
    Instead(Response),
    /// The simulated API does not handle the request, and the connection is reset.
    Reset,
    /// The simulated API handles the request, but the connection ends without an answer.
    Lose,
}

impl Plan {
    /// Combines the effects of all faults that apply to one API call. The delays are added up, and all functions that a
    /// test wants to be called before or after the call are called. When several effects change the answer, only the
    /// first of them is used.
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

    /// Returns the names of all faults that apply to the call, separated by commas, for the call log. Returns `None`
    /// when no fault applies.
    pub fn name(&self) -> Option<String> {
        (!self.names.is_empty()).then(|| self.names.join(", "))
    }

    /// Calls the functions that a test wants to be called before the simulated API handles the request.
    pub fn before(&self, request: &Request) {
        self.before.iter().for_each(|hook| hook(request));
    }

    /// Calls the functions that a test wants to be called after the simulated API has handled the request, and before
    /// the answer is sent.
    pub fn after(&self, request: &Request) {
        self.after.iter().for_each(|hook| hook(request));
    }
}
