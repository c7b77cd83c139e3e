//! Blocks of other nodes: which of them are applied.
//!
//! The log decides. Each node reads all of it in the stream's order, and applies each message, also those that
//! it published itself and those that come twice: so that the last one that says something of a peer is the
//! same one everywhere. What comes live is applied at once, unless the log was faster.

mod flood;
pub(crate) mod late;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::seam::DropReason;
use flood::Flood;
use replication::block::{Block, Kind};

/// Processes of one node whose numbers are kept: the present one, and the one before it, of which late copies may
/// come.
const BOOTS: usize = 2;

/// A process of a node.
#[derive(Debug)]
struct Boot {
    boot: u64,
    /// The largest number of a block that came by the log.
    logged: u64,
    /// The largest number of a block that was applied.
    applied: u64,
}

/// What a node has sent.
#[derive(Debug, Default)]
struct Origin {
    /// The last one heard of is the last one.
    boots: Vec<Boot>,
    live_flood: Flood,
    log_flood: Flood,
}

/// A block that is to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) kind: Kind,
    pub(crate) boot: u64,
    pub(crate) cut_ms: u64,
    /// The largest number of a block of this process that was applied.
    pub(crate) applied: u64,
}

/// What comes from all nodes.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    origins: BTreeMap<u8, Origin>,
}

impl Inbound {
    /// Takes a block that came live.
    pub(crate) fn live(
        &mut self,
        now_ms: u64,
        from: u8,
        bytes: &[u8],
    ) -> Result<Accepted, DropReason> {
        let block = read(from, bytes)?;
        let origin = self.origins.entry(from).or_default();
        origin.live_flood.take(now_ms, bytes.len())?;
        let known = origin.boots.iter_mut().find(|boot| boot.boot == block.header.boot);
        let mut applied = block.header.number;
        if let Some(boot) = known {
            if block.header.number <= boot.logged {
                // The log may have said more of its peers since.
                return Err(DropReason::Repeated);
            }
            boot.applied = boot.applied.max(block.header.number);
            applied = boot.applied;
        }
        Ok(accepted(&block, applied))
    }

    /// Takes a block that came by the log, which stored it at `stored_ms`.
    pub(crate) fn logged(
        &mut self,
        stored_ms: u64,
        from: u8,
        bytes: &[u8],
    ) -> Result<Accepted, DropReason> {
        let block = read(from, bytes)?;
        let origin = self.origins.entry(from).or_default();
        // By the stream's clock: all nodes drop the same ones, also when they read an hour's in a second.
        origin.log_flood.take(stored_ms, bytes.len())?;
        let number = block.header.number;
        let boot = origin.boot(block.header.boot);
        boot.logged = boot.logged.max(number);
        boot.applied = boot.applied.max(number);
        let applied = boot.applied;
        Ok(accepted(&block, applied))
    }
}

impl Origin {
    /// Returns a process, which becomes the last one heard of.
    fn boot(&mut self, boot: u64) -> &mut Boot {
        let at = self.boots.iter().position(|known| known.boot == boot);
        let known = match at {
            Some(at) => self.boots.remove(at),
            None => Boot { boot, logged: 0, applied: 0 },
        };
        if self.boots.len() == BOOTS {
            self.boots.remove(0);
        }
        self.boots.push(known);
        let last = self.boots.len() - 1;
        &mut self.boots[last]
    }
}

fn accepted(block: &Block<'_>, applied: u64) -> Accepted {
    let header = &block.header;
    Accepted { kind: header.kind, boot: header.boot, cut_ms: header.cut_ms, applied }
}

/// Reads a message that is a block, of a kind that can be applied.
fn read(from: u8, bytes: &[u8]) -> Result<Block<'_>, DropReason> {
    let (block, len) = Block::read(bytes).map_err(|_| DropReason::Damaged)?;
    if len != bytes.len() {
        return Err(DropReason::Damaged);
    }
    if from == 0 || block.header.node != u16::from(from) {
        return Err(DropReason::Origin);
    }
    match block.header.kind {
        Kind::CHANGES | Kind::WALK if block.groups().is_err() => Err(DropReason::Damaged),
        Kind::CHANGES | Kind::WALK | Kind::SESSIONS | Kind::WEB => Ok(block),
        _ => Err(DropReason::Kind),
    }
}
