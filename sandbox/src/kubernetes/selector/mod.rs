//! The label and field selectors of a LIST.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
