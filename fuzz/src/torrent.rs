//! Torrent files and magnet links. A strict file has the hashes of its re-encoded `info`, and a magnet
//! link made from any torrent describes the same torrent.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use client::Torrent;
use client::codec::bencode::{Value, parse};
use types::InfoHash;

/// Checks `bytes` as a file and, if they are text, as a magnet link.
pub fn check(bytes: &[u8]) {
    match Torrent::from_bytes(bytes) {
        Ok(torrent) => {
            check_hashes(bytes, &torrent);
            check_torrent(&torrent);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Torrent::read(&format!("magnet:{text}")) {
        Ok(torrent) => check_torrent(&torrent),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The hashes of a strictly encoded file are those of its `info`, encoded again.
fn check_hashes(bytes: &[u8], torrent: &Torrent) {
    let Ok(whole) = parse(bytes) else { return };
    let info = whole.at("info").unwrap();
    let mut text = Vec::new();
    super::write(&mut text, info);
    let mut expected = Vec::new();
    if info.at("pieces").is_some() {
        expected.push(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text).as_ref().to_vec());
    }
    if info.at("file tree").is_some() && info.at("meta version") == Some(&Value::Int(2)) {
        expected.push(digest(&SHA256, &text).as_ref()[..20].to_vec());
    }
    let found: Vec<_> = torrent.hashes.iter().map(|hash| hash.0.to_vec()).collect();
    assert_eq!(found, expected);
}

/// A magnet link of the torrent has the same hashes, name, length and trackers.
fn check_torrent(torrent: &Torrent) {
    assert!(!torrent.hashes.is_empty());
    for (at, url) in torrent.trackers.iter().enumerate() {
        assert!(!url.is_empty() && url.trim() == url && !torrent.trackers[..at].contains(url));
    }
    let mut link = String::from("magnet:?");
    torrent.hashes.iter().for_each(|hash: &InfoHash| link += &format!("xt=urn:btih:{hash}&"));
    torrent.trackers.iter().for_each(|url| link += &format!("tr={}&", encoded(url)));
    if let Some(name) = &torrent.name {
        link += &format!("dn={}&", encoded(name));
    }
    if let Some(length) = torrent.length {
        link += &format!("xl={length}");
    }
    assert_eq!(Torrent::read(&link).as_ref(), Ok(torrent), "{link}");
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
