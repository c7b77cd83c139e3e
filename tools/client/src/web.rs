//! WebTorrent's trackers: JSON over a WebSocket.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::ClientConnection;
use types::{Announce, InfoHash, OfferId, PeerId, limits};
use wire::webtorrent::client::{TrackerMessage, announce, answer, read, scrape};
use wire::webtorrent::{self, Answer, Offer, Offers};
use wire::ws::{self, CloseCode, Event, ReadEvent, Reader};

use crate::session::Manner;
use crate::stream::{Deadline, Stream};
use crate::{Announced, Fault, Figures, Kind, Url, random};

/// A WebSocket to a tracker.
pub(crate) struct Web {
    stream: Stream,
    url: Url,
    address: SocketAddr,
    timeout: Duration,
    reader: Reader,
    /// What has come and is not done with.
    input: Vec<u8>,
    /// What other peers have sent through the tracker, the last at the end.
    pub(crate) relayed: Vec<Relayed>,
}

/// What another peer sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relayed {
    pub(crate) is_answer: bool,
    pub(crate) info_hash: InfoHash,
    pub(crate) peer_id: PeerId,
    pub(crate) offer_id: OfferId,
    /// The offer or the answer.
    pub(crate) json: String,
}

/// What the other side says, apart from what is answered at once.
enum Heard {
    Text(String),
    Pong(Vec<u8>),
    Close(Option<CloseCode>),
}

/// A message for us.
enum Message {
    Announced(InfoHash, Announced),
    Scraped(Vec<(InfoHash, Figures)>),
    Relayed(Relayed),
    Refused(Fault),
}

/// Of what others send, so much is kept.
const RELAYED_MAX: usize = 1000;
/// Bytes that are read at once.
const READ: usize = 16 * 1024;

impl Web {
    /// Connects. A WebSocket it becomes by [`Web::shake_hands`].
    pub(crate) fn open(url: &Url, address: SocketAddr, manner: &Manner) -> Result<Self, Fault> {
        let deadline = Deadline::after(manner.timeout);
        Ok(Self {
            stream: Stream::open(url, address, &manner.tls, deadline)?,
            url: url.clone(),
            address,
            timeout: manner.timeout,
            reader: Reader::for_server_frames(),
            input: Vec::new(),
            relayed: Vec::new(),
        })
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.stream.local()
    }

