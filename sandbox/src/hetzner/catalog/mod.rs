//! What the provider offers in every project: locations, types of servers and load balancers, images. Read-only.

pub mod images;
pub mod load_balancer_types;
pub mod locations;
pub mod server_types;

use super::Reply;
use super::error::ApiError;

/// The ID of a path segment; what is not a number names nothing.
pub fn id(segment: &str) -> Result<u64, ApiError> {
    segment.parse().map_err(|_| ApiError::no_such_path())
}

/// An entry of a catalog by the ID or the name that a request gave.
pub fn find<'c, T>(
    entries: &'c [T],
    text: &str,
    id: fn(&T) -> u64,
    name: fn(&T) -> &str,
) -> Option<&'c T> {
    let number = text.parse::<u64>().ok();
    entries
        .iter()
        .find(|entry| Some(id(entry)) == number || name(entry) == text)
}

/// `GET` is all that a catalog answers.
pub fn read_only(
    method: &str,
    answer: impl FnOnce() -> Result<Reply, ApiError>,
) -> Result<Reply, ApiError> {
    if method == "GET" {
        answer()
    } else {
        Err(ApiError::wrong_method(method))
    }
}
