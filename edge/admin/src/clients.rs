//! Client software, recognised by the prefix of its peer ids (BEP 20).

use std::collections::BTreeMap;

use tracker::counters::{ClientPrefix, Clients, Counters, Listener};

/// Returns the software's name and version characters, if the prefix has the common (Azureus) form: `-`,
/// two characters for the software, four for the version, `-`.
pub(crate) fn name(prefix: &ClientPrefix) -> Option<(&'static str, &str)> {
    let [b'-', a, b, version @ .., b'-'] = prefix else { return None };
    let (_, name) = NAMES.iter().find(|(code, _)| *code == [*a, *b])?;
    Some((name, std::str::from_utf8(version).ok()?))
}

/// Returns how many of the latest samples each software has, over all versions. Unknown software counts as
/// `other`.
pub(crate) fn samples_by_name(listeners: &[(Listener, Counters)]) -> BTreeMap<&'static str, u64> {
    let mut all = Clients::default();
    listeners.iter().for_each(|(_, counters)| all.add(&counters.clients));
    let mut names = BTreeMap::from([("other", u64::from(all.others()))]);
    for (prefix, count) in all.counts() {
        let name = name(prefix).map_or("other", |(name, _)| name);
        *names.entry(name).or_default() += u64::from(*count);
    }
    names
}

/// Software listed in BEP 20, and other software in use today.
const NAMES: &[([u8; 2], &str)] = &[
    (*b"7T", "aTorrent"),
    (*b"A2", "aria2"),
    (*b"AG", "Ares"),
    (*b"AZ", "Vuze"),
    (*b"BC", "BitComet"),
    (*b"BI", "BiglyBT"),
    (*b"BT", "BitTorrent"),
    (*b"DE", "Deluge"),
    (*b"FD", "Free Download Manager"),
    (*b"FW", "FrostWire"),
    (*b"KG", "KGet"),
    (*b"KT", "KTorrent"),
    (*b"LT", "libtorrent"),
    (*b"lt", "rTorrent"),
    (*b"MO", "MonoTorrent"),
    (*b"PI", "PicoTorrent"),
    (*b"qB", "qBittorrent"),
    (*b"SD", "Thunder"),
    (*b"TR", "Transmission"),
    (*b"UM", "uTorrent for Mac"),
    (*b"UT", "uTorrent"),
    (*b"UW", "uTorrent Web"),
    (*b"WD", "WebTorrent Desktop"),
    (*b"WW", "WebTorrent"),
    (*b"XL", "Xunlei"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_names_by_their_codes() {
        assert_eq!(name(b"-qB5010-"), Some(("qBittorrent", "5010")));
        assert_eq!(name(b"-TR400Z-"), Some(("Transmission", "400Z")));
        for unknown in [b"-??5010-", b"M7-9-2--", b"-qB50100", b"xqB5010-"] {
            assert_eq!(name(unknown), None);
        }
    }
}
