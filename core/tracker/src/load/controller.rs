//! The controller of intervals.
//!
//! A change of the interval reaches a client with its next response, so the load follows a decision only after an
//! interval. A controller that compared load and target would go on raising intervals all that time, then see too
//! little load for hours, and swing. This one counts the clients that are expected back ([`super::demand`]), which does
//! not depend on intervals, and computes from them the interval at which the load meets its target. Changes are
//! limited in speed, so that a measurement that is wrong for a moment does little.

use super::demand::Demand;
use super::longest::Longest;
use super::{Budget, BytesLeft, Pacing, SERVICES, Service, ServiceGate, Stretch};

const DAY_S: u64 = 24 * 3600;
/// The part of a budget of announces that intervals aim at, so that answers over the budget are the exception.
const BUDGET_AIM: f64 = 0.9;
/// Below this part of a day's bytes, torrents that the tracker does not know wait.
const FEW_BYTES: u64 = 20;
/// Intervals in which an interval may grow by the factor e. A flash crowd fills ten minutes, and most of its clients
/// are to be told a longer interval with their first response.
const RISE: f64 = 0.1;
/// Intervals in which it may shrink by the factor e.
const FALL: f64 = 1.0;
/// Smaller changes are not worth new settings, except back to none.
const LEAST_CHANGE: f64 = 0.02;
/// Seconds over which measured rates are averaged.
const AVERAGE_S: f64 = 60.0;
/// The part of an interval after the start in which clients are not counted yet.
const BLIND: f64 = 0.25;

/// The operator's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRules {
    /// The configured intervals, seconds, by [`Service::index`].
    pub interval_s: [u32; SERVICES],
    /// The longest stretch of these intervals.
    pub stretch_max: Stretch,
    /// Percent of what workers may use of the processors, at which intervals aim.
    pub cpu_percent: u32,
    /// The budgets of the services.
    pub budgets: [Budget; SERVICES],
    /// The lifetime of peers at the configured interval, seconds.
    pub lifetime_s: u32,
    /// The same for WebTorrent peers.
    pub web_lifetime_s: u32,
    /// True if lifetimes always fit the longest intervals: other nodes of a cluster may hand them out.
    pub keeps_longest: bool,
}

/// The time of a step.
#[derive(Clone, Copy, Debug)]
pub struct LoadTime {
    /// Milliseconds of a clock that is never set.
    pub steady_ms: u64,
    /// Seconds of unix time, which may jump.
    pub unix_s: u64,
}

/// Measurements since the last step, by [`Service::index`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadMeasured {
    /// Announces that were answered with the interval in force.
    pub answered: [u64; SERVICES],
    /// Announces that were answered over a budget.
    pub over: [u64; SERVICES],
    /// Payload bytes, received and sent.
    pub bytes: [u64; SERVICES],
    /// Processor time of the UDP and of the TCP workers, as a share of what they may use; `None` = unknown.
    pub cpu: [Option<f64>; 2],
}

/// A service as it is now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceLoad {
    /// The stretch of its intervals.
    pub stretch: Stretch,
    /// Announces in a second, averaged over a minute, with those over the budget.
    pub announces_per_s: f64,
    /// Clients that are expected back: a client counts once for each torrent.
    pub clients: u64,
    /// Bytes since midnight in UTC, or since the start if those before it are not known.
    pub bytes_today: u64,
    /// The standing with the day's bytes.
    pub bytes_left: BytesLeft,
    /// True if announces came over the budget since the last step.
    pub is_over: bool,
}

/// The bytes of a day, which a process leaves to the one after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesOfDay {
    /// The day, counted from 1970 in UTC.
    pub day: u64,
    /// The bytes of each service.
    pub bytes: [u64; SERVICES],
}

/// Decides on intervals and gates.
#[derive(Debug)]
pub struct Controller {
    services: [ServiceState; SERVICES],
    /// Smoothed shares of the processors, by group of workers.
    cpu: [f64; 2],
    longest: Longest,
    longest_web: Longest,
    started_ms: u64,
    last_ms: u64,
    /// The day of UTC that bytes are counted for.
    day: u64,
}

#[derive(Debug, Default)]
struct ServiceState {
    demand: Demand,
    /// The factor of intervals, at least 1.
    stretch: f64,
    /// Smoothed announces that are answered with the interval in force, per second.
    answered_per_s: f64,
    /// Smoothed announces of all kinds, per second.
    announces_per_s: f64,
    /// Smoothed bytes per second.
    bytes_per_s: f64,
    bytes_today: u64,
    clients: u64,
    is_over: bool,
}

impl ServiceState {
    fn new() -> Self {
        Self { stretch: 1.0, ..Self::default() }
    }

