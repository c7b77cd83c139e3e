//! What must hold for any input of each parser. libFuzzer searches for inputs that break it
//! (`cargo xtask fuzz NAME`), and a plain test replays the corpora on the stable toolchain.
#![forbid(unsafe_code)]

use types::limits::{SCRAPE_HASHES_HTTP_MAX, SCRAPE_HASHES_UDP_MAX};
use types::{InfoHash, SwarmCounts};
use wire::bencode::{Encoder, Value, parse};
use wire::http::{Head, ScrapeQuery, Target, announce_query, read_head};
use wire::udp::{self, Call, Request};

/// Whatever is decoded encodes to a request that decodes to the same; answers stay in their slots.
pub fn udp(bytes: &[u8]) {
    let Ok(request) = udp::decode(bytes) else { return };
    let mut room = [0; 64];
    match request {
        Request::Connect { .. } => assert!(bytes.len() >= 16),
        Request::Connected { connection_id, transaction_id, call } => match call {
            Call::Announce { announce, options } => {
                let url = options.url_data(&mut room).to_vec();
                let mut again = Vec::new();
                udp::client::announce(&mut again, connection_id, transaction_id, &announce, &url);
                let Ok(Request::Connected {
                    call: Call::Announce { announce: twin, options }, ..
                }) = udp::decode(&again)
                else {
                    panic!("an announce that is none when encoded")
                };
                assert_eq!((twin, options.url_data(&mut room)), (announce, url.as_slice()));
            }
            Call::Scrape(hashes) => {
                assert!((1..=SCRAPE_HASHES_UDP_MAX).contains(&hashes.len()));
                let counts = vec![SwarmCounts::default(); hashes.len()];
                let mut slot = [0; 100];
                assert!(udp::scrape_reply(&mut slot, transaction_id, &counts) <= slot.len());
            }
            Call::Malformed(refusal) => {
                let mut slot = [0; 30];
                assert!(udp::error_reply(&mut slot, transaction_id, refusal.text()) <= slot.len());
            }
        },
    }
    let _ = udp::client::decode_reply(bytes);
}

/// A request ends where it says; more input behind it changes nothing; queries never panic.
pub fn http(bytes: &[u8]) {
    let Head::Whole(request) = read_head(bytes) else { return };
    assert!((1..=bytes.len()).contains(&request.consumed));
    let exact = bytes.split_at(request.consumed).0;
    let Head::Whole(twin) = read_head(exact) else { panic!("a request that needs what follows") };
    assert_eq!((twin.target, twin.keep_alive), (request.target, request.keep_alive));
    let _ = request.forwarded_for().count();
    match request.target {
        Target::Announce(query) => drop(announce_query(query)),
        Target::Scrape(query) => {
            let mut room = [InfoHash::default(); SCRAPE_HASHES_HTTP_MAX];
            if let Ok(hashes) = ScrapeQuery::new(query).read_into(&mut room) {
                assert!(!hashes.is_empty() && hashes.is_sorted_by(|a, b| a < b));
            }
        }
        Target::Keyed | Target::Unknown => {}
    }
}

/// What is accepted is what the encoder would have written.
pub fn bencode(bytes: &[u8]) {
    let Ok(value) = parse(bytes) else { return };
    if let Some(again) = encoded(&value) {
        assert_eq!(again, bytes);
    }
}

/// The text of a value; nothing if it holds a negative number, which the encoder does not write.
fn encoded(value: &Value<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match value {
        Value::Int(number) => Encoder::new(&mut out).int(u64::try_from(*number).ok()?),
        Value::Bytes(bytes) => Encoder::new(&mut out).bytes(bytes),
        Value::List(items) => {
            Encoder::new(&mut out).list();
            for item in items {
                out.extend(encoded(item)?);
            }
            Encoder::new(&mut out).end();
        }
        Value::Dict(entries) => {
            Encoder::new(&mut out).dict();
            for (key, value) in entries {
                Encoder::new(&mut out).bytes(key);
                out.extend(encoded(value)?);
            }
            Encoder::new(&mut out).end();
        }
    }
    Some(out)
}
