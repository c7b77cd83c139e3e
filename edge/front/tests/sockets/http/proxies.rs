//! The client's address behind proxies.

use tracker::PrivateAddresses;
use types::Refusal;

use super::*;

fn options(proxies: &[&str]) -> HttpOptions {
    let trusted_proxies = Networks::parse(proxies.iter().copied()).unwrap();
    HttpOptions { trusted_proxies, ..HttpOptions::default() }
}

fn behind(proxies: &[&str]) -> HttpServer {
    HttpServer::with(options(proxies))
}

/// A server that expects PROXY headers from these proxies.
fn announced(proxies: &[&str]) -> HttpServer {
    HttpServer::with(HttpOptions { proxy_protocol: true, ..options(proxies) })
}

const LINE: &[u8] = b"PROXY TCP4 192.0.2.9 192.0.2.200 4711 6969\r\n";
/// The same header in version 2, with an extension of 3 bytes.
const BINARY: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12\xc0\0\x02\x09\xc0\0\x02\xc8\x12\x67\x1b\x39\x04\0\x03abc";

fn external_ip(ip: [u8; 4]) -> Vec<u8> {
    [b"11:external ip4:".as_slice(), &ip].concat()
}

fn forwarded(port: u16, by: &str) -> String {
    get(&announce(port, ""), &format!("X-Forwarded-For: {by}\r\n"))
}

//= bep24#external-ip
//= type=test
#[test]
fn takes_forwarded_addresses_from_trusted_proxies_only() {
    let untrusted = behind(&["10.0.0.0/8"]);
    let response = untrusted.client().request(forwarded(1, "192.0.2.9"));
    assert!(response.has(b"11:external ip4:\x7f\0\0\x01"), "{}", response.text());
    let proxy = behind(&["127.0.0.1"]);
    let mut connection = proxy.client();
    let response = connection.request(forwarded(1, "198.51.100.1, 192.0.2.9"));
    assert!(response.has([b"11:external ip4:".as_slice(), &[192, 0, 2, 9]].concat()));
    // Without the header, the proxy itself is the client.
    let response = connection.request(get(&announce(2, ""), ""));
    assert!(response.has(b"11:external ip4:\x7f\0\0\x01"), "{}", response.text());
    assert!(response.has([b"5:peers6:".as_slice(), &[192, 0, 2, 9, 0, 1]].concat()));
}

//= bep7#peers6
//= type=test
#[test]
fn sends_peers_of_both_families_in_one_response() {
    let server = behind(&["127.0.0.1"]);
    let mut proxy = server.client();
    proxy.request(forwarded(1, "192.0.2.1"));
    proxy.request(forwarded(2, "\"[2001:db8::2]:4711\""));
    let v6 = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2];
    let expected = [b"5:peers6:".as_slice(), &[192, 0, 2, 1, 0, 1], b"6:peers618:", &v6, b"e"];
    for client in ["192.0.2.3", "2001:db8::3"] {
        let response = proxy.request(forwarded(3, client));
        assert!(response.body.ends_with(&expected.concat()), "{}", response.text());
        // Leave, so that the next client gets the same two peers.
        let stop = get(&announce(3, "&event=stopped"), &format!("X-Forwarded-For: {client}\r\n"));
        assert_eq!(proxy.request(stop).status, 200);
    }
    let counters = server.finish(Protocol::Http);
    assert_eq!((counters.requests[0], counters.requests[1]), ([0, 3, 0, 0, 0], [0, 3, 0, 0, 0]));
    assert_eq!(counters.peers_sent, 5);
}

#[test]
fn reads_the_configured_forwarding_header() {
    let forwarded_header = ForwardedHeader::Forwarded;
    let server = HttpServer::with(HttpOptions { forwarded_header, ..options(&["127.0.0.1"]) });
    let headers = "X-Forwarded-For: 198.51.100.1\r\n\
                   Forwarded: for=198.51.100.2, for=\"192.0.2.9:4711\";proto=https\r\n";
    let response = server.client().request(get(&announce(1, ""), headers));
    assert!(response.has(external_ip([192, 0, 2, 9])), "{}", response.text());
}

