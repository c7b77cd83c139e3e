//! What is asked: a mix of requests, gathered by length so that each length leaves as one train.

use types::{Event, InfoHash};
use wire::udp::client;

use super::flights::{Flight, Flights};
use super::hostile::Hostile;
use crate::mix::{Asked, Mix};
use crate::population::{Member, Population};
use crate::random::Random;
use crate::url::Url;

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
    /// Announces say its path and query (BEP 41).
    url: Url,
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
            url: options.url.clone(),
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
        let url_data = url_data(self.url.target(self.population.number(place)));
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
