//! Letters of other nodes, beside a plain reader of them.

use front::webtorrent::{BadLetters, LetterCounts, WorkerLink};
use types::limits;

/// The node that gets the letters, with this many workers, and the one that sends them.
const NODE: u8 = 1;
const WORKERS: u64 = 2;
const FROM: u8 = 2;

/// Letters of another node are read as a plain reader reads them, all or none.
pub fn check(bytes: &[u8]) {
    let (_links, letters) = WorkerLink::for_workers_of_node(WORKERS as usize, NODE, u32::MAX);
    let (result, expected) = (letters.deliver(FROM, bytes), read(bytes));
    assert_eq!(result.is_ok(), expected.is_some());
    if result == Err(BadLetters) {
        assert_eq!(letters.counts(), LetterCounts::default(), "refused, but not as a whole");
    }
    let [misaddressed, gone] = expected.unwrap_or_default();
    assert_eq!(letters.counts(), LetterCounts { misaddressed, gone, ..LetterCounts::default() });
    assert!(letters.take(std::time::Duration::MAX).is_empty());
}

/// Returns how many letters are for another node or in the name of one, and how many for workers that do not
/// exist. `None` if it is no body.
fn read(mut bytes: &[u8]) -> Option<[u64; 2]> {
    let (mut misaddressed, mut gone) = (0, 0);
    while !bytes.is_empty() {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (to, kind, from) = (number(0)?, *bytes.get(8)?, number(17)?);
        let len = u32::from_le_bytes(bytes.get(29..33)?.try_into().ok()?) as usize;
        let text = bytes.get(33..33 + len)?;
        if kind > 1 || len > limits::LETTER_TEXT_MAX || str::from_utf8(text).is_err() {
            return None;
        }
        if to >> 56 != u64::from(NODE) || kind == 0 && from >> 56 != u64::from(FROM) {
            misaddressed += 1;
        } else if to >> 46 & 0x3ff >= WORKERS {
            gone += 1;
        }
        bytes = &bytes[33 + len..];
    }
    Some([misaddressed, gone])
}
