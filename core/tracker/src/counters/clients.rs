//! The client software that announces, by the prefixes of peer ids (BEP 20).

use types::PeerId;

/// The first bytes of a peer id, where most clients put their name and version: printable, without quotes
/// or backslashes.
pub type ClientPrefix = [u8; 8];

/// A recent sample of announces, one in [`Clients::ONE_OF`]. Clients can claim anything, so the table is
/// bounded, and rare prefixes are forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    known: Vec<(ClientPrefix, u32)>,
    /// Samples whose prefix is not printable, or found no room.
    others: u32,
    samples: u32,
    /// Announces since the last sample.
    passed: u32,
}

impl Clients {
    /// Announces for each sample.
    pub const ONE_OF: u32 = 64;
    /// Prefixes with a count of their own, for each worker and listener.
    const KNOWN_MAX: usize = 128;
    /// Samples after which all counts are halved, so that the past fades.
    const FADE_AFTER: u32 = 8192;

    /// Counts announces. Returns whether it is time to sample one of them.
    #[inline]
    pub(super) fn pass(&mut self, announces: u32) -> bool {
        self.passed += announces;
        let is_time = self.passed >= Self::ONE_OF;
        if is_time {
            self.passed %= Self::ONE_OF;
        }
        is_time
    }

    /// Counts an announce of the client with this id.
    #[cold]
    pub(super) fn sample(&mut self, id: &PeerId) {
        match prefix(id) {
            Some(prefix) => self.count(prefix, 1),
            None => self.others += 1,
        }
        self.samples += 1;
        if self.samples >= Self::FADE_AFTER {
            self.samples = 0;
            self.others /= 2;
            self.known.iter_mut().for_each(|(_, count)| *count /= 2);
            self.known.retain(|(_, count)| *count > 0);
        }
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

    /// Adds another worker's samples.
    pub fn add(&mut self, other: &Self) {
        other.known.iter().for_each(|(prefix, count)| self.count(*prefix, *count));
        self.others += other.others;
    }

    /// Returns the recent samples of each prefix, and those of all others.
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

    #[test]
    fn samples_one_announce_of_many() {
        let mut clients = Clients::default();
        for _ in 0..10 * Clients::ONE_OF {
            if clients.pass(1) {
                clients.sample(&id(b"-qB5000-"));
            }
        }
        assert!(clients.pass(Clients::ONE_OF));
        clients.sample(&id(b"-qB\"00}-"));
        assert_eq!(clients.counts(), (&[(*b"-qB5000-", 10)][..], 1));
    }

    #[test]
    fn made_up_prefixes_fade() {
        let mut clients = Clients::default();
        for number in 0..1000 {
            let name = format!("-XX{number:04}-");
            clients.sample(&id(name.as_bytes().try_into().unwrap()));
        }
        assert_eq!(clients.counts().0.len(), Clients::KNOWN_MAX);
        assert_eq!(clients.counts().1, 1000 - Clients::KNOWN_MAX as u32);
        for _ in 0..5 * Clients::FADE_AFTER {
            clients.sample(&id(b"-TR4000-"));
        }
        let (known, others) = clients.counts();
        assert_eq!((known[0].0, known.len()), (*b"-TR4000-", 1));
        assert!(known[0].1 > 4 * others);
    }
}
