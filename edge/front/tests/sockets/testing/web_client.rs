//! A WebTorrent client, over TCP or TLS.

use std::io::ErrorKind;

use client::AnnounceResponse;
use client::codec::webtorrent::{self as messages, TrackerMessage};
use client::codec::ws as frames;
pub(crate) use harness::http::UPGRADE;
use types::{Event, InfoHash, OfferId, PeerId};
use wire::webtorrent::{Announce, Answer, Offer};
use wire::ws::{self, CloseCode, Reader};

use super::{Client, get, written};

/// The torrent of all announces but those that name another, as of those over HTTP.
pub(crate) const HASH: InfoHash = InfoHash([b'a'; 20]);
pub(crate) const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

/// An offer as text whose every byte must come through as it is.
pub(crate) const OFFER: &str =
    r#"{"type":"offer",  "sdp":"v=0\r\n\u00E4ä\/","unknown":[1e3,null]}"#;
/// The same for an answer.
const ANSWER: &str = r#"{"type":"answer", "sdp":"\u00e4"}"#;

/// A message, whose text is never freed.
pub(crate) type Message = TrackerMessage<'static>;

/// A message or control frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Message(Message),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    /// The stream's end, in order or by a reset.
    End,
}

pub(crate) struct WebClient {
    pub(crate) client: Client,
    reader: Reader,
}

impl WebClient {
    /// Makes a connection a WebSocket.
    pub(crate) fn open(mut client: Client, target: &str) -> Self {
        client.send(web_request(target));
        Self::expect_upgrade(client)
    }

    /// Waits for the answer to a request for a WebSocket that has been sent.
    pub(crate) fn expect_upgrade(mut client: Client) -> Self {
        let response = client.receive_head();
        assert_eq!(response.status, 101);
        assert_eq!(response.header("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        Self { client, reader: Reader::for_server_frames() }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.client.send(bytes);
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.send(written(|out| frames::text(out, MASK, text)));
    }

    pub(crate) fn announce(&mut self, announce: &Announce<'_>) {
        self.send(announce_frame(announce));
    }

    /// Announces, and waits for the response. Offers that come before it are skipped.
    pub(crate) fn announce_beside_offers(&mut self, announce: &Announce<'_>) {
        self.announce(announce);
        loop {
            match self.receive() {
                Received::Message(Message::AnnounceReply { .. }) => return,
                Received::Message(Message::Offer { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Receives offers, and nothing else.
    pub(crate) fn receive_offers(&mut self, count: usize) {
        for _ in 0..count {
            assert!(matches!(self.receive(), Received::Message(Message::Offer { .. })));
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
        self.send(written(|out| frames::ping(out, MASK, payload)));
    }

    /// The next message or control frame.
    pub(crate) fn receive(&mut self) -> Received {
        loop {
            let input = &mut self.client.0.received;
            let ws::ReadEvent { consumed, event } = self.reader.read(input, usize::MAX);
            let received = match event {
                ws::Event::Partial { .. } => None,
                ws::Event::Text(text) => {
                    let text = String::leak(text.into_owned());
                    Some(Received::Message(messages::read(text).expect(text)))
                }
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
        // The server may have closed already.
        let _ = self.client.0.send(written(|out| frames::close(out, MASK, CloseCode(code), "")));
        assert_eq!(self.receive(), Received::End);
    }
}

/// Returns a request for a WebSocket.
pub(crate) fn web_request(target: &str) -> String {
    get(target, UPGRADE)
}

pub(crate) fn announced(complete: u64, incomplete: u64) -> Received {
    let response = AnnounceResponse {
        interval_s: Some(120),
        seeders: Some(complete),
        leechers: Some(incomplete),
        ..AnnounceResponse::default()
    };
    Received::Message(Message::AnnounceReply { info_hash: HASH, response })
}

/// An offer of a peer's announce.
pub(crate) fn offered(from: u8, id: u8) -> Received {
    let offer = Offer { id: offer_id(id), json: OFFER };
    Received::Message(Message::Offer { info_hash: HASH, peer_id: peer_id(from), offer })
}

/// An answer to such an offer.
pub(crate) fn answered(from: u8, id: u8) -> Received {
    Received::Message(Message::Answer {
        info_hash: HASH,
        peer_id: peer_id(from),
        offer_id: offer_id(id),
        json: ANSWER,
    })
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
    offering_json(peer, offers, OFFER)
}

/// The same with other offers.
pub(crate) fn offering_json(peer: u8, offers: u8, json: &str) -> Announce<'_> {
    let offers = (1..=offers).map(|number| Offer { id: offer_id(number), json });
    Announce { offers: offers.collect(), ..leecher(peer) }
}

pub(crate) fn numbered_hash(number: u16) -> InfoHash {
    let mut hash = [b'x'; 20];
    hash[..2].copy_from_slice(&number.to_be_bytes());
    InfoHash(hash)
}

pub(crate) fn announce_frame(announce: &Announce<'_>) -> Vec<u8> {
    frame(|out| messages::announce(out, announce))
}

/// Returns the text frame with the message that `write` writes.
fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    written(|out| frames::text_with(out, MASK, write))
}
