//! WebTorrent trackers: JSON over a WebSocket.

use std::net::SocketAddr;
use std::time::Duration;

use rustls::ClientConnection;
use types::{Announce, InfoHash, OfferId, PeerId, limits};
use wire::webtorrent::{self, Answer, Offer, Offers};
use wire::ws::{CloseCode, Event, ReadEvent, Reader};

use crate::codec::webtorrent::{TrackerMessage, announce, answer, read, scrape};
use crate::codec::ws::{self, HandshakeReply};
use crate::stream::{Deadline, Stream};
use crate::{
    AnnounceResponse, FailureKind, ScrapeEntry, ScrapeStats, SessionConfig, TrackerError, Url,
    random,
};

/// A WebSocket session with a tracker.
pub(crate) struct WebTorrent {
    stream: Stream,
    url: Url,
    timeout: Duration,
    reader: Reader,
    /// Offers and answers from other peers, oldest first.
    pub(crate) relayed: Vec<Relayed>,
}

/// An offer or an answer from another peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relayed {
    pub(crate) is_answer: bool,
    pub(crate) info_hash: InfoHash,
    pub(crate) peer_id: PeerId,
    pub(crate) offer_id: OfferId,
    /// The session description.
    pub(crate) json: String,
}

/// A received event. Pings are answered at once and not reported.
enum Received {
    Text(String),
    Pong(Vec<u8>),
    Close(Option<CloseCode>),
}

/// Relayed messages kept at most; later ones are dropped.
const RELAYED_MAX: usize = 1000;

impl WebTorrent {
    /// Connects. [`WebTorrent::handshake`] must follow.
    pub(crate) fn open(
        url: &Url,
        address: SocketAddr,
        config: &SessionConfig,
    ) -> Result<Self, TrackerError> {
        let deadline = Deadline::after(config.timeout);
        Ok(Self {
            stream: Stream::open(url, address, &config.tls, deadline)?,
            url: url.clone(),
            timeout: config.timeout,
            reader: Reader::for_server_frames(),
            relayed: Vec::new(),
        })
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.local_addr()
    }

