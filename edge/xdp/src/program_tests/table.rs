//! Frames whose outcome is known without the model: these tests check the model, too. Random frames find the rest.

use std::net::IpAddr;

use super::model::Outcome;
use super::model::Outcome::{BadId, Banned, Blocked, Connect, Passed, Steered, TooShort};
use super::{Program, model};
use crate::maps::NextHop;
use crate::test_frames::{
    CLIENT_MAC, SERVER_MAC, announce, connect, connect_payload, frame, naive_checksum, udp_checksum,
};

const V4: &str = "192.0.2.1:6969";
const V6: &str = "[2001:db8::1]:6969";
const CLIENT_V4: &str = "198.18.0.1:4096";
const CLIENT_V6: &str = "[2001:db8:1::2]:4096";
/// The client and the server of each family.
const PAIRS: [(&str, &str); 2] = [(CLIENT_V4, V4), (CLIENT_V6, V6)];

/// Offsets in an untagged frame.
const IP: usize = 14;

fn check(program: &Program, frame: &[u8], expected: Outcome, what: &str) {
    let verdict = program.compare(frame);
    assert_eq!(verdict.outcome, expected, "{what}: {frame:02x?}");
}

fn ip(text: &str) -> IpAddr {
    text.parse::<std::net::SocketAddr>().unwrap().ip()
}

/// Returns the offset of the UDP header.
fn udp(server: &str) -> usize {
    IP + if server == V4 { 20 } else { 40 }
}

#[test]
fn connects_are_answered() {
    let Some(program) = Program::load("connects_are_answered", model()) else { return };
    for (client, server) in PAIRS {
        let verdict = program.compare(&connect(client, server));
        assert_eq!(verdict.outcome, Connect);
        let reply = program.run(&connect(client, server)).frame;
        assert_eq!((&reply[..6], &reply[6..12]), (&CLIENT_MAC[..], &SERVER_MAC[..]));
        let id = program.model.id(7, ip(client)).to_be_bytes();
        let payload = [&[0; 4], &[1, 2, 3, 4][..], &id].concat();
        assert_eq!(&reply[udp(server) + 8..], payload);
        assert_eq!(udp_checksum(&reply[IP..]), 0);
        if server == V4 {
            assert_eq!(naive_checksum(&reply[IP..IP + 20]), 0);
            assert_eq!(reply[IP..IP + 10], [0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 17]);
        } else {
            assert_eq!(reply[IP..IP + 8], [0x60, 0, 0, 0, 0, 24, 17, 64]);
        }
        // Bytes behind the packet stay as they are.
        let padded = [connect(client, server), vec![0xaa; 2]].concat();
        check(&program, &padded, Connect, "padding");
    }
}

#[test]
fn ids_are_verified() {
    let Some(mut program) = Program::load("ids_are_verified", model()) else { return };
    for accepts_next in [false, true, false] {
        program.model.ids = Some(super::IdSlots { key: super::KEY, current: 7, accepts_next });
        program.apply();
        for (client, server) in PAIRS {
            let id = |slice| program.model.id(slice, ip(client));
            let expect = |slice: u32| match slice {
                6 | 7 => Steered,
                8 if accepts_next => Steered,
                _ => BadId,
            };
            for slice in 0..12 {
                let frame = announce(client, server, id(slice));
                check(&program, &frame, expect(slice), &format!("the id of slice {slice}"));
            }
        }
    }
    let other = announce("198.18.0.2:4096", V4, program.model.id(7, ip(CLIENT_V4)));
    check(&program, &other, BadId, "the id of another address");
}

#[test]
fn the_first_slice_has_none_before_it() {
    let mut model = model();
    model.ids = None;
    let Some(mut program) = Program::load("the_first_slice_has_none_before_it", model) else {
        return;
    };
    for (client, server) in PAIRS {
        check(&program, &connect(client, server), Steered, "a connect without keys");
        check(&program, &announce(client, server, 1), Steered, "an announce without keys");
    }
    program.model.ids = Some(super::IdSlots { key: super::KEY, current: 1, accepts_next: true });
    program.apply();
    for (client, server) in PAIRS {
        for (slice, expected) in [(0, BadId), (1, Steered), (2, Steered), (u32::MAX, BadId)] {
            let id = program.model.id(slice, ip(client));
            check(&program, &announce(client, server, id), expected, &format!("slice {slice}"));
        }
    }
}

