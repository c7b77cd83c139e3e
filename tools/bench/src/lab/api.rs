//! The management API of a running tidegate.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::http::Connection;
use harness::{PATIENCE, metrics};

const TOKEN: &str = "tg_benchbenchbenchbenchbenchbench01";
/// The environment variables that give a tracker the token. Versions before the first release, which runs
/// compare with, read the second.
pub(crate) const TOKEN_VARIABLES: [(&str, &str); 2] =
    [("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN), ("TIDEGATE_ADMIN_TOKEN", TOKEN)];

/// A connection that is kept open, so that only responses are measured.
pub struct Api(Connection);

impl Api {
    /// Connects, and waits until the tracker is ready: it may have to read millions of records.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not ready in time.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ready = Connection::open(address).map_err(anyhow::Error::from).and_then(|opened| {
                let mut api = Self(opened);
                api.ask(200, "GET /health/ready", "").map(|_| api)
            });
            if ready.is_ok() || Instant::now() > deadline {
                return ready.with_context(|| format!("no API at {address}"));
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Sends `request`, a method and a path, and returns the response's body. Fails unless the
    /// response has this status. A body that starts like JSON is sent as JSON, any other as text.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no response, or if it has another status.
    pub fn ask(&mut self, status: u16, request: &str, body: &str) -> Result<String> {
        let (found, text) = self.exchange(request, body)?;
        ensure!(found == status, "{request}: expected status {status}, found {found}: {text}");
        Ok(text)
    }

    /// The same, whatever the status is. Returns it, too.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no response.
    pub fn exchange(&mut self, request: &str, body: &str) -> Result<(u16, String)> {
        let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.send(head)?;
        let response = self.0.receive().with_context(|| format!("no response to {request}"))?;
        Ok((response.status, response.text()))
    }

    /// Returns the sum of a metric over all series that have these labels.
    ///
    /// # Errors
    ///
    /// Returns an error if the metrics cannot be read, or if none has this name.
    pub fn metric(&mut self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        metrics::sum(&self.ask(200, "GET /metrics", "")?, name, labels)
    }
}
