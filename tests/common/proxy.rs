//! A proxy for tests that speaks HTTP or SOCKS 5. It records its connections and requests, and can be told to
//! misbehave.
#![allow(dead_code, clippy::unwrap_used)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sandbox::credentials::{Authority, Validity};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Connect,
    Socks5,
}

/// How the proxy reacts to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    ByConnecting,
    /// The proxy answers with this HTTP status, or with this SOCKS reply code.
    With(u16),
    Never,
    /// The proxy closes the connection without an answer.
    NotAtAll,
    /// The proxy answers like a service that is not a proxy: it sends the greeting of an SSH server.
    Nonsense,
}

struct Rules {
    speaks: Speaks,
    answers: Answers,
    login: Option<(&'static str, &'static str)>,
    /// Host names that only the proxy can resolve, with their addresses.
    names: Vec<(String, SocketAddr)>,
}

/// A running proxy on a free port of 127.0.0.1. It runs until the test process ends.
pub struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    targets: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub fn start(
        speaks: Speaks,
        answers: Answers,
        login: Option<(&'static str, &'static str)>,
        names: &[(&str, SocketAddr)],
    ) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            targets: Arc::default(),
        };
        let names = names.iter().map(|(name, at)| ((*name).to_owned(), *at));
        let rules = Arc::new(Rules { speaks, answers, login, names: names.collect() });
        let (connections, targets) = (proxy.connections.clone(), proxy.targets.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                connections.fetch_add(1, Ordering::Relaxed);
                let (rules, targets) = (rules.clone(), targets.clone());
                std::thread::spawn(move || drop(rules.serve(stream, &targets)));
            }
        });
        proxy
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the targets of all requests that the proxy has received, as `host:port`, in the order of the requests.
    pub fn targets(&self) -> Vec<String> {
        self.targets.lock().unwrap().clone()
    }
}

impl Rules {
    fn serve(&self, stream: TcpStream, targets: &Mutex<Vec<String>>) -> io::Result<()> {
        match self.answers {
            Answers::NotAtAll => return Ok(()),
            Answers::Never => return io::copy(&mut { stream }, &mut io::sink()).map(drop),
            Answers::Nonsense => return { stream }.write_all(b"SSH-2.0-OpenSSH_9.2\r\n"),
            Answers::ByConnecting | Answers::With(_) => {}
        }
        match self.speaks {
            Speaks::Connect => self.connect(stream, targets),
            Speaks::Socks5 => self.socks(stream, targets),
        }
    }

    fn connect(&self, stream: TcpStream, targets: &Mutex<Vec<String>>) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let target = lines.first().and_then(|line| {
            let rest = line.strip_prefix("CONNECT ")?;
            rest.strip_suffix(" HTTP/1.1")
        });
        let Some(target) = target else {
            return { stream }.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        };
        targets.lock().unwrap().push(target.to_owned());
        let wanted = self.login.map(|(user, password)| {
            let pair = STANDARD.encode(format!("{user}:{password}"));
            format!("Proxy-Authorization: Basic {pair}")
        });
        if wanted.is_some_and(|wanted| !lines.contains(&wanted)) {
            return { stream }.write_all(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
            );
        }
        if let Answers::With(status) = self.answers {
            return { stream }.write_all(format!("HTTP/1.1 {status} No\r\n\r\n").as_bytes());
        }
        let Some(there) = self.reach(target) else {
            return { stream }.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n");
        };
        { &stream }.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")?;
        pump(stream, there)
    }

    fn socks(&self, mut stream: TcpStream, targets: &Mutex<Vec<String>>) -> io::Result<()> {
        let [version, count] = read(&mut stream)?;
        if version != 5 {
            return Ok(());
        }
        let mut methods = vec![0; usize::from(count)];
        stream.read_exact(&mut methods)?;
        let method = if self.login.is_some() { 2 } else { 0 };
        if !methods.contains(&method) {
            return stream.write_all(&[5, 0xff]);
        }
        stream.write_all(&[5, method])?;
        if let Some((user, password)) = self.login {
            let [_] = read(&mut stream)?;
            let right = text(&mut stream)? == user.as_bytes();
            let right = text(&mut stream)? == password.as_bytes() && right;
            stream.write_all(&[1, u8::from(!right)])?;
            if !right {
                return Ok(());
            }
        }
        let [_, _, _, kind] = read(&mut stream)?;
        let host = match kind {
            1 => std::net::Ipv4Addr::from(read::<4>(&mut stream)?).to_string(),
            4 => std::net::Ipv6Addr::from(read::<16>(&mut stream)?).to_string(),
            _ => String::from_utf8(text(&mut stream)?).unwrap(),
        };
        let port = u16::from_be_bytes(read(&mut stream)?);
        let target = format!("{host}:{port}");
        targets.lock().unwrap().push(target.clone());
        let reply = |code: u8| [5, code, 0, 3, 4, b't', b'e', b's', b't', 0, 0];
        if let Answers::With(code) = self.answers {
            return stream.write_all(&reply(code as u8));
        }
        let Some(there) = self.reach(&target) else {
            return stream.write_all(&reply(4));
        };
        stream.write_all(&reply(0))?;
        pump(stream, there)
    }

    fn reach(&self, target: &str) -> Option<TcpStream> {
        let (host, port) = target.rsplit_once(':')?;
        let known = self.names.iter().find(|(name, _)| name == host);
        let address = match known {
            Some((_, address)) => *address,
            None => SocketAddr::new(host.parse().ok()?, port.parse().ok()?),
        };
        TcpStream::connect(address).ok()
    }
}

fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a text of the SOCKS protocol: one byte with the length, and then that many bytes.
fn text(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let [length] = read(stream)?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Starts a TLS server on 127.0.0.1 that passes its connections on to a proxy. Returns the address of the TLS server.
pub fn behind_tls(authority: &Authority, proxy: SocketAddr) -> SocketAddr {
    let identity = authority.server(&["127.0.0.1"], Validity::Now).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap(),
        );
    let config = Arc::new(config.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for here in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(config.clone()).unwrap();
            std::thread::spawn(move || drop(unwrap_tls(StreamOwned::new(connection, here), proxy)));
        }
    });
    address
}

/// Passes bytes between a TLS connection and a proxy. One thread serves both directions, because they share the state
/// of the TLS connection. The thread waits only 2 ms for bytes of one direction before it tries the other direction.
fn unwrap_tls(
    mut here: StreamOwned<ServerConnection, TcpStream>,
    proxy: SocketAddr,
) -> io::Result<()> {
    let mut there = TcpStream::connect(proxy)?;
    let moment = Some(std::time::Duration::from_millis(2));
    here.sock.set_read_timeout(moment)?;
    there.set_read_timeout(moment)?;
    let mut piece = vec![0; 16 * 1024];
    loop {
        match here.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => there.write_all(&piece[..count])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        match there.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => here.write_all(&piece[..count])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Passes bytes between two connections in both directions, until both directions have ended.
fn pump(here: TcpStream, there: TcpStream) -> io::Result<()> {
    let (mut from_here, mut to_there) = (here.try_clone()?, there.try_clone()?);
    let up = std::thread::spawn(move || {
        let _ = io::copy(&mut from_here, &mut to_there);
        let _ = to_there.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut { there }, &mut { &here });
    let _ = here.shutdown(Shutdown::Write);
    let _ = up.join();
    Ok(())
}
