//! The server of the site's calls.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use hyper::server::conn::http1;
use hyper::service::Service as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use types::is_secret;

use crate::answers::Answers;
use crate::config::SiteKind;
use crate::shared_call::{Repeated, SharedCall};
use crate::{gazelle, unit3d};

/// Bytes of a body; that of a user has some hundred.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Time between two looks of a call that waits until the database has been read.
const LOADING_POLL: Duration = Duration::from_millis(10);
/// Calls at a time. More wait.
const CALLS_MAX: usize = 64;
/// Connections at a time. More wait in the kernel.
const CONNECTIONS_MAX: usize = 1024;
/// Time that a caller has for the head of a call, and again for its body. Also that of an idle connection.
const CALLER_TIME: Duration = Duration::from_secs(10);
/// Time after which the system is asked again for a connection that it could not accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// State of the calls of a site.
pub(crate) struct Calls {
    pub(crate) answers: Arc<Answers>,
    pub(crate) started_s: u32,
    pub(crate) passwords: Passwords,
    pub(crate) count: AtomicU64,
    /// Tells the other nodes of a cluster of a call, if there are any.
    pub(crate) share: Option<Box<dyn Fn(SharedCall) + Send + Sync>>,
    reload: Arc<AtomicBool>,
    room: Semaphore,
}

/// Where calls come from.
pub(crate) struct Sources {
    /// Callers connect to it.
    pub(crate) listener: TcpListener,
    /// Calls that other nodes of a cluster got.
    pub(crate) repeated: Option<mpsc::Receiver<SharedCall>>,
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
            share: None,
            reload,
            room: Semaphore::new(CALLS_MAX),
        }
    }

    /// Logs why a call cannot be read.
    pub(crate) fn note_bad(&self, reason: &str) {
        tracing::warn!(target: "site", "a call of the site cannot be read: {reason}");
    }

    /// Has all tables read again.
    pub(crate) fn request_reload(&self) {
        self.reload.store(true, Ordering::Release);
    }
}

impl FromRequestParts<Arc<Calls>> for Caller {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, calls: &Arc<Calls>) -> Result<Self, StatusCode> {
        let path = RawPathParams::from_request_parts(parts, calls).await;
        let path = path.map_err(|_| StatusCode::NOT_FOUND)?;
        let key = path.iter().find(|(name, _)| *name == "key").map_or("", |(_, key)| key);
        let is_known = is_secret(calls.passwords.updates.as_bytes(), key.as_bytes());
        if is_known { Ok(Self) } else { Err(StatusCode::NOT_FOUND) }
    }
}

/// Reads the whole call before it takes one of the places, so that slow callers do not keep others out.
async fn limit(
    State(calls): State<Arc<Calls>>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let (parts, body) = request.into_parts();
    let body = timeout(CALLER_TIME, to_bytes(body, BODY_BYTES_MAX)).await;
    let body = body.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
    // As for any other body that is no call.
    let body = body.map_err(|_| StatusCode::BAD_REQUEST)?;
    let is_repeated = parts.extensions.get::<Repeated>().is_some();
    let share = calls.share.as_ref().filter(|_| !is_repeated);
    let shared = share.and_then(|_| SharedCall::of(calls.answers.kind, &parts, &body));
    let request = Request::from_parts(parts, Body::from(body));
    // The semaphore is never closed.
    let _permit = calls.room.acquire().await;
    calls.count.fetch_add(u64::from(!is_repeated), Ordering::Relaxed);
    while calls.answers.loading.load(Ordering::Acquire) {
        sleep(LOADING_POLL).await;
    }
    let response = next.run(request).await;
    if let (Some(share), Some(call), StatusCode::OK) = (share, shared, response.status()) {
        share(call);
    }
    Ok(response)
}

/// Returns the routes of a site.
pub(crate) fn router(calls: Arc<Calls>) -> Router {
    let routes = match calls.answers.kind {
        SiteKind::Gazelle => gazelle::calls::router(),
        SiteKind::Unit3d | SiteKind::Feed => unit3d::calls::router(),
    };
    routes.layer(from_fn_with_state(Arc::clone(&calls), limit)).with_state(calls)
}

/// Serves the calls until `stop` is notified. Blocks.
///
/// # Errors
///
/// If the runtime cannot be made, or the listener is broken.
pub(crate) fn serve(sources: Sources, calls: Arc<Calls>, stop: Arc<Notify>) -> std::io::Result<()> {
    let Sources { listener, repeated } = sources;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        if let Some(repeated) = repeated {
            tokio::spawn(repeat(repeated, Arc::clone(&calls)));
        }
        // Connections that are kept open do not keep the process: the runtime ends with this call.
        tokio::select! {
            () = accept(&listener, router(calls)) => Ok(()),
            () = stop.notified() => Ok(()),
        }
    })
}

/// Carries out the calls that other nodes got, in their order.
async fn repeat(mut repeated: mpsc::Receiver<SharedCall>, calls: Arc<Calls>) {
    let service = TowerToHyperService::new(router(Arc::clone(&calls)));
    while let Some(call) = repeated.recv().await {
        if let Some(request) = call.request(calls.answers.kind, &calls.passwords.updates) {
            // Its answer went to the site from the other node.
            let _ = service.call(request).await;
        }
    }
}

/// Accepts connections for ever.
async fn accept(listener: &tokio::net::TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve_connection(stream, router.clone(), place))),
            // Too many open files, or the caller is gone.
            Err(_) => sleep(ACCEPT_RETRY).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, router: Router, _place: OwnedSemaphorePermit) {
    let service = TowerToHyperService::new(router);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(CALLER_TIME);
    // An error is of the caller: it is gone, or too slow.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
