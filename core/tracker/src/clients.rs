//! The client software that is served, by the prefix of its peer ids (BEP 20).
//!
//! Clients can claim to be any software: this keeps out misbehaving versions, not attackers.

use types::{PeerId, Refusal};

/// Allowed and denied prefixes of peer ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRules {
    /// Only these are served, unless the list is empty.
    pub allow: Prefixes,
    /// These are never served, even if allowed.
    pub deny: Prefixes,
}

/// Prefixes of peer ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Sorted; no prefix begins with another one.
    sorted: Vec<Box<[u8]>>,
}

impl ClientRules {
    /// Refuses a client with `peer_id` if its software is not served.
    #[inline]
    pub(crate) fn admit(&self, peer_id: &PeerId) -> Result<(), Refusal> {
        if self.allow.sorted.is_empty() && self.deny.sorted.is_empty() {
            return Ok(());
        }
        let is_allowed = self.allow.sorted.is_empty() || self.allow.matches(peer_id);
        if is_allowed && !self.deny.matches(peer_id) { Ok(()) } else { Err(Refusal::ClientRefused) }
    }
}

impl Prefixes {
    /// Returns whether there are no prefixes.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns whether `peer_id` begins with one of the prefixes.
    fn matches(&self, peer_id: &PeerId) -> bool {
        // Only the last prefix that sorts before the id can match: no prefix begins with another.
        let behind = self.sorted.partition_point(|prefix| **prefix <= *peer_id.0.as_slice());
        let before = behind.checked_sub(1).and_then(|at| self.sorted.get(at));
        before.is_some_and(|prefix| peer_id.0.starts_with(prefix))
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Prefixes {
    /// Drops prefixes that begin with another one.
    fn from_iter<I: IntoIterator<Item = T>>(prefixes: I) -> Self {
        let mut sorted: Vec<Box<[u8]>> =
            prefixes.into_iter().map(|prefix| prefix.as_ref().into()).collect();
        sorted.sort_unstable();
        sorted.dedup_by(|later, earlier| later.starts_with(earlier));
        Self { sorted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::Random;

    #[test]
    fn agrees_with_a_scan_of_all_prefixes() {
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let mut text = |most| -> Vec<u8> {
                (0..1 + random.below(most)).map(|_| random.below(3) as u8).collect()
            };
            let prefixes: Vec<Vec<u8>> = (0..text(9).len() - 1).map(|_| text(4)).collect();
            let fast: Prefixes = prefixes.iter().collect();
            for _ in 0..20 {
                let mut id = [0; 20];
                id[..5].iter_mut().for_each(|byte| *byte = text(3).len() as u8 - 1);
                let expected = prefixes.iter().any(|prefix| id.starts_with(prefix));
                assert_eq!(fast.matches(&PeerId(id)), expected, "{id:?} {prefixes:?}");
            }
        }
    }

    #[test]
    fn denied_prefixes_win_over_allowed_ones() {
        let rules = |allow: &[&str], deny: &[&str]| ClientRules {
            allow: allow.iter().collect(),
            deny: deny.iter().collect(),
        };
        let admits = |rules: &ClientRules, id: &str| {
            let mut bytes = [b'x'; 20];
            bytes[..id.len()].copy_from_slice(id.as_bytes());
            rules.admit(&PeerId(bytes)).is_ok()
        };
        assert!(admits(&rules(&[], &[]), "-TR4060-"));
        let deny = rules(&[], &["-XL", "-TR1"]);
        assert!(
            admits(&deny, "-TR4060-") && !admits(&deny, "-TR1000-") && !admits(&deny, "-XL0012-")
        );
        let allow = rules(&["-TR", "-qB"], &["-TR1"]);
        assert!(admits(&allow, "-TR4060-") && admits(&allow, "-qB5000-"));
        assert!(!admits(&allow, "-TR1000-") && !admits(&allow, "-UT3550-"));
    }
}
