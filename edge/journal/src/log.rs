//! The segments that a writer appends to.
//!
//! Before a segment is begun, the one before it is on the disk. Before segments are deleted, a newer one is
//! on the disk that says they are not needed. So after a power failure only the newest segment is cut.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use replication::block::Kind;
use replication::{CLOCK_STEP_MS, Now};

use crate::Status;
use crate::disk::{Disk, SegmentFile};
use crate::plan::open_header;
use crate::segment::{HEADER_LEN, SEGMENT_MAX, SegmentHeader};
use crate::status::BoundReached;

/// Bytes that are written together.
const BUFFER: usize = 256 * 1024;

pub(crate) struct SegmentLog {
    disk: Arc<dyn Disk>,
    status: Arc<Status>,
    file: Box<dyn SegmentFile>,
    header: SegmentHeader,
    /// Bytes of the file, without the buffer.
    len: u64,
    buffer: Vec<u8>,
    /// Numbers and bytes of the segments before.
    closed: Vec<(u64, u64)>,
    /// The most bytes that the journal may have; 0 = unlimited.
    pub(crate) bytes_max: u64,
}

impl SegmentLog {
    /// Begins a segment after those on `disk`.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        status: Arc<Status>,
        boot: u64,
        now: Now,
    ) -> io::Result<Self> {
        let mut closed = disk.list()?;
        closed.sort_unstable();
        // Attempts that failed at once may have left segments without blocks.
        while let Some((number, _)) = closed.pop_if(|(_, bytes)| *bytes <= HEADER_LEN as u64) {
            disk.remove(number)?;
        }
        let newest = closed.iter().rev().find_map(|(number, _)| open_header(&*disk, *number).ok());
        let round_segment = newest.map_or(0, |newest| newest.round_segment);
        // Without it, a reader has to begin at the oldest segment.
        let is_there = closed.iter().any(|(number, _)| *number == round_segment);
        let header = SegmentHeader {
            number: closed.last().map_or(1, |(number, _)| number + 1),
            boot,
            created_ms: now.unix_ms,
            epoch_ms: now.epoch_ms(),
            round_segment: if is_there { round_segment } else { 0 },
            journal_bytes: closed.iter().map(|(_, bytes)| bytes).sum(),
        };
        let file = create(&*disk, &header)?;
        let log = Self {
            disk,
            status,
            file,
            header,
            len: HEADER_LEN as u64,
            buffer: Vec::with_capacity(BUFFER),
            closed,
            bytes_max: 0,
        };
        log.show();
        Ok(log)
    }

    /// Deletes the segment that is written, because nothing of worth is in it.
    pub(crate) fn discard(&mut self) {
        // If it fails, a file of some bytes is left.
        let _ = self.disk.remove(self.header.number);
    }

    pub(crate) fn segment(&self) -> u64 {
        self.header.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_from(0)
    }

    /// Returns the bytes of segment `first` and those after it.
    pub(crate) fn bytes_from(&self, first: u64) -> u64 {
        let closed = self.closed.iter().filter(|(number, _)| *number >= first);
        closed.map(|(_, bytes)| bytes).sum::<u64>() + self.len + self.buffer.len() as u64
    }

    /// Appends a block. Begins another segment if this one is full, or if the wall clock was set.
    pub(crate) fn append(&mut self, now: Now, kind: Kind, block: &[u8]) -> io::Result<()> {
        let bytes = self.len + (self.buffer.len() + block.len()) as u64;
        if bytes > SEGMENT_MAX || now.epoch_ms().abs_diff(self.header.epoch_ms) > CLOCK_STEP_MS {
            self.begin_segment(now, self.header.round_segment)?;
        }
        if self.bytes_max > 0 && self.bytes() + block.len() as u64 > self.bytes_max {
            return Err(io::Error::other(BoundReached));
        }
        if self.buffer.len() + block.len() > BUFFER {
            self.write()?;
        }
        self.buffer.extend_from_slice(block);
        self.status.wrote(kind, block.len());
        Ok(())
    }

    /// Writes what was appended, so that it survives the process.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.append(&self.buffer)?;
            self.len += self.buffer.len() as u64;
            self.buffer.clear();
            self.show();
        }
        Ok(())
    }

    /// Writes what was appended, and waits until the disk has it, so that it survives a power failure.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.write()?;
        let started = Instant::now();
        self.file.sync()?;
        self.status.update(|figures| {
            figures.syncs += 1;
            figures.sync_time += started.elapsed();
        });
        Ok(())
    }

    /// Ends a complete round that began in segment `first`: begins another segment, and deletes those
    /// before `first`.
    pub(crate) fn complete_round(&mut self, now: Now, first: u64) -> io::Result<()> {
        self.begin_segment(now, first)?;
        while let Some((number, _)) = self.closed.first().filter(|(number, _)| *number < first) {
            self.disk.remove(*number)?;
            self.closed.remove(0);
        }
        self.show();
        Ok(())
    }

    fn begin_segment(&mut self, now: Now, round_segment: u64) -> io::Result<()> {
        self.sync()?;
        let header = SegmentHeader {
            number: self.header.number + 1,
            created_ms: now.unix_ms,
            epoch_ms: now.epoch_ms(),
            round_segment,
            journal_bytes: self.bytes(),
            ..self.header
        };
        self.file = create(&*self.disk, &header)?;
        self.closed.push((self.header.number, self.len));
        self.header = header;
        self.len = HEADER_LEN as u64;
        self.show();
        Ok(())
    }

    fn show(&self) {
        self.status.update(|figures| {
            figures.segments = self.closed.len() as u64 + 1;
            figures.disk_bytes = self.bytes();
        });
    }
}

/// Creates a segment, and waits until the disk has it, so that blocks always have a header before them. If
/// that fails, no file is left.
fn create(disk: &dyn Disk, header: &SegmentHeader) -> io::Result<Box<dyn SegmentFile>> {
    let mut file = disk.create(header.number)?;
    let created =
        file.append(&header.encode()).and_then(|()| file.sync()).and_then(|()| disk.sync());
    match created {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = disk.remove(header.number);
            Err(error)
        }
    }
}
