//! The other nodes: which there are, and how much of what they said is missing here.

mod lag;

use std::collections::BTreeMap;

use crate::heartbeat::Heartbeat;
use crate::host::Position;
use crate::seam::{DropReason, Output, Time};
use crate::snapshot::Warmth;
use crate::status::{ClusterNode, LogState, NodeState, seconds, started_s};
use lag::Covered;

/// Nodes send heartbeats each second, so three are missing.
const SUSPECT_MS: u64 = 3000;
/// A node that is silent for so long is taken to have ended.
const GONE_MS: u64 = 10_000;
/// A node that was silent for so long may have heard nothing either, and may have removed this node's WebTorrent peers by
/// the time it is back.
const APART_MS: u64 = GONE_MS / 2;
/// By then, the nodes that are back have heard of this one, too, and take its WebTorrent peers.
const TELL_WAIT_MS: u64 = 2000;
/// Heartbeats are not on their way for longer. Clocks of nodes may differ by more.
const DELAY_MAX_MS: u64 = 60_000;
/// Nodes that ended are shown for so long.
const SHOWN_MS: u64 = 3_600_000;

/// Another node.
#[derive(Debug)]
struct Member {
    state: NodeState,
    /// When it was last heard of, by the steady clock.
    heard_ms: u64,
    heartbeat: Heartbeat,
    /// Up to when its blocks are applied.
    covered: Covered,
    /// True if its WebTorrent peers were removed since it was last heard.
    is_purged: bool,
}

/// A process with this node's number.
#[derive(Clone, Copy, Debug)]
struct Twin {
    boot: u64,
    heard_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    node: u8,
    boot: u64,
    members: BTreeMap<u8, Member>,
    /// Nodes with listeners of other kinds, and when they were last heard of, by the steady clock.
    refused: BTreeMap<u8, u64>,
    twin: Option<Twin>,
    /// When any other node was last heard of, by the steady clock.
    heard_ms: u64,
    /// Since when heartbeats of other nodes come without a break. A node that gets none is cut off itself, mostly.
    hears_since_ms: u64,
    /// When this node sends its WebTorrent peers again.
    tell_web_ms: Option<u64>,
}

impl Members {
    pub(crate) fn new(node: u8, boot: u64) -> Self {
        Self { node, boot, ..Self::default() }
    }

    /// Takes a heartbeat. `now` has the time of the stream.
    pub(crate) fn heard(
        &mut self,
        now: Time,
        from: u8,
        body: &[u8],
        out: &mut Vec<Output>,
    ) -> Result<(), DropReason> {
        let heartbeat = Heartbeat::read(body).ok_or(DropReason::Damaged)?;
        if from == 0 || heartbeat.node != from {
            return Err(DropReason::Origin);
        }
        if from == self.node {
            self.heard_twin(now, &heartbeat, out);
            return Ok(());
        }
        if now.steady_ms >= self.heard_ms + SUSPECT_MS {
            self.hears_since_ms = now.steady_ms;
        }
        self.heard_ms = now.steady_ms;
        let Some(member) = self.members.get_mut(&from) else {
            let version = &heartbeat.version;
            out.push(Output::info(format!("node {from} is there, version {version}")));
            self.tell_web_soon(now);
            self.members.insert(from, Member::new(now, heartbeat));
            return Ok(());
        };
        let silent_ms = now.steady_ms.saturating_sub(member.heard_ms);
        let was_there = matches!(member.state, NodeState::Alive | NodeState::Suspect);
        if heartbeat.boot != member.heartbeat.boot {
            // Of two processes with one number, the older one continues, so what a younger one said is over.
            // A process that has just started is younger than the one before it.
            let is_restart = heartbeat.boot > member.heartbeat.boot;
            if was_there && !is_restart && silent_ms < SUSPECT_MS || heartbeat.is_leaving {
                return Ok(());
            }
            out.push(Output::info(format!("node {from} has restarted")));
            out.push(Output::PurgeWeb { node: from });
            // Blocks that its previous process stored may still be missing here, so `covered` is kept.
            let covered = std::mem::replace(&mut member.covered, Covered::new(0));
            *member = Member { covered, ..Member::new(now, heartbeat) };
            self.tell_web_soon(now);
            return Ok(());
        }
        if heartbeat.is_leaving {
            if member.state != NodeState::Left {
                out.push(Output::info(format!("node {from} has left")));
                out.push(Output::PurgeWeb { node: from });
                member.state = NodeState::Left;
            }
            return Ok(());
        }
        if member.state != NodeState::Alive {
            let seconds = silent_ms / 1000;
            out.push(Output::info(format!("node {from} is back, after {seconds} s")));
        }
        member.update(now, heartbeat);
        if silent_ms >= APART_MS {
            self.tell_web_soon(now);
        }
        Ok(())
    }

