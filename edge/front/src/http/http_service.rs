//! The HTTP service: bytes in, bytes out. A step reads once, answers the requests that have come, and
//! writes once.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tracker::counters::DropReason;
use tracker::{
    AnnounceOk, AnnouncePolicy, AnnounceRequest, AnnounceSink, BanReason, Random, RequestKind,
    Tracker, View,
};
use types::{
    Announce, Families, Family, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, PeerSink, Refusal,
    SwarmCounts, Tick, UserKey, limits,
};
use wire::http::{
    self, AnnounceReply, ParsedRequest, PeerFormat, RequestError, RequestHead, ResponseFraming,
    ScrapeQuery, ScrapedHash, Status, Target, Upgrade,
};
use wire::proxy;
use wire::url::query_token;
use wire::ws::switching_protocols;

use super::long_body::BodyStream;
use super::other::Exchange;
use crate::buffer::{InputBuffer, OutputBuffer, write_now};
use crate::client::{RemoteClient, user_key};
use crate::clock::Sampling;
use crate::connection_error::ConnectionError;
use crate::listener::Listener;
use crate::stream::{ReadOutcome, Stream};
use crate::webtorrent::ws_client::WsClient;
use crate::{Clock, reject_log};

/// The initial capacity of the shared buffers.
const OUT_CAPACITY: usize = 64 * 1024;

/// Answers the requests of all of a worker's connections.
pub(crate) struct HttpService {
    tracker: Arc<Tracker>,
    state: State,
}

/// State that changes with each request.
pub(super) struct State {
    tracker: Arc<Tracker>,
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
pub(super) enum NextStep {
    /// Wait for a request, or the rest of one.
    Read,
    /// Close, once the output has left.
    Close,
    /// The same, but more input may come: closing at once would reset the connection, and the kernel
    /// would drop the response.
    Drain,
    /// Become a WebSocket.
    Upgrade(Rc<WsClient>),
}

impl NextStep {
    /// The step after a response.
    pub(super) fn after(keep_alive: bool, may_stay: bool) -> Self {
        match (keep_alive, may_stay) {
            (true, _) => Self::Read,
            (false, true) => Self::Close,
            // The client does not know yet, and may have sent its next request.
            (false, false) => Self::Drain,
        }
    }
}

/// The result of a step.
#[derive(Debug)]
pub(super) struct ServiceStep {
    pub(super) next: NextStep,
    /// Output that the socket did not take.
    pub(super) unsent: OutputBuffer,
    /// The rest of the last response, if a thread makes it. It follows the output, before `next`.
    pub(super) long_body: Option<Box<BodyStream>>,
    /// Requests answered.
    pub(super) answered: u32,
    /// True if the input may hold whole requests that wait for the connection's next turn.
    pub(super) more: bool,
    /// The tick of the step.
    pub(super) now: Tick,
}

impl ServiceStep {
    /// A step that did nothing.
    pub(super) fn none(now: Tick) -> Self {
        Self {
            next: NextStep::Read,
            unsent: OutputBuffer::default(),
            long_body: None,
            answered: 0,
            more: false,
            now,
        }
    }

    /// Returns true if the connection can be closed at once.
    pub(super) fn is_over(&self) -> bool {
        self.next == NextStep::Close && self.unsent.is_empty() && self.long_body.is_none()
    }
}

/// The client of a step.
#[derive(Clone, Copy)]
pub(super) struct HttpClient<'a> {
    pub(super) listener: &'a Listener,
    pub(super) remote: &'a RemoteClient,
    /// True if the connection may be kept alive.
    pub(super) may_stay: bool,
}

/// A request's credentials and query, and the address of the client that sent it.
#[derive(Clone, Copy)]
struct Query<'a> {
    ip: IpAddr,
    key: Option<&'a [u8]>,
    query: &'a [u8],
}

impl HttpService {
    pub(super) fn new(tracker: Arc<Tracker>, clock: Clock, random: Random) -> Self {
        let state = State {
            tracker: Arc::clone(&tracker),
            clock,
            random,
            sampling: Sampling::default(),
            out: Vec::with_capacity(OUT_CAPACITY),
            body: Vec::with_capacity(OUT_CAPACITY),
            long_body: None,
        };
        Self { tracker, state }
    }

