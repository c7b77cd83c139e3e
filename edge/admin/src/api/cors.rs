//! CORS (Fetch standard): which web origins may use the API. None, unless configured.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Middleware: adds CORS headers for pages of `origins` and answers their preflight requests. Other origins
/// get no such headers, so browsers withhold the response. No credentials are allowed: pages send a token.
pub(super) async fn allow_origins(
    origins: Arc<[String]>,
    request: Request,
    next: Next,
) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let allowed_origin =
        origin.filter(|origin| origins.iter().any(|known| known.as_bytes() == origin.as_bytes()));
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &allowed_origin {
        Some(_) if is_preflight => {
            let allowed = [
                (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
                (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
                (ACCESS_CONTROL_MAX_AGE, "600"),
            ];
            (StatusCode::NO_CONTENT, allowed).into_response()
        }
        _ => next.run(request).await,
    };
    if let Some(origin) = allowed_origin {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    if !origins.is_empty() {
        response.headers_mut().append(VARY, HeaderValue::from_static("origin"));
    }
    response
}
