//! A process of a node: a real store, a real encoder, and the node between them.

use std::collections::BTreeMap;

use cluster::{Figures, Input, Node, Options, Output, Snapshot, Time};
use primitives::Random;
use replication::block::{Block, Kind};
use replication::{Now, ReplayClock};
use swarm::{Encoder, Feed, Store, StoreAnnounce};
use types::{PeerKey, Role, Tick};

use crate::broker::{Broker, Down, Up};
use crate::faults::Scenario;
use crate::{Peer, Times};

/// The unix time at which simulations begin, ms.
pub(crate) const EPOCH_MS: u64 = 1_700_000_003_000;

/// A mechanism that is taken out on purpose: clusters must not agree without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Canary {
    #[default]
    None,
    /// The stream stores copies of messages.
    CopiesStored,
    /// Own blocks of the log are not applied.
    OwnBlocksSkipped,
    /// A node that reads what it has missed contradicts it.
    ContradictsWhileBehind,
    /// Messages that are stored late count.
    LateMessagesCount,
    /// Nodes do not know that their clocks are wrong.
    ClocksNotCompared,
    /// Stores do not remember removals.
    RemovalsForgotten,
    /// Removals in blocks that were dropped are not told.
    RemovalsNotTold,
    /// Removals that the log has lost are not told again.
    LostRemovalsNotTold,
    /// Peers that are there according to dropped blocks are not published again.
    NoWalks,
    /// Announces that change nothing are not told.
    NoRefreshes,
}

impl Canary {
    pub(crate) const ALL: [(Self, Scenario); 10] = [
        (Self::CopiesStored, Scenario::Storm),
        (Self::OwnBlocksSkipped, Scenario::Storm),
        (Self::ContradictsWhileBehind, Scenario::Apart),
        (Self::LateMessagesCount, Scenario::Stuck),
        (Self::ClocksNotCompared, Scenario::WrongClocks),
        (Self::RemovalsForgotten, Scenario::Stuck),
        (Self::RemovalsNotTold, Scenario::Apart),
        (Self::LostRemovalsNotTold, Scenario::FallsBack),
        (Self::NoWalks, Scenario::Apart),
        (Self::NoRefreshes, Scenario::Lifetimes),
    ];

    /// Returns whether messages about removals of long ago are lost. Nodes send them for two reasons, of which each
    /// scenario has one.
    fn drops_old_removals(self) -> bool {
        matches!(self, Self::RemovalsNotTold | Self::LostRemovalsNotTold)
    }
}

/// Memory of a process, which outlives its encoder.
pub(crate) struct Home {
    pub(crate) store: Store,
    pub(crate) feed: Feed,
}

impl Home {
    pub(crate) fn new(seed: u64, times: Times) -> Self {
        let hash_key = u128::from(seed).to_le_bytes();
        let options = swarm::Options::new(2, hash_key, times.lifetime_s);
        Self { store: Store::new(&options), feed: Feed::default() }
    }
}

/// Blocks that a journal would hold, and when its round began.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) taken_ms: u64,
    blocks: Vec<Vec<u8>>,
}

/// State and options that a process starts with.
pub(crate) struct Parts {
    /// Milliseconds by which its wall clock is ahead.
    pub(crate) offset_ms: i64,
    pub(crate) queue_bytes: usize,
    pub(crate) times: Times,
}

pub(crate) struct Process<'a> {
    pub(crate) number: u8,
    pub(crate) boot: u64,
    home: &'a Home,
    encoder: Encoder<'a>,
    pub(crate) node: Node,
    /// Milliseconds by which its wall clock is ahead.
    pub(crate) offset_ms: i64,
    /// The unix time at tick 0 by its clock, and its offset then.
    base_ms: u64,
    start_offset_ms: i64,
    pub(crate) hangs_until_ms: u64,
    random: Random,
    canary: Canary,
    times: Times,
    /// Peers that it changed, and when the last such block was cut, in virtual time, until that is stored.
    pub(crate) unstored: BTreeMap<Peer, u64>,
    /// Texts of the events that it reported.
    pub(crate) reports: Vec<String>,
}

