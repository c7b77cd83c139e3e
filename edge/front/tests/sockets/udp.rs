//! Datagrams over real sockets, and through the sim engine where many are needed.

mod drowning;
mod logging;
mod proxies;
mod rates;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use net::sim;
use tracker::access::{AccessLists, HashList, Mode};
use tracker::counters::{Clients, DropReason, MetricsRegistry};
use tracker::{Access, BanRules, KeyId, KeyRules, Networks, Policy, Random, RequestKind, Tracker};
use types::{Family, InfoHash, Refusal, Tick, UserKey, limits};

use crate::testing::udp::*;
use crate::testing::{set_access, set_lists, tracker, wait_until};

/// Announces `count` peers of `family` to `tracker`.
fn populate(tracker: &Arc<Tracker>, family: Family, count: u16) {
    let mut front = front(tracker, &MetricsRegistry::default());
    for number in 0..count {
        let [high, low] = number.to_be_bytes();
        let ip: IpAddr = match family {
            Family::V4 => [10, 1, high, low].into(),
            Family::V6 => [0x2001, 0xdb8, 0, 0, 0, 0, 0, number].into(),
        };
        let id = tracker.view(Tick(0)).issue_connection_id(ip);
        let packet = announce(id, AnnounceFields { want: 0, ..LEECHER });
        let replies = sim::exchange(&mut front, 0, &[(SocketAddr::new(ip, 5), &packet)]);
        assert_eq!(replies[0].1.len(), 20);
    }
}

//= bep15#announce-reply-family
//= type=test
#[test]
fn introduces_peers_over_both_families() {
    for (listen, stride) in [("127.0.0.1:0", 6), ("[::1]:0", 18)] {
        let server = UdpServer::start(listen);
        let host = server.address.ip().to_string();
        let (first, second) = (UdpClient::new(&host, &server), UdpClient::new(&host, &server));
        let (id, other) = (first.connect(), second.connect());
        assert_eq!(id, other, "a connection id is bound to the address, not to the port");

        let seeder = AnnounceFields { left: 0, port: first.port, ..LEECHER };
        let reply = first.request(&announce(id, seeder));
        assert_eq!(parse_announce(&reply), (0, 1, &[][..]), "a peer must not get its own address");

        let leecher = AnnounceFields { port: second.port, ..LEECHER };
        let reply = second.request(&announce(id, leecher));
        let (leechers, seeders, peers) = parse_announce(&reply);
        assert_eq!((leechers, seeders, peers.len()), (1, 1, stride));
        let (ip, port) = peers.split_at(stride - 2);
        assert_eq!(port, first.port.to_be_bytes());
        match server.address.ip() {
            IpAddr::V4(own) => assert_eq!(ip, own.octets()),
            IpAddr::V6(own) => assert_eq!(ip, own.octets()),
        }

        let done = AnnounceFields { left: 0, event: 1, ..leecher };
        assert_eq!(parse_announce(&second.request(&announce(id, done))).1, 2);
        let reply = first.request(&scrape(id, &[HASH, [0; 20], HASH]));
        let counts: Vec<u32> = (0..reply.len() / 4).map(|at| u32_at(&reply, 4 * at)).collect();
        assert_eq!(counts, [SCRAPE, 8, 2, 1, 0, 0, 0, 0, 2, 1, 0]);

        let stopped = AnnounceFields { event: 3, ..seeder };
        assert_eq!(parse_announce(&first.request(&announce(id, stopped))), (0, 1, &[][..]));
        let counters = server.finish();
        let family = usize::from(stride == 18);
        assert_eq!(counters.requests[family], [2, 4, 1, 0, 0]);
        assert_eq!(counters.responses[family], [2, 4, 1, 0, 0]);
        assert_eq!(counters.requests[1 - family], [0; 5]);
        assert_eq!(counters.bytes_in, 2 * 16 + 4 * 98 + 76);
        assert_eq!(counters.bytes_out, 2 * 16 + 4 * 20 + stride as u64 + 44);
        assert_eq!(counters.peers_sent, 1);
    }
}

