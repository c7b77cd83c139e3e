//! The HTTP service: bytes in, bytes out. A step reads once, answers the requests that have come, and
//! writes once.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use tracker::counters::DropReason;
use tracker::{
    AnnounceOk, AnnouncePolicy, AnnounceRequest, BanReason, Credentials, ListenerPolicyId, Random,
    RequestKind, Tracker, View,
};
use types::{Families, Family, InfoHash, Notice, Refusal, SwarmCounts, Tick, UserKey, limits};
use wire::http::{
    self, AnnounceReply, Method, ParsedRequest, PeerFormat, RequestError, RequestHead,
    ResponseFraming, ScrapeQuery, ScrapedHash, Status, Target, Upgrade,
};
use wire::proxy;
use wire::ws::switching_protocols;

use super::long_body::BodyStream;
use crate::buffer::{InputBuffer, write_now};
use crate::client::{RemoteClient, WsClient, credentials};
use crate::clock::Sampling;
use crate::connection_error::{ConnectionError, ConnectionResult};
use crate::listener::Listener;
use crate::stream::{ReadOutcome, Stream};
use crate::webtorrent::options::{serves_websockets, user_key};
use crate::{Clock, reject_log};

/// The initial capacity of the shared buffers.
const OUT_CAPACITY: usize = 64 * 1024;

/// Answers the requests of all of a worker's connections.
pub(crate) struct HttpService {
    clock: Clock,
    random: Random,
    sampling: Sampling,
    /// Responses of the present step.
    pub(super) out: Vec<u8>,
    /// The body of the present response.
    body: Vec<u8>,
    /// The rest of the last response of the present step, if a thread makes it.
    pub(super) long_body: Option<Box<BodyStream>>,
}

/// The next action for a connection after a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServiceStep {
    /// Wait for a request, or the rest of one.
    Read,
    /// Serve what is left of the input in the connection's next turn: it may hold whole requests.
    Continue,
    /// Close, once the output has left.
    Close,
    /// The same, but more input may come: closing at once would reset the connection, and the kernel
    /// would drop the response.
    Drain,
    /// Become a WebSocket.
    Upgrade(Rc<WsClient>),
}

/// The result of a step.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) next: ServiceStep,
    /// Output that the socket did not take.
    pub(super) unsent: Vec<u8>,
    /// The rest of the last response, if a thread makes it. It follows the output, before `next`.
    pub(super) long_body: Option<Box<BodyStream>>,
    /// Requests answered.
    pub(super) answered: u32,
    /// The tick of the step.
    pub(super) now: Tick,
}

impl Served {
    /// Returns the result of a step without a request, which `next` follows.
    pub(super) fn nothing(next: ServiceStep, now: Tick) -> Self {
        Self { next, unsent: Vec::new(), long_body: None, answered: 0, now }
    }
}

#[derive(Clone, Copy)]
pub(super) struct HttpClient<'a> {
    pub(super) tracker: &'a Tracker,
    pub(super) listener: &'a Listener,
    pub(super) remote: &'a RemoteClient,
    /// True if the connection may be kept alive.
    pub(super) may_stay: bool,
}

/// A request, and how it is answered.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'a> {
    pub(super) client: HttpClient<'a>,
    pub(super) view: &'a View<'a>,
    pub(super) request: &'a RequestHead<'a>,
    pub(super) response: ResponseFraming,
    pub(super) policy_id: ListenerPolicyId,
    /// The client's address: behind a trusted proxy, the one that the proxy names.
    pub(super) ip: IpAddr,
}

impl<'a> Exchange<'a> {
    fn new(client: HttpClient<'a>, view: &'a View<'a>, request: &'a RequestHead<'a>) -> Self {
        let options = &client.listener.options;
        let ip =
            client.remote.client_ip(request, &options.trusted_proxies, options.forwarded_header);
        let keep_alive = request.keep_alive && client.may_stay;
        let response = ResponseFraming { method: request.method, keep_alive };
        Self { client, view, request, response, policy_id: options.listener_policy, ip }
    }

