//! Uptime over restarts, crashes and clocks that are set.

use std::time::Duration;

use tracker::counters::Protocol;

use super::*;

/// Noon of a day, in milliseconds.
const NOON_MS: u64 = (20_000 * DAY_S + DAY_S / 2) * 1000;
const UDP4: Service = Service::Udp4;
const HTTP4: Service = Service::Http4;

/// A process, its clocks and its services.
struct Process {
    services: Services,
    unix_ms: u64,
    at: Instant,
    announces: u64,
    alive: Vec<Service>,
}

impl Process {
    /// Starts at a time with rows of the records.
    fn start(unix_ms: u64, rows: &[StoredRow]) -> Self {
        let mut services = Services::default();
        services.restore(rows, false);
        let mut process =
            Self { services, unix_ms, at: Instant::now(), announces: 0, alive: vec![UDP4] };
        process.read();
        process
    }

    fn read(&mut self) {
        let mut readings = [None; SERVICES];
        for service in [UDP4, HTTP4] {
            let traffic = Traffic { announces: self.announces, ..Traffic::default() };
            let is_alive = self.alive.contains(&service);
            readings[service.index()] = Some(ServiceReading { is_alive, traffic });
        }
        let now = Moment { unix_ms: self.unix_ms, at: self.at };
        self.services.add(now, &readings);
    }

    /// Runs for that many seconds, with an announce in each.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.unix_ms += 1000;
            self.at += Duration::from_secs(1);
            self.announces += 1;
            self.read();
        }
    }

    /// Returns the uptime of a service on the last days, today's last.
    fn days(&self, service: Service, count: usize) -> Vec<(u64, u64)> {
        let report = self.services.report(self.unix_ms / 1000);
        let summary = report.services.iter().find(|it| it.service == service).unwrap();
        assert_eq!(summary.days.len(), DAYS);
        let last = &summary.days[DAYS - count..];
        last.iter().map(|day| (day.served_s, day.down_s)).collect()
    }

    /// Returns what the records have after a write.
    fn write(&mut self) -> Vec<StoredRow> {
        let mut pending = PendingHistory::default();
        self.services.collect(&mut pending);
        pending.rows
    }
}

#[test]
fn a_day_has_served_and_down_and_unknown_time() {
    let mut process = Process::start(NOON_MS, &[]);
    assert_eq!(process.days(UDP4, 1), [(0, 0)], "the morning is unknown, not down");
    process.run(60);
    assert_eq!((process.days(UDP4, 1), process.days(HTTP4, 1)), (vec![(60, 0)], vec![(0, 60)]));
    let report = process.services.report(process.unix_ms / 1000);
    assert_eq!(report.services[0].announces, 60);
    assert_eq!(report.since, NOON_MS / 1000 - 23 * HOUR_S);
}

#[test]
fn time_without_a_process_is_down_for_its_services_only() {
    let mut process = Process::start(NOON_MS, &[]);
    process.run(100);
    let mut rows = process.write();
    // A crash: what came after the last write is lost.
    process.run(10);
    let mut next = Process::start(process.unix_ms + 30_000, &rows);
    assert_eq!(next.days(UDP4, 1), [(100, 40)]);
    next.run(5);
    rows = next.write();
    // Over a night, and again.
    let mut third = Process::start(next.unix_ms + DAY_S * 1000, &rows);
    third.run(3);
    assert_eq!(third.days(UDP4, 2), [(105, DAY_S / 2 - 145 + 40), (3, DAY_S / 2 + 145)]);
    // Of the day on which it served, all after the first minute is known.
    let report = third.services.report(third.unix_ms / 1000);
    let known = report.services[0].days.iter().map(|day| day.served_s + day.down_s).sum::<u64>();
    assert_eq!(known, third.unix_ms / 1000 - NOON_MS / 1000);
}

#[test]
fn an_upgrade_has_no_gap() {
    let mut old = Process::start(NOON_MS, &[]);
    old.run(100);
    let mut services = Services::default();
    services.restore(&old.write(), false);
    old.run(20);
    services.restore(&old.services.rows(), true);
    let mut new = Process { services, unix_ms: old.unix_ms + 7000, announces: 0, ..old };
    new.read();
    assert_eq!(new.days(UDP4, 1), [(127, 0)]);
    new.run(1);
    assert_eq!(new.days(UDP4, 1), [(128, 0)]);
    assert_eq!(new.services.report(new.unix_ms / 1000).services[0].announces, 121);
}

