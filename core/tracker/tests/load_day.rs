//! A day of clients in virtual time, with a flash crowd: how load and intervals develop.

use tidegate_tracker::{
    Budget, Controller, LoadMeasured, LoadRules, LoadTime, Random, SERVICES, Service, Stretch,
};

/// The clients in the evening, without the crowd.
const EVENING: f64 = 40_000.0;
const DAY_S: u32 = 24 * 3600;
const STEP_S: u32 = 10;
const INTERVAL_S: u32 = 1800;
const INTERVAL_MAX_S: u32 = 5400;
/// A listing: within ten minutes from this second on, there are three times as many clients.
const CROWD_AT_S: u32 = 20 * 3600;
const CROWD_S: u32 = 600;
/// The mean time that a client stays, seconds.
const SESSION_S: f64 = 3.0 * 3600.0;
/// The share of the processor that a tracker with the clients of the evening uses for their announces at
/// `INTERVAL_S`.
const EVENING_SHARE: f64 = 0.55;
const CPU_PERCENT: u32 = 70;
/// The budget, as a share of the announces that the processor could serve. What is left is for quiet answers.
const BUDGET: f64 = 0.7;
/// The cost of a quiet answer, in served announces: bench/record/2026-11-26-refused-clients.md.
const QUIET_COST: f64 = 0.49;

/// A client with one torrent.
#[derive(Clone, Copy)]
struct Client {
    /// The second at which it stops.
    leaves_s: u32,
    /// Announces in a row that were not answered.
    fails: u32,
}

/// The answer to an announce.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Served,
    Quiet,
    /// The processor is used up: the datagram is dropped.
    Silence,
}

/// The announces of a period, by their answers.
#[derive(Clone, Copy, Default)]
struct Tally {
    served: u64,
    quiet: u64,
    silent: u64,
}

/// Ten minutes of the day.
struct Row {
    at_s: u32,
    interval_s: u32,
    tally: Tally,
    /// The share of the processor used.
    cpu: f64,
}

struct Day {
    random: Random,
    /// Clients that announce, by the second.
    wheel: Vec<Vec<Client>>,
    /// Announces per second that the processor could serve.
    capacity_per_s: f64,
    rules: LoadRules,
}

impl Day {
    fn new() -> Self {
        let capacity_per_s = EVENING / f64::from(INTERVAL_S) / EVENING_SHARE;
        let mut budgets = [Budget::default(); SERVICES];
        budgets[0].announces_per_s = (BUDGET * capacity_per_s) as u32;
        let mut interval_s = [INTERVAL_S; SERVICES];
        interval_s[Service::Ws4.index()] = 120;
        interval_s[Service::Ws6.index()] = 120;
        Self {
            random: Random::new(7),
            // A client that announces at the end of the day gets an interval that ends on the next one.
            wheel: vec![Vec::new(); DAY_S as usize],
            capacity_per_s,
            rules: LoadRules {
                interval_s,
                stretch_max: Stretch::between(INTERVAL_S, INTERVAL_MAX_S),
                cpu_percent: CPU_PERCENT,
                budgets,
                lifetime_s: INTERVAL_S * 3 / 2,
                web_lifetime_s: 180,
                keeps_longest: false,
            },
        }
    }

    /// The clients that are to be there at a second, without the crowd: most in the evening, a tenth of them in the
    /// morning.
    fn clients_at(second: u32) -> f64 {
        let hours = f64::from(second) / 3600.0;
        let wave = ((hours - 20.0) / 24.0 * std::f64::consts::TAU).cos();
        EVENING * (0.55 + 0.45 * wave)
    }

