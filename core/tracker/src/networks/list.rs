//! Parser of lists of networks, in the forms in which such lists are published.

use std::io::BufRead;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use primitives::IpPrefix;
use types::limits::NETWORK_RANGES_MAX;

use super::Networks;
use crate::lines::{BadLine, read_lines, too_many};

/// The highest level of a range of a DAT list that programs block. Ranges with higher ones are exceptions.
const LEVEL_MAX: u32 = 127;

/// First and last address of a range.
type Bounds = (IpAddr, IpAddr);

const NO_NETWORK: &str = "expected a network such as 192.0.2.0/24, a range such as 192.0.2.1-192.0.2.9, or such a range \
     in the form of P2P or DAT lists";

pub(super) fn parse(text: impl BufRead) -> Result<Networks, BadLine> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    read_lines(text, |line| {
        match parse_line(line)? {
            None => return Ok(()),
            Some((IpAddr::V4(first), IpAddr::V4(last))) => v4.push((first.into(), last.into())),
            Some((IpAddr::V6(first), IpAddr::V6(last))) => v6.push((first.into(), last.into())),
            Some(_) => return Err(NO_NETWORK.into()),
        }
        if v4.len() + v6.len() > NETWORK_RANGES_MAX {
            return Err(too_many(NETWORK_RANGES_MAX));
        }
        Ok(())
    })?;
    Ok(Networks::from_ranges(v4, v6))
}

/// Returns the range of a line, or `None` if it has none.
fn parse_line(line: &[u8]) -> Result<Option<Bounds>, String> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") || line.starts_with(b";") {
        return Ok(None);
    }
    // Names may be of any encoding.
    let text = String::from_utf8_lossy(line);
    if let Some(bounds) = range(&text).or_else(|| p2p(&text)) {
        return Ok(Some(bounds));
    }
    let (networks, rest) = text.split_once(',').unwrap_or((&text, ""));
    if let (Some(bounds), Some(level)) = (range(networks), level(rest)) {
        return Ok(Some(bounds).filter(|_| level <= LEVEL_MAX));
    }
    let plain = text.split(['#', ';']).next().unwrap_or_default().trim();
    let bounds = range(plain).or_else(|| plain.parse().ok().map(bounds_of));
    bounds.map(Some).ok_or_else(|| NO_NETWORK.into())
}

/// Reads `name:192.0.2.1-192.0.2.9`. The name may contain colons and hyphens.
fn p2p(text: &str) -> Option<Bounds> {
    let (named, last) = text.rsplit_once('-')?;
    let last = address(last)?;
    let name_ends = named.match_indices(':').map(|(at, _)| at + 1);
    // The longest end that is an address: of an IPv6 address, shorter ends may be addresses, too.
    let mut firsts = name_ends.filter_map(|at| address(named.get(at..)?));
    let first = firsts.find(|first| is_range(first, &last))?;
    Some((first, last))
}

/// Reads `192.0.2.1-192.0.2.9`, with or without spaces.
fn range(text: &str) -> Option<Bounds> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (address(first)?, address(last)?);
    is_range(&first, &last).then_some((first, last))
}

fn is_range(first: &IpAddr, last: &IpAddr) -> bool {
    first.is_ipv4() == last.is_ipv4() && first <= last
}

/// Reads the level behind the range of a DAT list, which a comma or the end follows.
fn level(text: &str) -> Option<u32> {
    text.split(',').next()?.trim().parse().ok()
}

/// Reads an address. DAT lists fill the numbers of IPv4 addresses with zeros.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if let Ok(ip) = text.parse::<Ipv6Addr>() {
        return Some(IpAddr::V6(ip).to_canonical());
    }
    let mut bytes = [0; 4];
    let mut numbers = text.split('.');
    for byte in &mut bytes {
        let digits = numbers.next()?;
        if digits.len() > 3 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        *byte = digits.parse().ok()?;
    }
    numbers.next().is_none().then(|| Ipv4Addr::from(bytes).into())
}

fn bounds_of(network: IpPrefix) -> Bounds {
    let (first, last) = network.bounds();
    match network.address() {
        IpAddr::V4(_) => {
            let [first, last] = [first, last].map(|bits| Ipv4Addr::from_bits(bits as u32));
            (first.into(), last.into())
        }
        IpAddr::V6(_) => (Ipv6Addr::from_bits(first).into(), Ipv6Addr::from_bits(last).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        let networks = parse(text.as_bytes()).map_err(|error| error.to_string())?;
        let prefixes = networks.prefixes();
        Ok(prefixes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn reads_the_forms_of_published_lists() {
        for (line, expected) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("  192.0.2.7\r\n", "192.0.2.7/32"),
            ("2001:db8::/32 # a note", "2001:db8::/32"),
            ("192.0.2.0/24 ; SBL123", "192.0.2.0/24"),
            ("192.0.2.8-192.0.2.15", "192.0.2.8/29"),
            ("192.0.2.8 - 192.0.2.15 # two", "192.0.2.8/29"),
            ("2001:db8::-2001:db8::ff", "2001:db8::/120"),
            ("Bad, Inc. - #1:192.0.2.8-192.0.2.15", "192.0.2.8/29"),
            ("ACME: seeders:192.0.2.8-192.0.2.15", "192.0.2.8/29"),
            ("Bad v6:2001:db8::-2001:db8::ff", "2001:db8::/120"),
            (":192.0.2.8-192.0.2.15", "192.0.2.8/29"),
            ("192.000.002.008 - 192.000.002.015 , 100 , Bad - one", "192.0.2.8/29"),
            ("192.000.002.008 - 192.000.002.015,000,Bad", "192.0.2.8/29"),
            ("192.000.002.008 - 192.000.002.015 , 127", "192.0.2.8/29"),
            ("192.000.002.008 - 192.000.002.015 , 128 , allowed", ""),
            ("::ffff:192.0.2.8-::ffff:192.0.2.15", "192.0.2.8/29"),
            ("# 192.0.2.1", ""),
            ("; 192.0.2.1", ""),
            ("", ""),
        ] {
            assert_eq!(parsed(line).as_deref(), Ok(expected), "{line}");
        }
        let overlapping =
            "10.0.0.0/9\n10.64.0.0/10\n10.128.0.0-10.255.255.255\nx:10.0.0.7-10.0.0.9";
        assert_eq!(parsed(overlapping).as_deref(), Ok("10.0.0.0/8"));
        // In Latin-1, as old lists are.
        assert_eq!(parse(&b"Caf\xe9:192.0.2.8-192.0.2.15"[..]).unwrap().len(), 1);
    }

    #[test]
    fn half_a_list_is_an_error() {
        for bad in [
            "<!DOCTYPE html>",
            "192.0.2.1 192.0.2.2",
            "192.0.2.0/33",
            "192.0.2.256",
            "192.0.2.9-192.0.2.1",
            "192.0.2.1-2001:db8::1",
            "192.0.2.1-192.0.2.999",
            "name:192.0.2.9-192.0.2.1",
            "192.0.2.1 - 192.0.2.9 , high , name",
            "+1.2.3.4",
            "AS64500",
        ] {
            let error = parsed(&format!("192.0.2.0/24\n{bad}\n")).unwrap_err();
            assert!(error.starts_with("line 2: expected a network"), "{bad}: {error}");
        }
        let long = "#".repeat(2000);
        assert_eq!(parsed(&long).unwrap_err(), "line 1: longer than 1024 bytes");
    }
}
