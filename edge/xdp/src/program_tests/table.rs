//! Frames whose outcome is known without the model: these tests check the model, too. Random frames find the rest.

use super::model::Outcome;
use super::{Program, model};
use crate::test_frames::{announce, connect, connect_payload, frame};

const V4: &str = "192.0.2.1:6969";
const V6: &str = "[2001:db8::1]:6969";
const CLIENT_V4: &str = "198.18.0.1:4096";
const CLIENT_V6: &str = "[2001:db8:1::2]:4096";
/// The client and the server of each family.
const PAIRS: [(&str, &str); 2] = [(CLIENT_V4, V4), (CLIENT_V6, V6)];

/// Offsets in an untagged frame.
const IP: usize = 14;

/// Returns the offset of the UDP header.
fn udp(server: &str) -> usize {
    IP + if server == V4 { 20 } else { 40 }
}

#[test]
fn without_keys_nothing_is_verified_and_without_sockets_nothing_is_steered() {
    for (has_socket, expected) in [(true, Outcome::Steered), (false, Outcome::Passed)] {
        let model = super::Model { ids: None, has_socket, ..model() };
        let Some(program) = Program::load(model) else { return };
        for (client, server) in PAIRS {
            for frame in [connect(client, server), announce(client, server, 1)] {
                assert_eq!(program.compare(&frame).outcome, expected);
            }
        }
    }
}

#[test]
fn lists_are_full_without_fault() {
    let mut model = model();
    let endpoint = model.endpoints[0];
    let host = |at: usize| format!("192.0.2.{at}:6969").parse().unwrap();
    model.endpoints =
        (1..=64).map(|at| super::Endpoint { address: host(at), ..endpoint }).collect();
    let host = |at: usize| format!("[2001:db8::{at:x}]:6969").parse().unwrap();
    model.endpoints.extend((1..=32).map(|at| super::Endpoint { address: host(at), ..endpoint }));
    model.passed = (0..32).map(|at| format!("198.18.{at}.0/24").parse().unwrap()).collect();
    let network = |text: String| text.parse::<super::IpPrefix>().unwrap();
    model.passed.extend((1..=16).map(|at| network(format!("2001:db8:{at:x}::/48"))));
    model.blocked = (0..32).map(|at| format!("198.18.1{at:02}.7").parse().unwrap()).collect();
    model.blocked.extend((1..=32).map(|at| network(format!("2001:db8:1{at:02x}::/48"))));
    let Some(mut program) = Program::load(model) else { return };
    for at in 0..34 {
        program.compare(&connect(&format!("198.18.{at}.7:9"), "192.0.2.64:6969"));
        program.compare(&connect(&format!("198.18.1{at:02}.7:9"), "192.0.2.64:6969"));
        program.compare(&connect(&format!("[2001:db8:{at:x}::7]:9"), "[2001:db8::20]:6969"));
        program.compare(&connect(&format!("[2001:db8:1{at:02x}::7]:9"), "[2001:db8::20]:6969"));
    }
    let too_many = [program.model.endpoints.clone(), program.model.endpoints.clone()].concat();
    assert_eq!(program.maps.set_endpoints(&too_many), 96);
}

/// Checksums whose sums have many carries, or come out as zero.
#[test]
fn checksums_are_right_for_any_numbers() {
    let Some(program) = Program::load(model()) else {
        return;
    };
    for (client, server) in PAIRS {
        let reply = |transaction_id: u32| {
            let frame = frame(client, server, &connect_payload(transaction_id));
            let reply = program.compare(&frame).frame;
            u16::from_be_bytes([reply[udp(server) + 6], reply[udp(server) + 7]])
        };
        for transaction_id in (0..=u16::MAX).step_by(71) {
            reply(transaction_id.into());
            reply(u32::from(transaction_id) << 16 | 0xffff);
        }
        // A number that makes the sum all ones: its complement is 0, which would mean "none".
        assert_eq!(reply(reply(0).into()), 0xffff);
    }
}
