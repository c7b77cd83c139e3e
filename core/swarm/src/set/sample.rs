//! Random samples of a set: runs of neighbours from a random start.
//!
//! Plain form: random positions, one by one, until there are enough distinct ones. An announce takes 2,173 instructions
//! of the store with runs, and 14,915 with single positions (`bench/record/2026-11-25-sample.md`).

use primitives::Random;
use types::limits;

use super::{PeerSet, Position};
use crate::arena::Arena;
use crate::entry::Entry;

/// Pages of up to this many times the average are drawn in proportion to their length.
const LONG: u32 = 3;
/// Attempts to draw a uniformly random start.
const TRIES: u32 = 24;

impl<E: Entry> PeerSet<E> {
    /// Pushes `count` distinct random peers other than the one at `skip`. `count` must not exceed
    /// the number of other peers. Equal seeds choose equal starts.
    ///
    /// Takes neighbours from a random start on, so that every peer has about the same probability:
    /// exactly the same in a dense set, where all positions are equally likely starts. There are
    /// two exceptions, both for sets more than twice as large as the sample:
    ///
    /// * If the start's pages have several peers of one public network, or are long, at most one
    ///   peer of each network is taken as long as there are others within reach. So a peer of a
    ///   network with many is less likely than one that is alone in its network.
    /// * Such a sample starts at any page with the same probability, however long the page is.
    pub(crate) fn sample(
        &self,
        arena: &Arena,
        count: u32,
        skip: Option<Position>,
        sample_seed: u64,
        mut push: impl FnMut(&[E]),
    ) {
        if count == 0 {
            return;
        }
        debug_assert!(count <= self.len() - u32::from(skip.is_some()));
        let start = self.sample_start(arena, skip, sample_seed);
        if count > 1 && count <= self.len() / 2 && self.is_clumped(arena, start, count) {
            return self.sample_spread(arena, count, (start, skip, sample_seed), &mut push);
        }
        let mut left = count as usize;
        self.walk(arena, start, skip, |_, run| {
            let run = &run[..run.len().min(left)];
            push(run);
            left -= run.len();
            left > 0
        });
        debug_assert!(left == 0);
    }

    /// Returns true if one of the pages from which `count` peers are taken, from `start` on, probably
    /// has several of the same public network. Honest swarms seldom have such pages, and are spared
    /// the search for networks.
    #[inline]
    fn is_clumped(&self, arena: &Arena, start: Position, count: u32) -> bool {
        let (mut page, mut from, mut left) = (start.page, start.at as usize, count as usize);
        loop {
            let all = self.entries(arena, page);
            let entries = all.get(from..).unwrap_or(&[]);
            // Pages of single peers are seldom this long.
            let is_long = all.len() > (LONG * E::PAGE_PEERS) as usize;
            if is_long || shares_network(&entries[..entries.len().min(PROBE)]) {
                return true;
            }
            page = if page + 1 == self.pages(arena) { 0 } else { page + 1 };
            if entries.len() >= left || page == start.page {
                return false;
            }
            (left, from) = (left - entries.len(), 0);
        }
    }

    /// Does what [`PeerSet::sample`] does, and prefers peers of different networks.
    #[cold]
    #[inline(never)]
    fn sample_spread(
        &self,
        arena: &Arena,
        count: u32,
        (start, skip, sample_seed): (Position, Option<Position>, u64),
        push: &mut impl FnMut(&[E]),
    ) {
        let start = self.spread_start(arena, start, sample_seed);
        let mut spread = Spread::new(count as usize, sample_seed, self.is_paged());
        self.walk(arena, start, skip, |page, run| spread.choose(page, run, push));
        if spread.left > 0 {
            let mut number = 0;
            self.walk(arena, start, skip, |_, run| spread.fill(&mut number, run, push));
        }
        debug_assert!(spread.left == 0);
    }

    /// Returns where to start choosing peers of different networks: at any page with the same
    /// probability. Most starts that are uniform over peers are in pages of large networks, and the
    /// peers of the pages behind these would be chosen more often than others.
    fn spread_start(&self, arena: &Arena, start: Position, sample_seed: u64) -> Position {
        if !self.is_paged() {
            return start;
        }
        // Not the stream that has drawn `start`.
        let mut random = Random::new(sample_seed.rotate_left(32));
        let page = random.below(self.pages(arena));
        let at = random.below(self.page_ref(arena, page).len.max(1));
        Position { page, at }
    }

