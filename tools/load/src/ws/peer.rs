//! One connection's peers without I/O: received bytes go in, bytes to send come out.

use std::time::{Duration, Instant};

use client::codec::webtorrent as messages;
use client::codec::ws::{self as frames, HandshakeReply};
use types::{Event, InfoHash, NumWant, OfferId, PeerId, limits};
use wire::webtorrent::{Announce, Answer, Offer};
use wire::ws::{self, Reader};

use super::incoming::{Incoming, info_hash, offer_ids, read};
use super::shared::SharedState;

/// A peer of one torrent, or of several in turn, with at most one outstanding request.
pub(super) struct Peer {
    /// The index of its connection in the shared state.
    index: usize,
    /// The torrent that it announces next.
    turn: u32,
    /// Its last announce's ids. With several torrents it has the same id in all.
    id: PeerId,
    info_hash: InfoHash,
    reader: Reader,
    /// The handshake's key, until it is answered.
    key: Option<[u8; 24]>,
    /// True if the first announce of each of its torrents was answered.
    joined: bool,
    /// The scheduled time of the outstanding request.
    pending: Option<Instant>,
    /// Answers that the tracker will acknowledge before it responds to the outstanding request (or
    /// to the next one), and answers sent after that request.
    acks_before: u32,
    acks_after: u32,
}

/// Everything that a peer needs to handle an event.
pub(super) struct PeerContext<'a> {
    pub(super) shared: &'a mut SharedState,
    pub(super) now: Instant,
    /// The peer's output is appended here.
    pub(super) out: &'a mut Vec<u8>,
    /// True if much of its earlier output is still unsent: it then answers no offers.
    pub(super) congested: bool,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct ReceiveOutcome {
    /// Processed bytes.
    pub(super) consumed: usize,
    /// True if the outstanding request was answered.
    pub(super) answered: bool,
    /// The tracker's announce interval, if given.
    pub(super) interval: Option<Duration>,
    /// True if it was the peer's first response.
    pub(super) joined: bool,
}

/// The connection has ended, for this reason.
#[derive(Debug, PartialEq)]
pub(super) struct Ended(pub(super) String);

impl Peer {
    /// Creates peer number `index` and writes its WebSocket handshake.
    pub(super) fn new(index: usize, context: &mut PeerContext<'_>) -> Self {
        let shared = &mut *context.shared;
        let key = shared.handshake_key();
        frames::request(context.out, &shared.url.host, shared.target(index), &key);
        Self {
            index,
            turn: 0,
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

    /// Processes received bytes and writes immediate replies.
    pub(super) fn receive(
        &mut self,
        input: &mut [u8],
        context: &mut PeerContext<'_>,
    ) -> Result<ReceiveOutcome, Ended> {
        let mut outcome = ReceiveOutcome::default();
        if let Some(key) = &self.key {
            match frames::read_handshake_reply(input, key) {
                HandshakeReply::Partial if input.len() < limits::HTTP_HEAD_MAX => {
                    return Ok(outcome);
                }
                HandshakeReply::Accepted { consumed } => outcome.consumed = consumed,
                HandshakeReply::Refused(status) => {
                    return Err(Ended(format!("expected a WebSocket, found HTTP status {status}")));
                }
                _ => return Err(Ended("the response is not a WebSocket handshake".into())),
            }
            self.key = None;
            context.shared.counters.responses.connect += 1;
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
                    frames::pong(context.out, context.shared.mask(), payload);
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

    /// Writes an announce with offers.
    pub(super) fn request(&mut self, context: &mut PeerContext<'_>) {
        self.announce(context.shared.offers, context);
    }

    /// Returns whether a request is outstanding.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// Writes a ping.
    pub(super) fn ping(&self, context: &mut PeerContext<'_>) {
        frames::ping(context.out, context.shared.mask(), b"");
    }

    /// Expires the outstanding request if it is from before `since`. Returns whether it was.
    pub(super) fn expire(&mut self, since: Instant) -> bool {
        let late = self.pending.is_some_and(|pending| pending < since);
        if late {
            (self.pending, self.acks_before, self.acks_after) = (None, 0, 0);
        }
        late
    }

    /// Returns true if its first announce was answered.
    pub(super) fn has_joined(&self) -> bool {
        self.joined
    }

    fn announce(&mut self, offers: usize, context: &mut PeerContext<'_>) {
        let shared = &mut *context.shared;
        let announced = shared.announce(self.index, self.turn);
        self.turn = (self.turn + 1) % shared.peers_each;
        self.info_hash = announced.info_hash;
        if shared.peers_each == 1 || self.id == PeerId::default() {
            self.id = announced.peer_id;
        }
        let mut announce = Announce::new(self.info_hash, self.id);
        (announce.event, announce.left) = (announced.event, announced.left);
        // A leaving peer sends no offers.
        let offers = if announced.event == Event::Stopped { 0 } else { offers };
        let offers = offers.min(limits::WEB_OFFERS_MAX);
        announce.want = NumWant::Peers(offers as u16);
        for _ in 0..offers {
            let id = OfferId(shared.random.bytes());
            announce.offers.push(Offer { id, json: &shared.offer });
        }
        let mask = shared.random.bytes();
        frames::text_with(context.out, mask, |out| messages::announce(out, &announce));
        shared.counters.sent += 1;
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
                counters.responses.offer += 1;
                self.answer(text, context);
            }
            Some(Incoming::Answer) => counters.responses.answer += 1,
            Some(Incoming::Announced { interval_s, peers }) => {
                counters.responses.announce += 1;
                if self.is_acknowledgement(context.shared) {
                    context.shared.counters.web.acknowledgements += 1;
                } else {
                    context.shared.check_count(peers);
                    self.complete_request(interval_s, context, outcome);
                }
            }
            Some(Incoming::Failure(reason)) => {
                counters.refuse(reason.as_bytes());
                self.complete_request(None, context, outcome);
            }
            None => counters.fail(UNREADABLE),
        }
    }

    /// Returns whether an announce response acknowledges an answer: responses come in the order of
    /// requests.
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
        if !self.joined && self.turn > 0 {
            context.shared.first_announces += 1;
            self.announce(0, context);
            return;
        }
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
        let (false, Some((to_peer_id, offer_id))) = (context.congested, names) else {
            shared.counters.web.answers_withheld += 1;
            return;
        };
        let torrent = (shared.peers_each > 1).then(|| info_hash(offer)).flatten();
        let (info_hash, peer_id) = (torrent.unwrap_or(self.info_hash), self.id);
        let answer = Answer { info_hash, peer_id, to_peer_id, offer_id, json: &shared.answer };
        let mask = shared.random.bytes();
        frames::text_with(context.out, mask, |out| messages::answer(out, &answer));
        shared.counters.web.answers_sent += 1;
        if shared.acknowledges {
            *(if self.pending.is_some() { &mut self.acks_after } else { &mut self.acks_before }) +=
                1;
        }
    }
}

const UNREADABLE: &str = "an invalid message";
