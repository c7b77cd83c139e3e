//! The server of the site's calls.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use types::is_secret;

use crate::config::SiteKind;
use crate::shared_call::{Repeated, SharedCall};
use crate::subsystem::Shared;
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

pub(crate) struct Calls {
    pub(crate) shared: Arc<Shared>,
    pub(crate) count: AtomicU64,
    room: Semaphore,
}

/// A caller that knows UNIT3D's key. Others get 404, as from any other path.
pub(crate) struct Caller;

impl Calls {
    /// Logs why a call cannot be read.
    pub(crate) fn note_bad(&self, reason: &str) {
        tracing::warn!(target: "site", "a call of the site cannot be read: {reason}");
    }
}

impl FromRequestParts<Arc<Calls>> for Caller {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, calls: &Arc<Calls>) -> Result<Self, StatusCode> {
        let path = RawPathParams::from_request_parts(parts, calls).await;
        let path = path.map_err(|_| StatusCode::NOT_FOUND)?;
        let key = path.iter().find(|(name, _)| *name == "key").map_or("", |(_, key)| key);
        let secret = calls.shared.config.update_secret();
        let is_known = is_secret(secret.as_bytes(), key.as_bytes());
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
    let Shared { answers, config, sharing, clock, .. } = &*calls.shared;
    let is_sent = config.is_node && !is_repeated;
    let sent = is_sent.then(|| SharedCall::of(config.kind, &parts, &body)).flatten();
    let request = Request::from_parts(parts, Body::from(body));
    // The semaphore is never closed.
    let _permit = calls.room.acquire().await;
    calls.count.fetch_add(u64::from(!is_repeated), Ordering::Relaxed);
    while answers.loading.load(Ordering::Acquire) {
        sleep(LOADING_POLL).await;
    }
    let response = next.run(request).await;
    if let (Some(call), StatusCode::OK) = (sent, response.status()) {
        sharing.queue_call(clock.now_s(), call);
    }
    Ok(response)
}

pub(crate) fn router(calls: Arc<Calls>) -> Router {
    let routes = match calls.shared.config.kind {
        SiteKind::Gazelle => gazelle::calls::router(),
        SiteKind::Unit3d | SiteKind::Feed => unit3d::calls::router(),
    };
    routes.layer(from_fn_with_state(Arc::clone(&calls), limit)).with_state(calls)
}

/// Serves the calls of the site, and those that other nodes got, until the site stops. Blocks.
pub(crate) fn serve(shared: Arc<Shared>, listener: TcpListener) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let repeated = shared.repeated_calls.1.lock().take();
    let room = Semaphore::new(CALLS_MAX);
    let calls = Arc::new(Calls { shared, count: AtomicU64::default(), room });
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        if let Some(repeated) = repeated {
            tokio::spawn(repeat(repeated, Arc::clone(&calls)));
        }
        // Connections that are kept open do not keep the process: the runtime ends with this call.
        tokio::select! {
            () = accept(&listener, router(Arc::clone(&calls))) => Ok(()),
            () = calls.shared.calls_stop.notified() => Ok(()),
        }
    })
}

/// Carries out the calls that other nodes got, in their order.
async fn repeat(mut repeated: mpsc::Receiver<SharedCall>, calls: Arc<Calls>) {
    let service = TowerToHyperService::new(router(Arc::clone(&calls)));
    let config = &calls.shared.config;
    while let Some(call) = repeated.recv().await {
        if let Some(request) = call.request(config.kind, config.update_secret()) {
            // Its answer went to the site from the other node.
            let _ = service.call(request).await;
        }
    }
}

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
