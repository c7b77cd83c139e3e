//! The gates of services: announces in a second, counted as they come.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use types::Tick;

use super::{BytesLeft, SERVICES, Service, ServiceGate};

#[derive(Default)]
pub(crate) struct Gates([Gate; SERVICES]);

/// The gate of a service. Used only while the service has a budget.
#[derive(Default)]
pub(crate) struct Gate {
    window: Mutex<Window>,
    /// Announces answered over the budget.
    over: AtomicU64,
}

/// The announces of a second.
#[derive(Default)]
struct Window {
    second: Tick,
    arrived: u32,
    served: u32,
    /// True if more arrived in the second before than the budget has.
    was_over: bool,
}

/// The announces that a gate serves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// All of them. This one is counted.
    Open,
    /// Those of torrents that the tracker knows. This one is not counted yet.
    Known,
    /// None.
    Closed,
}

impl Gates {
    pub(crate) fn of(&self, service: Service) -> &Gate {
        &self.0[service.index()]
    }

    pub(super) fn over(&self) -> [u64; SERVICES] {
        Service::ALL.map(|service| self.of(service).over.load(Ordering::Relaxed))
    }
}

impl Gate {
    /// Counts an announce that comes, and returns which announces are served.
    pub(super) fn arrive(&self, now: Tick, limits: &ServiceGate) -> Standing {
        let mut window = self.window.lock();
        // Another worker may have read the clock later.
        if now > window.second {
            let budget = limits.announces_per_s;
            let was_over = now.since(window.second) == 1 && window.arrived > budget;
            *window = Window { second: now, was_over: was_over && budget > 0, ..Window::default() };
        }
        window.arrived = window.arrived.saturating_add(1);
        let is_full = limits.announces_per_s > 0 && window.served >= limits.announces_per_s;
        if is_full || limits.bytes == BytesLeft::None {
            Standing::Closed
        } else if window.was_over || limits.bytes == BytesLeft::Few {
            Standing::Known
        } else {
            window.served += 1;
            Standing::Open
        }
    }

    pub(super) fn serve(&self) {
        self.window.lock().served += 1;
    }

    pub(super) fn count_over(&self) {
        self.over.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_over_the_budget_makes_the_next_one_serve_known_torrents_only() {
        let limits = ServiceGate { announces_per_s: 3, ..ServiceGate::default() };
        let gate = Gate::default();
        let arrivals = |now, count: usize| -> Vec<Standing> {
            (0..count).map(|_| gate.arrive(Tick(now), &limits)).collect()
        };
        assert_eq!(arrivals(5, 3), [Standing::Open; 3]);
        assert_eq!(arrivals(5, 1), [Standing::Closed]);
        assert_eq!(arrivals(6, 4), [Standing::Known; 4]);
        (0..3).for_each(|_| gate.serve());
        assert_eq!(arrivals(6, 1), [Standing::Closed], "three were served");
        // A worker whose clock is late counts in the present second.
        assert_eq!(arrivals(5, 1), [Standing::Closed]);
        assert_eq!(arrivals(7, 2), [Standing::Known; 2], "six arrived");
        assert_eq!(arrivals(8, 1), [Standing::Open], "two arrived");
        assert_eq!(arrivals(8, 4)[2..], [Standing::Closed; 2]);
        assert_eq!(arrivals(10, 1), [Standing::Open], "a second without announces was between");
    }
}
