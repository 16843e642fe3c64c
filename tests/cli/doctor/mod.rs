//! `ccm doctor` from outside: a healthy world, and worlds that are broken in one way each.

mod cloud;
mod cluster;
mod objects;
mod report;
mod robot;
mod routes;
pub mod world;
pub mod worlds;
