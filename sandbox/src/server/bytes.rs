//! The source of request bytes and the destination of answer bytes: a connection, or memory.

use std::io;
use std::time::Instant;

/// Reads requests through a buffer and writes answers without one.
pub(super) trait Bytes {
    /// Returns the bytes that were read and not used yet.
    fn buffered(&self) -> &[u8];

    /// Marks the first `bytes` of the buffered bytes as used.
    fn consume(&mut self, bytes: usize);

    /// Waits for more bytes, adds them to the buffer, and returns their number. Returns 0 at the end of the stream.
    fn fill(&mut self, deadline: Instant) -> io::Result<usize>;

    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns the DER of the client's certificate, see
    /// [`Material::shown_certificate`](crate::credentials::Material::shown_certificate).
    fn client_certificate(&self) -> Option<&[u8]>;
}

/// One request that is completely in memory from the beginning, and its answer.
pub(super) struct Memory<'a> {
    /// The bytes of the request that are not used yet.
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
