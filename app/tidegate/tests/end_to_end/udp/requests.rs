//! Connects, announces and scrapes, and what is none of these.

use super::*;
use crate::site;

crate::site::on_engines! {
    serves_connects_announces_and_scrapes,
    sends_as_many_peers_as_fit,
    answers_scrapes_of_any_length,
    answers_truncated_packets_of_verified_clients_only,
    ignores_other_connection_ids,
    refuses_port_zero_and_unknown_actions,
    replies_from_the_address_that_was_asked,
}

//= bep15#announce-reply-family
//= type=test
#[test]
fn serves_connects_announces_and_scrapes() {
    let tracker = start("");
    for (to, family, stride) in [(tracker.udp4(), "v4", 6), (tracker.udp6(), "v6", 18)] {
        let [seeder, leecher] = [1, 2].map(|number| Udp::connect_as(number, to));
        let incomplete = Announce { hash: [stride as u8; 20], ..LEECHER };
        let complete = Announce { left: 0, port: 1001, ..incomplete };
        assert_eq!(parse_announce(&seeder.say(complete)), (0, 1, &[][..]));
        let reply = leecher.say(incomplete);
        let (leechers, seeders, peers) = parse_announce(&reply);
        assert_eq!((leechers, seeders, peers.len()), (1, 1, stride));
        let (ip, port) = peers.split_at(stride - 2);
        assert_eq!(port, 1001_u16.to_be_bytes());
        match site::client_of(1, to) {
            std::net::IpAddr::V4(own) => assert_eq!(ip, own.octets()),
            std::net::IpAddr::V6(own) => assert_eq!(ip, own.octets()),
        }
        let done = Announce { left: 0, event: 1, ..incomplete };
        assert_eq!(parse_announce(&leecher.say(done)).1, 2);
        let reply = seeder.request(&scrape(seeder.id, &[complete.hash, HASH, complete.hash]));
        let counts: Vec<u32> = (0..reply.len() / 4).map(|at| u32_at(&reply, 4 * at)).collect();
        assert_eq!(counts, [SCRAPE, TRANSACTION, 2, 1, 0, 0, 0, 0, 2, 1, 0]);
        let stopped = Announce { event: 3, ..complete };
        assert_eq!(parse_announce(&seeder.say(stopped)), (0, 1, &[][..]));

        let listener = to.to_string();
        let labels = [("listener", listener.as_str()), ("protocol", "udp")];
        for (kind, count) in [("connect", 2.0), ("announce", 4.0), ("scrape", 1.0)] {
            let labels = [labels[0], ("family", family), ("kind", kind)];
            for name in ["tidegate_requests_total", "tidegate_responses_total"] {
                tracker.wait_until(kind, |it| it.sum(name, &labels) == count);
            }
        }
        let sent = 2 * 16 + 4 * 20 + stride + 44;
        for (name, bytes) in [("received", 2 * 16 + 4 * 98 + 76), ("sent", sent)] {
            let name = format!("tidegate_{name}_bytes_total");
            tracker.wait_until(&name, |it| it.sum(&name, &labels) == bytes as f64);
        }
    }
}

#[test]
fn sends_as_many_peers_as_fit() {
    let tracker = start(
        "[tracker]\nnumwant_max = 300\n[limits]\npeers_per_address = 0\npeers_per_network = 0\n",
    );
    for (to, stride) in [(tracker.udp4(), 6), (tracker.udp6(), 18)] {
        let [many, client] = [1, 2].map(|number| Udp::connect_as(number, to));
        let ports: Vec<u16> = (1..=300).collect();
        many.join(HASH, &ports);
        let room = (reply_max(to) - 20) / stride;
        for (want, sent) in [(0, 0), (1, 1), (40, 40), (74, 74.min(room)), (i32::MAX, room)] {
            let reply = client.say(Announce { want, ..LEECHER });
            let (_, seeders, peers) = parse_announce(&reply);
            assert_eq!((seeders, peers.len()), (0, sent * stride), "{want} at {to}");
            let mut ports: Vec<&[u8]> = peers.chunks(stride).map(|it| &it[stride - 2..]).collect();
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), sent, "a peer was sent twice");
        }
    }
}

#[test]
fn answers_scrapes_of_any_length() {
    let tracker = start("");
    for to in both(&tracker) {
        let client = Udp::connect(to);
        // A frame has room for 72 hashes, and 71 over IPv6. Longer requests come in two, which no program
        // puts together.
        let whole = if to.is_ipv4() { 122 } else { 120 };
        for count in [1, 2, 71, 72, 73, 74, 122, 125] {
            let reply = client.request(&scrape(client.id, &vec![HASH; count]));
            let answered = count.min(whole);
            assert_eq!(reply[..8], head(0, SCRAPE, TRANSACTION)[8..], "{count} at {to}");
            assert_eq!(reply.len(), 8 + 12 * answered, "{count} at {to}");
        }
        assert!(client.is_ignored(&scrape(client.id, &[HASH; 140])));
        wait_for_drops(&tracker, to, "too_long", 1);
    }
}

