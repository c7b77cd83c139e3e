//! The client's address behind proxies. Whom a header names and who may send it is tested with `RemoteClient`, and with
//! the binary (app/tidegate/tests/end_to_end/listeners.rs).

use tracker::counters::Counters;
use types::Refusal;

use super::*;

const LINE: &[u8] = b"PROXY TCP4 192.0.2.9 192.0.2.200 4711 6969\r\n";
/// The same header in version 2, with an extension of 3 bytes.
const BINARY: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12\xc0\0\x02\x09\xc0\0\x02\xc8\x12\x67\x1b\x39\x04\0\x03abc";

/// The header precedes the first request, or the TLS handshake.
//= proxy#length
//= type=test
//= bep24#external-ip
//= type=test
#[test]
fn applies_a_proxy_header_to_all_requests_of_its_connection() {
    for header in [LINE, BINARY] {
        for parts in [1, header.len()] {
            let server = HttpServer::with(behind_proxy_protocol());
            let [plain, tls] = [server.address, server.second_address].map(|address| {
                let mut client = Client::connect(address);
                header.chunks(parts).for_each(|part| _ = client.send(part));
                client
            });
            // Forwarding headers of the client cannot change its address.
            for mut client in [plain, tls.begin_tls()] {
                for headers in ["", "X-Forwarded-For: 198.51.100.1\r\n"] {
                    let response = client.request(get(&announce(1, ""), headers));
                    assert!(response.has(b"11:external ip4:\xc0\0\x02\x09"), "{}", response.text());
                }
            }
            for counters in server.finish_both(HTTP) {
                assert_eq!(counters.drops, Counters::default().drops);
                assert_eq!(counters.requests[0][1], 2);
            }
        }
    }
}

/// Malformed headers of every kind are tested with the codec.
//= proxy#no-guessing
//= proxy#versions
//= type=test
#[test]
fn closes_connections_of_trusted_proxies_without_a_proxy_header() {
    let server = HttpServer::with(behind_proxy_protocol());
    let request = get(&announce(1, ""), "");
    let long = "PROXY UNKNOWN ".to_owned() + &"x".repeat(200);
    for (address, protocol) in [server.address, server.second_address].into_iter().zip(HTTP) {
        for bytes in [request.as_bytes(), long.as_bytes(), b"\x16\x03\x01\x02\0"] {
            let mut client = Client::connect(address);
            client.send(bytes);
            client.expect_end_or_reset();
        }
        // A connection that ends within its header, and a probe that sends nothing, which is no fault.
        Client::connect(address).send(&LINE[..9]);
        drop(Client::connect(address));
        server.wait_for_counts(protocol, "all are closed", |it| it.connections_closed == 5);
    }
    for counters in server.finish_both(HTTP) {
        assert_eq!(counters.drops[DropReason::BadProxyHeader.index()], 4);
        assert_eq!(counters.drops.iter().sum::<u64>(), 4);
        assert_eq!((counters.bytes_out, counters.requests), (0, [[0; 5]; 2]));
    }
}

#[test]
fn applies_the_head_timeout_to_proxy_headers() {
    let server = HttpServer::with(behind_proxy_protocol());
    let timeout_s = HttpOptions::default().head_timeout_s;
    // A whole header, and one whose end does not come.
    let [whole, mut half] = [LINE, &LINE[..20]].map(|header| {
        let mut client = server.client();
        client.send(header);
        client
    });
    server.wait_for_counts(Protocol::Http, "both are accepted", |it| it.connections_opened == 2);
    server.advance(timeout_s / 2);
    half.send(&LINE[20..25]);
    server.advance(timeout_s / 2 + 1);
    [whole, half].into_iter().for_each(Client::expect_end_or_reset);
    assert_eq!(server.finish(Protocol::Http).drops[DropReason::TimedOut.index()], 2);
}

#[test]
fn accepts_private_clients_that_reached_a_private_address() {
    // Without a PROXY header, the socket's local address counts.
    let server = HttpServer::with(behind_proxy());
    let forwarded = get(&announce(1, ""), "X-Forwarded-For: 10.0.0.1\r\n");
    assert!(!server.client().request(forwarded).has("failure"));
    let server = HttpServer::with(behind_proxy_protocol());
    for (reached, is_refused) in [("8.8.8.8", true), ("10.0.0.2", false)] {
        let line = format!("PROXY TCP4 10.0.0.1 {reached} 4711 6969\r\n");
        let response = server.client().request(line + &get(&announce(1, ""), ""));
        assert_eq!(response.has(Refusal::AddressNotPublic.text()), is_refused);
    }
}
