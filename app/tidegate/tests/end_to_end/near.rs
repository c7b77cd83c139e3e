//! Responses with peers of the client's own zone.

use std::net::SocketAddr;

use crate::clients::Udp;
use crate::process::{Directory, Tracker};
use crate::udp::{Announce, HASH, LEECHER};

/// Returns a client with a connection id at 127.0.0.`host`.
fn client(host: u8, tracker: SocketAddr) -> Udp {
    Udp::at([127, 0, 0, host].into(), tracker).connected()
}

/// Joins 150 peers outside of 127.0.0.128/25 and 60 in it.
fn join(tracker: &Tracker) {
    let ports: Vec<u16> = (1001..1151).collect();
    client(2, tracker.udp4()).join(HASH, &ports);
    client(200, tracker.udp4()).join(HASH, &ports[..60]);
}

/// Returns how many peers of 127.0.0.128/25 a client there gets in 30 responses.
fn near_peers(tracker: &Tracker) -> usize {
    let client = client(201, tracker.udp4());
    let one = || {
        let reply = client.say(Announce { want: 50, ..LEECHER });
        let mut peers: Vec<&[u8]> = reply[20..].chunks(6).collect();
        let given = peers.len();
        peers.sort_unstable();
        peers.dedup();
        // A near peer that was chosen anyway may have no other one in its place.
        assert!(peers.len() == given && (48..=50).contains(&given), "{given}");
        peers.iter().filter(|peer| peer[3] >= 128).count()
    };
    (0..30).map(|_| one()).sum()
}

/// 60 of 210 peers are 14 of 50. A fifth of each response in their place are 10, and 11 of the others.
#[test]
fn a_part_of_each_response_is_from_the_clients_zone() {
    let plain = Tracker::start(Directory::new(), "");
    join(&plain);
    let found = near_peers(&plain);
    assert!(found < 30 * 17, "{found}");
    let near = "[geo]\nnear_percent = 20\nzones = [\"127.0.0.128/25 2001:db8::/32\"]\n";
    let near = Tracker::start(Directory::new(), near);
    join(&near);
    // A thread makes the zones while the tracker serves.
    near.wait_until("responses have near peers", |it| near_peers(it) > 30 * 18);
    assert!(near_peers(&near) < 30 * 25, "the others are as before");
}
