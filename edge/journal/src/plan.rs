//! Selects the segments of a journal to read, and determines the times of their blocks.

use std::io::{self, Read};

use tracing::{debug, warn};

use crate::disk::Disk;
use crate::scan::{Scanner, read_header};
use crate::segment::{SegmentError, SegmentHeader, file_name};

/// While a tracker was down, no peer could announce. That much of the time does not count as age.
pub(crate) const FORGIVEN_MS: i64 = 600_000;
/// A segment is refused if it seems to be from further ahead. The wall clock was wrong then, and there is
/// no telling by how much.
const AHEAD_MAX_MS: i64 = 86_400_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedSegment {
    pub(crate) header: SegmentHeader,
    /// Milliseconds to add to the times of its blocks, so that they are the present wall clock's, less the
    /// time forgiven.
    pub(crate) shift_ms: i64,
    /// True if its writer began no other segment after it, so that its tail may be cut.
    pub(crate) is_last: bool,
}

/// The segments to read, in order.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) segments: Vec<PlannedSegment>,
    /// Places in files that cannot be read.
    pub(crate) damaged: u64,
}

/// Returns the plan for reading at the unix time `unix_ms`. Of each downtime, up to `forgiven_ms` do not count
/// as age. A journal of a later version is set aside.
pub(crate) fn plan(disk: &dyn Disk, unix_ms: u64, forgiven_ms: i64) -> io::Result<Plan> {
    let mut listed = disk.list()?;
    listed.sort_unstable();
    let mut plan = Plan::default();
    let mut later = None;
    for (number, _) in &listed {
        match open_header(disk, *number) {
            Ok(header) => {
                plan.segments.push(PlannedSegment { header, shift_ms: 0, is_last: true });
            }
            Err(SegmentError::Later(form)) => later = Some(form),
            // The power failed when it was created.
            Err(SegmentError::Unwritten) => {
                debug!(
                    file = file_name(*number),
                    "skipped a segment of the journal without blocks"
                );
            }
            Err(error) => {
                warn!(file = file_name(*number), %error, "skipped a segment of the journal");
                plan.damaged += 1;
            }
        }
    }
    if let Some(form) = later {
        set_aside(disk, &listed, form)?;
        return Ok(Plan::default());
    }
    plan.set_times(disk, unix_ms, forgiven_ms);
    plan.start_at_round();
    plan.count_missing(&listed);
    Ok(plan)
}

pub(crate) fn open_header(disk: &dyn Disk, number: u64) -> Result<SegmentHeader, SegmentError> {
    let mut file = disk.open(number)?;
    match read_header(&mut file) {
        Ok(header) if header.number != number => Err(SegmentError::Renamed(header.number)),
        Err(SegmentError::Damaged) if is_zero(file)? => Err(SegmentError::Unwritten),
        read => read,
    }
}

/// Returns true if the rest of `file` is zeros. Blocks are written after the header is on the disk.
fn is_zero(mut file: impl Read) -> io::Result<bool> {
    let mut bytes = [0; 4096];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(true),
            len if bytes.iter().take(len).any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Renames all segments, because a later version wrote some. Its form may say something that this version
/// would overlook.
fn set_aside(disk: &dyn Disk, listed: &[(u64, u64)], form: u32) -> io::Result<()> {
    for (number, _) in listed {
        disk.set_aside(*number)?;
    }
    warn!(
        form,
        files = listed.len(),
        "a later version of tidegate wrote the journal of swarms: its files are kept as *.later, and the \
         tracker starts without peers"
    );
    disk.sync()
}

impl Plan {
    /// Drops the segments before the one in which the last complete round begins.
    fn start_at_round(&mut self) {
        let Some(newest) = self.segments.last() else { return };
        let first = newest.header.round_segment;
        if first == 0 {
            return;
        }
        if self.segments.iter().any(|segment| segment.header.number == first) {
            self.segments.retain(|segment| segment.header.number >= first);
        } else {
            let file = file_name(first);
            warn!(
                file,
                "the segment in which the last complete round begins is missing: reading all"
            );
            self.damaged += 1;
        }
    }

    /// Counts gaps in the numbers of the files from the first segment on.
    fn count_missing(&mut self, listed: &[(u64, u64)]) {
        let [first, .., last] = &*self.segments else { return };
        let read = first.header.number..=last.header.number;
        let mut expected = *read.start();
        for number in listed.iter().map(|(number, _)| *number).filter(|it| read.contains(it)) {
            if number != expected {
                let last = number - 1;
                warn!(first = expected, last, "segments of the journal are missing");
                self.damaged += 1;
            }
            expected = number.saturating_add(1);
        }
    }

    /// Determines when the blocks of each segment are from, from the newest segment to the oldest.
    ///
    /// Within one writer's segments, the tracker's clock tells how the wall clock was set. Between two
    /// writers, and between the last one and now, the tracker was down from the last block of the first to
    /// the begin of the second.
    fn set_times(&mut self, disk: &dyn Disk, unix_ms: u64, forgiven_ms: i64) {
        let mut later: Option<PlannedSegment> = None;
        let mut refused = Vec::new();
        for segment in self.segments.iter_mut().rev() {
            if let Some(later) = later.filter(|later| later.header.boot == segment.header.boot) {
                let set_by = difference(later.header.epoch_ms, segment.header.epoch_ms);
                segment.shift_ms = later.shift_ms.saturating_add(set_by);
                segment.is_last = false;
            } else {
                let until_ms = later.map_or(unix_ms, |later| later.header.created_ms);
                let down_ms = difference(until_ms, last_cut_ms(disk, &segment.header));
                if down_ms < -AHEAD_MAX_MS {
                    let file = file_name(segment.header.number);
                    warn!(file, "skipped a segment: it is from more than a day ahead of the clock");
                    refused.push(segment.header.number);
                    continue;
                }
                // If the wall clock went back, no time has passed.
                let shift_ms = later.map_or(0, |later| later.shift_ms);
                segment.shift_ms = shift_ms.saturating_add(down_ms.min(forgiven_ms));
            }
            later = Some(*segment);
        }
        self.damaged += refused.len() as u64;
        self.segments.retain(|segment| !refused.contains(&segment.header.number));
    }
}

/// Returns `a` - `b`.
pub(crate) fn difference(a: u64, b: u64) -> i64 {
    let clamped = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    clamped(a) - clamped(b)
}

/// Returns when the last block of a segment was cut, or when it was created if there is none.
fn last_cut_ms(disk: &dyn Disk, header: &SegmentHeader) -> u64 {
    let mut last = header.created_ms;
    let Ok(mut file) = disk.open(header.number) else { return last };
    if read_header(&mut file).is_err() {
        return last;
    }
    let mut scanner = Scanner::new(file, header);
    while let Ok(Some(chunk)) = scanner.next_chunk() {
        last = chunk.blocks.iter().map(|block| block.header.cut_ms).fold(last, u64::max);
    }
    last
}
