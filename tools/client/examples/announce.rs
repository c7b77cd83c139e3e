//! Announces a torrent to a tracker over UDP, HTTP or WebTorrent as a peer that leaves again, and prints the peers:
//!
//! `cargo run --example announce -- udp://127.0.0.1:6969/announce 0123456789abcdef0123456789abcdef01234567`
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use tidegate_client::{Announce, Event, Session, SessionConfig, Url, peer_id};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, info_hash] = &words[..] else {
        return Err("expected a tracker's URL and an info hash".into());
    };
    let url = Url::parse(url)?;
    let config = SessionConfig::with_web_roots(Duration::from_secs(15))?;
    let (mut session, address) = Session::connect(&url, None, &config)?;
    let started = Announce {
        event: Event::Started,
        left: Some(1),
        ..Announce::new(info_hash.parse()?, peer_id(), 6881)
    };
    let response = session.announce(&started)?;
    println!("{address}: {} peers", response.peers.len());
    response.peers.iter().for_each(|peer| println!("{peer}"));
    session.announce(&Announce { event: Event::Stopped, ..started })?;
    Ok(())
}
