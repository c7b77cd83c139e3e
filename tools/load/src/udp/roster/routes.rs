//! Chooses the node of a cluster that a request goes to.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::random::Random;

/// The nodes of a tracker that requests go to. It may change at any time.
#[derive(Debug)]
pub struct Routes(Vec<AtomicBool>);

impl Routes {
    /// To each of `nodes` nodes.
    pub(super) fn to_all(nodes: usize) -> Self {
        Self((0..nodes).map(|_| AtomicBool::new(true)).collect())
    }

    /// Sets whether requests go to a node, counted from 0. At least one must be left.
    pub fn set(&self, node: usize, is_used: bool) {
        if let Some(route) = self.0.get(node) {
            route.store(is_used, Ordering::Relaxed);
        }
    }

    /// Returns the number of nodes, used or not.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether requests go to a node.
    pub fn is_used(&self, node: usize) -> bool {
        self.0.get(node).is_some_and(|route| route.load(Ordering::Relaxed))
    }

    /// Draws a node; the first if none is used.
    pub(super) fn draw(&self, random: &mut Random) -> usize {
        if let [_] = self.0[..] {
            return 0;
        }
        let used = || self.0.iter().enumerate().filter(|(_, it)| it.load(Ordering::Relaxed));
        let drawn = random.below(used().count().max(1));
        used().nth(drawn).map_or(0, |(node, _)| node)
    }
}
