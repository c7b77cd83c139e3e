//! Error responses: problem documents (RFC 9457).

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};

use crate::json::json_text;
use crate::records::RecordsError;
use utoipa::ToSchema;

/// Why a request failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Identifies the kind of problem; stable.
    #[serde(rename = "type")]
    #[schema(example = "urn:tidegate:problem:not-found")]
    kind: String,
    /// The reason phrase of the HTTP status.
    title: Cow<'static, str>,
    /// The HTTP status.
    #[serde(serialize_with = "as_number")]
    #[schema(value_type = u16, minimum = 400, maximum = 599)]
    pub(super) status: StatusCode,
    /// Explanation of what is wrong with this request, and what to do.
    detail: String,
    #[serde(skip)]
    retry_s: Option<u32>,
}

impl Problem {
    fn new(status: StatusCode, kind: &str, detail: impl Into<String>) -> Self {
        let kind = format!("urn:tidegate:problem:{kind}");
        let title = status.canonical_reason().unwrap_or("Error");
        Self { kind, title: title.into(), status, detail: detail.into(), retry_s: None }
    }

    /// 400: a part of the request is malformed or out of range.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// 409: the request contradicts the present state, such as a full list or a name in use.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// 409: the new configuration is invalid; each sentence names a mistake.
    pub(crate) fn invalid_settings(sentences: Vec<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "configuration", sentences.join("; "))
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let detail =
            "this path does not support the method; the Allow header lists those it supports";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail)
    }

    /// 413: the body is larger than `bytes_max`.
    pub(crate) fn too_large(bytes_max: usize) -> Self {
        let detail = format!("body: expected at most {bytes_max} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
    }

    /// 415: the body has another type than the `expected` ones.
    pub(crate) fn media_type(expected: &str) -> Self {
        let detail = format!("Content-Type: expected {expected}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", detail)
    }

    pub(crate) fn unauthorized(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// 421: the request is for `host`, which is not this tracker.
    pub(crate) fn foreign_host(host: &str) -> Self {
        let detail = format!(
            "Host: `{host}` is not a name of this tracker: use its IP address, or add the name to [admin] hosts"
        );
        Self::new(StatusCode::MISDIRECTED_REQUEST, "host", detail)
    }

    /// 429: a limit was exceeded; the client may retry after `retry_s` seconds.
    pub(crate) fn too_many(detail: impl Into<String>, retry_s: u32) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail);
        Self { retry_s: Some(retry_s), ..problem }
    }

    /// 503: the request cannot be carried out now; the client may retry after a second.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
        Self { retry_s: Some(1), ..problem }
    }

    pub(crate) fn shutting_down() -> Self {
        Self::unavailable("the tracker is shutting down")
    }

    pub(crate) fn no_random() -> Self {
        Self::unavailable("the system returns no random numbers")
    }
}

fn as_number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
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
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status, content_type, json_text(&self)).into_response();
        let headers = response.headers_mut();
        if let Some(retry_s) = self.retry_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_s));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"tidegate\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
