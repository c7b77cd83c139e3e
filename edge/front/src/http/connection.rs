//! Connections that outlive their first read: kept alive, or with a request that is still coming.

use std::net::IpAddr;
use std::rc::Rc;

use tokio::task::yield_now;
use tracker::ConnectionPermit;
use types::{ConnectionKey, Tick, limits};

use super::http_service::{HttpClient, Served, ServiceStep};
use super::long_body::{BodyStream, Pace, joined};
use super::proxy_header;
use crate::buffer::{InputBuffer, WriteOutcome};
use crate::client::{RemoteClient, WsClient};
use crate::connection_error::{ConnectionError, ConnectionResult};
use crate::connections::Phase;
use crate::listener::Listener;
use crate::reject_log;
use crate::webtorrent::{self, Session};
use crate::worker::Worker;

/// Seconds for which input is dropped after the last response.
const DISCARD_S: u32 = 2;

/// A connection with a task of its own.
pub(super) struct Connection {
    pub(super) worker: Rc<Worker>,
    pub(super) listener: Rc<Listener>,
    pub(super) key: ConnectionKey,
    pub(super) client: RemoteClient,
    pub(super) input: InputBuffer,
}

/// The parts of the last step's result that must outlive a wait.
#[derive(Clone, Copy)]
struct Progress {
    now: Tick,
    answered: u32,
    /// True if a request had begun before the step.
    had_begun: bool,
}

impl Connection {
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
    pub(super) fn run(mut self, first: Served) -> impl Future<Output = ()> {
        async move {
            let end = self.serve(first).await;
            match end {
                Ok(Some(client)) => return self.upgrade(client),
                Ok(None) => {}
                Err(error) => {
                    if !self.worker.connections.borrow().was_ended(self.key) {
                        count_failure(&self.listener, self.client.ip, &error);
                    }
                }
            }
            self.worker.connections.borrow_mut().remove(self.key);
        }
    }

    /// Serves requests until the connection ends, or becomes a WebSocket of the client returned.
    async fn serve(&mut self, first: Served) -> ConnectionResult<Option<Rc<WsClient>>> {
        if self.client.expects_proxy_header() && !Box::pin(self.read_proxy_header()).await? {
            return Ok(None);
        }
        let mut progress = Progress { now: first.now, answered: first.answered, had_begun: false };
        let (mut next, mut long_body) = (first.next, first.long_body);
        // The socket shows whether a handshake is under way; the counters want to know when it ends.
        let mut handshaking = self.listener.tls.is_some();
        loop {
            // A WebSocket writes what is left by itself.
            let is_upgraded = matches!(next, ServiceStep::Upgrade(_));
            if !is_upgraded && (handshaking || self.has_output()) {
                self.write_output(&mut progress, handshaking).await?;
            }
            if let Some(body) = long_body.take() {
                progress.now = Box::pin(self.send_long(body)).await?;
            }
            let is_continued = next == ServiceStep::Continue;
            match next {
                ServiceStep::Upgrade(client) => return Ok(Some(client)),
                ServiceStep::Close => {
                    self.worker.connections.borrow().socket(self.key).send_close_notify()?;
                    return Ok(None);
                }
                ServiceStep::Drain => {
                    self.end_output(progress.now)?;
                    self.worker.discard_input(self.key).await?;
                    return Ok(None);
                }
                ServiceStep::Continue => {
                    self.hold_input(progress.now);
                    yield_now().await;
                }
                ServiceStep::Read => {
                    self.set_deadline(progress);
                    self.worker.readable(self.key).await?;
                }
            }
            if handshaking {
                // Boxed, because it is rare: a task has room for its largest wait.
                let network = self.worker.connections.borrow_mut().permit(self.key).network();
                Box::pin(self.worker.handshakes.turn(network)).await;
            }
            // Input that came before the end does not count any more.
            if self.worker.connections.borrow().was_ended(self.key) {
                return Ok(None);
            }
            let had_begun = !self.input.is_empty();
            let served = self.step(is_continued)?;
            progress = Progress { now: served.now, answered: served.answered, had_begun };
            (next, long_body) = (served.next, served.long_body);
            if handshaking && !self.worker.connections.borrow().socket(self.key).is_handshaking() {
                handshaking = false;
                self.worker.connections.borrow_mut().permit(self.key).end_handshake();
                self.listener.http().tls_handshakes += 1;
            }
        }
    }

    /// Reads the PROXY header and takes a permit for the client it names. Returns false if the other
    /// end has closed.
    async fn read_proxy_header(&mut self) -> ConnectionResult<bool> {
        self.worker.connections.borrow_mut().set_phase(self.key, Phase::Idle, None);
        let has_come = proxy_header::read(&self.worker, self.key, &mut self.client).await?;
        self.worker.connections.borrow_mut().set_phase(self.key, Phase::Request, None);
        if !has_come {
            return Ok(false);
        }
        let permit = self.listener.admit(&self.worker, self.client.ip)?;
        *self.worker.connections.borrow_mut().permit(self.key) = permit;
        Ok(true)
    }

