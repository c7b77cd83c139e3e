//! A route of the API: method and path, scope, summary, handler and description.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::operation::{DescribeHandler, Operation};
use super::scope::Scope;
use super::state::Shared;

/// A route.
pub(super) struct Route {
    pub(super) method: Method,
    /// The path below the prefix, with `{names}` of parameters.
    pub(super) path: &'static str,
    /// The scope that a token needs; `None` = no token needed.
    pub(super) scope: Option<Scope>,
    /// What it does, in one line.
    pub(super) summary: &'static str,
    pub(super) handler: MethodRouter<Shared>,
    pub(super) operation: Operation,
}

/// Builds a route from its method and path, as in `GET /stats`.
pub(super) fn route<H, T, D>(
    method_and_path: &'static str,
    scope: impl Into<Option<Scope>>,
    summary: &'static str,
    handler: H,
) -> Route
where
    H: Handler<T, Shared> + DescribeHandler<D>,
    T: 'static,
{
    let parts = method_and_path.split_once(' ');
    debug_assert!(parts.is_some(), "{method_and_path}: expected a method and a path");
    let (method, path) = parts.unwrap_or(("", method_and_path));
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
    /// Returns the tag of the operation: the first segment of its path.
    pub(super) fn tag(&self) -> &'static str {
        self.path.split('/').nth(1).unwrap_or(self.path)
    }

    /// Returns the operation id, as `get_torrents_by_hash`, which generated clients use as a name.
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
