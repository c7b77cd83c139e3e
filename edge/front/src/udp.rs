//! UDP (BEP 15): batches of datagrams from `net`'s engines, through `wire::udp`, to the tracker.
//!
//! A batch is read once: connects and scrapes are answered as they are met, announces of verified
//! clients are collected and go through the tracker together, which writes each answer into its
//! datagram's own reply slot. Before a connection id is verified nothing is answered but a connect,
//! and that with as many bytes as it has itself: nobody can make this tracker send more to a victim
//! than he sends himself.

use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use net::{Batch, Handler};
use tracker::counters::{Counters, DropReason, WorkerMetrics};
use tracker::{
    AnnounceOk, AnnouncePolicy, AnnounceRequest, AnnounceSink, BanReason, HeavyHitters, IpPrefix,
    ListenerPolicyId, Networks, Random, RequestKind, Tracker, UnverifiedGrant, View,
};
use types::{
    Announce, Families, Family, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, PeerSink, Refusal,
    SwarmCounts, limits,
};
use wire::proxy::simple;
use wire::udp::{self, AnnounceHead, DecodeError, InfoHashes, Options, Request, VerifiedRequest};
use wire::url;

use crate::client::{is_via_local_address, user_key};
use crate::{Clock, reject_log};

/// What one worker does with datagrams.
pub struct UdpFront {
    tracker: Arc<Tracker>,
    clock: Clock,
    random: Random,
    /// One for each socket.
    listeners: Vec<UdpListener>,
    heavy_hitters: HeavyHitters,
}

/// What a worker knows of one of its sockets.
pub struct UdpListener {
    /// Its account.
    pub metrics: WorkerMetrics,
    /// What is decided for it.
    pub listener_policy: ListenerPolicyId,
    /// Those who wrap each datagram in a Simple Proxy header, and unwrap the replies, if such are
    /// expected.
    pub proxies: Option<Networks>,
}

const _: () = assert!(net::SOURCE_FILTER_MAX == limits::SOURCE_FILTER_MAX);
const _: () = assert!(net::BATCH_MAX == limits::BATCH_MAX);
const _: () = assert!(net::REQUEST_MAX == limits::UDP_REQUEST_MAX);
const _: () = assert!(net::REPLY_MAX == limits::UDP_PAYLOAD_V4_MAX);
const _: () = assert!(Place::V4.peers_max() == limits::PEERS_UDP_V4_MAX);
const _: () = assert!(Place::V6.peers_max() == limits::PEERS_UDP_V6_MAX);

/// What the datagrams of one batch share.
struct BatchContext<'a> {
    view: View<'a>,
    listener: &'a mut UdpListener,
    random: &'a mut Random,
    heavy_hitters: &'a mut HeavyHitters,
}

/// An announce that waits for the rest of its batch.
#[derive(Clone, Copy)]
struct Pending {
    /// Its number in the batch of datagrams.
    slot: usize,
    transaction_id: u32,
    place: Place,
    /// Bytes of reply so far.
    len: usize,
}

/// Where in a datagram's reply slot the reply goes, and to which family's client.
#[derive(Clone, Copy)]
struct Place {
    family: Family,
    /// Bytes before it: the header that it is wrapped in, which is there already.
    start: usize,
    /// The end of the slot, as far as the datagram may reach.
    end: usize,
}

impl UdpFront {
    /// A handler for the sockets of `listeners`, in the order of the sockets.
    pub fn new(
        tracker: Arc<Tracker>,
        listeners: Vec<UdpListener>,
        clock: Clock,
        seed: u64,
    ) -> Self {
        let (random, heavy_hitters) = (Random::new(seed), HeavyHitters::default());
        Self { tracker, clock, random, listeners, heavy_hitters }
    }
}

