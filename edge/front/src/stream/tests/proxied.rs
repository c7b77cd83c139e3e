//! PROXY headers before TLS.

use super::*;

const LINE: &[u8] = b"PROXY TCP4 192.0.2.9 192.0.2.200 4711 6969\r\n";

fn behind(proxies: &[&str]) -> Server {
    let trusted_proxies = Networks::parse(proxies.iter().copied()).unwrap();
    Server::with(HttpOptions { trusted_proxies, proxy_protocol: true, ..HttpOptions::default() })
}

/// TLS over `stream`, which has said so much already.
fn client_over(server: &Server, stream: TcpStream) -> Client {
    let host = "tracker.test".try_into().unwrap();
    let tls = ClientConnection::new(Arc::clone(&server.client_config), host).unwrap();
    Client { tls: StreamOwned::new(tls, stream), heard: Vec::new() }
}

fn assert_named(client: &mut Client) {
    let (_, body) = client.ask(announce(1, "X-Forwarded-For: 198.51.100.1\r\n"));
    let named = [b"11:external ip4:".as_slice(), &[192, 0, 2, 9]].concat();
    assert!(find(&body, &named).is_some(), "{}", body.escape_ascii());
}

#[test]
fn the_header_comes_before_the_handshake() {
    let server = behind(&["127.0.0.1"]);
    let mut stream = server.connect();
    stream.write_all(LINE).unwrap();
    assert_named(&mut client_over(&server, stream));
    // Byte by byte.
    let mut stream = server.connect();
    for byte in LINE {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_named(&mut client_over(&server, stream));
    // In one write with what the client begins with.
    let mut client = client_over(&server, server.connect());
    let mut both = LINE.to_vec();
    client.tls.conn.write_tls(&mut both).unwrap();
    client.tls.sock.write_all(&both).unwrap();
    assert_named(&mut client);
    let counters = server.finish(Protocol::Https);
    assert_eq!((counters.tls_handshakes, counters.drops), (3, Counters::default().drops));
}

#[test]
fn without_the_header_a_trusted_proxy_gets_no_handshake() {
    let server = behind(&["127.0.0.1"]);
    let mut client = client_over(&server, server.connect());
    assert!(client.tls.write_all(b"GET").is_err());
    // Who only looks whether somebody is here has done nothing wrong.
    drop(server.connect());
    let mut half = server.connect();
    half.write_all(&LINE[..9]).unwrap();
    drop(half);
    wait_until("all have ended", || server.counters(Protocol::Https).connections_closed == 3);
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops[DropReason::BadProxyHeader.index()], 2);
    assert_eq!(counters.drops.iter().sum::<u64>(), 2);
}

#[test]
fn a_strangers_header_is_no_handshake() {
    let server = behind(&["10.0.0.0/8"]);
    for header in [LINE, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let mut stream = server.connect();
        stream.write_all(header).unwrap();
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops[DropReason::UntrustedProxy.index()], 2);
    assert_eq!(counters.drops.iter().sum::<u64>(), 2);
}
