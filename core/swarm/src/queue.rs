//! A queue of bounded length, for events and for changes of WebTorrent peers.

/// Items that have not been taken. Keeps none at first.
pub(crate) struct BoundedQueue<T> {
    items: Vec<T>,
    /// Most items kept; 0 = none are.
    capacity: usize,
    /// Items for which there was no room.
    missed: u64,
}

impl<T> Default for BoundedQueue<T> {
    fn default() -> Self {
        Self { items: Vec::new(), capacity: 0, missed: 0 }
    }
}

impl<T> BoundedQueue<T> {
    /// Keeps up to `capacity` items from now on. 0 drops all items and stops.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        if capacity == 0 {
            *self = Self::default();
        } else {
            self.capacity = capacity;
            // Allocate now, so that no announce has to.
            self.items.reserve_exact(capacity.saturating_sub(self.items.len()));
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, item: impl FnOnce() -> T) {
        if self.capacity == 0 {
            return;
        }
        if self.items.len() < self.capacity {
            self.items.push(item());
        } else {
            self.missed += 1;
        }
    }

    /// Moves the items to `items`. Returns how many were lost because there was no room.
    pub(crate) fn drain_into(&mut self, items: &mut Vec<T>) -> u64 {
        items.append(&mut self.items);
        std::mem::take(&mut self.missed)
    }
}
