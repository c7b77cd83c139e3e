//! Content that a population leaves in the log within the time that the log keeps: regular announces, and peers that
//! left.

use ::load::{Random, Spread};
use replication::block::{self, Change, Header, Kind, Word, encode_changes};
use types::{PeerKey, Role};

use crate::store::info_hash;

/// Period that the log keeps: a lifetime of 45 minutes, and five more.
const WINDOW_S: u32 = 3000;
const INTERVAL_S: u32 = 1800;
/// The mean session, and of a hundred peers those that say that they leave.
const SESSION_S: u32 = 3 * 3600;
const STOPPED_PERCENT: u32 = 70;
/// Mean number of peers per torrent on public trackers.
const TORRENT_PEERS: f64 = 4.6;
/// Nodes that wrote the log, and blocks of each per second.
pub(super) const WRITERS: [u8; 3] = [101, 102, 103];
const BLOCKS_PER_S: u32 = 20;
/// Small populations fill fewer blocks.
const BLOCK_RECORDS_MIN: usize = 16;
/// When the nodes that wrote the log started, unix ms.
const BOOT_MS: u64 = 1_700_000_000_000;
/// Marks of an event's peer number.
const GONE: u32 = 1 << 31;

/// The messages of a log, oldest first.
pub(super) struct LogContent {
    /// The torrent of each peer.
    torrents: Vec<u32>,
    /// Peers by the age of what they did, oldest first.
    events: Vec<u32>,
    blocks: usize,
    pub(super) present: u64,
}

impl LogContent {
    /// Returns what a population of this many peers leaves, of which about as many are present in the end.
    pub(super) fn new(population: u32) -> Self {
        // Those that have left within the window were more.
        let departed = (u64::from(population) * u64::from(WINDOW_S) / u64::from(SESSION_S)) as u32;
        let all = population + departed;
        let count = (f64::from(all) / TORRENT_PEERS).ceil() as usize;
        let mut draws = Random::new(3);
        let torrents = (0..all).map(|_| Spread::Real.draw(count, &mut draws) as u32).collect();
        let (mut random, mut events, mut present) = (primitives::Random::new(11), Vec::new(), 0);
        for number in 0..all {
            let has_left = number >= population;
            let left_at = if has_left { random.below(WINDOW_S) } else { 0 };
            let says_so = has_left && random.below(100) < STOPPED_PERCENT;
            let mut age = left_at + random.below(INTERVAL_S);
            present += u64::from(!says_so && age < WINDOW_S);
            if says_so {
                events.push((left_at as u16, number | GONE));
            }
            // Announces are half an hour apart, so that each is published.
            while age < WINDOW_S {
                events.push((age as u16, number));
                age += INTERVAL_S;
            }
        }
        events.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
        let blocks = WRITERS.len() * (WINDOW_S * BLOCKS_PER_S) as usize;
        let blocks = blocks.min(events.len() / BLOCK_RECORDS_MIN).max(1);
        let events = events.into_iter().map(|(_, event)| event).collect();
        Self { torrents, events, blocks, present }
    }

    pub(super) fn records(&self) -> usize {
        self.events.len()
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Writes block `number` as if all of it had happened at `now_ms`: nodes drop messages that are stored long after they
    /// were cut, and no client can store them in the past. Returns its writer.
    pub(super) fn write(&self, number: usize, now_ms: u64, out: &mut Vec<u8>) -> u8 {
        let at = |block: usize| self.events.len() * block / self.blocks;
        let events = self.events.get(at(number)..at(number + 1)).unwrap_or_default();
        let changes: Vec<Change> = events.iter().map(|event| self.change(*event)).collect();
        let mut body = Vec::new();
        encode_changes(&changes, &[], &mut body);
        let writer = WRITERS[number % WRITERS.len()];
        let header = Header {
            kind: Kind::CHANGES,
            has_ids: false,
            node: writer.into(),
            boot: BOOT_MS << 8,
            number: (number / WRITERS.len()) as u64 + 1,
            cut_ms: now_ms,
        };
        out.clear();
        block::write(&header, &body, out);
        writer
    }

    fn change(&self, event: u32) -> Change {
        let peer = u64::from(event & !GONE);
        let torrent = self.torrents.get(peer as usize).copied().unwrap_or_default();
        let [a, b, c, d, high, low, ..] = peer.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let role = if peer.is_multiple_of(4) { Role::Seeder } else { Role::Leecher };
        let word = if event & GONE == 0 { Word::present(0, role, false) } else { Word::gone() };
        let peer = PeerKey::V4([a, b, c, d, high, low]);
        Change { info_hash: info_hash(torrent), peer, word, is_refresh: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication::block::Block;

    #[test]
    fn a_log_has_about_two_records_a_peer_in_order() {
        let content = LogContent::new(20_000);
        let records = content.records() as f64 / 20_000.0;
        assert!((1.9..2.3).contains(&records), "{records}");
        assert!((19_000..24_000).contains(&content.present), "{}", content.present);
        let now_ms = 1_800_000_000_000;
        let (mut bytes, mut found, mut last) = (Vec::new(), 0, 0);
        for number in 0..content.blocks() {
            let writer = content.write(number, now_ms, &mut bytes);
            let (block, len) = Block::read(&bytes).unwrap();
            assert_eq!((len, block.header.node), (bytes.len(), u16::from(writer)));
            assert!(block.header.cut_ms >= last && block.header.cut_ms <= now_ms);
            last = block.header.cut_ms;
            found += block.groups().unwrap().map(|it| it.v4.len()).sum::<usize>();
        }
        assert_eq!(found, content.records());
    }
}
