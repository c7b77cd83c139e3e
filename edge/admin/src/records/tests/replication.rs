//! The replication through its public functions: what is refused, what is counted, what is published.

use tokio::time::timeout;

use super::super::tables::bans;
use super::super::{OutboxEntry, SnapshotPart, StreamPosition};
use super::*;

/// Unix ms.
const NOW: u64 = 1_700_000_000_000;

fn replicated(node: u8, folder: Option<&Directory>) -> Running {
    let (records, mut writer) = Records::open(folder.map(Directory::root)).unwrap();
    writer.replicate(node, || NOW).unwrap();
    let running = Running::of(records, writer);
    wait(running.records.join_alone()).unwrap();
    running
}

fn deny(byte: u8) -> RecordOp {
    RecordOp::ListAdded { list: List::Deny, hashes: vec![hash(byte)] }
}

fn at(sequence: u64) -> StreamPosition {
    StreamPosition { stream: 5, sequence }
}

fn denied(running: &Running) -> Vec<InfoHash> {
    running.read(|db| lists::page(db, List::Deny, None, 99))
}

#[test]
fn publishes_changes_in_order_until_they_are_stored() {
    let folder = Directory::new().unwrap();
    let running = replicated(9, Some(&folder));
    wait(async {
        let waiting = timeout(Duration::from_millis(50), running.records.next_outgoing()).await;
        assert!(waiting.is_err(), "there is nothing to publish");
        let (first, _) =
            tokio::join!(running.records.next_outgoing(), running.records.change(deny(1)));
        let OutboxEntry { number, body } = first.unwrap();
        let hex = "01".repeat(20);
        let op = format!(r#"{{"list_added":{{"list":"deny","hashes":"{hex}"}}}}"#);
        let expected = format!(r#"{{"epoch":{NOW},"number":1,"at":{NOW},"ops":[{op}]}}"#);
        assert_eq!((number, String::from_utf8(body).unwrap()), (1, expected));
        running.records.change(deny(2)).await.unwrap();
        running.records.mark_stored(1).await.unwrap();
        assert_eq!(running.records.next_outgoing().await.unwrap().number, 2);
        running.records.mark_stored(2).await.unwrap();
        assert_eq!(running.records.replication().outbox_bytes.load(Relaxed), 0);
        running.records.publish_again().await.unwrap();
        assert_eq!(running.records.next_outgoing().await.unwrap().number, 1);
    });
    running.end();
    // A change that removes nothing is not published, and what waits survives a restart.
    let running = replicated(9, Some(&folder));
    let removal = RecordOp::BanRemoved { network: "10.0.0.0/8".into() };
    assert_eq!(wait(running.records.change(removal)).unwrap().changed, 0);
    assert_eq!(wait(running.records.next_outgoing()).unwrap().number, 1);
    wait(running.records.mark_stored(2)).unwrap();
    assert_eq!(running.records.replication().outbox_bytes.load(Relaxed), 0);
    running.end();
}

#[test]
fn counts_and_skips_what_it_cannot_understand() {
    let running = replicated(9, None);
    let state = running.records.replication();
    let entry = |epoch: u64, number: u64, ops: &str| {
        format!(r#"{{"epoch":{epoch},"number":{number},"at":{NOW},"ops":[{ops}]}}"#).into_bytes()
    };
    let hex = "07".repeat(20);
    let good = format!(r#"{{"list_added":{{"list":"deny","hashes":"{hex}"}}}}"#);
    let mut sequence = 0;
    let mut apply = |body: &[u8]| {
        sequence += 1;
        wait(running.records.apply_remote(at(sequence), 3, body)).unwrap();
        assert_eq!(running.records.position(), at(sequence));
    };
    let far = NOW + 90_000_000;
    for malformed in [
        &b""[..],
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        &entry(1, 0, ""),
        &entry(1, u64::MAX, ""),
        &entry(far, 1, ""),
        &[b'['; 100_000],
        &vec![b' '; 5 << 20],
    ] {
        apply(malformed);
    }
    assert_eq!(state.malformed.load(Relaxed), 10);
    let unknown = [
        r#"{"time_travelled":{}}"#.to_owned(),
        r#"{"list_added":{"list":"maybe","hashes":""}}"#.to_owned(),
        r#"{"list_added":{"list":"deny","hashes":"12"}}"#.to_owned(),
        format!(r#"{{"list_added":{{"list":"deny","hashes":"{}"}}}}"#, "00".repeat(20 * 10_001)),
        format!(r#"{{"list_added":{{"list":"deny","hashes":"{}"}}}}"#, "é".repeat(20)),
        // The token of the environment has the id 0.
        r#"{"token_removed":{"id":0}}"#.to_owned(),
        r#"{"token_removed":{"id":-1}}"#.to_owned(),
        r#"{"key_removed":{"id":4294967295}}"#.to_owned(),
        r#"{"key_removed":{"id":4294967296}}"#.to_owned(),
        r#"{"ban_removed":{"network":"everywhere"}}"#.to_owned(),
        r#"{"settings_put":[["tracker.interval_s","nonsense"]]}"#.to_owned(),
        r#"{"downloads_raised":[]}"#.to_owned(),
        "7".to_owned(),
    ];
    for (number, op) in unknown.iter().enumerate() {
        apply(&entry(1, number as u64 + 1, &format!("{op},{good}")));
    }
    assert_eq!(state.unknown_ops.load(Relaxed), unknown.len() as u64);
    assert_eq!(denied(&running), [hash(7)], "the other ops of an entry are applied");
    let (applied, last) = (state.applied.load(Relaxed), unknown.len() as u64);
    // Again, an earlier one, one of an earlier epoch; and then some are missing.
    let removal = good.replace("added", "removed");
    apply(&entry(1, last, &removal));
    apply(&entry(1, 1, &removal));
    apply(&entry(0, 99, &removal));
    assert_eq!(state.duplicates.load(Relaxed), 3);
    assert_eq!(denied(&running), [hash(7)]);
    apply(&entry(1, last + 5, &removal));
    assert_eq!((state.missing.load(Relaxed), state.applied.load(Relaxed)), (4, applied + 1));
    assert!(denied(&running).is_empty());
    running.end();
}

#[test]
fn what_is_stored_does_not_count_as_waiting() {
    let running = replicated(9, None);
    let reason = "Grüße, 世界".into();
    let (network, automatic, created, expires) = ("10.0.0.0/8".into(), false, 1, None);
    let ban = bans::BanRow { network, reason, automatic, created, expires };
    assert!(wait(running.records.change(RecordOp::BansPut(vec![ban]))).is_ok());
    let state = running.records.replication();
    assert!(state.outbox_bytes.load(Relaxed) > 0);
    wait(running.records.mark_stored(1)).unwrap();
    assert_eq!(state.outbox_bytes.load(Relaxed), 0);
    running.end();
}

#[test]
fn a_restored_backup_begins_a_new_epoch() {
    let running = replicated(9, None);
    assert!(wait(running.records.change(deny(1))).is_ok());
    let first = wait(running.records.next_outgoing()).unwrap();
    wait(running.records.apply_remote(at(1), 9, &first.body)).unwrap();
    // An entry of its own that these records do not have.
    let hex = "03".repeat(20);
    let lost = format!(
        r#"{{"epoch":{NOW},"number":7,"at":{NOW},"ops":[{{"list_added":{{"list":"deny","hashes":"{hex}"}}}}]}}"#
    );
    wait(running.records.apply_remote(at(2), 9, lost.as_bytes())).unwrap();
    assert_eq!(denied(&running), [hash(1), hash(3)]);
    assert!(wait(running.records.change(deny(2))).is_ok());
    wait(running.records.mark_stored(1)).unwrap();
    let next = wait(running.records.next_outgoing()).unwrap();
    let text = String::from_utf8(next.body.clone()).unwrap();
    assert!(text.starts_with(&format!(r#"{{"epoch":{},"number":2"#, NOW + 1)), "{text}");
    // It is new to nodes that have heard of number 7.
    let other = replicated(8, None);
    for (sequence, body) in [(1, first.body.as_slice()), (2, lost.as_bytes()), (3, &next.body)] {
        wait(other.records.apply_remote(at(sequence), 9, body)).unwrap();
    }
    assert_eq!(denied(&other), [hash(1), hash(2), hash(3)]);
    running.end();
    other.end();
}

#[test]
fn refuses_changes_while_too_much_waits() {
    let running = replicated(9, None);
    let state = running.records.replication();
    state.outbox_bytes.store(256 << 20, Relaxed);
    let refused = wait(running.records.change(deny(1)));
    assert!(refused == Err(RecordsError::OutboxFull));
    assert!(denied(&running).is_empty());
    // What other nodes change is still applied.
    let body = format!(r#"{{"epoch":1,"number":1,"at":{NOW},"ops":[]}}"#);
    wait(running.records.apply_remote(at(1), 3, body.as_bytes())).unwrap();
    state.outbox_bytes.store(0, Relaxed);
    assert!(wait(running.records.change(deny(1))).is_ok());
    running.end();
}

/// Reads all parts of a snapshot.
fn parts(running: &Running) -> Vec<Vec<u8>> {
    let (mut cursor, mut parts) = (Vec::new(), Vec::new());
    loop {
        let SnapshotPart { body, next } = wait(running.records.snapshot(&cursor)).unwrap();
        parts.push(body);
        match next {
            Some(next) => cursor = next,
            None => return parts,
        }
    }
}

#[test]
fn a_snapshot_shows_one_moment_and_is_merged_whole() {
    let folder = Directory::new().unwrap();
    let (one, other) = (replicated(1, Some(&folder)), replicated(2, None));
    let hashes: Vec<_> = (0..25_000_u32)
        .map(|number| InfoHash([number.to_be_bytes(); 5].as_flattened().try_into().unwrap()))
        .collect();
    let all = hashes.clone();
    one.change(move |db| lists::insert(db, List::Allow, &all)).unwrap();
    // Not in the other's snapshot, so it is removed there.
    other.change(|db| lists::insert(db, List::Allow, &[InfoHash([0xaa; 20])])).unwrap();
    let first = wait(one.records.snapshot(&[])).unwrap();
    let removed = hashes.clone();
    one.change(move |db| lists::remove(db, List::Allow, &removed)).unwrap();
    let mut next = first.next.clone();
    wait(other.records.merge_snapshot(&first.body, false)).unwrap();
    let body = format!(r#"{{"epoch":1,"number":1,"at":{NOW},"ops":[]}}"#);
    let refused = wait(other.records.apply_remote(at(1), 3, body.as_bytes()));
    assert_eq!(refused, Err(RecordsError::Merging));
    while let Some(cursor) = next {
        let part = wait(one.records.snapshot(&cursor)).unwrap();
        next = part.next;
        wait(other.records.merge_snapshot(&part.body, next.is_none())).unwrap();
    }
    let merged = other.read(|db| lists::page(db, List::Allow, None, 99_999));
    assert_eq!(merged, hashes);
    assert!(wait(other.records.apply_remote(at(1), 3, body.as_bytes())).is_ok());
    // The memory of records without a file is a snapshot, too.
    assert!(parts(&other).len() > 5);
    one.end();
    other.end();
}

#[test]
fn a_damaged_snapshot_changes_no_row() {
    let running = replicated(1, None);
    assert!(wait(running.records.change(deny(1))).is_ok());
    for part in [&b""[..], b"{}", b"\xff", br#"{"rows":{"rows":{"settings":[]}}}"#, &[b'['; 99_999]]
    {
        assert!(wait(running.records.merge_snapshot(part, true)).is_err());
    }
    let ended = wait(running.records.snapshot(br#"{"snapshot":9,"place":{"table":0},"number":1}"#));
    assert!(ended.is_err());
    assert_eq!(denied(&running), [hash(1)]);
    running.end();
}

#[test]
fn records_copied_to_another_node_begin_anew() {
    let folder = Directory::new().unwrap();
    let running = replicated(1, Some(&folder));
    assert!(wait(running.records.change(deny(1))).is_ok());
    running.end();
    let (records, mut writer) = Records::open(Some(folder.root())).unwrap();
    writer.replicate(2, || NOW + 1).unwrap();
    let running = Running::of(records, writer);
    assert!(!running.records.has_joined());
    assert_eq!(denied(&running), [hash(1)]);
    running.end();
}
