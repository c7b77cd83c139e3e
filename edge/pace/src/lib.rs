//! Paces clients by load: measures each service, has the [controller](tracker::Controller) decide, and puts its decision
//! in force. Shows intervals, budgets and what was over them.
//!
//! Time and processor time are arguments; the application calls [`Pacer::step`] every few seconds.
#![forbid(unsafe_code)]

mod day_file;
mod status;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracker::counters::{Counters, Listener};
use tracker::{
    BytesOfDay, Controller, LoadMeasured, LoadRules, LoadTime, RequestKind, SERVICES, Service,
    Tracker,
};

pub use day_file::DayFile;
pub use status::{PaceStatus, ServiceStatus};

/// Processor time of the workers, and what they may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processors {
    /// The time that the UDP and the TCP workers have used since the start; `None` where the system does not tell.
    pub used: Option<[Duration; 2]>,
    /// The number of these workers.
    pub workers: [usize; 2],
    /// The processors that the process may use.
    pub cores: usize,
}

/// Measures, decides, and keeps the state that users see.
pub struct Pacer {
    rules: LoadRules,
    controller: Controller,
    last: Reading,
    last_ms: u64,
    status: Arc<Mutex<PaceStatus>>,
}

/// The counters of a moment, all since the start.
#[derive(Clone, Copy, Default)]
struct Reading {
    answered: [u64; SERVICES],
    over: [u64; SERVICES],
    bytes: [u64; SERVICES],
    used: Option<[Duration; 2]>,
}

impl Pacer {
    /// Returns a pacer, and puts its first decision in force: lifetimes of peers fit any interval that a process before
    /// this one may have handed out.
    pub fn new(rules: LoadRules, tracker: &Tracker, now: LoadTime) -> Self {
        let mut controller = Controller::new(&rules, now);
        tracker.pace(&controller.step(&rules, now, &LoadMeasured::default()));
        Self {
            rules,
            controller,
            last: Reading::default(),
            last_ms: now.steady_ms,
            status: Arc::default(),
        }
    }

    /// Returns the bytes of today, or `None` if no service has a budget of them.
    pub fn bytes_of_day(&self) -> Option<BytesOfDay> {
        let is_limited = self.rules.budgets.iter().any(|budget| budget.bytes_per_day > 0);
        is_limited.then(|| self.controller.bytes_of_day())
    }

    /// Continues the bytes of today that a process before this one has counted.
    pub fn resume(&mut self, before: &BytesOfDay) {
        self.controller.resume(before);
    }

    /// Replaces the rules, from the next step on.
    pub fn set_rules(&mut self, rules: LoadRules) {
        self.rules = rules;
    }

