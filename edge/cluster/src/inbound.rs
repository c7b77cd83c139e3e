//! Messages of other nodes: which of them are applied.
//!
//! The log decides. Each node reads all of it in the stream's order, and applies each message, also its own: so the
//! last one that reports a peer is the same one everywhere. What comes live is applied at once, unless the log was
//! faster.

mod flood;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::seam::DropReason;
use flood::Flood;
use replication::block::{Block, Kind};

/// Messages received from one node.
#[derive(Debug, Default)]
struct Origin {
    /// The process whose message came last by the log.
    boot: u64,
    /// The number of its last block.
    logged: u64,
    live_flood: Flood,
    log_flood: Flood,
}

/// The blocks of a message, which come from one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) boot: u64,
    /// The time of the cut of the first block and of the last one, on the stream's clock.
    pub(crate) first_cut_ms: u64,
    pub(crate) last_cut_ms: u64,
    /// The number of the last block.
    number: u64,
    /// True if a later version wrote blocks of a kind that is not known here.
    pub(crate) has_unknown: bool,
}

/// Messages received from all nodes.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    origins: BTreeMap<u8, Origin>,
}

impl Inbound {
    pub(crate) fn live(
        &mut self,
        now_ms: u64,
        from: u8,
        message: &[u8],
    ) -> Result<Accepted, DropReason> {
        let accepted = read(from, message)?;
        let origin = self.origins.entry(from).or_default();
        origin.live_flood.take(now_ms, message.len())?;
        if (accepted.boot, accepted.number) <= (origin.boot, origin.logged) {
            // The log may have said more of its peers since.
            return Err(DropReason::Repeated);
        }
        Ok(accepted)
    }

    /// Takes a message that came by the log, which stored it at `stored_ms`.
    pub(crate) fn logged(
        &mut self,
        stored_ms: u64,
        from: u8,
        message: &[u8],
    ) -> Result<Accepted, DropReason> {
        let accepted = read(from, message)?;
        let origin = self.origins.entry(from).or_default();
        // By the stream's clock: all nodes drop the same ones, also when they read an hour's in a second.
        origin.log_flood.take(stored_ms, message.len())?;
        (origin.boot, origin.logged) = (accepted.boot, accepted.number);
        Ok(accepted)
    }
}

fn read(from: u8, message: &[u8]) -> Result<Accepted, DropReason> {
    let mut accepted: Option<Accepted> = None;
    let mut rest = message;
    while accepted.is_none() || !rest.is_empty() {
        let (block, len) = Block::read(rest).map_err(|_| DropReason::Damaged)?;
        rest = &rest[len..];
        let header = block.header;
        if from == 0 || header.node != u16::from(from) {
            return Err(DropReason::Origin);
        }
        let is_known = match header.kind {
            Kind::CHANGES | Kind::WALK if block.groups().is_err() => {
                return Err(DropReason::Damaged);
            }
            Kind::CHANGES | Kind::WALK | Kind::SESSIONS | Kind::WEB | Kind::ACCOUNTS => true,
            _ => false,
        };
        let before = accepted.get_or_insert(Accepted {
            boot: header.boot,
            first_cut_ms: header.cut_ms,
            last_cut_ms: header.cut_ms,
            number: header.number,
            has_unknown: false,
        });
        if before.boot != header.boot {
            return Err(DropReason::Damaged);
        }
        before.last_cut_ms = header.cut_ms;
        before.number = header.number;
        before.has_unknown |= !is_known;
    }
    accepted.ok_or(DropReason::Damaged)
}
