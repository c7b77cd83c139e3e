//! Random frames against the model.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use primitives::Random;

use super::model::{Model, Outcome};
use super::{IdSlices, KEY, Program, model};
use crate::next_hops::NextHop;
use crate::test_frames::{MAGIC, frame_between, set_udp_checksum, tagged};

/// Sources next to and within the networks of the model, and those that no answer reaches.
const SPECIAL_V4: &str = "198.18.77.9 198.18.88.9 198.18.66.9 198.18.67.7 10.9.9.9 11.0.0.0 127.0.0.1 0.0.0.0 \
                          0.1.2.3 192.0.2.1 223.255.255.255 224.0.0.1 255.255.255.255";
const SPECIAL_V6: &str = ":: ::1 ::198.18.0.1 ::ffff:1.2.3.4 0:0:0:1:: ff02::1 fe80::1 febf::1 fec0::1 2001:db8::1 \
                          2001:db8:9::7 2001:db8:66::7";

/// Returns one of the items.
fn one_of<T: Copy>(random: &mut Random, items: &[T]) -> T {
    items[random.below(items.len() as u32) as usize]
}

/// Returns a frame that is often right, and else wrong in one or two places.
fn random_frame(random: &mut Random, model: &Model) -> Vec<u8> {
    let to = match random.below(8) {
        0 => SocketAddr::new(model.endpoints[0].address.ip(), random.next() as u16),
        1 => SocketAddr::new(random_ip(random, false), 6969),
        _ => one_of(random, &model.endpoints).address,
    };
    let source = random_ip(random, to.is_ipv6());
    let from = SocketAddr::new(source, random.next() as u16);
    let payload = random_payload(random, model, source);
    let mut frame = match (from.ip(), to.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
            frame_between(from, to, &payload)
        }
        _ => unreachable!("both are of the family of `to`"),
    };
    if random.below(10) == 0 {
        frame = tagged(&frame, one_of(random, &[5, 6, 0, 4094, 4095]));
    }
    match random.below(8) {
        0 => {
            frame.truncate((14 + random.below(frame.len() as u32)).min(frame.len() as u32) as usize)
        }
        1 => frame.extend((0..random.below(20)).map(|at| at as u8)),
        _ => {}
    }
    let udp_at = if to.is_ipv4() { 34 } else { 54 };
    if random.below(10) == 0 && frame.len() > udp_at + 8 {
        // The lengths of IP and UDP, with and without a tag.
        let at = one_of(random, &[16, 18, 20, 22, udp_at + 4]);
        let len: u16 = one_of(random, &[0, 7, 8, 19, 20, 23, 25, 27, 43, 45, 0x7fff, 0xffff]);
        frame[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
    // Bytes of headers; the rest of a frame counts as it is.
    for _ in 0..random.below(4).saturating_sub(2) + random.below(4) / 3 {
        let at = random.below((frame.len() as u32).min(80)) as usize;
        frame[at] = if random.below(2) == 0 { random.next() as u8 } else { frame[at] ^ 1 };
    }
    frame
}

fn random_ip(random: &mut Random, is_v6: bool) -> IpAddr {
    let form = random.below(3);
    let mut special = |list: &str| {
        let list: Vec<&str> = list.split_ascii_whitespace().collect();
        one_of(random, &list).parse().unwrap()
    };
    match (is_v6, form) {
        (false, 0) => special(SPECIAL_V4),
        (true, 0) => special(SPECIAL_V6),
        (false, 1) => Ipv4Addr::from_bits(random.next() as u32).into(),
        (false, _) => Ipv4Addr::new(198, 18, random.next() as u8, random.next() as u8).into(),
        (true, 1) => Ipv6Addr::from_bits(u128::from(random.next()) << 64 | 7).into(),
        (true, _) => {
            let bits = u128::from(random.next());
            Ipv6Addr::from_bits(0x2001_0db8 << 96 | (bits & 0x7f) << 80 | bits).into()
        }
    }
}

fn random_payload(random: &mut Random, model: &Model, source: IpAddr) -> Vec<u8> {
    let current = model.ids.unwrap().current;
    let id = match random.below(4) {
        0 => MAGIC,
        1 => random.next(),
        _ => model.id(current + 2 - random.below(5).min(current + 2), source),
    };
    let action = one_of(random, &[0, 0, 1, 1, 2, 3, 0x0100_0000]);
    let mut payload = [&id.to_be_bytes()[..], &u32::to_be_bytes(action)].concat();
    payload.extend(random.next().to_le_bytes());
    let (shorter, longer) = (random.below(16), 16 + random.below(80));
    payload.resize(one_of(random, &[16, 16, 16, 98, shorter, longer, 1472, 1473]) as usize, 7);
    payload
}

#[test]
fn program_does_what_the_model_says() {
    const FRAMES: u32 = 100_000;
    let Some(mut program) = Program::load(model()) else { return };
    let mut random = Random::new(16);
    let mut outcomes: BTreeMap<Outcome, u32> = BTreeMap::new();
    for round in 0..FRAMES {
        if round % 1000 == 0 {
            shake(&mut random, &mut program.model);
            program.apply();
        }
        let mut frame = random_frame(&mut random, &program.model);
        if random.below(4) == 0 && frame.len() > 70 && frame[12] == 8 && frame[14] == 0x45 {
            set_udp_checksum(&mut frame[14..]);
        }
        *outcomes.entry(program.compare(&frame).outcome).or_default() += 1;
    }
    assert_eq!(outcomes.len(), 9, "{outcomes:?}");
    assert!(outcomes.values().all(|count| *count > FRAMES / 1000), "{outcomes:?}");
}

/// Changes what may change while the program runs.
fn shake(random: &mut Random, model: &mut Model) {
    let all = super::model();
    let mac = [2, 4, 6, 8, 10, 12];
    let mut hop = || {
        one_of(random, &[NextHop::Swap, NextHop::Swap, NextHop::Always(mac), NextHop::OffLink(mac)])
    };
    (model.next_hops.v4, model.next_hops.v6) = (hop(), hop());
    if random.below(8) == 0 {
        model.next_hops.v4 = NextHop::Unknown;
    }
    model.steering = random.below(4) > 0;
    let mut is_kept = || random.below(4) > 0;
    (model.blocked, model.passed, model.bans) = (all.blocked, all.passed, all.bans);
    model.blocked.retain(|_| is_kept());
    model.passed.retain(|_| is_kept());
    model.bans.retain(|_| is_kept());
    let mut ends = [0; 2].map(|_| Ipv4Addr::from_bits(0xc612_0000 | random.next() as u16 as u32));
    ends.sort_unstable();
    if random.below(4) == 0 {
        model.bans.push(ends.into());
    }
    model.next_hops.on_link =
        vec!["198.18.0.0/17".parse().unwrap(), "2001:db8::/34".parse().unwrap()];
    let current = 1 + random.below(1000);
    model.ids = Some(IdSlices { key: KEY, current, accepts_next: random.below(2) == 0 });
}