    fn uniform(&mut self) -> f64 {
        (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A client comes, and announces first at a second.
    fn arrive(&mut self, second: u32, first: u32) {
        let stay_s = -SESSION_S * (1.0 - self.uniform()).ln();
        self.announce_at(first, Client { leaves_s: second + stay_s as u32 + 1, fails: 0 });
    }

    fn announce_at(&mut self, second: u32, client: Client) {
        if let Some(clients) = self.wheel.get_mut(second as usize) {
            clients.push(client);
        }
    }

    /// The clients that come in a second, each with its first announce.
    fn arrivals(&mut self, second: u32) {
        let there = Self::clients_at(second);
        let mut wanted = Self::clients_at(second + 1) - there + there / SESSION_S;
        if (CROWD_AT_S..CROWD_AT_S + CROWD_S).contains(&second) {
            wanted += 2.0 * Self::clients_at(CROWD_AT_S) / f64::from(CROWD_S);
        }
        let whole = wanted.max(0.0).floor();
        let more = self.uniform() < wanted - whole;
        (0..whole as u64 + u64::from(more)).for_each(|_| self.arrive(second, second));
    }

    /// Runs the day. Returns a row for each ten minutes.
    fn run(&mut self) -> Vec<Row> {
        // At midnight the clients are there already, at any point of their intervals.
        for _ in 0..Self::clients_at(0) as u64 {
            let first = self.uniform() * f64::from(INTERVAL_S);
            self.arrive(0, first as u32);
        }
        let mut controller = Controller::new(&self.rules, LoadTime { steady_ms: 0, unix_s: 0 });
        let (mut stretch, mut rows) = (Stretch::NONE, Vec::new());
        let (mut step, mut row) = (Tally::default(), Tally::default());
        let budget = f64::from(self.rules.budgets[0].announces_per_s);
        for second in 0..DAY_S {
            self.arrivals(second);
            let tally = self.serve(second, stretch.of(INTERVAL_S), budget);
            for sum in [&mut step, &mut row] {
                sum.served += tally.served;
                sum.quiet += tally.quiet;
                sum.silent += tally.silent;
            }
            if (second + 1) % STEP_S == 0 {
                let now = LoadTime {
                    steady_ms: u64::from(second + 1) * 1000,
                    unix_s: u64::from(second + 1),
                };
                let mut measured = LoadMeasured::default();
                (measured.answered[0], measured.over[0]) = (step.served, step.quiet);
                measured.cpu = [Some(self.cpu(step, STEP_S)), Some(0.0)];
                stretch = controller.step(&self.rules, now, &measured).stretch[0];
                step = Tally::default();
            }
            if (second + 1) % 600 == 0 {
                let (interval_s, cpu) = (stretch.of(INTERVAL_S), self.cpu(row, 600));
                rows.push(Row { at_s: second + 1, interval_s, tally: row, cpu });
                row = Tally::default();
            }
        }
        rows
    }

    fn cpu(&self, tally: Tally, seconds: u32) -> f64 {
        let work = tally.served as f64 + QUIET_COST * tally.quiet as f64;
        work / self.capacity_per_s / f64::from(seconds)
    }

    /// Serves the clients that announce in a second.
    fn serve(&mut self, second: u32, interval_s: u32, budget: f64) -> Tally {
        let mut tally = Tally::default();
        for client in std::mem::take(&mut self.wheel[second as usize]) {
            let work = tally.served as f64 + QUIET_COST * tally.quiet as f64;
            let outcome = if work >= self.capacity_per_s {
                Outcome::Silence
            } else if tally.served as f64 >= budget {
                Outcome::Quiet
            } else {
                Outcome::Served
            };
            match outcome {
                Outcome::Served => tally.served += 1,
                Outcome::Quiet => tally.quiet += 1,
                Outcome::Silence => tally.silent += 1,
            }
            // Its stop; nothing follows.
            if second >= client.leaves_s {
                continue;
            }
            let fails = if outcome == Outcome::Silence { client.fails + 1 } else { 0 };
            let wait_s = match outcome {
                // libtorrent: 30 s until it gives up, then 5 s and more with each failure, an hour at most.
                Outcome::Silence => 30 + (5 + 25 * fails * fails / 2).min(3600),
                Outcome::Quiet => self.jittered(self.rules.stretch_max.of(INTERVAL_S)),
                Outcome::Served => self.jittered(interval_s),
            };
            let next = second + wait_s;
            // A client says when it leaves.
            self.announce_at(next.min(client.leaves_s.max(second + 1)), Client { fails, ..client });
        }
        tally
    }

    fn jittered(&mut self, interval_s: u32) -> u32 {
        interval_s + self.random.below(interval_s / 20 + 1)
    }
}

/// Counts the times that a curve turns after it has moved by more than `least` of itself.
fn turns(curve: impl Iterator<Item = f64>, least: f64) -> u32 {
    let (mut low, mut high, mut is_rising, mut turns) = (f64::MAX, f64::MIN, None, 0);
    for value in curve {
        (low, high) = (low.min(value), high.max(value));
        let turned = match is_rising {
            Some(true) | None if value < high * (1.0 - least) => Some(false),
            Some(false) | None if value > low * (1.0 + least) => Some(true),
            _ => continue,
        };
        turns += u32::from(is_rising.is_some());
        is_rising = turned;
        (low, high) = (value, value);
    }
    turns
}

#[test]
fn a_day_with_a_flash_crowd_bends_and_does_not_swing() {
    let rows = Day::new().run();
    let after = |second| rows.iter().filter(move |row| row.at_s > second);
    for Row { at_s, cpu, tally, .. } in rows.iter().filter(|row| row.at_s <= CROWD_AT_S) {
        assert!(*cpu < 0.8 && 100 * tally.silent < tally.served, "an ordinary day, at {at_s} s");
    }
    // The storm of first announces is over within half an hour. With constant intervals it lasts for hours.
    for Row { at_s, tally, .. } in after(CROWD_AT_S + CROWD_S + 1800) {
        assert!(2 * tally.silent < tally.served, "{} unanswered at {at_s} s", tally.silent);
    }
    // An hour after the crowd the load is near its target, and stays there.
    let target = f64::from(CPU_PERCENT) / 100.0;
    let late = || after(CROWD_AT_S + CROWD_S + 3600);
    for Row { at_s, cpu, tally, .. } in late() {
        assert!(*cpu < 1.25 * target, "{} % at {at_s} s", cpu * 100.0);
        assert!(100 * tally.silent < tally.served, "{} unanswered at {at_s} s", tally.silent);
    }
    let mean = late().map(|row| row.cpu).sum::<f64>() / late().count() as f64;
    assert!(mean > 0.6 * target, "intervals are longer than needed: {} %", mean * 100.0);
    // Up with the crowd, and down: no more turns than the curve of clients has.
    let curve = || rows.iter().map(|row| f64::from(row.interval_s));
    assert!(turns(curve(), 0.1) <= 2, "{:?}", curve().collect::<Vec<_>>());
    assert!(curve().fold(0.0, f64::max) > 1.5 * f64::from(INTERVAL_S), "intervals grew");
    // At night, intervals are as configured.
    let night = rows.iter().filter(|row| (6..12).contains(&(row.at_s / 3600)));
    assert!(night.map(|row| row.interval_s).all(|interval_s| interval_s == INTERVAL_S));
}
