//! Tests of the sandbox in memory: answers are equal to those over sockets, time is simulated, and the same calls get
//! the same answers in every run.

mod calls;
mod cost;
mod equal;
mod repeat;
mod time;
