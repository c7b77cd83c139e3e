//! Requirements of a listener: its lists, its addresses, keys.

use super::*;

#[test]
fn lists_hold_for_scrapes_too() {
    let tracker = crowd(Policy::default());
    announce(&tracker, &[request(1, 2)]);
    let hashes = [InfoHash([1; 20]), InfoHash([2; 20]), InfoHash([9; 20])];
    let mut counts = [SwarmCounts::default(); 3];
    assert_eq!(scrape(&tracker, 0, &hashes, &mut counts), Ok(()));
    assert_eq!(counts.map(|count| count.leechers()), [60, 1, 0]);

    let allow = Arc::new([hashes[1]].into_iter().collect::<HashList>());
    set_lists(&tracker, AccessLists { mode: Mode::Allow, allow, ..AccessLists::default() });
    assert_eq!(scrape(&tracker, 0, &hashes, &mut counts), Ok(()));
    assert_eq!(counts.map(|count| count.leechers()), [0, 1, 0]);
    let only_refused = scrape(&tracker, 0, &hashes[..1], &mut counts[..1]);
    assert_eq!(only_refused, Err(Refusal::NotAllowed));
}

#[test]
fn no_listener_loses_its_policy() {
    let tracker = tracker(Policy::default());
    let before = tracker.settings();
    let private = ListenerPolicy { access: Access::Private, ..ListenerPolicy::default() };
    tracker.replace_listeners(&[ListenerPolicy::default(), private]);
    tracker.replace_listeners(&[ListenerPolicy::default()]);
    assert!(before.listeners.len() == 1 && tracker.settings().listeners[1].is_private());
}

/// An announce with a key by the listener of that number. All peers have one address.
fn with_key(view: &View<'_>, listener: u16, key: UserKey, peer: u8, hash: u8) -> AnnounceRequest {
    let (from, kind, key) = ([8; 4].into(), RequestKind::Announce, Some(key.as_bytes()));
    let grant = view.authorize_unverified(ListenerPolicyId(listener), from, kind, key).unwrap();
    AnnounceRequest { grant, ..request(peer, hash) }
}

#[test]
fn quotas_of_keys_hold_within_a_batch() {
    let tracker = tracker(Policy::default());
    let private = ListenerPolicy { access: Access::Private, ..ListenerPolicy::default() };
    tracker.replace_listeners(&[ListenerPolicy::default(), private]);
    let key = UserKey::parse("0123456789abcdef").unwrap();
    tracker.passkeys().put(KeyId(5), key, KeyRules { torrents: 1, ..KeyRules::default() });
    let by = |hash| with_key(&tracker.view(Tick(0)), 1, key, 1, hash);
    let requests = [by(1), by(2), by(1), stop(by(1)), by(2), request(1, 3)];
    let refusals = announce(&tracker, &requests).refusals();
    assert_eq!(refusals, [None, Some(Refusal::KeyTorrents), None, None, None, None]);
    let mut totals = Vec::new();
    tracker.passkeys().take_totals(&mut totals);
    assert_eq!((totals[0].0, totals[0].1.announces), (KeyId(5), 4));
    tracker.passkeys().remove(KeyId(5));
    let refusals = announce(&tracker, &[by(2)]).refusals();
    assert_eq!(refusals, [Some(Refusal::KeyUnknown)], "at once");
}

/// Two users behind one address, and two workers' batches.
#[test]
fn a_stop_by_another_key_is_answered_and_changes_nothing() {
    let tracker = tracker(Policy::default());
    set_policy(&tracker, ListenerPolicy { access: Access::Private, ..ListenerPolicy::default() });
    let [bob, eve] =
        ["bob-456789abcdef", "eve-456789abcdef"].map(|key| UserKey::parse(key).unwrap());
    tracker.passkeys().put(KeyId(1), bob, KeyRules::default());
    tracker.passkeys().put(KeyId(2), eve, KeyRules { torrents: 9, ..KeyRules::default() });
    let start = |key, peer| with_key(&tracker.view(Tick(0)), 0, key, peer, 1);
    let end = |key, peer| stop(start(key, peer));
    let leechers = |requests: &[AnnounceRequest]| {
        let seen = announce(&tracker, requests);
        assert!(seen.peers.is_empty());
        let answers = seen.answers.into_iter();
        answers.map(|(_, answer)| answer.unwrap().counts.leechers()).collect::<Vec<_>>()
    };
    assert_eq!(leechers(&[start(bob, 1)]), [1]);
    // With the peer's id, with another one, and in one batch.
    assert_eq!(leechers(&[end(eve, 1), end(eve, 2), end(bob, 2)]), [1, 1, 1]);
    assert_eq!(leechers(&[end(bob, 1)]), [0]);
    // Its key counts a peer with bounds by address and port, whatever its id is by now.
    assert_eq!(leechers(&[start(eve, 1)]), [1]);
    assert_eq!(leechers(&[end(bob, 1)]), [1]);
    assert_eq!(leechers(&[end(eve, 2)]), [0]);
}

