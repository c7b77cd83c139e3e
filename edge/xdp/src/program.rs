//! Indexes of the instructions of `program.bin` that load the address of a map. Made by `cargo xtask bpf`.

use super::maps::MapName::{self, Bans4, Buckets, Config, Counts, Interface, Xsks};

#[rustfmt::skip]
pub(super) const RELOCATIONS: &[(MapName, &[usize])] = &[
    (Bans4, &[
        197,
    ]),
    (Buckets, &[
        796, 864, 2167, 2238,
    ]),
    (Config, &[
        58, 109, 156, 189, 202, 235, 243, 269, 279, 315, 327, 370, 719, 749, 757, 765,
        877, 1284, 1457, 1483, 1520, 1528, 1563, 1571, 1583, 1648, 2077, 2107, 2115, 2123, 2128, 2153,
        2252, 2755,
    ]),
    (Counts, &[
        87, 173, 220, 255, 302, 339, 704, 1329, 1364, 1372, 1411, 1448, 1506, 1540, 1595, 2061,
        2800, 2835, 2850,
    ]),
    (Interface, &[
        22, 142, 1200, 1436, 2662,
    ]),
    (Xsks, &[
        727, 736, 771, 1334, 1343, 1352, 1606, 2085, 2094, 2805, 2814, 2823,
    ]),
];
