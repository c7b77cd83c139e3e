//! Browsers at different nodes exchange offers and answers.

use client::codec::webtorrent::{self as messages, TrackerMessage};
use client::codec::ws as frames;
use harness::http::Connection;
use types::{Event, InfoHash, OfferId, PeerId};
use wire::webtorrent::{Announce, Answer, Offer};
use wire::ws::{self, Reader};

use super::{Cluster, wait_for_counts, wait_until_joined};
use crate::clients::open_websocket;
use crate::process::Tracker;

const TORRENT: u8 = 0xaa;
const OFFER: &str = r#"{"type":"offer","sdp":"v=0\r\nä"}"#;
const ANSWER: &str = r#"{"type":"answer","sdp":"v=0\r\nö"}"#;
const MASK: [u8; 4] = [1, 2, 3, 4];

/// A WebSocket client with one peer.
struct Browser {
    connection: Connection,
    reader: Reader,
    peer: u8,
}

#[derive(Debug, PartialEq, Eq)]
enum Received {
    Announced,
    Offer { from: u8, id: u8 },
    Answer { from: u8, id: u8 },
    Pong,
}

impl Browser {
    /// Connects, and announces a leecher.
    fn join(node: &Tracker, peer: u8) -> Self {
        let (connection, status) = open_websocket(node.http4(), "/");
        assert_eq!(status, 101);
        let mut browser = Self { connection, reader: Reader::for_server_frames(), peer };
        browser.announce(0, Event::Started);
        browser
    }

    fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let (mut text, mut frame) = (Vec::new(), Vec::new());
        write(&mut text);
        frames::text(&mut frame, MASK, str::from_utf8(&text).unwrap());
        self.connection.send(frame).unwrap();
    }

    /// Announces with an offer, unless its id is 0, and waits for the response. Returns what came before it.
    fn announce(&mut self, offer: u8, event: Event) -> Vec<Received> {
        let offers = (offer > 0).then_some(Offer { id: OfferId([offer; 20]), json: OFFER });
        let announce = Announce {
            event,
            left: Some(7),
            offers: offers.into_iter().collect(),
            ..Announce::new(InfoHash([TORRENT; 20]), PeerId([self.peer; 20]))
        };
        self.send(|out| messages::announce(out, &announce));
        self.receive_until(&Received::Announced)
    }

    fn answer(&mut self, to: u8, offer: u8) {
        let answer = Answer {
            info_hash: InfoHash([TORRENT; 20]),
            peer_id: PeerId([self.peer; 20]),
            to_peer_id: PeerId([to; 20]),
            offer_id: OfferId([offer; 20]),
            json: ANSWER,
        };
        self.send(|out| messages::answer(out, &answer));
    }

    /// Returns what comes before `last`.
    fn receive_until(&mut self, last: &Received) -> Vec<Received> {
        let mut before = Vec::new();
        loop {
            match self.receive() {
                received if received == *last => return before,
                received => before.push(received),
            }
        }
    }

    /// Returns what has come so far.
    fn so_far(&mut self) -> Vec<Received> {
        let mut frame = Vec::new();
        frames::ping(&mut frame, MASK, b"");
        self.connection.send(frame).unwrap();
        self.receive_until(&Received::Pong)
    }

    fn receive(&mut self) -> Received {
        loop {
            let input = &mut self.connection.received;
            let ws::ReadEvent { consumed, event } = self.reader.read(input, usize::MAX);
            let received = match event {
                ws::Event::Partial { .. } => None,
                ws::Event::Text(text) => Some(message(&text)),
                ws::Event::Pong(_) => Some(Received::Pong),
                other => panic!("{other:?}"),
            };
            self.connection.received.drain(..consumed);
            if let Some(received) = received {
                return received;
            }
            assert!(self.connection.receive_more().unwrap(), "the connection has ended");
        }
    }
}

fn message(text: &str) -> Received {
    match messages::read(text).expect(text) {
        TrackerMessage::AnnounceReply { .. } => Received::Announced,
        TrackerMessage::Offer { peer_id, offer, .. } => {
            assert_eq!(offer.json, OFFER);
            Received::Offer { from: peer_id.0[0], id: offer.id.0[0] }
        }
        TrackerMessage::Answer { peer_id, offer_id, json, .. } => {
            assert_eq!(json, ANSWER);
            Received::Answer { from: peer_id.0[0], id: offer_id.0[0] }
        }
        other => panic!("{other:?}"),
    }
}

fn letters(node: &Tracker, direction: &str, result: &str) -> f64 {
    let labels = [("direction", direction), ("result", result)];
    node.sum("tidegate_cluster_letters_total", &labels)
}

/// Two browsers at two nodes exchange an offer and its answer.
fn exchange(offerer: &mut Browser, answerer: &mut Browser, id: u8) {
    offerer.announce(id, Event::None);
    let offer = Received::Offer { from: offerer.peer, id };
    assert_eq!(answerer.receive(), offer);
    answerer.answer(offerer.peer, id);
    assert_eq!(offerer.receive(), Received::Answer { from: answerer.peer, id });
}

#[test]
fn browsers_at_two_nodes_exchange_offers_and_answers() {
    let (_cluster, nodes) = Cluster::with_two_nodes();
    let [a, b] = nodes.each_ref();
    let (mut one, mut two) = (Browser::join(a, 1), Browser::join(b, 2));
    wait_for_counts(&[a, b], TORRENT, [0, 0, 2]);
    for id in [10, 20, 30] {
        exchange(&mut one, &mut two, id);
        exchange(&mut two, &mut one, id + 1);
    }
    // Once.
    two.answer(1, 30);
    assert_eq!([one.so_far(), two.so_far()].map(|all| all.len()), [0, 0]);
    for node in [a, b] {
        assert_eq!(letters(node, "sent", "published"), 6.0);
        node.wait_until("letters", |it| letters(it, "received", "delivered") == 6.0);
    }
    // A browser that leaves is gone everywhere.
    drop(one);
    wait_for_counts(&[a, b], TORRENT, [0, 0, 1]);
    assert!(two.announce(40, Event::None).is_empty());
    two.announce(0, Event::Stopped);
    wait_for_counts(&[a, b], TORRENT, [0, 0, 0]);
}

#[test]
fn browsers_of_a_killed_node_are_forgotten() {
    let cluster = Cluster::start(1);
    // A node that hears no other one is cut off itself, mostly, and forgets no browsers.
    let [mut a, b, c] = [1, 2, 3].map(|number| cluster.node(number));
    wait_until_joined(&[&a, &b, &c]);
    let _one = Browser::join(&a, 1);
    let mut two = Browser::join(&b, 2);
    wait_for_counts(&[&a, &b], TORRENT, [0, 0, 2]);
    a.kill();
    // Letters to it are lost.
    two.announce(10, Event::None);
    wait_for_counts(&[&b], TORRENT, [0, 0, 1]);
    // Another process with its number has other connections.
    let a = cluster.node(1);
    wait_until_joined(&[&a, &b, &c]);
    let mut one = Browser::join(&a, 1);
    wait_for_counts(&[&a, &b], TORRENT, [0, 0, 2]);
    exchange(&mut one, &mut two, 50);
    exchange(&mut two, &mut one, 51);
}