    fn credentials(&self) -> Credentials<'a> {
        credentials(self.view, self.policy_id, self.request.key, self.request.query)
    }

    fn count_request(&self, kind: RequestKind) {
        self.client.listener.http().request(Family::of(self.ip), kind);
    }

    pub(super) fn count_response(&self, kind: RequestKind) {
        self.client.listener.http().response(Family::of(self.ip), kind);
    }

    /// Returns the step after the response.
    pub(super) fn end(&self) -> ServiceStep {
        self.client.after(self.response.keep_alive)
    }
}

impl HttpClient<'_> {
    /// Returns the step after a response that says whether the connection is kept alive.
    pub(super) fn after(&self, keep_alive: bool) -> ServiceStep {
        match (keep_alive, self.may_stay) {
            (true, _) => ServiceStep::Read,
            (false, true) => ServiceStep::Close,
            // The client does not know yet, and may have sent its next request.
            (false, false) => ServiceStep::Drain,
        }
    }
}

impl HttpService {
    pub(super) fn new(clock: Clock, random: Random) -> Self {
        Self {
            clock,
            random,
            sampling: Sampling::default(),
            out: Vec::with_capacity(OUT_CAPACITY),
            body: Vec::with_capacity(OUT_CAPACITY),
            long_body: None,
        }
    }

    /// Reads into `read_buffer`, answers the requests that have come, and writes the responses. Without
    /// a buffer it does not read: requests wait in `input`.
    pub(super) fn step(
        &mut self,
        client: HttpClient<'_>,
        input: &mut InputBuffer,
        read_buffer: Option<&mut [u8]>,
        stream: &impl Stream,
    ) -> ConnectionResult<Served> {
        let fresh = match read_buffer {
            None => Default::default(),
            Some(buffer) => match stream.read_now(buffer)? {
                ReadOutcome::Data(len) => &mut buffer[..len],
                ReadOutcome::Blocked => {
                    return Ok(Served::nothing(ServiceStep::Read, self.clock.now()));
                }
                ReadOutcome::End => {
                    return Ok(Served::nothing(ServiceStep::Close, self.clock.now()));
                }
            },
        };
        // The only look at the clock in most steps.
        let now = self.clock.now();
        let begun = self.sampling.begin(&self.clock);
        let bytes_in = fresh.len() as u64;
        let view = client.tracker.view_of(client.listener.service, now);
        let mut served = input.feed(fresh, |all| self.answer_all(client, &view, all))?;
        {
            let mut counters = client.listener.http();
            counters.bytes_in += bytes_in;
            if let Some(begun) = begun {
                counters.latency.observe(begun.elapsed(), served.answered.into());
            }
        }
        served.unsent = self.send(client, stream)?;
        Ok(served)
    }

    /// Answers the requests in `input` that fit one turn, into `self.out`. Returns how many bytes are done
    /// with, and the result, or why the connection ends.
    fn answer_all(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        input: &[u8],
    ) -> (usize, ConnectionResult<Served>) {
        self.out.clear();
        let mut served = Served::nothing(ServiceStep::Read, view.now());
        let mut left = input;
        let mut must_wait = false;
        while served.next == ServiceStep::Read && !left.is_empty() && !must_wait {
            let next = match http::read_head(left) {
                ParsedRequest::Partial => break,
                ParsedRequest::Complete(request) => {
                    left = &left[request.consumed..];
                    served.answered += 1;
                    self.answer(Exchange::new(client, view, &request))
                }
                ParsedRequest::Invalid(error) => self.reject(client, view, error, left),
            };
            match next {
                Ok(next) => served.next = next,
                Err(error) => return (input.len(), Err(error)),
            }
            served.long_body = self.long_body.take();
            must_wait = served.long_body.is_some()
                || served.answered >= limits::HTTP_TURN_REQUESTS_MAX
                || self.out.len() >= limits::HTTP_TURN_BYTES_MAX;
        }
        if !left.is_empty() {
            served.next = match served.next {
                ServiceStep::Read if must_wait => ServiceStep::Continue,
                // Behind its last request the client has sent more, perhaps more than was read.
                ServiceStep::Close => ServiceStep::Drain,
                next => next,
            };
        }
        let done = match served.next {
            ServiceStep::Close | ServiceStep::Drain => input.len(),
            ServiceStep::Read | ServiceStep::Continue | ServiceStep::Upgrade(_) => {
                input.len() - left.len()
            }
        };
        (done, Ok(served))
    }

