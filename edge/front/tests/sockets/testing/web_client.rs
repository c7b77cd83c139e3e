//! A WebTorrent client, over TCP or TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use client::codec::webtorrent::{self as messages, TrackerMessage};
use client::codec::ws as frames;
use client::{AnnounceResponse, ScrapeEntry};
use types::{Event, InfoHash, OfferId, PeerId};
use wire::webtorrent::{Announce, Answer, Offer};
use wire::ws::{self, CloseCode, Reader};

use super::Client;

/// Seconds that a client has to answer a close frame.
pub(crate) const CLOSE_S: u32 = 3;
pub(crate) const HASH: InfoHash = InfoHash([b'h'; 20]);
pub(crate) const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
pub(crate) const KEY: &[u8; 24] = b"dGhlIHNhbXBsZSBub25jZQ==";

/// An offer as text whose every byte must come through as it is.
pub(crate) const OFFER: &str =
    r#"{"type":"offer",  "sdp":"v=0\r\n\u00E4ä\/","unknown":[1e3,null]}"#;

/// The same for an answer.
const ANSWER: &str = r#"{"type":"answer", "sdp":"\u00e4"}"#;

/// A message or control frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Announced(AnnounceResponse),
    Offer(Signal),
    Answer(Signal),
    Scraped(Vec<ScrapeEntry>),
    Failure(String),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    /// The stream's end, in order or by a reset.
    End,
}

/// An offer or answer of another client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) from: PeerId,
    pub(crate) id: OfferId,
    pub(crate) json: String,
}

/// A WebSocket.
pub(crate) struct WebClient<S = TcpStream> {
    pub(crate) client: Client<S>,
    reader: Reader,
}

impl<S: Read + Write> WebClient<S> {
    /// Makes a connection a WebSocket.
    pub(crate) fn open(mut client: Client<S>, target: &str) -> Self {
        client.send(web_request(target));
        Self::expect_upgrade(client)
    }

