//! Clients behind proxies, and clients with private addresses.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

use crate::clients::{Udp, has, http_announce, u32_at};
use crate::process::{Directory, PATIENCE, Tracker};

/// Returns a Simple Proxy header for a client at 192.0.2.`host`.
pub(crate) fn header(host: u8) -> Vec<u8> {
    let mut header = vec![0x56, 0xec];
    for ip in [[192, 0, 2, host], [192, 0, 2, 200]] {
        header.extend([0; 10]);
        header.extend([0xff, 0xff]);
        header.extend(ip);
    }
    header.extend([0x12, 0x34, 0x1b, 0x39]);
    header
}

#[test]
fn introduces_clients_of_proxies_by_their_own_addresses() {
    let variables = [
        ("TIDEGATE_UDP__SIMPLE_PROXY", "true"),
        ("TIDEGATE_UDP__TRUSTED_PROXIES", "127.0.0.1"),
        ("TIDEGATE_HTTP__PROXY_PROTOCOL", "v1v2"),
        ("TIDEGATE_HTTP__TRUSTED_PROXIES", "127.0.0.0/8"),
    ];
    let log = "[log]\nlevel = \"front=debug\"\n";
    let tracker = Tracker::start_with(Directory::new(), log, &variables);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = |packet: &[u8]| {
        socket.send_to(&[&header(1), packet].concat(), tracker.udp4()).unwrap();
        let mut reply = vec![0; 2048];
        let len = socket.recv(&mut reply).unwrap();
        assert_eq!(reply[..38], header(1));
        reply[38..len].to_vec()
    };
    let id = &ask(&[0x417_2710_1980_u64, 0x5eed].map(u64::to_be_bytes).concat())[8..];
    let mut packet = [id, &[0, 0, 0, 1, 0, 0, 0x5e, 0xed], &[0xaa; 20]].concat();
    packet.extend(b"-XX0001-000000000000");
    packet.extend([0, 1, 0].map(u64::to_be_bytes).as_flattened());
    packet.extend([0, 0, 0, -1].map(i32::to_be_bytes).as_flattened());
    packet.extend(1001_u16.to_be_bytes());
    assert_eq!(u32_at(&ask(&packet), 0), 1);
    // The log names the client of a refused announce, not the proxy.
    packet.truncate(96);
    packet.extend([0, 0]);
    assert_eq!(u32_at(&ask(&packet), 0), 3);
    tracker.wait_for_log("request refused client=\"192.0.2.1\"");

    let mut stream = TcpStream::connect(tracker.http4()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let target = format!("/announce?info_hash={}&peer_id={0}&port=1002", "%aa".repeat(20));
    let request = format!(
        "PROXY TCP4 192.0.2.2 192.0.2.200 4711 6969\r\n\
         GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    for expected in [b"5:peers6:\xc0\0\x02\x01\x03\xe9".as_slice(), b"external ip4:\xc0\0\x02\x02"]
    {
        assert!(has(&answer, expected), "{}", answer.escape_ascii());
    }
    // The proxy is not trusted over IPv6, so these clients are direct.
    assert_eq!(u32_at(&Udp::connect(tracker.udp6()).announce(0xaa, 1003), 12), 3);
}

#[test]
fn refuses_private_addresses_after_a_reload() {
    let tracker = Tracker::start(Directory::new(), "");
    let udp = Udp::connect(tracker.udp4());
    assert_eq!(u32_at(&udp.announce(0xaa, 1001), 0), 1);
    tracker.configure("[tracker]\nprivate_addresses = \"deny\"\n");
    tracker.reload();
    tracker.wait_until("reloaded", |it| it.metric("tidegate_reloads_total") == 1.0);
    let why = "other peers cannot reach your address";
    assert!(has(&udp.announce(0xaa, 1001), why));
    let body = http_announce(tracker.http4(), 0xaa, 1002);
    assert!(has(&body, why), "{}", body.escape_ascii());
    for (protocol, address) in [("udp", tracker.udp4()), ("http", tracker.http4())] {
        let series = format!(
            "tidegate_refusals_total{{listener=\"{address}\",protocol=\"{protocol}\",\
             reason=\"address_not_public\"}}"
        );
        tracker.wait_until(&series, |it| it.metric(&series) == 1.0);
    }
}