    /// Returns a function that reads the state as it was after the last step.
    pub fn status_source(&self) -> impl Fn() -> PaceStatus + Send + Sync + use<> {
        let status = Arc::clone(&self.status);
        move || status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the counters of all listeners and the processor time, and has the controller decide.
    pub fn step(
        &mut self,
        tracker: &Tracker,
        now: LoadTime,
        listeners: &[(Listener, Counters)],
        processors: &Processors,
    ) {
        let reading = Reading::new(listeners, tracker.over_budget(), processors.used);
        let passed_ms = now.steady_ms.saturating_sub(self.last_ms);
        let passed = Duration::from_millis(passed_ms);
        let measured = LoadMeasured {
            answered: since(reading.answered, self.last.answered),
            over: since(reading.over, self.last.over),
            bytes: since(reading.bytes, self.last.bytes),
            cpu: shares(self.last.used, processors, passed),
        };
        (self.last, self.last_ms) = (reading, now.steady_ms);
        let pacing = self.controller.step(&self.rules, now, &measured);
        if *tracker.settings().pacing() != pacing {
            tracker.pace(&pacing);
        }
        let served = served(listeners);
        let services = self.controller.services(&self.rules);
        let status = Service::ALL.into_iter().filter_map(|service| {
            let at = service.index();
            let (load, over) = (services.get(at)?, *reading.over.get(at)?);
            let policy = tracker.settings().policy;
            served.get(at)?.then(|| ServiceStatus::new(service, load, &self.rules, &policy, over))
        });
        let status = PaceStatus { services: status.collect() };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

impl Reading {
    fn new(
        listeners: &[(Listener, Counters)],
        over: [u64; SERVICES],
        used: Option<[Duration; 2]>,
    ) -> Self {
        let mut reading = Self { over, used, ..Self::default() };
        for (listener, counters) in listeners {
            let at = listener.service().index();
            let announces = counters.responses.iter();
            reading.answered[at] +=
                announces.map(|kinds| kinds[RequestKind::Announce.index()]).sum::<u64>();
            reading.bytes[at] += counters.bytes_in + counters.bytes_out;
        }
        reading
    }
}

fn since(new: [u64; SERVICES], old: [u64; SERVICES]) -> [u64; SERVICES] {
    std::array::from_fn(|at| new[at].saturating_sub(old[at]))
}

/// Returns what the UDP and the TCP workers have used of what they may: of a core each, or of the cores of all if these
/// are fewer.
fn shares(
    before: Option<[Duration; 2]>,
    processors: &Processors,
    passed: Duration,
) -> [Option<f64>; 2] {
    let (Some(now), Some(before)) = (processors.used, before) else { return [None; 2] };
    let passed_s = passed.as_secs_f64();
    if passed_s <= 0.0 {
        return [None; 2];
    }
    let cores = processors.cores.max(1);
    let used = [0, 1].map(|at| now[at].saturating_sub(before[at]).as_secs_f64() / passed_s);
    let of_all = (used[0] + used[1]) / cores as f64;
    [0, 1].map(|at| {
        let own = processors.workers[at].clamp(1, cores) as f64;
        Some((used[at] / own).max(of_all))
    })
}

/// Returns whether each service has a listener.
fn served(listeners: &[(Listener, Counters)]) -> [bool; SERVICES] {
    let mut served = [false; SERVICES];
    for (listener, _) in listeners {
        served[listener.service().index()] = true;
    }
    served
}

#[cfg(test)]
mod tests {
    use tracker::ListenerPolicyId;
    use tracker::counters::Protocol;
    use types::Family;

    use super::*;

    fn listener(protocol: Protocol, ip: &str) -> Listener {
        let address = std::net::SocketAddr::new(ip.parse().unwrap(), 1);
        Listener { protocol, address, listener_policy: ListenerPolicyId(0) }
    }

    #[test]
    fn announces_and_bytes_count_for_the_family_of_the_listener() {
        let mut counters = Counters { bytes_in: 10, bytes_out: 5, ..Counters::default() };
        counters.response(Family::V6, RequestKind::Announce);
        counters.response(Family::V4, RequestKind::Scrape);
        let listeners = [
            (listener(Protocol::Https, "127.0.0.1"), counters.clone()),
            (listener(Protocol::Ws, "::1"), counters.clone()),
            (listener(Protocol::Wss, "::1"), counters),
        ];
        let reading = Reading::new(&listeners, [0; SERVICES], None);
        let of = |values: [u64; SERVICES], service: Service| values[service.index()];
        assert_eq!([Service::Https4, Service::Https6].map(|it| of(reading.answered, it)), [1, 0]);
        assert_eq!([Service::Https4, Service::Https6].map(|it| of(reading.bytes, it)), [15, 0]);
        assert_eq!([of(reading.answered, Service::Ws6), of(reading.bytes, Service::Ws6)], [2, 30]);
        assert_eq!(served(&listeners).iter().filter(|it| **it).count(), 2);
    }

    #[test]
    fn workers_share_the_cores() {
        let seconds = |times: [u64; 2]| Some(times.map(Duration::from_secs));
        let shares = |used, workers, cores| {
            let processors = Processors { used: seconds(used), workers, cores };
            shares(seconds([0, 0]), &processors, Duration::from_secs(10))
        };
        assert_eq!(shares([5, 1], [2, 2], 8), [Some(0.25), Some(0.075)]);
        // Two cores for four workers: both kinds are at the limit together.
        assert_eq!(shares([10, 10], [2, 2], 2), [Some(1.0), Some(1.0)]);
        assert_eq!(shares([5, 0], [8, 8], 2), [Some(0.25), Some(0.25)]);
    }
}
