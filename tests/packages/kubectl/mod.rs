//! The ordinary kubectl against the sandbox: every verb that a person uses on nodes and Services.
//!
//! Texts of kubectl itself differ from version to version; what is compared is what the server answered.

mod access;
mod apply;
mod nodes;
mod person;
mod waiting;
