//! WebTorrent over TLS.

use types::{InfoHash, OfferId, PeerId};
use wire::webtorrent::client::{self as messages, TrackerMessage};
use wire::webtorrent::{Announce, Answer, Offer};
use wire::ws::{self, CloseCode, Reader};

use super::*;
use crate::webtorrent::WebOptions;

const HASH: InfoHash = InfoHash([b'h'; 20]);
const MASK: [u8; 4] = [1, 2, 3, 4];
const KEY: &[u8; 24] = b"dGhlIHNhbXBsZSBub25jZQ==";

/// A WebSocket.
struct Web {
    client: Client,
    reader: Reader,
}

impl Web {
    fn connect(server: &Server) -> Self {
        let mut client = server.client();
        let mut request = Vec::new();
        ws::client::request(&mut request, "tracker.test", "/", KEY);
        client.say(request);
        let consumed =
            client.hear_until(|heard| match ws::client::read_handshake_reply(heard, KEY) {
                ws::client::HandshakeReply::Accepted { consumed } => Some(consumed),
                ws::client::HandshakeReply::Partial => None,
                other => panic!("{other:?}"),
            });
        client.heard.drain(..consumed);
        Self { client, reader: Reader::for_server_frames() }
    }

    fn announce(&mut self, announce: &Announce<'_>) {
        self.send(|out| messages::announce(out, announce));
    }

    fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let (mut text, mut frame) = (Vec::new(), Vec::new());
        write(&mut text);
        ws::client::text(&mut frame, MASK, std::str::from_utf8(&text).unwrap());
        self.client.say(frame);
    }

    /// The next message, if `look` makes something of it.
    fn hear<T>(&mut self, look: impl FnOnce(ws::Event<'_>) -> Option<T>) -> T {
        loop {
            let mut heard = take(&mut self.client.heard);
            let ws::ReadEvent { consumed, event } = self.reader.read(&mut heard, usize::MAX);
            if !matches!(event, ws::Event::Partial { .. }) {
                let text = format!("{event:?}");
                let found = look(event).unwrap_or_else(|| panic!("{text}"));
                self.client.heard = heard.split_off(consumed);
                return found;
            }
            self.client.heard = heard.split_off(consumed);
            assert!(self.client.read_more(), "the end");
        }
    }

    fn hear_message<T>(&mut self, look: impl FnOnce(TrackerMessage<'_>) -> Option<T>) -> T {
        self.hear(|event| match event {
            ws::Event::Text(text) => look(messages::read(&text).unwrap()),
            _ => None,
        })
    }

    /// How many peers there are.
    fn hear_announced(&mut self) -> u64 {
        self.hear_message(|reply| match reply {
            TrackerMessage::AnnounceReply { complete, incomplete, .. } => {
                Some(complete + incomplete)
            }
            _ => None,
        })
    }

    /// Id and size of an offer.
    fn hear_offer(&mut self) -> (OfferId, usize) {
        self.hear_message(|reply| match reply {
            TrackerMessage::Offer { offer, .. } => Some((offer.id, offer.json.len())),
            _ => None,
        })
    }

    fn join(&mut self, peer: u8) -> u64 {
        self.announce(&leecher(peer));
        self.hear_announced()
    }
}

fn leecher(peer: u8) -> Announce<'static> {
    Announce { left: Some(7), ..Announce::new(HASH, PeerId([peer; 20])) }
}

fn offering<'a>(peer: u8, id: OfferId, json: &'a str) -> Announce<'a> {
    Announce { offers: [Offer { id, json }].into_iter().collect(), ..leecher(peer) }
}

fn offer_id(number: u16) -> OfferId {
    let mut id = [0; 20];
    id[..2].copy_from_slice(&number.to_be_bytes());
    OfferId(id)
}

#[test]
fn offers_and_answers_find_their_way() {
    let server = Server::start();
    let (mut one, mut two) = (Web::connect(&server), Web::connect(&server));
    assert_eq!(one.join(1), 1);
    let json = r#"{"type":"offer","sdp":"v=0"}"#;
    two.announce(&offering(2, offer_id(9), json));
    assert_eq!(two.hear_announced(), 2);
    assert_eq!(one.hear_offer(), (offer_id(9), json.len()));
    let answer = Answer {
        info_hash: HASH,
        peer_id: PeerId([1; 20]),
        to_peer_id: PeerId([2; 20]),
        offer_id: offer_id(9),
        json: r#"{"type":"answer"}"#,
    };
    one.send(|out| messages::answer(out, &answer));
    let answered = two.hear_message(|reply| match reply {
        TrackerMessage::Answer { offer_id, .. } => Some(offer_id),
        _ => None,
    });
    assert_eq!(answered, offer_id(9));
    drop((one, two));
    wait_until("they are gone", || server.counters(Protocol::Wss).connections_closed == 2);
    assert_eq!(server.tracker.totals().web.leechers, 0);
    assert_eq!(server.finish(Protocol::Https).tls_handshakes, 2);
}

