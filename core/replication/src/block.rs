//! Blocks: changes of peers, and the contents of a store, as bytes. A journal, an upgrade and other nodes
//! get the same blocks.
//!
//! All numbers are little-endian. A block is a header of [`HEADER_LEN`] bytes and a body.
//!
//! | at | bytes | header |
//! |---|---|---|
//! | 0 | 4 | [`MAGIC`] |
//! | 4 | 1 | [`Kind`] |
//! | 5 | 1 | flags: 1 = peer ids follow each peer |
//! | 6 | 2 | node that wrote it; 0 = the only one |
//! | 8 | 8 | start of the writer, unix ms × 2⁸ + 8 random bits |
//! | 16 | 8 | number of the block, counted from 1 |
//! | 24 | 8 | when it was cut, unix ms; ages count back from then |
//! | 32 | 4 | length of the body, at most [`BODY_MAX`] |
//! | 36 | 4 | CRC-32C of bytes 0–35 and the body |
//!
//! The body of changes or a walk is a sequence of groups, each a torrent's peers:
//!
//! | bytes | group |
//! |---|---|
//! | 20 | info hash |
//! | 2 + 2 | number of v4 peers, number of v6 peers |
//! | 4 + 4 | walk only: downloads; when the torrent's first peer came, unix minutes |
//! | 6 + 2 (+ 20) each | v4 peers: address and port as on the wire, [`Word`], id with flag 1 |
//! | 18 + 2 (+ 20) each | v6 peers |
//!
//! A torrent with more peers continues in another group.

mod group;
#[cfg(test)]
mod tests;
mod web;

use types::{InfoHash, PeerId, PeerKey, Role};

pub use group::{Group, GroupPeer, GroupWriter, Groups, Head, Peers, WALK_GROUP_LEN};
pub use web::{WEB_CHANGE_BYTES_MAX, WebChange, WebGroup, WebGroups, WebPeers, encode_web_changes};

/// Bytes of a header.
pub const HEADER_LEN: usize = 40;
/// Offset of the body's length in a header.
pub const BODY_LEN_AT: usize = 32;
/// The longest body, in bytes.
pub const BODY_MAX: usize = 512 * 1024;
/// The first bytes of a block.
pub const MAGIC: [u8; 4] = *b"TGB1";

/// Offset of the checksum in a header.
const CRC_AT: usize = HEADER_LEN - 4;
/// Flag of a header: each peer's id follows it.
const HAS_IDS: u8 = 1;

/// The kind of a block's contents. Readers skip kinds that they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// Changes of peers, in the order in which they happened for each torrent.
    pub const CHANGES: Self = Self(0);
    /// Torrents and peers as a walk found them.
    pub const WALK: Self = Self(1);
    /// Sessions of keys; see the tracker.
    pub const SESSIONS: Self = Self(2);
    /// Changes of WebTorrent peers of the node that wrote the block; see [`WebChange`].
    pub const WEB: Self = Self(3);
    /// Begin or end of a round of a journal: its number, u64; 0 = begin or 1 = end, u64.
    pub const ROUND: Self = Self(4);
    /// Accounts of a site: sessions of its users. Any bytes to a reader of blocks.
    pub const ACCOUNTS: Self = Self(5);
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of its contents.
    pub kind: Kind,
    /// True if each peer's id follows it.
    pub has_ids: bool,
    /// The node that wrote it; 0 = the only one.
    pub node: u16,
    /// The writer's start: unix ms × 2⁸ + 8 random bits, so later starts are larger.
    pub boot: u64,
    /// The block's number, counted from 1.
    pub number: u64,
    /// When it was cut, unix ms.
    pub cut_ms: u64,
}

/// The defect of an invalid block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockError {
    /// It ends before its header or body does.
    Truncated,
    /// It does not begin with [`MAGIC`].
    NoBlock,
    /// Its body would be longer than [`BODY_MAX`].
    TooLong,
    /// Its checksum is wrong.
    Damaged,
    /// Its groups do not add up to its body.
    BadGroups,
}

/// A block, as views of the bytes that it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Its header.
    pub header: Header,
    /// Its body.
    pub body: &'a [u8],
}

