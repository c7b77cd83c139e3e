//! The server's side of one WebSocket: frames in, messages to the tracker, frames out.

use std::mem::take;
use std::rc::Rc;

use tracker::counters::DropReason;
use tracker::{
    BanReason, OfferBudget, Offers, RelayTargets, RequestKind, View, WebAnnounceOk,
    WebAnnounceRequest,
};
use types::{ConnectionKey, Event, Family, InfoHash, Refusal, SwarmCounts, Tick, WebPeer, limits};
use wire::webtorrent::{self, Action, Announce, Answer, Message, MessageError, Relay, Scrape};
use wire::ws::{self, CloseCode, ProtocolError, Reader};

use super::context::WsContext;
use super::mailboxes::{Content, Envelope};
use super::peer_list::{PeerList, TorrentPeer};
use crate::buffer::InputBuffer;
use crate::client::WsClient;
use crate::connection_error::ConnectionError;
use crate::connections::Connections;
use crate::listener::Listener;
use crate::reject_log;

/// The state of a WebSocket's protocol.
pub(crate) struct Session {
    pub(super) key: ConnectionKey,
    listener: Rc<Listener>,
    pub(super) client: Rc<WsClient>,
    reader: Reader,
    /// The start of a frame, or input that waits for the next second.
    input: InputBuffer,
    //= webtorrent#shared-connection
    /// The connection's torrents and its peer ids in them.
    peers: PeerList,
    /// When peers that are no longer stored were last removed from `peers`.
    peers_checked: Tick,
    rate: MessageRate,
    budget: OfferBudget,
}

/// Seconds between two checks of which peers of a connection are still stored. Clients that leave a torrent without
/// `stopped`, as libtorrent does, would else reach the limit of torrents in time.
const PEERS_CHECK_S: u32 = 600;

/// The next action of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextInput {
    /// Read more input.
    Read,
    /// Pause, then serve the input that waits: the client has sent too many messages.
    Pause,
    /// End. A close frame is in the connection's output.
    End,
}

/// The number of messages in the present second.
#[derive(Default)]
struct MessageRate {
    second: Tick,
    messages: u32,
}

impl MessageRate {
    /// Counts one more message. Returns false if it is above `per_s`; 0 = unlimited.
    fn allows(&mut self, now: Tick, per_s: u32) -> bool {
        if self.second != now {
            *self = Self { second: now, messages: 0 };
        }
        self.messages += 1;
        per_s == 0 || self.messages <= per_s
    }
}

impl Session {
    /// Returns a session that begins with `input`, which the client has sent behind its request.
    pub(crate) fn new(
        key: ConnectionKey,
        listener: Rc<Listener>,
        client: Rc<WsClient>,
        input: InputBuffer,
    ) -> Self {
        Self {
            key,
            listener,
            client,
            reader: Reader::for_client_frames(),
            input,
            peers: PeerList::default(),
            peers_checked: Tick::default(),
            rate: MessageRate::default(),
            budget: OfferBudget::default(),
        }
    }

    /// Serves the messages in `fresh`, behind input that waited.
    pub(super) fn receive(&mut self, context: &mut WsContext<'_>, fresh: &mut [u8]) -> NextInput {
        self.listener.ws().bytes_in += fresh.len() as u64;
        let mut input = take(&mut self.input);
        let (next, is_new) = input.feed(fresh, |all| self.serve(context, all));
        self.input = input;
        let is_unfinished =
            self.reader.is_inside_message() || (next == NextInput::Read && !self.input.is_empty());
        if is_unfinished {
            context.connections.await_message_end(context.now, self.key, is_new);
        } else {
            context.connections.note_message_end(self.key);
        }
        self.count_memory(&mut context.connections, context.now);
        next
    }

    /// Counts the memory for input that has not been served.
    pub(super) fn count_memory(&self, connections: &mut Connections, now: Tick) {
        let bytes = self.input.capacity() + self.reader.held_bytes();
        connections.hold_input(now, self.key, bytes);
    }

