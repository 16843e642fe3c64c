//! The whole world: what is in it at the start, its machines, its accounts, and the program around it.

mod access;
mod corner;
mod kubelets;
mod pods;
mod program;
mod start;
