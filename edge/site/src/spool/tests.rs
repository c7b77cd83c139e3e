use std::fs;
use std::path::Path;

use harness::Directory;

use super::*;
use crate::batch::{Counting, Record, Session, SessionChange, TorrentName, agent_of};
use types::{InfoHash, PeerId};

const NOW_S: u32 = 1_800_000_000;

fn session(number: u8, uploaded: u64) -> Session {
    Session {
        peer_id: PeerId([number; 20]),
        ip: [10, 0, 0, number].into(),
        port: 6881,
        uploaded,
        downloaded: 5,
        left: 9,
        created_s: NOW_S - 10,
        updated_s: NOW_S,
        active: true,
        seeder: false,
        visible: true,
        counting: Counting::Here,
    }
}

/// A batch in which a user has sent `uploaded` bytes.
fn batch(user: u32, uploaded: u64) -> Batch {
    let mut record = Record::new(user, 3, NOW_S);
    record.uploaded = uploaded;
    let session = session(user as u8, uploaded);
    record.put_session(SessionChange {
        session,
        agent: agent_of(b"test"),
        expired: false,
        learned: false,
    });
    Batch { unix_s: NOW_S, records: vec![record], ..Batch::default() }
}

/// The sequences and users of restored batches, and the sessions and names of the snapshot.
#[derive(Debug, Default, PartialEq)]
struct Found {
    batches: Vec<(u64, u32)>,
    sessions: Vec<(u32, u32, Session)>,
    names: Vec<u32>,
}

fn open(folder: &Path) -> (Result<Spool, SpoolError>, Found) {
    let mut found = Found::default();
    let spool = Spool::open(folder, 77, 1024, &mut |restored| match restored {
        Restored::Batch(batch) => found.batches.push((batch.sequence, batch.records[0].user)),
        Restored::Session { user, torrent, session } => {
            found.sessions.push((user, torrent, session));
        }
        Restored::Name(name) => found.names.push(name.torrent),
    });
    (spool, found)
}

fn append(spool: &mut Spool, mut batch: Batch) -> u64 {
    spool.append(&mut batch).unwrap()
}

#[test]
fn every_prefix_of_what_was_written_is_a_valid_state() {
    let folder = Directory::new().unwrap();
    let mut spool = open(folder.root()).0.unwrap();
    let mut ends = vec![spool.bytes()];
    for user in 1..=4 {
        append(&mut spool, batch(user, 10));
        ends.push(spool.bytes());
    }
    let name = format!("{:016x}.tgs", 1);
    let written = fs::read(folder.path(&name)).unwrap();
    drop(spool);
    for len in 0..=written.len() {
        let folder = Directory::new().unwrap();
        fs::write(folder.path(&name), &written[..len]).unwrap();
        let (spool, found) = open(folder.root());
        let whole = ends[1..].iter().filter(|end| **end <= len as u64).count();
        let expected: Vec<_> = (1..=whole as u64).map(|n| (n, n as u32)).collect();
        assert_eq!(found.batches, expected, "{len} bytes");
        let mut spool = spool.unwrap();
        let next = append(&mut spool, batch(9, 1));
        assert_eq!(next, whole as u64 + 1, "{len} bytes");
        drop(spool);
        assert_eq!(open(folder.root()).1.batches.last(), Some(&(next, 9)), "{len} bytes");
    }
    // The disk can have extended the file before the contents arrived.
    let folder = Directory::new().unwrap();
    let zeros = [&written[..ends[2] as usize + 30], &[0; 500]].concat();
    fs::write(folder.path(&name), zeros).unwrap();
    assert_eq!(open(folder.root()).1.batches.len(), 2);
}

#[test]
fn damage_in_the_middle_names_file_and_offset() {
    let folder = Directory::new().unwrap();
    let mut spool = open(folder.root()).0.unwrap();
    for user in 1..=3 {
        append(&mut spool, batch(user, 10));
    }
    let second = spool.places[1].offset;
    drop(spool);
    let path = folder.path(&format!("{:016x}.tgs", 1));
    let written = fs::read(&path).unwrap();
    for (at, found) in [(second + 2, "a header"), (second + 40, "contents")] {
        let mut other = written.clone();
        other[at as usize] ^= 4;
        fs::write(&path, other).unwrap();
        let (Err(error), _) = open(folder.root()) else { panic!("damage at {at} is accepted") };
        let text = error.to_string();
        assert!(text.contains(&format!("offset {second}, found {found}")), "{text}");
        assert!(text.starts_with(path.to_str().unwrap()), "{text}");
    }
    let mut other = written.clone();
    other[5] ^= 4;
    fs::write(&path, other).unwrap();
    assert!(open(folder.root()).0.is_err_and(|error| error.to_string().contains("offset 0")));
}

