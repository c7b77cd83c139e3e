//! Access lists: which torrents are served.
//!
//! Lists of files are replaced with their [`crate::ListenerPolicy`]. Live lists are changed entry by entry,
//! and hold for all listeners.

mod first_refusals;
mod hash_list;
mod reasons;

use std::sync::Arc;

use types::{InfoHash, Refusal};

pub use crate::lines::BadLine;
pub(crate) use first_refusals::FirstRefusals;
pub use hash_list::HashList;
pub use reasons::TorrentReasons;

/// The torrents that a listener serves. Those on the deny list are refused in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every torrent.
    #[default]
    Open,
    /// Only torrents on the allow list.
    Allow,
    /// The same as [`Mode::Open`], for operators who have a deny list.
    Deny,
    /// The same as [`Mode::Allow`], for operators who have both lists.
    Both,
}

/// The lists of a listener, and the mode that says whether the allow list decides.
#[derive(Clone, Debug, Default)]
pub struct AccessLists {
    /// The torrents that are served.
    pub mode: Mode,
    /// The allow list.
    pub allow: Arc<HashList>,
    /// The torrents of a folder of torrent files, which are on the allow list, too. Apart, because they
    /// change one by one.
    pub torrents: Arc<HashList>,
    /// The deny list.
    pub deny: Arc<HashList>,
}

impl Mode {
    /// Returns true if only torrents on the allow list are served.
    #[inline]
    pub fn uses_allow(self) -> bool {
        matches!(self, Self::Allow | Self::Both)
    }
}

/// Entries that hold for every listener, in addition to its own lists.
#[derive(Debug)]
pub(crate) struct LiveLists {
    pub(crate) allow: HashList,
    pub(crate) deny: HashList,
    pub(crate) reasons: TorrentReasons,
}

impl LiveLists {
    /// Returns empty lists. `key` is that of their tables.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let list = || HashList::new(key);
        Self { allow: list(), deny: list(), reasons: TorrentReasons::new(list()) }
    }
}

impl AccessLists {
    /// Refuses a torrent that is not served, by these lists and the live ones. The same for announces and
    /// scrapes of every protocol.
    #[inline]
    pub(crate) fn admit(&self, live: &LiveLists, hash: &InfoHash) -> Result<(), Refusal> {
        if self.serve_all(live) { Ok(()) } else { self.look_up(live, hash) }
    }

    // Look-ups within the path of an announce cost those that need none 44 instructions.
    #[inline(never)]
    fn look_up(&self, live: &LiveLists, hash: &InfoHash) -> Result<(), Refusal> {
        if let Some(reason) = live.reasons.get(hash) {
            return Err(Refusal::Torrent { reason });
        }
        if self.deny.contains(hash) || live.deny.contains(hash) {
            return Err(Refusal::Denied);
        }
        if self.mode.uses_allow() && !self.is_listed(live, hash) {
            return Err(Refusal::NotAllowed);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn serve_all(&self, live: &LiveLists) -> bool {
        !self.mode.uses_allow()
            && self.deny.is_empty()
            && live.deny.is_empty()
            && live.reasons.is_empty()
    }

    /// Returns whether a torrent is on the allow list, in the folder or on the live list, whatever the mode.
    pub(crate) fn is_listed(&self, live: &LiveLists, hash: &InfoHash) -> bool {
        self.allow.contains(hash) || self.torrents.contains(hash) || live.allow.contains(hash)
    }
}

#[cfg(test)]
mod tests {
    use types::Notice;

    use super::*;

    fn lists(mode: Mode) -> AccessLists {
        let list = |bytes: &[u8]| {
            Arc::new(bytes.iter().map(|byte| InfoHash([*byte; 20])).collect::<HashList>())
        };
        AccessLists { mode, allow: list(&[1, 2]), torrents: list(&[3, 5]), deny: list(&[2, 3]) }
    }

    #[test]
    fn deny_list_holds_in_every_mode() {
        let live = LiveLists::new([1; 16]);
        let verdicts = |mode| {
            let lists = lists(mode);
            [1, 2, 3, 4, 5].map(|byte| lists.admit(&live, &InfoHash([byte; 20])))
        };
        let (no, bad) = (Err(Refusal::NotAllowed), Err(Refusal::Denied));
        for mode in [Mode::Open, Mode::Deny] {
            assert_eq!(verdicts(mode), [Ok(()), bad, bad, Ok(()), Ok(())]);
        }
        for mode in [Mode::Allow, Mode::Both] {
            assert_eq!(verdicts(mode), [Ok(()), bad, bad, no, Ok(())]);
        }
        live.allow.insert(&[InfoHash([4; 20])]);
        live.deny.insert(&[InfoHash([1; 20])]);
        for mode in [Mode::Open, Mode::Allow, Mode::Deny, Mode::Both] {
            assert_eq!(verdicts(mode), [bad, bad, bad, Ok(()), Ok(())]);
        }
        // A reason refuses by itself, and is what clients see in every case.
        assert!([1, 4].iter().all(|byte| live.reasons.put(InfoHash([*byte; 20]), "Dupe")));
        let why = Err(Refusal::Torrent { reason: Notice::new("Dupe") });
        for mode in [Mode::Open, Mode::Allow, Mode::Deny, Mode::Both] {
            assert_eq!(verdicts(mode), [why, bad, bad, why, Ok(())]);
        }
    }
}
