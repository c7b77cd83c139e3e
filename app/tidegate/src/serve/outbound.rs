//! Posts webhooks and traces to other machines, over TLS for https URLs.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use admin::{PostRequest, SendPost, TraceOptions};
use anyhow::{Result, anyhow};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;

use crate::config::Config;
use crate::errors;

/// How long a response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Pool = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Returns what posts webhooks and, if configured, traces.
pub(super) fn client(config: &Config) -> Result<(SendPost, Option<TraceOptions>)> {
    let send_post: SendPost = if config.webhook_ports.is_empty() {
        Arc::new(|_| {
            Box::pin(async { Err("webhooks are off: admin.webhook_ports is empty".into()) })
        })
    } else {
        send_post(pool()?, RESPONSE_TIMEOUT)
    };
    let Some(trace) = &config.trace else { return Ok((send_post, None)) };
    let (endpoint, per_million) = (trace.endpoint.clone(), trace.per_million);
    let send_traces = self::send_post(pool()?, RESPONSE_TIMEOUT);
    let traces = TraceOptions { endpoint, per_million, send_post: send_traces };
    Ok((send_post, Some(traces)))
}

fn pool() -> Result<Pool> {
    let roots = client::tls::authorities(None)?;
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions()?;
    let tls = builder.with_root_certificates(roots).with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let connector = connector.enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

fn send_post(pool: Pool, timeout: Duration) -> SendPost {
    Arc::new(move |post| {
        let pool = pool.clone();
        let sent: Pin<Box<dyn Future<Output = Result<u16, String>> + Send>> =
            Box::pin(async move {
                let request = request(post).map_err(|error| error.to_string())?;
                let answer = tokio::time::timeout(timeout, pool.request(request)).await;
                let answer =
                    answer.map_err(|_| format!("no response within {} s", timeout.as_secs()))?;
                // Only the status matters.
                answer
                    .map(|answer| answer.status().as_u16())
                    .map_err(|error| errors::describe(&error))
            });
        sent
    })
}

fn request(post: PostRequest) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::post(post.url)
        .header("content-type", "application/json")
        .header("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION")));
    if let Some(signature) = post.signature {
        request = request.header("tidegate-signature", signature);
    }
    request.body(Full::from(post.body)).map_err(|error| anyhow!(error))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn gives_up_on_a_receiver_that_never_answers() {
        // The kernel accepts the connection.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let post = PostRequest { url, body: String::new(), signature: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let send_post = send_post(pool().unwrap(), Duration::from_secs(1));
        let sent = runtime.block_on(async { send_post(post).await });
        assert_eq!(sent, Err("no response within 1 s".into()));
    }
}
