//! Scrapes of all torrents of a roster.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use client::codec::udp::{self as codec, Reply, decode_reply};
use types::InfoHash;

use super::super::worker;
use super::{CONNECT_MAX, Roster};

/// Torrents per scrape.
const SCRAPE: usize = 70;

impl Roster {
    /// Scrapes all torrents, at the first node. Returns seeders and leechers of each.
    ///
    /// # Errors
    ///
    /// Fails if the tracker does not answer.
    pub fn scrape(&self) -> Result<Vec<(u32, u32)>> {
        let tracker = *self.trackers.first().context("not connected")?;
        let all = self.scrape_at(tracker)?;
        Ok(all.into_iter().map(|[seeders, _, leechers]| (seeders, leechers)).collect())
    }

    /// Scrapes all torrents at a node. Returns seeders, downloads and leechers of each.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer.
    pub fn scrape_at(&self, tracker: SocketAddr) -> Result<Vec<[u32; 3]>> {
        let socket = worker::plain_socket(Some(self.peers.options.source(0)), tracker)?;
        socket.set_read_timeout(Some(CONNECT_MAX / 20))?;
        let ask = |write: &dyn Fn(&mut Vec<u8>)| -> Result<Vec<u8>> {
            let mut request = Vec::new();
            write(&mut request);
            for _ in 0..20 {
                socket.send(&request)?;
                let mut answer = vec![0; 2048];
                if let Ok(len) = socket.recv(&mut answer) {
                    answer.truncate(len);
                    return Ok(answer);
                }
            }
            bail!("no answer to a scrape")
        };
        let Some((_, Reply::Connect { connection_id })) =
            decode_reply(&ask(&|out| codec::connect(out, 1))?)
        else {
            bail!("no connection id for scrapes")
        };
        let torrents: Vec<u32> = (0..self.torrents()).collect();
        let mut counts = Vec::new();
        for (number, some) in (2..).zip(torrents.chunks(SCRAPE)) {
            let hashes: Vec<InfoHash> = some.iter().map(|it| self.info_hash(*it)).collect();
            let answer = ask(&|out| codec::scrape(out, connection_id, number, &hashes))?;
            match decode_reply(&answer) {
                Some((id, Reply::Scrape(bytes))) if id == number => {
                    counts.extend(read_scrape(bytes))
                }
                other => bail!("expected the answer to a scrape, found {other:?}"),
            }
        }
        ensure!(
            counts.len() == torrents.len(),
            "scraped {} of {} torrents",
            counts.len(),
            torrents.len()
        );
        Ok(counts)
    }
}

fn read_scrape(bytes: &[u8]) -> impl Iterator<Item = [u32; 3]> {
    let number = |four: &[u8]| four.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    bytes.chunks_exact(12).map(move |one| [&one[..4], &one[4..8], &one[8..]].map(number))
}