impl<'a> Process<'a> {
    pub(crate) fn start(
        now_ms: u64,
        number: u8,
        home: &'a Home,
        parts: Parts,
        canary: Canary,
        restored: Option<&Copy>,
    ) -> Self {
        let Parts { offset_ms, queue_bytes, times } = parts;
        let unix_ms = (EPOCH_MS + now_ms).saturating_add_signed(offset_ms);
        let boot = unix_ms << 8 | u64::from(number);
        let encoder =
            Encoder::new(&home.feed, &home.store, boot).of_node(number.into()).with_refreshes();
        let node = Node::new(Options {
            node: number,
            boot,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            zone: "a".to_owned(),
            kinds: &[],
            policy: 1,
            queue_bytes,
            peer_lifetime_s: times.lifetime_s,
            warm_wait_ms: 30_000,
            restored_ms: restored.map(|copy| copy.taken_ms),
        });
        let mut process = Self {
            number,
            boot,
            home,
            encoder,
            node,
            offset_ms,
            // As the application does: tick 0 is a multiple of 16 s, and old marks may be before it.
            base_ms: unix_ms / 16_000 * 16_000,
            start_offset_ms: offset_ms,
            hangs_until_ms: 0,
            random: Random::new(boot),
            canary,
            times,
            unstored: BTreeMap::new(),
            reports: Vec::new(),
        };
        if let Some(copy) = restored {
            for block in &copy.blocks {
                let (block, _) = Block::read(block).expect("it was written");
                process.merge(now_ms, &block, 0);
            }
        }
        process
    }

    fn unix_ms(&self, now_ms: u64) -> u64 {
        (EPOCH_MS + now_ms).saturating_add_signed(self.offset_ms)
    }

    pub(crate) fn now(&self, now_ms: u64) -> Now {
        // Ticks follow a clock that never jumps.
        let steady_ms = (EPOCH_MS + now_ms).saturating_add_signed(self.start_offset_ms);
        Now {
            tick: Tick(((steady_ms - self.base_ms) / 1000) as u32),
            unix_ms: self.unix_ms(now_ms),
        }
    }

    pub(crate) fn time(&self, now_ms: u64) -> Time {
        Time { steady_ms: now_ms + 5_000, unix_ms: self.unix_ms(now_ms) }
    }

    pub(crate) fn snapshot(&self, now_ms: u64) -> Snapshot {
        self.node.snapshot(self.time(now_ms))
    }

    pub(crate) fn announce(&mut self, now_ms: u64, announce: &StoreAnnounce) {
        let tick = self.now(now_ms).tick;
        self.home.store.announce(tick, &mut self.random, &[*announce], &mut |_, _| {});
    }

    /// Cuts what has changed.
    pub(crate) fn flush(&mut self, now_ms: u64, at: usize, broker: &mut Broker) {
        for block in self.take_changes(now_ms) {
            self.note_unstored(&block);
            self.input(now_ms, at, broker, Input::Block(&block));
        }
    }

    fn take_changes(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        let taken = self.encoder.changes(self.now(now_ms), &mut |_, block| {
            blocks.push(block.to_vec());
            Ok(())
        });
        taken.expect("nothing fails");
        blocks
    }

    fn note_unstored(&mut self, block: &[u8]) {
        let (block, _) = Block::read(block).expect("it was cut here");
        let cut_ms = block.header.cut_ms.saturating_add_signed(-self.offset_ms) - EPOCH_MS;
        let unstored = &mut self.unstored;
        each_peer(&block, |peer, _| {
            unstored.insert(peer, cut_ms);
        });
    }

    /// The store loses changes.
    pub(crate) fn miss(&mut self, now_ms: u64, at: usize, broker: &mut Broker) {
        // Changes that the node does not get are recorded for the checks.
        let blocks = self.take_changes(now_ms);
        blocks.iter().for_each(|block| self.note_unstored(block));
        if !blocks.is_empty() {
            self.input(now_ms, at, broker, Input::Missed);
        }
    }