    /// Serves message by message. Returns how many bytes are done with, what to do next, and whether
    /// the input was between two messages at any time.
    fn serve(
        &mut self,
        context: &mut WsContext<'_>,
        input: &mut [u8],
    ) -> (usize, (NextInput, bool)) {
        let listener = Rc::clone(&self.listener);
        let options = &listener.web_options;
        let (mut at, mut is_new) = (0, false);
        // The scan may have closed it since the last input.
        if context.connections.is_closing(self.key) {
            return (at, (NextInput::End, is_new));
        }
        while let Some(input) = input.get_mut(at..).filter(|input| !input.is_empty()) {
            if !self.rate.allows(context.now, options.messages_per_s) {
                return (at, (NextInput::Pause, is_new));
            }
            let read = self.reader.read(input, options.message_max);
            at += read.consumed;
            match read.event {
                ws::Event::Partial => break,
                ws::Event::Text(text) => self.message(context, webtorrent::read(&text)),
                ws::Event::Binary(bytes) => self.message(context, webtorrent::read_binary(&bytes)),
                ws::Event::Ping(payload) => {
                    context.connections.send(context.now, self.key, |out| ws::pong(out, payload));
                }
                ws::Event::Pong(_) => {}
                ws::Event::Close(code) => {
                    self.close(context, code.unwrap_or(CloseCode::NORMAL), "");
                }
                ws::Event::Error(error) => self.close_for(context, error),
            }
            if context.connections.is_closing(self.key) {
                return (at, (NextInput::End, is_new));
            }
            is_new |= !self.reader.is_inside_message();
        }
        (at, (NextInput::Read, is_new))
    }

    /// Closes the connection because the client broke the protocol.
    fn close_for(&self, context: &mut WsContext<'_>, error: ProtocolError) {
        self.listener.ws().drop(match error {
            ProtocolError::TooBig => DropReason::MessageTooLarge,
            _ => DropReason::BadFrame,
        });
        self.close(context, error.code(), error.text());
        self.report_offence(context);
    }

