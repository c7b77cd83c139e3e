//! Time as the core sees it.

/// Whole seconds since the process started, monotonic. The edge reads the clock once per batch and
/// passes the tick down; the core never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u32);

impl Tick {
    /// Returns the seconds from `earlier` to `self`; 0 if `earlier` is later.
    pub fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the tick `seconds` after this one, saturating.
    pub fn after(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}
