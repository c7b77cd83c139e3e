//! Benchmarks the WebTorrent codec: `cargo bench -p tidegate-wire --bench webtorrent`
//!
//! Parses a browser's announce with 10 offers (12 kB), writes its offers as relays into frames, and
//! parses an announce without offers. For comparison, `serde_json` parses the same text with borrowed
//! raw values. Times are wall-clock. The minimum of many rounds is robust against other processes on
//! the core; the median needs a core of its own (`taskset -c 0`).
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use serde_json::value::RawValue;
use tidegate_wire::webtorrent::{Announce, Message, Offer, Relay, client, read};
use tidegate_wire::ws;
use types::{InfoHash, OfferId, PeerId};

/// Runs in a round. Few enough that a round ends before the scheduler preempts it.
const RUNS: u32 = 200;
const ROUNDS: usize = 501;

fn main() {
    let (long, short) = (announce(10), announce(0));
    println!("announces of {} and {} bytes", long.len(), short.len());
    let mut out = Vec::new();
    show("read, 10 offers", || drop(black_box(read(black_box(&long)))));
    show("read, 10 offers, and write 10 relays", || {
        out.clear();
        relay(&mut out, black_box(&long));
    });
    show("read, no offers", || drop(black_box(read(black_box(&short)))));
    show("serde_json, 10 offers", || _ = black_box(twin(black_box(&long))));
    show("serde_json, no offers", || _ = black_box(twin(black_box(&short))));
    let mut frame = Vec::new();
    ws::client::text(&mut frame, [1, 2, 3, 4], &long);
    let mut input = frame.clone();
    show("copy and read a frame of 10 offers", || {
        input.copy_from_slice(&frame);
        let event = ws::Reader::for_client_frames().read(&mut input, usize::MAX).event;
        assert!(matches!(black_box(event), ws::Event::Text(_)));
    });
}

fn show(what: &str, mut work: impl FnMut()) {
    let mut rounds: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let before = Instant::now();
            (0..RUNS).for_each(|_| work());
            before.elapsed().as_nanos()
        })
        .collect();
    rounds.sort_unstable();
    let [least, median] = [0, ROUNDS / 2].map(|round| rounds[round] / u128::from(RUNS));
    println!("{least:>6} ns, median {median:>6} ns  {what}");
}

/// Does what the front does with an announce, except for selecting peers.
fn relay(out: &mut Vec<u8>, text: &str) {
    let Ok(Message::Announce(announce)) = read(text) else { panic!("not read") };
    let relay = Relay::new(&announce.info_hash, &announce.peer_id);
    for offer in &announce.offers {
        ws::text_with(out, |out| relay.offer(out, offer));
    }
}

type Members<'a> = BTreeMap<&'a str, &'a RawValue>;

fn twin(text: &str) -> usize {
    #[expect(clippy::unwrap_used, reason = "the bench's own text")]
    let members: Members<'_> = serde_json::from_str(text).unwrap();
    let offers = members.get("offers").map_or("[]", |offers| offers.get());
    let offers: Vec<Members<'_>> = serde_json::from_str(offers).unwrap_or_default();
    offers.len() + members.len()
}

fn announce(offers: u8) -> String {
    // As JSON.stringify writes it: binary strings escape only what JSON requires.
    let offer = format!(r#"{{"type":"offer","sdp":"{}"}}"#, sdp().replace("\r\n", "\\r\\n"));
    let ids: Vec<OfferId> = (0..offers).map(|n| OfferId(random_bytes(n))).collect();
    let mut announce = Announce::new(InfoHash(random_bytes(100)), PeerId(*b"-WW0102-000000000001"));
    announce.left = Some(123_456);
    announce.offers = ids.iter().map(|id| Offer { id: *id, json: &offer }).collect();
    let mut text = Vec::new();
    client::announce(&mut text, &announce);
    #[expect(clippy::unwrap_used, reason = "the bench's own text")]
    String::from_utf8(text).unwrap()
}

fn random_bytes(seed: u8) -> [u8; 20] {
    let mut state = u64::from(seed) + 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
}

/// A data channel's session description with five candidates, like Chromium's: about 1 kB.
fn sdp() -> String {
    let mut text = String::from(
        "v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n\
        a=group:BUNDLE 0\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n\
        m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n",
    );
    for n in 1..=5 {
        let _ = write!(
            text,
            "a=candidate:299974585{n} 1 udp 211393715{n} 192.168.56.{n} 5141{n} typ host \
            generation 0 network-cost 999\r\n"
        );
    }
    text + "a=ice-ufrag:Xk7d\r\na=ice-pwd:0SxIs3QmVwqk4Q0Jt8pXyZ2b\r\na=fingerprint:sha-256 B5:4C:0A:8E:\
        1F:77:2D:90:C3:5A:66:0B:EE:91:24:D8:3B:7C:F0:15:A9:42:6E:83:DD:07:5F:B1:C8:39:64:12\r\n\
        a=setup:actpass\r\na=mid:0\r\na=sctp-port:5000\r\na=max-message-size:262144\r\n"
}
