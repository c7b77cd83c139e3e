//! A day of clients in virtual time, with a flash crowd: how load and intervals develop.
//!
//! ```text
//! TIDEGATE_SIM_CLIENTS=1000000 cargo test --release -p tidegate-tracker --test load_day -- --nocapture
//! ```

// Shows the curve; its size comes from the environment.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout)]

use tidegate_tracker::{
    Budget, Controller, LoadMeasured, LoadRules, LoadTime, Random, SERVICES, Service, Stretch,
};

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

/// A period of the day, for checks and the table.
struct Row {
    at_s: u32,
    clients: u64,
    interval_s: u32,
    tally: Tally,
    /// The share of the processor used.
    cpu: f64,
}

struct Day {
    random: Random,
    /// The clients in the evening, without the crowd.
    evening: f64,
    /// Clients that announce, by the second.
    wheel: Vec<Vec<Client>>,
    present: u64,
    /// Announces per second that the processor could serve.
    capacity_per_s: f64,
    rules: LoadRules,
}

impl Day {
    fn new(evening: u64, interval_max_s: u32, with_budget: bool) -> Self {
        let evening = evening as f64;
        let capacity_per_s = evening / f64::from(INTERVAL_S) / EVENING_SHARE;
        let mut budgets = [Budget::default(); SERVICES];
        if with_budget {
            budgets[0].announces_per_s = (BUDGET * capacity_per_s) as u32;
        }
        let mut interval_s = [INTERVAL_S; SERVICES];
        interval_s[Service::Ws4.index()] = 120;
        interval_s[Service::Ws6.index()] = 120;
        Self {
            random: Random::new(7),
            evening,
            // A client that announces at the end of the day gets an interval that ends on the next one.
            wheel: vec![Vec::new(); DAY_S as usize],
            present: 0,
            capacity_per_s,
            rules: LoadRules {
                interval_s,
                stretch_max: Stretch::between(INTERVAL_S, interval_max_s),
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
    fn clients_at(&self, second: u32) -> f64 {
        let hours = f64::from(second) / 3600.0;
        let wave = ((hours - 20.0) / 24.0 * std::f64::consts::TAU).cos();
        self.evening * (0.55 + 0.45 * wave)
    }

    fn uniform(&mut self) -> f64 {
        (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn arrive(&mut self, second: u32) {
        let stay_s = -SESSION_S * (1.0 - self.uniform()).ln();
        let leaves_s = second.saturating_add(stay_s as u32).saturating_add(1);
        self.present += 1;
        self.announce_at(second, Client { leaves_s, fails: 0 });
    }

    fn announce_at(&mut self, second: u32, client: Client) {
        if let Some(clients) = self.wheel.get_mut(second as usize) {
            clients.push(client);
        }
    }

    /// The clients that come in a second, each with its first announce.
    fn arrivals(&mut self, second: u32) {
        let there = self.clients_at(second);
        let mut wanted = self.clients_at(second + 1) - there + there / SESSION_S;
        if (CROWD_AT_S..CROWD_AT_S + CROWD_S).contains(&second) {
            wanted += 2.0 * self.clients_at(CROWD_AT_S) / f64::from(CROWD_S);
        }
        let whole = wanted.max(0.0).floor();
        let more = self.uniform() < wanted - whole;
        (0..whole as u64 + u64::from(more)).for_each(|_| self.arrive(second));
    }

    /// Runs the day. Returns a row for each ten minutes.
    fn run(&mut self) -> Vec<Row> {
        // At midnight the clients are there already, at any point of their intervals.
        for _ in 0..self.clients_at(0) as u64 {
            let (stay_s, first) =
                (-SESSION_S * (1.0 - self.uniform()).ln(), self.uniform() * f64::from(INTERVAL_S));
            self.present += 1;
            self.announce_at(first as u32, Client { leaves_s: stay_s as u32 + 1, fails: 0 });
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
                let (clients, cpu) = (self.present, self.cpu(row, 600));
                let interval_s = stretch.of(INTERVAL_S);
                rows.push(Row { at_s: second + 1, clients, interval_s, tally: row, cpu });
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
            } else if budget > 0.0 && tally.served as f64 >= budget {
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
                self.present -= 1;
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

fn clients() -> u64 {
    std::env::var("TIDEGATE_SIM_CLIENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(40_000)
}

fn print(title: &str, rows: &[Row]) {
    println!("\n{title}\n\ntime   clients  announces/s  quiet/s  unanswered/s  interval  cpu");
    for row in rows {
        let is_near = (CROWD_AT_S..=CROWD_AT_S + 2 * 3600).contains(&row.at_s);
        if row.at_s % 3600 != 0 && !is_near {
            continue;
        }
        let per_s = |count: u64| count as f64 / 600.0;
        let Tally { served, quiet, silent } = row.tally;
        println!(
            "{:02}:{:02} {:>9} {:>12.1} {:>8.1} {:>13.1} {:>9} {:>3.0} % {}",
            row.at_s / 3600,
            row.at_s / 60 % 60,
            row.clients,
            per_s(served + quiet + silent),
            per_s(quiet),
            per_s(silent),
            row.interval_s,
            row.cpu * 100.0,
            "#".repeat((row.cpu * 30.0) as usize),
        );
    }
}

fn silent<'a>(rows: impl Iterator<Item = &'a Row>) -> u64 {
    rows.map(|row| row.tally.silent).sum()
}

#[test]
fn a_day_with_a_flash_crowd_bends_and_does_not_swing() {
    let constant = Day::new(clients(), INTERVAL_S, false).run();
    print("constant intervals", &constant);
    let adaptive = Day::new(clients(), INTERVAL_MAX_S, true).run();
    print("growing intervals and a budget", &adaptive);

    let before = || adaptive.iter().filter(|row| row.at_s <= CROWD_AT_S);
    for Row { at_s, cpu, tally, .. } in before() {
        assert!(*cpu < 0.8 && 100 * tally.silent < tally.served, "an ordinary day, at {at_s} s");
    }
    // The storm of first announces is over within half an hour, where it lasts for hours with constant intervals.
    let calm_s = CROWD_AT_S + CROWD_S + 1800;
    let after = |rows| silent(rows_from(rows, calm_s));
    assert!(20 * after(&adaptive) < after(&constant), "{} {}", after(&adaptive), after(&constant));
    // An hour after the crowd the load is near its target, and stays there.
    let target = f64::from(CPU_PERCENT) / 100.0;
    let late = || rows_from(&adaptive, CROWD_AT_S + CROWD_S + 3600);
    for Row { at_s, cpu, tally, .. } in late() {
        assert!(*cpu < 1.25 * target, "{} % at {at_s} s", cpu * 100.0);
        assert!(100 * tally.silent < tally.served, "{} unanswered at {at_s} s", tally.silent);
    }
    let mean = late().map(|row| row.cpu).sum::<f64>() / late().count() as f64;
    assert!(mean > 0.6 * target, "intervals are longer than needed: {} %", mean * 100.0);
    // Up with the crowd, and down: no more turns than the curve of clients has.
    let curve = || adaptive.iter().map(|row| f64::from(row.interval_s));
    assert!(turns(curve(), 0.1) <= 2, "{:?}", curve().collect::<Vec<_>>());
    assert!(curve().fold(0.0, f64::max) > 1.5 * f64::from(INTERVAL_S), "intervals grew");
    // At night, intervals are as configured.
    let night = adaptive.iter().filter(|row| (6..12).contains(&(row.at_s / 3600)));
    assert!(night.map(|row| row.interval_s).all(|interval_s| interval_s == INTERVAL_S));
}

fn rows_from(rows: &[Row], second: u32) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.at_s > second)
}

#[test]
fn turns_are_counted() {
    let curve = [1.0, 2.0, 3.0, 2.9, 3.0, 1.0, 1.02, 2.0];
    assert_eq!(turns(curve.into_iter(), 0.05), 2);
}
