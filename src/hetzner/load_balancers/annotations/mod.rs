//! The annotations of Services: the table of all annotations, the parser, and the types of their values.

pub(crate) mod parser;
mod table;
pub(crate) mod values;

pub use table::*;
