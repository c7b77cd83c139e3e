//! Lists of all torrents: the full scrape (BEP 48), and the forms that opentracker has for it.

use types::{InfoHash, SwarmCounts};

use super::reply::scraped_counts;
use crate::bencode::append_decimal;

/// The form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorrentList {
    /// The response to a scrape (BEP 48). Torrents must be sorted and distinct.
    Bencoded,
    /// `HASH:seeders:leechers` in lines, the hash in upper-case hex.
    Text,
    /// `HASH:seeders:leechers:downloads` in lines.
    TextWithDownloads,
    /// Like `Text`, with the hash percent-encoded.
    PercentEncoded,
    /// 20 bytes of the hash, then seeders and leechers as 32-bit numbers in network order.
    Binary,
    /// `HASH:minutes:downloads` in lines, which opentracker reads when it starts.
    State {
        /// Minutes of unix time.
        minutes: u64,
    },
}

impl TorrentList {
    /// Appends what stands before the first torrent.
    //= bep48#full-scrape
    pub fn begin(self, out: &mut Vec<u8>) {
        if self == Self::Bencoded {
            out.extend_from_slice(b"d5:filesd");
        }
    }

    /// Appends a torrent.
    pub fn torrent(self, out: &mut Vec<u8>, info_hash: &InfoHash, counts: &SwarmCounts) {
        let (seeders, leechers) = (counts.seeders(), counts.leechers());
        match self {
            Self::Bencoded => {
                out.extend_from_slice(b"20:");
                out.extend_from_slice(&info_hash.0);
                scraped_counts(out, counts);
            }
            Self::Text => line(out, info_hash, &[seeders.into(), leechers.into()]),
            Self::TextWithDownloads => {
                line(out, info_hash, &[seeders.into(), leechers.into(), counts.downloads.into()]);
            }
            Self::PercentEncoded => {
                for byte in info_hash.0 {
                    match byte {
                        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' => {
                            out.push(byte)
                        }
                        _ => out.extend([b'%', upper_hex(byte >> 4), upper_hex(byte)]),
                    }
                }
                numbers(out, &[seeders.into(), leechers.into()]);
            }
            Self::Binary => {
                out.extend_from_slice(&info_hash.0);
                out.extend_from_slice(&seeders.to_be_bytes());
                out.extend_from_slice(&leechers.to_be_bytes());
            }
            Self::State { minutes } => line(out, info_hash, &[minutes, counts.downloads.into()]),
        }
    }

    /// Appends what stands behind the last torrent.
    pub fn end(self, out: &mut Vec<u8>) {
        if self == Self::Bencoded {
            out.extend_from_slice(b"ee");
        }
    }
}

fn line(out: &mut Vec<u8>, info_hash: &InfoHash, values: &[u64]) {
    out.extend(info_hash.0.iter().flat_map(|byte| [upper_hex(byte >> 4), upper_hex(*byte)]));
    numbers(out, values);
}

fn numbers(out: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        out.push(b':');
        append_decimal(out, *value);
    }
    out.push(b'\n');
}

/// Returns the digit of the lower four bits.
fn upper_hex(byte: u8) -> u8 {
    match byte & 15 {
        digit @ 0..=9 => b'0' + digit,
        digit => b'A' + (digit - 10),
    }
}

#[cfg(test)]
mod tests {
    use types::FamilyCounts;

    use super::*;

    fn written(list: TorrentList, hashes: &[InfoHash]) -> Vec<u8> {
        let v4 = FamilyCounts { seeders: 12, leechers: 3 };
        let counts = SwarmCounts { v4, downloads: 45, ..SwarmCounts::default() };
        let mut out = Vec::new();
        list.begin(&mut out);
        hashes.iter().for_each(|hash| list.torrent(&mut out, hash, &counts));
        list.end(&mut out);
        out
    }

    //= bep48#full-scrape
    //= type=test
    #[test]
    fn full_scrape_is_the_response_to_a_scrape_of_all() {
        assert_eq!(written(TorrentList::Bencoded, &[]), b"d5:filesdee");
        let body = written(TorrentList::Bencoded, &[InfoHash([1; 20]), InfoHash([200; 20])]);
        let counts = b"d8:completei12e10:downloadedi45e11:downloadersi3e10:incompletei3ee";
        let files = [b"20:", &[1; 20][..], counts, b"20:", &[200; 20], counts].concat();
        assert_eq!(body, [b"d5:filesd".as_slice(), &files, b"ee"].concat());
    }

    #[test]
    fn forms_are_those_of_opentracker() {
        let mut hash = *b"abcdefghij-._~ ABCD\xff";
        hash[18] = 0;
        let hash = InfoHash(hash);
        let hex = "6162636465666768696A2D2E5F7E2041424300FF";
        let text = |list| String::from_utf8(written(list, &[hash])).unwrap();
        assert_eq!(text(TorrentList::Text), format!("{hex}:12:3\n"));
        assert_eq!(text(TorrentList::TextWithDownloads), format!("{hex}:12:3:45\n"));
        assert_eq!(text(TorrentList::PercentEncoded), "abcdefghij-._%7E%20ABC%00%FF:12:3\n");
        assert_eq!(text(TorrentList::State { minutes: 678 }), format!("{hex}:678:45\n"));
        let binary = written(TorrentList::Binary, &[hash, hash]);
        assert_eq!((binary.len(), &binary[..20]), (56, hash.0.as_slice()));
        assert_eq!(binary[20..28], [0, 0, 0, 12, 0, 0, 0, 3]);
    }
}