impl<'a> Block<'a> {
    /// Reads the block at the beginning of `bytes`. Returns it and how many bytes it takes. Checks the
    /// checksum, not the groups.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are too few, do not begin with [`MAGIC`], announce a longer body than [`BODY_MAX`], or have
    /// another checksum.
    pub fn read(bytes: &'a [u8]) -> Result<(Self, usize), BlockError> {
        if bytes.iter().zip(&MAGIC).any(|(found, expected)| found != expected) {
            return Err(BlockError::NoBlock);
        }
        let mut rest = bytes;
        let mut read = || {
            let _: [u8; MAGIC.len()] = take(&mut rest)?;
            let [kind, flags] = take(&mut rest)?;
            let header = Header {
                kind: Kind(kind),
                has_ids: flags & HAS_IDS != 0,
                node: u16::from_le_bytes(take(&mut rest)?),
                boot: u64::from_le_bytes(take(&mut rest)?),
                number: u64::from_le_bytes(take(&mut rest)?),
                cut_ms: u64::from_le_bytes(take(&mut rest)?),
            };
            let len = u32::from_le_bytes(take(&mut rest)?) as usize;
            Some((header, len, u32::from_le_bytes(take(&mut rest)?)))
        };
        let (header, len, crc) = read().ok_or(BlockError::Truncated)?;
        if len > BODY_MAX {
            return Err(BlockError::TooLong);
        }
        let body = rest.get(..len).ok_or(BlockError::Truncated)?;
        let before = bytes.get(..CRC_AT).ok_or(BlockError::Truncated)?;
        if checksum(before, body) != crc {
            return Err(BlockError::Damaged);
        }
        Ok((Self { header, body }, HEADER_LEN + len))
    }

    /// Returns the groups of changes or a walk. Their words are not checked.
    ///
    /// # Errors
    ///
    /// Fails if the block is of another kind, or if its groups do not add up to the body.
    pub fn groups(&self) -> Result<Groups<'a>, BlockError> {
        let is_walk = self.header.kind == Kind::WALK;
        if !is_walk && self.header.kind != Kind::CHANGES {
            return Err(BlockError::BadGroups);
        }
        Groups::check(self.body, is_walk, self.header.has_ids).ok_or(BlockError::BadGroups)
    }

    /// Returns the groups of WebTorrent peers.
    ///
    /// # Errors
    ///
    /// Fails if the block is of another kind, if its groups do not add up to the body, or if a connection is not of the
    /// node that wrote the block.
    pub fn web_groups(&self) -> Result<WebGroups<'a>, BlockError> {
        let groups = WebGroups::check(self.body, self.header.node);
        groups.filter(|_| self.header.kind == Kind::WEB).ok_or(BlockError::BadGroups)
    }
}

/// Appends a block to `out`.
///
/// Panics if the body is longer than [`BODY_MAX`].
pub fn write(header: &Header, body: &[u8], out: &mut Vec<u8>) {
    assert!(
        body.len() <= BODY_MAX,
        "expected a body of at most {BODY_MAX} bytes, found {}",
        body.len()
    );
    let start = out.len();
    out.reserve(HEADER_LEN + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[header.kind.0, u8::from(header.has_ids) * HAS_IDS]);
    out.extend_from_slice(&header.node.to_le_bytes());
    out.extend_from_slice(&header.boot.to_le_bytes());
    out.extend_from_slice(&header.number.to_le_bytes());
    out.extend_from_slice(&header.cut_ms.to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let checksum = checksum(&out[start..], body);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(body);
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), body)
}

/// Takes the first `N` bytes of `bytes`.
#[inline]
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// The state of a peer in 16 bits.
///
/// Bits 0–12: age in units of 16 s; 8191 = now, and just completed. Bit 13: its download is counted. Bit
/// 14: partial seed. Bit 15: seeder. Bits 14 and 15 together: gone, that long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u16);

impl Word {
    const AGE: u16 = (1 << 13) - 1;
    const COMPLETED: u16 = Self::AGE;
    const COUNTED: u16 = 1 << 13;
    const PARTIAL: u16 = 1 << 14;
    const SEEDER: u16 = 1 << 15;
    const GONE: u16 = Self::PARTIAL | Self::SEEDER;

