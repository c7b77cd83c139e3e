//! The replication through its public functions: changes sent, read, merged, refused and counted.

use primitives::Random;
use tokio::time::timeout;

use super::super::changes::Stamped;
use super::super::rows::Kind;
use super::super::stamp::Stamp;
use super::super::tables::bans;
use super::*;

/// Unix ms.
const NOW: u64 = 1_700_000_000_000;

fn replicated(node: u8, folder: Option<&Directory>) -> Running {
    let (records, mut writer) = Records::open(folder.map(Directory::root)).unwrap();
    writer.replicate(node, || NOW).unwrap();
    Running::of(records, writer)
}

fn deny(byte: u8) -> RecordOp {
    RecordOp::ListAdded { list: List::Deny, hashes: vec![hash(byte)] }
}

fn denied(running: &Running) -> Vec<InfoHash> {
    running.read(|db| lists::page(db, List::Deny, None, 99))
}

/// Returns a stamp of node 3.
fn stamp(unix_ms: u64) -> u64 {
    unix_ms << 19 | 3
}

#[test]
fn tells_changes_once() {
    let running = replicated(9, None);
    wait(async {
        let waiting = timeout(Duration::from_millis(50), running.records.next_changes()).await;
        assert!(waiting.is_err(), "there is nothing to tell");
        let (body, _) =
            tokio::join!(running.records.next_changes(), running.records.change(deny(1)));
        let (hex, stamp) = ("01".repeat(20), NOW << 19 | 9);
        let op = format!(r#"{{"list_added":{{"list":"deny","hashes":"{hex}"}}}}"#);
        let expected = format!(r#"[{{"stamp":{stamp},"op":{op}}}]"#);
        assert_eq!(String::from_utf8(body).unwrap(), expected);
        // A change without effect is not sent to other nodes.
        let removal = RecordOp::BanRemoved { network: "10.0.0.0/8".into() };
        assert_eq!(running.records.change(removal).await.unwrap().changed, 0);
        assert_eq!(running.records.change(deny(1)).await.unwrap().changed, 0);
        let waiting = timeout(Duration::from_millis(50), running.records.next_changes()).await;
        assert!(waiting.is_err(), "told once");
    });
    running.end();
}

#[test]
fn bodies_are_limited_and_what_overflows_is_counted() {
    let running = replicated(9, None);
    let state = running.records.replication();
    let op = RecordOp::list(List::Allow, &[hash(1); 5000], true).remove(0);
    (0..50).for_each(|_| state.send(vec![Stamped { stamp: Stamp::OLDEST, op: op.clone() }]));
    assert_eq!(state.unsent.load(Relaxed), 9);
    let mut bytes = 0;
    while let Some(body) = state.take_changes() {
        assert!(body.len() <= 256 * 1024);
        bytes += body.len();
    }
    assert!((7 << 20..=8 << 20).contains(&bytes), "{bytes}");
    running.end();
}

#[test]
fn counts_and_skips_what_it_cannot_understand() {
    let running = replicated(9, None);
    let state = running.records.replication();
    let merge = |body: &[u8]| wait(running.records.merge(3, body.to_vec())).unwrap();
    for malformed in
        [&b""[..], b"{", b"\xff\xfe", b"{}", b"[", b"[1,]", &[b'['; 100_000], &vec![b' '; 2 << 20]]
    {
        merge(malformed);
    }
    assert_eq!(state.rejected.load(Relaxed), 8);
    let hex = "07".repeat(20);
    let entry = |stamp: i128, op: &str| format!(r#"{{"stamp":{stamp},"op":{op}}}"#);
    let now = i128::from(stamp(NOW));
    let good = format!(r#"{{"list_added":{{"list":"deny","hashes":"{hex}"}}}}"#);
    let unknown = [
        r#"{"time_travelled":{}}"#.to_owned(),
        r#"{"list_added":{"list":"maybe","hashes":""}}"#.to_owned(),
        r#"{"list_added":{"list":"deny","hashes":"12"}}"#.to_owned(),
        format!(r#"{{"list_added":{{"list":"deny","hashes":"{}"}}}}"#, "00".repeat(20 * 5001)),
        format!(r#"{{"list_added":{{"list":"deny","hashes":"{}"}}}}"#, "é".repeat(20)),
        // The token of the environment has the id 0.
        r#"{"token_removed":{"id":0}}"#.to_owned(),
        r#"{"token_removed":{"id":-1}}"#.to_owned(),
        r#"{"key_removed":{"id":4294967295}}"#.to_owned(),
        r#"{"key_removed":{"id":4294967296}}"#.to_owned(),
        r#"{"ban_removed":{"network":"everywhere"}}"#.to_owned(),
        r#"{"settings_put":[["tracker.interval_s","nonsense"]]}"#.to_owned(),
        format!(r#"{{"downloads":{{"node":3,"hashes":"{hex}","counts":[]}}}}"#),
        r#"{"downloads_added":[]}"#.to_owned(),
        "7".to_owned(),
    ];
    for op in &unknown {
        merge(format!("[{},{}]", entry(now, op), entry(now, &good)).as_bytes());
    }
    merge(format!("[1,{},null]", entry(now + (1 << 64), &good)).as_bytes());
    assert_eq!(state.unknown.load(Relaxed), unknown.len() as u64 + 3);
    assert_eq!(denied(&running), [hash(7)], "the rest of a body is merged");
    assert_eq!(state.merged.load(Relaxed), 1);
    assert_eq!(state.stale.load(Relaxed), unknown.len() as u64 - 1);
    let rejected = state.rejected.load(Relaxed);
    let ahead = i128::from(stamp(NOW + 3_700_000));
    for stamp in [0, -1, ahead, i128::from(i64::MAX)] {
        merge(format!("[{}]", entry(stamp, &good.replace("added", "removed"))).as_bytes());
    }
    assert_eq!(state.rejected.load(Relaxed), rejected + 4);
    assert_eq!(denied(&running), [hash(7)]);
    running.end();
}

/// Whatever a body is, merging it ends, and later ones are merged.
#[test]
fn damaged_bodies_stop_nothing() {
    let (one, other) = (replicated(1, None), replicated(2, None));
    let key = keys::KeyRow { id: 0, key: "k".repeat(16), ..keys::KeyRow::default() };
    let ops = vec![deny(1), RecordOp::KeyPut(key), RecordOp::TokenPut(token(1))];
    wait(one.records.change_all(ops)).unwrap();
    one.count(hash(1), 3);
    wait_until("counted", || one.records.range_digests(10).iter().any(|digest| *digest != 0));
    let state = one.records.replication();
    let bodies: Vec<_> = std::iter::from_fn(|| state.take_changes()).collect();
    let mut random = Random::new(1);
    for _ in 0..300 {
        let mut body = bodies[random.below(bodies.len() as u32) as usize].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(body.len() as u32) as usize;
            body[at] = b"0179,:{}[]\"ax\xff"[random.below(14) as usize];
        }
        if random.below(4) == 0 {
            body.truncate(random.below(body.len() as u32) as usize);
        }
        wait(other.records.merge(1, body)).unwrap();
    }
    wait(other.records.change(deny(2))).unwrap();
    assert!(denied(&other).contains(&hash(2)));
    one.end();
    other.end();
}

#[test]
fn ephemeral_changes_are_applied_while_they_are_new() {
    let running = replicated(9, None);
    let applied = || running.counted.applied.load(Relaxed);
    let body = |unix_ms| {
        let op = r#"{"peers_removed":{"address":"10.0.0.1"}}"#;
        format!(r#"[{{"stamp":{},"op":{op}}}]"#, stamp(unix_ms)).into_bytes()
    };
    wait(running.records.merge(3, body(NOW - 700_000))).unwrap();
    assert_eq!(applied(), 0);
    wait(running.records.merge(3, body(NOW - 500_000))).unwrap();
    assert_eq!(applied(), 1);
    wait(running.records.tell(RecordOp::PeersRemoved { address: [10, 0, 0, 2].into() })).unwrap();
    let told = String::from_utf8(wait(running.records.next_changes())).unwrap();
    assert!(told.contains("10.0.0.2"), "{told}");
    running.end();
}

/// Rows come in parts of at most 512 KiB, whether they share a stamp or not.
#[test]
fn reads_rows_in_parts() {
    let folder = Directory::new().unwrap();
    let (one, other) = (replicated(1, Some(&folder)), replicated(2, None));
    let hashes: Vec<_> = (0..30_000_u32)
        .map(|number| {
            let number = number.wrapping_mul(0x9e37_79b1);
            InfoHash([number.to_be_bytes(); 5].as_flattened().try_into().unwrap())
        })
        .collect();
    wait(one.records.change_all(RecordOp::list(List::Allow, &hashes[4000..], true))).unwrap();
    let each = hashes[..4000].chunks(1).flat_map(|hash| RecordOp::list(List::Allow, hash, true));
    wait(one.records.change_all(each.collect())).unwrap();
    hashes.iter().for_each(|hash| one.count(*hash, 7));
    wait_until("counted", || one.records.range_digests(10).iter().all(|digest| *digest != 0));
    for kind in [Kind::Allow, Kind::Downloads].map(|kind| kind as u8) {
        assert_ne!(one.records.digests(), other.records.digests());
        let (mut cursor, mut parts) = (Some(Vec::new()), 0);
        while let Some(from) = cursor {
            let part = wait(one.records.read_ranges(kind, (0..1024).collect(), from)).unwrap();
            assert!(part.body.len() <= 512 * 1024, "{}", part.body.len());
            wait(other.records.merge(1, part.body)).unwrap();
            cursor = part.next;
            parts += 1;
        }
        assert!((4..9).contains(&parts), "{parts}");
        assert_eq!(one.records.range_digests(kind), other.records.range_digests(kind));
    }
    assert_eq!(one.records.digests(), other.records.digests());
    assert_eq!(other.read(downloads).len(), hashes.len());
    let none = wait(one.records.read_ranges(200, vec![1], Vec::new())).unwrap();
    assert_eq!((none.body, none.next), (b"[]".to_vec(), None));
    let far = wait(one.records.read_ranges(5, vec![1023, 9999], vec![0xff; 99])).unwrap();
    assert_eq!((far.body, far.next), (b"[]".to_vec(), None));
    assert!(one.records.range_digests(200).is_empty());
    one.end();
    other.end();
}

/// Digests are the same after a restart, and those of a file without any are computed.
#[test]
fn digests_survive_restarts_and_migrations() {
    let folder = Directory::new().unwrap();
    let running = replicated(1, Some(&folder));
    assert!(wait(running.records.change(deny(1))).is_ok());
    assert!(wait(running.records.change(RecordOp::TokenPut(token(1)))).is_ok());
    running.count(hash(1), 3);
    wait_until("counted", || running.records.range_digests(10).iter().any(|it| *it != 0));
    let digests = running.records.digests();
    running.end();
    let running = replicated(1, Some(&folder));
    assert_eq!(running.records.digests(), digests);
    running.end();
    let db = Connection::open(folder.path(FILE)).unwrap();
    db.execute_batch("DELETE FROM ranges; DELETE FROM clock; DELETE FROM stamps WHERE kind = 0;")
        .unwrap();
    drop(db);
    let running = Running::start(Some(&folder));
    let [ours, before] = [running.records.digests(), digests];
    assert_eq!(ours[1..], before[1..]);
    assert!(ours[0] != before[0], "the token has another stamp");
    assert_ne!(ours[0], ours[1], "and has one");
    running.end();
}

/// Removed rows stay removed for 400 days, however late a change comes. An expired ban leaves a tombstone only if it
/// may have replaced another one.
#[test]
fn tombstones_are_kept_for_long() {
    static TIME: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(NOW);
    let (records, mut writer) = Records::open(None).unwrap();
    writer.replicate(9, || TIME.load(Relaxed)).unwrap();
    let tombstones = |writer: &mut Writer| {
        writer.clean_up();
        records.replication().tombstones.load(Relaxed)
    };
    let ban = |network: &str, automatic| bans::BanRow {
        network: network.into(),
        reason: String::new(),
        automatic,
        created: 1,
        expires: Some(NOW as i64 / 1000 + 60),
    };
    let bans = vec![ban("10.0.0.0/8", true), ban("11.0.0.0/8", false)];
    writer.change(RecordOp::BansPut(bans)).unwrap();
    writer.change(deny(1)).unwrap();
    let removed = RecordOp::list(List::Deny, &[hash(1)], false).remove(0);
    writer.change(removed).unwrap();
    assert_eq!(tombstones(&mut writer), 1);
    TIME.store(NOW + 61_000, Relaxed);
    assert_eq!(tombstones(&mut writer), 2);
    let all = bans::BanFilter { now: 0, text: String::new() };
    assert_eq!(bans::count(writer.connection(), &all).unwrap(), 0);
    TIME.store(NOW + 399 * 86_400_000, Relaxed);
    assert_eq!(tombstones(&mut writer), 2);
    TIME.store(NOW + 401 * 86_400_000, Relaxed);
    assert_eq!(tombstones(&mut writer), 0);
    assert!(records.range_digests(6).iter().chain(&records.range_digests(7)).all(|it| *it == 0));
}
