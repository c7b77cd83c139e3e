//! POST requests to other machines: events for webhooks. The application provides the HTTP client.

use std::pin::Pin;
use std::sync::Arc;

/// A POST request with a JSON body.
#[derive(Clone, Debug)]
pub struct PostRequest {
    /// The target. The sender checks port and address again: they may be of an earlier configuration.
    pub url: String,
    /// JSON.
    pub body: String,
    /// The header `Tidegate-Signature`: `t=SECONDS,sha256=HEX`, where HEX is the HMAC-SHA256
    /// of `SECONDS.BODY` under the webhook's secret.
    pub signature: String,
}

/// Sends a POST request and returns the status of the response, or why there is none.
pub type SendPost = Arc<
    dyn Fn(PostRequest) -> Pin<Box<dyn Future<Output = Result<u16, String>> + Send>> + Send + Sync,
>;
