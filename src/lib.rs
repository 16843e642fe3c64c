//! (being built)
pub mod cloud;
pub mod controllers;
pub mod hetzner;
pub mod http;
pub mod kube;
pub mod world;