#[test]
fn listeners_differ() {
    let Some(program) = Program::load("listeners_differ", model()) else { return };
    for (client, server, banned) in [
        (CLIENT_V4, "192.0.2.1", "198.18.77.1:9"),
        (CLIENT_V6, "[2001:db8::1]", "[2001:db8:66::1]:9"),
    ] {
        let at = |port: u16| format!("{server}:{port}");
        let is_v4 = client == CLIENT_V4;
        let good = program.model.id(7, ip(client));
        let dropped = if is_v4 { Banned } else { Blocked };
        for (port, connects, bad, short, from_banned) in [
            (7000, Steered, BadId, TooShort, dropped),
            (7001, Connect, Steered, Steered, dropped),
            (7002, Steered, Steered, Steered, Steered),
        ] {
            let to = at(port);
            check(&program, &connect(client, &to), connects, "a connect");
            check(&program, &announce(client, &to, good), Steered, "an announce");
            check(&program, &announce(client, &to, good ^ 1), bad, "a bad id");
            check(&program, &frame(client, &to, &[1; 15]), short, "a short one");
            let id = program.model.id(7, ip(banned));
            check(&program, &announce(banned, &to, id), from_banned, "a banned source");
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
    let Some(mut program) = Program::load("lists_are_full_without_fault", model) else { return };
    for at in 0..34 {
        program.compare(&connect(&format!("198.18.{at}.7:9"), "192.0.2.64:6969"));
        program.compare(&connect(&format!("198.18.1{at:02}.7:9"), "192.0.2.64:6969"));
        program.compare(&connect(&format!("[2001:db8:{at:x}::7]:9"), "[2001:db8::20]:6969"));
        program.compare(&connect(&format!("[2001:db8:1{at:02x}::7]:9"), "[2001:db8::20]:6969"));
    }
    let too_many = [program.model.endpoints.clone(), program.model.endpoints.clone()].concat();
    assert_eq!(program.maps.set_endpoints(&too_many), 96);
}

#[test]
fn replies_go_to_the_next_hop() {
    let gateway = [2, 9, 8, 7, 6, 5];
    let Some(mut program) = Program::load("replies_go_to_the_next_hop", model()) else { return };
    program.model.next_hops.on_link =
        vec!["198.18.0.0/24".parse().unwrap(), "2001:db8:1::/64".parse().unwrap()];
    for next_hop in [NextHop::Always(gateway), NextHop::OffLink(gateway), NextHop::Swap] {
        (program.model.next_hops.v4, program.model.next_hops.v6) = (next_hop, next_hop);
        program.apply();
        for (client, server, is_on_link) in [
            (CLIENT_V4, V4, true),
            (CLIENT_V6, V6, true),
            ("198.18.1.1:9", V4, false),
            ("[2001:db8:2::1]:9", V6, false),
        ] {
            let frame = connect(client, server);
            check(&program, &frame, Connect, client);
            let expected = match next_hop {
                NextHop::Always(mac) => mac,
                NextHop::OffLink(mac) if !is_on_link => mac,
                _ => CLIENT_MAC,
            };
            let reply = program.run(&frame).frame;
            assert_eq!((&reply[..6], &reply[6..12]), (&expected[..], &SERVER_MAC[..]));
        }
    }
    program.model.next_hops.v4 = NextHop::Unknown;
    program.apply();
    let id = program.model.id(7, ip(CLIENT_V4));
    check(&program, &connect(CLIENT_V4, V4), Passed, "a connect, no next hop over IPv4");
    check(&program, &announce(CLIENT_V4, V4, id), Passed, "an announce, no next hop over IPv4");
    check(&program, &connect(CLIENT_V6, V6), Connect, "a next hop over IPv6");
}

#[test]
fn without_sockets_datagrams_are_passed() {
    for (steering, has_socket) in [(false, true), (true, false)] {
        let model = super::Model { steering, has_socket, ..model() };
        let Some(program) = Program::load("without_sockets_datagrams_are_passed", model) else {
            return;
        };
        for (client, server) in PAIRS {
            let id = program.model.id(7, ip(client));
            check(&program, &announce(client, server, id), Passed, "an announce");
            check(&program, &announce(client, server, id ^ 1), BadId, "a bad id");
            check(&program, &connect(client, server), Connect, "a connect");
        }
    }
}

/// Checksums whose sums have many carries, or come out as zero.
#[test]
fn checksums_are_right_for_any_numbers() {
    let Some(program) = Program::load("checksums_are_right_for_any_numbers", model()) else {
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
