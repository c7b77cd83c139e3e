//! Hashes computed with Python's hashlib, and invalid files and links.

use super::*;

const V1: &[u8] = b"d6:lengthi7e4:name1:a12:piece lengthi16384e6:pieces20:xxxxxxxxxxxxxxxxxxxxe";
const V1_HASH: &str = "786d78acfede10bfa09f7608143044c48f63b14e";

/// Two files, of 3 and 4 bytes.
const TREE: &str = "9:file treed1:dd1:ad0:d6:lengthi3e11:pieces root32:rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrree\
                    1:bd0:d6:lengthi4e11:pieces root32:sssssssssssssssssssssssssssssssseeee";
const V2_HASH: &str = "2aed0e42e1c951e86f335010f0497ce8e7daf0f0";
const HYBRID_HASHES: [&str; 2] =
    ["7ec7b60ff3bd0c2866d91edbcfa4ef6d6b8ca0e0", "bb3600492eca41d802572f8de2aa9a8e5f812246"];
/// The hash of magnet links.
const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

fn file(info: &[u8], before: &str) -> Result<Torrent, TorrentError> {
    Torrent::from_bytes(&[b"d", before.as_bytes(), b"4:info", info, b"e"].concat())
}

fn hashes(torrent: &Torrent) -> Vec<String> {
    torrent.hashes.iter().map(InfoHash::to_string).collect()
}

#[test]
fn v1_torrent_has_the_sha1_of_its_info() {
    let torrent = file(V1, "8:announce9:udp://t:1").unwrap();
    assert_eq!(hashes(&torrent), [V1_HASH]);
    assert_eq!((torrent.name.as_deref(), torrent.length), (Some("a"), Some(7)));
    assert_eq!(torrent.trackers, ["udp://t:1"]);
}

#[test]
fn v2_torrent_has_a_sha256_and_a_hybrid_both() {
    let info = format!("d{TREE}12:meta versioni2e4:name1:d12:piece lengthi16384ee");
    let torrent = file(info.as_bytes(), "").unwrap();
    assert_eq!((hashes(&torrent), torrent.length), (vec![V2_HASH.into()], Some(7)));
    let files = "5:filesld6:lengthi3e4:pathl1:aeed6:lengthi4e4:pathl1:beee";
    let pieces = "6:pieces20:xxxxxxxxxxxxxxxxxxxx";
    let info = format!("d{TREE}{files}12:meta versioni2e4:name1:d12:piece lengthi16384e{pieces}e");
    let torrent = file(info.as_bytes(), "").unwrap();
    assert_eq!(
        (hashes(&torrent), torrent.length),
        (HYBRID_HASHES.map(String::from).into(), Some(7))
    );
}

#[test]
fn lists_trackers_of_all_tiers_once() {
    let lists = "8:announce6:ws://a13:announce-listll6:ws://b6:ws://ael7:ws://c e0:i1ee";
    assert_eq!(file(V1, lists).unwrap().trackers, ["ws://a", "ws://b", "ws://c"]);
    assert_eq!(file(V1, "13:announce-list3:abc").unwrap().trackers, [""; 0]);
}

#[test]
fn accepts_bencoding_that_is_not_strict() {
    let info = b"d4:name1:a6:lengthi7e12:piece lengthi16384e6:pieces20:xxxxxxxxxxxxxxxxxxxxe";
    let bytes = [b"d4:info", info.as_slice(), b"8:announce6:ws://ae\n"].concat();
    let torrent = Torrent::from_bytes(&bytes).unwrap();
    let expected = truncated(digest(&SHA1_FOR_LEGACY_USE_ONLY, info).as_ref());
    assert_eq!(Some(torrent.hashes[0]), expected);
    assert_ne!(hashes(&torrent), [V1_HASH]);
}

#[test]
fn names_what_is_wrong_with_a_file() {
    for (bytes, why) in [
        (b"".as_slice(), "byte 0: unexpected end of data"),
        (b"<html>", "byte 0: no value starts with this byte"),
        (b"le", "no value starts with this byte"),
        (b"de", "missing `info`"),
        (b"d4:info0:e", "`info` has neither `pieces`"),
        (b"d4:infod9:file treedeee", "`info` has neither `pieces`"),
        (b"d4:infod9:file treede12:meta versioni3eee", "`info` has neither `pieces`"),
    ] {
        let error = Torrent::from_bytes(bytes).unwrap_err().to_string();
        assert!(error.starts_with("not a torrent: ") && error.contains(why), "{error}");
    }
    // A deep tree is an error, not a stack overflow.
    let deep = [b"d4:info".as_slice(), &b"d1:a".repeat(10_000)].concat();
    assert!(Torrent::from_bytes(&deep).unwrap_err().to_string().contains("nested too deep"));
}

