//! One peer on its connection, without I/O: what has come goes in, what to send comes out.

use std::time::{Duration, Instant};

use types::{Event, InfoHash, NumWant, OfferId, PeerId, limits};
use wire::webtorrent::{Announce, Answer, Offer, client};
use wire::ws::{self, Reader};

use super::incoming::{Incoming, offer_ids, read};
use super::shared::SharedState;
use crate::counters::ResponseKind;

/// A peer: it is in one torrent, and has one request under way at a time.
pub(super) struct Peer {
    /// Its number, by which the crowd knows what it says.
    index: usize,
    /// What it announced last.
    id: PeerId,
    info_hash: InfoHash,
    reader: Reader,
    /// Of the handshake, until it is answered.
    key: Option<[u8; 24]>,
    /// Whether its first announce was answered.
    joined: bool,
    /// Since when a request is unanswered: when it was due.
    pending: Option<Instant>,
    /// Answers that the tracker has still to acknowledge before it replies to the pending request, or
    /// to the next one if none is pending; and those sent since.
    acks_before: u32,
    acks_after: u32,
}

/// What a peer works with for a moment.
pub(super) struct PeerContext<'a> {
    pub(super) shared: &'a mut SharedState,
    pub(super) now: Instant,
    /// What the peer sends goes behind what is here.
    pub(super) out: &'a mut Vec<u8>,
    /// Whether much of what it sent before is still to go: then it answers no offers.
    pub(super) congested: bool,
}

/// What came of what has come.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ReceiveOutcome {
    /// Bytes that are done with.
    pub(super) consumed: usize,
    /// Whether the pending request was answered.
    pub(super) answered: bool,
    /// How long the tracker asks to wait for the next one, if it does.
    pub(super) interval: Option<Duration>,
    /// Whether it was the first.
    pub(super) joined: bool,
}

/// Nothing comes any more, for this reason.
#[derive(Debug, PartialEq)]
pub(super) struct Ended(pub(super) String);

impl Peer {
    /// The peer number `index` of all, who asks for a WebSocket.
    pub(super) fn new(index: usize, context: &mut PeerContext<'_>) -> Self {
        let shared = &mut *context.shared;
        let key = shared.handshake_key();
        ws::client::request(context.out, &shared.url.host, shared.target(index), &key);
        Self {
            index,
            id: PeerId::default(),
            info_hash: InfoHash::default(),
            reader: Reader::for_server_frames(),
            key: Some(key),
            joined: false,
            pending: None,
            acks_before: 0,
            acks_after: 0,
        }
    }

    /// Takes what has come and was not consumed, and says what is to be said to it at once.
    pub(super) fn receive(
        &mut self,
        input: &mut [u8],
        context: &mut PeerContext<'_>,
    ) -> Result<ReceiveOutcome, Ended> {
        let mut outcome = ReceiveOutcome::default();
        if let Some(key) = &self.key {
            match ws::client::read_handshake_reply(input, key) {
                ws::client::HandshakeReply::Partial if input.len() < limits::HTTP_HEAD_MAX => {
                    return Ok(outcome);
                }
                ws::client::HandshakeReply::Accepted { consumed } => outcome.consumed = consumed,
                ws::client::HandshakeReply::Refused(status) => {
                    return Err(Ended(format!("HTTP status {status} instead of a WebSocket")));
                }
                _ => return Err(Ended("what came is not a WebSocket's handshake".into())),
            }
            self.key = None;
            context.shared.counters.count(ResponseKind::Connect);
            self.announce(0, context);
        }
        loop {
            let rest = input.get_mut(outcome.consumed..).unwrap_or_default();
            let ws::ReadEvent { consumed, event } = self.reader.read(rest, limits::WS_MESSAGE_MAX);
            outcome.consumed += consumed;
            match event {
                ws::Event::Partial { .. } => return Ok(outcome),
                ws::Event::Text(text) => self.handle_message(&text, context, &mut outcome),
                ws::Event::Binary(bytes) => match str::from_utf8(&bytes) {
                    Ok(text) => self.handle_message(text, context, &mut outcome),
                    Err(_) => context.shared.counters.fail(UNREADABLE),
                },
                ws::Event::Ping(payload) => {
                    context.shared.counters.web.pings += 1;
                    ws::client::pong(context.out, context.shared.mask(), payload);
                }
                ws::Event::Pong(_) => context.shared.counters.web.pongs += 1,
                ws::Event::Close(code) => {
                    let code = code.map_or_else(String::new, |code| format!(" with {}", code.0));
                    return Err(Ended(format!("the tracker closed{code}")));
                }
                ws::Event::Error(fault) => return Err(Ended(fault.text().into())),
            }
        }
    }

    /// Sends an announce with offers, or a scrape, as the mix has it.
    pub(super) fn request(&mut self, context: &mut PeerContext<'_>) {
        if context.shared.next_is_scrape() {
            self.scrape(context);
        } else {
            self.offer(context);
        }
    }

    /// Sends an announce with offers.
    pub(super) fn offer(&mut self, context: &mut PeerContext<'_>) {
        self.announce(context.shared.offers, context);
    }

