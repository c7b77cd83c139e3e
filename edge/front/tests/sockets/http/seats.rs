//! Seats: who gets them when all are taken. PROXY headers name the clients, so one host stands for many.

use tracker::Limits;

use super::*;

const SEATS: usize = 100;
/// Seats that a network may hold.
const SHARE: usize = 20;
const DISPLACED: usize = DropReason::Displaced.index();
const REFUSED: usize = DropReason::ConnectionLimit.index();

fn options(connections_max: usize) -> HttpOptions {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    HttpOptions { trusted_proxies, proxy_protocol: true, connections_max, ..patient() }
}

fn limit(server: &HttpServer, network_connections: usize) {
    let network_connections = network_connections as u32;
    server.tracker.limiter().replace(Limits { network_connections, ..Limits::default() });
}

/// Connects as `from`, and sends `text`.
fn connect_as(to: SocketAddr, from: &str, text: &str) -> Client {
    let (family, own) =
        if from.contains(':') { ("TCP6", "2001:db8::1") } else { ("TCP4", "192.0.2.1") };
    let mut client = Client::connect(to);
    client.send(format!("PROXY {family} {from} {own} 4711 6969\r\n{text}"));
    client
}

/// Connects as `from`. Returns the connection if a request was served over it.
fn seated(to: SocketAddr, from: &str) -> Option<Client> {
    let mut client = connect_as(to, from, &get("/none", ""));
    client.0.receive().is_ok_and(|response| response.status == 404).then_some(client)
}

/// Returns an address of one of five /48s, in a /64 of its own.
fn of_five(number: usize) -> String {
    format!("2001:db8:{:x}:{number:x}::1", 1 + number % 5)
}

/// Returns an address of an IPv4 /24 of its own.
fn honest(number: usize) -> String {
    format!("10.1.{number}.1")
}

/// Checks that 20 clients of 20 networks are served and stay, though five networks, whose `held` connections
/// take all seats, go on to connect.
fn check_that_others_are_served(server: &HttpServer, held: Vec<Client>) {
    assert_eq!(held.len(), SEATS);
    let mut others: Vec<_> =
        (0..20).filter_map(|number| seated(server.address, &honest(number))).collect();
    assert_eq!(others.len(), 20);
    let more: Vec<_> = (0..200).map(|number| seated(server.address, &of_five(number))).collect();
    assert!(others.iter_mut().all(|other| other.request(get("/none", "")).status == 404));
    server.wait_for_counts(Protocol::Http, "places", |it| it.connections_open <= SEATS as u64);
    drop(more);
}

#[test]
fn five_networks_with_all_seats_keep_no_other_out() {
    let server = HttpServer::with(options(SEATS));
    limit(&server, SHARE);
    let held = (0..SEATS).filter_map(|number| seated(server.address, &of_five(number))).collect();
    check_that_others_are_served(&server, held);
    let counters = server.finish(Protocol::Http);
    assert!(counters.drops[DISPLACED] >= 20);
}

#[test]
fn half_sent_requests_are_no_shield() {
    let server = HttpServer::with(options(SEATS));
    limit(&server, SHARE);
    let half = |number| connect_as(server.address, &of_five(number), "GET /announce?info_hash=");
    let held = (0..SEATS).map(half).collect();
    server.wait_for_counts(Protocol::Http, "connected", |it| it.connections_open == SEATS as u64);
    check_that_others_are_served(&server, held);
}

#[test]
fn silent_websockets_are_no_shield() {
    let server = HttpServer::with(options(SEATS));
    limit(&server, SHARE);
    let upgrade = get(
        "/",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    );
    let open = |number| {
        let mut client = connect_as(server.address, &of_five(number), &upgrade);
        assert_eq!(client.receive_head().status, 101);
        client
    };
    let held = (0..SEATS).map(open).collect();
    check_that_others_are_served(&server, held);
    assert!(server.finish(Protocol::Ws).drops[DISPLACED] >= 20);
}

/// The worker's seats are taken at another listener.
#[test]
fn unfinished_handshakes_are_no_shield() {
    let server = HttpServer::tls(options(SEATS));
    limit(&server, SHARE);
    let tls = server.second_address.unwrap();
    // The beginning of a record with a ClientHello.
    let half = |number| connect_as(tls, &of_five(number), "\x16\x03\x01\x02\0\x01");
    let held = (0..SEATS).map(half).collect();
    server.wait_for_counts(Protocol::Https, "connected", |it| it.connections_open == SEATS as u64);
    check_that_others_are_served(&server, held);
    assert!(server.finish(Protocol::Https).drops[DISPLACED] >= 20);
}

/// The listener's seats are taken, and those of a larger one are not.
#[test]
fn a_full_listener_makes_room_among_its_own() {
    let server = HttpServer::two(options(4 * SEATS), options(SEATS / 4));
    limit(&server, 4 * SHARE);
    let small = server.second_address.unwrap();
    let elsewhere: Vec<_> = (0..200)
        .map(|number| seated(server.address, &format!("10.2.{number}.1")).unwrap())
        .collect();
    let held: Vec<_> =
        (0..SEATS / 4).filter_map(|number| seated(small, &of_five(number))).collect();
    assert_eq!(held.len(), SEATS / 4);
    let others: Vec<_> = (0..10).filter_map(|number| seated(small, &honest(number))).collect();
    assert_eq!(others.len(), 10);
    for mut client in elsewhere.into_iter().chain(others) {
        assert_eq!(client.request(get("/none", "")).status, 404);
    }
    assert_eq!(server.finish(Protocol::Http).drops[DISPLACED], 10);
}

#[test]
fn no_network_takes_the_seat_of_one_that_holds_as_many() {
    let server = HttpServer::with(options(6));
    limit(&server, 6);
    let to = server.address;
    // Addresses of one network, in turn.
    let in_a = |host: usize| seated(to, &format!("192.0.2.{host}"));
    let in_b = |host: usize| seated(to, &format!("198.51.100.{host}"));
    let of_a: Vec<_> = (0..5).map(|host| in_a(host).unwrap()).collect();
    let of_b = in_b(0).unwrap();
    assert!(in_a(5).is_none(), "the largest network gets no more");
    // The first network holds three connections in the end, and the other as many.
    let more_of_b = [in_b(1), in_b(2)];
    assert!(more_of_b.iter().all(Option::is_some));
    assert!(in_b(3).is_none() && in_a(6).is_none());
    // A third one gets a place of either.
    assert!(seated(to, "203.0.113.1").is_some());
    let counters = server.finish(Protocol::Http);
    assert_eq!((counters.drops[DISPLACED], counters.drops[REFUSED]), (3, 3));
    drop((of_a, of_b));
}
