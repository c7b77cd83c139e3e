//! Access lists: which torrents are served.
//!
//! A list is a sorted array of info hashes with a directory over their leading bits: 20 bytes an
//! entry and half a byte of directory, one or two cache lines a look-up. It is built off the hot
//! path and put in force with its [`crate::ListenerPolicy`].

mod hash_list;
mod live_list;

use std::sync::Arc;

use types::{InfoHash, Refusal};

pub use hash_list::{BadLine, HashList, LineFault};
pub use live_list::LiveList;

/// Which lists count.
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

/// The lists with the mode in which they count.
#[derive(Clone, Debug, Default)]
pub struct AccessLists {
    /// Which of the two count.
    pub mode: Mode,
    /// The allow list.
    pub allow: Arc<HashList>,
    /// The deny list.
    pub deny: Arc<HashList>,
}

/// Entries that count at every door, beside its own lists.
#[derive(Debug, Default)]
pub(crate) struct LiveLists {
    pub(crate) allow: LiveList,
    pub(crate) deny: LiveList,
}

impl AccessLists {
    /// Whether `hash` is served, by these lists and the live ones beside them; the same for announces
    /// and scrapes of every protocol.
    #[inline]
    pub(crate) fn admit(&self, live: &LiveLists, hash: &InfoHash) -> Result<(), Refusal> {
        match self.mode {
            Mode::Open => Ok(()),
            Mode::Allow => self.allowed(live, hash),
            Mode::Deny => self.not_denied(live, hash),
            Mode::Both => self.not_denied(live, hash).and_then(|()| self.allowed(live, hash)),
        }
    }

    /// Asks for the memory that [`AccessLists::admit`] will need first.
    #[inline]
    pub(crate) fn prefetch(&self, live: &LiveLists, hash: &InfoHash) {
        if matches!(self.mode, Mode::Deny | Mode::Both) {
            self.deny.prefetch(hash);
            live.deny.prefetch(hash);
        }
        if matches!(self.mode, Mode::Allow | Mode::Both) {
            self.allow.prefetch(hash);
            live.allow.prefetch(hash);
        }
    }

    /// Whether no list counts.
    pub fn is_open(&self) -> bool {
        self.mode == Mode::Open
    }

    fn allowed(&self, live: &LiveLists, hash: &InfoHash) -> Result<(), Refusal> {
        let is_allowed = self.allow.contains(hash) || live.allow.contains(hash);
        if is_allowed { Ok(()) } else { Err(Refusal::NotAllowed) }
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
        AccessLists { mode, allow: list(&[1, 2]), deny: list(&[2, 3]) }
    }

    #[test]
    fn modes() {
        let live = LiveLists::default();
        let verdicts = |mode| {
            let lists = lists(mode);
            [1, 2, 3, 4].map(|byte| lists.admit(&live, &InfoHash([byte; 20])))
        };
        let (no, bad) = (Err(Refusal::NotAllowed), Err(Refusal::Denied));
        assert_eq!(verdicts(Mode::Open), [Ok(()); 4]);
        assert_eq!(verdicts(Mode::Allow), [Ok(()), Ok(()), no, no]);
        assert_eq!(verdicts(Mode::Deny), [Ok(()), bad, bad, Ok(())]);
        assert_eq!(verdicts(Mode::Both), [Ok(()), bad, bad, no]);
        live.allow.insert(&[InfoHash([4; 20])]);
        live.deny.insert(&[InfoHash([1; 20])]);
        assert_eq!(verdicts(Mode::Open), [Ok(()); 4]);
        assert_eq!(verdicts(Mode::Allow), [Ok(()), Ok(()), no, Ok(())]);
        assert_eq!(verdicts(Mode::Deny), [bad, bad, bad, Ok(())]);
        assert_eq!(verdicts(Mode::Both), [bad, bad, bad, Ok(())]);
    }
}
