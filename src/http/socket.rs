//! A TCP connection of which no byte moves after the call's deadline.

use super::deadline;
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use ureq::unversioned::transport::{Buffers, LazyBuffers, NextTimeout, Transport};

/// As one of ureq's transports.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
    /// Something was sent, and nothing has come since.
    is_unanswered: bool,
}

impl Socket {
    /// Tries one address after the other. Each but the last gets half of what is left of the
    /// time, so that one that swallows everything does not hide one that works.
    pub(super) fn connect(
        addresses: &[SocketAddr],
        by: Instant,
        buffer_bytes: usize,
    ) -> io::Result<Socket> {
        let by = deadline::capped(by);
        let mut outcome = Err(io::Error::from(ErrorKind::AddrNotAvailable));
        for (index, address) in addresses.iter().enumerate() {
            let left = left_until(by)?;
            let share = match index + 1 == addresses.len() {
                true => left,
                false => left / 2,
            };
            outcome = TcpStream::connect_timeout(address, share);
            if outcome.is_ok() {
                break;
            }
        }
        let stream = outcome?;
        stream.set_nodelay(true)?;
        Ok(Socket {
            stream,
            buffers: LazyBuffers::new(buffer_bytes, buffer_bytes),
            is_unanswered: false,
        })
    }

    /// All of it, or an error. A send may be cut short by the peer's full buffer again and again:
    /// each gets only what is left of the whole.
    fn send(stream: &TcpStream, mut bytes: &[u8], by: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = left_until(by)?;
            stream.set_write_timeout(Some(left))?;
            // What the peer has not confirmed by then the kernel must not send again either.
            SockRef::from(stream).set_tcp_user_timeout(Some(at_least_a_millisecond(left)))?;
            match { stream }.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(stream: &TcpStream, into: &mut [u8], by: Instant) -> io::Result<usize> {
        loop {
            stream.set_read_timeout(Some(left_until(by)?))?;
            match { stream }.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

/// What is still in the kernel's buffer when nobody waits for an answer any more must not leave:
/// closed without lingering, the connection is reset and the buffer thrown away.
impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_unanswered || deadline::is_over() {
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.is_unanswered = true;
        let output = &self.buffers.output()[..amount];
        Socket::send(&self.stream, output, end_of(timeout)).map_err(|error| told(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let into = self.buffers.input_append_buf();
        let count = Socket::receive(&self.stream, into, end_of(timeout))
            .map_err(|error| told(error, timeout))?;
        self.is_unanswered &= count == 0;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    /// An idle connection has nothing to say: an end, or an answer to nothing, makes it useless.
    fn is_open(&mut self) -> bool {
        let silent = self.stream.set_nonblocking(true).and_then(|()| {
            let peeked = self.stream.peek(&mut [0]);
            self.stream.set_nonblocking(false).map(|()| peeked)
        });
        matches!(silent, Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock)
    }
}

/// In ureq's words.
fn told(error: io::Error, timeout: NextTimeout) -> ureq::Error {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => ureq::Error::Timeout(timeout.reason),
        _ => ureq::Error::Io(error),
    }
}

/// When a step of ureq's has to be over.
fn end_of(timeout: NextTimeout) -> Instant {
    let now = Instant::now();
    // "Never" is more than an Instant can hold.
    let never = now + Duration::from_secs(24 * 3600);
    deadline::capped(now.checked_add(*timeout.after).unwrap_or(never))
}

fn left_until(by: Instant) -> io::Result<Duration> {
    let left = by.saturating_duration_since(Instant::now());
    match left.is_zero() || deadline::is_over() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// Zero would be the kernel's default of a quarter of an hour.
fn at_least_a_millisecond(time: Duration) -> Duration {
    time.max(Duration::from_millis(1))
}
