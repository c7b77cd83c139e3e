//! Requests that are neither announces nor scrapes of named torrents: the interface to what answers
//! them, such as `tidegate-pages`. Rates, counters and connections stay here.

use std::borrow::Cow;
use std::net::IpAddr;

use tracker::counters::DropReason;
use tracker::{FullScrapePermit, RequestKind, View};
use types::Refusal;
use wire::http::{Method, RequestHead, Status, StreamFraming};

use super::http_service::{Exchange, HttpClient, HttpService, ServiceStep};
use super::long_body::{BodyStream, LongBody};
use crate::connection_error::{ConnectionError, ConnectionResult};
use crate::reject_log;

/// Answers the requests of a listener that the announce server does not answer itself. It counts them,
/// and enforces the request rates of clients, before it calls.
pub trait Pages: Send + Sync {
    /// Returns the bencoded list of all torrents. It holds `permit` until it is made.
    fn full_scrape(&self, permit: FullScrapePermit) -> LongBody;

    /// Answers a request of a client at `ip` for a path that is neither `/announce` nor `/scrape`. `ip` is
    /// verified.
    fn answer(&self, view: &View<'_>, request: &RequestHead<'_>, ip: IpAddr) -> PageAnswer;
}

/// The response to a request for a page.
pub enum PageAnswer {
    /// There is no such page.
    NotFound,
    /// Plain text. The status `NotFound` is counted as such.
    Text(Status, Cow<'static, str>),
    /// A document with status 200.
    Document {
        /// The value of `Content-Type`.
        content_type: &'static str,
        /// Further header lines, each of which ends with `\r\n`.
        headers: &'static str,
        /// The body.
        body: String,
    },
    /// The client must try again later (status 503).
    Refused(Refusal),
    /// A document with status 200 that is made while it is sent.
    Long(LongBody),
}

/// The response to a browser on a path for WebSockets.
const WEB_PATH: &str = "this is a BitTorrent tracker: WebTorrent clients connect here by WebSocket, \
                        others announce to /announce\n";

impl HttpService {
    /// Ends an exchange with a client whose prefix has sent too many requests, without a response. A trusted
    /// proxy gets a short one, since its connection carries other clients, too.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection must be closed.
    pub(super) fn shed(&mut self, exchange: Exchange<'_>) -> ConnectionResult<ServiceStep> {
        let Exchange { client: HttpClient { listener, remote, .. }, response, ip, .. } = exchange;
        if !listener.options.trusted_proxies.contains(remote.ip) {
            return Err(ConnectionError::NotAdmitted(DropReason::RequestRate));
        }
        let refusal = Refusal::TooManyRequests;
        reject_log::refused("http", ip, refusal);
        exchange.count_response(RequestKind::Other);
        listener.http().refuse(refusal);
        response.text(&mut self.out, Status::TooManyRequests, "too many requests\n");
        Ok(exchange.end())
    }

    pub(super) fn answer_other(&mut self, exchange: Exchange<'_>) -> ServiceStep {
        let Exchange { client: HttpClient { listener, .. }, view, request, response, .. } =
            exchange;
        let pages = listener.pages.as_ref();
        match pages.map_or(PageAnswer::NotFound, |pages| pages.answer(view, request, exchange.ip)) {
            PageAnswer::NotFound => {
                if listener.options.web.is_some() && request.path == b"/" {
                    response.text(&mut self.out, Status::UpgradeRequired, WEB_PATH);
                } else {
                    listener.http().not_found += 1;
                    response.not_found(&mut self.out);
                }
            }
            PageAnswer::Text(status, text) => {
                listener.http().not_found += u64::from(status == Status::NotFound);
                response.text(&mut self.out, status, &text);
            }
            PageAnswer::Document { content_type, headers, body } => {
                response.document(&mut self.out, content_type, headers, body.as_bytes());
            }
            PageAnswer::Refused(refusal) => {
                reject_log::refused("http", exchange.ip, refusal);
                listener.http().refuse(refusal);
                let text = format!("{}\n", refusal.text());
                response.text(&mut self.out, Status::Unavailable, &text);
            }
            PageAnswer::Long(body) => return self.start_long(exchange, body),
        }
        exchange.end()
    }

    /// Begins a response that a thread makes.
    pub(super) fn start_long(&mut self, exchange: Exchange<'_>, body: LongBody) -> ServiceStep {
        let Exchange { client, request, response, .. } = exchange;
        let RequestHead { method, is_http_1_1: chunked, .. } = *request;
        let keep_alive = response.keep_alive && chunked;
        let framing = StreamFraming { method, chunked, keep_alive, gzip: request.accepts_gzip() };
        framing.head(&mut self.out, body.content_type);
        if method == Method::Get {
            self.long_body = Some(Box::new(BodyStream::start(body, framing)));
        }
        client.after(keep_alive)
    }
}
