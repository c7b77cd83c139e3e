//! Authentication: bearer tokens, and limits on how often they may be used and guessed.
//!
//! A token is `tg_` and 32 random characters. Only its SHA-256 is kept, and tokens are found by it, so the
//! time of a search tells nothing about a token. Every token that is sent is looked up: a valid one is never
//! refused because of what others sent. The limits on invalid tokens restrict only the responses to those.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::{Mutex, RwLock};
use tracker::IpPrefix;

use super::problem::Problem;
use super::scope::{Scope, Scopes};
use super::session_store::SessionId;
use crate::listener::host;
use crate::records::tables::tokens::TokenRow;

/// The prefix of every token, so that scanners for leaked secrets can recognise it.
const PREFIX: &str = "tg_";
/// Random characters behind the prefix: 190 bits.
const LEN: usize = 32;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Tokens at most: more than any operator can keep apart.
pub(super) const TOKENS_MAX: usize = 1000;
/// Invalid tokens that one address may send in a burst, before the limit per minute applies.
const FAILURES_BURST: f64 = 20.0;
/// All addresses together may send this many times as many invalid tokens as one, so that guessing from many
/// addresses is limited, too.
const FAILURES_IN_ALL: f64 = 10.0;
/// Entries of a rate limiter above which those with a full bucket are forgotten. Few others can be there: an address
/// takes from its bucket only while there is one in that of all.
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

    /// Converts it to the response for a request that needs `scopes`.
    pub(super) fn problem(self, scopes: Scopes) -> Problem {
        match self {
            Self::MissingToken => {
                Problem::unauthorized("no token: expected the header `Authorization: Bearer tg_…`")
            }
            Self::MalformedToken => Problem::unauthorized(
                "malformed token: expected `tg_` and 32 letters and digits, without quotes; in a header, after `Bearer`",
            ),
            Self::UnknownToken => Problem::unauthorized("unknown or revoked token"),
            Self::ExpiredToken => Problem::unauthorized("the token has expired"),
            Self::MissingScope => {
                let labels: Vec<_> = scopes.list().into_iter().map(Scope::label).collect();
                let scopes = labels.join("` and `");
                Problem::forbidden(format!("expected a token with the scope `{scopes}`"))
            }
            Self::TooManyFailures => Problem::too_many("invalid token, and too many before it", 1),
            Self::RateLimited => Problem::too_many("too many requests with this token", 1),
        }
    }
}

/// The authenticated sender of a request.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The id of the token; 0 for a token that is not in the records.
    pub(super) token: i64,
    pub(super) name: String,
    pub(super) scopes: Scopes,
    /// When the token expires, Unix time in seconds.
    pub(super) expires: Option<i64>,
    /// The digest of the token, if what it creates may end with it. The first token and that of the
    /// environment end when their operator has others, so what they create stays.
    pub(super) owner: Option<[u8; 32]>,
    pub(super) client: IpAddr,
    pub(super) session: Option<SessionId>,
}

/// The valid tokens, and how often each token and each address has been seen.
pub(crate) struct Authenticator {
    /// By digest.
    tokens: RwLock<HashMap<[u8; 32], TokenRow>>,
    /// Invalid tokens by address, and in all.
    failures: Mutex<(RateLimiter<IpPrefix>, RateLimiter<()>)>,
    failure_limit: RateLimit,
    /// Requests by token.
    requests: Mutex<RateLimiter<i64>>,
    /// `None` = unlimited.
    request_limit: Option<RateLimit>,
    /// Refused requests, by [`AuthError`].
    pub(crate) refused: [AtomicU64; AuthError::LABELS.len()],
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
            tokens: RwLock::new(tokens.into_iter().map(|token| (token.digest, token)).collect()),
            failures: Mutex::default(),
            failure_limit: RateLimit { burst: FAILURES_BURST, per_s: failures_per_s },
            requests: Mutex::default(),
            request_limit: (requests_per_s > 0).then_some(RateLimit { burst: 2.0 * per_s, per_s }),
            refused: Default::default(),
            accepted: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, token: TokenRow) {
        let mut tokens = self.tokens.write();
        tokens.insert(token.digest, token);
    }

    pub(super) fn remove(&self, id: i64) -> Option<TokenRow> {
        let mut tokens = self.tokens.write();
        let digest = tokens.values().find(|token| token.id == id)?.digest;
        tokens.remove(&digest)
    }

    /// Returns the ids of first tokens, if `caller` has taken over from them: with another recorded token that has full
    /// access. In a cluster, each node may have created one.
    pub(super) fn ended_first(&self, caller: &Caller) -> Vec<i64> {
        if caller.token == 0 || !caller.scopes.allow(Scope::All) {
            return Vec::new();
        }
        let tokens = self.tokens.read();
        let first: Vec<_> = tokens.values().filter(|it| it.is_first).map(|it| it.id).collect();
        if first.contains(&caller.token) { Vec::new() } else { first }
    }

    /// Returns whether the token with this id is known and has not expired at the Unix time `now`.
    pub(super) fn is_valid(&self, id: i64, now: i64) -> bool {
        let tokens = self.tokens.read();
        let token = tokens.values().find(|token| token.id == id);
        token.is_some_and(|token| !token.has_expired(now))
    }

    pub(super) fn by_digest(&self, digest: &[u8; 32]) -> Option<TokenRow> {
        self.tokens.read().get(digest).cloned()
    }

    /// Returns the valid tokens, ordered by id.
    pub(super) fn tokens(&self) -> Vec<TokenRow> {
        let tokens = self.tokens.read();
        let mut tokens: Vec<_> = tokens.values().cloned().collect();
        tokens.sort_unstable_by_key(|token| token.id);
        tokens
    }

    /// Checks the `Authorization` header of a request from `client` that needs `scopes`, at the Unix time
    /// `now`.
    pub(super) fn authorize(
        &self,
        header: Option<&[u8]>,
        client: IpAddr,
        scopes: Scopes,
        now: i64,
    ) -> Result<Caller, AuthError> {
        let caller = self.authenticate(header, client, now)?;
        if caller.scopes.cover(scopes) { Ok(caller) } else { Err(AuthError::MissingScope) }
    }

    /// The same without a check of scopes.
    pub(super) fn authenticate(
        &self,
        header: Option<&[u8]>,
        client: IpAddr,
        now: i64,
    ) -> Result<Caller, AuthError> {
        let header = header.ok_or(AuthError::MissingToken)?;
        let token = self.find(header, now).map_err(|error| self.charge(error, client))?;
        if let Some(limit) = self.request_limit {
            let mut requests = self.requests.lock();
            if !requests.try_take(token.id, limit) {
                return Err(AuthError::RateLimited);
            }
        }
        let scopes = Scopes::parse(&token.scopes);
        let owner = (token.id != 0 && !token.is_first).then_some(token.digest);
        let TokenRow { id, name, expires, .. } = token;
        Ok(Caller { token: id, name, scopes, expires, owner, client, session: None })
    }

    /// Returns the token that the header names, unless it has expired.
    fn find(&self, header: &[u8], now: i64) -> Result<TokenRow, AuthError> {
        let token = parse_bearer(header).ok_or(AuthError::MalformedToken)?;
        let tokens = self.tokens.read();
        let token = tokens.get(&fingerprint(token)).ok_or(AuthError::UnknownToken)?;
        if token.has_expired(now) {
            return Err(AuthError::ExpiredToken);
        }
        Ok(token.clone())
    }

    /// Counts an invalid token. Returns the error for the response: when there were too many, it tells only
    /// that. An expired token is no guess.
    fn charge(&self, error: AuthError, client: IpAddr) -> AuthError {
        if !matches!(error, AuthError::MalformedToken | AuthError::UnknownToken) {
            return error;
        }
        let limit = self.failure_limit;
        let in_all = RateLimit {
            burst: FAILURES_IN_ALL * limit.burst,
            per_s: FAILURES_IN_ALL * limit.per_s,
        };
        let mut failures = self.failures.lock();
        let (by_address, all) = &mut *failures;
        // In this order: what one address sends above its own limit does not use up that of all.
        let is_within = all.has(&(), in_all)
            && by_address.try_take(host(client), limit)
            && all.try_take((), in_all);
        if is_within { error } else { AuthError::TooManyFailures }
    }
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

