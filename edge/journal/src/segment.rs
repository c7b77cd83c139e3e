//! The form of a segment's header, and the names of files.
//!
//! | at | bytes | header, little-endian |
//! |---|---|---|
//! | 0 | 4 | `TGJ1` |
//! | 4 | 4 | form, 1; readers know their own and older ones |
//! | 8 | 8 | number of the segment, one more than the last |
//! | 16 | 8 | start of the writer, as in blocks |
//! | 24 | 8 | created, unix ms |
//! | 32 | 8 | unix ms at tick 0 |
//! | 40 | 8 | number of the segment in which the last complete round begins; 0 = there is none yet |
//! | 48 | 8 | bytes of the journal when the segment was created |
//! | 56 | 4 | 0 |
//! | 60 | 4 | CRC-32C of bytes 0–59, in every form |
//!
//! Blocks follow: [`replication::block`].

use std::io;

pub(crate) const HEADER_LEN: usize = 64;
/// Bytes of the longest segment.
pub(crate) const SEGMENT_MAX: u64 = 64 << 20;

const MAGIC: [u8; 4] = *b"TGJ1";
const FORM: u32 = 1;
const CRC_AT: usize = HEADER_LEN - 4;
/// The end of the file names.
const EXTENSION: &str = ".tgj";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The segment's number, from 1.
    pub(crate) number: u64,
    /// The writer's start.
    pub(crate) boot: u64,
    /// When it was created, unix ms.
    pub(crate) created_ms: u64,
    /// Unix ms at tick 0.
    pub(crate) epoch_ms: u64,
    /// The segment in which the last complete round begins; 0 = there is none yet.
    pub(crate) round_segment: u64,
    /// Bytes of the journal then.
    pub(crate) journal_bytes: u64,
}

/// Why a segment cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SegmentError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the header is damaged")]
    Damaged,
    #[error("there is nothing in it")]
    Unwritten,
    #[error("the header says segment {0}")]
    Renamed(u64),
    #[error("a later version wrote it, in form {0}")]
    Later(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        bytes.extend(MAGIC);
        bytes.extend(FORM.to_le_bytes());
        let fields = [
            self.number,
            self.boot,
            self.created_ms,
            self.epoch_ms,
            self.round_segment,
            self.journal_bytes,
        ];
        bytes.extend(fields.map(u64::to_le_bytes).as_flattened());
        bytes.extend([0; 4]);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes.try_into().expect("the fields have the length of a header")
    }

    /// Reads the header at the beginning of `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let mut rest = bytes;
        let covered = bytes.get(..CRC_AT).ok_or(SegmentError::Damaged)?;
        let magic: [u8; 4] = take(&mut rest)?;
        let form = u32::from_le_bytes(take(&mut rest)?);
        let mut fields = [0; 6];
        for field in &mut fields {
            *field = u64::from_le_bytes(take(&mut rest)?);
        }
        let _: [u8; 4] = take(&mut rest)?;
        let crc = u32::from_le_bytes(take(&mut rest)?);
        if magic != MAGIC || crc != crc32c::crc32c(covered) {
            return Err(SegmentError::Damaged);
        }
        if form > FORM {
            return Err(SegmentError::Later(form));
        }
        let [number, boot, created_ms, epoch_ms, round_segment, journal_bytes] = fields;
        Ok(Self { number, boot, created_ms, epoch_ms, round_segment, journal_bytes })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], SegmentError> {
    let (first, rest) = bytes.split_first_chunk().ok_or(SegmentError::Damaged)?;
    *bytes = rest;
    Ok(*first)
}

pub(crate) fn file_name(number: u64) -> String {
    format!("{number:016x}{EXTENSION}")
}

/// Returns the number of the segment whose file has this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (file_name(number) == name).then_some(number)
}
