//! Posts webhooks. They reach public addresses of other machines only, but for those that the operator allows.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use admin::{PostRequest, SendPost};
use anyhow::{Result, anyhow};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use net::process::own_addresses;

use super::outbound::{Pool, RESPONSE_TIMEOUT, Targets, pool};
use crate::errors;
use config::Config;

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
    Ok(send_post(pool(&targets, None)?, targets, RESPONSE_TIMEOUT))
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
                answer
                    .map(|answer| answer.status().as_u16())
                    .map_err(|error| errors::describe(&error))
            });
        sent
    })
}

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
        let (pool, targets) = (pool(&Targets::Any, None).unwrap(), Targets::Any);
        let send_post = send_post(pool, targets, Duration::from_secs(1));
        let sent = runtime.block_on(async { send_post(post).await });
        assert_eq!(sent, Err("no response within 1 s".into()));
    }
}
