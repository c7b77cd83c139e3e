//! The lab's two XDP programs: one writes the generator's frames, the other counts the replies.

use std::os::fd::BorrowedFd;

use xdp::bpf::action;

use super::assembler::{Assembler, Helper, Is, Op, R0, R1, R2, R3, R4, R6, R7, R8, R9, R10, Width};
use super::frames::Family;

/// Frames of a load. They are sent in turn.
pub(super) const SLOTS: usize = 16_384;
/// Bytes of a slot before its frame: length (2), class (1), whether it is stamped (1), none (4).
pub(super) const SLOT_HEAD: usize = 8;
/// Bytes of a slot: the longest frame is an announce over IPv6.
pub(super) const SLOT: usize = SLOT_HEAD + 160;

/// Kinds of frames that are counted by themselves. A frame's source port has its class in the upper
/// bits: `class << CLASS_SHIFT`. Ports from [`SOCKET_PORTS`] on are those of ordinary sockets.
pub(super) const CLASSES: usize = 8;
pub(super) const CLASS_SHIFT: u16 = 11;
const SOCKET_PORTS: i32 = 16_384;
/// Frames of this class and above carry their time as transaction id.
pub(super) const FIRST_STAMPED: u8 = 4;

/// The generator's settings, in words of 64 bits: nanoseconds from one burst to the next (0 = as fast
/// as it can), frames of a burst.
pub(super) const CONTROL_WORDS: usize = 2;
/// What the generator keeps: number of the next frame, time of the next burst, frames left of this one,
/// frames sent of each class.
pub(super) const STATE_WORDS: usize = 3 + CLASSES;
/// Index of the frames sent.
pub(super) const SENT: usize = 3;
/// How far the generator may fall behind its pace, and catch up.
const BEHIND_NS: i32 = 1_000_000;

/// What is counted of each class, per processor: connects, announces, errors and others that came back,
/// their bytes (UDP header and payload), and three words of nothing.
pub(super) const COUNTS: usize = 8;
pub(super) const BYTES: usize = 4;
const PROCESSORS: usize = 8;
pub(super) const COUNT_WORDS: usize = PROCESSORS * CLASSES * COUNTS;
/// Counters of response times, of 32 bits, one for each 1,024 ns; the last one is for all above.
pub(super) const TIMES: usize = 16_384;
pub(super) const TIME_SHIFT: i32 = 10;

/// Bytes of a datagram before its action and transaction id.
const UDP: usize = 8;
/// Where an announce or a connect has its transaction id.
const TRANSACTION: usize = 12;

/// Maps of the generator's program.
#[derive(Clone, Copy)]
pub(super) struct GeneratorMaps<'a> {
    pub(super) slots: BorrowedFd<'a>,
    pub(super) control: BorrowedFd<'a>,
    pub(super) state: BorrowedFd<'a>,
}

/// Returns the generator's program: it writes the next frame, of at most `len` bytes, into the one that
/// it is given, which is as long, and sends it to the device's peer. Those that are ahead of the pace
/// are dropped.
pub(super) fn generator(
    family: Family,
    len: usize,
    device: u32,
    maps: GeneratorMaps<'_>,
) -> Vec<u64> {
    let mut code = Assembler::default();
    code.register(Op::Set, R6, R1);
    code.value(R8, maps.state);
    code.value(R9, maps.control);
    pace(&mut code);
    // The next slot.
    code.load(Width::Eight, R1, R8, 0);
    code.register(Op::Set, R2, R1);
    code.immediate(Op::Add, R2, 1);
    code.store(Width::Eight, R8, 0, R2);
    code.immediate(Op::And, R1, SLOTS as i32 - 1);
    code.store(Width::Four, R10, -4, R1);
    code.map(R1, maps.slots);
    code.register(Op::Set, R2, R10);
    code.immediate(Op::Add, R2, -4);
    code.call(Helper::LookUp);
    code.jump(R0, Is::Equal, 0, "aborted");
    code.register(Op::Set, R7, R0);
    code.load(Width::Four, R9, R6, 0);
    code.load(Width::Four, R2, R6, 4);
    code.register(Op::Set, R3, R9);
    code.immediate(Op::Add, R3, len as i32);
    code.compare(R3, Is::Above, R2, "aborted");
    copy(&mut code, len);
    // Counted once it is certain to leave.
    code.load(Width::One, R1, R7, 2);
    code.immediate(Op::And, R1, CLASSES as i32 - 1);
    code.immediate(Op::ShiftLeft, R1, 3);
    code.register(Op::Add, R8, R1);
    code.count(Width::Eight, R8, (SENT * 8) as i16, R2);
    code.load(Width::One, R3, R7, 3);
    code.jump(R3, Is::Equal, 0, "cut");
    stamp(&mut code, family);
    code.label("cut");
    code.load(Width::Two, R2, R7, 0);
    code.jump(R2, Is::Equal, len as i32, "send");
    code.immediate(Op::Sub, R2, len as i32);
    code.register(Op::Set, R1, R6);
    code.call(Helper::AdjustTail);
    code.jump(R0, Is::Unequal, 0, "aborted");
    code.label("send");
    code.immediate(Op::Set, R1, device.cast_signed());
    code.immediate(Op::Set, R2, 0);
    code.call(Helper::Redirect);
    code.exit();
    code.label("drop");
    code.end(action::DROP);
    code.label("aborted");
    code.end(action::ABORTED);
    code.finish()
}