//= proxy#length
//= type=test
#[test]
fn applies_a_proxy_header_to_all_requests_of_its_connection() {
    for header in [LINE, BINARY] {
        let server = announced(&["127.0.0.1"]);
        let mut client = server.client();
        client.send([header, get(&announce(1, ""), "").as_bytes()].concat());
        assert!(client.receive().has(external_ip([192, 0, 2, 9])));
        // Forwarding headers of the client cannot change it.
        let response = client.request(forwarded(2, "198.51.100.1"));
        assert!(response.has(external_ip([192, 0, 2, 9])), "{}", response.text());
        assert!(response.has([b"5:peers6:".as_slice(), &[192, 0, 2, 9, 0, 1]].concat()));
        let counters = server.finish(Protocol::Http);
        assert_eq!((counters.requests[0][1], counters.drops.iter().sum::<u64>()), (2, 0));
    }
}

//= proxy#whole-header
//= type=test
#[test]
fn accepts_proxy_headers_byte_by_byte() {
    let server = announced(&["127.0.0.1"]);
    for header in [LINE, BINARY] {
        let mut client = server.client();
        for byte in [header, get(&announce(1, ""), "").as_bytes()].concat() {
            client.send([byte]);
        }
        assert!(client.receive().has(external_ip([192, 0, 2, 9])));
    }
    // The header alone, followed later by the request.
    let mut client = server.client();
    client.send(LINE);
    server.wait_for_counts(Protocol::Http, "accepted", |it| it.connections_opened == 3);
    assert!(client.request(get(&announce(1, ""), "")).has(external_ip([192, 0, 2, 9])));
}

#[test]
fn takes_forwarded_addresses_behind_a_chain_of_trusted_proxies() {
    let server = announced(&["127.0.0.1", "198.51.100.0/24"]);
    let line = b"PROXY TCP4 198.51.100.7 192.0.2.200 4711 6969\r\n";
    let mut client = server.client();
    client.send([line.as_slice(), forwarded(1, "203.0.113.1, 192.0.2.9").as_bytes()].concat());
    assert!(client.receive().has(external_ip([192, 0, 2, 9])));
    // The proxy's own health check.
    let mut client = server.client();
    client.send([b"PROXY UNKNOWN\r\n".as_slice(), forwarded(1, "192.0.2.9").as_bytes()].concat());
    assert!(client.receive().has(external_ip([127, 0, 0, 1])));
}

//= proxy#no-guessing
//= proxy#versions
//= type=test
#[test]
fn closes_connections_of_trusted_proxies_without_a_proxy_header() {
    let server = announced(&["127.0.0.1"]);
    let bad = [
        get(&announce(1, ""), "").into_bytes(),
        b"\x16\x03\x01\x02\0".to_vec(),
        b"PROXY TCP4 192.0.2.9 192.0.2.200 4711 69690\r\n".to_vec(),
        [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat(),
        [&BINARY[..12], &[0x31, 0x11, 0, 12]].concat(),
        [&BINARY[..12], &[0x21, 0x11, 0xff, 0xff]].concat(),
    ];
    for bytes in &bad {
        let mut client = server.client();
        client.send(bytes);
        client.expect_end_or_reset();
    }
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::BadProxyHeader.index()], bad.len() as u64);
    assert_eq!(counters.drops[DropReason::Reset.index()], 0);
    assert_eq!((counters.bytes_out, counters.requests), (0, [[0; 5]; 2]));
}

//= proxy#trusted-only
//= type=test
#[test]
fn rejects_proxy_headers_of_untrusted_addresses() {
    for server in [announced(&["10.0.0.0/8"]), behind(&["127.0.0.1"])] {
        for header in [LINE, BINARY] {
            let mut client = server.client();
            client.send([header, get(&announce(1, ""), "").as_bytes()].concat());
            assert_eq!(client.receive().status, 400);
        }
        // Untrusted clients without a header are served.
        assert_eq!(server.client().request(get(&announce(1, ""), "")).status, 200);
        let counters = server.finish(Protocol::Http);
        assert_eq!(counters.drops[DropReason::UntrustedProxy.index()], 2);
        assert_eq!((counters.drops[DropReason::BadHttp.index()], counters.requests[0][1]), (0, 1));
    }
}

