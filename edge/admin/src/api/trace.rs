//! The middleware that traces requests.

use std::time::{Instant, SystemTime};

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::guard::AuthenticatedToken;
use super::state::Shared;
use crate::listener::ClientAddr;
use crate::traces::{Span, read_parent};

/// Records a span of each sampled request. Only authenticated clients may decide about sampling by a
/// `traceparent` header.
pub(super) async fn trace_requests(
    State(api): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let Some(traces) = api.traces() else { return next.run(request).await };
    // The route, not the path, which may contain a secret by mistake.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let Some(route) = route else { return next.run(request).await };
    let client = request.extensions().get::<ConnectInfo<ClientAddr>>();
    let client = client.map(|client| client.0.0.ip());
    let (method, parent) = (request.method().to_string(), read_parent(request.headers()));
    let (start, begun) = (SystemTime::now(), Instant::now());
    let response = next.run(request).await;
    let duration = begun.elapsed();
    let token = response.extensions().get::<AuthenticatedToken>().map(|token| token.0);
    if let Some(context) = traces.sample(parent.filter(|_| token.is_some())) {
        let status = response.status().as_u16();
        traces.push(Span { context, method, route, status, client, token, start, duration });
    }
    response
}
