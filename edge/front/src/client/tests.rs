//! The headers that name the client, and the senders that are trusted to send them.

use wire::http::{ParsedRequest, read_head};

use super::*;

const TRUSTED: [&str; 3] = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"];

fn trusted() -> Networks {
    Networks::parse(TRUSTED).unwrap()
}

/// Returns the client's address for a request with `headers` from `client`.
fn client_of(client: &RemoteClient, header: ForwardedHeader, headers: &str) -> String {
    let text = format!("GET / HTTP/1.1\r\n{headers}\r\n");
    let ParsedRequest::Complete(request) = read_head(text.as_bytes()) else { panic!("{text}") };
    client.client_ip(&request, &trusted(), header).to_string()
}

fn client(peer: &str, headers: &str) -> String {
    let client = RemoteClient::new(peer.parse().unwrap(), || None, None);
    client_of(&client, ForwardedHeader::XForwardedFor, headers)
}

/// A connection of a trusted proxy that has sent `input`.
fn after_input(input: &[u8]) -> RemoteClient {
    let proxies = trusted();
    let mut client = RemoteClient::new([10, 0, 0, 1].into(), || None, Some(&proxies));
    assert!(matches!(client.read_proxy_header(input), Ok(Some(16..))));
    client
}

#[test]
fn ignores_headers_of_untrusted_addresses() {
    assert_eq!(client("1.2.3.4", "X-Forwarded-For: 5.6.7.8\r\n"), "1.2.3.4");
    assert_eq!(client("::ffff:1.2.3.4", ""), "1.2.3.4");
}

#[test]
fn takes_the_rightmost_untrusted_hop() {
    let header = "X-Forwarded-For: 9.9.9.9, 5.6.7.8, 10.1.1.1\r\n";
    assert_eq!(client("10.0.0.1", header), "5.6.7.8");
    assert_eq!(client("::ffff:10.0.0.1", header), "5.6.7.8");
    let split = "X-Forwarded-For: 5.6.7.8\r\nX-Forwarded-For: 192.0.2.7\r\n";
    assert_eq!(client("fd00::1", split), "5.6.7.8");
    assert_eq!(client("10.0.0.1", "X-Forwarded-For: 10.0.0.2\r\n"), "10.0.0.2");
    assert_eq!(client("10.0.0.1", ""), "10.0.0.1");
}

//= rfc7239#trust
//= type=test
#[test]
fn stops_at_a_hop_without_an_address() {
    assert_eq!(client("10.0.0.1", "X-Forwarded-For: 9.9.9.9, unknown\r\n"), "10.0.0.1");
    assert_eq!(client("10.0.0.1", "X-Forwarded-For: 9.9.9.9, , 10.0.0.9\r\n"), "10.0.0.9");
    let client = RemoteClient::new([10, 0, 0, 1].into(), || None, None);
    let of = |value: &str| {
        client_of(&client, ForwardedHeader::Forwarded, &format!("Forwarded: {value}\r\n"))
    };
    assert_eq!(of("for=9.9.9.9, for=_hidden, for=10.0.0.9"), "10.0.0.9");
    assert_eq!(of("for=9.9.9.9, for=5.6.7.8;proto=http, for=\"[fd00::2]:1\""), "5.6.7.8");
}

#[test]
fn reads_forwarding_headers_behind_a_proxy_header() {
    let header = "X-Forwarded-For: 9.9.9.9, 5.6.7.8\r\n";
    let of = |input: &[u8]| client_of(&after_input(input), ForwardedHeader::XForwardedFor, header);
    // The named client is another trusted proxy.
    assert_eq!(of(b"PROXY TCP4 10.0.0.9 10.0.0.1 4711 443\r\n"), "5.6.7.8");
    // The header names no client, so forwarding headers are ignored.
    assert_eq!(of(b"PROXY UNKNOWN 5.6.7.8\r\n"), "10.0.0.1");
    assert_eq!(of(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"), "10.0.0.1");
}

/// Private clients are tested over UDP and HTTP.
#[test]
fn looks_up_the_local_address_only_for_private_clients() {
    let unasked = || -> Option<IpAddr> { panic!("the local address was looked up") };
    assert!(!RemoteClient::new([8, 8, 8, 8].into(), unasked, None).via_local_address);
    assert!(RemoteClient::new([127, 0, 0, 1].into(), unasked, None).via_local_address);
    assert!(!RemoteClient::new([10, 1, 1, 1].into(), || None, None).via_local_address);
}
