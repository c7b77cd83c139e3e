//! The codecs beside their naive twins, and without allocations. One binary, because each takes a link.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

extern crate tidegate_wire as wire;

mod no_allocation;
mod webtorrent_twin;
