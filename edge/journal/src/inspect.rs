//! Reads all of a journal without restoring it, for operators.

use std::io;
use std::path::Path;

use replication::block::{Block, Kind};

use crate::disk::{Directory, Disk};
use crate::plan::{SegmentError, open_header};
use crate::rounds::END;
use crate::scan::{Scanner, read_header};
use crate::segment::file_name;

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

fn inspect_on(disk: &dyn Disk) -> io::Result<Inspection> {
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

/// Reads the blocks of a segment.
fn read(disk: &dyn Disk, segment: &mut SegmentInfo, rounds: &mut RoundsSeen) -> io::Result<()> {
    let mut file = disk.open(segment.number)?;
    let Ok(header) = read_header(&mut file)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
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

/// The rounds seen so far.
#[derive(Default)]
struct RoundsSeen {
    /// The one that has begun, with its writer.
    current: Option<(u64, RoundInfo)>,
    /// The last one that has ended.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use replication::block::{self, Change, Header, Word};
    use tempfile::TempDir;
    use types::{InfoHash, PeerKey, Role};

    use super::*;
    use crate::segment::SegmentHeader;

    const BOOT: u64 = 77;

    /// Returns a segment with these blocks.
    fn segment(number: u64, round_segment: u64, blocks: &[(Kind, Vec<u8>)]) -> Vec<u8> {
        let header = SegmentHeader {
            number,
            boot: BOOT,
            created_ms: 5000,
            epoch_ms: 1000,
            round_segment,
            journal_bytes: 0,
        };
        let mut bytes = header.encode().to_vec();
        for (at, (kind, body)) in blocks.iter().enumerate() {
            let header = Header {
                kind: *kind,
                has_ids: false,
                node: 0,
                boot: BOOT,
                number: at as u64 + 1,
                cut_ms: 6000 + at as u64,
            };
            block::write(&header, body, &mut bytes);
        }
        bytes
    }

    fn mark(number: u64, mark: u64) -> (Kind, Vec<u8>) {
        (Kind::ROUND, [number, mark].map(u64::to_le_bytes).as_flattened().to_vec())
    }

    fn changes(count: u16) -> (Kind, Vec<u8>) {
        let change = |port: u16| Change {
            info_hash: InfoHash([7; 20]),
            peer: PeerKey::new([192, 0, 2, 1].into(), port),
            word: Word::present(0, Role::Leecher, false),
            is_refresh: false,
        };
        let mut body = Vec::new();
        block::encode_changes(&(1..=count).map(change).collect::<Vec<_>>(), &[], &mut body);
        (Kind::CHANGES, body)
    }

    /// A walk that found a torrent with two v4 peers.
    fn walk() -> (Kind, Vec<u8>) {
        let mut body = vec![9; 20];
        body.extend([2, 0, 0, 0]);
        body.extend([0; 8]);
        body.extend([1; 16]);
        (Kind::WALK, body)
    }

    fn write(folder: &TempDir, number: u64, bytes: &[u8]) {
        fs::write(folder.path().join(file_name(number)), bytes).unwrap();
    }

    #[test]
    fn counts_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(inspect(folder.path()).unwrap(), Inspection::default());
        write(&folder, 3, &segment(3, 0, &[mark(1, 0), changes(3), walk()]));
        write(&folder, 4, &segment(4, 0, &[walk(), mark(1, END), mark(2, 0), walk()]));
        let found = inspect(folder.path()).unwrap();
        let [first, second] = &found.segments[..] else { panic!("{found:?}") };
        assert_eq!((first.blocks, first.changes, first.walked), (3, 3, 2));
        assert_eq!(
            (&first.begun[..], &second.ended[..], &second.begun[..]),
            (&[1][..], &[1][..], &[2][..])
        );
        let round = RoundInfo { number: 1, began_ms: 6000, ended_ms: 6001, groups: 2, peers: 4 };
        assert_eq!((found.last_round, found.damaged()), (Some(round), 0));
        assert_eq!(found.bytes(), first.bytes + second.bytes);
    }

    #[test]
    fn reports_damage_but_not_the_end_of_a_killed_writer() {
        let folder = tempfile::tempdir().unwrap();
        let whole = segment(1, 0, &[mark(1, 0), changes(2), walk()]);
        write(&folder, 1, &whole[..whole.len() - 5]);
        let found = inspect(folder.path()).unwrap();
        assert!(found.segments[0].tail.is_some());
        assert_eq!(found.damaged(), 0);
        // The same writer's next segment shows that it went on.
        write(&folder, 2, &segment(2, 0, &[walk()]));
        assert_eq!(inspect(folder.path()).unwrap().damaged(), 1);
        let mut flipped = whole.clone();
        flipped[80] ^= 1;
        write(&folder, 1, &flipped);
        let found = inspect(folder.path()).unwrap();
        assert_eq!((found.damaged(), found.segments[0].blocks), (1, 2));
        write(&folder, 1, &[b'x'; 100]);
        let found = inspect(folder.path()).unwrap();
        assert_eq!(found.segments[0].unreadable.as_deref(), Some("the header is damaged"));
        assert_eq!(found.damaged(), 1);
        write(&folder, 4, &segment(4, 9, &[walk()]));
        let found = inspect(folder.path()).unwrap();
        assert_eq!(
            (found.damaged(), found.last_round),
            (3, None),
            "a gap, and no round begins at 9"
        );
    }
}