    /// Writes `self.out`. Returns what the socket did not take.
    fn send(&mut self, client: HttpClient<'_>, stream: &impl Stream) -> io::Result<Vec<u8>> {
        if self.out.is_empty() {
            return Ok(Vec::new());
        }
        let (sent, _) = write_now(stream, &self.out)?;
        client.listener.http().bytes_out += sent as u64;
        Ok(self.out[sent..].to_vec())
    }

    /// Answers input that is not a request that can be served.
    fn reject(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        error: RequestError,
        input: &[u8],
    ) -> ConnectionResult<ServiceStep> {
        let ip = client.remote.ip;
        let reason = match error {
            _ if proxy::is_proxy_header(input) => DropReason::UntrustedProxy,
            RequestError::UriTooLong | RequestError::HeadersTooLarge => DropReason::HeadTooLarge,
            RequestError::BadRequest | RequestError::MethodNotAllowed | RequestError::Tls => {
                DropReason::BadHttp
            }
        };
        let family = Family::of(ip);
        client.listener.http().request(family, RequestKind::Other);
        client.listener.http().response(family, RequestKind::Other);
        client.listener.http().drop(reason);
        http::request_error(&mut self.out, error);
        reject_log::dropped("http", ip, reason);
        if !client.listener.options.trusted_proxies.contains(ip) {
            // An image on a web page is enough to have a browser send any other error.
            view.excuse_offences(error != RequestError::BadRequest);
            view.report_offence(ip, BanReason::Malformed);
            if !view.admits_other(ip) {
                return Err(ConnectionError::NotAdmitted(DropReason::RequestRate));
            }
        }
        Ok(ServiceStep::Drain)
    }

    fn answer(&mut self, exchange: Exchange<'_>) -> ConnectionResult<ServiceStep> {
        let Exchange { client, view, request, response, policy_id, ip } = exchange;
        view.excuse_offences(request.is_browser);
        let has_web = client.listener.options.web.is_some();
        if request.upgrade != Upgrade::None && has_web && serves_websockets(request) {
            return Ok(self.upgrade(exchange));
        }
        let kind = match request.target {
            Target::Announce(_) => RequestKind::Announce,
            Target::Scrape(_) => RequestKind::Scrape,
            Target::Unknown => RequestKind::Other,
        };
        exchange.count_request(kind);
        self.body.clear();
        let answered = match request.target {
            // Before the key is looked up: a page may have chosen all that the request says.
            Target::Announce(_) if request.is_browser => Err(Refusal::Browser),
            Target::Announce(query) => self.announce(exchange, query),
            Target::Scrape(query) if ScrapeQuery::new(query).asks_for_all() => {
                match self.full_scrape(exchange) {
                    Ok(next) => return Ok(next),
                    Err(refusal) => Err(refusal),
                }
            }
            Target::Scrape(query) => self.scrape(exchange, query),
            Target::Unknown if !view.admits_other(ip) => return self.shed(exchange),
            Target::Unknown => {
                exchange.count_response(kind);
                return Ok(self.answer_other(exchange));
            }
        };
        match answered {
            Ok(()) => exchange.count_response(kind),
            // Clients over a budget are not at fault.
            Err(refusal) if !refusal.is_over_budget() && !view.admits_other(ip) => {
                return self.shed(exchange);
            }
            //= bep3#failure-reason
            // Status 200: clients read the reason only then.
            Err(refusal) => {
                reject_log::refused("http", ip, refusal);
                exchange.count_response(RequestKind::Other);
                client.listener.http().refuse(refusal);
                self.body.clear();
                let quiet = view.quiet_response(refusal).filter(|_| kind == RequestKind::Announce);
                match quiet {
                    Some(quiet) => {
                        let external_ip = view.peer_ip(policy_id, ip);
                        write(&mut self.body, PeerFormat::Compact, external_ip, &quiet);
                    }
                    None => http::failure(&mut self.body, refusal),
                }
            }
        }
        response.ok(&mut self.out, &self.body);
        Ok(exchange.end())
    }