    /// Returns the TLS session, if there is one.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        self.stream.tls()
    }

    pub(crate) fn handshake(&mut self) -> Result<(), TrackerError> {
        let deadline = Deadline::after(self.timeout);
        let (key, mut request) = (ws::handshake_key(&random()), Vec::new());
        ws::request(&mut request, &self.url.host, &self.url.target, &key);
        self.stream.write(&request, deadline)?;
        loop {
            match ws::read_handshake_reply(&self.stream.input, &key) {
                HandshakeReply::Accepted { consumed } => {
                    self.stream.input.drain(..consumed);
                    return Ok(());
                }
                HandshakeReply::Refused(status) => {
                    let text = format!("expected a WebSocket, found HTTP status {status}");
                    return Err(TrackerError::new(FailureKind::Refused, text));
                }
                HandshakeReply::Invalid => {
                    return Err(self.stream.unexpected_input("a WebSocket handshake"));
                }
                HandshakeReply::Partial => {
                    self.stream.check_head()?;
                    self.fill(deadline)?;
                }
            }
        }
    }

    /// Announces with offers and waits for the response.
    pub(crate) fn announce(
        &mut self,
        request: &Announce,
        offers: &[Offer<'_>],
    ) -> Result<AnnounceResponse, TrackerError> {
        let mut message = webtorrent::Announce {
            event: request.event,
            left: request.left,
            uploaded: request.uploaded,
            downloaded: request.downloaded,
            want: request.want,
            ..webtorrent::Announce::new(request.info_hash, request.peer_id)
        };
        message.offers =
            offers.iter().take(limits::WEB_OFFERS_MAX).copied().collect::<Offers<'_>>();
        let deadline = Deadline::after(self.timeout);
        self.send(|out| announce(out, &message), deadline)?;
        loop {
            let text = self.next(deadline)?;
            match self.message(&text)? {
                TrackerMessage::AnnounceReply { info_hash, response }
                    if info_hash == request.info_hash =>
                {
                    return Ok(response);
                }
                other => self.keep(&other),
            }
        }
    }

    pub(crate) fn scrape(
        &mut self,
        hashes: &[InfoHash],
    ) -> Result<Vec<Option<ScrapeStats>>, TrackerError> {
        let deadline = Deadline::after(self.timeout);
        self.send(|out| scrape(out, hashes), deadline)?;
        loop {
            let text = self.next(deadline)?;
            match self.message(&text)? {
                TrackerMessage::ScrapeReply(entries) => {
                    return Ok(ScrapeEntry::in_order_of(hashes, &entries));
                }
                other => self.keep(&other),
            }
        }
    }

    /// Answers a relayed offer.
    pub(crate) fn answer(
        &mut self,
        offer: &Relayed,
        own: PeerId,
        json: &str,
    ) -> Result<(), TrackerError> {
        let message = Answer {
            info_hash: offer.info_hash,
            peer_id: own,
            to_peer_id: offer.peer_id,
            offer_id: offer.offer_id,
            json,
        };
        self.send(|out| answer(out, &message), Deadline::after(self.timeout))
    }

    /// Waits for a relayed message that matches `is_it` and takes it out of `relayed`.
    pub(crate) fn wait(
        &mut self,
        is_it: impl Fn(&Relayed) -> bool,
    ) -> Result<Relayed, TrackerError> {
        let deadline = Deadline::after(self.timeout);
        loop {
            if let Some(at) = self.relayed.iter().position(&is_it) {
                return Ok(self.relayed.swap_remove(at));
            }
            let text = self.next(deadline)?;
            let message = self.message(&text)?;
            self.keep(&message);
        }
    }

    /// Sends a ping and waits for the pong.
    pub(crate) fn ping(&mut self) -> Result<(), TrackerError> {
        let (deadline, payload) = (Deadline::after(self.timeout), random::<8>());
        let mut out = Vec::new();
        ws::ping(&mut out, random(), &payload);
        self.stream.write(&out, deadline)?;
        loop {
            match self.receive(deadline)? {
                Received::Pong(echo) if echo == payload => return Ok(()),
                Received::Close(code) => return Err(self.closed(code)),
                Received::Text(_) | Received::Pong(_) => {}
            }
        }
    }

    /// Closes the WebSocket and waits for the tracker's close frame.
    pub(crate) fn close(mut self) -> Result<(), TrackerError> {
        let (deadline, mut out) = (Deadline::after(self.timeout), Vec::new());
        ws::close(&mut out, random(), CloseCode::NORMAL, "");
        self.stream.write(&out, deadline)?;
        while !matches!(self.receive(deadline)?, Received::Close(_)) {}
        Ok(())
    }

    /// Parses a message. Refusals are errors.
    fn message<'a>(&self, text: &'a str) -> Result<TrackerMessage<'a>, TrackerError> {
        match read(text) {
            Some(TrackerMessage::Failure { reason, .. }) => {
                Err(TrackerError::new(FailureKind::Refused, reason))
            }
            Some(message) => Ok(message),
            None => {
                let begin: String = text.chars().take(60).collect();
                let what = format!("{begin:?}, which is not a tracker message");
                Err(self.stream.invalid_response(&what))
            }
        }
    }

    /// Keeps an offer or an answer. Ignores replies to earlier requests.
    fn keep(&mut self, message: &TrackerMessage<'_>) {
        let relayed = match *message {
            TrackerMessage::Offer { info_hash, peer_id, offer: Offer { id, json } } => {
                Relayed { is_answer: false, info_hash, peer_id, offer_id: id, json: json.into() }
            }
            TrackerMessage::Answer { info_hash, peer_id, offer_id, json } => {
                Relayed { is_answer: true, info_hash, peer_id, offer_id, json: json.into() }
            }
            _ => return,
        };
        if self.relayed.len() < RELAYED_MAX {
            self.relayed.push(relayed);
        }
    }

    fn send(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>),
        deadline: Deadline,
    ) -> Result<(), TrackerError> {
        let mut out = Vec::new();
        ws::text_with(&mut out, random(), write);
        self.stream.write(&out, deadline)
    }

    /// Waits for the next text message.
    fn next(&mut self, deadline: Deadline) -> Result<String, TrackerError> {
        loop {
            match self.receive(deadline)? {
                Received::Text(text) => return Ok(text),
                Received::Close(code) => return Err(self.closed(code)),
                Received::Pong(_) => {}
            }
        }
    }

    /// Waits for the next event, answering pings meanwhile.
    fn receive(&mut self, deadline: Deadline) -> Result<Received, TrackerError> {
        loop {
            let ReadEvent { consumed, event } =
                self.reader.read(&mut self.stream.input, limits::WS_MESSAGE_MAX);
            let received = match event {
                Event::Partial { .. } => None,
                Event::Text(text) => Some(Received::Text(text.into_owned())),
                Event::Binary(bytes) => {
                    Some(Received::Text(String::from_utf8_lossy(&bytes).into_owned()))
                }
                Event::Pong(payload) => Some(Received::Pong(payload.to_vec())),
                Event::Close(code) => Some(Received::Close(code)),
                Event::Ping(payload) => {
                    let mut out = Vec::new();
                    ws::pong(&mut out, random(), payload);
                    self.stream.write(&out, deadline)?;
                    self.stream.input.drain(..consumed);
                    continue;
                }
                Event::Error(error) => {
                    return Err(self.stream.invalid_response(&format!(
                        "an invalid WebSocket frame: {}",
                        error.text()
                    )));
                }
            };
            self.stream.input.drain(..consumed);
            match received {
                Some(received) => return Ok(received),
                None => self.fill(deadline)?,
            }
        }
    }

    /// Reads more input. Fails at the end of the stream.
    fn fill(&mut self, deadline: Deadline) -> Result<(), TrackerError> {
        if self.stream.fill(deadline)? == 0 {
            let address = self.stream.address;
            let text = format!("{address} closed the connection without a close frame");
            return Err(TrackerError::new(FailureKind::ConnectionLost, text));
        }
        Ok(())
    }

    fn closed(&self, code: Option<CloseCode>) -> TrackerError {
        let code = code.map_or_else(|| "no code".into(), |code| format!("code {}", code.0));
        TrackerError::new(
            FailureKind::ConnectionLost,
            format!("{} closed the WebSocket with {code}", self.stream.address),
        )
    }
}