#[test]
fn refuses_port_zero_and_unknown_actions() {
    let server = UdpServer::start("127.0.0.1:0");
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    let reply = client.request(&announce(id, AnnounceFields { port: 0, ..LEECHER }));
    assert!(is_error(&reply, Refusal::PortZero));
    assert_eq!(u32_at(&reply, 4), 9);
    assert!(is_error(&client.request(&head(id, 9, 8)), Refusal::UnknownAction));
    assert!(is_error(&client.request(&head(id, ERROR, 8)), Refusal::UnknownAction));
    assert!(client.is_ignored(&head(id ^ 1, 9, 8)));
    let counters = server.finish();
    assert_eq!(counters.refusals[Refusal::PortZero.index()], 1);
    assert_eq!(counters.refusals[Refusal::UnknownAction.index()], 2);
    assert_eq!(counters.responses[0][RequestKind::Other.index()], 3);
}

//= bep15#announce-event
//= type=test
#[test]
fn treats_unknown_events_as_none() {
    let server = UdpServer::start("127.0.0.1:0");
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    for event in [0, 4, u32::MAX] {
        let reply = client.request(&announce(id, AnnounceFields { event, ..LEECHER }));
        assert_eq!(parse_announce(&reply), (1, 0, &[][..]));
    }
}

//= bep15#packet-minimum
//= type=test
#[test]
fn answers_truncated_packets_of_verified_clients_only() {
    let server = UdpServer::start("127.0.0.1:0");
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    let whole = announce(id, LEECHER);
    for len in 0..whole.len() {
        let cut = &whole[..len];
        if len < 16 {
            assert!(client.is_ignored(cut), "{len}");
        } else {
            assert!(is_error(&client.request(cut), Refusal::Truncated), "{len}");
            assert!(client.is_ignored(&announce(id ^ 1, LEECHER)[..len]), "{len}");
        }
    }
    let whole = scrape(id, &[HASH]);
    for len in 16..whole.len() {
        let refusal = if len == 16 { Refusal::FullScrape } else { Refusal::Truncated };
        assert!(is_error(&client.request(&whole[..len]), refusal), "{len}");
        assert!(client.is_ignored(&scrape(id ^ 1, &[HASH])[..len]), "{len}");
    }
    for len in 0..16 {
        assert!(client.is_ignored(&connect(1)[..len]), "{len}");
    }
    let counters = server.finish();
    assert_eq!(counters.drops[DropReason::TooShort.index()], 32);
    assert_eq!(counters.drops[DropReason::BadConnectionId.index()], 82 + 20);
}

//= bep15#connection-id-verified
//= type=test
#[test]
fn ignores_connection_ids_of_other_addresses() {
    for (listen, other) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "")] {
        let server = UdpServer::start(listen);
        let own = if other.is_empty() { "::1" } else { "127.0.0.1" };
        let client = UdpClient::new(own, &server);
        let id = client.connect();
        let neighbour = UdpClient::new(own, &server);
        parse_announce(&neighbour.request(&announce(id, LEECHER)));
        // IPv6 has only one loopback address: the connection id of another is made by hand.
        let (other_client, foreign_id) = if other.is_empty() {
            let address = "2001:db8::1".parse().unwrap();
            (
                UdpClient::new(own, &server),
                server.tracker.view(Tick(0)).issue_connection_id(address),
            )
        } else {
            (UdpClient::new(other, &server), id)
        };
        assert!(other_client.is_ignored(&announce(foreign_id, LEECHER)));
        assert!(other_client.is_ignored(&scrape(foreign_id, &[HASH])));
        assert!(
            other_client.is_ignored(&announce(foreign_id, AnnounceFields { port: 0, ..LEECHER }))
        );
        for guess in [0, 1, u64::MAX, id.swap_bytes(), 0x417_2710_1980] {
            assert!(client.is_ignored(&announce(guess, LEECHER)), "{guess:x}");
        }
        assert_eq!(server.finish().drops[DropReason::BadConnectionId.index()], 8);
    }
}

#[test]
fn accepts_connection_ids_at_every_worker() {
    let (tracker, registry) = (tracker(false), MetricsRegistry::default());
    let mut workers = [front(&tracker, &registry), front(&tracker, &registry)];
    let from = SocketAddr::from(([10, 0, 0, 1], 5));
    let replies = sim::exchange(&mut workers[0], 0, &[(from, &connect(1))]);
    let id = u64::from_be_bytes(replies[0].1[8..16].try_into().unwrap());
    let replies = sim::exchange(&mut workers[1], 0, &[(from, &announce(id, LEECHER))]);
    parse_announce(&replies[0].1);
}

