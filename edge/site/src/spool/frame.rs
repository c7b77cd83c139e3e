//! The form of segments.
//!
//! | at | bytes | header of a segment, little-endian |
//! |---|---|---|
//! | 0 | 4 | `TGS1` |
//! | 4 | 8 | id of the spool |
//! | 12 | 8 | sequence of the first batch |
//! | 20 | 8 | sequence of the batch before it, which is in the segment before |
//! | 28 | 4 | CRC-32C of bytes 0–27 |
//!
//! | at | bytes | frame |
//! |---|---|---|
//! | 0 | 4 | bytes of the contents; the highest bit is set if they are deflated |
//! | 4 | 8 | sequence |
//! | 12 | 4 | when the batch was cut, unix seconds |
//! | 16 | 4 | CRC-32C of the contents |
//! | 20 | 4 | CRC-32C of bytes 0–19 |
//! | 24 | | the [batch](crate::batch) |

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::batch::Batch;
use crate::bytes::{Reader, Writer};

pub(crate) const SEGMENT_HEADER_LEN: usize = 32;
const HEADER_LEN: usize = 24;
const MAGIC: [u8; 4] = *b"TGS1";
/// The bit of the length that is set if the contents are deflated.
const DEFLATED: u32 = 1 << 31;
/// Bytes of a batch, not deflated: some ten million records. Fewer than [`DEFLATED`].
const BATCH_BYTES_MAX: u64 = 1 << 30;

/// A batch in a segment.
pub struct Frame<'a> {
    /// The batch's number.
    pub sequence: u64,
    /// When it was cut, unix seconds.
    pub unix_s: u32,
    /// Bytes of the frame.
    pub len: u64,
    contents: &'a [u8],
    is_deflated: bool,
}

/// The end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// The id of its spool.
    pub id: u64,
    /// The batch before its first one.
    pub previous: u64,
    /// Bytes up to the end of its last whole frame.
    pub len: u64,
}

/// Why there is no frame.
enum NoFrame {
    /// The rest is a frame that was not written to its end.
    Incomplete,
    /// The rest is something else.
    Other(&'static str),
}

impl<'a> Frame<'a> {
    /// Returns the bytes of a batch's frame. To deflate takes three times as long as all else.
    pub(crate) fn encode(batch: &Batch, deflates: bool) -> Vec<u8> {
        let mut frame = vec![0; HEADER_LEN];
        if deflates {
            let mut writer = Writer::default();
            batch.encode(&mut writer);
            let mut deflate = DeflateEncoder::new(frame, Compression::fast());
            let deflated = deflate.write_all(&writer.0).and_then(|()| deflate.finish());
            frame = deflated.expect("writing to memory does not fail");
        } else {
            let mut writer = Writer(frame);
            batch.encode(&mut writer);
            frame = writer.0;
        }
        let (header, contents) = frame.split_at_mut(HEADER_LEN);
        let crc = crc32c::crc32c(contents);
        let len = contents.len() as u32 | if deflates { DEFLATED } else { 0 };
        let mut fields = Vec::with_capacity(HEADER_LEN);
        fields.extend(len.to_le_bytes());
        fields.extend(batch.sequence.to_le_bytes());
        fields.extend(batch.unix_s.to_le_bytes());
        fields.extend(crc.to_le_bytes());
        fields.extend(crc32c::crc32c(&fields).to_le_bytes());
        header.copy_from_slice(&fields);
        frame
    }

    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        Self::parse(bytes).map_err(|error| match error {
            NoFrame::Incomplete => "an incomplete one",
            NoFrame::Other(found) => found,
        })
    }