    /// Whether it waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// Sends a ping.
    pub(super) fn ping(&self, context: &mut PeerContext<'_>) {
        ws::client::ping(context.out, context.shared.mask(), b"");
    }

    /// Waits no longer for an answer to what it asked before `since`; says whether it had waited.
    pub(super) fn expire(&mut self, since: Instant) -> bool {
        let late = self.pending.is_some_and(|pending| pending < since);
        if late {
            (self.pending, self.acks_before, self.acks_after) = (None, 0, 0);
        }
        late
    }

    /// Whether its first announce was answered.
    pub(super) fn has_joined(&self) -> bool {
        self.joined
    }

    fn announce(&mut self, offers: usize, context: &mut PeerContext<'_>) {
        let shared = &mut *context.shared;
        let announced = shared.announce(self.index);
        (self.info_hash, self.id) = (announced.info_hash, announced.peer_id);
        let mut announce = Announce::new(self.info_hash, self.id);
        (announce.event, announce.left) = (announced.event, announced.left);
        // Who leaves offers nothing.
        let offers = if announced.event == Event::Stopped { 0 } else { offers };
        let offers = offers.min(limits::WEB_OFFERS_MAX);
        announce.want = NumWant::Peers(offers as u16);
        for _ in 0..offers {
            let id = OfferId(shared.random.bytes());
            announce.offers.push(Offer { id, json: &shared.offer });
        }
        let mask = shared.random.bytes();
        ws::client::text_with(context.out, mask, |out| client::announce(out, &announce));
        shared.counters.sent += 1;
        self.pending = Some(context.now);
    }

    /// Of its own torrent, and of others.
    fn scrape(&mut self, context: &mut PeerContext<'_>) {
        let hashes = context.shared.scrape_hashes(self.index);
        let mask = context.shared.mask();
        ws::client::text_with(context.out, mask, |out| client::scrape(out, &hashes));
        context.shared.counters.sent += 1;
        self.pending = Some(context.now);
    }

    fn handle_message(
        &mut self,
        text: &str,
        context: &mut PeerContext<'_>,
        outcome: &mut ReceiveOutcome,
    ) {
        let counters = &mut context.shared.counters;
        match read(text) {
            Some(Incoming::Offer) => {
                counters.count(ResponseKind::Offer);
                self.answer(text, context);
            }
            Some(Incoming::Answer) => counters.count(ResponseKind::Answer),
            Some(Incoming::Announced { interval_s, peers }) => {
                counters.count(ResponseKind::Announce);
                if self.is_acknowledgement(context.shared) {
                    context.shared.counters.web.acknowledgements += 1;
                } else {
                    context.shared.check_count(peers);
                    self.complete_request(interval_s, context, outcome);
                }
            }
            Some(Incoming::Scraped) => {
                counters.count(ResponseKind::Scrape);
                self.complete_request(None, context, outcome);
            }
            Some(Incoming::Failure(reason)) => {
                counters.refuse(reason.as_bytes());
                self.complete_request(None, context, outcome);
            }
            None => counters.fail(UNREADABLE),
        }
    }

    /// Whether a reply is one to an answer: those come in the order of what was sent.
    fn is_acknowledgement(&mut self, shared: &mut SharedState) -> bool {
        if self.acks_before > 0 {
            self.acks_before -= 1;
            return true;
        }
        let unasked = self.pending.is_none();
        shared.acknowledges |= unasked && shared.probing;
        unasked
    }

    fn complete_request(
        &mut self,
        interval_s: Option<u64>,
        context: &mut PeerContext<'_>,
        outcome: &mut ReceiveOutcome,
    ) {
        let Some(since) = self.pending.take() else { return };
        context.shared.counters.latencies.record(context.now.saturating_duration_since(since));
        self.acks_before = std::mem::take(&mut self.acks_after);
        outcome.answered = true;
        outcome.interval = interval_s.map(Duration::from_secs);
        outcome.joined = !std::mem::replace(&mut self.joined, true);
    }

    fn answer(&mut self, offer: &str, context: &mut PeerContext<'_>) {
        let shared = &mut *context.shared;
        let names = offer_ids(offer);
        if let Some((from, offer_id)) = names {
            shared.check_offer(self.id, from, offer_id);
        }
        if !shared.random.percent(shared.answers_percent) {
            return;
        }
        let (false, Some((to_peer_id, offer_id))) = (context.congested, names) else {
            shared.counters.web.answers_withheld += 1;
            return;
        };
        let (info_hash, peer_id) = (self.info_hash, self.id);
        let answer = Answer { info_hash, peer_id, to_peer_id, offer_id, json: &shared.answer };
        let mask = shared.random.bytes();
        ws::client::text_with(context.out, mask, |out| client::answer(out, &answer));
        shared.counters.web.answers_sent += 1;
        if shared.acknowledges {
            *(if self.pending.is_some() { &mut self.acks_after } else { &mut self.acks_before }) +=
                1;
        }
    }
}

const UNREADABLE: &str = "a message that is none of the protocol";
