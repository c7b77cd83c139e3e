//! Blocks: what happened to peers, and what a store holds, as bytes. A journal, an upgrade and other nodes
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

use types::{InfoHash, PeerId, PeerKey, Role};

/// Bytes of a header.
pub const HEADER_LEN: usize = 40;
/// The longest body, in bytes.
pub const BODY_MAX: usize = 512 * 1024;
/// What a block begins with.
pub const MAGIC: [u8; 4] = *b"TGB1";

/// What a block holds. Readers skip kinds that they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// Changes of peers, in the order in which they happened for each torrent.
    pub const CHANGES: Self = Self(0);
    /// Torrents and peers as a walk found them.
    pub const WALK: Self = Self(1);
    /// Sessions of keys; see the tracker.
    pub const SESSIONS: Self = Self(2);
    /// Begin or end of a round of a journal: its number, u64; 0 = begin or 1 = end, u64.
    pub const ROUND: Self = Self(4);
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it holds.
    pub kind: Kind,
    /// Whether each peer's id follows it.
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

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub fn read(_bytes: &'a [u8]) -> Result<(Self, usize), BlockError> {
        todo!()
    }

    /// Returns the groups of changes or a walk. Fails if they do not add up to the body, before any is
    /// returned; what they say may be nonsense.
    pub fn groups(&self) -> Result<Groups<'a>, BlockError> {
        todo!()
    }
}

/// Appends a block to `out`.
///
/// Panics if the body is longer than [`BODY_MAX`].
pub fn write(_header: &Header, _body: &[u8], _out: &mut Vec<u8>) {
    todo!()
}

/// The groups of a block.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) is_walk: bool,
    pub(crate) has_ids: bool,
}

/// The state of a peer in 16 bits.
///
/// Bits 0–12: age in units of 16 s; 8191 = now, and just completed. Bit 13: its download is counted. Bit
/// 14: partial seed. Bit 15: seeder. Bits 14 and 15 together: gone, that long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u16);

impl Word {
    /// Returns the word of a peer that announced `age` units before the cut. Ages above 8190 count as 8190.
    pub fn present(_age: u32, _role: Role, _is_counted: bool) -> Self {
        todo!()
    }

    /// Returns the word of a peer that completed its download now.
    pub fn completed(_role: Role) -> Self {
        todo!()
    }

    /// Returns the word of a peer that was removed now.
    pub fn gone() -> Self {
        todo!()
    }
}

/// Something that happened to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer.
    pub peer: PeerKey,
    /// What the peer is now; its age is 0.
    pub word: Word,
}

/// Appends the groups of `changes` to `body`: by torrent, and for each peer in the order given. `ids` has
/// the id of each change's peer, or is empty if ids are not kept.
///
/// Panics if `ids` has another length.
pub fn encode_changes(_changes: &[Change], _ids: &[PeerId], _body: &mut Vec<u8>) {
    todo!()
}
