//! The management API, `/api/v1`.
//!
//! ```text
//!  request ─ guard: token, scope, rate ─▶ handler ─▶ records ─ committed ─▶ tracker ─▶ response
//! ```
//!
//! Each route is one line in its module's table: method and path, scope, summary, handler. The router is built
//! from these lines. So is the OpenAPI document, with the handlers' types, but only in tests: they prove that
//! it equals the file that is served.

mod auth;
mod backup;
mod bans;
mod breakdown;
mod cluster;
mod config;
mod cors;
mod events;
mod first_token;
mod guard;
mod hand_over;
mod handler;
mod health;
mod history;
mod hosts;
mod input;
mod keys;
mod lists;
mod names;
#[cfg(test)]
mod openapi;
mod operation;
mod peers;
mod problem;
mod route;
mod scope;
mod session;
mod session_store;
mod site;
mod state;
mod stats;
mod status;
mod streams;
mod tokens;
mod torrent_access;
mod torrent_reasons;
mod torrents;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get};
use serde_json::Value;

use crate::webhooks as outgoing;
use problem::Problem;
use route::Route;
use scope::{Scope, Scopes};

pub(crate) use auth::AuthError;
pub use auth::is_token;
pub use first_token::{FirstTokenDisplay, StartError};
pub(crate) use hosts::{HostNames, check_host};
pub use lists::Reader as ListReader;
pub use state::{Api, ApiDeps, ApiOptions};

/// The path of the API.
pub(crate) const PREFIX: &str = "/api/v1";

/// Runs the API's background work for ever: webhooks, events and statistics.
pub(crate) async fn run_background(api: Arc<Api>) {
    let webhooks = outgoing::run(api.webhooks(), api.hub());
    let feed = outgoing::post_feed(api.webhooks(), &api.sources().site);
    let events = events::forward_tracker_events(&api);
    tokio::join!(webhooks, feed, events, record_stats(&api));
}

/// Takes a sample each second, and frees the list of torrents when it is idle.
async fn record_stats(api: &Api) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    let mut failures = health::Failures::default();
    loop {
        seconds.tick().await;
        api.keep_annotations();
        api.recorder.record(api.sources());
        failures.annotate(api);
        api.torrent_list.free_if_idle();
    }
}

fn routes() -> Vec<Route> {
    let tables = [
        stats::routes(),
        keys::routes(),
        bans::routes(),
        lists::routes(),
        tokens::routes(),
        config::routes(),
        events::routes(),
        history::routes(),
        status::routes(),
        names::routes(),
        torrents::routes(),
        torrent_reasons::routes(),
        peers::routes(),
        cluster::routes(),
        webhooks::routes(),
        site::routes(),
        backup::routes(),
    ];
    tables.into_iter().flatten().collect()
}

/// The OpenAPI document as it was reviewed last. Its version is 0.0.0.
const DOCUMENT: &str = include_str!("api/openapi.json");

fn document(version: &str) -> Value {
    let mut document: Value = serde_json::from_str(DOCUMENT).expect("a test parses this text");
    document["info"]["version"] = version.into();
    document
}

/// Puts a page behind a token with the scope `stats:read`.
pub(crate) fn guard_page<S: Clone + Send + Sync + 'static>(
    api: &Arc<Api>,
    page: MethodRouter<S>,
) -> MethodRouter<S> {
    page.route_layer(from_fn_with_state(
        (Arc::clone(api), Scopes::of(&[Scope::StatsRead])),
        guard::guard,
    ))
}

/// Returns a router with the API below [`PREFIX`] and the dashboard's `/session`.
pub(crate) fn router(api: &Arc<Api>) -> Router {
    let mut router = Router::new();
    for route in routes() {
        let handler = match route.scopes {
            Some(scopes) => {
                let state = (Arc::clone(api), Scopes::of(&scopes));
                route.handler.route_layer(from_fn_with_state(state, guard::guard))
            }
            None => route.handler,
        };
        router = router.route(route.path, handler);
    }
    let document = document(api.sources().version).to_string();
    let content_type = [("content-type", "application/json")];
    router = router.route("/openapi.json", get(move || async move { (content_type, document) }));
    let origins: Arc<[String]> = api.options.cors_origins.clone().into();
    // Layers added later run earlier: CORS, session, and then the route's own guard.
    Router::new()
        .nest(PREFIX, router)
        .merge(session::router())
        .fallback(|| async {
            Problem::not_found("no such path; /api/v1/openapi.json lists all paths")
        })
        .method_not_allowed_fallback(|| async { Problem::method_not_allowed() })
        .layer(from_fn_with_state(Arc::clone(api), session::apply_session))
        .layer(from_fn(move |request, next| {
            cors::allow_origins(Arc::clone(&origins), request, next)
        }))
        .with_state(Arc::clone(api))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::partition::partition;
