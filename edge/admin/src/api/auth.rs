//! Authentication: bearer tokens, and limits on how often they may be used and guessed.
//!
//! A token is `tg_` and 32 random characters. Only its SHA-256 is kept; the digests of all tokens are
//! compared in constant time. An address that sends too many invalid tokens is refused before its token is
//! checked.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use rusqlite::Connection;

use super::problem::Problem;
use super::scope::{Scope, Scopes};
use crate::records::tables::tokens::{self, TokenRow};

/// The prefix of every token, so that scanners for leaked secrets can recognise it.
const PREFIX: &str = "tg_";
/// Random characters behind the prefix: 190 bits.
const LEN: usize = 32;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Tokens at most: each is compared at each request.
pub(super) const TOKENS_MAX: usize = 1000;
/// Invalid tokens that one address may send in a burst, before the limit per minute applies.
const FAILURES_BURST: f64 = 20.0;
/// Entries of a rate limiter. Above this, those with the most left are forgotten.
const LIMITER_ENTRIES_MAX: usize = 4096;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    MissingToken,
    MalformedToken,
    UnknownToken,
    ExpiredToken,
    MissingScope,
    TooManyFailures,
    RateLimited,
}

impl AuthError {
    /// Labels in metrics, in the order of the variants.
    pub(crate) const LABELS: [&str; 7] = [
        "missing_token",
        "malformed_token",
        "unknown_token",
        "expired_token",
        "missing_scope",
        "too_many_failures",
        "rate_limited",
    ];

    pub(super) fn label(self) -> &'static str {
        Self::LABELS[self as usize]
    }

    /// Converts it to the response for a request that needs `scope`.
    pub(super) fn problem(self, scope: Scope) -> Problem {
        match self {
            Self::MissingToken => {
                Problem::unauthorized("no token: expected the header `Authorization: Bearer tg_…`")
            }
            Self::MalformedToken => Problem::unauthorized(
                "malformed token: expected `Bearer`, a space, `tg_` and 32 alphanumeric characters",
            ),
            Self::UnknownToken => Problem::unauthorized("unknown or revoked token"),
            Self::ExpiredToken => Problem::unauthorized("the token has expired"),
            Self::MissingScope => {
                Problem::forbidden(format!("the token lacks the scope `{}`", scope.label()))
            }
            Self::TooManyFailures => Problem::too_many(
                "too many invalid tokens from this address (limit: [admin] wrong_tokens_per_min)",
                1,
            ),
            Self::RateLimited => Problem::too_many(
                "too many requests with this token (limit: [admin] requests_per_s)",
                1,
            ),
        }
    }
}

/// The authenticated sender of a request.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The id of the token; 0 for a token that is not in the records.
    pub(super) token: i64,
    /// The name of the token.
    pub(super) name: String,
    pub(super) scopes: Scopes,
    pub(super) client: IpAddr,
}

/// The valid tokens, and how often each token and each address has been seen.
pub(crate) struct Authenticator {
    tokens: RwLock<Vec<TokenRow>>,
    /// Invalid tokens by address.
    failures: Mutex<RateLimiter<IpAddr>>,
    failure_limit: RateLimit,
    /// Requests by token.
    requests: Mutex<RateLimiter<i64>>,
    /// `None` = unlimited.
    request_limit: Option<RateLimit>,
    /// Refused requests, by [`AuthError`].
    pub(crate) refused: [AtomicU64; AuthError::LABELS.len()],
    /// Accepted requests.
    pub(crate) accepted: AtomicU64,
}

impl Authenticator {
    /// `requests_per_s` counts for each token, 0 = unlimited; `wrong_tokens_per_min` for each address.
    pub(super) fn new(
        tokens: Vec<TokenRow>,
        requests_per_s: u32,
        wrong_tokens_per_min: u32,
    ) -> Self {
        let per_s = f64::from(requests_per_s);
        let failures_per_s = f64::from(wrong_tokens_per_min) / 60.0;
        Self {
            tokens: RwLock::new(tokens),
            failures: Mutex::default(),
            failure_limit: RateLimit { burst: FAILURES_BURST, per_s: failures_per_s },
            requests: Mutex::default(),
            request_limit: (requests_per_s > 0).then_some(RateLimit { burst: 2.0 * per_s, per_s }),
            refused: Default::default(),
            accepted: AtomicU64::new(0),
        }
    }