    /// Calls `visit` with up to `most` peers other than the one at `skip`, neighbours from a random start on, until it
    /// returns false. The start is another one than that of [`PeerSet::sample`].
    pub(crate) fn search(
        &self,
        arena: &Arena,
        skip: Option<Position>,
        sample_seed: u64,
        most: u32,
        mut visit: impl FnMut(&E) -> bool,
    ) {
        let start = self.sample_start(arena, skip, sample_seed.rotate_left(17));
        let mut left = most;
        self.walk(arena, start, skip, |_, run| {
            run.iter().all(|peer| {
                let is_within = left > 0;
                left = left.saturating_sub(1);
                is_within && visit(peer)
            })
        });
    }

    /// Calls `visit` with all peers but the one at `skip`, in runs with their pages from `start` on
    /// and around, until it returns false.
    fn walk(
        &self,
        arena: &Arena,
        start: Position,
        skip: Option<Position>,
        mut visit: impl FnMut(u32, &[E]) -> bool,
    ) {
        let mut visit_part = |page: u32, entries: &[E], from: usize| {
            let skip = skip.filter(|skip| skip.page == page).map(|skip| skip.at as usize);
            runs(entries, from, skip).into_iter().all(|run| run.is_empty() || visit(page, run))
        };
        let pages = self.pages(arena);
        let (mut page, mut from) = (start.page, start.at as usize);
        for _ in 0..pages {
            if !visit_part(page, self.entries(arena, page), from) {
                return;
            }
            page = if page + 1 == pages { 0 } else { page + 1 };
            from = 0;
        }
        // The first page again, up to the start.
        visit_part(page, &self.entries(arena, page)[..start.at as usize], 0);
    }

    /// Prefetches exactly the lines from which `sample` takes `count` peers for `sample_seed`: of a
    /// paged set, a part of one page or two.
    #[inline]
    pub(crate) fn prefetch_sample(&self, arena: &Arena, sample_seed: u64, count: u32) {
        if self.len() == 0 || count == 0 {
            return;
        }
        let start = self.sample_start(arena, None, sample_seed);
        let page = self.page(arena, start.page);
        let end = (start.at + count).min(page.len);
        page.prefetch(arena, start.at, end);
        let left = count - (end - start.at);
        if left > 0 {
            let next = self.page(arena, (start.page + 1) % self.pages(arena));
            next.prefetch(arena, 0, left.min(next.len));
        }
    }

    /// Returns a uniformly random position other than `skip`. In a paged set: draws a page and a
    /// place in it until there is a peer at that place.
    fn sample_start(&self, arena: &Arena, skip: Option<Position>, sample_seed: u64) -> Position {
        let mut random = Random::new(sample_seed);
        if !self.is_paged() {
            let others = self.len() - u32::from(skip.is_some());
            let at = random.below(others);
            let after = skip.is_some_and(|skip| at >= skip.at);
            return Position { page: 0, at: at + u32::from(after) };
        }
        let pages = self.pages(arena);
        for _ in 0..TRIES {
            let page = random.below(pages);
            let position = Position { page, at: random.below(LONG * E::PAGE_PEERS) };
            let len = self.page_ref(arena, page).len;
            // A longer page, of a network with many peers, is as probable as one of this length.
            let position = match position.at < len && len > LONG * E::PAGE_PEERS {
                true => Position { page, at: random.below(len) },
                false => position,
            };
            if position.at < len && Some(position) != skip {
                return position;
            }
        }
        Position { page: random.below(pages), at: 0 }
    }
}

/// Returns true if the first peer shares its public network with one of the next.
#[inline]
fn shares_network<E: Entry>(probe: &[E]) -> bool {
    let [first, rest @ ..] = probe else { return false };
    let key = first.key();
    rest.iter().any(|other| other.shares_network(key)) && E::network(key).is_some()
}

/// Chooses peers of different networks from a walk.
///
/// Plain form: a set of the networks already taken, and a list of the peers passed over. Departures:
/// 1. Both are bitmaps on the stack. A network may seem taken when it is not, so a peer may be
///    passed over for nothing.
/// 2. After a few peers passed over in succession it leaves the page, whose others are probably of
///    the same networks.
///
/// The plain form costs 20 % of a UDP response more (`bench/record/2026-11-23-spread.md`).
struct Spread {
    /// Networks taken, by a hash.
    networks: [u64; NETWORK_WORDS],
    /// Peers passed over, by their number in the walk.
    passed: Option<[u64; WORDS]>,
    /// Odd: the hash's multiplier.
    multiplier: u64,
    /// Peers yet to take.
    left: usize,
    /// The number of the walk's next peer.
    number: usize,
    /// Peers that may yet be examined.
    budget: usize,
    /// Peers passed over since the last one taken, and how many are enough to leave the page.
    in_vain: u32,
    in_vain_max: u32,
    page_left: Option<u32>,
}

