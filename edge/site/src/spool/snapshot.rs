//! The snapshot: all names and sessions up to a batch.
//!
//! `TGN1`, the spool's id, the batch's sequence and unix seconds, then chunks: length, CRC-32C, contents. The first byte
//! of a chunk says what it has; the last chunk has kind 2, so that a snapshot without its end is known.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::{SpoolError, damaged, io};
use crate::batch::{Batch, Session, TorrentName, decode_session, encode_session};
use crate::bytes::{Reader, Writer};
use types::InfoHash;

const MAGIC: [u8; 4] = *b"TGN1";
const NAMES: u8 = 0;
const SESSIONS: u8 = 1;
const END: u8 = 2;
/// Bytes after which a chunk is written.
const CHUNK_BYTES: usize = 1 << 20;

/// Something that the spool restores, in order.
pub(crate) enum Restored<'a> {
    Name(TorrentName),
    Session {
        user: u32,
        torrent: u32,
        session: Session,
    },
    /// A batch after the snapshot.
    Batch(&'a Batch),
}

pub(crate) struct SnapshotWriter {
    path: PathBuf,
    file: BufWriter<File>,
    sequence: u64,
    unix_s: u32,
    chunk: Writer,
    bytes: u64,
    /// The first error; what follows is not written.
    error: Option<std::io::Error>,
}

pub(super) struct Snapshot {
    pub(super) id: u64,
    pub(super) sequence: u64,
    pub(super) bytes: u64,
}

impl SnapshotWriter {
    pub(super) fn create(
        path: &Path,
        id: u64,
        sequence: u64,
        unix_s: u32,
    ) -> Result<Self, SpoolError> {
        let mut file = BufWriter::new(File::create(path).map_err(io("create", path))?);
        let mut header = MAGIC.to_vec();
        header.extend(id.to_le_bytes());
        header.extend(sequence.to_le_bytes());
        header.extend(unix_s.to_le_bytes());
        header.extend(crc32c::crc32c(&header).to_le_bytes());
        file.write_all(&header).map_err(io("write", path))?;
        let bytes = header.len() as u64;
        let chunk = Writer(vec![SESSIONS]);
        Ok(Self { path: path.to_owned(), file, sequence, unix_s, chunk, bytes, error: None })
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn session(&mut self, user: u32, torrent: u32, session: &Session) {
        self.chunk.varint(user.into());
        self.chunk.varint(torrent.into());
        encode_session(&mut self.chunk, session, self.unix_s);
    }

    /// Writes what was appended, if it is much. Slow: call it without a lock.
    pub(crate) fn flush_chunk(&mut self) {
        if self.chunk.0.len() > CHUNK_BYTES {
            self.write_chunk(SESSIONS);
        }
    }

    pub(crate) fn names(&mut self, names: impl Iterator<Item = TorrentName>) {
        self.write_chunk(NAMES);
        for name in names {
            self.chunk.varint(name.torrent.into());
            self.chunk.bytes(&name.info_hash.0);
            if self.chunk.0.len() > CHUNK_BYTES {
                self.write_chunk(NAMES);
            }
        }
        self.write_chunk(SESSIONS);
    }

    /// Writes the chunk, and begins one of this kind.
    fn write_chunk(&mut self, kind: u8) {
        let mut contents = std::mem::take(&mut self.chunk.0);
        if contents.len() > 1 || contents.first() == Some(&END) {
            let mut frame = (contents.len() as u32).to_le_bytes().to_vec();
            frame.extend(crc32c::crc32c(&contents).to_le_bytes());
            let written = self.file.write_all(&frame).and_then(|()| self.file.write_all(&contents));
            if let Err(error) = written {
                self.error.get_or_insert(error);
            }
            self.bytes += (frame.len() + contents.len()) as u64;
        }
        contents.clear();
        contents.push(kind);
        self.chunk.0 = contents;
    }

    /// Writes the end, and returns the number of bytes once they are on the disk.
    pub(super) fn finish(mut self) -> Result<u64, SpoolError> {
        self.write_chunk(END);
        self.write_chunk(END);
        let Self { path, mut file, bytes, error, .. } = self;
        let finish = || match error {
            Some(error) => Err(error),
            None => file.flush().and_then(|()| file.get_ref().sync_data()),
        };
        finish().map_err(io("write", &path))?;
        Ok(bytes)
    }
}

pub(super) fn read(
    path: &Path,
    restored: &mut dyn FnMut(Restored<'_>),
) -> Result<Option<Snapshot>, SpoolError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("read", path)(error)),
    };
    let mut reader = Reader(&bytes);
    parse(&mut reader, restored).map(Some).map_err(|found| {
        let offset = bytes.len() - reader.0.len();
        damaged(path, offset as u64, found)
    })
}

fn parse(
    reader: &mut Reader<'_>,
    restored: &mut dyn FnMut(Restored<'_>),
) -> Result<Snapshot, &'static str> {
    let bytes = reader.0.len() as u64;
    let covered = reader.0.get(..24).ok_or("a snapshot without a header")?;
    let snapshot = parse_header(reader, covered, bytes);
    let (snapshot, unix_s) =
        snapshot.ok_or("a header with a wrong checksum, or of another form")?;
    loop {
        let contents =
            next_chunk(reader).ok_or("a chunk with a wrong checksum, or an early end")?;
        let mut chunk = Reader(contents);
        let [kind] = chunk.array().ok_or("an empty chunk")?;
        if kind == END {
            return Ok(snapshot);
        }
        while !chunk.0.is_empty() {
            let item = match kind {
                NAMES => parse_name(&mut chunk),
                _ => parse_session(&mut chunk, unix_s),
            };
            restored(item.ok_or("contents of another form")?);
        }
    }
}

fn parse_header(reader: &mut Reader<'_>, covered: &[u8], bytes: u64) -> Option<(Snapshot, u32)> {
    let magic: [u8; 4] = reader.array()?;
    let id = u64::from_le_bytes(reader.array()?);
    let sequence = u64::from_le_bytes(reader.array()?);
    let unix_s = u32::from_le_bytes(reader.array()?);
    let crc = u32::from_le_bytes(reader.array()?);
    let is_good = magic == MAGIC && crc == crc32c::crc32c(covered);
    is_good.then_some((Snapshot { id, sequence, bytes }, unix_s))
}

fn next_chunk<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(reader.array()?);
    let crc = u32::from_le_bytes(reader.array()?);
    let contents = reader.take(len as usize)?;
    (crc32c::crc32c(contents) == crc).then_some(contents)
}

fn parse_name(reader: &mut Reader<'_>) -> Option<Restored<'static>> {
    let torrent = reader.number()?;
    Some(Restored::Name(TorrentName { torrent, info_hash: InfoHash(reader.array()?) }))
}

fn parse_session(reader: &mut Reader<'_>, unix_s: u32) -> Option<Restored<'static>> {
    let user = reader.number()?;
    let torrent = reader.number()?;
    Some(Restored::Session { user, torrent, session: decode_session(reader, unix_s)? })
}