    /// Adds a valid token.
    pub(super) fn add(&self, token: TokenRow) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).push(token);
    }

    /// Removes a token.
    pub(super) fn remove(&self, id: i64) {
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        tokens.retain(|token| token.id != id);
    }

    /// Returns the valid tokens.
    pub(super) fn tokens(&self) -> Vec<TokenRow> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks the `Authorization` header of a request from `client` that needs `scope`, at the Unix time
    /// `now`.
    pub(super) fn authorize(
        &self,
        header: Option<&[u8]>,
        client: IpAddr,
        scope: Scope,
        now: i64,
    ) -> Result<Caller, AuthError> {
        let caller = self.authenticate(header, client, now)?;
        if caller.scopes.allow(scope) { Ok(caller) } else { Err(AuthError::MissingScope) }
    }

    /// The same without a check of scopes.
    pub(super) fn authenticate(
        &self,
        header: Option<&[u8]>,
        client: IpAddr,
        now: i64,
    ) -> Result<Caller, AuthError> {
        // An address that guesses learns nothing more, not even from a valid token.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if !failures.has_left(client, self.failure_limit) {
            return Err(AuthError::TooManyFailures);
        }
        let found = header.ok_or(AuthError::MissingToken).and_then(|header| self.find(header, now));
        let token = match found {
            Ok(token) => token,
            Err(error) => {
                failures.try_take(client, self.failure_limit);
                return Err(error);
            }
        };
        drop(failures);
        if let Some(limit) = self.request_limit {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            if !requests.try_take(token.id, limit) {
                return Err(AuthError::RateLimited);
            }
        }
        let scopes = Scopes::parse(&token.scopes);
        Ok(Caller { token: token.id, name: token.name, scopes, client })
    }

    /// Returns the token that the header names, unless it has expired.
    fn find(&self, header: &[u8], now: i64) -> Result<TokenRow, AuthError> {
        let token = parse_bearer(header).ok_or(AuthError::MalformedToken)?;
        let wanted = fingerprint(token);
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        // All of them, so that the time tells nothing about where a match is.
        let mut found = None;
        for known in tokens.iter() {
            if verify_slices_are_equal(&known.digest, &wanted).is_ok() {
                found = Some(known);
            }
        }
        let token = found.ok_or(AuthError::UnknownToken)?;
        if token.expires.is_some_and(|expires| expires <= now) {
            return Err(AuthError::ExpiredToken);
        }
        Ok(token.clone())
    }
}

/// Adds the operator's own token to `known`. If there is no token at all then, creates one with full access,
/// records it and returns it.
pub(super) fn seed(
    known: &mut Vec<TokenRow>,
    given: Option<&str>,
    connection: &Connection,
) -> Result<Option<String>, rusqlite::Error> {
    let row = |token: &str, name: &str| TokenRow {
        id: 0,
        digest: fingerprint(token),
        name: name.into(),
        scopes: Scopes::ALL.to_string(),
        created: 0,
        expires: None,
    };
    if let Some(token) = given {
        known.push(row(token, "environment"));
    }
    if !known.is_empty() {
        return Ok(None);
    }
    let Ok(token) = generate_token() else { return Ok(None) };
    known.push(tokens::insert(connection, row(&token, "first"))?);
    Ok(Some(token))
}

/// Returns the token of an `Authorization: Bearer …` header, if it is well-formed.
fn parse_bearer(header: &[u8]) -> Option<&str> {
    let header = std::str::from_utf8(header).ok()?;
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && is_token(token)).then_some(token)
}

/// Returns whether `text` has the form of a token: `tg_` and 32 alphanumeric characters.
pub fn is_token(text: &str) -> bool {
    text.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == LEN && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Returns the SHA-256 of a token or session id, the only form in which it is kept.
pub(super) fn fingerprint(secret: &str) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    fingerprint
}

/// Generates a token.
pub(super) fn generate_token() -> Result<String, getrandom::Error> {
    Ok(format!("{PREFIX}{}", random_text(LEN)?))
}

/// Returns `len` random letters and digits.
pub(super) fn random_text(len: usize) -> Result<String, getrandom::Error> {
    let mut text = String::with_capacity(len);
    while text.len() < len {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes)?;
        // 248 is a multiple of 62: values above it would make some letters likelier.
        let letters = bytes.iter().filter(|byte| **byte < 248);
        let letters = letters.filter_map(|byte| ALPHABET.get(usize::from(byte % 62)));
        text.extend(letters.take(len - text.len()).map(|letter| char::from(*letter)));
    }
    Ok(text)
}

/// A limit as a token bucket: `burst` at once, refilled by `per_s`.
#[derive(Clone, Copy)]
struct RateLimit {
    burst: f64,
    per_s: f64,
}

/// Token buckets by key: what is left, and when it was last updated. Keys without an entry have a full one.
struct RateLimiter<K>(HashMap<K, (f64, Instant)>);

impl<K> Default for RateLimiter<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: std::hash::Hash + Eq> RateLimiter<K> {
    fn left(&self, key: &K, limit: RateLimit) -> f64 {
        self.0.get(key).map_or(limit.burst, |(left, at)| {
            (left + at.elapsed().as_secs_f64() * limit.per_s).min(limit.burst)
        })
    }

    /// Returns whether `try_take` would succeed.
    fn has_left(&self, key: K, limit: RateLimit) -> bool {
        self.left(&key, limit) >= 1.0
    }

