use serde_json::{Value, json};

use super::signer::{Signer, base64};
use super::*;

const TORRENT: InfoHash = InfoHash([0xab; 20]);

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims(more: Value) -> Value {
    let mut claims = json!({
        "iss": "https://id.example.org", "aud": "tracker", "exp": now_s() + 3600,
        "infohash": TORRENT.to_string(),
    });
    let all = claims.as_object_mut().unwrap();
    for (name, value) in more.as_object().unwrap() {
        if value.is_null() {
            all.remove(name);
        } else {
            all.insert(name.clone(), value.clone());
        }
    }
    claims
}

fn verifier(set: &str) -> Verifier {
    let set = KeySet::parse(set.as_bytes()).unwrap();
    set.verifier(Some("https://id.example.org"), Some("tracker"))
}

#[test]
fn accepts_each_algorithm() {
    let signers = ["ES256", "EdDSA", "RS256"].map(|name| Signer::new(name, name).unwrap());
    let keys: Vec<_> = signers.iter().map(Signer::jwk).collect();
    let verifier = verifier(&json!({ "keys": keys }).to_string());
    for signer in &signers {
        let token = signer.sign(&claims(json!({})));
        let verified = verifier.verify(token.as_bytes()).unwrap();
        assert_eq!(verified.info_hash, TORRENT);
        assert!((3600..=3700).contains(&verified.valid_s), "{verified:?}");
        // Any change breaks the signature. The last digit has bits that mean nothing.
        for at in (0..token.len() - 1).step_by(7) {
            let mut bad = token.clone().into_bytes();
            bad[at] = if bad[at] == b'A' { b'B' } else { b'A' };
            assert!(verifier.verify(&bad).is_err(), "{at}");
        }
    }
}

#[test]
fn checks_the_claims() {
    let signer = Signer::new("ES256", "one").unwrap();
    let verifier = verifier(&signer.key_set());
    let verdict = |more| {
        let verified = verifier.verify(signer.sign(&claims(more)).as_bytes());
        verified.map(|verified| verified.info_hash)
    };
    let invalid = Err(TokenFault::Invalid);
    assert_eq!(verdict(json!({})), Ok(TORRENT));
    assert_eq!(verdict(json!({ "aud": ["other", "tracker"] })), Ok(TORRENT));
    for (name, values) in [
        ("iss", vec![json!("https://other.example"), Value::Null, json!(7)]),
        ("aud", vec![json!("other"), json!([]), Value::Null]),
        ("exp", vec![Value::Null, json!("soon"), json!(-1)]),
        ("nbf", vec![json!(now_s() + 600), json!("now")]),
        ("infohash", vec![Value::Null, json!(""), json!("abc"), json!("g".repeat(40)), json!([1])]),
    ] {
        for value in values {
            assert_eq!(verdict(json!({ name: value })), invalid, "{name} {value}");
        }
    }
    assert_eq!(verdict(json!({ "exp": now_s() - 600 })), Err(TokenFault::Expired));
    assert_eq!(verdict(json!({ "nbf": now_s() - 600 })), Ok(TORRENT));
    let bytes: String = TORRENT.0.iter().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(verdict(json!({ "infohash": bytes })), Ok(TORRENT));
    let raw = InfoHash(*b"abcdefghijklmnopqrs~");
    assert_eq!(verdict(json!({ "infohash": "abcdefghijklmnopqrs~" })), Ok(raw));
    assert_eq!(verdict(json!({ "infohash": "ab".repeat(32) })), Ok(TORRENT));
}

#[test]
fn issuer_and_audience_are_optional() {
    let signer = Signer::new("EdDSA", "one").unwrap();
    let verifier = KeySet::parse(signer.key_set().as_bytes()).unwrap().verifier(None, None);
    for more in [json!({}), json!({ "iss": null, "aud": null }), json!({ "iss": "x", "aud": "y" })]
    {
        assert!(verifier.verify(signer.sign(&claims(more)).as_bytes()).is_ok());
    }
}

#[test]
fn tokens_choose_neither_algorithm_nor_key() {
    let [signer, other] = ["one", "two"].map(|id| Signer::new("ES256", id).unwrap());
    let verifier = verifier(&signer.key_set());
    let claims = claims(json!({}));
    let verdict = |token: String| verifier.verify(token.as_bytes()).err();
    let invalid = Some(TokenFault::Invalid);
    assert_eq!(verdict(other.sign(&claims)), invalid, "an unknown key");
    assert_eq!(
        verdict(other.sign_with(&json!({ "alg": "ES256", "kid": "one" }), &claims)),
        invalid
    );
    assert_eq!(verdict(signer.sign_with(&json!({ "alg": "ES256" }), &claims)), None, "no name");
    for algorithm in ["none", "None", "HS256", "RS256", "EdDSA", "ES384", ""] {
        let token = signer.sign_with(&json!({ "alg": algorithm, "kid": "one" }), &claims);
        assert_eq!(verdict(token), invalid, "{algorithm}");
    }
    // The public key as the secret of a symmetric algorithm; no signature at all.
    let unsigned = signer.sign(&claims);
    let (message, _) = unsigned.rsplit_once('.').unwrap();
    for bad in [format!("{message}."), message.into(), String::new(), "..".into(), ".".into()] {
        assert_eq!(verdict(bad.clone()), invalid, "{bad}");
    }
    let embedded = json!({ "alg": "ES256", "jwk": other.jwk() });
    assert_eq!(verdict(other.sign_with(&embedded, &claims)), invalid, "a key of its own");
}

#[test]
fn key_sets_need_a_usable_key() {
    let signer = Signer::new("ES256", "one").unwrap();
    let with = |name: &str, value: Value| {
        let mut key = signer.jwk();
        key[name] = value;
        KeySet::parse(json!({ "keys": [key] }).to_string().as_bytes())
    };
    assert!(with("unknown", json!(1)).is_ok());
    assert!(with("use", json!("enc")).is_err());
    assert!(with("alg", json!("ES384")).is_err() && with("alg", json!("RS256")).is_err());
    assert!(with("crv", json!("P-384")).is_err() && with("x", json!("AAAA")).is_err());
    let secret = json!({ "kty": "oct", "k": base64(&[7; 32]), "alg": "HS256" });
    let says = |text: &str| KeySet::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(says(&json!({ "keys": [secret] }).to_string()).contains("none of its 1 keys"));
    let mixed = json!({ "keys": [secret, signer.jwk(), 7] }).to_string();
    let mixed = KeySet::parse(mixed.as_bytes()).unwrap();
    assert_eq!((mixed.len(), mixed.skipped(), mixed.is_empty()), (1, 2, false));
    let small = json!({ "kty": "RSA", "n": base64(&[0xff; 128]), "e": "AQAB" });
    assert!(says(&json!({ "keys": [small] }).to_string()).contains("2048 bits"));
    for bad in ["", "{}", "[]", "{\"keys\":{}}", "{\"keys\":[]}", "\u{0}"] {
        assert!(says(bad).starts_with("not a usable key set: "), "{bad}");
    }
    assert!(says(&" ".repeat(limits::TOKEN_KEY_SET_MAX + 1)).contains("longer than"));
    let many = json!({ "keys": vec![signer.jwk(); limits::TOKEN_KEYS_MAX + 1] });
    assert!(says(&many.to_string()).contains("more than 64 keys"));
}
