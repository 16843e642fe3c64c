//! Serves one connection. For each request, it finds out which simulated faults apply, lets the simulated API handle
//! the request, and writes the answer.

use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::answer::{self, Next};
use super::bytes::{Bytes, Memory};
use super::request::{self, Received, Refusal};
use super::stream::Stream;
use super::{Config, Ending, Exchanged, Shared};
use crate::exchange::{Request, Response};
use crate::faults::{Delivery, Outcome};

/// How long the server keeps a connection open after it has answered a request with an error because it cannot read the
/// request. In this time the client can read the answer, even if it is still sending the request.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);
/// How long the server waits for the client to close the connection after the last answer.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// Serves a connection until the client or the server ends it.
pub(super) fn serve(shared: &Shared, socket: TcpStream) {
    let limits = &shared.config.limits;
    let deadline = Instant::now() + limits.request;
    let Ok(mut stream) = Stream::open(socket, shared.config.tls.as_ref(), deadline, limits.write)
    else {
        return;
    };
    loop {
        let received = match request::receive(&mut stream, limits) {
            Ok(received) => received,
            Err(Refusal::Gone) => return stream.close(Duration::ZERO),
            Err(Refusal::Answer(status, sentence)) => {
                return refuse(shared, stream, status, sentence);
            }
        };
        let is_outdated = |stream: &Stream| stream.is_outdated(shared.config.tls.as_ref());
        let pause = |duration| shared.pause(duration);
        match exchange(&shared.config, &mut stream, &received, is_outdated, &pause) {
            Ending::KeepAlive => {}
            Ending::Close => return stream.close(CLOSE_PATIENCE),
            Ending::Reset => return stream.reset(),
        }
    }
}

/// Answers one request that did not come over a socket. Calls `pause` wherever a server with sockets would wait.
pub(super) fn serve_in_memory(
    config: &Config,
    request: &[u8],
    pause: &dyn Fn(Duration),
) -> Exchanged {
    let mut memory = Memory::new(request);
    let ending = match request::receive(&mut memory, &config.limits) {
        Ok(received) => exchange(config, &mut memory, &received, |_| false, pause),
        Err(Refusal::Gone) => Ending::Close,
        Err(Refusal::Answer(status, sentence)) => {
            write_refusal(&mut memory, status, sentence, pause);
            Ending::Close
        }
    };
    Exchanged { answer: memory.answer, ending }
}

fn exchange<B: Bytes>(
    config: &Config,
    stream: &mut B,
    received: &Received,
    is_outdated: impl Fn(&B) -> bool,
    pause: &dyn Fn(Duration),
) -> Ending {
    let request = &received.request;
    let plan = config.faults.plan(config.half, request);
    let call = config.calls.begin(config.half, request, plan.name());
    let wait = |duration: Duration| {
        if !duration.is_zero() {
            pause(duration);
        }
    };

    plan.before(request);
    wait(plan.delay);
    let (response, delivery) = match &plan.outcome {
        Outcome::Reset => {
            config.calls.end(call, None);
            return Ending::Reset;
        }
        Outcome::Instead(response) => (response.clone(), Delivery::Whole),
        Outcome::Handle(delivery) => (handle(config, request), *delivery),
        Outcome::Change(change) => (change(handle(config, request)), Delivery::Whole),
        Outcome::Lose => {
            handle(config, request);
            plan.after(request);
            config.calls.end(call, None);
            return Ending::Close;
        }
    };
    plan.after(request);
    wait(plan.answer_delay);

    // The log gets the status of the call before the first byte of the answer is sent. A client that has received the
    // answer therefore finds the status in the log.
    config.calls.end(call, Some(&response));
    let next =
        if received.keep_alive && !is_outdated(stream) { Next::KeepAlive } else { Next::Close };
    match answer::write(stream, request, &response, next, delivery, &wait) {
        Ok(Next::KeepAlive) => Ending::KeepAlive,
        Ok(Next::Close) | Err(_) => Ending::Close,
    }
}

/// Lets the simulated API handle the request. A panic in the code of the simulated API is answered with status 500, and
/// the HTTP server continues to run.
fn handle(config: &Config, request: &Request) -> Response {
    catch_unwind(AssertUnwindSafe(|| config.handler.handle(request))).unwrap_or_else(|_| Response {
        status: 500,
        headers: vec![("Content-Type".into(), "text/plain".into())],
        body: b"the sandbox's handler panicked; see its standard error\n".to_vec(),
    })
}

fn refuse(shared: &Shared, mut stream: Stream, status: u16, sentence: &str) {
    if write_refusal(&mut stream, status, sentence, &|between| shared.pause(between)) {
        stream.close(REFUSAL_PATIENCE);
    }
}

/// Writes the error answer to a request that the server cannot read, e.g. because it is malformed or too large. Returns
/// false when the answer could not be written.
fn write_refusal(
    stream: &mut impl Bytes,
    status: u16,
    sentence: &str,
    pause: &dyn Fn(Duration),
) -> bool {
    let response = Response {
        status,
        headers: vec![("Content-Type".into(), "text/plain".into())],
        body: format!("{sentence}\n").into_bytes(),
    };
    let (request, next) = (Request::default(), Next::Close);
    answer::write(stream, &request, &response, next, Delivery::Whole, pause).is_ok()
}