    /// What TLS has agreed on.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        self.stream.tls()
    }

    pub(crate) fn shake_hands(&mut self) -> Result<(), Fault> {
        let deadline = Deadline::after(self.timeout);
        let (key, mut request) = (handshake_key(), Vec::new());
        ws::client::request(&mut request, &self.url.host, &self.url.target, &key);
        self.stream.write(&request, deadline)?;
        loop {
            match ws::client::read_handshake_reply(&self.input, &key) {
                ws::client::HandshakeReply::Accepted { consumed } => {
                    self.input.drain(..consumed);
                    return Ok(());
                }
                ws::client::HandshakeReply::Refused(status) => {
                    let text = format!("HTTP status {status} in place of a WebSocket");
                    return Err(Fault::new(Kind::Refused, text));
                }
                ws::client::HandshakeReply::Invalid => {
                    let begin = self.input.get(..40).unwrap_or(&self.input).escape_ascii();
                    let what = format!("\"{begin}\" in place of a WebSocket's handshake");
                    return Err(self.garbled(&what));
                }
                ws::client::HandshakeReply::Partial
                    if self.input.len() >= limits::HTTP_HEAD_MAX =>
                {
                    let what = format!("headers of more than {} bytes", limits::HTTP_HEAD_MAX);
                    return Err(self.garbled(&what));
                }
                ws::client::HandshakeReply::Partial => self.fill(deadline)?,
            }
        }
    }

    /// Announces with offers, and waits for the figures.
    pub(crate) fn announce(
        &mut self,
        said: &Announce,
        offers: &[Offer<'_>],
    ) -> Result<Announced, Fault> {
        let mut message = webtorrent::Announce {
            event: said.event,
            left: said.left,
            uploaded: said.uploaded,
            downloaded: said.downloaded,
            want: said.want,
            ..webtorrent::Announce::new(said.info_hash, said.peer_id)
        };
        message.offers =
            offers.iter().take(limits::WEB_OFFERS_MAX).copied().collect::<Offers<'_>>();
        let deadline = Deadline::after(self.timeout);
        self.say(|out| announce(out, &message), deadline)?;
        loop {
            match self.next(deadline)? {
                Message::Announced(hash, announced) if hash == said.info_hash => {
                    return Ok(announced);
                }
                Message::Refused(fault) => return Err(fault),
                Message::Relayed(relayed) => self.keep(relayed),
                Message::Announced(..) | Message::Scraped(_) => {}
            }
        }
    }

    pub(crate) fn scrape(&mut self, hashes: &[InfoHash]) -> Result<Vec<Option<Figures>>, Fault> {
        let deadline = Deadline::after(self.timeout);
        self.say(|out| scrape(out, hashes), deadline)?;
        loop {
            match self.next(deadline)? {
                Message::Scraped(files) => {
                    let figures = |hash: &InfoHash| {
                        files.iter().find(|(named, _)| named == hash).map(|(_, figures)| *figures)
                    };
                    return Ok(hashes.iter().map(figures).collect());
                }
                Message::Refused(fault) => return Err(fault),
                Message::Relayed(relayed) => self.keep(relayed),
                Message::Announced(..) => {}
            }
        }
    }

    /// Answers an offer that was relayed.
    pub(crate) fn answer(&mut self, offer: &Relayed, own: PeerId, json: &str) -> Result<(), Fault> {
        let message = Answer {
            info_hash: offer.info_hash,
            peer_id: own,
            to_peer_id: offer.peer_id,
            offer_id: offer.offer_id,
            json,
        };
        self.say(|out| answer(out, &message), Deadline::after(self.timeout))
    }

    /// Waits for something that another peer sends.
    pub(crate) fn wait(&mut self, is_it: impl Fn(&Relayed) -> bool) -> Result<Relayed, Fault> {
        let deadline = Deadline::after(self.timeout);
        loop {
            if let Some(at) = self.relayed.iter().position(&is_it) {
                return Ok(self.relayed.swap_remove(at));
            }
            match self.next(deadline)? {
                Message::Relayed(relayed) => self.keep(relayed),
                Message::Refused(fault) => return Err(fault),
                Message::Announced(..) | Message::Scraped(_) => {}
            }
        }
    }

    /// Sends a ping, and waits for its pong.
    pub(crate) fn ping(&mut self) -> Result<(), Fault> {
        let (deadline, payload) = (Deadline::after(self.timeout), random::<8>());
        let mut out = Vec::new();
        ws::client::ping(&mut out, random(), &payload);
        self.stream.write(&out, deadline)?;
        loop {
            match self.hear(deadline)? {
                Heard::Pong(echo) if echo == payload => return Ok(()),
                Heard::Close(code) => return Err(self.closed(code)),
                Heard::Text(_) | Heard::Pong(_) => {}
            }
        }
    }

    /// Ends the WebSocket, and waits until the other side has, too.
    pub(crate) fn close(mut self) -> Result<(), Fault> {
        let (deadline, mut out) = (Deadline::after(self.timeout), Vec::new());
        ws::client::close(&mut out, random(), CloseCode::NORMAL, "");
        self.stream.write(&out, deadline)?;
        while !matches!(self.hear(deadline)?, Heard::Close(_)) {}
        Ok(())
    }

    fn keep(&mut self, relayed: Relayed) {
        if self.relayed.len() < RELAYED_MAX {
            self.relayed.push(relayed);
        }
    }

    fn say(&mut self, write: impl FnOnce(&mut Vec<u8>), deadline: Deadline) -> Result<(), Fault> {
        let mut out = Vec::new();
        ws::client::text_with(&mut out, random(), write);
        self.stream.write(&out, deadline)
    }

    fn next(&mut self, deadline: Deadline) -> Result<Message, Fault> {
        loop {
            match self.hear(deadline)? {
                Heard::Text(text) => {
                    return message(&text).ok_or_else(|| {
                        let begin: String = text.chars().take(60).collect();
                        self.garbled(&format!("{begin:?}, which is no message of a tracker"))
                    });
                }
                Heard::Close(code) => return Err(self.closed(code)),
                Heard::Pong(_) => {}
            }
        }
    }

    /// Waits for what is said next; pings are answered meanwhile.
    fn hear(&mut self, deadline: Deadline) -> Result<Heard, Fault> {
        loop {
            let ReadEvent { consumed, event } =
                self.reader.read(&mut self.input, limits::WS_MESSAGE_MAX);
            let heard = match event {
                Event::Partial { .. } => None,
                Event::Text(text) => Some(Heard::Text(text.into_owned())),
                Event::Binary(bytes) => Some(Heard::Text(utf8(&bytes).into_owned())),
                Event::Pong(payload) => Some(Heard::Pong(payload.to_vec())),
                Event::Close(code) => Some(Heard::Close(code)),
                Event::Ping(payload) => {
                    let mut out = Vec::new();
                    ws::client::pong(&mut out, random(), payload);
                    self.stream.write(&out, deadline)?;
                    self.input.drain(..consumed);
                    continue;
                }
                Event::Error(fault) => {
                    return Err(self.garbled(&format!("a broken frame: {}", fault.text())));
                }
            };
            self.input.drain(..consumed);
            match heard {
                Some(heard) => return Ok(heard),
                None => self.fill(deadline)?,
            }
        }
    }

    /// Reads more, which there must be.
    fn fill(&mut self, deadline: Deadline) -> Result<(), Fault> {
        let had = self.input.len();
        self.input.resize(had + READ, 0);
        let read = self.stream.read(self.input.get_mut(had..).unwrap_or_default(), deadline);
        self.input.truncate(had + read.as_ref().map_or(0, |read| *read));
        if read? == 0 {
            let text = format!("{} has closed the connection without a word", self.address);
            return Err(Fault::new(Kind::Lost, text));
        }
        Ok(())
    }

    fn closed(&self, code: Option<CloseCode>) -> Fault {
        let code = code.map_or_else(|| "no code".into(), |code| format!("code {}", code.0));
        Fault::new(Kind::Lost, format!("{} has closed the WebSocket with {code}", self.address))
    }

    fn garbled(&self, what: &str) -> Fault {
        Fault::new(Kind::Garbled, format!("{} has sent {what}", self.address))
    }
}

