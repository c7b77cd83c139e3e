//! The client software that announces, by the prefixes of peer ids (BEP 20).

use types::PeerId;

/// The first bytes of a peer id, where most clients put their name and version: printable, without quotes
/// or backslashes.
pub type ClientPrefix = [u8; 8];

/// Recent announces by client software. At low rates every announce is counted; at high ones a sample, in which each
/// announce stands for those since the one before. Clients can claim anything, so the table is bounded, and rare
/// prefixes are forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    known: Vec<(ClientPrefix, u32)>,
    /// Announces whose prefix is not printable, or found no room.
    others: u32,
    announces: u32,
    /// Announces since the last one that was looked at.
    passed: u32,
    /// Is added to `passed`: at low rates enough that one announce is looked at.
    ahead: u32,
    /// `announces` at the last call of [`Self::adapt`].
    before: u32,
}

impl Clients {
    /// Announces for each that is looked at, at high rates.
    pub const ONE_OF: u32 = 64;
    /// Prefixes with a count of their own, for each worker and listener.
    const KNOWN_MAX: usize = 128;
    /// Announces after which all counts are halved, so that the past fades.
    const FADE_AFTER: u32 = 8192 * Self::ONE_OF;

    /// Counts announces. Returns whether it is time to look at one of them.
    #[inline]
    pub(super) fn pass(&mut self, announces: u32) -> bool {
        self.passed += announces;
        self.passed + self.ahead >= Self::ONE_OF
    }

    /// Counts an announce of the client with this id for all since the last call. Returns how many these are.
    #[cold]
    pub(super) fn sample(&mut self, id: &PeerId) -> u32 {
        let weight = std::mem::take(&mut self.passed);
        match prefix(id) {
            Some(prefix) => self.count(prefix, weight),
            None => self.others += weight,
        }
        self.announces += weight;
        if self.announces >= Self::FADE_AFTER {
            (self.announces, self.before) = (0, 0);
            self.others /= 2;
            self.known.iter_mut().for_each(|(_, count)| *count /= 2);
            self.known.retain(|(_, count)| *count > 0);
        }
        weight
    }

    /// Looks at every announce from now on if there were few since the last call, else at one of many. Call a few
    /// times a second.
    pub(super) fn adapt(&mut self) {
        let is_slow = self.announces.saturating_sub(self.before) < Self::ONE_OF;
        self.ahead = if is_slow { Self::ONE_OF - 1 } else { 0 };
        self.before = self.announces;
    }

    fn count(&mut self, prefix: ClientPrefix, times: u32) {
        if let Some((_, count)) = self.known.iter_mut().find(|(known, _)| *known == prefix) {
            *count += times;
        } else if self.known.len() < Self::KNOWN_MAX {
            self.known.push((prefix, times));
        } else {
            self.others += times;
        }
    }

    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        other.known.iter().for_each(|(prefix, count)| self.count(*prefix, *count));
        self.others += other.others;
    }

    /// Returns the recent announces of each prefix, and those of all others.
    pub fn counts(&self) -> (&[(ClientPrefix, u32)], u32) {
        (&self.known, self.others)
    }
}

/// Returns the prefix of a peer id if it is printable.
fn prefix(PeerId(id): &PeerId) -> Option<ClientPrefix> {
    let prefix = *id.first_chunk()?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    prefix.iter().all(is_plain).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(prefix: &[u8; 8]) -> PeerId {
        let mut id = [7; 20];
        id[..8].copy_from_slice(prefix);
        PeerId(id)
    }

    /// Counts announces of one client, one by one.
    fn announce(clients: &mut Clients, prefix: &[u8; 8], times: u32) {
        for _ in 0..times {
            if clients.pass(1) {
                clients.sample(&id(prefix));
            }
        }
    }

    #[test]
    fn every_announce_is_counted_at_low_rates() {
        let mut clients = Clients::default();
        clients.adapt();
        for round in 0..20 {
            announce(&mut clients, b"-qB5000-", 2);
            announce(&mut clients, b"-TR4000-", round % 2);
            announce(&mut clients, b"-qB\"00}-", 1);
            clients.adapt();
        }
        let known = [(*b"-qB5000-", 40), (*b"-TR4000-", 10)];
        assert_eq!(clients.counts(), (&known[..], 20));
    }

    #[test]
    fn one_of_many_stands_for_all_at_high_rates() {
        let mut clients = Clients::default();
        clients.adapt();
        announce(&mut clients, b"-qB5000-", Clients::ONE_OF);
        clients.adapt();
        let mut looked_at = 0;
        for _ in 0..10 * Clients::ONE_OF {
            if clients.pass(1) {
                looked_at += 1;
                assert_eq!(clients.sample(&id(b"-qB5000-")), Clients::ONE_OF);
            }
        }
        assert_eq!(
            (looked_at, clients.counts().0),
            (10, &[(*b"-qB5000-", 11 * Clients::ONE_OF)][..])
        );
        // Batches of several.
        assert!(!clients.pass(50) && clients.pass(40));
        assert_eq!(clients.sample(&id(b"-qB5000-")), 90);
        clients.adapt();
        clients.adapt();
        assert!(clients.pass(1), "the rate is low again");
    }

    #[test]
    fn made_up_prefixes_fade() {
        let mut clients = Clients::default();
        clients.adapt();
        for number in 0..1000 {
            let name = format!("-XX{number:04}-");
            announce(&mut clients, name.as_bytes().try_into().unwrap(), 1);
        }
        assert_eq!(clients.counts().0.len(), Clients::KNOWN_MAX);
        assert_eq!(clients.counts().1, 1000 - Clients::KNOWN_MAX as u32);
        for _ in 0..10 {
            clients.pass(Clients::FADE_AFTER / 2);
            clients.sample(&id(b"-TR4000-"));
        }
        let (known, others) = clients.counts();
        assert_eq!((known[0].0, known.len()), (*b"-TR4000-", 1));
        assert!(known[0].1 > 4 * others);
    }
}
