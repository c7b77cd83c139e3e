//! UDP (BEP 15): batches of datagrams from `net`'s engines go through `wire::udp` to the tracker.
//!
//! A batch is read once. Connects and scrapes are answered as they are read. Announces of verified
//! clients are collected and go to the tracker together, which writes each response into its
//! datagram's own reply slot. Before a connection id is verified, only connects are answered, with as
//! many bytes as they have themselves: no attacker can make this tracker send more to a victim than
//! the attacker sends.

use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use net::{Batch, Handler};
use tracker::counters::{Counters, DropReason, WorkerMetrics};
use tracker::{
    AnnounceOk, AnnouncePolicy, AnnounceRequest, BanReason, HeavyHitters, IpPrefix,
    ListenerPolicyId, Networks, Random, RequestKind, Tracker, UnverifiedGrant, View,
};
use types::{
    Announce, Families, Family, InfoHash, PackedV4, PackedV6, Refusal, SwarmCounts, limits,
};
use wire::proxy::simple;
use wire::udp::{self, AnnounceHead, DecodeError, InfoHashes, Options, Request, UnverifiedRequest};
use wire::url;

use crate::client::{credentials, is_via_local_address};
use crate::{Clock, reject_log};

/// Handles the datagrams of one worker.
pub struct UdpFront {
    tracker: Arc<Tracker>,
    clock: Clock,
    random: Random,
    /// One listener for each socket, in the same order.
    listeners: Vec<UdpListener>,
    heavy_hitters: HeavyHitters,
}

/// One of a worker's sockets.
pub struct UdpListener {
    /// The listener's metrics.
    pub metrics: WorkerMetrics,
    /// The listener's policy.
    pub listener_policy: ListenerPolicyId,
    /// Proxies that put a Simple Proxy header before each datagram, and expect it before each reply.
    /// `None` = no such header is expected from any address.
    pub proxies: Option<Networks>,
}

const _: () = assert!(net::SOURCE_FILTER_MAX == limits::SOURCE_FILTER_MAX);
const _: () = assert!(net::BATCH_MAX == limits::BATCH_MAX);
const _: () = assert!(net::REQUEST_MAX == limits::UDP_REQUEST_MAX);
const _: () = assert!(net::REPLY_MAX == limits::UDP_PAYLOAD_V4_MAX);
const _: () = assert!(ReplySlot::V4.peers_max() == limits::PEERS_UDP_V4_MAX);
const _: () = assert!(ReplySlot::V6.peers_max() == limits::PEERS_UDP_V6_MAX);

/// State that the datagrams of a batch share.
struct BatchContext<'a> {
    view: View<'a>,
    listener: &'a mut UdpListener,
    random: &'a mut Random,
    heavy_hitters: &'a mut HeavyHitters,
}

/// An announce that goes to the tracker with the rest of its batch.
#[derive(Clone, Copy)]
struct Pending {
    /// The number of its datagram in the batch.
    slot: usize,
    /// The client's address.
    client: IpAddr,
    transaction_id: u32,
    reply_slot: ReplySlot,
    /// The length of the reply so far, in bytes.
    len: usize,
}

/// The part of a datagram's reply slot that the reply may fill.
#[derive(Clone, Copy)]
struct ReplySlot {
    /// The client's family: it decides on the form of the reply.
    family: Family,
    /// The length of the Simple Proxy header before the reply, which is written already.
    start: usize,
    /// The maximum length of the datagram.
    end: usize,
}