/// 16 random bytes in base64: the last digit before the padding has 2 bits.
fn handshake_key() -> [u8; 24] {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |value: u8| DIGITS.get(usize::from(value & 63)).copied().unwrap_or(b'A');
    let mut key = random::<24>().map(digit);
    let [.., last, first_padding, second_padding] = &mut key;
    *last = digit((*last & 3) << 4);
    (*first_padding, *second_padding) = (b'=', b'=');
    key
}

fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn message(text: &str) -> Option<Message> {
    Some(match read(text)? {
        TrackerMessage::AnnounceReply { info_hash, complete, incomplete, interval_s } => {
            let (seeders, leechers) = (Some(complete), Some(incomplete));
            let announced = Announced { interval_s, seeders, leechers, ..Announced::default() };
            Message::Announced(info_hash, announced)
        }
        TrackerMessage::ScrapeReply(files) => {
            let figures = |file: &webtorrent::client::WebScrapeEntry| {
                let downloads = Some(file.downloaded);
                let (seeders, leechers) = (file.complete, file.incomplete);
                (file.info_hash, Figures { seeders, downloads, leechers })
            };
            Message::Scraped(files.iter().map(figures).collect())
        }
        TrackerMessage::Offer { info_hash, peer_id, offer } => {
            let (offer_id, json) = (offer.id, offer.json.to_owned());
            Message::Relayed(Relayed { is_answer: false, info_hash, peer_id, offer_id, json })
        }
        TrackerMessage::Answer { info_hash, peer_id, offer_id, json } => {
            let json = json.to_owned();
            Message::Relayed(Relayed { is_answer: true, info_hash, peer_id, offer_id, json })
        }
        TrackerMessage::Failure { reason, .. } => {
            let plain = serde_json::from_str(&format!("\"{reason}\""));
            let reason = plain.unwrap_or_else(|_| reason.to_owned());
            Message::Refused(Fault::new(Kind::Refused, reason))
        }
    })
}