#[test]
fn who_reads_late_gets_everything() {
    let web = WebOptions { unread_max: 64 << 20, ..WebOptions::default() };
    let server = Server::with(HttpOptions { web: Some(web), ..HttpOptions::default() });
    let (mut late, mut busy) = (Web::connect(&server), Web::connect(&server));
    late.join(1);
    busy.join(2);
    // Some megabytes: more than the kernel takes, and many records.
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(50_000));
    for number in 0..200 {
        busy.announce(&offering(2, offer_id(number), &json));
        assert_eq!(busy.hear_announced(), 2);
    }
    for number in 0..200 {
        assert_eq!(late.hear_offer(), (offer_id(number), json.len()));
    }
    assert_eq!(late.join(1), 2);
}

#[test]
fn who_does_not_read_is_closed_and_others_are_served() {
    let web = WebOptions { unread_max: 64 * 1024, ..WebOptions::default() };
    let server = Server::with(HttpOptions { web: Some(web), ..HttpOptions::default() });
    let (mut lazy, mut busy) = (Web::connect(&server), Web::connect(&server));
    lazy.join(1);
    busy.join(2);
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(50_000));
    let deadline = Instant::now() + PATIENCE;
    while server.tracker.totals().web.leechers == 2 {
        busy.announce(&offering(2, offer_id(1), &json));
        busy.hear_announced();
        assert!(Instant::now() < deadline);
    }
    assert_eq!(server.finish(Protocol::Wss).drops[DropReason::SlowReader.index()], 1);
}

#[test]
fn frames_may_come_in_one_record_with_the_request() {
    let server = Server::start();
    let mut client = server.client();
    let (mut bytes, mut text) = (Vec::new(), Vec::new());
    ws::client::request(&mut bytes, "tracker.test", "/", KEY);
    messages::announce(&mut text, &leecher(1));
    ws::client::text(&mut bytes, MASK, std::str::from_utf8(&text).unwrap());
    client.say(bytes);
    let end = client.hear_until(|heard| find(heard, b"\r\n\r\n")) + 4;
    client.heard.drain(..end);
    let mut web = Web { client, reader: Reader::for_server_frames() };
    assert_eq!(web.hear_announced(), 1);
}

#[test]
fn stopping_says_so_before_tls_ends() {
    let server = Server::start();
    let mut clients: Vec<Web> = (0..10).map(|_| Web::connect(&server)).collect();
    for (peer, web) in (1..).zip(&mut clients) {
        web.join(peer);
    }
    server.stop.send_replace(true);
    for mut web in clients {
        let code = web.hear(|event| match event {
            ws::Event::Close(code) => code,
            _ => None,
        });
        assert_eq!(code, CloseCode(1001));
        web.client.hear_end();
    }
}

#[test]
fn a_session_that_breaks_ends_its_websocket() {
    let server = Server::start();
    let mut web = Web::connect(&server);
    web.join(1);
    web.client.tls.sock.write_all(&[23, 3, 3, 0, 32, 1, 2, 3]).unwrap();
    web.client.tls.sock.write_all(&[0; 100]).unwrap();
    assert!(web.client.tls.read(&mut [0; 9]).is_err(), "the alert is an error");
    wait_until("it is gone", || server.counters(Protocol::Wss).connections_closed == 1);
    assert_eq!(server.finish(Protocol::Wss).drops[DropReason::BadTls.index()], 1);
}

#[test]
fn who_ends_tls_but_not_tcp_is_gone() {
    let server = Server::start();
    let mut web = Web::connect(&server);
    web.join(1);
    // With a last frame, so that the end is not all that is read.
    let mut frame = Vec::new();
    ws::client::ping(&mut frame, MASK, b"bye");
    web.client.tls.conn.writer().write_all(&frame).unwrap();
    web.client.tls.conn.send_close_notify();
    web.client.tls.flush().unwrap();
    wait_until("it is gone", || server.tracker.totals().web.leechers == 0);
}