/// Jumps to "drop" if it is too early for a frame. R8 is the state, R9 the control.
fn pace(code: &mut Assembler<'_>) {
    code.load(Width::Eight, R2, R9, 0);
    code.jump(R2, Is::Equal, 0, "due");
    code.load(Width::Eight, R3, R8, 16);
    code.jump(R3, Is::Unequal, 0, "burst");
    code.call(Helper::Nanoseconds);
    code.load(Width::Eight, R2, R9, 0);
    code.load(Width::Eight, R3, R8, 8);
    code.compare(R0, Is::Below, R3, "drop");
    code.immediate(Op::Sub, R0, BEHIND_NS);
    code.compare(R3, Is::AtLeast, R0, "in time");
    code.register(Op::Set, R3, R0);
    code.label("in time");
    code.register(Op::Add, R3, R2);
    code.store(Width::Eight, R8, 8, R3);
    code.load(Width::Eight, R3, R9, 8);
    code.label("burst");
    code.immediate(Op::Sub, R3, 1);
    code.store(Width::Eight, R8, 16, R3);
    code.label("due");
}

/// Copies the slot R7 into the frame R9.
fn copy(code: &mut Assembler<'_>, len: usize) {
    let mut at = 0;
    for (size, bytes) in [(Width::Eight, 8), (Width::Four, 4), (Width::Two, 2), (Width::One, 1)] {
        while at + bytes <= len {
            code.load(size, R1, R7, (SLOT_HEAD + at) as i16);
            code.store(size, R9, at as i16, R1);
            at += bytes;
        }
    }
}

/// Writes the time into the frame R9 as its transaction id, which is 0 before, and adds it to the
/// checksum if there is one.
fn stamp(code: &mut Assembler<'_>, family: Family) {
    code.call(Helper::Nanoseconds);
    code.store(Width::Four, R9, (family.headers() + TRANSACTION) as i16, R0);
    if family == Family::V4 {
        return;
    }
    let checksum = (family.headers() - 2) as i16;
    code.load(Width::Two, R3, R9, checksum);
    code.immediate(Op::Xor, R3, 0xffff);
    for shift in [0, 16] {
        code.register(Op::Set, R4, R0);
        code.immediate(Op::ShiftRight, R4, shift);
        code.immediate(Op::And, R4, 0xffff);
        code.register(Op::Add, R3, R4);
    }
    for _ in 0..2 {
        code.register(Op::Set, R4, R3);
        code.immediate(Op::ShiftRight, R4, 16);
        code.immediate(Op::And, R3, 0xffff);
        code.register(Op::Add, R3, R4);
    }
    code.immediate(Op::Xor, R3, 0xffff);
    code.jump(R3, Is::Unequal, 0, "sum");
    code.immediate(Op::Set, R3, 0xffff);
    code.label("sum");
    code.store(Width::Two, R9, checksum, R3);
}

