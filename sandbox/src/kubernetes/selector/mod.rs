//! What a list is narrowed by.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
