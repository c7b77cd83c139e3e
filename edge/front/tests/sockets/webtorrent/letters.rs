//! Offers and answers between nodes of a cluster.

use std::sync::Arc;

use front::webtorrent::{BadLetters, LetterCounts, RemoteLetters};
use tracker::{PreviousSecrets, Tracker};
use types::{ConnectionKey, limits};

use super::*;

const UNLIMITED: u32 = u32::MAX;

/// Two nodes with one store.
struct Nodes {
    servers: [HttpServer; 2],
    letters: [RemoteLetters; 2],
}

/// The number of the node at an index.
fn number(at: usize) -> u8 {
    at as u8 + 1
}

impl Nodes {
    fn start(workers: usize, bytes_per_s: u32) -> Self {
        Self::of(&tracker(false), workers, bytes_per_s)
    }

    fn of(tracker: &Arc<Tracker>, workers: usize, bytes_per_s: u32) -> Self {
        let [one, two] = [0, 1].map(|at| {
            let (links, letters) =
                WorkerLink::for_workers_of_node(workers, number(at), bytes_per_s);
            let tracker = Some(Arc::clone(tracker));
            (HttpServer::set_up(Setup { tracker, links, ..Setup::default() }), letters)
        });
        Self { servers: [one.0, two.0], letters: [one.1, two.1] }
    }

    /// Connects a peer to the last worker of the first node, and one to the second node that makes it an offer.
    /// Returns both, and the body with the offer, which is not delivered.
    fn offer(&self) -> (WebClient, WebClient, Vec<u8>) {
        let last = self.servers[0].addresses.len() - 1;
        let mut one = self.servers[0].web_client_of(last);
        let mut two = self.servers[1].web_client();
        one.join(1);
        two.announce(&offering(2, 1));
        two.receive();
        let [(_, body)] = self.take(1).try_into().unwrap();
        (one, two, body)
    }

    /// Passes a body of the second node to the first one.
    fn deliver(&self, body: &[u8]) -> Result<(), BadLetters> {
        self.letters[0].deliver(number(1), body)
    }

    /// Takes the letters of a node, at least one body.
    fn take(&self, from: usize) -> Vec<(u8, Vec<u8>)> {
        let mut taken = Vec::new();
        wait_until("letters", || {
            taken = self.letters[from].take(Duration::ZERO);
            !taken.is_empty()
        });
        taken
    }

    /// Moves letters from a node to the other.
    fn pass(&self, from: usize) {
        for (to, body) in self.take(from) {
            assert_eq!(to, number(1 - from));
            self.letters[1 - from].deliver(number(from), &body).unwrap();
        }
    }

    fn wait_for(&self, node: usize, what: &str, is_so: impl Fn(&LetterCounts) -> bool) {
        wait_until(what, || is_so(&self.letters[node].counts()));
    }
}

/// Returns a letter, of the same network as all others.
fn letter(to: ConnectionKey, kind: u8, tag: u64, from: ConnectionKey, text: &str) -> Vec<u8> {
    let mut letter = to.0.to_le_bytes().to_vec();
    letter.push(kind);
    letter.extend(tag.to_le_bytes());
    letter.extend(from.0.to_le_bytes());
    letter.extend(7_u32.to_le_bytes());
    letter.extend((text.len() as u32).to_le_bytes());
    letter.extend(text.as_bytes());
    letter
}

/// Returns the connection that the first letter of a body is for, the tag, and the connection that made the
/// offer.
fn head(body: &[u8]) -> (ConnectionKey, u64, ConnectionKey) {
    let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
    (ConnectionKey(number(0)), number(9), ConnectionKey(number(17)))
}

/// While the secret changes, other nodes issue by the old one, or by the new one already.
#[test]
fn answers_to_offers_of_both_secrets_are_accepted() {
    const OTHER: [u8; 16] = [9; 16];
    let previous = PreviousSecrets { connection_ids: [0; 16], offers: OTHER };
    let nodes = Nodes::of(&tracker_of(false, [6; 16], Some(previous)), 1, UNLIMITED);
    let (mut one, mut two) = (nodes.servers[0].web_client(), nodes.servers[1].web_client());
    one.join(1);
    for secret in [[6; 16], OTHER, [7; 16]] {
        two.announce(&offering(2, 1));
        two.receive();
        let [(_, mut body)] = nodes.take(1).try_into().unwrap();
        let issuer = tracker_of(false, secret, None);
        let tag = issuer.offer_tag(&HASH, &offer_id(1), &peer_id(2), &peer_id(1));
        body[9..17].copy_from_slice(&tag.to_bits().to_le_bytes());
        nodes.deliver(&body).unwrap();
        assert_eq!(one.receive(), offered(2));
        one.answer(1, 2, offer_id(1));
        if secret == [7; 16] {
            one.expect_nothing();
            assert!(nodes.letters[0].take(Duration::ZERO).is_empty());
        } else {
            nodes.pass(0);
            assert_eq!(two.receive(), answered(1));
        }
    }
}

