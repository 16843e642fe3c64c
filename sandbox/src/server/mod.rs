//! A small HTTP/1.1 server. It serves each connection in a thread of its own, with TLS if this is configured. It logs
//! every call, and can simulate faults. [`exchange`] answers a single request in the same way, but without a socket.
//!
//! The server reads and writes HTTP. The [`Handler`], which is one of the simulated APIs, decides what a request means.
//!
//! | file | job |
//! |---|---|
//! | `mod` | listen, accept, stop |
//! | `connection` | one connection from its first byte to its last |
//! | `bytes` | the source of requests and the destination of answers: a connection, or memory |
//! | `stream` | a connection: plain or TLS, buffered, with deadlines |
//! | `request` | bytes → [`Request`](crate::exchange::Request), or the error answer that the client gets |
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

/// The settings of an HTTP server: which simulated API it serves, its address, and its limits.
pub struct Config {
    /// The API that the server serves. Each entry of the call log contains this value, and so does a fault rule that is
    /// limited to one API.
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
    /// Returns the settings of a server with plain HTTP on a free port of 127.0.0.1. It has no faults and a new call
    /// log.
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

/// Limits that prevent a client from using too much memory, too many threads or too much time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest size of the request line and the headers together, in bytes. A request with more bytes before its
    /// body gets the status 431. The trailer of a chunked body has the same limit.
    pub head_bytes: usize,
    /// The largest size of a request's body, in bytes. A request with a larger body gets the status 413.
    pub body_bytes: usize,
    /// The largest number of connections that are open at the same time. Further connections wait until another one
    /// ends.
    pub connections: usize,
    /// How long a connection can be idle between two requests before the server closes it. The default is longer than
    /// the 90 s after which Go's HTTP client closes an idle connection itself. Such a client therefore never sends a
    /// request just when the server closes the connection.
    pub idle: Duration,
    /// How long a request can take from its first byte to its last. A slower request gets the status 408. This is also
    /// the longest time of a TLS handshake.
    pub request: Duration,
    /// How long the server waits for a client that does not read the answer.
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

/// The answer to one request that came by a function call and not over a socket. It also contains what a server with
/// sockets would do with the connection: keep it open, close it or reset it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchanged {
    /// All bytes of the answer that a client would read. The list is empty when no answer is sent. When the answer is
    /// cut off, there are fewer bytes than `Content-Length` says.
    pub answer: Vec<u8>,
    pub ending: Ending,
}

/// What happens to the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// The connection stays open for the next request.
    KeepAlive,
    /// The connection is closed in the usual way, without a TCP reset.
    Close,
    /// The connection ends with a TCP reset.
    Reset,
}

/// Answers one HTTP/1.1 request without a socket, in the caller's thread. The faults, the entries in the call log and
/// the bytes of the answer are the same as with a [`Server`]. `pause` is called where the server would wait. Bytes
/// after the request are ignored. An incomplete request is not answered.
pub fn exchange(config: &Config, request: &[u8], pause: &dyn Fn(Duration)) -> Exchanged {
    connection::serve_in_memory(config, request, pause)
}

/// A running HTTP server. Dropping this value closes all connections, and waits until the server's threads have ended.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that listens and answers.
    ///
    /// # Errors
    /// Returns an error when the port is in use, or when this process is not allowed to use it.
    pub fn start(config: Config) -> io::Result<Server> {
        let listener = TcpListener::bind((config.address, config.port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { config, state: Mutex::default(), changed: Condvar::new() });
        let acceptor = {
            let shared = shared.clone();
            thread::Builder::new().name("sandbox-accept".into()).spawn(move || {
                accept(&listener, &shared);
                // When another thread starts a process at this moment, the process can inherit a copy of the listening
                // socket. If the socket were only closed here, the copy would still accept connections. The socket is
                // therefore shut down.
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

/// A port that this process keeps for itself without listening on it. While this value exists, connections to the port
/// are refused, and no other program gets the port as a free one.
#[derive(Debug)]
pub struct KeptPort {
    _socket: Socket,
}

impl KeptPort {
    /// Keeps the port of this address for this process. This is possible even when connections of a server that has
    /// just ended on this port are still closing.
    ///
    /// # Errors
    /// Returns an error when the port is in use, or when this process is not allowed to use it.
    pub fn new(address: SocketAddr) -> io::Result<KeptPort> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        Ok(KeptPort { _socket: socket })
    }
}

/// How long a stopping server waits for its threads to end. A thread can still be handling a request, or running a
/// function of the test that is called during a request.
const STOP_LIMIT: Duration = Duration::from_secs(5);

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop();
        // The thread that accepts connections waits in accept(). A connection to the server's own address ends this
        // wait, and the thread then notices that the server stops.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.shared.wait_until_closed(Instant::now() + STOP_LIMIT);
    }
}

/// The state that the [`Server`] shares with its threads. One thread accepts connections, and the others serve them.
struct Shared {
    config: Config,
    state: Mutex<State>,
    /// The condition variable that is signalled when a connection has ended, and when the server stops.
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

    /// Waits until the number of open connections is below the limit. Returns false when the server stops.
    fn wait_for_room(&self) -> bool {
        let full = |state: &mut State| {
            !state.stopping && state.open.len() >= self.config.limits.connections
        };
        let state =
            self.changed.wait_while(self.state(), full).unwrap_or_else(PoisonError::into_inner);
        !state.stopping
    }

    /// Adds a connection to the open connections, and returns its number. Returns `None` when the server stops or when
    /// the socket is unusable. The caller must not serve the connection in this case.
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

    /// Waits for `duration`. The wait ends early when the server stops.
    fn pause(&self, duration: Duration) {
        if !duration.is_zero() {
            let _ =
                self.changed.wait_timeout_while(self.state(), duration, |state| !state.stopping);
        }
    }
}

/// An entry in the list of open connections. Dropping this value removes the connection from the list. This also
/// happens when the connection's thread panics, e.g. in a function that a test runs during an API call as a simulated
/// fault.
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
            // accept() fails when the process has no file descriptors left, and when a client has closed its connection
            // before the connection was accepted. In both cases the HTTP server continues to accept connections.
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
