//! Issues tokens, for tests.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Value, json};

/// Bytes of PKCS#8 before the private key of an RSA key of 2048 bits.
const RSA_HEADER_LEN: usize = 26;

/// A private key with a name.
pub struct Signer {
    id: String,
    key: EncodingKey,
    algorithm: Algorithm,
}

impl Signer {
    /// Makes a key for `algorithm`: ES256, EdDSA or RS256. Returns `None` for others, or if the system has no
    /// random numbers.
    pub fn new(algorithm: &str, id: &str) -> Option<Self> {
        let algorithm = algorithm.parse().ok()?;
        let random = SystemRandom::new();
        let key = match algorithm {
            Algorithm::ES256 => {
                let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
                EncodingKey::from_ec_der(pair.ok()?.as_ref())
            }
            Algorithm::EdDSA => {
                let pair = Ed25519KeyPair::generate_pkcs8v1(&random);
                EncodingKey::from_ed_der(pair.ok()?.as_ref())
            }
            Algorithm::RS256 => {
                let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).ok()?;
                let pkcs8 = pair.as_der().ok()?;
                EncodingKey::from_rsa_der(pkcs8.as_ref().get(RSA_HEADER_LEN..)?)
            }
            _ => return None,
        };
        Some(Self { id: id.into(), key, algorithm })
    }

    /// Returns the public key.
    pub fn jwk(&self) -> Value {
        let mut key = json!(Jwk::from_encoding_key(&self.key, self.algorithm).ok());
        key["kid"] = json!(self.id);
        key["use"] = json!("sig");
        key
    }

    /// Returns a key set with this key.
    pub fn key_set(&self) -> String {
        json!({ "keys": [self.jwk()] }).to_string()
    }

    /// Returns a token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({ "typ": "JWT", "alg": self.algorithm, "kid": self.id }), claims)
    }

    /// Returns a token with this header.
    pub fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| base64(value.to_string().as_bytes());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = crypto::sign(message.as_bytes(), &self.key, self.algorithm);
        format!("{message}.{}", signature.unwrap_or_default())
    }
}

/// Encodes bytes as base64url without padding (RFC 4648, section 5).
pub fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
