//! Groups: a torrent's peers in the body of a block.

use types::{InfoHash, PeerId, PeerKey};

use super::{Word, take};

/// Bytes of an info hash and two numbers of peers.
const GROUP_LEN: usize = 24;
/// Bytes of a [`Head`].
const HEAD_LEN: usize = 8;
/// Bytes of a walk's group without peers.
pub const WALK_GROUP_LEN: usize = GROUP_LEN + HEAD_LEN;
/// Bytes of address and port, by family.
const V4_LEN: usize = 6;
const V6_LEN: usize = 18;
const WORD_LEN: usize = 2;
const ID_LEN: usize = 20;

/// Yields the groups of a block, whose lengths have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    rest: &'a [u8],
    is_walk: bool,
    has_ids: bool,
}

impl<'a> Groups<'a> {
    /// Returns the groups of a body, or `None` if they do not add up to it.
    pub(super) fn check(body: &'a [u8], is_walk: bool, has_ids: bool) -> Option<Self> {
        let groups = Self { rest: body, is_walk, has_ids };
        let mut all = groups;
        all.by_ref().for_each(drop);
        all.rest.is_empty().then_some(groups)
    }
}

impl<'a> Iterator for Groups<'a> {
    type Item = Group<'a>;

    #[inline]
    fn next(&mut self) -> Option<Group<'a>> {
        let mut rest = self.rest;
        let info_hash = InfoHash(take(&mut rest)?);
        let v4 = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let v6 = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let head = if self.is_walk {
            let downloads = u32::from_le_bytes(take(&mut rest)?);
            Some(Head { downloads, born_min: u32::from_le_bytes(take(&mut rest)?) })
        } else {
            None
        };
        let id_len = if self.has_ids { ID_LEN } else { 0 };
        let (v4, rest) = rest.split_at_checked(v4 * (V4_LEN + WORD_LEN + id_len))?;
        let (v6, rest) = rest.split_at_checked(v6 * (V6_LEN + WORD_LEN + id_len))?;
        self.rest = rest;
        let has_ids = self.has_ids;
        Some(Group {
            info_hash,
            head,
            v4: Peers { bytes: v4, has_ids },
            v6: Peers { bytes: v6, has_ids },
        })
    }
}

/// A torrent's downloads and age, as a walk reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Completed downloads.
    pub downloads: u32,
    /// When the torrent's first peer came, unix minutes.
    pub born_min: u32,
}

/// A torrent's peers, or some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The torrent's downloads and age; only walks have them.
    pub head: Option<Head>,
    /// The v4 peers: 4 bytes of address, 2 of port.
    pub v4: Peers<'a, V4_LEN>,
    /// The v6 peers: 16 bytes of address, 2 of port.
    pub v6: Peers<'a, V6_LEN>,
}

/// Yields the peers of one family; an address and port take `N` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers<'a, const N: usize> {
    bytes: &'a [u8],
    has_ids: bool,
}

/// A peer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPeer<const N: usize> {
    /// Its address and port in wire form.
    pub key: [u8; N],
    /// Its state.
    pub word: Word,
    /// Its id, if the block has ids.
    pub id: Option<PeerId>,
}

impl<const N: usize> Iterator for Peers<'_, N> {
    type Item = GroupPeer<N>;

    #[inline]
    fn next(&mut self) -> Option<GroupPeer<N>> {
        let mut rest = self.bytes;
        let key = take(&mut rest)?;
        let word = Word(u16::from_le_bytes(take(&mut rest)?));
        let id = if self.has_ids { Some(PeerId(take(&mut rest)?)) } else { None };
        self.bytes = rest;
        Some(GroupPeer { key, word, id })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = N + WORD_LEN + if self.has_ids { ID_LEN } else { 0 };
        (self.bytes.len() / len, Some(self.bytes.len() / len))
    }
}

impl<const N: usize> ExactSizeIterator for Peers<'_, N> {}

/// Appends the peers of a torrent to a body. Writes further groups where one does not suffice: after
/// 65,535 peers of a family, and for v4 peers that come after v6 peers.
pub struct GroupWriter<'a> {
    body: &'a mut Vec<u8>,
    info_hash: InfoHash,
    head: Option<Head>,
    /// Offset of the current group's numbers of peers.
    counts_at: usize,
    v4: u16,
    v6: u16,
}

impl<'a> GroupWriter<'a> {
    /// Begins a group without peers. `head` belongs to walks, and only to them.
    #[inline]
    pub fn new(body: &'a mut Vec<u8>, info_hash: InfoHash, head: Option<Head>) -> Self {
        let mut writer = Self { body, info_hash, head, counts_at: 0, v4: 0, v6: 0 };
        writer.begin();
        writer
    }

    /// Appends a peer; v4 peers come first. All peers of a body have an id, or none has.
    #[inline]
    pub fn push(&mut self, peer: PeerKey, word: Word, id: Option<PeerId>) {
        match peer {
            PeerKey::V4(key) => {
                if self.v4 == u16::MAX || self.v6 > 0 {
                    self.begin();
                }
                self.v4 += 1;
                self.append(&key, word, id);
            }
            PeerKey::V6(key) => {
                if self.v6 == u16::MAX {
                    self.begin();
                }
                self.v6 += 1;
                self.append(&key, word, id);
            }
        }
    }

    fn begin(&mut self) {
        self.write_counts();
        (self.v4, self.v6) = (0, 0);
        self.body.extend_from_slice(&self.info_hash.0);
        self.counts_at = self.body.len();
        self.body.extend_from_slice(&[0; GROUP_LEN - size_of::<InfoHash>()]);
        if let Some(Head { downloads, born_min }) = self.head {
            let mut bytes = [0; HEAD_LEN];
            bytes[..4].copy_from_slice(&downloads.to_le_bytes());
            bytes[4..].copy_from_slice(&born_min.to_le_bytes());
            self.body.extend_from_slice(&bytes);
        }
    }

    #[inline]
    fn append(&mut self, key: &[u8], word: Word, id: Option<PeerId>) {
        self.body.extend_from_slice(key);
        self.body.extend_from_slice(&word.0.to_le_bytes());
        if let Some(PeerId(id)) = id {
            self.body.extend_from_slice(&id);
        }
    }

    /// Writes the numbers of peers, once they are known.
    fn write_counts(&mut self) {
        let [a, b] = self.v4.to_le_bytes();
        let [c, d] = self.v6.to_le_bytes();
        if self.v4 > 0 || self.v6 > 0 {
            self.body[self.counts_at..][..4].copy_from_slice(&[a, b, c, d]);
        }
    }
}

impl Drop for GroupWriter<'_> {
    fn drop(&mut self) {
        self.write_counts();
    }
}
