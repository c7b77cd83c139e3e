mod clocks;
mod log;
mod members;
mod repairs;

use replication::block::{Header, Kind, write};

use super::*;
use crate::status::{LogState, NodeState};

const UNIX_MS: u64 = 1_700_000_000_000;

fn at(steady_ms: u64) -> Time {
    Time { steady_ms, unix_ms: UNIX_MS + steady_ms }
}

fn options(restored_ms: Option<u64>) -> Options {
    Options {
        node: 1,
        boot: 500,
        version: "1.2".to_owned(),
        zone: "here".to_owned(),
        kinds: &["bans", "keys"],
        policy: 7,
        queue_bytes: 1 << 20,
        peer_lifetime_s: 2700,
        warm_wait_ms: 30_000,
        restored_ms,
    }
}

/// A node, its time, and by how much its wall clock is ahead.
struct Bed {
    node: Node,
    ms: u64,
    ahead_ms: i64,
}

impl Bed {
    fn new(restored_ms: Option<u64>) -> Self {
        Self { node: Node::new(options(restored_ms)), ms: 0, ahead_ms: 0 }
    }

    fn now(&self) -> Time {
        let Time { steady_ms, unix_ms } = at(self.ms);
        Time { steady_ms, unix_ms: unix_ms.saturating_add_signed(self.ahead_ms) }
    }

    fn input(&mut self, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        self.node.handle(self.now(), input, &mut out);
        // Blocks are applied at once.
        if let Some(at) = out.iter().position(|output| *output == Output::Settle) {
            out.remove(at);
            out.extend(self.input(Input::Settled));
        }
        out
    }

    /// Advances the time tick by tick, and returns the outputs.
    fn wait(&mut self, ms: u64) -> Vec<Output> {
        let until = self.ms + ms;
        let mut out = Vec::new();
        while self.ms < until {
            self.ms += 100;
            out.extend(self.input(Input::Tick));
        }
        out
    }

    /// The same, while the log stores what is published, and the node reads it.
    fn wait_storing(&mut self, ms: u64) -> Vec<Output> {
        let mut all = Vec::new();
        for _ in 0..ms / 100 {
            let out = self.wait(100);
            for output in &out {
                if let Output::PublishLog { ticket, message } = output {
                    let sequence = self.node.position().sequence + 1;
                    all.extend(self.input(Input::Stored { ticket: *ticket, sequence }));
                    all.extend(self.logged(sequence, 1, message));
                }
            }
            all.extend(out);
        }
        all
    }

    /// Connects to a log that has messages 1 to `last`, the last one stored at `last_ms`.
    fn connect(&mut self, last: u64, last_ms: u64) -> Vec<Output> {
        self.input(Input::Connected);
        self.look_up(9, 1, last, last_ms);
        self.wait(1300)
    }

    fn look_up(&mut self, stream: u64, first: u64, last: u64, last_ms: u64) -> Vec<Output> {
        let mut out = self.compare_clocks();
        out.extend(self.input(Input::Log { stream, first, last, last_ms }));
        out
    }

    fn compare_clocks(&mut self) -> Vec<Output> {
        self.input(Input::Clock { asked_ms: self.ms, server_ms: UNIX_MS + self.ms })
    }

    fn logged(&mut self, sequence: u64, from: u8, message: &[u8]) -> Vec<Output> {
        self.input(Input::Logged { sequence, stored_ms: UNIX_MS, from, message })
    }

    fn hear(&mut self, from: u8, heartbeat: &Heartbeat) -> Vec<Output> {
        let at_ms = if heartbeat.at_ms == 0 { UNIX_MS + self.ms } else { heartbeat.at_ms };
        let body = Heartbeat { node: from, at_ms, ..heartbeat.clone() }.write();
        self.input(Input::Heartbeat { from, body: &body })
    }

    fn snapshot(&self) -> Snapshot {
        self.node.snapshot(self.now())
    }
}

fn starts(out: &[Output]) -> Vec<Start> {
    let start = |output: &Output| match output {
        Output::Read(start) => Some(*start),
        _ => None,
    };
    out.iter().filter_map(start).collect()
}

fn is_applied(out: &[Output]) -> bool {
    out.iter().any(|output| matches!(output, Output::Apply { .. }))
}

fn block(kind: Kind, node: u16, boot: u64, number: u64, cut_ms: u64) -> Vec<u8> {
    let header = Header { kind, has_ids: false, node, boot, number, cut_ms };
    let mut bytes = Vec::new();
    write(&header, &[], &mut bytes);
    bytes
}

fn changes(node: u16, boot: u64, number: u64) -> Vec<u8> {
    block(Kind::CHANGES, node, boot, number, UNIX_MS)
}
