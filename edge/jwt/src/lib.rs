//! JSON Web Tokens (RFC 7519) that permit to announce a torrent, verified by a key set (RFC 7517).
//!
//! Tokens and key sets come from outside: both are bounded in size, and a key set that has no usable key is an
//! error. Symmetric keys are never used: what verifies such a token could also issue it. Where key sets come
//! from is the application's affair.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod signer;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use tracker::{TokenFault, TokenVerifier, VerifiedToken};
use types::{InfoHash, limits, percent_decoded};

/// Verifies tokens by the keys of a set.
pub struct Verifier {
    keys: Vec<Key>,
    issuer: Option<String>,
    audience: Option<String>,
}

/// The public keys of a set, for the algorithms that are accepted.
pub struct KeySet {
    keys: Vec<Key>,
    /// Keys that cannot be used.
    skipped: usize,
}

/// Why a key set cannot be used: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeySetError(String);

#[derive(Clone)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The claims that are read here; the others are checked by the crate.
#[derive(Deserialize)]
struct Claims {
    exp: f64,
    infohash: String,
}

/// The keys of a set, each by itself: one that is not understood does not spoil the others.
#[derive(Deserialize)]
struct RawSet {
    keys: Vec<serde_json::Value>,
}

/// Seconds by which the clocks of the tracker and the issuer may differ.
const LEEWAY_S: u64 = 30;
/// Bytes of the smallest RSA modulus that is accepted: 2048 bits.
const RSA_MODULUS_MIN: usize = 256;

impl KeySet {
    /// Reads a JSON Web Key Set.
    ///
    /// # Errors
    ///
    /// If it is too large, not a key set, or has no key that can be used.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetError> {
        let bad = |why: String| Err(KeySetError(format!("not a usable key set: {why}")));
        if bytes.len() > limits::TOKEN_KEY_SET_MAX {
            return bad(format!("longer than {} bytes", limits::TOKEN_KEY_SET_MAX));
        }
        let set: RawSet = match serde_json::from_slice(bytes) {
            Ok(set) => set,
            Err(error) => return bad(error.to_string()),
        };
        if set.keys.len() > limits::TOKEN_KEYS_MAX {
            return bad(format!("more than {} keys", limits::TOKEN_KEYS_MAX));
        }
        let count = set.keys.len();
        let keys: Vec<Key> = set.keys.into_iter().filter_map(Key::read).collect();
        if keys.is_empty() {
            return bad(format!(
                "none of its {count} keys is a public key of type RSA with 2048 bits or more (RS256), \
                 EC with P-256 (ES256) or OKP with Ed25519 (EdDSA)"
            ));
        }
        Ok(Self { skipped: count - keys.len(), keys })
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are no keys: never.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the number of keys that were left out, because they are for something else.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns what verifies tokens by these keys. If `issuer` or `audience` is given, tokens must name it.
    pub fn verifier(&self, issuer: Option<&str>, audience: Option<&str>) -> Verifier {
        Verifier {
            keys: self.keys.clone(),
            issuer: issuer.map(String::from),
            audience: audience.map(String::from),
        }
    }
}

impl Key {
    /// Returns `None` for a key that cannot be used here.
    fn read(value: serde_json::Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        if jwk.common.public_key_use.as_ref().is_some_and(|it| *it != PublicKeyUse::Signature) {
            return None;
        }
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                Algorithm::ES256
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                Algorithm::EdDSA
            }
            _ => return None,
        };
        let named = match jwk.common.key_algorithm {
            None => algorithm,
            Some(KeyAlgorithm::RS256) => Algorithm::RS256,
            Some(KeyAlgorithm::ES256) => Algorithm::ES256,
            Some(KeyAlgorithm::EdDSA) => Algorithm::EdDSA,
            Some(_) => return None,
        };
        let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| named == algorithm)?;
        let is_long = match key.kind() {
            jsonwebtoken::DecodingKeyKind::RsaModulusExponent { n, .. } => {
                n.iter().skip_while(|byte| **byte == 0).count() >= RSA_MODULUS_MIN
            }
            jsonwebtoken::DecodingKeyKind::SecretOrDer(bytes) => {
                bytes.len() == if algorithm == Algorithm::ES256 { 65 } else { 32 }
            }
        };
        is_long.then_some(Self { id: jwk.common.key_id, algorithm, key })
    }
}

impl Verifier {
    /// Returns the claims of a token with a valid signature.
    fn claims(&self, token: &[u8]) -> Result<Claims, ErrorKind> {
        let header = jsonwebtoken::decode_header(token).map_err(|error| error.into_kind())?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_S;
        validation.validate_nbf = true;
        validation.validate_aud = self.audience.is_some();
        let mut required = vec!["exp"];
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        if let Some(audience) = &self.audience {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        let mut fault = ErrorKind::InvalidSignature;
        // A token that names a key is verified by it alone. Without a name, every key may be it.
        let is_candidate = |key: &&Key| {
            let is_named = header.kid.is_none() || key.id.is_none() || key.id == header.kid;
            key.algorithm == header.alg && is_named
        };
        for key in self.keys.iter().filter(is_candidate).take(KEYS_TRIED_MAX) {
            match jsonwebtoken::decode::<Claims>(token, &key.key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => fault = error.into_kind(),
            }
            if !matches!(fault, ErrorKind::InvalidSignature) {
                break;
            }
        }
        Err(fault)
    }
}

/// Keys that a token without a key's name is tried with.
const KEYS_TRIED_MAX: usize = 4;

impl TokenVerifier for Verifier {
    fn verify(&self, token: &[u8]) -> Result<VerifiedToken, TokenFault> {
        let claims = self.claims(token).map_err(|fault| match fault {
            ErrorKind::ExpiredSignature => TokenFault::Expired,
            _ => TokenFault::Invalid,
        })?;
        let info_hash = info_hash(&claims.infohash).ok_or(TokenFault::Invalid)?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64());
        // Saturates: a token may be valid for centuries.
        let valid_s = (claims.exp - now_s).max(0.0) as u32;
        Ok(VerifiedToken { info_hash, valid_s: valid_s.saturating_add(LEEWAY_S as u32) })
    }
}

/// Reads the claim `infohash`: 40 hex digits, 64 of a v2 hash, or 20 bytes percent-encoded as in an announce.
fn info_hash(text: &str) -> Option<InfoHash> {
    if let Ok(hash) = text.parse() {
        return Some(hash);
    }
    percent_decoded(text)?.try_into().ok().map(InfoHash)
}

impl fmt::Debug for KeySet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeySet of {}", self.keys.len())
    }
}
