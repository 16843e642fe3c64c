//! Random faults. The same seed always leads to the same faults when a test makes the same API calls again.

use std::collections::HashMap;
use std::time::Duration;

use super::Effect;
use super::effect::{hetzner_error, kubernetes_status};
use crate::Half;
use crate::exchange::Request;

/// A small generator of pseudorandom numbers. It is good enough to choose faults, and makes the same numbers on every
/// machine. (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014.)
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and is no iterator to its users"
    )]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number that is at least 0 and less than 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds")]
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a random number that is at least 0 and less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// Random faults for a share of all API calls. Each of these calls gets a random effect.
pub(super) struct Random {
    seed: u64,
    rate: f64,
    /// How often each API call was made so far. The key is a hash of the call's API, method and path.
    seen: HashMap<u64, u64>,
}

impl Random {
    pub fn new(seed: u64, rate: f64) -> Random {
        Random { seed, rate, seen: HashMap::new() }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn draw(&mut self, half: Half, request: &Request) -> Option<Effect> {
        let kind = hash(&[half.name(), &request.method, &request.path]);
        let count = self.seen.entry(kind).or_default();
        *count += 1;
        let mut generator = SplitMix64::new(self.seed ^ kind.rotate_left(17) ^ *count);
        // The first random number of each seed is not used, because simple generators give similar first numbers to
        // neighbouring seeds. This generator does not have the problem, so skipping the number is only a precaution.
        generator.next();
        (generator.fraction() < self.rate).then(|| effect(half, &mut generator))
    }
}

/// Chooses at random one of the faults that occur between clients and real APIs.
fn effect(half: Half, generator: &mut SplitMix64) -> Effect {
    let kind = generator.below(13);
    let mut short = |limit_ms| Duration::from_millis(1 + generator.below(limit_ms));
    match (kind, half) {
        (0, _) => Effect::Slow(short(100)),
        (1, _) => Effect::SlowAnswer(short(100)),
        (2, Half::Hetzner) => Effect::hetzner_rate_limit(),
        (2, Half::Kubernetes) => Effect::kubernetes_busy(1),
        (2, Half::Robot) => Effect::robot_rate_limit(200, 3600),
        (3, _) => Effect::Reset,
        (4, _) => Effect::AnswerLost,
        (5, _) => Effect::cut_off(),
        (6, _) => Effect::cut_off_chunked(),
        (7, _) => Effect::Malformed,
        (8, _) => Effect::html(),
        (9, _) => Effect::other_json(),
        (10, _) => Effect::drip(2048, Duration::from_micros(200)),
        (11, _) => Effect::gateway_timeout(),
        (_, Half::Hetzner) => match generator.below(4) {
            0 => Effect::hetzner_error(500, "server_error", "an unexpected error occurred"),
            1 => Effect::hetzner_error(502, "bad_gateway", "bad gateway"),
            2 => Effect::hetzner_error(503, "maintenance", "maintenance"),
            // This answer imitates a time-out inside the API: the client gets an error, although the request has taken
            // effect.
            _ => Effect::AfterAll(hetzner_error(504, "timeout", "the request timed out")),
        },
        (_, Half::Kubernetes) => match generator.below(3) {
            0 => Effect::kubernetes_status(
                500,
                "InternalError",
                "Internal error occurred: etcdserver: no leader",
            ),
            1 => Effect::kubernetes_status(503, "ServiceUnavailable", "apiserver is shutting down"),
            _ => {
                let message = "Timeout: request did not complete within the allotted timeout";
                Effect::AfterAll(kubernetes_status(504, "Timeout", message))
            }
        },
        (_, Half::Robot) => match generator.below(3) {
            0 => Effect::robot_error(500, "INTERNAL_ERROR", "internal error"),
            1 => Effect::robot_maintenance(),
            _ => Effect::robot_forbidden(),
        },
    }
}

/// Returns the FNV-1a hash of the parts, with a separator after each part. The hash is the same on every machine and in
/// every release of Rust.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_numbers() {
        let mut generator = SplitMix64::new(1_234_567);
        let numbers: [u64; 3] = std::array::from_fn(|_| generator.next());
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    /// Makes an API call to the path `/N` for each number N of `order`. Returns the random faults that the calls got,
    /// each with its path, sorted by path.
    fn random_faults(
        seed: u64,
        rate: f64,
        order: impl Iterator<Item = u64>,
    ) -> Vec<(String, String)> {
        let mut random = Random::new(seed, rate);
        let mut drawn: Vec<(String, String)> = order
            .filter_map(|path| {
                let path = format!("/{path}");
                let request =
                    Request { method: "GET".into(), path: path.clone(), ..Request::default() };
                Some((path, random.draw(Half::Hetzner, &request)?.to_string()))
            })
            .collect();
        drawn.sort();
        drawn
    }

    #[test]
    fn the_same_seed_gives_the_same_faults_in_any_order() {
        let forth = || (0..1000).map(|call| call % 100);
        let back = || (0..1000).rev().map(|call| call % 100);
        assert_eq!(random_faults(7, 0.3, forth()), random_faults(7, 0.3, back()));
        assert_ne!(random_faults(7, 0.3, forth()), random_faults(8, 0.3, forth()));
    }

    #[test]
    fn the_share_of_calls_with_a_fault_is_the_rate() {
        for (rate, expected) in
            [(0.0, 0..=0), (0.1, 60..=140), (0.5, 430..=570), (1.0, 1000..=1000)]
        {
            let hits = random_faults(7, rate, (0..1000).map(|call| call % 100)).len();
            assert!(expected.contains(&hits), "{hits} of 1000 at a rate of {rate}");
        }
    }
}
