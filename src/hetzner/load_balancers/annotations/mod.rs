//! The annotations of Services: the table of all annotations, the parser of one Service's annotations, and the values.

pub(crate) mod parser;
mod table;
pub(crate) mod values;

pub use table::*;
