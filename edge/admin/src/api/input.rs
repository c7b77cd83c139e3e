//! Arguments and results of handlers. A request that does not fit is answered with a [`Problem`].

use std::marker::PhantomData;

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::InfoHash;

use super::problem::Problem;
use super::state::Shared;
use crate::json::json_text;

/// Bytes of a request body, except for lists of entries.
pub(super) const BODY_MAX: usize = 64 * 1024;

/// A JSON body of at most `MAX` bytes.
pub(super) struct Body<T, const MAX: usize = BODY_MAX>(pub(super) T);

impl<T: DeserializeOwned, const MAX: usize> FromRequest<Shared> for Body<T, MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Problem> {
        if media_type(request.headers()) != "application/json" {
            return Err(Problem::media_type("application/json"));
        }
        let bytes = axum::body::to_bytes(request.into_body(), MAX).await;
        let bytes = bytes.map_err(|_| Problem::too_large(MAX))?;
        let read = serde_json::from_slice(&bytes).and_then(|mut value| {
            floats_to_integers(&mut value);
            serde_json::from_value(value)
        });
        read.map(Self).map_err(|error| Problem::bad_request(format!("body: {error}")))
    }
}

/// Converts floats without a fraction to integers: `2.0` is an integer in JSON Schema, and some languages
/// write no other.
fn floats_to_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 9e15);
            if let Some(whole) = whole.filter(|_| number.is_f64()) {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(floats_to_integers),
        Value::Object(members) => members.values_mut().for_each(floats_to_integers),
        _ => {}
    }
}

/// Returns the `Content-Type` without parameters, in lower case; empty if there is none.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns whether the client prefers this type of response.
pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accepted.is_some_and(|kinds| kinds.trim_start().starts_with(kind))
}

/// The query of the URL, parsed.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let query = axum::extract::Query::try_from_uri(&parts.uri);
        let fault = |error: axum::extract::rejection::QueryRejection| {
            Problem::bad_request(format!("query: {}", error.body_text()))
        };
        query.map(|axum::extract::Query(query)| Self(query)).map_err(fault)
    }
}

/// A type of path parameter.
pub(super) trait PathSegment: Sized {
    /// The name of the parameter in routes.
    const NAME: &'static str;
    /// Parses the parameter. The error says what was expected.
    fn parse(text: &str) -> Result<Self, String>;
}

/// A path parameter.
pub(super) struct PathParam<T>(pub(super) T);

impl<T: PathSegment> FromRequestParts<Shared> for PathParam<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Problem> {
        let all = RawPathParams::from_request_parts(parts, shared).await;
        let all = all.map_err(|_| Problem::bad_request("path: expected UTF-8"))?;
        let found = all.iter().find(|(name, _)| *name == T::NAME);
        debug_assert!(found.is_some(), "the route has no parameter {}", T::NAME);
        let text = found.map_or("", |(_, text)| text);
        T::parse(text).map(Self).map_err(|error| Problem::bad_request(format!("path: {error}")))
    }
}

impl PathSegment for InfoHash {
    const NAME: &'static str = "hash";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: types::ParseInfoHashError| error.to_string())
    }
}

/// The id of a key, token or webhook.
#[derive(Clone, Copy)]
pub(super) struct Id(pub(super) u32);

impl PathSegment for Id {
    const NAME: &'static str = "id";

    fn parse(text: &str) -> Result<Self, String> {
        // `parse` alone accepts a sign.
        let has_only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let id = text.parse().ok().filter(|_| has_only_digits);
        id.map(Self).ok_or_else(|| {
            format!("expected an id from 0 to {}, found `{}`", u32::MAX, text.escape_default())
        })
    }
}

/// 200 with a JSON body.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json_response(StatusCode::OK, &self.0)
    }
}

/// 201 with what was created, as JSON.
pub(super) struct Created<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        json_response(StatusCode::CREATED, &self.0)
    }
}

fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], json_text(value)).into_response()
}

/// 204: the change was applied.
pub(super) struct NoContent;

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

/// A response of the kind `K`, which the OpenAPI document describes.
pub(super) struct Raw<K>(Response, PhantomData<K>);

impl<K> Raw<K> {
    pub(super) fn new(response: impl IntoResponse) -> Self {
        Self(response.into_response(), PhantomData)
    }
}

impl<K> IntoResponse for Raw<K> {
    fn into_response(self) -> Response {
        self.0
    }
}

/// Characters of a name or another text shown in lists and logs, and of a search.
const NAME_MAX: usize = 100;

/// Checks the length of a name or another text shown in lists and logs, or of a search.
pub(super) fn check_name(field: &str, text: &str) -> Result<(), Problem> {
    check_length(field, text.chars().count(), NAME_MAX)
}

pub(super) fn check_length(field: &str, found: usize, max: usize) -> Result<(), Problem> {
    if found <= max {
        return Ok(());
    }
    let text = format!("{field}: expected at most {max} characters, found {found}");
    Err(Problem::bad_request(text))
}

/// The end of the year 9999: a larger value is a mistake, such as milliseconds.
const UNIX_TIME_MAX: i64 = 253_402_300_799;

/// Checks an expiry. One that has passed contradicts the clock, not the document: 30 may have meant 30 days.
pub(super) fn check_expiry(expires: Option<i64>, now: i64) -> Result<(), Problem> {
    check_time("expires", expires)?;
    match expires {
        Some(found) if found <= now => Err(Problem::conflict(format!(
            "expires: expected a Unix time in seconds in the future (now is {now}), found {found}"
        ))),
        _ => Ok(()),
    }
}

pub(super) fn check_time(field: &str, time: Option<i64>) -> Result<(), Problem> {
    match time {
        Some(found) if !(0..=UNIX_TIME_MAX).contains(&found) => Err(Problem::bad_request(format!(
            "{field}: expected a Unix time in seconds from 0 to {UNIX_TIME_MAX}, found {found}"
        ))),
        _ => Ok(()),
    }
}

/// Returns the text to search for, checked; empty if there is none.
pub(super) fn search_text(requested: Option<String>) -> Result<String, Problem> {
    let text = requested.unwrap_or_default();
    check_name("q", &text)?;
    Ok(text)
}

pub(super) fn check_count(field: &str, found: usize, max: usize) -> Result<(), Problem> {
    if (1..=max).contains(&found) {
        return Ok(());
    }
    Err(Problem::bad_request(format!("{field}: expected 1 to {max} {field}, found {found}")))
}

/// Checks that a table of at most `max` things has room for `wanted`, those that it has included.
pub(super) fn check_room(
    wanted: usize,
    max: usize,
    things: &str,
    remedy: &str,
) -> Result<(), Problem> {
    if wanted <= max {
        return Ok(());
    }
    Err(Problem::conflict(format!("the limit of {max} {things} is reached: {remedy}")))
}

/// Returns the size of a page, checked against `max`.
pub(super) fn page_limit(requested: Option<u32>, default: u32, max: u32) -> Result<u32, Problem> {
    match requested.unwrap_or(default) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        found => Err(Problem::bad_request(format!("limit: expected 1 to {max}, found {found}"))),
    }
}
