//! WebTorrent: an offer goes from one client to the other, and its answer back.

use std::time::Instant;

use types::{Announce, Event, NumWant, OfferId};
use wire::webtorrent::Offer;

use super::Verdict;
use super::steps::{Visit, milliseconds};
use crate::session::Protocol;
use crate::web::Web;
use crate::{Fault, Session, random};

/// What nobody could connect by, but is of the form that browsers give.
const OFFER: &str =
    r#"{"type":"offer","sdp":"v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"}"#;
const ANSWER: &str =
    r#"{"type":"answer","sdp":"v=0\r\no=- 3 4 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"}"#;

/// What is to be seen once the first client has announced twice.
pub(super) fn run(visit: &mut Visit<'_>, session: Session) {
    let Protocol::Web(mut first) = session.0 else { return };
    let mut second = None;
    if visit.is_alone {
        second = introduce(visit, &mut first);
    } else {
        visit.found.skip(&["introduction"], "others have this torrent, too");
    }
    let mut session = Session(Protocol::Web(first));
    let scraped = visit.scrape(&mut session, if second.is_some() { 2 } else { 1 });
    let Protocol::Web(mut first) = session.0 else { return };
    stop(visit, &mut first, second, scraped.is_some());
    keeping(visit, first);
}

/// Gives the second client's connection, if it could announce.
fn introduce(visit: &mut Visit<'_>, first: &mut Web) -> Option<Web> {
    let opened = Web::open(visit.url, visit.address, &visit.manner);
    let opened = opened.and_then(|mut second| second.shake_hands().map(|()| second));
    let mut second = match opened {
        Ok(second) => second,
        Err(fault) => {
            visit.found.fault("introduction", &fault);
            return None;
        }
    };
    let (verdict, text) = match relay(visit, first, &mut second) {
        Ok((text, true)) => (Verdict::Ok, text),
        Ok((text, false)) => (Verdict::Warning, text),
        Err(fault) => (Verdict::Failed, fault.text),
    };
    visit.found.say("introduction", verdict, text);
    Some(second)
}

/// What has become of an offer and its answer, and whether all of it is as it should be.
fn relay(visit: &Visit<'_>, first: &mut Web, second: &mut Web) -> Result<(String, bool), Fault> {
    let named = |what: &'static str| {
        move |fault: Fault| Fault { text: format!("{what}: {}", fault.text), ..fault }
    };
    let id = OfferId(random());
    let offer = Offer { id, json: OFFER };
    let start = Instant::now();
    let announced = Announce { want: NumWant::Peers(1), ..visit.second };
    second.announce(&announced, &[offer]).map_err(named("a second client's announce"))?;
    let offered = first.wait(|it| !it.is_answer && it.offer_id == id);
    let offered = offered.map_err(named("a second client's offer does not reach the first"))?;
    let there = milliseconds(start.elapsed());
    let start = Instant::now();
    first.answer(&offered, visit.first.peer_id, ANSWER)?;
    let answered = second.wait(|it| it.is_answer && it.offer_id == id);
    let answered = answered.map_err(named("the answer to an offer does not come back"))?;
    let back = milliseconds(start.elapsed());
    let is_own = second.relayed.iter().any(|it| it.offer_id == id);
    let names = [offered.peer_id, answered.peer_id];
    let departure = if is_own {
        Some("who offers is sent its own offer, too")
    } else if names != [visit.second.peer_id, visit.first.peer_id] {
        Some("what is relayed has another sender's name")
    } else if !(is_same(&offered.json, OFFER) && is_same(&answered.json, ANSWER)) {
        Some("what is relayed is not what was sent")
    } else {
        None
    };
    let text = format!("an offer arrives in {there}, its answer in {back}");
    Ok(match departure {
        None => (text, true),
        Some(departure) => (format!("{text}; but {departure}"), false),
    })
}

/// Whether two texts are the same JSON: a tracker may write it anew.
fn is_same(one: &str, other: &str) -> bool {
    let read = serde_json::from_str::<serde_json::Value>;
    matches!((read(one), read(other)), (Ok(one), Ok(other)) if one == other)
}

fn stop(visit: &mut Visit<'_>, first: &mut Web, second: Option<Web>, scrapes: bool) {
    let stopped =
        |peer: &Announce| Announce { event: Event::Stopped, want: NumWant::Peers(0), ..*peer };
    let mut leave = |web: &mut Web, peer: &Announce| match web.announce(&stopped(peer), &[]) {
        Ok(_) => true,
        Err(fault) => {
            visit.found.fault("stopped", &fault);
            false
        }
    };
    let (one, other) = (visit.first, visit.second);
    let gone = leave(first, &one) && second.is_none_or(|mut second| leave(&mut second, &other));
    if !gone {
        return;
    }
    let hashes = [visit.first.info_hash];
    let left = (scrapes && visit.is_alone).then(|| first.scrape(&hashes).ok());
    visit.gone(left.flatten().and_then(|all| *all.first()?), 0);
}

fn keeping(visit: &mut Visit<'_>, mut first: Web) {
    let name = "keep-alive";
    let start = Instant::now();
    if let Err(fault) = first.ping() {
        let text = format!("a ping: {fault}");
        return visit.found.say(name, Verdict::Failed, text);
    }
    let took = milliseconds(start.elapsed());
    match first.close() {
        Ok(()) => visit.found.say(name, Verdict::Ok, format!("a pong in {took}, and a proper end")),
        Err(fault) => {
            let text = format!("a pong in {took}, but no proper end: {fault}");
            visit.found.say(name, Verdict::Warning, text);
        }
    }
}
