//! Posts webhooks to other machines, and fetches keys of tokens, over TLS for https URLs. Redirects are not followed, and
//! webhooks reach public addresses of other machines only, but for those that the operator allows. The URL of keys is in
//! the configuration file: the API cannot set it.

mod resolver;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use admin::{PostRequest, SendPost};
use anyhow::{Context, Result, anyhow};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use net::process::own_addresses;
use resolver::{Resolver, Targets};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;

use crate::errors;
use config::Config;

/// How long a response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Pool = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// Returns the client that posts webhooks.
pub(super) fn client(config: &Config) -> Result<SendPost> {
    if config.webhook_ports.is_empty() {
        return Ok(Arc::new(|_| {
            Box::pin(async { Err("webhooks are off: admin.webhook_ports is empty".into()) })
        }));
    }
    let targets = Targets::Webhooks {
        ports: config.webhook_ports.clone().into(),
        private: config.webhook_private.clone(),
        own: own_addresses().into(),
    };
    Ok(send_post(pool(&targets)?, targets, RESPONSE_TIMEOUT))
}

fn pool(targets: &Targets) -> Result<Pool> {
    let roots = client::tls::authorities(None)?;
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions()?;
    let tls = builder.with_root_certificates(roots).with_no_client_auth();
    let resolver = Resolver::start(resolver::system, targets.clone());
    let mut tcp = HttpConnector::new_with_resolver(resolver.context("cannot start a thread")?);
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let connector = connector.enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

fn send_post(pool: Pool, targets: Targets, timeout: Duration) -> SendPost {
    Arc::new(move |post| {
        let (pool, targets) = (pool.clone(), targets.clone());
        let sent: Pin<Box<dyn Future<Output = Result<u16, String>> + Send>> =
            Box::pin(async move {
                let request = request(post).map_err(|error| error.to_string())?;
                // The port may be of an earlier configuration, or of another node's.
                targets.check_port(request.uri())?;
                // The resolver sees only names.
                if let Some(host) = request.uri().host()
                    && literal_address(host).is_some_and(|ip| !targets.allow(ip))
                {
                    return Err(Targets::refusal(host));
                }
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

/// Requests what the configuration file names a URL of.
pub(super) struct KeyFetcher(Pool);

impl KeyFetcher {
    /// Starts the threads that resolve names.
    pub(super) fn new() -> Result<Self> {
        pool(&Targets::Any).map(Self)
    }

    /// Returns the body of a response with status 200, of at most `bytes_max` bytes. Redirects are not
    /// followed.
    pub(super) async fn get(&self, url: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let fetched = tokio::time::timeout(RESPONSE_TIMEOUT, self.get_slowly(url, bytes_max)).await;
        fetched.unwrap_or_else(|_| {
            Err(format!("no complete response within {} s", RESPONSE_TIMEOUT.as_secs()))
        })
    }

    async fn get_slowly(&self, url: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let request = Request::get(url)
            .header("accept", "application/json")
            .header("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let answer = self.0.request(request).await.map_err(|error| errors::describe(&error))?;
        if answer.status() != StatusCode::OK {
            return Err(format!("expected status 200, found {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), bytes_max).collect().await;
        let body = body.map_err(|error| format!("cannot read the response: {error}"))?;
        Ok(body.to_bytes().into())
    }
}

/// Returns the IP address that a URL has instead of a host name.
fn literal_address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

fn request(post: PostRequest) -> Result<Request<Full<Bytes>>> {
    Request::post(post.url)
        .header("content-type", "application/json")
        .header("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .header("tidegate-signature", post.signature)
        .body(Full::from(post.body))
        .map_err(|error| anyhow!(error))
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
        let post = PostRequest { url, body: String::new(), signature: String::new() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (pool, targets) = (pool(&Targets::Any).unwrap(), Targets::Any);
        let send_post = send_post(pool, targets, Duration::from_secs(1));
        let sent = runtime.block_on(async { send_post(post).await });
        assert_eq!(sent, Err("no response within 1 s".into()));
    }

    #[test]
    fn posts_to_no_address_that_is_not_public() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let private = tracker::Networks::default();
        let targets = Targets::Webhooks { ports: [port].into(), private, own: [].into() };
        let send_post = send_post(pool(&targets).unwrap(), targets, Duration::from_secs(10));
        // Names, addresses, and what the system's resolver takes for addresses.
        for host in ["localhost", "127.0.0.1", "127.1", "2130706433", "[::ffff:127.0.0.1]", "[::1]"]
        {
            let url = format!("http://{host}:{port}/secret");
            let post = PostRequest { url, body: String::new(), signature: String::new() };
            let refusal = runtime.block_on(async { send_post(post).await }).unwrap_err();
            assert!(refusal.contains("admin.webhook_private"), "{host}: {refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
