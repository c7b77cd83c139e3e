//! Sessions of keys in a journal, which to it are any bytes.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::memory_disk::MemoryDisk;
use super::tracker::{PACE, START_MS, TestClock, TestWriter, store};
use crate::{Journal, Status};
use replication::Now;
use swarm::Feed;

/// Sessions from a journal: seconds since they were written, true if they may be exact, and the body.
type Taken = Vec<(u32, bool, Vec<u8>)>;

fn restore(disk: &MemoryDisk, unix_ms: u64, threads: usize) -> Taken {
    let taken = Arc::new(Mutex::new(Taken::new()));
    let into = Arc::clone(&taken);
    let journal = Journal::open_on(Arc::new(disk.clone()), unix_ms).unwrap().unwrap();
    let sink = Box::new(move |ago_s, is_exact, body: &[u8]| {
        into.lock().unwrap().push((ago_s, is_exact, body.to_vec()));
    });
    let clocks = TestClock::at(unix_ms, 100).clocks();
    let (store, stop) = (store(false), AtomicBool::new(false));
    journal.with_sessions(sink).restore(&store, &clocks, threads, &Status::default(), &stop);
    Arc::into_inner(taken).unwrap().into_inner().unwrap()
}

#[test]
fn rounds_and_the_end_have_all_sessions() {
    let (disk, store, feed) = (MemoryDisk::default(), store(false), Feed::default());
    let clock = TestClock::at(START_MS, 100);
    // Three bodies a pass, with the number of the pass.
    let (mut pass, mut next) = (0_u8, 0_u8);
    let mut source = move |_: Now, is_last: bool, body: &mut Vec<u8>| {
        assert!(body.is_empty());
        if next == 3 {
            (pass, next) = (pass + 1, 0);
            return false;
        }
        body.extend([pass, next, u8::from(is_last)]);
        next += 1;
        true
    };
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
    writer.rounds.set_sessions(Some(&mut source));
    writer.turns(10);
    let bodies =
        |taken: &Taken| -> Vec<Vec<u8>> { taken.iter().map(|(_, _, body)| body.clone()).collect() };
    let killed = restore(&disk, clock.now().unix_ms + 700_000, 2);
    // The first ten minutes of downtime do not count.
    assert!(killed.iter().all(|(ago_s, ..)| (99..102).contains(ago_s)), "{killed:?}");
    // Whole passes, each once.
    let found = bodies(&killed);
    let last = found.last().unwrap()[0];
    assert!(last >= 1, "{found:?}");
    assert!(
        found.ends_with(&[[last, 0, 0], [last, 1, 0], [last, 2, 0]].map(Vec::from)),
        "{found:?}"
    );
    writer.finish();
    let stopped = restore(&disk, clock.now().unix_ms, 1);
    let [.., first, second, third] = &stopped[..] else { panic!("{stopped:?}") };
    for (number, (ago_s, is_exact, body)) in [first, second, third].into_iter().enumerate() {
        assert_eq!((*ago_s, *is_exact), (0, true));
        assert_eq!(body[1..], [number as u8, 1]);
    }
    // Another process begins a segment. What the first one wrote last is not the newest any more.
    clock.advance(Duration::from_secs(1));
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
    writer.turn().unwrap();
    let again = restore(&disk, clock.now().unix_ms, 2);
    assert_eq!(bodies(&again), bodies(&stopped));
    assert!(again.iter().all(|(_, is_exact, _)| !is_exact), "{again:?}");
}