    /// Takes one, and returns false if there is none.
    fn try_take(&mut self, key: K, limit: RateLimit) -> bool {
        let left = self.left(&key, limit);
        if left < 1.0 {
            return false;
        }
        if self.0.len() >= LIMITER_ENTRIES_MAX && !self.0.contains_key(&key) {
            self.forget_fuller_half(limit);
        }
        self.0.insert(key, (left - 1.0, Instant::now()));
        true
    }

    /// Removes the half of the buckets with the most left: a full bucket is the same as none.
    fn forget_fuller_half(&mut self, limit: RateLimit) {
        let left = |(left, at): &(f64, Instant)| left + at.elapsed().as_secs_f64() * limit.per_s;
        let mut all: Vec<f64> = self.0.values().map(left).collect();
        all.sort_by(f64::total_cmp);
        if let Some(median) = all.get(all.len() / 2).copied() {
            self.0.retain(|_, bucket| left(bucket) < median);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn three_per_s(token: &str, scopes: &str, expires: Option<i64>) -> Authenticator {
        gate_with(token, scopes, expires, 3)
    }

    fn gate_with(
        token: &str,
        scopes: &str,
        expires: Option<i64>,
        requests_per_s: u32,
    ) -> Authenticator {
        let row = TokenRow {
            id: 7,
            digest: fingerprint(token),
            name: "n".into(),
            scopes: scopes.into(),
            created: 0,
            expires,
        };
        Authenticator::new(vec![row], requests_per_s, 1)
    }

    #[test]
    fn accepts_known_tokens_within_their_scopes_until_they_expire() {
        let token = generate_token().unwrap();
        assert!(is_token(&token) && token.len() == 35 && generate_token().unwrap() != token);
        let authenticator = three_per_s(&token, "keys:read", Some(100));
        let authorize = |header: &str, scope, now| {
            authenticator
                .authorize(Some(header.as_bytes()), HOME, scope, now)
                .map(|caller| caller.token)
        };
        let good = format!("Bearer {token}");
        assert_eq!(authorize(&good, Scope::KeysRead, 99), Ok(7));
        assert_eq!(authorize(&good.replace("Bearer", "bearer"), Scope::KeysRead, 99), Ok(7));
        assert_eq!(authorize(&good, Scope::KeysWrite, 99), Err(AuthError::MissingScope));
        assert_eq!(authorize(&good, Scope::KeysRead, 100), Err(AuthError::ExpiredToken));
        let other = format!("Bearer {}", generate_token().unwrap());
        assert_eq!(authorize(&other, Scope::KeysRead, 99), Err(AuthError::UnknownToken));
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            &token,
            &format!("Basic {token}"),
            "Bearer tg_é",
            &format!("{good}x"),
            &good[..good.len() - 1],
            "Bearer tg_' OR 1=1 --aaaaaaaaaaaaaaaaa",
        ] {
            assert_eq!(
                authorize(bad, Scope::KeysRead, 99),
                Err(AuthError::MalformedToken),
                "{bad}"
            );
        }
        authenticator.remove(7);
        assert_eq!(authorize(&good, Scope::KeysRead, 99), Err(AuthError::UnknownToken));
        assert_eq!(
            authenticator.authorize(None, HOME, Scope::KeysRead, 0).map(drop),
            Err(AuthError::MissingToken)
        );
    }

    #[test]
    fn refuses_an_address_that_guesses_and_accepts_others() {
        let token = generate_token().unwrap();
        // With a limit on requests and without.
        for requests_per_s in [3, 0] {
            let authenticator = gate_with(&token, "*", None, requests_per_s);
            let good = format!("Bearer {token}");
            let authorize = |header: &str, from| {
                authenticator.authorize(Some(header.as_bytes()), from, Scope::All, 0).map(|_| ())
            };
            let wrong: Vec<_> = (0..100).map(|_| authorize("Bearer x", HOME)).collect();
            assert_eq!(wrong.first(), Some(&Err(AuthError::MalformedToken)));
            assert!(wrong.contains(&Err(AuthError::TooManyFailures)));
            assert_eq!(authorize(&good, HOME), Err(AuthError::TooManyFailures));
            assert_eq!(authorize(&good, [10, 0, 0, 1].into()), Ok(()));
        }
    }

    #[test]
    fn limits_requests_by_token() {
        let token = generate_token().unwrap();
        let authenticator = three_per_s(&token, "*", None);
        let good = format!("Bearer {token}");
        let outcomes: Vec<_> = (0..20)
            .map(|_| {
                authenticator.authorize(Some(good.as_bytes()), HOME, Scope::All, 0).map(|_| ())
            })
            .collect();
        assert!(outcomes[..6].iter().all(Result::is_ok));
        assert_eq!(outcomes.last(), Some(&Err(AuthError::RateLimited)));
    }

    #[test]
    fn limiter_entries_are_limited() {
        let mut limiter = RateLimiter::default();
        for key in 0..3 * LIMITER_ENTRIES_MAX {
            limiter.try_take(key, RateLimit { burst: 20.0, per_s: 1.0 });
        }
        assert!(limiter.0.len() <= LIMITER_ENTRIES_MAX);
    }
}
