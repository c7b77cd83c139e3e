//! Assembles BPF programs of a few dozen instructions (RFC 9669): jumps go forward, to labels.

use std::os::fd::BorrowedFd;

use xdp::bpf::{Reference, relocate};

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register(u8);

/// The result of a program or helper.
pub(super) const R0: Register = Register(0);
/// R1 to R5 are the arguments of helpers, which change them.
pub(super) const R1: Register = Register(1);
pub(super) const R2: Register = Register(2);
pub(super) const R3: Register = Register(3);
pub(super) const R4: Register = Register(4);
/// R6 to R9 keep their values.
pub(super) const R6: Register = Register(6);
pub(super) const R7: Register = Register(7);
pub(super) const R8: Register = Register(8);
pub(super) const R9: Register = Register(9);
/// The end of the stack.
pub(super) const R10: Register = Register(10);

/// Bytes of a load or store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    One,
    Two,
    Four,
    Eight,
}

/// An operation on 64 bits, but for `Sub32`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Add,
    And,
    ShiftLeft,
    ShiftRight,
    Sub,
    /// On the lower 32 bits; the upper ones become 0.
    Sub32,
    Xor,
    Set,
}

/// A condition of unsigned numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Is {
    Equal,
    Unequal,
    Above,
    AtLeast,
    Below,
}

/// Helper functions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Helper {
    LookUp = 1,
    Nanoseconds = 5,
    Processor = 8,
    Redirect = 23,
    AdjustTail = 65,
}

/// A program under way.
#[derive(Default)]
pub(super) struct Assembler<'a> {
    words: Vec<u64>,
    jumps: Vec<(usize, &'static str)>,
    labels: Vec<(&'static str, usize)>,
    maps: Vec<(usize, Reference, BorrowedFd<'a>)>,
}

const FROM_REGISTER: u8 = 0x08;

impl<'a> Assembler<'a> {
    fn add(&mut self, opcode: u8, (to, from): (u8, u8), offset: i16, immediate: i32) {
        let registers = u64::from(to) | u64::from(from) << 4;
        let offset = u64::from(offset.cast_unsigned());
        let immediate = u64::from(immediate.cast_unsigned());
        self.words.push(u64::from(opcode) | registers << 8 | offset << 16 | immediate << 32);
    }

    /// `to = to OP immediate`
    pub(super) fn immediate(&mut self, op: Op, to: Register, immediate: i32) {
        self.add(opcode(op), (to.0, 0), 0, immediate);
    }

    /// `to = to OP from`
    pub(super) fn register(&mut self, op: Op, to: Register, from: Register) {
        self.add(opcode(op) | FROM_REGISTER, (to.0, from.0), 0, 0);
    }

    /// `to = big-endian 16 bits of to`
    pub(super) fn swap_16(&mut self, to: Register) {
        self.add(0xdc, (to.0, 0), 0, 16);
    }

    /// `to = *(from + offset)`
    pub(super) fn load(&mut self, size: Width, to: Register, from: Register, offset: i16) {
        self.add(0x61 | bits(size), (to.0, from.0), offset, 0);
    }

    /// `*(to + offset) = from`
    pub(super) fn store(&mut self, size: Width, to: Register, offset: i16, from: Register) {
        self.add(0x63 | bits(size), (to.0, from.0), offset, 0);
    }

    /// Adds 1 to the number at `at + offset`. `with` is changed.
    pub(super) fn count(&mut self, size: Width, at: Register, offset: i16, with: Register) {
        self.load(size, with, at, offset);
        self.immediate(Op::Add, with, 1);
        self.store(size, at, offset, with);
    }

    /// Jumps to `label` if `one` is that to the number.
    pub(super) fn jump(&mut self, one: Register, is: Is, other: i32, label: &'static str) {
        self.jumps.push((self.words.len(), label));
        self.add(condition(is), (one.0, 0), 0, other);
    }

    /// Jumps to `label` if `one` is that to `other`.
    pub(super) fn compare(&mut self, one: Register, is: Is, other: Register, label: &'static str) {
        self.jumps.push((self.words.len(), label));
        self.add(condition(is) | FROM_REGISTER, (one.0, other.0), 0, 0);
    }

    /// Jumps to `label`.
    pub(super) fn go(&mut self, label: &'static str) {
        self.jumps.push((self.words.len(), label));
        self.add(0x05, (0, 0), 0, 0);
    }

    /// What follows can be jumped to.
    pub(super) fn label(&mut self, label: &'static str) {
        self.labels.push((label, self.words.len()));
    }

    /// Calls a helper.
    pub(super) fn call(&mut self, helper: Helper) {
        self.add(0x85, (0, 0), 0, helper as i32);
    }

    /// Ends the program with this action.
    pub(super) fn end(&mut self, action: u32) {
        self.immediate(Op::Set, R0, action.cast_signed());
        self.exit();
    }

    /// Ends the program with R0 as its action.
    pub(super) fn exit(&mut self) {
        self.add(0x95, (0, 0), 0, 0);
    }

    /// `to = map`, as helpers take it.
    pub(super) fn map(&mut self, to: Register, map: BorrowedFd<'a>) {
        self.refer(to, Reference::Map, map);
    }

    /// `to = address of the only value of map`
    pub(super) fn value(&mut self, to: Register, map: BorrowedFd<'a>) {
        self.refer(to, Reference::Value, map);
    }

    fn refer(&mut self, to: Register, reference: Reference, map: BorrowedFd<'a>) {
        self.maps.push((self.words.len(), reference, map));
        self.add(0x18, (to.0, 0), 0, 0);
        self.words.push(0);
    }

    /// Returns the instructions.
    ///
    /// # Panics
    ///
    /// Panics if a jump has no label.
    pub(super) fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let (_, target) = self
                .labels
                .iter()
                .find(|(name, _)| *name == label)
                .unwrap_or_else(|| panic!("no label {label}"));
            let offset = *target as i64 - at as i64 - 1;
            self.words[at] |= (offset as u64 & 0xffff) << 16;
        }
        for (at, reference, map) in self.maps {
            relocate(&mut self.words, at, map, reference);
        }
        self.words
    }
}