    /// Answers a request for a WebSocket. If the client may have one, the connection becomes it.
    fn upgrade(&mut self, exchange: Exchange<'_>) -> ServiceStep {
        let Exchange { client, view, request, policy_id, ip, .. } = exchange;
        let listener = client.listener;
        exchange.count_request(RequestKind::Other);
        exchange.count_response(RequestKind::Other);
        let (handshake_key, origin) = match request.upgrade {
            Upgrade::WebSocket { key, origin } => (key, origin),
            Upgrade::Invalid(error) => {
                listener.http().drop(DropReason::BadUpgrade);
                http::upgrade_error(&mut self.out, error);
                return ServiceStep::Drain;
            }
            // Not called for other requests.
            Upgrade::None => return ServiceStep::Close,
        };
        //= rfc6455#origin
        if !listener.web_options.admits(origin) {
            listener.http().drop(DropReason::ForbiddenOrigin);
            http::forbidden_origin(&mut self.out);
            return ServiceStep::Drain;
        }
        let passkey = user_key(request, view.is_private(policy_id));
        if let Err(refusal) = view.authorize(policy_id, ip, RequestKind::Other, passkey) {
            reject_log::refused("ws", ip, refusal);
            listener.http().refuse(refusal);
            return self.refuse_upgrade(Status::Forbidden, refusal.text());
        }
        // A client that comes without a proxy holds a permit already.
        if ip != client.remote.ip && client.tracker.limiter().permit(ip, None).is_err() {
            listener.http().drop(DropReason::PrefixConnectionLimit);
            return self.refuse_upgrade(Status::Unavailable, "too many connections from here\n");
        }
        if !client.may_stay {
            return self.refuse_upgrade(Status::Unavailable, "the tracker is stopping\n");
        }
        switching_protocols(&mut self.out, handshake_key);
        let token = exchange.credentials().token;
        ServiceStep::Upgrade(Rc::new(WsClient {
            ip,
            user: passkey.and_then(|key| UserKey::parse(key).ok()).map(Box::new),
            token: token.filter(|token| token.len() <= limits::TOKEN_LEN_MAX).map(Box::from),
            is_browser: request.is_browser,
        }))
    }

    /// Answers a request for a WebSocket that the client may not have.
    fn refuse_upgrade(&mut self, status: Status, text: &str) -> ServiceStep {
        let last = ResponseFraming { method: Method::Get, keep_alive: false };
        last.text(&mut self.out, status, text);
        ServiceStep::Drain
    }

