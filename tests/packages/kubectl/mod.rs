//! The ordinary kubectl against the sandbox, with every verb that a person uses on nodes and Services.
//!
//! Texts of kubectl itself differ from version to version. The tests compare what the server answered.

mod access;
mod apply;
mod nodes;
mod person;
mod waiting;
