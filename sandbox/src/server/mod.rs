//! A small blocking HTTP/1.1 server: one thread for each connection, TLS when configured, faults on demand, every call
//! logged. [`exchange`] does the same with one request in memory.
//!
//! The server knows sockets and bytes, and nothing of the APIs. The [`Handler`] decides what a request means.
//!
//! | file | job |
//! |---|---|
//! | `mod` | listen, accept, stop |
//! | `connection` | one connection from its first byte to its last |
//! | `bytes` | the source of requests and the destination of answers: a connection, or memory |
//! | `stream` | a connection: plain or TLS, buffered, with deadlines |
//! | `request` | bytes → [`Request`](crate::exchange::Request), or the refusal a client gets |
//! | `answer` | [`Response`](crate::exchange::Response) → bytes, whole or broken on purpose |

mod answer;
mod bytes;
mod connection;
mod request;
mod stream;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use crate::Half;
use crate::calls::CallLog;
use crate::credentials::ServerTls;
use crate::exchange::Handler;
use crate::faults::Faults;

/// The settings of a server: the handler, the address, and the limits.
pub struct Config {
    /// The API that the server serves. Entries of the call log and fault rules refer to it.
    pub half: Half,
    pub address: IpAddr,
    /// The port on which the server listens. 0 means any free port.
    pub port: u16,
    pub tls: Option<ServerTls>,
    pub handler: Arc<dyn Handler>,
    pub calls: Arc<CallLog>,
    pub faults: Arc<Faults>,
    pub limits: Limits,
}

impl Config {
    /// Returns the settings for plain HTTP on a free port of 127.0.0.1, without faults and with a new call log.
    pub fn new(half: Half, handler: Arc<dyn Handler>) -> Config {
        Config {
            half,
            address: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            tls: None,
            handler,
            calls: Arc::default(),
            faults: Arc::default(),
            limits: Limits::default(),
        }
    }
}

/// The limits on the resources that a client could use up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The limit for the request line and headers together, in bytes. Larger requests are answered with 431. The
    /// trailer of a chunked body has the same limit.
    pub head_bytes: usize,
    /// The limit for a body, in bytes. Larger bodies are answered with 413.
    pub body_bytes: usize,
    /// The limit for connections that are open at the same time. Further connections wait in the listener's queue.
    pub connections: usize,
    /// The time that may pass between two requests of a connection. It is longer than the idle time of Go's client (90
    /// s), so that a client never begins a request just when the server closes the connection.
    pub idle: Duration,
    /// The time that a request may take from its first byte to its last. A TLS handshake has the same limit. Slower
    /// requests are answered with 408.
    pub request: Duration,
    /// How long the server waits for the client to take more bytes of an answer.
    pub write: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 64 << 10,
            body_bytes: 16 << 20,
            connections: 1024,
            idle: Duration::from_secs(120),
            request: Duration::from_secs(30),
            write: Duration::from_secs(60),
        }
    }
}

/// The answer to one request in memory, and what a server would then do with the connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchanged {
    /// All bytes that a client would read. There are none when no answer is sent, and fewer than `Content-Length` says
    /// when the answer is cut off.
    pub answer: Vec<u8>,
    pub ending: Ending,
}

/// How an exchange leaves its connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// The connection stays open for the next request.
    KeepAlive,
    /// The connection is closed in the usual way.
    Close,
    /// The connection ends with a TCP reset.
    Reset,
}

/// Answers one HTTP/1.1 request without a socket, in the caller's thread, with the same faults, call log and delivery
/// as [`Server`]. `pause` is called wherever the server waits. Bytes after the request are ignored. An incomplete
/// request is not answered.
pub fn exchange(config: &Config, request: &[u8], pause: &dyn Fn(Duration)) -> Exchanged {
    connection::serve_in_memory(config, request, pause)
}

