//! Bytes in, bytes out: requests that have come are answered, without any I/O but the one read and
//! the one write of a turn.

use std::io;
use std::mem::take;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tracker::counters::{DropReason, WorkerMetrics};
use tracker::{
    AnnounceOk, AnnouncePolicy, AnnounceRequest, AnnounceSink, BanReason, ConnectionPermit,
    ListenerPolicyId, Random, RequestKind, Tracker, View,
};
use types::{
    Families, Family, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Refusal, SwarmCounts, UserKey,
    limits,
};
use wire::http::{
    self, AnnounceReply, ParsedRequest, PeerFormat, RequestError, RequestHead, ResponseFraming,
    ScrapeQuery, Status, Target, Upgrade,
};
use wire::proxy;
use wire::ws::switching_protocols;

use super::HttpOptions;
use crate::client::{Caller, user_key};
use crate::clock::Sampling;
use crate::stream::Stream;
use crate::web::Newcomer;
use crate::{Clock, reject_log};

/// Answers collected before they must leave: pipelined requests behind them wait their turn.
const OUT_MAX: usize = 256 * 1024;
/// What one read takes at most.
const READ_MAX: usize = 64 * 1024;

/// What a browser is told on a path for WebSockets.
const WEB_PATH: &str = "this is a BitTorrent tracker: WebTorrent clients connect here by WebSocket, \
                        others announce to /announce\n";

/// What a worker answers with. One for all its connections.
pub(super) struct Desk {
    pub(super) clock: Clock,
    /// Cloned for each turn, so that a view of it does not borrow the desk.
    tracker: Rc<Arc<Tracker>>,
    random: Random,
    sampling: Sampling,
    listeners: Vec<DeskListener>,
    read_buffer: Box<[u8]>,
    out: Vec<u8>,
    body: Vec<u8>,
}

/// What a desk knows of one of the worker's listeners.
pub(super) struct DeskListener {
    /// The account of its requests.
    pub(super) metrics: WorkerMetrics,
    /// How they are answered.
    pub(super) options: Rc<HttpOptions>,
}

/// What is to become of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits for (the rest of) a request.
    Read,
    /// It ends as soon as the answers are out.
    Close,
    /// It ends too, but more input may be on its way: closing at once would make the kernel throw
    /// the answer away with it.
    Drain,
    /// It becomes a WebSocket.
    Upgrade(Newcomer),
}

/// What a turn leaves behind.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) next: Next,
    /// Input that is not answered yet.
    pub(super) rest: Vec<u8>,
    /// Whether `rest` may hold whole requests, that had to wait for the answers before them to leave.
    pub(super) more: bool,
    /// Output that the socket did not take.
    pub(super) unsent: Vec<u8>,
    /// Requests answered in this turn.
    pub(super) answered: usize,
}

impl Turn {
    /// Before anything has come.
    pub(super) fn first() -> Self {
        Self { next: Next::Read, rest: Vec::new(), more: false, unsent: Vec::new(), answered: 0 }
    }

    /// Whether the connection can be closed at once.
    pub(super) fn is_over(&self) -> bool {
        self.next == Next::Close && self.unsent.is_empty()
    }
}

/// A client in a turn.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) listener: usize,
    /// The other end.
    pub(super) caller: Caller,
    /// Whether the connection may be kept.
    pub(super) may_stay: bool,
}

impl Desk {
    pub(super) fn new(
        tracker: Arc<Tracker>,
        clock: Clock,
        random: Random,
        listeners: Vec<DeskListener>,
    ) -> Self {
        Self {
            clock,
            tracker: Rc::new(tracker),
            random,
            sampling: Sampling::default(),
            listeners,
            read_buffer: vec![0; READ_MAX].into(),
            out: Vec::with_capacity(READ_MAX),
            body: Vec::with_capacity(READ_MAX),
        }
    }

    /// The account of a listener.
    pub(super) fn metrics(&mut self, listener: usize) -> &mut WorkerMetrics {
        // Listeners are numbered by the worker that made them.
        &mut self.listeners[listener].metrics
    }

    /// Connections held at a listener.
    pub(super) fn held(&self, listener: usize) -> u64 {
        let counters = &self.listeners[listener].metrics.counters;
        counters.connections_opened - counters.connections_closed
    }