#[test]
fn snapshots_replace_confirmed_batches() {
    let folder = Directory::new().unwrap();
    let mut spool = open(folder.root()).0.unwrap();
    append(&mut spool, batch(1, 10));
    let mut writer = spool.begin_snapshot(NOW_S).unwrap();
    let state = session(4, u64::MAX);
    writer.session(8, 9, &state);
    writer.flush_chunk();
    writer.names([TorrentName { torrent: 6, info_hash: InfoHash([1; 20]) }].into_iter());
    append(&mut spool, batch(2, 20));
    spool.finish_snapshot(writer).unwrap();
    append(&mut spool, batch(3, 30));
    spool.confirm(2).unwrap();
    drop(spool);
    let (spool, found) = open(folder.root());
    let expected = Found { batches: vec![(3, 3)], sessions: vec![(8, 9, state)], names: vec![6] };
    assert_eq!(found, expected, "the snapshot has the second batch");
    drop(spool);
    let path = folder.path("snapshot");
    let written = fs::read(&path).unwrap();
    for len in 0..written.len() {
        fs::write(&path, &written[..len]).unwrap();
        assert!(open(folder.root()).0.is_err(), "{len} bytes");
    }
}

#[test]
fn old_segments_are_deleted_and_a_missing_one_is_noticed() {
    let folder = Directory::new().unwrap();
    let mut spool = open(folder.root()).0.unwrap();
    append(&mut spool, batch(1, 10));
    // As if it were full.
    spool.segment = None;
    append(&mut spool, batch(2, 20));
    spool.segment = None;
    append(&mut spool, batch(3, 30));
    let first = folder.path(&format!("{:016x}.tgs", 1));
    let second = folder.path(&format!("{:016x}.tgs", 2));
    spool.confirm(1).unwrap();
    assert!(first.exists(), "no snapshot has its sessions");
    let writer = spool.begin_snapshot(NOW_S).unwrap();
    append(&mut spool, batch(4, 40));
    spool.finish_snapshot(writer).unwrap();
    assert!(!first.exists() && second.exists(), "the second batch is not confirmed");
    // A consumer has seen more than this spool remembers.
    spool.advance(10);
    assert_eq!(append(&mut spool, batch(5, 50)), 11);
    drop(spool);
    let (spool, found) = open(folder.root());
    assert_eq!(found.batches, [(11, 5)]);
    drop(spool);
    fs::remove_file(folder.path(&format!("{:016x}.tgs", 3))).unwrap();
    let (Err(error), _) = open(folder.root()) else { panic!("a missing segment is accepted") };
    assert!(error.to_string().contains("follows batch 4, where batch 2 was the last"), "{error}");
}

#[test]
fn the_feed_confirms_durably_and_by_age() {
    let folder = Directory::new().unwrap();
    let mut spool = open(folder.root()).0.unwrap();
    for user in 1..=3 {
        append(&mut spool, batch(user, 10));
    }
    spool.confirm_feed(1).unwrap();
    drop(spool);
    let mut spool = open(folder.root()).0.unwrap();
    assert_eq!(spool.confirmed, 1);
    spool.expire_feed(NOW_S + FEED_KEPT_S).unwrap();
    assert_eq!(spool.confirmed, 1);
    spool.expire_feed(NOW_S + FEED_KEPT_S + 1).unwrap();
    assert_eq!(spool.confirmed, 3);
    assert_eq!(spool.waiting(), 0);
}

#[test]
fn batches_are_deflated_while_others_wait() {
    let folder = Directory::new().unwrap();
    let mut spool = open(folder.root()).0.unwrap();
    let full = |sequence: u64| Batch {
        records: (0..100).flat_map(|user| batch(user, sequence).records).collect(),
        ..batch(0, 0)
    };
    for sequence in 1..=5 {
        append(&mut spool, full(sequence));
    }
    let lens: Vec<_> = spool.places.iter().map(|place| place.len).collect();
    let [plain, .., deflated] = lens[..] else { panic!("{lens:?}") };
    assert!(lens[..3] == [plain; 3] && lens[3] < plain / 2 && deflated < plain / 2, "{lens:?}");
    drop(spool);
    let (spool, found) = open(folder.root());
    let spool = spool.unwrap();
    assert_eq!(found.batches, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
    for sequence in 1..=5 {
        let read = spool.after(sequence - 1).unwrap().unwrap();
        assert_eq!(read.records, full(sequence).records);
    }
}
