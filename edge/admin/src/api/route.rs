//! One operation of the API: where it is, who may, what it does, and what the document says of it.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::Shared;
use super::describe::{DescribeHandler, Operation};
use super::scope::Scope;

/// A handler in its place.
pub(super) struct Route {
    pub(super) method: Method,
    /// Below the prefix, with `{names}` for what varies.
    pub(super) path: &'static str,
    /// What a token must allow; `None` is for everybody.
    pub(super) scope: Option<Scope>,
    /// What it does, in a line.
    pub(super) summary: &'static str,
    pub(super) handler: MethodRouter<Shared>,
    pub(super) operation: Operation,
}

/// A handler for requests of `place`, as `GET /stats`.
pub(super) fn route<H, T, D>(
    place: &'static str,
    scope: impl Into<Option<Scope>>,
    summary: &'static str,
    handler: H,
) -> Route
where
    H: Handler<T, Shared> + DescribeHandler<D>,
    T: 'static,
{
    let (method, path) = place.split_once(' ').unwrap_or_default();
    let (method, filter) = match method {
        "GET" => (Method::GET, MethodFilter::GET),
        "POST" => (Method::POST, MethodFilter::POST),
        "PUT" => (Method::PUT, MethodFilter::PUT),
        "PATCH" => (Method::PATCH, MethodFilter::PATCH),
        _ => (Method::DELETE, MethodFilter::DELETE),
    };
    let mut operation = Operation::default();
    <H as DescribeHandler<D>>::describe(&mut operation);
    Route { method, path, scope: scope.into(), summary, handler: on(filter, handler), operation }
}

impl Route {
    /// What it belongs to: the first part of its path.
    pub(super) fn tag(&self) -> &'static str {
        self.path.split('/').nth(1).unwrap_or_default()
    }

    /// A name that programs made from the document can use, as `get_torrents_by_hash`.
    pub(super) fn name(&self) -> String {
        let parts = self.path.split('/').filter(|part| !part.is_empty()).map(|part| {
            match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                Some(name) => format!("by_{}", name.trim_start_matches('*')),
                None => part.replace('.', "_"),
            }
        });
        let method = self.method.as_str().to_lowercase();
        std::iter::once(method).chain(parts).collect::<Vec<_>>().join("_")
    }
}