    /// Waits for the answer to a request for a WebSocket that has been sent.
    pub(crate) fn expect_upgrade(mut client: Client<S>) -> Self {
        loop {
            let received = &client.0.received;
            match frames::read_handshake_reply(received, KEY) {
                frames::HandshakeReply::Partial => assert!(client.receive_more(), "the end"),
                frames::HandshakeReply::Accepted { consumed } => {
                    client.0.received.drain(..consumed);
                    return Self { client, reader: Reader::for_server_frames() };
                }
                other => panic!("{other:?}: {}", String::from_utf8_lossy(received)),
            }
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.client.send(bytes);
    }

    /// Sends a text frame.
    pub(crate) fn send_text(&mut self, text: &str) {
        self.send(frame(|out| out.extend(text.bytes())));
    }

    pub(crate) fn announce(&mut self, announce: &Announce<'_>) {
        self.send(announce_frame(announce));
    }

    /// Announces, and waits for the response. Offers that come before it are skipped.
    pub(crate) fn announce_beside_offers(&mut self, announce: &Announce<'_>) {
        self.announce(announce);
        loop {
            match self.receive() {
                Received::Announced(_) => return,
                Received::Offer(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Receives offers, and nothing else.
    pub(crate) fn receive_offers(&mut self, count: usize) {
        for _ in 0..count {
            assert!(matches!(self.receive(), Received::Offer(_)));
        }
    }

    pub(crate) fn scrape(&mut self, hashes: &[InfoHash]) {
        self.send(frame(|out| messages::scrape(out, hashes)));
    }

    /// Announces as a leecher without offers, and returns what comes next.
    pub(crate) fn join(&mut self, peer: u8) -> Received {
        self.announce(&leecher(peer));
        self.receive()
    }

    /// Answers an offer.
    pub(crate) fn answer(&mut self, from: u8, to: u8, offer_id: OfferId) {
        let answer = Answer {
            info_hash: HASH,
            peer_id: peer_id(from),
            to_peer_id: peer_id(to),
            offer_id,
            json: ANSWER,
        };
        self.send(frame(|out| messages::answer(out, &answer)));
    }

    pub(crate) fn ping(&mut self, payload: &[u8]) {
        let mut frame = Vec::new();
        frames::ping(&mut frame, MASK, payload);
        self.send(&frame);
    }

    /// The next message or control frame.
    pub(crate) fn receive(&mut self) -> Received {
        loop {
            let input = &mut self.client.0.received;
            let ws::ReadEvent { consumed, event } = self.reader.read(input, usize::MAX);
            let received = match event {
                ws::Event::Partial { .. } => None,
                ws::Event::Text(text) => Some(message(&text)),
                ws::Event::Ping(payload) => Some(Received::Ping(payload.into())),
                ws::Event::Pong(payload) => Some(Received::Pong(payload.into())),
                ws::Event::Close(code) => Some(Received::Close(code.map(|code| code.0))),
                other => panic!("{other:?}"),
            };
            self.client.0.received.drain(..consumed);
            if let Some(received) = received {
                return received;
            }
            match self.client.0.receive_more() {
                Ok(true) => {}
                Ok(false) => return Received::End,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Received::End,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Makes sure that nothing is on its way: the next thing to come is the answer to this ping.
    pub(crate) fn expect_nothing(&mut self) {
        self.ping(b"anything?");
        assert_eq!(self.receive(), Received::Pong(b"anything?".into()));
    }

    /// Waits for a close frame, answers it, and waits for the end.
    pub(crate) fn expect_close(&mut self, code: u16) {
        assert_eq!(self.receive(), Received::Close(Some(code)));
        let mut frame = Vec::new();
        frames::close(&mut frame, MASK, CloseCode(code), "");
        // The server may have closed already.
        let _ = self.client.0.send(&frame);
        assert_eq!(self.receive(), Received::End);
    }
}

/// Returns a request for a WebSocket.
pub(crate) fn web_request(target: &str) -> Vec<u8> {
    let mut request = Vec::new();
    frames::request(&mut request, "tracker.test", target, KEY);
    request
}

fn message(text: &str) -> Received {
    match messages::read(text).expect(text) {
        TrackerMessage::AnnounceReply { info_hash, response } => {
            assert_eq!(info_hash, HASH);
            Received::Announced(response)
        }
        TrackerMessage::Offer { info_hash, peer_id, offer } => {
            assert_eq!(info_hash, HASH);
            Received::Offer(Signal { from: peer_id, id: offer.id, json: offer.json.into() })
        }
        TrackerMessage::Answer { info_hash, peer_id, offer_id, json } => {
            assert_eq!(info_hash, HASH);
            Received::Answer(Signal { from: peer_id, id: offer_id, json: json.into() })
        }
        TrackerMessage::ScrapeReply(files) => Received::Scraped(files),
        TrackerMessage::Failure { reason, .. } => Received::Failure(reason),
    }
}

pub(crate) fn announced(complete: u64, incomplete: u64) -> Received {
    Received::Announced(AnnounceResponse {
        interval_s: Some(120),
        seeders: Some(complete),
        leechers: Some(incomplete),
        ..AnnounceResponse::default()
    })
}

/// The first offer of a peer's announce.
pub(crate) fn offered(from: u8) -> Received {
    Received::Offer(Signal { from: peer_id(from), id: offer_id(1), json: OFFER.into() })
}

/// An answer to such an offer.
pub(crate) fn answered(from: u8) -> Received {
    Received::Answer(Signal { from: peer_id(from), id: offer_id(1), json: ANSWER.into() })
}

pub(crate) fn peer_id(peer: u8) -> PeerId {
    PeerId([peer; 20])
}

/// The announce of a leecher that starts.
pub(crate) fn leecher(peer: u8) -> Announce<'static> {
    Announce { event: Event::Started, left: Some(7), ..Announce::new(HASH, peer_id(peer)) }
}

pub(crate) fn offer_id(number: u8) -> OfferId {
    OfferId([number; 20])
}

/// An announce with `offers` offers, whose ids begin with 1.
pub(crate) fn offering(peer: u8, offers: u8) -> Announce<'static> {
    let offers = (1..=offers).map(|number| Offer { id: offer_id(number), json: OFFER });
    Announce { offers: offers.collect(), ..leecher(peer) }
}

/// An announce with one offer.
pub(crate) fn offering_json(peer: u8, json: &str) -> Announce<'_> {
    let offer = Offer { id: offer_id(1), json };
    Announce { offers: [offer].into_iter().collect(), ..leecher(peer) }
}

/// A scrape whose response has some ten kilobytes. Its hashes begin with a number.
pub(crate) fn large_scrape(number: u16) -> Vec<u8> {
    let hash = |at: u8| {
        let mut hash = [at; 20];
        hash[..2].copy_from_slice(&number.to_be_bytes());
        InfoHash(hash)
    };
    let hashes: Vec<InfoHash> = (128..=255).map(hash).collect();
    frame(|out| messages::scrape(out, &hashes))
}

/// Returns the frame of an announce.
pub(crate) fn announce_frame(announce: &Announce<'_>) -> Vec<u8> {
    frame(|out| messages::announce(out, announce))
}

/// Announces of one peer for this many torrents.
pub(crate) fn announces_of_torrents(count: u16) -> Vec<u8> {
    let of = |number: u16| {
        let mut hash = [b'x'; 20];
        hash[..2].copy_from_slice(&number.to_be_bytes());
        announce_frame(&Announce { info_hash: InfoHash(hash), ..leecher(2) })
    };
    (0..count).flat_map(of).collect()
}

/// Returns the text frame with the message that `write` writes.
fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Vec::new();
    frames::text_with(&mut frame, MASK, write);
    frame
}
