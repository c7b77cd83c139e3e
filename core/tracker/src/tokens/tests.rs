use std::sync::atomic::AtomicUsize;

use super::*;

/// A token is a torrent's byte, the seconds that it is valid, and any bytes; 0 seconds = expired.
struct Plain(Arc<AtomicUsize>);

impl TokenVerifier for Plain {
    fn verify(&self, token: &[u8]) -> Result<VerifiedToken, TokenFault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        match token {
            [byte, 0, ..] if *byte > 0 => Err(TokenFault::Expired),
            [byte, valid_s, ..] if *byte > 0 => {
                Ok(VerifiedToken { info_hash: InfoHash([*byte; 20]), valid_s: (*valid_s).into() })
            }
            _ => Err(TokenFault::Invalid),
        }
    }
}

struct Scene {
    tokens: Tokens,
    verified: Arc<AtomicUsize>,
}

impl Scene {
    fn new() -> Self {
        let (tokens, verified) = (Tokens::new([7; 16]), Arc::<AtomicUsize>::default());
        tokens.set_verifier(Some(Box::new(Plain(Arc::clone(&verified)))));
        Self { tokens, verified }
    }

    fn admit(&self, now: u32, token: &[u8], torrent: u8) -> Result<(), Refusal> {
        self.admit_from(now, token, torrent, Some([1, 2, 3, 4].into()))
    }

    fn admit_from(
        &self,
        now: u32,
        token: &[u8],
        torrent: u8,
        prefix: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        self.tokens.admit(Tick(now), token, &InfoHash([torrent; 20]), prefix, &mut 9)
    }

    fn verified(&self) -> usize {
        self.verified.load(Ordering::Relaxed)
    }
}

#[test]
fn verified_tokens_are_remembered_until_they_expire() {
    let scene = Scene::new();
    for now in [0, 3, 5] {
        assert_eq!(scene.admit(now, &[1, 5], 1), Ok(()));
    }
    assert_eq!(scene.admit(5, &[1, 5], 2), Err(Refusal::TokenOtherTorrent));
    assert_eq!(scene.admit(6, &[1, 5], 1), Err(Refusal::TokenExpired));
    assert_eq!(scene.verified(), 1);
    assert_eq!(scene.admit(0, &[1, 5, 1], 1), Ok(()), "another token");
    assert_eq!(scene.verified(), 2);
    assert_eq!(scene.tokens.stats().remembered, 2);
    // Asking for the end of a token verifies none.
    let until = |token: &[u8]| scene.tokens.remembered(token).map(|known| known.until);
    assert_eq!([until(&[1, 5]), until(&[1, 5, 2])], [Some(Tick(5)), None]);
    assert_eq!(scene.verified(), 2);
}

#[test]
fn faults_are_told_apart_and_not_remembered() {
    let scene = Scene::new();
    for _ in 0..2 {
        assert_eq!(scene.admit(0, &[0, 5], 0), Err(Refusal::TokenInvalid));
        assert_eq!(scene.admit(0, &[1, 0], 1), Err(Refusal::TokenExpired));
    }
    assert_eq!(scene.verified(), 4);
    assert_eq!(scene.admit(0, b"", 1), Err(Refusal::TokenInvalid));
    assert_eq!(scene.admit(0, &vec![1; limits::TOKEN_LEN_MAX + 1], 1), Err(Refusal::TokenInvalid));
    let TokenStats { valid, refused, remembered, .. } = scene.tokens.stats();
    assert_eq!((scene.verified(), valid, refused, remembered), (4, 0, 4, 0));
}

#[test]
fn a_new_verifier_forgets_what_the_old_one_verified() {
    let scene = Scene::new();
    scene.admit(0, &[1, 99], 1).unwrap();
    scene.tokens.set_verifier(Some(Box::new(Plain(Arc::clone(&scene.verified)))));
    scene.admit(0, &[1, 99], 1).unwrap();
    assert_eq!(scene.verified(), 2);
    assert_eq!(scene.tokens.stats().remembered, 1);
    scene.tokens.set_verifier(None);
    assert_eq!(scene.tokens.stats().remembered, 0);
    assert_eq!(scene.admit(0, &[1, 99], 1), Err(Refusal::TokenUnverified));
    let never = Tokens::new([7; 16]);
    let refusal = never.admit(Tick(0), &[1, 9], &InfoHash([1; 20]), None, &mut 1);
    assert_eq!(refusal, Err(Refusal::TokenUnverified));
}

#[test]
fn verifications_are_limited_by_second_and_batch() {
    let scene = Scene::new();
    let token = |number: u32| [&[1, 99][..], &number.to_be_bytes()].concat();
    let is_admitted = |number: &u32| scene.admit(7, &token(*number), 1).is_ok();
    let admitted: Vec<_> = (0..VERIFICATIONS_PER_S + 2).filter(is_admitted).collect();
    assert_eq!(admitted, (0..VERIFICATIONS_PER_S).collect::<Vec<_>>());
    // Remembered ones need no verification.
    assert_eq!(scene.admit(7, &token(0), 1), Ok(()));
    assert_eq!(scene.admit(8, &token(VERIFICATIONS_PER_S), 1), Ok(()));
    let mut left = 1;
    let mut admit =
        |number| scene.tokens.admit(Tick(9), &token(number), &InfoHash([1; 20]), None, &mut left);
    assert_eq!([admit(5000), admit(5001)], [Ok(()), Err(Refusal::TokenUnverified)]);
    assert_eq!(scene.tokens.stats().deferred, 3);
}

#[test]
fn prefixes_with_many_bad_tokens_are_not_verified() {
    let scene = Scene::new();
    for number in 0..70 {
        let refusal = scene.admit(0, &[0, number], 1).unwrap_err();
        let expected = if number < 60 { Refusal::TokenInvalid } else { Refusal::TokenUnverified };
        assert_eq!(refusal, expected, "{number}");
    }
    assert_eq!(scene.verified(), 60);
    assert_eq!(scene.admit(0, &[1, 99], 1), Err(Refusal::TokenUnverified));
    let other = Some([1, 2, 3, 5].into());
    assert_eq!(scene.admit_from(0, &[1, 99], 1, other), Ok(()));
    assert_eq!(scene.admit(0, &[1, 99], 1), Ok(()), "remembered by now");
    assert_eq!(scene.admit(60, &[1, 98], 1), Ok(()), "a minute later");
    let exempt = (0..70).map(|number| scene.admit_from(61, &[0, number], 1, None));
    assert!(exempt.into_iter().all(|verdict| verdict == Err(Refusal::TokenInvalid)));
}

#[test]
fn the_token_that_expires_first_makes_room() {
    let scene = Scene::new();
    let verifier = scene.tokens.verifier.load_full().unwrap();
    let of = |number: u32| [7, number.into()];
    for number in 0..SHARD_MAX as u32 + 100 {
        let until = Tick(number);
        let new = RememberedToken { tag: of(number), info_hash: InfoHash([1; 20]), until };
        verifier.remember(new);
        verifier.remember(new);
    }
    assert_eq!(scene.tokens.stats().remembered, SHARD_MAX as u64);
    assert!(verifier.find(of(99)).is_none() && verifier.find(of(100)).is_some());
}
