//! The middleware in front of every route with a scope.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use tracing::debug;

use super::auth::{AuthError, Caller};
use super::problem::Problem;
use super::scope::Scopes;
use super::session_store::SessionId;
use super::state::Shared;
use crate::listener::{ClientAddr, ConnectionHandle};

impl FromRequestParts<Shared> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        // `guard` has inserted it for every route with a scope.
        let caller = parts.extensions.get::<Self>().cloned();
        debug_assert!(caller.is_some(), "a route without a scope takes a caller");
        caller.ok_or_else(|| AuthError::MissingToken.problem(Scopes::ALL))
    }
}

/// Authorizes a request before its handler runs.
pub(super) async fn guard(
    State((shared, scopes)): State<(Shared, Scopes)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let connected = request.extensions().get::<ConnectInfo<ClientAddr>>().cloned();
    debug_assert!(connected.is_some(), "the server provides the client's address");
    let (client, connection) = match connected {
        Some(ConnectInfo(ClientAddr(address, connection))) => (address.ip(), Some(connection)),
        None => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), None),
    };
    let header = request.headers().get(AUTHORIZATION).map(|header| header.as_bytes());
    let authenticator = shared.authenticator();
    // The route's path, not the request's, which may contain a secret by mistake.
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    match authenticator.authorize(header, client, scopes, shared.now()) {
        Ok(mut caller) => {
            caller.session = request.extensions().get::<SessionId>().copied();
            authenticator.accepted.fetch_add(1, Ordering::Relaxed);
            shared.end_first_token(&caller);
            let _in_progress = connection.as_ref().map(ConnectionHandle::begin_authenticated);
            let token = caller.token;
            request.extensions_mut().insert(caller);
            let response = next.run(request).await;
            let status = response.status().as_u16();
            debug!(%method, route, token, %client, status, "API request");
            Ok(response)
        }
        Err(error) => {
            debug!(%method, route, %client, reason = error.label(), "API request refused");
            if let Some(count) = authenticator.refused.get(error as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(error.problem(scopes))
        }
    }
}
