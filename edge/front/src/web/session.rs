//! What one connection says, and what comes of it.

use std::mem::take;
use std::net::IpAddr;

use tracker::counters::DropReason;
use tracker::{BanReason, RelayTargets, RequestKind, WebAnnounceRequest};
use types::{
    ConnectionKey, Event, Family, InfoHash, PeerId, Refusal, SwarmCounts, Tick, UserKey, WebPeer,
    limits,
};
use wire::webtorrent::{self, Announce, Answer, Message, MessageError, Relay, Scrape};
use wire::ws::{self, CloseCode, ProtocolError, Reader};

use super::exchange::Content;
use super::{Newcomer, Worker};
use crate::reject_log;

/// A connection's side of the protocol: bytes in, frames into mailboxes.
pub(super) struct Session {
    key: ConnectionKey,
    listener: usize,
    /// The client's address, as the edge established it.
    ip: IpAddr,
    /// The key with which it came.
    user: Option<Box<UserKey>>,
    reader: Reader,
    /// Input that is not looked at yet: the beginning of a frame, or all that had to wait.
    rest: Vec<u8>,
    //= webtorrent#shared-connection
    /// The torrents it is in, and as whom: sorted, since most connections have one or two.
    peers: Vec<(InfoHash, PeerId)>,
    pace: Pace,
}

/// How a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// When more has come.
    Read,
    /// After a pause: it says too much.
    Pause,
    /// Not at all. A close frame is in its mailbox.
    End,
}

/// What the client has said in this second.
#[derive(Default)]
struct Pace {
    second: Tick,
    messages: u32,
}

impl Pace {
    /// Whether one more message may be looked at now.
    fn admits(&mut self, now: Tick, per_s: u32) -> bool {
        if self.second != now {
            *self = Self { second: now, messages: 0 };
        }
        self.messages += 1;
        per_s == 0 || self.messages <= per_s
    }
}

