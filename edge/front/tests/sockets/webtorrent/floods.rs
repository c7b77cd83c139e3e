//! Floods of offers, and the browsers that they are for.

use tracker::{Limits, Rate};
use types::{NumWant, limits};

use super::*;

const HONEST: [&str; 2] = ["45.0.0.1", "45.0.1.1"];
const HOSTILE: &str = "93.184.216.34";

#[test]
fn a_flood_of_offers_leaves_the_answers_to_others_at_any_worker() {
    for worker in [0, 1] {
        let server = HttpServer::set_up(Setup {
            links: WorkerLink::for_workers(2),
            options: unlimited_behind_proxy(),
            ..Setup::default()
        });
        let mut offered = web_client_at(&server, HONEST[0]);
        let mut offerer = WebClient::expect_upgrade(upgrade_from(&server, worker, HONEST[1]));
        offered.join(1);
        offerer.announce_beside_offers(&offering(2, 1));
        offered.receive_offers(1);
        let mut hostile = WebClient::expect_upgrade(upgrade_from(&server, worker, HOSTILE));
        let flood = 2 * limits::OFFERS_OUTSTANDING_MAX;
        for _ in 0..flood {
            hostile.announce_beside_offers(&offering(3, 2));
            offered.receive_offers(1);
            offerer.receive_offers(1);
        }
        offered.answer(1, 2, offer_id(1));
        assert_eq!(offerer.receive(), answered(1), "worker {worker}");
    }
}

/// A browser that does not read fast enough misses offers, and keeps its connection and its responses.
#[test]
fn offers_that_are_not_read_close_no_browser() {
    let server = HttpServer::with(unlimited_behind_proxy());
    let json = format!(r#"{{"sdp":"{}"}}"#, "x".repeat(100_000));
    let unread = DropReason::RelayUnread.index();
    let pairs = server.both_web_clients().into_iter().zip(server.both_web_clients());
    for ((protocol, mut browser), (_, mut hostile)) in pairs {
        browser.join(1);
        server.wait_for_counts(protocol, "offers are dropped", |it| {
            hostile.announce_beside_offers(&offering_json(2, 1, &json));
            it.drops[unread] >= 10
        });
        // Its own response fits behind the offers that it has not read.
        browser.announce(&leecher(1));
        let mut offers = 0;
        while let Received::Message(Message::Offer { offer, .. }) = browser.receive() {
            assert_eq!(offer.json.len(), json.len());
            offers += 1;
        }
        assert!(offers > 0);
        // Later offers are delivered again.
        hostile.announce_beside_offers(&offering(2, 1));
        browser.receive_offers(1);
        drop((browser, hostile));
        server.wait_for_web_peers(0);
    }
    for counters in server.finish_both(WEB) {
        assert_eq!(counters.drops[DropReason::SlowReader.index()], 0);
        assert_eq!(counters.drops[DropReason::UnsentMemory.index()], 0);
    }
}

#[test]
fn offers_over_the_rate_are_not_relayed_and_their_announce_is_answered() {
    let server = HttpServer::with(unlimited_behind_proxy());
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
        hostile.announce_beside_offers(&flood);
    }
    let over = u64::from(rounds * u32::from(all) - limits::OFFERS_BURST);
    server.wait_for_counts(Protocol::Ws, "offers over the rate", |it| {
        it.drops[DropReason::OfferRate.index()] == over
    });
    assert_eq!(server.counters(Protocol::Ws).peers_sent, u64::from(limits::OFFERS_BURST));
}
