//! Many peers at once, announced on schedule.

use std::collections::{HashSet, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use client::codec::udp::{self as codec, Reply, decode_reply};
use types::{Event, InfoHash};

use super::{ASK_EVERY, LOOK_EVERY, REPEAT_AFTER, Sightings, announce, received};

/// Torrents of a scrape: what every tracker answers.
const SCRAPED: usize = 50;

/// New peers of a node, each in a torrent of its own.
#[derive(Clone, Copy, Debug)]
pub struct Newcomers {
    /// The node's number.
    pub node: usize,
    /// The number of peers.
    pub peers: u32,
    /// Peers per second.
    pub per_s: f64,
    /// Time after the last one.
    pub patience: Duration,
}

/// A question for counts, and what waits for its answer.
struct Question {
    number: u32,
    asked: Instant,
    places: Vec<usize>,
}

impl Newcomers {
    fn due(&self, began: Instant, number: usize) -> Instant {
        began + Duration::from_secs_f64(number as f64 / self.per_s)
    }
}

impl Sightings {
    /// Announces new peers whether or not the node answers. Returns the torrents, and how many announces are
    /// unanswered in the end.
    ///
    /// # Errors
    ///
    /// If the node does not issue a connection id.
    pub fn announce_all(&mut self, newcomers: Newcomers) -> Result<(Vec<InfoHash>, usize)> {
        let (node, began) = (newcomers.node, Instant::now());
        let (mut torrents, mut unanswered) = (Vec::new(), HashSet::new());
        let mut id = self.connection_id(node)?;
        let end = newcomers.due(began, newcomers.peers as usize) + newcomers.patience;
        while torrents.len() < newcomers.peers as usize || !unanswered.is_empty() {
            self.drain(node, |number, _| {
                unanswered.remove(&number);
            });
            if Instant::now() > end {
                break;
            }
            if torrents.len() == newcomers.peers as usize
                || Instant::now() < newcomers.due(began, torrents.len())
            {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            // Asking for an id would take the answers of others.
            if unanswered.is_empty() {
                id = self.connection_id(node)?;
            }
            let (number, info_hash) = self.start_one(node, id);
            unanswered.insert(number);
            torrents.push(info_hash);
        }
        Ok((torrents, unanswered.len()))
    }

    /// Announces new peers, and asks another node for those that it does not know yet, 50 at a time, the next
    /// ones 2 ms after an answer. Returns the times from sending an announce to the answer that shows the peer;
    /// `None` for those that were never seen.
    ///
    /// # Errors
    ///
    /// If a node does not issue a connection id.
    pub fn observe_all(
        &mut self,
        newcomers: Newcomers,
        other: usize,
    ) -> Result<Vec<Option<Duration>>> {
        let (node, all, began) = (newcomers.node, newcomers.peers as usize, Instant::now());
        let (mut sent, mut seen) = (Vec::new(), vec![None; all]);
        let mut unseen: VecDeque<usize> = VecDeque::new();
        let (mut question, mut next): (Option<Question>, _) = (None, began);
        let end = newcomers.due(began, all) + newcomers.patience;
        let mut missing = all;
        while missing > 0 && Instant::now() < end {
            if sent.len() < all && Instant::now() >= newcomers.due(began, sent.len()) {
                let id = self.connection_id(node)?;
                unseen.push_back(sent.len());
                let now = Instant::now();
                sent.push((self.start_one(node, id).1, now));
            }
            self.drain(node, |_, _| ());
            if question.is_none() && Instant::now() >= next && !unseen.is_empty() {
                let places: Vec<usize> = unseen.drain(..unseen.len().min(SCRAPED)).collect();
                question = Some(self.ask(other, &sent, places)?);
            }
            let Some(Question { number, asked, places }) = &question else { continue };
            let mut counts = None;
            self.drain(other, |found, reply| match reply {
                Reply::Scrape(all) if found == *number => counts = Some(all.to_vec()),
                _ => {}
            });
            // A question may be lost.
            let is_lost = asked.elapsed() > REPEAT_AFTER;
            if counts.is_none() && !is_lost {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            let counts = counts.unwrap_or_default();
            for (at, place) in places.iter().enumerate() {
                let counts = counts.chunks(12).nth(at).unwrap_or_default();
                if counts.iter().any(|byte| *byte != 0) {
                    seen[*place] = Some(sent[*place].1.elapsed());
                    missing -= 1;
                } else {
                    unseen.push_back(*place);
                }
            }
            (question, next) = (None, Instant::now() + ASK_EVERY);
        }
        Ok(seen)
    }

    /// Returns of how many of these torrents a node knows no peer.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn missing(&mut self, node: usize, torrents: &[InfoHash]) -> Result<usize> {
        let mut missing = 0;
        for torrents in torrents.chunks(SCRAPED) {
            let id = self.connection_id(node)?;
            let answer = self.exchange(node, |out, number| {
                codec::scrape(out, id, number, torrents);
            })?;
            let Some((_, Reply::Scrape(counts))) = decode_reply(&answer) else {
                bail!("no counts");
            };
            let known = counts.chunks(12).filter(|counts| counts.iter().any(|byte| *byte != 0));
            missing += torrents.len().saturating_sub(known.count());
        }
        Ok(missing)
    }

    /// Has a new peer start. Returns the request's number, and the torrent.
    fn start_one(&mut self, node: usize, id: u64) -> (u32, InfoHash) {
        let info_hash = InfoHash(self.random.bytes());
        let announce = announce(info_hash, Event::Started, self.random.next());
        let number = self.send(node, |out, number| {
            codec::announce(out, id, number, &announce, b"");
        });
        (number, info_hash)
    }

    fn ask(
        &mut self,
        node: usize,
        sent: &[(InfoHash, Instant)],
        places: Vec<usize>,
    ) -> Result<Question> {
        let id = self.connection_id(node)?;
        let torrents: Vec<InfoHash> = places.iter().map(|place| sent[*place].0).collect();
        let number = self.send(node, |out, number| codec::scrape(out, id, number, &torrents));
        Ok(Question { number, asked: Instant::now(), places })
    }

    /// Sends a request. What cannot be sent is lost.
    fn send(&mut self, node: usize, write: impl FnOnce(&mut Vec<u8>, u32)) -> u32 {
        self.transaction_id += 1;
        let mut request = Vec::new();
        write(&mut request, self.transaction_id);
        let _ = self.sockets[node].send(&request);
        self.transaction_id
    }

    /// Takes all answers that have come from a node.
    fn drain(&self, node: usize, mut take: impl FnMut(u32, Reply<'_>)) {
        let mut answer = [0; 2048];
        while let Some(len) = received(&self.sockets[node], &mut answer) {
            if let Some((number, reply)) = decode_reply(answer.get(..len).unwrap_or_default()) {
                take(number, reply);
            }
        }
    }
}
