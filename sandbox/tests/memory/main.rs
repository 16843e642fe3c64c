//! Tests of the sandbox in memory: answers are those of sockets, time is simulated, and repeated calls get repeated
//! answers.

mod calls;
mod cost;
mod equal;
mod repeat;
mod time;
