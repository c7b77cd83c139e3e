//! Finds the blocks of a segment, which may contain any bytes.
//!
//! A block whose checksum is wrong is skipped by its length if another block follows there. Otherwise the
//! next block is searched by its first bytes. Damage up to the end of the segment is its tail: a writer
//! that was killed leaves one.

use std::io::{self, Read};
use std::ops::Range;

use replication::block::{self, Block, BlockError, Header, Kind};

use crate::segment::{HEADER_LEN, SegmentError, SegmentHeader};

/// Bytes that are read at once. More than the longest block and the next one's header.
const CHUNK: usize = 1 << 20;
const _: () = assert!(CHUNK > block::BODY_MAX + 2 * block::HEADER_LEN);

/// A piece of a segment: whole blocks.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    pub(crate) blocks: Vec<BlockRange>,
    /// Offsets in the file where damage begins.
    pub(crate) damage: Vec<u64>,
}

/// A block in a [`Chunk`].
#[derive(Clone, Debug)]
pub(crate) struct BlockRange {
    pub(crate) header: Header,
    /// Its body in the chunk's bytes.
    pub(crate) body: Range<usize>,
}

impl Chunk {
    /// Returns the blocks. Groups of changes and walks have been checked.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        self.blocks.iter().filter_map(|found| {
            let body = self.bytes.get(found.body.clone())?;
            Some(Block { header: found.header, body })
        })
    }
}

pub(crate) fn read_header(file: &mut dyn Read) -> Result<SegmentHeader, SegmentError> {
    let mut bytes = Vec::with_capacity(HEADER_LEN);
    file.take(HEADER_LEN as u64).read_to_end(&mut bytes)?;
    SegmentHeader::decode(&bytes)
}

/// Reads the blocks of a segment, in order.
pub(crate) struct Scanner<R> {
    file: R,
    /// The writer of the segment.
    boot: u64,
    /// Bytes that have been read but not returned.
    rest: Vec<u8>,
    /// The offset of `rest` in the file.
    offset: u64,
    at_end: bool,
    /// Offset in the file where the present damage begins, if the scanner is within damage.
    bad_from: Option<u64>,
    /// True if no block was found where the last one ended, and the scanner searches for the next.
    is_searching: bool,
}

impl<R: Read> Scanner<R> {
    /// Returns a scanner of `file`, whose header has been read.
    pub(crate) fn new(file: R, header: &SegmentHeader) -> Self {
        Self {
            file,
            boot: header.boot,
            rest: Vec::new(),
            offset: HEADER_LEN as u64,
            at_end: false,
            bad_from: None,
            is_searching: false,
        }
    }

    /// Returns the next blocks, or `None` at the end.
    pub(crate) fn next_chunk(&mut self) -> io::Result<Option<Chunk>> {
        if self.at_end && self.rest.is_empty() {
            return Ok(None);
        }
        let mut chunk = Chunk { bytes: std::mem::take(&mut self.rest), ..Chunk::default() };
        let missing = CHUNK.saturating_sub(chunk.bytes.len());
        chunk.bytes.reserve_exact(missing);
        let mut limited = (&mut self.file).take(missing as u64);
        self.at_end = limited.read_to_end(&mut chunk.bytes)? < missing;
        let end = self.scan(&mut chunk);
        self.rest = chunk.bytes.get(end..).unwrap_or_default().to_vec();
        chunk.bytes.truncate(end);
        self.offset += end as u64;
        Ok(Some(chunk))
    }

    /// Returns the offset in the file up to which all blocks have been returned.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns where the segment's tail begins, if it does not end with a whole block. Call at the end.
    pub(crate) fn tail(&self) -> Option<u64> {
        self.bad_from
    }

    /// Finds the blocks of a chunk. Returns where the rest begins, which needs more bytes.
    fn scan(&mut self, chunk: &mut Chunk) -> usize {
        let mut at = 0;
        loop {
            let rest = chunk.bytes.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return at;
            }
            let found = Block::read(rest);
            match found {
                Ok((block, len)) if !self.is_searching || self.is_own(&block.header) => {
                    self.is_searching = false;
                    chunk.damage.extend(self.bad_from.take());
                    if has_groups(block.header.kind) && block.groups().is_err() {
                        chunk.damage.push(self.offset + at as u64);
                    } else {
                        let body = at + len - block.body.len()..at + len;
                        chunk.blocks.push(BlockRange { header: block.header, body });
                    }
                    at += len;
                    continue;
                }
                // Only the first bytes of the next block show if it fits: read them first.
                _ if !self.at_end && rest.len() <= block::BODY_MAX + 2 * block::HEADER_LEN => {
                    return at;
                }
                _ => {}
            }
            self.bad_from.get_or_insert(self.offset + at as u64);
            match skip_damaged(rest, found.err()) {
                Some(len) => at += len,
                None => {
                    self.is_searching = true;
                    let mut starts = rest.get(1..).unwrap_or_default().windows(block::MAGIC.len());
                    match starts.position(|bytes| bytes == block::MAGIC) {
                        Some(distance) => at += 1 + distance,
                        None if self.at_end => return chunk.bytes.len(),
                        // The next block may begin in the last bytes.
                        None => return chunk.bytes.len() + 1 - block::MAGIC.len(),
                    }
                }
            }
        }
    }

    /// Returns true if a block is of the segment's own writer. Bytes in the middle of damage that look like a
    /// block may be part of another block's body.
    fn is_own(&self, header: &Header) -> bool {
        header.node == 0 && header.boot == self.boot
    }
}

fn has_groups(kind: Kind) -> bool {
    matches!(kind, Kind::CHANGES | Kind::WALK)
}

/// Returns the length of the damaged block at the beginning of `bytes`, if another block or nothing follows
/// there.
fn skip_damaged(bytes: &[u8], error: Option<BlockError>) -> Option<usize> {
    if error != Some(BlockError::Damaged) {
        return None;
    }
    let len = bytes.get(block::BODY_LEN_AT..)?.first_chunk().copied()?;
    let len = block::HEADER_LEN + u32::from_le_bytes(len) as usize;
    let next = bytes.get(len..)?;
    (next.is_empty() || next.starts_with(&block::MAGIC)).then_some(len)
}
