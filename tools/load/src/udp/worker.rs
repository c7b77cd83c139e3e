//! One thread of the load: announces of a share of the peers, connects and scrapes.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use client::AnnounceResponse;
use client::codec::compact_peers;
use client::codec::udp::Reply;
use types::{Event, InfoHash};

use super::UdpOptions;
use super::datagram_io::DatagramIo;
use super::lanes::{LaneState, Lanes, Request, Traffic};
use super::pending::{Asked, PENDING_MAX};
use crate::TrackerUrl;
use crate::checks::Checker;
use crate::counters::Counters;
use crate::mix::{Mix, RequestKind, SCRAPE_TORRENTS};
use crate::population::{Population, TorrentPeer};
use crate::random::{Random, hash};
use crate::runner::{SILENCE_MAX, Worker};
use crate::schedule::{LoopMode, Schedule};

/// Maximum outstanding requests per socket in an open loop.
const OPEN_WINDOW: u32 = 4096;
/// With at least this many outstanding requests in a closed loop, wait for this long if few
/// responses are ready: the tracker has enough to do meanwhile, and larger batches cost less per
/// response.
const COALESCE: (usize, Duration) = (256, Duration::from_micros(50));
/// Fewer responses than the outstanding requests divided by this are few.
const SMALL_BATCH_DIVISOR: usize = 8;

/// See the module.
pub(super) struct Udp {
    lanes: Lanes<TorrentPeer>,
    load: Load,
    io: DatagramIo,
    /// The schedule of an open loop.
    schedule: Option<Schedule>,
    timeout: Duration,
    /// Maximum number of outstanding requests.
    slots: usize,
    /// True if the lanes have not yet started.
    is_first_step: bool,
    /// True if few responses of many outstanding ones arrived last time.
    was_small_batch: bool,
}

/// Draws requests and checks responses.
struct Load {
    mix: Mix,
    url: TrackerUrl,
    population: Population,
    random: Random,
    lanes: u32,
    hashes: Vec<InfoHash>,
    checker: Checker,
    check_every: u32,
    unchecked: u32,
    is_v6: bool,
}

impl Udp {
    pub(super) fn new(options: &UdpOptions, number: u32) -> Result<Self> {
        let sockets = options.sockets.max(1);
        let workers = options.workers.max(1);
        let (window, schedule) = match options.loop_mode {
            LoopMode::Closed { outstanding } => {
                (outstanding.div_ceil(workers).div_ceil(sockets), None)
            }
            LoopMode::Open { rate } => {
                (OPEN_WINDOW, Some(Schedule::new(rate / f64::from(workers))))
            }
        };
        let window = window.clamp(1, PENDING_MAX / sockets);
        let seed = hash(options.workload.seed, number.into());
        // In an open loop, kernel timestamps keep latencies independent of this thread's
        // scheduling. In a closed loop they are not worth their cost.
        let io = DatagramIo::new(options.offload, schedule.is_some());
        let end = |lane| (source(options, number * sockets + lane), vec![options.url.address]);
        let ends: Vec<_> = (0..sockets).map(end).collect();
        let lanes = Lanes::open(&io, &ends, (window, hash(seed, 1) as u32))?;
        let sources = (0..workers * sockets).filter_map(|number| source(options, number));
        let load = Load {
            mix: options.mix,
            url: options.url.clone(),
            population: Population::new(&options.workload, number, workers),
            random: Random::new(seed),
            lanes: sockets,
            hashes: Vec::new(),
            checker: Checker::new(sources.chain(lanes.sources()), options.workload.peers.into()),
            check_every: options.check_every.max(1),
            unchecked: 0,
            is_v6: options.url.address.is_ipv6(),
        };
        Ok(Self {
            lanes,
            load,
            io,
            schedule,
            timeout: options.timeout,
            slots: (window * sockets) as usize,
            is_first_step: true,
            was_small_batch: false,
        })
    }
}

impl Worker for Udp {
    fn prepare(&mut self, stop: &AtomicBool) -> Result<()> {
        self.lanes.connect(&mut self.io, &mut self.load, SILENCE_MAX, stop)
    }

    fn start(&mut self, at: Instant) {
        self.lanes.start(at);
    }

