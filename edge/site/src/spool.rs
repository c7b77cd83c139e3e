//! The spool: batches on the disk until all consumers have taken them, and a snapshot of all sessions.
//!
//! A batch is appended to a segment and synced before any consumer sees it, so that each increment has a number that
//! outlives the process, and a consumer takes it once. Sessions are restored from the snapshot and the batches since.
//! A segment is deleted when its batches are confirmed and in the snapshot.
//!
//! | file | contents |
//! |---|---|
//! | `lock` | locked by the process that writes here |
//! | `SEQUENCE.tgs` | a segment (see `frame`) that begins with this batch |
//! | `snapshot` | names and sessions up to a batch; replaced as a whole |
//! | `confirmed` | the cursor that the reader of the feed has confirmed |
//!
//! A kill can leave an incomplete last frame, which is cut off. Damage elsewhere is an error that names file and offset.

mod frame;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::Batch;
pub use frame::scan_segment;
use frame::{Frame, SEGMENT_HEADER_LEN, SegmentEnd};
pub(crate) use snapshot::{Restored, SnapshotWriter};

/// Batches that are waiting when the next one is deflated. Fewer are gone before the room on the disk matters.
const WAITING_PLAIN_MAX: u64 = 2;
/// Fewest bytes of batches after which a snapshot is written: the next start reads them within half a second.
const SNAPSHOT_AFTER_BYTES: u64 = 64 << 20;
/// Bytes after which a new segment begins.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Seconds that batches of the feed are kept without being confirmed.
pub(crate) const FEED_KEPT_S: u32 = 7 * 86_400;

/// An error of the spool.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process has the folder.
    #[error("{} is in use by another process: stop that one, or give each its own state.dir", .0.display())]
    Locked(PathBuf),
    /// Something else, with the remedy.
    #[error("{0}")]
    Failed(String),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    sequence: u64,
    unix_s: u32,
    segment: u64,
    offset: u64,
    len: u64,
}

pub(crate) struct Spool {
    folder: PathBuf,
    /// Tells this spool from one that began anew in its place.
    pub(crate) id: u64,
    _lock: File,
    /// The segment that is written, if there is one.
    segment: Option<(u64, File)>,
    places: VecDeque<Place>,
    next: u64,
    /// All batches up to this one are confirmed.
    pub(crate) confirmed: u64,
    /// All batches up to this one are in the snapshot.
    covered: u64,
    bytes: u64,
    snapshot_bytes: u64,
    limit: u64,
    /// The last batch: the one that its consumer reads next, if it is not behind.
    last: Option<Arc<Batch>>,
}

impl Spool {
    /// Opens the spool in `folder`, which is created if it is missing, and restores what it holds through `restored`.
    /// `id` is that of a new spool: a random number.
    pub(crate) fn open(
        folder: &Path,
        id: u64,
        limit_mib: u64,
        restored: &mut dyn FnMut(Restored<'_>),
    ) -> Result<Self, SpoolError> {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
        let lock_path = folder.join("lock");
        let lock = OpenOptions::new().create(true).append(true).open(&lock_path);
        let lock = lock.map_err(io("open", &lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => SpoolError::Locked(folder.to_owned()),
            TryLockError::Error(error) => io("lock", &lock_path)(error),
        })?;
        let mut spool = Self {
            folder: folder.to_owned(),
            id,
            _lock: lock,
            segment: None,
            places: VecDeque::new(),
            next: 1,
            confirmed: 0,
            covered: 0,
            bytes: 0,
            snapshot_bytes: 0,
            limit: limit_mib << 20,
            last: None,
        };
        if let Some(snapshot) = snapshot::read(&spool.snapshot_path(), restored)? {
            spool.id = snapshot.id;
            spool.covered = snapshot.sequence;
            spool.snapshot_bytes = snapshot.bytes;
            spool.next = snapshot.sequence + 1;
        }
        spool.read_segments(restored)?;
        spool.read_confirmed()?;
        Ok(spool)
    }

    /// Returns the sequence of the last batch; 0 if there was none.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.next - 1
    }

    /// Returns the number of batches that are not confirmed.
    pub(crate) fn waiting(&self) -> u64 {
        self.last_sequence() - self.confirmed
    }