/// Permits torrent 1 for ten seconds.
struct TenSeconds;

impl TokenVerifier for TenSeconds {
    fn verify(&self, token: &[u8]) -> Result<VerifiedToken, TokenFault> {
        match token {
            b"good" => Ok(VerifiedToken { info_hash: InfoHash([1; 20]), valid_s: 10 }),
            b"old" => Err(TokenFault::Expired),
            _ => Err(TokenFault::Invalid),
        }
    }
}

#[test]
fn a_stop_needs_a_token_that_is_valid_or_was_verified_before_it_expired() {
    let tracker = tracker(Policy::default());
    set_policy(&tracker, ListenerPolicy { access: Access::Tokens, ..ListenerPolicy::default() });
    tracker.tokens().set_verifier(Some(Box::new(TenSeconds)));
    let admits = |now, token: Option<&str>, torrent, event| {
        let view = tracker.view(Tick(now));
        let (policy, from) = (ListenerPolicyId(0), [8; 4].into());
        let grant = view.authorize_unverified(policy, from, RequestKind::Announce, None).unwrap();
        view.authorize_token(&grant, token.map(str::as_bytes), &InfoHash([torrent; 20]), event)
            .err()
    };
    for event in [Event::Started, Event::Stopped] {
        assert_eq!(admits(0, None, 1, event), Some(Refusal::TokenMissing));
        assert_eq!(admits(0, Some("bad"), 1, event), Some(Refusal::TokenInvalid));
        assert_eq!(admits(0, Some("old"), 1, event), Some(Refusal::TokenExpired));
        assert_eq!(admits(0, Some("good"), 2, event), Some(Refusal::TokenOtherTorrent));
        assert_eq!(admits(10, Some("good"), 1, event), None);
    }
    assert_eq!(admits(11, Some("good"), 1, Event::None), Some(Refusal::TokenExpired));
    assert_eq!(admits(11, Some("good"), 1, Event::Stopped), None);
    assert_eq!(admits(11, Some("good"), 2, Event::Stopped), Some(Refusal::TokenExpired));
    // Its keys are revoked.
    tracker.tokens().set_verifier(Some(Box::new(TenSeconds)));
    assert_eq!(admits(0, Some("good"), 1, Event::Stopped), None);
    tracker.tokens().set_verifier(None);
    assert_eq!(admits(11, Some("good"), 1, Event::Stopped), Some(Refusal::TokenUnverified));
}

#[test]
fn sessions_expire_with_their_peers() {
    let tracker = tracker(Policy { peer_lifetime_s: 100, ..Policy::default() });
    set_policy(&tracker, ListenerPolicy { access: Access::Private, ..ListenerPolicy::default() });
    let key = UserKey::parse("0123456789abcdef").unwrap();
    tracker.passkeys().put(KeyId(5), key, KeyRules { torrents: 1, ..KeyRules::default() });
    let at = |now, hash| {
        let view = tracker.view(Tick(now));
        let request = with_key(&view, 0, key, 1, hash);
        announce_by(&view, &mut Random::new(1), &[request]).refusals()[0]
    };
    assert_eq!([at(0, 1), at(50, 2)], [None, Some(Refusal::KeyTorrents)]);
    let sweep = |now| (0..20).for_each(|_| tracker.sweep(Tick(now), 20));
    sweep(100);
    assert_eq!((at(100, 2), tracker.passkeys().sessions()), (Some(Refusal::KeyTorrents), 1));
    sweep(101);
    assert_eq!((at(101, 2), tracker.passkeys().sessions()), (None, 1));
}
