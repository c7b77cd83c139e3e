//! Parses one announce of a browser many times, for callgrind to count instructions. The commands and the figures
//! are in `bench/record/2026-11-23-json-scanner.md`. Arguments: `scanner`, `serde_json` or `none`, then the number
//! of offers in the announce.
//!
//! `serde_json` is the plain form with as little as possible: borrowed types, and a message of any other form is an
//! error. What our parser does beyond that is left out: refusals that name the torrent, repeated keys, numbers
//! of any form, and the limit of nesting.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs)]

use std::fmt;
use std::hint::black_box;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
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

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the parsing is measured")]
struct Plain<'a> {
    action: &'a str,
    info_hash: BinaryString,
    peer_id: BinaryString,
    event: Option<&'a str>,
    left: Option<u64>,
    uploaded: Option<u64>,
    downloaded: Option<u64>,
    numwant: Option<u64>,
    #[serde(borrow, default)]
    offers: Vec<PlainOffer<'a>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the parsing is measured")]
struct PlainOffer<'a> {
    offer_id: BinaryString,
    #[serde(borrow)]
    offer: &'a RawValue,
}

#[expect(dead_code, reason = "only the parsing is measured")]
struct BinaryString([u8; 20]);

impl<'de> Deserialize<'de> for BinaryString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Characters;
        impl Visitor<'_> for Characters {
            type Value = BinaryString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("20 characters")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<BinaryString, E> {
                let mut bytes = [0; 20];
                for (slot, character) in bytes.iter_mut().zip(text.chars()) {
                    *slot = u8::try_from(character).map_err(E::custom)?;
                }
                Ok(BinaryString(bytes))
            }
        }
        deserializer.deserialize_str(Characters)
    }
}

/// An announce as Chromium's `JSON.stringify` writes it, with descriptions of about 1 kB.
fn announce(offers: u8) -> String {
    let head = r"v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n";
    let line = r"a=candidate:2999745851 1 udp 2113937151 192.168.56.1 51411 typ host generation 0 network-cost 999\r\n";
    let sdp = head.to_owned() + &line.repeat(9);
    let mut text = br#"{"numwant":10,"uploaded":0,"downloaded":0,"left":123456,"event":"started","action":"announce","info_hash":"#.to_vec();
    append_binary_string(&mut text, &random_bytes(100));
    text.extend(br#","peer_id":"-WW0102-000000000001","offers":["#);
    for number in 0..offers {
        text.extend(if number == 0 { "{\"offer_id\":" } else { ",{\"offer_id\":" }.bytes());
        append_binary_string(&mut text, &random_bytes(number));
        text.extend(format!(r#","offer":{{"type":"offer","sdp":"{sdp}"}}}}"#).bytes());
    }
    text.extend(b"]}");
    String::from_utf8(text).unwrap()
}

fn random_bytes(seed: u8) -> [u8; 20] {
    let mut state = u64::from(seed) + 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
}
