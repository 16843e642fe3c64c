//! A write is over when its time is over, however slowly the other side takes and gives.

use crate::common::library::http_settings;
use crate::common::{contains, wait_until};
use ccm::http::{self, Authorities, HttpErrorKind, Method, Roots, Secret, SecretSource, Tls};
use ccm::provider::{Gate, Refused};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(700);

/// How much later than its deadline a write may end on a busy machine, where a thread may wait for a second and more.
/// A write that does not keep its deadline is noticed all the same, because each test gives it work for at least
/// twice as long.
const SLACK: Duration = Duration::from_secs(4);

/// A body that is larger than the buffers of both ends of a narrow connection, and costs little to encode. A thread
/// that has just used the processor for long would wait for long, while the time of its write runs.
const LARGE_BYTES: usize = 1 << 20;

/// The largest segment of a narrow connection, as on Ethernet. With those of the loopback interface, 64 KiB each, the
/// kernel buffers megabytes for the sender.
const SEGMENT_BYTES: u32 = 1460;

/// Lets everything through and knows when.
#[derive(Clone, Default)]
struct Passed(Arc<Mutex<Option<Instant>>>);

impl Gate for Passed {
    fn pass(&self, _: &str) -> Result<(), Refused> {
        *self.0.lock().unwrap() = Some(Instant::now());
        Ok(())
    }
}

fn client(
    base: String,
    tls: Tls,
    token: SecretSource,
    timeout: Duration,
    gate: impl Gate + 'static,
) -> http::HttpClient {
    http::HttpClient::new(http::HttpSettings {
        tls: tls.into(),
        gate: Arc::new(gate),
        ..http_settings(base, token, timeout)
    })
}

/// Returns a client without TLS and without a login.
fn plain(base: String, timeout: Duration, gate: impl Gate + 'static) -> http::HttpClient {
    client(base, Tls::default(), SecretSource::none(), timeout, gate)
}

/// A request of this body.
fn post(client: &http::HttpClient, body: &Value) -> http::HttpError {
    let write = http::HttpWrite {
        pass: <dyn Gate>::pass,
        method: Method::Post,
        path: "/x",
        content_type: "application/json",
        secrets: &[],
    };
    let outcome = client.write::<Value>(write, Some(body));
    outcome.map(|reply| reply.value).unwrap_err()
}

/// Fails for its time, and not later.
fn times_out(what: &str, client: &http::HttpClient, gate: &Passed, body: &Value) {
    let error = post(client, body);
    let took = gate.0.lock().unwrap().unwrap().elapsed();
    assert!(took < TIMEOUT + SLACK, "{what}: {took:?}: {error}");
    let HttpErrorKind::TimedOut(after) = error.kind else { panic!("{what}: {took:?}: {error:?}") };
    // The time begins a moment before the gate lets the write through, which may be some milliseconds on
    // a busy machine.
    assert!(after <= TIMEOUT, "{what}: {error}");
    // The kernel gives up a connection whose peer has confirmed nothing for as long as was left at the last send, which
    // is not before half of the time.
    assert!(took >= after / 2, "{what}: {took:?}: {error}");
    let text = format!("no complete answer within {} s", after.as_secs_f32());
    assert!(error.to_string().contains(&text), "{what}: {error}");
}

/// Serves one connection.
fn serve(listener: TcpListener, serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || serve(listener.accept().unwrap().0));
    format!("http://{address}")
}

/// A listener whose connections take little at a time.
fn narrow() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_tcp_mss(SEGMENT_BYTES).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&SockAddr::from(any)).unwrap();
    socket.listen(8).unwrap();
    socket.into()
}

#[test]
fn an_answer_that_comes_a_byte_at_a_time_does_not_extend_the_deadline() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n";
    // The answer is slow from its first byte on, or only after its head.
    for at_once in [0, head.len()] {
        let base = serve(TcpListener::bind("127.0.0.1:0").unwrap(), move |mut stream| {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let answer = format!("{head}{}", " ".repeat(1000));
            let (first, rest) = answer.as_bytes().split_at(at_once);
            let _ = stream.write_all(first);
            for byte in rest {
                std::thread::sleep(Duration::from_millis(10));
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
            }
        });
        let gate = Passed::default();
        let client = plain(base, TIMEOUT, gate.clone());
        times_out(&format!("{at_once} at once"), &client, &gate, &json!({}));
    }
}

