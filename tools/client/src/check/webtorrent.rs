//! WebTorrent steps: one client's offer must reach the other, and the answer must come back.

use std::time::Instant;

use types::{Announce, NumWant, OfferId};
use wire::webtorrent::Offer;

use super::Verdict;
use super::address_check::{AddressCheck, milliseconds};
use crate::session::Protocol;
use crate::webtorrent::WebTorrent;
use crate::{Session, TrackerError, random};

/// Session descriptions in the form that browsers send; no connection is possible with them.
const OFFER: &str =
    r#"{"type":"offer","sdp":"v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"}"#;
const ANSWER: &str =
    r#"{"type":"answer","sdp":"v=0\r\no=- 3 4 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"}"#;

/// Runs the steps that follow the first client's two announces.
pub(super) fn run(check: &mut AddressCheck<'_>, session: Session) {
    let Protocol::WebTorrent(mut first) = session.0 else { return };
    let mut second = None;
    if check.own_torrent {
        second = check_introduction(check, &mut first);
    } else {
        check.findings.skip(&["introduction"], "other clients share this torrent");
    }
    let mut session = Session(Protocol::WebTorrent(first));
    let scraped = check.scrape(&mut session, if second.is_some() { 2 } else { 1 });
    stop(check, &mut session, second, scraped.is_some());
    if let Protocol::WebTorrent(first) = session.0 {
        keep_alive(check, first);
    }
}

/// Connects a second client and relays an offer. Returns its connection if it could be opened.
fn check_introduction(check: &mut AddressCheck<'_>, first: &mut WebTorrent) -> Option<WebTorrent> {
    let opened = WebTorrent::open(check.url, check.address, &check.config);
    let opened = opened.and_then(|mut second| second.handshake().map(|()| second));
    let mut second = match opened {
        Ok(second) => second,
        Err(error) => {
            check.findings.fail("introduction", &error);
            return None;
        }
    };
    let (verdict, text) = match relay(check, first, &mut second) {
        Ok((text, true)) => (Verdict::Ok, text),
        Ok((text, false)) => (Verdict::Warning, text),
        Err(error) => (Verdict::Failed, error.text),
    };
    check.findings.add("introduction", verdict, text);
    Some(second)
}

/// Relays an offer and its answer. Returns a description and whether everything was correct.
fn relay(
    check: &AddressCheck<'_>,
    first: &mut WebTorrent,
    second: &mut WebTorrent,
) -> Result<(String, bool), TrackerError> {
    let named = |what: &'static str| {
        move |error: TrackerError| TrackerError { text: format!("{what}: {}", error.text), ..error }
    };
    let id = OfferId(random());
    let offer = Offer { id, json: OFFER };
    let start = Instant::now();
    let announced = Announce { want: NumWant::Peers(1), ..check.second };
    second.announce(&announced, &[offer]).map_err(named("a second client's announce"))?;
    let offered = first.wait(|it| !it.is_answer && it.offer_id == id);
    let offered = offered.map_err(named("a second client's offer did not reach the first"))?;
    let there = milliseconds(start.elapsed());
    let start = Instant::now();
    first.answer(&offered, check.first.peer_id, ANSWER)?;
    let answered = second.wait(|it| it.is_answer && it.offer_id == id);
    let answered = answered.map_err(named("the answer to an offer did not come back"))?;
    let back = milliseconds(start.elapsed());
    let is_own = second.relayed.iter().any(|it| it.offer_id == id);
    let names = [offered.peer_id, answered.peer_id];
    let violation = if is_own {
        Some("the offer is also relayed to its sender")
    } else if names != [check.second.peer_id, check.first.peer_id] {
        Some("relayed messages carry a wrong peer id")
    } else if !(is_same(&offered.json, OFFER) && is_same(&answered.json, ANSWER)) {
        Some("relayed session descriptions are altered")
    } else {
        None
    };
    let text = format!("offer relayed in {there}, answer in {back}");
    Ok(match violation {
        None => (text, true),
        Some(violation) => (format!("{text}; {violation}"), false),
    })
}

/// Returns whether two texts are equal as JSON: a tracker may re-serialize what it relays.
fn is_same(one: &str, other: &str) -> bool {
    let read = serde_json::from_str::<serde_json::Value>;
    matches!((read(one), read(other)), (Ok(one), Ok(other)) if one == other)
}

fn stop(
    check: &mut AddressCheck<'_>,
    first: &mut Session,
    second: Option<WebTorrent>,
    scrapes: bool,
) {
    let client = check.first;
    if check.leave(first, &client).is_none() {
        return;
    }
    if let Some(second) = second {
        let client = check.second;
        if check.leave(&mut Session(Protocol::WebTorrent(second)), &client).is_none() {
            return;
        }
    }
    check.check_gone(first, scrapes, 0);
}

fn keep_alive(check: &mut AddressCheck<'_>, mut first: WebTorrent) {
    let name = "keep-alive";
    let start = Instant::now();
    if let Err(error) = first.ping() {
        let text = format!("ping failed: {error}");
        return check.findings.add(name, Verdict::Failed, text);
    }
    let took = milliseconds(start.elapsed());
    match first.close() {
        Ok(()) => check.findings.add(name, Verdict::Ok, format!("pong in {took}; closed cleanly")),
        Err(error) => {
            let text = format!("pong in {took}; not closed cleanly: {error}");
            check.findings.add(name, Verdict::Warning, text);
        }
    }
}