pub(super) fn generate_token() -> Result<String, getrandom::Error> {
    Ok(format!("{PREFIX}{}", random_text(LEN)?))
}

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
    fn left((left, at): &(f64, Instant), limit: RateLimit) -> f64 {
        (left + at.elapsed().as_secs_f64() * limit.per_s).min(limit.burst)
    }

    /// Returns whether there is one to take.
    fn has(&self, key: &K, limit: RateLimit) -> bool {
        self.0.get(key).is_none_or(|bucket| Self::left(bucket, limit) >= 1.0)
    }

    /// Takes one, and returns false if there is none.
    fn try_take(&mut self, key: K, limit: RateLimit) -> bool {
        if !self.has(&key, limit) {
            return false;
        }
        let left = self.0.get(&key).map_or(limit.burst, |bucket| Self::left(bucket, limit));
        if self.0.len() >= LIMITER_ENTRIES_MAX && !self.0.contains_key(&key) {
            // A full bucket is the same as none.
            self.0.retain(|_, bucket| Self::left(bucket, limit) < limit.burst);
        }
        self.0.insert(key, (left - 1.0, Instant::now()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    const TOKEN: &str = "tg_0123456789abcdefghijABCDEFGHIJ01";

    fn gate(requests_per_s: u32) -> Authenticator {
        let row = TokenRow {
            id: 7,
            digest: fingerprint(TOKEN),
            name: "n".into(),
            scopes: "*".into(),
            created: 0,
            expires: None,
            is_first: false,
        };
        Authenticator::new(vec![row], requests_per_s, 1)
    }

    #[test]
    fn the_addresses_of_a_64_count_as_one() {
        let authenticator = gate(0);
        let wrong = format!("Bearer {}", generate_token().unwrap());
        let guess = |number: u16| {
            let from = [0x2001, 0xdb8, 0, 0, 0, 0, 0, number].into();
            authenticator.authorize(Some(wrong.as_bytes()), from, Scopes::ALL, 0).map(|_| ())
        };
        let guesses: Vec<_> = (0..50).map(guess).collect();
        assert_eq!(guesses.last(), Some(&Err(AuthError::TooManyFailures)));
    }

    #[test]
    fn limits_requests_by_token() {
        let authenticator = gate(3);
        let good = format!("Bearer {TOKEN}");
        let outcomes: Vec<_> = (0..20)
            .map(|_| {
                authenticator.authorize(Some(good.as_bytes()), HOME, Scopes::ALL, 0).map(|_| ())
            })
            .collect();
        assert!(outcomes[..6].iter().all(Result::is_ok));
        assert_eq!(outcomes.last(), Some(&Err(AuthError::RateLimited)));
    }

    #[test]
    fn guesses_from_many_addresses_take_little_memory() {
        let authenticator = gate(0);
        for number in 0..3 * LIMITER_ENTRIES_MAX as u32 {
            authenticator.charge(AuthError::UnknownToken, IpAddr::V4(number.into()));
        }
        assert!(authenticator.failures.lock().0.0.len() <= LIMITER_ENTRIES_MAX);
    }
}
