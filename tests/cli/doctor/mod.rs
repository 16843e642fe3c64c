//! `ccm doctor` from outside: a healthy cluster, and clusters that are broken in one way each.

pub mod broken_clusters;
mod cloud;
mod cluster;
mod objects;
mod report;
mod robot;
mod routes;
pub mod world;