    /// Handles what has come, up to `most` messages.
    pub(crate) fn receive(&mut self, now_ms: u64, at: usize, broker: &mut Broker, most: usize) {
        for _ in 0..most {
            let Some(message) = broker.take(now_ms, at) else { break };
            let input = match &message {
                Down::Connected => Input::Connected,
                Down::Disconnected => Input::Disconnected,
                Down::LookedUp { stream, first, last, last_ms, asked_ms, server_ms } => {
                    let asked_ms = self.time(*asked_ms).steady_ms;
                    let server_ms = match self.canary {
                        Canary::ClocksNotCompared => self.unix_ms(now_ms),
                        _ => *server_ms,
                    };
                    self.input(now_ms, at, broker, Input::Clock { asked_ms, server_ms });
                    Input::Log { stream: *stream, first: *first, last: *last, last_ms: *last_ms }
                }
                Down::Stored { id: (boot, ticket), sequence } if *boot == self.boot => {
                    Input::Stored { ticket: *ticket, sequence: *sequence }
                }
                Down::Stored { .. } => continue,
                Down::Live { from, block } => Input::Live { from: *from, message: block },
                Down::Heartbeat { from, body } => Input::Heartbeat { from: *from, body },
                Down::Logged { reader, .. } if *reader != broker.reader(at) => continue,
                Down::Logged { stored, .. } => {
                    let cut_ms = Block::read(&stored.message).map(|it| it.0.header.cut_ms);
                    let stored_ms = match cut_ms {
                        Ok(cut_ms) if self.canary == Canary::LateMessagesCount => cut_ms,
                        _ => stored.stored_ms,
                    };
                    Input::Logged {
                        sequence: stored.sequence,
                        stored_ms,
                        from: stored.from,
                        message: &stored.message,
                    }
                }
            };
            self.input(now_ms, at, broker, input);
        }
    }

    pub(crate) fn tick(&mut self, now_ms: u64, at: usize, broker: &mut Broker) {
        let totals = self.home.store.totals();
        let peers = [totals.v4, totals.v6].map(|it| it.seeders + it.leechers);
        let figures = Figures { peers: [peers[0], peers[1], 0], ..Figures::default() };
        self.input(now_ms, at, broker, Input::Figures(figures));
        self.input(now_ms, at, broker, Input::Tick);
        let has_refreshes = self.node.is_warm() && self.canary != Canary::NoRefreshes;
        let period = if has_refreshes { self.times.refresh_units() } else { 0 };
        self.home.store.keep_refreshes(period);
        self.home.store.remember_removals(self.canary != Canary::RemovalsForgotten);
        if now_ms % 60_000 < 100 {
            self.home.store.forget_removals();
        }
    }

    pub(crate) fn input(&mut self, now_ms: u64, at: usize, broker: &mut Broker, input: Input<'_>) {
        let mut outputs = Vec::new();
        self.node.handle(self.time(now_ms), input, &mut outputs);
        for output in outputs {
            match output {
                Output::PublishLog { ticket, message }
                    if self.canary.drops_old_removals() && has_old_removals(&message) =>
                {
                    let sequence = self.node.position().sequence;
                    self.input(now_ms, at, broker, Input::Stored { ticket, sequence });
                }
                Output::PublishLog { ticket, message } => {
                    broker.send(now_ms, at, Up::Log { id: (self.boot, ticket), message });
                }
                Output::PublishLive { block } => broker.send(now_ms, at, Up::Live { block }),
                Output::PublishHeartbeat { body } => {
                    broker.send(now_ms, at, Up::Heartbeat { body: body.into() });
                }
                Output::Read(start) => broker.read(at, start),
                Output::Apply { shift_ms, .. } => self.apply(now_ms, input, shift_ms),
                Output::Settle => self.input(now_ms, at, broker, Input::Settled),
                Output::Walk { .. } if self.canary == Canary::NoWalks => {
                    self.input(now_ms, at, broker, Input::WalkEnded);
                }
                Output::Walk { since_s } => {
                    let now = self.now(now_ms).tick;
                    self.encoder.restart_walk_since(now, since_s);
                }
                Output::WalkMore { bytes } => self.walk(now_ms, at, broker, bytes),
                Output::Behind(_) if self.canary == Canary::ContradictsWhileBehind => {}
                Output::Behind(is_behind) => self.home.store.set_behind(is_behind),
                Output::PurgeWeb { .. } | Output::TellWeb | Output::Repair { .. } => {}
                Output::Report { text, .. } => self.reports.push(text),
            }
        }
    }

