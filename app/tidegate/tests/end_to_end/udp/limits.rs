//! Bans and rates.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::api::start_in;
use crate::process::PATIENCE;
use crate::site;

crate::site::on_engines! {
    ignores_banned_networks,
    limits_connects,
    limits_announces_and_scrapes,
    blocks_sources_of_floods,
}

/// Waits until a packet of `client` is answered, or until it is not.
fn wait_for_answers(client: &Udp, packet: &[u8], are_answered: bool) {
    client.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    harness::wait_until("requests are answered or not", || {
        client.socket.send(packet).unwrap();
        client.receive().is_ok() == are_answered
    });
    // Late replies to what was sent before.
    while client.receive().is_ok() {}
    client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn ignores_banned_networks() {
    let (tracker, api) = start_in(Directory::new(), "[limits]\nexempt = []\n");
    let [v4, v6] = both(&tracker);
    let network = std::net::Ipv4Addr::from_bits(site::client(1).to_bits() & !0xff);
    // A network of 256 addresses, and one address.
    for (to, ban) in [
        (v4, format!("{network}/24")),
        (v4, format!("{}/32", site::client_of(1, v4))),
        (v6, format!("{}/128", site::client_of(1, v6))),
    ] {
        let [client, other] = [1, 2].map(|number| Udp::connect_as(number, to));
        let packets = [announce(client.id, LEECHER), scrape(client.id, &[HASH]), connect(1)];
        // Loopback addresses are in one network.
        let has_neighbour = ban.ends_with("/24") && site::client(1).is_loopback();
        let is_other_banned = other.id == client.id || has_neighbour;
        api.expect(201, "POST /bans", Some(&json!({ "network": ban })));
        packets.iter().for_each(|packet| wait_for_answers(&client, packet, false));
        let reason = [("protocol", "udp"), ("reason", "banned")];
        let drops = |it: &Tracker| it.sum("tidegate_drops_total", &reason);
        let before = drops(&tracker);
        for packet in &packets {
            client.socket.send(packet).unwrap();
        }
        tracker.wait_until("counted", |it| drops(it) >= before + 3.0);
        if !is_other_banned {
            parse_announce(&other.say(LEECHER));
        }
        api.expect(204, &format!("DELETE /bans/{ban}"), None);
        packets.iter().for_each(|packet| wait_for_answers(&client, packet, true));
    }
}

/// Sends many packets and returns how many were answered.
fn flood(client: &Udp, packet: &[u8], count: u32) -> u32 {
    for _ in 0..count {
        client.socket.send(packet).unwrap();
    }
    let marker = head(client.id, UNKNOWN, MARKER);
    client.socket.send(&marker).unwrap();
    let replies = std::iter::from_fn(|| client.receive().ok());
    replies.take_while(|reply| u32_at(reply, 4) != MARKER).count() as u32
}

#[test]
fn limits_connects() {
    let tracker = start("[limits]\nexempt = []\nconnects_per_s = 1\nconnects_burst = 4\n");
    for to in both(&tracker) {
        let client = Udp::connect(to);
        let answered = flood(&client, &connect(TRANSACTION), 40);
        // The first was answered before. Some seconds may have passed.
        assert!((3..20).contains(&answered), "{answered} at {to}");
        wait_for_drops(&tracker, to, "connect_rate", 40 - answered);
        // Verified requests have a rate of their own, and so have other addresses.
        parse_announce(&client.say(LEECHER));
        if to.is_ipv4() {
            Udp::connect_as(2, to);
        }
    }
}

#[test]
fn limits_announces_and_scrapes() {
    let rates = "announces_per_s = 1\nannounces_burst = 4\nscrapes_per_s = 1\nscrapes_burst = 4\n";
    let tracker = start(&format!("[limits]\nexempt = []\n{rates}"));
    let to = tracker.udp4();
    // One for each kind: the marker counts as an announce.
    let mut dropped = 0;
    for (number, is_scrape) in [(1, true), (2, false)] {
        let client = Udp::connect_as(number, to);
        let packet =
            if is_scrape { scrape(client.id, &[HASH]) } else { announce(client.id, LEECHER) };
        for _ in 0..40 {
            client.socket.send(&packet).unwrap();
        }
        let reason = [("protocol", "udp"), ("reason", "request_rate")];
        let drops = |it: &Tracker| it.sum("tidegate_drops_total", &reason);
        tracker.wait_until("dropped", |it| drops(it) >= f64::from(dropped + 20));
        client.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let answered = std::iter::from_fn(|| client.receive().ok()).count() as u32;
        assert!((4..20).contains(&answered), "{answered}");
        dropped += 40 - answered;
        wait_for_drops(&tracker, to, "request_rate", dropped);
    }
}

#[test]
fn blocks_sources_of_floods() {
    let tracker = start(
        "[limits]\nexempt = []\nannounces_per_s = 1\nannounces_burst = 3\nkernel_block_per_s = 10\n\
         kernel_block_s = 3600\n",
    );
    let to = tracker.udp4();
    let [flooder, other] = [1, 2].map(|number| Udp::connect_as(number, to));
    flooder.socket.set_nonblocking(true).unwrap();
    let mut unanswered = 0;
    harness::wait_until("the flooder's connects are dropped, too", || {
        for _ in 0..50 {
            flooder.socket.send(&announce(flooder.id, LEECHER)).unwrap();
        }
        flooder.socket.send(&connect(4)).unwrap();
        // Replies to the flooder have been sent when this is answered, or soon after.
        other.request(&connect(5));
        let is_connect = |reply: Vec<u8>| u32_at(&reply, 0) == CONNECT;
        let is_answered = std::iter::from_fn(|| flooder.receive().ok()).any(is_connect);
        unanswered = if is_answered { 0 } else { unanswered + 1 };
        unanswered == 20
    });
    let labels = [("protocol", "udp")];
    tracker.wait_until("counted", |it| it.sum("tidegate_kernel_blocks_total", &labels) >= 1.0);
}
