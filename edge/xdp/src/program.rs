//! Indexes of the instructions of `program.bin` that load the address of a map. Made by `cargo xtask bpf`.

use super::maps::MapName::{self, Bans4, Buckets, Config, Counts, Interface, Xsks};

#[rustfmt::skip]
pub(super) const RELOCATIONS: &[(MapName, &[usize])] = &[
    (Bans4, &[
        197,
    ]),
    (Buckets, &[
        798, 866, 2173, 2241,
    ]),
    (Config, &[
        58, 109, 156, 189, 202, 235, 243, 269, 279, 315, 327, 370, 719, 749, 757, 765,
        879, 1286, 1459, 1485, 1522, 1530, 1565, 1573, 1585, 1650, 2079, 2109, 2117, 2125, 2130, 2148,
        2155, 2255, 2758,
    ]),
    (Counts, &[
        87, 173, 220, 255, 302, 339, 704, 1331, 1366, 1374, 1413, 1450, 1508, 1542, 1597, 2063,
        2803, 2838, 2853,
    ]),
    (Interface, &[
        22, 142, 1202, 1438, 2665,
    ]),
    (Xsks, &[
        727, 736, 771, 1336, 1345, 1354, 1608, 2087, 2096, 2808, 2817, 2826,
    ]),
];
