//! Opens a TCP connection to the host of a URL, either directly or through a tunnel of a proxy. No byte is sent or
//! received after the call's deadline.
//!
//! ureq computes how long each step of a call may take before the step begins. When the process is paused in between,
//! or when a peer sends a byte now and then, the whole call takes longer than its deadline. A write must not happen
//! after the Lease that allowed it has expired. This file therefore stores the deadline of each thread and checks it
//! before every system call. All calls are blocking, so a call stays on one thread from its beginning to its end.
//!
//! The monotonic clock stands still while a machine is suspended, but the wall clock does not. When the two clocks have
//! not advanced equally during a call, the deadline therefore counts as passed.

use super::proxy::Tunnel;
use super::tls::BUFFER_BYTES;
use super::tunnel;
use crate::provider::{Moment, clock};
use socket2::SockRef;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use ureq::Timeout;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers};
use ureq::unversioned::transport::{NextTimeout, Transport};

thread_local! {
    static DEADLINE: Cell<Option<Deadline>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Deadline {
    end: Instant,
    /// The moment when the deadline was set. If the thread already had another deadline, it is the moment when that
    /// first deadline was set. From this moment on, the monotonic clock is compared with the wall clock. When they
    /// differ, e.g. because the machine was suspended, the deadline counts as over.
    begun: Moment,
}

/// A guard of a deadline. As long as the guard exists, the calls of this thread send and receive nothing
/// after the deadline.
#[must_use]
pub(super) struct HeldDeadline {
    before: Option<Deadline>,
}

/// Sets a deadline for the calls of this thread until the returned guard is dropped. When this thread has a deadline
/// already, the earlier of the two deadlines applies.
pub(super) fn hold_deadline(deadline: Instant) -> HeldDeadline {
    hold_at(deadline, Moment::now())
}

fn hold_at(deadline: Instant, now: Moment) -> HeldDeadline {
    let before = DEADLINE.get();
    DEADLINE.set(Some(Deadline {
        end: capped(deadline),
        begun: before.map_or(now, |held| held.begun),
    }));
    HeldDeadline { before }
}

/// Returns the earlier of `deadline` and the deadline of this thread.
fn capped(deadline: Instant) -> Instant {
    DEADLINE.get().map_or(deadline, |held| held.end.min(deadline))
}

/// Runs `work` as if this thread had no deadline. This is for tests that simulate several processes in one thread.
/// `work` then makes the calls of another process, and these calls must not fail when the deadline of the first process
/// has passed.
pub fn apart<T>(work: impl FnOnce() -> T) -> T {
    let _held = HeldDeadline { before: DEADLINE.take() };
    work()
}

/// Whether the deadline of this thread has passed. The deadline also counts as passed when the monotonic clock and the
/// wall clock have not advanced equally, because the machine was then probably suspended. Returns `false` when this
/// thread has no deadline.
pub(super) fn is_deadline_over() -> bool {
    is_over_at(Moment::now())
}

fn is_over_at(now: Moment) -> bool {
    DEADLINE.get().is_some_and(|held| now.monotonic >= held.end || now.since(held.begun).is_none())
}

impl Drop for HeldDeadline {
    fn drop(&mut self) {
        DEADLINE.set(self.before);
    }
}

/// Connects to the host of a URL, either directly or through a proxy. The result is not encrypted yet.
#[derive(Debug)]
pub(super) struct Connect {
    /// The tunnel through the proxy. `None` means that no proxy is used.
    pub(super) proxy: Option<Tunnel>,
    /// How long resolving the name, connecting and the proxy's answer may take together. This is real time, even when a
    /// test accelerates the clock.
    pub(super) timeout: Duration,
}

/// A resolver that resolves nothing, because [`Connect`] resolves names itself when it opens a connection. A connection
/// that is used again needs no address, and a proxy resolves the name of the server itself.
#[derive(Debug)]
pub(super) struct Unresolved;

impl Resolver for Unresolved {
    fn resolve(
        &self,
        _: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

impl Connector<()> for Connect {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Box<dyn Transport>>, ureq::Error> {
        let by = capped(clock::now() + clock::from_machine(self.timeout));
        let _held = hold_deadline(by);
        let connect = |uri: &Uri| Connect::socket(uri, details.config, by);
        let connected = match &self.proxy {
            None => connect(details.uri),
            Some(tunnel) => tunnel::open(tunnel, details, connect, by),
        };
        connected.map(Some)
    }
}

impl Connect {
    fn socket(uri: &Uri, config: &Config, by: Instant) -> Result<Box<dyn Transport>, ureq::Error> {
        if clock::is_simulated() {
            return Ok(Box::new(InMemory::new(uri)));
        }
        let timeout = NextTimeout {
            after: clock::machine_until(by).into(),
            reason: Timeout::Resolve,
            ..NextTimeout::default()
        };
        let addresses = DefaultResolver::default().resolve(uri, config, timeout)?;
        match Socket::connect(&addresses, by) {
            Ok(socket) => Ok(Box::new(socket)),
            Err(error) => Err(in_ureq_terms(error, Timeout::Connect)),
        }
    }
}

/// A TCP socket in the form that ureq requires for a connection.
#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
    /// Whether bytes were sent, and no bytes were received since then. When the socket is closed in this state, its
    /// connection is reset, so that the kernel does not send bytes that still wait in its buffer.
    is_unanswered: bool,
    /// The kind of the first error of this socket. After it, each further step (sending or receiving) fails with an
    /// error of the same kind, see [`Socket::step`].
    failure: Option<ErrorKind>,
}

impl Socket {
    /// Tries one address after the other. Each address except the last gets only half of the remaining time, so that
    /// time remains for the next address.
    fn connect(addresses: &[SocketAddr], by: Instant) -> io::Result<Socket> {
        let by = capped(by);
        let mut outcome = Err(io::Error::from(ErrorKind::AddrNotAvailable));
        for (index, address) in addresses.iter().enumerate() {
            let left = left_until(by)?;
            let share = if index + 1 == addresses.len() { left } else { left / 2 };
            outcome = TcpStream::connect_timeout(address, share);
            if outcome.is_ok() {
                break;
            }
        }
        let stream = outcome?;
        stream.set_nodelay(true)?;
        Ok(Socket {
            stream,
            buffers: LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES),
            is_unanswered: false,
            failure: None,
        })
    }

    /// Runs one step, which sends or receives. The kind of the first error is stored, and each further step returns an
    /// error of the same kind. Without this, the error of a time-out would get lost: the kernel reports "timed out"
    /// only once and "broken pipe" from then on, and TLS hides the first error of a write.
    fn step<T>(
        &mut self,
        during: Timeout,
        step: impl FnOnce(&mut Socket) -> io::Result<T>,
    ) -> Result<T, ureq::Error> {
        let outcome = match self.failure {
            Some(kind) => Err(kind.into()),
            None => step(self),
        };
        outcome.map_err(|error| {
            self.failure = Some(error.kind());
            in_ureq_terms(error, during)
        })
    }

    /// Sends all bytes until the moment `by`, or returns an error. Sometimes the peer accepts only a few bytes at a
    /// time. The time-out of each system call is therefore the time that remains for all bytes.
    fn send(stream: &TcpStream, mut bytes: &[u8], by: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = left_until(by)?;
            stream.set_write_timeout(Some(left))?;
            // When the time that is left until `by` has passed, the kernel must stop resending bytes that the peer has
            // not acknowledged.
            SockRef::from(stream).set_tcp_user_timeout(Some(left.max(SHORTEST_USER_TIMEOUT)))?;
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

/// Closes the socket. When a call was given up, its bytes can still be in the kernel's buffer. The kernel must not send
/// them later, because they can be a write. The socket is therefore closed so that the kernel resets the connection and
/// discards the buffer.
impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_unanswered || is_deadline_over() {
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
        self.step(timeout.reason, |socket| {
            let output = &socket.buffers.output()[..amount];
            Socket::send(&socket.stream, output, end_of(timeout))
        })
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let count = self.step(timeout.reason, |socket| {
            let into = socket.buffers.input_append_buf();
            Socket::receive(&socket.stream, into, end_of(timeout))
        })?;
        self.is_unanswered &= count == 0;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    /// Whether an idle connection can still be used. It cannot be used when the peer has closed it, or has sent bytes
    /// that nobody requested.
    fn is_open(&mut self) -> bool {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let peeked =
            SockRef::from(&self.stream).recv_with_flags(&mut [MaybeUninit::uninit()], flags);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// A connection in memory to a simulated server, for tests.
#[derive(Debug)]
struct InMemory {
    authority: String,
    buffers: LazyBuffers,
    request: Vec<u8>,
    /// The part of the answer that the client has not read yet.
    answer: VecDeque<u8>,
}

impl InMemory {
    fn new(uri: &Uri) -> InMemory {
        InMemory {
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            buffers: LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES),
            request: Vec::new(),
            answer: VecDeque::new(),
        }
    }
}

impl Transport for InMemory {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        self.request.extend_from_slice(&self.buffers.output()[..amount]);
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        if !self.request.is_empty() {
            let request = std::mem::take(&mut self.request);
            // The moment until which the answer is awaited. It comes from the deadline of this thread. ureq's time-out
            // is of no use here, because ureq measures real time, and this connection leads to a server in a simulation
            // with a simulated clock.
            let until = DEADLINE.get().map_or_else(clock::now, |held| held.end);
            let answer =
                left_until(until).and_then(|_| clock::exchange(&self.authority, &request, until));
            let answer = answer.map_err(|error| in_ureq_terms(error, timeout.reason))?;
            self.answer = answer.into();
        }
        let count = self.answer.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        self.answer.is_empty()
    }
}

/// Converts an I/O error into an error of ureq. A time-out becomes ureq's own kind of error for time-outs.
fn in_ureq_terms(error: io::Error, during: Timeout) -> ureq::Error {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => ureq::Error::Timeout(during),
        _ => ureq::Error::Io(error),
    }
}

/// Returns the moment when a step of ureq (sending or receiving) must end. The moment is never later than the deadline
/// of this thread.
fn end_of(timeout: NextTimeout) -> Instant {
    let now = clock::now();
    // This moment is used when ureq has set no time-out. ureq's value for "no time-out" is too long to be added to an
    // `Instant`.
    let never = now + Duration::from_secs(24 * 3600);
    let after = clock::from_machine(*timeout.after);
    capped(now.checked_add(after).unwrap_or(never))
}

/// Returns how much real time is left until `by`. Returns an error when no time is left or when the deadline of this
/// thread has passed. The result is never zero, because a socket takes a time-out of zero for no time-out.
fn left_until(by: Instant) -> io::Result<Duration> {
    let left = clock::machine_until(by);
    if left.is_zero() || is_deadline_over() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The shortest TCP user time-out that is set. The kernel counts whole milliseconds, and a zero would mean its default
/// of a quarter of an hour.
const SHORTEST_USER_TIMEOUT: Duration = Duration::from_millis(1);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_call_during_which_the_machine_was_suspended_is_over() {
        let now = Moment::now();
        // Each case has the seconds that passed by the monotonic clock and by the wall clock since a deadline of 8 s
        // was set, and whether the deadline counts as passed after these seconds.
        for (monotonic, wall, expected) in
            [(1, 1, false), (8, 8, true), (1, 3, false), (1, 4, true)]
        {
            let held = hold_at(now.monotonic + Duration::from_secs(8), now);
            let later = Moment {
                monotonic: now.monotonic + Duration::from_secs(monotonic),
                wall: now.wall + Duration::from_secs(wall),
            };
            assert_eq!(is_over_at(later), expected, "{monotonic} s, {wall} s");
            drop(held);
            assert!(!is_over_at(later), "nothing is held");
        }
    }

    /// The kernel gives up a connection whose peer receives nothing. The kernel reports "timed out" only to the next
    /// system call, so the socket must remember this error for all later steps.
    #[test]
    fn a_connection_that_the_kernel_gave_up_has_timed_out_for_every_later_step() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let by = Instant::now() + Duration::from_secs(60);
        let mut socket = Socket::connect(&[listener.local_addr().unwrap()], by).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let kernels_view = socket.stream.try_clone().unwrap();
        let is_over = AtomicBool::new(false);
        let timeout = NextTimeout {
            after: Duration::from_secs(60).into(),
            reason: Timeout::Global,
            ..NextTimeout::default()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Each send of the socket sets a long TCP user time-out. The test needs a short time-out, so this
                    // thread sets a short time-out again and again.
                    let moment = Some(Duration::from_millis(1));
                    SockRef::from(&kernels_view).set_tcp_user_timeout(moment).unwrap();
                    std::thread::yield_now();
                }
            });
            let mut send = || socket.transmit_output(BUFFER_BYTES, timeout);
            let first = (0..).find_map(|_| send().err());
            is_over.store(true, Ordering::Relaxed);
            let global = |error: &ureq::Error| {
                assert!(matches!(error, ureq::Error::Timeout(Timeout::Global)), "{error:?}");
            };
            global(&first.unwrap());
            global(&send().unwrap_err());
            global(&socket.await_input(timeout).unwrap_err());
        });
        drop(peer);
    }

    #[test]
    fn the_earliest_counts_and_each_ends_with_its_guard() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        {
            let _call = hold_deadline(at(8));
            assert_eq!((capped(at(5)), capped(at(9))), (at(5), at(8)));
            {
                let _connecting = hold_deadline(at(5));
                assert_eq!(capped(at(9)), at(5));
                let _longer = hold_deadline(at(20));
                assert_eq!(capped(at(9)), at(5));
            }
            assert_eq!(capped(at(9)), at(8));
        }
        assert_eq!(capped(at(9)), at(9));
    }
}
