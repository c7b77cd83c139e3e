//! Networks that workers want blocked. Each worker has a list; the program blocks the union.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use primitives::IpPrefix;

use crate::SOURCE_FILTER_MAX;

/// The lists of all workers.
#[derive(Debug, Default)]
pub struct BlockLists {
    workers: Mutex<Vec<Vec<IpPrefix>>>,
    changed: AtomicBool,
}

/// The list of one worker.
#[derive(Debug)]
pub struct SourceBlocks {
    lists: Arc<BlockLists>,
    worker: usize,
}

impl BlockLists {
    /// Returns one more worker's list, which is empty.
    pub fn register(self: &Arc<Self>) -> SourceBlocks {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.push(Vec::new());
        SourceBlocks { lists: Arc::clone(self), worker: workers.len() - 1 }
    }

    /// Returns the union of the lists, at most [`SOURCE_FILTER_MAX`] networks, or `None` if no list has
    /// changed since the last call. If there are more, every worker gets its share: first the first
    /// network of each list, then the second.
    pub fn take_change(&self) -> Option<Vec<IpPrefix>> {
        if !self.changed.swap(false, Ordering::Acquire) {
            return None;
        }
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = workers.iter().map(Vec::len).max().unwrap_or(0);
        let mut union = Vec::new();
        for network in (0..longest).flat_map(|at| workers.iter().filter_map(move |own| own.get(at)))
        {
            if union.len() < SOURCE_FILTER_MAX && !union.contains(network) {
                union.push(*network);
            }
        }
        Some(union)
    }
}

impl SourceBlocks {
    /// Replaces the worker's list.
    pub fn set(&self, networks: &[IpPrefix]) {
        let mut workers = self.lists.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = workers.get_mut(self.worker) {
            *own = networks.to_vec();
        }
        self.lists.changed.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_union_is_bounded_and_shared() {
        let network = |number: u32| IpPrefix::new(Ipv4Addr::from(number << 8).into(), 24);
        let lists = Arc::new(BlockLists::default());
        let (first, second) = (lists.register(), lists.register());
        assert_eq!(lists.take_change(), None);
        first.set(&[network(1), network(2)]);
        second.set(&[network(2), network(3)]);
        assert_eq!(lists.take_change(), Some([1, 2, 3].map(network).to_vec()));
        assert_eq!(lists.take_change(), None);
        let many: Vec<IpPrefix> = (100..140).map(network).collect();
        first.set(&many);
        let union = lists.take_change().unwrap();
        assert_eq!(union.len(), SOURCE_FILTER_MAX);
        assert!(union.contains(&network(2)) && union.contains(&network(3)));
        first.set(&[]);
        second.set(&[]);
        assert_eq!(lists.take_change(), Some(Vec::new()));
    }
}
