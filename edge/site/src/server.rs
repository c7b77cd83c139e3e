//! The server of the site's calls.

use std::hint::black_box;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::sync::{Notify, Semaphore};

use crate::answers::Answers;
use crate::config::SiteKind;
use crate::{gazelle, unit3d};

/// Bytes of a body; that of a user has some hundred.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Time between two looks of a call that waits until the database has been read.
const LOADING_POLL: Duration = Duration::from_millis(10);
/// Calls at a time. More wait.
const CALLS_MAX: usize = 64;

/// State of the calls of a site.
pub(crate) struct Calls {
    pub(crate) answers: Arc<Answers>,
    pub(crate) started_s: u32,
    pub(crate) passwords: Passwords,
    pub(crate) count: AtomicU64,
    pub(crate) bad: AtomicU64,
    reload: Arc<AtomicBool>,
    room: Semaphore,
}

/// Secrets that callers know.
pub(crate) struct Passwords {
    /// UNIT3D's key, or Gazelle's password for updates.
    pub(crate) updates: String,
    /// Gazelle's password for reports.
    pub(crate) reports: String,
}

/// A caller that knows UNIT3D's key. Others get 404, as from any other path.
pub(crate) struct Caller;

impl Calls {
    pub(crate) fn new(
        answers: Arc<Answers>,
        started_s: u32,
        passwords: Passwords,
        reload: Arc<AtomicBool>,
    ) -> Self {
        Self {
            answers,
            started_s,
            passwords,
            count: AtomicU64::default(),
            bad: AtomicU64::default(),
            reload,
            room: Semaphore::new(CALLS_MAX),
        }
    }

    /// Counts a call that cannot be read, and logs why.
    pub(crate) fn note_bad(&self, reason: &str) {
        self.bad.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(target: "site", "a call of the site cannot be read: {reason}");
    }

    /// Has all tables read again.
    pub(crate) fn request_reload(&self) {
        self.reload.store(true, Ordering::Release);
    }
}

/// Compares secrets in a time that depends on their length only.
pub(crate) fn is_secret(expected: &str, found: &str) -> bool {
    let pairs = expected.bytes().zip(found.bytes());
    let differs = pairs.fold(0, |differs, (a, b)| differs | (a ^ b));
    expected.len() == found.len() && black_box(differs) == 0
}

impl FromRequestParts<Arc<Calls>> for Caller {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, calls: &Arc<Calls>) -> Result<Self, StatusCode> {
        let path = RawPathParams::from_request_parts(parts, calls).await;
        let path = path.map_err(|_| StatusCode::NOT_FOUND)?;
        let key = path.iter().find(|(name, _)| *name == "key").map_or("", |(_, key)| key);
        let is_known = is_secret(&calls.passwords.updates, key);
        if is_known { Ok(Self) } else { Err(StatusCode::NOT_FOUND) }
    }
}

async fn limit(State(calls): State<Arc<Calls>>, request: Request, next: Next) -> Response {
    // The semaphore is never closed.
    let _permit = calls.room.acquire().await;
    calls.count.fetch_add(1, Ordering::Relaxed);
    while calls.answers.loading.load(Ordering::Acquire) {
        tokio::time::sleep(LOADING_POLL).await;
    }
    next.run(request).await
}

/// Returns the routes of a site.
pub(crate) fn router(calls: Arc<Calls>) -> Router {
    let routes = match calls.answers.kind {
        SiteKind::Gazelle => gazelle::calls::router(),
        SiteKind::Unit3d | SiteKind::Feed => unit3d::calls::router(),
    };
    routes
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&calls), limit))
        .with_state(calls)
}

/// Serves the calls until `stop` is notified. Blocks.
///
/// # Errors
///
/// If the runtime cannot be made, or the listener is broken.
pub(crate) fn serve(
    listener: TcpListener,
    calls: Arc<Calls>,
    stop: Arc<Notify>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let server = axum::serve(listener, router(calls));
        // Connections that are kept open do not keep the process: the runtime ends with this call.
        tokio::select! {
            result = server => result,
            () = stop.notified() => Ok(()),
        }
    })
}
