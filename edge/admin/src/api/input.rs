//! What handlers take from requests. What does not fit is answered with a problem that says why.

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use types::InfoHash;
use utoipa::openapi::path::ParameterIn;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::describe::{Input, Operation, Output};
use super::problem::Problem;

/// The most that a body may have, but for lists of entries.
pub(super) const BODY_MAX: usize = 64 * 1024;

/// The API itself.
impl Input for State<Shared> {}

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Problem> {
        if media_type(request.headers()) != "application/json" {
            return Err(Problem::media_type("application/json"));
        }
        let bytes = axum::body::to_bytes(request.into_body(), BODY_MAX).await;
        let bytes = bytes.map_err(|_| Problem::too_large(BODY_MAX))?;
        let read = serde_json::from_slice(&bytes).and_then(|mut value| {
            floats_to_integers(&mut value);
            serde_json::from_value(value)
        });
        read.map(Self).map_err(|error| Problem::bad_request(format!("the body: {error}")))
    }
}

/// To JSON Schema 2.0 is a whole number, and some languages have no others.
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

impl<T: ToSchema> Input for Body<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.body(&[("application/json", schema)]);
    }
}

/// What a body is said to be, without parameters, in lower case; empty if nothing is said.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The query of the URL.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let query = axum::extract::Query::try_from_uri(&parts.uri);
        let fault = |error: axum::extract::rejection::QueryRejection| {
            Problem::bad_request(format!("the query: {}", error.body_text()))
        };
        query.map(|axum::extract::Query(query)| Self(query)).map_err(fault)
    }
}

impl<T: IntoParams> Input for Query<T> {
    fn describe(operation: &mut Operation) {
        for parameter in T::into_params(|| Some(ParameterIn::Query)) {
            operation.parameter(serde_json::to_value(parameter).unwrap_or_default());
        }
    }
}

/// A part of a path that varies.
pub(super) trait PathSegment: Sized {
    /// What it is called in the route.
    const NAME: &'static str;
    /// Reads it, or says what is due.
    fn parse(text: &str) -> Result<Self, String>;
    /// What it looks like.
    fn schema() -> Value;
}

/// That part.
pub(super) struct PathParam<T>(pub(super) T);

impl<T: PathSegment> FromRequestParts<Shared> for PathParam<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Problem> {
        let all = RawPathParams::from_request_parts(parts, shared).await;
        let all = all.map_err(|_| Problem::bad_request("the path is no UTF-8"))?;
        let found = all.iter().find(|(name, _)| *name == T::NAME);
        let text = found.map(|(_, text)| text).unwrap_or_default();
        T::parse(text).map(Self).map_err(|due| Problem::bad_request(format!("the path: {due}")))
    }
}

impl<T: PathSegment> Input for PathParam<T> {
    fn describe(operation: &mut Operation) {
        operation.parameter(json!({
            "name": T::NAME, "in": "path", "required": true, "schema": T::schema(),
        }));
    }
}

impl PathSegment for InfoHash {
    const NAME: &'static str = "hash";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: types::ParseInfoHashError| error.to_string())
    }

    fn schema() -> Value {
        let pattern = "^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$";
        json!({ "type": "string", "pattern": pattern, "description": "40 hex digits, or 64 of a v2 hash" })
    }
}

/// The number of a key, token or webhook.
#[derive(Clone, Copy)]
pub(super) struct Id(pub(super) u32);

impl PathSegment for Id {
    const NAME: &'static str = "id";

    fn parse(text: &str) -> Result<Self, String> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_plain);
        number.map(Self).ok_or_else(|| format!("a number up to {} is due", u32::MAX))
    }

    fn schema() -> Value {
        json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
    }
}

/// 200, with JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json_response(StatusCode::OK, &self.0)
    }
}

impl<T: ToSchema> Output for Json<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.response(200, "Here it is.", &[("application/json", schema)]);
    }
}

/// 201, with JSON of what was made.
pub(super) struct Created<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        json_response(StatusCode::CREATED, &self.0)
    }
}

impl<T: ToSchema> Output for Created<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.response(201, "It is made, and in force.", &[("application/json", schema)]);
    }
}

fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    // What the API gives always has a form in JSON.
    let body = serde_json::to_vec(value).unwrap_or_default();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// 204: it is so now.
pub(super) struct NoContent;

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

impl Output for NoContent {
    fn describe(operation: &mut Operation) {
        operation.response(204, "It is so now.", &[]);
    }
}

/// Characters of a name, or of another text that is shown in lists and logs.
const NAME_MAX: usize = 100;

/// Whether what a field says is short enough to be shown.
pub(super) fn check_name(field: &str, text: &str) -> Result<(), Problem> {
    if text.chars().count() > NAME_MAX {
        return Err(Problem::bad_request(format!("{field}: {NAME_MAX} characters are the most")));
    }
    Ok(())
}

/// The end of the year 9999: more seconds are nobody's intention.
const EXPIRES_MAX: i64 = 253_402_300_799;

/// Whether something may end then.
pub(super) fn check_expiry(expires: Option<i64>) -> Result<(), Problem> {
    if expires.is_some_and(|at| !(0..=EXPIRES_MAX).contains(&at)) {
        return Err(Problem::bad_request(format!(
            "expires: seconds from 0 to {EXPIRES_MAX} are due"
        )));
    }
    Ok(())
}
