//! Tests of the program, by test runs in the kernel.

mod model;
mod rates;
mod table;
mod turns;
mod twin;

use std::os::fd::{AsFd, OwnedFd};

use primitives::IpPrefix;
use socket2::{Domain, Socket, Type};

use super::bpf::{TestRun, test_run};
use super::interface::Endpoint;
use super::maps::{InterfaceMaps, Maps, load};
use super::next_hops::NextHops;
use super::{IdSlices, ListenerCounts, ProtocolNumbers};
use crate::test_frames::MAGIC;
use model::{Model, Outcome, Verdict};

const PROTOCOL: ProtocolNumbers = ProtocolNumbers {
    connect_magic: MAGIC,
    connect_action: 0,
    connect_reply_action: 0,
    head_len: 16,
};

/// A key like any other.
const KEY: [u8; 16] = *b"0123456789abcdef";

/// Keys the table of rates. Any random numbers.
const SECRET: [u64; 3] = [0x5851_f42d_4c95_7f2d, 0xd134_2543_de82_ef95, 0xaf25_1af3_b0f0_25b5];

/// The program, with maps as the model says.
struct Program {
    maps: Maps,
    interface: InterfaceMaps,
    program: OwnedFd,
    model: Model,
    /// The AF_XDP socket of the queue of test runs.
    _socket: Option<Socket>,
}

impl Program {
    /// Returns `None`, and says so, if this process may not load programs.
    fn load(model: Model) -> Option<Self> {
        let maps = match Maps::create(&PROTOCOL, SECRET) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                println!("skipped: needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN");
                return None;
            }
            other => other.unwrap(),
        };
        let interface = InterfaceMaps::create().unwrap();
        let program =
            load(&maps, &interface).unwrap_or_else(|error| panic!("{}", error.verifier_log));
        let socket = model.has_socket.then(|| {
            let socket = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None).unwrap();
            interface.set_socket(0, socket.as_fd()).unwrap();
            socket
        });
        let mut program = Self { maps, interface, program, model, _socket: socket };
        program.apply();
        Some(program)
    }

    /// Writes what the model says into the maps.
    fn apply(&mut self) {
        let Self { maps, interface, model, .. } = self;
        maps.steering().set(model.steering);
        let rest = [
            maps.set_endpoints(&model.endpoints),
            maps.set_passed(&model.passed),
            maps.set_blocked(&model.blocked),
            interface.set_next_hops(&model.next_hops),
        ];
        assert_eq!(rest, [0; 4], "a list is too long");
        maps.set_bans(model.bans.iter().copied());
        if let Some(ids) = &model.ids {
            maps.set_ids(ids);
        }
        interface.set_vlans(&model.vlans);
    }

    fn run(&self, frame: &[u8]) -> TestRun {
        test_run(self.program.as_fd(), frame).unwrap()
    }

    /// Runs the program and its twin on a frame, and compares action, frame and counts. Returns the verdict.
    fn compare(&self, frame: &[u8]) -> Verdict {
        let expected = self.model.verdict(frame);
        let before = self.interface.counts(expected.listener);
        let run = self.run(frame);
        let after = self.interface.counts(expected.listener);
        assert_eq!(run.action, expected.action(), "{:?} of {frame:02x?}", expected.outcome);
        assert_eq!(run.frame, expected.frame, "the frame after {frame:02x?}");
        assert_eq!(after, counted(before, &expected), "counts after {frame:02x?}");
        expected
    }
}

/// Returns the counts after a verdict.
fn counted(mut counts: ListenerCounts, verdict: &Verdict) -> ListenerCounts {
    let count = match verdict.outcome {
        Outcome::Foreign => return counts,
        Outcome::Connect => &mut counts.connects,
        Outcome::Steered => &mut counts.steered,
        Outcome::Passed => &mut counts.passed,
        Outcome::Banned => &mut counts.banned,
        Outcome::Blocked => &mut counts.blocked,
        Outcome::BadId => &mut counts.bad_connection_ids,
        Outcome::WrongMagic => &mut counts.wrong_magic,
        Outcome::TooShort => &mut counts.too_short,
    };
    *count += 1;
    if verdict.action() == super::bpf::action::DROP {
        counts.dropped_bytes += verdict.payload_len as u64;
    }
    counts
}

/// Returns a model with a listener of each kind, and something of everything else.
fn model() -> Model {
    let endpoint = |address: &str, listener, answers, verifies, filters| Endpoint {
        address: address.parse().unwrap(),
        listener,
        answers,
        verifies,
        filters,
    };
    let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Model {
        steering: true,
        has_socket: true,
        endpoints: vec![
            endpoint("192.0.2.1:6969", 0, true, true, true),
            endpoint("[2001:db8::1]:6969", 1, true, true, true),
            endpoint("192.0.2.1:7000", 2, false, true, true),
            endpoint("[2001:db8::1]:7000", 3, false, true, true),
            endpoint("192.0.2.1:7001", 4, true, false, true),
            endpoint("[2001:db8::1]:7001", 5, true, false, true),
            endpoint("192.0.2.1:7002", 6, false, false, false),
            endpoint("[2001:db8::1]:7002", 15, false, false, false),
        ],
        passed: networks(&["10.0.0.0/8", "198.18.9.0/24", "fe80::/10", "2001:db8:9::/48"]),
        blocked: networks(&["198.18.66.0/25", "2001:db8:66::/48", "198.18.67.7"]),
        bans: [("198.18.77.0", "198.18.79.255"), ("198.18.88.1", "198.18.88.255")]
            .map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap()))
            .to_vec(),
        ids: Some(IdSlices { key: KEY, current: 7, accepts_next: false }),
        next_hops: NextHops::default(),
        vlans: vec![5, 4094],
    }
}
