//! Indexes of the instructions of `counter.bin` that load the address of a map. Made by `cargo xtask bpf`.

use super::maps::MapName::{self, Counts};

#[rustfmt::skip]
pub(super) const RELOCATIONS: &[(MapName, &[usize])] = &[
    (Counts, &[
        31, 54,
    ]),
];