/// The tracker must not amplify: an attacker who forges a victim's address cannot make it send the
/// victim more bytes than the attacker has sent.
#[test]
fn unverified_bytes_out_never_exceed_bytes_in() {
    let (tracker, registry) = (tracker(false), MetricsRegistry::default());
    populate(&tracker, Family::V4, 200);
    populate(&tracker, Family::V6, 200);
    let mut front = front(&tracker, &registry);
    let mut random = Random::new(11);
    let mut answered = [0; 2];
    for round in 0u32..20_000 {
        let (v6, host) = (random.below(2) as usize, random.below(256) as u8);
        let from = match v6 {
            0 => SocketAddr::from(([192, 0, 2, host], 5)),
            _ => SocketAddr::from(([0x2001, 0xdb8, 1, 0, 0, 0, 0, host.into()], 5)),
        };
        let id = random.next();
        let mut packet = match round % 5 {
            0 => connect(round),
            1 => announce(id, AnnounceFields { want: i32::MAX, ..LEECHER }),
            2 => scrape(id, &[HASH; 74]),
            3 => head(id, random.below(5), round),
            _ => (0..random.below(200)).map(|_| random.below(256) as u8).collect(),
        };
        if random.below(3) == 0 {
            packet.truncate(random.below(packet.len() as u32 + 1) as usize);
        }
        let replies = sim::exchange(&mut front, 0, &[(from, &packet)]);
        let out: usize = replies.iter().map(|(_, reply)| reply.len()).sum();
        assert!(out <= packet.len(), "{packet:?}");
        answered[v6] += u64::from(out > 0);
    }
    assert!(answered.iter().all(|answered| *answered > 1000), "connects are answered");
    let counters = total(&registry);
    assert_eq!(counters.bytes_out, 16 * answered.iter().sum::<u64>());
    assert_eq!(counters.responses, answered.map(|answered| [answered, 0, 0, 0, 0]));
}

/// Engines may have less room than a socket's longest datagram.
#[test]
fn fills_the_room_of_the_engine_at_most() {
    let tracker = tracker(false);
    populate(&tracker, Family::V4, 300);
    populate(&tracker, Family::V6, 300);
    let mut front = front(&tracker, &MetricsRegistry::default());
    let ips: [IpAddr; 2] = [[10, 2, 0, 1].into(), [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1].into()];
    for (ip, stride) in ips.into_iter().zip([6, 18]) {
        let id = tracker.view(Tick(0)).issue_connection_id(ip);
        let packet = announce(id, AnnounceFields { want: 200, ..LEECHER });
        for room in [20, 500, 1232, 1472] {
            let datagrams = [(SocketAddr::new(ip, 5), &packet[..])];
            let replies = sim::exchange_within(room, &mut front, 0, &datagrams);
            let most = room.min(if ip.is_ipv4() { 1472 } else { 1452 });
            let peers = (most - 20) / stride;
            assert_eq!(replies[0].1.len(), 20 + stride * peers.min(200), "{ip}, {room} bytes");
        }
    }
}

/// Replies fit one unfragmented datagram, whatever the client asks for.
#[test]
fn fills_one_datagram_with_peers_at_most() {
    for (listen, family, len, len_max) in [
        ("127.0.0.1:0", Family::V4, 20 + 6 * usize::from(limits::PEERS_UDP_V4_MAX), 1472),
        ("[::1]:0", Family::V6, 20 + 18 * usize::from(limits::PEERS_UDP_V6_MAX), 1452),
    ] {
        let server = UdpServer::start(listen);
        populate(&server.tracker, family, 300);
        let client = UdpClient::new(&server.address.ip().to_string(), &server);
        let id = client.connect();
        for want in [300, i32::MAX] {
            let reply = client.request(&announce(id, AnnounceFields { want, ..LEECHER }));
            assert_eq!(reply.len(), len);
            assert!(reply.len() <= len_max);
            let (leechers, seeders, peers) = parse_announce(&reply);
            assert_eq!((leechers, seeders), (301, 0));
            let stride = if family == Family::V4 { 6 } else { 18 };
            let mut seen: Vec<&[u8]> = peers.chunks(stride).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), peers.len() / stride, "a peer was sent twice");
        }
        let few = client.request(&announce(id, AnnounceFields { want: 3, ..LEECHER }));
        assert_eq!(parse_announce(&few).2.len(), if family == Family::V4 { 18 } else { 54 });
        assert_eq!(client.request(&announce(id, AnnounceFields { want: 0, ..LEECHER })).len(), 20);
    }
}

