//! Changes while the program runs: no moment may be worse than both its neighbours.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use primitives::Random;
use primitives::siphash::siphash_slice_ip;

use super::{IdSlices, KEY, Program, model};
use crate::bpf::{action, test_run};
use crate::test_frames::{announce, connect};
use std::os::fd::AsFd;

const CLIENT: &str = "198.18.0.1:4096";
const CLIENT_IP: &str = "198.18.0.1";
const SERVER: &str = "192.0.2.1:6969";

/// Units of time are quarters of a second.
const LIFETIME: u32 = 80;
const ACCEPTS_NEXT: u32 = 40;

fn slice(now: u32) -> u32 {
    now / LIFETIME + 1
}

fn id(slice: u32) -> u64 {
    siphash_slice_ip::<2, 4>(&KEY, slice, CLIENT_IP.parse::<IpAddr>().unwrap())
}

/// The slice of time 0 in the tests that begin late: that of unix time, in a cluster.
const LATE: u32 = 15_000_000;

/// Returns what the thread writes that keeps the program up to date.
fn slices(now: u32) -> IdSlices {
    let accepts_next = LIFETIME - now % LIFETIME <= ACCEPTS_NEXT;
    IdSlices { key: KEY, current: slice(now), accepts_next }
}

/// The thread comes late now and then, and user space issues ids meanwhile.
#[test]
fn ids_are_good_for_a_lifetime_whoever_issued_them() {
    let Some(mut program) = Program::load(model()) else {
        return;
    };
    let mut random = Random::new(5);
    let mut issued: Vec<(u32, u64)> = Vec::new();
    program.maps.set_ids(&slices(0));
    for now in 0..10 * LIFETIME {
        if random.below(8) > 0 {
            program.maps.set_ids(&slices(now));
        }
        // The program's own.
        let reply = program.run(&connect(CLIENT, SERVER));
        assert_eq!(reply.action, action::TX);
        let own = u64::from_be_bytes(reply.frame[50..58].try_into().unwrap());
        let user_space_accepts =
            [slice(now), slice(now) - 1, slice(now) + 1].map(id).contains(&own);
        assert!(user_space_accepts, "at {now}");
        issued.push((now, own));
        issued.push((now, id(slice(now))));
        issued.retain(|(at, _)| now - at < LIFETIME - 4);
        for (at, id) in &issued {
            let run = program.run(&announce(CLIENT, SERVER, *id));
            assert_eq!(run.action, action::REDIRECT, "issued at {at}, used at {now}");
        }
        let old = slice(now).saturating_sub(3);
        let run = program.run(&announce(CLIENT, SERVER, id(old)));
        assert_eq!(run.action, action::DROP, "slice {old} at {now}");
    }
}

#[test]
fn slices_may_jump() {
    let Some(mut program) = Program::load(model()) else { return };
    for current in [1, 5, 6, 100, 99, 101, 1, LATE, LATE + 1, 2, u32::MAX] {
        for accepts_next in [false, true] {
            program.model.ids = Some(IdSlices { key: KEY, current, accepts_next });
            program.apply();
            program.compare(&connect(CLIENT, SERVER));
            for slice in
                (0..8).chain(95..105).chain([LATE - 1, LATE, LATE + 1, u32::MAX - 1, u32::MAX])
            {
                program.compare(&announce(CLIENT, SERVER, id(slice)));
            }
        }
    }
    // Another key, of the same slice.
    program.model.ids = Some(IdSlices { key: [9; 16], current: 2, accepts_next: false });
    program.apply();
    program.compare(&announce(CLIENT, SERVER, id(2)));
    program.compare(&connect(CLIENT, SERVER));
}

/// While one thread turns slices, changes lists and replaces bans, the program never drops an id that
/// stays valid, never serves a network that stays banned, and never misses an endpoint that stays.
#[test]
fn what_stays_is_never_missing() {
    let Some(mut program) = Program::load(model()) else { return };
    let stop = AtomicBool::new(false);
    let valid = AtomicU32::new(7);
    let descriptor = program.program.try_clone().unwrap();
    let run = |frame: &[u8]| test_run(descriptor.as_fd(), frame).unwrap().action;
    thread::scope(|scope| {
        scope.spawn(|| {
            let ids = |current, accepts_next| IdSlices { key: KEY, current, accepts_next };
            let (endpoints, bans) = (program.model.endpoints.clone(), program.model.bans.clone());
            let (blocked, passed) = (program.model.blocked.clone(), program.model.passed.clone());
            for turn in 0_usize.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let current = valid.load(Ordering::Relaxed);
                program.maps.set_ids(&ids(current, true));
                valid.store(current + 1, Ordering::SeqCst);
                program.maps.set_ids(&ids(current + 1, false));
                let some = turn % 3;
                program.maps.set_endpoints(&endpoints[if some == 0 { 0..8 } else { 0..some }]);
                program.maps.set_blocked(&blocked[if some == 0 { 0..3 } else { 0..some }]);
                program.maps.set_passed(&passed[..some]);
                program.maps.set_bans(bans[..1 + turn % 2].iter().copied());
            }
        });
        for _ in 0..5_000 {
            let before = valid.load(Ordering::SeqCst);
            let action = run(&announce(CLIENT, SERVER, id(before)));
            if valid.load(Ordering::SeqCst) == before {
                assert_eq!(action, action::REDIRECT, "slice {before}");
            }
            assert_eq!(run(&connect("198.18.77.1:9", SERVER)), action::DROP, "a banned source");
            assert_eq!(run(&connect("198.18.66.1:9", SERVER)), action::DROP, "a blocked source");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
