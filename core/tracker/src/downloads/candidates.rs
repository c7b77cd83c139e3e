//! Torrents that were downloaded, but not yet from enough prefixes for a durable count.
//!
//! A table of fixed size, in sets of 16 by the torrent's keyed hash. In a full set, the prefix with the
//! most torrents makes room: a host that invents info hashes replaces its own.

use types::limits;

/// The candidates of a shard of counts. Allocated with the first one.
#[derive(Default)]
pub(super) struct Candidates {
    all: Box<[Candidate]>,
    /// Where the search for one to replace begins: older ones are replaced first, about.
    hand: usize,
}

#[derive(Clone, Copy, Default)]
struct Candidate {
    /// The torrent's keyed hash; 0 if there is none.
    tag: u64,
    /// Keyed hashes of the prefixes from which it was downloaded, in their order; 0 if there is none.
    prefixes: [u32; limits::DOWNLOAD_PREFIXES_MIN - 1],
    downloads: u32,
}

const _: () = assert!(size_of::<Candidate>() == 24);

/// Candidates of a set.
const SET: usize = 16;

impl Candidates {
    /// Notes a download of the torrent with this keyed hash, in a table for `len` candidates. Returns the
    /// number of its downloads and forgets it if it has enough prefixes now.
    pub(super) fn note(&mut self, len: usize, hash: u64, prefix: u32) -> Option<u32> {
        if self.all.is_empty() {
            self.all = vec![Candidate::default(); len.next_multiple_of(SET)].into();
        }
        let (tag, prefix) = (hash.max(1), prefix.max(1));
        // The low bits and the middle ones have chosen the shard and the place in its counts.
        let sets = self.all.len() / SET;
        let set = self.all.chunks_mut(SET).nth((hash >> 50) as usize % sets)?;
        let Some(found) = set.iter_mut().find(|it| it.tag == tag) else {
            self.hand = (self.hand + 1) % SET;
            let mut prefixes = [0; limits::DOWNLOAD_PREFIXES_MIN - 1];
            prefixes[0] = prefix;
            *victim(set, self.hand)? = Candidate { tag, prefixes, downloads: 1 };
            return None;
        };
        found.downloads = found.downloads.saturating_add(1);
        if found.prefixes.contains(&prefix) {
            return None;
        }
        if let Some(free) = found.prefixes.iter_mut().find(|it| **it == 0) {
            *free = prefix;
            return None;
        }
        Some(std::mem::take(found).downloads)
    }
}

/// Returns an empty place of a set, or one of those whose first prefix has the most.
fn victim(set: &mut [Candidate], hand: usize) -> Option<&mut Candidate> {
    let firsts: [u32; SET] = std::array::from_fn(|at| set.get(at).map_or(0, |it| it.prefixes[0]));
    let share = |at: usize| match firsts[at] {
        0 => SET + 1,
        first => firsts.iter().filter(|other| **other == first).count(),
    };
    // The last one of equals: the hand's own.
    let at = (1..=SET).map(|step| (hand + step) % SET).max_by_key(|at| share(*at))?;
    set.get_mut(at)
}

#[cfg(test)]
mod tests {
    use primitives::Random;

    use super::*;

    /// A host with two prefixes invents torrents all the time. Those of others get their prefixes.
    #[test]
    fn one_host_cannot_displace_others() {
        let mut random = Random::new(1);
        let mut candidates = Candidates::default();
        let mut invent = |candidates: &mut Candidates, count| {
            for _ in 0..count {
                let hash = random.next();
                assert_eq!([1, 2].map(|prefix| candidates.note(1024, hash, prefix)), [None; 2]);
            }
        };
        invent(&mut candidates, 10_000);
        let mut others = Random::new(2);
        let others: Vec<u64> = (0..100).map(|_| others.next()).collect();
        for prefix in 10..13 {
            let made: Vec<_> = (0..)
                .zip(&others)
                .map(|(own, hash)| {
                    invent(&mut candidates, 100);
                    candidates.note(1024, *hash, prefix * 1000 + own)
                })
                .collect();
            let expected = if prefix == 12 { Some(3) } else { None };
            assert!(made.iter().all(|made| *made == expected), "{made:?}");
        }
    }
}
