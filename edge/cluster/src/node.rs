//! A node of a cluster: all of its decisions, without I/O.

mod reading;
#[cfg(test)]
mod tests;

use reading::{Extent, ReadState, Shorter};
use replication::block::Block;

use crate::clock::StreamClock;
use crate::differences::Differences;
use crate::events::Events;
use crate::heartbeat::{HEARTBEAT_MAX, Heartbeat};
use crate::host::Position;
use crate::inbound::{Accepted, Inbound};
use crate::lacks::Lacks;
use crate::members::Members;
use crate::outbound::{HOLD_MS, Outbound};
pub use crate::seam::{DropReason, Figures, Input, Options, Output, Start, Time};
use crate::snapshot::{Snapshot, Warmth};
use crate::status::{ClusterQueue, seconds};

/// From connecting until anything is published and the log is read: heartbeats of all nodes come, which say
/// whether another process has this node's number.
const COLLECT_MS: u64 = 1200;
const HEARTBEAT_MS: u64 = 1000;
/// A node that tells all of its peers does not do so again for this long, however many ask.
const TELL_PAUSE_MS: u64 = 60_000;
/// Messages that are stored so much later than their first block was cut are dropped: a removal that was cut after them
/// may be forgotten. Their node tells of its peers again. The rest of [`swarm::REMOVALS_KEPT_S`] is for clocks that
/// differ.
const LATE_MS: u64 = 45_000;

