//! Counts the calls to the Cloud API, in the forms that hcloud-go's users know.

use crate::http::{Method, Stage};
use crate::metrics::{HCLOUD_DURATION, HCLOUD_IN_FLIGHT, HCLOUD_REQUESTS, UNANSWERED};

/// Called for every try. As there, what was not answered has no code and counts elsewhere.
pub(super) fn watch(method: Method, path: &str, stage: Stage) {
    let method = method.lower_name();
    match stage {
        Stage::Begun => HCLOUD_IN_FLIGHT.add(&[], 1.0),
        Stage::Ended(outcome, took) => {
            HCLOUD_IN_FLIGHT.add(&[], -1.0);
            match outcome {
                Ok(code) => {
                    HCLOUD_REQUESTS.count(&[method, &endpoint(path), &code.to_string()]);
                    HCLOUD_DURATION.observe(&[method], took);
                }
                Err(kind) => UNANSWERED.count(&["hcloud", kind.word()]),
            }
        }
    }
}

/// `/servers/42?page=1` → `/servers/-`.
fn endpoint(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let segments = path.split('/').map(|segment| {
        let is_word = segment.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if is_word { segment } else { "-" }
    });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_template() {
        for (path, expected) in [
            ("/servers?sort=id:asc&page=1&per_page=50", "/servers"),
            ("/servers/42", "/servers/-"),
            (
                "/load_balancers/7/actions/add_target",
                "/load_balancers/-/actions/add_target",
            ),
            ("/actions?id=1&id=2", "/actions"),
            ("/networks/Some%20Name", "/networks/-"),
        ] {
            assert_eq!(endpoint(path), expected);
        }
    }
}
