//! A model of NATS: messages in order on each connection, a stream with a leader that may be lost, and
//! connections that break with all that is on its way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use primitives::Random;

use crate::host::EPOCH_MS;

/// Messages of the log that a node gets in 10 ms.
const READ_RATE: usize = 100;

/// The boot of a process, and a ticket of its.
pub(crate) type MessageId = (u64, u64);

/// Message from a node.
#[derive(Clone, Debug)]
pub(crate) enum Up {
    Log {
        /// The process and its ticket: the stream stores one message of each.
        id: MessageId,
        message: Arc<[u8]>,
    },
    Live {
        block: Arc<[u8]>,
    },
    Heartbeat {
        body: Arc<[u8]>,
    },
}

/// Message or event to a node.
#[derive(Clone, Debug)]
pub(crate) enum Down {
    Connected,
    Disconnected,
    LookedUp { stream: u64, first: u64, last: u64, last_ms: u64, asked_ms: u64, server_ms: u64 },
    Stored { id: MessageId, sequence: u64 },
    Live { from: u8, block: Arc<[u8]> },
    Heartbeat { from: u8, body: Arc<[u8]> },
    Logged { reader: u64, stored: Stored },
}

/// A message of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) sequence: u64,
    /// By the server's clock, unix ms.
    pub(crate) stored_ms: u64,
    pub(crate) from: u8,
    pub(crate) message: Arc<[u8]>,
    id: MessageId,
}

#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// When it was made; 0 = there is none.
    pub(crate) id: u64,
    pub(crate) messages: VecDeque<Stored>,
    /// Where each message is stored, also those that are gone.
    sequences: BTreeMap<MessageId, u64>,
    pub(crate) last: u64,
    no_leader_ms: u64,
    /// Publishes that an ending leader has accepted, and may yet be stored.
    limbo: Vec<Stored>,
    limbo_ms: u64,
}

impl Stream {
    pub(crate) fn first(&self) -> u64 {
        self.messages.front().map_or(self.last + 1, |message| message.sequence)
    }

    fn append(&mut self, message: Stored) -> Stored {
        self.last += 1;
        let message = Stored { sequence: self.last, ..message };
        self.messages.push_back(message.clone());
        message
    }
}

/// A connection of a node.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// The node's number, which its subjects name.
    pub(crate) number: u8,
    pub(crate) is_up: bool,
    pub(crate) is_cut: bool,
    reconnect_ms: u64,
    /// Milliseconds that messages take, from and to.
    pub(crate) delay_ms: (u32, u32),
    /// Live messages of 1000 that are lost.
    pub(crate) loss: u32,
    /// The part of NATS that it is connected to: the leader is in part 0.
    pub(crate) side: u8,
    up: VecDeque<(u64, Up)>,
    down: VecDeque<(u64, Down)>,
    lookup_ms: Option<u64>,
    /// True if what the node sends to the log is held back.
    pub(crate) is_stuck: bool,
    stuck: Vec<Stored>,
    /// The reader of the log, and the next sequence that it gets.
    reader: u64,
    next: Option<u64>,
}

impl Link {
    pub(crate) fn new(number: u8) -> Self {
        Self { number, delay_ms: (0, 3), ..Self::default() }
    }
}

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) stream: Stream,
    pub(crate) links: Vec<Link>,
    pub(crate) random: Random,
    /// Milliseconds by which the clock of the servers is ahead.
    pub(crate) ahead_ms: i64,
    /// True if the times of cuts are not exactly those of the servers' clock.
    pub(crate) cuts_differ: bool,
    /// True if copies of a message are stored, too.
    pub(crate) stores_copies: bool,
    /// Messages that were stored since this was last emptied.
    pub(crate) stored: Vec<Stored>,
    /// Messages that were stored and are lost.
    pub(crate) lost: Vec<Stored>,
}

impl Broker {
    pub(crate) fn new(seed: u64) -> Self {
        let (stored, lost) = (Vec::new(), Vec::new());
        Self {
            stream: Stream::default(),
            links: Vec::new(),
            random: Random::new(seed),
            ahead_ms: 0,
            cuts_differ: false,
            stores_copies: false,
            stored,
            lost,
        }
    }

    /// Returns true if a link reaches the stream, and the stream has a leader.
    fn reaches(&self, now_ms: u64, link: usize) -> bool {
        self.links[link].side == 0 && now_ms >= self.stream.no_leader_ms
    }

    fn arrival(&mut self, now_ms: u64, link: usize) -> u64 {
        let (least, most) = self.links[link].delay_ms;
        now_ms + u64::from(least + self.random.below(most - least + 1))
    }

    pub(crate) fn send(&mut self, now_ms: u64, link: usize, message: Up) {
        if !self.links[link].is_up {
            return;
        }
        let at_ms = self.arrival(now_ms, link);
        let up = &mut self.links[link].up;
        let at_ms = up.back().map_or(at_ms, |(last_ms, _)| at_ms.max(*last_ms));
        up.push_back((at_ms, message));
    }

