//! What is said of requests that fail: problem documents (RFC 9457).

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::records::RecordsError;

/// Why a request was not carried out.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What kind of problem: a name that stays the same.
    #[serde(rename = "type")]
    #[schema(example = "urn:tidegate:problem:not-found")]
    kind: String,
    /// The kind in words.
    title: Cow<'static, str>,
    /// The HTTP status, once more.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong with this request.
    detail: String,
    #[serde(skip)]
    retry_s: Option<u32>,
}

impl Problem {
    fn new(status: StatusCode, kind: &str, title: &'static str, detail: impl Into<String>) -> Self {
        let kind = format!("urn:tidegate:problem:{kind}");
        let (title, detail) = (title.into(), detail.into());
        Self { kind, title, status: status.as_u16(), detail, retry_s: None }
    }

    /// What was sent is not what is due.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "The request makes no sense", detail)
    }

    /// It may be what is due, but not here and now.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "This contradicts what is there", detail)
    }

    /// There is no such thing.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is no such thing", detail)
    }

    /// Another method is due.
    pub(crate) fn method() -> Self {
        let detail = "this path takes other methods, which the header Allow names";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", "The path has no such method", detail)
    }

    /// More was sent than is taken.
    pub(crate) fn too_large(bytes_max: usize) -> Self {
        let detail = format!("{bytes_max} bytes are the most");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large", detail)
    }

    /// It is of a type that is not taken.
    pub(crate) fn media_type(due: &str) -> Self {
        let detail = format!("the body must be {due}");
        let title = "The body is of a type that is not taken";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", title, detail)
    }

    /// Nobody has said who asks, or somebody who is not known.
    pub(crate) fn unauthorized(detail: &str) -> Self {
        let title = "A valid token is due";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", title, detail)
    }

    /// Whoever asks may not.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "This is not allowed", detail)
    }

    /// Too much was asked.
    pub(crate) fn too_many(detail: impl Into<String>, retry_s: u32) -> Self {
        let title = "Too many requests";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", title, detail);
        Self { retry_s: Some(retry_s), ..problem }
    }

    /// It would be right, but cannot be done at the moment.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        let title = "This cannot be done at the moment";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", title, detail);
        Self { retry_s: Some(1), ..problem }
    }

    /// A setting does not fit; each sentence says which, and why.
    pub(crate) fn settings(sentences: &[String]) -> Self {
        let title = "The configuration would not be good";
        Self::new(StatusCode::CONFLICT, "configuration", title, sentences.join("; "))
    }

    /// The number of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<RecordsError> for Problem {
    fn from(failure: RecordsError) -> Self {
        match failure {
            RecordsError::Conflict => Self::conflict(failure.to_string()),
            _ => Self::unavailable(failure.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // A structure of texts and numbers always has a form in JSON.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status(), kind, body).into_response();
        let headers = response.headers_mut();
        if let Some(retry_s) = self.retry_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_s));
        }
        if self.status == StatusCode::UNAUTHORIZED.as_u16() {
            let due = HeaderValue::from_static("Bearer realm=\"tidegate\"");
            headers.insert(header::WWW_AUTHENTICATE, due);
        }
        response
    }
}
