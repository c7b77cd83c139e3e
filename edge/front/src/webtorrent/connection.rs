//! A WebSocket's task: it waits for input, and passes it to the session.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;
use types::ConnectionKey;

use super::context::WsContext;
use super::session::{NextInput, Session};
use crate::connection_error::ConnectionError;
use crate::connections::readable;
use crate::stream::{ReadOutcome, Stream};
use crate::worker::Worker;

/// The pause in reading from a client that sends too many messages.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the task of a connection that has been upgraded.
pub(crate) fn start(worker: &Rc<Worker>, session: Session) {
    let client = Rc::clone(&session.client);
    worker.connections.borrow_mut().upgrade(worker.now(), session.key, client);
    worker.notify_flush();
    let connection = WsConnection { worker: Rc::clone(worker), key: session.key };
    worker.tasks.spawn(connection.run(session));
}

struct WsConnection {
    worker: Rc<Worker>,
    key: ConnectionKey,
}

impl WsConnection {
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
    fn run(self, mut session: Session) -> impl Future<Output = ()> {
        async move {
            let end = self.read_all(&mut session).await;
            WsContext::with(&self.worker, |context| session.leave(context));
            if let Ok(true) = end {
                // The flush sends the close frame, and then ends the output. The connection is over
                // whether or not this fails.
                let _ = self.worker.discard_input(self.key).await;
            }
            let mut connections = self.worker.connections.borrow_mut();
            if let Err(error) = &end
                && !connections.was_ended(self.key)
            {
                session.count_failure(error);
            }
            // A client that has only ended its output may still read. If this fails, it does not.
            let _ = connections.write(self.worker.now(), self.key);
            connections.remove(self.key);
        }
    }

    /// Serves messages until the session ends. Returns true if a close frame has yet to leave, and false if the
    /// client has ended its output.
    async fn read_all(&self, session: &mut Session) -> Result<bool, ConnectionError> {
        // First the input that came with the request.
        let mut next = WsContext::with(&self.worker, |context| session.receive(context, &mut []));
        loop {
            match next {
                NextInput::End => return Ok(true),
                NextInput::Pause => {
                    // Boxed, because it is rare: a task has room for its largest wait.
                    Box::pin(sleep(PAUSE)).await;
                    next =
                        WsContext::with(&self.worker, |context| session.receive(context, &mut []));
                }
                NextInput::Read => {
                    readable(&self.worker.connections, self.key).await?;
                    match self.read(session)? {
                        Some(then) => next = then,
                        None => return Ok(false),
                    }
                }
            }
        }
    }

    /// Reads once, and serves the messages that have come. Returns `None` if the input has ended.
    fn read(&self, session: &mut Session) -> Result<Option<NextInput>, ConnectionError> {
        let mut buffer = self.worker.read_buffer.borrow_mut();
        let read = {
            let connections = self.worker.connections.borrow();
            if connections.was_ended(self.key) {
                return Ok(None);
            }
            connections.socket(self.key)?.read_now(&mut buffer)?
        };
        let len = match read {
            ReadOutcome::Data(len) => len,
            ReadOutcome::Blocked => {
                // A part of a TLS record may have come.
                session.count_memory(&mut self.worker.connections.borrow_mut(), self.worker.now());
                return Ok(Some(NextInput::Read));
            }
            ReadOutcome::End => return Ok(None),
        };
        let fresh = buffer.get_mut(..len).unwrap_or_default();
        Ok(Some(WsContext::with(&self.worker, |context| {
            context.connections.heard(context.now, self.key);
            session.receive(context, fresh)
        })))
    }
}
