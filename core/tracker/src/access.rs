//! Access lists: which torrents are served.
//!
//! Lists of files are replaced with their [`crate::ListenerPolicy`]. Live lists are changed entry by entry,
//! and hold for all listeners.

mod hash_list;

use std::sync::Arc;

use types::{InfoHash, Refusal};

pub use hash_list::{BadLine, HashList, LineFault};

/// The lists that decide which torrents are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every torrent is served.
    #[default]
    Open,
    /// Only torrents on the allow list.
    Allow,
    /// All but those on the deny list.
    Deny,
    /// Only torrents on the allow list that are not on the deny list.
    Both,
}

/// The lists of a listener, and the mode that says which of them decide.
#[derive(Clone, Debug, Default)]
pub struct AccessLists {
    /// The lists that decide: one of the two, both or neither.
    pub mode: Mode,
    /// The allow list.
    pub allow: Arc<HashList>,
    /// The torrents of a folder of torrent files, which are on the allow list, too. Apart, because they
    /// change one by one.
    pub torrents: Arc<HashList>,
    /// The deny list.
    pub deny: Arc<HashList>,
}

/// Entries that hold for every listener, in addition to its own lists.
#[derive(Debug)]
pub(crate) struct LiveLists {
    pub(crate) allow: HashList,
    pub(crate) deny: HashList,
}

impl LiveLists {
    /// Returns empty lists. `key` is that of their tables.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { allow: HashList::new(key), deny: HashList::new(key) }
    }
}

impl AccessLists {
    /// Refuses a torrent that is not served, by these lists and the live ones. The same for announces and
    /// scrapes of every protocol.
    #[inline]
    pub(crate) fn admit(&self, live: &LiveLists, hash: &InfoHash) -> Result<(), Refusal> {
        match self.mode {
            Mode::Open => Ok(()),
            Mode::Allow => self.allowed(live, hash),
            Mode::Deny => self.not_denied(live, hash),
            Mode::Both => self.not_denied(live, hash).and_then(|()| self.allowed(live, hash)),
        }
    }

    /// Returns whether every torrent is served.
    pub fn is_open(&self) -> bool {
        self.mode == Mode::Open
    }

    /// Returns whether a torrent is on the allow list, in the folder or on the live list, whatever the mode.
    pub(crate) fn is_listed(&self, live: &LiveLists, hash: &InfoHash) -> bool {
        self.allow.contains(hash) || self.torrents.contains(hash) || live.allow.contains(hash)
    }

    fn allowed(&self, live: &LiveLists, hash: &InfoHash) -> Result<(), Refusal> {
        if self.is_listed(live, hash) { Ok(()) } else { Err(Refusal::NotAllowed) }
    }

    fn not_denied(&self, live: &LiveLists, hash: &InfoHash) -> Result<(), Refusal> {
        let is_denied = self.deny.contains(hash) || live.deny.contains(hash);
        if is_denied { Err(Refusal::Denied) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(mode: Mode) -> AccessLists {
        let list = |bytes: &[u8]| {
            Arc::new(bytes.iter().map(|byte| InfoHash([*byte; 20])).collect::<HashList>())
        };
        AccessLists { mode, allow: list(&[1, 2]), torrents: list(&[3, 5]), deny: list(&[2, 3]) }
    }

    #[test]
    fn mode_says_which_lists_decide() {
        let live = LiveLists::new([1; 16]);
        let verdicts = |mode| {
            let lists = lists(mode);
            [1, 2, 3, 4, 5].map(|byte| lists.admit(&live, &InfoHash([byte; 20])))
        };
        let (no, bad) = (Err(Refusal::NotAllowed), Err(Refusal::Denied));
        assert_eq!(verdicts(Mode::Open), [Ok(()); 5]);
        assert_eq!(verdicts(Mode::Allow), [Ok(()), Ok(()), Ok(()), no, Ok(())]);
        assert_eq!(verdicts(Mode::Deny), [Ok(()), bad, bad, Ok(()), Ok(())]);
        assert_eq!(verdicts(Mode::Both), [Ok(()), bad, bad, no, Ok(())]);
        live.allow.insert(&[InfoHash([4; 20])]);
        live.deny.insert(&[InfoHash([1; 20])]);
        assert_eq!(verdicts(Mode::Open), [Ok(()); 5]);
        assert_eq!(verdicts(Mode::Allow), [Ok(()); 5]);
        assert_eq!(verdicts(Mode::Deny), [bad, bad, bad, Ok(()), Ok(())]);
        assert_eq!(verdicts(Mode::Both), [bad, bad, bad, Ok(()), Ok(())]);
    }
}
