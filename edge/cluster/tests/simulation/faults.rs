//! Faults: which, when and how long.

use primitives::Random;

use crate::Times;

/// A fault of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// Some faults of all kinds.
    Mixed,
    /// Blocks are often lost and published again.
    Storm,
    /// A node is cut off for longer than removals are remembered.
    Apart,
    /// Messages are stored after minutes.
    Stuck,
    /// Clocks of nodes and servers differ by minutes.
    WrongClocks,
    /// Nodes are cut off or away for up to three lifetimes of peers.
    Lifetimes,
    /// The stream falls back to an older copy while a node is cut off, which has not read what is lost then.
    FallsBack,
}

impl Scenario {
    pub(crate) const ALL: [Self; 7] = [
        Self::Mixed,
        Self::Storm,
        Self::Apart,
        Self::Stuck,
        Self::WrongClocks,
        Self::Lifetimes,
        Self::FallsBack,
    ];

    pub(crate) fn times(self) -> Times {
        if self == Self::Lifetimes { Times::SHORT } else { Times::USUAL }
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Messages of a node are late by up to this many milliseconds.
    Delay { at: usize, most_ms: u32 },
    /// Live messages to a node are lost: this many of 1000.
    Loss { at: usize, of_1000: u32 },
    /// A connection breaks.
    Disconnect { at: usize },
    /// A node does not reach NATS.
    Cut { at: usize },
    /// NATS is parted; these links are in the part without the stream.
    Part { links: u32 },
    /// The stream has no leader.
    LeaderLoss { loses_end: bool },
    /// The stream loses what it has stored for this long.
    FallBack { by_ms: u64 },
    /// The stream is deleted.
    Delete,
    /// The stream loses its oldest messages.
    LoseBeginning,
    /// The messages of a node to the log are stored only when the fault ends.
    Stuck { at: usize },
    /// A node is killed, and starts again when the fault ends, perhaps with its journal.
    Kill { at: usize, has_journal: bool },
    /// A node says good-bye first.
    Restart { at: usize, has_journal: bool },
    /// A node's thread hangs; clients are served.
    Hang { at: usize },
    /// A node reads and applies slowly.
    Slow { at: usize },
    /// A wall clock is set.
    ClockJump { at: usize, by_ms: i64 },
    /// A store loses changes.
    Missed { at: usize },
    /// Messages of the log are published once more: a node may have a consumer do that under their subjects.
    Replay,
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) fault: Fault,
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
}

/// Returns faults under which blocks are often lost and stored twice.
pub(crate) fn storm(random: &mut Random, slots: usize) -> Vec<Planned> {
    let planned = |nth: u64| {
        let from_ms = 10_000 + nth * 5000;
        let fault = match nth % 4 {
            0 => Fault::Disconnect { at: random.below(slots as u32) as usize },
            1 => Fault::Delay { at: random.below(slots as u32) as usize, most_ms: 4000 },
            2 => Fault::Replay,
            _ => Fault::LeaderLoss { loses_end: false },
        };
        Planned { fault, from_ms, until_ms: from_ms + 4000 }
    };
    (0..12).map(planned).collect()
}

/// Returns a cut that is longer than removals are remembered.
pub(crate) fn apart(random: &mut Random, slots: usize) -> Vec<Planned> {
    let at = random.below(slots as u32) as usize;
    let until_ms = 140_000 + u64::from(random.below(60_000));
    vec![Planned { fault: Fault::Cut { at }, from_ms: 10_000, until_ms }]
}

/// Returns a cut, at whose end the stream loses most of what it stored meanwhile.
pub(crate) fn falls_back(random: &mut Random, slots: usize) -> Vec<Planned> {
    let at = random.below(slots as u32) as usize;
    let (from_ms, until_ms) = (20_000, 60_000);
    let by_ms = 10_000 + u64::from(random.below(25_000));
    vec![
        Planned { fault: Fault::Cut { at }, from_ms, until_ms },
        Planned { fault: Fault::FallBack { by_ms }, from_ms: until_ms - 1000, until_ms },
    ]
}

/// Returns faults that last for one to three lifetimes of peers.
pub(crate) fn lifetimes(random: &mut Random, slots: usize, lifetime_s: u32) -> Vec<Planned> {
    let lifetime_ms = u64::from(lifetime_s) * 1000;
    let planned = |at: usize| {
        let from_ms = 10_000 + u64::from(random.below(60_000));
        let until_ms = from_ms + lifetime_ms + u64::from(random.below(2000 * lifetime_s));
        let has_journal = random.below(2) == 0;
        let fault = match random.below(4) {
            0 => Fault::Cut { at },
            1 => Fault::Part { links: 1 + random.below((1 << slots) - 1) },
            2 => Fault::Kill { at, has_journal },
            _ => Fault::LeaderLoss { loses_end: false },
        };
        Planned { fault, from_ms, until_ms }
    };
    (0..2).map(planned).collect()
}

/// Returns a fault under which messages arrive when removals that are later are forgotten.
pub(crate) fn stuck(random: &mut Random, slots: usize) -> Vec<Planned> {
    let at = random.below(slots as u32) as usize;
    let until_ms = 110_000 + u64::from(random.below(60_000));
    vec![Planned { fault: Fault::Stuck { at }, from_ms: 10_000, until_ms }]
}

/// Returns the faults of a seed: each node has at most one at a time that ends or stops it.
pub(crate) fn plan(
    random: &mut Random,
    slots: usize,
    end_ms: u64,
    has_clock_faults: bool,
) -> Vec<Planned> {
    let mut planned: Vec<Planned> = Vec::new();
    for _ in 0..2 + random.below(6) {
        let at = random.below(slots as u32) as usize;
        let from_ms = 15_000 + u64::from(random.below(end_ms as u32 - 20_000));
        let until_ms = (from_ms + 3000 + u64::from(random.below(37_000))).min(end_ms);
        let has_journal = random.below(2) == 0;
        let fault = match random.below(15) {
            0 => Fault::Delay { at, most_ms: 100 + random.below(5000) },
            1 => Fault::Loss { at, of_1000: 100 + random.below(901) },
            2 => Fault::Disconnect { at },
            3 | 4 => Fault::Cut { at },
            5 => Fault::Part { links: 1 + random.below((1 << slots) - 1) },
            6 => Fault::LeaderLoss { loses_end: random.below(5) == 0 },
            7 if random.below(3) == 0 => Fault::Delete,
            7 | 8 => Fault::Kill { at, has_journal },
            9 => Fault::Restart { at, has_journal },
            10 => Fault::Hang { at },
            11 => Fault::Slow { at },
            12 if has_clock_faults => {
                let by_ms = [3_600_000, -3_600_000, 30_000, -30_000][random.below(4) as usize];
                Fault::ClockJump { at, by_ms }
            }
            12 => Fault::Missed { at },
            13 => Fault::LoseBeginning,
            _ => Fault::Replay,
        };
        let stops = |fault| match fault {
            Fault::Kill { at, .. } | Fault::Restart { at, .. } => Some(at),
            _ => None,
        };
        let overlaps = |other: &Planned| {
            let is_same = stops(other.fault).is_some() && stops(other.fault) == stops(fault);
            let are_near = from_ms < other.until_ms + 30_000 && other.from_ms < until_ms + 30_000;
            is_same && are_near
        };
        if !planned.iter().any(overlaps) {
            planned.push(Planned { fault, from_ms, until_ms });
        }
    }
    planned
}