    /// Returns the operator's settings as they are now, for a message of the client.
    fn view<'a>(&self, context: &WsContext<'a>) -> View<'a> {
        let view = context.tracker.view_of(self.listener.web_service, context.now);
        view.excuse_offences(self.client.is_browser);
        view
    }

    fn report_offence(&self, context: &WsContext<'_>) {
        self.view(context).report_offence(self.client.ip, BanReason::Malformed);
    }

    /// Serves a message, or tells the client why it is refused.
    fn message(&mut self, context: &mut WsContext<'_>, message: Result<Message<'_>, MessageError>) {
        let sample = context.relay.sampling.begin(&context.clock);
        let (kind, action, info_hash) = match &message {
            Ok(Message::Announce(announce)) => {
                (RequestKind::Announce, Some(Action::Announce), Some(announce.info_hash))
            }
            Ok(Message::Answer(answer)) => {
                (RequestKind::Answer, Some(Action::Announce), Some(answer.info_hash))
            }
            Ok(Message::Scrape(_)) => (RequestKind::Scrape, Some(Action::Scrape), None),
            Err(error) => (RequestKind::Other, error.action, error.info_hash),
        };
        self.listener.ws().request(Family::of(self.client.ip), kind);
        let served = match message {
            Ok(Message::Announce(announce)) => self.announce(context, &announce),
            Ok(Message::Answer(answer)) => self.answer(context, &answer),
            Ok(Message::Scrape(scrape)) => self.scrape(context, &scrape),
            Err(error) => {
                self.report_offence(context);
                Err(error.refusal)
            }
        };
        if let Err(refusal) = served {
            self.refuse(context, MessageError { refusal, action, info_hash });
        }
        if let Some(sample) = sample {
            self.listener.ws().latency.observe(sample.elapsed(), 1);
        }
    }

    fn refuse(&self, context: &mut WsContext<'_>, error: MessageError) {
        let MessageError { refusal, action, info_hash } = error;
        reject_log::refused("ws", self.client.ip, refusal);
        self.listener.ws().refuse(refusal);
        self.count_response(RequestKind::Other);
        let quiet = self.view(context).quiet_web_response(refusal);
        self.reply(context, |out| match (quiet, action, &info_hash) {
            (Some(quiet), Some(Action::Announce), Some(info_hash)) => {
                let WebAnnounceOk { counts, interval_s, warning } = &quiet;
                webtorrent::announce_reply(out, info_hash, counts, *interval_s, *warning);
            }
            _ => webtorrent::failure(out, refusal, action, info_hash.as_ref()),
        });
        if refusal == Refusal::Banned {
            self.close(context, CloseCode::POLICY, refusal.text());
        }
    }

    /// Announces a peer: updates its torrent, answers, and relays its offers.
    fn announce(
        &mut self,
        context: &mut WsContext<'_>,
        announce: &Announce<'_>,
    ) -> Result<(), Refusal> {
        let Announce { info_hash, peer_id, event, .. } = *announce;
        self.listener.ws().announced(1, || Some((peer_id, self.client.ip)));
        self.forget_expired(context);
        let peer = TorrentPeer { info_hash, peer_id };
        let is_new = !self.peers.contains(&peer);
        if is_new && event != Event::Stopped {
            self.check_room(info_hash)?;
        }
        let view = self.view(context);
        let ip = self.client.ip;
        let parsed = types::Announce {
            info_hash,
            peer_id,
            port: 0,
            event,
            left: announce.left,
            uploaded: announce.uploaded,
            downloaded: announce.downloaded,
            want: announce.want,
        };
        let (policy_id, credentials) =
            (self.listener.options.listener_policy, self.client.credentials());
        let (grant, parsed) = view.authorize_announce(policy_id, ip, credentials, || Ok(parsed))?;
        let request = WebAnnounceRequest {
            grant,
            connection: self.key,
            announce: parsed,
            offers: announce.offers.len() as u16,
            interval_s: self.budgeted_interval_s(announce),
        };
        let mut targets = RelayTargets::new();
        let accepted = view.announce_web(&mut context.relay.random, &request, &mut targets)?;
        self.admit_offers(context, announce, &mut targets);
        if is_new != (event == Event::Stopped) {
            self.keep_peer(context, peer, event);
        }
        self.reply(context, |out| {
            let WebAnnounceOk { counts, interval_s, warning } = &accepted;
            webtorrent::announce_reply(out, &info_hash, counts, *interval_s, *warning);
        });
        self.relay_offers(context, announce, &targets);
        self.count_response(RequestKind::Announce);
        self.listener.ws().peers_sent += targets.len() as u64;
        Ok(())
    }

    /// Returns the interval that keeps the connection within its budget. Clients with a key keep the usual one:
    /// they report their progress with each announce.
    fn budgeted_interval_s(&mut self, announce: &Announce<'_>) -> u32 {
        self.budget.note_announce(announce.offers.iter().map(|offer| offer.json.len()));
        if self.client.key().is_some() {
            return 0;
        }
        self.budget.interval_s(self.listener.web_options.offer_bytes_per_s, self.peers.len())
    }

    /// Removes the targets of offers that may not be relayed, and counts them.
    fn admit_offers(
        &mut self,
        context: &WsContext<'_>,
        announce: &Announce<'_>,
        targets: &mut RelayTargets,
    ) {
        let chosen = targets.len();
        if chosen == 0 {
            return;
        }
        let (view, ip) = (self.view(context), self.client.ip);
        let bytes_per_s = self.listener.web_options.offer_bytes_per_s;
        let sizes = announce.offers.iter().take(chosen).map(|offer| offer.json.len());
        let mut within_budget = self.budget.admit(context.now, bytes_per_s, sizes);
        if within_budget < chosen && view.is_exempt(ip) {
            within_budget = chosen;
        }
        targets.truncate(within_budget);
        targets.truncate(view.admit_offers(ip, within_budget));
        if targets.len() < chosen {
            let mut counters = self.listener.ws();
            counters.drops[DropReason::OfferBudget.index()] += (chosen - within_budget) as u64;
            counters.drops[DropReason::OfferRate.index()] += (within_budget - targets.len()) as u64;
        }
    }

    /// Forgets the peers that are no longer stored, once in a while.
    fn forget_expired(&mut self, context: &mut WsContext<'_>) {
        if context.now.since(self.peers_checked) < PEERS_CHECK_S {
            return;
        }
        self.peers_checked = context.now;
        let (connection, store) = (self.key, context.tracker.store());
        self.peers.retain(|TorrentPeer { info_hash, peer_id }| {
            store.has_web(info_hash, &WebPeer { connection, peer_id: *peer_id })
        });
        self.count_peers(context);
    }

    /// Adds or removes a peer of the connection.
    fn keep_peer(&mut self, context: &mut WsContext<'_>, peer: TorrentPeer, event: Event) {
        match event {
            Event::Stopped => self.peers.remove(&peer),
            _ => self.peers.insert(peer),
        }
        self.count_peers(context);
    }

    fn count_peers(&self, context: &mut WsContext<'_>) {
        context.connections.hold_torrents(context.now, self.key, self.peers.bytes());
    }

    /// Returns an error if the connection may not have another peer of a torrent.
    fn check_room(&self, info_hash: InfoHash) -> Result<(), Refusal> {
        if self.peers.len() >= self.listener.web_options.torrents_max {
            return Err(Refusal::TooManyTorrents);
        }
        if self.peers.of_torrent(info_hash).count() >= limits::WEB_PEERS_PER_CONNECTION {
            return Err(Refusal::TooManyPeers);
        }
        Ok(())
    }

    /// Sends one offer of an announce to each of the peers chosen.
    fn relay_offers(
        &self,
        context: &mut WsContext<'_>,
        announce: &Announce<'_>,
        targets: &RelayTargets,
    ) {
        if targets.is_empty() {
            return;
        }
        let Announce { info_hash, peer_id, .. } = announce;
        let relay = Relay::new(info_hash, peer_id);
        let network = context.tracker.offer_network(self.client.ip);
        for (to, offer) in targets.iter().zip(&announce.offers) {
            let tag = context.tracker.offer_tag(info_hash, &offer.id, peer_id, &to.peer_id);
            let content = Content::Offer { tag, from: self.key, network };
            context.relay(self.envelope(to.connection, content), |out| relay.offer(out, offer));
        }
    }

    /// Relays an answer if its offer was made, and was given to this peer. Otherwise the answer is
    /// late, or an attempt to reach another user's browser.
    fn answer(&self, context: &mut WsContext<'_>, answer: &Answer<'_>) -> Result<(), Refusal> {
        let Answer { info_hash, peer_id, to_peer_id, offer_id, json } = answer;
        let (now, tracker) = (context.now, context.tracker);
        if tracker.bans().contains(now, self.client.ip) {
            return Err(Refusal::Banned);
        }
        let tag = tracker.offer_tag(info_hash, offer_id, to_peer_id, peer_id);
        let previous = || tracker.previous_offer_tag(info_hash, offer_id, to_peer_id, peer_id);
        //= webtorrent#relay-answer
        let offers = context.connections.offers(self.key);
        let take = |offers: &mut Offers| {
            offers.take(now, tag).or_else(|| previous().and_then(|tag| offers.take(now, tag)))
        };
        let Some(from) = offers.and_then(take) else {
            self.listener.ws().drop(DropReason::UnmatchedAnswer);
            return Ok(());
        };
        let relay = Relay::new(info_hash, peer_id);
        let envelope = self.envelope(from, Content::Answer);
        context.relay(envelope, |out| relay.answer(out, offer_id, json));
        self.count_response(RequestKind::Answer);
        Ok(())
    }

    /// Returns the envelope of a message of this session's client.
    fn envelope(&self, to: ConnectionKey, content: Content) -> Envelope {
        Envelope { to, content, listener: Some(self.listener.number) }
    }

    fn scrape(&self, context: &mut WsContext<'_>, scrape: &Scrape<'_>) -> Result<(), Refusal> {
        let policy_id = self.listener.options.listener_policy;
        let view = self.view(context);
        let (ip, key) = (self.client.ip, self.client.key());
        let grant = view.authorize(policy_id, ip, RequestKind::Scrape, key)?;
        let mut buffer = [InfoHash::default(); limits::SCRAPE_HASHES_WEB_MAX];
        let hashes = scrape.read_into(&mut buffer)?;
        let mut counts = [SwarmCounts::default(); limits::SCRAPE_HASHES_WEB_MAX];
        let (counts, _) = counts.split_at_mut(hashes.len());
        view.scrape(grant, hashes, counts)?;
        self.reply(context, |out| webtorrent::scrape_reply(out, hashes, counts));
        self.count_response(RequestKind::Scrape);
        Ok(())
    }

    fn reply(&self, context: &mut WsContext<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        context.connections.send(context.now, self.key, |out| ws::text_with(out, write));
    }

    fn close(&self, context: &mut WsContext<'_>, code: CloseCode, reason: &str) {
        context.connections.close(context.now, self.key, code, reason);
    }

    fn count_response(&self, kind: RequestKind) {
        self.listener.ws().response(Family::of(self.client.ip), kind);
    }

    /// Counts and logs why the connection ends.
    pub(super) fn count_failure(&self, error: &ConnectionError) {
        reject_log::broken("ws", self.client.ip, error);
        self.listener.ws().drop(error.drop_reason());
    }

    /// Removes the connection's peers from all torrents.
    //= webtorrent#leave
    pub(super) fn leave(&mut self, context: &WsContext<'_>) {
        for TorrentPeer { info_hash, peer_id } in take(&mut self.peers).iter() {
            let peer = WebPeer { connection: self.key, peer_id };
            context.tracker.leave_web(context.now, self.client.key(), &info_hash, peer);
        }
    }
}
