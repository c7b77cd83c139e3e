//! Desktop clients: one connection with thousands of torrents, each with offers.

use tracker::{Access, KeyId, KeyRules};
use types::{Tick, UserKey, limits};
use wire::webtorrent::Offer;

use super::*;

const KEY: &str = "user-key-012345678";

/// Counts as 1,000 bytes in the budget.
fn description() -> String {
    format!(r#"{{"type":"offer","sdp":"{}"}}"#, "x".repeat(750 - 25))
}

/// Announces a torrent, and returns the interval in the response. Skips offers before it.
fn announce(client: &mut WebClient, announce: &Announce<'_>) -> u32 {
    client.announce(announce);
    loop {
        match client.receive() {
            Received::Message(Message::AnnounceReply { response, .. }) => {
                return response.interval_s.unwrap() as u32;
            }
            Received::Message(Message::Offer { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The connection's announces stay within a rate of bytes, its peers live as long as their intervals say, and a
/// client with a key keeps the usual interval.
#[test]
fn intervals_grow_with_the_torrents_of_a_connection() {
    const TORRENTS: u16 = 100;
    let server = HttpServer::web(WebOptions { offer_bytes_per_s: 625, ..WebOptions::default() });
    let json = description();
    let offers: Vec<Offer<'_>> =
        (0..9).map(|number| Offer { id: offer_id(number), json: &json }).collect();
    let of = |number| Announce {
        info_hash: numbered_hash(number),
        offers: offers.iter().copied().collect(),
        ..leecher(1)
    };
    let mut client = server.web_client();
    // Announces of 9,250 bytes, 14.8 seconds each.
    let intervals: Vec<u32> = (0..TORRENTS).map(|it| announce(&mut client, &of(it))).collect();
    for (torrents, interval_s) in intervals.iter().enumerate() {
        let bytes = torrents as u32 * 9250;
        let expected = (bytes / 625).clamp(120, limits::WEB_INTERVAL_MAX_S);
        assert_eq!(*interval_s, expected, "{torrents}");
    }
    // Peers are removed half an interval after they should have announced, or a little later.
    let (ping, now) = (60, 600);
    for _ in 0..now / ping {
        server.advance(ping);
        client.ping(b"");
        assert_eq!(client.receive(), Received::Pong([].into()));
    }
    (0..4).for_each(|_| server.tracker.sweep(Tick(now), 1));
    let left = server.tracker.totals().web.leechers;
    let after = |late_s: u32| intervals.iter().filter(|it| *it + 60 + late_s >= now).count() as u64;
    assert!((after(0)..=after(32)).contains(&left), "{left}");

    server.tracker.passkeys().put(KeyId(1), UserKey::parse(KEY).unwrap(), KeyRules::default());
    set_access(&server.tracker, Access::Private);
    let mut user = WebClient::open(server.client(), &format!("/{KEY}"));
    (0..TORRENTS).for_each(|it| assert_eq!(announce(&mut user, &of(it)), 120));
}

/// Offers over a connection's budget are dropped and counted. Announces are answered all the same, other connections
/// of the same address have budgets of their own, and time makes up for what was spent.
#[test]
fn offers_over_the_budget_of_their_connection_are_not_relayed() {
    let server = HttpServer::web(WebOptions { offer_bytes_per_s: 1000, ..WebOptions::default() });
    let mut others = server.joined(10);
    let json = description();
    let offering = |peer| offering_json(peer, 10, &json);
    let budget = DropReason::OfferBudget.index();
    // Waits until all offers of this many announces were judged. Returns how many were relayed.
    let relayed = |announces: u64| {
        let judged = |it: &Counters| it.peers_sent + it.drops[budget] == 10 * announces;
        server.wait_for_counts(Protocol::Ws, "offers are judged", judged);
        server.counters(Protocol::Ws).peers_sent
    };
    let mut flooding = server.web_client();
    let mut flood = |announces: u64| {
        (0..announces).for_each(|_| assert_eq!(announce(&mut flooding, &offering(100)), 120));
    };
    flood(1);
    // A thirty-second of 120 seconds' bytes in one announce, and less in each later one.
    assert_eq!(relayed(1), 3);
    flood(200);
    let spent = relayed(201);
    assert!((80..=120).contains(&spent), "{spent}");
    flood(100);
    assert_eq!(relayed(301), spent);
    let mut other = server.web_client();
    assert_eq!(announce(&mut other, &offering(101)), 120);
    assert_eq!(relayed(302), spent + 3);
    for _ in 0..2 {
        server.advance(50);
        [&mut other].into_iter().chain(&mut others).for_each(|client| client.ping(b""));
        flood(100);
    }
    let later = relayed(502) - spent - 3;
    assert!((60..=120).contains(&later), "{later}");
    let counters = server.counters(Protocol::Ws);
    assert_eq!(counters.refusals, Counters::default().refusals);
    // No message is an offence, and no connection is closed for it.
    let mut expected = Counters::default().drops;
    expected[budget] = counters.drops[budget];
    assert_eq!(counters.drops, expected);
}

/// libtorrent never sends `stopped` over a WebSocket: torrents that it has left make room for others in time.
#[test]
fn torrents_that_a_client_has_left_without_a_word_are_forgotten() {
    let patient = WebOptions { ping_s: 3000, idle_timeout_s: 3000, ..WebOptions::default() };
    let server = HttpServer::web(WebOptions { torrents_max: 3, ..patient });
    let mut client = server.web_client();
    let of = |number| Announce { info_hash: numbered_hash(number), ..leecher(1) };
    (0..3).for_each(|it| _ = announce(&mut client, &of(it)));
    client.announce(&of(3));
    let refused = client.receive();
    assert!(matches!(refused, Received::Message(Message::Failure { .. })), "{refused:?}");
    server.advance(700);
    // Of one it announces again, as it should have done earlier.
    announce(&mut client, &of(0));
    (0..4).for_each(|_| server.tracker.sweep(Tick(700), 1));
    server.advance(601);
    announce(&mut client, &of(0));
    announce(&mut client, &of(3));
    announce(&mut client, &of(4));
    client.announce(&of(5));
    let refused = client.receive();
    assert!(matches!(refused, Received::Message(Message::Failure { .. })), "{refused:?}");
}

/// libtorrent closes its connection after a message without an `info_hash`, and waits for ever after a failure without
/// an `interval`: both cost it all of its torrents.
//= webtorrent#failure
//= type=test
#[test]
fn failures_have_what_desktop_clients_need() {
    let server = HttpServer::web(WebOptions { torrents_max: 1, ..WebOptions::default() });
    let mut client = server.web_client();
    client.join(1);
    let hash = "i".repeat(20);
    let peer = "p".repeat(20);
    let members = format!(r#""action":"announce","info_hash":"{hash}","peer_id":"{peer}""#);
    for (rest, reason) in [
        (r#""left":1"#.into(), Refusal::TooManyTorrents),
        (
            format!(r#""offers":[{{"offer_id":"{}","offer":{{}}}}]"#, "o".repeat(19)),
            Refusal::OfferMalformed,
        ),
        (
            format!(r#""offers":[{{"offer_id":"{}","offer":{{}}}}]"#, "o".repeat(21)),
            Refusal::OfferMalformed,
        ),
    ] {
        client.send_text(&format!("{{{members},{rest}}}"));
        let expected = Message::Failure {
            action: Some(Action::Announce),
            info_hash: Some(InfoHash([b'i'; 20])),
            reason: reason.text().into(),
        };
        assert_eq!(client.receive(), Received::Message(expected));
    }
    assert_eq!(client.join(1), announced(0, 1));
    assert!(Refusal::TooManyTorrents.interval_s().is_some());
    assert!(Refusal::TooManyPeers.interval_s().is_some());
}