    /// Has this node send its WebTorrent peers again: another one has just started, or may have removed them. The log has
    /// those of the last minutes only, under processes that may have ended.
    fn tell_web_soon(&mut self, now: Time) {
        self.tell_web_ms.get_or_insert(now.steady_ms + TELL_WAIT_MS);
    }

    fn heard_twin(&mut self, now: Time, heartbeat: &Heartbeat, out: &mut Vec<Output>) {
        let boot = heartbeat.boot;
        if boot == self.boot {
            return;
        }
        if heartbeat.is_leaving {
            if self.twin.take_if(|twin| twin.boot == boot).is_some() {
                self.report_end_of_twin(out);
            }
            return;
        }
        if self.twin.is_none() {
            let node = self.node;
            let text = if boot < self.boot {
                format!(
                    "another process is node {node}, and older: nothing is published until it ends"
                )
            } else {
                format!("another process says that it is node {node}, too")
            };
            out.push(Output::warning(text));
        }
        // The oldest one counts.
        if self.twin.is_none_or(|twin| boot <= twin.boot) {
            self.twin = Some(Twin { boot, heard_ms: now.steady_ms });
        }
    }

    fn report_end_of_twin(&self, out: &mut Vec<Output>) {
        let node = self.node;
        out.push(Output::info(format!("the other process that was node {node} is gone")));
    }

    pub(crate) fn tick(&mut self, now: Time, applied: Position, out: &mut Vec<Output>) {
        let is_over = |twin: &mut Twin| now.steady_ms >= twin.heard_ms + GONE_MS;
        if self.twin.take_if(is_over).is_some() {
            self.report_end_of_twin(out);
        }
        if self.tell_web_ms.take_if(|at_ms| now.steady_ms >= *at_ms).is_some() {
            out.push(Output::TellWeb);
        }
        let is_hearing = now.steady_ms < self.heard_ms + SUSPECT_MS;
        let hears_others = is_hearing && now.steady_ms >= self.hears_since_ms + GONE_MS;
        for (node, member) in &mut self.members {
            let silent_ms = now.steady_ms.saturating_sub(member.heard_ms);
            member.covered.advance(applied);
            match member.state {
                NodeState::Alive if silent_ms >= SUSPECT_MS => {
                    member.state = NodeState::Suspect;
                    out.push(Output::warning(format!("node {node} is silent")));
                }
                NodeState::Suspect if silent_ms >= GONE_MS => {
                    member.state = NodeState::Gone;
                    out.push(Output::warning(format!("node {node} is gone")));
                }
                _ => {}
            }
            // Otherwise this node is the one that is cut off, and their peers live as long as any.
            if member.state == NodeState::Gone && hears_others && !member.is_purged {
                member.is_purged = true;
                out.push(Output::PurgeWeb { node: *node });
            }
        }
        self.members.retain(|_, member| now.steady_ms < member.heard_ms + SHOWN_MS);
    }

    /// Notes that a node has listeners of other kinds.
    pub(crate) fn refuse(&mut self, now: Time, node: u8, out: &mut Vec<Output>) {
        let is_known = self.refused(now).contains(&node);
        self.refused.insert(node, now.steady_ms);
        if !is_known {
            let text = format!(
                "node {node} is refused: one of it and this node serves private torrents, and the other one anyone"
            );
            out.push(Output::warning(text));
        }
    }

    /// Returns the nodes that were refused within the last seconds.
    pub(crate) fn refused(&self, now: Time) -> Vec<u8> {
        let is_there = |(_, heard_ms): &(&u8, &u64)| now.steady_ms < *heard_ms + GONE_MS;
        self.refused.iter().filter(is_there).map(|(node, _)| *node).collect()
    }

    /// Returns true if this node must be silent, because an older process has its number.
    pub(crate) fn is_mute(&self) -> bool {
        self.twin.is_some_and(|twin| twin.boot < self.boot)
    }

    /// Returns true if process `boot` of `node`, the writer of a block, is there.
    pub(crate) fn is_there(&self, node: u8, boot: u64) -> bool {
        self.members.get(&node).is_some_and(|member| {
            let is_there = matches!(member.state, NodeState::Alive | NodeState::Suspect);
            is_there && member.heartbeat.boot == boot
        })
    }

