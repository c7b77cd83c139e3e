//! A route of the API: path, scope, handler and description.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::operation::{DescribeHandler, Operation};
use super::scope::Scope;
use super::state::Shared;

/// A route.
pub(super) struct Route {
    /// The path below the prefix, with `{names}` of parameters.
    pub(super) path: &'static str,
    /// The scopes that a token needs; `None` = no token needed.
    pub(super) scopes: Option<Vec<Scope>>,
    pub(super) handler: MethodRouter<Shared>,
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests build the OpenAPI document"))]
    pub(super) operation: Operation,
}

/// Builds a route from its method and path, as in `GET /stats`. The summary says in one line what it does.
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
    let filter = match method {
        "GET" => MethodFilter::GET,
        "POST" => MethodFilter::POST,
        "PUT" => MethodFilter::PUT,
        "PATCH" => MethodFilter::PATCH,
        _ => MethodFilter::DELETE,
    };
    let operation = H::describe(method, summary);
    let scopes = scope.into().map(|scope| vec![scope]);
    Route { path, scopes, handler: on(filter, handler), operation }
}

impl Route {
    pub(super) fn and(mut self, scope: Scope) -> Self {
        self.scopes.get_or_insert_default().push(scope);
        self
    }
}
