//! A disk that loses power, fails and stalls.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use primitives::Random;

use crate::disk::{Disk, SegmentFile};
use crate::segment::HEADER_LEN;

#[derive(Clone, Default)]
pub(super) struct MemoryDisk(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<DiskState>,
    changed: Condvar,
}

#[derive(Default)]
struct DiskState {
    files: BTreeMap<u64, FileState>,
    /// Files whose deletion is not on the disk yet.
    deleted: BTreeMap<u64, FileState>,
    set_aside: Vec<u64>,
    faults: Option<Faults>,
    syncs_fail: bool,
    is_stalled: bool,
    stalled_threads: u32,
}

#[derive(Clone, Default)]
struct FileState {
    bytes: Vec<u8>,
    synced: usize,
    is_named: bool,
}

/// Errors at random.
pub(super) struct Faults {
    pub(super) random: Random,
    /// One in this many calls fails.
    pub(super) one_in: u32,
}

const ERRORS: [io::ErrorKind; 3] =
    [io::ErrorKind::StorageFull, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::Other];

impl MemoryDisk {
    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.state.lock().unwrap()
    }

    /// Returns a disk with these segments.
    pub(super) fn of(files: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Self {
        let disk = Self::default();
        for (number, bytes) in files {
            let synced = bytes.len();
            disk.lock().files.insert(number, FileState { bytes, synced, is_named: true });
        }
        disk
    }

    /// Returns the segments and their bytes.
    pub(super) fn files(&self) -> BTreeMap<u64, Vec<u8>> {
        let files = &self.lock().files;
        files.iter().map(|(number, file)| (*number, file.bytes.clone())).collect()
    }

    /// Returns the segments that were renamed.
    pub(super) fn set_aside_files(&self) -> Vec<u64> {
        self.lock().set_aside.clone()
    }

    pub(super) fn set_faults(&self, faults: Option<Faults>) {
        self.lock().faults = faults;
    }

    /// Makes all syncs of segments with blocks fail, or none.
    pub(super) fn fail_syncs(&self, syncs_fail: bool) {
        self.lock().syncs_fail = syncs_fail;
    }

    /// Returns true if a power failure would lose nothing.
    pub(super) fn is_synced(&self) -> bool {
        let mut files = self.lock().files.clone().into_values();
        files.all(|file| file.is_named && file.synced == file.bytes.len())
    }

    /// Returns what a power failure leaves: of each file what was synced and any part of the rest, which
    /// may also read as zeros, and any of the names that were created or deleted.
    pub(super) fn after_power_failure(&self, random: &mut Random) -> Self {
        let state = self.lock();
        let mut files = Vec::new();
        let all = state.files.iter().map(|file| (file, false));
        for ((number, file), is_deleted) in all.chain(state.deleted.iter().map(|file| (file, true)))
        {
            let is_certain = file.is_named && !is_deleted;
            if !is_certain && random.below(2) == 0 {
                continue;
            }
            let unsynced = file.bytes.len() - file.synced;
            let kept = file.synced + random.below(unsynced as u32 + 1) as usize;
            let mut bytes = file.bytes[..kept].to_vec();
            if random.below(4) == 0 {
                bytes.resize(file.bytes.len(), 0);
            }
            files.push((*number, bytes));
        }
        drop(state);
        Self::of(files)
    }

    /// Makes calls that write wait until this is called with false.
    pub(super) fn set_stalled(&self, is_stalled: bool) {
        self.lock().is_stalled = is_stalled;
        self.0.changed.notify_all();
    }

    pub(super) fn wait_for_stall(&self) {
        let state = self.lock();
        drop(self.0.changed.wait_while(state, |state| state.stalled_threads == 0).unwrap());
    }

    /// Begins a call that writes: waits while the disk is stalled, and fails at random.
    fn write(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let mut state = self.lock();
        state.stalled_threads += 1;
        self.0.changed.notify_all();
        let mut state = self.0.changed.wait_while(state, |state| state.is_stalled).unwrap();
        state.stalled_threads -= 1;
        if let Some(Faults { random, one_in }) = &mut state.faults
            && random.below(*one_in) == 0
        {
            return Err(ERRORS[random.below(ERRORS.len() as u32) as usize].into());
        }
        Ok(state)
    }
}

impl Disk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        let files = &self.lock().files;
        // In no order, as in directories.
        Ok(files.iter().rev().map(|(number, file)| (*number, file.bytes.len() as u64)).collect())
    }

    fn create(&self, number: u64) -> io::Result<Box<dyn SegmentFile>> {
        let mut state = self.write()?;
        if state.files.contains_key(&number) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.files.insert(number, FileState::default());
        Ok(Box::new(MemoryFile { disk: self.clone(), number }))
    }

    fn open(&self, number: u64) -> io::Result<Box<dyn Read + Send>> {
        let state = self.lock();
        let file = state.files.get(&number).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(file.bytes.clone())))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        let mut state = self.write()?;
        let file = state.files.remove(&number).ok_or(io::ErrorKind::NotFound)?;
        state.deleted.insert(number, file);
        Ok(())
    }

    fn set_aside(&self, number: u64) -> io::Result<()> {
        let mut state = self.write()?;
        state.files.remove(&number).ok_or(io::ErrorKind::NotFound)?;
        state.set_aside.push(number);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.write()?;
        state.deleted.clear();
        state.files.values_mut().for_each(|file| file.is_named = true);
        Ok(())
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    number: u64,
}

impl SegmentFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.write()?;
        let file = state.files.get_mut(&self.number).ok_or(io::ErrorKind::NotFound)?;
        file.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.write()?;
        let syncs_fail = state.syncs_fail;
        let file = state.files.get_mut(&self.number).ok_or(io::ErrorKind::NotFound)?;
        if syncs_fail && file.bytes.len() > HEADER_LEN {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.synced = file.bytes.len();
        Ok(())
    }
}
