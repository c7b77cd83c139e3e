//! A small private torrent.

use anyhow::Result;
use sha1::{Digest, Sha1};
use std::fs;
use std::path::Path;

/// The name of the torrent's only file.
const NAME: &str = "payload.bin";
const BYTES: u32 = 2 * 1024 * 1024;
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
    /// Makes a private torrent (BEP 27: no DHT, no peer exchange) of 2 MiB, in which all pieces differ.
    pub(super) fn new(announce: &str) -> Self {
        let payload: Vec<u8> = (0..BYTES / 4).flat_map(u32::to_le_bytes).collect();
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
