//! What is asked: a mix of requests, gathered by length so that each length leaves as one train.

use std::fmt;
use std::str::FromStr;

use types::{Event, InfoHash};
use wire::udp::client;

use super::flights::{Asked, Flight, Flights};
use super::hostile::Hostile;
use crate::population::{Member, Population};
use crate::random::Random;

/// How many of which requests there are, in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Connects.
    pub connect: u32,
    /// Announces.
    pub announce: u32,
    /// Scrapes.
    pub scrape: u32,
}

impl FromStr for Mix {
    type Err = String;

    /// Reads `CONNECT:ANNOUNCE:SCRAPE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` are no weights: three numbers, as in 1:100:1");
        let mut weights = text.split(':').map(|word| word.parse::<u32>().ok());
        let mut next = || weights.next().flatten().filter(|weight| *weight <= 1_000_000);
        let (Some(connect), Some(announce), Some(scrape)) = (next(), next(), next()) else {
            return Err(wrong());
        };
        match weights.next() {
            None if connect + announce + scrape > 0 => Ok(Self { connect, announce, scrape }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.connect, self.announce, self.scrape)
    }
}

impl Mix {
    fn draw(self, random: &mut Random) -> Asked {
        let Self { connect, announce, scrape } = self;
        match random.below((connect + announce + scrape) as usize) as u32 {
            number if number < connect => Asked::Connect,
            number if number < connect + announce => Asked::Announce,
            _ => Asked::Scrape,
        }
    }
}

/// Datagrams of one length, one behind the other.
#[derive(Default)]
pub(super) struct Train {
    pub(super) bytes: Vec<u8>,
    /// Of each.
    pub(super) len: usize,
    pub(super) count: u64,
}

impl Train {
    /// Adds one that `write` appends.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        self.len = self.bytes.len() - before;
        self.count += 1;
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }
}

/// Makes requests.
pub(super) struct Requests {
    mix: Mix,
    scrape_torrents: usize,
    /// What announces say of the URL (BEP 41).
    url_data: Vec<u8>,
    hostile: Option<(Hostile, u8)>,
    /// Hostile requests that are due, in hundredths.
    hostile_due: u32,
    pub(super) population: Population,
    pub(super) random: Random,
    hashes: Vec<InfoHash>,
    pub(super) trains: [Train; 4],
}

/// Where requests go, and who is there.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) connection_id: u64,
    /// The first of the peers there, and how many there are.
    pub(super) peers: (u32, u32),
}

impl Requests {
    pub(super) fn new(options: &super::Options, population: Population, random: Random) -> Self {
        Self {
            mix: options.mix,
            scrape_torrents: options.scrape_torrents.max(1) as usize,
            url_data: url_data(&options.url.target).into(),
            hostile: options.hostile,
            hostile_due: 0,
            population,
            random,
            hashes: Vec::new(),
            trains: Default::default(),
        }
    }

    /// Makes one as the mix has it, for a slot that is free. Says whether a peer leaves with it.
    pub(super) fn add(
        &mut self,
        flights: &mut Flights,
        slot: u32,
        due_ns: u64,
        origin: Origin,
    ) -> bool {
        self.add_hostile(flights, origin);
        match self.mix.draw(&mut self.random) {
            Asked::Connect => self.add_connect(flights, slot, due_ns),
            Asked::Announce => return self.add_announce(flights, slot, due_ns, origin),
            Asked::Scrape => self.add_scrape(flights, slot, due_ns, origin),
        }
        false
    }

    pub(super) fn add_connect(&mut self, flights: &mut Flights, slot: u32, due_ns: u64) {
        let id = flights.take_off(slot, Flight { asked: Asked::Connect, member: NOBODY, due_ns });
        let [train, ..] = &mut self.trains;
        train.add(|out| client::connect(out, id));
    }

    fn add_announce(
        &mut self,
        flights: &mut Flights,
        slot: u32,
        due_ns: u64,
        origin: Origin,
    ) -> bool {
        let place = self.place(origin);
        let (announce, member) = self.population.announce(place, &mut self.random);
        let id = flights.take_off(slot, Flight { asked: Asked::Announce, member, due_ns });
        let [_, train, ..] = &mut self.trains;
        let url_data = &self.url_data;
        train.add(|out| client::announce(out, origin.connection_id, id, &announce, url_data));
        announce.event == Event::Stopped
    }

    fn add_scrape(&mut self, flights: &mut Flights, slot: u32, due_ns: u64, origin: Origin) {
        let id = flights.take_off(slot, Flight { asked: Asked::Scrape, member: NOBODY, due_ns });
        self.hashes.clear();
        for _ in 0..self.scrape_torrents {
            let place = self.place(origin);
            let torrent = self.population.torrent(place);
            self.hashes.push(self.population.habits().info_hash(torrent));
        }
        let [_, _, train, _] = &mut self.trains;
        let hashes = &self.hashes;
        train.add(|out| client::scrape(out, origin.connection_id, id, hashes));
    }

    /// Of all requests, as many as were asked for are hostile.
    fn add_hostile(&mut self, flights: &Flights, origin: Origin) {
        let Some((profile, percent)) = self.hostile else { return };
        let honest = 100 - u32::from(percent.min(99));
        self.hostile_due += u32::from(percent.min(99));
        while self.hostile_due >= honest {
            self.hostile_due -= honest;
            let [.., train] = &mut self.trains;
            let (id, random) = (flights.hostile(), &mut self.random);
            profile.add(train, id, origin.connection_id, random);
        }
    }

    fn place(&mut self, origin: Origin) -> u32 {
        origin.peers.0 + self.random.below(origin.peers.1.max(1) as usize) as u32
    }
}

/// What announces say of a URL with this path and query: nothing where it says nothing.
pub(super) fn url_data(target: &str) -> &[u8] {
    if matches!(target, "/" | "/announce") { b"" } else { target.as_bytes() }
}

const NOBODY: Member = Member { torrent: 0, port: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept() {
        let mix: Mix = "2:7:1".parse().unwrap();
        assert_eq!(mix.to_string(), "2:7:1");
        let mut random = Random::new(1);
        let drawn: Vec<Asked> = (0..100_000).map(|_| mix.draw(&mut random)).collect();
        for (asked, expected) in
            [(Asked::Connect, 20_000), (Asked::Announce, 70_000), (Asked::Scrape, 10_000)]
        {
            let count = drawn.iter().filter(|found| **found == asked).count();
            assert!(count.abs_diff(expected) < 600, "{asked:?} {count}");
        }
        for bad in ["", "1", "1:2", "1:2:3:4", "0:0:0", "a:1:1", "1:-1:1", "9999999:1:1"] {
            assert!(bad.parse::<Mix>().is_err(), "{bad}");
        }
    }
}
