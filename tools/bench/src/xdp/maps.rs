//! The maps of the lab's two XDP programs, and the programs' instructions: one writes the generator's frames
//! (`sender.c`), the other counts the replies (`counter.c`). The constants here are those of these files.

use std::os::fd::BorrowedFd;

use xdp::bpf::{Reference, link};

use super::{counter, sender};

/// Frames of a load. They are sent in turn.
pub(super) const SLOTS: usize = 16_384;
/// Bytes of a slot before its frame: length (2), class (1), none (5).
pub(super) const SLOT_HEAD: usize = 8;
/// Bytes of a slot: the longest frame is an announce over IPv6.
pub(super) const SLOT: usize = SLOT_HEAD + 160;

/// Kinds of frames that are counted by themselves. A frame's source port has its class in the upper
/// bits: `class << CLASS_SHIFT`. Ports of 16,384 and above are those of ordinary sockets.
pub(super) const CLASSES: usize = 8;
pub(super) const CLASS_SHIFT: u16 = 11;

/// The generator's settings, in words of 64 bits: nanoseconds from one burst to the next (0 = as fast
/// as it can), frames of a burst, bytes of the longest frame, index of the device.
pub(super) const CONTROL_WORDS: usize = 4;
/// State of the generator: number of the next frame, time of the next burst, frames left of this one, frames sent of
/// each class.
pub(super) const STATE_WORDS: usize = 3 + CLASSES;
/// Index of the frames sent.
pub(super) const SENT: usize = 3;

/// Counts of each class, per processor: connects, announces, errors and others that came back, their bytes (UDP header
/// and payload), and three unused words.
pub(super) const COUNTS: usize = 8;
pub(super) const BYTES: usize = 4;
const PROCESSORS: usize = 8;
pub(super) const COUNT_WORDS: usize = PROCESSORS * CLASSES * COUNTS;

/// The instructions, which `cargo xtask bpf` compiles.
const SENDER: &[u8] = include_bytes!("sender.bin");
const COUNTER: &[u8] = include_bytes!("counter.bin");

/// A map of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapName {
    Slots,
    Control,
    State,
    Counts,
}

/// Maps of the generator's program.
#[derive(Clone, Copy)]
pub(super) struct GeneratorMaps<'a> {
    pub(super) slots: BorrowedFd<'a>,
    pub(super) control: BorrowedFd<'a>,
    pub(super) state: BorrowedFd<'a>,
}

/// Returns the generator's program: it writes the next frame into the one that it is given, and sends it to the
/// device's peer. Those that are ahead of the pace are dropped.
pub(super) fn generator(maps: GeneratorMaps<'_>) -> Vec<u64> {
    link(SENDER, sender::RELOCATIONS, |name| match name {
        MapName::Slots => (maps.slots, Reference::Map),
        MapName::Control => (maps.control, Reference::Value),
        MapName::State => (maps.state, Reference::Value),
        MapName::Counts => unreachable!("the generator does not count replies"),
    })
}

/// Returns the program of the generator's end: it counts and drops replies to the generator's frames, and passes all
/// else.
pub(super) fn counter(counts: BorrowedFd<'_>) -> Vec<u64> {
    link(COUNTER, counter::RELOCATIONS, |name| match name {
        MapName::Counts => (counts, Reference::Value),
        MapName::Slots | MapName::Control | MapName::State => {
            unreachable!("the counter sends nothing")
        }
    })
}
