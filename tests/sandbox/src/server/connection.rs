//! One connection: request, fault, handler, answer, and again.

use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::Shared;
use super::answer::{self, Next};
use super::request::{self, Received, Refusal};
use super::stream::Stream;
use crate::exchange::{Request, Response};
use crate::faults::{Delivery, Outcome};

/// How long a client is given to read its refusal while it may still be sending.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);
/// The same where the client has nothing left to send.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// Serves a connection until one side ends it.
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
        match exchange(shared, &mut stream, &received) {
            End::Next => {}
            End::Close => return stream.close(CLOSE_PATIENCE),
            End::Reset => return stream.reset(),
        }
    }
}

/// How an exchange leaves its connection.
enum End {
    Next,
    Close,
    Reset,
}

fn exchange(shared: &Shared, stream: &mut Stream, received: &Received) -> End {
    let config = &shared.config;
    let request = &received.request;
    let plan = config.faults.plan(config.half, request);
    let call = config.calls.begin(config.half, request, plan.name());

    plan.before(request);
    shared.pause(plan.delay);
    let (response, delivery) = match &plan.outcome {
        Outcome::Reset => {
            config.calls.end(call, None);
            return End::Reset;
        }
        Outcome::Instead(response) => (response.clone(), Delivery::Whole),
        Outcome::Handle(delivery) => (handle(shared, request), *delivery),
        Outcome::Change(change) => (change(handle(shared, request)), Delivery::Whole),
        Outcome::Lose => {
            handle(shared, request);
            plan.after(request);
            config.calls.end(call, None);
            return End::Close;
        }
    };
    plan.after(request);
    shared.pause(plan.answer_delay);

    // Logged before the first byte leaves: whoever has the answer finds the call in the log.
    config.calls.end(call, Some(&response));
    let next = if received.keep_alive && !stream.is_outdated(config.tls.as_ref()) {
        Next::KeepAlive
    } else {
        Next::Close
    };
    match answer::write(stream, request, &response, next, delivery, |between| {
        shared.pause(between)
    }) {
        Ok(Next::KeepAlive) => End::Next,
        Ok(Next::Close) | Err(_) => End::Close,
    }
}

/// A handler that panics has a fault of its own; the test's server goes on and says so.
fn handle(shared: &Shared, request: &Request) -> Response {
    catch_unwind(AssertUnwindSafe(|| shared.config.handler.handle(request))).unwrap_or_else(|_| {
        Response {
            status: 500,
            headers: vec![("Content-Type".into(), "text/plain".into())],
            body: b"the sandbox's handler panicked; see its standard error\n".to_vec(),
        }
    })
}

fn refuse(shared: &Shared, mut stream: Stream, status: u16, sentence: &str) {
    let response = Response {
        status,
        headers: vec![("Content-Type".into(), "text/plain".into())],
        body: format!("{sentence}\n").into_bytes(),
    };
    let pause = |between| shared.pause(between);
    if answer::write(
        &mut stream,
        &Request::default(),
        &response,
        Next::Close,
        Delivery::Whole,
        pause,
    )
    .is_ok()
    {
        stream.close(REFUSAL_PATIENCE);
    }
}
