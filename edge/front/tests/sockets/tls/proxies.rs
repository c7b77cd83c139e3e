//! PROXY headers before TLS.

use super::*;

const LINE: &[u8] = b"PROXY TCP4 192.0.2.9 192.0.2.200 4711 6969\r\n";

fn behind(proxies: &[&str]) -> HttpServer {
    let trusted_proxies = Networks::parse(proxies.iter().copied()).unwrap();
    HttpServer::tls(HttpOptions { trusted_proxies, proxy_protocol: true, ..HttpOptions::default() })
}

/// TLS over a TCP connection that may have carried a header already.
fn client_over(stream: TcpStream) -> TlsClient {
    handshake_over(stream, "tracker.test", client_config(&VERSIONS))
}

/// Checks that the client is known by the address of the header.
fn assert_named(mut client: TlsClient) {
    let response = client.request(announce(1, "X-Forwarded-For: 198.51.100.1\r\n"));
    let named = [b"11:external ip4:".as_slice(), &[192, 0, 2, 9]].concat();
    assert!(response.has(named), "{}", response.text());
}

#[test]
fn reads_a_proxy_header_before_the_handshake() {
    let server = behind(&["127.0.0.1"]);
    let mut stream = connect(server.second_address.unwrap());
    stream.write_all(LINE).unwrap();
    assert_named(client_over(stream));
    // Byte by byte.
    let mut stream = connect(server.second_address.unwrap());
    for byte in LINE {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_named(client_over(stream));
    // In one write with the ClientHello.
    let mut client = client_over(connect(server.second_address.unwrap()));
    let mut both = LINE.to_vec();
    client.0.stream.conn.write_tls(&mut both).unwrap();
    client.0.stream.sock.write_all(&both).unwrap();
    assert_named(client);
    let counters = server.finish(Protocol::Https);
    assert_eq!((counters.tls_handshakes, counters.drops), (3, Counters::default().drops));
}

#[test]
fn refuses_the_handshake_of_a_trusted_proxy_without_a_header() {
    let server = behind(&["127.0.0.1"]);
    let mut client = client_over(connect(server.second_address.unwrap()));
    assert!(client.0.stream.write_all(b"GET").is_err());
    // A probe that connects and sends nothing is not counted as a fault.
    drop(connect(server.second_address.unwrap()));
    let mut half = connect(server.second_address.unwrap());
    half.write_all(&LINE[..9]).unwrap();
    drop(half);
    server.wait_for_counts(Protocol::Https, "all are closed", |it| it.connections_closed == 3);
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops[DropReason::BadProxyHeader.index()], 2);
    assert_eq!(counters.drops.iter().sum::<u64>(), 2);
}

#[test]
fn refuses_a_proxy_header_of_an_untrusted_address() {
    let server = behind(&["10.0.0.0/8"]);
    for header in [LINE, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let mut stream = connect(server.second_address.unwrap());
        stream.write_all(header).unwrap();
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops[DropReason::UntrustedProxy.index()], 2);
    assert_eq!(counters.drops.iter().sum::<u64>(), 2);
}
