//! Datagrams wrapped in Simple Proxy headers: whose they are, and how the replies go back.

use tracker::PrivateAddresses;

use super::*;

/// A server behind whoever speaks from this host's loopback addresses.
fn behind_proxy(listen: &str) -> Server {
    let proxies = Networks::parse(["127.0.0.1", "::1"]).unwrap();
    Server::with(listen, Some(proxies))
}

/// The 38 bytes with which a proxy at 192.0.2.200 speaks for `client`, put together by hand.
pub(super) fn header(client: &str) -> Vec<u8> {
    header_to(client, "192.0.2.200")
}

fn header_to(client: &str, reached: &str) -> Vec<u8> {
    let mut bytes = vec![0x56, 0xec];
    for ip in [client, reached] {
        match ip.parse().unwrap() {
            IpAddr::V4(ip) => {
                bytes.extend([0; 10]);
                bytes.extend([0xff, 0xff]);
                bytes.extend(ip.octets());
            }
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
    }
    bytes.extend([0x12, 0x34, 0x1b, 0x39]);
    bytes
}

impl Client {
    /// Sends `packet` for `client`, and gives the reply without the header, which must be the same.
    fn ask_for(&self, client: &str, packet: &[u8]) -> Vec<u8> {
        self.ask_behind(&header(client), packet)
    }

    fn ask_behind(&self, header: &[u8], packet: &[u8]) -> Vec<u8> {
        let reply = self.ask(&[header, packet].concat());
        assert_eq!(reply[..38], *header);
        reply[38..].to_vec()
    }

    fn connect_for(&self, client: &str) -> u64 {
        let reply = self.ask_for(client, &connect(77));
        assert_eq!((reply.len(), u32_at(&reply, 0), u32_at(&reply, 4)), (16, CONNECT, 77));
        u64::from_be_bytes(reply[8..16].try_into().unwrap())
    }

    /// Whether a trusted proxy's `packet` is met with silence, as it stands.
    fn is_wrapped_silence(&self, packet: &[u8]) -> bool {
        self.socket.send(packet).unwrap();
        let marker = 0xfeed_f00d;
        u32_at(&self.ask_for("192.0.2.1", &connect(marker)), 4) == marker
    }
}

//= spp#reply
//= type=test
#[test]
fn clients_behind_a_proxy_meet_by_their_own_addresses() {
    for (listen, host) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        let server = behind_proxy(listen);
        let proxy = Client::new(host, &server);
        let mut known = Vec::new();
        for (client, port) in [("192.0.2.1", 1), ("192.0.2.2", 2), ("192.0.2.3", 3)] {
            let id = proxy.connect_for(client);
            let reply = proxy.ask_for(client, &announce(id, Say { port, ..LEECHER }));
            let mut peers: Vec<_> = answer(&reply).2.chunks(6).map(<[u8]>::to_vec).collect();
            peers.sort();
            assert_eq!(peers, known, "over {host}");
            known.push(vec![192, 0, 2, port as u8, 0, port as u8]);
        }
        // Its family, and not the proxy's, says which peers a client gets.
        let id = proxy.connect_for("2001:db8::1");
        let reply = proxy.ask_for("2001:db8::1", &announce(id, LEECHER));
        assert_eq!(answer(&reply), (4, 0, &[][..]));
        let id = proxy.connect_for("2001:db8::2");
        let reply = proxy.ask_for("2001:db8::2", &announce(id, LEECHER));
        assert_eq!(answer(&reply).2.len(), 18);
        assert_eq!(proxy.ask_for("2001:db8::2", &scrape(id, &[HASH])).len(), 8 + 12);
        let counters = server.finish();
        assert_eq!(counters.requests, [[3, 3, 0, 0, 0], [2, 2, 1, 0, 0]]);
        assert_eq!(counters.responses, counters.requests);
    }
}

#[test]
fn an_id_is_bound_to_the_client_and_not_to_its_proxy() {
    let server = behind_proxy("127.0.0.1:0");
    let proxy = Client::new("127.0.0.1", &server);
    let id = proxy.connect_for("192.0.2.1");
    assert_ne!(id, proxy.connect_for("192.0.2.2"));
    let stolen = [header("192.0.2.2"), announce(id, LEECHER)].concat();
    assert!(proxy.is_wrapped_silence(&stolen));
    answer(&proxy.ask_for("192.0.2.1", &announce(id, LEECHER)));
    assert_eq!(server.finish().drops[DropReason::BadConnectionId.index()], 1);
}

#[test]
fn a_wrapped_reply_fits_its_datagram() {
    for (listen, host, room) in [
        ("127.0.0.1:0", "127.0.0.1", limits::UDP_PAYLOAD_V4_MAX - 38),
        ("[::1]:0", "::1", limits::UDP_PAYLOAD_V6_MAX - 38),
    ] {
        let server = behind_proxy(listen);
        populate(&server.tracker, Family::V4, 300);
        populate(&server.tracker, Family::V6, 300);
        let proxy = Client::new(host, &server);
        let greedy = Say { want: i32::MAX, ..LEECHER };
        let mut sent = 0;
        for (client, stride) in [("192.0.2.1", 6), ("2001:db8:1::1", 18)] {
            let id = proxy.connect_for(client);
            let reply = proxy.ask_for(client, &announce(id, greedy));
            assert_eq!(answer(&reply).2.len(), (room - 20) / stride * stride);
            sent += (room - 20) / stride;
            let reply = proxy.ask_for(client, &scrape(id, &[HASH; 122]));
            assert_eq!(reply.len(), 8 + (room - 8) / 12 * 12);
        }
        assert_eq!(server.finish().peers_sent, sent as u64);
    }
}