#[test]
fn impossible_lengths_are_unknown() {
    let info = |length: &str| format!("d6:length{length}6:pieces0:e");
    let length = |text: &str| file(info(text).as_bytes(), "").unwrap().length;
    assert_eq!((length("i5e"), length("i-5e"), length("1:5")), (Some(5), None, None));
    let most = i64::MAX;
    let files =
        format!("d5:filesld6:lengthi{most}eed6:lengthi{most}eed6:lengthi{most}eee6:pieces0:e");
    assert_eq!(file(files.as_bytes(), "").unwrap().length, None);
}

#[test]
fn reads_magnet_links() {
    let base32 = "AERUKZ4JVPG66AJDIVTYTK6N54ASGRLH";
    let v2 = "1220".to_owned() + HASH + &"f".repeat(24);
    for topic in [
        format!("xt=urn:btih:{HASH}"),
        format!("xt=urn%3Abtih%3A{}", HASH.to_uppercase()),
        format!("xt=urn:btih:{base32}"),
        format!("xt.1=urn:btih:{}", base32.to_lowercase()),
        format!("xt=urn:sha1:x&xt=urn:btmh:{v2}"),
    ] {
        let link = format!("magnet:?{topic}&dn=a%20b+c&xl=7&tr=udp%3A%2F%2Ft%3A1&tr.2=ws://b&x=y");
        let torrent = Torrent::read(&link).unwrap();
        assert_eq!(hashes(&torrent), [HASH], "{link}");
        assert_eq!((torrent.name.as_deref(), torrent.length), (Some("a b c"), Some(7)));
        assert_eq!(torrent.trackers, ["udp://t:1", "ws://b"]);
    }
    let both = format!("magnet:?xt=urn:btih:{V1_HASH}&xt=urn:btmh:{v2}");
    assert_eq!(hashes(&Torrent::read(&both).unwrap()), [V1_HASH, HASH]);
}

#[test]
fn names_what_is_wrong_with_a_magnet_link() {
    let short = &HASH[1..];
    for (link, why) in [
        ("magnet:".to_owned(), "expected `?`"),
        ("magnet:?dn=a".into(), "no info hash"),
        (
            format!("magnet:?xt=urn:btih:{short}"),
            "expected 40 hex digits or 32 base32 digits, found 39",
        ),
        (format!("magnet:?xt=urn:btih:{short}x"), "not a hex digit"),
        ("magnet:?xt=urn:btih:AERUKZ4JVPG66AJDIVTYTK6N54ASGRL1".into(), "invalid base32"),
        ("magnet:?xt=urn:btmh:1114ab".into(), "begins with 1220"),
        (format!("magnet:?xt=urn:btmh:1220{HASH}"), "expected 64 hex digits after 1220, found 40"),
        (format!("magnet:?xt=urn:btih:{HASH}&tr=%zz"), "invalid percent-encoding"),
        (format!("magnet:?xt=urn:btih:{HASH}&tr=%f"), "invalid percent-encoding"),
        (format!("magnet:?xt=urn:btih:{HASH}&dn=%ff"), "not UTF-8"),
    ] {
        let error = Torrent::read(&link).unwrap_err().to_string();
        assert!(error.starts_with("magnet:") && error.contains(why), "{error}");
    }
}

#[test]
fn reads_hashes_and_rejects_other_texts() {
    assert_eq!(hashes(&Torrent::read(HASH).unwrap()), [HASH]);
    assert_eq!(hashes(&Torrent::read(&(HASH.to_owned() + &"0".repeat(24))).unwrap()), [HASH]);
    for bad in [&HASH[1..], "", "no-such-file.torrent"] {
        let error = Torrent::read(bad).unwrap_err().to_string();
        assert!(error.contains("expected a magnet link, an existing file"), "{error}");
    }
    let folder = Torrent::read(env!("CARGO_MANIFEST_DIR")).unwrap_err().to_string();
    assert!(folder.contains("cannot read the file"), "{folder}");
}
