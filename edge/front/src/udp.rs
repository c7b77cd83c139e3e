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
const _: () = assert!(ReplyRoom::V4.peers_max() == limits::PEERS_UDP_V4_MAX);
const _: () = assert!(ReplyRoom::V6.peers_max() == limits::PEERS_UDP_V6_MAX);

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

impl Handler for UdpFront {
    fn batch(&mut self, socket: usize, batch: &mut Batch) {
        let begun = self.clock.moment();
        let UdpListener { metrics, listener_policy, proxies } = &mut self.listeners[socket];
        let mut context = BatchContext {
            view: self.tracker.view_of(metrics.service, begun.tick),
            counters: &mut metrics.counters,
            listener_policy: *listener_policy,
            proxies: proxies.as_ref(),
            random: &mut self.random,
            heavy_hitters: &mut self.heavy_hitters,
        };
        let mut waiting = Waiting::default();
        for slot in 0..batch.len() {
            context.read(batch, slot, &mut waiting);
        }
        context.announce(batch, &waiting);
        let sent: usize = (0..batch.len()).map(|slot| batch.reply_len(slot)).sum();
        context.counters.bytes_out += sent as u64;
        context.counters.latency.observe(begun.elapsed(), batch.len() as u64);
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

/// State that the datagrams of a batch share.
struct BatchContext<'a> {
    view: View<'a>,
    counters: &'a mut Counters,
    listener_policy: ListenerPolicyId,
    proxies: Option<&'a Networks>,
    random: &'a mut Random,
    heavy_hitters: &'a mut HeavyHitters,
}

#[derive(Clone, Copy)]
struct Sender {
    /// The client's address: behind a proxy, the one that the proxy names.
    ip: IpAddr,
    /// The address that the client has sent its datagram to, as its proxy says; `None` = no proxy.
    proxied_to: Option<IpAddr>,
}

/// The result of serving a datagram.
enum Served {
    /// The length of the reply, in bytes; 0 = no reply.
    Reply(usize),
    /// An announce that goes to the tracker with the rest of its batch.
    Announce { request: AnnounceRequest, transaction_id: u32 },
}

/// The announces of a batch that go to the tracker together.
#[derive(Default)]
struct Waiting {
    requests: ArrayVec<AnnounceRequest, { limits::BATCH_MAX }>,
    /// The place of each response.
    pending: ArrayVec<Pending, { limits::BATCH_MAX }>,
}

/// The place of the response to an announce that goes to the tracker.
#[derive(Clone, Copy)]
struct Pending {
    /// The number of the datagram in its batch.
    slot: usize,
    transaction_id: u32,
    room: ReplyRoom,
}

impl BatchContext<'_> {
    /// Answers the datagram of a slot, or adds its announce to those that wait.
    fn read(&mut self, batch: &mut Batch, slot: usize, waiting: &mut Waiting) {
        let from = batch.from(slot).ip();
        let is_truncated = batch.is_truncated(slot);
        let mut room = ReplyRoom::new(from, batch.room(slot));
        let (mut request, reply) = batch.exchange(slot);
        self.counters.bytes_in += request.len() as u64;
        if is_truncated {
            return self.counters.drop(DropReason::TooLong);
        }
        let mut sender = Sender { ip: from, proxied_to: None };
        if self.proxies.is_some_and(|proxies| proxies.contains(from)) {
            let Some(wrapped) = simple::unwrap(request) else {
                return self.counters.drop(DropReason::BadProxyHeader);
            };
            let route = wrapped.route;
            sender = Sender { ip: route.client.ip(), proxied_to: Some(route.server.ip()) };
            request = wrapped.datagram;
            room = room.behind(reply, wrapped.header, sender.ip);
        }
        match self.serve(&sender, request, room, reply) {
            Served::Reply(len) => batch.set_reply(slot, room.datagram_len(len)),
            Served::Announce { mut request, transaction_id } => {
                let local = || sender.proxied_to.or_else(|| batch.to(slot));
                request.via_local_address = is_via_local_address(sender.ip, local);
                waiting.requests.push(request);
                waiting.pending.push(Pending { slot, transaction_id, room });
            }
        }
    }

