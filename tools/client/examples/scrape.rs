//! Prints the counts of torrents at a tracker:
//!
//! `cargo run --example scrape -- udp://127.0.0.1:6969/announce 0123456789abcdef0123456789abcdef01234567`
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use tidegate_client::{InfoHash, Session, SessionConfig, Url};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (url, hashes) = words.split_first().ok_or("expected a tracker's URL and info hashes")?;
    let hashes: Vec<InfoHash> = hashes.iter().map(|hash| hash.parse()).collect::<Result<_, _>>()?;
    let config = SessionConfig::with_web_roots(Duration::from_secs(15))?;
    let (mut session, _) = Session::connect(&Url::parse(url)?, None, &config)?;
    for (hash, stats) in hashes.iter().zip(session.scrape(&hashes)?) {
        match stats {
            Some(stats) => {
                println!("{hash} {} seeders, {} leechers", stats.seeders, stats.leechers)
            }
            None => println!("{hash} unknown"),
        }
    }
    Ok(())
}
