//! Who may: bearer tokens, and how often one may ask.
//!
//! A token is `tg_` and 32 random characters. Only its SHA-256 is kept; digests are compared in
//! constant time, all of them. An address whose tokens are wrong too often is not even looked at.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use tracing::debug;

use super::describe::Input;
use super::problem::Problem;
use super::scope::{Scope, Scopes};
use super::{ApiOptions, Shared};
use crate::records::tables::tokens::TokenRow;

/// What every token begins with, so that scanners for leaked secrets can know it.
const PREFIX: &str = "tg_";
/// Random characters behind it: 190 bits.
const LEN: usize = 32;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Tokens there may be: each is compared with at each request.
pub(super) const TOKENS_MAX: usize = 1000;
/// Wrong tokens from one address at once, whatever may come in a minute.
const FAILURES_BURST: f64 = 20.0;
/// Addresses that are remembered for them. When there are more, the calmest are forgotten.
const ADDRESSES_MAX: usize = 4096;

/// Why a request was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    Missing,
    Malformed,
    Unknown,
    Expired,
    Scope,
    Failures,
    Rate,
}

impl AuthError {
    /// Names in metrics.
    pub(crate) const LABELS: [&str; 7] = [
        "no_token",
        "malformed_token",
        "unknown_token",
        "expired_token",
        "scope",
        "failures",
        "rate",
    ];

    fn label(self) -> &'static str {
        Self::LABELS.get(self as usize).copied().unwrap_or_default()
    }

    pub(super) fn problem(self, scope: Scope) -> Problem {
        match self {
            Self::Missing => {
                Problem::unauthorized("the header `Authorization: Bearer tg_…` is missing")
            }
            Self::Malformed => {
                Problem::unauthorized("the header Authorization holds no token of tidegate's")
            }
            Self::Unknown => Problem::unauthorized("the token is not known, or has been revoked"),
            Self::Expired => Problem::unauthorized("the token has expired"),
            Self::Scope => {
                Problem::forbidden(format!("the token lacks the scope {}", scope.label()))
            }
            Self::Failures => Problem::too_many("too many wrong tokens came from this address", 1),
            Self::Rate => Problem::too_many("more requests than [admin] requests_per_s", 1),
        }
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) token: i64,
    pub(super) name: String,
    pub(super) scopes: Scopes,
    pub(super) from: IpAddr,
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        // It is there in all routes that have a scope.
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| AuthError::Missing.problem(Scope::All))
    }
}

impl Input for Caller {}

/// Says of an answer that it is to somebody who was let in, by that token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthenticatedToken(pub(crate) i64);

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From(pub(crate) SocketAddr);

/// The tokens in force, and who has tried.
#[derive(Default)]
pub(crate) struct Authenticator {
    tokens: RwLock<Vec<TokenRow>>,
    failures: Mutex<RateLimiter<IpAddr>>,
    asked: Mutex<RateLimiter<i64>>,
    /// Requests of one token in a second; 0 is no bound.
    requests_per_s: u32,
    /// Wrong tokens from one address.
    failures_max: RateLimit,
    /// Requests not let in, by [`AuthError`].
    pub(crate) refused: [AtomicU64; AuthError::LABELS.len()],
    /// Requests let in.
    pub(crate) admitted: AtomicU64,
}

impl Authenticator {
    pub(super) fn new(tokens: Vec<TokenRow>, options: &ApiOptions) -> Self {
        let per_s = f64::from(options.wrong_tokens_per_min) / 60.0;
        Self {
            tokens: RwLock::new(tokens),
            requests_per_s: options.requests_per_s,
            failures_max: RateLimit { burst: FAILURES_BURST, per_s },
            ..Self::default()
        }
    }