/// The server reads a little now and then. Each system call makes progress, and the whole request would take minutes.
/// After the deadline nothing more is sent.
#[test]
fn a_request_that_is_read_slowly_does_not_extend_the_deadline() {
    let taken = Arc::new(Mutex::new(None));
    let into = Arc::clone(&taken);
    let base = serve(narrow(), move |mut stream| {
        let begun = Instant::now();
        let (mut piece, mut count) = (vec![0; 1024], 0);
        let end = loop {
            match stream.read(&mut piece) {
                Ok(0) => break None,
                Ok(some) => count += some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Some(error.kind()),
            }
            // Slowly until well after the deadline, then as fast as it comes.
            if begun.elapsed() < TIMEOUT + 2 * SLACK {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        *into.lock().unwrap() = Some((count, end));
    });
    let gate = Passed::default();
    let client = plain(base, TIMEOUT, gate.clone());
    let body = json!({ "x": "x".repeat(LARGE_BYTES) });
    times_out("taken slowly", &client, &gate, &body);
    wait_until("the end of what is taken", || taken.lock().unwrap().is_some());
    let (count, end) = taken.lock().unwrap().take().unwrap();
    assert!(count < LARGE_BYTES, "the whole request arrived");
    assert_eq!(end, Some(ErrorKind::ConnectionReset), "after {count} bytes");
}

/// The connection uses TLS, which needs many small steps. The handshake takes a part of the time.
#[test]
fn a_slow_tls_connection_does_not_extend_the_deadline() {
    let sandbox = Sandbox::builder().heartbeats(false).start();
    let token = sandbox.account("ccm").unwrap().token;
    let authorities =
        Authorities::parse(sandbox.authority().certificate_pem().as_bytes()).unwrap().certificates;
    let there = sandbox.address(Half::Kubernetes);
    // Each case has the bytes that pass in each direction every 10 ms. Either the handshake alone or the request
    // takes too long.
    for (what, up, down) in [("slow answers", 64 * 1024, 1), ("slow requests", 200, 64 * 1024)] {
        let listener = narrow();
        let base = format!("https://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for here in listener.incoming().map_while(Result::ok) {
                let there = TcpStream::connect(there).unwrap();
                let back = (there.try_clone().unwrap(), here.try_clone().unwrap());
                std::thread::spawn(move || trickle(here, there, up));
                std::thread::spawn(move || trickle(back.0, back.1, down));
            }
        });
        let tls = Tls { roots: Roots::Only(authorities.clone()), ..Tls::default() };
        let gate = Passed::default();
        let token = SecretSource::fixed(Secret::new(&token));
        let client = client(base, tls, token, TIMEOUT, gate.clone());
        let body = json!({ "x": "x".repeat(LARGE_BYTES) });
        times_out(what, &client, &gate, &body);
    }
    let arrived = sandbox.calls().count(|call| call.is_write() && call.path == "/x");
    assert_eq!(arrived, 0, "no write arrived whole");
}

fn trickle(mut from: TcpStream, mut to: TcpStream, bytes: usize) {
    let mut piece = vec![0; bytes];
    while let Ok(count) = from.read(&mut piece) {
        if count == 0 || to.write_all(&piece[..count]).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The time before the first byte counts, so nothing is sent after the deadline.
#[test]
fn a_request_is_not_sent_after_its_deadline() {
    let taken = Arc::new(Mutex::new(None));
    let into = Arc::clone(&taken);
    let base = serve(TcpListener::bind("127.0.0.1:0").unwrap(), move |mut stream| {
        let mut request = Vec::new();
        let _ = stream.read_to_end(&mut request);
        *into.lock().unwrap() = Some(request.len());
    });
    struct Slow;
    impl Gate for Slow {
        fn pass(&self, _: &str) -> Result<(), Refused> {
            std::thread::sleep(Duration::from_millis(60));
            Ok(())
        }
    }
    let client = plain(base.clone(), Duration::from_millis(50), Slow);
    let error = post(&client, &json!({})).to_string();
    contains(
        &error,
        "not sent: this process was paused, and the time limit of this write has passed",
    );
    // Our own connection ends the server's waiting.
    let address = base.strip_prefix("http://").unwrap();
    drop(TcpStream::connect(address).unwrap());
    wait_until("the server's end", || taken.lock().unwrap().is_some());
    assert_eq!(*taken.lock().unwrap(), Some(0));
}
