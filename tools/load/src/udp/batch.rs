//! Batches of datagrams of equal length, which one system call can send.

/// Consecutive datagrams of equal length.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// Length of each datagram.
    pub(super) len: usize,
    pub(super) count: u64,
}

impl Batch {
    /// Adds a datagram that `write` appends.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        self.len = self.bytes.len() - before;
        self.count += 1;
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }
}