    /// Writes the response to an announce into `self.body`.
    ///
    /// # Errors
    ///
    /// Returns the reason if the announce is refused.
    fn announce(&mut self, exchange: Exchange<'_>, query: &[u8]) -> Result<(), Refusal> {
        let Exchange { client, view, request: head, policy_id, ip, .. } = exchange;
        let HttpClient { listener, remote, .. } = client;
        let mut peer_format = PeerFormat::Compact;
        let credentials = exchange.credentials();
        let (grant, announce) = view.authorize_announce(policy_id, ip, credentials, || {
            let query = http::announce_query(query)?;
            let is_compact = query.compact || !listener.options.non_compact;
            peer_format = match (is_compact, query.no_peer_id) {
                (true, _) => PeerFormat::Compact,
                (false, true) => PeerFormat::DictNoIds,
                (false, false) => PeerFormat::Dict,
            };
            Ok(query.announce)
        })?;
        let policy = AnnouncePolicy {
            peers_max: limits::PEERS_HTTP_MAX,
            families: Families::Both,
            with_downloads: true,
        };
        let via_local_address = remote.via_local_address;
        let request = AnnounceRequest { grant, via_local_address, announce, policy };
        let external_ip = view.peer_ip(policy_id, ip);
        let (body, mut peers_sent) = (&mut self.body, Err(Refusal::Truncated));
        let agent = || head.user_agent();
        view.announce_http(&mut self.random, &request, agent, &mut |_, answer| {
            peers_sent = answer.map(|accepted| write(body, peer_format, external_ip, &accepted));
        });
        let peers_sent = peers_sent?;
        let mut counters = listener.http();
        counters.peers_sent += peers_sent;
        counters.announced(1, || Some((announce.peer_id, ip)));
        Ok(())
    }

    /// Writes the response to a scrape into `self.body`.
    ///
    /// # Errors
    ///
    /// Returns the reason if the scrape is refused.
    fn scrape(&mut self, exchange: Exchange<'_>, query: &[u8]) -> Result<(), Refusal> {
        let Exchange { view, policy_id, ip, .. } = exchange;
        let key = exchange.credentials().key;
        let grant = view.authorize(policy_id, ip, RequestKind::Scrape, key)?;
        let mut buffer = [ScrapedHash::default(); limits::SCRAPE_HASHES_HTTP_MAX];
        let named = ScrapeQuery::new(query).read_into(&mut buffer)?;
        let mut hashes = [InfoHash::default(); limits::SCRAPE_HASHES_HTTP_MAX];
        let (hashes, _) = hashes.split_at_mut(named.len());
        hashes.iter_mut().zip(named).for_each(|(hash, named)| *hash = named.info_hash);
        let mut counts = [SwarmCounts::default(); limits::SCRAPE_HASHES_HTTP_MAX];
        let (counts, _) = counts.split_at_mut(named.len());
        view.scrape(grant, hashes, counts)?;
        http::scrape(&mut self.body, named, counts);
        Ok(())
    }

    /// Begins the list of all torrents.
    ///
    /// # Errors
    ///
    /// Returns the reason if the client may not have it.
    fn full_scrape(&mut self, exchange: Exchange<'_>) -> Result<ServiceStep, Refusal> {
        let Exchange { client, view, policy_id, ip, .. } = exchange;
        let permit = view.authorize_full_scrape(policy_id, ip, exchange.credentials().key)?;
        let pages = client.listener.pages.as_ref().ok_or(Refusal::FullScrape)?;
        exchange.count_response(RequestKind::Scrape);
        Ok(self.start_long(exchange, pages.full_scrape(permit)))
    }
}

/// Writes the response to one announce into `body`. Returns the number of peers in it.
fn write(
    body: &mut Vec<u8>,
    peer_format: PeerFormat,
    external_ip: IpAddr,
    accepted: &AnnounceOk<'_>,
) -> u64 {
    let answer = &accepted.answer;
    let reply = AnnounceReply {
        peer_format,
        counts: answer.counts,
        v4: answer.v4_len(),
        v6: answer.v6_len(),
        external_ip,
        interval_s: accepted.interval_s,
        interval_min_s: accepted.interval_min_s,
        warning: accepted.warning.map(Notice::text),
    };
    reply.begin(body);
    if peer_format == PeerFormat::Dict {
        answer.each_with_id(|peer, id| reply.peer_with_id(body, peer, id));
    } else {
        answer.each_v4(|peers| reply.peers_v4(body, peers));
        reply.begin_peers6(body);
        answer.each_v6(|peers| reply.peers_v6(body, peers));
    }
    reply.finish(body);
    u64::from(reply.v4) + u64::from(reply.v6)
}