    /// Answers a datagram, unless it is an announce that the tracker has to answer.
    fn serve(
        &mut self,
        sender: &Sender,
        request: &[u8],
        room: ReplyRoom,
        slot: &mut [u8],
    ) -> Served {
        let reply = room.of(slot);
        let family = Family::of(sender.ip);
        let (connection_id, transaction_id, unverified) = match udp::decode(request) {
            Ok(Request::Connect { transaction_id }) => {
                return Served::Reply(self.connect(sender.ip, transaction_id, reply));
            }
            Ok(Request::Connected { connection_id, transaction_id, request }) => {
                (connection_id, transaction_id, request)
            }
            Err(DecodeError::TooShort) => return self.drop(sender, DropReason::TooShort, request),
            Err(DecodeError::WrongMagic) => {
                return self.drop(sender, DropReason::WrongMagic, request);
            }
        };
        //= bep15#connection-id-verified
        if !self.view.verify_connection_id(sender.ip, connection_id) {
            return self.drop(sender, DropReason::BadConnectionId, request);
        }
        let refusal = match unverified {
            UnverifiedRequest::Announce { announce, options } => {
                self.counters.request(family, RequestKind::Announce);
                // The announce is served nevertheless: its fields precede the options.
                if options.is_malformed() {
                    self.counters.drop(DropReason::MalformedOptions);
                }
                match self.authorize(sender.ip, &options, announce) {
                    Ok((grant, announce)) => {
                        let policy = room.policy();
                        // The address is looked up when the slot is no longer borrowed.
                        let via_local_address = false;
                        let request =
                            AnnounceRequest { grant, via_local_address, announce, policy };
                        return Served::Announce { request, transaction_id };
                    }
                    Err(refusal) => match self.view.quiet_response(refusal) {
                        Some(quiet) => {
                            self.count_refusal(sender, refusal);
                            let len = write_announced(reply, family, transaction_id, &quiet);
                            return Served::Reply(len);
                        }
                        None => refusal,
                    },
                }
            }
            UnverifiedRequest::Scrape(hashes) => {
                self.counters.request(family, RequestKind::Scrape);
                match self.scrape(sender.ip, hashes, transaction_id, reply) {
                    Ok(len) => {
                        self.counters.response(family, RequestKind::Scrape);
                        return Served::Reply(len);
                    }
                    Err(refusal) => refusal,
                }
            }
            UnverifiedRequest::Malformed(refusal) => {
                self.counters.request(family, RequestKind::Other);
                let (listener, kind) = (self.listener_policy, RequestKind::Announce);
                let grant = self.view.authorize_unverified(listener, sender.ip, kind, None);
                if grant.is_ok() && sender.proxied_to.is_none() {
                    self.view.report_offence(sender.ip, BanReason::Malformed);
                }
                grant.err().unwrap_or(refusal)
            }
        };
        Served::Reply(self.refuse(sender, refusal, transaction_id, reply))
    }

    /// Issues a connection id. Returns the length of the reply.
    fn connect(&mut self, ip: IpAddr, transaction_id: u32, reply: &mut [u8]) -> usize {
        self.counters.request(Family::of(ip), RequestKind::Connect);
        if let Err(refusal) = self.view.authorize_connect(ip) {
            self.counters.drop(match refusal {
                Refusal::Banned => DropReason::Banned,
                _ => DropReason::ConnectRate,
            });
            return 0;
        }
        self.counters.response(Family::of(ip), RequestKind::Connect);
        udp::connect_reply(reply, transaction_id, self.view.issue_connection_id(ip))
    }

    /// Authorizes an announce by the key or token in the client's URL, which clients send if it says more
    /// than `/announce` (BEP 41). The key itself is verified with the rest of the batch.
    //= bep41#url-data-use
    fn authorize(
        &self,
        ip: IpAddr,
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
        let credentials = credentials(&self.view, self.listener_policy, url.key, url.query);
        self.view.authorize_announce(self.listener_policy, ip, credentials, || Ok(announce))
    }

    /// Writes the response to a scrape, and returns its length.
    fn scrape(
        &mut self,
        ip: IpAddr,
        hashes: InfoHashes<'_>,
        transaction_id: u32,
        reply: &mut [u8],
    ) -> Result<usize, Refusal> {
        // A scrape has no options, and so no passkey: private listeners refuse it.
        let grant = self.view.authorize(self.listener_policy, ip, RequestKind::Scrape, None);
        let grant = grant.map_err(|refusal| match refusal {
            Refusal::KeyMissing => Refusal::ScrapeWithoutKey,
            other => other,
        })?;
        let mut buffer = [InfoHash::default(); limits::SCRAPE_HASHES_UDP_MAX];
        let hashes = hashes.copy_to(&mut buffer);
        let mut counts = [SwarmCounts::default(); limits::SCRAPE_HASHES_UDP_MAX];
        let (counts, _) = counts.split_at_mut(hashes.len());
        self.view.scrape(grant, hashes, counts)?;
        Ok(udp::scrape_reply(reply, transaction_id, counts))
    }

    /// Writes the reason of a refusal, and returns its length. Banned clients, and those over their rate, get
    /// no reply: to send one would cost as much as to serve them.
    fn refuse(
        &mut self,
        sender: &Sender,
        refusal: Refusal,
        transaction_id: u32,
        reply: &mut [u8],
    ) -> usize {
        let silent = match refusal {
            Refusal::Banned => DropReason::Banned,
            // The client sends the announce again after some seconds, sooner than after an error.
            Refusal::TokenUnverified => DropReason::TokenUnverified,
            Refusal::TooManyRequests => {
                // A filter in the kernel would match the proxy's address.
                if sender.proxied_to.is_none() {
                    let is_blocked = self.view.note_refusal(self.heavy_hitters, sender.ip);
                    self.counters.kernel_blocks += u64::from(is_blocked);
                }
                DropReason::RequestRate
            }
            _ => {
                self.count_refusal(sender, refusal);
                return udp::error_reply(reply, transaction_id, refusal.text());
            }
        };
        reject_log::refused("udp", sender.ip, refusal);
        self.counters.drop(silent);
        0
    }

