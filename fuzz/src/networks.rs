//! Lists of networks: the parser against networks that are read one by one, and the table that is made of them.

use std::net::IpAddr;

use tracker::{IpPrefix, NetworkAction, NetworkTable, Networks};

/// Checks a list.
pub fn check(bytes: &[u8]) {
    let parsed = Networks::parse_list(bytes);
    if let Err(bad) = &parsed {
        let lines = bytes.split(|byte| *byte == b'\n').count();
        assert!((1..=lines).contains(&bad.line), "{bad}");
    }
    if let Some(expected) = plain(bytes) {
        assert_eq!(parsed.as_ref().ok(), Some(&expected));
    }
    let Ok(networks) = parsed else { return };
    let prefixes = networks.prefixes();
    assert_eq!(prefixes.iter().copied().collect::<Networks>(), networks);
    let others = networks.complement();
    let rules = [(NetworkAction::Deny, networks), (NetworkAction::Quiet, others)];
    let table = NetworkTable::new(rules.clone());
    for prefix in prefixes {
        assert_eq!(table.find(prefix.address()), Some(NetworkAction::Deny));
        let (first, _) = prefix.bounds();
        let before = first.wrapping_sub(1);
        let ip: IpAddr = match prefix.address() {
            IpAddr::V4(_) => (before as u32).to_be_bytes().into(),
            IpAddr::V6(_) => before.to_be_bytes().into(),
        };
        let [denied, quiet] = &rules;
        let expected = if denied.1.contains(ip) { denied.0 } else { quiet.0 };
        assert_eq!(table.find(ip), Some(expected), "{ip}");
    }
}

/// Returns the networks of a list that has only those of the plain form, one a line.
fn plain(bytes: &[u8]) -> Option<Networks> {
    let text = str::from_utf8(bytes).ok()?;
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| line.parse::<IpPrefix>().ok())
        .collect::<Option<Vec<_>>>()
        .map(Networks::from_iter)
}
