//! A panic on request, for tests of what a panic does to a worker.

/// The text that a request's path or a message must contain.
pub(crate) const WORD: &str = "tidegate-test-panic";

/// Panics if `bytes` contain [`WORD`].
pub(crate) fn check(bytes: &[u8]) {
    let word = WORD.as_bytes();
    assert!(!bytes.windows(word.len()).any(|window| window == word), "a test asked for this panic");
}