#[test]
fn answers_truncated_packets_of_verified_clients_only() {
    let tracker = start("");
    for to in both(&tracker) {
        let client = Udp::connect(to);
        let packets = [announce(client.id, LEECHER), scrape(client.id, &[HASH])];
        let (mut short, mut bad) = (0, 0);
        for whole in packets {
            for len in 0..whole.len() {
                let cut = &whole[..len];
                let mut other = cut.to_vec();
                other.iter_mut().take(1).for_each(|byte| *byte ^= 1);
                if len < 16 {
                    assert!(client.is_ignored(cut), "{len}");
                    short += 1;
                    continue;
                }
                let is_bare_scrape = len == 16 && whole.len() == 36;
                let why = if is_bare_scrape { Refusal::FullScrape } else { Refusal::Truncated };
                let reply = client.request(cut);
                assert!(is_error(&reply, why), "{len}: {}", reply.escape_ascii());
                assert!(client.is_ignored(&other), "{len}");
                bad += 1;
            }
        }
        for len in 0..16 {
            assert!(client.is_ignored(&connect(1)[..len]), "{len}");
            short += 1;
        }
        wait_for_drops(&tracker, to, "too_short", short);
        wait_for_drops(&tracker, to, "bad_connection_id", bad);
    }
}

//= bep15#connection-id-verified
//= type=test
#[test]
fn ignores_other_connection_ids() {
    let tracker = start("");
    for to in both(&tracker) {
        let [client, other] = [1, 2].map(|number| Udp::connect_as(number, to));
        // An id belongs to the address, not to the port.
        let neighbour = Udp::connect_as(1, to);
        assert_eq!(neighbour.id, client.id);
        parse_announce(&neighbour.say(LEECHER));
        let mut ignored = 0;
        // IPv6 has only one loopback address.
        if other.id != client.id {
            for packet in [announce(client.id, LEECHER), scrape(client.id, &[HASH])] {
                assert!(other.is_ignored(&packet));
                ignored += 1;
            }
        }
        for guess in [0, 1, u64::MAX, client.id.swap_bytes(), client.id ^ 1, 0x417_2710_1980] {
            assert!(client.is_ignored(&announce(guess, LEECHER)), "{guess:x}");
            ignored += 1;
        }
        wait_for_drops(&tracker, to, "bad_connection_id", ignored);
        // Connects with another constant, which an attacker could use to find trackers.
        assert!(client.is_ignored(&head(client.id, CONNECT, 1)));
        wait_for_drops(&tracker, to, "wrong_magic", 1);
    }
}

#[test]
fn refuses_port_zero_and_unknown_actions() {
    let tracker = start("");
    for to in both(&tracker) {
        let client = Udp::connect(to);
        let reply = client.say(Announce { port: 0, ..LEECHER });
        assert!(is_error(&reply, Refusal::PortZero), "{}", reply.escape_ascii());
        for action in [ERROR, UNKNOWN, u32::MAX] {
            let reply = client.request(&head(client.id, action, 8));
            assert!(is_error(&reply, Refusal::UnknownAction), "{}", reply.escape_ascii());
            assert_eq!(u32_at(&reply, 4), 8);
        }
        // Any event that is unknown is none.
        for event in [0, 4, u32::MAX] {
            assert_eq!(parse_announce(&client.say(Announce { event, ..LEECHER })).1, 0);
        }
        // Bytes behind a connect do not matter.
        let long = [connect(7), vec![1; 4]].concat();
        assert_eq!(client.request(&long), [&connect(7)[8..], &client.id.to_be_bytes()].concat());
    }
}

#[test]
fn replies_from_the_address_that_was_asked() {
    let listen = [("TIDEGATE_UDP__LISTEN", "0.0.0.0:0,[::]:0")];
    let tracker = Tracker::start_with(Directory::new(), "", &listen);
    let wildcards: [std::net::IpAddr; 2] = ["0.0.0.0", "::"].map(|ip| ip.parse().unwrap());
    let [v4, v6] = wildcards.map(|ip| tracker.listener("udp", ip).port());
    // A connected socket receives nothing from other addresses.
    for (number, to) in (1..=3).map(|number| (number, site::tracker(number).into())) {
        let client = Udp::connect_as(number, SocketAddr::new(to, v4));
        parse_announce(&client.say(LEECHER));
    }
    let client = Udp::connect(SocketAddr::new(site::tracker_v6().into(), v6));
    parse_announce(&client.say(LEECHER));
}
