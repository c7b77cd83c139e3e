//! What nobody can guess.

use types::PeerId;

/// Random bytes of the system's.
#[expect(clippy::expect_used, reason = "a system that has none could not have started us")]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has entropy");
    bytes
}

/// A client of ours (BEP 20): 12 random digits behind its name.
pub fn peer_id() -> PeerId {
    let mut id = *b"-TG0100-000000000000";
    let (_, digits) = id.split_at_mut(8);
    for (digit, random) in digits.iter_mut().zip(random::<12>()) {
        *digit = b'0' + random % 10;
    }
    PeerId(id)
}
