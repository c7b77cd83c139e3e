//! Random numbers from the operating system.

use types::PeerId;

/// Returns random bytes from the operating system's generator.
#[expect(clippy::expect_used, reason = "without entropy the process could not have started")]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has entropy");
    bytes
}

/// Returns a peer id (BEP 20): this client's prefix and 12 random digits.
pub fn peer_id() -> PeerId {
    let mut id = *b"-TG1000-000000000000";
    let (_, digits) = id.split_at_mut(8);
    for (digit, random) in digits.iter_mut().zip(random::<12>()) {
        *digit = b'0' + random % 10;
    }
    PeerId(id)
}
