//! What Prometheus sees of daemons in the sandbox: their scrapes, as series for `promtool test rules`.
//!
//! A daemon's waits last a fiftieth here, so a scrape every 0.6 s is one every half minute. Scrapes are taken at that
//! pace, and count as half a minute apart. No recording lasts as long as an alert's ranges and its `for`, so the last
//! two thirds are repeated. Gauges repeat themselves. A counter continues from its last value, and grows each time as
//! it did in them. A scrape that a busy machine took too late is missing, as it would be in reality.

use crate::common::{self, Env, SCALE, all_initialised, wait_until};
use crate::metrics::{Scrape, Watched, family};
use ccm::metrics::{MetricKind, TABLE};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The time between two scrapes as Prometheus sees it, which is the PodMonitor's interval.
pub const STEP_S: usize = 30;

/// How long every recording is shown. The longest range and the longest `for` fit into this time.
pub const SHOWN_MINUTES: usize = 110;

/// A world, the daemons that are scraped in it, and their scrapes.
pub struct Recording {
    pub sandbox: Sandbox,
    pub env: Env,
    /// The daemons by what Prometheus calls `instance`.
    pub watched: Vec<(&'static str, Watched)>,
    /// The scrapes. `None` means that no scrape was taken.
    scrapes: Vec<Option<Scrape>>,
    /// The last scrape before the cause.
    pub cause: usize,
    /// The number of scrapes that are repeated.
    repeated: usize,
    /// The time between two scrapes in the test.
    pub pace: Duration,
}

impl Recording {
    pub fn of(sandbox: Sandbox, flags: &[&str]) -> Recording {
        let env = common::env(&sandbox);
        Recording::with(sandbox, env, flags)
    }

    /// Starts one daemon and scrapes it from its first moment on, while its first plans are still to be made.
    pub fn with(sandbox: Sandbox, env: Env, flags: &[&str]) -> Recording {
        let watched = Watched::start(&env, flags);
        let mut first = watched.scrape();
        let ticked = "ccm_ticks_total{controller=\"cloud-node-controller\",result=\"ok\"}";
        wait_until("initialised nodes", || {
            let now = watched.scrape();
            let is_done = all_initialised(&sandbox) && now.get(ticked) > Some(&1.0);
            if planned(&now) > planned(&first) || planned(&first) == 0.0 {
                first = now;
            }
            is_done
        });
        Recording {
            sandbox,
            env,
            watched: vec![("10.0.0.2:8233", watched)],
            scrapes: vec![Some(seen_at("10.0.0.2:8233", first))],
            cause: 0,
            repeated: 1,
            pace: Duration::from_secs(STEP_S as u64).mul_f64(SCALE.parse().unwrap()),
        }
    }

    /// Marks the present moment as the cause of later changes.
    pub fn cause(&mut self) {
        self.cause = self.scrapes.len() - 1;
    }

    /// Takes this number of scrapes, of which the last two thirds are repeated.
    pub fn record(&mut self, scrapes: usize) {
        self.record_with(scrapes, |_| {});
    }

    /// Takes scrapes, and does something before each.
    pub fn record_with(&mut self, scrapes: usize, before_each: impl Fn(&Sandbox)) {
        let step = self.pace;
        let begun = Instant::now();
        let from = self.scrapes.len();
        while self.scrapes.len() < from + scrapes {
            let next = step * (self.scrapes.len() - from + 1) as u32;
            std::thread::sleep(next.saturating_sub(begun.elapsed()));
            before_each(&self.sandbox);
            let late = (begun.elapsed() - next).as_millis() / step.as_millis();
            let missed = usize::try_from(late).unwrap();
            self.scrapes.extend(vec![None; missed]);
            let mut scrape = Scrape::new();
            for (instance, watched) in &self.watched {
                scrape.extend(seen_at(instance, watched.try_scrape().unwrap_or_default()));
            }
            self.scrapes.push(Some(scrape));
        }
        self.repeated = (self.scrapes.len() - from).div_ceil(3) * 2;
        self.repeated = self.repeated.min(self.scrapes.len() - from);
    }

    /// `input_series` of a test.
    pub fn series(&self) -> Vec<Value> {
        let all = self.scrapes.iter().flatten().flat_map(|scrape| scrape.keys());
        let all: BTreeSet<&String> = all.collect();
        let shown = SHOWN_MINUTES * 60 / STEP_S;
        let one = |series: &&String| {
            let mut was = None;
            let values = (0..shown).map(|at| {
                let before = was;
                let now = self.at(series, at);
                was = now.unwrap_or(was);
                match (now, before) {
                    // No scrape, or not there yet.
                    (None, _) | (Some(None), None) => "_".to_owned(),
                    // Prometheus ends a series that a scrape does not hold any more.
                    (Some(None), Some(_)) => "stale".to_owned(),
                    (Some(Some(value)), _) => value.to_string(),
                }
            });
            json!({"series": series, "values": values.collect::<Vec<_>>().join(" ")})
        };
        all.iter().map(one).collect()
    }

    /// Returns the value of a series in a scrape. The outer `None` means that there is no scrape.
    fn at(&self, series: &str, at: usize) -> Option<Option<f64>> {
        let len = self.scrapes.len();
        if at < len {
            let scrape = self.scrapes[at].as_ref()?;
            return Some(scrape.get(series).copied());
        }
        let from = len - self.repeated;
        let (round, place) = ((at - from) / self.repeated, (at - from) % self.repeated);
        let scrape = self.scrapes[from + place].as_ref()?;
        let mut repeated = self.scrapes[from..].iter().flatten();
        let Some(last) = repeated.clone().next_back()?.get(series) else {
            return Some(None);
        };
        if !is_counter(series) {
            return Some(Some(*scrape.get(series).unwrap_or(last)));
        }
        let first = repeated.find_map(|scrape| scrape.get(series))?;
        let value = scrape.get(series).unwrap_or(first);
        Some(Some(value + (last - first) * round as f64))
    }
}

fn is_counter(series: &str) -> bool {
    let metric = TABLE.iter().find(|one| one.name == family(series)).unwrap();
    metric.kind != MetricKind::Gauge
}

fn planned(scrape: &Scrape) -> f64 {
    let of = |(series, _): &(&String, &f64)| series.starts_with("ccm_planned_changes");
    scrape.iter().filter(of).map(|(_, value)| value).sum()
}

/// Adds the labels that Prometheus adds.
fn seen_at(instance: &str, scrape: Scrape) -> Scrape {
    let target =
        format!("cluster=\"one\",instance={instance:?},job=\"kube-system/ccm-from-scratch\"");
    let now = jiff::Timestamp::now().as_second() as f64;
    let named = scrape.into_iter().map(|(series, value)| {
        // A film begins in 1970.
        let is_future = value > now && series == "ccm_certificate_expiry_timestamp_seconds";
        let value = if is_future { value - now } else { value };
        let series = match series.strip_suffix('}') {
            Some(series) => format!("{series},{target}}}"),
            None => format!("{series}{{{target}}}"),
        };
        (series, value)
    });
    named.collect()
}
