//! The sockets of the health server: one thread, never blocked by a client.
//!
//! Everybody may connect, so everything is bounded: connections, bytes and time. A newcomer takes
//! the place of the oldest connection, not the other way round: clients that hold connections
//! open can't lock out a probe, whose request comes with its connection.
//!
//! While no connection is open the thread sleeps in `accept`; otherwise it serves each in turn.

use super::super::stop::Stop;
use super::exchange::{self, REQUEST_LIMIT_BYTES, Verdict};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const CONNECTIONS_AT_MOST: usize = 64;
/// Taken in one go, so that those that are there get their turn in a flood.
const ACCEPTED_AT_ONCE: usize = 16;
/// From its first byte to its last; kubelet's own time-out for a probe is 1 s by default.
const LIFETIME: Duration = Duration::from_secs(2);
/// Read and thrown away after the answer: closing on unread bytes would take the answer back.
const DRAINED_AT_MOST_BYTES: usize = 64 * 1024;
/// Between two reads of connections that send nothing; doubles while nothing comes.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
/// After `accept` failed, which mostly means that the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Memory for a thread that does so little.
const STACK_BYTES: usize = 128 * 1024;

struct Connection {
    stream: TcpStream,
    opened: Instant,
    received: Vec<u8>,
    /// What of the answer is still to be sent; none before there is one.
    unsent: Option<Vec<u8>>,
    drained_bytes: usize,
}

/// What serving a connection once came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Nothing,
    Progress,
    Over,
}

/// Listens and answers on a thread of its own. An address that can't be used is logged once and
/// tried again: the daemon's work does not depend on it.
pub(super) fn start(
    address: SocketAddr,
    bind_retry: Duration,
    stop: &'static Stop,
    verdict: impl Fn(&str) -> Option<Verdict> + Copy + Send + 'static,
) {
    spawn(move || {
        for listener in bind_in_the_end(address, bind_retry, stop) {
            spawn(move || serve(&listener, verdict));
        }
    });
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .name("health".into())
        .stack_size(STACK_BYTES);
    if let Err(error) = thread.spawn(work) {
        log::warn!("health server: no thread: {error}");
    }
}

