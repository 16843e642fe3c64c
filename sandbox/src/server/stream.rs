//! Reads and writes the bytes of one connection, with or without TLS. Reads go through a buffer, and every wait has a
//! time limit.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConnection, StreamOwned};
use socket2::SockRef;

use super::bytes::Bytes;
use crate::credentials::{Material, ServerTls};

enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// A connection with a buffer of bytes that were received, but not yet parsed as parts of a request.
pub(super) struct Stream {
    transport: Transport,
    buffer: Vec<u8>,
    /// How many bytes at the start of `buffer` were already parsed as parts of a request, so that they are no longer
    /// needed.
    used: usize,
    client_certificate: Option<Vec<u8>>,
    /// The server's TLS certificates at the time when the connection began. `None` without TLS.
    tls: Option<Arc<Material>>,
}

/// The largest number of bytes that one call reads from the socket.
const READ_BYTES: usize = 16 << 10;

impl Stream {
    /// Prepares a new connection. When `tls` is given, the TLS handshake is made. `deadline` is the time limit of the
    /// handshake, and `write` is the time-out of each write.
    pub fn open(
        socket: TcpStream,
        tls: Option<&ServerTls>,
        deadline: Instant,
        write: Duration,
    ) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(write))?;
        let Some(tls) = tls else {
            return Ok(Stream::new(Transport::Plain(socket), None, None));
        };
        let tls = tls.now();
        let connection = ServerConnection::new(tls.config.clone()).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.sock.set_read_timeout(Some(time_left(deadline)?))?;
            if let Err(error) = stream.conn.complete_io(&mut stream.sock) {
                // This sends the TLS alert, which tells the client why the handshake has failed. Without the alert the
                // client would only see that the connection ends.
                let _ = stream.conn.write_tls(&mut stream.sock);
                return Err(error);
            }
        }
        let certificate = stream.conn.peer_certificates().map(|chain| tls.shown_certificate(chain));
        let transport = Transport::Tls(Box::new(stream));
        Ok(Stream::new(transport, certificate, Some(tls)))
    }

    fn new(
        transport: Transport,
        client_certificate: Option<Vec<u8>>,
        tls: Option<Arc<Material>>,
    ) -> Stream {
        Stream { transport, buffer: Vec::new(), used: 0, client_certificate, tls }
    }

    /// Whether a test has replaced the server's TLS certificates since the connection began. `now` contains the present
    /// certificates. When the result is true, the server closes the connection after its next answer.
    pub fn is_outdated(&self, now: Option<&ServerTls>) -> bool {
        match (&self.tls, now) {
            (Some(then), Some(now)) => !Arc::ptr_eq(then, &now.now()),
            _ => false,
        }
    }

    /// Ends the connection in the usual way, so that the client reads the whole answer and then the end of the
    /// connection.
    ///
    /// Bytes that the client still sends are read and dropped for the time `patience`. If a socket with unread bytes
    /// were closed, the kernel would send a TCP reset, and the client could lose the answer.
    pub fn close(mut self, patience: Duration) {
        if let Transport::Tls(stream) = &mut self.transport {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let mut socket = self.socket();
        if socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let deadline = Instant::now() + patience;
        let mut dropped = [0; 4096];
        while let Ok(left) = time_left(deadline) {
            let read = socket.set_read_timeout(Some(left)).and_then(|()| socket.read(&mut dropped));
            if !matches!(read, Ok(bytes) if bytes > 0) {
                return;
            }
        }
    }

    /// Makes the connection end with a TCP reset instead of the usual end. The reset is sent when the last handle of
    /// the socket is dropped.
    pub fn reset(self) {
        let _ = SockRef::from(self.socket()).set_linger(Some(Duration::ZERO));
    }

    fn socket(&self) -> &TcpStream {
        match &self.transport {
            Transport::Plain(socket) => socket,
            Transport::Tls(stream) => &stream.sock,
        }
    }
}

impl Bytes for Stream {
    fn client_certificate(&self) -> Option<&[u8]> {
        self.client_certificate.as_deref()
    }

    fn buffered(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    fn consume(&mut self, bytes: usize) {
        self.used = (self.used + bytes).min(self.buffer.len());
        if self.used == self.buffer.len() {
            self.buffer.clear();
            self.used = 0;
        }
    }

    fn fill(&mut self, deadline: Instant) -> io::Result<usize> {
        self.socket().set_read_timeout(Some(time_left(deadline)?))?;
        self.buffer.drain(..self.used);
        self.used = 0;
        let start = self.buffer.len();
        self.buffer.resize(start + READ_BYTES, 0);
        let read = loop {
            let into = &mut self.buffer[start..];
            let result = match &mut self.transport {
                Transport::Plain(socket) => socket.read(into),
                Transport::Tls(stream) => stream.read(into),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => break other,
            }
        };
        self.buffer.truncate(start + *read.as_ref().unwrap_or(&0));
        read
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &mut self.transport {
            Transport::Plain(socket) => socket.write_all(bytes),
            Transport::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    // For the operating system, a read time-out of zero means that a read can take for ever. When no time is left, an
    // error is therefore returned, and not zero.
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