impl Session {
    /// A session that begins with `rest`.
    pub(super) fn new(
        key: ConnectionKey,
        listener: usize,
        newcomer: Newcomer,
        rest: Vec<u8>,
    ) -> Self {
        let Newcomer { ip, user } = newcomer;
        Self {
            key,
            listener,
            ip,
            user,
            reader: Reader::for_client_frames(),
            rest,
            peers: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// Serves what has come, behind what was left.
    pub(super) fn receive(&mut self, worker: &mut Worker, now: Tick, fresh: &mut [u8]) -> Next {
        if self.rest.is_empty() {
            let (consumed, next) = self.serve(worker, now, fresh);
            self.rest.extend_from_slice(fresh.get(consumed..).unwrap_or_default());
            return next;
        }
        let mut input = take(&mut self.rest);
        input.extend_from_slice(fresh);
        let (consumed, next) = self.serve(worker, now, &mut input);
        if consumed < input.len() {
            input.drain(..consumed);
            self.rest = input;
        }
        next
    }

    /// Serves message by message, and says how many bytes are done with.
    fn serve(&mut self, worker: &mut Worker, now: Tick, input: &mut [u8]) -> (usize, Next) {
        let mut at = 0;
        while let Some(input) = input.get_mut(at..).filter(|input| !input.is_empty()) {
            if !self.pace.admits(now, worker.hub.options(self.listener).messages_per_s) {
                return (at, Next::Pause);
            }
            let message_max = worker.hub.options(self.listener).message_max;
            let read = self.reader.read(input, message_max);
            at += read.consumed;
            match read.event {
                ws::Event::Partial { .. } => break,
                ws::Event::Text(text) => self.message(worker, now, webtorrent::read(&text)),
                ws::Event::Binary(bytes) => {
                    self.message(worker, now, webtorrent::read_binary(&bytes));
                }
                ws::Event::Ping(payload) => {
                    worker.hub.put(now, self.key, |out| ws::pong(out, payload));
                }
                ws::Event::Pong(_) => {}
                ws::Event::Close(code) => {
                    worker.hub.close(now, self.key, code.unwrap_or(CloseCode::NORMAL), "");
                }
                ws::Event::Error(fault) => {
                    let counters = worker.hub.counters(self.listener);
                    counters.drop(match fault {
                        ProtocolError::TooBig => DropReason::MessageTooBig,
                        _ => DropReason::BadFrame,
                    });
                    worker.hub.close(now, self.key, fault.code(), fault.text());
                    worker.tracker.view(now).report_offence(self.ip, BanReason::Malformed);
                }
            }
            if worker.hub.is_ending(self.key) {
                return (at, Next::End);
            }
        }
        (at, Next::Read)
    }

    fn message(
        &mut self,
        worker: &mut Worker,
        now: Tick,
        message: Result<Message<'_>, MessageError>,
    ) {
        let begun = worker.sampling.begin(&worker.clock);
        let done = match message {
            Ok(Message::Announce(announce)) => {
                self.count(worker, RequestKind::Announce);
                let about = (Some(webtorrent::Action::Announce), Some(announce.info_hash));
                self.announce(worker, now, &announce).map_err(|refusal| (refusal, about))
            }
            Ok(Message::Answer(answer)) => {
                self.count(worker, RequestKind::Answer);
                self.answer(worker, now, &answer);
                Ok(())
            }
            Ok(Message::Scrape(scrape)) => {
                self.count(worker, RequestKind::Scrape);
                let about = (Some(webtorrent::Action::Scrape), None);
                self.scrape(worker, now, &scrape).map_err(|refusal| (refusal, about))
            }
            Err(bad) => {
                self.count(worker, RequestKind::Other);
                worker.tracker.view(now).report_offence(self.ip, BanReason::Malformed);
                Err((bad.refusal, (bad.action, bad.info_hash)))
            }
        };
        if let Err((refusal, (action, info_hash))) = done {
            let counters = worker.hub.counters(self.listener);
            reject_log::refused("ws", self.ip, refusal);
            counters.refuse(refusal);
            counters.response(Family::of(self.ip), RequestKind::Other);
            worker.hub.put(now, self.key, |out| {
                ws::text_with(out, |out| {
                    webtorrent::failure(out, refusal, action, info_hash.as_ref());
                });
            });
            if refusal == Refusal::Banned {
                worker.hub.close(now, self.key, CloseCode::POLICY, refusal.text());
            }
        }
        if let Some(begun) = begun {
            worker.hub.counters(self.listener).latency.observe(begun.elapsed(), 1);
        }
    }

    fn announce(
        &mut self,
        worker: &mut Worker,
        now: Tick,
        announce: &Announce<'_>,
    ) -> Result<(), Refusal> {
        let Announce { info_hash, peer_id, event, .. } = *announce;
        worker.hub.counters(self.listener).clients.pass(1, || Some(peer_id));
        let place = self.peers.binary_search(&(info_hash, peer_id));
        if place.is_err()
            && event != Event::Stopped
            && self.peers.len() >= worker.hub.options(self.listener).torrents_max
        {
            return Err(Refusal::TooManyTorrents);
        }
        let view = worker.tracker.view(now);
        let (listener_policy, kind) =
            (worker.hub.listener_policy(self.listener), RequestKind::Announce);
        let ask = WebAnnounceRequest {
            grant: view.authorize_unverified(listener_policy, self.ip, kind, self.user())?,
            info_hash,
            peer: WebPeer { connection: self.key, peer_id },
            event,
            role: announce.role(),
            want: announce.want,
            offers: announce.offers.len() as u16,
            uploaded: announce.uploaded,
            downloaded: announce.downloaded,
        };
        let mut chosen = RelayTargets::new();
        let accepted = view.announce_web(&mut worker.random, &ask, &mut chosen)?;
        match (place, event) {
            (Ok(at), Event::Stopped) => _ = self.peers.remove(at),
            (Err(at), event) if event != Event::Stopped => {
                if self.peers.capacity() == 0 {
                    self.peers.reserve_exact(1);
                }
                self.peers.insert(at, (info_hash, peer_id));
            }
            _ => {}
        }
        worker.hub.put(now, self.key, |out| {
            ws::text_with(out, |out| {
                let interval_s = accepted.interval_s;
                webtorrent::announce_reply(out, &info_hash, &accepted.counts, interval_s);
            });
        });
        if !chosen.is_empty() {
            let relay = Relay::new(&info_hash, &peer_id);
            for (to, offer) in chosen.iter().zip(&announce.offers) {
                let name = worker.tracker.offer_tag(&info_hash, &offer.id, &peer_id, &to.peer_id);
                let content = Content::Offer { name, from: self.key };
                worker.hub.deliver(now, to.connection, content, |out| relay.offer(out, offer));
            }
        }
        let counters = worker.hub.counters(self.listener);
        counters.response(Family::of(self.ip), RequestKind::Announce);
        counters.peers_sent += chosen.len() as u64;
        Ok(())
    }

    /// Passes an answer on, if the offer was made, and made to this peer. If not, nobody waits for it:
    /// it may be late, or a try to reach somebody's browser.
    fn answer(&mut self, worker: &mut Worker, now: Tick, answer: &Answer<'_>) {
        let Answer { info_hash, peer_id, to_peer_id, offer_id, json } = answer;
        let name = worker.tracker.offer_tag(info_hash, offer_id, to_peer_id, peer_id);
        //= webtorrent#relay-answer
        let offers = worker.hub.offers(self.key);
        let Some(from) = offers.and_then(|offers| offers.take(now, name)) else {
            return worker.hub.counters(self.listener).drop(DropReason::StrayAnswer);
        };
        let relay = Relay::new(info_hash, peer_id);
        worker.hub.deliver(now, from, Content::Answer, |out| relay.answer(out, offer_id, json));
        worker.hub.counters(self.listener).response(Family::of(self.ip), RequestKind::Answer);
    }

    fn scrape(
        &mut self,
        worker: &mut Worker,
        now: Tick,
        scrape: &Scrape<'_>,
    ) -> Result<(), Refusal> {
        let listener_policy = worker.hub.listener_policy(self.listener);
        let view = worker.tracker.view(now);
        let grant = view.authorize(listener_policy, self.ip, RequestKind::Scrape, self.user())?;
        let mut room = [InfoHash::default(); limits::SCRAPE_HASHES_WEB_MAX];
        let hashes = scrape.read_into(&mut room)?;
        let mut counts = [SwarmCounts::default(); limits::SCRAPE_HASHES_WEB_MAX];
        let counts = counts.get_mut(..hashes.len()).unwrap_or_default();
        view.scrape(grant, hashes, counts)?;
        worker.hub.put(now, self.key, |out| {
            ws::text_with(out, |out| webtorrent::scrape_reply(out, hashes, counts));
        });
        worker.hub.counters(self.listener).response(Family::of(self.ip), RequestKind::Scrape);
        Ok(())
    }

    /// The key of its user, if it came with one.
    fn user(&self) -> Option<&[u8]> {
        self.user.as_deref().map(UserKey::as_bytes)
    }

    fn count(&self, worker: &mut Worker, kind: RequestKind) {
        worker.hub.counters(self.listener).request(Family::of(self.ip), kind);
    }

    /// Leaves all torrents.
    //= webtorrent#leave
    pub(super) fn leave(&mut self, worker: &Worker) {
        for (info_hash, peer_id) in take(&mut self.peers) {
            let peer = WebPeer { connection: self.key, peer_id };
            worker.tracker.leave_web(&info_hash, peer);
        }
    }
}