//= bep15#scrape-count
//= type=test
#[test]
fn cuts_scrapes_to_one_datagram_and_drops_oversize_requests() {
    let server = UdpServer::start("127.0.0.1:0");
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    for (requested, returned) in [(1, 1), (74, 74), (122, 122), (125, 122)] {
        assert_eq!(client.request(&scrape(id, &vec![HASH; requested])).len(), 8 + 12 * returned);
    }
    let oversize = scrape(id, &[HASH; 140]);
    assert!(oversize.len() > limits::UDP_REQUEST_MAX);
    assert!(client.is_ignored(&oversize));
    assert_eq!(server.finish().drops[DropReason::TooLong.index()], 1);

    // Over IPv6 the datagram is smaller: at most 120 entries fit.
    let server = UdpServer::start("[::1]:0");
    let client = UdpClient::new("::1", &server);
    let reply = client.request(&scrape(client.connect(), &[HASH; 122]));
    assert_eq!(reply.len(), 8 + 12 * 120);
    assert!(reply.len() <= limits::UDP_PAYLOAD_V6_MAX);
}

#[test]
fn serves_announces_with_any_options() {
    let server = UdpServer::start("127.0.0.1:0");
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    let long = [&[2, 255][..], &[b'x'; 255]].concat().repeat(4);
    let sound: [&[u8]; 5] =
        [b"\x02\x09/announce", b"\x01\x01\x00 what follows the end", b"\x7f\x02ab", &[0], &long];
    let broken: [&[u8]; 3] = [b"\x02", b"\x02\x09/ann", b"\x7f\xff"];
    for tail in sound.iter().chain(&broken) {
        let packet = [&announce(id, LEECHER)[..], tail].concat();
        assert_eq!(parse_announce(&client.request(&packet)), (1, 0, &[][..]), "{tail:?}");
    }
    let counters = server.finish();
    assert_eq!(counters.drops[DropReason::MalformedOptions.index()], broken.len() as u64);
}

//= bep41#url-data-use
//= type=test
#[test]
fn passes_the_key_of_the_url_option_to_the_tracker() {
    let server = UdpServer::start("127.0.0.1:0");
    let client = UdpClient::new("127.0.0.1", &server);
    let packet = announce(client.connect(), LEECHER);
    for options in [&b"\x02\x0d/announce/KEY"[..], b"\x02\x0a/announce/\x01\x02\x03KEY"] {
        let reply = client.request(&[&packet[..], options].concat());
        assert_eq!(u32_at(&reply, 0), ERROR);
        assert_eq!(&reply[8..], Refusal::KeyUnexpected.text().as_bytes());
    }
    server.finish();
}

//= bep41#url-data-use
//= type=test
//= bep41#url-data-concatenated
//= type=test
#[test]
fn serves_clients_with_a_key_at_a_private_listener() {
    let server = UdpServer::start("127.0.0.1:0");
    set_access(&server.tracker, Access::Private);
    let (text, rules) = ("user-key-012345678", KeyRules::default());
    server.tracker.passkeys().put(KeyId(1), UserKey::parse(text).unwrap(), rules);
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    let packet = announce(id, LEECHER);
    let options = |pieces: &[&str]| {
        let option = |piece: &&str| [&[2, piece.len() as u8], piece.as_bytes()].concat();
        [&packet[..], &pieces.iter().flat_map(option).collect::<Vec<_>>()].concat()
    };
    let whole =
        ["/announce/", "/announce?key=", "/announce?x=1&passkey="].map(|url| url.to_owned() + text);
    for url in &whole {
        parse_announce(&client.request(&options(&[url])));
    }
    parse_announce(&client.request(&options(&["/", text, "/announce"])));
    assert!(is_error(&client.request(&packet), Refusal::KeyMissing));
    assert!(is_error(&client.request(&options(&["/announce"])), Refusal::KeyMissing));
    assert!(is_error(&client.request(&options(&["/announce/", text, "9"])), Refusal::KeyUnknown));
    assert!(is_error(&client.request(&scrape(id, &[HASH])), Refusal::ScrapeWithoutKey));
    let rules = KeyRules { expires: Some(Tick(0)), ..rules };
    server.tracker.passkeys().put(KeyId(1), UserKey::parse(text).unwrap(), rules);
    assert!(is_error(&client.request(&options(&[&whole[0]])), Refusal::KeyExpired));
    server.finish();
}