    /// Reads once, answers, and writes once. Does not read if the input `is_continued`: it holds requests
    /// that have not had their turn.
    fn step(&mut self, is_continued: bool) -> ConnectionResult<Served> {
        let worker = &*self.worker;
        let may_stay = !worker.stopping.get();
        let client = HttpClient {
            tracker: &worker.tracker,
            listener: &self.listener,
            remote: &self.client,
            may_stay,
        };
        let mut served = {
            let connections = worker.connections.borrow();
            let stream = connections.socket(self.key);
            let mut service = worker.service.borrow_mut();
            let mut buffer = worker.read_buffer.borrow_mut();
            let read_buffer = (!is_continued).then_some(&mut **buffer);
            service.step(client, &mut self.input, read_buffer, stream)?
        };
        if !served.unsent.is_empty() {
            let unsent = std::mem::take(&mut served.unsent);
            worker.connections.borrow_mut().set_output(served.now, self.key, unsent);
        }
        Ok(served)
    }

    fn has_output(&self) -> bool {
        self.worker.connections.borrow().has_output(self.key)
    }

    /// Writes the output, and waits for the socket as long as that takes.
    async fn write_output(
        &mut self,
        progress: &mut Progress,
        handshaking: bool,
    ) -> ConnectionResult<()> {
        // A handshake has the deadline of the first request.
        if !handshaking && self.has_output() {
            let deadline = progress.now.after(self.listener.options.write_timeout_s);
            let mut connections = self.worker.connections.borrow_mut();
            connections.set_phase(self.key, Phase::Request, Some(deadline));
            progress.answered = progress.answered.max(1);
        }
        progress.now = self.flush(progress.now).await?;
        Ok(())
    }

    async fn flush(&self, mut now: Tick) -> ConnectionResult<Tick> {
        while self.worker.connections.borrow_mut().write(now, self.key)? != WriteOutcome::Done {
            self.worker.writable(self.key).await?;
            now = self.worker.now();
        }
        Ok(now)
    }

    /// Sends the rest of a response that a thread makes. Returns when all of it has left.
    async fn send_long(&self, mut body: Box<BodyStream>) -> ConnectionResult<Tick> {
        let Self { worker, listener, key, .. } = self;
        let mut pace = Pace::new(listener.options.write_timeout_s);
        loop {
            // The client need not hurry while the thread works.
            let wait_s = limits::FULL_SCRAPE_CHUNK_S;
            let deadline = worker.now().after(wait_s);
            worker.connections.borrow_mut().set_phase(*key, Phase::Request, Some(deadline));
            let Some(chunk) = body.chunks.recv().await else { break };
            let (began, len) = (worker.now(), chunk.len());
            {
                let mut connections = worker.connections.borrow_mut();
                let deadline = began.after(pace.left_s());
                connections.set_phase(*key, Phase::Request, Some(deadline));
                connections.set_output(began, *key, chunk);
            }
            pace.add(len, self.flush(began).await?.since(began));
            if body.is_full_scrape {
                listener.http().full_scrape_bytes += len as u64;
            }
        }
        let is_full_scrape = body.is_full_scrape;
        joined(body.thread.await)?;
        listener.http().full_scrapes += u64::from(is_full_scrape);
        Ok(worker.now())
    }

    /// Sets the deadline of the next input. Bytes that trickle in do not move the deadline of a
    /// request that has begun.
    fn set_deadline(&self, progress: Progress) {
        let options = &self.listener.options;
        let is_idle = self.input.is_empty();
        let phase = if is_idle { Phase::Idle } else { Phase::Request };
        let wait_s = match (progress.answered > 0, is_idle) {
            (true, true) => Some(options.idle_timeout_s),
            (true, false) => Some(options.head_timeout_s),
            (false, false) if !progress.had_begun => Some(options.head_timeout_s),
            (false, _) => None,
        };
        let deadline = wait_s.map(|wait_s| progress.now.after(wait_s));
        self.worker.connections.borrow_mut().set_phase(self.key, phase, deadline);
        self.hold_input(progress.now);
    }

    /// Counts the memory for input that has not been served.
    fn hold_input(&self, now: Tick) {
        let mut connections = self.worker.connections.borrow_mut();
        connections.hold_input(now, self.key, self.input.capacity());
    }

    /// Ends the output, all of which has left. The client has some time to close.
    fn end_output(&self, now: Tick) -> ConnectionResult<()> {
        let mut connections = self.worker.connections.borrow_mut();
        connections.set_phase(self.key, Phase::Closing, Some(now.after(DISCARD_S)));
        connections.write(now, self.key)?;
        Ok(())
    }

    /// Hands the connection over to WebTorrent. The permit that it takes is the client's, even if a
    /// proxy carries the connection.
    pub(super) fn upgrade(self, client: Rc<WsClient>) {
        let Self { worker, listener, key, input, .. } = self;
        // For HTTP the connection has ended.
        *worker.connections.borrow_mut().permit(key) = ConnectionPermit::uncounted();
        match listener.permit(&worker, client.ip) {
            Ok(permit) => {
                *worker.connections.borrow_mut().permit(key) = permit;
                webtorrent::start(&worker, Session::new(key, listener, client, input));
            }
            Err(error) => {
                count_failure(&listener, client.ip, &error);
                worker.connections.borrow_mut().remove(key);
            }
        }
    }
}

/// Counts and logs why a connection ends.
#[cold]
pub(super) fn count_failure(listener: &Listener, ip: IpAddr, error: &ConnectionError) {
    reject_log::broken("http", ip, error);
    listener.http().drop(error.drop_reason());
}