    /// Returns the word of a peer that announced `age` units before the cut. Ages above 8190 count as 8190.
    #[inline]
    pub fn present(age: u32, role: Role, is_counted: bool) -> Self {
        let age = age.min(u32::from(Self::COMPLETED) - 1) as u16;
        let counted = if is_counted { Self::COUNTED } else { 0 };
        Self(age | counted | Self::of_role(role))
    }

    /// Returns the word of a peer that completed its download now.
    pub fn completed(role: Role) -> Self {
        Self(Self::COMPLETED | Self::COUNTED | Self::of_role(role))
    }

    /// Returns the word of a peer that was removed now.
    pub fn gone() -> Self {
        Self(Self::GONE)
    }

    /// Returns the age in units of 16 s.
    #[inline]
    pub fn age(self) -> u32 {
        match self.0 & Self::AGE {
            Self::COMPLETED => 0,
            age => age.into(),
        }
    }

    /// Returns true if the peer was removed.
    #[inline]
    pub fn is_gone(self) -> bool {
        self.0 & Self::GONE == Self::GONE
    }

    /// Returns true if the peer has just completed its download.
    #[inline]
    pub fn is_completed(self) -> bool {
        self.0 & Self::AGE == Self::COMPLETED && !self.is_gone()
    }

    /// Returns true if the peer's download is counted. One that has just been completed is.
    #[inline]
    pub fn is_counted(self) -> bool {
        self.0 & Self::COUNTED != 0 || self.is_completed()
    }

    /// Returns the role of a peer that is not gone.
    #[inline]
    pub fn role(self) -> Role {
        match self.0 & Self::GONE {
            0 => Role::Leecher,
            Self::PARTIAL => Role::PartialSeed,
            _ => Role::Seeder,
        }
    }

    fn of_role(role: Role) -> u16 {
        match role {
            Role::Seeder => Self::SEEDER,
            Role::PartialSeed => Self::PARTIAL,
            Role::Leecher => 0,
        }
    }
}

/// A change of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer.
    pub peer: PeerKey,
    /// The peer's current state. Its age is 0, unless the change contradicts a removal by another node.
    pub word: Word,
    /// True if nothing changed here: the peer has announced again, or another node's state of it is
    /// contradicted. See `keep_refreshes` of the store.
    pub is_refresh: bool,
}

/// The most bytes that [`encode_changes`] appends for a change: its own group with a v6 peer and its id.
pub const CHANGE_BYTES_MAX: usize = 24 + 18 + 2 + 20;

/// Appends the groups of `changes` to `body`: by torrent, and for each peer in the order given. `ids` has
/// the id of each change's peer, or is empty if ids are not kept. A change takes at most
/// [`CHANGE_BYTES_MAX`] bytes.
///
/// Panics if `ids` has another length.
pub fn encode_changes(changes: &[Change], ids: &[PeerId], body: &mut Vec<u8>) {
    assert!(
        ids.is_empty() || ids.len() == changes.len(),
        "expected {} peer ids, found {}",
        changes.len(),
        ids.len()
    );
    // By the first bytes of info hashes, which are compared at once: torrents that share them get more groups
    // than needed. Then v4 before v6, as a group has them. Changes of one peer stay in order, because it is
    // one or the other.
    let place = |(at, change): (usize, &Change)| {
        let [a, b, c, d, e, f, g, h, ..] = change.info_hash.0;
        let torrent = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        (torrent, matches!(change.peer, PeerKey::V6(_)), at)
    };
    let mut order: Vec<_> = changes.iter().enumerate().map(place).collect();
    order.sort_unstable();
    let order: Vec<usize> = order.into_iter().map(|(_, _, at)| at).collect();
    for torrent in order.chunk_by(|a, b| changes[*a].info_hash == changes[*b].info_hash) {
        let Some(first) = torrent.first() else { continue };
        let mut group = GroupWriter::new(body, changes[*first].info_hash, None);
        for at in torrent {
            let Change { peer, word, .. } = changes[*at];
            group.push(peer, word, ids.get(*at).copied());
        }
    }
}
