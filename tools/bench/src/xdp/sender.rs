//! Indexes of the instructions of `sender.bin` that load the address of a map. Made by `cargo xtask bpf`.

use super::maps::MapName::{self, Control, Slots, State};

#[rustfmt::skip]
pub(super) const RELOCATIONS: &[(MapName, &[usize])] = &[
    (Control, &[
        1, 16, 45, 198,
    ]),
    (Slots, &[
        38,
    ]),
    (State, &[
        5, 20, 28, 186,
    ]),
];
