//! A cluster in virtual time.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use cluster::{Input, LogState, Snapshot};
use primitives::Random;
use replication::block::Kind;

use crate::broker::{Broker, Link};
use crate::clients::Client;
use crate::faults::{Fault, Planned, Scenario, apart, falls_back, lifetimes, plan, storm, stuck};
use crate::host::{Canary, Copy, Home, Parts, Process, blocks, each_peer};
use crate::{Peer, check};

/// Virtual time passes in steps.
pub(crate) const STEP_MS: u64 = 10;
/// Processes that a seed may start.
pub(crate) const HOMES: usize = 48;

/// A place for a process.
pub(crate) struct Slot<'a> {
    pub(crate) number: u8,
    pub(crate) process: Option<Process<'a>>,
    offset_ms: i64,
    copy: Option<Copy>,
    slow: bool,
}

pub(crate) struct World<'a> {
    pub(crate) now_ms: u64,
    pub(crate) random: Random,
    pub(crate) broker: Broker,
    pub(crate) slots: Vec<Slot<'a>>,
    pub(crate) clients: Vec<Client>,
    homes: &'a [OnceCell<Home>],
    next_home: usize,
    seed: u64,
    queue_bytes: usize,
    pub(crate) scenario: Scenario,
    canary: Canary,
    trace: bool,
    /// Peers of which something was lost with a node or the stream, and when.
    pub(crate) tainted: BTreeMap<Peer, u64>,
    /// Peers of which walks said the last thing that the log has.
    pub(crate) walked: BTreeSet<Peer>,
    pub(crate) has_clock_faults: bool,
    reported: Vec<usize>,
    looked_ms: u64,
    pub(crate) faults: Vec<Planned>,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        seed: u64,
        homes: &'a [OnceCell<Home>],
        (scenario, canary): (Scenario, Canary),
        trace: bool,
    ) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
        let nodes = 3 + [0, 0, 0, 1, 1, 2, 7][random.below(7) as usize];
        let times = scenario.times();
        let has_wrong_clocks = scenario == Scenario::WrongClocks;
        let has_clock_faults = scenario == Scenario::Mixed && random.below(5) == 0;
        let end_ms = 60_000 + u64::from(random.below(60_000));
        let (faults, pause_s) = match scenario {
            Scenario::Mixed => (plan(&mut random, nodes, end_ms, has_clock_faults), 30),
            Scenario::Apart => (apart(&mut random, nodes), 30),
            Scenario::Stuck => (stuck(&mut random, nodes), 30),
            Scenario::Storm | Scenario::WrongClocks => (storm(&mut random, nodes), 4),
            Scenario::Lifetimes => (lifetimes(&mut random, nodes, times.lifetime_s), 30),
            Scenario::FallsBack => (falls_back(&mut random, nodes), 30),
        };
        let torrents = 5 + random.below(20);
        let clients = 40 + random.below(160);
        let queue_bytes = [8 << 10, 64 << 10, 4 << 20][random.below(3) as usize];
        let mut world = Self {
            now_ms: 0,
            broker: Broker::new(random.next()),
            slots: Vec::new(),
            clients: (0..clients)
                .map(|number| Client::new(number, torrents, (nodes, pause_s, times), &mut random))
                .collect(),
            homes,
            next_home: 0,
            seed,
            queue_bytes,
            scenario,
            canary,
            trace,
            tainted: BTreeMap::new(),
            walked: BTreeSet::new(),
            has_clock_faults,
            reported: Vec::new(),
            looked_ms: 0,
            faults,
            random,
        };
        for at in 0..nodes {
            let offset_ms = match has_clock_faults {
                // Clocks that are set by no one, and others.
                true if world.has_clock_jumps() => i64::from(world.random.below(20_000)) - 10_000,
                true => i64::from(world.random.below(2000)) - 1000,
                false => 0,
            };
            let wrong_ms = match has_wrong_clocks {
                true => (i64::from(world.random.below(40)) - 20) * 16_000,
                false => 0,
            };
            world.add_slot(at as u8 + 1, offset_ms + wrong_ms);
            world.start(at, None);
        }
        world.broker.stores_copies = canary == Canary::CopiesStored;
        if has_wrong_clocks || has_clock_faults {
            world.broker.ahead_ms = i64::from(world.random.below(4_000_000)) - 2_000_000;
            world.broker.cuts_differ = true;
        }
        world
    }

    fn add_slot(&mut self, number: u8, offset_ms: i64) {
        self.broker.links.push(Link::new(number));
        self.reported.push(0);
        self.slots.push(Slot { number, process: None, offset_ms, copy: None, slow: false });
    }

    /// Returns true if clocks are set while they are used: ages in messages sent before are wrong then, and the
    /// consequences heal when peers announce again.
    pub(crate) fn has_clock_jumps(&self) -> bool {
        self.faults.iter().any(|it| matches!(it.fault, Fault::ClockJump { .. }))
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>8.2} s  {}", self.now_ms as f64 / 1000.0, text());
        }
    }

    fn start(&mut self, at: usize, copy: Option<Copy>) {
        let home =
            self.homes[self.next_home].get_or_init(|| Home::new(self.seed, self.scenario.times()));
        self.next_home += 1;
        let slot = &mut self.slots[at];
        let parts = Parts {
            offset_ms: slot.offset_ms,
            queue_bytes: self.queue_bytes,
            times: self.scenario.times(),
        };
        let (number, canary) = (slot.number, self.canary);
        let process = Process::start(self.now_ms, number, home, parts, canary, copy.as_ref());
        slot.process = Some(process);
        self.reported[at] = 0;
        self.broker.links[at].is_cut = false;
        self.broker.links[at].number = self.slots[at].number;
    }

    /// Ends a process at once.
    fn end(&mut self, at: usize, says_good_bye: bool) {
        let Some(mut process) = self.slots[at].process.take() else { return };
        process.flush(self.now_ms, at, &mut self.broker);
        if says_good_bye {
            process.input(self.now_ms, at, &mut self.broker, Input::Leave);
            // It waits for what is under way.
            for _ in 0..50 {
                self.now_ms += STEP_MS;
                self.broker.step(self.now_ms);
                process.receive(self.now_ms, at, &mut self.broker, 100);
                let lists = (&mut self.tainted, &mut self.walked);
                Self::note_stored(&mut self.broker, &mut self.slots, lists, Some(&mut process));
            }
        }
        for peer in process.unstored.keys() {
            self.tainted.insert(*peer, self.now_ms);
        }
        // It may have known of announces that it did not tell, because it had not read that the peers are gone.
        if process.node.position().sequence < self.broker.stream.last {
            let own = self.clients.iter().filter(|client| client.at == at);
            self.tainted.extend(own.map(|client| (client.peer, self.now_ms)));
        }
        self.broker.disconnect(self.now_ms, at);
        let link = &mut self.broker.links[at];
        link.is_cut = true;
        while self.broker.take(u64::MAX, at).is_some() {}
    }

    pub(crate) fn step(&mut self, clients_act: bool) {
        self.now_ms += STEP_MS;
        self.broker.step(self.now_ms);
        self.begin_and_end_faults();
        if clients_act {
            self.clients_act();
        }
        for at in 0..self.slots.len() {
            self.step_process(at);
        }
        let lists = (&mut self.tainted, &mut self.walked);
        Self::note_stored(&mut self.broker, &mut self.slots, lists, None);
        self.note_lost();
    }

    fn step_process(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let Slot { process: Some(process), slow, .. } = &mut self.slots[at] else { return };
        if now_ms < process.hangs_until_ms {
            return;
        }
        let most = if *slow { 1 } else { 200 };
        process.receive(now_ms, at, &mut self.broker, most);
        self.broker.look_again(now_ms, at, process.node.position().sequence);
        if (now_ms / STEP_MS + at as u64 * 3).is_multiple_of(10) {
            process.flush(now_ms, at, &mut self.broker);
            process.tick(now_ms, at, &mut self.broker);
        }
        if now_ms.is_multiple_of(10_000) {
            process.sweep(now_ms);
        }
        let from = self.reported[at];
        self.reported[at] = process.reports.len();
        if self.trace {
            let number = process.number;
            let lines = process.reports[from..].iter().map(|text| format!("node {number}: {text}"));
            lines.collect::<Vec<_>>().into_iter().for_each(|line| self.trace(|| line));
        }
    }

    fn clients_act(&mut self) {
        let now_ms = self.now_ms;
        let mut clients = std::mem::take(&mut self.clients);
        for client in clients.iter_mut().filter(|client| client.next_ms <= now_ms) {
            let serves = |at: usize| self.slots[at].process.is_some();
            let Some(at) = client.choose(self.slots.len(), &mut self.random, serves) else {
                continue;
            };
            let Some(announce) = client.act(now_ms, at, &mut self.random) else { continue };
            let process = self.slots[at].process.as_mut().expect("it serves");
            if !process.node.is_warm() {
                // A node that has just started does not tell the others of things that it does not know yet.
                self.tainted.insert(client.peer, now_ms);
            }
            process.announce(now_ms, &announce);
        }
        self.clients = clients;
    }

    /// Notes which changes are stored.
    fn note_stored(
        broker: &mut Broker,
        slots: &mut [Slot<'a>],
        (tainted, walked): (&mut BTreeMap<Peer, u64>, &mut BTreeSet<Peer>),
        ending: Option<&mut Process<'a>>,
    ) {
        let mut processes: Vec<_> =
            slots.iter_mut().filter_map(|slot| slot.process.as_mut()).chain(ending).collect();
        for message in std::mem::take(&mut broker.stored) {
            for block in blocks(&message.message) {
                let (boot, cut_ms) = (block.header.boot, broker.earliest_ms(block.header.cut_ms));
                let process = processes.iter_mut().find(|process| process.boot == boot);
                let mut unstored = process.map(|process| &mut process.unstored);
                each_peer(&block, |peer, word| {
                    if let Some(unstored) = &mut unstored
                        && unstored.get(&peer).is_some_and(|last_ms| *last_ms <= cut_ms)
                    {
                        unstored.remove(&peer);
                    }
                    // A walk may report what was lost with a node, and nodes report removals of long ago again.
                    let is_told_again = word.is_gone() && word.age() > 0;
                    let is_new = block.header.kind == Kind::CHANGES && !is_told_again;
                    if is_new {
                        walked.remove(&peer);
                    } else {
                        walked.insert(peer);
                    }
                    if is_new && tainted.get(&peer).is_some_and(|at_ms| *at_ms <= cut_ms) {
                        tainted.remove(&peer);
                    }
                });
            }
        }
    }

    /// Notes what walks have told.
    fn note_walked(&mut self) {
        for process in self.slots.iter_mut().filter_map(|slot| slot.process.as_mut()) {
            if process.unstored.is_empty() {
                continue;
            }
            let snapshot = process.snapshot(self.now_ms);
            if is_flowing(&snapshot) {
                process.unstored.clear();
            } else if snapshot.queue.log == LogState::Flowing {
                // Only what is in the blocks that are not stored is not told.
                let unstored_s = snapshot.queue.unstored_s as u64;
                let oldest_ms = self.now_ms.saturating_sub((unstored_s + 1) * 1000);
                process.unstored.retain(|_, last_ms| *last_ms >= oldest_ms);
            }
        }
    }

    /// Notes what the stream has lost: only nodes that applied it know it. They tell their own removals again.
    fn note_lost(&mut self) {
        let tells_removals = self.scenario == Scenario::FallsBack;
        for message in std::mem::take(&mut self.broker.lost) {
            for block in blocks(&message.message) {
                each_peer(&block, |peer, word| {
                    if !(tells_removals && word.is_gone()) {
                        self.tainted.insert(peer, self.now_ms);
                    }
                });
            }
        }
    }

    fn begin_and_end_faults(&mut self) {
        // A step may take longer than others.
        let passed = self.looked_ms..self.now_ms;
        self.looked_ms = self.now_ms;
        for planned in self.faults.clone() {
            if passed.contains(&planned.from_ms) {
                self.trace(|| format!("begins: {:?}", planned.fault));
                self.begin(planned);
            }
            if passed.contains(&planned.until_ms) {
                self.trace(|| format!("ends: {:?}", planned.fault));
                self.finish(planned.fault);
            }
        }
    }

    fn begin(&mut self, planned: Planned) {
        let now_ms = self.now_ms;
        match planned.fault {
            Fault::Delay { at, most_ms } => self.broker.links[at].delay_ms = (0, most_ms),
            Fault::Loss { at, of_1000 } => self.broker.links[at].loss = of_1000,
            Fault::Disconnect { at } => self.broker.disconnect(now_ms, at),
            Fault::Cut { at } => self.broker.links[at].is_cut = true,
            Fault::Part { links } => self.part(links),
            Fault::LeaderLoss { loses_end } => {
                let for_ms = 4000 + u64::from(self.random.below(5000));
                self.broker.lose_leader(now_ms, for_ms, loses_end);
            }
            Fault::FallBack { by_ms } => self.broker.fall_back(now_ms, by_ms),
            Fault::Delete => self.broker.delete_stream(now_ms),
            Fault::LoseBeginning => self.broker.lose_beginning(),
            Fault::Replay => self.broker.replay(now_ms),
            Fault::Stuck { at } => self.broker.links[at].is_stuck = true,
            Fault::Kill { at, has_journal } | Fault::Restart { at, has_journal } => {
                let process = self.slots[at].process.as_ref();
                self.slots[at].copy = process.filter(|_| has_journal).map(|it| it.copy(now_ms));
            }
            Fault::Hang { at } => {
                if let Some(process) = &mut self.slots[at].process {
                    process.hangs_until_ms = planned.until_ms;
                }
                if self.random.below(2) == 0 {
                    // NATS cuts off clients that are too slow.
                    self.broker.disconnect(now_ms, at);
                }
            }
            Fault::Slow { at } => self.slots[at].slow = true,
            Fault::ClockJump { at, by_ms } => {
                if let Some(process) = &mut self.slots[at].process {
                    process.offset_ms += by_ms;
                }
                self.slots[at].offset_ms += by_ms;
            }
            Fault::Missed { at } => {
                if let Some(process) = &mut self.slots[at].process {
                    // Stops and completed downloads are lost.
                    process.miss(now_ms, at, &mut self.broker);
                    for peer in process.unstored.keys() {
                        self.tainted.insert(*peer, now_ms);
                    }
                }
            }
        }
    }

    /// Puts links to the part of NATS that has no stream.
    fn part(&mut self, links: u32) {
        for at in 0..self.broker.links.len() {
            self.broker.links[at].side = u8::from(links >> at & 1 == 1);
        }
    }

    fn finish(&mut self, fault: Fault) {
        match fault {
            Fault::Delay { at, .. } => self.broker.links[at].delay_ms = (0, 3),
            Fault::Loss { at, .. } => self.broker.links[at].loss = 0,
            Fault::Stuck { at } => self.broker.release(self.now_ms, at),
            Fault::Cut { at } => self.broker.links[at].is_cut = self.slots[at].process.is_none(),
            Fault::Part { .. } => self.part(0),
            Fault::Kill { at, .. } | Fault::Restart { at, .. } => {
                // It ran on since the copy was taken, and is away for a moment.
                self.end(at, matches!(fault, Fault::Restart { .. }));
                let copy = self.slots[at].copy.take();
                self.start(at, copy);
            }
            Fault::Slow { at } => self.slots[at].slow = false,
            _ => {}
        }
    }

    /// Returns true if all changes are stored and applied everywhere.
    pub(crate) fn is_settled(&self) -> bool {
        self.slots.iter().filter_map(|slot| slot.process.as_ref()).all(|process| {
            let snapshot = process.snapshot(self.now_ms);
            let position = process.node.position();
            is_flowing(&snapshot)
                && process.node.is_warm()
                && position.stream == self.broker.stream.id
                && position.sequence == self.broker.stream.last
        })
    }

    /// Runs the seed to its end.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let end_ms = self.faults.iter().map(|it| it.until_ms).max().unwrap_or_default() + 5000;
        while self.now_ms < end_ms {
            self.step(true);
            if self.now_ms.is_multiple_of(1000) {
                self.note_walked();
                check::lags(self)?;
            }
        }
        self.trace(|| "all faults have ended".to_owned());
        let settled_by_ms = end_ms + 60_000;
        let mut calm_ms = 0;
        // Two seconds after all is stored.
        while calm_ms < 2000 {
            if self.now_ms >= settled_by_ms {
                return Err(check::unsettled(self));
            }
            self.step(false);
            if self.now_ms.is_multiple_of(100) {
                calm_ms = if self.is_settled() { calm_ms + 100 } else { 0 };
            }
        }
        check::same_peers(self)?;
        check::truth(self)
    }
}

/// Returns true if all blocks that a node cut are stored.
fn is_flowing(snapshot: &Snapshot) -> bool {
    // Dirt younger than a second is shown as zero, but the state says it.
    snapshot.queue.log == LogState::Flowing && snapshot.queue.unstored_blocks == 0
}
