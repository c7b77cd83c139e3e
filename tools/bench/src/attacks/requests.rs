//! Attacks by requests: on the management API, and on the bounds of a key.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use harness::http;

use super::{HELD, HONEST, KEY, Outcome, Target};
use crate::lab::TOKEN_VARIABLES;
use crate::record::Figures;

const REQUESTS: u32 = 200;
const TORRENTS: u8 = 50;

/// Asks without a token, or with wrong ones, and then with a valid one, all from one address.
pub(super) fn attack_api(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let without = |_| String::new();
    let wrong =
        |number| format!("Authorization: Bearer tg_wrongwrongwrongwrongwrong{number:08}\r\n");
    let attacks = [
        ("API, requests without a token", without as fn(u32) -> String),
        ("API, wrong tokens", wrong),
    ];
    let mut outcomes = Vec::new();
    for (case, header) in attacks {
        let (_tracker, _api) = target.start(&[])?;
        let get = |header: &str| -> Result<u16> {
            Ok(http::request(target.admin, "GET /api/v1/stats", header, b"")?.status)
        };
        for number in 0..REQUESTS {
            get(&header(number))?;
        }
        let [(_, token), _] = TOKEN_VARIABLES;
        let mut served = 0;
        let mut last = 0;
        for _ in 0..20 {
            last = get(&format!("Authorization: Bearer {token}\r\n"))?;
            served += u32::from(last == 200);
        }
        let figures = Figures::default().with(HONEST, f64::from(served) / 20.0);
        outcomes.push((
            case,
            figures,
            format!("{served} of 20 requests with a valid token served, the last with {last}"),
        ));
    }
    Ok(outcomes)
}

/// Uses a key whose bound is one torrent for many: each is left by a `stopped` from another port.
pub(super) fn attack_key(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let (tracker, mut api) = target.start(&[("TIDEGATE_ACCESS__PRIVATE", "true")])?;
    api.ask(201, "POST /api/v1/keys", &format!("{{\"key\":\"{KEY}\",\"torrents\":1}}"))?;
    let mut held = 0;
    for torrent in 0..TORRENTS {
        let started = announce(tracker.address, torrent, 6881, "started")?;
        held += u32::from(started);
        announce(tracker.address, torrent, 6882, "stopped")?;
    }
    ensure!(held > 0, "a valid key was refused");
    let figures = Figures::default().with(HELD, f64::from(held));
    Ok(vec![("key with a bound of one torrent", figures, format!("it is on {held} torrents"))])
}

/// Announces over HTTP. Returns whether it was accepted.
fn announce(tracker: SocketAddr, torrent: u8, port: u16, event: &str) -> Result<bool> {
    let hash = format!("%{torrent:02x}").repeat(20);
    let target = format!(
        "GET /announce/{KEY}?info_hash={hash}&peer_id=-XX0001-000000000000&port={port}\
         &uploaded=0&downloaded=0&left=1&event={event}&compact=1"
    );
    let response = http::request(tracker, &target, "", b"").context("announce")?;
    Ok(!response.has("failure reason"))
}
