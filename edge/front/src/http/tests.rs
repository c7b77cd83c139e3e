//! Tests that need `cfg(test)` in the crate itself. All others are in `tests/`.

mod panics;
