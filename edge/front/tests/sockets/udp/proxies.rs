//! Datagrams wrapped in Simple Proxy headers, and their replies.

use tracker::{ListenerPolicy, PrivateAddresses};

use super::*;

/// A server that trusts 127.0.0.1 and ::1 as proxies.
fn behind_proxy(listen: &str) -> UdpServer {
    let proxies = Networks::parse(["127.0.0.1", "::1"]).unwrap();
    UdpServer::with(listen, Some(proxies))
}

/// The 38-byte header of a proxy at 192.0.2.200 for `client`, put together by hand.
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

/// A trusted proxy and its server: for tests that need clients with public addresses.
pub(super) struct Proxy {
    client: UdpClient,
    // Stops when dropped.
    _server: UdpServer,
}

impl Proxy {
    pub(super) fn start() -> Self {
        let server = behind_proxy("127.0.0.1:0");
        Self { client: UdpClient::new("127.0.0.1", &server), _server: server }
    }

    /// Returns a connection id for `client`.
    pub(super) fn connect(&self, client: &str) -> u64 {
        self.client.connect_for(client)
    }

    /// Sends `packet` for `client` and returns the reply.
    pub(super) fn request(&self, client: &str, packet: &[u8]) -> Vec<u8> {
        self.client.request_for(client, packet)
    }
}

impl UdpClient {
    /// Sends `packet` for `client`. Returns the reply without its header, which must be the same.
    fn request_for(&self, client: &str, packet: &[u8]) -> Vec<u8> {
        self.request_behind(&header(client), packet)
    }

    fn request_behind(&self, header: &[u8], packet: &[u8]) -> Vec<u8> {
        let reply = self.request(&[header, packet].concat());
        assert_eq!(reply[..38], *header);
        reply[38..].to_vec()
    }

    fn connect_for(&self, client: &str) -> u64 {
        let reply = self.request_for(client, &connect(77));
        assert_eq!((reply.len(), u32_at(&reply, 0), u32_at(&reply, 4)), (16, CONNECT, 77));
        u64::from_be_bytes(reply[8..16].try_into().unwrap())
    }

    /// Returns whether `packet`, sent by a trusted proxy as it stands, is ignored.
    fn is_ignored_unwrapped(&self, packet: &[u8]) -> bool {
        self.socket.send(packet).unwrap();
        let marker = 0xfeed_f00d;
        u32_at(&self.request_for("192.0.2.1", &connect(marker)), 4) == marker
    }
}

//= spp#reply
//= type=test
#[test]
fn introduces_clients_behind_a_proxy_by_their_own_addresses() {
    for (listen, host) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        let server = behind_proxy(listen);
        let proxy = UdpClient::new(host, &server);
        let mut known = Vec::new();
        for (client, port) in [("192.0.2.1", 1), ("192.0.2.2", 2), ("192.0.2.3", 3)] {
            let id = proxy.connect_for(client);
            let reply =
                proxy.request_for(client, &announce(id, AnnounceFields { port, ..LEECHER }));
            let mut peers: Vec<_> =
                parse_announce(&reply).2.chunks(6).map(<[u8]>::to_vec).collect();
            peers.sort();
            assert_eq!(peers, known, "over {host}");
            known.push(vec![192, 0, 2, port as u8, 0, port as u8]);
        }
        // The client's family, not the proxy's, decides which peers it gets.
        let id = proxy.connect_for("2001:db8::1");
        let reply = proxy.request_for("2001:db8::1", &announce(id, LEECHER));
        assert_eq!(parse_announce(&reply), (4, 0, &[][..]));
        let id = proxy.connect_for("2001:db8::2");
        let reply = proxy.request_for("2001:db8::2", &announce(id, LEECHER));
        assert_eq!(parse_announce(&reply).2.len(), 18);
        assert_eq!(proxy.request_for("2001:db8::2", &scrape(id, &[HASH])).len(), 8 + 12);
        let counters = server.finish();
        assert_eq!(counters.requests, [[3, 3, 0, 0, 0], [2, 2, 1, 0, 0]]);
        assert_eq!(counters.responses, counters.requests);
    }
}

#[test]
fn binds_connection_ids_to_the_client_behind_a_proxy() {
    let server = behind_proxy("127.0.0.1:0");
    let proxy = UdpClient::new("127.0.0.1", &server);
    let id = proxy.connect_for("192.0.2.1");
    assert_ne!(id, proxy.connect_for("192.0.2.2"));
    let foreign = [header("192.0.2.2"), announce(id, LEECHER)].concat();
    assert!(proxy.is_ignored_unwrapped(&foreign));
    parse_announce(&proxy.request_for("192.0.2.1", &announce(id, LEECHER)));
    assert_eq!(server.finish().drops[DropReason::BadConnectionId.index()], 1);
}

