//! Tokens of NATS: signed JSON (JWT) that names an operator, an account or a user, and what it may do. Servers know the
//! operator's key, so they take any user whose token its account has signed.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cluster::nats::Rights;
use nkeys::{KeyPair, KeyPairType};
use serde_json::{Value, json};
use types::to_hex;

/// The head of each token: signed by a key of NATS.
const HEADER: &str = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;
const VERSION: u32 = 2;
const UNLIMITED: i32 = -1;
/// Time within which a user can answer a message, nanoseconds: twice that of which a node waits.
const ANSWER_NS: u64 = 120_000_000_000;
/// The end of the year 9999, unix time in seconds.
const LAST_TIME: u64 = 253_402_300_799;

pub(super) struct Subject<'a> {
    pub(super) key: &'a KeyPair,
    /// For people.
    pub(super) name: &'a str,
    /// Unix time, seconds. Of two tokens of an account, servers keep the later one.
    pub(super) issued: u64,
    /// Unix time, seconds; `None` = never.
    pub(super) expires: Option<u64>,
}

pub(super) fn new_key(kind: KeyPairType) -> Result<KeyPair> {
    KeyPair::new_from_raw(kind, super::random()?).context("cannot make a key of NATS")
}

pub(super) fn key_of(seed: &str) -> Result<KeyPair> {
    KeyPair::from_seed(seed).context("a seed is damaged")
}

pub(super) fn seed_of(key: &KeyPair) -> Result<String> {
    key.seed().context("a key has no seed")
}

pub(super) fn new_seed(kind: KeyPairType) -> Result<String> {
    seed_of(&new_key(kind)?)
}

pub(super) fn of_operator(subject: &Subject<'_>, system_account: &KeyPair) -> Result<String> {
    let claims = json!({ "type": "operator", "system_account": system_account.public_key() });
    sign(subject, subject.key, claims)
}

/// Returns the token of an account. `removed` are the public keys of users that are refused.
pub(super) fn of_account<'a>(
    subject: &Subject<'_>,
    operator: &KeyPair,
    removed: impl Iterator<Item = &'a String>,
) -> Result<String> {
    let mut claims = json!({
        "type": "account",
        "limits": {
            "subs": UNLIMITED,
            "data": UNLIMITED,
            "payload": UNLIMITED,
            "imports": UNLIMITED,
            "exports": UNLIMITED,
            "wildcards": true,
            "conn": UNLIMITED,
            "leaf": UNLIMITED,
            "mem_storage": UNLIMITED,
            "disk_storage": UNLIMITED,
            "streams": UNLIMITED,
            "consumer": UNLIMITED,
        },
    });
    // Tokens of theirs that were issued before this time: all.
    let revocations = removed.map(|key| (key.clone(), LAST_TIME.into()));
    claims["revocations"] = Value::Object(revocations.collect());
    sign(subject, operator, claims)
}

/// Returns the token of an account in which there is only administration: no stream.
pub(super) fn of_system_account(subject: &Subject<'_>, operator: &KeyPair) -> Result<String> {
    let limits =
        json!({ "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED, "conn": UNLIMITED });
    sign(subject, operator, json!({ "type": "account", "limits": limits }))
}

pub(super) fn of_user(subject: &Subject<'_>, account: &KeyPair, rights: &Rights) -> Result<String> {
    let mut claims = json!({
        "type": "user",
        "pub": { "allow": rights.publish },
        "sub": { "allow": rights.subscribe },
        "subs": UNLIMITED,
        "data": UNLIMITED,
        "payload": UNLIMITED,
    });
    if rights.publish.is_empty() {
        // An empty list allows everything.
        claims["pub"] = json!({ "deny": [">"] });
    }
    if rights.answers {
        claims["resp"] = json!({ "max": 1, "ttl": ANSWER_NS });
    }
    sign(subject, account, claims)
}

fn sign(subject: &Subject<'_>, issuer: &KeyPair, mut claims: Value) -> Result<String> {
    claims["version"] = VERSION.into();
    // Servers tell tokens of an account apart by their ids.
    let id: [u8; 16] = super::random()?;
    let mut body = json!({
        "jti": to_hex(&id),
        "iat": subject.issued,
        "iss": issuer.public_key(),
        "name": subject.name,
        "sub": subject.key.public_key(),
        "nats": claims,
    });
    if let Some(expires) = subject.expires {
        body["exp"] = expires.into();
    }
    let [header, body] =
        [HEADER.to_owned(), body.to_string()].map(|part| URL_SAFE_NO_PAD.encode(part));
    let signed = format!("{header}.{body}");
    let signature = issuer.sign(signed.as_bytes()).context("cannot sign a token")?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_commands_end() {
        let [account, user] =
            [KeyPairType::Account, KeyPairType::User].map(|kind| new_key(kind).unwrap());
        let subject = Subject { key: &user, name: "operator", issued: 7, expires: Some(9) };
        let token = of_user(&subject, &account, &Rights::of_operator("c")).unwrap();
        let body = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["iat"], &body["exp"]), (&7.into(), &9.into()));
    }
}
