//! Options of announces (BEP 41), and clients behind a proxy.

use super::*;
use crate::site;

crate::site::on_engines! {
    serves_announces_with_any_options,
    serves_clients_behind_a_proxy,
}

#[test]
fn serves_announces_with_any_options() {
    let tracker = start("");
    let long = [&[2, 255][..], &[b'x'; 255]].concat().repeat(4);
    let sound: [&[u8]; 5] =
        [b"\x02\x09/announce", b"\x01\x01\x00 what follows the end", b"\x7f\x02ab", &[0], &long];
    let broken: [&[u8]; 3] = [b"\x02", b"\x02\x09/ann", b"\x7f\xff"];
    for to in both(&tracker) {
        let client = Udp::connect(to);
        for tail in sound.iter().chain(&broken) {
            let reply = client.request(&[&announce(client.id, LEECHER)[..], tail].concat());
            assert!(parse_announce(&reply).2.is_empty(), "{tail:?}");
        }
        wait_for_drops(&tracker, to, "malformed_options", broken.len() as u32);
    }
}

#[test]
fn serves_clients_behind_a_proxy() {
    let proxy = site::client(1).to_string();
    let variables = [("TIDEGATE_UDP__TRUSTED_PROXIES", proxy.as_str())];
    let log = "[log]\nlevel = \"front=debug\"\n";
    let tracker = Tracker::start_with(Directory::new(), log, &variables);
    let to = tracker.udp4();
    let proxy = Udp::unconnected(1, to);
    let ask = |host: u8, packet: &[u8]| {
        let reply = proxy.request(&[&proxy_header(host), packet].concat());
        assert_eq!(reply[..38], proxy_header(host));
        reply[38..].to_vec()
    };
    let id_of = |host| {
        let reply = ask(host, &connect(TRANSACTION));
        assert_eq!(reply[..8], connect(TRANSACTION)[8..]);
        u64::from_be_bytes(reply[8..].try_into().unwrap())
    };
    let [first, second] = [1, 2].map(id_of);
    assert_ne!(first, second, "ids belong to clients, not to the proxy");
    assert_eq!(parse_announce(&ask(1, &announce(first, LEECHER))), (1, 0, &[][..]));
    let expected = (2, 0, &[192, 0, 2, 1, 0x1a, 0xe1][..]);
    assert_eq!(parse_announce(&ask(2, &announce(second, LEECHER))), expected);
    // The log names the client of a refused announce, not the proxy.
    let refused = ask(1, &announce(first, Announce { port: 0, ..LEECHER }));
    assert!(is_error(&refused, Refusal::PortZero), "{}", refused.escape_ascii());
    tracker.wait_for_log("request refused client=\"192.0.2.1\"");
    // The id of another client, no header at all, and a header that is cut.
    let ignored = [
        [proxy_header(1), announce(second, LEECHER)].concat(),
        connect(1),
        announce(first, LEECHER),
        proxy_header(1)[..37].to_vec(),
    ];
    for packet in ignored {
        proxy.socket.send(&packet).unwrap();
        assert_eq!(ask(1, &head(first, UNKNOWN, MARKER))[4..8], MARKER.to_be_bytes());
    }
    wait_for_drops(&tracker, to, "bad_connection_id", 1);
    wait_for_drops(&tracker, to, "bad_proxy_header", 3);
    // Others are served without a header only.
    let direct = Udp::connect_as(2, to);
    parse_announce(&direct.say(LEECHER));
    assert!(direct.is_ignored(&[proxy_header(1), connect(1)].concat()));
    wait_for_drops(&tracker, to, "untrusted_proxy", 1);
}