    /// Puts another token in force.
    pub(super) fn add(&self, token: TokenRow) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).push(token);
    }

    /// Takes one out of force.
    pub(super) fn remove(&self, id: i64) {
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        tokens.retain(|token| token.id != id);
    }

    /// Those in force.
    pub(super) fn tokens(&self) -> Vec<TokenRow> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets somebody in, at `now` in seconds since 1970; or says why not.
    fn admit(
        &self,
        header: Option<&[u8]>,
        from: IpAddr,
        scope: Scope,
        now: i64,
    ) -> Result<Caller, AuthError> {
        let caller = self.identify(header, from, now)?;
        if caller.scopes.allow(scope) { Ok(caller) } else { Err(AuthError::Scope) }
    }

    /// Says who asks.
    pub(super) fn identify(
        &self,
        header: Option<&[u8]>,
        from: IpAddr,
        now: i64,
    ) -> Result<Caller, AuthError> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if !failures.has_left(from, self.failures_max) {
            return Err(AuthError::Failures);
        }
        let found = header.ok_or(AuthError::Missing).and_then(|header| self.find(header, now));
        let token = match found {
            Ok(token) => token,
            Err(refused) => {
                failures.take(from, self.failures_max);
                return Err(refused);
            }
        };
        drop(failures);
        if self.requests_per_s > 0 {
            let per_s = f64::from(self.requests_per_s);
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            if !asked.take(token.id, RateLimit { burst: 2.0 * per_s, per_s }) {
                return Err(AuthError::Rate);
            }
        }
        let scopes = Scopes::parse(&token.scopes);
        Ok(Caller { token: token.id, name: token.name, scopes, from })
    }

    fn find(&self, header: &[u8], now: i64) -> Result<TokenRow, AuthError> {
        let token = read(header).ok_or(AuthError::Malformed)?;
        let wanted = fingerprint(token);
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for known in tokens.iter() {
            if verify_slices_are_equal(&known.digest, &wanted).is_ok() {
                found = Some(known);
            }
        }
        let token = found.ok_or(AuthError::Unknown)?;
        if token.expires.is_some_and(|expires| expires <= now) {
            return Err(AuthError::Expired);
        }
        Ok(token.clone())
    }
}

/// The token of an `Authorization: Bearer …`, if it can be one.
fn read(header: &[u8]) -> Option<&str> {
    let header = std::str::from_utf8(header).ok()?;
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && is_token(token)).then_some(token)
}

/// Whether `text` can be a token: `tg_` and 32 letters and digits.
pub fn is_token(text: &str) -> bool {
    text.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == LEN && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// What is kept of a token.
pub(super) fn fingerprint(token: &str) -> [u8; 32] {
    // SHA-256 gives 32 bytes.
    digest(&SHA256, token.as_bytes()).as_ref().try_into().unwrap_or_default()
}

/// A new token.
pub(super) fn generate_token() -> Result<String, getrandom::Error> {
    Ok(format!("{PREFIX}{}", random_text(LEN)?))
}

/// Random letters and digits.
pub(super) fn random_text(len: usize) -> Result<String, getrandom::Error> {
    let mut text = String::with_capacity(len);
    while text.len() < len {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes)?;
        // Of 256 values 248 are four times the alphabet: the rest would make some letters likelier.
        let letters = bytes.iter().filter(|byte| **byte < 248);
        let letters = letters.filter_map(|byte| ALPHABET.get(usize::from(byte % 62)));
        text.extend(letters.take(len - text.len()).map(|letter| char::from(*letter)));
    }
    Ok(text)
}

/// Goes before every handler of a route with a scope.
pub(super) async fn guard(
    State((shared, scope)): State<(Shared, Scope)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let from = request.extensions().get::<ConnectInfo<From>>();
    let from = from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.0.0.ip());
    let header = request.headers().get(AUTHORIZATION).map(|header| header.as_bytes());
    let authenticator = &shared.authenticator;
    // The route's path, not the request's: what somebody puts there by mistake may be a secret.
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    match authenticator.admit(header, from, scope, shared.now()) {
        Ok(caller) => {
            authenticator.admitted.fetch_add(1, Ordering::Relaxed);
            let token = caller.token;
            request.extensions_mut().insert(caller);
            let mut answer = next.run(request).await;
            answer.extensions_mut().insert(AuthenticatedToken(token));
            let status = answer.status().as_u16();
            debug!("{method} {path} by token {token} at {from}: {status}");
            Ok(answer)
        }
        Err(refused) => {
            debug!("{method} {path} at {from}: {}", refused.label());
            if let Some(count) = authenticator.refused.get(refused as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(refused.problem(scope))
        }
    }
}

/// How much may come.
#[derive(Clone, Copy, Default)]
struct RateLimit {
    burst: f64,
    per_s: f64,
}

/// What is left of it, by who comes.
struct RateLimiter<K>(HashMap<K, (f64, Instant)>);

impl<K> Default for RateLimiter<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: std::hash::Hash + Eq> RateLimiter<K> {
    fn left(&self, key: &K, pace: RateLimit) -> f64 {
        self.0.get(key).map_or(pace.burst, |(left, at)| {
            (left + at.elapsed().as_secs_f64() * pace.per_s).min(pace.burst)
        })
    }