#[test]
fn samples_only_clients_that_are_served() {
    let server = UdpServer::start("127.0.0.1:0");
    set_access(&server.tracker, Access::Private);
    let key = UserKey::parse("user-key-012345678").unwrap();
    server.tracker.passkeys().put(KeyId(1), key, KeyRules::default());
    let client = UdpClient::new("127.0.0.1", &server);
    let packet = announce(client.connect(), LEECHER);
    for (url, action) in [
        (b"\x02\x1c/announce/user-key-012345679", ERROR),
        (b"\x02\x1c/announce/user-key-012345678", ANNOUNCE),
    ] {
        for _ in 0..Clients::ONE_OF {
            assert_eq!(u32_at(&client.request(&[&packet[..], url].concat()), 0), action);
        }
    }
    assert_eq!(server.finish().clients.counts(), (&[(*b"pppppppp", 1)][..], 0));
}

#[test]
fn drops_requests_of_banned_clients_and_counts_unverified_offences_apart() {
    let server = UdpServer::start("127.0.0.1:0");
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    let bans = server.tracker.bans();
    bans.set_rules(BanRules { malformed_per_min: 1, wrong_keys_per_min: 1, ..BanRules::default() });
    (0..9).for_each(|_| assert!(client.is_ignored(&announce(id ^ 1, LEECHER))));
    assert!(bans.is_empty(), "unverified offences must not ban anybody");
    bans.set_rules(BanRules { bad_connection_ids_per_min: 1, time_s: 60, ..BanRules::default() });
    (0..4).for_each(|_| assert!(client.is_ignored(&announce(id ^ 1, LEECHER))));
    server.tracker.sweep(Tick(0), 1);
    // Both are dropped, so no reply shows when.
    for packet in [announce(id, LEECHER), connect(1)] {
        client.socket.send(&packet).unwrap();
    }
    let dropped = || total(&server.registry).drops[DropReason::Banned.index()];
    wait_until("both are dropped", || dropped() == 2);
    bans.remove(&["127.0.0.1".parse().unwrap()]);
    parse_announce(&client.request(&announce(id, LEECHER)));
    server.finish();
}

/// Announces of a batch are answered after its other requests; each still gets its own reply.
#[test]
fn keeps_answers_with_their_requests_in_mixed_batches() {
    let (tracker, registry) = (tracker(false), MetricsRegistry::default());
    let mut front = front(&tracker, &registry);
    let packets: Vec<(SocketAddr, Vec<u8>)> = (0u32..500)
        .map(|number| {
            let [.., high, low] = number.to_be_bytes();
            let from = SocketAddr::from(([10, 0, high, low], 1000 + number as u16));
            let id = tracker.view(Tick(0)).issue_connection_id(from.ip());
            let port = if number % 10 == 3 { 0 } else { 6881 };
            let mut packet = match number % 5 {
                0 => connect(0),
                1 => scrape(id, &[HASH]),
                2 => announce(id ^ 1, LEECHER),
                _ => announce(id, AnnounceFields { port, hash: [low; 20], ..LEECHER }),
            };
            packet[12..16].copy_from_slice(&number.to_be_bytes());
            (from, packet)
        })
        .collect();
    let datagrams: Vec<_> = packets.iter().map(|(from, packet)| (*from, &packet[..])).collect();
    let replies = sim::exchange(&mut front, 0, &datagrams);
    assert_eq!(replies.len(), 400, "all but the forged are answered");
    for (to, reply) in &replies {
        let number = u32_at(reply, 4);
        assert_eq!(to.port(), 1000 + number as u16);
        let action = match number % 10 {
            3 => ERROR,
            other => [CONNECT, SCRAPE, ERROR, ANNOUNCE, ANNOUNCE][other as usize % 5],
        };
        assert_eq!(u32_at(reply, 0), action, "{number}");
    }
    let counters = total(&registry);
    assert_eq!(counters.responses[0], [100, 150, 100, 0, 50]);
    assert_eq!(counters.drops[DropReason::BadConnectionId.index()], 100);
}

#[test]
fn applies_access_lists_to_announces_and_scrapes() {
    let server = UdpServer::start("127.0.0.1:0");
    let line = InfoHash(HASH).to_string();
    let deny = Arc::new(HashList::parse(line.as_bytes()).unwrap());
    let lists = AccessLists { mode: Mode::Deny, deny, ..Default::default() };
    set_lists(&server.tracker, lists);
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    assert!(is_error(&client.request(&announce(id, LEECHER)), Refusal::Denied));
    assert!(is_error(&client.request(&scrape(id, &[HASH])), Refusal::Denied));
    parse_announce(&client.request(&announce(id, AnnounceFields { hash: [1; 20], ..LEECHER })));
    assert!(client.is_ignored(&announce(id ^ 1, LEECHER)), "unverified clients get no refusal");
}
