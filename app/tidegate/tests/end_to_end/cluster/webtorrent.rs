//! Browsers at different nodes exchange offers and answers.

// Clients of the tests of `front`.
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../../../edge/front/tests/sockets/testing/client.rs"]
mod client;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../../../edge/front/tests/sockets/testing/web_client.rs"]
mod web_client;

use types::Event;
use wire::webtorrent::{Announce, Offer};

use super::{Cluster, wait_for_counts};
use crate::process::Tracker;
use client::*;
use web_client::*;

const TORRENT: u8 = HASH.0[0];

/// A WebSocket client with one peer.
struct Browser {
    client: WebClient,
    peer: u8,
}

impl Browser {
    /// Connects, and announces a leecher.
    fn join(node: &Tracker, peer: u8) -> Self {
        let mut client = WebClient::open(Client::connect(node.http4()), "/");
        client.join(peer);
        Self { client, peer }
    }

    /// Announces with an offer, and waits for the response.
    fn offer(&mut self, id: u8) {
        let offers = [Offer { id: offer_id(id), json: OFFER }].into_iter().collect();
        let announce = Announce { event: Event::None, offers, ..leecher(self.peer) };
        self.client.announce_beside_offers(&announce);
    }
}

fn letters(node: &Tracker, direction: &str, result: &str) -> f64 {
    let labels = [("direction", direction), ("result", result)];
    node.sum("tidegate_cluster_letters_total", &labels)
}

/// Two browsers at two nodes exchange an offer and its answer.
fn exchange(offerer: &mut Browser, answerer: &mut Browser, id: u8) {
    offerer.offer(id);
    assert_eq!(answerer.client.receive(), offered(offerer.peer, id));
    answerer.client.answer(answerer.peer, offerer.peer, offer_id(id));
    assert_eq!(offerer.client.receive(), answered(answerer.peer, id));
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
    two.client.answer(2, 1, offer_id(30));
    one.client.expect_nothing();
    two.client.expect_nothing();
    for node in [a, b] {
        assert_eq!(letters(node, "sent", "published"), 6.0);
        node.wait_until("letters", |it| letters(it, "received", "delivered") == 6.0);
    }
    // A browser that leaves is gone everywhere.
    drop(one);
    wait_for_counts(&[a, b], TORRENT, [0, 0, 1]);
    two.client.expect_nothing();
    two.offer(40);
    two.client.announce_beside_offers(&Announce { event: Event::Stopped, ..leecher(2) });
    wait_for_counts(&[a, b], TORRENT, [0, 0, 0]);
}
