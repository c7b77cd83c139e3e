//! Steps that a cluster under load goes through. Each ends as it began: with all nodes and servers.

mod clocks;
mod foreign;
mod links;
mod nodes;
mod servers;

use anyhow::Result;

use super::stage::Stage;

/// A step: what happens, and what may go wrong meanwhile.
pub(super) struct Step {
    /// Its name, for the command line and the table.
    pub(super) name: &'static str,
    /// Plays it. Returns what was seen.
    pub(super) run: fn(&mut Stage) -> Result<String>,
    pub(super) allowed: Allowed,
}

/// Losses that a step may cause.
#[derive(Clone, Copy, Default)]
pub(super) struct Allowed {
    /// Requests that were under way to a node that was killed.
    pub(super) lost: bool,
    /// Peers that another node does not know in time, because no way leads there.
    pub(super) unseen: bool,
}

const NOTHING: Allowed = Allowed { lost: false, unseen: false };
const LOST: Allowed = Allowed { lost: true, unseen: false };
const UNSEEN: Allowed = Allowed { lost: false, unseen: true };

/// All steps. Any order must do.
pub(super) const STEPS: &[Step] = &[
    Step { name: "steady", run: steady, allowed: NOTHING },
    Step { name: "nodes killed", run: nodes::kill_each, allowed: LOST },
    Step { name: "node killed, journal lost", run: nodes::kill_and_forget, allowed: LOST },
    Step { name: "nodes restarted", run: nodes::restart_each, allowed: LOST },
    Step { name: "nodes upgraded", run: nodes::upgrade_each, allowed: NOTHING },
    Step { name: "other settings at a node", run: nodes::differ_in_settings, allowed: LOST },
    Step { name: "node hangs", run: nodes::hang, allowed: LOST },
    Step { name: "NATS servers killed", run: servers::kill_each, allowed: NOTHING },
    // Messages stored just before can be read only when two servers run again.
    Step { name: "two NATS servers killed", run: servers::kill_two, allowed: UNSEEN },
    Step { name: "NATS away for a moment", run: servers::pause_all, allowed: UNSEEN },
    Step { name: "NATS away for a lifetime", run: servers::kill_all, allowed: UNSEEN },
    Step { name: "NATS away, queue too small", run: servers::overflow, allowed: UNSEEN },
    Step { name: "NATS's store falls back", run: servers::fall_back, allowed: UNSEEN },
    Step { name: "pairs partitioned", run: links::cut_each_pair, allowed: UNSEEN },
    Step { name: "host cut off for a lifetime", run: links::cut_off, allowed: UNSEEN },
    Step { name: "slow and lossy links", run: links::slow, allowed: NOTHING },
    Step { name: "clock 1 h ahead", run: clocks::one_hour, allowed: LOST },
    Step { name: "foreign messages", run: foreign::garbage, allowed: NOTHING },
];

/// Nothing happens.
fn steady(stage: &mut Stage) -> Result<String> {
    stage.hold(20, 5);
    Ok("nothing happens".into())
}
