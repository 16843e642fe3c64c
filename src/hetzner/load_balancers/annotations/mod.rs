//! Annotations of Services: which ones there are, and what those of one Service say.

pub(crate) mod parser;
mod table;
pub(crate) mod values;

pub use table::*;