impl BatchContext<'_> {
    /// Answers datagram `slot`, or gives its announce and where the answer goes.
    fn read(&mut self, batch: &mut Batch, slot: usize) -> Option<(AnnounceRequest, Pending)> {
        let from = batch.from(slot).ip();
        let truncated = batch.is_truncated(slot);
        let (request, reply) = batch.exchange(slot);
        let UdpListener { metrics, listener_policy, proxies } = &mut *self.listener;
        let counters = &mut metrics.counters;
        counters.bytes_in += request.len() as u64;
        if truncated {
            counters.drop(DropReason::Oversize);
            return None;
        }
        let (mut ip, mut request, mut place) = (from, request, Place::new(from));
        let mut reached = None;
        let mut heavy_hitters = Some(&mut *self.heavy_hitters);
        if proxies.as_ref().is_some_and(|proxies| proxies.contains(from)) {
            let Some(wrapped) = simple::unwrap(request) else {
                counters.drop(DropReason::BadProxyHeader);
                return None;
            };
            (ip, request) = (wrapped.route.client.ip(), wrapped.datagram);
            reached = Some(wrapped.route.server.ip());
            // The kernel would see the proxy's address.
            heavy_hitters = None;
            place = place.behind(reply, wrapped.header, ip);
        }
        let room = reply.get_mut(place.start..place.end).unwrap_or_default();
        let mut turn = Turn {
            view: &self.view,
            counters,
            heavy_hitters,
            listener_policy: *listener_policy,
            ip,
            len: 0,
        };
        let asked = turn.take(request, room);
        batch.set_reply(slot, place.whole(turn.len));
        let (grant, announce, transaction_id) = asked?;
        let via_local_address = is_via_local_address(ip, || reached.or_else(|| batch.to(slot)));
        let pending = Pending { slot, transaction_id, place, len: 0 };
        let policy = place.policy();
        Some((AnnounceRequest { grant, via_local_address, announce, policy }, pending))
    }

    /// Serves the announces of a batch.
    fn serve(
        &mut self,
        batch: &mut Batch,
        (requests, pending): (&[AnnounceRequest], &mut [Pending]),
    ) {
        let counters = &mut self.listener.metrics.counters;
        let mut replies = Replies { batch, pending, counters, accepted: 0, last: None };
        self.view.announce(self.random, requests, &mut replies);
        let (accepted, last) = (replies.accepted, replies.last);
        for done in pending {
            batch.set_reply(done.slot, done.place.whole(done.len));
        }
        let last = || Some(requests.get(usize::from(last?))?.announce.peer_id);
        counters.clients.pass(accepted, last);
    }
}

impl Handler for UdpFront {
    fn batch(&mut self, socket: usize, batch: &mut Batch) {
        let begun = self.clock.moment();
        let Self { tracker, random, listeners, heavy_hitters, .. } = self;
        let (view, listener) = (tracker.view(begun.tick()), &mut listeners[socket]);
        let mut context = BatchContext { view, listener, random, heavy_hitters };
        let mut requests: ArrayVec<AnnounceRequest, { limits::BATCH_MAX }> = ArrayVec::new();
        let mut pending: ArrayVec<Pending, { limits::BATCH_MAX }> = ArrayVec::new();
        for slot in 0..batch.len() {
            if let Some((ask, asker)) = context.read(batch, slot) {
                requests.push(ask);
                pending.push(asker);
            }
        }
        context.serve(batch, (&requests, &mut pending));
        let sent: usize = (0..batch.len()).map(|slot| batch.reply_len(slot)).sum();
        let counters = &mut context.listener.metrics.counters;
        counters.bytes_out += sent as u64;
        counters.latency.observe(begun.elapsed(), batch.len() as u64);
    }

    fn idle(&mut self) {
        self.heavy_hitters.expire(self.clock.now());
        self.listeners.iter_mut().for_each(|listener| listener.metrics.publish());
    }

