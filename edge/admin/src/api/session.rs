//! Sessions of the dashboard: a browser that signs in with a token gets a cookie with the token's permissions.
//!
//! Scripts cannot read the cookie (`HttpOnly`), and pages of other sites cannot send it (`SameSite=Strict`).
//! A request that changes something also needs a header that only a script of the same origin can set, and
//! the dashboard's own `Origin`: the cookie alone changes nothing. The API itself knows no cookies: a
//! middleware sets the `Authorization` header from the session.
//!
//! Browsers send cookies to all ports of a host (RFC 6265, section 8.5), so another service there can read the
//! cookie when the browser visits it. Its name has the port, so that at least two trackers, e.g. behind tunnels to
//! localhost, do not replace each other's.

use std::net::IpAddr;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, HOST, ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::{Deserialize, Serialize};

use super::auth::{AuthError, random_text};
use super::input::{Body, Json};
use super::problem::Problem;
use super::scope::{Scope, Scopes};
use super::session_store::{LIFETIME, SessionId};
use super::state::Shared;
use crate::listener::ClientAddr;

/// Begins the cookie's name.
const NAME: &str = "tidegate";
/// A header that a page of another origin cannot set without a CORS preflight.
const HEADER: &str = "x-tidegate";
/// Random characters of a session id: 190 bits.
const LEN: usize = 32;
/// `/session`: POST signs in, GET returns the session, DELETE signs out.
pub(super) fn router() -> Router<Shared> {
    Router::new().route("/session", post(open).get(show).delete(close))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// The name and scopes of a session's token, and what the navigation depends on.
#[derive(Serialize)]
struct SessionInfo {
    name: String,
    scopes: Vec<Scope>,
    /// True if this tracker is a node of a cluster.
    cluster: bool,
    /// True if users are accounted for a site.
    site: bool,
}

async fn open(
    State(api): State<Shared>,
    ConnectInfo(ClientAddr(client, _)): ConnectInfo<ClientAddr>,
    headers: HeaderMap,
    Body(Login { token }): Body<Login>,
) -> Result<Response, Problem> {
    if !is_same_origin(&headers) {
        return Err(cross_origin());
    }
    let session_info = session_info(&api, format!("Bearer {token}").as_bytes(), client.ip());
    let session_info = session_info.map_err(|error| error.problem(Scopes::ALL))?;
    let id = random_text(LEN).map_err(|_| Problem::no_random())?;
    api.sessions.open(SessionId::of(&id), &token);
    let secure = if is_over_tls(&headers) { "; Secure" } else { "" };
    let age_s = LIFETIME.as_secs();
    let name = cookie_name(&headers);
    let cookie = format!("{name}={id}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
    Ok(with_cookie(Json(session_info).into_response(), &cookie))
}

async fn show(
    State(api): State<Shared>,
    ConnectInfo(ClientAddr(client, _)): ConnectInfo<ClientAddr>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // Not an error: the dashboard asks before it shows the form.
    let Some(token) = headers.get(AUTHORIZATION) else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let session_info = session_info(&api, token.as_bytes(), client.ip());
    let session_info = session_info.map_err(|error| error.problem(Scopes::ALL))?;
    let mut response = Json(session_info).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn close(State(api): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(id) = session_id(&headers) {
        api.sessions.close(&id);
        api.access_changed.notify_waiters();
    }
    let name = cookie_name(&headers);
    let expired = format!("{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
    with_cookie(StatusCode::NO_CONTENT.into_response(), &expired)
}

fn session_info(api: &Shared, header: &[u8], client: IpAddr) -> Result<SessionInfo, AuthError> {
    let caller = api.authenticator().authenticate(Some(header), client, api.now())?;
    let sources = api.sources();
    Ok(SessionInfo {
        name: caller.name,
        scopes: caller.scopes.list(),
        cluster: sources.subsystems.read("cluster").is_some(),
        site: sources.site.get().is_some(),
    })
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    let headers = response.headers_mut();
    // Letters, digits and the punctuation of cookies are valid in headers.
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        headers.insert(SET_COOKIE, cookie);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Middleware: sets the `Authorization` header of a request that has a session cookie and no token.
pub(super) async fn apply_session(
    State(api): State<Shared>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let headers = request.headers();
    let session = session_id(headers).filter(|_| !headers.contains_key(AUTHORIZATION));
    let found = session.and_then(|id| Some((id, api.sessions.token(&id)?)));
    let Some((id, token)) = found else { return Ok(next.run(request).await) };
    if !request.method().is_safe() && !is_same_origin(headers) {
        return Err(cross_origin());
    }
    if let Ok(header) = HeaderValue::try_from(format!("Bearer {token}")) {
        request.headers_mut().insert(AUTHORIZATION, header);
        request.extensions_mut().insert(id);
    }
    Ok(next.run(request).await)
}

fn cross_origin() -> Problem {
    Problem::forbidden(
        "a session may only be used by the dashboard: expected `X-Tidegate: 1` and its own `Origin`",
    )
}

fn session_id(headers: &HeaderMap) -> Option<SessionId> {
    cookie(headers).map(SessionId::of)
}

/// Returns the cookie's name: it ends with the port as the browser knows it, which a tunnel may have changed. The
/// default ports of http and https are not in the header.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    port.map_or_else(|| NAME.into(), |port| format!("{NAME}-{port}"))
}

/// Returns the secret of a session in the cookies.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let own = cookie_name(headers);
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| name.trim() == own).map(|(_, id)| id.trim())
}

/// Returns whether a script of a page that was served here sent the request.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text(ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
    let host = text(HOST.as_str());
    text(HEADER) == Some("1") && host.is_some() && origin.map(|(_, host)| host) == host
}

/// Returns whether the page was loaded over TLS. The `Origin` tells even behind a proxy.
fn is_over_tls(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn finds_the_cookie_among_others() {
        let at =
            |host, line| cookie(&headers(&[("host", host), ("cookie", line)])).map(String::from);
        let found = |line| at("t:6970", line);
        assert_eq!(found("a=b; tidegate-6970=xyz; c=d").as_deref(), Some("xyz"));
        assert_eq!(found("xtidegate-6970=xyz"), None);
        assert_eq!(cookie(&headers(&[])), None);
        // Of another port of the host.
        assert_eq!(found("tidegate-6971=xyz; tidegate=xyz"), None);
        let both = "tidegate-6970=a; tidegate-443=b; tidegate=c";
        for (host, value) in [("[::1]:443", "b"), ("t.example", "c"), ("[::1]", "c"), ("t:", "c")] {
            assert_eq!(at(host, both).as_deref(), Some(value), "{host}");
        }
    }

    #[test]
    fn recognises_requests_of_other_sites() {
        let own = [("host", "t:1"), ("origin", "http://t:1"), ("x-tidegate", "1")];
        assert!(is_same_origin(&headers(&own)));
        for at in 0..own.len() {
            let mut less = own.to_vec();
            less.remove(at);
            assert!(!is_same_origin(&headers(&less)), "without {}", own[at].0);
        }
        for origin in ["http://t:2", "http://x.t:1", "null", "t:1", "http://t:1/"] {
            assert!(!is_same_origin(&headers(&[own[0], ("origin", origin), own[2]])), "{origin}");
        }
    }
}
