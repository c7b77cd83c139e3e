//! Records of a large private tracker: lists, bans and passkeys, added by its management API.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::Result;
use primitives::Random;

use super::api::Api;
use crate::session::print_line;

const DENIED: u32 = 1_000_000;
const BANS: u32 = 100_000;
const BANS_AT_ONCE: u32 = 1000;
const KEYS: u32 = 10_000;

/// Adds a million denied torrents, 100,000 banned networks and 10,000 passkeys. Writes the passkeys to a file, one on
/// each line.
///
/// # Errors
///
/// Returns an error if the API refuses a request, or if the file cannot be written.
pub(crate) fn add_records(api: &mut Api, keys: &Path) -> Result<()> {
    let mut random = Random::new(1);
    api.ask(200, "POST /api/v1/lists/deny", &hash_lines(&mut random, DENIED))?;
    for _ in 0..BANS / BANS_AT_ONCE {
        let networks: Vec<String> = (0..BANS_AT_ONCE).map(|_| network(&mut random)).collect();
        let body = format!("{{\"networks\":[\"{}\"]}}", networks.join("\",\""));
        api.ask(200, "POST /api/v1/bans/bulk", &body)?;
    }
    let mut lines = String::new();
    for number in 0..KEYS {
        let key = format!("{number:08x}{:016x}{:08x}", random.next(), random.next() as u32);
        api.ask(201, "POST /api/v1/keys", &format!("{{\"key\":\"{key}\"}}"))?;
        let _ = writeln!(lines, "{key}");
    }
    fs::write(keys, lines)?;
    print_line(&format!("{DENIED} torrents denied, {BANS} networks banned, {KEYS} passkeys"));
    Ok(())
}

/// Returns `count` info hashes, one on each line.
fn hash_lines(random: &mut Random, count: u32) -> String {
    let mut text = String::with_capacity(count as usize * 41);
    for _ in 0..count {
        let (a, b, c) = (random.next(), random.next(), random.next() as u32);
        let _ = writeln!(text, "{a:016x}{b:016x}{c:08x}");
    }
    text
}

/// Returns a network like those of real lists: single addresses and small networks of both families. None contains
/// this machine.
fn network(random: &mut Random) -> String {
    let (address, kind) = (random.next(), random.next() as usize);
    if kind.is_multiple_of(2) {
        let bits = [32, 32, 24, 24, 22, 20][kind / 2 % 6];
        // 128.0.0.0 and above.
        format!("{}/{bits}", Ipv4Addr::from_bits(address as u32 | (1 << 31)))
    } else {
        let bits = [64, 64, 48, 56, 128, 32][kind / 2 % 6];
        let address = u128::from(address >> 3 | (1 << 61)) << 64;
        format!("{}/{bits}", Ipv6Addr::from_bits(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_torrents_and_banned_networks_are_well_formed() {
        let mut random = Random::new(1);
        let lines = hash_lines(&mut random, 3);
        assert!(lines.lines().all(|line| line.len() == 40) && lines.lines().count() == 3);
        for _ in 0..1000 {
            let network = network(&mut random);
            let (address, bits) = network.split_once('/').unwrap();
            let address: std::net::IpAddr = address.parse().unwrap();
            assert!(!address.is_loopback() && bits.parse::<u8>().unwrap() >= 20, "{network}");
        }
    }
}
