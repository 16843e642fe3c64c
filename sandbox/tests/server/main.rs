//! Tests of the HTTP server, its simulated faults and its call log, with raw sockets.

mod faults;
mod http;
mod raw;
mod tls;
