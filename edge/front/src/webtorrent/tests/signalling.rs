//! Offers, answers, figures.

use super::*;
use types::NumWant;

#[test]
fn an_offer_and_its_answer_come_through_as_they_are() {
    let server = Server::start(WebOptions::default());
    let (mut one, mut two) = (server.client(), server.client());
    assert_eq!(one.join(1), announced(0, 1));
    two.announce(&offering(2, 1));
    assert_eq!(two.hear(), announced(0, 2));
    let offer = Heard::Offer { from: peer_id(2), id: offer_id(1), json: OFFER.into() };
    assert_eq!(one.hear(), offer);
    one.answer(1, 2, offer_id(1));
    let json = r#"{"type":"answer", "sdp":"\u00e4"}"#.into();
    assert_eq!(two.hear(), Heard::Answer { from: peer_id(1), id: offer_id(1), json });
    one.hears_nothing();
    drop((one, two));
    let counters = server.end();
    let requests = counters.requests[0];
    assert_eq!(
        (requests[RequestKind::Announce.index()], requests[RequestKind::Answer.index()]),
        (2, 1)
    );
    assert_eq!(counters.responses, counters.requests);
    assert_eq!(counters.peers_sent, 1);
}

//= webtorrent#relay
//= type=test
#[test]
fn each_offer_goes_to_another_peer() {
    let server = Server::start(WebOptions::default());
    let mut others: Vec<Client> = (1..=9).map(|_| server.client()).collect();
    for (peer, client) in (1..).zip(&mut others) {
        client.join(peer);
    }
    let mut asker = server.client();
    asker.announce(&offering(99, 5));
    assert_eq!(asker.hear(), announced(0, 10));
    asker.announce(&Announce { want: NumWant::Peers(3), ..offering(99, 5) });
    asker.hear();
    asker.hears_nothing();
    let mut given = Vec::new();
    for client in &mut others {
        let mut frame = Vec::new();
        ws::client::ping(&mut frame, MASK, b"end");
        client.say(&frame);
        let mut own = Vec::new();
        while let Heard::Offer { id, .. } = client.hear() {
            own.push(id.0[0]);
        }
        assert!(own.len() <= 2, "one of each announce at most");
        given.extend(own);
    }
    given.sort_unstable();
    assert_eq!(given, [1, 1, 2, 2, 3, 3, 4, 5]);
}

#[test]
fn workers_pass_on_to_each_other() {
    let server = Server::with(3, HttpOptions::default());
    let (mut one, mut two) = (server.client_of(2), server.client_of(1));
    one.join(1);
    two.announce(&offering(2, 1));
    assert_eq!(two.hear(), announced(0, 2));
    assert!(matches!(one.hear(), Heard::Offer { .. }));
    one.answer(1, 2, offer_id(1));
    assert!(matches!(two.hear(), Heard::Answer { .. }));
}

//= webtorrent#relay-answer
//= type=test
#[test]
fn only_who_was_offered_answers_and_once() {
    let server = Server::start(WebOptions::default());
    let (mut offerer, mut offered, mut stranger) =
        (server.client(), server.client(), server.client());
    offered.join(1);
    offerer.announce(&offering(2, 1));
    offerer.hear();
    offered.hear();
    // Somebody else, by whatever name; an offer that was not made; under another name.
    stranger.join(3);
    stranger.answer(3, 2, offer_id(1));
    stranger.answer(1, 2, offer_id(1));
    stranger.hears_nothing();
    offered.answer(1, 2, offer_id(2));
    offered.answer(1, 9, offer_id(1));
    offered.answer(9, 2, offer_id(1));
    offered.hears_nothing();
    offerer.hears_nothing();
    offered.answer(1, 2, offer_id(1));
    offered.answer(1, 2, offer_id(1));
    offered.hears_nothing();
    assert!(matches!(offerer.hear(), Heard::Answer { .. }));
    offerer.hears_nothing();
    drop((offerer, offered, stranger));
    assert_eq!(server.end().drops[DropReason::UnmatchedAnswer.index()], 6);
}

#[test]
fn an_answer_to_who_has_gone_harms_nobody() {
    let server = Server::start(WebOptions::default());
    let (mut offerer, mut offered) = (server.client(), server.client());
    offered.join(1);
    offerer.announce(&offering(2, 1));
    offered.hear();
    drop(offerer);
    server.await_peers(1);
    // Another one takes the place, but is not meant.
    let mut other = server.client();
    other.join(3);
    offered.answer(1, 2, offer_id(1));
    offered.hears_nothing();
    other.hears_nothing();
}

