//! Key sets and tokens: two parts, separated by a NUL byte. What is not a key set has no keys, and a token that
//! is changed anywhere is not accepted.

use jwt::KeySet;
use tracker::TokenVerifier;
use types::limits::TOKEN_KEYS_MAX;

/// Key sets and tokens are refused, unless the signature is right.
pub fn check(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let set = KeySet::parse(parts.next().unwrap_or_default());
    let token = parts.next().unwrap_or_default();
    let set = match set {
        Ok(set) => set,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!((1..=TOKEN_KEYS_MAX).contains(&set.len()) && !set.is_empty());
    let free = set.verifier(None, None);
    let strict = set.verifier(Some("issuer"), Some("tracker"));
    let verified = free.verify(token);
    if strict.verify(token).is_ok() {
        assert!(verified.is_ok());
    }
    if verified.is_ok() {
        // Without its signature, or with another payload, it is nothing.
        let at = token.iter().rposition(|byte| *byte == b'.').unwrap();
        assert!(free.verify(&token[..at]).is_err() && free.verify(&token[..=at]).is_err());
        let mut other = token.to_vec();
        other[0] ^= 1;
        assert!(free.verify(&other).is_err());
    }
}