    fn step(&mut self, until: Instant, counters: &mut Counters) -> Result<()> {
        let Self { lanes, load, io, schedule, .. } = self;
        let is_closed_loop = schedule.is_none();
        let mut until = until;
        if let Some(schedule) = schedule {
            lanes.send_due(io, (schedule, 0), load, counters);
            until = until.min(lanes.moment(schedule.next_ns()));
        } else if std::mem::take(&mut self.is_first_step) {
            lanes.fill_all(io, load, counters);
        }
        if std::mem::take(&mut self.was_small_batch) {
            let before = Instant::now();
            thread::sleep(COALESCE.1);
            counters.waited += before.elapsed();
        }
        let count = lanes.receive(io, until, is_closed_loop, load, counters)?;
        self.was_small_batch = is_closed_loop
            && count > 0
            && self.slots >= COALESCE.0
            && count < self.slots / SMALL_BATCH_DIVISOR;
        lanes.check_silence()
    }

    fn maintain(&mut self, counters: &mut Counters) {
        let Self { lanes, load, io, .. } = self;
        lanes.expire(self.timeout, load, counters);
        lanes.renew_connection_ids(io, load, counters);
        if self.schedule.is_none() {
            lanes.fill_all(io, load, counters);
        }
    }
}

impl Load {
    /// Draws a peer of a lane.
    fn place(&mut self, lane: u32) -> u32 {
        let all = self.population.len();
        let share = |lane: u32| (u64::from(all) * u64::from(lane) / u64::from(self.lanes)) as u32;
        let first = share(lane).min(all - 1);
        let count = share(lane + 1).saturating_sub(first).max(1);
        first + self.random.below(count as usize) as u32
    }
}

impl Traffic for Load {
    type Peer = TorrentPeer;

    fn node(&mut self) -> usize {
        0
    }

    fn next(&mut self, lane: u32, _: u64) -> Option<Request<'_, TorrentPeer>> {
        match self.mix.draw(&mut self.random) {
            RequestKind::Connect => Some(Request::Connect),
            RequestKind::Announce => {
                let place = self.place(lane);
                let (announce, peer) = self.population.announce(place, &mut self.random);
                if announce.event == Event::Stopped {
                    self.checker.expect_another_peer();
                }
                let url = match self.url.target(self.population.number(place)) {
                    "/" | "/announce" => b"",
                    target => target.as_bytes(),
                };
                Some(Request::Announce { announce, url, peer })
            }
            RequestKind::Scrape => {
                self.hashes.clear();
                for _ in 0..SCRAPE_TORRENTS {
                    let place = self.place(lane);
                    let torrent = self.population.torrent(place);
                    self.hashes.push(self.population.workload().info_hash(torrent));
                }
                Some(Request::Scrape(&self.hashes))
            }
        }
    }

    fn read(
        &mut self,
        lane: &LaneState,
        asked: Asked<TorrentPeer>,
        reply: &Reply<'_>,
        _: u64,
        counters: &mut Counters,
    ) -> Result<(), &'static str> {
        match (asked, reply) {
            (Asked::Announce(peer), Reply::Announce { leechers, seeders, peers, .. }) => {
                counters.responses.announce += 1;
                counters.peers += (peers.len() / if self.is_v6 { 18 } else { 6 }) as u64;
                self.unchecked += 1;
                if self.unchecked >= self.check_every {
                    self.unchecked = 0;
                    let answer = AnnounceResponse {
                        seeders: Some((*seeders).into()),
                        leechers: Some((*leechers).into()),
                        peers: compact_peers(peers, self.is_v6).0,
                        ..AnnounceResponse::default()
                    };
                    let workload = self.population.workload();
                    let asker = (peer, lane.source);
                    self.checker.check(workload, asker, &answer, &mut counters.checks);
                }
                Ok(())
            }
            (Asked::Scrape, Reply::Scrape(counts)) if counts.len() == 12 * SCRAPE_TORRENTS => {
                counters.responses.scrape += 1;
                Ok(())
            }
            (Asked::Scrape, Reply::Scrape(_)) => {
                Err("a scrape response with a wrong number of torrents")
            }
            _ => Err("a response of another kind than the request"),
        }
    }

    fn give_up(&mut self, _: u32, _: TorrentPeer, _: u64) {}
}

/// Returns the source address of a socket, the configured ones in turn.
fn source(options: &UdpOptions, socket: u32) -> Option<IpAddr> {
    options.sources.get(socket as usize % options.sources.len().max(1)).copied()
}