    /// Reads into `read_buffer`, answers the requests that have come, and writes the responses. Without
    /// a buffer it does not read: requests wait in `input`.
    pub(super) fn step(
        &mut self,
        client: HttpClient<'_>,
        input: &mut InputBuffer,
        read_buffer: Option<&mut [u8]>,
        stream: &impl Stream,
    ) -> Result<ServiceStep, ConnectionError> {
        let fresh = match read_buffer {
            None => Default::default(),
            Some(buffer) => match stream.read_now(buffer)? {
                ReadOutcome::Data(len) => buffer.get_mut(..len).unwrap_or_default(),
                ReadOutcome::Blocked => return Ok(ServiceStep::none(self.state.clock.now())),
                ReadOutcome::End => {
                    let step = ServiceStep::none(self.state.clock.now());
                    return Ok(ServiceStep { next: NextStep::Close, ..step });
                }
            },
        };
        // The only look at the clock in most steps.
        let now = self.state.clock.now();
        let begun = self.state.sampling.begin(&self.state.clock);
        let bytes_in = fresh.len() as u64;
        let view = self.tracker.view(now);
        let state = &mut self.state;
        let mut step = input.feed(fresh, |all| state.answer_all(client, &view, all))?;
        {
            let mut counters = client.listener.http();
            counters.bytes_in += bytes_in;
            if let Some(begun) = begun {
                counters.latency.observe(begun.elapsed(), step.answered.into());
            }
        }
        step.unsent = self.state.send(client, stream)?;
        Ok(step)
    }
}

impl State {
    /// Answers the requests in `input` that fit one turn, into `self.out`. Returns how many bytes are done
    /// with, and the step, or why the connection ends.
    fn answer_all(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        input: &[u8],
    ) -> (usize, Result<ServiceStep, ConnectionError>) {
        self.out.clear();
        let mut step = ServiceStep::none(view.now());
        let mut left = input;
        let may_go_on =
            |step: &ServiceStep| step.next == NextStep::Read && step.long_body.is_none();
        let mut is_over = false;
        while may_go_on(&step) && !left.is_empty() && !is_over {
            let next = match http::read_head(left) {
                ParsedRequest::Partial => break,
                ParsedRequest::Complete(request) => {
                    left = left.get(request.consumed..).unwrap_or_default();
                    step.answered += 1;
                    self.answer(client, view, &request)
                }
                ParsedRequest::Invalid(error) => self.reject(client, view, error, left),
            };
            match next {
                Ok(next) => step.next = next,
                Err(error) => return (input.len(), Err(error)),
            }
            step.long_body = self.long_body.take();
            is_over = step.answered >= limits::HTTP_TURN_REQUESTS_MAX
                || self.out.len() >= limits::HTTP_TURN_BYTES_MAX;
        }
        if step.next == NextStep::Close && !left.is_empty() {
            // Behind its last request the client has sent more, perhaps more than was read.
            step.next = NextStep::Drain;
        }
        let must_wait = is_over || step.long_body.is_some();
        step.more = step.next == NextStep::Read && must_wait && !left.is_empty();
        let keeps_input = matches!(step.next, NextStep::Read | NextStep::Upgrade(_));
        (if keeps_input { input.len() - left.len() } else { input.len() }, Ok(step))
    }

    /// Writes `self.out`. Returns what the socket did not take.
    fn send(&mut self, client: HttpClient<'_>, stream: &impl Stream) -> io::Result<OutputBuffer> {
        if self.out.is_empty() {
            return Ok(OutputBuffer::default());
        }
        let (sent, _) = write_now(stream, &self.out)?;
        client.listener.http().bytes_out += sent as u64;
        let mut unsent = OutputBuffer::default();
        if let Some(left) = self.out.get(sent..)
            && !left.is_empty()
        {
            unsent.bytes_mut().extend_from_slice(left);
        }
        Ok(unsent)
    }

    /// Answers input that is not a request that can be served.
    fn reject(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        error: RequestError,
        input: &[u8],
    ) -> Result<NextStep, ConnectionError> {
        let ip = client.remote.ip();
        let reason = match error {
            _ if proxy::is_proxy_header(input) => DropReason::UntrustedProxy,
            RequestError::UriTooLong | RequestError::HeadersTooLarge => DropReason::HeadTooLarge,
            RequestError::BadRequest | RequestError::MethodNotAllowed | RequestError::Tls => {
                DropReason::BadHttp
            }
        };
        {
            let mut counters = client.listener.http();
            counters.request(Family::of(ip), RequestKind::Other);
            counters.response(Family::of(ip), RequestKind::Other);
            counters.drop(reason);
        }
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
        Ok(NextStep::Drain)
    }

