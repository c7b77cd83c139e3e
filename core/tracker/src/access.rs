//! Access lists: which torrents are served.
//!
//! A list is a sorted array of info hashes with a directory over their leading bits: 20 bytes an
//! entry and half a byte of directory, one or two cache lines a look-up. It is built off the hot
//! path and put in force with its [`crate::Door`].

mod hash_list;

use std::sync::Arc;

use types::{InfoHash, Refusal};

pub use hash_list::{BadLine, HashList, LineFault};

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

impl AccessLists {
    /// Whether `hash` is served; the same for announces and scrapes of every protocol.
    #[inline]
    pub fn admit(&self, hash: &InfoHash) -> Result<(), Refusal> {
        match self.mode {
            Mode::Open => Ok(()),
            Mode::Allow => self.allowed(hash),
            Mode::Deny => self.not_denied(hash),
            Mode::Both => self.not_denied(hash).and_then(|()| self.allowed(hash)),
        }
    }

    /// Whether no list counts.
    pub fn is_open(&self) -> bool {
        self.mode == Mode::Open
    }

    fn allowed(&self, hash: &InfoHash) -> Result<(), Refusal> {
        if self.allow.contains(hash) { Ok(()) } else { Err(Refusal::NotAllowed) }
    }

    fn not_denied(&self, hash: &InfoHash) -> Result<(), Refusal> {
        if self.deny.contains(hash) { Err(Refusal::Denied) } else { Ok(()) }
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
        let verdicts = |mode| {
            let lists = lists(mode);
            [1, 2, 3, 4].map(|byte| lists.admit(&InfoHash([byte; 20])))
        };
        let (no, bad) = (Err(Refusal::NotAllowed), Err(Refusal::Denied));
        assert_eq!(verdicts(Mode::Open), [Ok(()); 4]);
        assert_eq!(verdicts(Mode::Allow), [Ok(()), Ok(()), no, no]);
        assert_eq!(verdicts(Mode::Deny), [Ok(()), bad, bad, Ok(())]);
        assert_eq!(verdicts(Mode::Both), [Ok(()), bad, bad, no]);
    }
}
