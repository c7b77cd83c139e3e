//! Turns of TLS handshakes: networks take turns, and after each step of a handshake all other connections of
//! the worker that are ready are served once.
//!
//! A step takes as long as hundreds of announces, 0.4 to 1 ms with RSA 2048, and a client needs no
//! cryptography to have it made: it sends the same bytes again. Served as they come, the handshakes of one
//! host would let every other client wait for all of them.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;

use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

/// The handshakes of a worker that have input.
#[derive(Default)]
pub(crate) struct HandshakeTurns {
    waiting: RefCell<Waiting>,
    added: Notify,
}

/// A client's network; `None` for all that are not counted, such as exempt ones.
type Network = Option<NonZeroU64>;

/// Handshakes that wait for their turn.
#[derive(Default)]
struct Waiting {
    /// In the order in which they came; none is empty.
    by_network: HashMap<Network, VecDeque<oneshot::Sender<()>>>,
    /// The networks, the next one first.
    order: VecDeque<Network>,
}

impl HandshakeTurns {
    /// Waits until a handshake of `network` may make a step.
    pub(crate) async fn turn(&self, network: Network) {
        let (sender, turn) = oneshot::channel();
        self.waiting.borrow_mut().push(network, sender);
        self.added.notify_one();
        // The sender is dropped only with the worker.
        let _ = turn.await;
    }

    /// Has one step after the other made, until the task is aborted.
    pub(super) async fn serve(&self) {
        loop {
            let next = self.waiting.borrow_mut().pop();
            let Some(next) = next else {
                self.added.notified().await;
                continue;
            };
            // A connection that is gone needs no turn.
            if next.send(()).is_ok() {
                // Comes back when all tasks that are ready, this handshake's too, have run.
                yield_now().await;
            }
        }
    }
}

impl Waiting {
    fn push(&mut self, network: Network, sender: oneshot::Sender<()>) {
        let own = self.by_network.entry(network).or_default();
        if own.is_empty() {
            self.order.push_back(network);
        }
        own.push_back(sender);
    }

    fn pop(&mut self) -> Option<oneshot::Sender<()>> {
        let network = self.order.pop_front()?;
        let own = self.by_network.get_mut(&network)?;
        let next = own.pop_front();
        if own.is_empty() {
            self.by_network.remove(&network);
        } else {
            self.order.push_back(network);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_take_turns() {
        let mut waiting = Waiting::default();
        let mut turns = Vec::new();
        for network in [1, 1, 1, 1, 2, 2, 3].map(NonZeroU64::new) {
            let (sender, turn) = oneshot::channel();
            waiting.push(network, sender);
            turns.push((network, turn));
        }
        let mut served = Vec::new();
        while let Some(next) = waiting.pop() {
            next.send(()).unwrap();
            let at = turns.iter_mut().position(|(_, turn)| turn.try_recv().is_ok()).unwrap();
            served.push(turns.remove(at).0);
        }
        assert_eq!(served, [1, 2, 3, 1, 2, 1, 1].map(NonZeroU64::new));
        assert!(waiting.by_network.is_empty() && waiting.order.is_empty());
    }
}
