//! Journals of up to three segments, restored into a store.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use journal::{Disk, Journal, SegmentFile, Status};
use replication::block::{BODY_LEN_AT, BODY_MAX, Block, HEADER_LEN, MAGIC};
use replication::{Clocks, Now};
use swarm::{Options, Store};
use types::{InfoHash, PeerKey, Tick};

const LIFETIME_S: u32 = 2700;
/// When the seeds were written.
const START_MS: u64 = 1_800_000_000_000;
const SEGMENT_HEADER: usize = 64;

/// Restoring reads any bytes without a panic, and stores no peer that is in no whole block. It does not
/// depend on the number of threads.
///
/// The first byte says whether checksums are repaired, the second what the wall clock is, and the next four
/// are the lengths of the first two segments.
pub fn check(bytes: &[u8]) {
    let [flags, hours, a, b, c, d, rest @ ..] = bytes else { return };
    let (first, rest) = rest.split_at(usize::from(u16::from_le_bytes([*a, *b])).min(rest.len()));
    let (second, third) = rest.split_at(usize::from(u16::from_le_bytes([*c, *d])).min(rest.len()));
    let mut segments = BTreeMap::new();
    for (number, segment) in (1..).zip([first, second, third]) {
        let mut segment = segment.to_vec();
        if flags & 1 != 0 {
            repair(&mut segment);
        }
        segments.insert(number_in(&segment).unwrap_or(number), segment);
    }
    let unix_ms = START_MS.saturating_add_signed(i64::from(hours.cast_signed()) * 600_000);
    let peers = restore(&segments, unix_ms, 1);
    let known: BTreeSet<_> = segments.values().flat_map(|segment| written(segment)).collect();
    assert!(peers.is_subset(&known), "a peer that is in no block");
    assert_eq!(restore(&segments, unix_ms, 2), peers);
}

/// Returns the number that a segment's header says.
fn number_in(segment: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*segment.get(8..)?.first_chunk()?))
}

/// Makes the checksums right, so that what was changed is read.
fn repair(segment: &mut [u8]) {
    let Some((header, mut blocks)) = segment.split_at_mut_checked(SEGMENT_HEADER) else { return };
    let crc = crc32c::crc32c(&header[..SEGMENT_HEADER - 4]);
    header[SEGMENT_HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
    while blocks.len() >= HEADER_LEN {
        let field = &mut blocks[BODY_LEN_AT..BODY_LEN_AT + 4];
        let len = u32::from_le_bytes([field[0], field[1], field[2], field[3]]) as usize;
        let len = len.min(BODY_MAX).min(blocks.len() - HEADER_LEN);
        blocks[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
        blocks[..MAGIC.len()].copy_from_slice(&MAGIC);
        let (block, rest) = blocks.split_at_mut(HEADER_LEN + len);
        let crc = crc32c::crc32c(&block[..HEADER_LEN - 4]);
        let crc = crc32c::crc32c_append(crc, &block[HEADER_LEN..]);
        block[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
        blocks = rest;
    }
}

/// Returns every peer of every whole block at any offset.
fn written(segment: &[u8]) -> Vec<(InfoHash, SocketAddr)> {
    let mut peers = Vec::new();
    for at in 0..segment.len() {
        let Ok((block, _)) = Block::read(&segment[at..]) else { continue };
        for group in block.groups().into_iter().flatten() {
            let v4 = group.v4.map(|peer| PeerKey::V4(peer.key));
            let v6 = group.v6.map(|peer| PeerKey::V6(peer.key));
            peers.extend(v4.chain(v6).map(|peer| (group.info_hash, peer.socket_addr())));
        }
    }
    peers
}

fn restore(
    segments: &BTreeMap<u64, Vec<u8>>,
    unix_ms: u64,
    threads: usize,
) -> BTreeSet<(InfoHash, SocketAddr)> {
    let store = Store::new(&Options::new(2, *b"sixteen bytes ..", LIFETIME_S));
    let disk = Arc::new(Segments(segments.clone()));
    let journal = Journal::open_on(disk, unix_ms).expect("the disk does not fail");
    let Some(journal) = journal else { return BTreeSet::new() };
    let tick = Tick((unix_ms.saturating_sub(journal.epoch_ms()) / 1000).min(1 << 24) as u32);
    let clocks: Clocks = Arc::new(move || Now { tick, unix_ms });
    let status = Status::default();
    let merged = journal.restore(&store, &clocks, threads, &status, &AtomicBool::new(false));
    let figures = status.figures();
    assert_eq!(
        (figures.restored_peers, figures.restored_torrents),
        (merged.peers, merged.torrents)
    );
    let mut torrents = Vec::new();
    store.each_torrent(|stats| torrents.push(stats.info_hash));
    let mut peers = BTreeSet::new();
    for info_hash in torrents {
        let details = store.inspect(tick, &info_hash, usize::MAX).expect("it was just listed");
        let addresses = details.peers.iter().filter_map(|peer| peer.address);
        // More than a list shows: which ones they are is chosen at random.
        if details.peers.len() < 1000 {
            peers.extend(addresses.map(|address| (info_hash, address)));
        }
    }
    peers
}

/// Segments to read.
struct Segments(BTreeMap<u64, Vec<u8>>);

impl Disk for Segments {
    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        Ok(self.0.iter().map(|(number, bytes)| (*number, bytes.len() as u64)).collect())
    }

    fn open(&self, number: u64) -> io::Result<Box<dyn Read + Send>> {
        let bytes = self.0.get(&number).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(bytes.clone())))
    }

    fn set_aside(&self, _number: u64) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, _number: u64) -> io::Result<Box<dyn SegmentFile>> {
        unreachable!("readers create nothing")
    }

    fn remove(&self, _number: u64) -> io::Result<()> {
        unreachable!("readers remove nothing")
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
