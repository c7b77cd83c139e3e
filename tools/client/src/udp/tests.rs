//! Against trackers that lose datagrams, and trackers that answer something else.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use types::{Event, NumWant, PeerId};
use wire::udp::{AnnounceHead, Request, VerifiedRequest, announce_reply, connect_reply, decode};

use super::*;
use crate::tls::{Trust, config};

const ANNOUNCE: Announce = Announce {
    info_hash: InfoHash([1; 20]),
    peer_id: PeerId([2; 20]),
    port: 3,
    event: Event::Started,
    left: Some(1),
    uploaded: 0,
    downloaded: 0,
    want: NumWant::Default,
};

/// A tracker that gives the connection ids 1, 2, 3…, and does not answer the first requests of each
/// kind; what it has heard.
fn tracker(deaf: u32) -> (Udp, Receiver<&'static str>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (said, heard) = channel();
    thread::spawn(move || {
        let (mut ids, mut connects, mut announces) = (0, 0, 0);
        loop {
            let (mut room, mut slot) = ([0; 2048], [0; 2048]);
            let Ok((len, client)) = socket.recv_from(&mut room) else { break };
            let (name, number, len) = match decode(&room[..len]).unwrap() {
                Request::Connect { transaction_id } => {
                    connects += 1;
                    ids += u64::from(connects > deaf);
                    ("connect", connects, connect_reply(&mut slot, transaction_id, ids))
                }
                Request::Connected { connection_id, transaction_id, request: call } => {
                    assert!((1..=ids).contains(&connection_id));
                    assert!(matches!(call, VerifiedRequest::Announce { .. }));
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
    let tls = Arc::new(config(&Trust::Anybody).unwrap());
    let manner = Manner::new(Duration::from_secs(60), tls);
    let mut udp = Udp::open(&url, address, &manner).unwrap();
    udp.first_wait = if deaf > 0 { Duration::from_millis(20) } else { FIRST_WAIT };
    (udp, heard)
}

#[test]
fn an_id_serves_for_several_announces() {
    let (mut udp, heard) = tracker(0);
    udp.announce(&ANNOUNCE).unwrap();
    udp.announce(&ANNOUNCE).unwrap();
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["connect", "announce", "announce"]);
}

#[test]
fn an_old_id_is_replaced() {
    let (mut udp, heard) = tracker(0);
    udp.announce(&ANNOUNCE).unwrap();
    let connection = udp.connection.as_mut().unwrap();
    connection.since = connection.since.checked_sub(LIFETIME).unwrap();
    udp.announce(&ANNOUNCE).unwrap();
    let expected = ["connect", "announce", "connect", "announce"];
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_not_answered_is_sent_again() {
    let (mut udp, heard) = tracker(2);
    let announced = udp.announce(&ANNOUNCE).unwrap();
    assert_eq!((announced.interval_s, announced.leechers), (Some(1800), Some(1)));
    // More, if the machine is slow.
    assert!(udp.sent >= 6, "{}", udp.sent);
    let heard: Vec<_> = heard.try_iter().collect();
    assert_eq!(heard[..3], ["connect"; 3]);
    assert!(heard.iter().filter(|it| **it == "announce").count() >= 3, "{heard:?}");
}
