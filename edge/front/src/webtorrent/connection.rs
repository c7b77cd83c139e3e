//! A WebSocket's task: it waits for input, and passes it to the session.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use super::context::WsContext;
use super::session::{NextInput, Session};
use crate::connection_error::ConnectionResult;
use crate::stream::{ReadOutcome, Stream};
use crate::worker::Worker;

/// The pause in reading from a client that sends too many messages.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the task of a connection that has been upgraded.
pub(crate) fn start(worker: &Rc<Worker>, session: Session) {
    let client = Rc::clone(&session.client);
    worker.connections.borrow_mut().upgrade(worker.now(), session.key, client);
    worker.notify_flush();
    worker.tasks.spawn(run(Task { worker: Rc::clone(worker), session }));
}

/// The task of a WebSocket. Each idle connection has one, so it keeps little over its usual wait: one reference to
/// this, and rare waits are boxed.
struct Task {
    worker: Rc<Worker>,
    session: Session,
}

#[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
fn run(mut task: Task) -> impl Future<Output = ()> {
    async move {
        // First the input that came with the request.
        let mut next = task.serve_rest();
        let end = loop {
            match next {
                // The flush sends the close frame.
                NextInput::End => break Ok(true),
                NextInput::Pause => {
                    Box::pin(sleep(PAUSE)).await;
                    next = task.serve_rest();
                    continue;
                }
                NextInput::Read => {}
            }
            let waits = match poll_fn(|context| Poll::Ready(task.poll_readable(context))).await {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(error)) => break Err(error.into()),
            };
            if !waits {
                // The socket has more than the last read took: other connections have their turn first.
                Box::pin(yield_now()).await;
            } else if let Err(error) = poll_fn(|context| task.poll_readable(context)).await {
                break Err(error.into());
            }
            next = match task.read() {
                Ok(Some(next)) => next,
                Ok(None) => break Ok(false),
                Err(error) => break Err(error),
            };
        };
        Box::pin(task.leave(end)).await;
    }
}

impl Task {
    fn serve_rest(&mut self) -> NextInput {
        let Self { worker, session } = self;
        WsContext::with(worker, |context| session.receive(context, &mut []))
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.worker.connections.borrow().socket(self.session.key).poll_readable(context)
    }

    /// Reads once, and serves the messages that have come. Returns `None` if the client has ended its output.
    fn read(&mut self) -> ConnectionResult<Option<NextInput>> {
        let Self { worker, session } = self;
        let mut buffer = worker.read_buffer.borrow_mut();
        let mut connections = worker.connections.borrow_mut();
        if connections.was_ended(session.key) {
            return Ok(None);
        }
        let len = match connections.socket(session.key).read_now(&mut buffer)? {
            ReadOutcome::Data(len) => len,
            ReadOutcome::Blocked => {
                // A part of a TLS record may have come.
                session.count_memory(&mut connections, worker.now());
                return Ok(Some(NextInput::Read));
            }
            ReadOutcome::End => return Ok(None),
        };
        drop(connections);
        Ok(Some(WsContext::with(worker, |context| {
            context.connections.heard(context.now, session.key);
            session.receive(context, &mut buffer[..len])
        })))
    }

    /// Ends the connection. `end` is `Ok(true)` if a close frame has yet to leave, and `Ok(false)` if the client has
    /// ended its output.
    async fn leave(mut self, end: ConnectionResult<bool>) {
        let Self { worker, session } = &mut self;
        WsContext::with(worker, |context| session.leave(context));
        if let Ok(true) = end {
            // The flush sends the close frame, and then ends the output. The connection is over whether
            // or not this fails.
            let _ = worker.discard_input(session.key).await;
        }
        let mut connections = worker.connections.borrow_mut();
        if let Err(error) = &end
            && !connections.was_ended(session.key)
        {
            session.count_failure(error);
        }
        // A client that has only ended its output may still read. If this fails, it does not.
        let _ = connections.write(worker.now(), session.key);
        connections.remove(session.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes of the future that `spawn` gets.
    fn size_of_future<Argument, Made>(_: impl FnOnce(Argument) -> Made) -> usize {
        size_of::<Made>()
    }

    /// With more, tokio would need 384 bytes for the task instead of 256.
    #[test]
    fn an_idle_connection_has_a_small_task() {
        assert!(size_of_future(run) <= 144, "{}", size_of_future(run));
    }
}
