//! Offers and answers between nodes of a cluster. Bodies of letters are tested with their reader.

use std::sync::Arc;

use front::webtorrent::RemoteLetters;
use tracker::{SharedSecrets, Tracker};
use types::limits;

use super::*;

/// Two nodes with one store.
struct Nodes {
    servers: [HttpServer; 2],
    letters: [RemoteLetters; 2],
}

impl Nodes {
    /// Starts nodes whose connections may send any number of offers.
    fn start(tracker: &Arc<Tracker>, workers: usize) -> Self {
        let web = Some(WebOptions { offer_bytes_per_s: 0, ..WebOptions::default() });
        let options = HttpOptions { web, ..HttpOptions::default() };
        let [one, two] = [1, 2].map(|number| {
            let (links, letters) = WorkerLink::for_workers_of_node(workers, number, u32::MAX);
            let tracker = Some(Arc::clone(tracker));
            let options = options.clone();
            (HttpServer::set_up(Setup { tracker, links, options, ..Setup::default() }), letters)
        });
        Self { servers: [one.0, two.0], letters: [one.1, two.1] }
    }

    /// Connects a peer to the last worker of the first node, and one to the second node. Returns both.
    fn join(&self) -> [WebClient; 2] {
        let last = self.servers[0].addresses.len() - 1;
        let mut one = self.servers[0].web_client_of(last);
        one.join(1);
        [one, self.servers[1].web_client()]
    }

    /// Has the second peer make the first one an offer. Returns the body with it, which is not delivered. Its bytes
    /// from the ninth on are the offer's tag.
    fn offer(&self, two: &mut WebClient) -> Vec<u8> {
        two.announce(&offering(2, 1));
        two.receive();
        self.take(1)
    }

    /// Takes the only body that a node has for the other one.
    fn take(&self, from: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        wait_until("letters", || {
            taken = self.letters[from].take(Duration::ZERO);
            !taken.is_empty()
        });
        let [(to, body)] = taken.try_into().unwrap();
        assert_eq!(usize::from(to), 2 - from);
        body
    }

    /// Moves the answer of the first peer to the second one.
    fn pass_answer(&self, two: &mut WebClient) {
        self.letters[1].deliver(1, &self.take(0)).unwrap();
        assert_eq!(two.receive(), answered(1, 1));
    }

    /// Checks that the first node has nothing to send.
    fn expect_no_answer(&self, one: &mut WebClient) {
        one.expect_nothing();
        assert!(self.letters[0].take(Duration::ZERO).is_empty());
    }
}

/// While the secret changes, other nodes issue by the old one, or by the new one already.
#[test]
fn answers_to_offers_of_both_secrets_are_accepted() {
    const OTHER: [u8; 16] = [9; 16];
    let previous = SharedSecrets { connection_ids: [0; 16], offers: OTHER };
    let nodes = Nodes::start(&tracker_of(false, [6; 16], Some(previous)), 1);
    let [mut one, mut two] = nodes.join();
    for (secret, is_accepted) in [([6; 16], true), (OTHER, true), ([7; 16], false)] {
        let mut body = nodes.offer(&mut two);
        let issuer = tracker_of(false, secret, None);
        let tag = issuer.offer_tag(&HASH, &offer_id(1), &peer_id(2), &peer_id(1));
        body[9..17].copy_from_slice(&tag.0.to_le_bytes());
        nodes.letters[0].deliver(2, &body).unwrap();
        assert_eq!(one.receive(), offered(2, 1));
        one.answer(1, 2, offer_id(1));
        if is_accepted {
            nodes.pass_answer(&mut two);
        } else {
            nodes.expect_no_answer(&mut one);
        }
    }
}

/// The networks of senders are known at the node of the receiver.
//= webtorrent#relay
//= type=test
#[test]
fn relays_between_nodes_beside_a_flood() {
    for workers in [1, 3] {
        let nodes = Nodes::start(&tracker(false), workers);
        let [mut one, mut two] = nodes.join();
        let mut body = nodes.offer(&mut two);
        nodes.letters[0].deliver(2, &body).unwrap();
        assert_eq!(one.receive(), offered(2, 1));
        // Other offers, as from another network.
        let flood = 2 * limits::OFFERS_OUTSTANDING_MAX as u64;
        body[25] ^= 1;
        for tag in 0..flood {
            body[9..17].copy_from_slice(&tag.to_le_bytes());
            nodes.letters[0].deliver(2, &body).unwrap();
            one.receive_offers(1);
        }
        one.answer(1, 2, offer_id(1));
        nodes.pass_answer(&mut two);
        // It is answered once.
        one.answer(1, 2, offer_id(1));
        nodes.expect_no_answer(&mut one);
        let counts = nodes.letters[0].counts();
        assert_eq!((counts.sent, counts.delivered), (1, 1 + flood));
        wait_until("an answer", || nodes.letters[1].counts().delivered == 1);
    }
}

#[test]
fn counts_offers_that_do_not_fit() {
    let nodes = Nodes::start(&tracker(false), 1);
    let [_one, mut two] = nodes.join();
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(60_000));
    for _ in 0..limits::LETTERS_BYTES_MAX / json.len() + 20 {
        two.announce(&offering_json(2, 1, &json));
        two.receive();
    }
    nodes.servers[1].wait_for_counts(Protocol::Ws, "lost offers", |it| {
        it.drops[DropReason::MailboxFull.index()] > 10
    });
}
