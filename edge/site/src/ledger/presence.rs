//! The numbers of torrents that a user seeds and leeches.

use crate::batch::{Counting, Session};

/// Clients of a user that others get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) seeding: u32,
    pub(crate) leeching: u32,
}

/// The change in the numbers of seeders and leechers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Changes {
    pub(crate) seeders: i32,
    pub(crate) leechers: i32,
}

impl Session {
    /// Returns true if another node counts it first.
    pub(crate) fn is_late(&self) -> bool {
        self.counting == Counting::Late
    }

    pub(crate) fn seeders(&self) -> i32 {
        i32::from(self.active && self.visible && self.seeder)
    }

    pub(crate) fn leechers(&self) -> i32 {
        i32::from(self.active && self.visible && !self.seeder)
    }
}

impl Changes {
    /// Returns the difference between two states of a session.
    pub(crate) fn between(old: Option<&Session>, new: &Session) -> Self {
        Self {
            seeders: new.seeders() - old.map_or(0, Session::seeders),
            leechers: new.leechers() - old.map_or(0, Session::leechers),
        }
    }

    /// Adds the change to the presence of its user.
    pub(crate) fn apply(self, presence: &mut Presence) {
        presence.seeding = presence.seeding.saturating_add_signed(self.seeders);
        presence.leeching = presence.leeching.saturating_add_signed(self.leechers);
    }
}
