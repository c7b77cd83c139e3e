//! A small private torrent.

use anyhow::Result;
use sha1::{Digest, Sha1};
use std::fs;
use std::path::Path;

/// The name of the torrent's only file.
const NAME: &str = "payload.bin";
const BYTES: usize = 2 * 1024 * 1024;
const PIECE_BYTES: usize = 64 * 1024;

/// A torrent and its content.
pub(super) struct Torrent {
    payload: Vec<u8>,
    /// The torrent file's content.
    pub(super) file: Vec<u8>,
    /// Its v1 info hash.
    pub(super) info_hash: [u8; 20],
}

impl Torrent {
    /// Makes a private torrent (BEP 27: no DHT, no peer exchange) of 2 MiB with content from `seed`.
    pub(super) fn new(announce: &str, seed: u64) -> Self {
        let payload = noise(seed);
        let pieces: Vec<u8> = payload.chunks(PIECE_BYTES).flat_map(sha1).collect();
        let mut info = format!(
            "d6:lengthi{BYTES}e4:name{}:{NAME}12:piece lengthi{PIECE_BYTES}e6:pieces{}:",
            NAME.len(),
            pieces.len()
        )
        .into_bytes();
        info.extend(&pieces);
        info.extend(b"7:privatei1ee");
        let mut file = format!("d8:announce{}:{announce}4:info", announce.len()).into_bytes();
        file.extend(&info);
        file.push(b'e');
        Self { payload, file, info_hash: sha1(&info) }
    }

    /// Writes the content to a seeder's folder.
    pub(super) fn fill(&self, folder: &Path) -> Result<()> {
        Ok(fs::write(folder.join(NAME), &self.payload)?)
    }

    /// Returns whether a folder has the whole content.
    pub(super) fn is_complete(&self, folder: &Path) -> bool {
        fs::read(folder.join(NAME)).is_ok_and(|bytes| sha1(&bytes) == sha1(&self.payload))
    }

    /// Returns the info hash in hex.
    pub(super) fn info_hash_hex(&self) -> String {
        self.info_hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn sha1(bytes: &[u8]) -> [u8; 20] {
    Sha1::digest(bytes).into()
}

/// xorshift64, so that the content cannot be compressed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(BYTES / 8).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torrent_is_made_of_its_pieces() {
        let torrent = Torrent::new("udp://t/", 7);
        let text = String::from_utf8_lossy(&torrent.file);
        assert!(
            text.starts_with("d8:announce8:udp://t/4:infod6:lengthi2097152e4:name11:payload.bin")
        );
        assert!(text.ends_with("7:privatei1eee"));
        assert_eq!(torrent.payload.len(), BYTES);
        assert_eq!(torrent.info_hash_hex().len(), 40);
        assert_ne!(torrent.info_hash, Torrent::new("udp://t/", 8).info_hash);
    }
}
