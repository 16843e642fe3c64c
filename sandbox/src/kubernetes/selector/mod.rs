//! The selectors of a list.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
