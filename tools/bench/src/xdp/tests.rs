//! The lab's programs on single frames.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use xdp::bpf::{self, MapKind, MapSpec, action};

use super::frames::{client, frame};
use super::generator::Slot;
use super::maps::{self, GeneratorMaps};
use super::network::ADDRESS;
use super::traffic::{CONNECTS, HONEST};
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
fn reply(class: u8, payload: &[u8]) -> Vec<u8> {
    let to = SocketAddrV4::new(*ADDRESS.ip(), (u16::from(class) << maps::CLASS_SHIFT) + 5);
    frame(ADDRESS, to, payload)
}

#[test]
fn replies_are_counted_by_class_and_kind() {
    let test = "replies_are_counted_by_class_and_kind";
    let Some(counts) = map(test, 8 * maps::COUNT_WORDS, 1) else { return };
    let code = maps::counter(counts.0.as_fd());
    let program = bpf::load_program("test", LICENSE, &code).unwrap();
    let mut announced = vec![0, 0, 0, 1];
    announced.resize(20 + 6, 0);
    for (payload, class, expected) in [
        (&[0; 16][..], CONNECTS, action::DROP),
        (&announced, HONEST, action::DROP),
        (&[0, 0, 0, 3, 0, 0, 0, 0], CONNECTS, action::DROP),
        // Too long for a connect's reply.
        (&[0; 17], CONNECTS, action::DROP),
        // Ports of ordinary sockets.
        (&[0; 16], 8, action::PASS),
    ] {
        let run = bpf::test_run(program.as_fd(), &reply(class, payload)).unwrap();
        assert_eq!(run.action, expected, "{payload:?}");
    }
    let counts = words(&counts);
    let of = |class: u8, kind: usize| -> u64 {
        let first = counts.iter().skip(usize::from(class) * maps::COUNTS + kind);
        first.step_by(maps::CLASSES * maps::COUNTS).sum()
    };
    assert_eq!([0, 1, 2, 3].map(|kind| of(CONNECTS, kind)), [1, 0, 1, 1]);
    assert_eq!([0, 1, 2, 3].map(|kind| of(HONEST, kind)), [0, 1, 0, 0]);
    assert_eq!(of(HONEST, maps::BYTES), 8 + 26);
    // Frames that are not from the tracker are passed.
    let mut other = reply(CONNECTS, &[0; 16]);
    other[35] ^= 1;
    assert_eq!(bpf::test_run(program.as_fd(), &other).unwrap().action, action::PASS);
}

#[test]
fn frames_are_written_and_cut() {
    let test = "frames_are_written_and_cut";
    let Some(slots) = map(test, maps::SLOT, maps::SLOTS) else { return };
    let control = map(test, 8 * maps::CONTROL_WORDS, 1).unwrap();
    let state = map(test, 8 * maps::STATE_WORDS, 1).unwrap();
    let from = SocketAddrV4::new(client(9), 2050);
    let long = Slot { class: HONEST, frame: frame(from, ADDRESS, &announce(7, 0, [1; 20])) };
    let short = Slot { class: CONNECTS, frame: frame(from, ADDRESS, &CONNECT) };
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
