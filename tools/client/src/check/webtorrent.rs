//! WebTorrent steps: one client's offer must reach the other, and the answer must come back.

use std::time::Instant;

use types::{Announce, NumWant, OfferId};
use wire::webtorrent::Offer;

use super::steps::{AddressCheck, milliseconds};
use super::{Finding, failed, failed_by, ok, warning};
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
        second = introduce(check, &mut first);
    } else {
        check.findings.skip(&["introduction"], "other clients share this torrent");
    }
    let mut session = Session(Protocol::WebTorrent(first));
    let scrapes = check.scrape(&mut session, if second.is_some() { 2 } else { 1 });
    stop(check, &mut session, second, scrapes);
    if let Protocol::WebTorrent(first) = session.0 {
        check.findings.add("keep-alive", keep_alive(first));
    }
}

/// Connects a second client and relays an offer. Returns its connection if it could be opened.
fn introduce(check: &mut AddressCheck<'_>, first: &mut WebTorrent) -> Option<WebTorrent> {
    let opened = WebTorrent::open(check.url, check.address, &check.config);
    let mut opened = opened.and_then(|mut second| second.handshake().map(|()| second));
    let finding = match &mut opened {
        Ok(second) => relay(check, first, second).unwrap_or_else(|error| failed(error.text)),
        Err(error) => failed_by(error),
    };
    check.findings.add("introduction", finding);
    opened.ok()
}

/// Relays an offer and its answer.
fn relay(
    check: &AddressCheck<'_>,
    first: &mut WebTorrent,
    second: &mut WebTorrent,
) -> Result<Finding, TrackerError> {
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
        None => ok(text),
        Some(violation) => warning(format!("{text}; {violation}")),
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
    check.findings.add("stopped", check.gone(first, scrapes, 0));
}

fn keep_alive(mut first: WebTorrent) -> Finding {
    let start = Instant::now();
    if let Err(error) = first.ping() {
        return failed(format!("ping failed: {error}"));
    }
    let took = milliseconds(start.elapsed());
    match first.close() {
        Ok(()) => ok(format!("pong in {took}; closed cleanly")),
        Err(error) => warning(format!("pong in {took}; not closed cleanly: {error}")),
    }
}