    fn count_refusal(&mut self, sender: &Sender, refusal: Refusal) {
        reject_log::refused("udp", sender.ip, refusal);
        self.counters.refuse(refusal);
        self.counters.response(Family::of(sender.ip), RequestKind::Other);
    }

    /// Drops a datagram. A Simple Proxy header from an address that is not trusted looks like noise; it
    /// is counted apart, because the operator can fix it.
    fn drop(&mut self, sender: &Sender, reason: DropReason, request: &[u8]) -> Served {
        let is_wrapped = simple::unwrap(request).is_some();
        let reason = if is_wrapped { DropReason::UntrustedProxy } else { reason };
        reject_log::dropped("udp", sender.ip, reason);
        self.counters.drop(reason);
        Served::Reply(0)
    }

    /// Passes the announces of a batch to the tracker, which writes each response to the slot of its datagram.
    fn announce(&mut self, batch: &mut Batch, waiting: &Waiting) {
        let Waiting { requests, pending } = waiting;
        let counters = &mut *self.counters;
        let mut accepted = 0;
        let mut last = None;
        self.view.announce(self.random, requests, &mut |number, answer| {
            let Pending { slot, transaction_id, room } = &pending[usize::from(number)];
            let reply = room.of(batch.reply_buffer(*slot));
            let len = match answer {
                Ok(announced) => {
                    accepted += 1;
                    last = Some(number);
                    counters.response(room.family, RequestKind::Announce);
                    let answer = &announced.answer;
                    counters.peers_sent += u64::from(answer.v4_len()) + u64::from(answer.v6_len());
                    write_announced(reply, room.family, *transaction_id, &announced)
                }
                Err(refusal) => {
                    let from = requests[usize::from(number)].grant.client_ip();
                    reject_log::refused("udp", from, refusal);
                    counters.refuse(refusal);
                    counters.response(room.family, RequestKind::Other);
                    match self.view.quiet_response(refusal) {
                        Some(quiet) => write_announced(reply, room.family, *transaction_id, &quiet),
                        None => udp::error_reply(reply, *transaction_id, refusal.text()),
                    }
                }
            };
            batch.set_reply(*slot, room.datagram_len(len));
        });
        let last = || {
            let request = requests.get(usize::from(last?))?;
            Some((request.announce.peer_id, request.grant.client_ip()))
        };
        counters.announced(accepted, last);
    }
}

/// Writes the response to an announce of a client of `family`. Returns its length.
#[inline]
fn write_announced(
    reply: &mut [u8],
    family: Family,
    transaction_id: u32,
    announced: &AnnounceOk<'_>,
) -> usize {
    let answer = &announced.answer;
    let head = AnnounceHead {
        transaction_id,
        interval_s: announced.interval_s,
        leechers: answer.counts.leechers(),
        seeders: answer.counts.seeders(),
    };
    let mut len = udp::announce_reply(reply, &head);
    // The policy asks for the client's own family.
    match family {
        Family::V4 => answer.each_v4(|peers| len = udp::append_peers_v4(reply, len, peers)),
        Family::V6 => answer.each_v6(|peers| len = udp::append_peers_v6(reply, len, peers)),
    }
    len
}

/// The part of a datagram's slot that the reply may fill.
#[derive(Clone, Copy)]
struct ReplyRoom {
    /// The client's family: it decides on the form of the reply.
    family: Family,
    /// The length of the Simple Proxy header before the reply, which is written already.
    start: usize,
    /// The maximum length of the datagram.
    end: usize,
}

impl ReplyRoom {
    const V4: Self = Self { family: Family::V4, start: 0, end: limits::UDP_PAYLOAD_V4_MAX };
    const V6: Self = Self { family: Family::V6, start: 0, end: limits::UDP_PAYLOAD_V6_MAX };

    /// Returns the room for a client without a proxy, in a datagram for which the engine has `len` bytes.
    #[inline]
    fn new(from: IpAddr, len: usize) -> Self {
        let room = match Family::of(from) {
            Family::V4 => Self::V4,
            Family::V6 => Self::V6,
        };
        Self { end: room.end.min(len), ..room }
    }

    /// Returns the room for the client at `ip` behind a proxy. Writes `header` before it into the slot.
    //= spp#reply
    fn behind(self, slot: &mut [u8], header: &[u8; simple::HEADER_LEN], ip: IpAddr) -> Self {
        slot[..header.len()].copy_from_slice(header);
        Self { family: Family::of(ip), start: simple::HEADER_LEN, ..self }
    }

    /// Returns the room in `slot`. Empty if the slot is too short, so that nothing is sent.
    #[inline]
    fn of(self, slot: &mut [u8]) -> &mut [u8] {
        debug_assert!(self.end <= slot.len(), "a reply slot is shorter than a datagram");
        slot.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Returns the length of the datagram whose reply has `len` bytes. Without a reply there is none: 0.
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

    /// Returns the most peers in the response to an announce.
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