#[test]
fn fits_wrapped_replies_into_one_datagram() {
    for (listen, host, room) in [
        ("127.0.0.1:0", "127.0.0.1", limits::UDP_PAYLOAD_V4_MAX - 38),
        ("[::1]:0", "::1", limits::UDP_PAYLOAD_V6_MAX - 38),
    ] {
        let server = behind_proxy(listen);
        populate(&server.tracker, Family::V4, 300);
        populate(&server.tracker, Family::V6, 300);
        let proxy = UdpClient::new(host, &server);
        let greedy = AnnounceFields { want: i32::MAX, ..LEECHER };
        let mut sent = 0;
        for (client, stride) in [("192.0.2.1", 6), ("2001:db8:1::1", 18)] {
            let id = proxy.connect_for(client);
            let reply = proxy.request_for(client, &announce(id, greedy));
            assert_eq!(parse_announce(&reply).2.len(), (room - 20) / stride * stride);
            sent += (room - 20) / stride;
            let reply = proxy.request_for(client, &scrape(id, &[HASH; 122]));
            assert_eq!(reply.len(), 8 + (room - 8) / 12 * 12);
        }
        assert_eq!(server.finish().peers_sent, sent as u64);
    }
}

#[test]
fn drops_unwrapped_datagrams_of_trusted_proxies() {
    let server = behind_proxy("127.0.0.1:0");
    let proxy = UdpClient::new("127.0.0.1", &server);
    let mut bad = 0;
    for packet in [connect(1), b"hello".to_vec(), header("192.0.2.1")[..37].to_vec(), vec![]] {
        assert!(proxy.is_ignored_unwrapped(&packet), "{packet:?}");
        bad += 1;
    }
    // The usual checks apply to the wrapped packet.
    assert!(proxy.is_ignored_unwrapped(&header("192.0.2.1")));
    assert!(proxy.is_ignored_unwrapped(&[header("192.0.2.1"), head(1, CONNECT, 1)].concat()));
    let oversize = [header("192.0.2.1"), vec![0; limits::UDP_REQUEST_MAX]].concat();
    assert!(proxy.is_ignored_unwrapped(&oversize));
    // Direct clients are still served.
    let direct = UdpClient::new("127.0.0.2", &server);
    parse_announce(&direct.request(&announce(direct.connect(), LEECHER)));
    let drops = server.finish().drops;
    assert_eq!(drops[DropReason::BadProxyHeader.index()], bad);
    assert_eq!(drops[DropReason::TooShort.index()], 1);
    assert_eq!(drops[DropReason::WrongMagic.index()], 1);
    assert_eq!(drops[DropReason::TooLong.index()], 1);
}

#[test]
fn drops_wrapped_datagrams_of_untrusted_addresses() {
    for server in [behind_proxy("127.0.0.1:0"), UdpServer::start("127.0.0.1:0")] {
        let untrusted = UdpClient::new("127.0.0.2", &server);
        for client in ["192.0.2.1", "2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::"] {
            for packet in [connect(1), announce(untrusted.connect(), LEECHER)] {
                assert!(untrusted.is_ignored(&[header(client), packet].concat()), "{client}");
            }
        }
        let counters = server.finish();
        assert_eq!(counters.drops[DropReason::UntrustedProxy.index()], 8);
        assert_eq!(counters.drops.iter().sum::<u64>(), 8);
    }
}

/// The proxy gets no more bytes than it sends for an unverified client.
#[test]
fn unverified_wrapped_bytes_out_never_exceed_bytes_in() {
    let (tracker, registry) = (tracker(false), MetricsRegistry::default());
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
            1 => announce(random.next(), AnnounceFields { want: i32::MAX, ..LEECHER }),
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
fn accepts_private_clients_that_reached_a_private_address() {
    let server = behind_proxy("127.0.0.1:0");
    let proxy = UdpClient::new("127.0.0.1", &server);
    let is_refused = |client: &str, reached: &str| {
        let header = header_to(client, reached);
        let reply = proxy.request_behind(&header, &connect(77));
        let id = u64::from_be_bytes(reply[8..16].try_into().unwrap());
        is_error(&proxy.request_behind(&header, &announce(id, LEECHER)), Refusal::AddressNotPublic)
    };
    assert!(is_refused("10.0.0.1", "8.8.8.8") && is_refused("fd00::1", "2606:4700::1"));
    assert!(is_refused("0.0.0.0", "10.0.0.2") && is_refused("ff02::1", "fe80::1"));
    assert!(!is_refused("10.0.0.1", "10.0.0.2") && !is_refused("9.9.9.9", "8.8.8.8"));
    assert!(!is_refused("9.9.9.9", "10.0.0.2"));
    assert_eq!(server.finish().refusals[Refusal::AddressNotPublic.index()], 4);
}

#[test]
fn applies_the_policy_for_private_addresses_to_direct_clients() {
    for (listen, host) in
        [("127.0.0.1:0", "127.0.0.2"), ("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "::1")]
    {
        let server = UdpServer::start(listen);
        let client = UdpClient::new(host, &server);
        let packet = announce(client.connect(), LEECHER);
        parse_announce(&client.request(&packet));
        let private_addresses = PrivateAddresses::Deny;
        let deny = ListenerPolicy { private_addresses, ..ListenerPolicy::default() };
        server.tracker.listener_policies().replace(vec![deny]);
        assert!(is_error(&client.request(&packet), Refusal::AddressNotPublic), "{listen}");
    }
}