    /// Answers a request.
    fn answer(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        request: &RequestHead<'_>,
    ) -> Result<NextStep, ConnectionError> {
        let HttpClient { listener, remote, may_stay } = client;
        let options = &listener.options;
        let ip = remote.client_ip(request, &options.trusted_proxies, options.forwarded_header);
        let is_private = view.is_private(options.listener_policy);
        view.excuse_offences(request.is_browser);
        // A WebSocket, on a path where they are served?
        if request.upgrade != Upgrade::None
            && options.web.as_ref().is_some_and(|web| web.serves(request, is_private))
        {
            return Ok(self.upgrade(client, view, request, ip));
        }
        let keep_alive = request.keep_alive && may_stay;
        let response = ResponseFraming { method: request.method, keep_alive };
        let exchange = Exchange { request, response, ip };
        let kind = match request.target {
            Target::Announce(_) => RequestKind::Announce,
            Target::Scrape(_) => RequestKind::Scrape,
            Target::Unknown => RequestKind::Other,
        };
        listener.http().request(Family::of(ip), kind);
        self.body.clear();
        let key = user_key(is_private, request.key, request.query);
        let answered = match request.target {
            // Before the key is looked up: a page may have chosen all that the request says.
            Target::Announce(_) if request.is_browser => Err(Refusal::Browser),
            Target::Announce(query) => self.announce(client, view, Query { ip, key, query }),
            Target::Scrape(query) if ScrapeQuery::new(query).asks_for_all() => {
                let permit = view.authorize_full_scrape(options.listener_policy, ip, key);
                match (permit, &listener.pages) {
                    (Err(refusal), _) => Err(refusal),
                    (Ok(_), None) => Err(Refusal::FullScrape),
                    (Ok(permit), Some(pages)) => {
                        listener.http().response(Family::of(ip), kind);
                        let list = pages.full_scrape(permit);
                        return Ok(self.start_long(request, may_stay, list));
                    }
                }
            }
            Target::Scrape(query) => self.scrape(client, view, Query { ip, key, query }),
            Target::Unknown if !view.admits_other(ip) => return self.shed(client, exchange),
            Target::Unknown => {
                listener.http().response(Family::of(ip), RequestKind::Other);
                return Ok(self.answer_other(client, view, exchange));
            }
        };
        match answered {
            Ok(()) => listener.http().response(Family::of(ip), kind),
            Err(_) if !view.admits_other(ip) => return self.shed(client, exchange),
            //= bep3#failure-reason
            // Status 200: clients read the reason only then.
            Err(refusal) => {
                reject_log::refused("http", ip, refusal);
                listener.http().response(Family::of(ip), RequestKind::Other);
                listener.http().refuse(refusal);
                self.body.clear();
                http::failure(&mut self.body, refusal);
            }
        }
        response.ok(&mut self.out, &self.body);
        Ok(NextStep::after(keep_alive, may_stay))
    }

    /// Answers a request for a WebSocket.
    fn upgrade(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        request: &RequestHead<'_>,
        ip: IpAddr,
    ) -> NextStep {
        let HttpClient { listener, remote, may_stay } = client;
        let options = &listener.options;
        let mut counters = listener.http();
        counters.request(Family::of(ip), RequestKind::Other);
        counters.response(Family::of(ip), RequestKind::Other);
        let (key, origin) = match request.upgrade {
            Upgrade::WebSocket { key, origin } => (key, origin),
            Upgrade::Invalid(error) => {
                counters.drop(DropReason::BadUpgrade);
                http::upgrade_error(&mut self.out, error);
                return NextStep::Drain;
            }
            Upgrade::None => return NextStep::Close,
        };
        let last = ResponseFraming { method: request.method, keep_alive: false };
        let policy_id = options.listener_policy;
        let is_private = view.is_private(policy_id);
        let user = listener.web_options.user_key(request, is_private);
        if !listener.web_options.admits(origin) {
            //= rfc6455#origin
            counters.drop(DropReason::ForbiddenOrigin);
            http::forbidden_origin(&mut self.out);
        } else if let Err(refusal) = view.authorize(policy_id, ip, RequestKind::Other, user) {
            reject_log::refused("ws", ip, refusal);
            counters.refuse(refusal);
            last.text(&mut self.out, Status::Forbidden, refusal.text());
        } else if ip != remote.ip() && !self.tracker.limiter().has_free_permit(ip) {
            // A client that comes without a proxy holds a permit already.
            counters.drop(DropReason::PrefixConnectionLimit);
            last.text(&mut self.out, Status::Unavailable, "too many connections from here\n");
        } else if !may_stay {
            last.text(&mut self.out, Status::Unavailable, "the tracker is stopping\n");
        } else {
            switching_protocols(&mut self.out, key);
            let user = user.and_then(|key| UserKey::parse(key).ok()).map(Box::new);
            let token = query_token(request.query).filter(|_| view.needs_token(policy_id));
            let token = token.filter(|token| token.len() <= limits::TOKEN_LEN_MAX);
            let token = token.map(Box::from);
            let is_browser = request.is_browser;
            return NextStep::Upgrade(Rc::new(WsClient { ip, user, token, is_browser }));
        }
        NextStep::Drain
    }

