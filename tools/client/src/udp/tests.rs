//! Tests against trackers that lose datagrams or expire connection ids.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use types::{Event, PeerId};
use wire::udp::{AnnounceHead, Request, UnverifiedRequest, announce_reply, connect_reply, decode};

use super::*;
use crate::tls::{Trust, config};

const ANNOUNCE: Announce = Announce {
    event: Event::Started,
    left: Some(1),
    ..Announce::new(InfoHash([1; 20]), PeerId([2; 20]), 3)
};

/// Starts a tracker that issues the connection ids 1, 2, 3… and ignores the first `deaf` requests
/// of each kind. Returns a session with it, and the requests that it receives.
fn tracker(deaf: u32) -> (Udp, Receiver<&'static str>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (said, heard) = channel();
    thread::spawn(move || {
        let (mut ids, mut connects, mut announces) = (0, 0, 0);
        loop {
            let (mut buffer, mut slot) = ([0; 2048], [0; 2048]);
            let Ok((len, client)) = socket.recv_from(&mut buffer) else { break };
            let (name, number, len) = match decode(&buffer[..len]).unwrap() {
                Request::Connect { transaction_id } => {
                    connects += 1;
                    ids += u64::from(connects > deaf);
                    ("connect", connects, connect_reply(&mut slot, transaction_id, ids))
                }
                Request::Connected { connection_id, transaction_id, request: call } => {
                    assert!((1..=ids).contains(&connection_id));
                    assert!(matches!(call, UnverifiedRequest::Announce { .. }));
                    let (interval_s, leechers, seeders) = (1800, 1, 0);
                    let head = AnnounceHead { transaction_id, interval_s, leechers, seeders };
                    announces += 1;
                    ("announce", announces, announce_reply(&mut slot, &head))
                }
            };
            if said.send(name).is_err() {
                break;
            }
            if number > deaf {
                socket.send_to(&slot[..len], client).unwrap();
            }
        }
    });
    let url = Url::parse(&format!("udp://{address}")).unwrap();
    let tls = Arc::new(config(&Trust::NoVerification).unwrap());
    let config = SessionConfig::new(Duration::from_secs(60), tls);
    let mut udp = Udp::open(&url, address, &config).unwrap();
    udp.initial_timeout = if deaf > 0 { Duration::from_millis(20) } else { INITIAL_TIMEOUT };
    (udp, heard)
}

#[test]
fn reuses_a_connection_id_until_it_expires() {
    let (mut udp, heard) = tracker(0);
    udp.announce(&ANNOUNCE).unwrap();
    udp.announce(&ANNOUNCE).unwrap();
    let connection = udp.connection.as_mut().unwrap();
    connection.since = connection.since.checked_sub(CONNECTION_ID_LIFETIME).unwrap();
    udp.announce(&ANNOUNCE).unwrap();
    let expected = ["connect", "announce", "announce", "connect", "announce"];
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn retransmits_unanswered_requests() {
    let (mut udp, heard) = tracker(2);
    let announced = udp.announce(&ANNOUNCE).unwrap();
    assert_eq!((announced.interval_s, announced.leechers), (Some(1800), Some(1)));
    // More, if the machine is slow.
    assert!(udp.sent >= 6, "{}", udp.sent);
    let heard: Vec<_> = heard.try_iter().collect();
    assert_eq!(heard[..3], ["connect"; 3]);
    assert!(heard.iter().filter(|it| **it == "announce").count() >= 3, "{heard:?}");
}
