//! Who a client is when a proxy speaks for it.

use super::*;

fn behind(proxies: &[&str]) -> Server {
    let trusted_proxies = Proxies::parse(proxies.iter().copied()).unwrap();
    Server::with("127.0.0.1:0", HttpOptions { trusted_proxies, ..HttpOptions::default() })
}

fn forwarded(port: u16, by: &str) -> String {
    get(&announce(port, ""), &format!("X-Forwarded-For: {by}\r\n"))
}

//= bep24#external-ip
//= type=test
#[test]
fn only_a_trusted_proxy_is_believed() {
    let stranger = behind(&["10.0.0.0/8"]);
    let response = stranger.client().ask(forwarded(1, "192.0.2.9"));
    assert!(response.has(b"11:external ip4:\x7f\0\0\x01"), "{}", response.text());
    let proxy = behind(&["127.0.0.1"]);
    let mut connection = proxy.client();
    let response = connection.ask(forwarded(1, "198.51.100.1, 192.0.2.9"));
    assert!(response.has([b"11:external ip4:".as_slice(), &[192, 0, 2, 9]].concat()));
    // Without the header the proxy speaks for itself.
    let response = connection.ask(get(&announce(2, ""), ""));
    assert!(response.has(b"11:external ip4:\x7f\0\0\x01"), "{}", response.text());
    assert!(response.has([b"5:peers6:".as_slice(), &[192, 0, 2, 9, 0, 1]].concat()));
}

//= bep7#peers6
//= type=test
#[test]
fn peers_of_both_families_stand_in_one_answer() {
    let server = behind(&["127.0.0.1"]);
    let mut proxy = server.client();
    proxy.ask(forwarded(1, "192.0.2.1"));
    proxy.ask(forwarded(2, "\"[2001:db8::2]:4711\""));
    let v6 = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2];
    let expected = [b"5:peers6:".as_slice(), &[192, 0, 2, 1, 0, 1], b"6:peers618:", &v6, b"e"];
    for asker in ["192.0.2.3", "2001:db8::3"] {
        let response = proxy.ask(forwarded(3, asker));
        assert!(response.body.ends_with(&expected.concat()), "{}", response.text());
        // Leave again, so that the next asker meets the same two.
        let stop = get(&announce(3, "&event=stopped"), &format!("X-Forwarded-For: {asker}\r\n"));
        assert_eq!(proxy.ask(stop).status, 200);
    }
    let counters = server.finish();
    assert_eq!((counters.requests[0], counters.requests[1]), ([0, 3, 0, 0, 0], [0, 3, 0, 0, 0]));
    assert_eq!(counters.peers_sent, 5);
}