#[test]
fn bodies_that_do_not_add_up_are_refused_whole() {
    let nodes = Nodes::start(1, UNLIMITED);
    let (_one, _two, body) = nodes.offer();
    let (to, tag, from) = head(&body);
    for len in 1..body.len() {
        assert_eq!(nodes.deliver(&body[..len]), Err(BadLetters), "{len}");
    }
    let with = |kind, text| [body.as_slice(), &letter(to, kind, tag, from, text)].concat();
    let mut not_utf8 = with(0, "x");
    *not_utf8.last_mut().unwrap() = 0xff;
    let long = "x".repeat(limits::LETTER_TEXT_MAX + 1);
    for wrong in [with(2, "{}"), not_utf8, with(0, &long), with(1, "{}")[..body.len() + 32].into()]
    {
        assert_eq!(nodes.deliver(&wrong), Err(BadLetters));
    }
    assert_eq!(nodes.deliver(&[]), Ok(()));
    nodes.deliver(&body).unwrap();
    // A frame is made here: a text holds nothing but itself.
    nodes.deliver(&letter(to, 1, 0, ConnectionKey(0), "{}")).unwrap();
    nodes.wait_for(0, "letters", |counts| counts.delivered > 0);
}

#[test]
fn what_is_sent_is_bounded() {
    let nodes = Nodes::start(1, 100_000);
    let (mut one, mut two) = (nodes.servers[0].web_client(), nodes.servers[1].web_client());
    one.join(1);
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(60_000));
    let fits = limits::LETTERS_BYTES_MAX / json.len();
    for _ in 0..fits + 20 {
        two.announce(&offering_json(2, 1, &json));
        two.receive();
    }
    nodes.servers[1].wait_for_counts(Protocol::Ws, "lost offers", |counters| {
        counters.drops[DropReason::MailboxFull.index()] > 10
    });
    let unsent = nodes.letters[1].counts().unsent;
    assert!((10..30).contains(&unsent), "{unsent}");
    // A body has one letter here. What a second allows may be taken at once.
    let take = |ms| nodes.letters[1].take(Duration::from_millis(ms)).len();
    assert_eq!([0; 4].map(take), [1, 1, 0, 0]);
    let taken: usize = (0..6000).map(take).sum();
    assert!((9..=11).contains(&taken), "{taken} in six seconds");
    // A pause allows no more.
    assert_eq!([100_000; 4].map(take), [1, 1, 0, 0]);
}

/// Every body is the other node's to read, with all of its letters in order.
#[test]
fn bodies_hold_many_letters() {
    let nodes = Nodes::start(1, UNLIMITED);
    let _others = nodes.servers[0].joined(9);
    let mut two = nodes.servers[1].web_client();
    for _ in 0..100 {
        two.announce(&offering(99, 9));
        two.receive();
    }
    two.expect_nothing();
    let bodies = nodes.take(1);
    assert!(bodies.iter().all(|(_, body)| body.len() <= limits::LETTERS_BODY_MAX));
    for (_, body) in bodies {
        nodes.deliver(&body).unwrap();
    }
    while nodes.letters[1].counts().sent < 900 {
        nodes.pass(1);
    }
    nodes.wait_for(0, "all letters", |counts| counts.delivered == 900);
}

/// The networks of senders are known at the node of the receiver.
//= webtorrent#relay
//= type=test
#[test]
fn relays_between_nodes_beside_a_flood() {
    for workers in [1, 3] {
        let nodes = Nodes::start(workers, UNLIMITED);
        let (mut one, mut two, body) = nodes.offer();
        nodes.deliver(&body).unwrap();
        assert_eq!(one.receive(), offered(2));
        let (to, _, from) = head(&body);
        let flood = 2 * limits::OFFERS_OUTSTANDING_MAX;
        let json = r#"{"action":"announce","info_hash":"hhhhhhhhhhhhhhhhhhhh",
            "peer_id":"xxxxxxxxxxxxxxxxxxxx","offer_id":"yyyyyyyyyyyyyyyyyyyy","offer":{}}"#;
        for tag in 0..flood as u64 {
            nodes.deliver(&letter(to, 0, tag, from, json)).unwrap();
            one.receive_offers(1);
        }
        one.answer(1, 2, offer_id(1));
        nodes.pass(0);
        assert_eq!(two.receive(), answered(1));
        // It is answered once.
        one.answer(1, 2, offer_id(1));
        one.expect_nothing();
        assert!(nodes.letters[0].take(Duration::ZERO).is_empty());
        let counts = nodes.letters[0].counts();
        assert_eq!((counts.sent, counts.delivered), (1, 1 + flood as u64));
        nodes.wait_for(1, "an answer", |counts| counts.delivered == 1);
    }
}
