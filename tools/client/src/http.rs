//! Trackers over HTTP/1.1: connections are kept as long as the tracker likes.

mod connection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection};
use types::{Announce, InfoHash};
use wire::http::client::{self, ResponseError, TrackerResponse};

use crate::session::Manner;
use crate::stream::Deadline;
use crate::{Announced, Fault, Figures, Kind, Url};
use connection::{Connection, Response};

/// A tracker, and a connection to it if it has left one open.
pub(crate) struct Http {
    url: Url,
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    timeout: Duration,
    key: u32,
    connection: Option<Connection>,
    local: Option<SocketAddr>,
    /// What has become of connections.
    pub(crate) keeping: Keeping,
}

/// What a tracker does with its connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeping {
    /// Answers that came on a connection which had given one before.
    pub(crate) reused: u32,
    /// Answers that announced the end of their connection.
    pub(crate) closed: u32,
    /// Connections that ended although nothing had been said of it.
    pub(crate) broken: u32,
}

impl Http {
    pub(crate) fn open(url: &Url, address: SocketAddr, manner: &Manner) -> Result<Self, Fault> {
        let mut http = Self {
            url: url.clone(),
            address,
            tls: Arc::clone(&manner.tls),
            timeout: manner.timeout,
            key: manner.key,
            connection: None,
            local: None,
            keeping: Keeping::default(),
        };
        http.connection = Some(http.connect(Deadline::after(manner.timeout))?);
        Ok(http)
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// What TLS has agreed on, while there is a connection.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        self.connection.as_ref()?.tls()
    }

    pub(crate) fn announce(&mut self, announce: &Announce) -> Result<Announced, Fault> {
        let mut target = Vec::new();
        client::announce_target(&mut target, &self.url.target, announce, self.key);
        let response = self.get(&target)?;
        let answer = self.read(&response, client::parse_announce)?;
        let number = |number: Option<i64>| number.and_then(|it| u64::try_from(it).ok());
        Ok(Announced {
            interval_s: number(answer.interval_s),
            min_interval_s: number(answer.min_interval_s),
            seeders: number(answer.complete),
            leechers: number(answer.incomplete),
            downloads: number(answer.downloaded),
            peers: answer.peers,
            external_ip: answer.external_ip,
            warning: answer.warning.map(text),
            departure: answer.violation.map(|it| it.to_string()),
        })
    }

    pub(crate) fn scrape(&mut self, hashes: &[InfoHash]) -> Result<Vec<Option<Figures>>, Fault> {
        let mut target = Vec::new();
        client::scrape_target(&mut target, &self.url.target, hashes).ok_or_else(|| {
            let text = format!("{} has no scrape: its path has no /announce", self.url);
            Fault::new(Kind::Refused, text)
        })?;
        let response = self.get(&target)?;
        let answer = self.read(&response, client::parse_scrape)?;
        let number = |number: Option<i64>| number.and_then(|it| u64::try_from(it).ok());
        let figures = |hash: &InfoHash| {
            let file = answer.files.iter().find(|file| file.info_hash == *hash)?;
            Some(Figures {
                seeders: number(file.complete)?,
                downloads: number(file.downloaded),
                leechers: number(file.incomplete)?,
            })
        };
        Ok(hashes.iter().map(figures).collect())
    }

    /// What a response says, if it is one to what was asked.
    fn read<'a, T>(
        &self,
        response: &'a Response,
        read: impl FnOnce(&'a [u8]) -> Result<TrackerResponse<'a, T>, ResponseError>,
    ) -> Result<T, Fault> {
        let Response { status, location, body, .. } = response;
        match (read(body), location) {
            (Ok(TrackerResponse::Success(answer)), _) if *status == 200 => Ok(answer),
            (Ok(TrackerResponse::Failure(reason)), _) if *status == 200 => {
                Err(Fault::new(Kind::Refused, text(reason)))
            }
            (Ok(TrackerResponse::Failure(reason)), _) => {
                let text = format!("HTTP status {status}: {}", text(reason));
                Err(Fault::new(Kind::Refused, text))
            }
            (_, Some(location)) if (300..400).contains(status) => {
                let text = format!("HTTP status {status}: the tracker says it is at {location}");
                Err(Fault::new(Kind::Refused, text))
            }
            (Err(why), _) if *status == 200 => {
                let begin = body.get(..40).unwrap_or(body).escape_ascii();
                let text = format!("{} has answered \"{begin}\": {why}", self.address);
                Err(Fault::new(Kind::Garbled, text))
            }
            _ => Err(Fault::new(Kind::Refused, format!("HTTP status {status}"))),
        }
    }

    /// Asks on the connection there is. A tracker may have closed it since the last answer, so that
    /// there is a second try on a new one.
    fn get(&mut self, target: &[u8]) -> Result<Response, Fault> {
        let deadline = Deadline::after(self.timeout);
        let mut request = Vec::new();
        client::get(&mut request, &self.url.host, target, false);
        if let Some(mut kept) = self.connection.take() {
            match kept.ask(&request, deadline) {
                Err(fault) if fault.kind == Kind::Lost && kept.is_stale() => {
                    self.keeping.broken += 1;
                }
                answer => return self.keep(kept, answer),
            }
        }
        let mut connection = self.connect(deadline)?;
        let answer = connection.ask(&request, deadline);
        self.keep(connection, answer)
    }

    fn connect(&mut self, deadline: Deadline) -> Result<Connection, Fault> {
        let connection = Connection::open(&self.url, self.address, &self.tls, deadline)?;
        self.local = connection.local();
        Ok(connection)
    }

    /// Keeps a connection behind its answer, if it may be kept.
    fn keep(
        &mut self,
        connection: Connection,
        answer: Result<Response, Fault>,
    ) -> Result<Response, Fault> {
        let response = answer?;
        self.keeping.reused += u32::from(connection.answers > 1);
        if response.keep_alive {
            self.connection = Some(connection);
        } else {
            self.keeping.closed += 1;
        }
        Ok(response)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