    fn send_failed(&mut self, socket: usize, datagrams: usize, blocked: bool) {
        let reason = if blocked { DropReason::Blocked } else { DropReason::SendFailed };
        self.listeners[socket].metrics.counters.drops[reason.index()] += datagrams as u64;
    }

    fn source_filter(&mut self) -> Option<Vec<IpPrefix>> {
        Some(self.heavy_hitters.take_change()?.collect())
    }
}

impl Place {
    const V4: Self = Self { family: Family::V4, start: 0, end: limits::UDP_PAYLOAD_V4_MAX };
    const V6: Self = Self { family: Family::V6, start: 0, end: limits::UDP_PAYLOAD_V6_MAX };

    /// For a client that has sent its datagram itself.
    #[inline]
    fn new(from: IpAddr) -> Self {
        match Family::of(from) {
            Family::V4 => Self::V4,
            Family::V6 => Self::V6,
        }
    }

    /// For the client at `ip` behind a proxy: `header` is put into the slot before the reply.
    //= spp#reply
    fn behind(self, slot: &mut [u8], header: &[u8; simple::HEADER_LEN], ip: IpAddr) -> Self {
        if let Some(room) = slot.first_chunk_mut() {
            *room = *header;
        }
        Self { family: Family::of(ip), start: simple::HEADER_LEN, ..self }
    }

    /// Bytes of the datagram whose reply has `len`; no reply is no datagram.
    #[inline]
    fn whole(self, len: usize) -> usize {
        if len == 0 { 0 } else { self.start + len }
    }

    /// What an announce's reply can hold.
    #[inline]
    const fn policy(self) -> AnnouncePolicy {
        //= bep15#announce-reply-family
        AnnouncePolicy {
            peers_max: self.peers_max(),
            families: Families::Own,
            with_ids: false,
            with_downloads: false,
        }
    }

    /// Peers that an announce's reply has room for.
    #[inline]
    const fn peers_max(self) -> u16 {
        let room = self.end - self.start - udp::ANNOUNCE_HEAD_LEN;
        let peers = match self.family {
            Family::V4 => room / PackedV4::WIRE_LEN,
            Family::V6 => room / PackedV6::WIRE_LEN,
        };
        peers as u16
    }
}

/// One datagram on its way.
struct Turn<'a> {
    view: &'a View<'a>,
    counters: &'a mut Counters,
    /// Whom to shut out, if the client can be.
    heavy_hitters: Option<&'a mut HeavyHitters>,
    /// Where the client has come in.
    listener_policy: ListenerPolicyId,
    /// The client's address.
    ip: IpAddr,
    /// Bytes of reply.
    len: usize,
}

