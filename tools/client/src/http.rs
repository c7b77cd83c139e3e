//! Announces and scrapes over HTTP/1.1, on persistent connections where the tracker allows.

mod connection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection};
use types::{Announce, InfoHash};

use crate::codec::http::{self as codec, ResponseError, TrackerResponse};
use crate::stream::Deadline;
use crate::{
    AnnounceResponse, FailureKind, ScrapeEntry, ScrapeStats, SessionConfig, TrackerError, Url,
};
use connection::{Connection, Response};

/// An HTTP session with a tracker, and its connection while one is open.
pub(crate) struct Http {
    url: Url,
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    timeout: Duration,
    key: u32,
    connection: Option<Connection>,
    local_addr: Option<SocketAddr>,
    /// The tracker's treatment of connections so far.
    pub(crate) reuse: Reuse,
}

/// Counters that show how a tracker treats its connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reuse {
    /// Responses on a connection that had already carried one.
    pub(crate) reused: u32,
    /// Connections that closed without an announcement.
    pub(crate) broken: u32,
}

impl Http {
    pub(crate) fn open(
        url: &Url,
        address: SocketAddr,
        config: &SessionConfig,
    ) -> Result<Self, TrackerError> {
        let mut http = Self {
            url: url.clone(),
            address,
            tls: Arc::clone(&config.tls),
            timeout: config.timeout,
            key: config.key,
            connection: None,
            local_addr: None,
            reuse: Reuse::default(),
        };
        http.connection = Some(http.connect(Deadline::after(config.timeout))?);
        Ok(http)
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.local_addr
    }

    /// Returns the TLS session of the open connection.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        self.connection.as_ref()?.stream.tls()
    }

    pub(crate) fn announce(
        &mut self,
        announce: &Announce,
    ) -> Result<AnnounceResponse, TrackerError> {
        let mut target = Vec::new();
        codec::announce_target(&mut target, &self.url.target, announce, self.key);
        let response = self.get(&target)?;
        self.read(&response, codec::parse_announce)
    }

    pub(crate) fn scrape(
        &mut self,
        hashes: &[InfoHash],
    ) -> Result<Vec<Option<ScrapeStats>>, TrackerError> {
        let mut target = Vec::new();
        codec::scrape_target(&mut target, &self.url.target, hashes).ok_or_else(|| {
            let text =
                format!("{} has no scrape URL: the path contains no /announce (BEP 48)", self.url);
            TrackerError::new(FailureKind::Refused, text)
        })?;
        let response = self.get(&target)?;
        let entries = self.read(&response, codec::parse_scrape)?;
        Ok(ScrapeEntry::in_order_of(hashes, &entries))
    }

    /// Parses a response's body and turns refusals into errors.
    fn read<'a, T>(
        &self,
        response: &'a Response,
        read: impl FnOnce(&'a [u8]) -> Result<TrackerResponse<'a, T>, ResponseError>,
    ) -> Result<T, TrackerError> {
        let Response { status, location, body, .. } = response;
        match (read(body), location) {
            (Ok(TrackerResponse::Success(answer)), _) if *status == 200 => Ok(answer),
            (Ok(TrackerResponse::Failure(reason)), _) if *status == 200 => {
                Err(TrackerError::new(FailureKind::Refused, text(reason)))
            }
            (Ok(TrackerResponse::Failure(reason)), _) => {
                let text = format!("HTTP status {status}: {}", text(reason));
                Err(TrackerError::new(FailureKind::Refused, text))
            }
            (_, Some(location)) if (300..400).contains(status) => {
                let text = format!("HTTP status {status}: redirects to {location}");
                Err(TrackerError::new(FailureKind::Refused, text))
            }
            (Err(why), _) if *status == 200 => {
                let begin = body.get(..40).unwrap_or(body).escape_ascii();
                let text = format!("{} has sent \"{begin}\": {why}", self.address);
                Err(TrackerError::new(FailureKind::InvalidResponse, text))
            }
            _ => {
                let why = sentence(body).map(|why| format!(": {why}")).unwrap_or_default();
                let text = format!("HTTP status {status}{why}");
                Err(TrackerError::new(FailureKind::Refused, text))
            }
        }
    }

    /// Sends a request and returns the response. If the tracker has closed the kept connection
    /// since the last response, retries once on a new one.
    fn get(&mut self, target: &[u8]) -> Result<Response, TrackerError> {
        let deadline = Deadline::after(self.timeout);
        let mut request = Vec::new();
        codec::get(&mut request, &self.url.host, target, false);
        if let Some(mut kept) = self.connection.take() {
            match kept.request(&request, deadline) {
                Err(error) if error.kind == FailureKind::ConnectionLost && kept.is_stale() => {
                    self.reuse.broken += 1;
                }
                answer => return self.keep(kept, answer),
            }
        }
        let mut connection = self.connect(deadline)?;
        let answer = connection.request(&request, deadline);
        self.keep(connection, answer)
    }

    fn connect(&mut self, deadline: Deadline) -> Result<Connection, TrackerError> {
        let connection = Connection::open(&self.url, self.address, &self.tls, deadline)?;
        self.local_addr = connection.stream.local_addr();
        Ok(connection)
    }

    /// Keeps the connection for the next request if its response allows that.
    fn keep(
        &mut self,
        connection: Connection,
        answer: Result<Response, TrackerError>,
    ) -> Result<Response, TrackerError> {
        let response = answer?;
        self.reuse.reused += u32::from(connection.answers > 1);
        if response.keep_alive {
            self.connection = Some(connection);
        }
        Ok(response)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the text of a response that is a single line, as servers explain an error. Pages in HTML are
/// none.
fn sentence(body: &[u8]) -> Option<&str> {
    const LEN_MAX: usize = 200;
    let line = std::str::from_utf8(body).ok()?.trim();
    let is_sentence = !line.is_empty() && line.len() <= LEN_MAX && !line.starts_with('<');
    (is_sentence && !line.contains(char::is_control)).then_some(line)
}