    /// A seat for a connection from `ip` to a listener, or why there is none. Its proxies bring other
    /// people's connections, and need none.
    pub(super) fn permit(
        &self,
        listener: usize,
        ip: IpAddr,
    ) -> Result<ConnectionPermit, DropReason> {
        if self.listeners[listener].options.trusted_proxies.contains(ip) {
            return Ok(ConnectionPermit::free());
        }
        if self.tracker.bans().contains(self.clock.now(), ip) {
            return Err(DropReason::Banned);
        }
        self.tracker.limiter().permit(ip).ok_or(DropReason::PrefixConnectionLimit)
    }

    /// Lets others see the figures.
    pub(super) fn publish(&mut self) {
        self.listeners.iter_mut().for_each(|listener| listener.metrics.publish());
    }

    /// One turn: reads once, unless whole requests are waiting already, answers what is there, and
    /// writes once.
    pub(super) fn turn(
        &mut self,
        client: Client,
        mut last: Turn,
        stream: &impl Stream,
    ) -> io::Result<Turn> {
        let mut buffer = take(&mut self.read_buffer);
        let read = if last.more { Ok(0) } else { stream.read_now(&mut buffer) };
        let fresh = match read {
            Ok(0) if !last.more => None,
            Ok(len) => buffer.get(..len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.read_buffer = buffer;
                return Ok(Turn { answered: 0, ..last });
            }
            Err(error) => {
                self.read_buffer = buffer;
                return Err(error);
            }
        };
        let begun = self.sampling.begin(&self.clock);
        let turn = match fresh {
            None => Turn { next: Next::Close, ..Turn::first() },
            Some(fresh) if last.rest.is_empty() => self.answer_all(client, fresh, Vec::new()),
            Some(fresh) => {
                last.rest.extend_from_slice(fresh);
                let input = take(&mut last.rest);
                self.answer_all(client, &input, last.rest)
            }
        };
        let counters = &mut self.metrics(client.listener).counters;
        counters.bytes_in += fresh.map_or(0, <[u8]>::len) as u64;
        if let Some(begun) = begun {
            counters.latency.observe(begun.elapsed(), turn.answered as u64);
        }
        self.read_buffer = buffer;
        self.send(client, turn, stream)
    }

    /// Reads once, and throws away what has come. The shared buffer serves for that, too: one of its
    /// own would make every connection's task larger.
    pub(super) fn discard(&mut self, stream: &impl Stream) -> io::Result<usize> {
        stream.read_now(&mut self.read_buffer)
    }

    /// Answers the requests in `input`, into `self.out`; what is left of it is appended to `rest`.
    fn answer_all(&mut self, client: Client, input: &[u8], mut rest: Vec<u8>) -> Turn {
        self.out.clear();
        let tracker = Rc::clone(&self.tracker);
        let view = tracker.view(self.clock.now());
        let (mut left, mut next, mut answered) = (input, Next::Read, 0);
        while next == Next::Read && !left.is_empty() && self.out.len() < OUT_MAX {
            match http::read_head(left) {
                ParsedRequest::Partial => break,
                ParsedRequest::Complete(request) => {
                    next = self.answer(client, &request, &view);
                    left = left.get(request.consumed..).unwrap_or_default();
                    answered += 1;
                }
                ParsedRequest::Invalid(fault) => {
                    self.reject(client, fault, left);
                    next = Next::Drain;
                }
            }
        }
        if next == Next::Close && !left.is_empty() {
            // Who sends requests behind its last may have sent more of them than were read.
            next = Next::Drain;
        }
        let more = next == Next::Read && self.out.len() >= OUT_MAX && !left.is_empty();
        if matches!(next, Next::Read | Next::Upgrade(_)) {
            rest.extend_from_slice(left);
        }
        Turn { next, rest, more, unsent: Vec::new(), answered }
    }

    /// Writes `self.out`, as far as the socket takes it now.
    fn send(&mut self, client: Client, turn: Turn, stream: &impl Stream) -> io::Result<Turn> {
        let out = take(&mut self.out);
        self.metrics(client.listener).counters.bytes_out += out.len() as u64;
        let mut left = out.as_slice();
        while !left.is_empty() {
            match stream.write_now(left) {
                Ok(len) => left = left.get(len..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.out = out;
                    return Err(error);
                }
            }
        }
        let unsent = left.to_vec();
        self.out = out;
        self.out.clear();
        Ok(Turn { unsent, ..turn })
    }

