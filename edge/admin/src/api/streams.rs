//! Limits on concurrent streams. Each holds a connection that other clients may need.
//!
//! No token can keep others from streaming: when all streams are in use, a token with fewer takes one from
//! the token with the most.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as Line, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::auth::Caller;
use super::problem::Problem;
use super::state::Shared;

/// Interval of keep-alive comments. Shorter than the idle timeout of connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Period of the check whether access has expired. Revocation is noticed at once.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The open streams of one kind.
pub(super) struct Streams {
    max: usize,
    /// Oldest first.
    open: Mutex<Vec<OpenStream>>,
}

struct OpenStream {
    /// The id of the token.
    token: i64,
    /// Notified when the stream is to end.
    end: Arc<Notify>,
}

/// An open stream, until it is dropped.
pub(super) struct StreamPermit {
    streams: Arc<Streams>,
    end: Arc<Notify>,
}

impl Streams {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, open: Mutex::default() })
    }

    /// Adds a stream. If all are in use, ends the oldest of the token with the most, or returns an error if
    /// that would leave it with fewer than `token`.
    pub(super) fn open(self: &Arc<Self>, token: i64) -> Result<StreamPermit, Problem> {
        let mut open = self.open.lock();
        if open.len() >= self.max {
            let mut by_token: HashMap<i64, usize> = HashMap::from([(token, 1)]);
            open.iter().for_each(|stream| *by_token.entry(stream.token).or_default() += 1);
            let count = |stream: &OpenStream| by_token.get(&stream.token).copied().unwrap_or(0);
            let most = open.iter().map(count).max().unwrap_or(0);
            let oldest = open.iter().position(|stream| count(stream) == most);
            let own = by_token.get(&token).copied().unwrap_or(0);
            let Some(at) = oldest.filter(|_| most > own) else {
                let text = format!("all {} streams are in use: retry later", self.max);
                return Err(Problem::too_many(text, 10));
            };
            open.remove(at).end.notify_one();
        }
        let end = Arc::<Notify>::default();
        open.push(OpenStream { token, end: Arc::clone(&end) });
        Ok(StreamPermit { streams: Arc::clone(self), end })
    }
}

impl StreamPermit {
    /// Returns a response that sends `lines` as server-sent events until the stream is to end.
    pub(super) fn respond(
        self,
        api: Shared,
        caller: Caller,
        lines: impl Stream<Item = Line> + Send + 'static,
    ) -> Response {
        let lines = lines.take_until(Box::pin(self.ended(api, caller)));
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
        Sse::new(lines.map(Ok::<_, Infallible>)).keep_alive(keep_alive).into_response()
    }

    /// Completes when the stream is to end: another token takes its place, or `caller` loses its access.
    pub(super) async fn ended(self, api: Shared, caller: Caller) {
        tokio::select! {
            () = self.end.notified() => {}
            () = access_end(api, caller) => {}
        }
    }
}

/// Completes when `caller` loses its access: its token is revoked or expires, or its session ends.
async fn access_end(api: Shared, caller: Caller) {
    loop {
        let changed = api.access_changed.notified();
        tokio::pin!(changed);
        // Before the check, so that no change is missed.
        changed.as_mut().enable();
        let is_valid = api.authenticator().is_valid(caller.token, api.now());
        if !is_valid || caller.session.is_some_and(|session| !api.sessions.is_open(&session)) {
            return;
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(CHECK_PERIOD) => {}
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock();
        open.retain(|stream| !Arc::ptr_eq(&stream.end, &self.end));
    }
}
