//! Time as the core sees it.

/// Whole seconds since the process started, monotonic. Read once per batch at the edge and passed
/// down; the core never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u32);

impl Tick {
    /// Seconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }

    /// The tick `seconds` after this one, at most the last one there is.
    pub fn after(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}
