mod model;
mod replication;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use harness::{Directory, wait_until};
use types::InfoHash;

use super::tables::lists::{self, List};
use super::tables::tokens::{self, TokenRow};
use super::tables::{counts, keys};
use super::*;
use tracker::KeyTotals as Totals;

/// Counts that a test provides, and how many changes were applied.
#[derive(Clone, Default)]
struct Counted {
    /// Downloads to add; 0 removes a torrent's count.
    downloads: Arc<Mutex<Vec<(InfoHash, u32)>>>,
    applied: Arc<AtomicUsize>,
}

impl LiveState for Counted {
    fn collect(&mut self, pending: &mut PendingCounts) {
        for (torrent, added) in self.downloads.lock().drain(..) {
            match added {
                0 => pending.remove_downloads(torrent),
                added => pending.add_downloads(torrent, added),
            }
        }
    }

    fn apply(&mut self, _: RecordOp, _: ChangeSource<'_>) {
        self.applied.fetch_add(1, Relaxed);
    }
}

/// Records with their writer thread.
struct Running {
    records: Records,
    counted: Counted,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(folder: Option<&Directory>) -> Self {
        let (records, writer) = Records::open(folder.map(Directory::root)).unwrap();
        Self::of(records, writer)
    }

    fn of(records: Records, writer: Writer) -> Self {
        let counted = Counted::default();
        let mut counts = counted.clone();
        let thread = thread::spawn(move || writer.run(&mut counts, Duration::from_millis(20)));
        Self { records, counted, thread }
    }