    fn deliver(&mut self, now_ms: u64, link: usize, message: Down) {
        let at_ms = self.arrival(now_ms, link);
        let down = &mut self.links[link].down;
        let at_ms = down.back().map_or(at_ms, |(last_ms, _)| at_ms.max(*last_ms));
        down.push_back((at_ms, message));
    }

    /// Breaks a connection. What is under way is lost.
    pub(crate) fn disconnect(&mut self, now_ms: u64, link: usize) {
        let away_ms = 200 + u64::from(self.random.below(3000));
        let link = &mut self.links[link];
        if !std::mem::take(&mut link.is_up) {
            return;
        }
        link.up.clear();
        link.down.clear();
        (link.next, link.lookup_ms) = (None, None);
        link.down.push_back((now_ms, Down::Disconnected));
        link.reconnect_ms = now_ms + away_ms;
    }

    /// A node looks the stream up every 5 s. It takes note if the stream ends before what the node has applied.
    pub(crate) fn look_again(&mut self, now_ms: u64, link: usize, applied: u64) {
        let is_up = self.links[link].is_up && self.links[link].next.is_some();
        if is_up && applied > self.stream.last && now_ms.is_multiple_of(5000) {
            self.links[link].lookup_ms.get_or_insert(now_ms);
        }
    }

    /// A node reads the log from a place on.
    pub(crate) fn read(&mut self, link: usize, start: cluster::Start) {
        let next = match start {
            cluster::Start::First => self.stream.first(),
            cluster::Start::Sequence(sequence) => sequence,
            cluster::Start::Time(at_ms) => {
                let found = self.stream.messages.iter().find(|it| it.stored_ms >= at_ms);
                found.map_or(self.stream.last + 1, |it| it.sequence)
            }
        };
        let link = &mut self.links[link];
        link.reader += 1;
        link.next = Some(next);
    }

    pub(crate) fn reader(&self, link: usize) -> u64 {
        self.links[link].reader
    }

    /// Takes the next message for a node, if it has arrived.
    pub(crate) fn take(&mut self, now_ms: u64, link: usize) -> Option<Down> {
        let down = &mut self.links[link].down;
        down.pop_front_if(|(at_ms, _)| *at_ms <= now_ms).map(|(_, message)| message)
    }

    /// The leader is lost. What was published just then may be stored later, in another order.
    pub(crate) fn lose_leader(&mut self, now_ms: u64, for_ms: u64, loses_end: bool) {
        self.stream.no_leader_ms = now_ms + for_ms;
        self.stream.limbo_ms = now_ms + 150;
        if loses_end {
            for _ in 0..self.random.below(6) {
                self.lose_last();
            }
        }
        self.end_readers(now_ms);
    }

    /// The stream falls back to a copy that is older by `by_ms`.
    pub(crate) fn fall_back(&mut self, now_ms: u64, by_ms: u64) {
        let since_ms = EPOCH_MS + now_ms - by_ms;
        while self.stream.messages.back().is_some_and(|last| last.stored_ms >= since_ms) {
            self.lose_last();
        }
        self.end_readers(now_ms);
    }

    fn lose_last(&mut self) {
        let Some(message) = self.stream.messages.pop_back() else { return };
        self.stream.last -= 1;
        self.stream.sequences.remove(&message.id);
        self.lost.push(message);
    }

    /// Readers end, and look the stream up again.
    fn end_readers(&mut self, now_ms: u64) {
        for link in &mut self.links {
            link.next = None;
            link.lookup_ms = Some(now_ms + 500);
        }
    }

    /// The stream is deleted. The next node that looks it up makes another one.
    pub(crate) fn delete_stream(&mut self, now_ms: u64) {
        self.lost.extend(self.stream.messages.drain(..));
        self.stream.sequences.clear();
        self.stream.id = 0;
        self.end_readers(now_ms);
    }

    /// Moves everything on.
    pub(crate) fn step(&mut self, now_ms: u64) {
        if now_ms >= self.stream.no_leader_ms && !self.stream.limbo.is_empty() {
            let mut limbo = std::mem::take(&mut self.stream.limbo);
            while !limbo.is_empty() {
                let message = limbo.swap_remove(self.random.below(limbo.len() as u32) as usize);
                if self.random.below(3) == 0 {
                    self.store(now_ms, message);
                }
            }
        }
        for link in 0..self.links.len() {
            self.step_link(now_ms, link);
        }
    }

    /// Stores a message, unless the stream has it. Returns its sequence.
    fn store(&mut self, now_ms: u64, message: Stored) -> u64 {
        let known = self.stream.sequences.get(&message.id);
        if let Some(sequence) = known.filter(|_| !self.stores_copies) {
            return *sequence;
        }
        let stored_ms = self.server_ms(now_ms);
        let stored = self.stream.append(Stored { stored_ms, ..message });
        let sequence = stored.sequence;
        self.stream.sequences.insert(stored.id, sequence);
        self.stored.push(stored);
        sequence
    }

    /// Stores the messages of a node that were held back, and holds back no more.
    pub(crate) fn release(&mut self, now_ms: u64, at: usize) {
        self.links[at].is_stuck = false;
        for message in std::mem::take(&mut self.links[at].stuck) {
            self.store(now_ms, message);
        }
    }