impl Turn<'_> {
    /// Answers at once, or gives the announce that is to be answered with others.
    fn take(
        &mut self,
        request: &[u8],
        reply: &mut [u8],
    ) -> Option<(UnverifiedGrant, Announce, u32)> {
        let family = Family::of(self.ip);
        let (connection_id, transaction_id, call) = match udp::decode(request) {
            Ok(Request::Connect { transaction_id }) => {
                self.counters.request(family, RequestKind::Connect);
                if let Err(refusal) = self.view.authorize_connect(self.ip) {
                    self.counters.drop(match refusal {
                        Refusal::Banned => DropReason::Banned,
                        _ => DropReason::ConnectRate,
                    });
                    return None;
                }
                let id = self.view.issue_connection_id(self.ip);
                self.len = udp::connect_reply(reply, transaction_id, id);
                self.counters.response(family, RequestKind::Connect);
                return None;
            }
            Ok(Request::Connected { connection_id, transaction_id, request: call }) => {
                (connection_id, transaction_id, call)
            }
            Err(noise) => {
                let reason = match noise {
                    DecodeError::TooShort => DropReason::TooShort,
                    DecodeError::WrongMagic => DropReason::WrongMagic,
                };
                self.drop(reason, request);
                return None;
            }
        };
        //= bep15#connection-id-verified
        if !self.view.verify_connection_id(self.ip, connection_id) {
            self.drop(DropReason::BadConnectionId, request);
            return None;
        }
        match call {
            VerifiedRequest::Announce { announce, options } => {
                self.counters.request(family, RequestKind::Announce);
                // The announce is served all the same: what counts stands before the options.
                if options.is_malformed() {
                    self.counters.drop(DropReason::MalformedOptions);
                }
                match self.authorize(&options) {
                    Ok(grant) => return Some((grant, announce, transaction_id)),
                    Err(refusal) => self.refuse(refusal, transaction_id, reply),
                }
            }
            VerifiedRequest::Scrape(hashes) => {
                self.counters.request(family, RequestKind::Scrape);
                match self.scrape(hashes, transaction_id, reply) {
                    Ok(()) => self.counters.response(family, RequestKind::Scrape),
                    Err(refusal) => self.refuse(refusal, transaction_id, reply),
                }
            }
            VerifiedRequest::Malformed(refusal) => {
                self.counters.request(family, RequestKind::Other);
                let grant = self.authorize_key(None);
                if grant.is_ok() && self.heavy_hitters.is_some() {
                    self.view.report_offence(self.ip, BanReason::Malformed);
                }
                self.refuse(grant.err().unwrap_or(refusal), transaction_id, reply);
            }
        }
        None
    }

    /// Authorizes an announce by the key in the client's URL, which clients send if it says more than
    /// `/announce` (BEP 41). The key itself is verified with the rest of the batch.
    //= bep41#url-data-use
    fn authorize(&self, options: &Options<'_>) -> Result<UnverifiedGrant, Refusal> {
        match options.single_url_data() {
            Some(url) => self.authorize_url(url),
            None if options.is_empty() => self.authorize_url(b""),
            None => self.authorize_url(options.url_data(&mut [0; limits::URL_DATA_MAX])),
        }
    }

    fn authorize_url(&self, url: &[u8]) -> Result<UnverifiedGrant, Refusal> {
        let url = url::read(url);
        let is_private = self.view.is_private(self.listener_policy);
        self.authorize_key(user_key(is_private, url.key, url.query))
    }

    fn authorize_key(&self, key: Option<&[u8]>) -> Result<UnverifiedGrant, Refusal> {
        let kind = RequestKind::Announce;
        self.view.authorize_unverified(self.listener_policy, self.ip, kind, key)
    }

    fn scrape(
        &mut self,
        hashes: InfoHashes<'_>,
        transaction_id: u32,
        reply: &mut [u8],
    ) -> Result<(), Refusal> {
        // A scrape carries no options, so no key either: private doors refuse it.
        let (listener, kind) = (self.listener_policy, RequestKind::Scrape);
        let grant = self.view.authorize(listener, self.ip, kind, None)?;
        let mut room = [InfoHash::default(); limits::SCRAPE_HASHES_UDP_MAX];
        let hashes = hashes.copy_to(&mut room);
        let mut counts = [SwarmCounts::default(); limits::SCRAPE_HASHES_UDP_MAX];
        let counts = counts.get_mut(..hashes.len()).unwrap_or_default();
        self.view.scrape(grant, hashes, counts)?;
        self.len = udp::scrape_reply(reply, transaction_id, counts);
        Ok(())
    }

    /// Says why, except to who asks too much, or is banned: that would take as much as serving.
    fn refuse(&mut self, refusal: Refusal, transaction_id: u32, reply: &mut [u8]) {
        reject_log::refused("udp", self.ip, refusal);
        if refusal == Refusal::Banned {
            return self.counters.drop(DropReason::Banned);
        }
        if refusal == Refusal::TooManyRequests {
            if let Some(heavy_hitters) = &mut self.heavy_hitters {
                let is_too_far = self.view.note_refusal(heavy_hitters, self.ip);
                self.counters.kernel_blocks += u64::from(is_too_far);
            }
            return self.counters.drop(DropReason::RequestRate);
        }
        self.len = udp::error_reply(reply, transaction_id, refusal.text());
        self.counters.refuse(refusal);
        self.counters.response(Family::of(self.ip), RequestKind::Other);
    }

    /// Counts a datagram that is met with silence. A header of a proxy looks like anything but a
    /// request, and the operator should hear of it.
    fn drop(&mut self, reason: DropReason, request: &[u8]) {
        let is_wrapped = simple::unwrap(request).is_some();
        let reason = if is_wrapped { DropReason::UntrustedProxy } else { reason };
        reject_log::dropped("udp", self.ip, reason);
        self.counters.drop(reason);
        if self.heavy_hitters.is_some() {
            self.view.report_offence(self.ip, BanReason::BadConnectionIds);
        }
    }
}