    /// Returns when the oldest batch that is not confirmed was cut, unix seconds.
    pub(crate) fn waiting_since_s(&self) -> Option<u32> {
        let first = self.places.iter().find(|place| place.sequence > self.confirmed);
        first.map(|place| place.unix_s)
    }

    /// Returns the bytes of all segments and the snapshot.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.snapshot_bytes
    }

    /// Returns whether there is room for another batch.
    pub(crate) fn check_room(&self) -> Result<(), SpoolError> {
        if self.bytes < self.limit {
            return Ok(());
        }
        let limit_mib = self.limit >> 20;
        Err(SpoolError::Failed(format!(
            "the spool has reached its limit of {limit_mib} MiB; counting continues in memory"
        )))
    }

    /// Returns whether so much was appended that a snapshot saves time at the next start, and room.
    pub(crate) fn wants_snapshot(&self) -> bool {
        let since = self.places.iter().rev().take_while(|place| place.sequence > self.covered);
        let bytes: u64 = since.map(|place| place.len).sum();
        bytes > self.snapshot_bytes.max(SNAPSHOT_AFTER_BYTES).min(self.limit / 4)
    }

    /// Returns an empty batch. It has the memory of the last one, if that is confirmed and no consumer reads it.
    pub(crate) fn recycle(&mut self) -> Batch {
        let last = self.last.take_if(|last| last.sequence <= self.confirmed);
        let mut batch = last.and_then(Arc::into_inner).unwrap_or_default();
        batch.records.clear();
        Batch { records: batch.records, ..Batch::default() }
    }

    /// Takes a batch, and returns the sequence that it gets once it is on the disk. If it cannot be written, it is not
    /// taken, and can be appended again.
    pub(crate) fn append(&mut self, batch: &mut Batch) -> Result<u64, SpoolError> {
        batch.sequence = self.next;
        let place = self.write(batch)?;
        self.bytes += place.len;
        self.places.push_back(place);
        self.next += 1;
        self.last = Some(Arc::new(std::mem::take(batch)));
        Ok(place.sequence)
    }

    /// Returns the batch after `sequence`, or `None` if there is none.
    pub(crate) fn after(&self, sequence: u64) -> Result<Option<Arc<Batch>>, SpoolError> {
        if let Some(last) = self.last.as_ref().filter(|last| last.sequence == sequence + 1) {
            return Ok(Some(Arc::clone(last)));
        }
        let at = self.places.partition_point(|place| place.sequence <= sequence);
        let Some(place) = self.places.get(at) else { return Ok(None) };
        let path = self.segment_path(place.segment);
        let mut file = File::open(&path).map_err(io("open", &path))?;
        file.seek(SeekFrom::Start(place.offset)).map_err(io("read", &path))?;
        let mut bytes = vec![0; place.len as usize];
        file.read_exact(&mut bytes).map_err(io("read", &path))?;
        let frame = Frame::read(&bytes).map_err(|found| damaged(&path, place.offset, found))?;
        let batch = frame.batch().ok_or("contents of another form");
        batch
            .map(|batch| Some(Arc::new(batch)))
            .map_err(|found| damaged(&path, place.offset, found))
    }

    /// Skips numbers up to `sequence`, which a consumer has seen already: this spool is older than it, for example from
    /// a backup.
    pub(crate) fn advance(&mut self, sequence: u64) {
        if sequence >= self.next {
            self.next = sequence + 1;
            self.segment = None;
        }
    }

    /// Confirms all batches up to `sequence`: the database has them. Deletes files that nothing needs.
    pub(crate) fn confirm(&mut self, sequence: u64) -> Result<(), SpoolError> {
        self.confirmed = self.confirmed.max(sequence.min(self.last_sequence()));
        self.delete_old()
    }

    /// The same for the feed, whose cursor is on the disk.
    pub(crate) fn confirm_feed(&mut self, sequence: u64) -> Result<(), SpoolError> {
        let confirmed = self.confirmed.max(sequence.min(self.last_sequence()));
        let path = self.folder.join("confirmed");
        replace(&path, format!("{confirmed}\n").as_bytes())?;
        self.confirm(confirmed)
    }

    /// Confirms batches of the feed that are older than [`FEED_KEPT_S`].
    pub(crate) fn expire_feed(&mut self, now_s: u32) -> Result<(), SpoolError> {
        let is_old = |place: &&Place| now_s.saturating_sub(place.unix_s) > FEED_KEPT_S;
        let last = self.places.iter().take_while(is_old).last().map(|place| place.sequence);
        match last {
            Some(last) if last > self.confirmed => self.confirm_feed(last),
            _ => Ok(()),
        }
    }

    /// Begins a snapshot of the sessions as they are with the batch that is appended next.
    pub(crate) fn begin_snapshot(&self, now_s: u32) -> Result<SnapshotWriter, SpoolError> {
        SnapshotWriter::create(&self.folder.join("snapshot.new"), self.id, self.next, now_s)
    }

    /// Replaces the snapshot. Call after its batch is appended.
    pub(crate) fn finish_snapshot(&mut self, writer: SnapshotWriter) -> Result<(), SpoolError> {
        let sequence = writer.sequence();
        let temporary = self.folder.join("snapshot.new");
        let bytes = writer.finish()?;
        let path = self.snapshot_path();
        fs::rename(&temporary, &path).map_err(io("replace", &path))?;
        sync_folder(&self.folder)?;
        self.covered = sequence;
        self.snapshot_bytes = bytes;
        self.delete_old()
    }

    fn write(&mut self, batch: &Batch) -> Result<Place, SpoolError> {
        let number = match &self.segment {
            Some((number, _)) if self.segment_bytes(*number) < SEGMENT_BYTES => *number,
            _ => self.begin_segment(batch.sequence)?,
        };
        let path = self.segment_path(number);
        let deflates = self.waiting() > WAITING_PLAIN_MAX;
        let (_, file) = self.segment.as_mut().expect("one was just begun");
        let offset = file.seek(SeekFrom::End(0)).map_err(io("write", &path))?;
        let frame = Frame::encode(batch, deflates);
        if let Err(error) = file.write_all(&frame).and_then(|()| file.sync_data()) {
            // The part that was written must not be taken for damage.
            let _ = file.set_len(offset);
            return Err(io("write", &path)(error));
        }
        let Batch { sequence, unix_s, .. } = *batch;
        Ok(Place { sequence, unix_s, segment: number, offset, len: frame.len() as u64 })
    }

    fn begin_segment(&mut self, number: u64) -> Result<u64, SpoolError> {
        let path = self.segment_path(number);
        let open =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path);
        let mut file = open.map_err(io("create", &path))?;
        let header = frame::segment_header(self.id, number, self.last_appended());
        let written = file.write_all(&header).and_then(|()| file.sync_data());
        written.map_err(io("write", &path))?;
        sync_folder(&self.folder)?;
        self.bytes += header.len() as u64;
        self.segment = Some((number, file));
        Ok(number)
    }

    /// Returns the last batch of this spool, which is not the one before the next after [`Spool::advance`].
    fn last_appended(&self) -> u64 {
        self.places.back().map_or(self.covered, |last| last.sequence)
    }

    fn segment_bytes(&self, number: u64) -> u64 {
        let last = self.places.back().filter(|place| place.segment == number);
        last.map_or(0, |place| place.offset + place.len)
    }

    /// Reads all segments in order, and cuts off an incomplete end.
    fn read_segments(&mut self, restored: &mut dyn FnMut(Restored<'_>)) -> Result<(), SpoolError> {
        let numbers = self.segment_numbers()?;
        for (at, number) in numbers.iter().enumerate() {
            let is_last = at + 1 == numbers.len();
            let path = self.segment_path(*number);
            let bytes = fs::read(&path).map_err(io("read", &path))?;
            if bytes.len() < SEGMENT_HEADER_LEN && is_last {
                // The process ended while it began the segment.
                fs::remove_file(&path).map_err(io("delete", &path))?;
                break;
            }
            let mut places = Vec::new();
            let end = scan_segment(&bytes, &mut |frame, offset| {
                places.push(Place {
                    sequence: frame.sequence,
                    unix_s: frame.unix_s,
                    segment: *number,
                    offset,
                    len: frame.len,
                });
                let batch = frame.batch().ok_or("contents of another form")?;
                if frame.sequence > self.covered {
                    restored(Restored::Batch(&batch));
                }
                Ok(())
            });
            let SegmentEnd { id, previous, len } = match end {
                Ok(end) if end.len == bytes.len() as u64 || is_last => end,
                Ok(end) => return Err(damaged(&path, end.len, "an incomplete one")),
                Err((offset, found)) => return Err(damaged(&path, offset, found)),
            };
            // A missing file would otherwise go unnoticed.
            let before = self.places.back().map_or(self.covered, |last| last.sequence);
            let is_gap = previous > before || (!self.places.is_empty() && previous < before);
            if is_gap {
                let found =
                    format!("one that follows batch {previous}, where batch {before} was the last");
                return Err(damaged(&path, 0, &found));
            }
            self.next = self.next.max(places.last().map_or(*number, |last| last.sequence + 1));
            self.places.extend(places);
            self.id = id;
            self.bytes += len;
            if is_last {
                let open = OpenOptions::new().read(true).write(true).open(&path);
                let file = open.map_err(io("open", &path))?;
                file.set_len(len).map_err(io("cut", &path))?;
                self.segment = Some((*number, file));
            }
        }
        Ok(())
    }

    fn segment_numbers(&self) -> Result<Vec<u64>, SpoolError> {
        let entries = fs::read_dir(&self.folder).map_err(io("read", &self.folder))?;
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry.map_err(io("read", &self.folder))?.file_name();
            numbers.extend(name.to_str().and_then(number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn read_confirmed(&mut self) -> Result<(), SpoolError> {
        let path = self.folder.join("confirmed");
        match fs::read_to_string(&path) {
            Ok(text) => {
                let confirmed = text.trim().parse::<u64>();
                let confirmed = confirmed.map_err(|_| damaged(&path, 0, "no number"))?;
                self.confirmed = confirmed.min(self.last_sequence());
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io("read", &path)(error)),
        }
    }

    fn delete_old(&mut self) -> Result<(), SpoolError> {
        let needed = self.confirmed.min(self.covered);
        while let Some(first) = self.places.front().map(|place| place.segment) {
            let of_first = self.places.iter().take_while(|place| place.segment == first);
            let last = of_first.last().expect("there is one");
            let is_written = self.segment.as_ref().is_some_and(|(number, _)| *number == first);
            if last.sequence > needed || (is_written && last.offset + last.len < SEGMENT_BYTES) {
                break;
            }
            let path = self.segment_path(first);
            let bytes = last.offset + last.len;
            fs::remove_file(&path).map_err(io("delete", &path))?;
            self.bytes = self.bytes.saturating_sub(bytes);
            self.places.retain(|place| place.segment != first);
            if is_written {
                self.segment = None;
            }
        }
        Ok(())
    }

    fn segment_path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:016x}.tgs"))
    }

    fn snapshot_path(&self) -> PathBuf {
        self.folder.join("snapshot")
    }
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".tgs").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Replaces a small file as a whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), SpoolError> {
    let temporary = path.with_extension("new");
    let write = || {
        // It can have passkeys.
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    };
    write().map_err(io("write", path))?;
    sync_folder(path.parent().unwrap_or_else(|| Path::new(".")))
}

pub(crate) fn sync_folder(folder: &Path) -> Result<(), SpoolError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io("sync", folder))
}

pub(crate) fn io(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> SpoolError + use<> {
    let path = path.to_owned();
    move |error| {
        SpoolError::Failed(format!(
            "cannot {action} {}: {error}; check that the disk has space and that the process may write there",
            path.display()
        ))
    }
}

/// Returns the error of a file that is damaged where it cannot be incomplete, `offset` bytes from its beginning.
pub(crate) fn damaged(path: &Path, offset: u64, found: &str) -> SpoolError {
    SpoolError::Failed(format!(
        "{}: expected a batch at offset {offset}, found {found}; restore the file from a backup, or move the folder \
         away to begin anew (batches in it that the site does not have yet are then lost)",
        path.display()
    ))
}