    /// Returns the earliest virtual time at which a block was cut that has this time.
    pub(crate) fn earliest_ms(&self, cut_ms: u64) -> u64 {
        // Nodes correct their clocks by whole units.
        let error_ms = if self.cuts_differ { 13_000 } else { 0 };
        let unix_ms = cut_ms.saturating_add_signed(-self.ahead_ms);
        unix_ms.saturating_sub(EPOCH_MS + error_ms)
    }

    /// Returns the time of the servers, unix ms.
    pub(crate) fn server_ms(&self, now_ms: u64) -> u64 {
        (EPOCH_MS + now_ms).saturating_add_signed(self.ahead_ms)
    }

    /// Messages of the last 40 s are published once more.
    pub(crate) fn replay(&mut self, now_ms: u64) {
        let since_ms = self.server_ms(now_ms).saturating_sub(40_000);
        let recent = self.stream.messages.iter().filter(|it| it.stored_ms >= since_ms);
        for message in recent.cloned().collect::<Vec<_>>() {
            if self.random.below(4) == 0 && now_ms >= self.stream.no_leader_ms {
                self.store(now_ms, message);
            }
        }
    }

    /// The stream loses its oldest messages: it was too small.
    pub(crate) fn lose_beginning(&mut self) {
        let lost = self.random.below(self.stream.messages.len() as u32 + 1) as usize;
        self.lost.extend(self.stream.messages.drain(..lost));
    }

    fn step_link(&mut self, now_ms: u64, at: usize) {
        let link = &mut self.links[at];
        if link.is_cut {
            self.disconnect(now_ms, at);
            return;
        }
        if !link.is_up {
            if now_ms >= link.reconnect_ms {
                link.is_up = true;
                link.lookup_ms = Some(now_ms);
                self.deliver(now_ms, at, Down::Connected);
            }
            return;
        }
        while let Some((_, message)) = self.links[at].up.pop_front_if(|(at_ms, _)| *at_ms <= now_ms)
        {
            self.receive(now_ms, at, message);
        }
        if self.links[at].lookup_ms.is_some_and(|at_ms| now_ms >= at_ms) {
            self.look_up(now_ms, at);
        }
        self.feed(now_ms, at);
    }

    fn look_up(&mut self, now_ms: u64, at: usize) {
        if !self.reaches(now_ms, at) {
            self.links[at].lookup_ms = Some(now_ms + 500);
            return;
        }
        if self.stream.id == 0 {
            self.stream = Stream { id: now_ms + 1, ..Stream::default() };
        }
        self.links[at].lookup_ms = None;
        let (stream, first, last) = (self.stream.id, self.stream.first(), self.stream.last);
        let last_ms = self.stream.messages.back().map_or(0, |message| message.stored_ms);
        let server_ms = self.server_ms(now_ms);
        let asked_ms = now_ms;
        let found = Down::LookedUp { stream, first, last, last_ms, asked_ms, server_ms };
        self.deliver(now_ms, at, found);
    }

    fn receive(&mut self, now_ms: u64, at: usize, message: Up) {
        let from = self.links[at].number;
        match message {
            Up::Log { id, message } => {
                let reaches = self.reaches(now_ms, at);
                let message = Stored { sequence: 0, stored_ms: 0, from, message, id };
                if self.links[at].is_stuck {
                    return self.links[at].stuck.push(message);
                }
                if self.links[at].side == 0 && !reaches && now_ms < self.stream.limbo_ms {
                    self.stream.limbo.push(message);
                } else if reaches && self.stream.id == 0 {
                    self.links[at].lookup_ms.get_or_insert(now_ms + 500);
                } else if reaches {
                    let sequence = self.store(now_ms, message);
                    self.deliver(now_ms, at, Down::Stored { id, sequence });
                }
            }
            Up::Live { block } => {
                self.fan_out(now_ms, at, |from| Down::Live { from, block: Arc::clone(&block) })
            }
            Up::Heartbeat { body } => {
                self.fan_out(now_ms, at, |from| Down::Heartbeat { from, body: Arc::clone(&body) });
            }
        }
    }

    fn fan_out(&mut self, now_ms: u64, at: usize, message: impl Fn(u8) -> Down) {
        let (from, side) = (self.links[at].number, self.links[at].side);
        for to in (0..self.links.len()).filter(|to| *to != at) {
            let link = &self.links[to];
            if link.is_up && link.side == side && self.random.below(1000) >= link.loss {
                self.deliver(now_ms, to, message(from));
            }
        }
    }

    fn feed(&mut self, now_ms: u64, at: usize) {
        let Some(mut next) = self.links[at].next else { return };
        if !self.reaches(now_ms, at) || self.stream.id == 0 {
            return;
        }
        let reader = self.links[at].reader;
        next = next.max(self.stream.first());
        for _ in 0..READ_RATE {
            let index = (next - self.stream.first()) as usize;
            let Some(stored) = self.stream.messages.get(index).cloned() else { break };
            next = stored.sequence + 1;
            self.deliver(now_ms, at, Down::Logged { reader, stored });
        }
        self.links[at].next = Some(next);
    }
}