impl UdpFront {
    /// Returns a handler for the sockets of `listeners`, in the order of the sockets.
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
    /// Answers datagram `slot`, or returns its announce and where the response goes.
    fn read(&mut self, batch: &mut Batch, slot: usize) -> Option<(AnnounceRequest, Pending)> {
        let from = batch.from(slot).ip();
        let truncated = batch.is_truncated(slot);
        let room = batch.room(slot);
        let (request, reply) = batch.exchange(slot);
        let UdpListener { metrics, listener_policy, proxies } = &mut *self.listener;
        let counters = &mut metrics.counters;
        counters.bytes_in += request.len() as u64;
        if truncated {
            counters.drop(DropReason::TooLong);
            return None;
        }
        let (mut ip, mut request, mut reply_slot) = (from, request, ReplySlot::new(from, room));
        let mut local_address = None;
        let mut heavy_hitters = Some(&mut *self.heavy_hitters);
        if proxies.as_ref().is_some_and(|proxies| proxies.contains(from)) {
            let Some(wrapped) = simple::unwrap(request) else {
                counters.drop(DropReason::BadProxyHeader);
                return None;
            };
            (ip, request) = (wrapped.route.client.ip(), wrapped.datagram);
            local_address = Some(wrapped.route.server.ip());
            // A filter in the kernel would match the proxy's address.
            heavy_hitters = None;
            reply_slot = reply_slot.behind(reply, wrapped.header, ip);
        }
        let mut datagram = DatagramContext {
            view: &self.view,
            counters,
            heavy_hitters,
            listener_policy: *listener_policy,
            ip,
            len: 0,
        };
        let announce = datagram.serve(request, reply_slot.of(reply));
        batch.set_reply(slot, reply_slot.datagram_len(datagram.len));
        let (grant, announce, transaction_id) = announce?;
        let via_local_address =
            is_via_local_address(ip, || local_address.or_else(|| batch.to(slot)));
        let pending = Pending { slot, client: ip, transaction_id, reply_slot, len: 0 };
        let policy = reply_slot.policy();
        Some((AnnounceRequest { grant, via_local_address, announce, policy }, pending))
    }

    /// Passes the announces of a batch to the tracker.
    fn serve(
        &mut self,
        batch: &mut Batch,
        (requests, pending): (&[AnnounceRequest], &mut [Pending]),
    ) {
        let counters = &mut self.listener.metrics.counters;
        let mut replies = Replies { batch, pending, counters, accepted: 0, last: None };
        self.view.announce(self.random, requests, &mut |slot, answer| replies.write(slot, answer));
        let (accepted, last) = (replies.accepted, replies.last);
        for done in pending {
            batch.set_reply(done.slot, done.reply_slot.datagram_len(done.len));
        }
        let last = || {
            let request = requests.get(usize::from(last?))?;
            Some((request.announce.peer_id, request.grant.client_ip()))
        };
        counters.announced(accepted, last);
    }
}

