//! Seats: who gets them when all are taken. PROXY headers name the clients, so one host stands for many.

use tracker::Limits;

use super::*;

const SEATS: usize = 100;
/// Seats that a network may hold.
const SHARE: usize = 20;
const DISPLACED: usize = DropReason::Displaced.index();
const REFUSED: usize = DropReason::ConnectionLimit.index();

fn options(connections_max: usize) -> HttpOptions {
    HttpOptions { connections_max, ..behind_proxy_protocol() }
}

fn limit(server: &HttpServer, network_connections: usize) {
    let network_connections = network_connections as u32;
    server.tracker.limiter().replace(Limits { network_connections, ..Limits::default() });
}

/// Returns an address of one of five /48s, in a /64 of its own.
fn of_five(number: usize) -> String {
    format!("2001:db8:{:x}:{number:x}::1", 1 + number % 5)
}

/// Returns an address of an IPv4 /24 of its own.
fn honest(number: usize) -> String {
    format!("10.1.{number}.1")
}

/// Five networks hold all seats, whatever they do with them, and go on to connect: 20 clients of 20 networks are
/// served and stay nevertheless.
#[test]
fn networks_with_all_seats_keep_no_other_out() {
    let upgrade = web_request("/");
    // The last one holds the worker's seats at another listener: the beginning of a record with a ClientHello.
    for (counted, sent) in [
        (Protocol::Http, PROBE),
        (Protocol::Http, "GET /announce?info_hash="),
        (Protocol::Ws, &upgrade),
        (Protocol::Https, "\x16\x03\x01\x02\0\x01"),
    ] {
        let server = HttpServer::with(options(SEATS));
        limit(&server, SHARE);
        let is_tls = counted == Protocol::Https;
        let to = if is_tls { server.second_address } else { server.address };
        let held: Vec<_> = (0..SEATS).map(|at| connect_as(to, &of_five(at), sent)).collect();
        server.wait_for_counts(counted, "connected", |it| it.connections_open == SEATS as u64);
        let mut others: Vec<_> =
            (0..20).filter_map(|number| served_as(server.address, &honest(number))).collect();
        assert_eq!(others.len(), 20, "{sent:?}");
        let more: Vec<_> = (0..200).map(|at| served_as(server.address, &of_five(at))).collect();
        assert!(others.iter_mut().all(|other| other.request(PROBE).status == 404));
        server.wait_for_counts(Protocol::Http, "seats", |it| it.connections_open <= SEATS as u64);
        drop((held, more));
        assert!(server.finish(counted).drops[DISPLACED] >= 20, "{sent:?}");
    }
}

/// The listener's seats are taken, and those of a larger one are not.
#[test]
fn a_full_listener_makes_room_among_its_own() {
    let server = HttpServer::set_up(Setup {
        options: options(4 * SEATS),
        others: Some(options(SEATS / 4)),
        ..Setup::default()
    });
    limit(&server, 4 * SHARE);
    let [large, small] = [server.address, server.second_address];
    let elsewhere: Vec<_> = (0..200).filter_map(|at| served_as(large, &honest(at))).collect();
    // A network has its share of the seats of this listener only: a fifth.
    let held: Vec<_> = (0..SEATS).filter_map(|number| served_as(small, &of_five(number))).collect();
    assert_eq!((elsewhere.len(), held.len()), (200, SEATS / 4));
    let others: Vec<_> = (200..210).filter_map(|at| served_as(small, &honest(at))).collect();
    assert_eq!(others.len(), 10);
    for mut client in elsewhere.into_iter().chain(others) {
        assert_eq!(client.request(PROBE).status, 404);
    }
    assert_eq!(server.finish(Protocol::Http).drops[DISPLACED], 10);
}

#[test]
fn no_network_takes_the_seat_of_one_that_holds_as_many() {
    let server = HttpServer::with(options(6));
    limit(&server, 6);
    let to = server.address;
    // Addresses of one network, in turn.
    let in_a = |host: usize| served_as(to, &format!("192.0.2.{host}"));
    let in_b = |host: usize| served_as(to, &format!("198.51.100.{host}"));
    let _of_a = [0, 1, 2, 3, 4].map(|host| in_a(host).unwrap());
    let _first_of_b = in_b(0).unwrap();
    assert!(in_a(5).is_none(), "the largest network gets no more");
    // The first network holds three connections in the end, and the other as many.
    let _more_of_b = [1, 2].map(|host| in_b(host).unwrap());
    assert!(in_b(3).is_none() && in_a(6).is_none());
    // A third one gets a place of either.
    assert!(served_as(to, "203.0.113.1").is_some());
    let counters = server.finish(Protocol::Http);
    assert_eq!((counters.drops[DISPLACED], counters.drops[REFUSED]), (3, 3));
}