/// Writes the answers to a batch's announces into their datagrams' reply slots.
struct Replies<'a> {
    batch: &'a mut Batch,
    pending: &'a mut [Pending],
    counters: &'a mut Counters,
    /// How many were served, and the last of them.
    accepted: u32,
    last: Option<u8>,
}

impl Replies<'_> {
    /// The datagram whose announce has `slot`.
    #[inline]
    fn find(&self, slot: u8) -> Option<Pending> {
        let pending = self.pending.get(usize::from(slot)).copied();
        debug_assert!(pending.is_some(), "an answer to no announce of the batch");
        pending
    }

    /// Lets `write` continue the reply to the announce of `slot`: it gets the reply's buffer and the
    /// length so far, and returns the new length.
    #[inline]
    fn go_on(&mut self, slot: u8, write: impl FnOnce(&mut [u8], Pending) -> usize) {
        let Some(pending) = self.pending.get_mut(usize::from(slot)) else { return };
        let Place { start, end, .. } = pending.place;
        let buffer = self.batch.reply_buffer(pending.slot);
        pending.len = write(buffer.get_mut(start..end).unwrap_or_default(), *pending);
    }
}

impl AnnounceSink for Replies<'_> {
    #[inline]
    fn accept(&mut self, slot: u8, accepted: &AnnounceOk) {
        let Some(Pending { place, .. }) = self.find(slot) else { return };
        let chosen = accepted.chosen;
        (self.accepted, self.last) = (self.accepted + 1, Some(slot));
        self.counters.response(place.family, RequestKind::Announce);
        self.counters.peers_sent += u64::from(chosen.v4) + u64::from(chosen.v6);
        self.go_on(slot, |buffer, pending| {
            let head = AnnounceHead {
                transaction_id: pending.transaction_id,
                interval_s: accepted.interval_s,
                leechers: chosen.counts.leechers(),
                seeders: chosen.counts.seeders(),
            };
            udp::announce_reply(buffer, &head)
        });
    }

    fn refuse(&mut self, slot: u8, refusal: Refusal) {
        let Some(pending) = self.find(slot) else { return };
        reject_log::refused("udp", self.batch.from(pending.slot).ip(), refusal);
        self.counters.refuse(refusal);
        self.counters.response(pending.place.family, RequestKind::Other);
        self.go_on(slot, |buffer, pending| {
            udp::error_reply(buffer, pending.transaction_id, refusal.text())
        });
    }
}

impl PeerSink for Replies<'_> {
    #[inline]
    fn peers_v4(&mut self, slot: u8, peers: &[PackedV4]) {
        self.go_on(slot, |buffer, pending| udp::append_peers_v4(buffer, pending.len, peers));
    }

    #[inline]
    fn peers_v6(&mut self, slot: u8, peers: &[PackedV6]) {
        self.go_on(slot, |buffer, pending| udp::append_peers_v6(buffer, pending.len, peers));
    }

    /// UDP has no room for ids, and does not ask for them.
    fn peer_with_id(&mut self, _: u8, _: PeerKey, _: PeerId) {}
}
