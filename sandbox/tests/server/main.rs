//! The HTTP server, its faults and its call log, from raw sockets.

mod faults;
mod http;
mod raw;
mod tls;