    /// Writes the response to an announce into `self.body`.
    fn announce(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        Query { ip, key, query }: Query<'_>,
    ) -> Result<(), Refusal> {
        let HttpClient { listener, remote, .. } = client;
        let policy_id = listener.options.listener_policy;
        let grant = view.authorize_unverified(policy_id, ip, RequestKind::Announce, key)?;
        let parsed = match http::announce_query(query) {
            Ok(query) => query,
            // A missing or invalid key is reported, and counted, before any other error.
            Err(refusal) => return view.verify(grant).and(Err(refusal)),
        };
        if view.needs_token(policy_id) {
            let Announce { info_hash, event, .. } = &parsed.announce;
            view.authorize_token(&grant, query_token(query), info_hash, *event)?;
        }
        let query = parsed;
        let is_compact = query.compact || !listener.options.non_compact;
        let peer_format = match (is_compact, query.no_peer_id) {
            (true, _) => PeerFormat::Compact,
            (false, true) => PeerFormat::DictNoIds,
            (false, false) => PeerFormat::Dict,
        };
        let policy = AnnouncePolicy {
            peers_max: limits::PEERS_HTTP_MAX,
            families: Families::Both,
            with_ids: peer_format == PeerFormat::Dict,
            with_downloads: true,
        };
        let via_local_address = remote.via_local_address;
        let announce = query.announce;
        let request = AnnounceRequest { grant, via_local_address, announce, policy };
        let mut response = AnnounceResponse {
            body: &mut self.body,
            peer_format,
            ip: view.peer_ip(policy_id, ip),
            reply: Err(Refusal::Truncated),
            v4_left: 0,
        };
        view.announce(&mut self.random, &[request], &mut response);
        let reply = response.reply?;
        reply.finish(&mut self.body);
        let mut counters = listener.http();
        counters.peers_sent += u64::from(reply.v4) + u64::from(reply.v6);
        counters.announced(1, || Some((announce.peer_id, ip)));
        Ok(())
    }

    /// Writes the response to a scrape into `self.body`.
    fn scrape(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        Query { ip, key, query }: Query<'_>,
    ) -> Result<(), Refusal> {
        let policy_id = client.listener.options.listener_policy;
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
}

/// Writes the response to one announce.
struct AnnounceResponse<'a> {
    body: &'a mut Vec<u8>,
    peer_format: PeerFormat,
    /// The client's address, as others get it.
    ip: IpAddr,
    /// The reply, once the tracker has accepted the announce.
    reply: Result<AnnounceReply<'static>, Refusal>,
    /// v4 peers that have yet to come.
    v4_left: u16,
}

impl AnnounceResponse<'_> {
    /// Returns true if `slot` is that of the only announce. Any other slot is a defect.
    fn is_own(slot: u8) -> bool {
        debug_assert!(slot == 0, "a response to an announce that is not in the batch");
        slot == 0
    }

    /// Returns the reply to the announce of `slot`, if it was accepted.
    fn reply(&self, slot: u8) -> Option<AnnounceReply<'static>> {
        debug_assert!(self.reply.is_ok(), "peers before the announce was accepted");
        self.reply.ok().filter(|_| Self::is_own(slot))
    }
}

impl AnnounceSink for AnnounceResponse<'_> {
    fn accept(&mut self, slot: u8, accepted: &AnnounceOk) {
        if !Self::is_own(slot) {
            return;
        }
        let reply = AnnounceReply {
            peer_format: self.peer_format,
            counts: accepted.chosen.counts,
            v4: accepted.chosen.v4,
            v6: accepted.chosen.v6,
            external_ip: self.ip,
            interval_s: accepted.interval_s,
            interval_min_s: accepted.interval_min_s,
            warning: None,
        };
        self.v4_left = reply.v4;
        reply.begin(self.body);
        self.reply = Ok(reply);
    }

    fn refuse(&mut self, slot: u8, refusal: Refusal) {
        if Self::is_own(slot) {
            self.reply = Err(refusal);
        }
    }
}

impl PeerSink for AnnounceResponse<'_> {
    fn peers_v4(&mut self, slot: u8, peers: &[PackedV4]) {
        if let Some(reply) = self.reply(slot) {
            reply.peers_v4(self.body, &mut self.v4_left, peers);
        }
    }

    fn peers_v6(&mut self, slot: u8, peers: &[PackedV6]) {
        if let Some(reply) = self.reply(slot) {
            reply.peers_v6(self.body, peers);
        }
    }

    fn peer_with_id(&mut self, slot: u8, peer: PeerKey, id: PeerId) {
        if let Some(reply) = self.reply(slot) {
            reply.peer_with_id(self.body, peer, id);
        }
    }
}