const _: () = assert!(HOLD_MS < LATE_MS && LATE_MS < 1000 * swarm::REMOVALS_KEPT_S as u64);

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    options: Options,
    clock: StreamClock,
    outbound: Outbound,
    inbound: Inbound,
    members: Members,
    differences: Differences,
    lacks: Lacks,
    /// When this node last began to tell all of its peers, because another one lacks some.
    told_ms: Option<u64>,
    events: Events,
    ignored: Vec<u8>,
    is_connected: bool,
    is_leaving: bool,
    /// When the connection was lost, until the log is looked up again.
    cut_ms: Option<u64>,
    /// True if the node was apart from the others for longer than [`HOLD_MS`], until it knows what they know.
    is_behind: bool,
    /// Times that [`Input::Settled`] is to come.
    settling: u32,
    /// True if an event has said that the wall clock is wrong.
    is_clock_wrong: bool,
    /// When the first input came.
    started_ms: Option<u64>,
    /// When heartbeats have been collected.
    collected_ms: Option<u64>,
    heartbeat_ms: Option<u64>,
    tick_ms: u64,
    warm_ms: Option<u64>,
    reading: ReadState,
    position: Position,
    /// When the last message that was applied was stored; and its sequence, 0 if the stream is another one now.
    stored_ms: u64,
    stored_sequence: u64,
    log_last: u64,
    /// The same when it was last looked up: what earlier processes of this node stored is before.
    looked_up_last: u64,
    /// Look-ups say that the log ends before what was applied.
    shorter: Option<Shorter>,
    /// The youngest block of an earlier process of this node that the log has: when it was cut.
    own_cut_ms: u64,
    figures: Figures,
    applied_bytes: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Node {
    /// Returns a node that has just started.
    pub fn new(options: Options) -> Self {
        let Options { node, boot, queue_bytes, peer_lifetime_s, .. } = options;
        Self {
            clock: StreamClock::default(),
            outbound: Outbound::new(node, boot, queue_bytes, peer_lifetime_s),
            inbound: Inbound::default(),
            members: Members::new(node, boot),
            differences: Differences::default(),
            lacks: Lacks::default(),
            told_ms: None,
            events: Events::default(),
            options,
            ignored: Vec::new(),
            is_connected: false,
            is_leaving: false,
            cut_ms: None,
            is_behind: false,
            settling: 0,
            is_clock_wrong: false,
            started_ms: None,
            collected_ms: None,
            heartbeat_ms: None,
            tick_ms: 0,
            warm_ms: None,
            reading: ReadState::Unknown,
            position: Position::default(),
            stored_ms: 0,
            stored_sequence: 0,
            log_last: 0,
            looked_up_last: 0,
            shorter: None,
            own_cut_ms: 0,
            figures: Figures::default(),
            applied_bytes: 0,
            dropped: [0; DropReason::ALL.len()],
        }
    }

    /// Handles an input. Appends what is to be done to `out`.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Output>) {
        let known = out.len();
        if self.started_ms.is_none() {
            self.started_ms = Some(now.steady_ms);
            self.tick_ms = now.steady_ms;
        }
        self.clock.follow(now);
        self.outbound.set_correction(self.clock.is_known().then(|| self.clock.correction_ms()));
        match input {
            Input::Tick => self.tick(now, out),
            Input::Figures(figures) => self.figures = figures,
            Input::Rows(digests) => self.differences.set_own(digests),
            Input::Repaired => self.differences.repaired(now),
            Input::Settled => self.settled(now, out),
            Input::Connected => self.connected(now, out),
            Input::Disconnected => self.disconnected(now, out),
            Input::Clock { asked_ms, server_ms } => self.compared(now, asked_ms, server_ms, out),
            Input::Log { stream, first, last, last_ms } => {
                // An empty stream has a last sequence, too.
                let last = if last < first { 0 } else { last };
                self.looked_up(now, stream, Extent { first, last, last_ms }, out);
            }
            Input::Block(block) => self.cut(now, block, out),
            // Those since they were last taken.
            Input::Missed => self.outbound.missed(self.tick_ms as i64 - HEARTBEAT_MS as i64),
            Input::WalkEnded => self.outbound.walk_ended(),
            Input::Stored { ticket, sequence } => {
                self.outbound.stored(now, ticket, sequence, out);
            }
            Input::Live { from, message } => self.live(now, from, message, out),
            Input::Logged { sequence, stored_ms, from, message } => {
                self.logged(now, Logged { sequence, stored_ms, from, message }, out);
            }
            Input::Heartbeat { from, body } => self.heard(now, from, body, out),
            Input::Dropped(reason) => self.drop_message(reason),
            Input::Refused { node } => {
                self.drop_message(DropReason::Access);
                self.members.refuse(now, node, out);
            }
            Input::Ignore { node, is_ignored } => self.ignore(node, is_ignored, out),
            Input::Leave => self.leave(now, out),
        }
        self.events.keep(now, &out[known..]);
    }

    fn connected(&mut self, now: Time, out: &mut Vec<Output>) {
        self.is_connected = true;
        self.collected_ms.get_or_insert(now.steady_ms + COLLECT_MS);
        out.push(Output::info("connected to NATS"));
        self.open_or_close(now, out);
    }

    fn disconnected(&mut self, now: Time, out: &mut Vec<Output>) {
        if std::mem::take(&mut self.is_connected) {
            self.cut_ms.get_or_insert(now.steady_ms);
            out.push(Output::warning("the connection to NATS is lost"));
        }
        if let ReadState::Waiting(_) = self.reading {
            self.reading = ReadState::Unknown;
        }
        self.open_or_close(now, out);
    }

    fn is_open(&self, now: Time) -> bool {
        let is_collected = self.collected_ms.is_some_and(|at_ms| now.steady_ms >= at_ms);
        // Before the first look-up, the time of blocks is not known.
        self.is_connected && is_collected && self.clock.is_known() && !self.members.is_mute()
    }

    fn open_or_close(&mut self, now: Time, out: &mut Vec<Output>) {
        let is_open = self.is_open(now);
        self.outbound.set_open(now, is_open, out);
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Output>) {
        self.members.tick(now, self.position, out);
        self.open_or_close(now, out);
        let is_collected = self.collected_ms.is_some_and(|at_ms| now.steady_ms >= at_ms);
        if let (ReadState::Waiting(extent), true) = (self.reading, is_collected) {
            self.read(now, extent, out);
        }
        let waited_ms = self.started_ms.map_or(0, |at_ms| now.steady_ms.saturating_sub(at_ms));
        if self.warm_ms.is_none() && waited_ms >= self.options.warm_wait_ms {
            let text =
                format!("counts as warm after {} s without all of the log", waited_ms / 1000);
            out.push(Output::warning(text));
            self.warm_ms = Some(waited_ms);
        }
        let [unstored_ms, _] = self.outbound.ages_ms(now);
        if unstored_ms >= HOLD_MS && !self.is_behind {
            // The log is out of reach, for reading, too.
            self.fall_behind(now.steady_ms as i64 - unstored_ms as i64, out);
        }
        self.outbound.tick(now, out);
        if self.outbound.applied(self.position.sequence) {
            self.settle(out);
        }
        let is_heard = |node| self.members.rows(node).is_some() && !self.ignored.contains(&node);
        self.differences.retain(is_heard);
        if self.is_open(now) {
            self.differences.begin(now, out);
        }
        let is_time = self.heartbeat_ms.is_none_or(|at_ms| now.steady_ms >= at_ms + HEARTBEAT_MS);
        if is_time && self.is_open(now) && !self.is_leaving {
            self.heartbeat_ms = Some(now.steady_ms);
            self.publish_heartbeat(now, out);
        }
        self.tick_ms = now.steady_ms;
    }

    /// A look-up compared the clocks.
    fn compared(&mut self, now: Time, asked_ms: u64, server_ms: u64, out: &mut Vec<Output>) {
        let lost_ms = self.clock.looked_up(now, asked_ms, server_ms);
        if lost_ms >= HOLD_MS {
            // Other nodes took this one for gone, and blocks waited for longer than it seems.
            let text = format!("this machine stood still for {} s", lost_ms / 1000);
            out.push(Output::warning(text));
            self.outbound.drop_all();
            self.fall_behind(now.steady_ms as i64 - lost_ms as i64, out);
        }
        let is_wrong = self.clock.is_wrong(now);
        if std::mem::replace(&mut self.is_clock_wrong, is_wrong) == is_wrong {
            return;
        }
        if is_wrong {
            let seconds = self.clock.ahead_ms(now) as f64 / 1000.0;
            let text = format!(
                "the clock of this machine is {seconds:+.1} s from that of the NATS server: synchronize both by NTP"
            );
            out.push(Output::warning(text));
        } else {
            out.push(Output::info("the clock of this machine is right again"));
        }
    }

    /// Notes that the node was apart from the others since a time of the steady clock. What it reads until it knows what
    /// they know is older, and later messages may take it back: it contradicts nothing.
    fn fall_behind(&mut self, since_ms: i64, out: &mut Vec<Output>) {
        self.is_behind = true;
        out.push(Output::Behind(true));
        self.outbound.missed(since_ms);
    }

    fn lifetime_ms(&self) -> u64 {
        u64::from(self.options.peer_lifetime_s) * 1000
    }

    fn cut(&mut self, now: Time, block: &[u8], out: &mut Vec<Output>) {
        match Block::read(block) {
            Ok((block, _)) => self.outbound.push(now, &block.header, block.body, out),
            Err(error) => debug_assert!(false, "expected a block, found {error:?}"),
        }
    }

    fn heard(&mut self, now: Time, from: u8, body: &[u8], out: &mut Vec<Output>) {
        if self.ignored.contains(&from) {
            return self.drop_message(DropReason::Ignored);
        }
        let stream_time = self.clock.stream_time(now);
        if let Err(reason) = self.members.heard(stream_time, from, body, out) {
            self.drop_message(reason);
        }
        if let Some(digests) = self.members.rows(from) {
            self.differences.compare(now, from, digests);
        }
        let may_tell = self.told_ms.is_none_or(|at_ms| now.steady_ms >= at_ms + TELL_PAUSE_MS);
        if may_tell && self.members.is_asked(from) {
            self.told_ms = Some(now.steady_ms);
            let text = format!("tells all of its peers again, because node {from} lacks some");
            out.push(Output::info(text));
            self.outbound.missed(now.steady_ms as i64 - self.lifetime_ms() as i64);
        }
        self.open_or_close(now, out);
    }

    fn live(&mut self, now: Time, from: u8, message: &[u8], out: &mut Vec<Output>) {
        if self.ignored.contains(&from) {
            return self.drop_message(DropReason::Ignored);
        }
        let accepted = match self.inbound.live(now.steady_ms, from, message) {
            _ if from == self.options.node => Err(DropReason::Repeated),
            accepted => accepted,
        };
        let stream_ms = self.clock.stream_time(now).unix_ms;
        let applied = accepted.and_then(|it| self.apply(now, from, &it, stream_ms, out));
        match applied {
            Ok(()) => self.applied_bytes += message.len() as u64,
            Err(reason) => self.drop_message(reason),
        }
    }

    fn logged(&mut self, now: Time, logged: Logged<'_>, out: &mut Vec<Output>) {
        let Logged { sequence, stored_ms, from, message } = logged;
        if sequence == self.stored_sequence && stored_ms != self.stored_ms {
            // It is not known up to when its messages are those that were read.
            let start = self.lose_end(now, 0, out);
            return out.push(Output::Read(start));
        }
        if sequence <= self.position.sequence
            || !matches!(self.reading, ReadState::Behind { .. } | ReadState::Current)
        {
            // The place where it is read was changed, and this was under way.
            return self.drop_message(DropReason::Repeated);
        }
        self.position.sequence = sequence;
        self.stored_sequence = sequence;
        self.stored_ms = stored_ms;
        self.shorter = None;
        self.log_last = self.log_last.max(sequence);
        let accepted = if self.ignored.contains(&from) {
            Err(DropReason::Ignored)
        } else {
            self.inbound.logged(stored_ms, from, message)
        };
        let applied = accepted.and_then(|accepted| {
            if from == self.options.node && accepted.boot != self.options.boot {
                self.own_cut_ms = self.own_cut_ms.max(accepted.last_cut_ms);
            }
            self.apply(now, from, &accepted, stored_ms, out)
        });
        match applied {
            Ok(()) => self.applied_bytes += message.len() as u64,
            Err(reason) => self.drop_message(reason),
        }
        self.check_current(out);
    }

    /// Orders the driver to apply a message that came at time `came_ms` of the stream.
    fn apply(
        &mut self,
        now: Time,
        from: u8,
        accepted: &Accepted,
        came_ms: u64,
        out: &mut Vec<Output>,
    ) -> Result<(), DropReason> {
        let Accepted { boot, first_cut_ms, .. } = *accepted;
        if accepted.has_unknown {
            self.drop_message(DropReason::Kind);
        }
        let now_ms = self.clock.stream_time(now).unix_ms;
        if came_ms.saturating_sub(first_cut_ms) >= LATE_MS
            || now_ms.saturating_sub(first_cut_ms) > self.lifetime_ms()
        {
            return Err(DropReason::Old);
        }
        out.push(Output::Apply {
            shift_ms: self.clock.correction_ms(),
            takes_web: self.members.is_there(from, boot),
            takes_sessions: (from, boot) != (self.options.node, self.options.boot),
        });
        Ok(())
    }

    fn ignore(&mut self, node: u8, is_ignored: bool, out: &mut Vec<Output>) {
        self.ignored.retain(|other| *other != node);
        if is_ignored {
            self.ignored.push(node);
            out.push(Output::warning(format!("node {node} is ignored")));
            out.push(Output::PurgeWeb { node });
        } else {
            out.push(Output::info(format!("node {node} is heeded again")));
        }
    }

    fn leave(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.is_open(now) && !self.is_leaving {
            self.is_leaving = true;
            self.publish_heartbeat(now, out);
        }
    }

    fn drop_message(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Returns the node that is to tell all of its peers again, if this one lacks some.
    fn ask_for_peers(&mut self, now: Time, out: &mut Vec<Output>) -> Option<u8> {
        let own = self.figures.peers[..2].iter().sum();
        let is_settled = self.reading == ReadState::Current && !self.is_behind;
        let ignored = &self.ignored;
        let others = self.members.peers(self.options.policy);
        let others = others.filter(|(node, _)| is_settled && !ignored.contains(node));
        let node = self.lacks.compare(now, own, others)?;
        let text = format!("peers of node {node} are missing here: it is asked for all of them");
        out.push(Output::warning(text));
        Some(node)
    }

    fn publish_heartbeat(&mut self, now: Time, out: &mut Vec<Output>) {
        let asks = self.ask_for_peers(now, out).unwrap_or(0);
        let Options { node, boot, policy, .. } = self.options;
        let (_, queue_bytes) = self.outbound.queue();
        let [unstored_ms, dirty_ms] = self.outbound.ages_ms(now);
        let Figures { peers, torrents, announces_per_s } = self.figures;
        let heartbeat = Heartbeat {
            node,
            boot,
            at_ms: self.clock.stream_time(now).unix_ms,
            clock_ahead_ms: self.clock.ahead_ms(now),
            version: self.options.version.clone(),
            zone: self.options.zone.clone(),
            policy,
            is_leaving: self.is_leaving,
            warmth: self.warmth(),
            outbound: self.outbound.state(),
            peers,
            torrents,
            announces_per_s,
            queue_bytes: queue_bytes as u64,
            unstored_ms: unstored_ms.max(dirty_ms),
            stored: Position {
                sequence: self.outbound.stored_sequence().max(self.looked_up_last),
                ..self.position
            },
            applied: self.position,
            lag_ms: self.members.lag_ms(now),
            asks,
            rows: self.differences.own().to_vec(),
        };
        let body = heartbeat.write();
        debug_assert!(body.len() <= HEARTBEAT_MAX);
        out.push(Output::PublishHeartbeat { body });
    }

    fn warmth(&self) -> Warmth {
        match self.reading {
            _ if self.warm_ms.is_some() => Warmth::Warm,
            ReadState::Unknown => Warmth::Connecting,
            _ => Warmth::Warming,
        }
    }

    /// Up to where the log is applied.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns true if the log has been applied up to where it ended at the start, or waiting has ended.
    pub fn is_warm(&self) -> bool {
        self.warm_ms.is_some()
    }

    fn kind_name(&self, kind: u8) -> String {
        match self.options.kinds.get(usize::from(kind)) {
            Some(name) => String::from(*name),
            None => format!("kind {kind}"),
        }
    }

    /// Returns what there is to see, for metrics and the API. Not for every input: it copies.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let (unstored_blocks, queue_bytes) = self.outbound.queue();
        let [unstored_ms, dirty_ms] = self.outbound.ages_ms(now);
        let mut nodes =
            self.members.snapshot(now, self.position, self.log_last, self.options.policy);
        for node in &mut nodes {
            let differing = self.differences.kinds(node.node).into_iter();
            node.ignored = self.ignored.contains(&node.node);
            node.differing = differing.map(|kind| self.kind_name(kind)).collect();
            node.differing_s = seconds(self.differences.lasting_ms(now, node.node));
        }
        let sent = self.outbound.counts();
        Snapshot {
            warmth: self.warmth(),
            warm_ms: self.warm_ms,
            is_mute: self.members.is_mute(),
            queue: ClusterQueue {
                log: self.outbound.state(),
                unstored_blocks: unstored_blocks as u64,
                unstored_bytes: queue_bytes as u64,
                unstored_s: (unstored_ms / 1000) as f64,
                bytes_max: self.options.queue_bytes as u64,
                dirty_s: (dirty_ms / 1000) as f64,
                log_behind: self.log_last.saturating_sub(self.position.sequence),
                retries: sent.retries,
                walks: sent.walks,
            },
            lag_ms: self.members.lag_ms(now),
            sent,
            applied_bytes: self.applied_bytes,
            dropped: self.dropped,
            clock_ahead_ms: self.clock.ahead_ms(now),
            nodes,
            refused: self.members.refused(now),
            events: self.events.list(),
        }
    }
}

/// A message of the log.
#[derive(Clone, Copy, Debug)]
struct Logged<'a> {
    sequence: u64,
    stored_ms: u64,
    from: u8,
    message: &'a [u8],
}