#[test]
fn applies_the_head_timeout_to_proxy_headers() {
    let server = announced(&["127.0.0.1"]);
    let clients = [LINE, &LINE[..20], BINARY, &BINARY[..20]].map(|header| {
        let mut client = server.client();
        client.send(header);
        client
    });
    server.wait_for_counts(Protocol::Http, "all are accepted", |it| it.connections_opened == 4);
    server.advance(HttpOptions::default().head_timeout_s + 1);
    clients.into_iter().for_each(Client::expect_end_or_reset);
    assert_eq!(server.finish(Protocol::Http).drops[DropReason::TimedOut.index()], 4);
}

#[test]
fn accepts_private_clients_that_reached_a_private_address() {
    let server = announced(&["127.0.0.1"]);
    let refused = |client: &str, reached: &str| {
        let mut proxy = server.client();
        let line = format!("PROXY TCP4 {client} {reached} 4711 6969\r\n");
        let response = proxy.request(line + &get(&announce(1, ""), ""));
        assert_eq!(response.status, 200);
        response.has(Refusal::AddressNotPublic.text())
    };
    assert!(refused("10.0.0.1", "8.8.8.8") && refused("224.0.0.1", "10.0.0.2"));
    assert!(!refused("10.0.0.1", "10.0.0.2") && !refused("9.9.9.9", "8.8.8.8"));
    // Of IPv6 only those of hosts: one IPv4 address has a /48 of 6to4, and most of Teredo's to choose from.
    let refused_v6 = |client: &str| {
        let line = format!("PROXY TCP6 {client} fd00::1 4711 6969\r\n");
        let response = server.client().request(line + &get(&announce(1, ""), ""));
        response.has(Refusal::AddressNotPublic.text())
    };
    for tunnelled in ["2002:909:909::1", "2002:7f00:1::1", "2001::1", "2001:0:4136:e378:8000::"] {
        assert!(refused_v6(tunnelled), "{tunnelled}");
    }
    for fine in ["2001:470:1::1", "64:ff9b::9.9.9.9", "64:ff9b::10.0.0.1", "fd00::2"] {
        assert!(!refused_v6(fine), "{fine}");
    }
    assert_eq!(server.finish(Protocol::Http).refusals[Refusal::AddressNotPublic.index()], 6);
    // Without a PROXY header, the socket's local address counts, also at a wildcard listener.
    for (listen, host) in [("0.0.0.0:0", [127, 0, 0, 1]), ("127.0.0.1:0", [127, 0, 0, 1])] {
        let mut server = HttpServer::at(listen, options(&["127.0.0.1"]));
        server.address.set_ip(host.into());
        let mut client = server.client();
        assert!(!client.request(forwarded(1, "10.0.0.1")).has("failure"));
        let private_addresses = PrivateAddresses::Deny;
        let deny = ListenerPolicy { private_addresses, ..ListenerPolicy::default() };
        set_policy(&server.tracker, deny);
        assert!(client.request(forwarded(1, "10.0.0.1")).has(Refusal::AddressNotPublic.text()));
        assert!(!client.request(forwarded(1, "9.9.9.9")).has("failure"));
    }
}

#[test]
fn closes_a_connection_whose_proxy_header_takes_too_long() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let options = HttpOptions { trusted_proxies, proxy_protocol: true, ..HttpOptions::default() };
    let server = HttpServer::with(options);
    let timeout_s = HttpOptions::default().head_timeout_s;
    let mut client = server.client();
    client.send("PROXY ");
    server.wait_for_counts(Protocol::Http, "accepted", |it| it.connections_opened == 1);
    // More of it comes within the time, but not the end.
    for part in ["TCP4 ", "192.0.2.1 "] {
        server.advance(timeout_s / 2);
        client.send(part);
    }
    server.advance(1);
    client.expect_end_or_reset();
    assert_eq!(server.finish(Protocol::Http).drops[DropReason::TimedOut.index()], 1);
}
