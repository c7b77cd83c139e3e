//! A WebSocket's task: it waits for input, and passes it to the session.

use std::rc::Rc;
use std::time::Duration;

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
    worker.tasks.spawn(run(Rc::clone(worker), session));
}

#[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
fn run(worker: Rc<Worker>, mut session: Session) -> impl Future<Output = ()> {
    async move {
        let end = serve(&worker, &mut session).await;
        WsContext::with(&worker, |context| session.leave(context));
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

/// Serves messages until the session ends. Returns true if a close frame has yet to leave, and false if the
/// client has ended its output.
async fn serve(worker: &Worker, session: &mut Session) -> ConnectionResult<bool> {
    // First the input that came with the request.
    let mut next = WsContext::with(worker, |context| session.receive(context, &mut []));
    loop {
        next = match next {
            NextInput::End => return Ok(true),
            NextInput::Pause => {
                // Boxed, because it is rare: a task has room for its largest wait.
                Box::pin(sleep(PAUSE)).await;
                WsContext::with(worker, |context| session.receive(context, &mut []))
            }
            NextInput::Read => {
                worker.readable(session.key).await?;
                let Some(next) = read(worker, session)? else { return Ok(false) };
                next
            }
        };
    }
}

/// Reads once, and serves the messages that have come. Returns `None` if the input has ended.
fn read(worker: &Worker, session: &mut Session) -> ConnectionResult<Option<NextInput>> {
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
