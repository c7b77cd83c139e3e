use std::collections::BTreeMap;

use super::*;
use crate::batch::{Record, agent_of};
use crate::spool::{Restored, Spool};
use tracker::Random;

const NOW_S: u32 = 1_800_000_000;

fn terms() -> Terms {
    Terms {
        factors: Factors::PLAIN,
        uses_token: false,
        immune: false,
        slots: None,
        clients: 3,
        visible: true,
        hides_address: false,
    }
}

fn report(user: u32, peer: u8, now_s: u32) -> Report {
    Report {
        user,
        torrent: 5,
        peer_id: PeerId([peer; 20]),
        ip: [10, 0, 0, peer].into(),
        port: 6881,
        event: Event::None,
        uploaded: 0,
        downloaded: 0,
        left: Some(10),
        agent: agent_of(b"client/1.0"),
        now_s,
    }
}

fn cut(ledger: &Ledger, now_s: u32) -> Vec<Record> {
    ledger.cut_into(Batch::default(), now_s, None).records
}

#[test]
fn counters_that_begin_anew_and_implausible_ones_are_worth_nothing() {
    let limits = LedgerLimits { bytes_per_s: 100, ..LedgerLimits::default() };
    let ledger = Ledger::new(limits);
    let steps = [(0, 500, 0), (10, 400, 0), (20, 1_400, 1_000), (30, 2_401, 0), (30, 2_500, 99)];
    for (second, uploaded, counted) in steps {
        let report = Report { uploaded, now_s: NOW_S + second, ..report(1, 1, 0) };
        ledger.announce(&report, &terms()).unwrap();
        assert_eq!(cut(&ledger, NOW_S)[0].uploaded, counted, "after {second} s");
    }
    assert_eq!(ledger.implausible.load(Ordering::Relaxed), 1);
}

#[test]
fn silent_clients_end_once_and_are_remembered_for_21_days() {
    let limits = LedgerLimits::default();
    let ledger = Ledger::new(limits);
    ledger.announce(&Report { uploaded: 5, ..report(1, 1, NOW_S) }, &terms()).unwrap();
    cut(&ledger, NOW_S);
    ledger.sweep_all(NOW_S + limits.active_s);
    ledger.sweep_all(NOW_S + limits.active_s);
    let record = cut(&ledger, NOW_S + limits.active_s).remove(0);
    assert_eq!((record.leechers, record.active, record.announces), (-1, false, 0));
    assert!(record.last().is_none() && record.sessions[0].expired);
    assert_eq!(ledger.presence(1).leeching, 0);
    let later = NOW_S + limits.remembered_s - 1;
    ledger.sweep_all(later);
    ledger.announce(&Report { uploaded: 8, ..report(1, 1, later) }, &terms()).unwrap();
    assert_eq!(cut(&ledger, later)[0].uploaded, 3);
    let stop = Report { event: Event::Stopped, uploaded: 8, ..report(1, 1, later) };
    ledger.announce(&stop, &terms()).unwrap();
    cut(&ledger, later);
    ledger.sweep_all(later + limits.remembered_s);
    assert_eq!(ledger.sessions.load(Ordering::Relaxed), 0);
    ledger.sweep_all(later + limits.remembered_s);
}

#[test]
fn a_full_ledger_and_many_client_ids_are_bounded() {
    let ledger = Ledger::new(LedgerLimits { sessions: 20, ..LedgerLimits::default() });
    for peer in 0..50 {
        let started = report(1, peer, NOW_S);
        ledger.announce(&started, &terms()).unwrap();
        ledger.announce(&Report { event: Event::Stopped, ..started }, &terms()).unwrap();
    }
    assert_eq!(ledger.sessions.load(Ordering::Relaxed), SESSIONS_PER_PAIR);
    let results: Vec<_> =
        (2..8).map(|user| ledger.announce(&report(user, 1, NOW_S), &terms()).is_ok()).collect();
    assert_eq!(results, [true, true, true, true, false, false]);
    assert_eq!(ledger.uncounted.load(Ordering::Relaxed), 2);
}

/// The plainest ledger: the last counters of each client, and the sums of a table of the site.
#[derive(Clone, Default)]
struct Twin {
    counters: BTreeMap<(u32, u32, u8), (u64, u64)>,
    sums: BTreeMap<(u32, u32), (u64, u64)>,
}

impl Twin {
    fn announce(&mut self, report: &Report) {
        let key = (report.user, report.torrent, report.peer_id.0[0]);
        let new = (report.uploaded, report.downloaded);
        let old = self.counters.insert(key, new).unwrap_or(new);
        let sum = self.sums.entry((report.user, report.torrent)).or_default();
        if new.0 >= old.0 && new.1 >= old.1 {
            sum.0 += new.0 - old.0;
            sum.1 += new.1 - old.1;
        }
    }
}

/// A database that takes a batch and its sequence at once.
#[derive(Default)]
struct Table {
    sequence: u64,
    sums: BTreeMap<(u32, u32), (u64, u64)>,
}

