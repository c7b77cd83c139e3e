//! Offers, answers and scrapes.

use super::*;
use types::NumWant;

//= webtorrent#relay
//= type=test
#[test]
fn sends_each_offer_to_another_peer() {
    let server = HttpServer::start();
    let mut others = server.joined(9);
    let mut offerer = server.web_client();
    offerer.announce(&offering(99, 5));
    assert_eq!(offerer.receive(), announced(0, 10));
    offerer.announce(&Announce { want: NumWant::Peers(3), ..offering(99, 5) });
    offerer.receive();
    offerer.expect_nothing();
    let mut returned = Vec::new();
    for client in &mut others {
        client.ping(b"end");
        let mut own = Vec::new();
        while let Received::Message(Message::Offer { offer, .. }) = client.receive() {
            own.push(offer.id.0[0]);
        }
        assert!(own.len() <= 2, "a peer gets one offer of an announce at most");
        returned.extend(own);
    }
    returned.sort_unstable();
    assert_eq!(returned, [1, 1, 2, 2, 3, 3, 4, 5]);
}

//= webtorrent#relay-answer
//= type=test
#[test]
fn relays_one_answer_per_offer_from_its_receiver_only() {
    let server = HttpServer::start();
    let [mut offerer, mut offered, mut untrusted] = [(); 3].map(|()| server.web_client());
    offered.join(1);
    offerer.announce(&offering(2, 1));
    offerer.receive();
    offered.receive();
    // From another connection, under its own peer id and under that of the receiver; then for an
    // unknown offer, to an unknown peer, and under another peer id.
    untrusted.join(3);
    untrusted.answer(3, 2, offer_id(1));
    untrusted.answer(1, 2, offer_id(1));
    untrusted.expect_nothing();
    offered.answer(1, 2, offer_id(2));
    offered.answer(1, 9, offer_id(1));
    offered.answer(9, 2, offer_id(1));
    offered.expect_nothing();
    offerer.expect_nothing();
    offered.answer(1, 2, offer_id(1));
    offered.answer(1, 2, offer_id(1));
    offered.expect_nothing();
    assert_eq!(offerer.receive(), answered(1, 1));
    offerer.expect_nothing();
    drop((offerer, offered, untrusted));
    assert_eq!(server.finish(Protocol::Ws).drops[DropReason::UnmatchedAnswer.index()], 6);
}

//= webtorrent#stopped
//= type=test
#[test]
fn counts_stopped_and_completed_events() {
    let server = HttpServer::start();
    let mut client = server.web_client();
    client.join(1);
    client.announce(&Announce { event: Event::Completed, left: Some(0), ..leecher(1) });
    assert_eq!(client.receive(), announced(1, 0));
    client.announce(&Announce { event: Event::Stopped, left: Some(0), ..offering(1, 5) });
    assert_eq!(client.receive(), announced(0, 0));
    client.scrape(&[HASH]);
    let stats = ScrapeStats { seeders: 0, downloads: Some(1), leechers: 0 };
    let file = ScrapeEntry { info_hash: HASH, stats };
    assert_eq!(client.receive(), Received::Message(Message::ScrapeReply(vec![file])));
}

//= webtorrent#shared-connection
//= type=test
#[test]
fn serves_several_torrents_and_peer_ids_on_one_connection() {
    let server = HttpServer::start();
    let mut client = server.web_client();
    client.join(1);
    assert_eq!(client.join(2), announced(0, 2));
    // Two clients of one page share a connection, and may be introduced to each other.
    client.announce(&offering(1, 3));
    assert_eq!(client.receive(), announced(0, 2));
    assert_eq!(client.receive(), offered(1, 1));
    client.expect_nothing();
    drop(client);
    server.wait_for_web_peers(0);
}

//= webtorrent#kinds-apart
//= type=test
#[test]
fn counts_ip_peers_but_sends_them_no_offers() {
    let server = HttpServer::start();
    assert!(server.client().request(get(&announce(1, ""), "")).has("10:incompletei1e"));
    let mut client = server.web_client();
    client.announce(&offering(1, 5));
    assert_eq!(client.receive(), announced(0, 2));
    client.expect_nothing();
}