    /// Answers what is no request.
    fn reject(&mut self, client: Client, fault: RequestError, input: &[u8]) {
        let family = Family::of(client.caller.ip());
        let counters = &mut self.metrics(client.listener).counters;
        counters.request(family, RequestKind::Other);
        counters.response(family, RequestKind::Other);
        let reason = match fault {
            _ if proxy::is_proxy_header(input) => DropReason::UntrustedProxy,
            RequestError::UriTooLong | RequestError::HeadersTooLarge => DropReason::HeadTooLarge,
            RequestError::BadRequest | RequestError::MethodNotAllowed | RequestError::Tls => {
                DropReason::BadHttp
            }
        };
        counters.drop(reason);
        http::request_error(&mut self.out, fault);
        let ip = client.caller.ip();
        reject_log::dropped("http", ip, reason);
        if !self.listeners[client.listener].options.trusted_proxies.contains(ip) {
            self.tracker.view(self.clock.now()).report_offence(ip, BanReason::Garbage);
        }
    }

    /// Answers a request.
    fn answer(&mut self, client: Client, request: &RequestHead<'_>, view: &View<'_>) -> Next {
        let options = Rc::clone(&self.listeners[client.listener].options);
        let proxies = &options.trusted_proxies;
        let ip = client.caller.client(request, proxies, options.forwarded_header);
        let is_private = view.is_private(options.listener_policy);
        let takes_upgrades =
            options.web.as_ref().is_some_and(|web| web.serves(request, is_private));
        if takes_upgrades && request.upgrade != Upgrade::None {
            return self.upgrade(client, view, request, ip);
        }
        let keep_alive = request.keep_alive && client.may_stay;
        let response = ResponseFraming { method: request.method, keep_alive };
        let next = if keep_alive { Next::Read } else { Next::Close };
        let kind = match request.target {
            Target::Announce(_) => RequestKind::Announce,
            Target::Scrape(_) => RequestKind::Scrape,
            Target::Unknown => RequestKind::Other,
        };
        self.metrics(client.listener).counters.request(Family::of(ip), kind);
        self.body.clear();
        let key = user_key(is_private, request.key, request.query);
        let answered = match request.target {
            Target::Announce(query) => self.announce(client, view, (key, query), ip),
            Target::Scrape(query) => self.scrape(options.listener_policy, view, (key, query), ip),
            Target::Unknown => {
                self.metrics(client.listener).counters.response(Family::of(ip), RequestKind::Other);
                if let Some(answer) = options.challenges.answer(request.path) {
                    response.ok(&mut self.out, answer.as_bytes());
                } else if options.web.as_ref().is_some_and(|web| web.names(request, is_private)) {
                    response.text(&mut self.out, Status::UpgradeRequired, WEB_PATH);
                } else {
                    response.not_found(&mut self.out);
                }
                return next;
            }
        };
        let counters = &mut self.listeners[client.listener].metrics.counters;
        match answered {
            Ok(()) => counters.response(Family::of(ip), kind),
            //= bep3#failure-reason
            // Status 200: clients read the reason only then.
            Err(refusal) => {
                reject_log::refused("http", ip, refusal);
                counters.response(Family::of(ip), RequestKind::Other);
                counters.refuse(refusal);
                self.body.clear();
                http::failure(&mut self.body, refusal);
            }
        }
        response.ok(&mut self.out, &self.body);
        next
    }

    /// Answers a request for a WebSocket.
    fn upgrade(
        &mut self,
        client: Client,
        view: &View<'_>,
        request: &RequestHead<'_>,
        ip: IpAddr,
    ) -> Next {
        let options = Rc::clone(&self.listeners[client.listener].options);
        let counters = &mut self.listeners[client.listener].metrics.counters;
        counters.request(Family::of(ip), RequestKind::Other);
        counters.response(Family::of(ip), RequestKind::Other);
        let (key, origin) = match request.upgrade {
            Upgrade::WebSocket { key, origin } => (key, origin),
            Upgrade::Invalid(broken) => {
                counters.drop(DropReason::BadUpgrade);
                http::upgrade_error(&mut self.out, broken);
                return Next::Drain;
            }
            Upgrade::None => return Next::Close,
        };
        let last = ResponseFraming { method: request.method, keep_alive: false };
        let is_private = view.is_private(options.listener_policy);
        let user = options.web.as_ref().and_then(|web| web.user_key(request, is_private));
        if !options.web.as_ref().is_some_and(|web| web.admits(origin)) {
            //= rfc6455#origin
            counters.drop(DropReason::ForbiddenOrigin);
            http::forbidden_origin(&mut self.out);
        } else if let Err(refusal) =
            view.authorize(options.listener_policy, ip, RequestKind::Other, user)
        {
            reject_log::refused("ws", ip, refusal);
            counters.refuse(refusal);
            last.text(&mut self.out, Status::Forbidden, refusal.text());
        } else if ip != client.caller.ip() && !self.tracker.limiter().has_free_permit(ip) {
            // Who comes without a proxy has a seat already.
            counters.drop(DropReason::PrefixConnectionLimit);
            last.text(&mut self.out, Status::Unavailable, "too many connections from here\n");
        } else if !client.may_stay {
            last.text(&mut self.out, Status::Unavailable, "the tracker is stopping\n");
        } else {
            switching_protocols(&mut self.out, key);
            let user = user.and_then(|key| UserKey::parse(key).ok()).map(Box::new);
            return Next::Upgrade(Newcomer { ip, user });
        }
        Next::Drain
    }

