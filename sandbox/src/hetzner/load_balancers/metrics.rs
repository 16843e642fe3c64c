//! Answers `GET /load_balancers/{id}/metrics`. All samples of a time series have the value that a test has set for the
//! series.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::LoadBalancer;
use crate::hetzner::clock::show;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Query;
use crate::hetzner::{Call, Reply};

/// The values of the query parameter `type`, each with the names of the time series that the answer then contains.
const TYPES: [(&str, &[&str]); 4] = [
    ("open_connections", &["open_connections"]),
    ("connections_per_second", &["connections_per_second"]),
    ("requests_per_second", &["requests_per_second"]),
    ("bandwidth", &["bandwidth.in", "bandwidth.out"]),
];

/// The approximate number of samples in an answer when the request does not specify the time between two samples.
const USUAL_SAMPLES: i64 = 200;
/// The largest number of samples in a time series of an answer. It is approximate, because the time between two samples
/// is rounded down to whole seconds. A request for more samples gets this number instead.
const MOST_SAMPLES: i64 = 500;

/// Whether the API has a metric with a time series of this name.
pub fn is_a_series(name: &str) -> bool {
    TYPES.iter().any(|(_, series)| series.contains(&name))
}

pub fn metrics(call: &Call, one: &LoadBalancer) -> Result<Reply, ApiError> {
    let query = Query::new(call.query, &["type", "start", "end", "step"])?;
    let asked: Vec<&str> = query.all("type").flat_map(|list| list.split(',')).collect();
    if asked.is_empty() {
        return Err(ApiError::invalid("type", "is required"));
    }
    let start = time(&query, "start")?;
    let end = time(&query, "end")?;
    let length = end.as_second() - start.as_second();
    if length <= 0 {
        return Err(ApiError::invalid("end", "must be after start"));
    }
    let step = match query.number("step")? {
        Some(0) => return Err(ApiError::invalid("step", "must be positive")),
        Some(step) => i64::try_from(step).unwrap_or(i64::MAX),
        None => length / USUAL_SAMPLES,
    };
    let step = step.max(length / MOST_SAMPLES).max(1);

    let mut series = serde_json::Map::new();
    for asked in asked {
        let found = TYPES.iter().find(|(name, _)| *name == asked);
        let (_, names) =
            found.ok_or_else(|| ApiError::invalid("type", format!("unknown type {asked:?}")))?;
        for name in *names {
            let value = one.metrics.get(*name).copied().unwrap_or_default();
            let times = (start.as_second()..end.as_second()).step_by(step as usize);
            let values: Vec<Value> =
                times.map(|at| json!([at as f64, value.to_string()])).collect();
            series.insert((*name).to_owned(), json!({"values": values}));
        }
    }
    Ok(Reply::ok(json!({"metrics": {
        "start": show(start), "end": show(end), "step": step, "time_series": series,
    }})))
}

fn time(query: &Query, name: &str) -> Result<Timestamp, ApiError> {
    let text = query.one(name).unwrap_or_default();
    text.parse().map_err(|_| ApiError::invalid(name, "must be a time stamp of RFC 3339"))
}