#[test]
fn a_clock_that_is_set_makes_no_downtime() {
    let mut process = Process::start(NOON_MS, &[]);
    process.run(100);
    // Three days into the future, and back again.
    process.unix_ms += 3 * DAY_S * 1000;
    process.run(10);
    assert_eq!(process.days(UDP4, 4), [(100, 0), (0, 0), (0, 0), (10, 0)]);
    process.unix_ms -= 3 * DAY_S * 1000;
    process.run(10);
    assert_eq!(process.days(UDP4, 1), [(110, 0)]);
    // The rows are written under the earlier time, too.
    let rows = process.write();
    let next = Process::start(process.unix_ms + 1000, &rows);
    assert_eq!(next.days(UDP4, 1), [(110, 1)]);
    // Between two processes: back is unknown, and further ahead than days are kept as well.
    assert_eq!(Process::start(process.unix_ms - 60_000, &rows).days(UDP4, 1), [(110, 0)]);
    let far = Process::start(process.unix_ms + 91 * DAY_S * 1000, &rows);
    assert_eq!(far.days(UDP4, 90), vec![(0, 0); 90]);
}

#[test]
fn a_process_that_stood_still_was_down_and_a_stuck_worker_is() {
    let mut process = Process::start(NOON_MS, &[]);
    process.run(10);
    // Stopped for half an hour: the workers have published nothing when it continues.
    process.alive.clear();
    process.unix_ms += 1_800_000;
    process.at += Duration::from_secs(1800);
    process.read();
    assert_eq!(process.days(UDP4, 1), [(10, 1800)]);
    let listener = Listener {
        protocol: Protocol::Udp,
        address: ([127, 0, 0, 1], 1).into(),
        listener_policy: tracker::ListenerPolicyId(0),
    };
    let listeners = [(listener, Counters::default())];
    let mut services = Services::default();
    let mut is_alive = |published: [u64; 2]| {
        let published = published.map(|times| (listener, times));
        services.read(&listeners, &published)[UDP4.index()].unwrap().is_alive
    };
    assert_eq!([[1, 1], [2, 2], [3, 2], [4, 3]].map(&mut is_alive), [true, true, false, true]);
}

#[test]
fn rows_are_bounded_and_survive_in_the_records() {
    let mut process = Process::start(NOON_MS, &[]);
    for _ in 0..100 * 24 {
        process.unix_ms += HOUR_S * 1000;
        process.at += Duration::from_secs(HOUR_S);
        process.read();
    }
    let [hours, days] = &process.services.tiers;
    assert_eq!((hours.rows.len(), days.rows.len()), (HOURS, DAYS));
    let rows = process.services.rows();
    let mut again = Services::default();
    again.restore(&rows, false);
    assert_eq!(again.rows(), rows);
    // Other rows, and those that do not add up, are left out.
    let other = |step_s, time, data: &str| StoredRow { step_s, time, data: data.into() };
    let mut none = Services::default();
    none.restore(
        &[
            other(60, 60, "{}"),
            other(HOUR_S, HOUR_S, "{}"),
            other(DAY_S, 5, r#"{"seen_ms":1,"services":{}}"#),
            other(DAY_S, DAY_S, r#"{"seen_ms":1,"services":{"udp4":7}}"#),
        ],
        false,
    );
    assert!(none.rows().is_empty());
    // Two rows are written whenever something has happened.
    let mut pending = PendingHistory::default();
    let mut process = Process::start(NOON_MS, &[]);
    process.services.collect(&mut pending);
    let first = pending.rows.len();
    let mut again = PendingHistory::default();
    process.services.collect(&mut again);
    assert_eq!((first, again.rows.len()), (2, 0));
    process.run(15);
    process.services.collect(&mut pending);
    assert_eq!(pending.rows.len(), 2, "later rows replace earlier ones");
    assert!(pending.rows[0].data.contains("15000"));
}