    fn apply(&mut self, now_ms: u64, input: Input<'_>, shift_ms: i64) {
        let (Input::Live { message, .. } | Input::Logged { message, .. }) = input else {
            unreachable!("messages come so")
        };
        for block in blocks(message) {
            let is_own = block.header.boot == self.boot;
            if !(is_own && self.canary == Canary::OwnBlocksSkipped) {
                self.merge(now_ms, &block, shift_ms);
            }
        }
    }

    fn merge(&mut self, now_ms: u64, block: &Block<'_>, shift_ms: i64) {
        let Ok(groups) = block.groups() else { return };
        let now = self.now(now_ms);
        let clock = ReplayClock::new(now).in_whole_seconds().shifted(shift_ms);
        let time = clock.time(now, block.header.cut_ms);
        let shards = 0..self.home.store.shards();
        self.home.store.merge(time, &mut self.random, groups, shards);
    }

    fn walk(&mut self, now_ms: u64, at: usize, broker: &mut Broker, bytes: usize) {
        let (mut blocks, mut found, mut is_complete) = (Vec::new(), 0, false);
        while found < bytes as u64 && !is_complete {
            let step = self.encoder.step(self.now(now_ms), &mut |kind, block| {
                blocks.push((kind, block.to_vec()));
                Ok(())
            });
            let step = step.expect("nothing fails");
            found += step.bytes;
            is_complete = step.is_complete;
        }
        for (kind, block) in blocks {
            if kind != Kind::WALK {
                self.note_unstored(&block);
            }
            self.input(now_ms, at, broker, Input::Block(&block));
        }
        if is_complete {
            self.input(now_ms, at, broker, Input::WalkEnded);
        }
    }

    /// Returns a copy of the store, as a journal has it.
    pub(crate) fn copy(&self, now_ms: u64) -> Copy {
        let mut encoder = Encoder::new(&self.home.feed, &self.home.store, 1);
        let mut blocks = Vec::new();
        loop {
            let step = encoder.step(self.now(now_ms), &mut |_, block| {
                blocks.push(block.to_vec());
                Ok(())
            });
            if step.expect("nothing fails").is_complete {
                break;
            }
        }
        Copy { taken_ms: self.unix_ms(now_ms), blocks }
    }

    /// Returns all peers: role and age in units.
    pub(crate) fn peers(&self, now_ms: u64) -> BTreeMap<Peer, (Role, u32)> {
        let mut peers = BTreeMap::new();
        for bytes in self.copy(now_ms).blocks {
            let (block, _) = Block::read(&bytes).expect("it was written");
            each_peer(&block, |peer, word| {
                peers.insert(peer, (word.role(), word.age()));
            });
        }
        peers
    }

    pub(crate) fn sweep(&self, now_ms: u64) {
        self.home.store.sweep(self.now(now_ms).tick, 1);
    }
}

/// Returns the blocks of a message, up to the first that is none.
pub(crate) fn blocks(message: &[u8]) -> impl Iterator<Item = Block<'_>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let (block, len) = Block::read(rest).ok()?;
        rest = &rest[len..];
        Some(block)
    })
}

/// Returns true if a message reports peers that went before it was cut.
fn has_old_removals(message: &[u8]) -> bool {
    let mut has_any = false;
    for block in blocks(message) {
        each_peer(&block, |_, word| has_any |= word.is_gone() && word.age() > 0);
    }
    has_any
}

/// Visits the peers of a block of changes or a walk.
pub(crate) fn each_peer(block: &Block<'_>, mut visit: impl FnMut(Peer, replication::block::Word)) {
    if !matches!(block.header.kind, Kind::CHANGES | Kind::WALK) {
        return;
    }
    let Ok(groups) = block.groups() else { return };
    for group in groups {
        let info_hash = group.info_hash;
        group.v4.for_each(|peer| visit((info_hash, PeerKey::V4(peer.key)), peer.word));
        group.v6.for_each(|peer| visit((info_hash, PeerKey::V6(peer.key)), peer.word));
    }
}