#[test]
fn a_trusted_proxy_wraps_whatever_it_sends() {
    let server = behind_proxy("127.0.0.1:0");
    let proxy = Client::new("127.0.0.1", &server);
    let mut bad = 0;
    for packet in [connect(1), b"hello".to_vec(), header("192.0.2.1")[..37].to_vec(), vec![]] {
        assert!(proxy.is_wrapped_silence(&packet), "{packet:?}");
        bad += 1;
    }
    // Within the wrapping, the same rules as ever.
    assert!(proxy.is_wrapped_silence(&header("192.0.2.1")));
    assert!(proxy.is_wrapped_silence(&[header("192.0.2.1"), head(1, CONNECT, 1)].concat()));
    let oversize = [header("192.0.2.1"), vec![0; limits::UDP_REQUEST_MAX]].concat();
    assert!(proxy.is_wrapped_silence(&oversize));
    // A direct client is served as ever, too.
    let direct = Client::new("127.0.0.2", &server);
    answer(&direct.ask(&announce(direct.connect(), LEECHER)));
    let drops = server.finish().drops;
    assert_eq!(drops[DropReason::BadProxyHeader.index()], bad);
    assert_eq!(drops[DropReason::TooShort.index()], 1);
    assert_eq!(drops[DropReason::WrongMagic.index()], 1);
    assert_eq!(drops[DropReason::TooLong.index()], 1);
}

#[test]
fn strangers_cannot_speak_for_others() {
    for server in [behind_proxy("127.0.0.1:0"), Server::start("127.0.0.1:0")] {
        let stranger = Client::new("127.0.0.2", &server);
        for client in ["192.0.2.1", "2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::"] {
            for packet in [connect(1), announce(stranger.connect(), LEECHER)] {
                assert!(stranger.is_silence(&[header(client), packet].concat()), "{client}");
            }
        }
        let counters = server.finish();
        assert_eq!(counters.drops[DropReason::UntrustedProxy.index()], 8);
        assert_eq!(counters.drops.iter().sum::<u64>(), 8);
    }
}

/// The proxy gets no more than it sends for anybody who is not verified.
#[test]
fn unverified_wrapped_bytes_out_never_exceed_bytes_in() {
    let (tracker, registry) = (tracker(), MetricsRegistry::default());
    populate(&tracker, Family::V4, 200);
    let proxies = Networks::parse(["10.9.9.9"]).unwrap();
    let mut front = front_behind(&tracker, &registry, Some(proxies));
    let mut random = Random::new(11);
    let from = SocketAddr::from(([10, 9, 9, 9], 5));
    let mut answered = 0;
    for round in 0..5_000 {
        let mut packet = header("192.0.2.1");
        packet.extend(match round % 3 {
            0 => connect(round),
            1 => announce(random.next(), Say { want: i32::MAX, ..LEECHER }),
            _ => scrape(random.next(), &[HASH; 74]),
        });
        packet.truncate(packet.len() - random.below(2) as usize * random.below(50) as usize);
        let replies = sim::exchange(&mut front, 0, &[(from, &packet)]);
        let out: usize = replies.iter().map(|(_, reply)| reply.len()).sum();
        assert!(out <= packet.len(), "{packet:?}");
        answered += usize::from(out > 0);
    }
    assert!(answered > 800, "{answered} connects are answered");
}

#[test]
fn private_clients_are_taken_where_they_have_reached_a_private_address() {
    let server = behind_proxy("127.0.0.1:0");
    let proxy = Client::new("127.0.0.1", &server);
    let ask = |client: &str, reached: &str| {
        let header = header_to(client, reached);
        let reply = proxy.ask_behind(&header, &connect(77));
        let id = u64::from_be_bytes(reply[8..16].try_into().unwrap());
        is_error(&proxy.ask_behind(&header, &announce(id, LEECHER)), Refusal::AddressNotPublic)
    };
    assert!(ask("10.0.0.1", "8.8.8.8") && ask("fd00::1", "2606:4700::1"));
    assert!(ask("0.0.0.0", "10.0.0.2") && ask("ff02::1", "fe80::1"));
    assert!(!ask("10.0.0.1", "10.0.0.2") && !ask("9.9.9.9", "8.8.8.8"));
    assert!(!ask("9.9.9.9", "10.0.0.2"));
    assert_eq!(server.finish().refusals[Refusal::AddressNotPublic.index()], 4);
}

#[test]
fn direct_clients_from_private_addresses_are_taken_as_the_policy_says() {
    for (listen, host) in
        [("127.0.0.1:0", "127.0.0.2"), ("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "::1")]
    {
        let server = Server::start(listen);
        let client = Client::new(host, &server);
        let packet = announce(client.connect(), LEECHER);
        answer(&client.ask(&packet));
        let private_addresses = PrivateAddresses::Deny;
        let deny = ListenerPolicy { private_addresses, ..ListenerPolicy::default() };
        server.tracker.listener_policies().replace(vec![deny]);
        assert!(is_error(&client.ask(&packet), Refusal::AddressNotPublic), "{listen}");
    }
}
