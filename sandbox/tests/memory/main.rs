//! The sandbox in memory: the same answers as by socket, simulated time, the same answers to the same calls.

mod calls;
mod cost;
mod equal;
mod repeat;
mod time;