    fn has_left(&self, key: K, pace: RateLimit) -> bool {
        self.left(&key, pace) >= 1.0
    }

    /// Takes one, if there is one.
    fn take(&mut self, key: K, pace: RateLimit) -> bool {
        let left = self.left(&key, pace);
        if left < 1.0 {
            return false;
        }
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&key) {
            // Whoever has all of it back might as well never have come.
            let whole =
                |(left, at): &(f64, Instant)| left + at.elapsed().as_secs_f64() * pace.per_s;
            let mut all: Vec<f64> = self.0.values().map(whole).collect();
            all.sort_by(f64::total_cmp);
            let middle = all.get(all.len() / 2).copied().unwrap_or_default();
            self.0.retain(|_, bucket| whole(bucket) < middle);
        }
        self.0.insert(key, (left - 1.0, Instant::now()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn authenticator(token: &str, scopes: &str, expires: Option<i64>) -> Authenticator {
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
        let options =
            ApiOptions { requests_per_s, wrong_tokens_per_min: 1, ..ApiOptions::default() };
        Authenticator::new(vec![row], &options)
    }

    #[test]
    fn tokens_are_let_in_by_what_they_are() {
        let token = generate_token().unwrap();
        assert!(is_token(&token) && token.len() == 35 && generate_token().unwrap() != token);
        let authenticator = authenticator(&token, "keys:read", Some(100));
        let ask = |header: &str, scope, now| {
            authenticator
                .admit(Some(header.as_bytes()), HOME, scope, now)
                .map(|caller| caller.token)
        };
        let good = format!("Bearer {token}");
        assert_eq!(ask(&good, Scope::KeysRead, 99), Ok(7));
        assert_eq!(ask(&good.replace("Bearer", "bearer"), Scope::KeysRead, 99), Ok(7));
        assert_eq!(ask(&good, Scope::KeysWrite, 99), Err(AuthError::Scope));
        assert_eq!(ask(&good, Scope::KeysRead, 100), Err(AuthError::Expired));
        let other = format!("Bearer {}", generate_token().unwrap());
        assert_eq!(ask(&other, Scope::KeysRead, 99), Err(AuthError::Unknown));
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
            assert_eq!(ask(bad, Scope::KeysRead, 99), Err(AuthError::Malformed), "{bad}");
        }
        authenticator.remove(7);
        assert_eq!(ask(&good, Scope::KeysRead, 99), Err(AuthError::Unknown));
        assert_eq!(
            authenticator.admit(None, HOME, Scope::KeysRead, 0).map(drop),
            Err(AuthError::Missing)
        );
    }

    #[test]
    fn who_guesses_is_not_looked_at_and_others_are() {
        let token = generate_token().unwrap();
        // Whether requests are bounded or not.
        for requests_per_s in [3, 0] {
            let authenticator = gate_with(&token, "*", None, requests_per_s);
            let good = format!("Bearer {token}");
            let ask = |header: &str, from| {
                authenticator.admit(Some(header.as_bytes()), from, Scope::All, 0).map(|_| ())
            };
            let wrong: Vec<_> = (0..100).map(|_| ask("Bearer x", HOME)).collect();
            assert_eq!(wrong.first(), Some(&Err(AuthError::Malformed)));
            assert!(wrong.contains(&Err(AuthError::Failures)));
            assert_eq!(ask(&good, HOME), Err(AuthError::Failures));
            assert_eq!(ask(&good, [10, 0, 0, 1].into()), Ok(()));
        }
    }

    #[test]
    fn a_token_asks_as_often_as_it_may() {
        let token = generate_token().unwrap();
        let authenticator = authenticator(&token, "*", None);
        let good = format!("Bearer {token}");
        let outcomes: Vec<_> = (0..20)
            .map(|_| authenticator.admit(Some(good.as_bytes()), HOME, Scope::All, 0).map(|_| ()))
            .collect();
        assert!(outcomes[..6].iter().all(Result::is_ok));
        assert_eq!(outcomes.last(), Some(&Err(AuthError::Rate)));
    }

    #[test]
    fn buckets_are_bounded() {
        let mut buckets = RateLimiter::default();
        for key in 0..3 * ADDRESSES_MAX {
            buckets.take(key, RateLimit { burst: 20.0, per_s: 1.0 });
        }
        assert!(buckets.0.len() <= ADDRESSES_MAX);
    }
}
