//! Parses one announce of a browser many times, for callgrind to count instructions. The commands and the figures
//! are in `bench/record/2026-11-23-json-scanner.md`. Arguments: `scanner`, `serde_json` or `none`, then the number
//! of offers in the announce.
//!
//! `serde_json` is the plain form, and does less than the tracker needs: ids stay text, any other form of
//! message is an error without a torrent, keys must not repeat, and nesting has no limit.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs)]

use std::borrow::Cow;
use std::hint::black_box;

use serde_json::value::RawValue;
use tidegate_wire::webtorrent::{append_binary_string, read};

const RUNS: usize = 1000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let text = announce(arguments[2].parse().unwrap());
    for _ in 0..RUNS {
        match arguments[1].as_str() {
            "scanner" => assert!(black_box(read(black_box(&text))).is_ok()),
            "serde_json" => {
                let message: Result<Plain<'_>, _> = serde_json::from_str(black_box(&text));
                assert!(black_box(message).is_ok());
            }
            _ => {}
        }
    }
}

#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "only the parsing is measured")]
struct Plain<'a> {
    action: &'a str,
    #[serde(borrow)]
    info_hash: Cow<'a, str>,
    #[serde(borrow)]
    peer_id: Cow<'a, str>,
    event: &'a str,
    left: Option<u64>,
    #[serde(borrow)]
    offers: Vec<PlainOffer<'a>>,
}

#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "only the parsing is measured")]
struct PlainOffer<'a> {
    #[serde(borrow)]
    offer_id: Cow<'a, str>,
    offer: &'a RawValue,
}

/// Returns an announce as Chromium's `JSON.stringify` writes it, with descriptions of about 1 kB.
fn announce(offers: usize) -> String {
    let line =
        r"a=candidate:2999745851 1 udp 2113937151 192.168.56.1 51411 typ host network-cost 999\r\n";
    let description = line.repeat(11);
    let id = |seed: usize| {
        let mut out = Vec::new();
        append_binary_string(&mut out, &std::array::from_fn(|at| (seed * 57 + at * 83) as u8));
        String::from_utf8(out).unwrap()
    };
    let offer = |number| {
        let id = id(number);
        format!(r#"{{"offer_id":{id},"offer":{{"type":"offer","sdp":"{description}"}}}}"#)
    };
    let offers: Vec<String> = (0..offers).map(offer).collect();
    format!(
        r#"{{"action":"announce","info_hash":{},"peer_id":"-WW0102-000000000001","event":"started","left":123456,"offers":[{}]}}"#,
        id(100),
        offers.join(",")
    )
}