    /// Returns the digests of a node's rows, if its heartbeats come.
    pub(crate) fn rows(&self, node: u8) -> Option<&[u64]> {
        let member = self.members.get(&node)?;
        (member.state == NodeState::Alive).then_some(&member.heartbeat.rows)
    }

    /// Returns the IPv4 and IPv6 peers of each node that knows everything and has told everything, and expires peers as
    /// this one does.
    pub(crate) fn peers(&self, policy: u64) -> impl Iterator<Item = (u8, u64)> {
        let is_settled = move |member: &Member| {
            let heartbeat = &member.heartbeat;
            let is_there = member.state == NodeState::Alive && heartbeat.policy == policy;
            is_there && heartbeat.warmth == Warmth::Warm && heartbeat.outbound == LogState::Flowing
        };
        let settled = self.members.iter().filter(move |(_, member)| is_settled(member));
        settled.map(|(node, member)| (*node, member.heartbeat.peers[..2].iter().sum()))
    }

    /// Returns true if a node that is there asks this one for all of its peers.
    pub(crate) fn is_asked(&self, from: u8) -> bool {
        self.members.get(&from).is_some_and(|member| {
            member.state == NodeState::Alive && member.heartbeat.asks == self.node
        })
    }

    /// Returns true if no warm node that is alive has a smaller number.
    pub(crate) fn is_first(&self) -> bool {
        !self.members.range(..self.node).any(|(_, member)| {
            member.state == NodeState::Alive && member.heartbeat.warmth == Warmth::Warm
        })
    }

    /// Returns the largest lag of nodes that are there, milliseconds.
    pub(crate) fn lag_ms(&self, now: Time) -> u64 {
        let there = self
            .members
            .values()
            .filter(|member| matches!(member.state, NodeState::Alive | NodeState::Suspect));
        there.map(|member| member.covered.lag_ms(now)).max().unwrap_or_default()
    }

    /// Returns what there is to see. `log_last` is the last message of the log, `applied` the one that is
    /// applied here.
    pub(crate) fn snapshot(
        &self,
        now: Time,
        applied: Position,
        log_last: u64,
        policy: u64,
    ) -> Vec<ClusterNode> {
        let snapshot = |member: &Member| {
            let heartbeat = &member.heartbeat;
            let is_there = member.state != NodeState::Left;
            let theirs = heartbeat.applied;
            ClusterNode {
                node: heartbeat.node,
                state: member.state,
                version: heartbeat.version.clone(),
                zone: heartbeat.zone.clone(),
                started: started_s(heartbeat.boot),
                heartbeat_age_s: seconds(now.steady_ms.saturating_sub(member.heard_ms)),
                warm: heartbeat.warmth == Warmth::Warm,
                log: heartbeat.outbound,
                peers: heartbeat.peers.iter().sum(),
                torrents: heartbeat.torrents,
                announces_s: heartbeat.announces_per_s as f64,
                lag_s: if is_there { seconds(member.covered.lag_ms(now)) } else { 0.0 },
                their_lag_s: seconds(heartbeat.lag_ms),
                behind_blocks: match theirs.stream == applied.stream {
                    true => log_last.saturating_sub(theirs.sequence),
                    false => log_last,
                },
                clock_offset_s: heartbeat.clock_ahead_ms as f64 / 1000.0,
                queue_bytes: heartbeat.queue_bytes,
                same_policy: heartbeat.policy == policy,
                ..ClusterNode::default()
            }
        };
        self.members.values().map(snapshot).collect()
    }
}

impl Member {
    fn new(now: Time, heartbeat: Heartbeat) -> Self {
        let mut member = Self {
            state: NodeState::Alive,
            heard_ms: now.steady_ms,
            heartbeat: Heartbeat::default(),
            covered: Covered::new(now.steady_ms.saturating_sub(heartbeat.unstored_ms)),
            is_purged: false,
        };
        if heartbeat.is_leaving {
            member.state = NodeState::Left;
            member.heartbeat = heartbeat;
        } else {
            member.update(now, heartbeat);
        }
        member
    }

    fn update(&mut self, now: Time, heartbeat: Heartbeat) {
        self.state = NodeState::Alive;
        self.is_purged = false;
        self.heard_ms = now.steady_ms;
        // A node that has not reached the log yet knows nothing of what its processes stored.
        if heartbeat.stored.stream > 0 {
            let delay_ms = now.unix_ms.saturating_sub(heartbeat.at_ms).min(DELAY_MAX_MS);
            let age_ms = delay_ms + heartbeat.unstored_ms;
            self.covered.expect(heartbeat.stored, now.steady_ms.saturating_sub(age_ms));
        }
        self.heartbeat = heartbeat;
    }
}
