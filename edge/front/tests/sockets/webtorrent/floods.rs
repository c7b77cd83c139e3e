//! Floods of offers, and the browsers that they are for.

use tracker::{Limits, Rate};
use types::{NumWant, limits};

use super::*;

const HONEST: [&str; 2] = ["45.0.0.1", "45.0.1.1"];
const HOSTILE: &str = "93.184.216.34";

/// Announces with as many offers as there are other peers, and waits for the response.
fn offer_to_all(client: &mut WebClient, announce: &Announce<'_>) {
    client.announce(announce);
    loop {
        match client.receive() {
            Received::Announced { .. } => return,
            Received::Offer { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Receives offers, and nothing else.
fn receive_offers(client: &mut WebClient, count: usize) {
    for _ in 0..count {
        assert!(matches!(client.receive(), Received::Offer { .. }));
    }
}

#[test]
fn a_flood_of_offers_leaves_the_answers_to_others() {
    for worker in [0, 1] {
        let server = HttpServer::workers(2, unlimited_behind_proxy());
        let [mut offered, mut offerer] = HONEST.map(|ip| web_client_at(&server, ip));
        offered.join(1);
        offer_to_all(&mut offerer, &offering(2, 1));
        receive_offers(&mut offered, 1);
        let mut hostile = WebClient::expect_upgrade(upgrade_from(&server, worker, HOSTILE));
        let flood = 2 * limits::OFFERS_OUTSTANDING_MAX;
        for _ in 0..flood {
            offer_to_all(&mut hostile, &offering(3, 2));
        }
        receive_offers(&mut offered, flood);
        receive_offers(&mut offerer, flood);
        offered.answer(1, 2, offer_id(1));
        let answer = offerer.receive();
        assert!(matches!(answer, Received::Answer { .. }), "worker {worker}: {answer:?}");
    }
}

/// A browser that does not read fast enough misses offers, and keeps its connection and its responses.
#[test]
fn offers_that_are_not_read_close_no_browser() {
    let server = HttpServer::workers(2, unlimited_behind_proxy());
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(100_000));
    let mut browser = server.web_client();
    browser.join(1);
    let mut hostile = [0, 1].map(|worker| server.web_client_of(worker));
    let unread = DropReason::RelayUnread.index();
    for (peer, client) in (2..).zip(&mut hostile) {
        let before = server.counters(Protocol::Ws).drops[unread];
        // The socket buffers of the browser hold a few megabytes.
        server.wait_for_counts(Protocol::Ws, "offers are dropped", |it| {
            offer_to_all(client, &offering_json(peer, 1, &json));
            client.announce(&Announce { event: Event::Stopped, ..leecher(peer) });
            assert!(matches!(client.receive(), Received::Announced { .. }));
            it.drops[unread] >= before + 10
        });
    }
    // Its own response fits behind the offers that it has not read.
    browser.announce(&leecher(1));
    let mut offers = 0;
    while let Received::Offer { json: received, .. } = browser.receive() {
        assert_eq!(received.len(), json.len());
        offers += 1;
    }
    assert!(offers > 0);
    // Later offers are delivered again.
    offer_to_all(&mut hostile[0], &offering(2, 1));
    receive_offers(&mut browser, 1);
    drop((browser, hostile));
    let drops = server.finish(Protocol::Ws).drops;
    assert_eq!(
        [DropReason::SlowReader, DropReason::UnsentMemory].map(|it| drops[it.index()]),
        [0; 2]
    );
}

#[test]
fn offers_over_the_rate_are_not_relayed_and_their_announce_is_answered() {
    let server = HttpServer::workers(1, unlimited_behind_proxy());
    let announces = Rate { per_s: 100_000, burst: 0 };
    server.tracker.limiter().replace(Limits { announces, ..Limits::default() });
    let per_connection = limits::WEB_PEERS_PER_CONNECTION as u8;
    let mut others: Vec<WebClient> = (0..16).map(|_| server.web_client()).collect();
    for (at, client) in (0..).zip(&mut others) {
        for peer in 0..per_connection {
            client.join(at * per_connection + peer);
        }
    }
    let mut hostile = web_client_at(&server, HOSTILE);
    let all = limits::WEB_OFFERS_MAX as u8;
    let want = NumWant::Peers(all.into());
    let flood = Announce { want, ..offering(200, all) };
    let rounds = limits::OFFERS_BURST / u32::from(all) + 10;
    for _ in 0..rounds {
        offer_to_all(&mut hostile, &flood);
    }
    let over = u64::from(rounds * u32::from(all) - limits::OFFERS_BURST);
    server.wait_for_counts(Protocol::Ws, "offers over the rate", |it| {
        it.drops[DropReason::OfferRate.index()] == over
    });
    assert_eq!(server.counters(Protocol::Ws).peers_sent, u64::from(limits::OFFERS_BURST));
    // Others have a rate of their own, and a second allows more.
    let mut honest = web_client_at(&server, HONEST[0]);
    offer_to_all(&mut honest, &Announce { want, ..offering(201, all) });
    server.advance(1);
    offer_to_all(&mut hostile, &flood);
    let more = u64::from(limits::OFFERS_BURST) + 2 * u64::from(all);
    server.wait_for_counts(Protocol::Ws, "more offers", |it| it.peers_sent == more);
}