    fn bytes_left(&self, budget: &Budget) -> BytesLeft {
        let left = budget.bytes_per_day.saturating_sub(self.bytes_today);
        if budget.bytes_per_day == 0 {
            BytesLeft::Enough
        } else if left == 0 {
            BytesLeft::None
        } else if left < budget.bytes_per_day / FEW_BYTES {
            BytesLeft::Few
        } else {
            BytesLeft::Enough
        }
    }
}

impl LoadRules {
    fn interval_s(&self, service: Service) -> f64 {
        f64::from(self.interval_s[service.index()].max(1))
    }

    /// Returns the longest lifetime of peers, seconds.
    pub fn longest_lifetime_s(&self) -> u32 {
        self.longest().lifetime_s(self.lifetime_s)
    }

    /// Returns the longest stretch of the time in which a client that heeds its intervals may not be heard. An announce
    /// over a budget does not renew its peer, so two intervals may pass.
    fn longest(&self) -> Stretch {
        let has_budgets = self.budgets.iter().any(|budget| !budget.is_unlimited());
        Stretch(self.stretch_max.0.saturating_mul(if has_budgets { 2 } else { 1 }))
    }
}

/// Returns the workers that serve a service: 0 = UDP, 1 = TCP.
fn group(service: Service) -> usize {
    usize::from(service != Service::Udp4 && service != Service::Udp6)
}

impl Controller {
    /// Returns a controller that starts without stretch. Lifetimes begin with the longest: clients of the process before
    /// this one may have any interval that the rules permit.
    pub fn new(rules: &LoadRules, now: LoadTime) -> Self {
        let mut longest = Longest::default();
        longest.note(now.steady_ms / 1000, rules.longest());
        Self {
            services: std::array::from_fn(|_| ServiceState::new()),
            cpu: [0.0; 2],
            longest_web: longest.clone(),
            longest,
            started_ms: now.steady_ms,
            last_ms: now.steady_ms,
            day: now.unix_s / DAY_S,
        }
    }

    /// Returns the bytes of today.
    pub fn bytes_of_day(&self) -> BytesOfDay {
        let bytes = std::array::from_fn(|at| self.services[at].bytes_today);
        BytesOfDay { day: self.day, bytes }
    }

    /// Continues the count of a process before this one. Bytes of days before today are left out. A count of a later day
    /// continues, since the clock was set back.
    pub fn resume(&mut self, before: &BytesOfDay) {
        if before.day >= self.day {
            for (state, bytes) in self.services.iter_mut().zip(before.bytes) {
                state.bytes_today = state.bytes_today.max(bytes);
            }
        }
    }

    /// Takes what was measured since the last step, and returns what is in force until the next one.
    pub fn step(&mut self, rules: &LoadRules, now: LoadTime, measured: &LoadMeasured) -> Pacing {
        let passed_s = now.steady_ms.saturating_sub(self.last_ms) as f64 / 1000.0;
        if passed_s <= 0.0 {
            return self.pacing(rules, now);
        }
        self.last_ms = now.steady_ms;
        self.begin_day(now.unix_s / DAY_S);
        self.count(rules, now, measured, passed_s);
        for service in Service::ALL {
            let wanted = self.wanted(rules, service, now);
            let interval_s = rules.interval_s(service);
            let state = &mut self.services[service.index()];
            let is_small = (wanted / state.stretch).ln().abs() < LEAST_CHANGE;
            if !is_small || wanted <= 1.0 {
                let least = state.stretch * (-passed_s / (FALL * interval_s)).exp();
                let most = state.stretch * (passed_s / (RISE * interval_s)).exp();
                state.stretch = wanted.clamp(least, most);
            }
            state.stretch = state.stretch.clamp(1.0, f64::from(rules.stretch_max.0) / 1000.0);
        }
        self.pacing(rules, now)
    }

    /// Begins the count of bytes anew on a new day. A clock that was set back continues the count of the day that it
    /// comes from, so that no day's budget is used twice.
    fn begin_day(&mut self, day: u64) {
        if day > self.day {
            self.services.iter_mut().for_each(|state| state.bytes_today = 0);
        }
        self.day = day;
    }

    fn count(&mut self, rules: &LoadRules, now: LoadTime, measured: &LoadMeasured, passed_s: f64) {
        let now_s = now.steady_ms / 1000;
        let weight = passed_s / (AVERAGE_S + passed_s);
        let smooth = |value: &mut f64, new: f64| *value += (new - *value) * weight;
        for service in Service::ALL {
            let at = service.index();
            let (answered, over) = (measured.answered[at], measured.over[at]);
            let state = &mut self.services[at];
            let interval_s = rules.interval_s(service);
            let longest_s = rules.stretch_max.of(rules.interval_s[at]);
            state.demand.add(now_s, (interval_s * state.stretch) as u32, answered);
            state.demand.add(now_s, longest_s, over);
            state.clients = state.demand.clients(now_s);
            smooth(&mut state.answered_per_s, answered as f64 / passed_s);
            smooth(&mut state.announces_per_s, (answered + over) as f64 / passed_s);
            smooth(&mut state.bytes_per_s, measured.bytes[at] as f64 / passed_s);
            state.bytes_today = state.bytes_today.saturating_add(measured.bytes[at]);
            state.is_over = over > 0;
        }
        for (cpu, new) in self.cpu.iter_mut().zip(measured.cpu) {
            smooth(cpu, new.unwrap_or(0.0));
        }
    }

