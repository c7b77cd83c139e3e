//! Issues tokens, for tests.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A key pair with a name.
pub struct Signer {
    id: String,
    pair: Pair,
}

enum Pair {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(rsa::KeyPair),
}

impl Signer {
    /// Makes a pair for `algorithm`: ES256, EdDSA or RS256. Returns `None` for others, or if the system has no
    /// random numbers.
    pub fn new(algorithm: &str, id: &str) -> Option<Self> {
        let pair = match algorithm {
            "ES256" => Pair::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).ok()?),
            "EdDSA" => Pair::Ed(Ed25519KeyPair::generate().ok()?),
            "RS256" => Pair::Rsa(rsa::KeyPair::generate(rsa::KeySize::Rsa2048).ok()?),
            _ => return None,
        };
        Some(Self { id: id.into(), pair })
    }

    /// Returns the public key.
    pub fn jwk(&self) -> Value {
        let mut key = match &self.pair {
            Pair::Ec(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = point.split_at(1).1.split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "x": base64(x), "y": base64(y) })
            }
            Pair::Ed(pair) => {
                let x = base64(pair.public_key().as_ref());
                json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": x })
            }
            Pair::Rsa(pair) => {
                let key = pair.public_key();
                let n = base64(key.modulus().big_endian_without_leading_zero());
                let e = base64(key.exponent().big_endian_without_leading_zero());
                json!({ "kty": "RSA", "alg": "RS256", "n": n, "e": e })
            }
        };
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
        let algorithm = match &self.pair {
            Pair::Ec(_) => "ES256",
            Pair::Ed(_) => "EdDSA",
            Pair::Rsa(_) => "RS256",
        };
        self.sign_with(&json!({ "typ": "JWT", "alg": algorithm, "kid": self.id }), claims)
    }

    /// Returns a token with this header.
    pub fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| base64(value.to_string().as_bytes());
        let message = format!("{}.{}", part(header), part(claims));
        let (bytes, random) = (message.as_bytes(), SystemRandom::new());
        let signature = match &self.pair {
            Pair::Ec(pair) => pair.sign(&random, bytes).map(|it| it.as_ref().to_vec()),
            Pair::Ed(pair) => Ok(pair.sign(bytes).as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).map(|()| signature)
            }
        };
        format!("{message}.{}", base64(&signature.unwrap_or_default()))
    }
}

/// Encodes bytes as base64url without padding (RFC 4648, section 5).
pub fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
