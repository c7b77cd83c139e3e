//! Clients behind proxies.

use crate::clients::{Udp, u32_at};
use crate::process::{Directory, Tracker};
use crate::udp::{Announce, LEECHER, announce, connect};

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

/// The log names the client of a refused announce, not the proxy. `udp::options` and `listeners` have the rest.
#[test]
fn the_log_has_the_addresses_of_clients_behind_proxies() {
    let variables = [("TIDEGATE_UDP__TRUSTED_PROXIES", "127.0.0.1")];
    let log = "[log]\nlevel = \"front=debug\"\n";
    let tracker = Tracker::start_with(Directory::new(), log, &variables);
    let proxy = Udp::unconnected(1, tracker.udp4());
    let reply = proxy.request(&[header(1), connect(1)].concat());
    let id = u64::from_be_bytes(reply[46..54].try_into().unwrap());
    let refused = announce(id, Announce { port: 0, ..LEECHER });
    assert_eq!(u32_at(&proxy.request(&[header(1), refused].concat())[38..], 0), 3);
    tracker.wait_for_log("request refused client=\"192.0.2.1\"");
}
