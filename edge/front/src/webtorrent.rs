//! WebTorrent: clients exchange offers and answers over the WebSockets that they keep open here.
//!
//! ```text
//! HTTP request for an upgrade ─▶ WsConnection (a task) ─▶ Session (frames -> messages -> tracker)
//!                                                            │ replies, offers, answers
//!          socket ◀─ flush, once a turn ◀─ Connections ◀─ WsContext
//!                                                            │ to another worker's connections
//!                                                            ▼
//!                                                       WorkerMailboxes ◀─▶ letters ◀─▶ other nodes
//! ```
//!
//! The connections live on the threads and runtimes of the HTTP workers. An idle one holds no buffers.
//! All that a turn of the reactor brings for a connection, from any number of others, leaves in one write.
//!
//! A WebTorrent peer is a connection and a peer id: the same id on a second connection is another
//! peer, so that a client cannot take over, or end, the peer of another. An answer goes to the
//! connection that made the offer, and only if the offer was given to the connection that answers.

mod connection;
pub(crate) mod context;
mod letters;
mod mailboxes;
pub(crate) mod options;
mod peer_list;
mod session;

use std::rc::Rc;

use tracker::counters::DropReason;
use types::ConnectionKey;

use crate::buffer::WriteOutcome;
use crate::worker::Worker;
use context::{Relay, WsContext};
use mailboxes::MessageBatch;

pub(crate) use connection::start;
pub use letters::{BadLetters, LetterCounts, RemoteLetters};
pub use mailboxes::WorkerLink;
pub use options::WebOptions;
pub(crate) use session::Session;

/// Flushes whenever there is output.
pub(crate) async fn flush_all(worker: Rc<Worker>) {
    loop {
        worker.flush.notified().await;
        let blocked = worker.connections.borrow_mut().flush(worker.now());
        for key in blocked {
            let writer = worker.tasks.spawn(write_blocked(Rc::clone(&worker), key));
            worker.connections.borrow_mut().set_writer(key, Some(writer));
        }
        post_messages(&worker);
    }
}

/// Moves messages for other workers and nodes to their mailboxes.
fn post_messages(worker: &Worker) {
    let mut relay = worker.relay.borrow_mut();
    let Relay { link, outgoing, letters, .. } = &mut *relay;
    let lost = |listener: Option<usize>| {
        if let Some(listener) = listener {
            worker.listeners[listener].ws().drop(DropReason::MailboxFull);
        }
    };
    for (number, batch) in outgoing.iter_mut().enumerate().filter(|(_, batch)| !batch.is_empty()) {
        link.mailboxes.post(number, batch, lost);
    }
    if let Some(remote) = &link.mailboxes.remote {
        for (node, batch) in letters.iter_mut().filter(|(_, batch)| !batch.is_empty()) {
            remote.post(*node, batch, lost);
        }
    }
}

pub(crate) async fn receive_all(worker: Rc<Worker>) {
    let link = worker.relay.borrow().link.clone();
    let mut batch = MessageBatch::default();
    loop {
        link.arrived().await;
        batch = link.collect(batch);
        WsContext::with(&worker, |context| context.receive(&batch));
    }
}

/// Writes whenever the socket takes more, until all output has left.
async fn write_blocked(worker: Rc<Worker>, key: ConnectionKey) {
    while worker.writable(key).await.is_ok() {
        let written = worker.connections.borrow_mut().write(worker.now(), key);
        if !matches!(written, Ok(WriteOutcome::Blocked)) {
            break;
        }
    }
    worker.connections.borrow_mut().set_writer(key, None);
}