    /// Returns the clients of a service. In the first interval after the start, some have not come yet: then they are
    /// as many as came, for each part of the interval. `None` if it is too early to say.
    fn clients(&self, rules: &LoadRules, service: Service) -> Option<f64> {
        let seen = (self.last_ms - self.started_ms) as f64 / 1000.0 / rules.interval_s(service);
        let clients = self.services[service.index()].clients as f64;
        (seen >= BLIND).then(|| clients / seen.min(1.0))
    }

    /// Returns the stretch at which the load of a service meets its targets.
    fn wanted(&self, rules: &LoadRules, service: Service, now: LoadTime) -> f64 {
        let state = &self.services[service.index()];
        let budget = &rules.budgets[service.index()];
        let Some(clients) = self.clients(rules, service) else { return 1.0 };
        let unstretched_per_s = clients / rules.interval_s(service);
        let mut wanted = self.wanted_by_cpu(rules, group(service));
        if budget.announces_per_s > 0 {
            let aim_per_s = BUDGET_AIM * f64::from(budget.announces_per_s);
            wanted = wanted.max(unstretched_per_s / aim_per_s);
        }
        if budget.bytes_per_day > 0 && state.bytes_per_s > 0.0 {
            let left = budget.bytes_per_day.saturating_sub(state.bytes_today) as f64;
            let left_s = (DAY_S - now.unix_s % DAY_S) as f64;
            let per_announce = state.bytes_per_s / state.announces_per_s.max(f64::MIN_POSITIVE);
            let aim_per_s = BUDGET_AIM * left / left_s / per_announce;
            wanted = wanted.max(unstretched_per_s / aim_per_s.max(f64::MIN_POSITIVE));
        }
        wanted
    }

    /// Returns the stretch at which a group of workers uses the processor as it should. An announce costs what it cost
    /// in the last minute, with all else that the workers do.
    fn wanted_by_cpu(&self, rules: &LoadRules, workers: usize) -> f64 {
        let of_group = || Service::ALL.into_iter().filter(|service| group(*service) == workers);
        let answered = of_group().map(|service| self.services[service.index()].answered_per_s);
        let answered_per_s: f64 = answered.sum();
        let unstretched_per_s: f64 = of_group()
            .map(|service| self.clients(rules, service).unwrap_or(0.0) / rules.interval_s(service))
            .sum();
        if answered_per_s <= 0.0 {
            return 1.0;
        }
        let aim = f64::from(rules.cpu_percent.max(1)) / 100.0;
        unstretched_per_s * self.cpu[workers] / (answered_per_s * aim)
    }

    fn pacing(&mut self, rules: &LoadRules, now: LoadTime) -> Pacing {
        let now_s = now.steady_ms / 1000;
        let stretch = self.services.each_ref().map(|state| permille(state.stretch));
        let [mut unheard, mut unheard_web] = [Stretch::NONE; 2];
        for service in Service::ALL {
            let at = service.index();
            let over = if self.services[at].is_over { rules.stretch_max.0 } else { 0 };
            let longest = if service.is_web() { &mut unheard_web } else { &mut unheard };
            *longest = (*longest).max(Stretch(stretch[at].0.saturating_add(over)));
        }
        self.longest.note(now_s, unheard);
        self.longest_web.note(now_s, unheard_web);
        let gates = Service::ALL.map(|service| {
            let budget = &rules.budgets[service.index()];
            ServiceGate {
                announces_per_s: budget.announces_per_s,
                bytes: self.services[service.index()].bytes_left(budget),
            }
        });
        let (lifetime, web_lifetime) = if rules.keeps_longest {
            (rules.longest(), rules.longest())
        } else {
            (
                self.longest.get(now_s, rules.lifetime_s),
                self.longest_web.get(now_s, rules.web_lifetime_s),
            )
        };
        Pacing { stretch, stretch_max: rules.stretch_max, lifetime, web_lifetime, gates }
    }

    /// Returns the state of each service, by [`Service::index`].
    pub fn services(&self, rules: &LoadRules) -> [ServiceLoad; SERVICES] {
        Service::ALL.map(|service| {
            let state = &self.services[service.index()];
            ServiceLoad {
                stretch: permille(state.stretch),
                announces_per_s: state.announces_per_s,
                clients: state.clients,
                bytes_today: state.bytes_today,
                bytes_left: state.bytes_left(&rules.budgets[service.index()]),
                is_over: state.is_over,
            }
        })
    }
}

fn permille(stretch: f64) -> Stretch {
    Stretch((stretch * 1000.0).round() as u32)
}