/// None at all when the daemon ends first.
fn bind_in_the_end(address: SocketAddr, retry: Duration, stop: &Stop) -> Vec<TcpListener> {
    let mut is_logged = false;
    loop {
        match bind(address) {
            Ok(listeners) => {
                for address in listeners.iter().flat_map(TcpListener::local_addr) {
                    log::info!("health: listening on {address}");
                }
                return listeners;
            }
            Err(error) if !std::mem::replace(&mut is_logged, true) => {
                let retry_s = retry.as_secs_f64();
                log::warn!("health: {address}: {error}; trying again every {retry_s} s");
            }
            Err(_) => {}
        }
        if stop.wait(retry) {
            return Vec::new();
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<Vec<TcpListener>> {
    if address.ip() != Ipv6Addr::UNSPECIFIED {
        return Ok(vec![TcpListener::bind(address)?]);
    }
    let port = address.port();
    let both = match TcpListener::bind(address) {
        Ok(both) => both,
        Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(error),
        // A machine without IPv6.
        Err(_) => return Ok(vec![TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?]),
    };
    let port = both.local_addr()?.port();
    // Where net.ipv6.bindv6only is set, the first one has IPv6 only; elsewhere IPv4 is taken by it.
    let ipv4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok();
    Ok([Some(both), ipv4].into_iter().flatten().collect())
}

fn serve(listener: &TcpListener, verdict: impl Fn(&str) -> Option<Verdict>) {
    let mut connections: VecDeque<Connection> = VecDeque::new();
    let mut pause = SHORTEST_PAUSE;
    loop {
        let mut is_busy = false;
        if let Err(error) = accept(listener, &mut connections, &mut is_busy) {
            log::debug!("health: accept: {error}");
            std::thread::sleep(ACCEPT_RETRY);
        }
        connections.retain_mut(|connection| {
            let step = connection.serve(&verdict);
            is_busy |= step == Step::Progress;
            step != Step::Over
        });
        let too_many = connections.len().saturating_sub(CONNECTIONS_AT_MOST);
        connections.drain(..too_many);
        if is_busy {
            pause = SHORTEST_PAUSE;
        } else if !connections.is_empty() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Accepts the waiting connections; without an open connection, blocks until one comes.
fn accept(
    listener: &TcpListener,
    connections: &mut VecDeque<Connection>,
    is_busy: &mut bool,
) -> io::Result<()> {
    if connections.is_empty() {
        listener.set_nonblocking(false)?;
        connections.extend(Connection::new(listener.accept()?.0));
        *is_busy = true;
        listener.set_nonblocking(true)?;
    }
    for _ in 0..ACCEPTED_AT_ONCE {
        match listener.accept() {
            Ok((stream, _)) => connections.extend(Connection::new(stream)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        *is_busy = true;
    }
    Ok(())
}

impl Connection {
    fn new(stream: TcpStream) -> Option<Connection> {
        stream.set_nonblocking(true).ok()?;
        Some(Connection {
            stream,
            opened: Instant::now(),
            received: Vec::new(),
            unsent: None,
            drained_bytes: 0,
        })
    }

    fn serve(&mut self, verdict: impl Fn(&str) -> Option<Verdict>) -> Step {
        let outcome = match &self.unsent {
            Some(unsent) if !unsent.is_empty() => self.send(),
            _ => self.receive(verdict),
        };
        let may_wait = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted);
        match outcome {
            Ok(()) => Step::Progress,
            Err(error) if may_wait(error.kind()) && !self.is_late() => Step::Nothing,
            Err(_) => Step::Over,
        }
    }

    fn is_late(&self) -> bool {
        self.opened.elapsed() > LIFETIME
    }

    fn receive(&mut self, verdict: impl Fn(&str) -> Option<Verdict>) -> io::Result<()> {
        let mut buffer = [0; 1024];
        let count = self.stream.read(&mut buffer)?;
        if count == 0 || self.is_late() {
            return Err(ErrorKind::TimedOut.into());
        }
        if self.unsent.is_some() {
            self.drained_bytes += count;
            return match self.drained_bytes > DRAINED_AT_MOST_BYTES {
                true => Err(ErrorKind::FileTooLarge.into()),
                false => Ok(()),
            };
        }
        let room = REQUEST_LIMIT_BYTES.saturating_sub(self.received.len());
        self.received.extend(&buffer[..count.min(room)]);
        match exchange::answer(&self.received, verdict) {
            None => Ok(()),
            answer => {
                self.unsent = answer;
                self.send()
            }
        }
    }

    /// As much of the answer as the other side takes now. Metrics may be more than fits into
    /// the connection's buffer.
    fn send(&mut self) -> io::Result<()> {
        let unsent = self.unsent.get_or_insert_default();
        let count = self.stream.write(unsent)?;
        unsent.drain(..count);
        match (count, unsent.is_empty()) {
            (0, _) => Err(ErrorKind::WriteZero.into()),
            (_, true) => self.stream.shutdown(Shutdown::Write),
            (_, false) => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// More than any buffer between the two takes at once.
    #[test]
    fn a_long_answer_arrives_whole_at_a_slow_reader() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut connection = Connection::new(listener.accept().unwrap().0).unwrap();
        let answer: Vec<u8> = (0..16 << 20).map(|n: u32| n as u8).collect();
        connection.unsent = Some(answer.clone());
        while connection.send().is_ok() {}
        let left = connection.unsent.as_ref().map_or(0, Vec::len);
        assert!(left > 0 && left < answer.len(), "{left} bytes are left");
        let reading = std::thread::spawn(move || {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).map(|_| received)
        });
        while connection
            .unsent
            .as_ref()
            .is_some_and(|unsent| !unsent.is_empty())
        {
            let outcome = connection.send().map_err(|error| error.kind());
            assert!(matches!(outcome, Ok(()) | Err(ErrorKind::WouldBlock)));
        }
        assert!(reading.join().unwrap().unwrap() == answer);
    }
}