impl Handler for UdpFront {
    fn batch(&mut self, socket: usize, batch: &mut Batch) {
        let begun = self.clock.moment();
        let Self { tracker, random, listeners, heavy_hitters, .. } = self;
        let (view, listener) = (tracker.view(begun.tick), &mut listeners[socket]);
        let mut context = BatchContext { view, listener, random, heavy_hitters };
        let mut requests: ArrayVec<AnnounceRequest, { limits::BATCH_MAX }> = ArrayVec::new();
        let mut pending: ArrayVec<Pending, { limits::BATCH_MAX }> = ArrayVec::new();
        for slot in 0..batch.len() {
            if let Some((request, waiting)) = context.read(batch, slot) {
                requests.push(request);
                pending.push(waiting);
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
        let reason = if blocked { DropReason::SendBufferFull } else { DropReason::SendFailed };
        self.listeners[socket].metrics.counters.drops[reason.index()] += datagrams as u64;
    }

    fn source_filter(&mut self) -> Option<Vec<IpPrefix>> {
        Some(self.heavy_hitters.take_change()?.collect())
    }
}

impl ReplySlot {
    const V4: Self = Self { family: Family::V4, start: 0, end: limits::UDP_PAYLOAD_V4_MAX };
    const V6: Self = Self { family: Family::V6, start: 0, end: limits::UDP_PAYLOAD_V6_MAX };

    /// For a client without a proxy, in a datagram for which the engine has `room` bytes.
    #[inline]
    fn new(from: IpAddr, room: usize) -> Self {
        let slot = match Family::of(from) {
            Family::V4 => Self::V4,
            Family::V6 => Self::V6,
        };
        Self { end: slot.end.min(room), ..slot }
    }

    /// For the client at `ip` behind a proxy. Writes `header` into the slot, before the reply.
    //= spp#reply
    fn behind(self, slot: &mut [u8], header: &[u8; simple::HEADER_LEN], ip: IpAddr) -> Self {
        let room = slot.first_chunk_mut();
        debug_assert!(room.is_some(), "a reply slot is shorter than a Simple Proxy header");
        if let Some(room) = room {
            *room = *header;
        }
        Self { family: Family::of(ip), start: simple::HEADER_LEN, ..self }
    }

    /// The part of `slot` that the reply may fill. Empty if the slot is too short, so that nothing is
    /// sent.
    #[inline]
    fn of(self, slot: &mut [u8]) -> &mut [u8] {
        debug_assert!(self.end <= slot.len(), "a reply slot is shorter than a datagram");
        slot.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// The length of the datagram whose reply has `len` bytes. Without a reply there is none: 0.
    #[inline]
    fn datagram_len(self, len: usize) -> usize {
        if len == 0 { 0 } else { self.start + len }
    }

    /// Returns the policy for the response to an announce: the limits of what it can hold.
    #[inline]
    const fn policy(self) -> AnnouncePolicy {
        //= bep15#announce-reply-family
        AnnouncePolicy {
            peers_max: self.peers_max(),
            families: Families::Own,
            with_downloads: false,
        }
    }

    /// The most peers in the response to an announce.
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

/// A datagram that is being served.
struct DatagramContext<'a> {
    view: &'a View<'a>,
    counters: &'a mut Counters,
    /// Counts clients that the kernel should block. `None` for clients behind a proxy, whose address
    /// the kernel does not see.
    heavy_hitters: Option<&'a mut HeavyHitters>,
    /// The listener's policy.
    listener_policy: ListenerPolicyId,
    /// The client's address.
    ip: IpAddr,
    /// The length of the reply, in bytes.
    len: usize,
}

impl DatagramContext<'_> {
    /// Answers the datagram, or returns its announce, which is served with the rest of the batch.
    fn serve(
        &mut self,
        request: &[u8],
        reply: &mut [u8],
    ) -> Option<(UnverifiedGrant, Announce, u32)> {
        let family = Family::of(self.ip);
        let (connection_id, transaction_id, verified) = match udp::decode(request) {
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
            Ok(Request::Connected { connection_id, transaction_id, request }) => {
                (connection_id, transaction_id, request)
            }
            Err(error) => {
                let reason = match error {
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
        match verified {
            UnverifiedRequest::Announce { announce, options } => {
                self.counters.request(family, RequestKind::Announce);
                // The announce is served nevertheless: its fields precede the options.
                if options.is_malformed() {
                    self.counters.drop(DropReason::MalformedOptions);
                }
                match self.authorize(&options, announce) {
                    Ok((grant, announce)) => return Some((grant, announce, transaction_id)),
                    Err(refusal) => self.refuse(refusal, transaction_id, reply),
                }
            }
            UnverifiedRequest::Scrape(hashes) => {
                self.counters.request(family, RequestKind::Scrape);
                match self.scrape(hashes, transaction_id, reply) {
                    Ok(()) => self.counters.response(family, RequestKind::Scrape),
                    Err(refusal) => self.refuse(refusal, transaction_id, reply),
                }
            }
            UnverifiedRequest::Malformed(refusal) => {
                self.counters.request(family, RequestKind::Other);
                let (listener, kind) = (self.listener_policy, RequestKind::Announce);
                let grant = self.view.authorize_unverified(listener, self.ip, kind, None);
                if grant.is_ok() && self.heavy_hitters.is_some() {
                    self.view.report_offence(self.ip, BanReason::Malformed);
                }
                self.refuse(grant.err().unwrap_or(refusal), transaction_id, reply);
            }
        }
        None
    }

    /// Authorizes an announce by the key or token in the client's URL, which clients send if it says more
    /// than `/announce` (BEP 41). The key itself is verified with the rest of the batch.
    //= bep41#url-data-use
    fn authorize(
        &self,
        options: &Options<'_>,
        announce: Announce,
    ) -> Result<(UnverifiedGrant, Announce), Refusal> {
        let mut buffer;
        let url = match options.single_url_data() {
            Some(url) => url,
            None if options.is_empty() => b"",
            None => {
                buffer = [0; limits::URL_DATA_MAX];
                options.url_data(&mut buffer)
            }
        };
        let url = url::read(url);
        let Self { view, listener_policy, ip, .. } = *self;
        let credentials = credentials(view, listener_policy, url.key, url.query);
        view.authorize_announce(listener_policy, ip, credentials, || Ok(announce))
    }

    fn scrape(
        &mut self,
        hashes: InfoHashes<'_>,
        transaction_id: u32,
        reply: &mut [u8],
    ) -> Result<(), Refusal> {
        // A scrape has no options, and so no passkey: private listeners refuse it.
        let (listener, kind) = (self.listener_policy, RequestKind::Scrape);
        let grant = self.view.authorize(listener, self.ip, kind, None);
        let grant = grant.map_err(|refusal| match refusal {
            Refusal::KeyMissing => Refusal::ScrapeWithoutKey,
            other => other,
        })?;
        let mut buffer = [InfoHash::default(); limits::SCRAPE_HASHES_UDP_MAX];
        let hashes = hashes.copy_to(&mut buffer);
        let mut counts = [SwarmCounts::default(); limits::SCRAPE_HASHES_UDP_MAX];
        let (counts, _) = counts.split_at_mut(hashes.len());
        self.view.scrape(grant, hashes, counts)?;
        self.len = udp::scrape_reply(reply, transaction_id, counts);
        Ok(())
    }

    /// Sends the reason. Banned clients, and those over their rate, get no reply: to send one would cost
    /// as much as to serve them.
    fn refuse(&mut self, refusal: Refusal, transaction_id: u32, reply: &mut [u8]) {
        reject_log::refused("udp", self.ip, refusal);
        if refusal == Refusal::Banned {
            return self.counters.drop(DropReason::Banned);
        }
        if refusal == Refusal::TokenUnverified {
            // The client sends the announce again after some seconds, sooner than after an error.
            return self.counters.drop(DropReason::TokenUnverified);
        }
        if refusal == Refusal::TooManyRequests {
            if let Some(heavy_hitters) = &mut self.heavy_hitters {
                let is_blocked = self.view.note_refusal(heavy_hitters, self.ip);
                self.counters.kernel_blocks += u64::from(is_blocked);
            }
            return self.counters.drop(DropReason::RequestRate);
        }
        self.len = udp::error_reply(reply, transaction_id, refusal.text());
        self.counters.refuse(refusal);
        self.counters.response(Family::of(self.ip), RequestKind::Other);
    }

    /// Drops a datagram. A Simple Proxy header from an address that is not trusted looks like noise; it
    /// is counted apart, because the operator can fix it.
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

/// Writes the responses to a batch's announces into their datagrams' reply slots.
struct Replies<'a> {
    batch: &'a mut Batch,
    pending: &'a mut [Pending],
    counters: &'a mut Counters,
    /// The number of announces served.
    accepted: u32,
    /// The slot of the last of them.
    last: Option<u8>,
}

impl Replies<'_> {
    /// Writes the response to the announce of `slot`.
    #[inline]
    fn write(&mut self, slot: u8, answer: Result<AnnounceOk<'_>, Refusal>) {
        let Some(pending) = self.pending.get_mut(usize::from(slot)) else {
            debug_assert!(false, "a response to an announce that is not in the batch");
            return;
        };
        let buffer = pending.reply_slot.of(self.batch.reply_buffer(pending.slot));
        let family = pending.reply_slot.family;
        let accepted = match answer {
            Ok(accepted) => accepted,
            Err(refusal) => {
                // Not the datagram's source: that may be a proxy.
                reject_log::refused("udp", pending.client, refusal);
                self.counters.refuse(refusal);
                self.counters.response(family, RequestKind::Other);
                pending.len = udp::error_reply(buffer, pending.transaction_id, refusal.text());
                return;
            }
        };
        let answer = accepted.answer;
        (self.accepted, self.last) = (self.accepted + 1, Some(slot));
        self.counters.response(family, RequestKind::Announce);
        self.counters.peers_sent += u64::from(answer.v4_len()) + u64::from(answer.v6_len());
        let head = AnnounceHead {
            transaction_id: pending.transaction_id,
            interval_s: accepted.interval_s,
            leechers: answer.counts.leechers(),
            seeders: answer.counts.seeders(),
        };
        let mut len = udp::announce_reply(buffer, &head);
        // The policy asks for the client's own family.
        match family {
            Family::V4 => answer.each_v4(|peers| len = udp::append_peers_v4(buffer, len, peers)),
            Family::V6 => answer.each_v6(|peers| len = udp::append_peers_v6(buffer, len, peers)),
        }
        pending.len = len;
    }
}
