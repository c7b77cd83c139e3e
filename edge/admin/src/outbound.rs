//! POST requests to other machines: events for webhooks, spans for a trace collector. The application
//! provides the HTTP client.

use std::pin::Pin;
use std::sync::Arc;

/// A POST request with a JSON body.
#[derive(Clone, Debug)]
pub struct PostRequest {
    /// The target. Of a webhook's URL, the sender checks port and address again: they may be of an earlier
    /// configuration.
    pub url: String,
    /// JSON.
    pub body: String,
    /// The header `Tidegate-Signature` of webhooks: `t=SECONDS,sha256=HEX`, where HEX is the HMAC-SHA256
    /// of `SECONDS.BODY` under the webhook's secret.
    pub signature: Option<String>,
}

/// Sends a POST request and returns the status of the response, or why there is none.
pub type SendPost = Arc<
    dyn Fn(PostRequest) -> Pin<Box<dyn Future<Output = Result<u16, String>> + Send>> + Send + Sync,
>;
