//! Where the bytes of requests come from and those of answers go: a connection, or memory.

use std::io;
use std::time::Instant;

/// One direction is read through a buffer, the other is written.
pub(super) trait Bytes {
    /// What was read and not used yet.
    fn buffered(&self) -> &[u8];

    /// So much of what is buffered was used.
    fn consume(&mut self, bytes: usize);

    /// Reads what there is, at least one byte; 0 at the end.
    fn fill(&mut self, deadline: Instant) -> io::Result<usize>;

    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// DER; see [`ServerTls::shown_certificate`](crate::credentials::ServerTls::shown_certificate).
    fn client_certificate(&self) -> Option<&[u8]>;
}

/// One request in memory, whole from the beginning, and what is answered.
pub(super) struct Memory<'a> {
    /// What is not used yet.
    request: &'a [u8],
    pub answer: Vec<u8>,
}

impl<'a> Memory<'a> {
    pub fn new(request: &'a [u8]) -> Memory<'a> {
        Memory { request, answer: Vec::new() }
    }
}

impl Bytes for Memory<'_> {
    fn buffered(&self) -> &[u8] {
        self.request
    }

    fn consume(&mut self, bytes: usize) {
        self.request = &self.request[bytes.min(self.request.len())..];
    }

    fn fill(&mut self, _: Instant) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.answer.extend_from_slice(bytes);
        Ok(())
    }

    fn client_certificate(&self) -> Option<&[u8]> {
        None
    }
}