    /// Adds a token, and returns its id.
    fn add_token(&self, byte: u8) -> Result<i64, RecordsError> {
        let added = wait(self.records.change(RecordOp::TokenPut(token(byte))));
        added.map(|outcome| outcome.id)
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> T {
        wait(self.records.read(read)).unwrap()
    }

    fn count(&self, hash: InfoHash, count: u32) {
        self.counted.downloads.lock().push((hash, count));
    }

    fn end(self) {
        let closed = self.records.close();
        closed.blocking_recv().unwrap();
        self.thread.join().unwrap();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn hash(byte: u8) -> InfoHash {
    InfoHash([byte; 20])
}

fn token(byte: u8) -> TokenRow {
    TokenRow {
        id: 0,
        digest: [byte; 32],
        name: "n".into(),
        scopes: "*".into(),
        created: 5,
        expires: None,
        is_first: false,
    }
}

fn downloads(connection: &Connection) -> Result<Vec<(InfoHash, u32)>, rusqlite::Error> {
    let mut all = Vec::new();
    counts::read_downloads(connection, |hash, count| all.push((hash, count)))?;
    Ok(all)
}

#[test]
fn only_the_owner_reads_the_file() {
    let folder = Directory::new().unwrap();
    Running::start(Some(&folder)).end();
    let permissions = fs::metadata(folder.path(FILE)).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, 0o600);
}

#[test]
fn removed_counts_leave_the_records() {
    let running = Running::start(None);
    let health = running.records.health();
    let flushed = |changes: &[(u8, u32)]| {
        let written = health.counts_written.load(Relaxed);
        let mut counted = running.counted.downloads.lock();
        counted.extend(changes.iter().map(|(byte, count)| (hash(*byte), *count)));
        drop(counted);
        wait_until("written", || health.counts_written.load(Relaxed) > written);
        running.read(downloads)
    };
    assert_eq!(flushed(&[(1, 1), (2, 5), (3, 1)]), [(hash(1), 1), (hash(2), 5), (hash(3), 1)]);
    // Changes count in their order, whether they remove or add.
    let changes = [(1, 2), (1, 0), (4, 0), (4, 3)];
    assert_eq!(flushed(&changes), [(hash(2), 5), (hash(3), 1), (hash(4), 3)]);
    assert_eq!(flushed(&[(2, 0), (3, 0), (9, 0)]), [(hash(4), 3)]);
    running.end();
}

#[test]
fn a_failed_change_leaves_no_trace_and_undoes_no_other() {
    let folder = Directory::new().unwrap();
    let (records, writer) = Records::open(Some(folder.root())).unwrap();
    // All of these are queued when the writer starts, and are committed together.
    let add = |first: u8, second: u8| {
        records.change_all([first, second].map(token).map(RecordOp::TokenPut).into())
    };
    let (one, two, three) = (add(1, 2), add(3, 1), add(4, 5));
    let mut counted = Counted::default();
    let applied = Arc::clone(&counted.applied);
    let thread = thread::spawn(move || writer.run(&mut counted, Duration::from_secs(9)));
    let outcomes = wait(async { tokio::join!(one, two, three) });
    assert!(outcomes.0.is_ok() && outcomes.2.is_ok());
    assert_eq!(outcomes.1, Err(RecordsError::Conflict));
    assert_eq!(applied.load(Relaxed), 4);
    let digests = wait(records.read(tokens::all)).unwrap();
    assert_eq!(digests.iter().map(|row| row.digest[0]).collect::<Vec<_>>(), [1, 2, 4, 5]);
    assert_eq!(records.health().changes.load(Relaxed), 2);
    assert_eq!(records.health().changes_pending.load(Relaxed), 0);
    records.close().blocking_recv().unwrap();
    thread.join().unwrap();
}

#[test]
fn reports_a_full_disk_and_keeps_counts_until_there_is_space() {
    let folder = Directory::new().unwrap();
    let (records, writer) = Records::open(Some(folder.root())).unwrap();
    writer.connection().execute_batch("PRAGMA max_page_count = 40").unwrap();
    let running = Running::of(records, writer);
    let edit = |hashes: &[InfoHash], is_added| {
        wait(running.records.change_all(RecordOp::list(List::Allow, hashes, is_added)))
    };
    let numbers = (0..200 * 256).map(u32::to_be_bytes);
    let hashes: Vec<_> =
        numbers.map(|n| InfoHash([n; 5].as_flattened().try_into().unwrap())).collect();
    let kept = hashes.chunks(256).take_while(|chunk| edit(chunk, true).is_ok()).count();
    assert!((1..200).contains(&kept), "the disk never became full, or always was: {kept}");
    assert_eq!(edit(&hashes, true), Err(RecordsError::DiskFull));
    let many = (0..=255).map(|byte| (InfoHash([byte; 20]), 1));
    many.for_each(|(hash, count)| running.count(hash, count));
    let health = running.records.health();
    wait_until("counts pending: 256", || health.counts_pending.load(Relaxed) == 256);
    // Reads still work, and so do changes that need no space.
    assert!(running.read(|db| lists::page(db, List::Allow, None, 9)).len() == 9);
    assert_eq!(edit(&hashes[..kept * 256], false), Ok(kept * 256));
    wait_until("counts pending: 0", || health.counts_pending.load(Relaxed) == 0);
    assert_eq!(running.read(downloads).len(), 256);
    assert!(health.failures[RecordsError::DiskFull.index()].load(Relaxed) >= 2);
    running.end();
}

#[test]
fn reports_a_locked_file_and_keeps_counts_until_it_is_free() {
    let folder = Directory::new().unwrap();
    let running = Running::start(Some(&folder));
    let other = Connection::open(folder.path(FILE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(running.add_token(1), Err(RecordsError::Locked));
    running.count(hash(9), 9);
    let health = running.records.health();
    wait_until("counts pending: 1", || health.counts_pending.load(Relaxed) == 1);
    assert!(running.read(tokens::all).is_empty(), "reads still work");
    other.execute_batch("COMMIT").unwrap();
    wait_until("counts pending: 0", || health.counts_pending.load(Relaxed) == 0);
    assert_eq!(running.read(downloads), [(hash(9), 9)]);
    running.end();
}

#[test]
fn refuses_foreign_damaged_and_newer_files_without_changing_them() {
    let folder = Directory::new().unwrap();
    Running::start(Some(&folder)).end();
    let ours = fs::read(folder.path(FILE)).unwrap();
    let mut damaged = ours.clone();
    // The root page of the first table, behind the header.
    damaged[100..200].fill(0xff);
    let newer = Directory::new().unwrap();
    fs::write(newer.path(FILE), &ours).unwrap();
    Connection::open(newer.path(FILE)).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let foreign = Directory::new().unwrap();
    let other = Connection::open(foreign.path(FILE)).unwrap();
    other.execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
    drop(other);
    for (bytes, expected) in [
        (damaged, "is damaged"),
        (b"passwords, one a line".repeat(99), "is not a tidegate database"),
        (fs::read(newer.path(FILE)).unwrap(), "later version of tidegate (schema 99)"),
        (fs::read(foreign.path(FILE)).unwrap(), "is not a tidegate database"),
    ] {
        let folder = Directory::new().unwrap();
        fs::write(folder.path(FILE), &bytes).unwrap();
        let Err(error) = Records::open(Some(folder.root())) else { panic!("accepted: {expected}") };
        let text = error.to_string();
        assert!(
            text.contains(expected) && text.contains(folder.root().to_str().unwrap()),
            "{text}"
        );
        assert_eq!(fs::read(folder.path(FILE)).unwrap(), bytes);
    }
    // A process that ends right after creating the file leaves it empty.
    let empty = Directory::new().unwrap();
    fs::write(empty.path(FILE), "").unwrap();
    assert!(Records::open(Some(empty.root())).is_ok());
    let missing = empty.path("no such folder");
    let Err(error) = Records::open(Some(&missing)) else { panic!("created a folder") };
    assert!(error.to_string().contains("cannot be opened"), "{error}");
}

#[test]
fn totals_add_up_to_the_maximum() {
    let (records, mut writer) = Records::open(None).unwrap();
    let row = keys::KeyRow { key: "k".repeat(16), created: 1, ..keys::KeyRow::default() };
    let id = writer.change(RecordOp::KeyPut(row.clone())).unwrap().key.unwrap().id;
    let conflict = writer.change(RecordOp::KeyPut(row));
    assert!(conflict.is_err_and(|error| error == RecordsError::Conflict));
    for time in [77, 78] {
        let mut pending = PendingCounts::default();
        pending.add(id, Totals { uploaded: 5, seeding_s: 1, ..Totals::default() });
        pending.add(id, Totals { uploaded: u64::MAX, seeding_s: 2, ..Totals::default() });
        pending.first_uses.insert(id, time);
        // There is no such key.
        pending.add(id + 1, Totals { uploaded: 5, ..Totals::default() });
        let written = writer.transact(true, |db, to| Ok(counts::write(db, to, &pending)?));
        assert_eq!(written.unwrap().0, if time == 77 { vec![id] } else { vec![] });
    }
    let found = keys::get(writer.connection(), id).unwrap().unwrap();
    assert_eq!(found.totals.seeding_s, 6);
    assert_eq!(found.totals.uploaded, i64::MAX as u64 / 256);
    assert_eq!(found.first_used, Some(77));
    // Outside a cluster, totals go with their key.
    writer.change(RecordOp::KeyRemoved { id }).unwrap();
    let sql = "SELECT count(*) FROM key_totals";
    assert_eq!(writer.connection().query_row(sql, [], |row| row.get(0)), Ok(0));
    assert!(records.range_digests(9).iter().all(|digest| *digest == 0));
}

/// 1.0.0 noted the last ids of its node, but not where this version looks for the node's number.
#[test]
fn a_node_continues_its_ids_of_1_0_0() {
    for (last, expected) in [((1 << 28) + 2 * 256 + 9, 3), ((1 << 28) + 2 * 256 + 8, 1)] {
        let (_records, mut writer) = Records::open(None).unwrap();
        let sql = "INSERT INTO last_ids VALUES ('tokens', ?1)";
        writer.connection().execute(sql, [last]).unwrap();
        writer.replicate(9, || 4_000_000_000_000).unwrap();
        let id = writer.change(RecordOp::TokenPut(token(1))).unwrap().id;
        assert_eq!(id, (1 << 28) + expected * 256 + 9);
    }
}
