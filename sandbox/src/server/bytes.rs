//! The interface through which the server reads the bytes of a request and writes the bytes of the answer. Behind it is
//! a connection, or memory.

use std::io;
use std::time::Instant;

/// Reads the bytes of requests through a buffer, and writes the bytes of answers.
pub(super) trait Bytes {
    /// Returns the bytes in the buffer, which the server has received but not yet read as a part of a request.
    fn buffered(&self) -> &[u8];

    /// Removes the first `bytes` bytes from the buffer, because they were used.
    fn consume(&mut self, bytes: usize);

    /// Waits for more bytes until `deadline`, and adds them to the buffer. Returns how many bytes were added, which is
    /// 0 when the client sends no more bytes.
    fn fill(&mut self, deadline: Instant) -> io::Result<usize>;

    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns the certificate that the client has sent, as DER, or `None` when it has sent none. The DER is empty when
    /// the certificate is not accepted, because another CA has signed it or because it is not valid now.
    fn client_certificate(&self) -> Option<&[u8]>;
}

/// A request whose bytes are all in memory, and the bytes of its answer.
pub(super) struct Memory<'a> {
    /// The part of the request that the server has not read yet.
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
