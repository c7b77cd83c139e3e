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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_drawn_of_those_that_are_used() {
        let (routes, mut random) = (Routes::to_all(3), Random::new(1));
        let drawn = |random: &mut Random| {
            let mut counts = [0; 3];
            (0..3000).for_each(|_| counts[routes.draw(random)] += 1);
            counts
        };
        assert!(drawn(&mut random).iter().all(|count| (800..1200).contains(count)));
        routes.set(0, false);
        let counts = drawn(&mut random);
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| *count > 1200), "{counts:?}");
        routes.set(2, false);
        assert_eq!(drawn(&mut random), [0, 3000, 0]);
    }
}