/// Peers compared to find out whether many are in the same network.
const PROBE: usize = 8;
/// Words of the bitmap of networks: 4096 bits, so that hardly one peer in a hundred is passed over
/// for nothing.
const NETWORK_WORDS: usize = 64;
/// Words of the bitmap of peers.
const WORDS: usize = 32;
const BITS: usize = WORDS * 64;
/// Peers passed over in succession before a page is left.
const IN_VAIN_MAX: u32 = 8;
/// Peers examined for each that is wanted, at most.
const EXAMINED_RATIO: usize = 3;

const _: () = assert!(limits::PEERS_HTTP_MAX as usize <= BITS);

impl Spread {
    fn new(count: usize, sample_seed: u64, is_paged: bool) -> Self {
        Self {
            networks: [0; NETWORK_WORDS],
            passed: None,
            multiplier: sample_seed | 1,
            left: count,
            number: 0,
            budget: (count * EXAMINED_RATIO).min(BITS),
            in_vain: 0,
            in_vain_max: if is_paged { IN_VAIN_MAX } else { u32::MAX },
            page_left: None,
        }
    }

    /// Pushes those of `run` whose network was not taken yet. Returns whether to go on.
    #[inline]
    fn choose<E: Entry>(&mut self, page: u32, run: &[E], push: &mut impl FnMut(&[E])) -> bool {
        if self.page_left == Some(page) {
            return self.pass(run.len());
        }
        let mut rest = &run[..run.len().min(self.budget).min(BITS - self.number)];
        let unexamined = run.len() - rest.len();
        loop {
            let taken = self.take_new(&rest[..rest.len().min(self.left)]);
            if taken > 0 {
                push(&rest[..taken]);
                self.left -= taken;
                self.in_vain = 0;
            }
            self.number += taken;
            self.budget -= taken;
            if self.left == 0 {
                return false;
            }
            if taken == rest.len() {
                return self.budget > 0 && self.number < BITS;
            }
            rest = &rest[taken + 1..];
            self.pass(1);
            self.budget -= 1;
            self.in_vain += 1;
            if self.in_vain >= self.in_vain_max {
                (self.in_vain, self.page_left) = (0, Some(page));
                return self.pass(rest.len() + unexamined);
            }
        }
    }

    /// Takes the networks of the first peers of `run`, up to one that is taken already. Returns how
    /// many.
    #[inline]
    fn take_new<E: Entry>(&mut self, run: &[E]) -> usize {
        for (at, entry) in run.iter().enumerate() {
            let hash = entry.network_number().wrapping_mul(self.multiplier) >> (64 - 12);
            let (word, bit) =
                (&mut self.networks[hash as usize / 64 % NETWORK_WORDS], 1 << (hash % 64));
            if *word & bit != 0 {
                return at;
            }
            *word |= bit;
        }
        run.len()
    }

    /// Passes over the next `count` peers. Returns whether to go on.
    #[cold]
    fn pass(&mut self, count: usize) -> bool {
        let end = (self.number + count).min(BITS);
        let passed = self.passed.get_or_insert([0; WORDS]);
        for number in self.number..end {
            passed[number / 64 % WORDS] |= 1 << (number % 64);
        }
        self.number = end;
        self.budget > 0 && end < BITS
    }

    /// Pushes those of `run`, which begins with the peer of that number, that were passed over or not
    /// reached. Returns whether to go on.
    #[cold]
    fn fill<E: Entry>(
        &mut self,
        number: &mut usize,
        run: &[E],
        push: &mut impl FnMut(&[E]),
    ) -> bool {
        for entry in run {
            let is_passed = self
                .passed
                .is_some_and(|passed| passed[*number / 64 % WORDS] >> (*number % 64) & 1 == 1);
            if *number >= self.number || is_passed {
                push(std::slice::from_ref(entry));
                self.left -= 1;
                if self.left == 0 {
                    return false;
                }
            }
            *number += 1;
        }
        true
    }
}

/// Returns the runs of a page from `from` to its end without the entry at `skip`.
fn runs<E>(entries: &[E], from: usize, skip: Option<usize>) -> [&[E]; 2] {
    match skip {
        Some(skip) if skip >= from && skip < entries.len() => {
            [&entries[from..skip], &entries[skip + 1..]]
        }
        _ => [&entries[from..], &[]],
    }
}
