//! Reads all of a journal without restoring it, for operators.

use std::io;
use std::path::Path;

use replication::block::{Block, Kind};

use crate::disk::{Directory, Disk};
use crate::plan::open_header;
use crate::rounds::END;
use crate::scan::{Scanner, read_header};
use crate::segment::{SegmentError, file_name};

/// The contents of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Its segments, the oldest first.
    pub segments: Vec<SegmentInfo>,
    /// The segment in which the last complete round begins, by the newest header; 0 = there is none.
    pub round_segment: u64,
    /// The last complete round of which all blocks are there.
    pub last_round: Option<RoundInfo>,
}

/// A complete round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundInfo {
    /// Its number, counted by each process.
    pub number: u64,
    /// When it began, unix ms.
    pub began_ms: u64,
    /// When it ended, unix ms.
    pub ended_ms: u64,
    /// Groups that its walk found: a large torrent has several.
    pub groups: u64,
    /// Peers that its walk found.
    pub peers: u64,
}

/// The contents of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub number: u64,
    /// The name of its file.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// When it was created, unix ms.
    pub created_ms: u64,
    /// The start of the process that wrote it, as a number that later starts exceed.
    pub writer: u64,
    /// Blocks of any kind.
    pub blocks: u64,
    /// Changes of peers.
    pub changes: u64,
    /// Peers that a walk found.
    pub walked: u64,
    /// Rounds that begin in it.
    pub begun: Vec<u64>,
    /// Rounds that end in it.
    pub ended: Vec<u64>,
    /// Why it cannot be read at all.
    pub unreadable: Option<String>,
    /// Where damage begins, as offsets in the file.
    pub damage: Vec<u64>,
    /// Where an incomplete block at its end begins. A process that is killed leaves one, and one that is
    /// writing shows one.
    pub tail: Option<u64>,
}

impl Inspection {
    /// Returns how many places are damaged: in segments, whole segments, and segments that are missing.
    /// Incomplete blocks at the end of a process's last segment are no damage.
    pub fn damaged(&self) -> usize {
        let of_segment = |segment: &SegmentInfo| {
            segment.damage.len() + usize::from(segment.unreadable.is_some())
        };
        let is_gap = |pair: &&[SegmentInfo]| matches!(pair, [before, after] if before.number + 1 < after.number);
        let gaps = self.segments.windows(2).filter(is_gap).count();
        let is_there = self.segments.iter().any(|segment| segment.number == self.round_segment);
        let lacks_round = self.round_segment != 0 && !is_there;
        self.segments.iter().map(of_segment).sum::<usize>() + gaps + usize::from(lacks_round)
    }

    /// Returns the length of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn add(&mut self, segment: SegmentInfo) {
        // A process begins another segment only after a whole block.
        if let Some(before) = self.segments.last_mut().filter(|it| it.writer == segment.writer) {
            before.damage.extend(before.tail.take());
        }
        self.segments.push(segment);
    }
}

/// Reads the journal in `directory`, which a process may be writing.
///
/// # Errors
///
/// Fails if the directory cannot be read. Segments that cannot be read are listed with the reason.
pub fn inspect(directory: &Path) -> io::Result<Inspection> {
    inspect_on(&Directory::new(directory))
}

/// Does what [`inspect`] says.
pub(crate) fn inspect_on(disk: &dyn Disk) -> io::Result<Inspection> {
    let mut listed = disk.list()?;
    listed.sort_unstable();
    let mut inspection = Inspection::default();
    let mut rounds = RoundsSeen::default();
    for (number, bytes) in listed {
        let file = file_name(number);
        let mut segment = SegmentInfo { number, file, bytes, ..SegmentInfo::default() };
        match open_header(disk, number) {
            Ok(header) => {
                segment.created_ms = header.created_ms;
                segment.writer = header.boot;
                inspection.round_segment = header.round_segment;
                // A process that begins counts its rounds anew.
                rounds.current = rounds.current.filter(|(writer, _)| *writer == header.boot);
                if let Err(error) = read(disk, &mut segment, &mut rounds) {
                    segment.unreadable = Some(error.to_string());
                }
            }
            // The process that writes has just deleted it.
            Err(SegmentError::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            // The power failed when it was created.
            Err(SegmentError::Unwritten) => segment.tail = Some(0),
            Err(error) => segment.unreadable = Some(error.to_string()),
        }
        inspection.add(segment);
    }
    inspection.last_round = rounds.complete;
    Ok(inspection)
}

fn read(
    disk: &dyn Disk,
    segment: &mut SegmentInfo,
    rounds: &mut RoundsSeen,
) -> Result<(), SegmentError> {
    let mut file = disk.open(segment.number)?;
    let header = read_header(&mut file)?;
    let mut scanner = Scanner::new(file, &header);
    while let Some(chunk) = scanner.next_chunk()? {
        segment.damage.extend(&chunk.damage);
        for block in chunk.blocks() {
            segment.blocks += 1;
            count(&block, segment, rounds);
        }
    }
    segment.tail = scanner.tail();
    Ok(())
}

fn count(block: &Block<'_>, segment: &mut SegmentInfo, rounds: &mut RoundsSeen) {
    let header = block.header;
    let groups = || block.groups().into_iter().flatten();
    match header.kind {
        Kind::CHANGES => {
            let peers = groups().map(|group| group.v4.len() + group.v6.len());
            segment.changes += peers.sum::<usize>() as u64;
        }
        Kind::WALK => {
            for group in groups() {
                let peers = (group.v4.len() + group.v6.len()) as u64;
                segment.walked += peers;
                if let Some((_, round)) = &mut rounds.current {
                    round.groups += 1;
                    round.peers += peers;
                }
            }
        }
        Kind::ROUND => {
            let Some((number, is_end)) = mark(block.body) else { return };
            let marks = if is_end { &mut segment.ended } else { &mut segment.begun };
            marks.push(number);
            rounds.note(header.boot, number, is_end, header.cut_ms);
        }
        _ => {}
    }
}

/// Returns the round that a mark is about, and whether it ends there.
fn mark(body: &[u8]) -> Option<(u64, bool)> {
    let (number, rest) = body.split_first_chunk()?;
    let (mark, _) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), u64::from_le_bytes(*mark) == END))
}

#[derive(Default)]
struct RoundsSeen {
    /// The one that has begun, with its writer.
    current: Option<(u64, RoundInfo)>,
    complete: Option<RoundInfo>,
}

impl RoundsSeen {
    fn note(&mut self, writer: u64, number: u64, is_end: bool, at_ms: u64) {
        if !is_end {
            let round = RoundInfo { number, began_ms: at_ms, ..RoundInfo::default() };
            self.current = Some((writer, round));
            return;
        }
        let ended = self.current.take().filter(|(_, round)| round.number == number);
        if let Some((_, round)) = ended {
            self.complete = Some(RoundInfo { ended_ms: at_ms, ..round });
        }
    }
}
