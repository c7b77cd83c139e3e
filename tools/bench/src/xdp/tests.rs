//! The lab by itself: its programs on single frames, and its generator against a socket that answers.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xdp::bpf::{self, MapKind, MapSpec, action};

use super::frames::{Family, frame};
use super::generator::{Counter, Generator, Pace, Slot};
use super::maps::{self, GeneratorMaps};
use super::network::{Arrangement, Network};
use super::traffic::{ANNOUNCES, CONNECTS, HONEST};
use crate::datagrams::{CONNECT, announce};
use crate::session::print_line;

const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// Returns a map with one value, or says which test it skips: bpf(2) needs privileges.
fn map(test: &str, value_len: usize, entries: usize) -> Option<(OwnedFd, MapSpec)> {
    let (value_len, entries) = (value_len as u32, entries as u32);
    let spec = MapSpec { name: "test", kind: MapKind::Array, value_len, entries };
    match bpf::create_map(&spec) {
        Ok(map) => Some((map, spec)),
        Err(error) => {
            print_line(&format!("skipped: {test} needs CAP_BPF and CAP_NET_ADMIN: {error}"));
            None
        }
    }
}

fn words((map, spec): &(OwnedFd, MapSpec)) -> Vec<u64> {
    let mut bytes = vec![0; spec.value_len as usize];
    bpf::look_up_element(map.as_fd(), spec, 0, &mut bytes).expect("the map has the key 0");
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Returns a reply to a port of a class.
fn reply(family: Family, class: u8, payload: &[u8]) -> Vec<u8> {
    let mut to = Network::address(family);
    to.set_port((u16::from(class) << maps::CLASS_SHIFT) + 5);
    frame(Network::address(family), to, payload)
}

#[test]
fn replies_are_counted_by_class_and_kind() {
    let test = "replies_are_counted_by_class_and_kind";
    let Some(counts) = map(test, 8 * maps::COUNT_WORDS, 1) else { return };
    let code = maps::counter(counts.0.as_fd());
    let program = bpf::load_program("test", LICENSE, &code).unwrap();
    let mut announced = vec![0, 0, 0, 1];
    announced.resize(20 + 6, 0);
    for family in [Family::V4, Family::V6] {
        for (payload, class, expected) in [
            (&[0; 16][..], CONNECTS, action::DROP),
            (&announced, HONEST, action::DROP),
            (&[0, 0, 0, 3, 0, 0, 0, 0], CONNECTS, action::DROP),
            // Too long for a connect's reply.
            (&[0; 17], CONNECTS, action::DROP),
            // Ports of ordinary sockets.
            (&[0; 16], 8, action::PASS),
        ] {
            let run = bpf::test_run(program.as_fd(), &reply(family, class, payload)).unwrap();
            assert_eq!(run.action, expected, "{family:?} {payload:?}");
        }
    }
    let counts = words(&counts);
    let of = |class: u8, kind: usize| -> u64 {
        let first = counts.iter().skip(usize::from(class) * maps::COUNTS + kind);
        first.step_by(maps::CLASSES * maps::COUNTS).sum()
    };
    assert_eq!([0, 1, 2, 3].map(|kind| of(CONNECTS, kind)), [2, 0, 2, 2]);
    assert_eq!([0, 1, 2, 3].map(|kind| of(HONEST, kind)), [0, 2, 0, 0]);
    assert_eq!(of(HONEST, maps::BYTES), 2 * (8 + 26));
    // What is not from the tracker is passed.
    let mut other = reply(Family::V4, CONNECTS, &[0; 16]);
    other[35] ^= 1;
    assert_eq!(bpf::test_run(program.as_fd(), &other).unwrap().action, action::PASS);
}

#[test]
fn frames_are_written_and_cut() {
    let test = "frames_are_written_and_cut";
    let Some(slots) = map(test, maps::SLOT, maps::SLOTS) else { return };
    let control = map(test, 8 * maps::CONTROL_WORDS, 1).unwrap();
    for family in [Family::V4, Family::V6] {
        let state = map(test, 8 * maps::STATE_WORDS, 1).unwrap();
        let to = Network::address(family);
        let from = (family.client(9), 2050).into();
        let long = Slot { class: HONEST, frame: frame(from, to, &announce(7, 0, [1; 20])) };
        let short = Slot { class: CONNECTS, frame: frame(from, to, &CONNECT) };
        for (key, slot) in (0..).zip([&long, &short]) {
            bpf::update_element(slots.0.as_fd(), &slots.1, key, &slot.bytes()).unwrap();
        }
        let device = 1;
        let settings = [0, 1, long.frame.len() as u64, device].map(u64::to_ne_bytes);
        let settings = settings.as_flattened();
        bpf::update_element(control.0.as_fd(), &control.1, 0, settings).unwrap();
        let fds = GeneratorMaps {
            slots: slots.0.as_fd(),
            control: control.0.as_fd(),
            state: state.0.as_fd(),
        };
        let code = maps::generator(fds);
        let program = bpf::load_program("test", LICENSE, &code).unwrap();
        let next = || bpf::test_run(program.as_fd(), &vec![9; long.frame.len()]).unwrap();
        let (first, second) = (next(), next());
        assert_eq!((first.action, second.action), (action::REDIRECT, action::REDIRECT));
        assert_eq!((first.frame, second.frame), (long.frame, short.frame));
        let sent = &words(&state)[maps::SENT..];
        assert_eq!((sent[usize::from(HONEST)], sent[usize::from(CONNECTS)]), (1, 1));
    }
}

/// Sends at a rate to a socket that answers, in both arrangements, and counts its replies.
#[test]
fn a_socket_s_replies_come_back() {
    let test = "a_socket_s_replies_come_back";
    if map(test, 8, 1).is_none() {
        return;
    }
    let network = Network::new().unwrap();
    let counter = Counter::attach(&network).unwrap();
    for family in [Family::V4, Family::V6] {
        let (to, stop) = (Network::address(family), AtomicBool::new(false));
        let socket = network.tracker.run(|| UdpSocket::bind(to)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let slot = |client: u32| {
            let from = (family.client(client), (u16::from(ANNOUNCES) << 11) + 1).into();
            Slot { class: ANNOUNCES, frame: frame(from, to, &announce(7, 0, [1; 20])) }
        };
        let frames: Vec<Slot> = (0..64).map(slot).collect();
        let generator = Generator::new(&network, &frames).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 2048];
                let mut answer = vec![0, 0, 0, 1];
                answer.resize(20, 0);
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                        socket.send_to(&answer, from).unwrap();
                    }
                }
            });
            for arrangement in [Arrangement::Sender, Arrangement::Tracker] {
                network.arrange(arrangement, 0).unwrap();
                let before = generator.snapshot(&counter).unwrap();
                let tally = || {
                    let (_, all) = generator.snapshot(&counter).unwrap().since(&before);
                    all[usize::from(ANNOUNCES)]
                };
                generator.pace(Pace { per_s: 2000.0, burst: 4 }).unwrap();
                let came = generator.run(&network, 1, || {
                    harness::wait_until("replies", || tally().announces >= 100);
                    Ok(())
                });
                came.unwrap();
                assert!(tally().sent >= tally().announces, "{:?}", tally());
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