    fn parse(bytes: &'a [u8]) -> Result<Self, NoFrame> {
        // A file may have been extended before its contents were written.
        if bytes.len() < HEADER_LEN || bytes.iter().all(|byte| *byte == 0) {
            return Err(NoFrame::Incomplete);
        }
        let header = Header::read(bytes).ok_or(NoFrame::Other("a header with a wrong checksum"))?;
        let len = (header.len & !DEFLATED) as usize;
        let contents = bytes.get(HEADER_LEN..HEADER_LEN + len);
        let contents = contents.ok_or(NoFrame::Incomplete)?;
        if crc32c::crc32c(contents) != header.crc {
            let rest = bytes.get(HEADER_LEN + contents.len()..).unwrap_or_default();
            let is_end = rest.iter().all(|byte| *byte == 0);
            let found = NoFrame::Other("contents with a wrong checksum");
            return Err(if is_end { NoFrame::Incomplete } else { found });
        }
        let len = (HEADER_LEN + contents.len()) as u64;
        let is_deflated = header.len & DEFLATED != 0;
        Ok(Self { sequence: header.sequence, unix_s: header.unix_s, len, contents, is_deflated })
    }

    /// Returns the batch, or `None` if the contents have another form.
    pub fn batch(&self) -> Option<Batch> {
        if !self.is_deflated {
            return Batch::decode(self.sequence, self.unix_s, self.contents);
        }
        let mut bytes = Vec::new();
        let mut inflate = DeflateDecoder::new(self.contents).take(BATCH_BYTES_MAX);
        inflate.read_to_end(&mut bytes).ok()?;
        Batch::decode(self.sequence, self.unix_s, &bytes)
    }
}

struct Header {
    len: u32,
    sequence: u64,
    unix_s: u32,
    crc: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let header = Self {
            len: u32::from_le_bytes(reader.array()?),
            sequence: u64::from_le_bytes(reader.array()?),
            unix_s: u32::from_le_bytes(reader.array()?),
            crc: u32::from_le_bytes(reader.array()?),
        };
        let crc = u32::from_le_bytes(reader.array()?);
        (crc32c::crc32c(bytes.get(..HEADER_LEN - 4)?) == crc).then_some(header)
    }
}

pub(crate) fn segment_header(id: u64, first: u64, previous: u64) -> [u8; SEGMENT_HEADER_LEN] {
    let mut bytes = Vec::with_capacity(SEGMENT_HEADER_LEN);
    bytes.extend(MAGIC);
    bytes.extend(id.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    bytes.extend(previous.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.try_into().expect("the fields have the length of a header")
}

/// Calls `visit` with each whole frame of a segment and its offset, and returns the segment's end.
///
/// # Errors
///
/// The offset of damage, and a description of what is there, also if `visit` fails.
pub fn scan_segment(
    bytes: &[u8],
    visit: &mut dyn FnMut(Frame<'_>, u64) -> Result<(), &'static str>,
) -> Result<SegmentEnd, (u64, &'static str)> {
    let header = bytes.get(..SEGMENT_HEADER_LEN).ok_or((0, "a file without a header"))?;
    let mut reader = Reader(header);
    let wrong = (0, "a header with a wrong checksum, or of another form");
    let magic: [u8; 4] = reader.array().ok_or(wrong)?;
    let id = u64::from_le_bytes(reader.array().ok_or(wrong)?);
    let first = u64::from_le_bytes(reader.array().ok_or(wrong)?);
    let previous = u64::from_le_bytes(reader.array().ok_or(wrong)?);
    if magic != MAGIC || segment_header(id, first, previous) != header {
        return Err(wrong);
    }
    let mut offset = SEGMENT_HEADER_LEN as u64;
    let mut expected = first;
    while let Some(rest) = bytes.get(offset as usize..).filter(|rest| !rest.is_empty()) {
        match Frame::parse(rest) {
            Ok(frame) => {
                if frame.sequence != expected {
                    return Err((offset, "a batch with another number"));
                }
                expected += 1;
                let len = frame.len;
                visit(frame, offset).map_err(|found| (offset, found))?;
                offset += len;
            }
            Err(NoFrame::Incomplete) => break,
            Err(NoFrame::Other(found)) => return Err((offset, found)),
        }
    }
    Ok(SegmentEnd { id, previous, len: offset })
}