//= webtorrent#stopped
//= type=test
#[test]
fn stopped_and_completed_count_as_they_should() {
    let server = Server::start(WebOptions::default());
    let mut client = server.client();
    client.join(1);
    client.announce(&Announce { event: Event::Completed, left: Some(0), ..leecher(1) });
    assert_eq!(client.hear(), announced(1, 0));
    client.announce(&Announce { event: Event::Completed, left: Some(0), ..leecher(1) });
    client.hear();
    client.announce(&Announce { event: Event::Stopped, left: Some(0), ..offering(1, 5) });
    assert_eq!(client.hear(), announced(0, 0));
    let counts = server.counts();
    assert_eq!((counts.seeders(), counts.leechers(), counts.downloads), (0, 0, 1));
    // An unknown rest is no seeder.
    client.text(
        r#"{"action":"announce","info_hash":"hhhhhhhhhhhhhhhhhhhh","peer_id":"bbbbbbbbbbbbbbbbbbbb","left":null}"#,
    );
    assert_eq!(client.hear(), announced(0, 1));
}

//= webtorrent#shared-connection
//= type=test
#[test]
fn one_connection_is_in_many_torrents_under_many_names() {
    let server = Server::start(WebOptions::default());
    let mut client = server.client();
    client.join(1);
    assert_eq!(client.join(2), announced(0, 2));
    // Two clients of one page share a connection: they may well meet.
    client.announce(&offering(1, 3));
    assert_eq!(client.hear(), announced(0, 2));
    let offer = Heard::Offer { from: peer_id(1), id: offer_id(1), json: OFFER.into() };
    assert_eq!(client.hear(), offer);
    client.hears_nothing();
    drop(client);
    server.await_peers(0);
}

#[test]
fn the_same_name_on_another_connection_is_another_peer() {
    let server = Server::start(WebOptions::default());
    let (mut one, mut two) = (server.client(), server.client());
    one.join(1);
    assert_eq!(two.join(1), announced(0, 2));
    two.announce(&Announce { event: Event::Stopped, ..leecher(1) });
    assert_eq!(two.hear(), announced(0, 1));
    two.announce(&offering(2, 1));
    two.hear();
    assert!(matches!(one.hear(), Heard::Offer { .. }), "it is still there");
}

#[test]
fn scrapes_of_one_several_and_repeated_torrents() {
    let server = Server::start(WebOptions::default());
    let mut client = server.client();
    client.join(1);
    let file = WebScrapeEntry { info_hash: HASH, complete: 0, incomplete: 1, downloaded: 0 };
    let unknown = InfoHash([b'u'; 20]);
    let nothing = WebScrapeEntry { info_hash: unknown, incomplete: 0, ..file };
    for (asked, files) in [
        (vec![HASH], vec![file]),
        (vec![unknown], vec![nothing]),
        (vec![HASH, unknown, HASH], vec![file, nothing]),
    ] {
        client.send(|out| client::scrape(out, &asked));
        assert_eq!(client.hear(), Heard::Scraped(files));
    }
    client.text(r#"{"action":"scrape"}"#);
    assert_eq!(client.hear(), Heard::Failure(Refusal::FullScrape.text().into()));
}

#[test]
fn lists_gate_announces_and_scrapes() {
    use tracker::access::{AccessLists, HashList, Mode};
    let server = Server::start(WebOptions::default());
    let deny = HashList::parse("6868686868686868686868686868686868686868\n".as_bytes()).unwrap();
    let lists = AccessLists { mode: Mode::Deny, deny: deny.into(), ..AccessLists::default() };
    server
        .tracker
        .listener_policies()
        .replace(vec![ListenerPolicy { lists, ..ListenerPolicy::default() }]);
    let mut client = server.client();
    let denied = Heard::Failure(Refusal::Denied.text().into());
    assert_eq!(client.join(1), denied);
    client.send(|out| client::scrape(out, &[HASH]));
    assert_eq!(client.hear(), denied);
    drop(client);
    assert_eq!(server.end().refusals[Refusal::Denied.index()], 2);
}

//= webtorrent#kinds-apart
//= type=test
#[test]
fn plain_peers_count_but_are_not_offered_to() {
    let server = Server::start(WebOptions::default());
    let mut plain = server.connect();
    let hash = "h".repeat(20);
    plain.say(
        format!(
            "GET /announce?info_hash={hash}&peer_id={hash}&port=1&left=0 HTTP/1.1\r\n\
             Connection: close\r\n\r\n"
        )
        .as_bytes(),
    );
    assert!(plain.read_all().contains("8:completei1e"));
    let mut client = server.client();
    client.announce(&offering(1, 5));
    assert_eq!(client.hear(), announced(1, 1));
    client.hears_nothing();
}
