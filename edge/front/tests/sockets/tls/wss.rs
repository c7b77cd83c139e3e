//! WebTorrent over TLS.

use std::net::TcpStream;

use client::codec::webtorrent as messages;
use client::codec::ws as frames;
use front::webtorrent::WebOptions;
use rustls::StreamOwned;

use super::*;

type WssClient = WebClient<StreamOwned<ClientConnection, TcpStream>>;

fn connect(server: &HttpServer) -> WssClient {
    WebClient::open(server.tls_client(), "/")
}

fn with(web: WebOptions) -> HttpServer {
    HttpServer::tls(HttpOptions { web: Some(web), ..HttpOptions::default() })
}

/// An offer of 50 KB. A few hundred exceed the socket buffers, and each spans several records.
fn large_offer() -> String {
    format!(r#"{{"sdp":"{}"}}"#, "x".repeat(50_000))
}

#[test]
fn relays_offers_and_answers() {
    let server = HttpServer::tls(HttpOptions::default());
    let (mut one, mut two) = (connect(&server), connect(&server));
    assert_eq!(one.join(1), announced(0, 1));
    two.announce(&offering(2, 1));
    assert_eq!(two.receive(), announced(0, 2));
    let offer = Received::Offer { from: peer_id(2), id: offer_id(1), json: OFFER.into() };
    assert_eq!(one.receive(), offer);
    one.answer(1, 2, offer_id(1));
    assert!(matches!(two.receive(), Received::Answer { id, .. } if id == offer_id(1)));
    drop((one, two));
    server.wait_for_counts(Protocol::Wss, "both are closed", |it| it.connections_closed == 2);
    assert_eq!(server.web_peers(), 0);
    assert_eq!(server.finish(Protocol::Https).tls_handshakes, 2);
}

#[test]
fn delivers_all_responses_to_a_client_that_reads_late() {
    let web = WebOptions { unread_max: 64 << 20, messages_per_s: 0, ..WebOptions::default() };
    let server = with(web);
    let mut late = connect(&server);
    let rounds = 800;
    (0..rounds).for_each(|round| late.send(large_scrape(round)));
    for round in 0..rounds {
        let Received::Scraped(files) = late.receive() else { panic!("{round}") };
        let mut numbers = files.iter().map(|file| &file.info_hash.0[..2]);
        assert!(files.len() == 128 && numbers.all(|number| number == round.to_be_bytes()));
    }
    assert_eq!(late.join(1), announced(0, 1));
}

#[test]
fn closes_a_client_that_does_not_read_its_responses_and_serves_others() {
    let server = with(WebOptions { messages_per_s: 0, ..WebOptions::default() });
    let (mut slow, mut busy) = (connect(&server), connect(&server));
    slow.join(1);
    let slow_reader = DropReason::SlowReader.index();
    server.wait_for_counts(Protocol::Wss, "a slow reader", |it| {
        (0..10).for_each(|number| slow.send(large_scrape(number)));
        busy.expect_nothing();
        it.drops[slow_reader] == 1
    });
    server.advance(CLOSE_S + 1);
    server.wait_for_web_peers(0);
    drop((slow, busy));
    assert_eq!(server.finish(Protocol::Wss).drops[slow_reader], 1);
}

#[test]
fn offers_that_are_not_read_close_no_client() {
    let server = with(WebOptions { messages_per_s: 0, ..WebOptions::default() });
    let (mut late, mut busy) = (connect(&server), connect(&server));
    late.join(1);
    busy.join(2);
    let json = large_offer();
    server.wait_for_counts(Protocol::Wss, "offers are dropped", |it| {
        busy.announce(&offering_json(2, 1, &json));
        assert!(matches!(busy.receive(), Received::Announced { .. }));
        it.drops[DropReason::RelayUnread.index()] > 10
    });
    late.announce(&leecher(1));
    while let Received::Offer { json: received, .. } = late.receive() {
        assert_eq!(received.len(), json.len());
    }
    busy.announce(&offering(2, 1));
    assert!(matches!(late.receive(), Received::Offer { json, .. } if json == OFFER));
    drop((late, busy));
    assert_eq!(server.finish(Protocol::Wss).drops[DropReason::SlowReader.index()], 0);
}

#[test]
fn accepts_frames_in_one_record_with_the_upgrade_request() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut client = server.tls_client();
    let (mut bytes, mut text) = (Vec::new(), Vec::new());
    frames::request(&mut bytes, "tracker.test", "/", KEY);
    messages::announce(&mut text, &leecher(1));
    frames::text(&mut bytes, MASK, std::str::from_utf8(&text).unwrap());
    client.send(bytes);
    let mut web = WebClient::expect_upgrade(client);
    assert_eq!(web.receive(), announced(0, 1));
}

#[test]
fn sends_close_frames_before_tls_ends_when_stopping() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut clients: Vec<WssClient> = (0..10).map(|_| connect(&server)).collect();
    for (peer, web) in (1..).zip(&mut clients) {
        web.join(peer);
    }
    server.begin_stop(Duration::ZERO);
    for mut web in clients {
        assert_eq!(web.receive(), Received::Close(Some(1001)));
        web.client.expect_end();
    }
}

#[test]
fn closes_a_websocket_whose_tls_breaks() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut web = connect(&server);
    web.join(1);
    web.client.0.stream.sock.write_all(&[23, 3, 3, 0, 32, 1, 2, 3]).unwrap();
    web.client.0.stream.sock.write_all(&[0; 100]).unwrap();
    assert!(
        web.client.0.stream.read(&mut [0; 9]).is_err(),
        "expected the alert, which is an error"
    );
    server.wait_for_counts(Protocol::Wss, "it is closed", |it| it.connections_closed == 1);
    assert_eq!(server.finish(Protocol::Wss).drops[DropReason::BadTls.index()], 1);
}

#[test]
fn removes_the_peer_of_a_client_that_ends_tls_but_not_tcp() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut web = connect(&server);
    web.join(1);
    // A last frame precedes the close_notify, so that one read returns both.
    web.ping(b"bye");
    web.client.0.stream.conn.send_close_notify();
    web.client.0.stream.flush().unwrap();
    server.wait_for_web_peers(0);
}