fn opcode(op: Op) -> u8 {
    match op {
        Op::Add => 0x07,
        Op::Sub => 0x17,
        Op::Sub32 => 0x14,
        Op::And => 0x57,
        Op::ShiftLeft => 0x67,
        Op::ShiftRight => 0x77,
        Op::Xor => 0xa7,
        Op::Set => 0xb7,
    }
}

fn bits(size: Width) -> u8 {
    match size {
        Width::Four => 0x00,
        Width::Two => 0x08,
        Width::One => 0x10,
        Width::Eight => 0x18,
    }
}

fn condition(is: Is) -> u8 {
    match is {
        Is::Equal => 0x15,
        Is::Above => 0x25,
        Is::AtLeast => 0x35,
        Is::Unequal => 0x55,
        Is::Below => 0xa5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_specification() {
        let mut program = Assembler::default();
        program.load(Width::Four, R2, R1, 4);
        program.immediate(Op::Add, R2, -3);
        program.compare(R2, Is::Above, R1, "out");
        program.store(Width::Two, R10, -8, R2);
        program.call(Helper::Redirect);
        program.label("out");
        program.end(2);
        assert_eq!(
            program.finish(),
            [
                0x0000_0000_0004_1261,
                0xffff_fffd_0000_0207,
                0x0000_0000_0002_122d,
                0x0000_0000_fff8_2a6b,
                0x0000_0017_0000_0085,
                0x0000_0002_0000_00b7,
                0x0000_0000_0000_0095,
            ]
        );
    }

    #[test]
    #[should_panic(expected = "no label nowhere")]
    fn a_jump_has_a_label() {
        let mut program = Assembler::default();
        program.go("nowhere");
        program.finish();
    }
}
