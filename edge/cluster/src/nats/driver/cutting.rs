//! Cutting blocks: of what has changed, of the walk, and of sessions.

use std::io;
use std::time::{Duration, Instant};

use replication::Now;
use replication::block::Kind;
use swarm::{BlockSink, Encoder, Step};

use super::Driver;
use crate::node::Input;

/// Steps of a walk are done for this long at a time.
const WALK_SLICE: Duration = Duration::from_millis(4);

impl<'a> Driver<'a> {
    /// Cuts what has changed into blocks: peers and accounts.
    pub(super) fn flush(&mut self) {
        let missed = self.cut(|encoder, now, sink| {
            Ok(encoder.changes(now, sink)? + encoder.web_changes(now, sink)?)
        });
        if missed > 0 {
            self.input(Input::Missed, None);
        }
        while let Some(body) = self.shared.host.accounts().and_then(|accounts| accounts.take()) {
            self.cut(|encoder, now, sink| encoder.block(now, Kind::ACCOUNTS, &body, sink));
        }
    }

    /// Cuts blocks of all WebTorrent peers of this node.
    pub(super) fn tell_web(&mut self) {
        // Changes that were lost do not matter: the blocks have all peers.
        self.cut(|encoder, now, sink| encoder.all_web(now, sink));
    }

    /// Cuts the sessions that have changed.
    pub(super) fn flush_sessions(&mut self) {
        let (now, mut is_more) = (self.shared.host.now(), true);
        while is_more {
            let mut body = Vec::new();
            is_more = self.shared.host.take_sessions(now, &mut body);
            if !body.is_empty() {
                self.cut(|encoder, now, sink| encoder.block(now, Kind::SESSIONS, &body, sink));
            }
        }
    }

    /// Does steps of the walk, until about `bytes` are cut, for a moment at most.
    pub(super) fn walk(&mut self, bytes: usize) {
        let started = Instant::now();
        let mut sum = Step { is_complete: false, bytes: 0, missed: 0 };
        while sum.bytes < bytes as u64 && !sum.is_complete && started.elapsed() < WALK_SLICE {
            let step = self.cut(|encoder, now, sink| encoder.step(now, sink));
            sum.is_complete = step.is_complete;
            sum.bytes += step.bytes;
            sum.missed += step.missed;
        }
        if sum.missed > 0 {
            self.input(Input::Missed, None);
        }
        if sum.is_complete {
            self.input(Input::WalkEnded, None);
        }
    }

    /// Runs `encode`, passes the blocks in its sink to the node, and returns its result.
    fn cut<T>(
        &mut self,
        encode: impl FnOnce(&mut Encoder<'a>, Now, &mut BlockSink<'_>) -> io::Result<T>,
    ) -> T {
        let mut blocks = Vec::new();
        let encoded = encode(&mut self.encoder, self.shared.host.now(), &mut |_, block| {
            blocks.push(block.to_vec());
            Ok(())
        });
        for block in blocks {
            self.input(Input::Block(&block), None);
        }
        encoded.expect("a sink that keeps blocks in memory does not fail")
    }
}