impl Table {
    fn apply(&mut self, batch: &Batch) {
        assert_eq!(batch.sequence, self.sequence + 1, "no batch is left out or repeated");
        self.sequence = batch.sequence;
        for record in &batch.records {
            let sum = self.sums.entry((record.user, record.torrent)).or_default();
            sum.0 += record.uploaded;
            sum.1 += record.downloaded;
        }
    }
}

/// A process, and the folder that outlives it.
struct Process {
    ledger: Ledger,
    spool: Spool,
}

impl Process {
    fn start(folder: &std::path::Path, table: &Table) -> Self {
        let ledger = Ledger::new(LedgerLimits::default());
        let mut spool = Spool::open(folder, 1, 1024, &mut |restored| match restored {
            Restored::Batch(batch) => ledger.learn_batch(batch),
            Restored::Session { user, torrent, session } => ledger.learn(user, torrent, &session),
            Restored::Name(_) => {}
        })
        .unwrap();
        spool.confirm(table.sequence).unwrap();
        Self { ledger, spool }
    }

    fn flush(&mut self, with_snapshot: bool) {
        let mut writer = with_snapshot.then(|| self.spool.begin_snapshot(NOW_S).unwrap());
        let mut batch = self.ledger.cut_into(Batch::default(), NOW_S, writer.as_mut());
        self.spool.append(&mut batch).unwrap();
        if let Some(writer) = writer {
            self.spool.finish_snapshot(writer).unwrap();
        }
    }
}

#[test]
fn kills_at_any_moment_repeat_and_lose_no_increment_that_was_flushed() {
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        let folder = harness::Directory::new().unwrap();
        let mut table = Table::default();
        let mut process = Process::start(folder.root(), &table);
        // `durable` is the twin at the last flush: what a kill leaves.
        let mut twin = Twin::default();
        let mut durable = twin.clone();
        for _ in 0..400 {
            match random.below(20) {
                0 => {
                    process.flush(random.below(4) == 0);
                    durable = twin.clone();
                }
                1 => {
                    drop(process);
                    process = Process::start(folder.root(), &table);
                    twin = durable.clone();
                }
                2 => {
                    // The consumer can be killed after it has taken a batch, before it confirms.
                    let batch = process.spool.after(process.spool.confirmed).unwrap();
                    if let Some(batch) = batch {
                        if batch.sequence > table.sequence {
                            table.apply(&batch);
                        }
                        if random.below(2) == 0 {
                            process.spool.confirm(batch.sequence).unwrap();
                        }
                    }
                }
                _ => {
                    let peer = random.below(3) as u8;
                    let report = Report {
                        torrent: random.below(3),
                        uploaded: random.below(1_000).into(),
                        downloaded: random.below(10).into(),
                        ..report(random.below(3), peer, NOW_S)
                    };
                    process.ledger.announce(&report, &terms()).unwrap();
                    twin.announce(&report);
                }
            }
        }
        process.flush(false);
        while let Some(batch) = process.spool.after(table.sequence).unwrap() {
            table.apply(&batch);
        }
        assert_eq!(table.sums, twin.sums, "seed {seed}");
    }
}

#[test]
fn a_client_that_announces_to_two_nodes_at_once_is_left_to_one_of_them() {
    let first = report(1, 1, NOW_S);
    let told = |updated_s: u32| {
        let ledger = Ledger::new(LedgerLimits::default());
        ledger.announce(&report(1, 1, updated_s), &terms()).unwrap();
        cut(&ledger, updated_s)[0].sessions[0]
    };
    let is_late = |updated_s: u32, counts: bool| {
        let ledger = Ledger::new(LedgerLimits::default());
        ledger.announce(&first, &terms()).unwrap();
        ledger.learn_of_node(1, 5, &told(updated_s), counts);
        ledger.counted_late(&first).is_some()
    };
    // Its announce here may have been the later one, the same, or the earlier one.
    assert!([NOW_S - 9, NOW_S, NOW_S + 9].iter().all(|updated_s| is_late(*updated_s, true)));
    assert!(!is_late(NOW_S, false), "this node counts it");
    assert!(!is_late(NOW_S + 60, true), "it has moved");
    // A message may come twice.
    let ledger = Ledger::new(LedgerLimits::default());
    (0..2).for_each(|_| _ = ledger.learn_of_node(1, 5, &told(NOW_S), true));
    assert!(ledger.counted_late(&first).is_none());
    // It stays so, also over a restart, and its next announce changes no counter of its session.
    let ledger = Ledger::new(LedgerLimits::default());
    ledger.announce(&first, &terms()).unwrap();
    ledger.learn_of_node(1, 5, &told(NOW_S + 1), true);
    let batch = ledger.cut_into(Batch::default(), NOW_S + 2, None);
    let restored = Ledger::new(LedgerLimits::default());
    restored.learn_batch(&batch);
    assert!(restored.counted_late(&first).unwrap().visible);
    restored.learn_of_node(1, 5, &told(NOW_S + 1_800), true);
    assert!(restored.counted_late(&first).is_some());
}
