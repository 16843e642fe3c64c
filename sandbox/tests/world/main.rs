//! Tests of a whole sandbox: its start, its servers, its users, and the program `sandbox`.

mod access;
mod corner;
mod kubelets;
mod pods;
mod program;
mod start;
