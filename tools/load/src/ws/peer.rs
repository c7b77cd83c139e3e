//! One peer on its connection, without I/O: what has come goes in, what to send comes out.

use std::time::{Duration, Instant};

use types::{Event, InfoHash, NumWant, OfferId, PeerId, limits};
use wire::webtorrent::{Announce, Answer, Offer, client};
use wire::ws::{self, Reader};

use super::crowd::Crowd;
use super::incoming::{Incoming, introduction, read};
use crate::found::Kind;

/// A peer: it is in one torrent, and has one request under way at a time.
pub(super) struct Peer {
    /// Its number, by which the crowd knows what it says.
    place: usize,
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
    ahead: u32,
    behind: u32,
}

/// What a peer works with for a moment.
pub(super) struct Turn<'a> {
    pub(super) crowd: &'a mut Crowd,
    pub(super) now: Instant,
    /// What the peer sends goes behind what is here.
    pub(super) out: &'a mut Vec<u8>,
    /// Whether much of what it sent before is still to go: then it answers no offers.
    pub(super) congested: bool,
}

/// What came of what has come.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Heard {
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
    pub(super) fn new(index: usize, turn: &mut Turn<'_>) -> Self {
        let crowd = &mut *turn.crowd;
        let key = crowd.handshake_key();
        ws::client::request(turn.out, &crowd.url.host, crowd.target(index), &key);
        Self {
            place: index,
            id: PeerId::default(),
            info_hash: InfoHash::default(),
            reader: Reader::for_server_frames(),
            key: Some(key),
            joined: false,
            pending: None,
            ahead: 0,
            behind: 0,
        }
    }

    /// Takes what has come and was not consumed, and says what is to be said to it at once.
    pub(super) fn hear(&mut self, input: &mut [u8], turn: &mut Turn<'_>) -> Result<Heard, Ended> {
        let mut heard = Heard::default();
        if let Some(key) = &self.key {
            match ws::client::read_handshake_reply(input, key) {
                ws::client::HandshakeReply::Partial if input.len() < limits::HTTP_HEAD_MAX => {
                    return Ok(heard);
                }
                ws::client::HandshakeReply::Accepted { consumed } => heard.consumed = consumed,
                ws::client::HandshakeReply::Refused(status) => {
                    return Err(Ended(format!("HTTP status {status} instead of a WebSocket")));
                }
                _ => return Err(Ended("what came is not a WebSocket's handshake".into())),
            }
            self.key = None;
            turn.crowd.found.count(Kind::Connect);
            self.announce(0, turn);
        }
        loop {
            let rest = input.get_mut(heard.consumed..).unwrap_or_default();
            let ws::ReadEvent { consumed, event } = self.reader.read(rest, limits::WS_MESSAGE_MAX);
            heard.consumed += consumed;
            match event {
                ws::Event::Partial { .. } => return Ok(heard),
                ws::Event::Text(text) => self.take(&text, turn, &mut heard),
                ws::Event::Binary(bytes) => match str::from_utf8(&bytes) {
                    Ok(text) => self.take(text, turn, &mut heard),
                    Err(_) => turn.crowd.found.fail(UNREADABLE),
                },
                ws::Event::Ping(payload) => {
                    turn.crowd.found.web.pings += 1;
                    ws::client::pong(turn.out, turn.crowd.mask(), payload);
                }
                ws::Event::Pong(_) => turn.crowd.found.web.pongs += 1,
                ws::Event::Close(code) => {
                    let code = code.map_or_else(String::new, |code| format!(" with {}", code.0));
                    return Err(Ended(format!("the tracker closed{code}")));
                }
                ws::Event::Error(fault) => return Err(Ended(fault.text().into())),
            }
        }
    }

    /// Sends an announce with offers, or a scrape, as the mix has it.
    pub(super) fn ask(&mut self, turn: &mut Turn<'_>) {
        if turn.crowd.is_to_scrape() {
            self.scrape(turn);
        } else {
            self.offer(turn);
        }
    }

    /// Sends an announce with offers.
    pub(super) fn offer(&mut self, turn: &mut Turn<'_>) {
        self.announce(turn.crowd.offers, turn);
    }

    /// Whether it waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// Sends a ping.
    pub(super) fn ping(&self, turn: &mut Turn<'_>) {
        ws::client::ping(turn.out, turn.crowd.mask(), b"");
    }

    /// Waits no longer for an answer to what it asked before `since`; says whether it had waited.
    pub(super) fn give_up(&mut self, since: Instant) -> bool {
        let late = self.pending.is_some_and(|pending| pending < since);
        if late {
            (self.pending, self.ahead, self.behind) = (None, 0, 0);
        }
        late
    }

    /// Whether its first announce was answered.
    pub(super) fn has_joined(&self) -> bool {
        self.joined
    }

    fn announce(&mut self, offers: usize, turn: &mut Turn<'_>) {
        let crowd = &mut *turn.crowd;
        let said = crowd.announce(self.place);
        (self.info_hash, self.id) = (said.info_hash, said.peer_id);
        let mut announce = Announce::new(self.info_hash, self.id);
        (announce.event, announce.left) = (said.event, said.left);
        // Who leaves offers nothing.
        let offers = if said.event == Event::Stopped { 0 } else { offers };
        let offers = offers.min(limits::WEB_OFFERS_MAX);
        announce.want = NumWant::Peers(offers as u16);
        for _ in 0..offers {
            let id = OfferId(crowd.random.bytes());
            announce.offers.push(Offer { id, json: &crowd.offer });
        }
        let mask = crowd.random.bytes();
        ws::client::text_with(turn.out, mask, |out| client::announce(out, &announce));
        crowd.found.sent += 1;
        self.pending = Some(turn.now);
    }

    /// Of its own torrent, and of others.
    fn scrape(&mut self, turn: &mut Turn<'_>) {
        let hashes = turn.crowd.scraped(self.place);
        let mask = turn.crowd.mask();
        ws::client::text_with(turn.out, mask, |out| client::scrape(out, &hashes));
        turn.crowd.found.sent += 1;
        self.pending = Some(turn.now);
    }

    fn take(&mut self, text: &str, turn: &mut Turn<'_>, heard: &mut Heard) {
        let found = &mut turn.crowd.found;
        match read(text) {
            Some(Incoming::Offer) => {
                found.count(Kind::Offer);
                self.answer(text, turn);
            }
            Some(Incoming::Answer) => found.count(Kind::Answer),
            Some(Incoming::Announced { interval_s, peers }) => {
                found.count(Kind::Announce);
                if self.is_acknowledgement(turn.crowd) {
                    turn.crowd.found.web.acknowledgements += 1;
                } else {
                    turn.crowd.look_at_count(peers);
                    self.settle(interval_s, turn, heard);
                }
            }
            Some(Incoming::Scraped) => {
                found.count(Kind::Scrape);
                self.settle(None, turn, heard);
            }
            Some(Incoming::Failure(reason)) => {
                found.refuse(reason.as_bytes());
                self.settle(None, turn, heard);
            }
            None => found.fail(UNREADABLE),
        }
    }

    /// Whether a reply is one to an answer: those come in the order of what was sent.
    fn is_acknowledgement(&mut self, crowd: &mut Crowd) -> bool {
        if self.ahead > 0 {
            self.ahead -= 1;
            return true;
        }
        let unasked = self.pending.is_none();
        crowd.acknowledges |= unasked && crowd.probing;
        unasked
    }

    fn settle(&mut self, interval_s: Option<u64>, turn: &mut Turn<'_>, heard: &mut Heard) {
        let Some(since) = self.pending.take() else { return };
        turn.crowd.found.latencies.record(turn.now.saturating_duration_since(since));
        self.ahead = std::mem::take(&mut self.behind);
        heard.answered = true;
        heard.interval = interval_s.map(Duration::from_secs);
        heard.joined = !std::mem::replace(&mut self.joined, true);
    }

    fn answer(&mut self, offer: &str, turn: &mut Turn<'_>) {
        let crowd = &mut *turn.crowd;
        let names = introduction(offer);
        if let Some((from, offer_id)) = names {
            crowd.look_at_offer(self.id, from, offer_id);
        }
        if !crowd.random.percent(crowd.answers_percent) {
            return;
        }
        let (false, Some((to_peer_id, offer_id))) = (turn.congested, names) else {
            crowd.found.web.answers_withheld += 1;
            return;
        };
        let (info_hash, peer_id) = (self.info_hash, self.id);
        let answer = Answer { info_hash, peer_id, to_peer_id, offer_id, json: &crowd.answer };
        let mask = crowd.random.bytes();
        ws::client::text_with(turn.out, mask, |out| client::answer(out, &answer));
        crowd.found.web.answers_sent += 1;
        if crowd.acknowledges {
            *(if self.pending.is_some() { &mut self.behind } else { &mut self.ahead }) += 1;
        }
    }
}

const UNREADABLE: &str = "a message that is none of the protocol";