/// A running server. When dropped, the server closes its listener and all connections and waits for its threads.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to listen and to answer.
    ///
    /// # Errors
    /// An error means that the port is in use, or that this process may not use it.
    pub fn start(config: Config) -> io::Result<Server> {
        let listener = TcpListener::bind((config.address, config.port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { config, state: Mutex::default(), changed: Condvar::new() });
        let acceptor = {
            let shared = shared.clone();
            thread::Builder::new().name("sandbox-accept".into()).spawn(move || {
                accept(&listener, &shared);
                // A process that is being started at this moment may have inherited a copy of the socket. Closing our
                // copy alone would leave the socket open, so the socket itself is shut down.
                let _ = SockRef::from(&listener).shutdown(Shutdown::Both);
            })?
        };
        Ok(Server { address, shared, acceptor: Some(acceptor) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections that are open now.
    pub fn connections(&self) -> usize {
        self.shared.state().open.len()
    }
}

/// A port that is bound, but on which nothing listens. While this value exists, a connection to the port is refused, and
/// no other program gets the port as a free one.
#[derive(Debug)]
pub struct KeptPort {
    _socket: Socket,
}

impl KeptPort {
    /// Binds the port. Connections of a server that has just ended are no obstacle.
    ///
    /// # Errors
    /// An error means that the port is in use, or that this process may not use it.
    pub fn new(address: SocketAddr) -> io::Result<KeptPort> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        Ok(KeptPort { _socket: socket })
    }
}

/// How long a server that is being stopped waits for threads that are inside a handler or a hook.
const STOP_LIMIT: Duration = Duration::from_secs(5);

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop();
        // The acceptor blocks in accept(), so it is woken by a connection.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.shared.wait_until_closed(Instant::now() + STOP_LIMIT);
    }
}

/// The state that the acceptor, the connections and the owner share.
struct Shared {
    config: Config,
    state: Mutex<State>,
    /// Signals that a connection ended or that the server stops.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    next: u64,
    open: HashMap<u64, TcpStream>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another connection may be accepted. Returns false when the server is being stopped.
    fn wait_for_room(&self) -> bool {
        let full = |state: &mut State| {
            !state.stopping && state.open.len() >= self.config.limits.connections
        };
        let state =
            self.changed.wait_while(self.state(), full).unwrap_or_else(PoisonError::into_inner);
        !state.stopping
    }

    /// Registers a connection and returns its number, so that its thread may start. Returns `None` when the server is
    /// being stopped or the socket is gone.
    fn enter(&self, socket: &TcpStream) -> Option<u64> {
        let twin = socket.try_clone().ok()?;
        let mut state = self.state();
        if state.stopping {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.open.insert(number, twin);
        Some(number)
    }

    fn leave(&self, number: u64) {
        self.state().open.remove(&number);
        self.changed.notify_all();
    }

    fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        for socket in state.open.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    fn wait_until_closed(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let _ = self.changed.wait_timeout_while(self.state(), left, |state| !state.open.is_empty());
    }

    /// Pauses for `duration`. The pause ends early when the server is stopped.
    fn pause(&self, duration: Duration) {
        if !duration.is_zero() {
            let _ =
                self.changed.wait_timeout_while(self.state(), duration, |state| !state.stopping);
        }
    }
}

/// A guard that keeps a connection in the set of open connections. The connection leaves the set even when its thread
/// panics in a hook of a test.
struct Entry<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.shared.leave(self.number);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while shared.wait_for_room() {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            // Either the process has no file descriptors left, or the client that wanted to connect has left. The
            // server continues in both cases.
            Err(_) => {
                shared.pause(Duration::from_millis(10));
                continue;
            }
        };
        let Some(number) = shared.enter(&socket) else {
            continue;
        };
        let connection = {
            let shared = shared.clone();
            move || {
                let _entry = Entry { shared: &shared, number };
                connection::serve(&shared, socket);
            }
        };
        if thread::Builder::new().name("sandbox-connection".into()).spawn(connection).is_err() {
            shared.leave(number);
        }
    }
}
