//! What client software is called that shows itself by the beginning of its peer ids (BEP 20).

use tracker::counters::ClientPrefix;

/// The name of the software, and what stands for its version, if the prefix says so in the way that most
/// use: `-`, two characters for the software, four for the version, `-`.
pub(crate) fn name(prefix: &ClientPrefix) -> Option<(&'static str, &str)> {
    let [b'-', a, b, version @ .., b'-'] = prefix else { return None };
    let (_, name) = NAMES.iter().find(|(code, _)| *code == [*a, *b])?;
    Some((name, std::str::from_utf8(version).ok()?))
}

/// What BEP 20 lists and what is met today.
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
    fn names_by_their_codes() {
        assert_eq!(name(b"-qB5010-"), Some(("qBittorrent", "5010")));
        assert_eq!(name(b"-TR400Z-"), Some(("Transmission", "400Z")));
        for unknown in [b"-??5010-", b"M7-9-2--", b"-qB50100", b"xqB5010-"] {
            assert_eq!(name(unknown), None);
        }
    }
}