/// Returns the program of the generator's end: it counts and drops replies to the generator's frames,
/// and passes all else.
pub(super) fn counter(port: u16, counts: BorrowedFd<'_>, times: BorrowedFd<'_>) -> Vec<u64> {
    let mut code = Assembler::default();
    find_datagram(&mut code);
    // R9 is the datagram.
    code.load(Width::Two, R1, R9, 0);
    code.jump(R1, Is::Unequal, port.to_be().into(), "pass");
    code.load(Width::Two, R6, R9, 2);
    code.swap_16(R6);
    code.jump(R6, Is::AtLeast, SOCKET_PORTS, "pass");
    code.immediate(Op::ShiftRight, R6, CLASS_SHIFT.into());
    code.load(Width::Two, R8, R9, 4);
    code.swap_16(R8);
    code.load(Width::Four, R1, R9, UDP as i16);
    kind(&mut code);
    // R6 is the class, R7 the kind, R8 the length. No two processors write the same word.
    code.call(Helper::Processor);
    code.immediate(Op::And, R0, PROCESSORS as i32 - 1);
    code.immediate(Op::ShiftLeft, R0, (CLASSES * COUNTS * 8).ilog2().cast_signed());
    code.value(R1, counts);
    code.register(Op::Add, R1, R0);
    code.register(Op::Set, R2, R6);
    code.immediate(Op::And, R2, CLASSES as i32 - 1);
    code.immediate(Op::ShiftLeft, R2, (COUNTS * 8).ilog2().cast_signed());
    code.register(Op::Add, R1, R2);
    code.load(Width::Eight, R2, R1, (BYTES * 8) as i16);
    code.register(Op::Add, R2, R8);
    code.store(Width::Eight, R1, (BYTES * 8) as i16, R2);
    code.immediate(Op::ShiftLeft, R7, 3);
    code.register(Op::Add, R1, R7);
    code.count(Width::Eight, R1, 0, R2);
    code.jump(R6, Is::Below, FIRST_STAMPED.into(), "drop");
    code.load(Width::Four, R6, R9, UDP as i16 + 4);
    code.call(Helper::Nanoseconds);
    code.register(Op::Sub32, R0, R6);
    code.immediate(Op::ShiftRight, R0, TIME_SHIFT);
    code.jump(R0, Is::Below, TIMES as i32, "time");
    code.immediate(Op::Set, R0, TIMES as i32 - 1);
    code.label("time");
    code.immediate(Op::ShiftLeft, R0, 2);
    code.value(R1, times);
    code.register(Op::Add, R1, R0);
    code.count(Width::Four, R1, 0, R2);
    code.label("drop");
    code.end(action::DROP);
    code.label("pass");
    code.end(action::PASS);
    code.finish()
}

/// Makes R9 the UDP datagram of the frame, with its header and the first 8 bytes of its payload, and
/// goes to "pass" if it is anything else.
fn find_datagram(code: &mut Assembler<'_>) {
    code.load(Width::Four, R7, R1, 0);
    code.load(Width::Four, R8, R1, 4);
    code.register(Op::Set, R9, R7);
    code.immediate(Op::Add, R9, (Family::V4.headers() + 8) as i32);
    code.compare(R9, Is::Above, R8, "pass");
    code.load(Width::Two, R1, R7, 12);
    code.jump(R1, Is::Equal, 0x0800_u16.to_be().into(), "IPv4");
    code.jump(R1, Is::Unequal, 0x86dd_u16.to_be().into(), "pass");
    code.register(Op::Set, R9, R7);
    code.immediate(Op::Add, R9, (Family::V6.headers() + 8) as i32);
    code.compare(R9, Is::Above, R8, "pass");
    code.load(Width::One, R1, R7, 20);
    code.jump(R1, Is::Unequal, 17, "pass");
    code.register(Op::Set, R9, R7);
    code.immediate(Op::Add, R9, (Family::V6.headers() - UDP) as i32);
    code.go("UDP");
    code.label("IPv4");
    code.load(Width::One, R1, R7, 14);
    code.jump(R1, Is::Unequal, 0x45, "pass");
    code.load(Width::One, R1, R7, 23);
    code.jump(R1, Is::Unequal, 17, "pass");
    code.register(Op::Set, R9, R7);
    code.immediate(Op::Add, R9, (Family::V4.headers() - UDP) as i32);
    code.label("UDP");
}

/// Makes R7 the kind of the reply: an index of its counts. R1 is its action, R8 its length.
fn kind(code: &mut Assembler<'_>) {
    code.immediate(Op::Set, R7, 0);
    code.jump(R1, Is::Unequal, 0, "no connect");
    code.jump(R8, Is::Equal, UDP as i32 + 16, "known");
    code.label("no connect");
    code.immediate(Op::Set, R7, 1);
    code.jump(R1, Is::Unequal, 1_u32.to_be().cast_signed(), "no announce");
    code.jump(R8, Is::AtLeast, UDP as i32 + 20, "known");
    code.label("no announce");
    code.immediate(Op::Set, R7, 2);
    code.jump(R1, Is::Equal, 3_u32.to_be().cast_signed(), "known");
    code.immediate(Op::Set, R7, 3);
    code.label("known");
}
