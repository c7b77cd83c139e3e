//! What nobody can guess.

/// Random bytes of the system's.
#[expect(clippy::expect_used, reason = "a system that has none could not have started us")]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has entropy");
    bytes
}
