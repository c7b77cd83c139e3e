//! Imports of all modules with handlers: arguments, results, routes, scopes and state.

pub(super) use axum::extract::State;
pub(super) use serde::{Deserialize, Serialize};
pub(super) use utoipa::{IntoParams, ToSchema};

pub(super) use super::auth::Caller;
pub(super) use super::input::{
    Body, Created, Id, Json, NoContent, PathParam, PathSegment, Query, Raw,
};
pub(super) use super::problem::Problem;
pub(super) use super::route::{Route, route};
pub(super) use super::scope::{Scope, Scopes};
pub(super) use super::state::{Api, Shared};