    fn announce(
        &mut self,
        client: Client,
        view: &View<'_>,
        (key, query): (Option<&[u8]>, &[u8]),
        ip: IpAddr,
    ) -> Result<(), Refusal> {
        let HttpOptions { listener_policy, non_compact, .. } =
            *self.listeners[client.listener].options;
        let grant = view.authorize_unverified(listener_policy, ip, RequestKind::Announce, key)?;
        let query = match http::announce_query(query) {
            Ok(query) => query,
            // Who has no good key hears of that, and is counted for it, whatever else is wrong.
            Err(fault) => return view.verify(grant).and(Err(fault)),
        };
        let model = match (query.compact || !non_compact, query.no_peer_id) {
            (true, _) => PeerFormat::Compact,
            (false, true) => PeerFormat::DictNoIds,
            (false, false) => PeerFormat::Dict,
        };
        let policy = AnnouncePolicy {
            peers_max: limits::PEERS_HTTP_MAX,
            families: Families::Both,
            with_ids: model == PeerFormat::Dict,
            with_downloads: true,
        };
        let via_local_address = client.caller.via_local_address;
        let ask = AnnounceRequest { grant, via_local_address, announce: query.announce, policy };
        let body = &mut self.body;
        let mut answer = Answer { body, model, ip, state: Err(Refusal::Truncated), v4_left: 0 };
        view.announce(&mut self.random, &[ask], &mut answer);
        let reply = answer.state?;
        reply.finish(&mut self.body);
        let peers = u64::from(reply.v4) + u64::from(reply.v6);
        let counters = &mut self.metrics(client.listener).counters;
        counters.peers_sent += peers;
        counters.clients.pass(1, || Some(query.announce.peer_id));
        Ok(())
    }

    fn scrape(
        &mut self,
        listener_policy: ListenerPolicyId,
        view: &View<'_>,
        (key, query): (Option<&[u8]>, &[u8]),
        ip: IpAddr,
    ) -> Result<(), Refusal> {
        let grant = view.authorize(listener_policy, ip, RequestKind::Scrape, key)?;
        let mut room = [InfoHash::default(); limits::SCRAPE_HASHES_HTTP_MAX];
        let hashes = ScrapeQuery::new(query).read_into(&mut room)?;
        let mut counts = [SwarmCounts::default(); limits::SCRAPE_HASHES_HTTP_MAX];
        let counts = counts.get_mut(..hashes.len()).unwrap_or_default();
        view.scrape(grant, hashes, counts)?;
        http::scrape(&mut self.body, hashes, counts);
        Ok(())
    }
}

/// Writes the one answer of an announce.
struct Answer<'a> {
    body: &'a mut Vec<u8>,
    model: PeerFormat,
    ip: IpAddr,
    /// The reply, once the tracker has accepted.
    state: Result<AnnounceReply<'static>, Refusal>,
    v4_left: u16,
}

impl AnnounceSink for Answer<'_> {
    fn accept(&mut self, _: usize, accepted: &AnnounceOk) {
        let reply = AnnounceReply {
            peer_format: self.model,
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
        self.state = Ok(reply);
    }

    fn refuse(&mut self, _: usize, refusal: Refusal) {
        self.state = Err(refusal);
    }

    fn peers_v4(&mut self, _: usize, peers: &[PackedV4]) {
        if let Ok(reply) = &self.state {
            reply.peers_v4(self.body, &mut self.v4_left, peers);
        }
    }

    fn peers_v6(&mut self, _: usize, peers: &[PackedV6]) {
        if let Ok(reply) = &self.state {
            reply.peers_v6(self.body, peers);
        }
    }

    fn peer_with_id(&mut self, _: usize, peer: PeerKey, id: PeerId) {
        if let Ok(reply) = &self.state {
            reply.peer_with_id(self.body, peer, id);
        }
    }
}
